"""Checkpoints: named arrays in an `.npz` without pickle, and a JSON file that vouches for it.

The JSON is renamed into place last and holds the SHA-256 of the arrays and of itself: a checkpoint either is complete
or does not exist. It also carries the rows of the unfinished chunk, so that nothing it needs is ever rewritten.

Kept are the last two and a thinning series behind them down to the first, so that damage anywhere in the rows leaves
a place before it to go on from.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection
from typing import Any

import numpy as np

from .arrays import packed, unpacked
from .disk import Folder
from .errors import StoreError
from .layout import MOST_ROWS, Column, columns_from, whole_number
from .text import MOST_JSON, signed, unsigned

MOST_ARRAYS = 1 << 36  # bytes in the arrays of a checkpoint
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


def save(folder: Folder, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; it counts from the moment its JSON is renamed into place."""
    data = _pack(checkpoint)
    body = {
        "number": checkpoint.number,
        "rows": checkpoint.rows,
        "columns": [column.as_dict() for column in checkpoint.columns],
        "arrays_sha256": hashlib.sha256(data).hexdigest(),
        "meta": checkpoint.meta,
        "begin": checkpoint.begin,
    }
    folder.write(f"{checkpoint.number:08d}.npz", data)
    folder.write(f"{checkpoint.number:08d}.json", signed(body))
    folder.sync()


def load(folder: Folder, number: int) -> Checkpoint | None:
    """The checkpoint with this number, or None where any byte of it is missing or altered."""
    try:
        body = unsigned(folder.read(f"{number:08d}.json", MOST_JSON))
        data = folder.read(f"{number:08d}.npz", MOST_ARRAYS)
        if hashlib.sha256(data).hexdigest() != body["arrays_sha256"] or body["number"] != number:
            return None
        arrays, columns = unpacked(data), columns_from(body["columns"])
        named = {k.removeprefix("state/"): v for k, v in arrays.items() if k.startswith("state/")}
        tail = {k.removeprefix("tail/"): v for k, v in arrays.items() if k.startswith("tail/")}
        if tail.keys() != {column.name for column in columns} or not isinstance(body["begin"], dict):
            return None
        rows = whole_number(body["rows"], 0, MOST_ROWS)
        return Checkpoint(number, rows, columns, named, tail, dict(body["meta"]), body["begin"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StoreError):
        return None


def is_forged(folder: Folder, number: int) -> bool:
    """Whether a file of a checkpoint is hollow, too long, or no regular file; contents are not read."""
    for name, most in ((f"{number:08d}.json", MOST_JSON), (f"{number:08d}.npz", MOST_ARRAYS)):
        try:
            with folder.file(name) as (_, size):
                if size > most:
                    return True
        except StoreError:
            return True
        except OSError:
            continue  # missing: `load` finds out
    return False


def numbers(folder: Folder) -> list[int]:
    """The numbers of the checkpoints whose JSON exists, newest first; nothing is read."""
    return sorted((int(n[:8]) for n in folder.names() if n.endswith(".json") and _OURS.fullmatch(n)), reverse=True)


def kept(newest: int) -> set[int]:
    """The newest two, and behind them the latest multiple of each power of eight: a handful, down to number 0."""
    keep, power = {newest, newest - 1, 0}, 8
    while power <= newest:
        keep.add(newest - newest % power)
        power *= 8
    return {number for number in keep if number >= 0}


def prune(folder: Folder, newest: int | None, damaged: Collection[int] = ()) -> None:
    """Remove checkpoints that `kept` does not name, and newer, damaged or unfinished ones; all if `newest` is None."""
    keep = set() if newest is None else {f"{number:08d}" for number in kept(newest).difference(damaged)}
    # the JSON goes first: a checkpoint without it does not exist
    for name in sorted(folder.names(), key=lambda n: not n.endswith(".json")):
        if _OURS.fullmatch(name) and (name.startswith(".") or name[:8] not in keep):
            folder.remove(name)


def _pack(checkpoint: Checkpoint) -> bytes:
    state = {f"state/{name}": x for name, x in checkpoint.arrays.items()}
    return packed(state | {f"tail/{name}": x for name, x in checkpoint.tail.items()})
