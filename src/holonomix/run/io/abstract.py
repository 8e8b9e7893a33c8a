"""What the stores of runs and of ensembles share: opening, verified reading, and the files saved with them."""

from __future__ import annotations

import abc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from . import directory
from .arrays import unpacked
from .chunks import ColumnReader
from .disk import Folder, as_path
from .errors import StoreDamagedError, StoreNotFoundError, StoreVersionError
from .layout import Column
from .text import damaged_nodes

if TYPE_CHECKING:
    import xarray

log = logging.getLogger("holonomix")
_CLASS_OF_KIND = {
    "run": "a single run: open it with hx.io.Store",
    "ensemble": "an ensemble: open it with hx.io.EnsembleStore",
}


class AbstractStore(abc.ABC):
    """A store on disk. What is read agrees with its checksums, or the reading fails with the damaged file's name."""

    kind: ClassVar[str]
    max_file_bytes: ClassVar[int]  # of a file that the store was created with
    path: Path
    rows: int
    columns: tuple[Column, ...]
    meta: dict[str, Any]
    _root: Folder

    def _locate(self, path: str | os.PathLike[str]) -> None:
        self.path = as_path(path)
        self._root = Folder(self.path)

    def _check_kind(self) -> None:
        """Raise unless there is a store of this kind, in a format that is known here."""
        if not directory.is_store(self.path):
            what = "is not a holonomix store" if self.path.exists() else "does not exist"
            raise StoreNotFoundError(f"{self.path} {what}; a run makes one with `holonomix run ... --out {self.path}`")
        kind = directory.read_format(self._root)[1]
        if kind != self.kind:
            raise StoreVersionError(f"{self.path} holds {_CLASS_OF_KIND.get(kind, kind)}")

    @property
    def format(self) -> int:
        """The number of the layout that the store was written in."""
        return directory.read_format(self._root)[0]

    # ---- reading

    @abc.abstractmethod
    def _now(self) -> AbstractStore:
        """The store as it is on disk now."""

    @abc.abstractmethod
    def _readers(self) -> list[ColumnReader]:
        """All columns, and the coordinates of an ensemble."""

    @abc.abstractmethod
    def _damaged_records(self) -> list[str]:
        """The names of damaged or lost checkpoints or blocks, and of the files that list them."""

    def _lazy_dataset(self, coordinates: set[str], attributes: dict[str, Any]) -> xarray.Dataset:
        from .dataset import lazy_dataset  # here, because xarray takes a while to import

        if bad := self._damaged_nodes():
            log.warning("%s: damaged: %s; other programs may misread the store", self.path, ", ".join(bad))
        return lazy_dataset(self._readers(), coordinates, attributes)

    def _damaged_nodes(self) -> list[str]:
        """The Zarr metadata that is not as it was written; that of format 1 has no checksum."""
        return damaged_nodes(self._root, (r.column.name for r in self._readers())) if self.format > 1 else []

    def verify(self) -> list[str]:
        """Read everything; the names of the files that are missing or not as they were written."""
        now = self._now()
        bad = [name for reader in now._readers() for name in reader.damaged_files()]
        bad += [*now._damaged_nodes(), *now._damaged_records(), *directory.damaged_files(self._root)]
        return list(dict.fromkeys(bad))

    # ---- files

    def file(self, name: str) -> bytes:
        """A file that the store was created with, as it was.

        If another of these files is hollow, a run cannot continue: it is refused here, where `holonomix resume` has not
        imported JAX yet.
        """
        directory.refuse_hollow_files(self._root)
        return directory.saved_file(self._root, name, self.max_file_bytes)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """A file of named arrays that the store was created with."""
        try:
            return unpacked(self.file(name))
        except ValueError as error:
            raise StoreDamagedError(f"{self.path}/{name} is damaged: {error}") from error
