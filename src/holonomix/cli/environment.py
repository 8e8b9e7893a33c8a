"""What a run depends on beside its description: versions, and JAX's settings for the command line."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

__all__ = ["cache_directory", "differences", "set_up_jax", "versions"]

_PACKAGES = ("holonomix", "jax", "jaxlib", "equinox", "numpy", "llvmlite")


def versions() -> dict[str, str]:
    """The versions that the bits of a result depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def differences(then: dict[str, str]) -> list[str]:
    """What has changed since a run was started, for a warning."""
    now = versions()
    return [f"{name} {then[name]} -> {now[name]}" for name in now if name in then and then[name] != now[name]]


def cache_directory() -> Path:
    """Where compiled programs are kept between calls of the command line; apart for each kind of processor."""
    base = os.environ.get("HOLONOMIX_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "holonomix" / f"jax-{_processor()}"


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
    """Before JAX is imported: keep compiled programs on disk, and keep its own log lines off the screen."""
    if "jax" in sys.modules:
        return
    if os.environ.get("HOLONOMIX_CACHE") != "off":
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_directory()))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    # XLA reports its own tuning flags as unsupported whenever it loads a cached program. A "1" is what JAX sets on
    # import and passes on to every program that is started from there: nobody's choice.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
