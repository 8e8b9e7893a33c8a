"""Checkpoints of a run: records with named arrays in an `.npz` without pickle.

A checkpoint also carries the rows of the unfinished chunk, so that nothing it needs is ever rewritten. The last two are
kept, and a thinning series behind them down to the first, so that damage anywhere in the rows leaves a place before it
to continue from.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ...core.columns import select
from .arrays import packed, unpacked
from .disk import Folder
from .errors import StoreError
from .layout import INTERNAL, MAX_ROWS, Column, columns_from, whole_number
from .records import Records

MAX_ARRAY_BYTES = 1 << 36
STATE, TAIL = "state/", "tail/"
_OURS = re.compile(r"\d{8}\.(json|npz)|\.\d{8}\.(json|npz)\.tmp")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The complete state after `rows` rows. `tail` holds the rows after the last whole chunk of each column."""

    number: int
    rows: int
    columns: tuple[Column, ...]
    arrays: dict[str, np.ndarray]
    tail: dict[str, np.ndarray]
    meta: dict[str, Any]
    begin: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of the run in `root`."""

    root: Folder

    @property
    def folder(self) -> Folder:
        return self.root / INTERNAL / "checkpoints"

    @property
    def _records(self) -> Records:
        return Records(self.folder, "npz", "arrays_sha256", MAX_ARRAY_BYTES)

    def numbers(self) -> list[int]:
        """The numbers of the checkpoints, newest first; nothing is read."""
        return self._records.numbers()

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; it counts from the moment its JSON is renamed into place."""
        state = {f"{STATE}{name}": x for name, x in checkpoint.arrays.items()}
        data = packed(state | {f"{TAIL}{name}": x for name, x in checkpoint.tail.items()})
        body = {
            "number": checkpoint.number,
            "rows": checkpoint.rows,
            "columns": [column.as_dict() for column in checkpoint.columns],
            "arrays_sha256": "",  # filled in when the record is saved
            "meta": checkpoint.meta,
            "begin": checkpoint.begin,
        }
        self._records.save(checkpoint.number, body, data)

    def load(self, number: int) -> Checkpoint | None:
        """The checkpoint with this number, or None where any byte of it is missing or altered."""
        try:
            body = self._records.body(number)
            data = self._records.data(number, body)
            if data is None or body["number"] != number:
                return None
            arrays, columns = unpacked(data), columns_from(body["columns"])
            state, tail = select(arrays, STATE), select(arrays, TAIL)
            if tail.keys() != {column.name for column in columns} or not isinstance(body["begin"], dict):
                return None
            rows = whole_number(body["rows"], 0, MAX_ROWS)
            return Checkpoint(number, rows, columns, state, tail, dict(body["meta"]), body["begin"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StoreError):
            return None

    def intact(self) -> Iterator[Checkpoint]:
        """The intact checkpoints, newest first."""
        return (found for number in self.numbers() if (found := self.load(number)) is not None)

    def damaged(self) -> set[int]:
        """The numbers of the checkpoints that are there and not intact."""
        return {number for number in self.numbers() if self.load(number) is None}

    def all_forged(self) -> bool:
        """Whether there are checkpoints, and the sizes of their files show that none is intact."""
        numbers = self.numbers()
        return bool(numbers) and all(self._records.is_forged(number) for number in numbers)

    def prune(self, newest: int | None, damaged: Collection[int] = ()) -> None:
        """Remove all but those that `kept` names, and damaged or unfinished ones; all if `newest` is None."""
        keep = set() if newest is None else {f"{number:08d}" for number in kept(newest).difference(damaged)}
        # the JSON goes first: a checkpoint without it does not exist
        for name in sorted(self.folder.names(), key=lambda n: not n.endswith(".json")):
            if _OURS.fullmatch(name) and (name.startswith(".") or name[:8] not in keep):
                self.folder.remove(name)


def kept(newest: int) -> set[int]:
    """The newest two, and behind them the latest multiple of each power of eight: a handful, down to number 0."""
    keep, power = {newest, newest - 1, 0}, 8
    while power <= newest:
        keep.add(newest - newest % power)
        power *= 8
    return {number for number in keep if number >= 0}
