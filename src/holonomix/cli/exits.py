"""Exit codes, and how an exception becomes a message and one of them."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from holonomix.errors import HolonomixError, InconsistentStateError, SimulationError


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


_received: list[int] = []  # signals that asked to end


def stop_on_terminate() -> None:
    """Let SIGTERM end a run the way Ctrl-C does: at a safe place, with the store closed."""

    def stop(signum: int, frame: Any) -> NoReturn:
        _received.append(signum)  # libraries on the way may turn the exception into a plain KeyboardInterrupt
        raise Terminated

    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, stop)


def was_terminated() -> bool:
    """Whether SIGTERM came."""
    return bool(_received)


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
    from holonomix.io.errors import StoreError  # here, because the store needs NumPy and `--help` does not

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
