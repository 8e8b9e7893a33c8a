"""Object code of LLVM text for this machine and for others."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...compiler.native import default_lanes, has_fma, load_llvm, optimized
from ...core.checks import short_repr
from ...core.errors import InputError

WASM = "wasm32-unknown-unknown"
WASM_FEATURES = "+bulk-memory,+nontrapping-fptoint,+sign-ext"
X86_FEATURES = "+sse2"  # without it LLVM uses the registers of 80 bits, which round otherwise
RISCV_FEATURES = "+m,+a,+f,+d,+c"  # the baseline of Linux; LLVM's own has no floating-point registers


EXAMPLES = "aarch64-linux-gnu, x86_64-linux-gnu or riscv64-linux-gnu"
# those that run programs: LLVM ends the process on some others, and its GPUs run no objects
PROCESSORS = (
    r"i[3-6]86|x86_64|amd64|aarch64|arm64e?|armv?\w*|thumb\w*|riscv(32|64)|powerpc64le|ppc64le|mips(64)?el|mips64r6el|"
    r"loongarch64|wasm32"
)


@functools.cache
def _llvm():
    llvm, _ = load_llvm()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def _with_vendor(triple: str) -> str:
    """The triple with its vendor, such as `armv7-unknown-linux-gnueabihf`: LLVM reads the parts by their place."""
    arch, *rest = triple.split("-")
    short = len(rest) == 2 and rest[0] in ("linux", "none", "windows", "freebsd")
    return "-".join([arch, "unknown", *rest]) if short else triple


class Target:
    """A machine to compile for: None is this one, with all that its CPU can do; else the baseline of an LLVM triple.

    Code for this machine has the bits of `hx.simulate` here, which uses fused multiply-add where the CPU has it. All
    other code has no fused operations: the same bits on every machine.
    """

    def __init__(self, triple: str | None = None):
        llvm = _llvm()
        if triple is not None and not (isinstance(triple, str) and re.fullmatch(r"[\w.+-]*", triple)):
            raise InputError(f"target must be the triple of a machine, such as {EXAMPLES}, not {short_repr(triple)}")
        self.host = triple is None
        self.triple = llvm.get_process_triple() if triple is None else triple
        self._full = _with_vendor(self.triple)
        try:
            found = llvm.Target.from_triple(self._full)
        except RuntimeError as error:
            raise InputError(
                f"target {triple!r} is not one that LLVM knows here ({str(error).strip()}); try {EXAMPLES}"
            ) from error
        cpu, features, abi = "", "", ""
        if self.host:
            cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        elif self.triple == WASM:
            features = WASM_FEATURES
        elif re.match(r"i\d86", self.triple):
            features = X86_FEATURES
        elif self.triple.startswith("riscv") and self.platform[1] == "linux":
            features, abi = RISCV_FEATURES, "lp64d" if self.triple.startswith("riscv64") else "ilp32d"
        self._machine = found.create_target_machine(
            cpu=cpu, features=features, opt=2, reloc="static" if self.triple == WASM else "pic", codemodel="default",
            abiname=abi,
        )  # fmt: skip
        layout = str(self._machine.target_data)
        if layout.startswith("E"):
            raise InputError(f"target {triple!r} stores numbers with the most significant byte first; kernels cannot")
        if "-p:16:" in layout:
            raise InputError(f"target {triple!r} has addresses of 16 bits; kernels need 32 or 64")
        if triple is not None and not re.fullmatch(PROCESSORS, triple.partition("-")[0]):
            raise InputError(f"kernels are not made for processors such as target {triple!r}; try {EXAMPLES}")

    @property
    def fma(self) -> bool:
        return self.host and has_fma()

    @property
    def width(self) -> int:
        """Elements of a long axis in one register."""
        return default_lanes() if self.host else 1

    @property
    def platform(self) -> tuple[str, str]:
        """Processor and operating system, as FMI 3.0 calls them."""
        arch, _, rest = self.triple.partition("-")
        system = next((s for s in ("linux", "darwin", "windows") if s in rest), "darwin" if "macos" in rest else rest)
        return {"arm64": "aarch64", "amd64": "x86_64"}.get(arch, arch), system

    def link(self, files: Mapping[str, bytes | str], why: str) -> bytes:
        """A shared library of C files and objects, made by the C compiler for this target."""
        compiler = self._compiler(why)
        with tempfile.TemporaryDirectory(prefix="holonomix-link-") as place:
            for name, content in files.items():
                (Path(place) / name).write_bytes(content if isinstance(content, bytes) else content.encode())
            given = [name for name in files if not name.endswith(".h")]
            command = [*compiler, "-shared", "-fPIC", "-O2", "-std=gnu11", "-fvisibility=hidden", *given]
            command += ["-Wl,-Bsymbolic"] if self.platform[1] == "linux" else []
            done = subprocess.run([*command, "-lm", "-o", "out"], cwd=place, capture_output=True, text=True)
            if done.returncode:
                raise InputError(f"{why} failed: {' '.join(command)}\n{done.stderr.strip()[-2000:]}")
            return (Path(place) / "out").read_bytes()

    def _compiler(self, why: str) -> list[str]:
        own = _llvm().get_process_triple()
        same = self.platform == Target(own).platform if not self.host else True
        names = ([os.environ.get("CC", ""), "cc", "gcc", "clang"] if same else []) + [f"{self.triple}-gcc"]
        for name in names:
            if name.strip() and shutil.which(name.split()[0]):
                return name.split()
        tried = ", ".join(name for name in names if name.strip())
        raise InputError(f"{why} needs a C compiler for {self.triple}, and none of {tried} is installed")

    def compile(self, texts: tuple[str, ...]) -> bytes:
        """One object of several modules; only functions that the last one defines are visible outside."""
        llvm = _llvm()
        context = llvm.create_context()
        *parts, last = (self._parse(text, context) for text in texts)
        hidden = [
            f.name for part in parts for f in part.functions if not (f.is_declaration or f.linkage.name == "internal")
        ]
        for part in parts:
            last.link_in(part)
        for name in hidden:
            function = last.get_function(name)
            function.linkage = "internal"
        optimized(last, self._machine)
        last.verify()
        try:
            return self._machine.emit_object(last)
        except RuntimeError as error:
            raise InputError(f"LLVM cannot write an object file for target {self.triple!r} ({error})") from error

    def _parse(self, text: str, context: Any) -> Any:
        module = _llvm().parse_assembly(text, context)
        module.triple = self._full
        module.data_layout = str(self._machine.target_data)
        return module
