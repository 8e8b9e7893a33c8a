"""LLVM IR for vectors: loops over long axes (see `wide`).

Vector operations of one length that follow each other become one loop. In its body a vector is a value of `width`
elements (the SIMD lanes of a CPU, 1 for a GPU), so the same code as for scalars and lanes writes it; only what is used
outside of the loop is stored, in arrays reserved at the function's entry. Arrays end with copies of their last element,
up to a whole number of registers: what is computed there is never used and never strange.

Every element is computed by the same operations for any width, so that all widths give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .emit_scalar import ScalarEmitter
from .program import Leaf, Program
from .vector_schedule import VectorSchedule
from .wide import Numbers
from .writer import scalar_type

ARENA = "%arena"
IN_REGISTERS = 64  # elements of arrays that may be on the stack
SLACK = 16  # elements behind an array that whole registers may read, to no effect
PARTIAL = 8  # partial sums of a reduction, and the unit of reserved space


@dataclass
class _Here:
    """The body of a loop that is being written: its position, and the vectors that are in registers."""

    position: str
    registers: dict[int, str] = field(default_factory=dict)


def padded(n: int) -> int:
    return -(-n // PARTIAL) * PARTIAL


class LoopEmitter(ScalarEmitter):
    """Adds loops over long axes, and the arrays they work on."""

    local = ""  # the address space of a thread's own arrays

    def __init__(self, program: Program, lanes: int, fma: bool, width: int = 1):
        super().__init__(program, lanes, fma)
        self.width = width
        self.arrays: dict[int, str] = {}  # vector node -> where its elements are
        self.here: _Here | None = None
        self.space = 0  # bytes of arrays that a thread of a GPU has for itself
        self.schedule = VectorSchedule(program) if program.wide else None

    # -- values ------------------------------------------------------------------------------------
    def name(self, n: int) -> str:
        here, g = self.here, self.graph
        if here is None:
            return super().name(n)
        found = here.registers.get(n)
        if found is None:
            if g.length[n]:
                found = self.fetch(self.array(n), g.kind[n])
            elif g.op[n] == "const":
                found = self.literal(g.kind[n], g.attr[n])
            else:
                found = self.broadcast(self.names[n], scalar_type(g.kind[n]))
            here.registers[n] = found
        return found

    def array(self, n: int) -> str:
        """Where the elements of a vector are."""
        found = self.arrays.get(n)
        if found is None:
            if self.graph.op[n] != "vconst":
                raise KeyError(f"vector {n} ({self.graph.op[n]}) is used before it is computed")
            found = self.arrays[n] = self.constants(self.graph.attr[n].array, self.graph.kind[n])
        return found

    def constants(self, numbers: np.ndarray, kind: str) -> str:
        """A constant array, with copies of its last element after the end."""
        n = len(numbers)
        numbers = np.concatenate([numbers, np.repeat(numbers[-1:], padded(n) - n)])
        key = repr(Numbers(numbers))
        for name, text in self.globals.items():
            if text.endswith(f"; {key}"):
                return name
        stored, lanes = self.stored(kind), self.lanes
        self.lanes = 1
        ty = scalar_type(stored)
        items = ", ".join(f"{ty} {self.literal(stored, x)}" for x in numbers)
        self.lanes = lanes
        name = f"@axis{len(self.globals)}"
        self.globals[name] = f"{name} = internal constant [{len(numbers)} x {ty}] [{items}], align 64 ; {key}"
        return name

    def space_for(self, n: int, kind: str) -> str:
        """A new array for a vector of n elements."""
        if self.width == 1:
            offset, self.space = self.space, self.space + 8 * n
            return f"{ARENA} {offset}"
        if n <= IN_REGISTERS:
            lanes, self.lanes = self.lanes, 1
            name = self.reserve(padded(n) + SLACK, kind)
            self.lanes = lanes
            return name
        return self.beyond(8 * (padded(n) + SLACK))

    def address(self, base: str, kind: str, position: str) -> str:
        """The place of an element. Arrays of a GPU's thread are parts of one: their addresses share the index."""
        scalar = scalar_type(self.stored(kind))
        where, _, offset = base.partition(" ")
        if not offset:
            return self.new(f"getelementptr {scalar}, ptr {base}, i64 {position}")
        if where != ARENA:  # an array of the interface, whose elements stand in turns
            start, stride = offset.split()
            position = self.new(f"add i64 {self.new(f'mul i64 {position}, {stride}')}, {start}")
            return self.new(f"getelementptr inbounds {scalar}, ptr {where}, i64 {position}")
        row = self.new(f"getelementptr inbounds {scalar}, ptr {self.local}{where}, i64 {position}")
        return self.local + self.new(f"getelementptr inbounds i8, ptr {self.local}{row}, i64 {offset}")

    def fetch(self, base: str, kind: str, position: str | None = None) -> str:
        """The elements at the position of the loop."""
        assert self.here is not None
        where = self.address(base, kind, position or self.here.position)
        return self.from_memory(self.new(f"load {self.type(self.stored(kind))}, ptr {where}"), kind)

    def keep(self, value: str, base: str, kind: str) -> None:
        assert self.here is not None
        stored = self.to_memory(value, kind)
        self.put(f"store {self.type(self.stored(kind))} {stored}, ptr {self.address(base, kind, self.here.position)}")

    # -- loops -------------------------------------------------------------------------------------
    def loop(self, n: int, body: Callable[[], None], width: int | None = None) -> None:
        """Write `body` for all positions of an axis of n elements."""
        width = width or self.width
        outer, lanes = self.here, self.lanes
        count = -(-n // width)
        self.lanes = width
        if count == 1:
            self.here = _Here("0")
            body()
        else:
            head, done = self.labels("axis", "axisdone")
            before, index = self.label, f"%i{self.fresh}"
            self.put(f"br label %{head}")
            self.start(head)
            hole = len(self.lines)
            self.lines.append("")
            self.here = _Here(index)
            body()
            following = self.new(f"add nuw nsw i64 {index}, {width}")
            more = self.new(f"icmp slt i64 {following}, {n}")
            self.lines[hole] = f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{self.label} ]"
            self.put(f"br i1 {more}, label %{head}, label %{done}")
            self.start(done)
        self.here, self.lanes = outer, lanes

    def assign(self, pairs: list[tuple[int, str]]) -> None:
        """Copy vectors, or repeated scalars, to arrays, all at once: what is read is what was there before."""
        g = self.graph
        lengths = self.schedule.slots if self.schedule else {}
        groups: dict[int, list[tuple[int, str, str]]] = {}
        for source, target in pairs:
            if self.arrays.get(source) != target:
                groups.setdefault(lengths[target], []).append((source, target, g.kind[source]))
        for n, items in groups.items():

            def body(items=items) -> None:
                values = [self.name(source) for source, _, _ in items]
                for value, (_, target, kind) in zip(values, items, strict=True):
                    self.keep(value, target, kind)

            self.loop(n, body)

    def slot(self, n: int) -> str:
        """The array of a vector that is assigned to: a parameter of a loop, a result of a branch."""
        found = self.arrays.get(n)
        if found is None:
            found = self.arrays[n] = self.space_for(self.graph.length[n], self.graph.kind[n])
            assert self.schedule is not None
            self.schedule.slots[found] = self.graph.length[n]
        return found

    def gathered_leaf(self, leaf: Leaf, wanted: list[tuple[int, int]], base: str) -> None:
        """Fill the arrays of a leaf's vectors from where they stand in turns, with copies of the last at the end."""
        n, kind = leaf.length, leaf.kind
        if self.width == 1 and leaf not in self.program.carry:
            self.arrays.update((m, f"{base} {start} {leaf.stride}") for start, m in wanted)
            return
        targets = [(start, self.slot(m)) for start, m in wanted]

        def body() -> None:
            assert self.here is not None
            position = self.here.position
            inside = self.new(f"icmp slt i64 {position}, {n}")
            at = self.new(f"mul i64 {self.new(f'select i1 {inside}, i64 {position}, i64 {n - 1}')}, {leaf.stride}")
            for start, target in targets:
                self.keep(self.fetch(base, kind, self.new(f"add i64 {at}, {start}")), target, kind)

        self.loop(padded(n) if self.width > 1 else n, body, 1)

    def spread_leaf(self, leaf: Leaf, nodes: tuple[int, ...], base: str) -> None:
        """The inverse."""

        def body() -> None:
            assert self.here is not None
            at = self.new(f"mul i64 {self.here.position}, {leaf.stride}")
            for start, m in zip(leaf.starts, nodes, strict=True):
                where = self.address(base, leaf.kind, self.new(f"add i64 {at}, {start}"))
                self.put(
                    f"store {self.type(self.stored(leaf.kind))} {self.to_memory(self.name(m), leaf.kind)}, ptr {where}"
                )

        self.loop(leaf.length, body, 1)

    def _op_pack(self, n: int) -> None:
        """A vector of scalars."""
        kind, base = self.graph.kind[n], self.slot(n)
        for k, a in enumerate(self.graph.args[n]):
            value = self.to_memory(self.name(a), kind)
            self.put(f"store {self.type(self.stored(kind))} {value}, ptr {self.address(base, kind, str(k))}")
        self.filled(n)

    def _op_join(self, n: int) -> None:
        """Vectors of one length, or repeated scalars, one after the other."""
        kind, base, size = self.graph.kind[n], self.slot(n), self.graph.attr[n]
        stored = self.stored(kind)
        copy = self.declare("llvm.memcpy.p0.p0.i64", "void @(ptr, ptr, i64, i1)")
        for k, v in enumerate(self.graph.args[n]):
            where = self.new(f"getelementptr {scalar_type(stored)}, ptr {base}, i64 {k * size}")
            if self.graph.length[v]:
                count = size * int(stored[1])
                self.put(f"call void {copy}(ptr {where}, ptr {self.array(v)}, i64 {count}, i1 false)")
            else:
                self.loop(size, lambda v=v, where=where: self.keep(self.name(v), where, kind), 1)
        self.filled(n)

    def filled(self, n: int) -> None:
        """Write copies of the last element after the end of an array that was filled one by one."""
        length, kind, base = self.graph.length[n], self.graph.kind[n], self.array(n)
        ty = self.type(self.stored(kind))
        last = self.new(f"load {ty}, ptr {self.address(base, kind, str(length - 1))}")
        for k in range(length, padded(length) if self.width > 1 else length):
            self.put(f"store {ty} {last}, ptr {self.address(base, kind, str(k))}")
