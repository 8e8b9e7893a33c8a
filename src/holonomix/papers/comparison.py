"""Tables that put a measured number beside the one on the formula sheet or in a paper."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import holonomix as hx

__all__ = ["Comparison", "cost", "panels", "rigid_reference", "save", "timed"]


class Comparison:
    """Rows of (what, measured, expected); `show` prints them with a mark where they agree."""

    def __init__(self, title: str, *columns: str):
        self.title = title
        self.columns = columns or ("quantity", "measured", "formula sheet")
        self.rows: list[tuple[str, ...]] = []

    def add(self, name: str, *values: Any) -> None:
        self.rows.append((name, *(_text(v) for v in values)))

    def show(self, console: Any) -> None:
        from rich.table import Table

        table = Table(title=self.title, title_justify="left")
        for k, name in enumerate(self.columns):
            table.add_column(name, justify="left" if k == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return f"{float(value):.3g}"


def panels(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """`plt.subplots` that needs no screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, **options)


def rigid_reference(problem: Any, spacing: float, t1: float) -> Any:
    """The rigid motion by RATTLE raised to order eight, a row each `spacing`."""
    return hx.simulate(problem.system, hx.Composition(hx.RATTLE(), order=8), problem.q0, problem.p0, dt=spacing, t1=t1)


def save(figure: Any, path: Path, console: Any) -> None:
    """Write a figure and say where."""
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)
    console.print(f"wrote {path}", highlight=False)


def cost(system: Any, method: Any, problem: Any, h: float, steps: int = 20_000) -> float:
    """Microseconds a step of the compiled run: many steps, nothing saved between, the best of three."""
    run = lambda: hx.simulate(system, method, problem.q0, problem.p0, dt=h, steps=steps, save_every=steps, throw=False)
    sol, seconds = timed(run)
    return 1e6 * seconds / max(sol.stats["steps"], 1)


def timed(run: Callable[[], Any], repeats: int = 3) -> tuple[Any, float]:
    """The result, and the best time in seconds of the run itself: the first call compiles and is not counted."""
    result = run()
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        result = run()
        elapsed = result.stats["wall_time"] if isinstance(result, hx.Solution) else time.perf_counter() - began
        best = min(best, elapsed)
    return result, float(best)
