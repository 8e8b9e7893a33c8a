"""`compare`: errors and costs of several methods on one problem, over a range of step sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...core import pictures
from ...core.checks import number, short_repr, whole_number
from ...core.errors import HolonomixError, InputError, MethodError
from ...core.types import ArrayLike, Numbers, Real
from ...mechanics.abstract import AbstractSystem
from ...mechanics.problem import Problem
from ...mechanics.projection import Newton, accepts_redundant, project
from ...methods import RATTLE, Composition
from ...methods.base import AbstractMethod
from ...run.simulate import simulate
from ...run.solution import Solution, map_rows
from .arguments import check_problem

REPEATS = 3
TIMED_SECONDS = 0.05  # a timed run must exceed the fixed cost of a run by this much
MAX_STEPS = 1 << 20
LONG_RUN_FACTOR = 50  # length of the long run, in multiples of t1
MAX_LONG_STEPS = 100_000
LARGE_DRIFT = 0.1  # of the kinetic energy; methods that drift more are not recommended


@dataclasses.dataclass(frozen=True)
class Level:
    """One run: its step, its cost and its errors."""

    dt: float
    steps: int
    seconds: float
    error: float
    energy_error: float
    constraint_error: float
    status: str


@dataclasses.dataclass(frozen=True)
class Curve:
    """One method at all step sizes; `system` names the system that it ran on."""

    name: str
    system: str
    levels: tuple[Level, ...]
    error_at_equal_work: float | None = None
    # energy drift over the long run: mean of the last tenth minus mean of the first; NaN if that run stopped early
    drift: float = math.nan
    kinetic: float = math.nan  # the largest kinetic energy of that run

    @property
    def failed(self) -> bool:
        """Whether the method reached the end with no step size."""
        return all(level.status for level in self.levels)

    @property
    def penalized(self) -> bool:
        return "omega" in self.system


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All curves, the step of the table, the common work in seconds, and the source of the reference.

    `uncertainty` is the error of the reference itself: smaller errors cannot be measured.
    """

    problem: str
    dt: float
    t1: float
    reference: str
    uncertainty: float
    work: float
    curves: tuple[Curve, ...]
    long: float = 0.0  # length in time of the run in which the drift was measured
    keeps_energy: bool = True  # whether the exact motion conserves energy

    @property
    def unmeasurable(self) -> bool:
        """Whether the reference is too inaccurate to tell methods apart: after a long chaotic motion, or at rest."""
        errors = [level.error for curve in self.curves for level in curve.levels if not level.status]
        return bool(errors) and min(errors) <= self.uncertainty and max(errors) <= 100 * self.uncertainty

    @property
    def cheapest(self) -> dict[int, str]:
        """Exponent k -> the method that reaches an error of 10^k with the least work.

        Methods that fail or drift in the long run (`drifting`) are left out, unless all do.
        """
        found, drifting = {}, self.drifting
        fit = [c for c in self.curves if c.name not in drifting] or self.curves
        for k in range(0, -17, -1):
            costs = {c.name: _work_for(c, 10.0**k) for c in fit if 10.0**k >= self.uncertainty}
            known = {name: work for name, work in costs.items() if work is not None}
            if known:
                found[k] = min(known, key=lambda name: known[name])
        return found

    @property
    def drifting(self) -> dict[str, float]:
        """Name -> drift of each method whose energy drifts by more than a tenth of the kinetic energy in the long run.

        NaN for a run that stopped early. The kinetic energy is the largest in the run, of the method where that is
        smallest. Empty for systems whose exact motion does not conserve energy.
        """
        known = [c.kinetic for c in self.curves if math.isfinite(c.kinetic)]
        if not self.keeps_energy or not known:
            return {}
        return {c.name: c.drift for c in self.curves if not c.drift <= LARGE_DRIFT * min(known)}

    def __str__(self) -> str:
        from .table import as_text

        return as_text(self)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data for JSON."""
        return {**dataclasses.asdict(self), "cheapest": {f"1e{k}": name for k, name in self.cheapest.items()}}

    def plot(self) -> Any:
        """The work-precision diagram: error over work, and error over the step size."""
        return pictures.plotting.work_precision(self)

    def _repr_png_(self) -> bytes:
        return self.plot()._repr_png_()


def compare(
    problem: Problem,
    methods: Iterable[Any] | dict[str, Any],
    *start: ArrayLike,
    dt: float | None = None,
    t1: float | None = None,
    omega: float | None = None,
    levels: int = 5,
    progress: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Run every method at `dt`, at finer and coarser steps, and once over a long time; errors are those of the final q.

    `methods` is a list of methods, or a dict from names for the table to methods. `levels` is the number of step sizes,
    each half of the one before. Methods for stiff systems run on `problem.system.penalized(omega)`, by default with
    `omega = 2/dt`. `progress` is called with the name of each method. `Comparison.plot()` draws the result.
    """
    check_problem("compare(problem, methods)", problem, *start)
    if not isinstance(methods, Iterable) or isinstance(methods, str):
        raise InputError(f"methods must be a list of methods, or a dict with their names, not {short_repr(methods)}")
    listed = list(methods.values() if isinstance(methods, dict) else methods)
    for method in listed:
        if not isinstance(method, AbstractMethod):
            raise MethodError(f"methods must be instances of methods, not {short_repr(method)}")
    named = list(methods.items()) if isinstance(methods, dict) else [(m.name, m) for m in listed]
    dt = number("dt", problem.dt if dt is None else dt, above=0)
    t1 = number("t1", problem.t1 if t1 is None else t1, above=0)
    levels = whole_number("levels", levels)
    for name, method in named:
        if method.stochastic:
            raise InputError(
                f"{name} draws random numbers, so its error against a reference has no meaning; use `certify`"
            )
        _system(problem, method, omega or 1.0)
    reference, source, floor = _reference(problem, dt, t1, _reference_base(*(method for _, method in named)))
    ladder = [dt * 2.0**k for k in _exponents(levels)]
    curves = []
    for name, method in named:
        progress(name)
        found = [_level(problem, method, h, t1, omega, reference) for h in ladder]
        kind = _system(problem, method, omega or 2 / dt)[1]
        shown = kind if omega is not None or "omega" not in kind else "omega = 2/dt"
        curves.append(Curve(name, shown, tuple(found), None, *_drift(problem, method, dt, t1, omega)))
    work = _common_work(curves, dt)
    curves = [dataclasses.replace(c, error_at_equal_work=_interpolate(c, work, floor)) for c in curves]
    return Comparison(
        problem.name, dt, t1, source, floor, work, tuple(curves), dt * _long_steps(dt, t1), problem.system.keeps_energy
    )


