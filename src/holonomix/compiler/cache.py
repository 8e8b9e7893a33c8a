"""Compiled code on disk. What is loaded is run, so it is loaded only if this user wrote it.

The directory must belong to the user, with mode 0700. An entry is its code after a hash of key and code that is keyed
with the user's secret; an entry with a wrong hash is recompiled. Entries that were not used for three months are
removed, and so are the oldest ones beyond half a gigabyte. Without the directory or the secret nothing is stored.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import os
import secrets
from pathlib import Path

from ..core.private import cache_root, keyed_hash, private_directory, trim

MAX_BYTES, MAX_SECONDS, MAX_ENTRY_BYTES = 1 << 29, 90 * 86400.0, 1 << 26
_HASH = 32
_saved = itertools.count()


def folder() -> Path | None:
    """Where compiled code is kept; None where it is not."""
    root = cache_root()
    return None if root is None else root / "kernels"


def load(key: str) -> bytes | None:
    """The code that was saved under this key, if it is there and as this user saved it."""
    place = folder()
    if place is None:
        return None
    try:
        with private_directory(place) as directory:
            handle = os.open(f"{key}.o", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
            with os.fdopen(handle, "rb") as file:
                stored = file.read(MAX_ENTRY_BYTES + _HASH + 1)
                with contextlib.suppress(OSError):
                    os.utime(handle)  # used now: the last to go
    except OSError:
        return None
    code = stored[_HASH:]
    expected = keyed_hash("code", key.encode(), code)
    return code if expected is not None and hmac.compare_digest(stored[:_HASH], expected) else None


def save(key: str, code: bytes) -> None:
    """Keep code for later processes. Failing to is no error: the next one compiles again."""
    place = folder()
    if place is None or len(code) > MAX_ENTRY_BYTES:
        return
    expected = keyed_hash("code", key.encode(), code)
    if expected is None:
        return
    aside = f".{secrets.token_hex(8)}.tmp"
    with contextlib.suppress(OSError), private_directory(place) as directory:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(aside, flags, 0o600, dir_fd=directory), "wb") as file:
                file.write(expected + code)
            os.replace(aside, f"{key}.o", src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(aside, dir_fd=directory)
            raise
        if next(_saved) % 64 == 0:
            trim(directory, most_bytes=MAX_BYTES, most_seconds=MAX_SECONDS)
