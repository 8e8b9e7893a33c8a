"""The files that a store was created with (run.toml, run.seal, given.npz, ..) and the list of their checksums."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from .disk import Folder
from .errors import StoreDamagedError, StoreError
from .layout import EMPTY_GROUP, INTERNAL
from .text import MOST_JSON, as_json, signed, unsigned

LIST = "files.json"
MOST_FILES = 1 << 34  # bytes of one file


def write_list(root: Folder, files: Mapping[str, bytes]) -> None:
    """Record the checksums of the files."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    (root / INTERNAL).write(LIST, signed({"files": sums}))


def replace_file(root: Folder, name: str, data: bytes) -> None:
    """Replace a file and its checksum. Between the two the list names both, so that a kill leaves no damage."""
    sums = _listed(root)
    new = hashlib.sha256(data).hexdigest()
    if sums is not None:
        old = sums.get(name, "").split()
        (root / INTERNAL).write(LIST, signed({"files": {**sums, name: " ".join(dict.fromkeys([*old, new]))}}))
    root.write(name, data)
    if sums is not None:
        (root / INTERNAL).write(LIST, signed({"files": {**sums, name: new}}))


def saved_file(root: Folder, name: str, most: int = MOST_FILES) -> bytes:
    """A file that agrees with its checksum; stores of older versions have none."""
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


def damaged_files(root: Folder) -> list[str]:
    """The names of the files that are missing or not as they were written."""
    try:
        sums = _listed(root)
    except StoreError:
        return [f"{INTERNAL}/{LIST}"]
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
    checks = {"format.json": unsigned, "status.json": unsigned, "zarr.json": _check_empty}
    for name, check in checks.items():
        try:
            check(inside.read(name, MOST_JSON))
        except (OSError, ValueError, StoreError):
            bad.append(f"{INTERNAL}/{name}")
    return bad


def _check_empty(data: bytes) -> None:
    if data != as_json(EMPTY_GROUP):
        raise ValueError("it is not as it was written")


def _listed(root: Folder) -> dict[str, str] | None:
    """The checksums by name; None in a store of a version that recorded none."""
    inside = root / INTERNAL
    try:
        found: Any = unsigned(inside.read(LIST, MOST_JSON))["files"]
        if not isinstance(found, dict) or not all(isinstance(x, str) for x in found.values()):
            raise ValueError("it should name files and their checksums")
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(f"{inside}/{LIST} is damaged: {error}") from error
