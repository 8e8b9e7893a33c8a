"""Find out whether a function is certainly unchanged, without tracing it.

`stamp(fn)` is equal for two moments only if the function computes the same at both. It holds the function, the values
that it closes over, its defaults and everything that it names, and the same of the functions among them. A function
has a stamp only if it names nothing but values that can be compared, functions that have a stamp themselves, and what
`purity` lists. Everything else (a list, an object with attributes, `os.environ`, `open`, `eval`) may change unseen:
then there is no stamp, and the function is traced again.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Hashable, Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from .purity import ATTRIBUTES, allowed, is_pure

MAX_BYTES = 1 << 16  # larger NumPy arrays are not compared
# Instructions that do more than read names: they load code or change what others read.
_REFUSED = ("IMPORT_NAME", "IMPORT_FROM", "IMPORT_STAR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR")
_REFUSED += ("LOAD_BUILD_CLASS", "LOAD_LOCALS", "LOAD_NAME", "STORE_DEREF", "DELETE_DEREF", "LOAD_SUPER_ATTR")
_REFUSED += ("MATCH_CLASS",)  # its patterns read attributes
_GLOBAL, _CELL = ("LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"), ("LOAD_DEREF", "LOAD_CLASSDEREF")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


class Same:
    """An object that is equal to itself alone; holding it keeps its identity from being reused."""

    def __init__(self, value: object):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def stamp(value: object, seen: dict[int, Hashable | None] | None = None) -> Hashable | None:
    """A key that is equal as long as `value` is certainly unchanged; None where that is unknown.

    `seen` holds the stamps of functions that were visited already, by their identity.
    """
    seen = {} if seen is None else seen
    kind = type(value)
    if isinstance(value, Tracer):
        return None
    if value is None or kind in (bool, int, str, bytes):
        return kind, value
    if kind in (float, complex):
        return kind, repr(value)
    if id(value) in allowed():
        return Same(value)
    if kind is FunctionType:
        ours = not value.__closure__ and is_pure(value.__code__)  # type: ignore[attr-defined]
        return Same(value) if ours else _function(value, seen)  # type: ignore[arg-type]
    if kind is np.ndarray or isinstance(value, np.generic):
        array = np.asarray(value)
        small = array.nbytes <= MAX_BYTES and array.dtype.kind in "biufc"
        return (kind, array.dtype.str, array.shape, array.tobytes()) if small else None
    if isinstance(value, jax.Array):
        # `jax.device_put` may share memory with NumPy, which can write to it
        small = value.nbytes <= MAX_BYTES and isinstance(value.dtype, np.dtype) and not value.is_deleted()
        return Same(value), np.asarray(value).tobytes() if small and _on_cpu(value.sharding) else None
    if kind in (tuple, frozenset):
        return _all(value, seen)  # type: ignore[arg-type]
    return None


@functools.lru_cache(256)
def _on_cpu(sharding: jax.sharding.Sharding) -> bool:
    return sharding.is_fully_addressable and all(device.platform == "cpu" for device in sharding.device_set)


def _function(fn: FunctionType, seen: dict[int, Hashable | None]) -> Hashable | None:
    if id(fn) in seen:
        return seen[id(fn)]
    seen[id(fn)] = Same(fn)  # functions may name each other in a circle: visit each once
    seen[id(fn)] = found = _parts(fn, seen)
    return found


def _parts(fn: FunctionType, seen: dict[int, Hashable | None]) -> Hashable | None:
    reads = names_read(fn.__code__)
    if reads is None or vars(fn):
        return None
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
    values: list[object] = [*(fn.__defaults__ or ())]
    for name, value in sorted((fn.__kwdefaults__ or {}).items()):
        values += [name, value]
    for read in reads:
        try:
            value = _value(read, fn, cells)
        except (KeyError, ValueError, AttributeError):  # not yet defined
            return None
        values.append(value)
    found = _all(values, seen)
    return None if found is None else (Same(fn), Same(fn.__code__), found)


def _value(read: Read, fn: FunctionType, cells: dict[str, Any]) -> object:
    """The value of a name with attributes; only attributes of modules are followed."""
    if read.cell:
        value = cells[read.name].cell_contents
    elif read.name in fn.__globals__:
        value = fn.__globals__[read.name]
    else:
        value = fn.__builtins__[read.name]  # those of its globals, which need not be Python's
    for attribute in read.attributes:
        if not isinstance(value, ModuleType):
            if attribute not in ATTRIBUTES:
                raise AttributeError(attribute)
            break  # an attribute of a value, which is compared as a whole
        value = getattr(value, attribute)
    return value


class Read(NamedTuple):
    """A name that a function reads, and the attributes that follow it."""

    name: str
    cell: bool
    attributes: tuple[str, ...]


@functools.lru_cache(4096)
def names_read(code: CodeType) -> tuple[Read, ...] | None:
    """What a function and those defined in it read by name; None where they do more than that."""
    try:
        return tuple(dict.fromkeys(_reads(code, frozenset(code.co_freevars))))
    except _Unknown:
        return None


class _Unknown(Exception):
    """A function does more than read names."""


def _reads(code: CodeType, outer: frozenset[str]) -> Iterator[Read]:
    """`outer` are the names of cells that come from outside of the outermost function."""
    read: Read | None = None
    for step in dis.get_instructions(code):
        name = step.opname
        if name in _REFUSED and not (name == "STORE_DEREF" and step.argval not in outer):
            raise _Unknown
        if name in _ATTRIBUTE:
            if read is not None:
                read = read._replace(attributes=(*read.attributes, step.argval))
            elif step.argval not in ATTRIBUTES:
                raise _Unknown
            continue
        if read is not None:
            yield read
            read = None
        if name in _GLOBAL:
            read = Read(step.argval, False, ())
        elif name in _CELL and step.argval in outer:
            read = Read(step.argval, True, ())
    if read is not None:
        yield read
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _reads(inner, outer)


def _all(values: Iterable[Any], seen: dict[int, Hashable | None]) -> Hashable | None:
    found = tuple(stamp(x, seen) for x in values)
    return None if None in found else found
