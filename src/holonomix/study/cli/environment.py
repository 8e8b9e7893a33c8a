"""Settings of JAX for the command line: its cache of compiled programs and its log level."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

from holonomix.core.private import cache_root, private_directory, trim

from .exits import postpone_signals

MAX_BYTES, MAX_SECONDS = 1 << 30, 90 * 86400.0


def cache_directory() -> Path | None:
    """The directory in which JAX caches compiled programs, one per kind of processor.

    None if caching is off, or if others can write to the directory: JAX executes the programs that it finds there.
    """
    root = cache_root()
    if root is None:
        return None
    path = root / f"jax-{_processor()}"
    try:
        with private_directory(path) as directory:
            trim(directory, most_bytes=MAX_BYTES, most_seconds=MAX_SECONDS)
    except OSError:
        return None
    return path


def _processor() -> str:
    """A short name of this processor's instruction set, so that machine code of another one is never loaded."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        text = "".join(
            sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
        )
    except OSError:
        text = f"{platform.processor()} {platform.node()}"
    return f"{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def set_up_jax() -> None:
    """Import JAX with its cache on disk and its log messages off; commands call it before importing `holonomix.run`."""
    if "jax" in sys.modules:
        return
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and (folder := cache_directory()) is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    # XLA logs its own tuning flags as unsupported whenever it loads a cached program. A "1" is not the user's choice:
    # JAX sets it on import, and subprocesses inherit it.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with postpone_signals():  # an exception while its extension modules load would abort the process
        import jax  # noqa: F401
