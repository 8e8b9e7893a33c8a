"""The order of a method: slopes of its errors over step sizes, against a converged reference."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...core.errors import SimulationError
from ...core.types import Numbers, Real
from ...mechanics.abstract import AbstractSystem
from ...methods.base import AbstractMethod
from ...trace.compiled import compiled_for_one_run
from .measure import distance, rests, scale
from .runs import Trajectory, follow, stop_error

# an error is clear of round-off if it exceeds the uncertainty of the reference by this factor
MIN_SIGNAL = 15.0
# largest relative error that is used to measure an order
MAX_ERROR = 0.05
# step sizes are refined until the last slopes between neighbors agree to this much
MAX_SLOPE_SPREAD = 0.05
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
            change = max(distance(a, b) for a, b in zip(before, now))
            before, improved = now, change < gap / 2
            gap = min(gap, change)
            if gap < 2e-14 * scale(now[0]) or not improved:
                break
        return *before, max(gap, 1e-15 * scale(before[0]))

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
        name: (distance(a, b) / scale(b), max(noise, rounding * added / scale(b)))
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
                best = min(best, distance(np.asarray(value), exact) / scale(exact))
    return best


@compiled_for_one_run
def _multipliers(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return system.multipliers(q, p, t)


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
