"""The store of an ensemble: blocks of trajectories that any number of processes write into one Zarr directory.

    ens1/
      zarr.json                 the group: shapes of all arrays, attributes; written once
      q/ p/ energy/ ..          arrays over trajectory, t and the axes of a value; c.BLOCK.STRETCH.0 is a file
      status/ reduced_max/ ..   arrays over trajectory
      t/, lengths/ ..           the shared times, and coordinates of the trajectories
      holonomix/
        ensemble.json           the columns, the size of a block, the description of the run
        blocks/NNNNNNNN.json    one per finished block, written last
        blocks.json             once all blocks are finished: the SHA-256 of each of these
        status.json             "closed" once blocks.json is there, so that `verify` notices if either is lost

A block counts from the moment its JSON is renamed into place; until then its rows read as NaN and its statuses as -1.
What a block holds must depend on its trajectories alone: then blocks may be computed anywhere, in any order and more
than once, and a killed ensemble continues with `missing_blocks()` to the same bytes as one that was not killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from ...core.columns import dims_of
from ...core.errors import shown
from . import directory
from .arrays import unpacked
from .blocks import BlockColumn, block_size, check_keys, stretches
from .columns import ColumnReader, ColumnWriter
from .directory import FORMAT, is_store, version
from .disk import Folder, as_path, translated
from .environment import current_environment
from .errors import StoreDamagedError, StoreError, StoreNotFoundError, StoreVersionError
from .layout import EMPTY_GROUP, INTERNAL, MOST_ROWS, Column, whole_number
from .manifest import damaged_files, mend, refuse_hollow_files, saved_file
from .records import MOST_BLOCKS, BlockRecords
from .text import MOST_JSON, damaged_nodes, scalar_attributes, seal, signed, unsigned

STATUS, REDUCED, END = "status", "reduced/", "end/"
MOST_ATTACHED = 1 << 34
MOST_TRAJECTORIES = 1 << 27  # of a store
MOST_UNCHECKED_ROWS = 1 << 22  # numbering more rows than this takes memory, so the files are looked at first
_LEFT = re.compile(r"\.(c(\.\d+)+|\d{8}\.(json|bin)|(blocks|status)\.json)\.[0-9a-f]{12}\.tmp")


@runtime_checkable
class HasShape(Protocol):
    """An array, or what describes one, such as `jax.ShapeDtypeStruct`."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...


class StorePlace(NamedTuple):
    """Where a store is or will be, and files to put into it when it is made, such as the run file of a sweep."""

    path: Path
    files: Mapping[str, str | bytes]


