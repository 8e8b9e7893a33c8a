"""Functions on stores of any kind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .directory import is_ensemble, is_store
from .disk import as_path
from .ensemble import EnsembleStore
from .errors import StoreNotFoundError
from .store import Store

if TYPE_CHECKING:
    import xarray


def verify(path: str | os.PathLike[str]) -> list[str]:
    """Read everything in a store; return the names of missing or changed files."""
    return (EnsembleStore(path) if is_ensemble(path) else Store(path, "read")).verify()


def unfinished(path: str | os.PathLike[str]) -> str:
    """A clause with the number of trajectories that an ensemble lacks; empty for other stores."""
    left = EnsembleStore(path).progress()[-1] if is_ensemble(path) else 0
    return f"; {left} of {EnsembleStore(path).trajectories} trajectories are not computed yet" if left else ""


def open_sweep(path: str | os.PathLike[str]) -> xarray.Dataset:
    """An `xarray.Dataset` of the trajectories of a sweep; a sweep over methods has the coordinate `method`.

    One store is read on demand. The stores of several methods are read into memory, because they become new arrays.
    Variables that not all of the methods have are left out.
    """
    path = as_path(path)
    if is_store(path):
        return EnsembleStore(path).to_xarray()
    stores = [EnsembleStore(part) for part in sorted(path.glob("*")) if is_ensemble(part)]
    if not stores:
        raise StoreNotFoundError(f"{path} is not a sweep: it is not a store of an ensemble and contains none")
    import xarray  # here, because it takes a while

    parts = [store.to_xarray() for store in stores]
    shared = set.intersection(*({str(name) for name in part.variables} for part in parts))
    labelled = [
        part[sorted(shared)].assign_coords(method=("trajectory", [store.path.name] * store.trajectories))
        for part, store in zip(parts, stores, strict=True)
    ]
    return xarray.concat(labelled, "trajectory", join="override", combine_attrs="drop_conflicts")
