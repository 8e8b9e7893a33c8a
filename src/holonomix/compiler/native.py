"""The native back end: LLVM machine code for the host CPU, through llvmlite.

Machine code is kept in memory, and on disk as `cache` says, by a hash of its LLVM text, the CPU and the version of
llvmlite.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ..trace.compiled import Recent
from . import cache
from .emit import KERNEL, KernelEmitter, Layout
from .graph import defects
from .program import Leaf, Program
from .runner import KernelRunner, LoopBody, batch_axes, from_arrays, lower_with, to_arrays

VERSION = 1  # of the pass pipeline: part of the key of compiled code
LARGE = 1 << 24  # bytes of memory for the arrays of one trajectory
_lock = threading.Lock()
_serial = itertools.count()
_loaded: Recent[tuple[int, object]] = Recent(64)  # shared between equal programs; code is freed with its last user
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))  # its holder may be gone
_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a forked process has none of the threads
statistics = {"compiled": 0, "from_disk": 0, "from_memory": 0}


@functools.cache
def load_llvm():
    """LLVM, initialized for this machine, and the version of llvmlite."""
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm, llvmlite.__version__


@functools.cache
def features() -> dict[str, bool]:
    llvm, _ = load_llvm()
    return dict(llvm.get_host_cpu_features())


def has_fma() -> bool:
    llvm, _ = load_llvm()
    return bool(features().get("fma")) or "aarch64" in llvm.get_process_triple() or "arm64" in llvm.get_process_triple()


def default_lanes() -> int:
    """Trajectories side by side in one vector register."""
    f = features()
    return 8 if f.get("avx512f") else 4 if f.get("avx2") or f.get("avx") else 2


@functools.cache
def _machine():
    llvm, _ = load_llvm()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, reloc="pic",
        codemodel="default",
    )  # fmt: skip


@functools.cache
def _jit():
    llvm, _ = load_llvm()
    # JITLink keeps the sections of an object together; the older linker may place them too far apart for 32-bit offsets
    return llvm.create_lljit_compiler(_machine(), use_jit_link=True)


def optimize(text: str):
    """Parse and optimize LLVM text, in a context of its own: the global one never frees types and constants."""
    llvm, _ = load_llvm()
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = llvm.get_process_triple()
    module.data_layout = str(_machine().target_data)
    return optimized(module, _machine())


def optimized(module: Any, machine: Any):
    llvm, _ = load_llvm()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    if type(manager)._dispose is llvm.ffi.ObjectRef._dispose:  # llvmlite 0.50 never frees it, 0.2 MB per kernel
        llvm.NewPassManager._dispose(manager)
    return module


def key_of(*parts: str) -> str:
    """The name of compiled code: a hash of all that it depends on, with the version of LLVM."""
    return hashlib.sha256("\n".join((str(VERSION), load_llvm()[1], *parts)).encode()).hexdigest()


def kept(key: str, make: Callable[[], bytes]) -> bytes:
    """`make()`, from the cache on disk where this user made it before."""
    code = cache.load(key)
    if code is not None:
        statistics["from_disk"] += 1
        return code
    code = make()
    statistics["compiled"] += 1
    cache.save(key, code)
    return code


class NativeFunction(NamedTuple):
    """A compiled kernel: a C function of one pointer to its arguments."""

    call: Callable[[int], None]
    scratch: int  # bytes of memory that each call needs
    library: Any  # the code, which lives as long as whoever can call it


def function(program: Program, lanes: int) -> NativeFunction:
    """The kernel compiled for so many lanes."""
    llvm, _ = load_llvm()
    emitter = KernelEmitter(program, lanes, has_fma(), default_lanes() if program.wide else 1)
    text = emitter.module()
    key = key_of(llvm.get_process_triple(), llvm.get_host_cpu_name(), str(sorted(features().items())), text)
    with _lock:
        found = _loaded.get(key)
        if found is None:
            code = kept(key, lambda: _machine().emit_object(optimize(text)))
            builder = llvm.JITLibraryBuilder()
            builder.add_object_img(code)
            builder.add_current_process()
            builder.export_symbol(KERNEL)
            library = builder.link(_jit(), f"{key}.{next(_serial)}")
            found = _loaded.put(key, (library[KERNEL], library))
        else:
            statistics["from_memory"] += 1
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found[0])
    return NativeFunction(call, emitter.scratch, found[1])


def available_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


class NativeRunner(KernelRunner):
    """Runs a program on this CPU; machine code is made on first use of each number of lanes."""

    name = "native"

    def __init__(self, program: Program, lanes: int | None = None, threads: int | None = None):
        super().__init__(program)
        self.lanes = 1 if program.wide else lanes or default_lanes()
        self.threads = threads or available_cores()
        self._functions: dict[int, Any] = {}
        self._layout = Layout.of(program)
        self._inputs, self._carry = Block((*program.consts, *program.carry)), Block(program.carry)

    def compile(self, lanes: int = 1):
        """The machine code for so many lanes."""
        fn = self._functions.get(lanes)
        if fn is None:
            with defects("emitting and compiling"):
                fn = self._functions[lanes] = function(self.program, lanes)
        return fn

    def run(self, carry: PyTree, consts: PyTree, axes: PyTree = None, *, rows: int, every: int) -> tuple[Any, Any]:
        p, leaves = self.program, jax.tree.leaves(carry)
        if not leaves:
            raise TypeError("run needs a carry with at least one array")
        count = int(leaves[0].shape[0])
        own = [None] * len(p.consts) if axes is None else batch_axes(consts, axes)
        leads = [count] * len(p.carry), [count if a == 0 else None for a in own]
        if count == 1 and self.lanes == 1:
            carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry", leads[0], None)
            given = to_arrays(p.consts, p.consts_tree, consts, "consts", leads[1], None)
            carry_out, saved = ([a[None] for a in part] for part in self._single(carry_in, given, rows, every))
        else:
            carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry", leads[0])
            given = to_arrays(p.consts, p.consts_tree, consts, "consts", leads[1])
            carry_out, saved = self._batch(count, carry_in, given, [a == 0 for a in own], rows, every)
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
        fn = self._functions.get(1) or self.compile(1)
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
        fn, lanes = self._functions.get(self.lanes) or self.compile(self.lanes), self.lanes
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


def lower(loop: LoopBody, carry: PyTree, consts: PyTree, *, alone: bool, asked: bool) -> NativeRunner | Exception:
    """A runner of the loop, with its machine code made; see `run.backends.Backend`."""

    def make(program: Program) -> NativeRunner:
        runner = NativeRunner(program, lanes=1 if alone else None)
        runner.compile(runner.lanes)
        return runner

    return lower_with(make, loop, carry, consts, alone=alone, asked=asked)
