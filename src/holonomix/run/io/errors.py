"""Errors of a store. Each message names the path and says what to do."""

from __future__ import annotations

from holonomix.core.errors import HolonomixError


class StoreError(HolonomixError):
    """The root of the store's errors."""


class StoreExistsError(StoreError):
    """The path of a new store is taken."""


class StoreNotFoundError(StoreError):
    """No store at this path."""


class StoreDamagedError(StoreError):
    """Files of the store are missing, truncated or altered, or declare more than they hold."""


class StoreLinkError(StoreError):
    """A symbolic link lies where a file or directory of the store should be."""


class StoreVersionError(StoreError):
    """The store was written in another format than this version can use."""


class StoreBusyError(StoreError):
    """Another process is writing to the store."""


class StoreWriteError(StoreError):
    """The operating system refused a write; the store is as it was at its last checkpoint."""


class StoreFullError(StoreWriteError):
    """No space left on the device, or a quota reached."""
