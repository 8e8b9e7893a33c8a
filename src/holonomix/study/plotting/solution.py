"""Figures of a run: paths of the particles, and errors of energy and constraints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ...core.scene import Scene
from ...mechanics.scenes import particle_scene, scene_of
from .notebook import Picture
from .outlines import bond_ends, guide_lines, outlines, zigzag

if TYPE_CHECKING:
    from ...mechanics.problem import Problem
    from ...run.solution import Solution

LOG_FLOOR = 1e-17  # replaces zero on logarithmic axes
MAX_POINTS = 4000  # points per path
MAX_BINS = 800  # runs of more than twice as many rows are drawn as the range within each of these windows
TRAIL = 300  # rows at the end of a long path that are also drawn as a line
MAX_NAMES = 12  # maximum number of coordinates in a legend
MIN_SIDE = 0.4  # the shortest side of a picture, relative to the longest
MAX_GAP = 0.08  # largest distance of neighboring points that are joined, relative to the picture


def plot_solution(
    solution: Solution,
    *,
    problem: Problem | None = None,
    bonds: Iterable[tuple[int, int]] | None = None,
    particles: Iterable[int] | None = None,
    title: str | None = None,
) -> Picture:
    """Plot the trajectory on the left, and errors of energy and constraints on the right.

    The trajectory is drawn with the scene of the run. `problem` supplies another scene, `bonds` a list of pairs of
    particles to join by lines (-1 is the origin). `particles` selects the paths to draw; by default all of up to four
    particles, otherwise that of the last one.
    """
    shape = solution.q.shape[1:]
    scene = solution.scene if problem is None else scene_of(solution.system, shape, problem, solution.q[0])
    if bonds is not None:
        scene = particle_scene(shape, bonds)
    constrained = solution.system.has_constraints
    figure = Picture(figsize=(11, 5), layout="constrained")
    grid = figure.add_gridspec(2 if constrained else 1, 2, width_ratios=(1.15, 1))
    solid = scene is not None and scene.dimension == 3
    space = figure.add_subplot(grid[:, 0], **({"projection": "3d"} if solid else {}))
    if scene is None:
        names = solution.coordinate_names
        space.plot(solution.t, solution.q.reshape(len(solution.t), -1), linewidth=0.8, label=names or None)
        space.set(xlabel="t", ylabel=names[0] if len(names) == 1 else "q")
        if 1 < len(names) <= MAX_NAMES:
            space.legend(loc="upper right", fontsize="small")
    else:
        points = scene.points(solution.q)
        plot_scene(scene, points, space, particles=particles)
        draw_bodies(scene, points[-1], space)
        space.autoscale()  # include surfaces and bodies
        space.autoscale_view()  # at once, also in space
        set_equal(space)
    plot_energy(solution, figure.add_subplot(grid[0, 1]))
    if constrained:
        plot_constraints(solution, figure.add_subplot(grid[1, 1]))
    name = f", {problem.name}" if problem is not None else f", {solution.name}" if solution.name else ""
    figure.suptitle(f"{solution.method.name}{name}" if title is None else title)
    return figure


def plot_problem(problem: Problem) -> Picture | None:
    """Draw the initial configuration of a problem; None if it has no scene."""
    q = np.asarray(problem.q0)[None]
    scene = scene_of(problem.system, q.shape[1:], problem, q[0])
    if scene is None:
        return None
    figure = Picture(figsize=(4.5, 4), layout="constrained")
    axes = figure.add_subplot(projection="3d" if scene.dimension == 3 else None)
    draw_bodies(scene, scene.points(q)[0], axes)
    set_equal(axes)
    axes.set_title(problem.name)
    return figure


def set_equal(axes: Axes) -> None:
    """Equal units along all axes; no axis is so short that its numbers overlap."""
    names = "xyz" if hasattr(axes, "get_zlim") else "xy"
    ends = {name: getattr(axes, f"get_{name}lim")() for name in names}
    longest = max(high - low for low, high in ends.values())
    for name, (low, high) in ends.items():
        if high - low < MIN_SIDE * longest or names == "xyz":
            middle, half = (low + high) / 2, max(high - low, MIN_SIDE * longest) / 2
            getattr(axes, f"set_{name}lim")(middle - half, middle + half)
        if names == "xyz":
            getattr(axes, f"{name}axis").set_major_locator(MaxNLocator(4))
    axes.set_aspect("equal")


def plot_scene(
    scene: Scene, points: np.ndarray, axes: Axes, *, particles: Iterable[int] | None = None, legend: bool = True
) -> Any:
    """Draw the paths of `points`, shape (rows, points, dimension); rows that are far apart become dots."""
    rows, count = points.shape[:2]
    directors = {k for frame in scene.frames for k in frame.directors}
    free = [k for k in range(count) if k not in directors] or [count - 1]
    chosen = list(particles) if particles is not None else free if len(free) <= 4 else free[-1:]
    names = {frame.center: frame.name for frame in scene.frames if frame.name}
    thin = max(1, rows // MAX_POINTS)
    for k in chosen:
        path, end = points[::thin, k], points[-TRAIL:, k]
        joined = _near(path)
        style: dict[str, Any] = (
            {"linewidth": 0.7, "alpha": 0.7}
            if joined
            else {"linestyle": "", "marker": ".", "markersize": 1.5, "alpha": 0.5}
        )
        (line,) = axes.plot(*path.T, **style, label=names.get(k, f"particle {k}"))
        if not joined and _near(end):
            axes.plot(*end.T, color=line.get_color(), linewidth=1.2)
    axes.set(**{f"{a}label": a for a in ("x", "y", "z")[: scene.dimension]})
    set_equal(axes)
    if legend and len(chosen) > 1:
        axes.legend(loc="upper right", fontsize="small", markerscale=6)
    return axes


def draw_bodies(scene: Scene, points: np.ndarray, axes: Axes) -> Any:
    """Draw particles, bonds, lines, anchors and outlines of bodies in one configuration (points, dimension)."""
    at = lambda k: scene.place(points, k)
    color = {"bar": "black", "spring": "tab:orange", "damper": "tab:purple", "ground": "0.65"}
    for guide in guide_lines(scene, points):
        axes.plot(*guide.T, color="0.75", linewidth=0.8, zorder=0)
    for bond in scene.bonds:
        ends = bond_ends(scene, points, bond)
        ends = zigzag(ends) if bond.kind == "spring" else ends
        axes.plot(*ends.T, color=bond.color or color.get(bond.kind, "black"), linewidth=1.5)
    for line in scene.polylines:
        places = [at(k) for k in line.indices] + ([at(line.indices[0])] if line.closed else [])
        axes.plot(*np.stack(places).T, color=line.color or "tab:blue", linewidth=2.5)
    for group in scene.particles:
        size = 4 if len(points) < 200 else 1.5
        places = np.stack([at(k) for k in group.indices]).T
        edge = "0.3" if group.color else "black"  # hydrogen is white
        axes.plot(*places, "o", color=group.color or "black", markersize=size, markeredgecolor=edge)
    for frame in scene.frames:
        for outline in outlines(scene, points, frame):
            axes.plot(*outline.T, color=frame.color or "tab:blue", linewidth=1.2)
    if scene.anchors:
        axes.plot(*np.asarray(scene.anchors).T, "s", color="0.5", markersize=5)
    axes.set(**{f"{a}label": a for a in ("x", "y", "z")[: scene.dimension]})
    axes.set_aspect("equal")
    return axes


def limits(scene: Scene, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner of a box that contains the scene in every row, with a margin."""
    directors = {k for frame in scene.frames for k in frame.directors}
    places = [points[:, k] for k in range(points.shape[1]) if k not in directors]
    places += [np.asarray(scene.anchors)] if scene.anchors else []
    places += guide_lines(scene, points[0])
    some = np.unique(np.linspace(0, len(points) - 1, 60).astype(int))
    places += [x for row in some for frame in scene.frames for x in outlines(scene, points[row], frame)]
    low = np.min([np.nanmin(x, axis=0) for x in places], axis=0)
    high = np.max([np.nanmax(x, axis=0) for x in places], axis=0)
    pad = 0.06 * max(float(np.max(high - low)), 1e-9)
    return low - pad, high + pad


