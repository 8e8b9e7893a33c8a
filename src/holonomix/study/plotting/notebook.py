"""Representations for notebooks: figures as images, solutions as a short table with a figure."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from ...run.solution import Solution


class Picture(Figure):
    """A matplotlib figure that a notebook shows without `%matplotlib`."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png", dpi=110)
        return data.getvalue()


def facts_html(facts: Mapping[str, object], picture: Picture | None = None) -> str:
    """An HTML table of names and values, all escaped, with a picture below."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(str(k))}</th>"
        f"<td style='text-align:left'>{html.escape(str(v))}</td></tr>"
        for k, v in facts.items()
    )
    image = ""
    if picture is not None:
        code = base64.b64encode(picture._repr_png_()).decode()
        image = f"<img alt='' style='max-width:100%' src='data:image/png;base64,{code}'>"
    return f"<table>{rows}</table>{image}"


def solution_html(solution: Solution) -> str:
    """Method, length, status and largest errors, with the figure of `plot`."""
    facts: dict[str, object] = {
        "method": solution.method.name,
        "time": f"{solution.t[0]:g} .. {solution.final_t:g}",
        "steps": f"{solution.stats['steps']:,}, {len(solution.t):,} rows saved",
        "status": solution.status.name,
        f"largest {solution.energy_title}": f"{abs(solution.energy_error()).max():.3g}",
    }
    if not solution.system.keeps_energy and not solution.method.stochastic:
        facts["largest error of the energy balance"] = f"{abs(solution.energy_balance_error()).max():.3g}"
    if solution.system.has_constraints:
        facts["largest constraint error"] = f"{solution.constraint_error().max():.3g}"
    return facts_html(facts, solution.plot())
