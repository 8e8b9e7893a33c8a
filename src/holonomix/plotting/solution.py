"""A run in pictures: where the particles went, and what the method kept on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["plot_constraints", "plot_energy", "plot_solution", "plot_trajectory"]

TINY = 1e-17  # what a logarithmic axis shows for zero
MOST_POINTS = 4000  # a path drawn with more says no more
MOST_BINS = 800  # an error drawn over more rows than twice this shows the range within each of so many windows
TRAIL = 300  # rows at the end of a long path that are drawn as a line of their own
FAR = 0.08  # neighboring points further apart than this share of the picture are not joined


def plot_solution(
    solution: Any,
    *,
    problem: Any = None,
    bonds: Iterable[tuple[int, int]] | None = None,
    particles: Iterable[int] | None = None,
    title: str | None = None,
) -> Figure:
    """Trajectory on the left, errors of energy and constraints on the right.

    `bonds` are pairs of particles joined by a line in the last configuration (-1 is the origin); a `problem` gives its
    own. `particles` chooses which paths are drawn, the last one by default when there are many.
    """
    pairs = bonds if bonds is not None else () if problem is None else problem.bonds
    dim = _particles(solution.q).shape[2]
    constrained = solution.system.constrained
    figure = Figure(figsize=(11, 5), layout="constrained")
    grid = figure.add_gridspec(2 if constrained else 1, 2, width_ratios=(1.15, 1))
    space = figure.add_subplot(grid[:, 0], **({"projection": "3d"} if dim == 3 else {}))
    plot_trajectory(solution, space, bonds=pairs, particles=particles)
    plot_energy(solution, figure.add_subplot(grid[0, 1]))
    if constrained:
        plot_constraints(solution, figure.add_subplot(grid[1, 1]))
    name = "" if problem is None else f", {problem.name}"
    figure.suptitle(f"{solution.method.name}{name}" if title is None else title)
    return figure


def plot_trajectory(
    solution: Any, axes: Any, *, bonds: Iterable[tuple[int, int]] = (), particles: Iterable[int] | None = None
) -> Any:
    """Paths of the particles with the last configuration on top; coordinates over time in one dimension."""
    q = _particles(solution.q)
    rows, count, dim = q.shape
    if dim not in (2, 3):
        axes.plot(solution.t, solution.q.reshape(rows, -1))
        axes.set(xlabel="t", ylabel="q")
        return axes
    thin = max(1, rows // MOST_POINTS)
    chosen = list(particles) if particles is not None else list(range(count)) if count <= 4 else [count - 1]
    for k in chosen:
        path, end = q[::thin, k], q[-TRAIL:, k]
        joined = _near(path)
        style = (
            {"linewidth": 0.7, "alpha": 0.7}
            if joined
            else {"linestyle": "", "marker": ".", "markersize": 1.5, "alpha": 0.5}
        )
        (line,) = axes.plot(*path.T, **style, label=f"particle {k}")
        if not joined and _near(end):
            axes.plot(*end.T, color=line.get_color(), linewidth=1.2)
    last = q[-1]
    for i, j in bonds:
        ends = np.stack([np.zeros(dim) if k < 0 else last[k] for k in (i, j)])
        axes.plot(*ends.T, color="black", linewidth=1.5)
    axes.plot(*last.T, "o", color="black", markersize=4)
    labels = ("x", "y", "z")[:dim]
    axes.set(**{f"{a}label": a for a in labels})
    axes.set_aspect("equal")
    if len(chosen) > 1:
        axes.legend(loc="upper right", fontsize="small", markerscale=6)
    return axes


def _near(path: np.ndarray) -> bool:
    """Whether neighboring points are close enough for a line between them to mean something."""
    jumps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    return len(path) < 3 or float(np.median(jumps)) <= FAR * float(np.max(np.ptp(path, axis=0)))


def plot_energy(solution: Any, axes: Axes) -> Axes:
    """`H(t) - H(0)`; of long runs, the range within each window."""
    t, error = np.asarray(solution.t), solution.energy_error()
    if len(t) > 2 * MOST_BINS:
        where, low, high = _windows(t, error)
        axes.fill_between(where, low, high, linewidth=0.5, alpha=0.8)
    else:
        axes.plot(t, error, linewidth=0.8)
    axes.axhline(0.0, color="0.6", linewidth=0.6, zorder=0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.set(xlabel="t", ylabel="H(t) - H(0)", title="energy error")
    return axes


def plot_constraints(solution: Any, axes: Axes) -> Axes:
    """`max|g|` and `max|G M^-1 p|` on a logarithmic axis; of long runs, the largest within each window."""
    for name, values in (("|g|", solution.constraint_error()), ("|G M$^{-1}$p|", solution.hidden_constraint_error())):
        t, shown = np.asarray(solution.t), np.maximum(values, TINY)
        if len(t) > 2 * MOST_BINS:
            t, _, shown = _windows(t, shown)
        axes.semilogy(t, shown, linewidth=0.8, label=name)
    low, high = np.log10(axes.get_ylim())
    axes.set_ylim(10.0 ** (np.floor(low) - 0.5), 10.0 ** (np.ceil(high) + 0.5))
    axes.set(xlabel="t", title="constraint and hidden constraint")
    axes.legend(loc="upper right", fontsize="small", ncols=2)
    return axes


def _windows(t: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle, smallest and largest value of each of `MOST_BINS` windows of rows."""
    edges = np.linspace(0, len(t), MOST_BINS + 1).astype(int)[:-1]
    ends = np.append(edges[1:], len(t)) - 1
    return (t[edges] + t[ends]) / 2, np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)


def _particles(q: Any) -> np.ndarray:
    """Rows as (row, particle, dim); a number, or an array of more axes, counts as one particle."""
    q = np.asarray(q)
    return q if q.ndim == 3 else q.reshape(len(q), 1, -1)
