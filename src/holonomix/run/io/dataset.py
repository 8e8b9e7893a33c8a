"""Rows of a store as an `xarray.Dataset` that reads what is asked for, and verifies what it reads."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from .blocks import BlockColumn
from .columns import ColumnReader
from .directory import is_ensemble, is_store
from .ensemble import EnsembleStore
from .errors import StoreError, StoreNotFoundError
from .text import scalar_attributes


class AbstractLazy(BackendArray):
    """Something on disk as an array of xarray's, read when and as far as its values are asked for."""

    shape: tuple[int, ...]

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    @abc.abstractmethod
    def _read(self, key: tuple[Any, ...]) -> np.ndarray: ...

    def variable(self, dims: Iterable[str]) -> xarray.Variable:
        return xarray.Variable(tuple(dims), indexing.LazilyIndexedArray(self))


class LazyRows(AbstractLazy):
    """A reader; the leading axis is read in part, the others are cut in memory."""

    def __init__(self, reader: ColumnReader) -> None:
        self.reader, self.shape, self.dtype = reader, reader.shape, reader.dtype

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        first, *rest = key
        one = isinstance(first, int | np.integer)
        values = self.reader.read(np.array([first]) if one else first)
        for axis, part in reversed(list(enumerate(rest, 1))):
            values = values[(slice(None),) * axis + (part,)]
        return np.asarray(values[0]) if one else values


def lazy_dataset(readers: Iterable[ColumnReader], attributes: Mapping[str, Any]) -> xarray.Dataset:
    """The rows of a run; the coordinate t is read at once."""
    variables = {r.column.name: LazyRows(r).variable(r.column.dims) for r in readers}
    coordinates = {"t": variables.pop("t")} if "t" in variables else {}
    return xarray.Dataset(variables, coordinates, dict(attributes))


class LazyBlocks(AbstractLazy):
    """A variable of an ensemble; trajectories and rows are read in part."""

    def __init__(self, store: EnsembleStore, column: BlockColumn, finished: set[int]) -> None:
        self.store, self.column, self.finished = store, column, finished
        time = () if column.rows is None else (column.rows,)
        self.lead = (column.trajectories, *time)
        self.shape = (*self.lead, *column.shape)
        self.dtype = column.numpy_dtype.newbyteorder("=")

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        try:
            lead = [_numbers(n, k) for n, k in zip(self.lead, key)]
            rows = lead[1] if len(lead) > 1 else np.zeros(1, int)
            values = self.store.read(self.column, lead[0], rows, self.finished)
        except MemoryError as error:
            where = f"{self.column.name} of {self.store.path}"
            raise StoreError(f"{where}, of shape {self.shape}, does not fit in memory: read a part of it") from error
        values = values if len(lead) > 1 else values[:, 0]
        for axis in range(len(key) - 1, -1, -1):
            if axis >= len(lead):
                values = values[(slice(None),) * axis + (key[axis],)]
            elif isinstance(key[axis], int | np.integer):
                values = values[(slice(None),) * axis + (0,)]
        return np.asarray(values)


def _numbers(count: int, key: Any) -> np.ndarray:
    """The places along an axis that an index names; no array of the whole axis is made."""
    if isinstance(key, slice):
        some = range(count)[key]
        return np.arange(some.start, some.stop, some.step)
    found = np.atleast_1d(key)
    if np.any((found < -count) | (found >= count)):
        raise IndexError(f"an index is out of bounds for an axis of size {count}")
    return np.where(found < 0, found + count, found)


def ensemble_dataset(store: EnsembleStore) -> xarray.Dataset:
    """The trajectories of an ensemble as they are now; t and the coordinates are read at once."""
    done = store.finished_blocks()
    variables: dict[str, Any] = {}
    for column in store.columns:
        dims = ("trajectory", *(() if column.rows is None else ("t",)), *column.dims)
        variables[column.name] = LazyBlocks(store, column, done).variable(dims)
    finished = np.zeros(store.trajectories, bool)
    for block in done:
        finished[slice(*store.bounds(block))] = True
    coordinates: dict[str, Any] = {}
    for column in store.fixed:
        lead = "t" if column.name == "t" else "trajectory"
        coordinates[column.name] = ((lead, *column.dims[1:]), store.coordinate(column.name))
    variables["finished"] = (("trajectory",), finished)
    return xarray.Dataset(variables, coordinates, scalar_attributes(store.meta))


def sweep_dataset(path: Path) -> xarray.Dataset:
    """See `open_sweep`."""
    if is_store(path):
        return ensemble_dataset(EnsembleStore(path))
    stores = [EnsembleStore(part) for part in sorted(path.glob("*")) if is_ensemble(part)]
    if not stores:
        raise StoreNotFoundError(f"{path} is not a sweep: it is no store of an ensemble, and has none in it")
    parts = [ensemble_dataset(store) for store in stores]
    shared = set.intersection(*({str(name) for name in part.variables} for part in parts))
    labelled = [
        part[sorted(shared)].assign_coords(method=("trajectory", [store.path.name] * store.trajectories))
        for part, store in zip(parts, stores, strict=True)
    ]
    return xarray.concat(labelled, "trajectory", join="override", combine_attrs="drop_conflicts")
