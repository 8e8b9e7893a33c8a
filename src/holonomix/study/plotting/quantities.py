"""Multipliers and invariants of a run over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from ...core.errors import InputError
from .notebook import Picture
from .solution import MAX_BINS, _windows

if TYPE_CHECKING:
    from ...mechanics.problem import Problem
    from ...run.solution import Solution

MAX_CURVES = 12


def _draw(axes: Axes, t: np.ndarray, values: np.ndarray, name: str) -> None:
    """Draw a curve; for a long run, the range of values within each window."""
    if len(t) > 2 * MAX_BINS:
        where, low, high = _windows(t, values)
        axes.fill_between(where, low, high, linewidth=0.5, alpha=0.6, label=name)
    else:
        axes.plot(t, values, linewidth=0.9, label=name)


def multipliers(solution: Solution) -> Picture:
    """Plot the multipliers `Lambda(q, p)` over time, with the names of their constraints."""
    if not solution.system.has_constraints:
        raise InputError("the system has no constraints and therefore no multipliers")
    values, t = solution.multipliers, np.asarray(solution.t)
    names = [row.label for row in solution.system.constraint_rows(solution.q[0])]
    figure = Picture(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for k in range(min(values.shape[1], MAX_CURVES)):
        _draw(axes, t, values[:, k], names[k])
    shown = "" if values.shape[1] <= MAX_CURVES else f", {MAX_CURVES} of {values.shape[1]}"
    axes.set(xlabel="t", ylabel="multiplier", title=f"{solution.name} {solution.method.name}".strip() + shown)
    axes.legend(fontsize="small", ncols=2)
    return figure


def invariants(solution: Solution, problem: Problem | Mapping[str, Callable[[Any, Any], Any]] | None = None) -> Picture:
    """The change of the energy and of the problem's invariants since the start, on a logarithmic axis.

    `problem` may also be a dict from names to functions of `(q, p)`.
    """
    from ...run.solution import map_rows

    found = problem if isinstance(problem, Mapping) else getattr(problem, "invariants", {})
    functions: dict[str, Callable[[Any, Any], Any]] = dict(found)
    t = np.asarray(solution.t)
    changes = {"energy": np.abs(solution.energy_error())}
    for name, fn in functions.items():
        rows = map_rows(lambda system, q, p, t, fn=fn: fn(q, p), solution.system, solution.q, solution.p, solution.t)
        flat = np.asarray(rows).reshape(len(t), -1)
        changes[name] = np.max(np.abs(flat - flat[0]), axis=1)
    figure = Picture(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, values in changes.items():
        _draw(axes, t, np.maximum(values, 1e-17), name)
    axes.set_yscale("log")
    axes.set(xlabel="t", ylabel="change since the start", title=f"{solution.name} {solution.method.name}".strip())
    axes.legend(fontsize="small")
    return figure
