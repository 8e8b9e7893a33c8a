"""Kernels as custom calls of XLA: a compiled function of JAX calls them on its own arrays and stream.

XLA calls a C function with a description of the buffers (`xla/ffi/api/c_api.h`); here that function is Python's.
Nothing is copied to the host and nothing waits.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

_SIZE, _POINTER, _INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
_METADATA = 1  # the type of an extension by which XLA asks for the version that a handler was made for
_FUNCTIONS = 48  # where the functions of the interface begin; of these:
_ERROR_CREATE, _STREAM_GET = 0, 4
_INTERNAL = 13  # code of an error


class _Version(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("extension", _POINTER), ("major", _INT), ("minor", _INT))


class _Api(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("extension", _POINTER), ("version", _Version))


class _Metadata(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("version", _Version), ("traits", ctypes.c_uint32))


class _Extension(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("type", _INT), ("next", _POINTER), ("metadata", ctypes.POINTER(_Metadata)))


class _Buffer(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("extension", _POINTER), ("dtype", _INT), ("data", _POINTER), ("rank", ctypes.c_int64),
                ("dims", ctypes.POINTER(ctypes.c_int64)))  # fmt: skip


class _Buffers(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("extension", _POINTER), ("count", ctypes.c_int64), ("types", _POINTER),
                ("items", ctypes.POINTER(ctypes.POINTER(_Buffer))))  # fmt: skip


class _Frame(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("extension", ctypes.POINTER(_Extension)), ("api", ctypes.POINTER(_Api)),
                ("context", _POINTER), ("stage", _INT), ("args", _Buffers), ("results", _Buffers))  # fmt: skip


class _StreamGet(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("extension", _POINTER), ("context", _POINTER), ("stream", _POINTER))


class _ErrorCreate(ctypes.Structure):
    _fields_ = (("size", _SIZE), ("extension", _POINTER), ("message", ctypes.c_char_p), ("code", _INT))


_Handler = ctypes.CFUNCTYPE(_POINTER, ctypes.POINTER(_Frame))
_registered: dict[str, object] = {}  # handlers live as long as the process: compiled functions refer to them

Call = Callable[[int, list[int], list[int], "int | None"], None]


def register(name: str, platform: str, rank: int, call: Call) -> str:
    """Make `call(count, inputs, results, stream)` a target of custom calls, once, and return its name.

    It gets addresses; `count` is the number of trajectories, from the axes of the first array before its last `rank`.
    """
    if name in _registered:
        return name

    def handler(frame: Any) -> int | None:
        f = frame.contents
        if f.extension and f.extension.contents.type == _METADATA:
            wanted, own = f.extension.contents.metadata.contents, f.api.contents.version
            wanted.version.major, wanted.version.minor, wanted.traits = own.major, own.minor, 0
            return None
        try:
            first = f.args.items[0].contents
            count = math.prod(first.dims[k] for k in range(first.rank - rank))
            inputs, results = ([b.items[k].contents.data or 0 for k in range(b.count)] for b in (f.args, f.results))
            call(count, inputs, results, _stream(f) if platform == "CUDA" else None)
        except Exception as error:
            return _failed(f, f"{type(error).__name__}: {error}")
        return None

    _registered[name] = function = _Handler(handler)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(function), platform=platform)
    return name


def _function(frame: _Frame, index: int) -> Callable[[object], int | None]:
    place = ctypes.cast(frame.api, _POINTER).value or 0
    address = _POINTER.from_address(place + _FUNCTIONS + index * ctypes.sizeof(_POINTER)).value
    return ctypes.CFUNCTYPE(_POINTER, _POINTER)(address or 0)


def _stream(frame: _Frame) -> int | None:
    asked = _StreamGet(ctypes.sizeof(_StreamGet), None, frame.context, None)
    if _function(frame, _STREAM_GET)(ctypes.addressof(asked)):
        raise RuntimeError("XLA has no stream for a kernel")
    return asked.stream


def _failed(frame: _Frame, message: str) -> int | None:
    asked = _ErrorCreate(ctypes.sizeof(_ErrorCreate), None, message.encode(), _INTERNAL)
    return _function(frame, _ERROR_CREATE)(ctypes.addressof(asked))


def called(name: str, wanted: Sequence[jax.ShapeDtypeStruct], given: Sequence[jax.Array]) -> list[jax.Array]:
    """The results of a target in a compiled function; under `jax.vmap` all trajectories are one call."""
    return list(jax.ffi.ffi_call(name, list(wanted), vmap_method="broadcast_all")(*given))
