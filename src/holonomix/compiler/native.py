"""The native back end: LLVM machine code for the host CPU, through llvmlite.

Machine code is kept in memory, and on disk as `cache` says, by a hash of its LLVM text, the CPU and the version of
llvmlite.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from ..trace.compiled import Recent
from . import cache
from .emit import KERNEL, KernelEmitter
from .program import Program

VERSION = 1  # of the pass pipeline: part of the key of compiled code
_lock = threading.Lock()
_serial = itertools.count()
_loaded: Recent[tuple[int, object]] = Recent(64)  # shared between equal programs; code is freed with its last user
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))  # its holder may be gone
statistics = {"compiled": 0, "from_disk": 0, "from_memory": 0}


@functools.cache
def _llvm():
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm, llvmlite.__version__


@functools.cache
def features() -> dict[str, bool]:
    llvm, _ = _llvm()
    return dict(llvm.get_host_cpu_features())


def has_fma() -> bool:
    llvm, _ = _llvm()
    return bool(features().get("fma")) or "aarch64" in llvm.get_process_triple() or "arm64" in llvm.get_process_triple()


def default_lanes() -> int:
    """Trajectories side by side in one vector register."""
    f = features()
    return 8 if f.get("avx512f") else 4 if f.get("avx2") or f.get("avx") else 2


@functools.cache
def _machine():
    llvm, _ = _llvm()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, reloc="pic",
        codemodel="default",
    )  # fmt: skip


@functools.cache
def _jit():
    llvm, _ = _llvm()
    # JITLink keeps the sections of an object together; the older linker may place them too far apart for 32-bit offsets
    return llvm.create_lljit_compiler(_machine(), use_jit_link=True)


def optimize(text: str):
    """Parse and optimize LLVM text, in a context of its own: the global one never frees types and constants."""
    llvm, _ = _llvm()
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = llvm.get_process_triple()
    module.data_layout = str(_machine().target_data)
    return optimized(module, _machine())


def optimized(module: Any, machine: Any):
    llvm, _ = _llvm()
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
    return hashlib.sha256("\n".join((str(VERSION), _llvm()[1], *parts)).encode()).hexdigest()


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
    llvm, _ = _llvm()
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
