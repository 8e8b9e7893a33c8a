"""`certify`: measure every property that a method declares on one problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...core.checks import whole_number
from ...core.errors import InputError, MethodError, SimulationError
from ...core.types import ArrayLike, Key, Numbers
from ...mechanics.abstract import AbstractSystem
from ...mechanics.problem import Problem
from ...mechanics.projection import Newton, accepts_redundant, as_state_arrays, check_constant_mass, check_start
from ...methods.base import AbstractMethod, Traits
from ...run.arguments import MAX_STEPS, check_method
from ...run.preparation import with_redundancy
from .arguments import check_problem
from .certificate import Certificate, Finding
from .measure import (
    MIN_STEPS,
    LongRun,
    energy_balance,
    long_run,
    reversal,
    symplectic_defect,
    wedge_defect,
)
from .orders import Orders, Reference, orders

MEASUREMENTS = ("order", "symplectic", "wedge", "symmetric", "constraint", "energy", "invariants", "iterations")

# Relative tolerances for round-off in long runs and in maps of one step, and the tolerance for a measured order.
EXACT_TOLERANCE = 1e-12
STRUCTURE_TOLERANCE = 1e-10
ORDER_TOLERANCE = 0.2
AT_REST = "not measured: nothing moves, or too little to tell errors from round-off; choose another start"


def certify(
    problem: Problem,
    method: AbstractMethod,
    *start: ArrayLike,
    dt: float | None = None,
    steps: int | None = None,
    measure: Iterable[str] | None = None,
    reference: AbstractMethod | None = None,
    key: Key | None = None,
) -> Certificate:
    """Measure every property that `method` declares on `problem`, and report whether the measurement confirms it.

    The problem is always run from its own start with its own `dt`, over its whole length or over `steps` steps. Drifts
    are measured in this run, which has at least 4000 steps unless `steps` is given. Orders are slopes over at least
    three step sizes whose errors are clear of round-off. These runs start at a generic point of the trajectory, and
    their errors are taken against a much finer run of `reference` (by default an eighth-order composition of RATTLE).
    Symplecticity is measured on the cotangent bundle of the manifold, reversibility by 100 steps forward and back.
    `measure` selects from `MEASUREMENTS`.

    A finding that was measured in a run that stopped early has failed, and its note gives the reason.
    """
    check_problem("certify(problem, method)", problem, *start)
    if jnp.result_type(float) != jnp.float64:
        raise InputError("certify measures against the round-off of 64-bit floats: unset HOLONOMIX_X64=0")
    wanted = _selection(measure)
    dt = float(problem.dt if dt is None else dt)
    if not np.isfinite(dt) or dt <= 0:
        raise InputError(f"dt must be positive and finite, not {dt}")
    if steps is not None and whole_number("steps", steps, 10) > MAX_STEPS:  # fewer than 10 steps show no drift
        raise InputError(f"{steps:.3g} steps are more than can be counted")
    q0, p0 = as_state_arrays(problem.q0, problem.p0)
    check_method(method, problem.system)
    check_constant_mass(problem.system, q0)
    check_start(problem.system, q0, p0, dt=problem.dt, redundant=accepts_redundant(method))
    system = with_redundancy(problem.system, method).prepare(q0)
    traits = method.traits_on(system)
    least = MIN_STEPS if wanted & {"constraint", "energy", "invariants"} else 1
    run = long_run(system, method, problem, dt, steps, key, least)
    drifts = _drifts(system, method, traits, wanted, run)
    if "energy" in wanted and not system.keeps_energy and not method.stochastic and not run.ended:
        value, count = energy_balance(system, method, problem, dt, run.steps)
        note = f"largest change of the energy minus the work done, relative, over {count} steps"
        drifts.append(Finding("energy balance", value, note=note))
    findings: list[Finding] = []
    table = None
    if not method.stochastic and wanted & {"order", "symplectic", "wedge", "symmetric"}:
        try:
            table, findings = _orders_and_structure(system, method, traits, wanted, problem, dt, reference)
        except SimulationError as error:
            if not run.ended:
                raise  # the method reached its end, but there is no reference to measure it against
            names = {"order": "order of q", "symplectic": "symplectic", "symmetric": "symmetric"}
            findings = [_failure(names[name], str(error)) for name in names if name in wanted]
    elif method.stochastic:
        named = [name for name in ("order", "symplectic", "symmetric") if name in wanted]
        findings = [_not_applicable(name, "the method draws random numbers") for name in named]
    if run.ended and all(f.kept is not False for f in drifts):
        drifts.append(_failure("run", run.ended, float(run.steps)))
    return Certificate(
        method.name,
        problem.name or "problem",
        system.kind,
        dt,
        (*findings, *drifts),
        () if table is None else tuple(table.dt),
        {} if table is None else {k: tuple(v) for k, v in table.errors.items()},
    )


def _orders_and_structure(
    system: AbstractSystem,
    method: AbstractMethod,
    traits: Traits,
    wanted: set[str],
    problem: Problem,
    dt: float,
    reference: AbstractMethod | None,
) -> tuple[Orders | None, list[Finding]]:
    """Measure orders, symplecticity and reversibility, starting at a generic point of the trajectory."""
    reference = _default_reference(method, system) if reference is None else reference
    offset = 0.34 * min(problem.t1, 40 * problem.dt)
    # errors of very high orders exceed round-off only after a longer time
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
        raise InputError(f"measure is empty: nothing to measure; choose from {', '.join(MEASUREMENTS)}")
    if wanted - set(MEASUREMENTS):
        raise InputError(
            f"unknown measurements {sorted(wanted - set(MEASUREMENTS))}; choose from {', '.join(MEASUREMENTS)}"
        )
    return wanted


def _default_reference(method: AbstractMethod, system: AbstractSystem) -> AbstractMethod:
    """An eighth-order composition of RATTLE; the method itself with finer steps if RATTLE cannot treat the system."""
    from ...methods.composition import Composition
    from ...methods.rattle import RATTLE

    solver = Newton(redundant="min-norm" if accepts_redundant(method) else None)
    best = Composition(RATTLE(solver), order=8)
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
            findings.append(
                _failure(named, reasons[0] if reasons else "every run failed", slope, declared, ORDER_TOLERANCE)
            )
            continue
        note = f"{len(table.dt)} step sizes from {table.dt[0]:.2g} to {table.dt[-1]:.2g}"
        if np.isnan(slope):
            note = "not measured: fewer than three errors are clear of round-off; try another dt"
        kept = None if np.isnan(slope) else bool(abs(slope - declared) <= ORDER_TOLERANCE)
        if kept is False and reference.rests(span):  # at rest, the slopes measure only round-off
            slope, kept, note = np.nan, None, AT_REST
        findings.append(Finding(named, slope, declared, kept, ORDER_TOLERANCE, note))
    return table, findings


def _structure(
    system: AbstractSystem,
    method: AbstractMethod,
    traits: Traits,
    wanted: set[str],
    q: Numbers,
    p: Numbers,
    t: float,
    dt: float,
) -> list[Finding]:
    """Findings on symplecticity, the wedge product and symmetry, as far as they are `wanted` and applicable."""
    findings = []
    if system.forced:
        why = "an applied force need not be Hamiltonian or reversible"
        return [_not_applicable(name, why) for name in ("symplectic", "symmetric") if name in wanted]

    def measured(
        name: str, measure: Callable[..., float | None], declared: bool | None, note: str, *further: float
    ) -> Finding:
        try:
            value = measure(system, method, q, p, t, dt, *further)
        except SimulationError as error:
            return _failure(name, str(error), np.inf, declared, STRUCTURE_TOLERANCE)
        if value is None and name == "symmetric":
            return Finding(name, np.nan, declared, None, STRUCTURE_TOLERANCE, AT_REST)
        if value is None:
            return _not_applicable(name, "the constraints leave no degree of freedom")
        return _check_exact(name, value, declared, STRUCTURE_TOLERANCE, note)

    if "symplectic" in wanted:
        where = "on the cotangent bundle of the manifold" if system.has_constraints else "in phase space"
        findings.append(measured("symplectic", symplectic_defect, traits.symplectic, where))
    if "wedge" in wanted and system.has_constraints and traits.wedge:
        where = "on {G dq = 0}, where G M^-1 p is not zero"
        findings.append(measured("wedge product", wedge_defect, True, where))
    irreversible = _why_no_way_back(system)
    if "symmetric" in wanted and irreversible:
        findings.append(_not_applicable("symmetric", f"{irreversible} do not reverse with the momentum"))
    elif "symmetric" in wanted:
        findings.append(
            measured("symmetric", reversal, traits.symmetric, "100 steps forward and back", 100, STRUCTURE_TOLERANCE)
        )
    return findings


def _why_no_way_back(system: AbstractSystem) -> str:
    """What the reversal of the momentum is no symmetry of; empty if it reverses the motion."""
    if system.magnetic:
        return "magnetic fields"
    if system.time_dependent:
        return "potentials that depend on time"
    return "moving constraints" if system.rheonomic else ""


def _drifts(
    system: AbstractSystem, method: AbstractMethod, traits: Traits, wanted: set[str], run: LongRun
) -> list[Finding]:
    """Findings from the problem's own run: constraint errors, energy error, drifts, iterations."""
    over = f"over {run.steps} steps, t = {run.time:.3g}"
    findings = []
    if "constraint" in wanted and system.has_constraints:
        over_size = f"largest error relative to the scale of its rows, {over}"
        findings.append(_check_exact("constraint", run.constraint, traits.constraint_exact, EXACT_TOLERANCE, over_size))
        findings.append(_check_exact("hidden constraint", run.hidden, traits.hidden_exact, EXACT_TOLERANCE, over_size))
    reason = _why_energy_changes(system, method)
    if "energy" in wanted and reason:
        findings.append(_not_applicable("energy", reason))
    elif "energy" in wanted:
        findings.append(
            _check_exact(
                "energy", run.energy_error, traits.energy_exact, EXACT_TOLERANCE, f"largest relative error {over}"
            )
        )
        grows = run.energy.grows and run.energy.change > EXACT_TOLERANCE
        promise = True if traits.symplectic and not method.adaptive else None
        note = f"change of the mean; it oscillates by {run.energy.spread:.2g}" + ("; GROWS" if grows else "")
        if grows and run.too_short:
            promise, note = None, f"change of the mean; too short a run to tell it from an oscillation, {over}"
        kept = None if promise is None else not grows and bool(np.isfinite(run.energy.change))
        findings.append(Finding("energy drift", run.energy.change, None, kept, run.energy.spread, note))
    if "invariants" in wanted and not method.stochastic:
        findings += [Finding(f"{name} drift", value, note=over) for name, value in run.invariants.items()]
    if "iterations" in wanted and run.most_iterations > 0:
        findings.append(Finding("iterations", run.iterations, note=f"mean per step, {run.most_iterations} at most"))
    if not run.ended and not run.at_rest:
        return findings
    if not run.ended:  # what does not move shows no error
        return [dataclasses.replace(f, kept=None, note=AT_REST) if f.kept else f for f in findings]
    ended = {"kept": False, "note": run.ended, "stopped": True}
    return [dataclasses.replace(f, **ended) if f.applicable else f for f in findings]


def _check_exact(name: str, value: float, declared: bool | None, bound: float, note: str) -> Finding:
    """The finding for a property that holds to round-off; without a declaration the verdict is None."""
    if not declared:
        extra = "holds here, though not declared; " if value <= bound and declared is not None else ""
        return Finding(name, value, declared, None, bound, extra + note)
    return Finding(name, value, declared, bool(value <= bound), bound, note)


def _failure(
    name: str, why: str, value: float = np.nan, declared: bool | int | None = None, bound: float | None = None
) -> Finding:
    """The finding for a measurement whose run stopped early."""
    return Finding(name, value, declared, False, bound, why, stopped=True)


def _not_applicable(name: str, why: str) -> Finding:
    return Finding(name, float("nan"), note=why, applicable=False)


def _why_energy_changes(system: AbstractSystem, method: AbstractMethod) -> str:
    """The reason why the exact motion does not conserve energy; empty if it does."""
    if method.stochastic:
        return "a thermostat exchanges energy"
    if system.forced:
        return "an applied force does work"
    if system.time_dependent:
        return "the potential depends on time"
    return "moving constraints do work" if system.rheonomic else ""
