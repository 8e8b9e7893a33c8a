"""The records of a run: rows of one chunk, all rows (in memory or a store), and events."""

from __future__ import annotations

import dataclasses
import os
import warnings
from typing import Any

import numpy as np

from ..core import columns
from ..core.errors import InputError
from ..core.types import Sink
from ..mechanics import ResonanceWatch
from .arguments import StoreLike
from .events import Event, Found
from .loop import Loop
from .solution import map_rows, multipliers_of

__all__ = ["Passages", "Record", "Rows", "Table", "blank_rows", "check_memory", "scene_entry"]

Rows = dict[str, np.ndarray]
REFUSED, NEAR = 0.9, 0.5  # share of the free memory
PLACE = ("event", "t", "q", "p")  # columns of a passage
SMALL = 1 << 24  # bytes of rows below which memory is not checked

MAX_BONDS = 1000  # a larger scene is not recorded, because the description is written with every checkpoint


def scene_entry(loop: Loop) -> dict[str, Any]:
    """Metadata for pictures of a stored run: the scene, unless it is large, and whether the motion conserves energy."""
    scene, kept = loop.scene, loop.system.keeps_energy and not loop.method.stochastic
    entry = {} if kept else {"keeps_energy": False}
    if scene is None or len(scene.bonds) > MAX_BONDS or sum(len(g.indices) for g in scene.particles) > MAX_BONDS:
        return entry
    return {"scene": scene.as_dict(), **entry}


@dataclasses.dataclass(eq=False)
class Record:
    """The rows so far, (trajectory, row, ...)."""

    loop: Loop
    rows: int = 0
    parts: list[Rows] = dataclasses.field(default_factory=list)
    sink: Sink | None = None
    resonance: ResonanceWatch | None = None

    def open(self, store: StoreLike) -> Sink:
        """Send the rows to a directory or a `Sink`."""
        if isinstance(store, (str, os.PathLike)):
            from .io import Store

            store = Store(store)
        if not isinstance(store, Sink):
            raise InputError(f"store must be the name of a directory or a Sink, not {store!r}")
        self.sink = store
        return store

    def description(self) -> dict[str, Any]:
        """The description that a store receives at the start."""
        loop, shape = self.loop, list(self.loop.q0.shape[1:])
        return {"steps": loop.steps, "shape": shape, **scene_entry(loop)}

    def add(self, rows: Rows) -> None:
        """Add the next rows."""
        count = rows["t"].shape[1]
        if not count:
            return
        if self.resonance is not None:
            self.resonance.add(rows["t"][0], rows["q"][0], rows["p"][0])
        if self.sink is None:
            self.parts.append(rows)
        else:
            self.sink.append(self.as_stored(rows))
        self.rows += count

    def as_stored(self, rows: Rows) -> Rows:
        """Rows of one trajectory in the form that a sink takes."""
        out = {key: x[0] for key, x in columns.visible(rows).items()}
        if self.loop.constrained:
            out["multipliers"] = map_rows(multipliers_of, self.loop.system, out["q"], out["p"], out["t"])
        return out

    def taken(self) -> list[Rows]:
        """Return the rows since the last call, and drop them."""
        parts, self.parts = self.parts, []
        return parts

    def collect(self) -> Rows:
        """All rows, (trajectory, row, ...)."""
        if self.sink is not None:
            return {key: x[None] for key, x in self.sink.load().items()}
        parts = self.parts
        if len(parts) == 1:
            return parts[0]
        return {key: np.concatenate([part[key] for part in parts], axis=1) for key in parts[0]}


@dataclasses.dataclass(eq=False)
class Passages:
    """The events of all trajectories of a run, and those that ended one."""

    events: tuple[Event, ...]
    found: list[tuple[int, Found]] = dataclasses.field(default_factory=list)  # (trajectory, passage)
    ends: dict[int, Found] = dataclasses.field(default_factory=dict)

    def note(self, lane: int, found: Found) -> bool:
        """Record a passage; return whether it ends the trajectory."""
        self.found.append((lane, found))
        if self.events[found.event].terminal:
            self.ends[lane] = found
        return lane in self.ends

    def to_arrays(self) -> Rows:
        """One entry per passage, trajectory by trajectory; the order does not depend on the ends of chunks."""
        if not self.found:
            return {}
        found = sorted(self.found, key=lambda entry: entry[0])
        values = {name: np.stack([np.asarray(getattr(f, name)) for _, f in found]) for name in PLACE}
        return values | {"trajectory": np.array([lane for lane, _ in found])}

    def restore(self, arrays: Rows) -> None:
        """Restore passages from the result of `to_arrays`."""
        if arrays:
            for lane, k, t, q, p in zip(*(arrays[name] for name in ("trajectory", *PLACE)), strict=True):
                self.note(int(lane), Found(int(k), float(t), q, p))


@dataclasses.dataclass(eq=False)
class Table:
    """The rows of one chunk of all trajectories; rows of trajectories that wait for an event are filled in later.

    `first` is the number of rows before them.
    """

    first: int
    rows: int
    every: int
    values: Rows = dataclasses.field(default_factory=dict)
    valid: np.ndarray | None = None

    def place(self, out: Rows, before: np.ndarray) -> None:
        """Add the rows of one call that are at a multiple of `every` and new; a halted run repeats its last row."""
        n = out["n"]
        earlier = np.concatenate([before[:, None], n[:, :-1]], axis=1)
        good = (n > earlier) & (n % self.every == 0)
        if self.valid is None and n.shape[1] == self.rows:
            self.values, self.valid = out, good
            return
        if not self.rows or not good.any():
            return
        if self.valid is None:
            self.valid = np.zeros((len(n), self.rows), bool)
            self.values = {key: np.zeros((len(n), self.rows, *x.shape[2:]), x.dtype) for key, x in out.items()}
        lane, row = np.nonzero(good)
        slot = n[lane, row] // self.every - self.first - 1
        for key, x in out.items():
            if not self.values[key].flags.writeable:
                self.values[key] = self.values[key].copy()
            self.values[key][lane, slot] = x[lane, row]
        self.valid[lane, slot] = True


def blank_rows(x: np.ndarray, where: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Rows with NaN where a trajectory has none; integers are those of its `last` state."""
    empty = np.nan if x.dtype.kind == "f" else last[:, None]
    return np.where(where.reshape(where.shape + (1,) * (x.ndim - 2)), empty, x)


def free_memory() -> int | None:
    """Bytes of memory that this process can still allocate; None if unknown."""
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
    """Before a run, raise if its rows do not fit into memory, and warn if they nearly fill it."""
    need, free = rows * row_bytes, free_memory()
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
