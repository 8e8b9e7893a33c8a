"""The store of a run: a Zarr directory that grows chunk by chunk and survives a kill at any instant.

    run1/
      zarr.json                 the group: shapes of all arrays, attributes; replaced in one rename
      t/ q/ p/ multipliers/ ..  the arrays
      run.toml, ..              what the run was started from (`files`)
      holonomix/
        format.json             the number of this layout
        status.json             how the run ended
        checkpoints/            NNNNNNNN.npz and .json

Rows become visible, and are safe, when the checkpoint that accounts for them is complete.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from . import checkpoints, directory, disk
from .checkpoints import Checkpoint
from .directory import FORMAT, is_store, version
from .environment import current_environment
from .errors import StoreDamagedError, StoreError, StoreNotFoundError
from .layout import INTERNAL, Column, as_json, column_name, group_metadata, scalar_attributes

__all__ = ["Store"]

log = logging.getLogger("holonomix")
ENVIRONMENT = "environment"  # the key in the run's description


class Store:
    """A run on disk, readable with `xarray.open_zarr(path)` at any moment; what `simulate(store=...)` writes to.

    `mode` is "create" (the path must be free), "resume" (a store must be there), "read", or "auto": resume what is
    there, else create. `files` are texts saved with a new store, such as the run file. Checkpoints closer together than
    `checkpoint_seconds` are skipped, except the last. `from_start=True` lets `restart` discard rows that no intact
    checkpoint accounts for.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: Literal["auto", "create", "resume", "read"] = "auto",
        *,
        files: Mapping[str, str | bytes] | None = None,
        chunk_bytes: int = 1 << 18,
        checkpoint_seconds: float = 1.0,
        from_start: bool = False,
    ) -> None:
        if mode not in ("auto", "create", "resume", "read"):
            raise StoreError(f"mode={mode!r}: choose 'auto', 'create', 'resume' or 'read'")
        self.path = Path(path)
        self.mode = mode
        self.rows = 0
        self.columns: tuple[Column, ...] = ()
        self.meta: dict[str, Any] = {}
        self._chunk_bytes = chunk_bytes
        self._checkpoint_seconds = checkpoint_seconds
        self._from_start = from_start
        self._buffers: dict[str, np.ndarray] = {}
        self._dirty: set[Path] = set()
        self._number = -1
        self._pending: tuple[dict[str, np.ndarray], dict[str, Any]] | None = None
        self._last_checkpoint = -float("inf")
        self._started = False
        self._lock: int | None = None
        if mode == "create" or (mode == "auto" and not is_store(self.path)):
            self._lock = directory.create(self.path, files or {})
            self._started = True
        else:
            self._open()

    # ---- the driver's side: holonomix.types.Sink

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
        values = self._checked(rows)
        with self._writing():
            if not self.columns:
                self._lay_out(values)
            self._pending = None
            count = len(next(iter(values.values()))) if values else 0
            per_chunk = self._rows_per_chunk
            done = 0
            while done < count:
                filled = self.rows % per_chunk
                take = min(per_chunk - filled, count - done)
                for column in self.columns:
                    self._buffers[column.name][filled : filled + take] = values[column.key][done : done + take]
                self.rows += take
                done += take
                if self.rows % per_chunk == 0:
                    for column in self.columns:
                        self._write_chunk(column, self.rows // per_chunk - 1)
                        self._buffers[column.name] = column.blank()

    def checkpoint(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Record the complete state after the rows appended so far, and show those rows to readers."""
        with self._writing():
            self._pending = ({k: np.array(v) for k, v in arrays.items()}, json.loads(as_json(meta)))
            if time.monotonic() - self._last_checkpoint >= self._checkpoint_seconds:
                self._commit(*self._pending)

    def close(self, meta: dict[str, Any] | None = None) -> None:
        """Record how the run ended and let go of the store. Safe to call twice, and after an error."""
        if self._lock is None:
            return
        if self._started:
            with self._writing():
                if self._pending is not None:
                    self._commit(*self._pending)
                self._write_tail()
                self._publish("closed", meta or {})
        self.release()

    # ---- the reader's side

    @property
    def format(self) -> int:
        """The number of the layout that the store was written in."""
        return directory.read_format(self.path)

    @property
    def status(self) -> dict[str, Any]:
        """How the run ended, as given to `close`, with `state` "running" (or killed) or "closed"."""
        return directory.read_json(self._internal / "status.json")

    @property
    def environment(self) -> dict[str, str]:
        """What the bits of the rows depend on, as recorded by `begin` (see `holonomix.io.environment`).

        Known in a store that is open for reading, and after `restart`. Empty in stores of older versions.
        """
        recorded = self.meta.get(ENVIRONMENT)
        return {str(k): str(v) for k, v in recorded.items()} if isinstance(recorded, dict) else {}

    def dataset(self) -> Any:
        """The rows so far as an `xarray.Dataset`, loaded on demand."""
        import xarray

        return xarray.open_zarr(self.path, chunks=None)

    def load(self) -> dict[str, np.ndarray]:
        """All rows in memory, under the keys that they were appended with."""
        data = self.dataset()
        keys = {column.name: column.key for column in self.columns}
        return {keys.get(str(name), str(name)): data[name].values for name in data.variables}

    def verify(self) -> list[str]:
        """Every whole chunk against its checksum; the names of those that are damaged."""
        whole = self.rows // self._rows_per_chunk
        bad = [(c, i) for i in range(whole) for c in self.columns if not c.intact(self.path, i)]
        return [str(column.chunk_path(self.path, index).relative_to(self.path)) for column, index in bad]

    def file(self, name: str) -> bytes:
        """One of the files saved with the store."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise StoreDamagedError(f"{self.path / name} cannot be read: {error.strerror}") from error

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close({"status": "closed"} if kind is None else {"status": "interrupted", "error": kind.__name__})

    # ---- opening

    @property
    def _internal(self) -> Path:
        return self.path / INTERNAL

    @property
    def _checkpoints(self) -> Path:
        return self._internal / "checkpoints"

    def _open(self) -> None:
        if not is_store(self.path):
            what = "is not a holonomix store" if self.path.exists() else "does not exist"
            raise StoreNotFoundError(f"{self.path} {what}; a run makes one with `holonomix run ... --out {self.path}`")
        directory.read_format(self.path)
        if self.mode != "read":
            self._lock = directory.take_lock(self.path)
            return
        # the newest checkpoint describes the columns, whatever happened to the group's metadata
        for number in checkpoints.numbers(self._checkpoints):
            newest = checkpoints.load(self._checkpoints, number)
            if newest is not None:
                self.rows, self.columns, self.meta = newest.rows, newest.columns, newest.begin
                break

    # ---- writing

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A stretch of writing. If it is cut short, the object is of no more use; the directory is, to `restart`."""
        if self._lock is None:
            raise StoreError(f"{self.path} is {'open for reading' if self.mode == 'read' else 'closed'}")
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let go of the store without writing anything; it stays as its last checkpoint left it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __del__(self) -> None:
        if getattr(self, "_lock", None) is not None:
            self.release()

    @property
    def _rows_per_chunk(self) -> int:
        return self.columns[0].rows_per_chunk if self.columns else 1

    def _checked(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = {key: np.asarray(value) for key, value in rows.items()}
        if len({column_name(key) for key in values}) != len(rows):
            raise StoreError(f"two of the variables {sorted(rows)} would have the same name in the store")
        if any(v.ndim == 0 for v in values.values()) or len({len(v) for v in values.values()}) > 1:
            shapes = {key: v.shape for key, v in values.items()}
            raise StoreError(f"the arrays of one append need one common leading axis, the rows; got shapes {shapes}")
        if self.columns:
            want = {c.key: (c.shape, c.dtype) for c in self.columns}
            have = {key: (v.shape[1:], v.dtype.name) for key, v in values.items()}
            if want != have:
                differ = sorted(k for k in want.keys() | have.keys() if want.get(k) != have.get(k))
                lines = "; ".join(f"{k}: {have.get(k, 'missing')} instead of {want.get(k, 'nothing')}" for k in differ)
                raise StoreError(f"rows do not fit those already in {self.path}: {lines}")
        return values

    def _lay_out(self, values: Mapping[str, np.ndarray]) -> None:
        largest = max((v.dtype.itemsize * int(np.prod(v.shape[1:])) for v in values.values()), default=1)
        per_chunk = max(1, min(1 << 16, self._expected_rows(), self._chunk_bytes // max(1, largest)))
        dims = self.meta.get("dims") or {}
        self.columns = tuple(Column.of(key, v, per_chunk, dims.get(key)) for key, v in values.items())
        self._buffers = {column.name: column.blank() for column in self.columns}
        for column in self.columns:
            disk.make_directory(self.path / column.name)

    def _expected_rows(self) -> int:
        """How many rows will come, where the description says so: a short run then has small chunks."""
        rows, steps, every = (self.meta.get(name) for name in ("rows", "steps", "save_every"))
        if rows is None and isinstance(steps, int) and isinstance(every, int) and every > 0:
            rows = steps // every + 1
        return rows if isinstance(rows, int) and rows > 0 else 1 << 16

    def _write_chunk(self, column: Column, index: int) -> None:
        if column.row_bytes:
            path = column.chunk_path(self.path, index)
            disk.write_atomic(path, column.encode(self._buffers[column.name]), durable=False)
            self._dirty.add(path)

    def _write_tail(self) -> None:
        for column in self.columns:
            if self.rows % column.rows_per_chunk:
                self._write_chunk(column, self.rows // column.rows_per_chunk)

    def _commit(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        self._write_tail()
        for path in sorted(self._dirty):
            disk.sync(path)
        for parent in sorted({path.parent for path in self._dirty}):
            disk.sync(parent)
        self._dirty.clear()
        tail = {c.name: self._buffers[c.name][: self.rows % c.rows_per_chunk] for c in self.columns}
        checkpoint = Checkpoint(self._number + 1, self.rows, self.columns, arrays, tail, meta, self.meta)
        checkpoints.save(self._checkpoints, checkpoint)
        self._number += 1
        self._publish("running")
        checkpoints.prune(self._checkpoints, self._number)
        self._pending = None
        self._last_checkpoint = time.monotonic()

    def _publish(self, state: str, closing: Mapping[str, Any] | None = None) -> None:
        """Show `rows` rows to readers. The arrays' own metadata follows the group's: neither promises missing rows."""
        attributes = {
            **scalar_attributes(self.meta),
            **scalar_attributes({f"end_{k}": v for k, v in (closing or {}).items()}),
            "holonomix_format": FORMAT,
            "holonomix_version": version(),
        }
        for column in self.columns:
            disk.make_directory(self.path / column.name)
            disk.write_atomic(self.path / column.name / "zarr.json", as_json(column.metadata(self.rows)), durable=False)
        disk.write_atomic(self.path / "zarr.json", group_metadata(self.columns, self.rows, attributes), durable=False)
        status = as_json({**(closing or {}), "state": state, "rows": self.rows})
        disk.write_atomic(self._internal / "status.json", status, durable=closing is not None)

    # ---- after a kill

    def _go_back_to(self, found: Checkpoint) -> None:
        self.rows, self.columns, self.meta, self._number = found.rows, found.columns, dict(found.begin), found.number
        for column in self.columns:
            buffer = self._buffers[column.name] = column.blank()
            buffer[: len(found.tail[column.name])] = found.tail[column.name]
        # readers first: no instant at which they are promised a row that is gone
        self._publish("running")
        self._write_tail()
        checkpoints.prune(self._checkpoints, found.number)
        for column in self.columns:
            self._cut(column)

    def _newest_intact(self) -> Checkpoint | None:
        found = [checkpoints.load(self._checkpoints, number) for number in checkpoints.numbers(self._checkpoints)]
        candidates = [c for c in found if c is not None]
        if not candidates:
            return None
        newest = candidates[0]
        for bound in range(newest.rows // newest.columns[0].rows_per_chunk if newest.columns else 0):
            bad = next((c for c in newest.columns if not c.intact(self.path, bound)), None)
            if bad is not None:
                log.warning("%s is damaged: cutting back to before it", bad.chunk_path(self.path, bound))
                limit = bound * bad.rows_per_chunk
                return next((c for c in candidates if c.rows // bad.rows_per_chunk * bad.rows_per_chunk <= limit), None)
        return newest

    def _discard_all(self) -> None:
        """Back to an empty store: right after a kill before the first checkpoint, a loss otherwise."""
        if (checkpoints.numbers(self._checkpoints) or self._promised()) and not self._from_start:
            raise StoreDamagedError(
                f"no checkpoint of {self.path} is intact, so the run cannot continue from where it was. What can "
                "still be read stays as it is; to compute it again from its start in place, use `holonomix resume "
                f"{self.path} --from-start`"
            )
        self.rows, self.columns, self._number = 0, (), -1
        self._publish("running")
        checkpoints.prune(self._checkpoints, None)
        for path in [self.path / name for name in os.listdir(self.path)]:
            if path.is_dir() and path.name != INTERNAL and all(_ours(name) for name in os.listdir(path)):
                disk.remove_tree(path)

    def _promised(self) -> int:
        """The rows that the group's metadata shows to readers."""
        with contextlib.suppress(StoreError, KeyError, TypeError, AttributeError):
            arrays = directory.read_json(self.path / "zarr.json")["consolidated_metadata"]["metadata"]
            return max((array["shape"][0] for array in arrays.values()), default=0)
        return 0

    def _cut(self, column: Column) -> None:
        """Remove the column's chunks after the checkpoint, and unfinished files."""
        used = -(-self.rows // column.rows_per_chunk)
        keep = {column.chunk_path(self.path, i).name for i in range(used)} | {"zarr.json"}
        for path in (self.path / column.name).iterdir():
            if path.name not in keep:
                disk.remove(path)


def _ours(name: str) -> bool:
    """Whether a file in an array's folder is one that the store writes."""
    return name.removeprefix(".").startswith(("c.", "zarr.json"))
