"""Runs a compiled program on NumPy arrays: one trajectory or a batch."""

from __future__ import annotations

import abc
import ctypes
import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..core.types import ArrayLike, Index
from . import native
from .emit import Layout
from .foreign import called
from .graph import defects
from .program import Leaf, Program

LARGE = 1 << 24  # bytes of memory for the arrays of one trajectory
_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a forked process has none of the threads


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_contiguous = functools.partial(np.asarray, order="C")


def to_arrays(
    leaves: list[Leaf],
    tree: Any,
    given: Any,
    what: str,
    batch: Sequence[int | None] | None = None,
    make: Callable[[Any, Any], Any] = _contiguous,
) -> list[Any]:
    """Flatten a tree into arrays of the program's types, by `make`; `batch` is the leading axis of each leaf."""
    flat, structure = jax.tree.flatten(given)
    if structure != tree:
        raise TypeError(f"{what} has structure {structure}, the program was lowered for {tree}")
    out = []
    for k, (leaf, value) in enumerate(zip(leaves, flat, strict=True)):
        if leaf.key is not None:
            value = jax.random.key_data(value)
        array = make(value, leaf.dtype)
        lead = batch[k] if batch else None
        expected = leaf.shape if lead is None else (lead, *leaf.shape)
        if array.shape != expected:
            raise TypeError(f"leaf {k} of {what} has shape {array.shape}, expected {expected}")
        out.append(array)
    return out


def _as_given(value: Any, dtype: Any) -> Any:
    """Unchanged where it has a shape to check: a block converts what is written into it."""
    return value if hasattr(value, "shape") else np.asarray(value, dtype)


def _plain(array: ArrayLike) -> np.ndarray:
    return np.asarray(array, order="C")


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]  # a few times faster than array.ctypes.data


def _own_address(array: np.ndarray) -> int:
    """The same for an array that may be written to, three times faster."""
    return ctypes.addressof(_Nothing.from_buffer(array))  # pyright: ignore[reportArgumentType]


_Nothing = ctypes.c_char * 0


def _words(pointers: list[int], count: int, rows: int, every: int) -> np.ndarray:
    """The arguments of a kernel: see `Layout`."""
    if rows < 0 or every < 0:
        raise ValueError("rows and every must not be negative")
    return np.array([0, 0, count, rows, every, *pointers, 0], np.int64)


def from_arrays(leaves: list[Leaf], tree: Any, arrays: list):
    """The inverse, with typed random keys put together again."""
    wrapped = [
        jax.random.wrap_key_data(jax.numpy.asarray(a), impl=leaf.key._impl.name) if leaf.key is not None else a
        for leaf, a in zip(leaves, arrays, strict=True)
    ]
    return jax.tree.unflatten(tree, wrapped)


def batch_axes(tree: Any, consts: PyTree, axes: PyTree) -> list[int | None]:
    """One entry, 0 or None, for each leaf of the constants, from a tree prefix."""
    is_none = lambda x: x is None
    spread = jax.tree.map(lambda a, sub: [a] * len(jax.tree.leaves(sub)), axes, consts, is_leaf=is_none)
    flat = [a for part in jax.tree.leaves(spread, is_leaf=lambda x: isinstance(x, list)) for a in part]
    if any(a not in (0, None) for a in flat):
        raise ValueError("consts_axes may hold 0 and None only")
    return flat


