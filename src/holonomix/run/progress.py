"""A progress bar for long runs."""

from __future__ import annotations

import time

from ..core.errors import InputError

WIDE = 112  # columns from which there is room for the label


class Progress:
    """Shows steps, rate, time left, energy and constraint error. `total=None` counts time up to `span` instead.

    `first` is the step that a resumed run begins with.
    """

    def __init__(self, shown: object, total: int | None, span: float, label: str, first: int = 0):
        self.began = time.perf_counter()
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
        self.bar = rich_progress.Progress(*columns, console=console, transient=False)
        self.bar.start()
        self.by_time = total is None
        self.first = first
        done = 0 if self.by_time else first
        self.task = self.bar.add_task(
            label, total=span if total is None else total, completed=done, rate="compiling", errors=""
        )

    def _rate(self, n: int) -> str:
        """Steps per second since the first chunk ended: that chunk includes the compilation."""
        now = time.perf_counter()
        if self.counted is None:
            self.counted = (n, now)
            return f"compiled in {now - self.began:.1f} s"
        return f"{(n - self.counted[0]) / max(now - self.counted[1], 1e-9):,.0f} steps/s"

    def update(self, n: int, elapsed: float, energy: float | None, constraint: float) -> None:
        errors = f"solver residual {constraint:.1e}"
        if energy is not None:
            errors = f"energy {energy:+.1e}  constraint {constraint:.1e}"
        self.bar.update(self.task, completed=elapsed if self.by_time else n, rate=self._rate(n), errors=errors)

    def update_many(self, n: int, finished: int, failed: int, left: int) -> None:
        """For an ensemble: how many trajectories have ended, how many of them by failing, and how many go on."""
        counts = f"{left} running, {finished} ended, {failed} failed"
        self.bar.update(self.task, completed=n, rate=self._rate(n), errors=counts)

    def close(self) -> None:
        self.bar.stop()
