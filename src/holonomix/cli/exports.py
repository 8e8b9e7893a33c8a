"""`export`: the rows of a store in formats that other programs read."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import IO, Any

import numpy as np

from holonomix.io import Store, disk, export_xyz

from .exits import CommandError

__all__ = ["write"]


def write(directory: Path, target: Path, *, species: str, dimension: int | None, every: int) -> int:
    """Write FILE.xyz, FILE.npz or FILE.csv; returns the number of rows."""
    store = Store(directory, "read")
    kind = target.suffix.lower()
    if kind == ".xyz":
        names = species.split(",")
        return export_xyz(store, target, species=names if len(names) > 1 else species, dimension=dimension, every=every)
    writers = {".npz": _npz, ".csv": _csv}
    if kind not in writers:
        raise CommandError(f"{target}: the ending says the format, and {kind or 'none'!r} is not .xyz, .npz or .csv")
    data = store.dataset().isel(t=slice(None, None, every))
    with disk.replacing(target) as file:
        writers[kind](data, file)
    return int(data.sizes["t"])


def _npz(data: Any, file: IO[bytes]) -> None:
    np.savez(file, **{str(name): data[name].values for name in data.variables})


def _csv(data: Any, file: IO[bytes]) -> None:
    """One row a line; the entries of an array are numbered, as in q[0,1]."""
    columns = {str(name): data[name].values for name in data.variables}
    columns = {"t": columns.pop("t"), **columns}
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow([label for name, values in columns.items() for label in _labels(name, values.shape[1:])])
    flat = [values.reshape(len(values), math.prod(values.shape[1:])) for values in columns.values()]
    for row in zip(*flat):
        writer.writerow([repr(x.item()) for part in row for x in part])
    text.detach()


def _labels(name: str, shape: tuple[int, ...]) -> list[str]:
    return [f"{name}[{','.join(map(str, i))}]" for i in np.ndindex(shape)] if shape else [name]
