"""Ctrl-C and SIGTERM during a run: they are recorded, and handled between two chunks or two stages of compilation.

A KeyboardInterrupt that is raised inside of a callback of JAX (its garbage collection hook, for instance) is printed
and forgotten, and one raised inside of compiled code may come out as another exception. Between chunks neither happens,
and the store is at a row boundary there. A handler from outside that has an attribute `received` remembers a signal
whose exception was lost before the run began (those of the command line do); the next check acts on it.
"""

from __future__ import annotations

import dataclasses
import functools
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, ClassVar, ParamSpec, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)
P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass(eq=False)
class Interrupts:
    """A context in which signals wait for `check`; a second signal acts at once, as it does outside of the context.

    A nested context in the same thread is the outer one.
    """

    _outermost: ClassVar[Interrupts | None] = None
    _previous: dict[int, Any] = dataclasses.field(default_factory=dict)
    _pending: int | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            if Interrupts._outermost is not None:
                return Interrupts._outermost
            handlers: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
            for number, handler in handlers.items():
                if getattr(handler, "received", False):
                    handler(number, None)
            Interrupts._outermost = self
            for number, handler in handlers.items():
                if callable(handler):  # the default action of SIGTERM ends the process without Python: leave it
                    self._previous[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if Interrupts._outermost is self:
            Interrupts._outermost = None
            self._restore()
        if kind is None:
            self.check()

    @staticmethod
    def poll() -> None:
        """`check` of the context that is active in this thread, if there is one."""
        if Interrupts._outermost is not None and threading.current_thread() is threading.main_thread():
            Interrupts._outermost.check()

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
        """Pass a recorded signal to its handler, which raises; called where a run may end."""
        if self._pending is not None:
            number, self._pending = self._pending, None
            self._act(number)
        for number, handler in self._previous.items():
            if getattr(handler, "received", False):
                handler(number, None)


def interruptible(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn` inside of an `Interrupts`, from the first check of its arguments to the last row."""

    @functools.wraps(fn)
    def call(*args: P.args, **options: P.kwargs) -> R:
        with Interrupts():
            return fn(*args, **options)

    return call
