"""Extended XYZ, the text format that ASE and OVITO read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.types import ArrayLike
from . import disk
from .errors import StoreError

_BATCH = 1024


def export_xyz(
    source: Any,
    target: str | os.PathLike[str],
    *,
    species: str | Sequence[str] = "X",
    dimension: int | None = None,
    every: int = 1,
    cell: ArrayLike | None = None,
) -> int:
    """Write the frames of a store, a dataset or a solution as extended XYZ; returns how many.

    Positions of shape `(particles, 3)` are written as they are, planar ones with z = 0. A flat `q` is split
    into particles of `dimension` coordinates. Each frame has momenta, the time and scalar observables. `cell`, three
    lengths or a 3 x 3 matrix with one vector per row, is written as a periodic cell. Units are the run's own.
    """
    target = Path(target)
    data = _dataset(source)
    shape = tuple(data["q"].shape[1:])
    particles, dim = _geometry(shape, dimension)
    names = [species] * particles if isinstance(species, str) else list(species)
    if len(names) != particles:
        raise StoreError(f"{len(names)} species for {particles} particles; give one, or one for each")
    if every < 1:
        raise StoreError(f"every={every}: write every 1st, 2nd, .. frame")
    box = _cell(cell)
    scalars = [str(k) for k, v in data.data_vars.items() if v.ndim == 1 and v.dtype.kind in "biuf"]
    properties = "species:S:1:pos:R:3" + (":momenta:R:3" if "p" in data else "")
    frames = range(0, data.sizes["t"], every)
    with disk.replacing(target) as file:
        for start in range(0, len(frames), _BATCH):
            some = frames[start : start + _BATCH]
            block = data.isel(t=slice(some.start, some.stop, some.step)).load()
            columns = [_spatial(block["q"].values, particles, dim)]
            if "p" in data:
                columns.append(_spatial(block["p"].values, particles, dim))
            table = np.concatenate(columns, axis=-1)
            for i in range(len(some)):
                pairs = [f"Time={float(block['t'].values[i])!r}"]
                pairs += [f"{_key(name)}={float(block[name].values[i])!r}" for name in scalars]
                lines = [str(particles), f"Properties={properties} {' '.join(pairs)} {box}"]
                lines += [f"{name} {' '.join(repr(float(x)) for x in row)}" for name, row in zip(names, table[i])]
                file.write("".join(f"{line}\n" for line in lines).encode())
    return len(frames)


def _cell(cell: ArrayLike | None) -> str:
    """The periodic cell, for the comment line."""
    if cell is None:
        return 'pbc="F F F"'
    vectors = np.asarray(cell, float)
    vectors = np.diag(vectors) if vectors.shape == (3,) else vectors
    if vectors.shape != (3, 3) or not np.isfinite(vectors).all():
        raise StoreError(f"cell must be three lengths or a 3 x 3 matrix, not of shape {np.shape(cell)}")
    return f'Lattice="{" ".join(repr(float(x)) for x in vectors.ravel())}" pbc="T T T"'


def _key(name: str) -> str:
    """The key of a value in the comment line: one with blanks or other signs is quoted."""
    if re.fullmatch(r"[A-Za-z0-9_]+", name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def _dataset(source: Any) -> Any:
    if hasattr(source, "to_xarray"):
        return source.to_xarray()
    if hasattr(source, "data_vars"):
        return source
    from .store import Store

    return (source if isinstance(source, Store) else Store(source, "read")).dataset()


def _geometry(shape: tuple[int, ...], dimension: int | None) -> tuple[int, int]:
    if dimension is None and len(shape) == 2 and shape[1] in (1, 2, 3):
        return shape
    size = int(np.prod(shape))
    if dimension is None and len(shape) == 1:
        dimension = 3 if size % 3 == 0 else 2 if size % 2 == 0 else None
    if dimension not in (1, 2, 3) or size % dimension:
        raise StoreError(f"rows of shape {shape} are not particles in space; name their dimension: 1, 2 or 3")
    return size // dimension, dimension


def _spatial(values: np.ndarray, particles: int, dim: int) -> np.ndarray:
    values = values.reshape(len(values), particles, dim)
    return np.concatenate([values, np.zeros((*values.shape[:2], 3 - dim))], axis=-1)
