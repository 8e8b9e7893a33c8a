"""The rows of a run in formats that other programs read."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ...core.checks import whole_number
from ...core.columns import entry_name
from ...core.errors import InputError
from ...core.types import ArrayLike
from . import disk
from .arrays import packed
from .xyz import export_xyz

if TYPE_CHECKING:
    import xarray


def save_rows(
    data: xarray.Dataset,
    path: str | os.PathLike[str],
    *,
    every: int = 1,
    species: str | Sequence[str] = "X",
    dimension: int | None = None,
    cell: ArrayLike | None = None,
) -> Path:
    """Write an `xarray.Dataset` with rows over t as `.npz`, `.csv`, `.xyz` or `.extxyz`; the ending says which.

    The last two are extended XYZ; `species` (one element, or one per particle, in a list or with commas between),
    `dimension` (coordinates per particle of a flat q) and `cell` are for them.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in FORMATS:
        raise InputError(
            f"{target}: the ending says the format, and {kind or 'none'!r} is not .xyz, .extxyz, .npz or .csv"
        )
    data = data.isel(t=slice(None, None, whole_number("every", every)))
    if kind in XYZ:
        names = [name.strip() for name in species.split(",")] if isinstance(species, str) else species
        export_xyz(data, target, species=names[0] if len(names) == 1 else names, dimension=dimension, cell=cell)
        return target
    with disk.replacing(target) as file:
        _WRITERS[kind](data, file)
    return target


def _npz(data: xarray.Dataset, file: IO[bytes]) -> None:
    file.write(packed({str(name): data[name].values for name in data.variables}))


def _csv(data: xarray.Dataset, file: IO[bytes]) -> None:
    """One row per line; the entries of an array are numbered, as in q[0,1].

    The trajectories of an ensemble follow each other, with their number and coordinates first.
    """
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    every = range(data.sizes["trajectory"]) if "trajectory" in data.dims else (None,)
    for k in every:
        one = data if k is None else data.isel(trajectory=k)
        fixed = {} if k is None else {"trajectory": k} | {str(c): one[c].values.item() for c in _own(data)}
        columns = {str(name): one[name].values for name in one.variables if "t" in one[name].dims}
        columns = {"t": columns.pop("t"), **columns} if "t" in columns else columns
        if k in (None, 0):
            names = [str(x) for x in data["q_0"].values] if "q_0" in data.coords else []
            labels = [label for name, values in columns.items() for label in _labels(name, values.shape[1:], names)]
            writer.writerow([_as_text(label) for label in (*fixed, *labels)])
        flat = [values.reshape(len(values), math.prod(values.shape[1:])) for values in columns.values()]
        for row in zip(*flat, strict=True):
            writer.writerow([*map(repr, fixed.values()), *(repr(x.item()) for part in row for x in part)])
    text.detach()


def _as_text(label: str) -> str:
    """A column's name, quoted where a spreadsheet would read it as a formula."""
    return f"'{label}" if label.startswith(("=", "+", "-", "@", "\t", "\r")) else label


def _own(data: xarray.Dataset) -> list[Any]:
    """The coordinates of the trajectories, such as the parameters of a sweep."""
    return [name for name, x in data.coords.items() if x.dims == ("trajectory",) and name != "trajectory"]


def _labels(name: str, shape: tuple[int, ...], coordinates: Sequence[str]) -> list[str]:
    if name in ("q", "p") and coordinates:
        return [entry_name(name, k, coordinates) for k in range(len(coordinates))]
    return [f"{name}[{','.join(map(str, i))}]" for i in np.ndindex(shape)] if shape else [name]


_WRITERS: dict[str, Callable[[Any, IO[bytes]], None]] = {".npz": _npz, ".csv": _csv}
XYZ = (".xyz", ".extxyz")
FORMATS = (*XYZ, *_WRITERS)
