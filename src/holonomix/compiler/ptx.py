"""PTX, the assembly language of NVIDIA GPUs, for a program: one trajectory per thread.

It is the scalar form of the native back end with another loop around it, compiled by the same LLVM for another target.
Every operation is rounded as IEEE 754 says and none are contracted, so a trajectory has the bits that it has on a CPU
with fused multiply-add; only functions from the platform's own library (rare arguments of sin, cos, tan, atan2 and
pow, and asinh, acosh, atanh, erf, erfc, lgamma, cbrt) may differ in the last one.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import re
from pathlib import Path
from typing import NamedTuple

from .emit import KERNEL, KernelEmitter
from .graph import Unsupported
from .native import kept, key_of, optimized
from .program import Program
from .values import SHARES
from .writer import WARP, Target, Writer

TRIPLE = "nvptx64-nvidia-cuda"
PTX_VERSION = {
    70: 70,
    75: 70,
    80: 70,
    86: 71,
    89: 78,
    90: 80,
    100: 86,
    120: 87,
}  # the first version for each chip


def _threads(w: Writer) -> tuple[str, str]:
    """Threads take the trajectories in turns: thread t has t, t + threads, ...; or blocks do, of one team each."""

    def register(name: str) -> str:
        fn = w.declare(f"llvm.nvvm.read.ptx.sreg.{name}", "i32 @()")
        return w.new(f"zext i32 {w.new(f'call i32 {fn}()')} to i64")

    block, size, count, thread = (register(x) for x in ("ctaid.x", "ntid.x", "nctaid.x", "tid.x"))
    if w.target.team:
        w.member = thread
        return block, count
    first = w.new(f"add i64 {w.new(f'mul i64 {block}, {size}')}, {thread}")
    return first, w.new(f"mul i64 {count}, {size}")


def _member(w: Writer) -> str:
    """The number of a thread in its team, which compilers do not know to be the same each time it is read."""
    word = w.new('call i32 asm sideeffect "mov.u32 $0, %tid.x;", "=r"()')
    return w.new(f"zext i32 {word} to i64")


PTX = Target("ptx_kernel ", library="__nv_", local="addrspace(5) ", far=False, quick=True, threads=_threads)
TEAMS = dataclasses.replace(PTX, local="addrspace(3) ", member=_member)  # arrays are in the memory that a team shares
LARGE, LONG = 2 * WARP, 4 * WARP  # threads of a team where an axis is longer than so many elements


@functools.cache
def _machine(capability: int):
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    known = max((c for c in PTX_VERSION if c <= capability), default=70)
    # the driver schedules and allocates registers itself; LLVM's own scheduling takes minutes for long blocks
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=f"sm_{known}", features=f"+ptx{PTX_VERSION[known]}", opt=0
    )


def libdevice() -> Path | None:
    """NVIDIA's library of elementary functions, which comes with JAX's CUDA packages or a CUDA toolkit."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    folders += [Path(p) for p in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda") if p]
    for folder in folders:
        for path in sorted(folder.glob("**/libdevice*.bc")):
            return path
    return None


class Team(NamedTuple):
    """The threads that share a trajectory, and the bytes of their memory; none where one thread does a trajectory.

    On axes that are long for them, they take `turns`.
    """

    threads: int
    shared: int
    turns: bool = False


ALONE = Team(0, 0)


def team_ptx(program: Program, capability: int, most: int = 0, common: bool = False) -> tuple[str, Team]:
    """The same, and its team: programs with long axes have one where their arrays fit in `most` bytes.

    With `common` constants, a thread alone reads what follows from them from shared memory.
    """
    target, team, longest = dataclasses.replace(PTX, common=common), ALONE, 0
    if program.wide and most:
        longest = max(program.graph.length[n] for n in program.live)
        target = dataclasses.replace(TEAMS, team=LARGE if longest > LONG else WARP, redux=capability >= 80)
    emitter = KernelEmitter(program, 1, True, target=target)
    text = emitter.module()
    if target.team:
        team = Team(target.team, emitter.values.space, longest > SHARES * target.team)
        if team.shared > most:
            return team_ptx(program, capability)
    wanted = sorted(name[5:] for name in emitter.declared if name.startswith("__nv_"))
    return kept(key_of(f"ptx {capability}", text), lambda: _assembled(text, wanted, capability).encode()).decode(), team


def limited(text: str, registers: int) -> str:
    """The text with at most so many registers per thread, of 255."""
    return re.sub(rf"(\.entry {KERNEL}\([^)]*\))", rf"\1\n.maxnreg {registers}", text, count=1)


def spilling(text: str, threads: int) -> str:
    """The text with what does not fit in registers in the memory of the processor first, for blocks of `threads`.

    NVIDIA's compiler does that since version 13.0.
    """
    text = re.sub(r"^\.version .*", ".version 9.0", text, count=1, flags=re.MULTILINE)
    pragma = f'\\1\n.maxntid {threads}\n\\2\n.pragma "enable_smem_spilling";'
    return re.sub(rf"(\.entry {KERNEL}\([^)]*\))([^{{]*\{{)", pragma, text, count=1)


def _assembled(text: str, wanted: list[str], capability: int) -> str:
    import llvmlite.binding as llvm

    context = llvm.create_context()  # freed with the module
    module = llvm.parse_assembly(text, context)
    if wanted:
        path = libdevice()
        if path is None:
            raise Unsupported(wanted[0], "it needs NVIDIA's libdevice, which was not found")
        module.link_in(llvm.parse_bitcode(path.read_bytes(), context))
        for fn in module.functions:
            if fn.name.startswith("__") and not fn.is_declaration:
                fn.linkage = "internal"
    machine = _machine(capability)
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    return re.sub(r"^\s*//.*\n", "", machine.emit_assembly(optimized(module, machine)), flags=re.MULTILINE)
