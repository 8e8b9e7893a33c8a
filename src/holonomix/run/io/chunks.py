"""The files of one column: verified reading of any part, and writing file by file."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator

import numpy as np

from .disk import Folder, hidden_name
from .errors import StoreDamagedError, StoreError
from .layout import Column
from .text import seal

MAX_NAMED_FILES = 1000  # missing files that are named one by one
_OURS = re.compile(r"zarr\.json|c(\.\d+)+|\.(zarr\.json|c(\.\d+)+)\.tmp")

Places = range | np.ndarray  # numbers of trajectories or rows
Part = tuple[int, slice | np.ndarray, slice | np.ndarray]  # a chunk, where its values go, and where they are in it


@dataclasses.dataclass(frozen=True)
class ColumnReader:
    """The first `rows` rows of a column. What it returns agrees with the checksums; anything else is an error.

    `finished` are the blocks of an ensemble that are there; the others show the column's fill value.
    """

    root: Folder
    column: Column
    rows: int
    finished: Collection[int] = (0,)

    @property
    def folder(self) -> Folder:
        return self.root / self.column.name

    @property
    def lead(self) -> tuple[int, ...]:
        """The sizes of the leading axes: trajectory, t, or both."""
        return tuple(self.column.lead_sizes(self.column.trajectories or 1, self.rows))

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.lead, *self.column.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.column.numpy_dtype.newbyteorder("=")

    # ---- reading

    def read(self, *places: Places) -> np.ndarray:
        """The values at these places along the leading axes, by default all."""
        first, *rest = places or map(range, self.lead)
        if self.column.trajectories is None:
            return self.gather(range(1), first)[0]
        return self.gather(first, rest[0]) if rest else self.gather(first, range(1))[:, 0]

    def gather(self, trajectories: Places, rows: Places) -> np.ndarray:
        """Values of shape (trajectories, rows, ...); only the chunks that hold them are read."""
        column = self.column
        if column.trajectories is None and len(rows):
            self._check_extent()
        out = np.empty((len(trajectories), len(rows), *column.shape), self.dtype)
        if not out.size:
            return out
        across, along = column.grid
        files = _by_file(rows, column.rows_per_chunk, along)
        for block, some in _by_file(trajectories, column.chunk, across):
            if block not in self.finished:
                for _, to, _ in some:
                    out[to] = column.fill
                continue
            for file, stretch in files:
                with self._file(block, file) as chunk:
                    for (i, to_i, at_i), (j, to_j, at_j) in itertools.product(some, stretch):
                        values = chunk(i - block * across, j - file * along)
                        out[_outer(to_i, to_j)] = values[_outer(at_i, at_j)]
        return out

    def _check_extent(self) -> None:
        """Raise unless there are as many files as the rows need: before memory is asked for to hold them."""
        files = self.column.files(self.rows)
        found = set(self.folder.names()) if files else set()
        if len(found) < files:
            lost = next(name for k in range(files) if (name := self.column.file_name(0, k)) not in found)
            raise StoreDamagedError(
                f"{self.folder}/{lost} is missing: {self.rows} rows of {self.column.name} take {files} files"
            )
        if files:
            with self._file(0, files - 1):
                pass  # its size is checked

    @contextlib.contextmanager
    def _file(self, block: int, file: int) -> Iterator[Callable[[int, int], np.ndarray]]:
        """A file as a function from the place of a chunk in it to the verified values of the chunk."""
        column = self.column
        where = f"{self.folder}/{column.file_name(block, file)}"
        across = -(-column.block_count(block) // column.chunk)
        with contextlib.ExitStack() as stack:
            try:
                handle, size = stack.enter_context(self.folder.file(column.file_name(block, file)))
                held, rest = divmod(size - column.index_size, across * column.chunk_size)
                index = os.pread(handle, column.index_size, max(0, size - column.index_size))
            except FileNotFoundError:
                raise StoreDamagedError(f"{where} is missing") from None
            except OSError as error:
                raise StoreDamagedError(f"{where} cannot be read: {error.strerror}") from error
            rows = min(column.rows_per_file, self.rows - file * column.rows_per_file)
            grown = column.trajectories is None or held == column.chunks(rows)  # a run may have written more
            if rest or not 0 < held <= column.grid[1] or not grown or index != column.index(across, held):
                raise StoreDamagedError(f"{where} is damaged: its length of {size} bytes or its index is wrong")

            def chunk(i: int, j: int) -> np.ndarray:
                number = i * held + j
                if j >= held:
                    raise StoreDamagedError(f"{where} is damaged: it ends before chunk {number}")
                try:
                    return column.decode(os.pread(handle, column.chunk_size, number * column.chunk_size))
                except (OSError, ValueError) as error:
                    raise StoreDamagedError(f"{where} is damaged in chunk {number}: {error}") from error

            yield chunk

    # ---- verifying

    def damaged_files(self) -> list[str]:
        """The names of the files that are missing or not as they were written; everything is read."""
        there, files = self._files_there(), self.column.files(self.rows)
        bad = [place for place in there if self._damaged_chunk(*place) is not None]
        missing = len(self.finished) * files - len(there)
        expected = itertools.product(sorted(self.finished), range(files))
        lost = itertools.islice((p for p in expected if p not in there), min(missing, MAX_NAMED_FILES))
        named = [f"{self.column.name}/{self.column.file_name(*place)}" for place in sorted([*bad, *lost])]
        more = f"{self.column.name}/ ({missing - MAX_NAMED_FILES} more files are missing)"
        return [*named, more] if missing > MAX_NAMED_FILES else named

    def damaged_blocks(self) -> set[int]:
        """The finished blocks with a file that is missing or not as it was written; everything is read."""
        there, files = self._files_there(), self.column.files(self.rows)
        counts = collections.Counter(block for block, _ in there)
        short = {block for block in self.finished if counts[block] < files}
        return short | {block for block, file in there if self._damaged_chunk(block, file) is not None}

    def intact_rows(self) -> int:
        """How many rows of a run, from the first on, lie in whole chunks that are intact."""
        whole = self.rows // self.column.rows_per_chunk
        for file in range(self.column.files(whole * self.column.rows_per_chunk)):
            if (bad := self._damaged_chunk(0, file, whole)) is not None:
                return bad * self.column.rows_per_chunk
        return whole * self.column.rows_per_chunk

    def _files_there(self) -> set[tuple[int, int]]:
        """The files of finished blocks that are there; none where their directory cannot be read."""
        try:
            found = {self.column.place_of(name) for name in self.folder.names()}
        except (OSError, StoreError):
            return set()
        files = self.column.files(self.rows)
        return {place for place in found if place is not None and place[0] in self.finished and place[1] < files}

    def _damaged_chunk(self, block: int, file: int, chunks: int | None = None) -> int | None:
        """The first damaged one of the chunks along the rows of a file, below `chunks`; by default of all."""
        chunks = self.column.chunks(self.rows) if chunks is None else chunks
        first = at = file * self.column.grid[1]
        across = -(-self.column.block_count(block) // self.column.chunk)
        try:
            with self._file(block, file) as chunk:
                for at in range(first, min(first + self.column.grid[1], chunks)):
                    for i in range(across):
                        chunk(i, at - first)
        except StoreError:
            return at
        return None


def _parts(places: Places, size: int) -> Iterator[Part]:
    """The chunks of `size` entries that hold these places, each once and in order."""
    if isinstance(places, range) and places.step > 0:
        done = 0
        while done < len(places):
            chunk = places[done] // size
            end = min(len(places), -(-((chunk + 1) * size - places.start) // places.step))
            here = slice(places[done] - chunk * size, places[end - 1] - chunk * size + 1, places.step)
            yield chunk, slice(done, end), here
            done = end
        return
    numbers = np.asarray(places)
    order = np.argsort(numbers, kind="stable")
    chunks = numbers[order] // size
    for some in np.split(order, np.flatnonzero(np.diff(chunks)) + 1):
        yield int(numbers[some[0]]) // size, some, numbers[some] % size


def _by_file(places: Places, size: int, chunks: int) -> list[tuple[int, list[Part]]]:
    """The chunks of `size` entries that hold these places, by the file of so many chunks that they are in."""
    return [(file, list(some)) for file, some in itertools.groupby(_parts(places, size), lambda p: p[0] // chunks)]


def _outer(a: slice | np.ndarray, b: slice | np.ndarray) -> tuple[slice | np.ndarray, ...]:
    """An index that takes `a` of the first axis and `b` of the second."""
    return np.ix_(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else (a, b)


class ColumnWriter:
    """Rows on their way into the files of a block of a column; the last file is replaced as it grows.

    `unique` is for blocks that several processes may write at once.
    """

    def __init__(self, root: Folder, column: Column, block: int = 0, *, unique: bool = False) -> None:
        self.root, self.column, self.block, self.rows = root, column, block, 0
        self.folder, self._unique = root / column.name, unique
        self._held: list[np.ndarray] = []  # the rows of the last file, unless it is full
        self._dirty: set[str] = set()
        self._changed = False

    def append(self, values: np.ndarray) -> None:
        """Add rows, of shape (trajectories, rows, ...); files that fill up are written."""
        column, done = self.column, 0
        if not column.row_bytes:
            self.rows += values.shape[1]
            return
        while done < values.shape[1]:
            take = min(column.rows_per_file - self.rows % column.rows_per_file, values.shape[1] - done)
            self._held.append(np.array(values[:, done : done + take], column.numpy_dtype))
            self.rows, done, self._changed = self.rows + take, done + take, True
            if self.rows % column.rows_per_file == 0:
                self.flush()
                self._held.clear()

    @property
    def tail(self) -> np.ndarray:
        """The rows of a run after the last whole chunk."""
        filled = self.rows % self.column.rows_per_chunk
        if not filled or not self._held:
            return np.empty((filled, *self.column.shape), self.column.numpy_dtype)
        return self._joined()[0, -filled:]

    def flush(self) -> None:
        """Write the last file, if rows have come since it was written."""
        if self._changed:
            name = self.column.file_name(self.block, (self.rows - 1) // self.column.rows_per_file)
            self.folder.write(name, self.column.encode(self._joined()), durable=False, unique=self._unique)
            self._dirty.add(name)
            self._changed = False

    def _joined(self) -> np.ndarray:
        if len(self._held) > 1:
            self._held = [np.concatenate(self._held, axis=1)]
        return self._held[0]

    def sync(self) -> None:
        """Wait until everything written is on the device."""
        if self._dirty:
            self.folder.sync(*sorted(self._dirty))
            self._dirty.clear()

    def publish(self, rows: int, *, durable: bool = False) -> None:
        """Write the array's own metadata."""
        self.folder.make()
        self.folder.write("zarr.json", seal(self.column.metadata(rows)), durable=durable)

    def go_back_to(self, rows: int, tail: np.ndarray) -> None:
        """Continue after `rows` rows of a run, whose whole chunks are on disk; `tail` are the rows after those."""
        column, filled = self.column, rows % self.column.rows_per_chunk
        if tail.shape != (filled, *column.shape) or tail.dtype != column.numpy_dtype:
            raise StoreDamagedError(f"the checkpoint of {self.root} does not hold the last rows of {column.name}")
        self.rows, self._changed = rows, bool(column.row_bytes) and rows % column.rows_per_file > 0
        if self._changed:
            first, whole = rows - rows % column.rows_per_file, rows - filled
            self._held = [tail[None]]
            if first < whole:
                self._held.insert(0, ColumnReader(self.root, column, whole).read(range(first, whole))[None])

    def cut(self) -> None:
        """Remove the files after the rows, and unfinished ones; names that are not ours stay."""
        used = self.column.files(self.rows)
        for name in self.folder.names():
            place = self.column.place_of(name)
            if is_unfinished(name, self.column) or (place is not None and place[1] >= used):
                self.folder.remove(name)


def is_unfinished(name: str, column: Column) -> bool:
    """Whether a name is that of the hidden sibling of one of the column's files."""
    inner = name[1:-4]
    return name == hidden_name(inner) and (inner == "zarr.json" or column.place_of(inner) is not None)


def remove_column(root: Folder, name: str) -> None:
    """Remove a column of any shape: the names that we write, and its directory if nothing else lies in it."""
    folder = root / name
    names = folder.names()
    if all(_OURS.fullmatch(file) for file in names):
        for file in names:
            folder.remove(file)
        root.remove_directory(name)
