"""Check a store of any kind, byte by byte."""

from __future__ import annotations

import os
from pathlib import Path

from .directory import is_store, read_format
from .disk import Folder
from .ensemble import EnsembleStore
from .store import Store


def verify(path: str | os.PathLike[str]) -> list[str]:
    """Read everything in a store; the names of the files that are missing or not as they were written."""
    if is_store(path) and read_format(Folder(Path(path)))[1] == "ensemble":
        return EnsembleStore(path).verify()
    return Store(path, "read").verify()
