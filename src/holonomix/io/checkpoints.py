"""Checkpoints: named arrays in an `.npz` without pickle, and a JSON file that vouches for it.

The JSON is renamed into place last and holds the SHA-256 of the arrays and of itself: a checkpoint either is complete
or does not exist. It also carries the rows of the unfinished chunk, so that nothing it needs is ever rewritten.

Kept are the last two and a thinning series behind them down to the first, so that damage anywhere in the rows leaves
a place before it to go on from.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from . import disk
from .errors import StoreError
from .layout import Column, as_json

__all__ = ["Checkpoint", "kept", "load", "numbers", "prune", "save"]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """The complete state after `rows` rows. `tail` holds the rows after the last whole chunk."""

    number: int
    rows: int
    columns: tuple[Column, ...]
    arrays: dict[str, np.ndarray]
    tail: dict[str, np.ndarray]
    meta: dict[str, Any]
    begin: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; it counts from the moment its JSON is renamed into place."""
    packed = _pack(checkpoint)
    body = {
        "number": checkpoint.number,
        "rows": checkpoint.rows,
        "columns": [column.as_dict() for column in checkpoint.columns],
        "arrays_sha256": hashlib.sha256(packed).hexdigest(),
        "meta": checkpoint.meta,
        "begin": checkpoint.begin,
    }
    disk.write_atomic(_arrays_path(folder, checkpoint.number), packed)
    disk.write_atomic(_json_path(folder, checkpoint.number), as_json({"sha256": _digest(as_json(body)), **body}))
    disk.sync(folder)


def load(folder: Path, number: int) -> Checkpoint | None:
    """The checkpoint with this number, or None where any byte of it is missing or altered."""
    try:
        body = json.loads(_json_path(folder, number).read_bytes())
        claimed = body.pop("sha256")
        packed = _arrays_path(folder, number).read_bytes()
        if claimed != _digest(as_json(body)) or hashlib.sha256(packed).hexdigest() != body["arrays_sha256"]:
            return None
        arrays = _unpack(packed)
        columns = tuple(Column.from_dict(entry) for entry in body["columns"])
        named = {k.removeprefix("state/"): v for k, v in arrays.items() if k.startswith("state/")}
        tail = {k.removeprefix("tail/"): v for k, v in arrays.items() if k.startswith("tail/")}
        return Checkpoint(int(body["number"]), int(body["rows"]), columns, named, tail, body["meta"], body["begin"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, EOFError, StoreError):
        return None


def numbers(folder: Path) -> list[int]:
    """The numbers of the checkpoints whose JSON exists, newest first; nothing is read."""
    if not folder.is_dir():
        return []
    return sorted((int(p.stem) for p in folder.glob("[0-9]*.json") if p.stem.isdecimal()), reverse=True)


def kept(newest: int) -> set[int]:
    """The newest two, and behind them the latest multiple of each power of eight: a handful, down to number 0."""
    keep, power = {newest, newest - 1, 0}, 8
    while power <= newest:
        keep.add(newest - newest % power)
        power *= 8
    return {number for number in keep if number >= 0}


def prune(folder: Path, newest: int | None) -> None:
    """Remove what `kept` does not name, and everything newer or unfinished; all of them where `newest` is None."""
    keep = set() if newest is None else {f"{number:08d}" for number in kept(newest)}
    # the JSON goes first: a checkpoint without it does not exist
    for path in sorted(folder.iterdir(), key=lambda p: p.suffix != ".json"):
        if path.stem not in keep or path.suffix not in {".json", ".npz"}:
            disk.remove(path)


def _json_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.json"


def _arrays_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.npz"


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _pack(checkpoint: Checkpoint) -> bytes:
    arrays = {f"state/{k}": v for k, v in checkpoint.arrays.items()}
    arrays |= {f"tail/{k}": v for k, v in checkpoint.tail.items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in arrays.items():
            value = np.asarray(value)
            if value.dtype.kind not in "biufcSU":
                raise StoreError(f"the checkpoint array {name!r} has type {value.dtype}, which cannot be stored")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)
    return buffer.getvalue()


def _unpack(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
