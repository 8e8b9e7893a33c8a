"""The measurements of `certify`: order, symplecticity, reversibility, drifts, on the same runs that users make."""

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
from .runs import Trajectory, follow, follow_back, follow_until, one_step, step_functions, stop_error

# an error is clear of round-off if it exceeds the uncertainty of the reference by this factor
MIN_SIGNAL = 15.0
# largest relative error that is used to measure an order
MAX_ERROR = 0.05
# step sizes are refined until the last slopes between neighbors agree to this much
MAX_SLOPE_SPREAD = 0.05
# a motion, or an error, is round-off if the coordinates change by less than this part of their size
ROUND_OFF = 64 * float(np.finfo(float).eps)
# drifts are measured in runs of at least MIN_STEPS steps, on about ROWS of their rows
MIN_STEPS, ROWS = 4000, 400
MIN_TURNS = 4  # passages of the kinetic energy through its middle, in a run that tells a drift from an oscillation
SMALL_DRIFT = 1e-2  # of the range of the kinetic energy; a larger change is a drift in any case
# relative size of the error terms that the fit of an order neglects
FIT_NOISE = 0.005


class Reference:
    """The exact motion from one start, by a high-order method whose step is halved until the result stops changing."""

    def __init__(self, system: AbstractSystem, method: AbstractMethod, q: Numbers, p: Numbers, t: float, dt: float):
        self.system, self.method, self.q, self.p, self.t, self.dt = system, method, q, p, t, dt

    def rows(self, span: float, count: int) -> tuple[Any, Any, float]:
        """`(q, p)` at the start and at `count` equally spaced times up to `span`, and their uncertainty."""
        parts = max(1, int(np.ceil(abs(span) / (count * self.dt))))
        before, gap = self._run(span, count, parts), np.inf
        for _ in range(9):
            parts *= 2
            now = self._run(span, count, parts)
            change = max(_distance(a, b) for a, b in zip(before, now))
            before, improved = now, change < gap / 2
            gap = min(gap, change)
            if gap < 2e-14 * _scale(now[0]) or not improved:
                break
        return *before, max(gap, 1e-15 * _scale(before[0]))

    def rests(self, span: float) -> bool:
        """Whether the exact motion is at rest over one span."""
        return rests(self.system, *self.rows(span, 2)[:2], span)

    def _run(self, span: float, count: int, parts: int) -> tuple[Any, Any]:
        steps = count * parts
        done = follow(self.system, self.method, self.q, self.p, self.t, span / steps, steps, parts)
        if done.status.failed:
            error = stop_error(done, f"the reference by {self.method.name} with dt = {span / steps:.3g}")
            text = f"{error}; give a smaller dt or another `reference`"
            raise SimulationError(text, status=error.status, step=error.step, time=error.time)
        return done.q, done.p


class Orders(NamedTuple):
    """Errors over step sizes, and the slopes of the lines through the finest ones."""

    dt: list[float]
    errors: dict[str, list[float]]
    slopes: dict[str, float]
    stopped: dict[float, str]  # step sizes up to the first one at which the run stopped early -> the reason


