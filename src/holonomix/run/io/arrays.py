"""Named arrays as the bytes of an `.npz`, without pickle or compression; sizes are checked before memory is taken."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping

import numpy as np

from .errors import StoreError

KINDS = "biufcSU"  # numbers, booleans and texts
_MAX_HEADER_BYTES = 10_000


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The arrays as bytes; `unpacked` and `numpy.load` read them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in arrays.items():
            value = np.asarray(value)
            if value.dtype.kind not in KINDS:
                raise StoreError(f"the array {name!r} has type {value.dtype}, which cannot be stored")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)
    return buffer.getvalue()


def unpacked(data: bytes) -> dict[str, np.ndarray]:
    """The arrays, which take no more memory than `data`; a `ValueError` where the bytes are anything else."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            plain = all(m.compress_type == zipfile.ZIP_STORED and m.compress_size == m.file_size for m in members)
            if not plain or sum(m.file_size for m in members) > len(data):
                raise ValueError("the arrays are not stored as they are")
            return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
    except ValueError:
        raise
    # zipfile raises RuntimeError for a password, NotImplementedError for a method; NumPy reads its header as Python
    # text, and raises what the tokenizer and the parser do
    except Exception as error:
        raise ValueError(f"not the arrays of a store: {error}") from error


def _array(data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array with an unknown header")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=_MAX_HEADER_BYTES)
    if dtype.kind not in KINDS or any(n < 0 for n in shape):
        raise ValueError("an array of an unknown type")
    if dtype.itemsize * math.prod(shape) != len(data) - file.tell():
        raise ValueError("an array whose size is not that of its values")
    flat = np.frombuffer(data, dtype, offset=file.tell()) if math.prod(shape) else np.empty(0, dtype)
    return flat.reshape(shape[::-1]).T.copy() if fortran else flat.reshape(shape).copy()
