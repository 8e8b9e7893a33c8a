"""How an ensemble lies in Zarr version 3: blocks of trajectories, cut along time as well.

A variable has the axes trajectory, t (if it has rows) and those of its values. A file holds one block of trajectories
over a stretch of rows: raw little-endian chunks of a few trajectories, each with its CRC-32C, and an index of them with
a CRC-32C of its own. So the rows of one trajectory are read without those of its block, and everything about a file
but its values follows from its place.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import google_crc32c
import numpy as np

from .disk import Folder
from .errors import StoreDamagedError, StoreError
from .layout import DTYPES, MOST_ROWS, AbstractColumn, column_name, differences, whole_number

CHUNK_LEAST, CHUNK_MOST, FILE_MOST, BLOCK_BYTES = 1 << 13, 1 << 18, 1 << 26, 1 << 25
MOST_CHUNKS = 8192  # in a file


def block_size(trajectories: int, bytes_per_trajectory: int) -> int:
    """How many trajectories make a block of about 32 MB."""
    return max(1, min(trajectories, 1 << 16, BLOCK_BYTES // max(1, bytes_per_trajectory)))


@dataclasses.dataclass(frozen=True)
class BlockColumn(AbstractColumn):
    """One variable of an ensemble; `rows` is None where it has one value per trajectory.

    Chunks hold `chunk` trajectories and `rows_per_chunk` rows, files `block` trajectories and `rows_per_file` rows.
    """

    missing: ClassVar[int] = -1
    key: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    trajectories: int
    rows: int | None
    block: int
    chunk: int
    rows_per_chunk: int
    rows_per_file: int

    @staticmethod
    def of(
        key: str, dtype: np.dtype, shape: tuple[int, ...], dims: tuple[str, ...], trajectories: int,
        rows: int | None, block: int,
    ) -> BlockColumn:  # fmt: skip
        """The column for values of this shape; chunks and files are sized in bytes."""
        if dtype.name not in DTYPES:
            raise StoreError(f"the variable {key!r} has type {dtype}; numbers and booleans can be stored")
        row, count = max(1, dtype.itemsize * math.prod(shape)), 1 if rows is None else max(1, rows)
        per_chunk = max(1, min(count, CHUNK_MOST // row, FILE_MOST // (block * row)))
        parts = max(1, min(-(-count // per_chunk), FILE_MOST // (block * per_chunk * row), MOST_CHUNKS))
        if rows is None:
            chunk = block
        else:
            enough = max(-(-CHUNK_LEAST // (per_chunk * row)), -(-block * parts // MOST_CHUNKS))
            chunk = next(k for k in range(1, block + 1) if block % k == 0 and (k >= enough or k == block))
        return BlockColumn(
            key, column_name(key), dtype.name, tuple(int(n) for n in shape), dims, trajectories, rows, block, chunk,
            per_chunk, per_chunk * parts,
        )  # fmt: skip

    # ---- places

    @property
    def chunk_size(self) -> int:
        """Bytes of a chunk with its checksum."""
        return self.chunk * self.rows_per_chunk * self.row_bytes + 4

    @property
    def stretches(self) -> int:
        """How many files a block has; none where a row has no bytes."""
        return -(-self._rows // self.rows_per_file) if self.row_bytes else 0

    @property
    def grid(self) -> tuple[int, int]:
        """Chunks in a file, over trajectories and over rows."""
        return self.block // self.chunk, self.rows_per_file // self.rows_per_chunk

    @property
    def _rows(self) -> int:
        return 1 if self.rows is None else self.rows

    def file_name(self, block: int, stretch: int) -> str:
        time = () if self.rows is None else (str(stretch),)
        return ".".join(["c", str(block), *time, *("0" for _ in self.shape)])

    def extent(self, block: int, stretch: int) -> tuple[int, int]:
        """How many trajectories and rows a file holds."""
        trajectories = min(self.block, self.trajectories - block * self.block)
        return trajectories, min(self.rows_per_file, self._rows - stretch * self.rows_per_file)

    def stored(self, block: int, stretch: int) -> tuple[int, int]:
        """How many chunks of a file hold anything: those after them are left out."""
        trajectories, rows = self.extent(block, stretch)
        return -(-trajectories // self.chunk), -(-rows // self.rows_per_chunk)

    # ---- bytes

    def encode(self, values: np.ndarray, block: int, stretch: int) -> bytes:
        """A file from its values, of shape (trajectories, rows, ...)."""
        (n, m), size = self.stored(block, stretch), (self.chunk, self.rows_per_chunk)
        whole = np.full((n * size[0], m * size[1], *self.shape), self.fill, self.numpy_dtype)
        whole[: values.shape[0], : values.shape[1]] = values
        cut = np.moveaxis(whole.reshape(n, size[0], m, size[1], *self.shape), 2, 1)
        table = np.ascontiguousarray(cut).reshape(n * m, -1).view(np.uint8)
        out = np.empty((n * m, self.chunk_size), np.uint8)
        out[:, :-4] = table
        sums = [google_crc32c.value(chunk.tobytes()) for chunk in table]
        out[:, -4:] = np.array(sums, "<u4")[:, None].view(np.uint8)
        return out.tobytes() + self.index(block, stretch)

    def index(self, block: int, stretch: int) -> bytes:
        """What follows the chunks in a file."""
        if self.grid == (1, 1):
            return b""
        return self.index_of(self.grid, self.stored(block, stretch), self.chunk_size)

    def read_file(self, root: Folder, block: int, stretch: int, chunks: list[int]) -> list[np.ndarray]:
        """Chunks of a file, each verified and of shape (trajectories, rows, ...)."""
        folder, name = root / self.name, self.file_name(block, stretch)
        n, m = self.stored(block, stretch)
        index = self.index(block, stretch)
        try:
            with folder.file(name) as (handle, size):
                if size != n * m * self.chunk_size + len(index):
                    raise StoreDamagedError(f"{folder}/{name} is damaged: it has {size} bytes")
                if os.pread(handle, len(index), n * m * self.chunk_size) != index:
                    raise StoreDamagedError(f"{folder}/{name} is damaged: its index is wrong")
                if 4 * len(chunks) > n * m:
                    data = memoryview(os.pread(handle, n * m * self.chunk_size, 0))
                    found = [data[k * self.chunk_size : (k + 1) * self.chunk_size] for k in chunks]
                else:
                    found = [memoryview(os.pread(handle, self.chunk_size, k * self.chunk_size)) for k in chunks]
        except FileNotFoundError:
            raise StoreDamagedError(f"{folder}/{name} is missing") from None
        except OSError as error:
            raise StoreDamagedError(f"{folder}/{name} cannot be read: {error.strerror}") from error
        for k, data in zip(chunks, found):
            if google_crc32c.value(bytes(data[:-4])) != int.from_bytes(data[-4:], "little"):
                raise StoreDamagedError(f"{folder}/{name} is damaged in chunk {k}: it does not agree with its checksum")
        shape = (self.chunk, self.rows_per_chunk, *self.shape)
        return [np.frombuffer(data[:-4], self.numpy_dtype).reshape(shape) for data in found]

    # ---- metadata

    def metadata(self) -> dict[str, Any]:
        """What Zarr needs to know of the array."""

        def sizes(across: int, along: int | None) -> list[int]:
            return [across] if along is None or self.rows is None else [across, along]

        chunk = sizes(self.chunk, self.rows_per_chunk) if self.grid != (1, 1) else None
        dims = ["trajectory", *(["t"] if self.rows is not None else []), *self.dims]
        return self.array_metadata(
            sizes(self.trajectories, self.rows), sizes(self.block, self.rows_per_file), chunk, dims
        )

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(entry: Mapping[str, Any]) -> BlockColumn:
        """A column from a file, or a `ValueError` where it declares what no store of ours has."""
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"not a column: type {entry['dtype']!r:.40}")
        rows = None if entry["rows"] is None else whole_number(entry["rows"], 0, MOST_ROWS)
        sizes = ("trajectories", "block", "chunk", "rows_per_chunk", "rows_per_file")
        column = BlockColumn(
            key=str(entry["key"]),
            name=str(entry["name"]),
            dtype=str(entry["dtype"]),
            shape=tuple(whole_number(n, 0, 1 << 34) for n in entry["shape"]),
            dims=tuple(str(d) for d in entry["dims"]),
            rows=rows,
            **{name: whole_number(entry[name], 1, MOST_ROWS) for name in sizes},
        )
        file = column.block * column.rows_per_file * column.row_bytes
        even = column.block % column.chunk == 0 and column.rows_per_file % column.rows_per_chunk == 0
        many = math.prod(column.grid) > 1 << 16 or column.trajectories > 1 << 40
        if not even or many or (file > 1 << 30 and column.grid != (1, 1)) or file > 1 << 36 or len(column.shape) > 30:
            raise ValueError(f"not a column: {column.name!r:.60} declares files of {str(file)[:20]} bytes")
        if column_name(column.key) != column.name or len(column.dims) != len(column.shape):
            raise ValueError(f"not a column: {column.key!r:.60}")
        return column


def check_keys(
    values: Mapping[str, np.ndarray], columns: Mapping[str, BlockColumn], trajectories: int, rows: int | None
) -> None:
    lead = (trajectories,) if rows is None else (trajectories, rows)
    want = {key: ((*lead, *c.shape), c.dtype) for key, c in columns.items()}
    have = {key: (x.shape, x.dtype.name) for key, x in values.items()}
    if differ := differences(want, have):
        raise StoreError(f"the block does not fit its ensemble: {differ}")


def stretches(
    parts: Iterable[Mapping[str, np.ndarray]], columns: Mapping[str, BlockColumn], trajectories: int
) -> Iterator[tuple[int, BlockColumn, np.ndarray]]:
    """The values of each file, from parts in the order of time."""
    total = next((c.rows for c in columns.values()), 0) or 0
    held: dict[str, list[np.ndarray]] = {key: [] for key in columns}
    done = 0
    for part in parts:
        arrays = {key: np.asarray(x) for key, x in part.items()}
        count = next((x.shape[1] for x in arrays.values() if x.ndim > 1), 0)
        check_keys(arrays, columns, trajectories, count)
        done += count
        if done > total:
            raise StoreError(f"the block has more than the {total} rows of its ensemble")
        for key, column in columns.items():
            if not column.row_bytes:
                continue
            held[key].append(arrays[key])
            size = column.rows_per_file
            while (ready := sum(x.shape[1] for x in held[key])) >= size or (done == total and ready):
                whole = np.concatenate(held[key], axis=1) if len(held[key]) > 1 else held[key][0]
                stretch = (done - ready) // size
                yield stretch, column, whole[:, :size]
                held[key] = [whole[:, size:]] if ready > size else []
    if done != total:
        raise StoreError(f"the block has {done} of the {total} rows of its ensemble")
