"""`export`: write the rows of a store in formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holonomix.core.errors import InputError
from holonomix.run.io import EnsembleStore, Store
from holonomix.run.io.directory import is_ensemble
from holonomix.run.io.formats import FORMATS, XYZ, save_rows

from .exits import CommandError


def write(
    directory: Path, target: Path, *, species: str, dimension: int | None, every: int, trajectory: int | None = None
) -> int:
    """Write FILE.xyz (or .extxyz), .npz or .csv and return the number of rows, of all trajectories of an ensemble."""
    if is_ensemble(directory):
        data = _of_ensemble(directory, target, trajectory)
    elif trajectory is not None:
        raise CommandError(f"--trajectory {trajectory}: {directory} holds one run, not an ensemble")
    else:
        data = Store(directory, "read").dataset()
    try:
        save_rows(data, target, every=every, species=species, dimension=dimension)
    except InputError as error:
        if target.suffix.lower() in FORMATS:
            raise
        raise CommandError(str(error)) from error
    return -(-int(data.sizes["t"]) // every) * int(data.sizes.get("trajectory", 1))


def _of_ensemble(directory: Path, target: Path, trajectory: int | None) -> Any:
    store = EnsembleStore(directory)
    data = store.to_xarray()
    if trajectory is None:
        if target.suffix.lower() in XYZ:
            raise CommandError(f"{target} holds one trajectory: choose one of {directory} with --trajectory 0")
        return data
    if trajectory >= store.trajectories:
        raise CommandError(f"--trajectory {trajectory}: {directory} has trajectories 0 to {store.trajectories - 1}")
    one = data.isel(trajectory=trajectory)
    return one.drop_vars([name for name in one.variables if "t" not in one[name].dims])
