"""Work-precision diagrams."""

from __future__ import annotations

import itertools
from typing import Any

from .notebook import Picture
from .ticks import label_log_axis


def work_precision(comparison: Any) -> Picture:
    """Plot `hx.compare(problem, methods)`: error over work, and error over the step size."""
    figure = Picture(figsize=(10.5, 4.4), layout="constrained")
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
        label_log_axis(axes)
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
    name = f"{comparison.problem}, " if comparison.problem else ""
    figure.suptitle(f"{name}t = {comparison.t1:g}")
    return figure
