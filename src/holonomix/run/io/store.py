"""The store of a run: a Zarr directory that grows chunk by chunk and is intact after a kill at any instant.

    run1/
      zarr.json                 the group: shapes of all arrays, attributes; replaced in one rename
      t/ q/ p/ multipliers/ ..  the arrays
      run.toml, ..              what the run was started from (`files`)
      holonomix/
        format.json             the number of this layout
        status.json             which rows and columns there are, and how the run ended
        checkpoints/            NNNNNNNN.npz and .json

Rows become visible, and are safe, when the checkpoint that accounts for them is complete. What is read through this
module agrees with its checksums, or the reading fails with the name of the damaged file.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from . import directory
from .abstract import AbstractStore, log
from .checkpoints import Checkpoint, Checkpoints, numbers_to_keep
from .chunks import ColumnReader, RowWriter, remove_column
from .directory import FORMAT, STATUS_FILE, version
from .environment import current_environment
from .errors import StoreDamagedError, StoreError, StoreVersionError
from .layout import (
    CHUNK_BYTES,
    INTERNAL,
    MAX_ROWS,
    SHARD_BYTES,
    Column,
    column_name,
    columns_from,
    group_metadata,
    whole_number,
)
from .text import MAX_JSON_BYTES, as_json, read_json, read_signed, scalar_attributes, sign

if TYPE_CHECKING:
    import xarray

ENVIRONMENT = "environment"  # the key in the run's description
CHECKPOINT_SPARING = 20.0  # checkpoints take at most one part in so many of the time


class Store(AbstractStore):
    """A run on disk, readable with `xarray.open_zarr(path)` at any moment; what `simulate(store=...)` writes to.

    `mode` is "create" (the path must be free), "resume" (a store must be there), "read", or "auto": resume what is
    there, else create. `files` are texts saved with a new store, such as the run file. Checkpoints closer together than
    `checkpoint_seconds` are skipped, except the last. `from_start=True` lets `restart` discard rows that no intact
    checkpoint accounts for. Each variable is cut into chunks of about `chunk_bytes`, and chunks are gathered into files
    of up to `shard_bytes`.
    """

    kind: ClassVar[str] = "run"
    max_file_bytes: ClassVar[int] = MAX_JSON_BYTES

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: Literal["auto", "create", "resume", "read"] = "auto",
        *,
        files: Mapping[str, str | bytes] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        shard_bytes: int = SHARD_BYTES,
        checkpoint_seconds: float = 1.0,
        from_start: bool = False,
    ) -> None:
        if mode not in ("auto", "create", "resume", "read"):
            raise StoreError(f"mode={mode!r}: choose 'auto', 'create', 'resume' or 'read'")
        self._locate(path)
        self.mode = mode
        self.rows = 0
        self.columns = ()
        self.meta = {}
        self.attributes: dict[str, Any] = {}
        self.named_checkpoints: frozenset[int] = frozenset()  # in the status; that of older versions names none
        self._checkpoints = Checkpoints(self._root)
        self._sizes = {"chunk_bytes": chunk_bytes, "shard_bytes": shard_bytes}
        self._checkpoint_seconds = self._spacing = checkpoint_seconds
        self._from_start = from_start
        self._writer = RowWriter(self._root, ())
        self._number = -1
        self._pending: tuple[dict[str, np.ndarray], dict[str, Any]] | None = None
        self._last_checkpoint = -float("inf")
        self._started = False
        self._lock: int | None = None
        if mode == "create" or (mode == "auto" and not directory.is_store(self.path)):
            self._lock = directory.create(self.path, files or {})
            self._started = True
        else:
            self._open()

    # ---- the driver's side: holonomix.core.types.Sink

    def restart(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The newest checkpoint whose rows are all intact; rows and checkpoints after it are cut off."""
        with self._writing():
            found = self._newest_intact()
            if found is None:
                self._discard_all()
            else:
                self._go_back_to(found)
            self._started = True
        return None if found is None else (dict(found.arrays), dict(found.meta))

    def begin(self, meta: dict[str, Any]) -> None:
        """Start a fresh run with its description.

        `meta["dims"]` may name the axes of a variable, `meta["rows"]` say how many rows will come.
        """
        if self.rows or not self._started:
            raise StoreError(f"{self.path} already holds rows: begin() is for a fresh run, after restart() said so")
        with self._writing():
            self.meta = json.loads(as_json({**meta, ENVIRONMENT: current_environment()}))
            self._publish("running")

    def append(self, rows: dict[str, np.ndarray]) -> None:
        """Add rows; the leading axis of every array counts them."""
        if not self._started:
            raise StoreError(f"call restart() before adding rows to {self.path}")
        values = self._check_rows(rows)
        with self._writing():
            if not self.columns:
                self._lay_out(values)
            self._pending = None
            self._writer.append(values)
            self.rows = self._writer.rows

    def checkpoint(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Record the complete state after the rows appended so far, and show those rows to readers."""
        with self._writing():
            self._pending = ({k: np.array(v) for k, v in arrays.items()}, json.loads(as_json(meta)))
            if time.monotonic() - self._last_checkpoint >= self._spacing:
                self._commit(*self._pending)

    def close(self, meta: dict[str, Any] | None = None) -> None:
        """Record how the run ended and release the lock. Safe to call twice, and after an error."""
        if self._lock is None:
            return
        if self._started:
            with self._writing():
                if self._pending is not None:
                    self._commit(*self._pending)
                self._writer.commit()
                self._publish("closed", meta or {})
        self.release()

    # ---- the reader's side

    @property
    def status(self) -> dict[str, Any]:
        """The end of the run, as given to `close`, with `state` "running" (or killed) or "closed"."""
        entry = read_json(self._root / INTERNAL, STATUS_FILE)
        return {k: v for k, v in entry.items() if k not in ("sha256", "columns", "attributes", "begin", "checkpoints")}

    @property
    def environment(self) -> dict[str, str]:
        """What the bits of the rows depend on, as recorded by `begin` (see `holonomix.run.io.environment`).

        Known in a store that is open for reading, and after `restart`. Empty in stores of older versions.
        """
        recorded = self.meta.get(ENVIRONMENT)
        return {str(k): str(v) for k, v in recorded.items()} if isinstance(recorded, dict) else {}

    def dataset(self) -> xarray.Dataset:
        """The rows so far as an `xarray.Dataset`, read on demand and verified as they are read."""
        shown = self._shown()
        return shown._lazy_dataset({"t"}, shown.attributes)

    def load(self) -> dict[str, np.ndarray]:
        """All rows in memory, verified, under the keys that they were appended with."""
        return {reader.column.key: reader.read() for reader in self._shown()._readers()}

    def save_file(self, name: str, data: bytes) -> None:
        """Replace one of the files saved with the store."""
        with self._writing():
            directory.replace_file(self._root, name, data)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close({"status": "closed"} if kind is None else {"status": "interrupted", "error": kind.__name__})

    # ---- opening

    def _open(self) -> None:
        self._check_kind()
        number = self.format
        if self.mode == "read":
            self._describe(number)
            return
        if number != FORMAT:
            raise StoreVersionError(
                f"{self.path} is in store format {number}, which can be read, viewed and exported but not continued by "
                "this version: install the holonomix that wrote it, or run it again in another directory"
            )
        if not self._from_start and self._checkpoints.all_forged():
            raise self._no_checkpoint()  # known from the sizes, before `holonomix resume` imports JAX
        self._lock = directory.take_lock(self._root)
        directory.mend(self._root)

    def _describe(self, number: int) -> None:
        """Read the rows and columns that exist from the status; if it is damaged, from a checkpoint."""
        if number == 1:
            self._describe_format_1()
            return
        try:
            body = read_signed((self._root / INTERNAL).read(STATUS_FILE, MAX_JSON_BYTES))
            self.rows, self.columns = whole_number(body["rows"], 0, MAX_ROWS), columns_from(body["columns"])
            self.named_checkpoints = frozenset(whole_number(n, 0, 10**8) for n in body.get("checkpoints", ()))
            self.attributes, self.meta = dict(body["attributes"]), dict(body.get("begin", {}))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, StoreError) as error:
            newest = next(self._checkpoints.intact(), None)
            if newest is None:
                where = f"{self._root / INTERNAL}/{STATUS_FILE}"
                raise StoreDamagedError(f"{where} is damaged or missing: {error}") from error
            self.rows, self.columns, self.meta = newest.rows, newest.columns, newest.begin
            self.attributes, self.named_checkpoints = scalar_attributes(newest.begin), frozenset()

    def _describe_format_1(self) -> None:
        """A store of the first format: shapes from the group's metadata, keys from a checkpoint."""
        node, newest = read_json(self._root, "zarr.json"), next(self._checkpoints.intact(), None)
        try:
            inside = node["consolidated_metadata"]["metadata"]
            found = [Column.from_metadata(str(name), array) for name, array in inside.items()]
            self.attributes = scalar_attributes(node["attributes"])
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, StoreError) as error:
            raise StoreDamagedError(f"{self.path}/zarr.json is damaged: {error}") from error
        rows = {count for _, count in found}
        shapes = {(c.name, c.shape, c.dtype) for c, _ in found}
        self.columns = tuple(c for c, _ in found) if newest is None else newest.columns
        if len(rows) > 1 or {(c.name, c.shape, c.dtype) for c in self.columns} != shapes:
            raise StoreDamagedError(f"{self.path}/zarr.json is damaged: the arrays do not agree on the rows")
        self.rows, self.meta = rows.pop() if rows else 0, newest.begin if newest else {}

    def _now(self) -> Store:
        return Store(self.path, "read")

    def _shown(self) -> Store:
        """The rows visible to readers; a store that is open for reading shows those that existed when it was opened."""
        return self if self.mode == "read" else self._now()

    def _readers(self) -> list[ColumnReader]:
        return [ColumnReader(self._root, column, self.rows) for column in self.columns]

    def _damaged_records(self) -> list[str]:
        inside = self._root / INTERNAL
        status = [f"{INTERNAL}/{STATUS_FILE}"] if self.format > 1 and directory.is_damaged(inside, STATUS_FILE) else []
        try:
            bad, there = self._checkpoints.damaged(), set(self._checkpoints.numbers())  # a run removes old ones
        except StoreError:
            return [*status, f"{INTERNAL}/checkpoints"]
        lost = self.named_checkpoints - there
        if lost:  # the status stops naming a checkpoint before it is removed
            lost &= self._now().named_checkpoints
        found = {number: f"{number:08d}" for number in bad & there} | {number: f"{number:08d}.json" for number in lost}
        return status + [f"{INTERNAL}/checkpoints/{found[number]}" for number in sorted(found, reverse=True)]

    # ---- writing

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock while writing. After an error the object is closed; a new one can `restart` the run."""
        if self._lock is None:
            raise StoreError(f"{self.path} is {'open for reading' if self.mode == 'read' else 'closed'}")
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock without writing anything; the store stays as its last checkpoint left it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __del__(self) -> None:
        if getattr(self, "_lock", None) is not None:
            self.release()

    def _check_rows(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = {key: np.asarray(value) for key, value in rows.items()}
        if len({column_name(key) for key in values}) != len(rows):
            raise StoreError(f"two of the variables {sorted(rows)} would have the same name in the store")
        if any(v.ndim == 0 for v in values.values()) or len({len(v) for v in values.values()}) > 1:
            shapes = {key: v.shape for key, v in values.items()}
            raise StoreError(f"the arrays of one append need one common leading axis, the rows; got shapes {shapes}")
        values = {key: v[None] for key, v in values.items()}
        if self.columns:
            self._writer.check(values)
        return values

    def _lay_out(self, values: Mapping[str, np.ndarray]) -> None:
        dims, rows = self.meta.get("dims") or {}, self._expected_rows()
        sizes = {"expected_rows": rows, **self._sizes}
        self.columns = tuple(Column.for_run(key, v[0], dims.get(key), **sizes) for key, v in values.items())
        self._writer = RowWriter(self._root, self.columns)
        for column in self.columns:
            (self._root / column.name).make()

    def _expected_rows(self) -> int:
        """The expected number of rows, if the description has it; a short run then has small chunks."""
        rows, steps, every = (self.meta.get(name) for name in ("rows", "steps", "save_every"))
        if rows is None and isinstance(steps, int) and isinstance(every, int) and every > 0:
            rows = steps // every + 1
        return rows if isinstance(rows, int) and rows > 0 else MAX_ROWS

    def _commit(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        began = time.monotonic()
        self._writer.commit()
        tails = {writer.column.name: writer.tail for writer in self._writer.writers}
        self._checkpoints.save(Checkpoint(self._number + 1, self.rows, self.columns, arrays, tails, meta, self.meta))
        self._number += 1
        self._publish("running")
        self._checkpoints.prune(self._number)
        self._pending = None
        self._last_checkpoint = time.monotonic()
        if self._checkpoint_seconds:
            self._spacing = max(self._checkpoint_seconds, CHECKPOINT_SPARING * (self._last_checkpoint - began))

    def _publish(
        self, state: str, closing: Mapping[str, Any] | None = None, damaged: Collection[int] = frozenset()
    ) -> None:
        """Make the rows written so far visible to readers: write the metadata of arrays, the group's, and the status.

        The status names the checkpoints that `prune` will keep, so that `verify` notices a lost one.
        """
        attributes = {
            **scalar_attributes(self.meta),
            **scalar_attributes({f"end_{k}": v for k, v in (closing or {}).items()}),
            "holonomix_format": FORMAT,
            "holonomix_version": version(),
        }
        for writer in self._writer.writers:
            writer.publish(self.rows)
        nodes = {column.name: column.metadata(self.rows) for column in self.columns}
        self._root.write("zarr.json", group_metadata(nodes, attributes), durable=False)
        columns = [column.as_dict() for column in self.columns]
        named = sorted(numbers_to_keep(self._number).intersection(self._checkpoints.numbers()).difference(damaged))
        body = {"state": state, "rows": self.rows, "columns": columns, "checkpoints": named}
        body |= {"attributes": attributes, "begin": self.meta}
        status = sign({**json.loads(as_json(closing or {})), **body})
        (self._root / INTERNAL).write(STATUS_FILE, status, durable=closing is not None)

    # ---- after a kill

    def _go_back_to(self, found: Checkpoint) -> None:
        self.rows, self.columns, self.meta, self._number = found.rows, found.columns, dict(found.begin), found.number
        self._writer = RowWriter(self._root, self.columns)
        self._writer.go_back_to(found.rows, found.tail)
        # the status first, because it must never name a missing row
        damaged = self._checkpoints.damaged()
        self._publish("running", damaged=damaged)
        for writer in self._writer.writers:
            writer.flush()
        self._checkpoints.prune(found.number, damaged)
        for writer in self._writer.writers:
            writer.cut()

    def _newest_intact(self) -> Checkpoint | None:
        candidates = list(self._checkpoints.intact())
        if not candidates:
            return None
        newest = candidates[0]
        intact = {c.name: ColumnReader(self._root, c, newest.rows).intact_rows() for c in newest.columns}
        for found in candidates:
            short = [c for c in found.columns if intact.get(c.name, 0) < found.rows - found.rows % c.rows_per_chunk]
            if not short:
                return found
            log.warning("%s of %s is damaged: cutting back to before it", short[0].name, self.path)
        return None

    def _discard_all(self) -> None:
        """Empty the store. Rows are lost unless the run was killed before its first checkpoint."""
        found = self._checkpoints.numbers()
        if (found or self._may_hold_rows()) and not self._from_start:
            raise self._no_checkpoint()
        self.rows, self.columns, self._number, self._writer = 0, (), -1, RowWriter(self._root, ())
        self._publish("running", damaged=found)
        self._checkpoints.prune(None)
        for name in self._root.names():
            if name != INTERNAL and self._root.is_directory(name):
                remove_column(self._root, name)

    def _no_checkpoint(self) -> StoreDamagedError:
        return StoreDamagedError(
            f"no checkpoint of {self.path} is intact, so the run cannot continue from where it was. What can "
            "still be read stays as it is; to compute it again from its start in place, use `holonomix resume "
            f"{self.path} --from-start`"
        )

    def _may_hold_rows(self) -> bool:
        """Whether the store has rows; True also if the files that describe them are damaged."""
        try:
            return self._now().rows > 0
        except StoreError:
            return True
