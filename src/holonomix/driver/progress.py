"""A progress bar for long runs; silent unless asked for."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["Progress"]


class Progress:
    """Shows steps, rate, time left, energy and constraint error. `total=None` counts time up to `span` instead."""

    def __init__(self, shown: bool | Any, total: int | None, span: float, label: str):
        self.bar: Any = None
        self.began = time.perf_counter()
        if not shown:
            return
        from rich import progress as rich_progress

        columns = (
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(bar_width=28),
            rich_progress.TaskProgressColumn(),
            rich_progress.TextColumn("{task.fields[rate]}"),
            rich_progress.TimeRemainingColumn(),
            rich_progress.TextColumn("{task.fields[errors]}"),
        )
        console = None if shown is True else shown
        self.bar = rich_progress.Progress(*columns, console=console, transient=False)
        self.bar.start()
        self.by_time = total is None
        self.task = self.bar.add_task(label, total=span if total is None else total, rate="", errors="")

    @property
    def shown(self) -> bool:
        return self.bar is not None

    def update(self, n: int, elapsed: float, energy: float | None, constraint: float) -> None:
        if self.bar is None:
            return
        rate = n / max(time.perf_counter() - self.began, 1e-9)
        errors = f"solver residual {constraint:.1e}"
        if energy is not None:
            errors = f"energy {energy:+.1e}  constraint {constraint:.1e}"
        self.bar.update(self.task, completed=elapsed if self.by_time else n, rate=f"{rate:,.0f} steps/s", errors=errors)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