def orders(
    system: AbstractSystem, method: AbstractMethod, reference: Reference, span: float, dt: float, *, multipliers: bool
) -> Orders:
    """The order in each variable over one span, from at least three step sizes with errors clear of round-off.

    The step sizes start at `dt`. They increase while errors are too small, then decrease until three successive slopes
    agree or errors approach round-off. Slopes that still rise or fall there are extrapolated to short steps.
    """
    names = ["q", "p", *(["multipliers"] if multipliers else [])]
    traits = method.traits_on(system)
    order = traits.order_of("q")
    # for high orders the range between large errors and round-off covers few octaves of dt
    ratio, count, enough = (2.0, 4, 1e-3) if order <= 4 else (2**0.5, 5, 1e-4) if order <= 6 else (2**0.25, 5, 1e-6)
    base = max(2.0, span / dt)
    taken: dict[int, dict[str, tuple[float, float]]] = {}
    failures: dict[float, str] = {}

    def size(k: int) -> int:
        return 2 * round(base / 2 * ratio**k)

    def at(k: int, name: str) -> tuple[float, float]:
        if size(k) not in taken:
            # steps longer than the requested dt may fail
            noted = failures if k >= 0 else {}
            taken[size(k)] = _errors(system, method, reference, span, size(k), multipliers, noted)
        return taken[size(k)].get(name, (np.inf, 0.0))

    top = 0
    while size(top - 1) >= 4 and at(top, "q")[0] < enough:
        top -= 1
    slopes = {}
    for name in names:
        points: list[tuple[float, float, float]] = []
        settled, local = False, []
        for k in range(top, top + 24):
            error, noise = at(k, name)
            if points and size(k) == size(k - 1):
                continue
            if points and error < MIN_SIGNAL * noise:
                break
            if MIN_SIGNAL * noise < error < MAX_ERROR:
                points.append((np.log(span / size(k)), np.log(error), noise / error))
            local = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(points, points[1:])]
            settled = len(local) >= count - 1 and max(local[-3:]) - min(local[-3:]) < MAX_SLOPE_SPREAD
            if settled and k >= 0:
                break
        change = np.diff(local[-count + 1 :])
        trend = not settled and len(change) > 2 and (np.all(change > 0) or np.all(change < 0))
        next_power = None if not trend else 2 if traits.symmetric else 1
        slopes[name] = _slope(points[-count:], next_power) if len(points) >= 3 else np.nan
    ladder = sorted(n for n in taken if taken[n])
    return Orders([span / n for n in ladder], {v: [taken[n][v][0] for n in ladder] for v in names}, slopes, failures)


def _errors(
    system: AbstractSystem,
    method: AbstractMethod,
    reference: Reference,
    span: float,
    steps: int,
    multipliers: bool,
    failures: dict,
) -> dict:
    """Variable -> error and its uncertainty, relative to the size of the exact values.

    Empty if the run stopped early; the reason is then added to `failures`.
    """
    dt = span / steps
    every = steps if method.adaptive else steps // 2
    done = follow(system, method, reference.q, reference.p, reference.t, dt, steps, every)
    if done.status.failed:
        failures[dt] = str(stop_error(done, f"the run with dt = {dt:.3g}"))
        return {}
    reached = float(done.t[-1]) - reference.t if method.adaptive else span
    q, p, gap = _reference_rows(reference, reached, len(done.q) - 1)
    # rounding errors of plain sums grow with the number of steps; forces that cancel contribute round-off as well
    rounding = 4e-16 * np.sqrt(steps)
    noise = max(gap, rounding)
    impulse, shift = (abs(dt) * x for x in _sizes_of_forces(system, reference))
    found = {
        name: (_distance(a, b) / _scale(b), max(noise, rounding * added / _scale(b)))
        for name, a, b, added in (("q", done.q, q, abs(span) * shift), ("p", done.p, p, impulse))
    }
    if multipliers:
        found["multipliers"] = (_multiplier_error(system, reference, done, reached, dt), 100 * noise / dt)
    return found


def _sizes_of_forces(system: AbstractSystem, reference: Reference) -> tuple[float, float]:
    """The largest force of the potential at the start, and the largest acceleration that it causes."""
    q, t = jnp.asarray(reference.q), jnp.asarray(reference.t, float)
    gradient = system.gradient(q, t)
    acceleration = system.inverse_mass(q, gradient)
    return float(np.max(np.abs(gradient))), float(np.max(np.abs(acceleration)))


def _reference_rows(reference: Reference, span: float, count: int) -> tuple[Any, Any, float]:
    cache = reference.__dict__.setdefault("cache", {})
    if (span, count) not in cache:
        cache[span, count] = reference.rows(span, count)
    return cache[span, count]


