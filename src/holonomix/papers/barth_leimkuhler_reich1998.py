"""Barth, Leimkuhler & Reich, A time-reversible variable-stepsize integrator for constrained dynamics (1998).

Figures 4.1 to 4.4 (double pendulum with a light inner mass; the paper's "mass ratio 1000" is m1/m2 = 1/1000) and 5.2 to
5.6 (the Cosserat rod that hits a wall), and the figures of the formula sheet beside the measured ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import holonomix as hx
from holonomix.models.rod import backbone, wall_distances

from .comparison import Comparison, save

__all__ = ["ITEMS", "pendulum_run", "rod_run"]

STEPS, QUICK_STEPS, END = 32_000, 8_000, 4.0
ROD_END = 0.25
PENDULUM_METHODS = {
    "RATTLE": hx.RATTLE(),
    "U1": hx.VRATTLE(hx.ForceMonitor()),
    "U2": hx.VRATTLE(hx.MultiplierMonitor(floor=0.5)),
}
WALL = hx.WallMonitor(wall_distances, power=3.0)
SHEET_A = {"RATTLE": 3.9e-3, "U1": 1.45e-5, "U2": 4.0e-7}
SHEET_B = {0.02: (73, 8.58e-4, 3.20e-3), 0.01: (146, 2.13e-4, 8.04e-4)}


# -- runs -------------------------------------------------------------------------------------------------------------


def first_step(run: Callable[[float], Any], steps: int, guess: float) -> float:
    """The first step with which an adaptive run takes `steps` steps, by the secant method on its logarithm."""
    points: list[tuple[float, int]] = []
    dt = guess
    for _ in range(30):
        points.append((dt, run(dt).stats["steps"]))
        if abs(points[-1][1] - steps) <= max(1, steps // 4000):
            return dt
        below = [p for p in points if p[1] > steps]
        above = [p for p in points if p[1] < steps]
        if below and above:
            dt = float(np.sqrt(max(below)[0] * min(above)[0]))
        else:
            dt *= points[-1][1] / steps * (1.01 if not above else 0.99)
    return dt


@functools.cache
def pendulum_run(name: str, steps: int = STEPS) -> Any:
    """Benchmark A by one method, with `steps` steps to t = 4."""
    problem = hx.models.double_pendulum((1.0, 1.0), masses=(1e-3, 1.0), angles=(np.pi / 2, 0.0))
    method = PENDULUM_METHODS[name]

    def run(dt: float, **end: Any) -> Any:
        return hx.simulate(problem.system, method, problem.q0, problem.p0, dt=dt, **(end or {"t1": END}))

    if not method.adaptive:
        return run(END / steps, steps=steps)
    return run(first_step(run, steps, 2.5e-4 * STEPS / steps))


@functools.cache
def rod_run(h0: float, start: str = "forward", end: float = ROD_END) -> Any:
    """Benchmark B with VRATTLE and the wall monitor; h0 is the first physical step."""
    rod = hx.models.cosserat_rod()
    return hx.simulate(rod.system, hx.VRATTLE(WALL, start=start), rod.q0, rod.p0, dt=h0, t1=end)


@functools.cache
def fixed_rod_run(dt: float) -> Any:
    rod = hx.models.cosserat_rod()
    return hx.simulate(rod.system, hx.RATTLE(), rod.q0, rod.p0, dt=dt, t1=ROD_END, throw=False)


def worst(sol: Any) -> float:
    return float(np.max(np.abs(sol.energy_error())))


# -- section 4: the double pendulum -----------------------------------------------------------------------------------


def _axes(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, layout="constrained", **options)


def _count(quick: bool) -> int:
    return QUICK_STEPS if quick else STEPS


def benchmark_a(quick: bool, out: Path, console: Any) -> None:
    """Largest energy errors with as many steps for every method."""
    steps = _count(quick)
    table = Comparison(f"double pendulum, m1/m2 = 1/1000, t in [0, 4], {steps} steps: largest energy error")
    for name in PENDULUM_METHODS:
        table.add(name, worst(pendulum_run(name, steps)), None if quick else SHEET_A[name])
    e = {name: worst(pendulum_run(name, steps)) for name in PENDULUM_METHODS}
    table.add("RATTLE / U1", e["RATTLE"] / e["U1"], "> 100")
    table.add("U1 / U2", e["U1"] / e["U2"], "> 10")
    table.add("iterations a step, U2", pendulum_run("U2", steps).stats["mean_iterations"], "2.3")
    table.show(console)


def figure4_1(quick: bool, out: Path, console: Any) -> None:
    """Trajectories, and the energy error of RATTLE and VRATTLE with U1."""
    figure, (left, right) = _axes(1, 2, figsize=(10, 4.5))
    sol = pendulum_run("U1", _count(quick))
    for k, label in enumerate(("inner", "outer")):
        left.plot(sol.q[:, k, 0], sol.q[:, k, 1], lw=0.8, label=label)
        left.plot(*sol.q[0, k], "k*")
    left.set(aspect="equal", xlabel="x", ylabel="y", title="(a)")
    left.legend()
    for name in ("RATTLE", "U1"):
        sol = pendulum_run(name, _count(quick))
        right.semilogy(sol.t[1:], np.abs(sol.energy_error()[1:]) + 1e-17, lw=0.8, label=name)
    right.set(xlabel="t", ylabel="energy error", title="(b)", ylim=(1e-12, 1e-1))
    right.legend()
    save(figure, out / "figure4.1.png", console)


def figure4_2(quick: bool, out: Path, console: Any) -> None:
    """`dt^2 |lambda_n|` along RATTLE."""
    sol = pendulum_run("RATTLE", _count(quick))
    dt = END / _count(quick)
    figure, axes = _axes(figsize=(7, 4))
    axes.semilogy(sol.t, dt**2 * np.linalg.norm(sol.multipliers, axis=1), lw=0.8)
    axes.set(xlabel="t", ylabel=r"$h^2 |\lambda_n|$", ylim=(1e-13, 1e-2))
    save(figure, out / "figure4.2.png", console)


def figure4_3(quick: bool, out: Path, console: Any) -> None:
    """Energy errors of RATTLE, U1 and U2: the peaks are gone with U2."""
    figure, axes = _axes(figsize=(8, 4.5))
    for name in PENDULUM_METHODS:
        sol = pendulum_run(name, _count(quick))
        axes.semilogy(sol.t[1:], np.abs(sol.energy_error()[1:]) + 1e-17, lw=0.8, label=name)
    axes.set(xlabel="t", ylabel="energy error", ylim=(1e-13, 1e-1))
    axes.legend()
    save(figure, out / "figure4.3.png", console)


def figure4_4(quick: bool, out: Path, console: Any) -> None:
    """Step sizes of U1 and U2."""
    figure, axes = _axes(figsize=(8, 4.5))
    table = Comparison("step sizes", "monitor", "smallest", "largest")
    for name in ("U1", "U2"):
        sol = pendulum_run(name, _count(quick))
        step = np.diff(sol.t)
        axes.semilogy(sol.t[1:], step, lw=0.8, label=name)
        table.add(name, step.min(), step.max())
    axes.set(xlabel="t", ylabel="step")
    axes.legend()
    table.show(console)
    save(figure, out / "figure4.4.png", console)


# -- section 5: the rod -----------------------------------------------------------------------------------------------


def benchmark_b(quick: bool, out: Path, console: Any) -> None:
    """Largest energy errors of VRATTLE and of RATTLE with as many steps."""
    columns = ("first step", "steps", "sheet", "VRATTLE", "sheet", "RATTLE", "sheet", "ratio")
    table = Comparison("Cosserat rod, N = 10, t in [0, 0.25]: largest energy error", *columns)
    for h0, (steps, variable, fixed) in SHEET_B.items():
        sol = rod_run(h0)
        n = sol.stats["steps"]
        ours, theirs = worst(sol), worst(fixed_rod_run(ROD_END / n))
        table.add(f"{h0:g}", str(n), str(steps), ours, variable, theirs, fixed, theirs / ours)
    table.show(console)


def figure5_2(quick: bool, out: Path, console: Any) -> None:
    """Snapshots of the rod in the plane of its motion."""
    end = 0.5 if quick else 1.5
    sol = rod_run(0.02 if quick else 0.01, end=end)
    times = np.linspace(0.0, end, 6)
    rows = np.minimum(np.searchsorted(sol.t, times), len(sol.t) - 1)
    figure, axes = _axes(1, 6, figsize=(13, 3.2), sharey=True)
    for panel, k in zip(axes, rows):
        line = backbone(sol.q[k])
        panel.plot(line[:, 0], line[:, 2], "o-", ms=3)
        panel.axvline(0.5, color="0.4", lw=2)
        panel.set(xlim=(-1.0, 0.6), ylim=(-1.1, 1.1), title=f"t = {sol.t[k]:.2f}", aspect="equal")
    save(figure, out / "figure5.2.png", console)


def figure5_3(quick: bool, out: Path, console: Any) -> None:
    """Total energy with the same first step for both methods: RATTLE jumps at the collision."""
    h0 = 0.02
    figure, axes = _axes(figsize=(7, 4))
    for name, sol in (("RATTLE", fixed_rod_run(h0)), ("VRATTLE", rod_run(h0))):
        axes.plot(sol.t, sol.energy(), ".-", label=name)
    axes.set(xlabel="t", ylabel="energy")
    axes.legend()
    save(figure, out / "figure5.3.png", console)


def figure5_4(quick: bool, out: Path, console: Any) -> None:
    """Energy error through the collision: RATTLE with as many steps as VRATTLE at 0.02, VRATTLE at 0.02 and 0.04."""
    reference = rod_run(0.02)
    figure, axes = _axes(figsize=(7, 4))
    runs = {
        "RATTLE": fixed_rod_run(ROD_END / reference.stats["steps"]),
        "VRATTLE, 0.02": reference,
        "VRATTLE, 0.04": rod_run(0.04),
    }
    table = Comparison("energy error through the collision", "run", "steps", "largest")
    for name, sol in runs.items():
        axes.plot(sol.t, np.abs(sol.energy_error()), label=name)
        table.add(name, str(sol.stats["steps"]), worst(sol))
    axes.set(xlabel="t", ylabel="energy error")
    axes.legend()
    table.show(console)
    save(figure, out / "figure5.4.png", console)


def figure5_5(quick: bool, out: Path, console: Any) -> None:
    """Work and largest energy error."""
    figure, axes = _axes(figsize=(6, 4.5))
    work: dict[str, list[tuple[int, float]]] = {"VRATTLE": [], "RATTLE": []}
    for h0 in (0.04, 0.02, 0.01) if quick else (0.04, 0.028, 0.02, 0.014, 0.01, 0.005, 0.0025):
        sol = rod_run(h0)
        n = sol.stats["steps"]
        work["VRATTLE"].append((n, worst(sol)))
        work["RATTLE"].append((n, worst(fixed_rod_run(ROD_END / n))))
    table = Comparison("steps and largest energy error", "steps", "VRATTLE", "RATTLE", "ratio")
    for (n, a), (_, b) in zip(work["VRATTLE"], work["RATTLE"]):
        table.add(str(n), a, b, b / a)
    for name, points in work.items():
        axes.loglog(*zip(*points), "o-", label=name)
    axes.set(xlabel="steps", ylabel="largest energy error")
    axes.legend()
    table.show(console)
    save(figure, out / "figure5.5.png", console)


def figure5_6(quick: bool, out: Path, console: Any) -> None:
    """Density and physical step from a naive and from a proper start: the naive density oscillates."""
    figure, axes = _axes(2, 2, figsize=(10, 6), sharex=True)
    h0, u0 = 0.02, 0.5**-3
    table = Comparison("size of the oscillation: largest third difference of rho, relative", "start", "measured")
    for row, start in zip(axes, ("naive", "forward")):
        sol = rod_run(h0, start)
        step = np.diff(sol.t)
        density = h0 * u0 / step
        row[0].plot(sol.t[1:], density, ".-", ms=3)
        row[1].plot(sol.t[1:], step, ".-", ms=3)
        row[0].set(ylabel=r"$\rho_{n+1/2}$", title=f"{start} start")
        row[1].set(ylabel=r"$h/\rho_{n+1/2}$", title=f"{start} start")
        early = density[: len(density) // 2]
        table.add(start, np.max(np.abs(np.diff(early, 3))) / np.max(np.abs(np.diff(early))))
    for panel in axes[1]:
        panel.set_xlabel("t")
    table.show(console)
    save(figure, out / "figure5.6.png", console)


ITEMS: dict[str, Callable[[bool, Path, Any], None]] = {
    "benchmark_a": benchmark_a,
    "figure4.1": figure4_1,
    "figure4.2": figure4_2,
    "figure4.3": figure4_3,
    "figure4.4": figure4_4,
    "benchmark_b": benchmark_b,
    "figure5.2": figure5_2,
    "figure5.3": figure5_3,
    "figure5.4": figure5_4,
    "figure5.5": figure5_5,
    "figure5.6": figure5_6,
}