class EnsembleStore:
    """An ensemble on disk. `create` makes one, `EnsembleStore(path)` opens it, in this process or another."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = as_path(path)
        self._root = Folder(self.path)
        if not is_store(self.path):
            what = "is not a holonomix store" if self.path.exists() else "does not exist"
            raise StoreNotFoundError(f"{self.path} {what}")
        _, kind = directory.read_format(self._root)
        if kind != "ensemble":
            raise StoreVersionError(f"{self.path} holds a {kind}, not an ensemble: open it with hx.io.Store")
        try:
            body = unsigned((self._root / INTERNAL).read("ensemble.json", MOST_JSON))
            self.columns = tuple(BlockColumn.from_dict(entry) for entry in body["columns"])
            self.fixed = tuple(Column.from_dict(entry) for entry in body["fixed"])
            self.trajectories = whole_number(body["trajectories"], 1, MOST_TRAJECTORIES)
            self.rows = whole_number(body["rows"], 0, MOST_ROWS)
            self.block = whole_number(body["block"], 1, MOST_TRAJECTORIES)
            whole_number(self.blocks, 0, MOST_BLOCKS)
            self.meta, self.environment = dict(body["meta"]), dict(body["environment"])
            if any((c.trajectories, c.block) != (self.trajectories, self.block) for c in self.columns):
                raise ValueError("the columns do not agree on the trajectories")
            if any(c.rows not in (None, self.rows) for c in self.columns):
                raise ValueError("the columns do not agree on the number of rows")
            self._records = BlockRecords(self._root, self.blocks, self.block)
            self._check_rows()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreDamagedError(f"{self.path}: {INTERNAL}/ensemble.json is damaged or missing: {error}") from error

    def _check_rows(self) -> None:
        """Compare a large number of rows with the files that are there, before arrays of that size are made."""
        if self.rows <= MOST_UNCHECKED_ROWS:
            return
        done = bool(self.finished_blocks())
        columns = [c for c in self.columns if done and c.rows is not None] + [c for c in self.fixed if c.name == "t"]
        declared = self.rows * sum(c.row_bytes for c in columns)
        held = sum((self._root / c.name).held_bytes() for c in columns)
        if held < declared // 2 or (done and not declared):  # half: some files may be damaged
            raise ValueError(f"it declares {self.rows} rows, and the files hold {held} bytes")

    @staticmethod
    def create(
        path: str | os.PathLike[str],
        *,
        trajectories: int,
        rows: Mapping[str, HasShape],
        reductions: Mapping[str, HasShape] | None = None,
        t: np.ndarray | None = None,
        coordinates: Mapping[str, np.ndarray] | None = None,
        block: int | None = None,
        meta: Mapping[str, Any] | None = None,
        files: Mapping[str, str | bytes] | None = None,
    ) -> EnsembleStore:
        """Make an empty store.

        `rows` and `reductions` give shape and type of what ONE trajectory has: rows of shape (rows, ...), all with the
        same number, and values of any shape (those called `end/...` keep that name). `t` are the times of the rows
        where trajectories share them, `coordinates` values per trajectory such as the parameters of a sweep, `meta` the
        description of the run.
        """
        if trajectories < 1:
            raise StoreError(f"trajectories={trajectories}: an ensemble has at least one")
        counts = {spec.shape[0] for spec in rows.values() if spec.shape} | ({len(t)} if t is not None else set())
        if len(counts) > 1 or any(not spec.shape for spec in rows.values()):
            raise StoreError(f"the variables of an ensemble need one number of rows, got {sorted(counts)}")
        count = counts.pop() if counts else 0
        reduced = {_value_key(name): spec for name, spec in (reductions or {}).items()}
        size = sum(math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in [*rows.values(), *reduced.values()])
        block = block_size(trajectories, size) if block is None else min(int(block), trajectories)
        if block < 1:
            raise StoreError(f"block={block}: a block has at least one trajectory")
        if trajectories > MOST_TRAJECTORIES or -(-trajectories // block) > MOST_BLOCKS:
            raise StoreError(
                f"{trajectories} trajectories in blocks of {block}: a store holds at most {MOST_TRAJECTORIES} "
                f"trajectories in {MOST_BLOCKS} blocks; use larger blocks or several stores"
            )
        made = [_column(key, spec, trajectories, block, count) for key, spec in rows.items()]
        made += [_column(key, spec, trajectories, block, None) for key, spec in reduced.items()]
        made.append(_column(STATUS, np.empty((), np.int32), trajectories, block, None))
        if coordinates is not None and not isinstance(coordinates, Mapping):
            raise StoreError(f"coordinates must be a dictionary of arrays, not {shown(coordinates)}")
        fixed = {key: np.asarray(x) for key, x in (coordinates or {}).items()}
        if any(x.ndim == 0 or len(x) != trajectories for x in fixed.values()):
            raise StoreError(f"the coordinates of an ensemble need {trajectories} values, one per trajectory")
        fixed |= {} if t is None else {"t": np.asarray(t)}
        places = [Column.of(key, x, dims_of(key, x.shape[1:])) for key, x in fixed.items()]
        names = [c.name for c in made] + [c.name for c in places]
        if len({*names, "finished"}) != len(names) + 1:
            raise StoreError(f"two of the variables {sorted(names)} would have the same name in the store")
        told = json.loads(json.dumps(dict(meta or {}), default=str))
        body = {
            "trajectories": trajectories, "rows": count, "block": block, "meta": told,
            "environment": current_environment(),
            "columns": [c.as_dict() for c in made], "fixed": [c.as_dict() for c in places],
        }  # fmt: skip

        def fill(aside: Folder) -> None:
            for column, values in zip(places, fixed.values()):
                writer = ColumnWriter(aside, column)
                writer.folder.make()
                writer.append(values)
                writer.flush()
                writer.sync()
                writer.folder.write("zarr.json", seal(_node(column, len(values))))
            for column in made:
                (aside / column.name).make()
                (aside / column.name).write("zarr.json", seal(column.metadata()))
            inside = {c.name: c.metadata() for c in made} | {
                c.name: _node(c, len(x)) for c, x in zip(places, fixed.values())
            }
            attributes = {**scalar_attributes(told), "holonomix_format": FORMAT, "holonomix_version": version()}
            consolidated = {"kind": "inline", "must_understand": False, "metadata": inside}
            node = {**EMPTY_GROUP, "attributes": attributes, "consolidated_metadata": consolidated}
            aside.write("zarr.json", seal(node))
            (aside / INTERNAL / "blocks").make()
            (aside / INTERNAL).write("ensemble.json", signed(body))

        os.close(directory.create(as_path(path), files or {}, kind="ensemble", fill=fill))
        return EnsembleStore(path)

    # ---- writing

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.trajectories // self.block)

    def bounds(self, block: int) -> tuple[int, int]:
        """The first trajectory of a block, and the first after it."""
        if not 0 <= block < self.blocks:
            raise StoreError(f"block {block}: {self.path} has blocks 0 to {self.blocks - 1}")
        return block * self.block, min((block + 1) * self.block, self.trajectories)

    def write_block(
        self,
        block: int,
        rows: Mapping[str, np.ndarray] | Iterable[Mapping[str, np.ndarray]],
        reductions: Mapping[str, np.ndarray] | None,
        statuses: np.ndarray,
    ) -> None:
        """Write a finished block, wholly or not at all; any number of processes may do so at once.

        Arrays have the shape (trajectories of the block, rows, ...), reductions (trajectories, ...). `rows` may also be
        an iterable of such parts, in the order of time: then no more than one file per variable is held in memory.
        """
        self.stream_block(block, rows, lambda: (reductions or {}, statuses, b""))

    def stream_block(
        self,
        block: int,
        rows: Mapping[str, np.ndarray] | Iterable[Mapping[str, np.ndarray]],
        end: Callable[[], tuple[Mapping[str, np.ndarray], np.ndarray, bytes]],
    ) -> None:
        """Write a block whose reductions and statuses are known after its rows.

        `end()` is called after the last part and returns reductions, statuses, and bytes to keep with the block (see
        `attachment`).
        """
        first, last = self.bounds(block)
        with self._locked(fcntl.LOCK_SH):
            dirty: dict[str, list[str]] = {}
            series = {c.key: c for c in self.columns if c.rows is not None}
            parts = cast(Iterable[Mapping[str, np.ndarray]], [rows] if isinstance(rows, Mapping) else rows)
            for stretch, column, part in stretches(parts, series, last - first):
                self._write(column, block, stretch, part, dirty)
            reductions, statuses, attached = end()
            values = {STATUS: np.asarray(statuses, np.int32)}
            values |= {_value_key(name): np.asarray(x) for name, x in reductions.items()}
            single = {c.key: c for c in self.columns if c.rows is None}
            check_keys(values, single, last - first, None)
            for key, column in single.items():
                if column.stretches:
                    self._write(column, block, 0, values[key][:, None], dirty)
            for name, written in dirty.items():
                (self._root / name).sync(*written)
            codes, counts = np.unique(values[STATUS], return_counts=True)
            body: dict[str, Any] = {"block": block, "statuses": {str(code): int(n) for code, n in zip(codes, counts)}}
            place = self._root / INTERNAL / "blocks"
            if attached:
                place.write(f"{block:08d}.bin", attached, unique=True)
                body["attachment"] = hashlib.sha256(attached).hexdigest()
            place.write(f"{block:08d}.json", signed(body), unique=True)
            place.sync()
            self._records.list_all(block)

    def _write(
        self, column: BlockColumn, block: int, stretch: int, values: np.ndarray, dirty: dict[str, list[str]]
    ) -> None:
        name = column.file_name(block, stretch)
        data = column.encode(values, block, stretch)
        (self._root / column.name).write(name, data, durable=False, unique=True)
        dirty.setdefault(column.name, []).append(name)

    def missing_blocks(self, *, verify: bool = False) -> list[int]:
        """The blocks that are still to be written; `verify=True` reads all others, and adds those that are damaged."""
        done = self.finished_blocks()
        bad = {b for b in done if next(self._damaged(b), None)} if verify else set()
        return sorted({*range(self.blocks)} - done | bad)

    def finished_blocks(self) -> set[int]:
        """The blocks that are there."""
        return self._records.finished()

    def progress(self) -> dict[int, int]:
        """How many trajectories ended with each status, and under -1 how many are not finished."""
        total: dict[int, int] = {}
        for block in self.finished_blocks():
            for code, count in self._records.counts(block).items():
                total[code] = total.get(code, 0) + count
        return {**total, -1: self.trajectories - sum(total.values())}

    def tidy(self) -> bool:
        """Remove unfinished files of killed processes; False, and nothing done, while another process is writing."""
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                inside = self._root / INTERNAL
                for place in [*(self._root / c.name for c in self.columns), inside / "blocks", inside]:
                    for name in filter(_LEFT.fullmatch, place.names()):
                        place.remove(name)
                mend(self._root)
                self._records.list_all()  # a kill may have come between the last block and the list
        except BlockingIOError:
            return False
        return True

    @contextlib.contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Processes that write share the lock; the one that tidies up has it alone."""
        with translated(self._root), (self._root / INTERNAL).opened() as folder:
            lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)
        try:
            # a file system without locks is no reason not to write
            with contextlib.suppress(*(OSError,) if kind == fcntl.LOCK_SH else ()):
                fcntl.flock(lock, kind)
            yield
        finally:
            os.close(lock)

    # ---- reading

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` over trajectory and t, read on demand and verified as it is read.

        `finished` says which trajectories are there; the others have NaN rows and the status -1. A file that is missing
        from a finished block is an error.
        """
        from .dataset import ensemble_dataset

        return ensemble_dataset(self)

    def read(
        self, column: BlockColumn, trajectories: np.ndarray, rows: np.ndarray, finished: set[int] | None = None
    ) -> np.ndarray:
        """Values of some trajectories at some rows; only the chunks that hold them are read."""
        done = self.finished_blocks() if finished is None else finished
        out = np.full((len(trajectories), len(rows), *column.shape), column.fill, column.numpy_dtype.newbyteorder("="))
        if not column.row_bytes or not out.size:
            return out
        for block in np.unique(trajectories // self.block):
            if int(block) not in done:
                continue
            here = np.flatnonzero(trajectories // self.block == block)
            for stretch in np.unique(rows // column.rows_per_file):
                when = np.flatnonzero(rows // column.rows_per_file == stretch)
                local = trajectories[here] - block * self.block, rows[when] - stretch * column.rows_per_file
                self._gather(column, int(block), int(stretch), local, out, (here, when))
        return out

    def _gather(
        self, column: BlockColumn, block: int, stretch: int, local: tuple[np.ndarray, np.ndarray], out: np.ndarray,
        places: tuple[np.ndarray, np.ndarray],
    ) -> None:  # fmt: skip
        (i, j), width = (local[0] // column.chunk, local[1] // column.rows_per_chunk), column.stored(block, stretch)[1]
        wanted = [(a, b) for a in np.unique(i) for b in np.unique(j)]
        found = column.read_file(self._root, block, stretch, [int(a * width + b) for a, b in wanted])
        for (a, b), chunk in zip(wanted, found):
            rows, times = np.flatnonzero(i == a), np.flatnonzero(j == b)
            some = chunk[np.ix_(local[0][rows] - a * column.chunk, local[1][times] - b * column.rows_per_chunk)]
            out[np.ix_(places[0][rows], places[1][times])] = some

    def coordinate(self, name: str) -> np.ndarray:
        """The times `t`, or one of the coordinates, verified."""
        column = next((c for c in self.fixed if c.name == name), None)
        if column is None:
            raise StoreDamagedError(f"{self.path}: {INTERNAL}/ensemble.json is damaged: it does not name {name}")
        return self._reader(column).read(slice(None))

    def _reader(self, column: Column) -> ColumnReader:
        return ColumnReader(self._root, column, self.rows if column.name == "t" else self.trajectories)

    def verify(self) -> list[str]:
        """Read everything; the names of the files that are missing or not as they were written."""
        bad = [name for block in sorted(self.finished_blocks()) for name in self._damaged(block)]
        for column in self.fixed:
            bad += self._reader(column).damaged_files()
        bad += damaged_nodes(self._root, (c.name for c in (*self.columns, *self.fixed)))
        return list(dict.fromkeys([*bad, *self._records.damaged(), *damaged_files(self._root)]))

    def _damaged(self, block: int) -> Iterator[str]:
        try:
            self.attachment(block)
        except StoreError:
            yield f"{INTERNAL}/blocks/{block:08d}.json"
        for column in self.columns:
            try:
                few = column.stretches > len((self._root / column.name).names())
            except StoreError:
                few = True
            if few:
                yield f"{column.name}/ (files of block {block} are missing)"
                continue
            for stretch in range(column.stretches):
                n, m = column.stored(block, stretch)
                try:
                    column.read_file(self._root, block, stretch, list(range(n * m)))
                except StoreError:
                    yield f"{column.name}/{column.file_name(block, stretch)}"

    def attachment(self, block: int) -> bytes:
        """The bytes that a finished block was given, verified; empty where there are none."""
        wanted = self._records.body(block).get("attachment")
        if wanted is None:
            return b""
        try:
            data = (self._root / INTERNAL / "blocks").read(f"{block:08d}.bin", MOST_ATTACHED)
        except OSError as error:
            where = f"{self.path}: {INTERNAL}/blocks/{block:08d}.bin"
            raise StoreDamagedError(f"{where} cannot be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != wanted:
            raise StoreDamagedError(f"{self.path}: {INTERNAL}/blocks/{block:08d}.bin is damaged: its SHA-256 differs")
        return data

    def attached_arrays(self, block: int) -> dict[str, np.ndarray]:
        """The attachment of a block as named arrays, none where there is no attachment."""
        data = self.attachment(block)
        try:
            return unpacked(data) if data else {}
        except ValueError as error:
            raise StoreDamagedError(f"{self.path}: {INTERNAL}/blocks/{block:08d}.bin is damaged: {error}") from error

    def file(self, name: str) -> bytes:
        """A file that the store was created with, as it was.

        If another of these files is hollow, a run cannot continue: it is refused here, where `holonomix resume` has not
        imported JAX yet.
        """
        refuse_hollow_files(self._root)
        return saved_file(self._root, name, MOST_ATTACHED)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """A file of named arrays that the store was created with."""
        try:
            return unpacked(self.file(name))
        except ValueError as error:
            raise StoreDamagedError(f"{self.path}/{name} is damaged: {error}") from error


def _value_key(name: str) -> str:
    return name if name.startswith(END) else f"{REDUCED}{name}"


def _column(key: str, spec: HasShape, trajectories: int, block: int, rows: int | None) -> BlockColumn:
    shape = tuple(spec.shape if rows is None else spec.shape[1:])
    return BlockColumn.of(key, np.dtype(spec.dtype), shape, dims_of(key, shape), trajectories, rows, block)


def _node(column: Column, count: int) -> dict[str, Any]:
    """The metadata of a fixed column: t has its own axis, the others go along the trajectories."""
    lead = "t" if column.name == "t" else "trajectory"
    return {**column.metadata(count), "dimension_names": [lead, *column.dims[1:]]}
