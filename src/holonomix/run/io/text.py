"""JSON in a store: bounded in size when it is read, and with a checksum of its text."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .disk import Folder
from .errors import StoreDamagedError, StoreError

MAX_JSON_BYTES = 16 << 20  # bytes in a JSON file of a store
SEAL = "holonomix_sha256"
_BLANK = "0" * 64


def as_json(value: object) -> bytes:
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


def parse_json(data: bytes) -> dict[str, Any]:
    """A JSON object, or a `ValueError`, whatever the bytes."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it should hold a JSON object")
    return value


def read_json(folder: Folder, name: str) -> dict[str, Any]:
    """A JSON object from a file of a store."""
    try:
        return parse_json(folder.read(name, MAX_JSON_BYTES))
    except (OSError, ValueError) as error:
        raise StoreDamagedError(f"{folder}/{name} is damaged or missing: {error}") from error


# ---- a checksum beside the rest, for files of our own


def sign(body: Mapping[str, Any]) -> bytes:
    """The JSON of `body` with its SHA-256."""
    return as_json({"sha256": hashlib.sha256(as_json(body)).hexdigest(), **body})


def read_signed(data: bytes) -> dict[str, Any]:
    """The body that `sign` wrote, or a `ValueError` if any byte of it has changed."""
    body = parse_json(data)
    claimed = body.pop("sha256", None)
    if claimed != hashlib.sha256(as_json(body)).hexdigest():
        raise ValueError("it does not agree with its checksum")
    # equal values can be written in other ways: blanks, escapes, a key given twice
    if data != as_json({"sha256": claimed, **body}):
        raise ValueError("its text is not as it was written")
    return body


# ---- a checksum among the attributes, for the metadata that Zarr reads


def seal(node: Mapping[str, Any]) -> bytes:
    """The JSON of a Zarr node with the SHA-256 of the text among its attributes."""
    text = as_json({**node, "attributes": {SEAL: _BLANK, **node["attributes"]}})
    return text.replace(_BLANK.encode(), hashlib.sha256(text).hexdigest().encode(), 1)


def check_seal(data: bytes) -> None:
    """Raise `ValueError` if any byte differs from what `seal` wrote."""
    try:
        claimed = parse_json(data)["attributes"][SEAL]
        blank = data.replace(claimed.encode(), _BLANK.encode(), 1)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it has no checksum") from error
    if len(claimed) != 64 or hashlib.sha256(blank).hexdigest() != claimed:
        raise ValueError("it does not agree with its checksum")


def scalar_attributes(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that netCDF could also hold: numbers and texts as they are, the rest as JSON text."""
    flat: dict[str, Any] = {}
    for key, value in json.loads(as_json(meta)).items():
        plain = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        flat[str(key)] = int(value) if isinstance(value, bool) else value if plain else json.dumps(value)
    return flat
