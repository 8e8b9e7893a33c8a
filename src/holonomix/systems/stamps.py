"""Whether a function is certainly the same as before, told without tracing it.

`stamp(fn)` is equal for two moments only if the function computes the same at both: it holds the function, the values
that it closes over, its defaults and the globals that it names, and those of the functions among them. Where anything
in there could change unseen (a list, an object with attributes), there is no stamp, and the function is traced again.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

_LIBRARIES = {
    "builtins",
    "equinox",
    "holonomix",
    "jax",
    "jaxlib",
    "jaxtyping",
    "numpy",
    "scipy",
    *sys.stdlib_module_names,
}
_LIBRARIES -= {"__main__"}
LARGEST = 1 << 16  # bytes of an array of NumPy that are compared


class Same:
    """An object that is equal to itself alone; holding it keeps its identity from being reused."""

    def __init__(self, value: object):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def stamp(value: object, seen: dict[int, Hashable | None] | None = None) -> Hashable | None:
    """Something equal as long as `value` certainly stays what it is; None where that cannot be told.

    `seen` are the functions that have been looked into, by their identity.
    """
    seen = {} if seen is None else seen
    if isinstance(value, Tracer):
        return None
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return type(value), value
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, FunctionType):
        return Same(value) if _library(value) and not value.__closure__ else _function(value, seen)
    if isinstance(value, ModuleType):
        return value.__name__ if value.__name__.partition(".")[0] in _LIBRARIES else None
    if isinstance(value, (np.ndarray, np.generic)):
        small = value.nbytes <= LARGEST and value.dtype.kind in "biufc"
        return (value.dtype.str, value.shape, value.tobytes()) if small else None
    if isinstance(value, jax.Array):
        return Same(value)  # its values do not change
    if isinstance(value, (tuple, frozenset)):
        return _all(value, seen)
    return Same(value) if _library(value) else None


def _library(value: object) -> bool:
    """Whether a function or class comes from a library and holds nothing of the user's, as a `partial` may."""
    module, kind = getattr(value, "__module__", None), type(value).__module__.partition(".")[0]
    plain = isinstance(value, (type, FunctionType, BuiltinFunctionType)) or kind in ("jax", "jaxlib", "numpy")
    return plain and isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def _function(fn: FunctionType, seen: dict[int, Hashable | None]) -> Hashable | None:
    if id(fn) in seen:
        return seen[id(fn)]
    seen[id(fn)] = Same(fn)  # where functions name each other in a circle, each is looked into once
    seen[id(fn)] = found = _parts(fn, seen)
    return found


def _parts(fn: FunctionType, seen: dict[int, Hashable | None]) -> Hashable | None:
    cells = []
    for cell in fn.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            return None
    names = sorted(_names(fn.__code__) & fn.__globals__.keys())
    keywords = tuple(sorted((fn.__kwdefaults__ or {}).items()))
    found = _all((*cells, *(fn.__defaults__ or ()), *keywords, *(fn.__globals__[name] for name in names)), seen)
    return None if found is None or vars(fn) else (Same(fn), Same(fn.__code__), found)


def _names(code: CodeType) -> set[str]:
    """The globals that a function, or one defined in it, may name."""
    inner = (_names(x) for x in code.co_consts if isinstance(x, CodeType))
    return set(code.co_names).union(*inner)


def _all(values: Iterable[Any], seen: dict[int, Hashable | None]) -> Hashable | None:
    found = tuple(stamp(x, seen) for x in values)
    return None if None in found else found
