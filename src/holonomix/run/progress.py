"""A progress bar for long runs."""

from __future__ import annotations

import importlib.util
import time

from ..core.errors import InputError
from .arguments import ProgressLike

WIDE = 112  # minimum width for the label
LINE_SECONDS = 10.0  # seconds between lines if the console is not a terminal


class Progress:
    """Shows steps, rate, time left, energy and constraint error. `total=None` counts time up to `span` instead.

    `first` is the first step of a resumed run. If the console is not a terminal, a plain line is printed now and then
    instead of a moving bar.
    """

    def __init__(self, shown: ProgressLike, total: int | None, span: float, label: str, first: int = 0):
        self.began = self.printed = time.perf_counter()
        self.counted: tuple[int, float] | None = None  # the end of the first chunk: steps, time
        import rich
        import rich.console
        from rich import progress as rich_progress

        console = rich.get_console() if shown is True else shown
        if not isinstance(console, rich.console.Console):
            raise InputError(f"progress must be True, False or a rich Console, not {shown!r}")
        wide = console.width >= WIDE
        columns = (
            *((rich_progress.TextColumn("{task.description}"),) if wide else ()),
            rich_progress.BarColumn(bar_width=28 if wide else 10),
            rich_progress.TaskProgressColumn(),
            rich_progress.TextColumn("{task.fields[rate]}"),
            rich_progress.TimeRemainingColumn(),
            rich_progress.TextColumn("{task.fields[errors]}"),
        )
        widgets = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
        self.console, self.moving = console, console.is_terminal or widgets
        self.bar = rich_progress.Progress(*columns, console=console, transient=False)
        if self.moving:
            self.bar.start()
        self.by_time = total is None
        self.first = first
        done = 0 if self.by_time else first
        self.task = self.bar.add_task(
            label, total=span if total is None else total, completed=done, rate="compiling", errors=""
        )

    def _rate(self, n: int) -> str:
        """Steps per second since the end of the first chunk, which includes the compilation."""
        now = time.perf_counter()
        if self.counted is None:
            self.counted = (n, now)
            return f"compiled in {now - self.began:.1f} s"
        return f"{(n - self.counted[0]) / max(now - self.counted[1], 1e-9):,.0f} steps/s"

    def update(self, n: int, elapsed: float, energy: float | None, constraint: float) -> None:
        errors = f"solver residual {constraint:.1e}"
        if energy is not None:
            errors = f"energy {energy:+.1e}  constraint {constraint:.1e}"
        self._show(n, elapsed if self.by_time else n, errors)

    def update_many(self, n: int, finished: int, failed: int, left: int) -> None:
        """For an ensemble: the numbers of finished, failed and remaining trajectories."""
        self._show(n, n, f"{left} running, {finished} ended, {failed} failed")

    def _show(self, n: int, completed: float | int, errors: str) -> None:
        rate, now = self._rate(n), time.perf_counter()
        self.bar.update(self.task, completed=completed, rate=rate, errors=errors)
        if not self.moving and now - self.printed >= LINE_SECONDS:
            self.printed = now
            self.console.print(f"{n:,} steps ({self.bar.tasks[0].percentage:.1f} %), {rate}, {errors}", highlight=False)

    def close(self) -> None:
        if self.moving:
            self.bar.stop()
