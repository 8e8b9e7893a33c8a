"""Ctrl-C and SIGTERM during a run: noted when they come, acted on between two chunks.

A KeyboardInterrupt that is raised inside of a callback of JAX (its garbage collection hook, for instance) is printed
and forgotten, and one raised inside of compiled code may come out as another exception. Between chunks neither happens,
and the store is at a row boundary there.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context in which signals wait for `check`; a second signal acts at once, as it would have without us."""

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}
        self._pending: int | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):  # the default action of SIGTERM ends the process without Python: leave it
                    self._previous[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()
        if kind is None:
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._pending is not None:
            self._restore()
            self._act(number)
        self._pending = number

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _act(self, number: int) -> None:
        self._previous[number](number, None)

    def check(self) -> None:
        """Hand a signal that came since to its handler, which raises; call it where the run may end."""
        if self._pending is not None:
            number, self._pending = self._pending, None
            self._act(number)
