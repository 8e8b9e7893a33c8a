"""`compare`: several methods on one problem, at one step and over a ladder of steps, against one reference."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from holonomix.errors import HolonomixError, MethodError

from .exits import CommandError
from .methodspec import parse_method

__all__ = ["Comparison", "Curve", "Level", "compare", "draw", "table"]

REPEATS = 3
TIMED_SECONDS = 0.05  # a run this long is enough to see the cost of a step beside what every run costs once
MOST_STEPS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Level:
    """One run: its step, what it cost and how far off it was."""

    dt: float
    steps: int
    seconds: float
    error: float
    energy_error: float
    constraint_error: float
    status: str


@dataclasses.dataclass(frozen=True)
class Curve:
    """One method over the ladder; `system` says what it ran on."""

    name: str
    system: str
    levels: tuple[Level, ...]
    error_at_equal_work: float | None = None

    @property
    def penalized(self) -> bool:
        return "omega" in self.system


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All curves, the step of the table, the common work (seconds), and where the reference is from.

    `uncertainty` is that of the reference: no error below it means anything.
    """

    problem: str
    dt: float
    t1: float
    reference: str
    uncertainty: float
    work: float
    curves: tuple[Curve, ...]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def compare(
    problem: Any, names: list[str], *, dt: float, t1: float, omega: float | None, levels: int, progress: Any
) -> Comparison:
    """Run every method at dt and at finer and coarser steps; errors are those of the final position."""
    if not t1 > 0 < dt:
        raise CommandError(f"dt = {dt:g} and t1 = {t1:g} must be positive")
    methods = [(name, parse_method(name)) for name in names]
    for name, method in methods:
        if method.stochastic:
            raise CommandError(f"{name} draws random numbers, so that its error has no meaning here; see `certify`")
        _system(problem, method, omega or 1.0)
    reference, source, floor = _reference(problem, dt, t1)
    ladder = [dt * 2.0**k for k in _exponents(levels)]
    curves = []
    for name, method in methods:
        progress(name)
        found = [_level(problem, method, h, t1, omega, reference) for h in ladder]
        kind = _system(problem, method, omega or 2 / dt)[1]
        curves.append(Curve(name, kind if omega is not None or "omega" not in kind else "omega = 2/dt", tuple(found)))
    work = _common_work(curves, dt)
    curves = [dataclasses.replace(c, error_at_equal_work=_interpolated(c, work, floor)) for c in curves]
    return Comparison(problem.name, dt, t1, source, floor, work, tuple(curves))


def _exponents(levels: int) -> list[int]:
    """One coarser step, the step itself, and finer ones."""
    return [0] if levels == 1 else list(range(1, 1 - levels, -1))


def _system(problem: Any, method: Any, omega: float) -> tuple[Any, str]:
    """The system that suits the method: the problem's own, or its penalized form for methods of stiff systems."""
    system = problem.system
    try:
        method.check(system)
        return system, "as it is"
    except MethodError:
        if not system.constrained:
            raise
    stiff = system.penalized(omega)
    method.check(stiff)
    return stiff, f"omega = {omega:g}"


def _reference(problem: Any, dt: float, t1: float) -> tuple[np.ndarray, str, float]:
    """The exact final position, its source and its uncertainty.

    A closed form, or order ten at small steps, which is none of the usual candidates; order eight checks it.
    """
    import holonomix as hx

    if problem.reference is not None:
        q = np.asarray(problem.reference(np.array([t1]))[0])[-1]
        return q, "closed form", float(np.finfo(float).eps * np.max(np.abs(q)))
    finals, steps = [], math.ceil(t1 / dt) * 8
    for order in (8, 10):
        fine = hx.Composition(hx.RATTLE(), order=order)
        try:
            run = hx.simulate(
                problem.system, fine, problem.q0, problem.p0, dt=t1 / steps, steps=steps, save_every=steps
            )
        except HolonomixError as error:
            raise CommandError(f"no reference: {fine.name} with dt = {t1 / steps:g} failed: {error}") from error
        finals.append(np.asarray(run.final_q))
    round_off = np.finfo(float).eps * np.max(np.abs(finals[1]))
    uncertainty = max(float(round_off), float(np.max(np.abs(finals[1] - finals[0]))))
    return finals[1], f"RATTLE composed to order 10, dt = {t1 / steps:.3g}", uncertainty


def _step_cost(system: Any, method: Any, problem: Any, dt: float, halvings: int = 6) -> float:
    """Seconds a step: two runs of different length, so that what every run costs once drops out."""
    import holonomix as hx

    def timed(steps: int) -> float:
        times = []
        for _ in range(REPEATS):
            run = hx.simulate(system, method, problem.q0, problem.p0, dt=dt, steps=steps, save_every=steps, throw=False)
            if run.status.failed:
                return math.nan
            times.append(run.stats["wall_time"])
        return min(times)

    short = steps = 256
    base = timed(short)
    while steps < MOST_STEPS:
        steps *= 4
        taken = timed(steps)
        if not taken - base < TIMED_SECONDS:
            break
    if math.isfinite(taken):
        return (taken - base) / (steps - short)
    # a method that drifts may not survive a long run, but shorter steps cost about the same
    return math.nan if halvings == 0 else _step_cost(system, method, problem, dt / 2, halvings - 1)


