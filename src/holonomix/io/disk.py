"""Every change that the store makes on disk goes through here, one small operation at a time.

A file is replaced by writing a hidden sibling and renaming it, so that a reader, and whoever comes after a kill, sees
the old file or the new one. Errors of the operating system become errors of ours. Tests cut the run off before every
one of these operations in turn.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from .errors import StoreFullError, StoreWriteError

__all__ = ["make_directory", "remove", "remove_tree", "rename", "sync", "temporary", "translated", "write_atomic"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `StoreWriteError` that names the path and says how to go on."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise StoreFullError(
                f"cannot write {path}: {reason}. Everything up to the last checkpoint is safe; free some space and "
                "continue with `holonomix resume`"
            ) from error
        raise StoreWriteError(
            f"cannot write {path}: {reason}. Everything up to the last checkpoint is safe; continue with "
            "`holonomix resume` once the cause is removed"
        ) from error


def temporary(path: Path) -> Path:
    """The hidden sibling that `write_atomic` fills before the rename."""
    return path.with_name(f".{path.name}.tmp")


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace `path` by `data`, wholly or not at all; `durable` also waits until the bytes are on the device."""
    hidden = temporary(path)
    with translated(path):
        try:
            _fill(hidden, data, durable)
            rename(hidden, path)
        except OSError:
            with contextlib.suppress(OSError):
                hidden.unlink(missing_ok=True)
            raise


def _fill(path: Path, data: bytes, durable: bool) -> None:
    with open(path, "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def rename(source: Path, target: Path) -> None:
    """Rename within one directory tree; atomic."""
    os.replace(source, target)


def make_directory(path: Path) -> None:
    """Make a directory and its parents."""
    with translated(path):
        path.mkdir(parents=True, exist_ok=True)


def remove(path: Path) -> None:
    """Remove a file that may already be gone."""
    with translated(path):
        path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a directory with what is in it."""
    with translated(path):
        shutil.rmtree(path)


def sync(path: Path) -> None:
    """Wait until a file or the entries of a directory are on the device."""
    with translated(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
