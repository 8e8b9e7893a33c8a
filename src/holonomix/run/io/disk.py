"""The crash-safe writer: every change that a store makes on disk, one small operation at a time.

Files are reached relative to an open directory, and symbolic links below the directory that the user named are never
followed: not to read, not to write, not to delete. A file is replaced by writing a hidden sibling and renaming it, so
that a reader, and a process that comes after a kill, sees the old file or the new one. Errors of the operating system
become errors of ours. Tests cut the run off before every one of the functions whose name begins with `do_`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ...core.checks import short_repr
from .errors import StoreDamagedError, StoreError, StoreFullError, StoreLinkError, StoreWriteError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LINKED = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in place of a file must not block
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


MIN_SPARSE_BYTES = 1 << 24  # a longer file that takes next to no space is refused


@contextlib.contextmanager
def translate_errors(path: object) -> Iterator[None]:
    """Turn an `OSError` into a `StoreWriteError` that names the path and says how to continue."""
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


def hidden_name(name: str) -> str:
    """The hidden sibling that is filled before the rename."""
    return f".{name}.tmp"


def as_path(path: object) -> Path:
    """The path that a user gave as a text or a `Path`."""
    if not isinstance(path, str | os.PathLike):
        raise StoreError(f"a store is named by its directory, a text or a Path, not {short_repr(path)}")
    named = os.fspath(path)
    if not isinstance(named, str) or "\0" in named:
        raise StoreError(f"a store is named by its directory, a text without NUL, not {short_repr(path)}")
    try:
        os.lstat(named)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise StoreError(f"no store can be at {short_repr(path)}: {error.strerror}") from error
    except ValueError as error:  # characters that the file system cannot encode
        raise StoreError(f"no store can be at {short_repr(path)}: {error.__class__.__name__}") from error
    return Path(named)


def is_hollow(facts: os.stat_result) -> bool:
    """Whether a large file is sparse: it has a length and takes next to no space."""
    held = getattr(facts, "st_blocks", None)
    return held is not None and facts.st_size > MIN_SPARSE_BYTES and held * 512 < facts.st_size >> 6


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a file that the user named; an `OSError` for what is no regular file or longer than `most` bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe in place of a file must not block
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if facts.st_size > most:
            raise OSError(errno.EFBIG, f"it has {facts.st_size} bytes, more than the {most} allowed here", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(handle)


@dataclasses.dataclass(frozen=True)
class Folder:
    """A directory: `root` as the user named it (it may be a link), and `parts` below it, none of which may be one."""

    root: Path
    parts: tuple[str, ...] = ()

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.root, (*self.parts, name))

    def __str__(self) -> str:
        return str(self.root.joinpath(*self.parts))

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The directory as an open handle."""
        handle = os.open(self.root, _DIRECTORY)
        try:
            for depth, part in enumerate(self.parts):
                try:
                    inner = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
                except OSError as error:
                    folder = Folder(self.root, self.parts[:depth])
                    _refuse_link(handle, part, folder, error)
                    if error.errno == errno.ENOTDIR:
                        raise StoreDamagedError(f"{folder}/{part} is not a directory") from error
                    raise
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    # ---- reading

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[tuple[int, int]]:
        """A regular file, open for reading, with its size in bytes."""
        with self.opened() as directory:
            try:
                handle = os.open(name, _READ, dir_fd=directory)
            except OSError as error:
                _refuse_link(directory, name, self, error)
                raise
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise StoreDamagedError(f"{self}/{name} is not a file")
            if is_hollow(facts):
                raise StoreDamagedError(f"{self}/{name} has {facts.st_size} bytes, of which nearly none were written")
            yield handle, facts.st_size
        finally:
            os.close(handle)

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a file; one that is longer than `most` bytes is refused unread."""
        with self.file(name) as (handle, size):
            if size > most:
                raise StoreDamagedError(f"{self}/{name} has {size} bytes, more than the {most} that are allowed here")
            with os.fdopen(os.dup(handle), "rb") as file:
                return file.read(size)

    def names(self) -> list[str]:
        """The names in the directory, sorted; none if there is no directory."""
        try:
            with self.opened() as directory:
                return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreDamagedError(f"{self} cannot be listed: {error.strerror}") from error

    def held_bytes(self) -> int:
        """The bytes of the files in the directory, without sparse ones."""
        try:
            with self.opened() as directory:
                found = [os.stat(name, dir_fd=directory, follow_symlinks=False) for name in os.listdir(directory)]
        except OSError:
            return 0
        return sum(facts.st_size for facts in found if stat.S_ISREG(facts.st_mode) and not is_hollow(facts))

    def is_directory(self, name: str) -> bool:
        """Whether there is a directory of this name; a link to one does not count."""
        with self.opened() as directory:
            try:
                return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
            except FileNotFoundError:
                return False

    # ---- writing

    def write(self, name: str, data: bytes, *, durable: bool = True, unique: bool = False) -> None:
        """Replace a file by `data`, wholly or not at all; `durable` also waits until the bytes are on the device.

        `unique` is for files that several processes may write at once: the hidden sibling has a random name.
        """
        hidden = hidden_name(f"{name}.{secrets.token_hex(6)}" if unique else name)
        with translate_errors(f"{self}/{name}"):
            try:
                do_fill(self, hidden, data, durable)
                do_rename(self, hidden, name)
            except OSError:
                with contextlib.suppress(OSError), self.opened() as directory:
                    os.unlink(hidden, dir_fd=directory)
                raise

    def make(self) -> None:
        """Make the directory if it is not there yet."""
        with translate_errors(self):
            do_make(self)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, that may already be gone."""
        with translate_errors(f"{self}/{name}"):
            do_remove(self, name)

    def remove_directory(self, name: str) -> bool:
        """Remove an empty directory; whether it was empty."""
        with translate_errors(f"{self}/{name}"):
            try:
                do_remove_directory(self, name)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return False
        return True

    def sync(self, *names: str) -> None:
        """Wait until these files, and the entries of the directory, are on the device."""
        with translate_errors(self):
            do_sync(self, names)


