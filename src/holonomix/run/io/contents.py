"""What a store of one run holds, as its readers see it; every byte that is read is verified."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import checkpoints, directory
from .checkpoints import Checkpoint
from .columns import ColumnReader
from .disk import Folder
from .errors import StoreDamagedError, StoreError, StoreVersionError
from .layout import INTERNAL, MOST_ROWS, Column, columns_from, whole_number
from .text import MOST_JSON, damaged_nodes, read_json, scalar_attributes, unsigned

log = logging.getLogger("holonomix")


@dataclasses.dataclass(frozen=True)
class Contents:
    """The rows and columns that the store's status names. `meta` is the run's description."""

    root: Folder
    format: int
    rows: int
    columns: tuple[Column, ...]
    attributes: dict[str, Any]
    meta: dict[str, Any]
    checkpoints: frozenset[int] = frozenset()  # that the status names; those of older versions name none

    @property
    def readers(self) -> list[ColumnReader]:
        return [ColumnReader(self.root, column, self.rows) for column in self.columns]

    def dataset(self) -> Any:
        """The rows as an `xarray.Dataset`, read on demand."""
        from .dataset import lazy_dataset

        if bad := damaged_metadata(self):
            log.warning("%s: damaged: %s; other programs may misread the store", self.root, ", ".join(bad))
        return lazy_dataset(self.readers, self.attributes)

    def load(self) -> dict[str, np.ndarray]:
        """All rows in memory, under the keys that they were appended with."""
        return {reader.column.key: reader.read(slice(None)) for reader in self.readers}

    def damaged(self) -> list[str]:
        """Read everything; the names of the files that are missing or not as they were written."""
        bad = [name for reader in self.readers for name in reader.damaged_files()] + damaged_metadata(self)
        try:
            return bad + self._damaged_checkpoints()
        except StoreError:
            return [*bad, f"{INTERNAL}/checkpoints"]

    def _damaged_checkpoints(self) -> list[str]:
        folder = self.root / INTERNAL / "checkpoints"
        bad = {number for number in checkpoints.numbers(folder) if checkpoints.load(folder, number) is None}
        there = set(checkpoints.numbers(folder))  # a run in progress removes old ones
        lost = self.checkpoints - there
        if lost:  # the status stops naming a checkpoint before it is removed
            lost &= open_contents(self.root).checkpoints
        found = {number: f"{number:08d}" for number in bad & there} | {number: f"{number:08d}.json" for number in lost}
        return [f"{INTERNAL}/checkpoints/{found[number]}" for number in sorted(found, reverse=True)]


def open_contents(root: Folder) -> Contents:
    """Learn which rows and columns there are: from the status, or where that is damaged from the newest checkpoint."""
    number, kind = directory.read_format(root)
    if kind != "run":
        raise StoreVersionError(f"{root} holds an {kind}, not a single run: open it with hx.io.EnsembleStore")
    if number == 1:
        return _format_1(root)
    try:
        body = unsigned((root / INTERNAL).read("status.json", MOST_JSON))
        rows, columns = whole_number(body["rows"], 0, MOST_ROWS), columns_from(body["columns"])
        named = frozenset(whole_number(n, 0, 10**8) for n in body.get("checkpoints", ()))
        return Contents(root, number, rows, columns, dict(body["attributes"]), dict(body.get("begin", {})), named)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StoreError) as error:
        newest = next(intact_checkpoints(root), None)
        if newest is None:
            raise StoreDamagedError(f"{root / INTERNAL}/status.json is damaged or missing: {error}") from error
        return Contents(root, number, newest.rows, newest.columns, scalar_attributes(newest.begin), newest.begin)


def _format_1(root: Folder) -> Contents:
    """A store of the first format: shapes from the group's metadata, keys from a checkpoint."""
    node, newest = read_json(root, "zarr.json"), next(intact_checkpoints(root), None)
    try:
        inside = node["consolidated_metadata"]["metadata"]
        found = [Column.from_metadata(str(name), array) for name, array in inside.items()]
        attributes = scalar_attributes(node["attributes"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StoreError) as error:
        raise StoreDamagedError(f"{root}/zarr.json is damaged: {error}") from error
    rows = {count for _, count in found}
    columns = tuple(column for column, _ in found)
    known = columns if newest is None else newest.columns
    if len(rows) > 1 or {(c.name, c.shape, c.dtype) for c in known} != {(c.name, c.shape, c.dtype) for c in columns}:
        raise StoreDamagedError(f"{root}/zarr.json is damaged: the arrays do not agree on the rows")
    return Contents(root, 1, rows.pop() if rows else 0, known, attributes, newest.begin if newest else {})


def intact_checkpoints(root: Folder) -> Iterator[Checkpoint]:
    """The intact checkpoints, newest first."""
    folder = root / INTERNAL / "checkpoints"
    for number in checkpoints.numbers(folder):
        found = checkpoints.load(folder, number)
        if found is not None:
            yield found


def damaged_metadata(contents: Contents) -> list[str]:
    """The metadata files that are not as they were written; those of format 1 have no checksum."""
    if contents.format == 1:
        return []
    bad = damaged_nodes(contents.root, (column.name for column in contents.columns))
    try:
        unsigned((contents.root / INTERNAL).read("status.json", MOST_JSON))
    except (OSError, ValueError, StoreError):
        bad.append(f"{INTERNAL}/status.json")
    return bad
