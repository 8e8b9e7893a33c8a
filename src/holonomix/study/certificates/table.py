"""A comparison as text: the table of errors and costs, and the cheapest method for each error."""

from __future__ import annotations

import io
import itertools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison import Comparison

WIDTH = 120  # characters per line


def as_text(comparison: Comparison) -> str:
    """The table and the cheapest methods, without colors."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=WIDTH, no_color=True).print(table(comparison))
    return (text.getvalue() + winners(comparison)).rstrip()


def table(comparison: Comparison) -> Any:
    """A table of all methods at the chosen step."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    if comparison.keeps_energy:
        energy = (
            "H error, g error: largest error of energy and constraint. H drift: change of the mean energy in a run of "
            f"t = {comparison.long:g}."
        )
    else:
        energy = (
            "H change: largest change of the energy, which is not an error where forces do work. g error: largest "
            "error of the constraint."
        )
    caption = (
        f"q error: error of the final position against {comparison.reference}, which is accurate to "
        f"{comparison.uncertainty:.0e}. {energy} Time: number of steps times the cost of a step. Equal work: q error "
        f"that the method reaches in {_seconds(comparison.work)}, interpolated on its work-precision curve; empty "
        "outside the measured range."
    )
    if comparison.unmeasurable:
        caption += (
            f"\nThe q errors do not tell the methods apart: at t = {comparison.t1:g} the reference itself is not more "
            "accurate. Nearby motions may have separated (take a smaller t1), or nothing moves (choose another start)."
        )
    if any(curve.penalized for curve in comparison.curves):
        caption += (
            "\nomega: these methods ran with stiff springs in place of the constraints. Position and constraint errors "
            "are measured against the rigid motion; the energy includes that of the springs."
        )
    name = f"{comparison.problem}, " if comparison.problem else ""
    title = f"{name}t = {comparison.t1:g}, dt = {comparison.dt:g}"
    out = Table(title=title, title_justify="left", caption_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    springs = any(curve.penalized for curve in comparison.curves)
    for column in ("method", *(("system",) if springs else ())):
        out.add_column(column, no_wrap=column == "method")
    kept = ("H error", "H drift") if comparison.keeps_energy else ("H change",)
    for column in ("time", "q error", *kept, "g error", "equal work"):
        out.add_column(column, justify="right", no_wrap=column != "equal work")
    for curve in comparison.curves:
        level = next(level for level in curve.levels if level.dt == comparison.dt)
        names = (curve.name, *((curve.system,) if springs else ()))
        if level.status:
            out.add_row(*names, "", "failed", style="red")
            caption += f"\n{curve.name} failed: {level.status}."
            continue
        equal = "" if curve.error_at_equal_work is None else f"{curve.error_at_equal_work:.1e}"
        drift = [f"{curve.drift:.1e}" if math.isfinite(curve.drift) else "failed"] if comparison.keeps_energy else []
        errors = [f"{x:.1e}" for x in (level.error, level.energy_error, level.constraint_error)]
        out.add_row(*names, _seconds(level.seconds), *errors[:2], *drift, errors[2], equal)
    out.caption = caption
    return out


def winners(comparison: Comparison) -> str:
    """The cheapest method for each size of the error, as text."""
    cheapest = comparison.cheapest
    if not cheapest or len(comparison.curves) < 2:
        return ""
    lines = ["Least work for a position error of"]
    for name, group in itertools.groupby(cheapest, key=lambda k: cheapest[k]):
        exponents = list(group)
        span = f"1e{exponents[0]}" if len(exponents) == 1 else f"1e{exponents[0]} .. 1e{exponents[-1]}"
        lines.append(f"  {span:16} {name}")
    drifting = comparison.drifting
    if drifting and len(drifting) < len(comparison.curves):
        shown = (
            f"{name} ({drift:.1e})" if math.isfinite(drift) else f"{name} (failed)" for name, drift in drifting.items()
        )
        lines.append(f"Left out, because the energy drifts in the long run: {', '.join(shown)}")
    return "\n".join(lines)


def _seconds(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