def _level(problem: Any, method: Any, dt: float, t1: float, omega: float | None, reference: np.ndarray) -> Level:
    import holonomix as hx

    system, _ = _system(problem, method, omega or 2 / dt)
    steps = max(1, round(t1 / dt))
    options: dict[str, Any] = {"t1": t1} if method.adaptive else {"steps": steps}
    every = max(1, steps // 1000)
    try:
        solution = hx.simulate(
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
        final = _moved_back(problem, solution, t1)
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


def _moved_back(problem: Any, solution: Any, t1: float) -> np.ndarray:
    """The position at t1 from the last state of an adaptive run, which lies a little later."""
    import holonomix as hx

    back = solution.final_t - t1
    if back == 0:
        return np.asarray(solution.final_q)
    fine = hx.Composition(hx.RATTLE(), order=8)
    moved = hx.simulate(
        problem.system, fine, *hx.project(problem.system, solution.final_q, solution.final_p), dt=-back / 8, steps=8
    )
    return np.asarray(moved.final_q)


def _constraint_error(system: Any, solution: Any) -> float:
    """How far the run strayed from the rigid problem's manifold, whatever system it ran on."""
    if not system.constrained:
        return 0.0
    from holonomix.driver.solution import map_rows

    def largest(system: Any, q: Any, p: Any, t: Any) -> Any:
        import jax.numpy as jnp

        return jnp.max(jnp.abs(system.constraint(q, t)))

    return float(np.max(map_rows(largest, system, solution.q, solution.p, solution.t)))


def _common_work(curves: list[Curve], dt: float) -> float:
    """The geometric mean of what the methods cost at dt."""
    costs = [level.seconds for c in curves for level in c.levels if level.dt == dt and level.seconds > 0]
    return float(np.exp(np.mean(np.log(costs)))) if costs else math.nan


def _interpolated(curve: Curve, work: float, floor: float) -> float | None:
    """The error that the method has with this much work, read off its curve; None outside of what was measured."""
    good = sorted((level.seconds, level.error) for level in curve.levels if level.seconds > 0 and level.error > 0)
    if len(good) < 2 or not good[0][0] <= work <= good[-1][0]:
        return None
    x, y = np.log(np.array(good)).T
    return max(floor, float(np.exp(np.interp(math.log(work), x, y))))


# ---- for people


def table(comparison: Comparison) -> Any:
    """The runs at the chosen step side by side."""
    from rich.table import Table

    caption = (
        f"Position error: at the end, against {comparison.reference}, itself known to {comparison.uncertainty:.0e}. "
        f"Time: steps times the cost of a step. Error at equal work: the position error that the method reaches in "
        f"{_seconds(comparison.work)}, read off its work-precision curve; empty where the curve does not go."
    )
    if any(curve.penalized for curve in comparison.curves):
        caption += (
            "\nomega: these methods ran with stiff springs in place of the constraints. Position and constraint errors "
            "are still those against the rigid motion; the energy is that of the springs' own system."
        )
    title = f"{comparison.problem}, t = {comparison.t1:g}, dt = {comparison.dt:g}"
    out = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in ("method", "system"):
        out.add_column(column)
    for column in ("steps", "time", "position error", "energy error", "constraint error", "error at equal work"):
        out.add_column(column, justify="right")
    for curve in comparison.curves:
        level = next(level for level in curve.levels if level.dt == comparison.dt)
        if level.status:
            out.add_row(curve.name, curve.system, f"{level.steps:,}", "", f"[red]{level.status}")
            continue
        equal = "" if curve.error_at_equal_work is None else f"{curve.error_at_equal_work:.1e}"
        errors = (f"{x:.1e}" for x in (level.error, level.energy_error, level.constraint_error))
        out.add_row(curve.name, curve.system, f"{level.steps:,}", _seconds(level.seconds), *errors, equal)
    return out


def _seconds(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"


def draw(comparison: Comparison, path: Path) -> None:
    """The work-precision diagram: error over work, and error over the step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    by_work, by_step = figure.subplots(1, 2, sharey=True)
    for curve, marker in zip(comparison.curves, itertools.cycle("osD^vPX*")):
        good = [level for level in curve.levels if level.error >= 0]
        errors = [max(level.error, comparison.uncertainty) for level in good]
        label = f"{curve.name} ({curve.system})" if curve.penalized else curve.name
        for axes, x in ((by_work, [g.seconds for g in good]), (by_step, [g.dt for g in good])):
            axes.loglog(x, errors, marker=marker, linewidth=1.3, markersize=5, label=label)
    by_work.set(xlabel="work: steps times cost of a step (s)", ylabel="error of the final position")
    by_step.set(xlabel="dt")
    for axes in (by_work, by_step):
        axes.axhspan(comparison.uncertainty / 10, comparison.uncertainty, color="0.9", zorder=0)
        axes.set_ylim(bottom=comparison.uncertainty / 10)
        axes.grid(True, which="major", alpha=0.3)
    note = (0.98, comparison.uncertainty / 3)
    by_step.text(
        *note,
        "below the reference",
        color="0.4",
        fontsize="small",
        ha="right",
        va="center",
        transform=by_step.get_yaxis_transform(),
    )
    figure.legend(*by_step.get_legend_handles_labels(), loc="outside right upper", fontsize="small", frameon=False)
    figure.suptitle(f"{comparison.problem}, t = {comparison.t1:g}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
