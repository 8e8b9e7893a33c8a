"""The layout of a column on disk: an array of Zarr version 3, cut into files and chunks.

The array of a run has the axis t and those of its values; it grows. An array of an ensemble has the axis trajectory
first, then t unless it holds one value per trajectory, and its size is fixed. A run is laid out as one block of one
trajectory, and its array leaves that axis out.

A file (a shard) holds one block of trajectories over a stretch of rows: chunks of a bounded number of bytes, each
followed by its CRC-32C, then an index of where each chunk begins, with a CRC-32C of its own. Values are raw and
little-endian. Everything about a file except its values follows from its place and its number of chunks, so two stores
with the same rows are the same bytes. Nothing is compressed: reading a chunk takes no more memory than it takes disk.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import google_crc32c
import numpy as np

from ...core.checks import short_repr
from ...core.columns import TIME, TRAJECTORY, dims_of, name_of
from .errors import StoreDamagedError, StoreError
from .text import seal

INTERNAL = "holonomix"  # the subgroup with the checkpoints and the run's own files
EMPTY_GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
CHUNK_BYTES, SHARD_BYTES = 1 << 18, 1 << 24  # of a run, by default
MIN_CHUNK_BYTES = 1 << 13
MAX_CHUNKS = 512  # in a file of a run
MAX_BLOCK_CHUNK_BYTES, MAX_BLOCK_FILE_BYTES, MAX_BLOCK_CHUNKS = 1 << 18, 1 << 26, 8192
MAX_ROWS = 1 << 53
MAX_COLUMNS = 4096
DTYPES = {"bool", "float16", "float32", "float64", "complex64", "complex128"}
DTYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_RESERVED_FILES = {INTERNAL, "zarr.json", "run.toml", "run.json", "system.py", "view.html"}
# what a file may declare; larger sizes are forged
_MAX_ROW_BYTES, _MAX_DECLARED_CHUNK_BYTES, _MAX_DECLARED_CHUNKS = 1 << 34, 1 << 28, 1 << 16
_MAX_DECLARED_FILE_BYTES, _MAX_CUT_FILE_BYTES, _MAX_DECLARED_TRAJECTORIES = 1 << 36, 1 << 30, 1 << 40
_MAX_DIMENSIONS = 32


def column_name(key: str) -> str:
    """The name of a column in the store; raises if a directory cannot have that name."""
    name = name_of(key)
    plain = name.isprintable() and "\\" not in name and name == name.strip() and len(name.encode()) <= 200
    if not name or not plain or name.startswith((".", "__")) or name in _RESERVED_FILES:
        raise StoreError(
            f"the name {short_repr(key)} cannot be stored; give the observable a plain name such as 'energy'"
        )
    return name


def whole_number(value: object, least: int, most: int) -> int:
    """An integer within bounds from a file, or a `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{str(value)[:40]} is not a whole number from {least} to {most}")
    return value


def differences(want: Mapping[str, object], have: Mapping[str, object]) -> str:
    """The differences between two descriptions of columns by their keys; empty if there are none."""
    differ = sorted(k for k in want.keys() | have.keys() if want.get(k) != have.get(k))
    return "; ".join(f"{k}: {have.get(k, 'missing')} instead of {want.get(k, 'nothing')}" for k in differ)


@dataclasses.dataclass(frozen=True)
class Column:
    """One variable: values of shape `shape` and type `dtype`, with the axes `dims`.

    `key` is the writer's name of the variable and `name` that of readers: `obs/energy` and `energy`. Chunks hold
    `chunk` trajectories and `rows_per_chunk` rows, files `block` trajectories and `rows_per_file` rows. `trajectories`
    is None in a run, whose rows grow. In an ensemble, `rows` is None for one value per trajectory.
    """

    key: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    rows_per_chunk: int
    rows_per_file: int
    trajectories: int | None = None
    rows: int | None = None
    block: int = 1
    chunk: int = 1

    @staticmethod
    def for_run(
        key: str,
        values: np.ndarray,
        dims: Iterable[str] | None = None,
        *,
        expected_rows: int = MAX_ROWS,
        chunk_bytes: int = CHUNK_BYTES,
        shard_bytes: int = SHARD_BYTES,
    ) -> Column:
        """The column of a run whose rows have the type and shape of `values[0]`; byte limits size chunks and files."""
        shape = values.shape[1:]
        dims = (TIME, *(dims_of(key, shape) if dims is None else dims))
        if len(dims) != 1 + len(shape):
            raise StoreError(f"the variable {name_of(key)!r} has rows of shape {shape}, which {dims[1:]} do not name")
        name, dtype = column_name(key), _type_name(key, values.dtype)
        row = max(1, values.dtype.itemsize * math.prod(shape))
        per_chunk = max(1, min(chunk_bytes, max(MIN_CHUNK_BYTES, expected_rows * row)) // row)
        per_file = max(1, min(MAX_CHUNKS, shard_bytes // (per_chunk * row + 4)))
        return Column(key, name, dtype, shape, dims, per_chunk, per_chunk * per_file)

    @staticmethod
    def for_ensemble(
        key: str, dtype: np.dtype, shape: tuple[int, ...], trajectories: int, rows: int | None, block: int
    ) -> Column:
        """The column for values of this shape; `rows` is None for one value per trajectory."""
        row, count = max(1, dtype.itemsize * math.prod(shape)), 1 if rows is None else max(1, rows)
        per_chunk = max(1, min(count, MAX_BLOCK_CHUNK_BYTES // row, MAX_BLOCK_FILE_BYTES // (block * row)))
        parts = -(-count // per_chunk)
        parts = max(1, min(parts, MAX_BLOCK_FILE_BYTES // (block * per_chunk * row), MAX_BLOCK_CHUNKS))
        if rows is None:
            chunk = block
        else:
            enough = max(-(-MIN_CHUNK_BYTES // (per_chunk * row)), -(-block * parts // MAX_BLOCK_CHUNKS))
            chunk = next(k for k in range(1, block + 1) if block % k == 0 and (k >= enough or k == block))
        dims = _ensemble_dims(rows, dims_of(key, shape))
        return Column(
            key, column_name(key), _type_name(key, dtype), tuple(int(n) for n in shape), dims, per_chunk,
            per_chunk * parts, trajectories, rows, block, chunk,
        )  # fmt: skip

    def along(self, axis: str) -> Column:
        """The same column with another name of its leading axis."""
        return dataclasses.replace(self, dims=(axis, *self.dims[1:]))

    # ---- sizes

    @property
    def numpy_dtype(self) -> np.dtype:
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def row_bytes(self) -> int:
        return self.numpy_dtype.itemsize * math.prod(self.shape)

    @property
    def chunk_size(self) -> int:
        """Bytes of a chunk with its checksum."""
        return self.chunk * self.rows_per_chunk * self.row_bytes + 4

    @property
    def grid(self) -> tuple[int, int]:
        """Chunks in a full file, over trajectories and over rows."""
        return self.block // self.chunk, self.rows_per_file // self.rows_per_chunk

    @property
    def index_size(self) -> int:
        return 0 if self.grid == (1, 1) else 16 * math.prod(self.grid) + 4

    @property
    def fill(self) -> complex | float | int:
        """The value of unwritten entries: NaN if the type has one, and -1 for integers of an ensemble."""
        missing = 0 if self.trajectories is None else -1
        return {"c": complex(np.nan, np.nan), "f": np.nan, "i": missing}.get(self.numpy_dtype.kind, 0)

    def chunks(self, rows: int) -> int:
        """The number of chunks for this many rows."""
        return -(-rows // self.rows_per_chunk)

    def files(self, rows: int) -> int:
        """The number of files of a block for this many rows; zero if a row has no bytes."""
        return -(-rows // self.rows_per_file) if self.row_bytes else 0

    def block_count(self, block: int) -> int:
        """The number of trajectories in a block."""
        return 1 if self.trajectories is None else min(self.block, self.trajectories - block * self.block)

    # ---- files

    def file_name(self, block: int, file: int) -> str:
        """The name of a file of a block, counted along the rows."""
        across = () if self.trajectories is None else (block,)
        along = () if self.trajectories is not None and self.rows is None else (file,)
        return ".".join(["c", *map(str, (*across, *along)), *("0" for _ in self.shape)])

    def place_of(self, name: str) -> tuple[int, int] | None:
        """The block and number of the file with this name, or None if it is not a file of this column."""
        parts = name.split(".")[1:3]
        if not parts or not all(part.isdecimal() and len(part) < 17 for part in parts):
            return None
        first, second = int(parts[0]), int(parts[-1])
        block, file = (0, first) if self.trajectories is None else (first, 0 if self.rows is None else second)
        return (block, file) if self.file_name(block, file) == name else None

    def encode(self, values: np.ndarray) -> bytes:
        """The bytes of a file with these values, of shape (trajectories, rows, ...)."""
        n, m = -(-values.shape[0] // self.chunk), self.chunks(values.shape[1])
        full = (n * self.chunk, m * self.rows_per_chunk)
        if values.shape[:2] != full:
            part, values = values, np.full((*full, *self.shape), self.fill, self.numpy_dtype)
            values[: part.shape[0], : part.shape[1]] = part
        cut = values.reshape(n, self.chunk, m, self.rows_per_chunk, *self.shape)
        shape = (self.chunk, self.rows_per_chunk, *self.shape)
        out = np.empty(n * m, [("values", self.numpy_dtype, shape), ("sum", "<u4")])
        out["values"].reshape(n, m, *shape)[...] = np.moveaxis(cut, 2, 1)
        chunks = out.view(np.uint8).reshape(n * m, self.chunk_size)
        out["sum"] = [google_crc32c.value(chunk[:-4].tobytes()) for chunk in chunks]
        return out.tobytes() + self.index(n, m)

    def decode(self, data: bytes) -> np.ndarray:
        """The values of a chunk; raises `ValueError` if they do not agree with their checksum."""
        body = memoryview(data)[:-4]
        if len(data) != self.chunk_size or google_crc32c.value(bytes(body)) != int.from_bytes(data[-4:], "little"):
            raise ValueError("it does not agree with its checksum")
        return np.frombuffer(body, self.numpy_dtype).reshape(self.chunk, self.rows_per_chunk, *self.shape)

    def index(self, across: int, along: int) -> bytes:
        """The index after the chunks of a file: offset and length of each chunk, or all ones if it is missing."""
        if self.grid == (1, 1):
            return b""
        table = np.full((*self.grid, 2), np.iinfo(np.uint64).max, "<u8")
        places = np.arange(across * along, dtype=np.uint64).reshape(across, along)
        table[:across, :along, 0], table[:across, :along, 1] = places * self.chunk_size, self.chunk_size
        data = table.tobytes()
        return data + google_crc32c.value(data).to_bytes(4, "little")

    # ---- metadata

    def metadata(self, rows: int) -> dict[str, Any]:
        """The Zarr metadata of the array, which has `rows` rows in a run."""
        kind, fill = self.numpy_dtype.kind, self.fill
        little: dict[str, Any] = {"name": "bytes"}
        if self.numpy_dtype.itemsize > 1:
            little["configuration"] = {"endian": "little"}
        values = [max(1, n) for n in self.shape]
        codecs: list[dict[str, Any]] = [little, {"name": "crc32c"}]
        if self.grid != (1, 1):
            index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
            chunk_shape = [*self.lead_sizes(self.chunk, self.rows_per_chunk), *values]
            inner = {"chunk_shape": chunk_shape, "codecs": codecs, "index_codecs": index}
            codecs = [{"name": "sharding_indexed", "configuration": {**inner, "index_location": "end"}}]
        file_shape = [*self.lead_sizes(self.block, self.rows_per_file), *values]
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [*self.lead_sizes(self.trajectories or 1, rows), *self.shape],
            "data_type": self.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": file_shape}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": {"f": "NaN", "c": ["NaN", "NaN"], "b": False}.get(kind, fill),
            "codecs": codecs,
            "attributes": {},
            "dimension_names": list(self.dims),
        }

    def lead_sizes(self, across: int, along: int) -> list[int]:
        """Sizes along the leading axes that the array has."""
        if self.trajectories is None:
            return [along]
        return [across] if self.rows is None else [across, along]

    def as_dict(self) -> dict[str, Any]:
        """The description of the column for JSON."""
        entry = {"key": self.key, "name": self.name, "dtype": self.dtype, "shape": self.shape}
        if self.trajectories is None:
            sizes = {"rows_per_chunk": self.rows_per_chunk, "chunks_per_file": self.grid[1]}
            return {**entry, "dims": (TIME, *self.dims[1:]), **sizes}
        sizes = {name: getattr(self, name) for name in ("trajectories", "rows", *_BLOCK_SIZES[1:])}
        return {**entry, "dims": self.dims[len(self.dims) - len(self.shape) :], **sizes}

    @staticmethod
    def from_dict(entry: Mapping[str, Any], ensemble: bool = False) -> Column:
        """A column from its description; raises `ValueError` for a description that no store of ours has."""
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"not a column: type {entry['dtype']!r:.40}")
        shape = tuple(whole_number(n, 0, _MAX_ROW_BYTES) for n in entry["shape"])
        dims = tuple(str(d) for d in entry["dims"])
        if ensemble:
            rows = None if entry["rows"] is None else whole_number(entry["rows"], 0, MAX_ROWS)
            sizes = {name: whole_number(entry[name], 1, MAX_ROWS) for name in _BLOCK_SIZES}
            sizes, dims = {**sizes, "rows": rows}, _ensemble_dims(rows, dims)
        else:
            per_chunk = whole_number(entry["rows_per_chunk"], 1, MAX_ROWS)
            per_file = per_chunk * whole_number(entry.get("chunks_per_file", 1), 1, _MAX_DECLARED_CHUNKS)
            sizes = {"rows_per_chunk": per_chunk, "rows_per_file": per_file}
        column = Column(str(entry["key"]), str(entry["name"]), str(entry["dtype"]), shape, dims, **sizes)
        if column_name(column.key) != column.name:
            raise ValueError(f"not a column: {column.key!r:.60}")
        if (
            len(dims) != len(column.lead_sizes(1, 1)) + len(shape)
            or len(dims) > _MAX_DIMENSIONS
            or column._is_oversized()
        ):
            raise ValueError(f"not a column: {column.name!r:.60} declares files of shape {str(shape)[:40]}")
        return column

    def _is_oversized(self) -> bool:
        """Whether chunks or files are larger than those of any store, or do not fill one another."""
        if self.trajectories is None:
            chunk = self.rows_per_chunk * self.row_bytes
            return self.row_bytes > _MAX_ROW_BYTES or (self.rows_per_chunk > 1 and chunk > _MAX_DECLARED_CHUNK_BYTES)
        file = self.block * self.rows_per_file * self.row_bytes
        return (
            bool(self.block % self.chunk or self.rows_per_file % self.rows_per_chunk)
            or math.prod(self.grid) > _MAX_DECLARED_CHUNKS
            or self.trajectories > _MAX_DECLARED_TRAJECTORIES
            or file > (_MAX_DECLARED_FILE_BYTES if self.grid == (1, 1) else _MAX_CUT_FILE_BYTES)
        )

    @staticmethod
    def from_metadata(name: str, node: Mapping[str, Any]) -> tuple[Column, int]:
        """A column of store format 1, and its rows, from the metadata of the array."""
        rows, *shape = node["shape"]
        per_chunk = node["chunk_grid"]["configuration"]["chunk_shape"][0]
        entry = {"key": name, "name": name, "dtype": node["data_type"], "shape": shape, "rows_per_chunk": per_chunk}
        return Column.from_dict({**entry, "dims": node["dimension_names"]}), whole_number(rows, 0, MAX_ROWS)


_BLOCK_SIZES = ("trajectories", "block", "chunk", "rows_per_chunk", "rows_per_file")


def _ensemble_dims(rows: int | None, values: tuple[str, ...]) -> tuple[str, ...]:
    return (TRAJECTORY, *values) if rows is None else (TRAJECTORY, TIME, *values)


def _type_name(key: str, dtype: np.dtype) -> str:
    if dtype.name not in DTYPES:
        raise StoreError(f"the variable {name_of(key)!r} has type {dtype}; numbers and booleans can be stored")
    return dtype.name


def columns_from(entries: object) -> tuple[Column, ...]:
    """The columns that the status or a checkpoint of a run lists."""
    if not isinstance(entries, list) or len(entries) > MAX_COLUMNS:
        raise ValueError("it should list columns")
    columns = tuple(Column.from_dict(entry) for entry in entries)
    if len({column.name for column in columns}) != len(columns):
        raise StoreDamagedError("two columns have one name")
    return columns


def group_metadata(nodes: Mapping[str, Mapping[str, Any]], attributes: Mapping[str, Any]) -> bytes:
    """The `zarr.json` of the store, with the metadata of every array inside."""
    consolidated = {"kind": "inline", "must_understand": False, "metadata": dict(nodes)}
    return seal({**EMPTY_GROUP, "attributes": dict(attributes), "consolidated_metadata": consolidated})
