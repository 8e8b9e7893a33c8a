"""Progress without a terminal: a line of text from time to time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rich.console import Console

from holonomix.run.io import Store


class TextProgress:
    """A store that prints its progress from time to time; `total` is the number of steps, None if unknown."""

    def __init__(self, store: Store, console: Console, total: int | None, seconds: float = 10.0) -> None:
        self.store, self.console, self.total, self.seconds = store, console, total, seconds
        self.began = self.spoken = time.monotonic()
        self.first: int | None = None
        self.counted: tuple[int, float] | None = None  # the end of the first chunk: steps, time
        self.energy0: float | None = None
        self.latest: dict[str, float] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment that the bits of the rows depend on."""
        return self.store.environment

    def restart(self) -> Any:
        found = self.store.restart()
        if found is not None:
            self.first = int(found[1].get("n", 0))
        return found

    def begin(self, meta: dict[str, Any]) -> None:
        self.store.begin(meta)

    def append(self, rows: dict[str, np.ndarray]) -> None:
        self.store.append(rows)
        for name in ("t", "energy", "constraint_error"):
            column = rows.get(name, rows.get(f"obs/{name}"))
            if column is not None and len(column):
                self.latest[name] = float(column[-1])
                if name == "energy" and self.energy0 is None:
                    self.energy0 = float(column[0])

    def checkpoint(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        self.store.checkpoint(arrays, meta)
        now, n = time.monotonic(), int(meta.get("n", 0))
        if self.counted is None and n > (self.first or 0):
            self.counted = (n, now)  # the first chunk includes the compilation
        elif now - self.spoken >= self.seconds:
            self.spoken = now
            self._say(n, now)

    def close(self, meta: dict[str, Any]) -> None:
        self.store.close(meta)

    def load(self) -> dict[str, np.ndarray]:
        return self.store.load()

    def _say(self, n: int, now: float) -> None:
        done, since = self.counted or (self.first or 0, self.began)
        rate = (n - done) / max(now - since, 1e-9)
        parts = [f"{n:,} steps"]
        if self.total:
            parts[0] += f" of {self.total:,} ({n / self.total:.1%})"
        parts.append(f"{rate:,.0f} steps/s")
        if self.total and rate > 0:
            parts.append(f"{(self.total - n) / rate:,.0f} s left")
        if self.energy0 is not None:
            parts.append(f"energy {self.latest['energy'] - self.energy0:+.1e}")
        if "constraint_error" in self.latest:
            parts.append(f"constraint {self.latest['constraint_error']:.1e}")
        self.console.print(", ".join(parts), highlight=False)
