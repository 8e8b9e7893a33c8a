"""Rows of a store as an `xarray.Dataset` that reads what is asked for, and verifies what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from .columns import ColumnReader

__all__ = ["RowReader", "lazy_dataset", "lazy_variable"]


@runtime_checkable
class RowReader(Protocol):
    """Something with a leading axis that can be read in part."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def read(self, rows: slice | np.ndarray) -> np.ndarray: ...


class LazyRows(BackendArray):
    """A reader as an array of xarray's; the leading axis is read in part, the others are cut in memory."""

    def __init__(self, reader: RowReader) -> None:
        self.reader = reader
        self.shape = reader.shape
        self.dtype = reader.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        first, *rest = key
        one = isinstance(first, int | np.integer)
        values = self.reader.read(np.array([first]) if one else first)
        for axis, part in reversed(list(enumerate(rest, 1))):
            values = values[(slice(None),) * axis + (part,)]
        return np.asarray(values[0]) if one else values


def lazy_variable(dims: Iterable[str], reader: RowReader) -> xarray.Variable:
    """A variable that is read when its values are asked for."""
    return xarray.Variable(tuple(dims), indexing.LazilyIndexedArray(LazyRows(reader)))


def lazy_dataset(readers: Iterable[ColumnReader], attributes: Mapping[str, Any]) -> xarray.Dataset:
    """The rows of a run; the coordinate t is read at once."""
    variables = {r.column.name: lazy_variable(r.column.dims, r) for r in readers}
    coordinates = {"t": variables.pop("t")} if "t" in variables else {}
    return xarray.Dataset(variables, coordinates, dict(attributes))
