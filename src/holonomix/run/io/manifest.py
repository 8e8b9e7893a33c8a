"""The files that a store was created with (run.toml, run.seal, given.npz, ..) and their checksums in format.json."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

from .disk import Folder
from .errors import StoreDamagedError, StoreError
from .layout import EMPTY_GROUP, INTERNAL
from .text import MOST_JSON, as_json, parse_json, signed, unsigned

FORMAT_FILE = "format.json"  # says what the store is, and holds the checksums
MOST_FILES = 1 << 34  # bytes of one file
FORMAT = 2  # of what is written


def checksums(files: Mapping[str, bytes]) -> dict[str, str]:
    """The SHA-256 of the files by name."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def replace_file(root: Folder, name: str, data: bytes) -> None:
    """Replace a file and its checksum. Between the two the list names both, so that a kill leaves no damage."""
    sums, inside = _listed(root), root / INTERNAL
    if sums is None:
        root.write(name, data)
        return
    entry, new = read_entry(root), hashlib.sha256(data).hexdigest()
    both = " ".join(dict.fromkeys([*sums.get(name, "").split(), new]))
    inside.write(FORMAT_FILE, signed({**entry, "files": {**sums, name: both}}))
    root.write(name, data)
    inside.write(FORMAT_FILE, signed({**entry, "files": {**sums, name: new}}))


def saved_file(root: Folder, name: str, most: int = MOST_FILES) -> bytes:
    """Read a file and verify its checksum. Stores of older versions have no checksums."""
    try:
        data = root.read(name, most)
    except OSError as error:
        raise StoreDamagedError(f"{root}/{name} cannot be read: {error.strerror}") from error
    sums = _listed(root)
    if sums is not None and name in sums and hashlib.sha256(data).hexdigest() not in sums[name].split():
        raise StoreDamagedError(
            f"{root}/{name} was changed since the store wrote it: its SHA-256 differs. The rows are safe. Put the "
            "original back; to go on to another number of steps, use `holonomix resume DIR --steps N`"
        )
    return data


def refuse_hollow_files(root: Folder) -> None:
    """Raise if one of the files is a pipe, a link or a length with nothing in it; contents are not read."""
    for name in _listed(root) or ():
        with contextlib.suppress(OSError), root.file(name):
            pass


def damaged_files(root: Folder) -> list[str]:
    """The names of the files that are missing or not as they were written."""
    try:
        sums = _listed(root)
    except StoreError:
        return [f"{INTERNAL}/{FORMAT_FILE}"]
    bad = _damaged_own(root) if sums is not None else []
    for name in sums or ():
        try:
            saved_file(root, name)
        except StoreError:
            bad.append(name)
    return bad


def _damaged_own(root: Folder) -> list[str]:
    """The small files of the store itself that are not as they were written; others are verified elsewhere."""
    inside, bad = root / INTERNAL, []
    checks = {FORMAT_FILE: unsigned, "status.json": unsigned, "zarr.json": _check_empty}
    for name, check in checks.items():
        try:
            check(inside.read(name, MOST_JSON))
        except (OSError, ValueError, StoreError):
            bad.append(f"{INTERNAL}/{name}")
    return bad


def mend(root: Folder) -> None:
    """Rewrite damaged metadata that is the same in every store. The caller holds the lock."""
    try:
        _check_empty((root / INTERNAL).read("zarr.json", MOST_JSON))
    except (OSError, ValueError, StoreError):
        (root / INTERNAL).write("zarr.json", as_json(EMPTY_GROUP))


def _check_empty(data: bytes) -> None:
    if data != as_json(EMPTY_GROUP):
        raise ValueError("it is not as it was written")


def read_entry(root: Folder) -> dict[str, Any]:
    """What format.json says, if it agrees with its checksum; stores of older versions, or repaired ones, have none."""
    inside = root / INTERNAL
    try:
        data = inside.read(FORMAT_FILE, MOST_JSON)
        body = parse_json(data)
        return unsigned(data) if body.keys() & {"files", "sha256"} else body
    except (OSError, ValueError) as error:
        raise StoreDamagedError(
            f"{inside}/{FORMAT_FILE} is damaged or missing: {error}. The rows are not in it: where it holds "
            f'{{"format": {FORMAT}, "kind": "run"}} (or "ensemble"), what this version wrote can be read'
        ) from error


def _listed(root: Folder) -> dict[str, str] | None:
    """The checksums by name; None in a store of a version that recorded none."""
    found: Any = read_entry(root).get("files")
    if found is not None and not (isinstance(found, dict) and all(isinstance(x, str) for x in found.values())):
        raise StoreDamagedError(f"{root / INTERNAL}/{FORMAT_FILE} is damaged: files should name checksums")
    return found
