"""Barth, Leimkuhler & Reich, A time-reversible variable-stepsize integrator for constrained dynamics (1998).

Section 4, figures 4.1 to 4.4: a double pendulum with a light inner mass; section 5, the rod, is in
`barth_leimkuhler_reich1998_rod`. The printed mass ratio m1/m2 = 1000 shows no whip: it must be m2/m1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import holonomix as hx

from .barth_leimkuhler_reich1998_more import ITEMS as MORE
from .barth_leimkuhler_reich1998_rod import ITEMS as ROD
from .items import Findings, Paper, item, legend, order_of, worst

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS, END = 32_000, 4.0
METHODS = {
    "RATTLE": hx.RATTLE(),
    "U1": hx.VRATTLE(hx.monitors.ForceMonitor(1.0)),
    "U2": hx.VRATTLE(hx.MultiplierMonitor(floor=0.5)),
    "U2, floor 0.01": hx.VRATTLE(hx.MultiplierMonitor(floor=0.01)),
}
SECTION4 = "double pendulum, m2/m1 = 1000, from (pi/2, 0) at rest, t to 4, 32 000 steps for every method"
RATIO = "section 4: the mass ratio 1000 is m2/m1, a light inner mass"


def first_step(run: Callable[[float], Any], steps: int, guess: float) -> float:
    """The first step for which an adaptive run takes `steps` steps, by bisection of its logarithm."""
    points: list[tuple[float, int]] = []
    dt = guess
    for _ in range(30):
        points.append((dt, run(dt).stats["steps"]))
        if abs(points[-1][1] - steps) <= max(1, steps // 400):
            return dt
        below = [p for p in points if p[1] > steps]
        above = [p for p in points if p[1] < steps]
        if below and above:
            dt = float(np.sqrt(max(below)[0] * min(above)[0]))
        else:
            dt *= points[-1][1] / steps * (1.01 if not above else 0.99)
    return dt


@functools.cache
def pendulum_run(name: str, steps: int = STEPS, light: int = 0) -> Any:
    """The double pendulum by one method, with about `steps` steps to t = 4; `light` is the index of the light mass."""
    masses = (1e-3, 1.0) if light == 0 else (1.0, 1e-3)
    problem = hx.models.double_pendulum((1.0, 1.0), masses=masses, angles=(np.pi / 2, 0.0))
    method = METHODS[name]

    def run(dt: float, **end: Any) -> Any:
        return hx.simulate(problem, method, dt=dt, **(end or {"t1": END}))

    if not method.adaptive:
        return run(END / steps, steps=steps)
    return run(first_step(run, steps, 2.5e-4 * STEPS / steps))


def prominence(sol: hx.Solution) -> float:
    """The height of the peaks: the largest energy error divided by its median in time."""
    even = np.interp(np.linspace(0.01, END, 20_000), sol.t, np.abs(sol.energy_error()))
    return float(worst(sol) / np.median(even))


def draw_errors(axes: Axes, names: tuple[str, ...]) -> None:
    for name in names:
        sol = pendulum_run(name, STEPS)
        keep = np.unique(np.linspace(1, len(sol.t) - 1, 3000).astype(int))
        axes.semilogy(sol.t[keep], np.abs(sol.energy_error()[keep]) + 1e-17, lw=0.8, label=name)
    axes.set(xlabel="$t$", ylabel="$|H - H_0|$", ylim=(1e-13, 1e-1))


@item(
    "figure4.1",
    "energy error of RATTLE and VRATTLE with U1",
    "page 7, section 4, Figure 4.1",
    SECTION4,
    seconds=(0.8, 0.8),
)
def figure4_1(found: Findings, quick: bool) -> None:
    """The energy error of VRATTLE with U1 is much smaller than that of RATTLE with as many steps, but both have peaks
    at the cusps: U1 leaves out the constraint force.
    """
    runs = {name: pendulum_run(name, STEPS) for name in ("RATTLE", "U1")}
    left, right = found.panels("figure4.1", 1, 2, (7.0, 3.0))
    sol = runs["U1"]
    keep = np.unique(np.searchsorted(sol.t, np.linspace(0, END, 4000)).clip(max=len(sol.t) - 1))
    for k, label in enumerate(("inner mass", "outer mass")):
        left.plot(sol.q[keep, k, 0], sol.q[keep, k, 1], lw=0.8, label=label)
        left.plot(*sol.q[0, k], "k*", ms=7)
    left.set(aspect="equal", xlabel="$x$", ylabel="$y$")
    draw_errors(right, ("RATTLE", "U1"))
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    table = found.table(f"t in [0, 4], {STEPS} steps", "method", "largest energy error", "over its median")
    for name, sol in runs.items():
        table.add(name, worst(sol), prominence(sol))
    ratio = worst(runs["RATTLE"]) / worst(runs["U1"])
    found.compare(
        "error of VRATTLE", "much smaller than of RATTLE", f"{ratio:.0f} times smaller", ratio > 10, correction=RATIO
    )
    peaks = {name: prominence(sol) for name, sol in runs.items()}
    found.compare(
        "peaks of the energy error",
        "with both methods",
        ", ".join(f"{name}: {x:.1e} times the median in time" for name, x in peaks.items()),
        min(peaks.values()) > 10,
    )
    other = pendulum_run("RATTLE", STEPS, light=1)
    found.note(
        f"Control: with m1/m2 = 1000 as printed, the largest multiplier is {np.max(np.abs(other.multipliers)):.2g}, "
        f"with m2/m1 = 1000 it is {np.max(np.abs(runs['RATTLE'].multipliers)):.2g}."
    )


@item("figure4.2", "multipliers along RATTLE", "pages 7 and 8, section 4, Figure 4.2", SECTION4, seconds=(0.1, 0.1))
def figure4_2(found: Findings, quick: bool) -> None:
    """The constraint force, scaled by the square of the step, peaks where the energy error does."""
    sol, dt = pendulum_run("RATTLE", STEPS), END / STEPS
    size = np.linalg.norm(sol.multipliers, axis=1)
    axes = found.panels("figure4.2")
    keep = np.unique(np.linspace(0, len(sol.t) - 1, 4000).astype(int))
    axes.semilogy(sol.t[keep], dt**2 * size[keep], lw=0.8)
    axes.set(xlabel="$t$", ylabel=r"$\Delta t^2 |\lambda_n|$", ylim=(1e-16, 1e-3))
    table = found.table("|lambda| along RATTLE", "smallest", "median", "largest")
    table.add(size.min(), np.median(size), size.max())
    ratio = float(size.max() / np.median(size))
    found.compare(
        "the multipliers have high peaks", "yes", f"largest over median {ratio:.0f}", ratio > 10, correction=RATIO
    )
    jump = np.abs(np.diff(sol.energy_error()))
    near = abs(sol.t[int(np.argmax(size))] - sol.t[int(np.argmax(jump))])
    found.compare(
        "the energy changes most where lambda peaks", "at the cusps", f"{near:.1e} apart in time", near < 0.02
    )


@item(
    "figure4.3",
    "energy error with the multiplier monitor U2",
    "page 9, section 4, Figure 4.3",
    SECTION4,
    seconds=(1, 1.2),
)
def figure4_3(found: Findings, quick: bool) -> None:
    """The peaks of the energy error are eliminated by the monitor U2."""
    names = ("RATTLE", "U1", "U2")
    runs = {name: pendulum_run(name, STEPS) for name in names}
    axes = found.panels("figure4.3", size=(3.4, 2.8))
    draw_errors(axes, names)
    legend(axes)
    columns = ("method", "steps", "largest energy error", "over its median", "iterations per step")
    table = found.table("t in [0, 4], as many steps for every method", *columns)
    for name, sol in runs.items():
        table.add(name, sol.stats["steps"], worst(sol), prominence(sol), sol.stats["mean_iterations"])
    e = {name: worst(sol) for name, sol in runs.items()}
    peaks = {name: prominence(sol) for name, sol in runs.items()}
    found.compare(
        "the peaks of RATTLE and of U1 are gone with U2",
        "yes",
        f"largest error over the median in time: {peaks['RATTLE']:.0e}, {peaks['U1']:.0e} and {peaks['U2']:.0e}",
        peaks["U2"] < 10 < min(peaks["RATTLE"], peaks["U1"]),
        correction=RATIO,
        why=f"with U2 the peaks are {e['RATTLE'] / e['U2']:.0f} times lower than with RATTLE and "
        f"{e['U1'] / e['U2']:.0f} times lower than with U1, so that a linear axis which shows RATTLE does not show "
        "them, but they are there: between the cusps the error is smaller still",
    )
    found.compare(
        "largest energy error: RATTLE, U1, U2",
        "falls from each to the next",
        f"{e['RATTLE']:.1e}, {e['U1']:.1e}, {e['U2']:.1e}",
        e["RATTLE"] > e["U1"] > e["U2"],
    )


@item("figure4.4", "step sizes with U1 and U2", "pages 9 and 10, section 4, Figure 4.4", SECTION4, seconds=(0.6, 0.7))
def figure4_4(found: Findings, quick: bool) -> None:
    """The largest step with U2 is several orders of magnitude larger than with U1, the smallest several smaller."""
    axes = found.panels("figure4.4")
    table = found.table("Step sizes", "monitor", "smallest", "largest", "ratio")
    sizes = {}
    for name in ("U1", "U2", "U2, floor 0.01"):
        sol = pendulum_run(name, STEPS)
        step = np.diff(sol.t)
        keep = np.unique(np.linspace(0, len(step) - 1, 3000).astype(int))
        axes.semilogy(sol.t[1:][keep], step[keep], lw=0.8, label=name)
        sizes[name] = step.min(), step.max()
        table.add(name, *sizes[name], step.max() / step.min())
    axes.set(xlabel="$t$", ylabel=r"$\Delta t$")
    legend(axes)
    (low1, high1), (low2, high2) = sizes["U1"], sizes["U2, floor 0.01"]
    found.compare(
        "U2 takes larger and smaller steps than U1",
        "yes",
        f"largest {high2 / high1:.1f} times, smallest 1/{low1 / low2:.1f}",
        high2 > high1 and low2 < low1,
    )
    orders = np.log10([high2 / high1, low1 / low2])
    found.compare(
        "by how much",
        "several orders of magnitude either way",
        f"largest by {orders[0]:.1f}, smallest by {orders[1]:.1f} orders of magnitude",
        orders.min() >= 2,
        why="the paper's U2 has no lower bound, so that its step grows without limit where lambda vanishes, "
        "where our run "
        "without a floor fails; with a floor of 0.01, and as many steps for both monitors, the ranges differ by less",
    )


@item(
    "explicit",
    "explicit update of the density",
    "pages 5 and 6, section 3, equations (3.14) and (3.15)",
    "double pendulum to t = 1 with U1",
    seconds=(1.9, 4),
)
def explicit_update(found: Findings, quick: bool) -> None:
    """Both updates of the density give methods of second order; the explicit one might be less stable."""
    problem = hx.models.double_pendulum(masses=(1.0, 2.0), angles=(0.7, 0.2))
    columns = ("update", "order", "error at the smallest step", "oscillation of the step")
    table = found.table("Double pendulum to t = 1; oscillation from a naive start, relative", *columns)
    waves = {}
    exact = hx.integrate(problem, hx.Composition(hx.RATTLE(), 8), dt=0.01, steps=100)
    for update in ("semi-explicit", "explicit"):
        method = hx.VRATTLE(hx.monitors.ForceMonitor(1.0), update=update)
        steps, errors = (0.01, 0.005, 0.0025), []
        for dt in steps:
            sol = hx.simulate(problem, method, dt=dt, save_at=[0.0, 1.0])
            errors.append(float(np.max(np.abs(sol.q[-1] - np.asarray(exact[0])))))
        order = order_of(steps, errors)
        naive = hx.VRATTLE(hx.monitors.ForceMonitor(1.0), update=update, start="naive")
        step = np.diff(hx.simulate(problem, naive, dt=0.02, t1=4.0).t)
        waves[update] = float(np.max(np.abs(np.diff(np.log(step), 3))) / 8)
        table.add(update, order, errors[-1], waves[update])
        found.compare(f"{update}: order", 2, f"{order:.2f}", abs(order - 2) < 0.2)
    found.compare(
        "oscillation of the step from rho = U(q_0) to t = 4: explicit over semi-explicit",
        "the explicit update might be less stable",
        f"{waves['explicit'] / waves['semi-explicit']:.2f}",
        waves["explicit"] >= waves["semi-explicit"],
        why="here the explicit update oscillates less",
    )


@item(
    "section2",
    "symplectic steps of variable size (Poincare transformation)",
    "page 3, section 2",
    "Kepler orbit of eccentricity 0.6, 20 periods",
    seconds=(0.9, 1.7),
)
def poincare_euler(found: Findings, quick: bool) -> None:
    """The symplectic Euler method for (H - H_0)/U is symplectic and of first order, with steps that vary."""
    problem = hx.models.kepler(0.6)
    exact = hx.integrate(problem, hx.Composition(hx.StormerVerlet(), 8), dt=0.005, steps=200)
    steps, errors = (0.004, 0.002, 0.001), []
    for dt in steps:
        sol = hx.simulate(problem, hx.PoincareEuler(), dt=dt, save_at=[0.0, 1.0])
        errors.append(float(np.max(np.abs(sol.q[-1] - np.asarray(exact[0])))))
    table = found.table("Kepler orbit, e = 0.6, error at t = 1", "first step", "error")
    for dt, error in zip(steps, errors):
        table.add(dt, error)
    order = order_of(steps, errors)
    found.compare("order", 1, f"{order:.2f}", abs(order - 1) < 0.1)
    sol = hx.simulate(problem, hx.PoincareEuler(), dt=2e-3, t1=20 * 2 * np.pi)
    drift = worst(sol) / float(np.max(np.abs(sol.energy_error()[: len(sol.t) // 10])))
    found.compare(
        "the energy error stays bounded over 20 periods",
        "symplectic: yes",
        f"largest over that of two periods {drift:.2f}",
        drift < 1.2,
    )


PAPER = Paper(
    "barth_leimkuhler_reich1998",
    "Barth, Leimkuhler & Reich, A time-reversible variable-stepsize integrator for constrained dynamics (1998)",
    (poincare_euler, explicit_update, figure4_1, figure4_2, figure4_3, figure4_4, *ROD, *MORE),
)
