"""`export`: the rows of a store in formats that other programs read."""

from __future__ import annotations

from pathlib import Path

from holonomix.errors import InputError
from holonomix.io import Store
from holonomix.io.formats import FORMATS, save_rows

from .exits import CommandError

__all__ = ["write"]


def write(directory: Path, target: Path, *, species: str, dimension: int | None, every: int) -> int:
    """Write FILE.xyz, FILE.npz or FILE.csv; returns the number of rows."""
    data = Store(directory, "read").dataset()
    try:
        save_rows(data, target, every=every, species=species, dimension=dimension)
    except InputError as error:
        if target.suffix.lower() in FORMATS:
            raise
        raise CommandError(str(error)) from error
    return -(-int(data.sizes["t"]) // every)
