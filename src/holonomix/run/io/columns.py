"""One column of a store on disk: verified reading, and writing chunk by chunk."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterator

import numpy as np

from .disk import Folder, hidden_name
from .errors import StoreDamagedError, StoreError
from .layout import Column
from .text import seal

MOST_NAMED = 1000  # missing files that are named one by one
_OURS = re.compile(r"zarr\.json|c(\.\d+)+|\.(zarr\.json|c(\.\d+)+)\.tmp")


@dataclasses.dataclass(frozen=True)
class ColumnReader:
    """The first `rows` rows of a column. What it returns agrees with the checksums; anything else is an error."""

    root: Folder
    column: Column
    rows: int

    @property
    def folder(self) -> Folder:
        return self.root / self.column.name

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, *self.column.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.column.numpy_dtype.newbyteorder("=")

    def read(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows of a slice, or those with these numbers."""
        if isinstance(rows, slice):
            wanted = range(*rows.indices(self.rows))
            if wanted.step < 0:
                return self.read(slice(wanted[-1], wanted[0] + 1, -wanted.step))[::-1] if wanted else self._empty(0)
            parts, count = self._of_slice(wanted), len(wanted)
        else:
            parts, count = self._of_numbers(np.where(rows < 0, rows + self.rows, rows)), len(rows)
        if not count or not self.column.row_bytes:
            return self._empty(count)
        self.check_extent()
        out, place = self._empty(count), 0
        for chunk, local in parts:
            some = self._chunk(chunk)[local]
            out[place : place + len(some)] = some
            place += len(some)
        return out

    def check_extent(self) -> None:
        """Raise unless there are as many files as the rows need: before memory is asked for to hold them."""
        files = self.column.files(self.rows)
        found = set(self.folder.names())
        if len(found) < files:
            lost = next(name for name in map(self.column.file_name, range(files)) if name not in found)
            raise StoreDamagedError(
                f"{self.folder}/{lost} is missing: {self.rows} rows of {self.column.name} take {files} files"
            )
        if files:
            with self._file(files - 1):
                pass  # its size is checked

    def damaged_files(self) -> list[str]:
        """The files that are missing or not as they were written; everything is read."""
        files = self.column.files(self.rows)
        there = {number for number in self._numbers() if number < files}
        bad = [number for number in there if next(self._damaged_in(number), None) is not None]
        missing = files - len(there)
        lost = itertools.islice((n for n in range(files) if n not in there), min(missing, MOST_NAMED))
        shown = [f"{self.column.name}/{self.column.file_name(number)}" for number in sorted([*bad, *lost])]
        more = f"{self.column.name}/ ({missing - MOST_NAMED} more files are missing)"
        return [*shown, more] if missing > MOST_NAMED else shown

    def _numbers(self) -> list[int]:
        """The numbers of the files that are there; none where their directory cannot be read."""
        try:
            named = [self.column.file_of(name) for name in self.folder.names()]
        except (OSError, StoreError):
            return []
        return [number for number in named if number is not None]

    def intact_rows(self) -> int:
        """How many rows, from the first on, lie in whole chunks that are intact."""
        whole = self.rows // self.column.rows_per_chunk
        return next(self._damaged(whole), whole) * self.column.rows_per_chunk

    def encoded(self, first: int, last: int) -> Iterator[bytes]:
        """Chunks of one file as their bytes."""
        if first < last:
            inside = self.column.chunks_per_file
            with self._file(first // inside) as chunk:
                for at in range(first, last):
                    yield self.column.encode(chunk(at % inside))

    def _empty(self, rows: int) -> np.ndarray:
        return np.empty((rows, *self.column.shape), self.dtype)

    def _of_slice(self, wanted: range) -> Iterator[tuple[int, slice | np.ndarray]]:
        size, at = self.column.rows_per_chunk, wanted.start
        while at < wanted.stop:
            chunk = at // size
            local = range(at - chunk * size, min(wanted.stop - chunk * size, size), wanted.step)
            yield chunk, slice(local.start, local.stop, local.step)
            at += len(local) * wanted.step

    def _of_numbers(self, numbers: np.ndarray) -> Iterator[tuple[int, slice | np.ndarray]]:
        size = self.column.rows_per_chunk
        for some in np.split(numbers, np.flatnonzero(np.diff(numbers // size)) + 1):
            yield int(some[0]) // size, some % size

    def _chunk(self, number: int) -> np.ndarray:
        file, inside = divmod(number, self.column.chunks_per_file)
        with self._file(file) as chunk:
            return chunk(inside)

    def _damaged(self, chunks: int) -> Iterator[int]:
        """The first damaged one among the chunks of each file, below `chunks`."""
        inside = self.column.chunks_per_file
        for number in range(-(-chunks // inside) if self.column.row_bytes else 0):
            yield from self._damaged_in(number, chunks)

    def _damaged_in(self, number: int, chunks: int | None = None) -> Iterator[int]:
        """The first damaged chunk of a file, if there is one; of those below `chunks`, by default all."""
        chunks = self.column.chunks(self.rows) if chunks is None else chunks
        at = first = number * self.column.chunks_per_file
        try:
            with self._file(number) as chunk:
                for at in range(first, min(first + self.column.chunks_per_file, chunks)):
                    chunk(at - first)
        except StoreError:
            yield at

    @contextlib.contextmanager
    def _file(self, number: int) -> Iterator[Callable[[int], np.ndarray]]:
        """A file as a function from the place of a chunk in it to the verified rows of the chunk."""
        column = self.column
        where = f"{self.folder}/{column.file_name(number)}"
        with contextlib.ExitStack() as stack:
            try:
                handle, size = stack.enter_context(self.folder.file(column.file_name(number)))
                held, rest = divmod(size - column.index_size, column.chunk_size)
                index = os.pread(handle, column.index_size, held * column.chunk_size)
            except FileNotFoundError:
                raise StoreDamagedError(f"{where} is missing") from None
            except OSError as error:
                raise StoreDamagedError(f"{where} cannot be read: {error.strerror}") from error
            if rest or not 0 < held <= column.chunks_per_file or index != column.index(held):
                raise StoreDamagedError(f"{where} is damaged: its length of {size} bytes or its index is wrong")

            def chunk(inside: int) -> np.ndarray:
                if inside >= held:
                    raise StoreDamagedError(f"{where} is damaged: it ends before chunk {inside}")
                try:
                    return column.decode(os.pread(handle, column.chunk_size, inside * column.chunk_size))
                except (OSError, ValueError) as error:
                    raise StoreDamagedError(f"{where} is damaged in chunk {inside}: {error}") from error

            yield chunk


class ColumnWriter:
    """Rows on their way into the files of a column; the last file is replaced as it grows."""

    def __init__(self, root: Folder, column: Column) -> None:
        self.root, self.column, self.rows = root, column, 0
        self.folder = root / column.name
        self._whole = bytearray()  # the whole chunks of the last file
        self._tail: np.ndarray | None = None  # the chunk that is filling up
        self._dirty: set[str] = set()
        self._changed = False

    def append(self, values: np.ndarray) -> None:
        """Add rows; files that fill up are written."""
        column, done = self.column, 0
        if not column.row_bytes:
            self.rows += len(values)
            return
        while done < len(values):
            if self._tail is None:
                self._tail = column.blank()
            filled = self.rows % column.rows_per_chunk
            take = min(column.rows_per_chunk - filled, len(values) - done)
            self._tail[filled : filled + take] = values[done : done + take]
            self.rows, done, self._changed = self.rows + take, done + take, True
            if self.rows % column.rows_per_chunk == 0:
                self._whole += column.encode(self._tail)
                self._tail = None
                if self.rows % column.rows_per_file == 0:
                    self.flush()
                    self._whole.clear()

    @property
    def tail(self) -> np.ndarray:
        """The rows after the last whole chunk."""
        return (self.column.blank() if self._tail is None else self._tail)[: self.rows % self.column.rows_per_chunk]

    def flush(self) -> None:
        """Write the last file, if rows have come since it was written."""
        if self._changed:
            data = bytes(self._whole) + (b"" if self._tail is None else self.column.encode(self._tail))
            name = self.column.file_name((self.rows - 1) // self.column.rows_per_file)
            self.folder.write(name, data + self.column.index(len(data) // self.column.chunk_size), durable=False)
            self._dirty.add(name)
            self._changed = False

    def sync(self) -> None:
        """Wait until everything written is on the device."""
        if self._dirty:
            self.folder.sync(*sorted(self._dirty))
            self._dirty.clear()

    def publish(self, rows: int) -> None:
        """Write the array's own metadata."""
        self.folder.write("zarr.json", seal(self.column.metadata(rows)), durable=False)

    def go_back_to(self, rows: int, tail: np.ndarray) -> None:
        """Take up writing after `rows` rows, whose whole chunks are on disk; `tail` are the rows after those."""
        column, filled = self.column, rows % self.column.rows_per_chunk
        if tail.shape != (filled, *column.shape) or tail.dtype != column.numpy_dtype:
            raise StoreDamagedError(f"the checkpoint of {self.root} does not hold the last rows of {column.name}")
        self.rows, self._tail, self._whole = rows, None, bytearray()
        if not column.row_bytes:
            return
        first = rows // column.rows_per_file * column.chunks_per_file
        for data in ColumnReader(self.root, column, rows).encoded(first, rows // column.rows_per_chunk):
            self._whole += data
        if filled:
            self._tail = column.blank()
            self._tail[:filled] = tail
        self._changed = rows % column.rows_per_file > 0

    def cut(self) -> None:
        """Remove the files after the rows, and unfinished ones; names that are not ours stay."""
        used = self.column.files(self.rows)
        for name in self.folder.names():
            number = self.column.file_of(name)
            if is_unfinished(name, self.column) or (number is not None and number >= used):
                self.folder.remove(name)


def is_unfinished(name: str, column: Column) -> bool:
    """Whether a name is that of the hidden sibling of one of the column's files."""
    inner = name[1:-4]
    return name == hidden_name(inner) and (inner == "zarr.json" or column.file_of(inner) is not None)


def remove_column(root: Folder, name: str) -> None:
    """Remove a column of any shape: the names that we write, and its directory if nothing else lies in it."""
    folder = root / name
    names = folder.names()
    if all(_OURS.fullmatch(file) for file in names):
        for file in names:
            folder.remove(file)
        root.remove_directory(name)