def _near(path: np.ndarray) -> bool:
    """Whether neighboring points are close enough to join them by a line."""
    jumps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    return len(path) < 3 or float(np.median(jumps)) <= MAX_GAP * float(np.max(np.ptp(path, axis=0)))


def plot_energy(solution: Solution, axes: Axes) -> Axes:
    """Plot `H(t) - H(0)`; for a long run, its range within each window. Work, if any is done, is also taken off."""
    t, error = np.asarray(solution.t), solution.energy_error()
    if len(t) > 2 * MAX_BINS:
        where, low, high = _windows(t, error)
        axes.fill_between(where, low, high, linewidth=0.5, alpha=0.8)
    else:
        axes.plot(t, error, linewidth=0.8)
    axes.axhline(0.0, color="0.6", linewidth=0.6, zorder=0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.set(xlabel="t", ylabel="H(t) - H(0)", title=solution.energy_title)
    if not solution.system.keeps_energy and not solution.method.stochastic:
        balance = solution.energy_balance_error()
        label = f"minus work: {np.nanmax(np.abs(balance)):.1e} at most"
        axes.plot(t, balance, linewidth=0.8, color="tab:orange", label=label)
        axes.legend(loc="best", fontsize="small")
    return axes


def plot_constraints(solution: Solution, axes: Axes) -> Axes:
    """Plot `max|g|` and `max|G M^-1 p|` on a logarithmic axis; for a long run, the maximum within each window."""
    for name, values in (("|g|", solution.constraint_error()), ("|G M$^{-1}$p|", solution.hidden_constraint_error())):
        t, shown = np.asarray(solution.t), np.maximum(values, LOG_FLOOR)
        if len(t) > 2 * MAX_BINS:
            t, _, shown = _windows(t, shown)
        axes.semilogy(t, shown, linewidth=0.8, label=name)
    low, high = np.log10(axes.get_ylim())
    axes.set_ylim(10.0 ** (np.floor(low) - 0.5), 10.0 ** (np.ceil(high) + 0.5))
    axes.set(xlabel="t", title="constraint and hidden constraint")
    axes.legend(loc="upper right", fontsize="small", ncols=2)
    return axes


def _windows(t: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean time, smallest and largest value of each of `MAX_BINS` windows of rows."""
    edges = np.linspace(0, len(t), MAX_BINS + 1).astype(int)[:-1]
    ends = np.append(edges[1:], len(t)) - 1
    return (t[edges] + t[ends]) / 2, np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)
