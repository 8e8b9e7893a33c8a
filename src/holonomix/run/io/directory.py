"""The directory of a store: made whole in one rename, locked by its writer, refused when its format is newer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import holonomix

from . import disk
from .columns import remove_column
from .disk import Folder
from .errors import StoreBusyError, StoreDamagedError, StoreError, StoreExistsError, StoreVersionError
from .layout import EMPTY_GROUP, INTERNAL, group_metadata
from .manifest import FORMAT, FORMAT_FILE, checksums, read_entry
from .text import as_json, signed

ABANDONED = 60.0  # seconds after which an unfinished store without a lock file has no owner any more
log = logging.getLogger("holonomix")


def version() -> str:
    """The version of this package."""
    return holonomix.__version__


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a directory looks like a store of ours, whole or damaged."""
    inside = disk.as_path(path) / INTERNAL
    return os.path.lexists(inside / "format.json") or os.path.lexists(inside / "checkpoints")


def create(
    path: Path,
    saved: Mapping[str, str | bytes],
    *,
    kind: str = "run",
    fill: Callable[[Folder], None] | None = None,
) -> int:
    """Make an empty store with some files of the run in it; returns the writer's lock.

    `fill` writes more into it before it appears at `path`.
    """
    if is_store(path):
        raise StoreExistsError(
            f"{path} already holds a run: continue it with `holonomix resume {path}`, or choose another directory"
        )
    if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir())):
        raise StoreExistsError(f"{path} exists and is not an empty directory; choose another one")
    path = path.resolve()  # a link to an empty directory: the store takes the place of the directory, not of the link
    disk.make_directory(path.parent)
    _remove_abandoned(path)
    # built aside and renamed, so that the path holds nothing or a whole store
    aside = Folder(path.parent / f".{path.name}.new-{secrets.token_hex(6)}")
    lock = None
    try:
        aside.make()
        (aside / INTERNAL).make()
        lock = take_lock(aside)
        (aside / INTERNAL / "checkpoints").make()
        files = {name: text.encode() if isinstance(text, str) else text for name, text in saved.items()}
        entry = {"format": FORMAT, "kind": kind, "holonomix": version(), "files": checksums(files)}
        (aside / INTERNAL).write(FORMAT_FILE, signed(entry))
        (aside / INTERNAL).write("zarr.json", as_json(EMPTY_GROUP))
        (aside / INTERNAL).write("status.json", blank_status("new"))
        aside.write("zarr.json", group_metadata((), 0, {"holonomix_format": FORMAT}))
        for name, data in files.items():
            aside.write(name, data)
        if fill is not None:
            fill(aside)
        with disk.translated(path):
            disk.do_move(aside.root, path)
    except (Exception, KeyboardInterrupt):
        if lock is not None:
            os.close(lock)
        with contextlib.suppress(OSError, StoreError):
            discard(aside.root)
        raise
    return lock


def blank_status(state: str) -> bytes:
    """The status.json of a store without rows of its own: a new one, or an ensemble."""
    return signed({"state": state, "rows": 0, "columns": [], "attributes": {}})


def discard(path: Path) -> None:
    """Remove a store that holds no rows; what lies in it and was not written by `create` stays, and so does it."""
    root = Folder(path)
    for name in root.names():
        if name != INTERNAL and root.is_directory(name):
            remove_column(root, name)
    for parts in ((INTERNAL, "checkpoints"), (INTERNAL, "blocks"), (INTERNAL,)):
        with contextlib.suppress(FileNotFoundError, StoreError):
            _remove_files(Folder(path, parts))
            Folder(path, parts[:-1]).remove_directory(parts[-1])
    _remove_files(root)
    Folder(path.parent).remove_directory(path.name)


def _remove_files(folder: Folder) -> None:
    """Remove the files of one directory, links themselves included; directories stay."""
    with folder.opened() as directory:
        plain = [n for n in os.listdir(directory) if not stat.S_ISDIR(os.lstat(n, dir_fd=directory).st_mode)]
    for name in plain:
        folder.remove(name)


def _remove_abandoned(path: Path) -> None:
    """Remove what a killed process left while it was creating a store here."""
    start = f".{path.name}.new-"
    for name in Folder(path.parent).names():
        if not name.startswith(start) or len(name) != len(start) + 12:
            continue
        found = path.parent / name
        with contextlib.suppress(OSError, StoreError):
            facts = found.lstat()
            mine = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
            if not mine or (not (found / INTERNAL / "lock").exists() and time.time() - facts.st_mtime < ABANDONED):
                continue
            if (found / INTERNAL / "lock").exists():
                os.close(take_lock(Folder(found)))  # busy: another process is creating it
            discard(found)


def is_ensemble(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is the store of an ensemble."""
    return is_store(path) and read_format(Folder(disk.as_path(path)))[1] == "ensemble"


def read_format(root: Folder) -> tuple[int, str]:
    """The number of the store's format and its kind, "run" or "ensemble"; refuses those that are not known here."""
    entry = read_entry(root)
    number = entry.get("format")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise StoreDamagedError(
            f"{root / INTERNAL}/format.json is damaged: it should name the store's format, as in "
            f'{{"format": {FORMAT}}} for stores written by this version'
        )
    if number > FORMAT:
        writer = str(entry.get("holonomix", "?"))[:40]
        raise StoreVersionError(
            f"{root} is in store format {str(number)[:20]}, written by holonomix {writer}; this is "
            f"holonomix {version()}, which reads formats up to {FORMAT}. Install a newer version to read it"
        )
    return number, str(entry.get("kind", "run"))[:40]


def take_lock(root: Folder) -> int:
    """Keep other writers out of the store; the system lets go when the process ends, however it ends."""
    with disk.translated(root), (root / INTERNAL).opened() as directory:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open("lock", flags, 0o666, dir_fd=directory)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            os.close(handle)
            raise StoreBusyError(
                f"another process is writing to {root}; wait for it, or end it, and try again"
            ) from error
        log.warning("%s: no file locks here (%s); make sure that one process writes at a time", root, error.strerror)
    return handle
