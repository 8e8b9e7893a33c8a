"""How rows lie in Zarr version 3: one array a variable, chunked along time only, each chunk closed by its CRC-32C.

Chunks hold raw little-endian values, so that two stores with the same bits are the same bytes. The shapes of all
arrays stand together in the root's consolidated metadata: one rename shows a reader all the new rows, or none.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from ..columns import dims_of, name_of
from .errors import StoreError

__all__ = ["Column", "as_json", "column_name", "group_metadata", "scalar_attributes"]

INTERNAL = "holonomix"  # the subgroup with the checkpoints and the run's own files
EMPTY_GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
_KINDS = {"b", "i", "u", "f", "c"}


def column_name(key: str) -> str:
    """The variable that a row key is stored as, as `columns.name_of` says; refuses what no directory can be called."""
    name = name_of(key)
    if not name or name.startswith((".", "__")) or name in {INTERNAL, "zarr.json"} or not name.isprintable():
        raise StoreError(f"the name {key!r} cannot be stored; give the observable a plain name such as 'energy'")
    return name


@dataclasses.dataclass(frozen=True)
class Column:
    """One variable: a row has shape `shape` and type `dtype`; `rows_per_chunk` of them make a chunk file.

    `key` is what the writer calls it, `name` what readers see: `obs/energy` and `energy`.
    """

    key: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    rows_per_chunk: int

    @staticmethod
    def of(key: str, values: np.ndarray, rows_per_chunk: int, dims: Iterable[str] | None = None) -> Column:
        name, dtype, shape = column_name(key), values.dtype, values.shape[1:]
        if dtype.kind not in _KINDS:
            raise StoreError(f"the variable {name!r} has type {dtype}; numbers and booleans can be stored")
        dims = ("t", *(dims_of(key, shape) if dims is None else dims))
        if len(dims) != 1 + len(shape):
            raise StoreError(f"the variable {name!r} has rows of shape {shape}, which {dims[1:]} do not name")
        return Column(key, name, dtype.name, tuple(int(n) for n in shape), dims, rows_per_chunk)

    @property
    def numpy_dtype(self) -> np.dtype:
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def row_bytes(self) -> int:
        return self.numpy_dtype.itemsize * math.prod(self.shape)

    @property
    def chunk_file_size(self) -> int:
        return self.rows_per_chunk * self.row_bytes + 4

    def blank(self) -> np.ndarray:
        """An empty chunk: NaN where the type has one, zero elsewhere."""
        fill = np.nan if self.numpy_dtype.kind in "fc" else 0
        if self.numpy_dtype.kind == "c":
            fill = complex(np.nan, np.nan)
        return np.full((self.rows_per_chunk, *self.shape), fill, self.numpy_dtype)

    def chunk_path(self, root: Path, index: int) -> Path:
        return root / self.name / ".".join(["c", str(index), *("0" for _ in self.shape)])

    def encode(self, chunk: np.ndarray) -> bytes:
        """A whole chunk as the bytes of its file."""
        data = chunk.astype(self.numpy_dtype, copy=False).tobytes()
        return data + google_crc32c.value(data).to_bytes(4, "little")

    def intact(self, root: Path, index: int) -> bool:
        """Whether the chunk file is there, of the right size, and agrees with its checksum."""
        if not self.row_bytes:
            return True
        path = self.chunk_path(root, index)
        try:
            if path.stat().st_size != self.chunk_file_size:
                return False
            data = path.read_bytes()
        except OSError:
            return False
        body, checksum = data[:-4], data[-4:]
        return len(data) == self.chunk_file_size and google_crc32c.value(body) == int.from_bytes(checksum, "little")

    def metadata(self, rows: int) -> dict[str, Any]:
        """The array's `zarr.json`."""
        kind = self.numpy_dtype.kind
        fill: Any = {"f": "NaN", "c": ["NaN", "NaN"], "b": False}.get(kind, 0)
        little: dict[str, Any] = {"name": "bytes"}
        if self.numpy_dtype.itemsize > 1:
            little["configuration"] = {"endian": "little"}
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [rows, *self.shape],
            "data_type": self.dtype,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": [self.rows_per_chunk, *(max(1, n) for n in self.shape)]},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": fill,
            "codecs": [little, {"name": "crc32c"}],
            "attributes": {},
            "dimension_names": list(self.dims),
        }

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(entry: Mapping[str, Any]) -> Column:
        column = Column(
            str(entry["key"]),
            str(entry["name"]),
            str(entry["dtype"]),
            tuple(int(n) for n in entry["shape"]),
            tuple(str(d) for d in entry["dims"]),
            int(entry["rows_per_chunk"]),
        )
        sound = np.dtype(column.dtype).kind in _KINDS and column.rows_per_chunk > 0
        if not sound or column_name(column.key) != column.name:
            raise ValueError(f"not a column: {entry}")
        return column


def group_metadata(columns: Iterable[Column], rows: int, attributes: Mapping[str, Any]) -> bytes:
    """The root's `zarr.json` with the metadata of every array inside."""
    inside = {column.name: column.metadata(rows) for column in columns}
    consolidated = {"kind": "inline", "must_understand": False, "metadata": inside}
    return as_json({**EMPTY_GROUP, "attributes": dict(attributes), "consolidated_metadata": consolidated})


def scalar_attributes(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that netCDF could also hold: numbers and texts as they are, the rest as JSON text."""
    flat: dict[str, Any] = {}
    for key, value in json.loads(as_json(meta)).items():
        plain = isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value))
        flat[str(key)] = int(value) if isinstance(value, bool) else value if plain else json.dumps(value)
    return flat


def as_json(value: Any) -> bytes:
    """JSON text of a description; NumPy scalars and arrays become numbers and lists, paths become text."""
    return json.dumps(value, indent=1, default=_plain).encode()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    raise StoreError(f"a store's description holds JSON: numbers, texts, lists and dicts, not {type(value).__name__}")
