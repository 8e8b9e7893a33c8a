"""The compiled functions as foreign functions of XLA on the CPU, for the array path.

The handlers are written in LLVM text like the functions themselves. They read the call frame of XLA's foreign function
interface, whose layout is part of its stable binary interface (`xla/ffi/api/c_api.h`, version 0.1 and later).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

import jax

from .code import functions

_lock = threading.Lock()
# bytes from the start of a call frame to the lists of arguments and results, and in a buffer to its data
ARGUMENTS, RESULTS, DATA = 40 + 32, 40 + 40 + 32, 24
VERSION = (0, 1)

# name: arguments of the handler, of which those marked are numbers, and results
HANDLERS = {
    "factor": (("table", "symmetric", "threshold", "entries"), ("factors", "work")),
    "solve": (("table", "transposed", "factors", "b"), ("x", "work")),
    "shorten": (("table", "entries", "factors", "x"), ("shortest", "work")),
}
CALLS = {
    "factor": "ptr %table, ptr %entries, ptr %factors, ptr %work, i64 %symmetric, double %threshold",
    "solve": "ptr %table, ptr %factors, ptr %b, ptr %x, ptr %work, i64 %transposed",
    "shorten": "ptr %table, ptr %entries, ptr %factors, ptr %x, ptr %shortest, ptr %work",
}
NUMBERS = {"symmetric": "i64", "transposed": "i64", "threshold": "double"}


def _handler(name: str) -> str:
    given, made = HANDLERS[name]
    lines = [
        f"define ptr @handle_{name}(ptr %frame) nounwind {{",
        "entry:",
        "  %extension.at = getelementptr i8, ptr %frame, i64 8",
        "  %extension = load ptr, ptr %extension.at",
        "  %asked = icmp ne ptr %extension, null",
        "  br i1 %asked, label %describe, label %run",
        "describe:",  # XLA asks for the version that the handler was written for
        "  %metadata.at = getelementptr i8, ptr %extension, i64 24",
        "  %metadata = load ptr, ptr %metadata.at",
        "  %major = getelementptr i8, ptr %metadata, i64 24",
        "  %minor = getelementptr i8, ptr %metadata, i64 28",
        f"  store i32 {VERSION[0]}, ptr %major",
        f"  store i32 {VERSION[1]}, ptr %minor",
        "  %traits = getelementptr i8, ptr %metadata, i64 32",
        "  store i32 0, ptr %traits",
        "  ret ptr null",
        "run:",
    ]
    for place, names in ((ARGUMENTS, given), (RESULTS, made)):
        lines += [f"  %list{place}.at = getelementptr i8, ptr %frame, i64 {place}"]
        lines += [f"  %list{place} = load ptr, ptr %list{place}.at"]
        for k, x in enumerate(names):
            data = f"%{x}.data" if x in NUMBERS else f"%{x}"
            lines += [
                f"  %{x}.slot = getelementptr ptr, ptr %list{place}, i64 {k}",
                f"  %{x}.buffer = load ptr, ptr %{x}.slot",
                f"  %{x}.where = getelementptr i8, ptr %{x}.buffer, i64 {DATA}",
                f"  {data} = load ptr, ptr %{x}.where",
            ]
            if x in NUMBERS:
                lines += [f"  %{x} = load {NUMBERS[x]}, ptr {data}"]
    return "\n".join([*lines, f"  call void @multifrontal_{name}_1({CALLS[name]})", "  ret ptr null", "}"])


@functools.cache
def available() -> bool:
    """Whether machine code can be compiled (llvmlite is installed)."""
    try:
        import llvmlite.binding  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        return False
    return True


@functools.cache
def _library() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    triple = llvm.get_process_triple()
    fma = bool(features.get("fma")) or triple.startswith(("aarch64", "arm64"))
    text, declared = functions(1, fma)
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=2, reloc="pic", codemodel="default"
    )
    module = llvm.parse_assembly("\n".join([*declared, text, *map(_handler, HANDLERS)]))
    module.triple, module.data_layout = triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    jit = llvm.create_lljit_compiler(machine, use_jit_link=True)
    library = llvm.JITLibraryBuilder().add_object_img(machine.emit_object(module)).add_current_process()
    for name in HANDLERS:
        library.export_symbol(f"handle_{name}")
    return jit, library.link(jit, "multifrontal")


@functools.cache
def _register_all() -> bool:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    _, library = _library()
    for name in HANDLERS:
        jax.ffi.register_ffi_target(
            f"holonomix_multifrontal_{name}", new(library[f"handle_{name}"], None, None), platform="cpu"
        )
    return True


def register(name: str) -> str:
    """The name under which XLA knows a function."""
    with _lock:
        _register_all()
    return f"holonomix_multifrontal_{name}"
