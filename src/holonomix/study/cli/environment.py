"""JAX's settings for the command line: where it keeps compiled programs, and what it prints."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

from holonomix.core.private import cache_root, private_directory, trim

from .exits import postponed_signals

MOST_BYTES, MOST_SECONDS = 1 << 30, 90 * 86400.0


def cache_directory() -> Path | None:
    """Where JAX keeps compiled programs between calls of the command line, apart for each kind of processor.

    None if they are not kept, or if the directory is not this user's alone: JAX runs what it finds there.
    """
    root = cache_root()
    if root is None:
        return None
    path = root / f"jax-{_processor()}"
    try:
        with private_directory(path) as directory:
            trim(directory, most_bytes=MOST_BYTES, most_seconds=MOST_SECONDS)
    except OSError:
        return None
    return path


def _processor() -> str:
    """A short name of this processor's instruction set: machine code of another one must not be loaded."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        text = "".join(
            sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
        )
    except OSError:
        text = f"{platform.processor()} {platform.node()}"
    return f"{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def set_up_jax() -> None:
    """Import JAX such that it keeps compiled programs on disk and its own log lines off the screen."""
    if "jax" in sys.modules:
        return
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and (folder := cache_directory()) is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    # XLA reports its own tuning flags as unsupported whenever it loads a cached program. A "1" is what JAX sets on
    # import and passes on to every program that is started from there: nobody's choice.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with postponed_signals():  # an exception while its extension modules load would abort the process
        import jax  # noqa: F401
