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
import fcntl
import json
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from . import checkpoints, disk
from .checkpoints import Checkpoint
from .errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreVersionError,
)
from .layout import INTERNAL, Column, as_json, column_name, group_metadata, scalar_attributes

__all__ = ["FORMAT", "Store", "is_store"]

FORMAT = 1
log = logging.getLogger("holonomix")


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a directory looks like a store of ours, whole or damaged."""
    inside = Path(path) / INTERNAL
    return (inside / "format.json").exists() or (inside / "checkpoints").is_dir()


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
        chunk_bytes: int = 1 << 20,
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
        self._torn = False
        self._lock: int | None = None
        if mode == "create" or (mode == "auto" and not is_store(self.path)):
            self._create(files or {})
        else:
            self._open()

    # ---- the driver's side: holonomix.types.Sink

    def restart(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The newest checkpoint whose rows are all intact; rows and checkpoints after it are cut off."""
        self._require_writer()
        found = self._newest_intact()
        if found is None:
            self._discard_all()
            return None
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
        return dict(found.arrays), dict(found.meta)

    def begin(self, meta: dict[str, Any]) -> None:
        """Start a fresh run with its description; `meta["dims"]` may name the axes of a variable."""
        self._require_writer()
        if self.rows:
            raise StoreError(f"{self.path} already holds {self.rows} rows: begin() is for a fresh run")
        self.meta = json.loads(as_json(meta))
        self._publish("running")

    def append(self, rows: dict[str, np.ndarray]) -> None:
        """Add rows; the leading axis of every array counts them."""
        self._require_writer()
        values = self._checked(rows)
        if not self.columns:
            self._lay_out(values)
        self._torn, self._pending = True, None
        count = len(next(iter(values.values()))) if values else 0
        per_chunk = self.columns[0].rows_per_chunk if self.columns else 1
        done = 0
        while done < count:
            filled = self.rows % per_chunk
            take = min(per_chunk - filled, count - done)
            for column in self.columns:
                self._buffers[column.name][filled : filled + take] = values[column.name][done : done + take]
            self.rows += take
            done += take
            if self.rows % per_chunk == 0:
                for column in self.columns:
                    self._write_chunk(column, self.rows // per_chunk - 1)
                    self._buffers[column.name] = column.blank()
        self._torn = False

    def checkpoint(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Record the complete state after the rows appended so far, and show those rows to readers."""
        self._require_writer()
        self._pending = ({k: np.array(v) for k, v in arrays.items()}, json.loads(as_json(meta)))
        if time.monotonic() - self._last_checkpoint >= self._checkpoint_seconds:
            self._commit()

    def close(self, meta: dict[str, Any] | None = None) -> None:
        """Record how the run ended and let go of the store. Safe to call twice."""
        if self._lock is None:
            return
        try:
            if not self._torn:
                if self._pending is not None:
                    self._commit()
                self._write_tail()
                self._publish("closed", meta or {})
        finally:
            os.close(self._lock)
            self._lock = None

    # ---- the reader's side

    @property
    def format(self) -> int:
        """The number of the layout that the store was written in."""
        return self._read_format()

    @property
    def status(self) -> dict[str, Any]:
        """How the run ended, as given to `close`, with `state` "running" (or killed) or "closed"."""
        return self._read_json(self._internal / "status.json")

    def dataset(self) -> Any:
        """The rows so far as an `xarray.Dataset`, loaded on demand."""
        import xarray

        return xarray.open_zarr(self.path, chunks=None)

    def verify(self) -> list[str]:
        """Every whole chunk against its checksum; the names of those that are damaged."""
        per_chunk = self.columns[0].rows_per_chunk if self.columns else 1
        whole = self.rows // per_chunk
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

    def _create(self, saved: Mapping[str, str | bytes]) -> None:
        if is_store(self.path):
            raise StoreExistsError(
                f"{self.path} already holds a run: continue it with `holonomix resume {self.path}`, or choose another "
                "directory"
            )
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise StoreExistsError(f"{self.path} exists and is not an empty directory; choose another one")
        # built aside and renamed, so that the path holds nothing or a whole store
        disk.make_directory(self.path.absolute().parent)
        with disk.translated(self.path):
            aside = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.new-", dir=self.path.absolute().parent))
            aside.chmod(0o755)
        disk.make_directory(aside / INTERNAL / "checkpoints")
        disk.write_atomic(aside / INTERNAL / "format.json", as_json({"format": FORMAT, "holonomix": _version()}))
        disk.write_atomic(aside / INTERNAL / "zarr.json", as_json({"zarr_format": 3, "node_type": "group", "attributes": {}}))
        disk.write_atomic(aside / INTERNAL / "status.json", as_json({"state": "new"}))
        disk.write_atomic(aside / "zarr.json", group_metadata((), 0, {"holonomix_format": FORMAT}))
        for name, text in saved.items():
            disk.write_atomic(aside / name, text.encode() if isinstance(text, str) else text)
        lock = _take_lock(aside / INTERNAL / "lock", self.path)
        try:
            with disk.translated(self.path):
                disk.rename(aside, self.path)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _open(self) -> None:
        if not is_store(self.path):
            what = "is not a holonomix store" if self.path.exists() else "does not exist"
            raise StoreNotFoundError(f"{self.path} {what}; a run makes one with `holonomix run ... --out {self.path}`")
        self._read_format()
        if self.mode != "read":
            self._lock = _take_lock(self._internal / "lock", self.path)
            return
        # the newest checkpoint describes the columns, whatever happened to the group's metadata
        for number in checkpoints.numbers(self._checkpoints):
            newest = checkpoints.load(self._checkpoints, number)
            if newest is not None:
                self.rows, self.columns, self.meta = newest.rows, newest.columns, newest.begin
                break

    def _read_format(self) -> int:
        entry = self._read_json(self._internal / "format.json")
        number = entry.get("format")
        if not isinstance(number, int) or number < 1:
            raise StoreDamagedError(
                f"{self._internal / 'format.json'} is damaged: it should name the store's format, as in "
                f'{{"format": {FORMAT}}} for stores written by this version'
            )
        if number > FORMAT:
            raise StoreVersionError(
                f"{self.path} is in store format {number}, written by holonomix {entry.get('holonomix', '?')}; this is "
                f"holonomix {_version()}, which reads formats up to {FORMAT}. Install a newer version to read it"
            )
        return number

    @staticmethod
    def _read_json(path: Path) -> dict[str, Any]:
        try:
            entry = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise StoreDamagedError(f"{path} is damaged or missing: {error}") from error
        if not isinstance(entry, dict):
            raise StoreDamagedError(f"{path} is damaged: it should hold a JSON object")
        return entry

    # ---- writing

    def _require_writer(self) -> None:
        if self._lock is None:
            raise StoreError(f"{self.path} is {'open for reading' if self.mode == 'read' else 'closed'}")

    def _checked(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = {column_name(key): np.asarray(value) for key, value in rows.items()}
        if len(values) != len(rows):
            raise StoreError(f"two of the variables {sorted(rows)} would have the same name in the store")
        if any(v.ndim == 0 for v in values.values()) or len({len(v) for v in values.values()}) > 1:
            shapes = {name: v.shape for name, v in values.items()}
            raise StoreError(f"the arrays of one append need one common leading axis, the rows; got shapes {shapes}")
        if self.columns:
            want = {c.name: (c.shape, c.dtype) for c in self.columns}
            have = {name: (v.shape[1:], v.dtype.name) for name, v in values.items()}
            if want != have:
                differ = sorted(k for k in want.keys() | have.keys() if want.get(k) != have.get(k))
                lines = "; ".join(f"{k}: {have.get(k, 'missing')} instead of {want.get(k, 'nothing')}" for k in differ)
                raise StoreError(f"rows do not fit those already in {self.path}: {lines}")
        return values

    def _lay_out(self, values: Mapping[str, np.ndarray]) -> None:
        largest = max((v.dtype.itemsize * int(np.prod(v.shape[1:])) for v in values.values()), default=1)
        per_chunk = max(1, min(1 << 16, self._chunk_bytes // max(1, largest)))
        dims = self.meta.get("dims") or {}
        self.columns = tuple(Column.of(name, v, per_chunk, dims.get(name)) for name, v in values.items())
        self._buffers = {column.name: column.blank() for column in self.columns}
        for column in self.columns:
            disk.make_directory(self.path / column.name)

    def _write_chunk(self, column: Column, index: int) -> None:
        if column.row_bytes:
            path = column.chunk_path(self.path, index)
            disk.write_atomic(path, column.encode(self._buffers[column.name]), durable=False)
            self._dirty.add(path)

    def _write_tail(self) -> None:
        for column in self.columns:
            if self.rows % column.rows_per_chunk:
                self._write_chunk(column, self.rows // column.rows_per_chunk)

    def _commit(self) -> None:
        assert self._pending is not None
        arrays, meta = self._pending
        self._torn = True
        self._write_tail()
        for path in sorted(self._dirty):
            disk.sync(path)
        for folder in sorted({path.parent for path in self._dirty}):
            disk.sync(folder)
        self._dirty.clear()
        tail = {c.name: self._buffers[c.name][: self.rows % c.rows_per_chunk] for c in self.columns}
        checkpoint = Checkpoint(self._number + 1, self.rows, self.columns, arrays, tail, meta, self.meta)
        checkpoints.save(self._checkpoints, checkpoint)
        self._number += 1
        self._publish("running")
        checkpoints.prune(self._checkpoints, self._number)
        self._pending, self._torn = None, False
        self._last_checkpoint = time.monotonic()

    def _publish(self, state: str, closing: Mapping[str, Any] | None = None) -> None:
        """Show `rows` rows to readers. The arrays' own metadata follows the group's: neither promises missing rows."""
        attributes = {
            **scalar_attributes(self.meta),
            **scalar_attributes({f"end_{k}": v for k, v in (closing or {}).items()}),
            "holonomix_format": FORMAT,
            "holonomix_version": _version(),
        }
        for column in self.columns:
            disk.make_directory(self.path / column.name)
            disk.write_atomic(self.path / column.name / "zarr.json", as_json(column.metadata(self.rows)), durable=False)
        disk.write_atomic(self.path / "zarr.json", group_metadata(self.columns, self.rows, attributes), durable=False)
        status = as_json({**(closing or {}), "state": state, "rows": self.rows})
        disk.write_atomic(self._internal / "status.json", status, durable=closing is not None)

    # ---- after a kill

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
                f"no checkpoint of {self.path} is intact, so the run cannot continue from where it was. What can still be "
                "read stays as it is; to compute it again from its start in place, `holonomix resume --from-start`"
            )
        self.rows, self.columns, self._number = 0, (), -1
        self._publish("running")
        checkpoints.prune(self._checkpoints, None)
        for folder in [self.path / name for name in os.listdir(self.path)]:
            if folder.is_dir() and folder.name != INTERNAL and all(_ours(name) for name in os.listdir(folder)):
                disk.remove_tree(folder)

    def _promised(self) -> int:
        """The rows that the group's metadata shows to readers."""
        with contextlib.suppress(StoreError, KeyError, TypeError, AttributeError):
            arrays = self._read_json(self.path / "zarr.json")["consolidated_metadata"]["metadata"]
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


def _take_lock(path: Path, store: Path) -> int:
    with disk.translated(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise StoreBusyError(f"another process is writing to {store}; wait for it, or end it, and try again") from error
    except OSError as error:  # a file system without locks
        log.warning("%s: no file locks here (%s); make sure that one process writes at a time", store, error.strerror)
    return handle


def _version() -> str:
    with contextlib.suppress(ImportError):
        from holonomix import __version__

        return __version__
    return "?"
