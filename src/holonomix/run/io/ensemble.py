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

import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from ...core.checks import short_repr
from ...core.columns import END, REDUCED, STATUS, TIME, TRAJECTORY, dims_of
from . import directory
from .abstract import AbstractStore
from .arrays import unpacked
from .blocks import MAX_BLOCKS, BlockRecords, block_size
from .chunks import ColumnReader, ColumnWriter, RowWriter
from .directory import FORMAT, MAX_FILE_BYTES, version
from .disk import Folder, as_path
from .environment import current_environment
from .errors import StoreBusyError, StoreDamagedError, StoreError
from .layout import INTERNAL, MAX_ROWS, Column, group_metadata, whole_number
from .text import MAX_JSON_BYTES, read_signed, scalar_attributes, sign

if TYPE_CHECKING:
    import xarray

MAX_TRAJECTORIES = 1 << 27  # of a store
MAX_UNCHECKED_ROWS = 1 << 22  # numbering more rows than this takes memory, so the files are looked at first
_UNFINISHED = re.compile(r"\.(c(\.\d+)+|\d{8}\.(json|bin)|(blocks|status)\.json)\.[0-9a-f]{12}\.tmp")


@runtime_checkable
class HasShape(Protocol):
    """An array, or what describes one, such as `jax.ShapeDtypeStruct`."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...


class StorePlace(NamedTuple):
    """The path of a store, and files to save with a new one, such as the run file of a sweep."""

    path: Path
    files: Mapping[str, str | bytes]


class EnsembleStore(AbstractStore):
    """An ensemble on disk. `create` makes one, `EnsembleStore(path)` opens it, in this process or another."""

    kind: ClassVar[str] = "ensemble"
    max_file_bytes: ClassVar[int] = MAX_FILE_BYTES

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._locate(path)
        self._check_kind()
        try:
            body = read_signed((self._root / INTERNAL).read("ensemble.json", MAX_JSON_BYTES))
            self.columns = tuple(Column.from_dict(entry, ensemble=True) for entry in body["columns"])
            self.fixed = tuple(_fixed(Column.from_dict(entry)) for entry in body["fixed"])
            self.trajectories = whole_number(body["trajectories"], 1, MAX_TRAJECTORIES)
            self.rows = whole_number(body["rows"], 0, MAX_ROWS)
            self.block = whole_number(body["block"], 1, MAX_TRAJECTORIES)
            whole_number(self.blocks, 0, MAX_BLOCKS)
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
        if self.rows <= MAX_UNCHECKED_ROWS:
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

        `rows` and `reductions` give the shapes and types of ONE trajectory: rows of shape (rows, ...), all with the
        same number, and values of any shape (those called `end/...` keep that name). `t` are the times of the rows, if
        the trajectories share them. `coordinates` are values per trajectory, such as the parameters of a sweep. `meta`
        is the description of the run.
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
        if trajectories > MAX_TRAJECTORIES or -(-trajectories // block) > MAX_BLOCKS:
            raise StoreError(
                f"{trajectories} trajectories in blocks of {block}: a store holds at most {MAX_TRAJECTORIES} "
                f"trajectories in {MAX_BLOCKS} blocks; use larger blocks or several stores"
            )
        made = [_column(key, spec, trajectories, block, count) for key, spec in rows.items()]
        made += [_column(key, spec, trajectories, block, None) for key, spec in reduced.items()]
        made.append(_column(STATUS, np.empty((), np.int32), trajectories, block, None))
        if coordinates is not None and not isinstance(coordinates, Mapping):
            raise StoreError(f"coordinates must be a dictionary of arrays, not {short_repr(coordinates)}")
        fixed = {key: np.asarray(x) for key, x in (coordinates or {}).items()}
        if any(x.ndim == 0 or len(x) != trajectories for x in fixed.values()):
            raise StoreError(f"the coordinates of an ensemble need {trajectories} values, one per trajectory")
        fixed |= {} if t is None else {"t": np.asarray(t)}
        places = [_fixed(Column.for_run(key, x, dims_of(key, x.shape[1:]))) for key, x in fixed.items()]
        names = [c.name for c in (*made, *places)]
        if len({*names, "finished"}) != len(names) + 1:
            raise StoreError(f"two of the variables {sorted(names)} would have the same name in the store")
        described = json.loads(json.dumps(dict(meta or {}), default=str))
        body = {
            "trajectories": trajectories, "rows": count, "block": block, "meta": described,
            "environment": current_environment(),
            "columns": [c.as_dict() for c in made], "fixed": [c.as_dict() for c in places],
        }  # fmt: skip

        def fill(aside: Folder) -> None:
            nodes = {c.name: c.metadata(count) for c in made}
            for column in made:
                ColumnWriter(aside, column).publish(count, durable=True)
            for column, values in zip(places, fixed.values()):
                nodes[column.name] = column.metadata(len(values))
                writer = ColumnWriter(aside, column)
                writer.publish(len(values), durable=True)
                writer.append(values[None])
                writer.flush()
                writer.sync()
            attributes = {**scalar_attributes(described), "holonomix_format": FORMAT, "holonomix_version": version()}
            aside.write("zarr.json", group_metadata(nodes, attributes))
            (aside / INTERNAL / "blocks").make()
            (aside / INTERNAL).write("ensemble.json", sign(body))

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
        self.bounds(block)
        series = RowWriter(self._root, (c for c in self.columns if c.rows is not None), block, unique=True)
        single = RowWriter(self._root, (c for c in self.columns if c.rows is None), block, unique=True)
        total = self.rows if series.writers else 0
        parts = cast(Iterable[Mapping[str, np.ndarray]], [rows] if isinstance(rows, Mapping) else rows)
        with directory.shared_lock(self._root):
            for part in parts:
                series.append({key: np.asarray(x) for key, x in part.items()})
            if series.rows != total:
                raise StoreError(f"the block has {series.rows} of the {total} rows of its ensemble")
            series.commit()
            reductions, statuses, attached = end()
            values = {STATUS: np.asarray(statuses, np.int32)}
            values |= {_value_key(name): np.asarray(x) for name, x in reductions.items()}
            single.append({key: x.reshape(*x.shape[:1], 1, *x.shape[1:]) for key, x in values.items()})
            single.commit()
            self._records.save(block, values[STATUS], attached)

    def missing_blocks(self, *, verify: bool = False) -> list[int]:
        """The blocks that are still to be written; `verify=True` reads all others, and adds those that are damaged."""
        done = self.finished_blocks()
        bad = {block for block in done if self._records.is_damaged(block)} if verify else set()
        for column in self.columns if verify else ():
            bad |= self._reader(column, done).damaged_blocks()
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
        """Repair what killed processes left: remove unfinished files, and complete the list of finished blocks.

        Returns False, without any change, while another process is writing.
        """
        try:
            lock = directory.take_lock(self._root)
        except StoreBusyError:
            return False
        try:
            inside = self._root / INTERNAL
            for place in [*(self._root / c.name for c in self.columns), inside / "blocks", inside]:
                for name in filter(_UNFINISHED.fullmatch, place.names()):
                    place.remove(name)
            directory.mend(self._root)
            self._records.list_all()  # a kill may have come between the last block and the list
        finally:
            os.close(lock)
        return True

    # ---- reading

    def to_xarray(self) -> xarray.Dataset:
        """An `xarray.Dataset` over trajectory and t, read on demand and verified as it is read.

        `finished` says which trajectories are there; the others have NaN rows and the status -1. A file that is missing
        from a finished block is an error.
        """
        finished = np.zeros(self.trajectories, bool)
        for block in self.finished_blocks():
            finished[slice(*self.bounds(block))] = True
        data = self._lazy_dataset({c.name for c in self.fixed}, scalar_attributes(self.meta))
        return data.assign(finished=(TRAJECTORY, finished))

    def read(
        self, column: Column, trajectories: np.ndarray, rows: np.ndarray, finished: set[int] | None = None
    ) -> np.ndarray:
        """Values of shape (trajectories, rows, ...); only the chunks that hold them are read."""
        done = self.finished_blocks() if finished is None else finished
        return self._reader(column, done).gather(trajectories, rows)

    def coordinate(self, name: str) -> np.ndarray:
        """The times `t`, or one of the coordinates, verified."""
        column = next((c for c in self.fixed if c.name == name), None)
        if column is None:
            raise StoreDamagedError(f"{self.path}: {INTERNAL}/ensemble.json is damaged: it does not name {name}")
        return self._reader(column).read()

    def _now(self) -> EnsembleStore:
        return self

    def _readers(self) -> list[ColumnReader]:
        done = self.finished_blocks()
        return [*(self._reader(c, done) for c in self.columns), *(self._reader(c) for c in self.fixed)]

    def _reader(self, column: Column, finished: Collection[int] = (0,)) -> ColumnReader:
        if column.trajectories is None:  # a coordinate
            return ColumnReader(self._root, column, self.rows if column.name == TIME else self.trajectories)
        return ColumnReader(self._root, column, 1 if column.rows is None else column.rows, finished)

    def _damaged_records(self) -> list[str]:
        return self._records.damaged()

    def attachment(self, block: int) -> bytes:
        """The bytes that a finished block was given, verified; empty where there are none."""
        return self._records.attachment(block)

    def attached_arrays(self, block: int) -> dict[str, np.ndarray]:
        """The attachment of a block as named arrays, none where there is no attachment."""
        data = self.attachment(block)
        try:
            return unpacked(data) if data else {}
        except ValueError as error:
            raise StoreDamagedError(f"{self.path}: {INTERNAL}/blocks/{block:08d}.bin is damaged: {error}") from error


def _value_key(name: str) -> str:
    return name if name.startswith(END) else f"{REDUCED}{name}"


def _column(key: str, spec: HasShape, trajectories: int, block: int, rows: int | None) -> Column:
    shape = tuple(spec.shape if rows is None else spec.shape[1:])
    return Column.for_ensemble(key, np.dtype(spec.dtype), shape, trajectories, rows, block)


def _fixed(column: Column) -> Column:
    """A coordinate: t has its own axis, the others go along the trajectories."""
    return column if column.name == TIME else column.along(TRAJECTORY)
