"""The directory of a store: made whole in one rename, locked by its writer, refused when its format is newer.

`holonomix/format.json` says what the store is. It also holds the checksums of the files that the store was created with
(run.toml, run.seal, given.npz, ..).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import holonomix

from . import disk
from .chunks import remove_column
from .disk import Folder
from .errors import StoreBusyError, StoreDamagedError, StoreError, StoreExistsError, StoreVersionError
from .layout import EMPTY_GROUP, INTERNAL, group_metadata
from .text import MAX_JSON_BYTES, as_json, parse_json, signed, unsigned

FORMAT = 2  # of what is written
FORMAT_FILE, STATUS_FILE = "format.json", "status.json"
MAX_FILE_BYTES = 1 << 34  # of one file that a store was created with
ABANDONED_SECONDS = 60.0  # an unfinished store without a lock file is then taken to have no owner
log = logging.getLogger("holonomix")


def version() -> str:
    """The version of this package."""
    return holonomix.__version__


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a directory looks like a store of ours, whole or damaged."""
    inside = disk.as_path(path) / INTERNAL
    return os.path.lexists(inside / FORMAT_FILE) or os.path.lexists(inside / "checkpoints")


def is_ensemble(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is the store of an ensemble."""
    return is_store(path) and read_format(Folder(disk.as_path(path)))[1] == "ensemble"


# ---- making and removing


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
        checksums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        entry = {"format": FORMAT, "kind": kind, "holonomix": version(), "files": checksums}
        (aside / INTERNAL).write(FORMAT_FILE, signed(entry))
        (aside / INTERNAL).write("zarr.json", as_json(EMPTY_GROUP))
        (aside / INTERNAL).write(STATUS_FILE, blank_status("new"))
        aside.write("zarr.json", group_metadata({}, {"holonomix_format": FORMAT}))
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
            locked = (found / INTERNAL / "lock").exists()
            if not mine or (not locked and time.time() - facts.st_mtime < ABANDONED_SECONDS):
                continue
            if locked:
                os.close(take_lock(Folder(found)))  # busy: another process is creating it
            discard(found)


# ---- the lock


def take_lock(root: Folder) -> int:
    """Lock the store for one writer; the system releases the lock when the process ends, however it ends."""
    handle = _open_lock(root)
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


@contextlib.contextmanager
def shared_lock(root: Folder) -> Iterator[None]:
    """A lock that any number of writers hold together, but not beside `take_lock`."""
    handle = _open_lock(root)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def _open_lock(root: Folder) -> int:
    with disk.translated(root), (root / INTERNAL).opened() as directory:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open("lock", flags, 0o666, dir_fd=directory)


# ---- format.json


def read_format(root: Folder) -> tuple[int, str]:
    """The number of the store's format and its kind, "run" or "ensemble"; refuses those that are not known here."""
    entry = _read_entry(root)
    number = entry.get("format")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise StoreDamagedError(
            f"{root / INTERNAL}/{FORMAT_FILE} is damaged: it should name the store's format, as in "
            f'{{"format": {FORMAT}}} for stores written by this version'
        )
    if number > FORMAT:
        writer = str(entry.get("holonomix", "?"))[:40]
        raise StoreVersionError(
            f"{root} is in store format {str(number)[:20]}, written by holonomix {writer}; this is "
            f"holonomix {version()}, which reads formats up to {FORMAT}. Install a newer version to read it"
        )
    return number, str(entry.get("kind", "run"))[:40]


def _read_entry(root: Folder) -> dict[str, Any]:
    """What format.json says, if it agrees with its checksum; stores of older versions, or repaired ones, have none."""
    inside = root / INTERNAL
    try:
        data = inside.read(FORMAT_FILE, MAX_JSON_BYTES)
        body = parse_json(data)
        return unsigned(data) if body.keys() & {"files", "sha256"} else body
    except (OSError, ValueError) as error:
        raise StoreDamagedError(
            f"{inside}/{FORMAT_FILE} is damaged or missing: {error}. The rows are not in it: where it holds "
            f'{{"format": {FORMAT}, "kind": "run"}} (or "ensemble"), what this version wrote can be read'
        ) from error


def _checksums(root: Folder) -> dict[str, str] | None:
    """The checksums of the saved files by name; None in a store of a version that recorded none."""
    found: Any = _read_entry(root).get("files")
    if found is not None and not (isinstance(found, dict) and all(isinstance(x, str) for x in found.values())):
        raise StoreDamagedError(f"{root / INTERNAL}/{FORMAT_FILE} is damaged: files should name checksums")
    return found


# ---- the files that a store was created with


def saved_file(root: Folder, name: str, most: int = MAX_FILE_BYTES) -> bytes:
    """Read a file and verify its checksum. Stores of older versions have no checksums."""
    try:
        data = root.read(name, most)
    except OSError as error:
        raise StoreDamagedError(f"{root}/{name} cannot be read: {error.strerror}") from error
    sums = _checksums(root)
    if sums is not None and name in sums and hashlib.sha256(data).hexdigest() not in sums[name].split():
        raise StoreDamagedError(
            f"{root}/{name} was changed since the store wrote it: its SHA-256 differs. The rows are safe. Put the "
            "original back; to go on to another number of steps, use `holonomix resume DIR --steps N`"
        )
    return data


def replace_file(root: Folder, name: str, data: bytes) -> None:
    """Replace a file and its checksum. Between the two the list names both, so that a kill leaves no damage."""
    sums, inside = _checksums(root), root / INTERNAL
    if sums is None:
        root.write(name, data)
        return
    entry, new = _read_entry(root), hashlib.sha256(data).hexdigest()
    both = " ".join(dict.fromkeys([*sums.get(name, "").split(), new]))
    inside.write(FORMAT_FILE, signed({**entry, "files": {**sums, name: both}}))
    root.write(name, data)
    inside.write(FORMAT_FILE, signed({**entry, "files": {**sums, name: new}}))


def refuse_hollow_files(root: Folder) -> None:
    """Raise if one of the files is a pipe, a link or a length with nothing in it; contents are not read."""
    for name in _checksums(root) or ():
        with contextlib.suppress(OSError), root.file(name):
            pass


# ---- verifying


def damaged_files(root: Folder) -> list[str]:
    """The names of saved files, and of small files of the store itself, that are missing or were changed."""
    try:
        sums = _checksums(root)
    except StoreError:
        return [f"{INTERNAL}/{FORMAT_FILE}"]
    if sums is None:
        return []
    checks = {FORMAT_FILE: unsigned, STATUS_FILE: unsigned, "zarr.json": _check_empty}
    bad = [f"{INTERNAL}/{name}" for name, check in checks.items() if is_damaged(root / INTERNAL, name, check)]
    for name in sums:
        try:
            saved_file(root, name)
        except StoreError:
            bad.append(name)
    return bad


def mend(root: Folder) -> None:
    """Rewrite damaged metadata that is the same in every store. The caller holds the lock."""
    if is_damaged(root / INTERNAL, "zarr.json", _check_empty):
        (root / INTERNAL).write("zarr.json", as_json(EMPTY_GROUP))


def is_damaged(folder: Folder, name: str, check: Callable[[bytes], object] = unsigned) -> bool:
    """Whether a JSON file is missing or `check` raises a `ValueError` for its bytes."""
    try:
        check(folder.read(name, MAX_JSON_BYTES))
    except (OSError, ValueError, StoreError):
        return True
    return False


def _check_empty(data: bytes) -> None:
    if data != as_json(EMPTY_GROUP):
        raise ValueError("it is not as it was written")
