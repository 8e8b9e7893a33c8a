"""How rows lie in Zarr version 3: one array per variable, cut along time only.

Rows are gathered into chunks of a bounded number of bytes, each followed by its CRC-32C, and many chunks into one file
(a shard): the chunks in their order, then an index of where each begins, with a CRC-32C of its own. Values are raw and
little-endian and the index follows from the number of chunks, so two stores with the same rows are the same bytes, and
the length of a file says how many chunks it holds. Nothing is compressed: reading a chunk takes no more memory than the
file takes disk.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import google_crc32c
import numpy as np

from ...core.columns import dims_of, name_of
from ...core.errors import shown
from .errors import StoreDamagedError, StoreError
from .text import seal

INTERNAL = "holonomix"  # the subgroup with the checkpoints and the run's own files
EMPTY_GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
CHUNK_BYTES, SHARD_BYTES = 1 << 18, 1 << 24
SMALLEST_CHUNK = 1 << 13  # of a run that announces few rows
MOST_CHUNKS = 512  # in a shard
MOST_ROWS = 1 << 53
_LARGEST_ROW, _LARGEST_CHUNK = 1 << 34, 1 << 28
DTYPES = {"bool", "float16", "float32", "float64", "complex64", "complex128"}
DTYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_FILES = {INTERNAL, "zarr.json", "run.toml", "run.json", "system.py", "view.html"}


def column_name(key: str) -> str:
    """The variable that a row key is stored as, as `columns.name_of` says; refuses what no directory can be called."""
    name = name_of(key)
    plain = name.isprintable() and "\\" not in name and name == name.strip() and len(name.encode()) <= 200
    if not name or not plain or name.startswith((".", "__")) or name in _FILES:
        raise StoreError(f"the name {shown(key)} cannot be stored; give the observable a plain name such as 'energy'")
    return name


def whole_number(value: object, least: int, most: int) -> int:
    """An integer within bounds from a file, or a `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{str(value)[:40]} is not a whole number from {least} to {most}")
    return value


def _summed(data: bytes) -> bytes:
    """Bytes followed by their CRC-32C."""
    return data + google_crc32c.value(data).to_bytes(4, "little")


def differences(want: Mapping[str, Any], have: Mapping[str, Any]) -> str:
    """What differs between two descriptions of columns by their keys; empty where nothing does."""
    differ = sorted(k for k in want.keys() | have.keys() if want.get(k) != have.get(k))
    return "; ".join(f"{k}: {have.get(k, 'missing')} instead of {want.get(k, 'nothing')}" for k in differ)


class AbstractColumn(abc.ABC):
    """What the columns of runs and of ensembles have in common: values of type `dtype` and shape `shape`."""

    dtype: str
    shape: tuple[int, ...]
    missing: ClassVar[int] = 0  # what whole numbers that are not there show

    @property
    def numpy_dtype(self) -> np.dtype:
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def row_bytes(self) -> int:
        return self.numpy_dtype.itemsize * math.prod(self.shape)

    @property
    def fill(self) -> Any:
        """What stands where nothing was written: NaN where the type has one."""
        kind = self.numpy_dtype.kind
        return {"c": complex(np.nan, np.nan), "f": np.nan, "i": self.missing}.get(kind, 0)

    def array_metadata(
        self, lead: list[int], file: list[int], chunk: list[int] | None, dims: Iterable[str]
    ) -> dict[str, Any]:
        """What Zarr needs to know: the leading sizes of the array, of a file, and of the chunks in it if it is cut."""
        kind = self.numpy_dtype.kind
        little: dict[str, Any] = {"name": "bytes"}
        if self.numpy_dtype.itemsize > 1:
            little["configuration"] = {"endian": "little"}
        across = [max(1, n) for n in self.shape]
        codecs: list[dict[str, Any]] = [little, {"name": "crc32c"}]
        if chunk is not None:
            index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
            inner = {"chunk_shape": [*chunk, *across], "codecs": codecs, "index_codecs": index}
            codecs = [{"name": "sharding_indexed", "configuration": {**inner, "index_location": "end"}}]
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [*lead, *self.shape],
            "data_type": self.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*file, *across]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": {"f": "NaN", "c": ["NaN", "NaN"], "b": False, "i": self.missing}.get(kind, 0),
            "codecs": codecs,
            "attributes": {},
            "dimension_names": list(dims),
        }

    def index_of(self, grid: tuple[int, ...], stored: tuple[int, ...], chunk_size: int) -> bytes:
        """What follows the chunks of a file: offset and length of each, or all ones where it is left out."""
        table = np.full((*grid, 2), np.iinfo(np.uint64).max, "<u8")
        here = tuple(slice(n) for n in stored)
        table[(*here, 0)] = np.arange(math.prod(stored), dtype=np.uint64).reshape(stored) * chunk_size
        table[(*here, 1)] = chunk_size
        return _summed(table.tobytes())


@dataclasses.dataclass(frozen=True)
class Column(AbstractColumn):
    """One variable: a row has shape `shape` and type `dtype`.

    `rows_per_chunk` rows make a chunk, and `chunks_per_file` chunks a file. `key` is what the writer calls the
    variable, `name` what readers see: `obs/energy` and `energy`.
    """

    key: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    rows_per_chunk: int
    chunks_per_file: int = 1

    @staticmethod
    def of(
        key: str,
        values: np.ndarray,
        dims: Iterable[str] | None = None,
        *,
        expected_rows: int = MOST_ROWS,
        chunk_bytes: int = CHUNK_BYTES,
        shard_bytes: int = SHARD_BYTES,
    ) -> Column:
        """The column that rows like these go to; chunks and files are sized in bytes."""
        name, dtype, shape = column_name(key), values.dtype, values.shape[1:]
        if dtype.name not in DTYPES:
            raise StoreError(f"the variable {name!r} has type {dtype}; numbers and booleans can be stored")
        dims = ("t", *(dims_of(key, shape) if dims is None else dims))
        if len(dims) != 1 + len(shape):
            raise StoreError(f"the variable {name!r} has rows of shape {shape}, which {dims[1:]} do not name")
        row = max(1, dtype.itemsize * math.prod(shape))
        per_chunk = max(1, min(chunk_bytes, max(SMALLEST_CHUNK, expected_rows * row)) // row)
        per_file = max(1, min(MOST_CHUNKS, shard_bytes // (per_chunk * row + 4)))
        return Column(key, name, dtype.name, tuple(int(n) for n in shape), dims, per_chunk, per_file)

    @property
    def chunk_size(self) -> int:
        """Bytes of a chunk with its checksum."""
        return self.rows_per_chunk * self.row_bytes + 4

    @property
    def rows_per_file(self) -> int:
        return self.rows_per_chunk * self.chunks_per_file

    def chunks(self, rows: int) -> int:
        """How many chunks hold so many rows."""
        return -(-rows // self.rows_per_chunk)

    def files(self, rows: int) -> int:
        """How many files hold so many rows; none where a row has no bytes."""
        return -(-rows // self.rows_per_file) if self.row_bytes else 0

    def file_name(self, index: int) -> str:
        return ".".join(["c", str(index), *("0" for _ in self.shape)])

    def file_of(self, name: str) -> int | None:
        """The number of the file that has this name, or None where it is none of this column's."""
        number = name.removeprefix("c.").partition(".")[0]
        return int(number) if number.isdecimal() and len(number) < 17 and self.file_name(int(number)) == name else None

    # ---- bytes

    def blank(self) -> np.ndarray:
        """An empty chunk."""
        return np.full((self.rows_per_chunk, *self.shape), self.fill, self.numpy_dtype)

    def encode(self, chunk: np.ndarray) -> bytes:
        """A whole chunk with its checksum."""
        return _summed(chunk.astype(self.numpy_dtype, copy=False).tobytes())

    def decode(self, data: bytes) -> np.ndarray:
        """The rows of a chunk, or a `ValueError` where they do not agree with their checksum."""
        body = memoryview(data)[:-4]
        if len(data) != self.chunk_size or google_crc32c.value(bytes(body)) != int.from_bytes(data[-4:], "little"):
            raise ValueError("it does not agree with its checksum")
        return np.frombuffer(body, self.numpy_dtype).reshape(self.rows_per_chunk, *self.shape)

    def index(self, chunks: int) -> bytes:
        """What follows the chunks in a file that holds so many of them."""
        if self.chunks_per_file == 1:
            return b""
        return self.index_of((self.chunks_per_file,), (chunks,), self.chunk_size)

    @property
    def index_size(self) -> int:
        return 0 if self.chunks_per_file == 1 else 16 * self.chunks_per_file + 4

    # ---- metadata

    def metadata(self, rows: int) -> dict[str, Any]:
        """What Zarr needs to know of the array."""
        chunk = [self.rows_per_chunk] if self.chunks_per_file > 1 else None
        return self.array_metadata([rows], [self.rows_per_file], chunk, self.dims)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(entry: Mapping[str, Any]) -> Column:
        """A column from a file, or a `ValueError` where it declares what no store of ours has."""
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"not a column: type {entry['dtype']!r:.40}")
        column = Column(
            str(entry["key"]),
            str(entry["name"]),
            str(entry["dtype"]),
            tuple(whole_number(n, 0, _LARGEST_ROW) for n in entry["shape"]),
            tuple(str(d) for d in entry["dims"]),
            whole_number(entry["rows_per_chunk"], 1, MOST_ROWS),
            whole_number(entry.get("chunks_per_file", 1), 1, 1 << 16),
        )
        large = column.row_bytes > _LARGEST_ROW or (
            column.rows_per_chunk > 1 and column.rows_per_chunk * column.row_bytes > _LARGEST_CHUNK
        )
        if large or len(column.dims) != 1 + len(column.shape) or len(column.dims) > 32:
            raise ValueError(f"not a column: rows of shape {str(column.shape)[:40]}")
        if column_name(column.key) != column.name:
            raise ValueError(f"not a column: {column.key!r:.60}")
        return column

    @staticmethod
    def from_metadata(name: str, node: Mapping[str, Any]) -> tuple[Column, int]:
        """A column of store format 1, and its rows, from the metadata of the array."""
        rows, *shape = node["shape"]
        per_chunk = node["chunk_grid"]["configuration"]["chunk_shape"][0]
        entry = {"key": name, "name": name, "dtype": node["data_type"], "shape": shape, "rows_per_chunk": per_chunk}
        return Column.from_dict({**entry, "dims": node["dimension_names"]}), whole_number(rows, 0, MOST_ROWS)


def columns_from(entries: object) -> tuple[Column, ...]:
    """The columns that a file lists."""
    if not isinstance(entries, list) or len(entries) > 4096:
        raise ValueError("it should list columns")
    columns = tuple(Column.from_dict(entry) for entry in entries)
    if len({column.name for column in columns}) != len(columns):
        raise StoreDamagedError("two columns have one name")
    return columns


def group_metadata(columns: Iterable[Column], rows: int, attributes: Mapping[str, Any]) -> bytes:
    """The root's `zarr.json` with the metadata of every array inside."""
    inside = {column.name: column.metadata(rows) for column in columns}
    consolidated = {"kind": "inline", "must_understand": False, "metadata": inside}
    return seal({**EMPTY_GROUP, "attributes": dict(attributes), "consolidated_metadata": consolidated})
