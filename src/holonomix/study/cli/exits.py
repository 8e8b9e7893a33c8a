"""Exit codes, and how an exception becomes a message and one of them."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ClassVar, NoReturn

from holonomix.core.errors import HolonomixError, InconsistentStateError, SimulationError


class Exit(enum.IntEnum):
    """What a script can tell from the exit status."""

    OK = 0
    CONTRADICTED = 1  # certify: a declared property failed or a run stopped early; bench: a script failed
    USAGE = 2  # the command line, the run file, the model or the method
    SIMULATION = 3  # the run stopped before its end; what was computed is in the store
    STORE = 4  # the store exists, is damaged, busy or newer, or the disk is full
    INTERNAL = 5  # a mistake of ours
    INTERRUPTED = 130  # Ctrl-C; the store resumes
    TERMINATED = 143  # SIGTERM; the store resumes


class CommandError(HolonomixError):
    """Something on the command line or in a run file; the message names the key and what is allowed."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


class SignalHandler:
    """Ends a command by an exception. An exception inside a callback is lost, so `received` tells the next check.

    `holonomix.run.interrupts` looks for that attribute, between two stages of a run.
    """

    postponed: ClassVar[bool] = False  # whether signals wait for `check_signals`

    def __init__(self, error: type[KeyboardInterrupt]):
        self.error, self.received = error, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = True  # libraries on the way may turn the exception into a plain KeyboardInterrupt
        if not SignalHandler.postponed:
            raise self.error


_terminate, _interrupt = SignalHandler(Terminated), SignalHandler(KeyboardInterrupt)


def stop_on_terminate() -> None:
    """Let SIGTERM end a run the way Ctrl-C does: at a safe place, with the store closed."""
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _terminate)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores Ctrl-C
            signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _hide_interruptions


def _hide_interruptions(lost: Any) -> None:
    """Print exceptions that nobody can catch, except those of signals: the run ends at its next check."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def check_signals() -> None:
    """Act on a signal that was postponed, or whose exception was lost."""
    for handler in (_terminate, _interrupt):
        if handler.received:
            raise handler.error


@contextlib.contextmanager
def postponed_signals() -> Iterator[None]:
    """Signals wait for the end of this context."""
    SignalHandler.postponed = True
    try:
        yield
    finally:
        SignalHandler.postponed = False
    check_signals()


def was_terminated() -> bool:
    """Whether SIGTERM came."""
    return _terminate.received


@contextlib.contextmanager
def guarded(hint: Callable[[], str] = str) -> Iterator[None]:
    """Turn every exception into one message on standard error and an exit code. `HOLONOMIX_TRACEBACK=1` shows it all.

    `hint()` is added after an interruption: how to go on.
    """
    try:
        yield
    except KeyboardInterrupt:
        if was_terminated():
            _leave(Exit.TERMINATED, "terminated. " + hint())
        _leave(Exit.INTERRUPTED, "interrupted. " + hint())
    except InconsistentStateError as error:
        _leave(Exit.USAGE, f"{error}. On the command line: --set start.project=true")
    except HolonomixError as error:
        _leave(_code(error), str(error))
    except BrokenPipeError:
        # the reader of our output has gone; nothing is left to say, not even at the final flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(Exit.OK) from None
    except OSError as error:
        _leave(Exit.USAGE, f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except MemoryError:
        _leave(Exit.SIMULATION, "out of memory; save fewer rows (save_every) or write them to a store (--out)")
    except Exception as error:
        message = " ".join(str(error).split())[:300]
        _leave(Exit.INTERNAL, f"unexpected {type(error).__name__}: {message}. HOLONOMIX_TRACEBACK=1 shows where")


def _code(error: HolonomixError) -> Exit:
    from holonomix.run.io.errors import StoreError  # here, because the store needs NumPy and `--help` does not

    kinds = ((StoreError, Exit.STORE), (SimulationError, Exit.SIMULATION))
    return next((code for kind, code in kinds if isinstance(error, kind)), Exit.USAGE)


def _leave(code: Exit, message: str) -> NoReturn:
    if os.environ.get("HOLONOMIX_TRACEBACK", "0") not in ("", "0"):
        traceback.print_exc()
    from rich.console import Console
    from rich.text import Text

    label = "stopped" if code in (Exit.INTERRUPTED, Exit.TERMINATED) else "error"
    text = Text(f"{label}: ", style="bold red") + Text(message.strip(), style="not bold default")
    Console(stderr=True, highlight=False, soft_wrap=True).print(text)
    raise SystemExit(int(code))