def _multiplier_error(
    system: AbstractSystem, reference: Reference, done: Trajectory, reached: float, dt: float
) -> float:
    """Error of the last step's multipliers against `Lambda` at its start, middle or end, whichever is closest."""
    best = np.inf
    for back in (0.0, 0.5, 1.0):
        q, p, _ = reference.rows(reached - back * dt, 1)
        t = jnp.asarray(reference.t + reached - back * dt)
        exact = np.asarray(_multipliers(system, jnp.asarray(q[-1]), jnp.asarray(p[-1]), t))
        for value in done.multipliers.values():
            if np.shape(value) == exact.shape:
                best = min(best, _distance(np.asarray(value), exact) / _scale(exact))
    return best


@compiled_for_one_run
def _multipliers(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return system.multipliers(q, p, t)


def symplectic_defect(
    system: AbstractSystem, method: AbstractMethod, q: Numbers, p: Numbers, t: float, dt: float
) -> float | None:
    """`max |T^T (J^T W J - W) T|` of one step; T is a basis of the tangent space of the manifold's cotangent bundle.

    That space is `{(dq, dp): G dq = 0, d(G M^-1 p) = 0}`, or the whole phase space without constraints. In the ambient
    space a correct RATTLE shows a defect of order one. A map of the bundle to itself also maps tangent vectors to
    tangent vectors, so the part of `J T` that is not tangent at the end counts as a defect. An adaptive method may fix
    constants at its start (the energy, the fictive step); its step is then a map with these constants held.
    None if the constraints leave no degree of freedom, as in a mechanism that a drive moves completely.
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
    error = float(np.max([_distance(a, b) / _scale(b) for a, b in zip(last, first)]))
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
    return float(np.max(weights * way) / _scale(weights * q))


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
    total, size = kinetic + potential, max(_scale(kinetic), _scale(potential))
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
        too_short,
    )


def energy_balance(system: Any, method: Any, problem: Any, dt: float, steps: int) -> tuple[float, int]:
    """The largest change of the energy minus the work done, relative to the energies, and the steps of the run.

    Every step is saved, up to `ROWS` steps: the work is integrated from row to row.
    """
    done = follow(system, method, problem.q0, problem.p0, 0.0, dt, min(steps, ROWS), 1)
    rows = [map_rows(fn, system, done.q, done.p, done.t) for fn in (_energies, power_of)]
    total, size = rows[0].sum(axis=1), max(_scale(rows[0][:, 0]), _scale(rows[0][:, 1]))
    return float(np.max(np.abs(total - total[0] - integrate_rows(done.t, rows[1])))) / size, done.steps


def _energies(system: Any, q: Numbers, p: Numbers, t: Real) -> Any:
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


def _slope(points: list[tuple[float, float, float]], next_power: int | None) -> float:
    """The slope of a line through log dt and log error, or the exponent p of a fit `C dt^p exp(b dt^next_power)`.

    The error of a method is a power series in dt, for a symmetric one in dt^2. For high orders, the first term may
    dominate nowhere between large steps and round-off. The third number of a point is its relative uncertainty.
    """
    x, y, noise = np.array(points).T
    if next_power is None:
        return float(np.polyfit(x, y, 1)[0])
    weight = 1 / np.hypot(noise, FIT_NOISE)
    terms = np.stack([x, np.ones_like(x), np.exp(next_power * (x - x.max()))], axis=1)
    return float(np.linalg.lstsq(terms * weight[:, None], y * weight, rcond=None)[0][0])


def _distance(a: ArrayLike, b: ArrayLike) -> float:
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


def _scale(x: ArrayLike) -> float:
    return float(_positive(np.max(np.abs(x))))


def _positive(x: ArrayLike) -> Any:
    """Sizes to divide by; zero becomes the smallest positive number."""
    return np.maximum(x, np.finfo(float).tiny)