class Block:
    """One piece of memory with a place for every array: to ask NumPy for an address takes a microsecond."""

    def __init__(self, leaves: Sequence[Leaf]):
        self.offsets, end = [], 0
        formats = [(leaf.dtype, leaf.shape) for leaf in leaves]
        for dtype, shape in formats:
            self.offsets.append(end)
            end += -(-dtype.itemsize * math.prod(shape) // 64) * 64
        self.names = [f"{k}" for k in range(len(leaves))]
        self.dtype = np.dtype(
            {"names": self.names, "formats": formats, "offsets": self.offsets, "itemsize": max(end, 64)}
        )

    def allocate(self) -> tuple[np.ndarray, list[int]]:
        """A record with undefined values, and the addresses of its fields."""
        raw = np.empty(self.dtype.itemsize, np.uint8)
        base = _own_address(raw)
        return np.ndarray((), self.dtype, raw), [base + offset for offset in self.offsets]

    def filled(self, values: Sequence[Any]) -> tuple[np.ndarray, list[int]]:
        """The same with values converted to the types of the fields."""
        record, addresses = self.allocate()
        for name, value in zip(self.names, values, strict=True):
            record[name] = value
        return record, addresses


class UnderJit(abc.ABC):
    """Adds `under_jit` to a runner that takes and returns arrays of NumPy."""

    program: Program

    @abc.abstractmethod
    def _single(self, carry_in: list, given: list, rows: int, every: int) -> tuple[list, list]: ...

    @abc.abstractmethod
    def _batch(
        self, count: int, carry_in: list[Any], given: list[Any], per_lane: Sequence[bool], rows: int, every: int
    ) -> tuple[list, list]: ...

    def under_jit(self, carry: PyTree, consts: PyTree, *, rows: int, every: Index):
        """`run` for use inside of `jax.jit`, as a callback; under `jax.vmap` it is one batch. `every` may be traced."""
        p = self.program
        wanted = [
            jax.ShapeDtypeStruct(shape, leaf.dtype)
            for leaf, shape in (*((f, f.shape) for f in p.carry), *((f, (rows, *f.shape)) for f in p.rows))
        ]
        given = [
            to_arrays(leaves, tree, values, what, make=jax.numpy.asarray)
            for leaves, tree, values, what in (
                (p.carry, p.carry_tree, carry, "carry"),
                (p.consts, p.consts_tree, consts, "consts"),
            )
        ]
        target = self._target(rows, every) if isinstance(every, int) else None
        if target is not None:
            out = called(target, wanted, [*given[0], *given[1]])
        else:
            steps, call = jax.numpy.asarray(every, np.int64), functools.partial(self._host, rows)
            out = jax.pure_callback(call, wanted, steps, *given, vmap_method="broadcast_all")
        split = len(p.carry)
        return from_arrays(p.carry, p.carry_tree, out[:split]), from_arrays(p.rows, p.rows_tree, out[split:])

    def _target(self, rows: int, every: int) -> str | None:
        """The name of a custom call of XLA that does the same without a copy to the host, where there is one."""
        return None

    def _host(self, rows: int, every: jax.Array | np.ndarray, carry: list[Any], given: list[Any]) -> list[np.ndarray]:
        p = self.program
        every = np.asarray(every)
        lead = every.shape
        if not lead:
            out, saved = self._single(carry, given, rows, int(every))
            return [*out, *saved]
        if np.any(every != every.flat[0]):
            raise ValueError("the number of steps must be the same for all trajectories of a batch")
        count = every.size
        flat = [
            _plain(a).reshape(count, *f.shape) for a, f in zip((*carry, *given), (*p.carry, *p.consts), strict=True)
        ]
        lanes, split = [True] * len(given), len(carry)
        out, saved = self._batch(count, flat[:split], flat[split:], lanes, rows, int(every.flat[0]))
        return [a.reshape(*lead, *a.shape[1:]) for a in (*out, *saved)]


class NativeRunner(UnderJit):
    """The native back end's runner; machine code is made on first use of each form."""

    def __init__(self, program: Program, lanes: int | None = None, threads: int | None = None):
        self.program = program
        self.lanes = 1 if program.wide else lanes or native.default_lanes()
        self.threads = threads or available_cores()
        self._functions: dict[int, Any] = {}
        self._layout = Layout.of(program)
        self._inputs, self._carry = Block((*program.consts, *program.carry)), Block(program.carry)

    def compile(self, lanes: int = 1):
        """The machine code for so many lanes."""
        fn = self._functions.get(lanes)
        if fn is None:
            with defects("emitting and compiling"):
                fn = self._functions[lanes] = native.function(self.program, lanes)
        return fn

    def prepare(self, batch: bool) -> None:
        """Make the machine code that `run` or `run_batch` needs, so that what fails there fails here."""
        self.compile(self.lanes if batch else 1)

    def run(self, carry: PyTree, consts: PyTree, *, rows: int, every: int):
        """One trajectory: `rows` rows, each after `every` steps."""
        p = self.program
        carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry", make=_as_given)
        given = to_arrays(p.consts, p.consts_tree, consts, "consts", make=_as_given)
        carry_out, saved = self._single(carry_in, given, rows, every)
        return from_arrays(p.carry, p.carry_tree, carry_out), from_arrays(p.rows, p.rows_tree, saved)

    def run_batch(self, carry: PyTree, consts: PyTree, consts_axes: PyTree = None, *, rows: int, every: int):
        """Many trajectories; carry leaves have a leading axis, constants where `consts_axes` says 0."""
        p = self.program
        leaves = jax.tree.leaves(carry)
        if not leaves:
            raise TypeError("run_batch needs a carry with at least one array")
        count = int(leaves[0].shape[0])
        axes = batch_axes(p.consts_tree, consts, consts_axes)
        carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry", [count] * len(p.carry))
        given = to_arrays(p.consts, p.consts_tree, consts, "consts", [count if a == 0 else None for a in axes])
        carry_out, saved = self._batch(count, carry_in, given, [a == 0 for a in axes], rows, every)
        return from_arrays(p.carry, p.carry_tree, carry_out), from_arrays(p.rows, p.rows_tree, saved)

    # -- on arrays --------------------------------------------------------------------------------------
    def _single(self, carry_in: list, given: list, rows: int, every: int) -> tuple[list, list]:
        inputs, sources = self._inputs.filled((*given, *carry_in))
        outputs, targets = self._carry.allocate()
        saved = [np.empty((rows, *leaf.shape), leaf.dtype) for leaf in self.program.rows]
        count = len(given)
        pointers = [*sources[:count], *([0] * count), *sources[count:], *targets, *map(_own_address, saved)]
        words = _words(pointers, 1, rows, every)
        words[Layout.LAST] = 1
        fn = self.compile(1)
        scratch = self._scratch(words, fn.scratch) if fn.scratch else None
        fn.call(_own_address(words))
        del scratch, inputs  # not before the call
        return [outputs[name] for name in self._carry.names], saved

    def _batch(
        self, count: int, carry_in: list[Any], given: list[Any], per_lane: Sequence[bool], rows: int, every: int
    ) -> tuple[list, list]:
        p = self.program
        carry_out = [np.empty_like(a) for a in carry_in]
        saved = [np.empty((count, rows, *leaf.shape), leaf.dtype) for leaf in p.rows]
        strides = [leaf.count if lane else 0 for leaf, lane in zip(p.consts, per_lane, strict=True)]
        tail = [_address(a) for part in (carry_in, carry_out, saved) for a in part]
        words = _words([*map(_address, given), *strides, *tail], count, rows, every)
        if count:
            self._parallel(words, count)
        return carry_out, saved

    def _scratch(self, words: np.ndarray, size: int) -> np.ndarray:
        """Memory for the arrays of a program that are too large for the stack; it must live as long as the call."""
        memory = np.empty(size + 64, np.uint8)
        words[self._layout.size] = -(-_address(memory) // 64) * 64
        return memory

    def _parallel(self, words: np.ndarray, count: int) -> None:
        """Groups of lanes in pieces over threads; which thread takes a piece does not change any bit."""
        fn, lanes = self.compile(self.lanes), self.lanes
        groups = -(-count // lanes)
        threads = min(self.threads, groups)
        share = 8 if fn.scratch < LARGE else 1  # pieces per thread: each has memory of its own
        pieces = 1 if threads == 1 else min(groups, share * threads)
        bounds = [groups * k // pieces for k in range(pieces + 1)]
        tables, scratch = [], []
        for first, last in zip(bounds[:-1], bounds[1:], strict=True):
            table = words.copy()
            table[Layout.FIRST], table[Layout.LAST] = first, last
            if fn.scratch:
                scratch.append(self._scratch(table, fn.scratch))
            tables.append(table)
        if threads == 1:
            for table in tables:
                fn.call(_own_address(table))
            return
        pool = _pools.get(threads)
        if pool is None:
            pool = _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="holonomix-kernel")
        for future in [pool.submit(fn.call, _own_address(table)) for table in tables]:
            future.result()
