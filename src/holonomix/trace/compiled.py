"""`compiled`: `jax.jit` for functions of PyTrees that are partly static, with a bounded number of programs.

Arrays are runtime values, everything else is static. The programs of all functions live in one cache. The least
recently used ones are dropped and their machine code is freed, so that the memory of a process with many systems
stays bounded.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from ..core.types import known_array
from . import stepwise

__all__ = ["LIMIT", "Recent", "compiled", "compiled_for_one_run", "rarely_collecting", "statistics", "traced_once"]

LIMIT = 80  # programs; two to three megabytes each
TRIM = 16  # dropped programs per call of malloc_trim
STEPWISE = 4  # the call in which a long program is compiled; earlier ones are evaluated by NumPy
OBJECTS = 100_000  # new objects per run of the garbage collector
# Options of XLA on the CPU. The emitters of fusions double the time and the memory of compiling; steps are no faster.
LEAN = {"xla_cpu_use_fusion_emitters": False}
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
statistics = {"compiled": 0, "dropped": 0}


@contextlib.contextmanager
def rarely_collecting() -> Iterator[None]:
    """Run the garbage collector rarely while programs are traced and lowered.

    Programs are many small objects that stay alive; visiting them takes a seventh of the time.
    """
    before = gc.get_threshold()
    if gc.isenabled() and before[0]:
        gc.set_threshold(max(before[0], OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Recent(Generic[V]):
    """A dictionary that keeps the most recently used entries and calls `drop` for those that it removes."""

    def __init__(self, limit: int, drop: Callable[[V], None] | None = None):
        self.limit, self._drop = limit, drop
        self._entries: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: Hashable, value: V) -> V:
        with self._lock:
            self._entries[key] = value
            gone = [self._entries.popitem(last=False)[1] for _ in range(len(self._entries) - self.limit)]
        for old in gone if self._drop is not None else ():
            self._drop(old)  # pyright: ignore[reportOptionalCall]
        return value

    def values(self) -> list[V]:
        with self._lock:
            return list(self._entries.values())

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class _Program:
    """One function with its static arguments, compiled for arrays of one set of shapes."""

    def __init__(
        self,
        fn: Callable[..., Any],
        treedef: Any,
        static: Sequence[Any],
        options: dict[str, Any] | None = None,
        quick: bool = False,
    ):
        box: list[Any] = []

        def call(arrays: list[Any]) -> Any:
            given = iter(arrays)
            leaves = [next(given) if x is _ARRAY else x for x in static]
            args, options = jax.tree.unflatten(treedef, leaves)
            dynamic, rest = eqx.partition(fn(*args, **options), _is_array)
            box[:] = [rest]
            return dynamic

        call.__name__ = getattr(fn, "__name__", "call")  # in profiles and logs
        self.jitted, self.box = jax.jit(call, compiler_options=options), box
        self.stepwise = STEPWISE if quick else 0  # calls left that may be evaluated without XLA

    def __call__(self, arrays: list[Any]) -> Any:
        if self.stepwise:
            traced = self.jitted.trace(arrays)
            self.stepwise = self.stepwise - 1 if stepwise.pays_off(traced.jaxpr) else 0
            if self.stepwise and (found := stepwise.evaluated(traced.jaxpr, arrays)) is not None:
                leaves = map(known_array, found)
                return eqx.combine(jax.tree.unflatten(jax.tree.structure(traced.out_info), leaves), self.box[0])
        return eqx.combine(self.jitted(arrays), self.box[0])

    def drop(self) -> None:
        statistics["dropped"] += 1
        self.jitted.clear_cache()  # pyright: ignore[reportAttributeAccessIssue]
        if statistics["dropped"] % TRIM == 0:
            _trim()


class _Array:
    def __repr__(self) -> str:
        return "array"


_ARRAY = _Array()


@functools.cache
def _malloc_trim() -> Callable[[int], int]:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return lambda pad: 0


def _trim() -> None:
    """Return free heap memory to the system; the threads that compile fragment their heaps."""
    _malloc_trim()(0)


_programs: Recent[_Program] = Recent(LIMIT, _Program.drop)


_ARRAYS = (jax.Array, np.ndarray, np.generic)


def _is_array(x: object) -> bool:
    return isinstance(x, _ARRAYS)


def _separated(
    fn: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, Any, tuple[Any, ...], list[Any]]:
    """The key of a call, the structure of its arguments, their static leaves, and their arrays."""
    leaves, treedef = jax.tree.flatten((args, options))
    arrays = [x for x in leaves if isinstance(x, _ARRAYS)]
    static = tuple(_ARRAY if isinstance(x, _ARRAYS) else x for x in leaves)
    kinds = tuple((x.shape, x.dtype) for x in arrays)
    # the type too, because 1 == 1.0 == True
    return (fn, treedef, tuple((type(x), x) for x in static), kinds), treedef, static, arrays


def compiled(fn: Callable[P, R]) -> Callable[P, R]:
    """A compiled form of `fn`. Static arguments must be hashable; new static values and new shapes recompile."""
    return _compiled(fn, quick=False)


def compiled_for_one_run(fn: Callable[P, R]) -> Callable[P, R]:
    """The same for functions that run once, such as the checks of a start: XLA optimizes less."""
    return _compiled(fn, quick=True)


def _compiled(fn: Callable[P, R], quick: bool) -> Callable[P, R]:
    @functools.wraps(fn)
    def call(*args: P.args, **options: P.kwargs) -> R:
        key, treedef, static, arrays = _separated(fn, args, options)
        for nested in (True,) if any(isinstance(x, Tracer) for x in arrays) else (False, True):
            if nested and quick:
                break
            program = _programs.get((nested, key))
            if program is None:
                statistics["compiled"] += 1
                program = _Program(fn, treedef, static, None if nested else _options(quick), quick and not nested)
                _programs.put((nested, key), program)
            try:
                return program(arrays)
            except ValueError:  # JAX takes compiler options only outside of transformations
                if nested:
                    raise
        return fn(*args, **options)

    return call


@functools.cache
def _options(quick: bool) -> dict[str, Any] | None:
    """Compiler options that this version of XLA knows."""
    if jax.default_backend() != "cpu":
        return None
    chosen = QUICK if quick else {}
    try:
        jax.jit(lambda: 0, compiler_options=LEAN).lower().compile()
    except jax.errors.JaxRuntimeError:
        return chosen or None
    return chosen | LEAN


_traced: Recent[_Program] = Recent(LIMIT)


def traced_once(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn`, traced once per shapes of its arguments: a step evaluates constraints and forces many times.

    Inside of a transformation a call is one equation, and its derivatives are traced once too. Elsewhere, and where an
    argument cannot be hashed, `fn` is called directly.
    """

    @functools.wraps(fn)
    def call(*args: P.args, **options: P.kwargs) -> R:
        key, treedef, static, arrays = _separated(fn, args, options)
        if not any(isinstance(x, Tracer) for x in arrays):
            return fn(*args, **options)
        try:
            program = _traced.get(key)
        except TypeError:
            return fn(*args, **options)
        if program is None:
            program = _traced.put(key, _Program(fn, treedef, static))
        return program(arrays)

    return call
