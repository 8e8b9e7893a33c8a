"""`certify`: every trait that a method declares, measured on one problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...core.errors import InputError, MethodError, SimulationError, whole_number
from ...core.types import Key, Numbers
from ...mechanics.abstract import AbstractSystem
from ...mechanics.problem import Problem
from ...mechanics.projection import as_state_arrays, check_constant_mass, check_start
from ...methods.base import AbstractMethod, Traits
from ...run.arguments import MAX_STEPS, check_method
from .certificate import Certificate, Finding
from .measure import MIN_STEPS, LongRun, Orders, Reference, long_run, orders, reversal, symplectic_defect, wedge_defect

MEASUREMENTS = ("order", "symplectic", "wedge", "symmetric", "constraint", "energy", "invariants", "iterations")

# What counts as round-off, relative to the sizes involved; and how near a measured order must come to a claim.
EXACT = 1e-12
STRUCTURE = 1e-10
ORDER = 0.2


def certify(
    method: AbstractMethod,
    problem: Problem,
    *,
    dt: float | None = None,
    steps: int | None = None,
    measure: Iterable[str] | None = None,
    reference: AbstractMethod | None = None,
    key: Key | None = None,
) -> Certificate:
    """Measure what `method` promises on `problem` and say for each declared property whether it is confirmed.

    The problem itself is always run: from its start, with its `dt`, over its whole length or over `steps` steps. Drifts
    are measured in this run, which has at least 4000 steps unless `steps` says otherwise. Orders are slopes over at
    least three step sizes clear of round-off, from a generic point of the trajectory, against a much finer run of
    `reference` (an eighth-order composition of RATTLE by default). Symplecticity is measured on the cotangent bundle of
    the manifold, reversal by going 100 steps out and back. `measure` names a selection of `MEASUREMENTS`.

    Whatever is measured in a run that stops early has failed, and the finding says why.
    """
    if not isinstance(problem, Problem):
        raise InputError(
            f"certify(method, problem) needs a Problem, not {type(problem).__name__}: a system with a start, a step "
            "and an end, as hx.models gives them, or hx.Problem(system, q0, p0, dt, t1)"
        )
    if jnp.result_type(float) != jnp.float64:
        raise InputError("certify measures against the round-off of 64-bit floats: unset HOLONOMIX_X64=0")
    wanted = _selection(measure)
    dt = float(problem.dt if dt is None else dt)
    if not np.isfinite(dt) or dt <= 0:
        raise InputError(f"dt must be positive and finite, not {dt}")
    if steps is not None and whole_number("steps", steps, 10) > MAX_STEPS:  # fewer show no drift
        raise InputError(f"{steps:.3g} steps are more than can be counted")
    q0, p0 = as_state_arrays(problem.q0, problem.p0)
    check_method(method, problem.system)
    check_constant_mass(problem.system, q0)
    check_start(problem.system, q0, p0, dt=problem.dt)
    system = problem.system.prepare(q0)
    traits = method.traits_on(system)
    least = MIN_STEPS if wanted & {"constraint", "energy", "invariants"} else 1
    run = long_run(system, method, problem, dt, steps, key, least)
    drifts = _long_run(system, method, traits, wanted, run)
    findings: list[Finding] = []
    table = None
    if not method.stochastic and wanted & {"order", "symplectic", "wedge", "symmetric"}:
        try:
            table, findings = _local(system, method, traits, wanted, problem, dt, reference)
        except SimulationError as error:
            if not run.ended:
                raise  # the method did what it had to; without a reference nothing can be said
            names = {"order": "order of q", "symplectic": "symplectic", "symmetric": "symmetric"}
            findings = [_failed(names[name], str(error)) for name in names if name in wanted]
    elif method.stochastic:
        named = [name for name in ("order", "symplectic", "symmetric") if name in wanted]
        findings = [_without_meaning(name, "the method draws random numbers") for name in named]
    if run.ended and all(f.kept is not False for f in drifts):
        drifts.append(_failed("run", run.ended, float(run.steps)))
    return Certificate(
        method.name,
        problem.name or "problem",
        system.kind,
        dt,
        (*findings, *drifts),
        () if table is None else tuple(table.dt),
        {} if table is None else {k: tuple(v) for k, v in table.errors.items()},
    )


def _local(
    system: AbstractSystem,
    method: AbstractMethod,
    traits: Traits,
    wanted: set[str],
    problem: Problem,
    dt: float,
    reference: AbstractMethod | None,
) -> tuple[Orders | None, list[Finding]]:
    """Orders and structure, from a generic point of the trajectory."""
    reference = _default_reference(method, system) if reference is None else reference
    offset = 0.34 * min(problem.t1, 40 * problem.dt)
    # errors of very high orders are above round-off only after a longer time
    span = min(problem.t1, (40 if traits.order_of("q") <= 8 else 300) * problem.dt)
    q, p, _ = Reference(system, reference, problem.q0, problem.p0, 0.0, problem.dt).rows(offset, 1)
    q, p = jnp.asarray(q[-1]), jnp.asarray(p[-1])
    table, findings = None, []
    if "order" in wanted and not method.tolerance_driven:
        exact = Reference(system, reference, q, p, offset, problem.dt)
        table, findings = _order(system, method, traits, exact, span, dt)
    return table, findings + _structure(system, method, traits, wanted, q, p, offset, dt)


def _selection(measure: Iterable[str] | None) -> set[str]:
    names = MEASUREMENTS if measure is None else (measure,) if isinstance(measure, str) else measure
    wanted: set[str] = set(names)
    if not wanted:
        raise InputError(f"measure names nothing to measure; there are {', '.join(MEASUREMENTS)}")
    if wanted - set(MEASUREMENTS):
        raise InputError(
            f"unknown measurements {sorted(wanted - set(MEASUREMENTS))}; there are {', '.join(MEASUREMENTS)}"
        )
    return wanted


def _default_reference(method: AbstractMethod, system: AbstractSystem) -> AbstractMethod:
    """An eighth-order composition of RATTLE; the method itself, much finer, where RATTLE cannot go."""
    from ...methods.composition import Composition
    from ...methods.rattle import RATTLE

    best = Composition(RATTLE(), order=8)
    try:
        best.check(system)
    except MethodError:
        return method
    return best


def _order(
    system: AbstractSystem, method: AbstractMethod, traits: Traits, reference: Reference, span: float, dt: float
) -> tuple[Any, list[Finding]]:
    by_variable = {} if isinstance(traits.order, int) else traits.order
    table = orders(system, method, reference, span, dt, multipliers="multipliers" in by_variable)
    findings = []
    reasons = list(table.stopped.values())
    for name, slope in table.slopes.items():
        declared, named = traits.order_of(name), f"order of {name}"
        if reasons or not table.dt:
            findings.append(_failed(named, reasons[0] if reasons else "every run failed", slope, declared, ORDER))
            continue
        note = f"{len(table.dt)} step sizes from {table.dt[0]:.2g} to {table.dt[-1]:.2g}"
        if np.isnan(slope):
            note = "not measured: fewer than three errors clear of round-off; give another dt"
        kept = None if np.isnan(slope) else bool(abs(slope - declared) <= ORDER)
        findings.append(Finding(named, slope, declared, kept, ORDER, note))
    return table, findings


def _structure(
    system: AbstractSystem, method: Any, traits: Traits, wanted: set[str], q: Numbers, p: Numbers, t: float, dt: float
) -> list[Finding]:
    findings = []
    if system.forced:
        why = "an applied force need be neither Hamiltonian nor reversible"
        return [_without_meaning(name, why) for name in ("symplectic", "symmetric") if name in wanted]

    def measured(name: str, measure: Callable[..., float], declared: bool | None, note: str, *further: int) -> Finding:
        try:
            return _held(name, measure(system, method, q, p, t, dt, *further), declared, STRUCTURE, note)
        except SimulationError as error:
            return _failed(name, str(error), np.inf, declared, STRUCTURE)

    if "symplectic" in wanted:
        where = "on the cotangent bundle of the manifold" if system.has_constraints else "in phase space"
        findings.append(measured("symplectic", symplectic_defect, traits.symplectic, where))
    if "wedge" in wanted and system.has_constraints and traits.wedge:
        where = "on {G dq = 0}, where G M^-1 p is not zero"
        findings.append(measured("wedge product", wedge_defect, True, where))
    # walking back turns the momentum around, which a magnetic field and the hands of a clock do not
    if "symmetric" in wanted and not system.magnetic and not system.time_dependent:
        findings.append(measured("symmetric", reversal, traits.symmetric, "100 steps out and back", 100))
    return findings


def _long_run(
    system: AbstractSystem, method: AbstractMethod, traits: Traits, wanted: set[str], run: LongRun
) -> list[Finding]:
    """What the problem's own run shows."""
    over = f"over {run.steps} steps, t = {run.time:.3g}"
    findings = []
    if "constraint" in wanted and system.has_constraints:
        over_size = f"largest relative to its rows, {over}"
        findings.append(_held("constraint", run.constraint, traits.constraint_exact, EXACT, over_size))
        findings.append(_held("hidden constraint", run.hidden, traits.hidden_exact, EXACT, over_size))
    reason = _energy_changes(system, method)
    if "energy" in wanted and reason:
        findings.append(_without_meaning("energy", reason))
    elif "energy" in wanted:
        findings.append(_held("energy", run.energy_error, traits.energy_exact, EXACT, f"largest relative error {over}"))
        grows = run.energy.grows and run.energy.change > EXACT
        promise = True if traits.symplectic and not method.adaptive else None
        note = f"change of the mean; it oscillates by {run.energy.spread:.2g}" + ("; GROWS" if grows else "")
        kept = None if promise is None else not grows and bool(np.isfinite(run.energy.change))
        findings.append(Finding("energy drift", run.energy.change, None, kept, run.energy.spread, note))
    if "invariants" in wanted and not method.stochastic:
        findings += [Finding(f"{name} drift", value, note=over) for name, value in run.invariants.items()]
    if "iterations" in wanted and run.most_iterations > 0:
        findings.append(Finding("iterations", run.iterations, note=f"mean per step, {run.most_iterations} at most"))
    if not run.ended:
        return findings
    ended = {"kept": False, "note": run.ended, "stopped": True}
    return [dataclasses.replace(f, **ended) if f.applicable else f for f in findings]


def _held(name: str, value: float, declared: bool | None, bound: float, note: str) -> Finding:
    """A promise of round-off: kept, broken, or not made (and then nothing is held against the method)."""
    if not declared:
        extra = "kept here, though not promised; " if value <= bound and declared is not None else ""
        return Finding(name, value, declared, None, bound, extra + note)
    return Finding(name, value, declared, bool(value <= bound), bound, note)


def _failed(
    name: str, why: str, value: float = np.nan, declared: bool | int | None = None, bound: float | None = None
) -> Finding:
    """Something that was measured in a run that stopped early."""
    return Finding(name, value, declared, False, bound, why, stopped=True)


def _without_meaning(name: str, why: str) -> Finding:
    return Finding(name, float("nan"), note=why, applicable=False)


def _energy_changes(system: AbstractSystem, method: AbstractMethod) -> str:
    """Why the motion itself does not keep the energy; empty where it does."""
    if method.stochastic:
        return "a thermostat exchanges energy"
    if system.forced:
        return "an applied force does work"
    if system.time_dependent:
        return "the potential depends on time"
    return "moving constraints do work" if system.rheonomic else ""
