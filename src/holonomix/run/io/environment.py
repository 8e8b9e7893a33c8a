"""The environment of a run: the versions and the processor that the last bits of its rows depend on.

A store records it when a run begins. `Store.environment` is the recorded one, `current_environment()` that of this
process, and `environment_changes(then)` lists the differences for a message. Keys: `python`, `machine`, the names of
the packages with their versions, `cpu` (the processor as LLVM names it), `cpu_features` (its instruction sets, sorted,
with commas between; they decide whether products and sums are fused) and `xla_flags`.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from importlib import metadata

_PACKAGES = ("holonomix", "jax", "jaxlib", "equinox", "numpy", "llvmlite")


@functools.cache
def _processor() -> tuple[str, str]:
    import llvmlite.binding as llvm

    features = sorted(name for name, present in llvm.get_host_cpu_features().items() if present)
    return llvm.get_host_cpu_name(), ",".join(features)


@functools.cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def current_environment() -> dict[str, str]:
    """What the bits of a result computed by this process depend on."""
    cpu, features = _processor()
    return {**_versions(), "cpu": cpu, "cpu_features": features, "xla_flags": os.environ.get("XLA_FLAGS", "")}


def environment_changes(then: Mapping[str, object]) -> list[str]:
    """One short text per difference between a recorded environment and this process.

    Entries that were not recorded are left out. Of instruction sets, only those added or removed are named.
    """
    changes = []
    for name, value in current_environment().items():
        old = then.get(name)
        if not isinstance(old, str) or old == value:
            continue
        if name == "cpu_features":
            before, after = set(old.split(",")), set(value.split(","))
            signs = [f"+{f}" for f in sorted(after - before)] + [f"-{f}" for f in sorted(before - after)]
            changes.append(f"cpu features {' '.join(signs)}")
        else:
            changes.append(f"{name} {old or '(none)'} -> {value or '(none)'}")
    return changes
