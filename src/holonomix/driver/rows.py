"""What a solution and an ensemble have in common: named rows."""

from __future__ import annotations

import abc
import functools
import os
import warnings
from collections.abc import Callable

import numpy as np

from .. import columns
from ..errors import InputError

__all__ = ["AbstractRows", "check_memory"]

REFUSED, NEAR = 0.9, 0.5  # of the memory that is free


class AbstractRows(abc.ABC):
    """Results whose arrays are in `rows`, by the keys of `holonomix.columns`; those in a store are loaded when used."""

    _load: Callable[[], dict[str, np.ndarray]]

    @functools.cached_property
    def rows(self) -> dict[str, np.ndarray]:
        return self._load()

    @property
    def t(self) -> np.ndarray:
        return self.rows["t"]

    @property
    def q(self) -> np.ndarray:
        return self.rows["q"]

    @property
    def p(self) -> np.ndarray:
        return self.rows["p"]

    @property
    def observables(self) -> dict[str, np.ndarray]:
        """The user's observables by name."""
        return columns.select(self.rows, columns.OBSERVABLE)

    @property
    def step_multipliers(self) -> dict[str, np.ndarray]:
        """The multipliers that each step solved for, by name; the start has none and shows zeros."""
        return columns.select(self.rows, columns.STEP)


def free_memory() -> int | None:
    """Bytes that this process can still have, where the system says so."""
    found = []
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit:
            with open("/sys/fs/cgroup/memory.current", encoding="ascii") as used:
                found.append(int(limit.read()) - int(used.read()))
    except (OSError, ValueError):
        pass
    if not found and hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)


def check_memory(rows: int, row_bytes: int, *, save_every: int | None) -> None:
    """Refuse a run whose rows cannot be held in memory, before it begins; warn where they nearly fill it."""
    free, need = free_memory(), rows * row_bytes
    if free is None or need <= NEAR * free:
        return
    sparser = (save_every or 1) * -(-need // max(1, int(NEAR * free)))
    message = (
        f"{rows:,} rows of {row_bytes:,} bytes need {need / 2**30:,.3g} GiB of memory, and {free / 2**30:.3g} GiB are "
        f"free; save fewer rows, for instance save_every={sparser}, or write them to disk with store="
    )
    if need > REFUSED * free:
        raise InputError(message)
    warnings.warn(message, ResourceWarning, stacklevel=5)
