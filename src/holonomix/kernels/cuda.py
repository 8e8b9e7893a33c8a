"""The cuda back end: all steps of all rows in one GPU kernel, one trajectory per thread, compiled through LLVM.

The driver library of the GPU is called directly; it turns PTX into machine code and keeps that in its own cache. Arrays
stay on the device from call to call.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .emit import KERNEL, Layout
from .graph import Unavailable, dtype_of
from .program import Program
from .ptx import ALONE, Team, limited, spilling, team_ptx
from .runner import UnderJit, batch_axes, from_arrays, to_arrays

LOCAL = 1 << 18  # bytes of arrays that a thread may have
THREADS = (32, 128)  # of a block: few, so that small batches reach all processors; more where there is enough for all
# A short program, and one of a team, is quickest with so many registers that 16 groups of 32 threads share a processor,
# as measured on an H200; a long one needs all it can have (ten times as many operations take three times as long with
# half of them). Threads of a long program also need memory. Where NVIDIA's compiler takes it from the processor's own,
# four blocks of 64 threads share one; else four of 32, so that most of it is in the first cache.
SHORT, REGISTERS, BLOCKS = 800, 128, 4
SPILLING, SPILLED = 13_000, 64  # the driver's version that can, and the threads of a block then
_CAPABILITY, _PROCESSORS, _SHARED = (75, 76), 16, 97  # numbers of device attributes
_DYNAMIC = 8  # number of the attribute of a function: bytes that its blocks share
_MEMORY = (
    "; threads of long programs need memory of their own beside JAX's arrays: set XLA_PYTHON_CLIENT_MEM_FRACTION=0.5, "
    "or smaller"
)


class Driver:
    """The driver library, for one device; its context is the one that JAX uses."""

    def __init__(self, ordinal: int):
        self.library = _library()
        self("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), ordinal)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.context = context
        major, minor = (self._attribute(device, k) for k in _CAPABILITY)
        self.capability = 10 * major + minor
        self.processors = self._attribute(device, _PROCESSORS)
        self.shared = self._attribute(device, _SHARED)  # bytes that a block may have
        version = ctypes.c_int()
        self("cuDriverGetVersion", ctypes.byref(version))
        self.spills = version.value >= SPILLING
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._lock = threading.Lock()

    def __call__(self, name: str, *args: Any) -> None:
        code = getattr(self.library, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            what = f"{name}: {(text.value or b'error').decode()} ({code})"
            raise Unavailable(what + (_MEMORY if code == 2 else ""))

    def _attribute(self, device: ctypes.c_int, number: int) -> int:
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def function(self, text: bytes, shared: int = 0) -> ctypes.c_void_p:
        """The kernel of a PTX text, loaded once."""
        key = hashlib.sha256(text).hexdigest()
        with self._lock:
            if key not in self._functions:
                module, function = ctypes.c_void_p(), ctypes.c_void_p()
                self("cuCtxPushCurrent_v2", self.context)
                try:
                    self("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text))
                    self("cuModuleGetFunction", ctypes.byref(function), module, KERNEL.encode())
                    if shared:
                        self("cuFuncSetAttribute", function, _DYNAMIC, shared)
                finally:
                    self("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
                self._functions[key] = function
            return self._functions[key]

    def launch(
        self,
        function: ctypes.c_void_p,
        table: int,
        count: int,
        stream: ctypes.c_void_p | None = None,
        *,
        short: bool = True,
        team: Team = ALONE,
    ) -> None:
        """Run one kernel, of a short or a long program, on `count` trajectories and wait for its end.

        A team takes one trajectory at a time, and is a block.
        """
        threads = THREADS[short and count > 1024 * self.processors]
        if not short and self.spills and count > SPILLED * self.processors:
            threads = SPILLED
        blocks = min(-(-count // threads), 1 << 30 if short else BLOCKS * self.processors)
        if team.threads:
            threads, blocks = team.threads, min(count, 1 << 30)
        pointer = ctypes.c_void_p(table)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
        self("cuCtxPushCurrent_v2", self.context)
        try:
            self("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, team.shared, stream, arguments, None)
            self("cuStreamSynchronize", stream)
        finally:
            self("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def on_host(self, function: ctypes.c_void_p, table: Callable[[list[int]], np.ndarray], inputs: list[np.ndarray],
                outputs: list[np.ndarray], count: int, *, short: bool = True, team: Team = ALONE) -> None:  # fmt: skip
        """Run one kernel on arrays of the host: `table` is made from the addresses of copies on the device.

        A callback of a compiled function may call this. Its caller waits on another stream, so nothing here may wait
        for the whole device, as to free memory in the ordinary way would.
        """
        words = table([0] * (len(inputs) + len(outputs)))
        sizes = [-(-max(a.nbytes, 1) // 256) * 256 for a in (*inputs, words, *outputs)]
        places, split = [0, *np.cumsum(sizes).tolist()], len(inputs)
        host = np.empty(places[-1], np.uint8)  # one copy each way
        for a, at in zip(inputs, places):
            host[at : at + a.nbytes] = a.reshape(-1).view(np.uint8)
        there, back = places[split + 1], places[-1] - places[split + 1]
        self("cuCtxPushCurrent_v2", self.context)
        try:
            stream, memory = ctypes.c_void_p(), ctypes.c_void_p()
            self("cuStreamCreate", ctypes.byref(stream), 1)
            self("cuMemAllocAsync", ctypes.byref(memory), ctypes.c_size_t(places[-1]), stream)
            base, begin = memory.value or 0, host.ctypes.data
            words = table([base + x for k, x in enumerate(places[:-1]) if k != split])
            host[places[split] : places[split] + words.nbytes] = words.view(np.uint8)
            ends = ctypes.c_void_p(base + there), ctypes.c_void_p(begin + there)
            self("cuMemcpyHtoDAsync_v2", ctypes.c_void_p(base), ctypes.c_void_p(begin), ctypes.c_size_t(there), stream)
            self.launch(function, base + places[split], count, stream, short=short, team=team)
            self("cuMemcpyDtoHAsync_v2", ends[1], ends[0], ctypes.c_size_t(back), stream)
            self("cuMemFreeAsync", memory, stream)
            self("cuStreamSynchronize", stream)
            self("cuStreamDestroy_v2", stream)
        finally:
            self("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        for a, at in zip(outputs, places[split + 1 :]):
            a.reshape(-1).view(np.uint8)[:] = host[at : at + a.nbytes]


@functools.cache
def _library() -> ctypes.CDLL:
    for name in ("libcuda.so.1", "nvcuda.dll", "libcuda.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Unavailable("the driver library of an NVIDIA GPU (libcuda) was not found")


@functools.cache
def driver(ordinal: int) -> Driver:
    return Driver(ordinal)


class CudaRunner(UnderJit):
    """Runs the program on a GPU; results are arrays on the device."""

    def __init__(self, program: Program, device: Any = None):
        if device is None:
            found = [d for d in jax.devices() if d.platform == "gpu"]
            if not found:
                raise Unavailable("back end 'cuda' needs an NVIDIA GPU; JAX sees none")
            device = found[0]
        self.program, self.device = program, device
        self.driver = driver(getattr(device, "local_hardware_id", 0) or 0)
        if program.space > LOCAL:
            raise Unavailable(f"a thread of a GPU has no room for {program.space} bytes of arrays")
        # at once, so that what this machine lacks is known before a run: the driver keeps its part of the work on disk
        self.short = program.operations <= SHORT
        text, self.team = team_ptx(program, self.driver.capability, self.driver.shared if program.wide else 0)
        if self.team.threads or (self.short and not program.wide):
            text = limited(text, REGISTERS)
        elif self.driver.spills and not program.wide:
            text = spilling(text, SPILLED)
        self._function = self.driver.function(text.encode() + b"\0", self.team.shared)

    def prepare(self, batch: bool) -> None:
        """Nothing is left to do: the kernel was compiled at once."""

    def prepare_callback(self) -> None:
        """Reserve what threads need; in a callback, the device could not be waited for."""
        p = self.program
        empty = [np.empty((0, *leaf.shape), dtype_of(leaf.kind)) for leaf in p.carry]
        self._batch(0, empty, [np.empty(leaf.shape, dtype_of(leaf.kind)) for leaf in p.consts], [], 0, 0)

    def _single(self, carry_in: list, given: list, rows: int, every: int) -> tuple[list, list]:
        lead = [np.asarray(a)[None] for a in carry_in]
        out, saved = self._batch(1, lead, given, [False] * len(given), rows, every)
        return [a[0] for a in out], [a[0] for a in saved]

    def _batch(self, count: int, carry_in, given, per_lane, rows: int, every: int) -> tuple[list, list]:
        p, layout = self.program, Layout.of(self.program)
        inputs = [
            np.ascontiguousarray(a, dtype_of(leaf.kind))
            for a, leaf in zip((*given, *carry_in), (*p.consts, *p.carry), strict=True)
        ]
        outputs = [np.empty((count, *leaf.shape), dtype_of(leaf.kind)) for leaf in p.carry]
        outputs += [np.empty((count, rows, *leaf.shape), dtype_of(leaf.kind)) for leaf in p.rows]
        lanes = per_lane or [False] * len(given)
        strides = [leaf.count if lane else 0 for leaf, lane in zip(p.consts, lanes, strict=True)]

        def table(where: list[int]) -> np.ndarray:
            words = np.zeros(layout.size, np.int64)
            words[[Layout.BATCH, Layout.ROWS, Layout.EVERY]] = count, rows, every
            words[5:] = [*where[: len(given)], *strides, *where[len(given) :]]
            return words

        self.driver.on_host(self._function, table, inputs, outputs, max(count, 1), short=self.short, team=self.team)
        return outputs[: len(p.carry)], outputs[len(p.carry) :]

    def run(self, carry, consts, *, rows: int, every: int):
        """One trajectory, as a batch of one: for checks only."""
        lead = jax.tree.map(lambda x: jnp.asarray(x)[None], carry)
        out, saved = self.run_batch(lead, consts, None, rows=rows, every=every)
        return jax.tree.map(lambda x: x[0], (out, saved))

    def run_batch(self, carry, consts, consts_axes=None, *, rows: int, every: int):
        """Many trajectories; carry leaves have a leading axis, constants where `consts_axes` says 0."""
        if rows < 0 or every < 0:
            raise ValueError("rows and every must not be negative")
        p, layout = self.program, Layout.of(self.program)
        leaves = jax.tree.leaves(carry)
        count = int(leaves[0].shape[0])
        axes = batch_axes(p.consts_tree, consts, consts_axes)
        carry_in = to_arrays(p.carry, p.carry_tree, carry, "carry", [count] * len(p.carry), self._place)
        lead = [count if a == 0 else None for a in axes]
        given = to_arrays(p.consts, p.consts_tree, consts, "consts", lead, self._place)
        shapes = [(count, *leaf.shape) for leaf in p.carry] + [(count, rows, *leaf.shape) for leaf in p.rows]
        kinds = [dtype_of(leaf.kind) for leaf in (*p.carry, *p.rows)]
        with jax.default_device(self.device):
            out = _allocated(tuple(zip(shapes, map(str, kinds), strict=True)))()
        carry_out, saved = out[: len(p.carry)], out[len(p.carry) :]
        if count:
            words = np.zeros(layout.size, np.int64)
            words[[Layout.BATCH, Layout.ROWS, Layout.EVERY]] = count, rows, every
            strides = [leaf.count if a == 0 else 0 for leaf, a in zip(p.consts, axes, strict=True)]
            words[5:] = [*map(_address, given), *strides, *map(_address, (*carry_in, *carry_out, *saved))]
            table = jax.device_put(words, self.device)
            jax.block_until_ready((table, carry_in, given, carry_out, saved))
            self.driver.launch(self._function, _address(table), count, short=self.short, team=self.team)
        return from_arrays(p.carry, p.carry_tree, carry_out), from_arrays(p.rows, p.rows_tree, saved)

    def _place(self, value: Any, dtype: Any) -> jax.Array:
        return jax.device_put(jnp.asarray(value, dtype), self.device)


@functools.lru_cache(256)
def _allocated(arrays: tuple[tuple[tuple[int, ...], str], ...]) -> Callable[[], list[jax.Array]]:
    """A function that makes arrays of these shapes and types, in one call of the device."""
    return jax.jit(lambda: [jnp.empty(shape, kind) for shape, kind in arrays])


def _address(array: jax.Array) -> int:
    return array.unsafe_buffer_pointer() if array.size else 0