def _long_steps(dt: float, t1: float) -> int:
    return min(LONG_RUN_FACTOR * max(1, round(t1 / dt)), MAX_LONG_STEPS)


def _drift(problem: Problem, method: AbstractMethod, dt: float, t1: float, omega: float | None) -> tuple[float, float]:
    """Change of the mean energy from the first to the last tenth of a long run, and its largest kinetic energy.

    NaN if the run stopped early.
    """
    steps = _long_steps(dt, t1)
    end: dict[str, Any] = {"t1": dt * steps, "max_steps": 20 * steps} if method.adaptive else {"steps": steps}
    system, _ = _system(problem, method, omega or 2 / dt)
    every = max(1, steps // 2000)
    try:
        run = simulate(system, method, problem.q0, problem.p0, dt=dt, save_every=every, throw=False, **end)
    except HolonomixError:
        return math.nan, math.nan
    if run.status.failed:
        return math.nan, math.nan
    error = run.energy_error()
    tenth = max(1, len(error) // 10)
    kinetic = map_rows(lambda s, q, p, t: s.kinetic(q, p), system, run.q, run.p, run.t)
    return float(abs(np.mean(error[-tenth:]) - np.mean(error[:tenth]))), float(np.max(kinetic))


def _work_for(curve: Curve, error: float) -> float | None:
    """The work at which the method has this error, interpolated on its curve; None if the method never reached it.

    If the coarsest step is already more accurate, the work is that of the coarsest step.
    """
    good = sorted((level.error, level.seconds) for level in curve.levels if level.seconds > 0 and level.error > 0)
    if not good or error < good[0][0]:
        return None
    x, y = np.log(np.array(good)).T
    return float(np.exp(np.interp(math.log(error), x, y)))


def _exponents(levels: int) -> list[int]:
    """One coarser step, the step itself, and finer ones."""
    return [0] if levels == 1 else list(range(1, 1 - levels, -1))


def _system(problem: Problem, method: AbstractMethod, omega: float) -> tuple[Any, str]:
    """The system that the method runs on: the problem's own, or its penalized form for methods of stiff systems."""
    system = problem.system
    try:
        method.check(system)
        return system, "as it is"
    except MethodError:
        if not system.has_constraints or "constrained" in method.traits:
            raise
    try:
        stiff = system.penalized(omega)
    except InputError as why:
        raise InputError(f"{method.name} treats no constraints, and {why}") from why
    method.check(stiff)
    return stiff, f"omega = {omega:g}"


def _reference(problem: Problem, dt: float, t1: float, base: RATTLE) -> tuple[np.ndarray, str, float]:
    """The reference for the final position, its source and its uncertainty.

    It is the closed form of the problem, or a composition of order ten with small steps; order eight gives its error.
    """
    if problem.reference is not None:
        q = np.asarray(problem.reference(np.array([t1]))[0])[-1]
        return q, "closed form", float(np.finfo(float).eps * np.max(np.abs(q)))
    finals, steps = [], math.ceil(t1 / dt) * 8
    for order in (8, 10):
        fine = Composition(base, order=order)
        try:
            run = simulate(problem.system, fine, problem.q0, problem.p0, dt=t1 / steps, steps=steps, save_every=steps)
        except HolonomixError as error:
            raise InputError(f"no reference: {fine.name} with dt = {t1 / steps:g} failed: {error}") from error
        finals.append(np.asarray(run.final_q))
    round_off = np.finfo(float).eps * np.max(np.abs(finals[1]))
    uncertainty = max(float(round_off), float(np.max(np.abs(finals[1] - finals[0]))))
    return finals[1], f"RATTLE composed to order 10, dt = {t1 / steps:.3g}", uncertainty


def _reference_base(*methods: AbstractMethod) -> RATTLE:
    """RATTLE, for redundant rows if one of the methods accepts them."""
    return RATTLE(Newton(redundant="min-norm" if any(map(accepts_redundant, methods)) else None))


def _step_cost(system: AbstractSystem, method: AbstractMethod, problem: Problem, dt: float, halvings: int = 6) -> float:
    """Seconds per step, from two runs of different length, so that the fixed cost of a run cancels."""

    def timed(steps: int) -> float:
        times = []
        for _ in range(REPEATS):
            run = simulate(system, method, problem.q0, problem.p0, dt=dt, steps=steps, save_every=steps, throw=False)
            if run.status.failed:
                return math.nan
            times.append(run.stats["wall_time"])
        return min(times)

    short = steps = 256
    base = timed(short)
    taken = base
    while steps < MAX_STEPS:
        steps *= 4
        taken = timed(steps)
        if not taken - base < TIMED_SECONDS:
            break
    if math.isfinite(taken):
        return (taken - base) / (steps - short)
    # a method that drifts may fail in a long run; shorter steps have about the same cost
    return math.nan if halvings == 0 else _step_cost(system, method, problem, dt / 2, halvings - 1)


def _level(
    problem: Problem, method: AbstractMethod, dt: float, t1: float, omega: float | None, reference: np.ndarray
) -> Level:
    """Error, cost and drift of one method at one step size; NaN and the reason if its run fails."""
    system, _ = _system(problem, method, omega or 2 / dt)
    steps = max(1, round(t1 / dt))
    options: dict[str, Any] = {"t1": t1} if method.adaptive else {"steps": steps}
    every = max(1, steps // 1000)
    try:
        solution = simulate(
            system, method, problem.q0, problem.p0, dt=t1 / steps, save_every=every, throw=False, **options
        )
        seconds = int(solution.stats["steps"]) * _step_cost(system, method, problem, t1 / steps)
    except HolonomixError as error:
        return Level(dt, 0, math.nan, math.nan, math.nan, math.nan, str(error))
    if solution.status.failed:
        done = int(solution.stats["steps"])
        return Level(dt, done, seconds, math.nan, math.nan, math.nan, solution.status.message)
    final, taken = np.asarray(solution.final_q), int(solution.stats["steps"])
    if method.adaptive and problem.reference is not None:
        reference = np.asarray(problem.reference(np.array([solution.final_t]))[0])[-1]
    elif method.adaptive:
        try:
            final = _position_at(problem, method, solution, t1)
        except HolonomixError as error:
            return Level(dt, taken, seconds, math.nan, math.nan, math.nan, f"no position at t = {t1:g}: {error}")
    constraint = _constraint_error(problem.system, solution)
    return Level(
        dt,
        taken,
        seconds,
        float(np.max(np.abs(final - reference))),
        float(np.max(np.abs(solution.energy_error()))),
        constraint,
        "",
    )


def _position_at(problem: Problem, method: AbstractMethod, solution: Solution, t1: float) -> np.ndarray:
    """The position at t1, integrated back from the last state of an adaptive run, which lies a little later."""
    back = solution.final_t - t1
    if back == 0:
        return np.asarray(solution.final_q)
    base, system, t = _reference_base(method), problem.system, solution.final_t
    start = project(system, solution.final_q, solution.final_p, t, redundant=base.solver.redundant)
    moved = simulate(system, Composition(base, order=8), *start, t0=t, dt=-back / 8, steps=8)
    return np.asarray(moved.final_q)


def _constraint_error(system: AbstractSystem, solution: Solution) -> float:
    """The largest violation of the rigid problem's constraint, also for a run on its penalized form."""
    if not system.has_constraints:
        return 0.0

    def largest(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
        import jax.numpy as jnp

        return jnp.max(jnp.abs(system.constraint(q, t)))

    return float(np.max(map_rows(largest, system, solution.q, solution.p, solution.t)))


def _common_work(curves: list[Curve], dt: float) -> float:
    """The geometric mean of the costs of all methods at dt."""
    costs = [level.seconds for c in curves for level in c.levels if level.dt == dt and level.seconds > 0]
    return float(np.exp(np.mean(np.log(costs)))) if costs else math.nan


def _interpolate(curve: Curve, work: float, floor: float) -> float | None:
    """The error of the method at this work, interpolated on its curve; None outside the measured range."""
    good = sorted((level.seconds, level.error) for level in curve.levels if level.seconds > 0 and level.error > 0)
    if len(good) < 2 or not good[0][0] <= work <= good[-1][0]:
        return None
    x, y = np.log(np.array(good)).T
    return max(floor, float(np.exp(np.interp(math.log(work), x, y))))
