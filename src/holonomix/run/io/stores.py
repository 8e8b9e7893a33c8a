"""Functions on stores of any kind."""

from __future__ import annotations

import os
from typing import Any

from .directory import is_ensemble
from .disk import as_path
from .ensemble import EnsembleStore
from .store import Store


def verify(path: str | os.PathLike[str]) -> list[str]:
    """Read everything in a store; the names of the files that are missing or not as they were written."""
    return (EnsembleStore(path) if is_ensemble(path) else Store(path, "read")).verify()


def open_sweep(path: str | os.PathLike[str]) -> Any:
    """An `xarray.Dataset` of the trajectories of a sweep; a sweep over methods has the coordinate `method`.

    One store is read on demand. The stores of several methods are read at once, since they become new arrays; what only
    some of the methods have, such as multipliers of their own, is left out.
    """
    from .dataset import sweep_dataset  # here, because xarray takes a while to import

    return sweep_dataset(as_path(path))
