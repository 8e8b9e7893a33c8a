"""Exit codes, and the translation of exceptions into messages and exit codes."""

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
    """The exit codes of all commands."""

    OK = 0
    CONTRADICTED = 1  # certify: a declared property failed or a run stopped early; bench: a script failed
    USAGE = 2  # the command line, the run file, the model or the method
    SIMULATION = 3  # the run stopped before its end; what was computed is in the store
    STORE = 4  # the store exists, is damaged, busy or newer, or the disk is full
    INTERNAL = 5  # a bug in holonomix
    INTERRUPTED = 130  # Ctrl-C; the store can be resumed
    TERMINATED = 143  # SIGTERM; the store can be resumed


class CommandError(HolonomixError):
    """An error in the command line or in a run file; the message names the key and the allowed values."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


class SignalHandler:
    """A handler that ends a command by raising `error`.

    An exception inside a callback of JAX is lost. Therefore `received` records the signal, and
    `holonomix.run.interrupts` checks that attribute between the stages of a run.
    """

    postponed: ClassVar[bool] = False  # whether signals are held back until `check_signals`

    def __init__(self, error: type[KeyboardInterrupt]):
        self.error, self.received = error, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = True  # libraries may turn the exception into a plain KeyboardInterrupt
        if not SignalHandler.postponed:
            raise self.error


_terminate, _interrupt = SignalHandler(Terminated), SignalHandler(KeyboardInterrupt)


def stop_on_terminate() -> None:
    """Let SIGTERM end a run like Ctrl-C: at a safe point, with the store closed."""
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, _terminate)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores Ctrl-C
            signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _hide_interruptions


def _hide_interruptions(lost: Any) -> None:
    """Print unraisable exceptions, except those of signals, for which the run ends at its next check."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def check_signals() -> None:
    """Raise the exception of a signal that was postponed, or whose exception was lost."""
    for handler in (_terminate, _interrupt):
        if handler.received:
            raise handler.error


@contextlib.contextmanager
def postpone_signals() -> Iterator[None]:
    """Hold signals back until the end of this context."""
    SignalHandler.postponed = True
    try:
        yield
    finally:
        SignalHandler.postponed = False
    check_signals()


def was_terminated() -> bool:
    """Whether SIGTERM was received."""
    return _terminate.received


@contextlib.contextmanager
def exit_on_error(hint: Callable[[], str] = str) -> Iterator[None]:
    """Turn every exception into one message on standard error and an exit code.

    After an interruption, `hint()` is added to the message. `HOLONOMIX_TRACEBACK=1` shows the traceback.
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
        # the reader of standard output has closed it; also silence the final flush
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
    stores = sys.modules.get("holonomix.run.io.errors")  # not imported here: it would import JAX
    if stores is not None and isinstance(error, stores.StoreError):
        return Exit.STORE
    return Exit.SIMULATION if isinstance(error, SimulationError) else Exit.USAGE


def _leave(code: Exit, message: str) -> NoReturn:
    if os.environ.get("HOLONOMIX_TRACEBACK", "0") not in ("", "0"):
        traceback.print_exc()
    from rich.console import Console
    from rich.text import Text

    label = "stopped" if code in (Exit.INTERRUPTED, Exit.TERMINATED) else "error"
    text = Text(f"{label}: ", style="bold red") + Text(message.strip(), style="not bold default")
    Console(stderr=True, highlight=False, soft_wrap=True).print(text)
    raise SystemExit(int(code))