def _refuse_link(directory: int, name: str, folder: Folder, error: OSError) -> None:
    if error.errno not in _LINKED:
        return
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise StoreLinkError(
                f"{folder}/{name} is a symbolic link: links inside a store are not followed. Put what it points to in "
                "its place if you trust it, or remove it"
            ) from error


# ---- the operations


def do_fill(folder: Folder, name: str, data: bytes, durable: bool) -> None:
    with os.fdopen(_created(folder, name), "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _created(folder: Folder, name: str) -> int:
    """A new file of this name; a link, or the rest of an earlier attempt, is removed and not written to."""
    with folder.opened() as directory:
        try:
            return os.open(name, _WRITE, 0o666, dir_fd=directory)
        except FileExistsError:
            os.unlink(name, dir_fd=directory)
            return os.open(name, _WRITE, 0o666, dir_fd=directory)


def do_rename(folder: Folder, source: str, target: str) -> None:
    with folder.opened() as directory:
        os.replace(source, target, src_dir_fd=directory, dst_dir_fd=directory)


def do_move(source: Path, target: Path) -> None:
    """Rename a directory; an empty one at `target` is replaced."""
    os.rename(source, target)


def do_make(folder: Folder) -> None:
    if folder.parts:
        with Folder(folder.root, folder.parts[:-1]).opened() as directory, contextlib.suppress(FileExistsError):
            os.mkdir(folder.parts[-1], dir_fd=directory)
    else:
        folder.root.mkdir(parents=True, exist_ok=True)
    with folder.opened():
        pass  # refuses a link


def do_remove(folder: Folder, name: str) -> None:
    with folder.opened() as directory, contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def do_remove_directory(folder: Folder, name: str) -> None:
    with folder.opened() as directory:
        os.rmdir(name, dir_fd=directory)


def do_sync(folder: Folder, names: tuple[str, ...]) -> None:
    with folder.opened() as directory:
        for name in names:
            handle = os.open(name, _READ, dir_fd=directory)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        os.fsync(directory)


# ---- files that the user names


def make_directory(path: Path) -> None:
    """Make a directory and its parents."""
    Folder(path).make()


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the file `path` by `data`, wholly or not at all; a link in its place is replaced, not followed."""
    Folder(path.absolute().parent).write(path.name, data, durable=durable)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when the block ends without an error."""
    folder, hidden = Folder(path.absolute().parent), hidden_name(path.name)
    with translate_errors(path):
        try:
            with os.fdopen(_created(folder, hidden), "wb") as file:
                yield file
            do_rename(folder, hidden, path.name)
        except BaseException:
            with contextlib.suppress(OSError), folder.opened() as directory:
                os.unlink(hidden, dir_fd=directory)
            raise
