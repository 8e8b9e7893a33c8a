"""Measurements of `certify` on the runs that users make: symplecticity, reversibility, drifts. Orders: `orders`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import SimulationError
from ...core.status import Status
from ...core.types import ArrayLike, Key, Numbers, Real
from ...mechanics.abstract import AbstractSystem
from ...mechanics.invariants import Trend, along, drift, trend
from ...mechanics.problem import Problem
from ...mechanics.projection import constraint_sizes, rounding_sizes, speed_sizes
from ...methods.base import AbstractMethod
from ...run.solution import integrate_rows, map_rows, power_of
from ...run.stepper import Consts, Stepper
from ...trace.compiled import compiled_for_one_run
from .runs import follow, follow_back, follow_until, one_step, step_functions, stop_error

# a motion, or an error, is round-off if the coordinates change by less than this part of their size
ROUND_OFF = 64 * float(np.finfo(float).eps)
# drifts are measured in runs of at least MIN_STEPS steps, on about ROWS of their rows
MIN_STEPS, ROWS = 4000, 400
MIN_TURNS = 4  # passages of the kinetic energy through its middle, in a run that tells a drift from an oscillation
SMALL_DRIFT = 1e-2  # of the range of the kinetic energy; a larger change is a drift in any case


def symplectic_defect(
    system: AbstractSystem, method: AbstractMethod, q: Numbers, p: Numbers, t: float, dt: float
) -> float | None:
    """`max |T^T (J^T W J - W) T|` of one step; T is a basis of the tangent space of the manifold's cotangent bundle.

    That space is `{(dq, dp): G dq = 0, d(G M^-1 p) = 0}`, or the whole phase space without constraints. In the ambient
    space a correct RATTLE shows a defect of order one. A map of the bundle to itself also maps tangent vectors to
    tangent vectors, so the part of `J T` that is not tangent at the end counts as a defect.

    An adaptive method may compute constants at its start (the energy, the fictive step). If it claims to be symplectic,
    the step is measured twice, with these constants depending on (q, p) and held fixed, and the smaller defect counts.
    None if the constraints leave no degree of freedom, for example in a mechanism with all joints driven.
    """
    defect = _defect(system, method, q, p, t, dt)
    if defect is not None and method.adaptive and method.traits_on(system).symplectic:
        held = _defect(system, method, q, p, t, dt, held=True)
        defect = defect if held is None else min(defect, held)
    return defect


def wedge_defect(
    system: AbstractSystem, method: AbstractMethod, q: Numbers, p: Numbers, t: float, dt: float
) -> float | None:
    """The symplectic defect on `{G dq = 0}` alone, in the variables of the step, which velocity-level SHAKE preserves.

    It is measured a few steps after the start, where the momentum is not tangent.
    """
    there = follow(system, method, q, p, t, dt, 5)
    if there.status.failed:
        raise stop_error(there, "the run")
    return _defect(system, method, there.state.q, there.state.p, t, dt, shown=False)


def _defect(
    system: AbstractSystem,
    method: AbstractMethod,
    q: Numbers,
    p: Numbers,
    t: float,
    dt: float,
    *,
    shown: bool = True,
    held: bool = False,
) -> float | None:
    plain, consts = step_functions(system, method, t, dt, q.dtype)
    for stepper in (plain, plain.with_care()):
        *found, ended = _linearize(stepper, consts, q, p, shown, held)
        status = Status(int(ended))
        if not status.failed:
            break
    else:
        # a failed step returns the state before it; its Jacobian, the identity, would pass as symplectic
        raise SimulationError(f"the step failed: {status.message}", status=status, step=1)
    jacobian, before, after = map(np.asarray, found)
    if not np.all(np.isfinite(jacobian)):
        return np.inf
    half = q.size
    form = np.block([[np.zeros((half, half)), np.eye(half)], [-np.eye(half), np.zeros((half, half))]])
    tangent = np.eye(2 * half)
    if len(before):
        _, values, vectors = np.linalg.svd(before)
        tangent = vectors[int(np.sum(values > 1e-10 * values[0])) :].T
        if not tangent.size:
            return None
    defect = np.max(np.abs(tangent.T @ (jacobian.T @ form @ jacobian - form) @ tangent))
    return float(np.maximum(defect, np.max(np.abs(after @ jacobian @ tangent), initial=0.0)))


@compiled_for_one_run
def _linearize(
    stepper: Stepper, consts: Consts, q: Numbers, p: Numbers, shown: bool, held: bool
) -> tuple[Any, Any, Any, Any]:
    """The Jacobian of one step in flattened (q, p), those of the constraints before and after it, and its status.

    With `held`, the constants that the method fixes at its start are the same for all (q, p).
    """
    system = stepper.parts(consts)[0]
    t, dt = consts.t0, consts.dt
    carry = stepper.start(consts, q, p) if held else None

    def split(z: Numbers):
        return (x.reshape(q.shape) for x in jnp.split(z, 2))

    def join(q: Numbers, p: Numbers):
        return jnp.concatenate([q.reshape(-1), p.reshape(-1)])

    def step(z: Numbers):
        q1, p1, status = one_step(stepper, consts, *split(z), shown=shown, carry=carry)
        return join(q1, p1), (join(q1, p1), status)

    def conditions(z: Numbers, t: Real):
        q, p = split(z)
        hidden = system.hidden_constraint(q, p, t) if shown and system.has_constraints else jnp.zeros(0, q.dtype)
        return jnp.concatenate([system.constraint(q, t) if system.has_constraints else jnp.zeros(0, q.dtype), hidden])

    z = join(q, p)
    jacobian, (end, status) = jax.jacfwd(step, has_aux=True)(z)
    return jacobian, jax.jacfwd(conditions)(z, t), jax.jacfwd(conditions)(end, t + dt), status


def reversal(
    system: AbstractSystem,
    method: AbstractMethod,
    q: Numbers,
    p: Numbers,
    t: float,
    dt: float,
    steps: int,
    bound: float,
) -> float | None:
    """Distance from the start after `steps` steps, a reversal and `steps` more, relative to the size of (q, p).

    None if the motion is so small that a distance above `bound` may be round-off of the coordinates.
    """
    there = follow(system, method, q, p, t, dt, steps)
    if there.status.failed:
        raise stop_error(there, f"the run of {steps} steps forward")
    back = follow_back(there)
    if back.status.failed:
        raise stop_error(back, f"the run of {steps} steps back")
    first, last = (there.q[0], there.p[0]), (back.q[-1], -back.p[-1])
    error = float(np.max([distance(a, b) / scale(b) for a, b in zip(last, first)]))
    off = shift(system, there.q[0], back.q[-1] - first[0], last[1] - first[1], steps * dt)
    if rests(system, there.q, there.p, steps * dt) or (error > bound and off <= ROUND_OFF):
        return None
    return error


def rests(system: AbstractSystem, q: np.ndarray, p: np.ndarray, time: float) -> bool:
    """Whether rows of a run over `time` differ from its start by no more than round-off of the coordinates."""
    return all(shift(system, q[0], x - q[0], y, time) <= ROUND_OFF for x, y in zip(q, p, strict=True))


def shift(system: AbstractSystem, q: np.ndarray, change: np.ndarray, p: np.ndarray, time: float) -> float:
    """A change of q plus the distance that the momentum p covers in `time`, relative to q in the mass metric.

    The size of p is no scale, because a zero momentum has the size of round-off.
    """
    here = jnp.asarray(q)
    weights = np.asarray(system.mass_form(here).weights(here))
    way = np.maximum(np.abs(change), np.abs(time * np.asarray(system.inverse_mass(here, jnp.asarray(p)))))
    return float(np.max(weights * way) / scale(weights * q))


class LongRun(NamedTuple):
    """Results of a long run; errors are maxima over the rows. `ended` is the reason for an early stop, or empty."""

    ended: str
    steps: int
    time: float
    energy: Trend
    energy_error: float  # relative to the largest kinetic or potential energy of the run
    constraint: float  # relative to the natural scale of each row over the run
    hidden: float
    invariants: dict[str, float]
    iterations: float
    most_iterations: int
    at_rest: bool  # the rows differ from the start by round-off
    too_short: bool  # the kinetic energy has not risen and fallen twice, so that an oscillation may look like a drift


def long_run(
    system: AbstractSystem,
    method: AbstractMethod,
    problem: Problem,
    dt: float,
    steps: int | None,
    key: Key | None = None,
    least: int = MIN_STEPS,
) -> LongRun:
    """Measure energy, constraints and invariants over `steps` steps from the problem's own start.

    If `steps` is None, the run has the length of the problem and at least `least` steps.
    """
    given, start = steps, (problem.q0, problem.p0)
    steps = max(least, math.ceil(problem.t1 / dt - 1e-9)) if given is None else given
    every = -(-steps // ROWS)
    if method.adaptive and given is None:
        done = follow_until(system, method, *start, dt, dt * steps, every, key)
    else:
        done = follow(system, method, *start, 0.0, dt, steps, every, key)
    ended = str(stop_error(done, f"the run from the problem's start with dt = {dt:.3g}")) if done.status.failed else ""
    kinetic, potential, g, hidden, size, speed = (
        np.asarray(x) for x in _observe(system, *map(jnp.asarray, (done.q, done.p, done.t)))
    )
    held = lambda rows, sizes: float(np.max(np.max(rows, axis=0) / _positive(np.max(sizes, axis=0)), initial=0.0))
    total, size = kinetic + potential, max(scale(kinetic), scale(potential))
    with np.errstate(invalid="ignore", over="ignore"):  # a run that diverged has no finite error
        error = (total - total[0]) / size
        swing = np.sign(kinetic - (np.max(kinetic) + np.min(kinetic)) / 2)
        turns, trended = int(np.sum(swing[1:] != swing[:-1])), trend(done.t, error)
        too_short = turns < MIN_TURNS and bool(trended.change * size < SMALL_DRIFT * float(np.ptp(kinetic)))
    kept = along(problem.invariants, jnp.asarray(done.q), jnp.asarray(done.p))
    return LongRun(
        ended,
        done.steps,
        float(done.t[-1] - done.t[0]),
        trended,
        float(np.max(np.abs(error))),
        held(g, size),
        held(hidden, speed),
        {name: drift(values) for name, values in kept.items()},
        done.iterations,
        done.most_iterations,
        rests(system, done.q, done.p, dt),
        too_short,
    )


def energy_balance(
    system: AbstractSystem, method: AbstractMethod, problem: Problem, dt: float, steps: int
) -> tuple[float, int]:
    """The largest change of the energy minus the work done, relative to the energies, and the steps of the run.

    Every step is saved, up to `ROWS` steps: the work is integrated from row to row.
    """
    done = follow(system, method, problem.q0, problem.p0, 0.0, dt, min(steps, ROWS), 1)
    rows = [map_rows(fn, system, done.q, done.p, done.t) for fn in (_energies, power_of)]
    total, size = rows[0].sum(axis=1), max(scale(rows[0][:, 0]), scale(rows[0][:, 1]))
    return float(np.max(np.abs(total - total[0] - integrate_rows(done.t, rows[1])))) / size, done.steps


def _energies(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return jnp.stack([system.kinetic(q, p), system.potential(q, t)])


@compiled_for_one_run
def _observe(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    def row(q: Numbers, p: Numbers, t: Real):
        energies = system.kinetic(q, p), system.potential(q, t)
        if not system.has_constraints:
            return *energies, *(jnp.zeros(0),) * 4
        errors = jnp.abs(system.constraint(q, t)), jnp.abs(system.hidden_constraint(q, p, t))
        sizes = constraint_sizes(system, q, t) + rounding_sizes(system, q, t), speed_sizes(system, q, p, t)
        return *energies, *errors, *sizes

    return jax.vmap(row)(*map(jnp.asarray, (q, p, t)))


def distance(a: ArrayLike, b: ArrayLike) -> float:
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


def scale(x: ArrayLike) -> float:
    return float(_positive(np.max(np.abs(x))))


def _positive(x: ArrayLike) -> Any:
    """Sizes to divide by; zero becomes the smallest positive number."""
    return np.maximum(x, np.finfo(float).tiny)
