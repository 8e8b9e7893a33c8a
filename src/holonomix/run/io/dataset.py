"""Columns of a store as an `xarray.Dataset` that reads what is asked for, and verifies what it reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from .chunks import ColumnReader, Places
from .directory import is_ensemble, is_store
from .ensemble import EnsembleStore
from .errors import StoreError, StoreNotFoundError


class LazyColumn(BackendArray):
    """A column as an array of xarray's: the leading axes are read in part, the others are cut in memory."""

    def __init__(self, reader: ColumnReader) -> None:
        self.reader, self.shape, self.dtype = reader, reader.shape, reader.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        lead = self.reader.lead
        try:
            values = self.reader.read(*(_places(n, k) for n, k in zip(lead, key)))
        except MemoryError as error:
            where = self.reader.folder
            raise StoreError(f"{where}, of shape {self.shape}, does not fit in memory: read a part of it") from error
        for axis in range(len(key) - 1, -1, -1):
            if axis >= len(lead):
                values = values[(slice(None),) * axis + (key[axis],)]
            elif isinstance(key[axis], int | np.integer):
                values = values[(slice(None),) * axis + (0,)]
        return np.asarray(values)


def _places(count: int, key: int | np.integer | slice | np.ndarray) -> Places:
    """The places along an axis that an index names; no array of the whole axis is made."""
    if isinstance(key, slice):
        return range(count)[key]
    found = np.atleast_1d(key)
    if np.any((found < -count) | (found >= count)):
        raise IndexError(f"an index is out of bounds for an axis of size {count}")
    return np.where(found < 0, found + count, found)


def lazy_dataset(
    readers: Iterable[ColumnReader], coordinates: Collection[str], attributes: Mapping[str, Any]
) -> xarray.Dataset:
    """The columns as variables that are read on demand; those named `coordinates` are read at once."""
    variables: dict[str, Any] = {}
    places: dict[str, Any] = {}
    for reader in readers:
        column = reader.column
        if column.name in coordinates:
            places[column.name] = (column.dims, reader.read())
        else:
            lazy = indexing.LazilyIndexedArray(LazyColumn(reader))
            variables[column.name] = xarray.Variable(column.dims, lazy)
    return xarray.Dataset(variables, places, dict(attributes))


def sweep_dataset(path: Path) -> xarray.Dataset:
    """See `open_sweep`."""
    if is_store(path):
        return EnsembleStore(path).to_xarray()
    stores = [EnsembleStore(part) for part in sorted(path.glob("*")) if is_ensemble(part)]
    if not stores:
        raise StoreNotFoundError(f"{path} is not a sweep: it is no store of an ensemble, and has none in it")
    parts = [store.to_xarray() for store in stores]
    shared = set.intersection(*({str(name) for name in part.variables} for part in parts))
    labelled = [
        part[sorted(shared)].assign_coords(method=("trajectory", [store.path.name] * store.trajectories))
        for part, store in zip(parts, stores, strict=True)
    ]
    return xarray.concat(labelled, "trajectory", join="override", combine_attrs="drop_conflicts")
