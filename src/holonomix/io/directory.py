"""The directory of a store: made whole in one rename, locked by its writer, refused when its format is newer."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import holonomix

from . import disk
from .errors import StoreBusyError, StoreDamagedError, StoreExistsError, StoreVersionError
from .layout import EMPTY_GROUP, INTERNAL, as_json, group_metadata

__all__ = ["FORMAT", "create", "is_store", "read_format", "read_json", "take_lock", "version"]

FORMAT = 1
log = logging.getLogger("holonomix")


def version() -> str:
    """The version of this package."""
    return holonomix.__version__


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a directory looks like a store of ours, whole or damaged."""
    inside = Path(path) / INTERNAL
    return (inside / "format.json").exists() or (inside / "checkpoints").is_dir()


def create(path: Path, saved: Mapping[str, str | bytes]) -> int:
    """Make an empty store with some files of the run in it; returns the writer's lock."""
    if is_store(path):
        raise StoreExistsError(
            f"{path} already holds a run: continue it with `holonomix resume {path}`, or choose another directory"
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise StoreExistsError(f"{path} exists and is not an empty directory; choose another one")
    disk.make_directory(path.absolute().parent)
    # built aside and renamed, so that the path holds nothing or a whole store
    with disk.translated(path):
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.new-", dir=path.absolute().parent))
        aside.chmod(0o755)
    disk.make_directory(aside / INTERNAL / "checkpoints")
    disk.write_atomic(aside / INTERNAL / "format.json", as_json({"format": FORMAT, "holonomix": version()}))
    disk.write_atomic(aside / INTERNAL / "zarr.json", as_json(EMPTY_GROUP))
    disk.write_atomic(aside / INTERNAL / "status.json", as_json({"state": "new", "rows": 0}))
    disk.write_atomic(aside / "zarr.json", group_metadata((), 0, {"holonomix_format": FORMAT}))
    for name, text in saved.items():
        disk.write_atomic(aside / name, text.encode() if isinstance(text, str) else text)
    lock = take_lock(aside)
    try:
        with disk.translated(path):
            disk.rename(aside, path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def read_format(path: Path) -> int:
    """The store's format number; refuses those that this version does not know."""
    entry = read_json(path / INTERNAL / "format.json")
    number = entry.get("format")
    if not isinstance(number, int) or number < 1:
        raise StoreDamagedError(
            f"{path / INTERNAL / 'format.json'} is damaged: it should name the store's format, as in "
            f'{{"format": {FORMAT}}} for stores written by this version'
        )
    if number > FORMAT:
        raise StoreVersionError(
            f"{path} is in store format {number}, written by holonomix {entry.get('holonomix', '?')}; this is "
            f"holonomix {version()}, which reads formats up to {FORMAT}. Install a newer version to read it"
        )
    return number


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        entry = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreDamagedError(f"{path} is damaged or missing: {error}") from error
    if not isinstance(entry, dict):
        raise StoreDamagedError(f"{path} is damaged: it should hold a JSON object")
    return entry


def take_lock(path: Path) -> int:
    """Keep other writers out of the store at `path`; the system lets go when the process ends, however it ends."""
    with disk.translated(path):
        handle = os.open(path / INTERNAL / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise StoreBusyError(f"another process is writing to {path}; wait for it, or end it, and try again") from error
    except OSError as error:  # a file system without locks
        log.warning("%s: no file locks here (%s); make sure that one process writes at a time", path, error.strerror)
    return handle
