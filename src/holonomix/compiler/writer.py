"""Helpers that write LLVM IR text: types, literals, registers, labels, stack space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .graph import BOOL, FLOATS, float_bits
from .program import Program

_SCALAR = {"f8": "double", "f4": "float", "b1": "i1"}


def scalar_type(kind: str) -> str:
    return _SCALAR.get(kind) or f"i{8 * int(kind[1])}"


STACK = 1 << 15  # bytes of arrays on the stack of a thread; further arrays are in memory that the caller provides

WARP = 32  # threads of a GPU that run in lockstep


@dataclass(frozen=True)
class Target:
    """Properties of a platform that decide the text of a kernel."""

    convention: str = ""  # of the function
    library: str = ""  # what the names of the platform's own elementary functions begin with
    local: str = ""  # the address space of a thread's own arrays
    far: bool = True  # callers give memory for large arrays
    threads: Callable[[Writer], tuple[str, str]] | None = None  # the first trajectory of a thread, and the stride
    quick: bool = False  # quick steps are written before careful ones (see emit_gpu)
    team: int = 0  # so many threads share a trajectory: they take turns at the positions of long axes
    common: bool = False  # constants are the same for all trajectories, and what follows from them is in shared memory
    redux: bool = False  # the groups of 32 threads can find their largest number
    member: Callable[[Writer], str] = lambda w: w.member  # the number of a thread in its team


class Writer:
    """Text of one function, over scalars (`lanes` of 1) or vectors with one element per trajectory."""

    def __init__(self, program: Program, lanes: int, fma: bool, target: Target):
        self.program, self.graph, self.lanes, self.fma = program, program.graph, lanes, fma
        self.target, self.library = target, target.library
        self.tag = ""  # after the names of registers and labels, where a step is written twice
        self.again: list[str] = []  # space that is taken again when a step is written the second time
        self.lines: list[str] = []
        self.entry: list[str] = []  # stack space, reserved once
        self.globals: dict[str, str] = {}
        self.declared: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.stack = self.scratch = 0  # bytes of arrays on the stack, and in memory that the caller gives
        self.label = "entry"
        self.member = ""  # the number of a thread in its team
        self.mask: str | None = None
        self.fresh = 0
        self.op_counts = Counter(program.graph.op[n] for n in program.live)

    @property
    def suffix(self) -> str:
        """Suffix of function names: a program may need a function for several widths."""
        return f"_{self.lanes}" if self.program.wide else ""

    # -- text --------------------------------------------------------------------------------------
    def put(self, line: str) -> None:
        self.lines.append("  " + line)

    def new(self, text: str) -> str:
        self.fresh += 1
        name = f"%t{self.fresh}"
        self.lines.append(f"  {name} = {text}")
        return name

    def hole(self) -> int:
        """Reserve a line to be written later, such as a phi of values that are not yet known; returns its number."""
        self.lines.append("")
        return len(self.lines) - 1

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def labels(self, *stems: str) -> list[str]:
        self.fresh += 1
        return [f"{s}{self.fresh}" for s in stems]

    def type(self, kind: str) -> str:
        scalar = scalar_type(kind)
        return scalar if self.lanes == 1 else f"<{self.lanes} x {scalar}>"

    def splat(self, literal: str, scalar: str) -> str:
        if self.lanes == 1:
            return literal
        return "<" + ", ".join([f"{scalar} {literal}"] * self.lanes) + ">"

    def literal(self, kind: str, value: Any) -> str:
        if kind in FLOATS:
            text = f"0x{float_bits(float(value)):016X}"
        elif kind == BOOL:
            text = "true" if value else "false"
        else:
            text = str(int(value))
        return self.splat(text, scalar_type(kind))

    def declare(self, name: str, signature: str) -> str:
        """An external function or intrinsic; `signature` is `result (arguments)` with `@` where the name goes."""
        self.declared[name] = "declare " + signature.replace("@", "@" + name)
        return "@" + name

    def intrinsic(self, stem: str, kind: str, *args: str) -> str:
        """Call an LLVM intrinsic overloaded on one type."""
        vec = f"v{self.lanes}" if self.lanes > 1 else ""
        suffix = vec + (f"f{8 * int(kind[1])}" if kind in FLOATS else f"i{8 * int(kind[1])}")
        ty = self.type(kind)
        fn = self.declare(f"llvm.{stem}.{suffix}", f"{ty} @({', '.join([ty] * len(args))})")
        return f"call {ty} {fn}({', '.join(f'{ty} {a}' for a in args)})"

    def broadcast(self, scalar: str, ty: str) -> str:
        """A vector of one scalar register."""
        if self.lanes == 1:
            return scalar
        vec = f"<{self.lanes} x {ty}>"
        first = self.new(f"insertelement {vec} poison, {ty} {scalar}, i32 0")
        return self.new(f"shufflevector {vec} {first}, {vec} poison, <{self.lanes} x i32> zeroinitializer")

    def any(self, mask: str) -> str:
        if self.lanes == 1:
            return mask
        bits = self.new(f"bitcast <{self.lanes} x i1> {mask} to i{self.lanes}")
        return self.new(f"icmp ne i{self.lanes} {bits}, 0")

    def masked(self, condition: str) -> str:
        if self.mask is None or self.lanes == 1:
            return condition
        return self.new(f"and {self.type(BOOL)} {self.mask}, {condition}")

    def reserve(self, count: int, kind: str) -> str:
        """Space for `count` values, reserved at the function's entry."""
        if self.again:
            return self.again.pop(0)
        size = max(count, 1) * self.lanes * int(self.stored(kind)[1])
        if self.target.far and self.stack + size > STACK:
            return self.beyond(size)
        self.stack += size
        self.fresh += 1
        name = f"%m{self.fresh}"
        ty = self.type(self.stored(kind))
        self.entry.append(f"  {name} = alloca [{max(count, 1)} x {ty}], align 64")
        return name

    def beyond(self, size: int) -> str:
        """Reserve so many bytes of the memory that the caller provides."""
        offset, self.scratch = self.scratch, self.scratch + -(-size // 64) * 64
        return self.far(offset, f"%far{offset}")

    def far(self, offset: int, name: str) -> str:
        """A name for a place in that memory."""
        self.entry.append(f"  {name} = getelementptr inbounds i8, ptr %scratch, i64 {offset}")
        return name

    @staticmethod
    def stored(kind: str) -> str:
        return "u1" if kind == BOOL else kind

    def to_memory(self, value: str, kind: str) -> str:
        return self.new(f"zext {self.type(BOOL)} {value} to {self.type('u1')}") if kind == BOOL else value

    def from_memory(self, value: str, kind: str) -> str:
        if kind != BOOL:
            return value
        return self.new(f"icmp ne {self.type('u1')} {value}, {self.splat('0', 'i8')}")

    def element(self, base: str, kind: str, index: str) -> str:
        return self.new(f"getelementptr inbounds {self.type(self.stored(kind))}, ptr {base}, i64 {index}")
