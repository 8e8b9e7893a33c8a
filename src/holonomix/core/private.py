"""Per-user security: a secret key, private directories, and the location of the cache.

Machine code is loaded from a directory only if the user owns it, others cannot write to it, and the code carries a hash
keyed with the user's secret. The same secret authenticates the Python file that a run was started with. The secret is a
file of 32 random bytes, readable only by the user, created when it is first needed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

OFF = {"", "0", "off", "no", "none", "false"}
SECRET = "secret.key"
log = logging.getLogger("holonomix")


@contextlib.contextmanager
def private_directory(path: Path) -> Iterator[int]:
    """Open a directory of mode 0700 that belongs to the user; create it if it does not exist.

    Raises `PermissionError` if another user owns it or others can write to it.
    """
    _make_private(path)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(handle)
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            raise PermissionError(f"{path} belongs to another user, or others can write to it (chmod 700 {path})")
        if stat.S_IMODE(facts.st_mode) != 0o700:
            os.fchmod(handle, 0o700)
        yield handle
    finally:
        os.close(handle)


def _make_private(path: Path) -> None:
    """Create a directory and its parents, all with mode 0700; `Path.mkdir` applies the mode to the last one only."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if path.parent == path:
            raise
        _make_private(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def cache_root() -> Path | None:
    """The directory of compiled programs, or None if they are not kept.

    `HOLONOMIX_CACHE` names the directory, or is `off`. By default it is `holonomix` in `$XDG_CACHE_HOME` or `~/.cache`.
    """
    named = os.environ.get("HOLONOMIX_CACHE")
    if named is not None:
        if named.strip().lower() in OFF:
            return None
        path = Path(named).expanduser()
        if not path.is_absolute():
            _warn(f"HOLONOMIX_CACHE={named} is not an absolute path: compiled programs are not kept")
            return None
    else:
        base = _home("XDG_CACHE_HOME", ".cache")
        if base is None:
            return None
        path = base / "holonomix"
    if reason := _not_private(path):
        _warn(f"compiled programs are not kept: {path} {reason}")
        return None
    return path


def _not_private(path: Path) -> str:
    """Why compiled programs may not be loaded from a directory; empty if they may, or if it does not exist yet."""
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    if stat.S_ISLNK(facts.st_mode):
        return "is a symbolic link; name the directory itself"
    if not stat.S_ISDIR(facts.st_mode):
        return "is not a directory"
    if facts.st_uid != os.geteuid():
        return "belongs to another user"
    return f"can be written to by others (chmod 700 {path})" if facts.st_mode & 0o022 else ""


def keyed_hash(purpose: str, *parts: bytes) -> bytes | None:
    """A SHA-256 of `parts` that only this user can compute; None if the secret can be neither read nor created."""
    base = _home("XDG_STATE_HOME", ".local/state")
    key = None if base is None else _secret(str(base / "holonomix"))
    if key is None:
        return None
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for part in (purpose.encode(), *parts):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def trim(directory: int, *, most_bytes: int, most_seconds: float) -> None:
    """Remove files that are older than `most_seconds`, then the oldest until at most `most_bytes` are left."""
    now, left, files = time.time(), 0, []
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode):
                files.append((facts.st_mtime, facts.st_size, name))
                left += facts.st_size
    for modified, size, name in sorted(files):
        if left <= most_bytes and now - modified <= most_seconds:
            return
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
        left -= size


def _home(variable: str, otherwise: str) -> Path | None:
    named = os.environ.get(variable)
    if named and Path(named).is_absolute():
        return Path(named)
    with contextlib.suppress(RuntimeError):
        return Path.home() / otherwise
    return None


@functools.lru_cache(maxsize=8)
def _secret(folder: str) -> bytes | None:
    try:
        with private_directory(Path(folder)) as directory:
            with contextlib.suppress(FileNotFoundError):
                return _read_secret(directory)
            # Write to a temporary file and link it, so that two processes agree on one secret.
            aside = f".{SECRET}.{secrets.token_hex(6)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(aside, flags, 0o600, dir_fd=directory), "wb") as file:
                file.write(secrets.token_bytes(32))
            try:
                with contextlib.suppress(FileExistsError):
                    os.link(aside, SECRET, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            finally:
                os.unlink(aside, dir_fd=directory)
            return _read_secret(directory)
    except OSError as error:
        _warn(f"cannot read or create the secret key in {folder}: {error}")
        return None


def _read_secret(directory: int) -> bytes:
    handle = os.open(SECRET, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        data = file.read(33)
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077 or len(data) != 32:
        raise PermissionError(f"{SECRET} should be a file of 32 bytes that only its owner can read")
    return data


@functools.lru_cache(maxsize=32)
def _warn(message: str) -> None:
    """Log each warning once."""
    log.warning("%s", message)
