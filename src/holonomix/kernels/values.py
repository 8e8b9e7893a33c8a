"""Where the values of nodes are while a kernel is written: registers, literals, or arrays of elements."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .arena import places, recycled
from .vector_schedule import VectorSchedule
from .wide import Numbers
from .writer import Writer, scalar_type

ARENA = "%arena"
IN_REGISTERS = 64  # elements of arrays that may be on the stack
SLACK = 16  # elements behind an array that whole registers may read, to no effect
PARTIAL = 8  # partial sums of a reduction, and the unit of reserved space


@dataclass
class Here:
    """The body of a loop that is being written: its position, and the vectors that are in registers."""

    position: str
    registers: dict[int, str] = field(default_factory=dict)


def padded(n: int) -> int:
    return -(-n // PARTIAL) * PARTIAL


def far_bytes(n: int) -> int:
    """Bytes of an array of n elements in the memory that the caller gives; short arrays are on the stack."""
    return 0 if n <= IN_REGISTERS else -(-8 * (padded(n) + SLACK) // 64) * 64


class Values:
    """The register of each scalar node and the array of each vector node.

    `width` is the number of elements of a long axis in one register.
    """

    def __init__(self, writer: Writer, width: int):
        self.w, self.width = writer, width
        self.names: dict[int, str] = {}
        self.arrays: dict[int, str] = {}  # vector node -> where its elements are
        self.here: Here | None = None
        self.schedule = VectorSchedule(writer.program) if writer.program.wide else None
        self.places: dict[int, int] = {}
        self.space = 0  # bytes of arrays that a thread or a team of a GPU has for itself
        if self.schedule and width == 1:
            self.places, self.space = places(writer.program, self.schedule)
        elif self.schedule:
            self.places, writer.scratch = recycled(writer.program, self.schedule, far_bytes)
        self.local = writer.target.local

    def name(self, n: int) -> str:
        """The register or literal that holds a node: of the position of the loop that is being written, if any."""
        here, g = self.here, self.w.graph
        if here is None:
            found = self.names.get(n)
            if found is None:
                if g.op[n] != "const":
                    raise KeyError(f"node {n} ({g.op[n]}) is used before it is computed")
                found = self.names[n] = self.w.literal(g.kind[n], g.attr[n])
            return found
        found = here.registers.get(n)
        if found is None:
            if g.length[n]:
                found = self.fetch(self.array(n), g.kind[n])
            elif g.op[n] == "const":
                found = self.w.literal(g.kind[n], g.attr[n])
            else:
                found = self.w.broadcast(self.names[n], scalar_type(g.kind[n]))
            here.registers[n] = found
        return found

    def array(self, n: int) -> str:
        """Where the elements of a vector are."""
        found = self.arrays.get(n)
        if found is None:
            if self.w.graph.op[n] != "vconst":
                raise KeyError(f"vector {n} ({self.w.graph.op[n]}) is used before it is computed")
            found = self.arrays[n] = self.constants(self.w.graph.attr[n].array, self.w.graph.kind[n])
        return found

    def constants(self, numbers: np.ndarray, kind: str) -> str:
        """A constant array, with copies of its last element after the end."""
        n = len(numbers)
        numbers = np.concatenate([numbers, np.repeat(numbers[-1:], padded(n) - n)])
        key = repr(Numbers(numbers))
        for name, text in self.w.globals.items():
            if text.endswith(f"; {key}"):
                return name
        stored, lanes = self.w.stored(kind), self.w.lanes
        self.w.lanes = 1
        ty = scalar_type(stored)
        items = ", ".join(f"{ty} {self.w.literal(stored, x)}" for x in numbers)
        self.w.lanes = lanes
        name = f"@axis{len(self.w.globals)}"
        self.w.globals[name] = f"{name} = internal constant [{len(numbers)} x {ty}] [{items}], align 64 ; {key}"
        return name

    def space_for(self, node: int) -> str:
        """A new array for a vector; arrays may share a place, but not a name."""
        n, kind = self.w.graph.length[node], self.w.graph.kind[node]
        if self.width == 1:
            return f"{ARENA} {self.places[node]} {node}"
        if n <= IN_REGISTERS:
            lanes, self.w.lanes = self.w.lanes, 1
            name = self.w.reserve(padded(n) + SLACK, kind)
            self.w.lanes = lanes
            return name
        if node not in self.places:  # what enters: alive throughout
            return self.w.beyond(far_bytes(n))
        return self.w.far(self.places[node], f"%array{node}")

    def address(self, base: str, kind: str, position: str) -> str:
        """The place of an element. Arrays of a GPU's thread are parts of one: their addresses share the index."""
        scalar = scalar_type(self.w.stored(kind))
        where, _, offset = base.partition(" ")
        if not offset:
            return self.w.new(f"getelementptr {scalar}, ptr {base}, i64 {position}")
        if where != ARENA:  # an array of the interface, whose elements stand in turns
            start, stride = offset.split()
            position = self.w.new(f"add i64 {self.w.new(f'mul i64 {position}, {stride}')}, {start}")
            return self.w.new(f"getelementptr inbounds {scalar}, ptr {where}, i64 {position}")
        row = self.w.new(f"getelementptr inbounds {scalar}, ptr {self.local}{where}, i64 {position}")
        return self.local + self.w.new(f"getelementptr inbounds i8, ptr {self.local}{row}, i64 {offset.split()[0]}")

    def fetch(self, base: str, kind: str, position: str | None = None) -> str:
        """The elements at the position of the loop."""
        assert self.here is not None
        where = self.address(base, kind, position or self.here.position)
        return self.w.from_memory(self.w.new(f"load {self.w.type(self.w.stored(kind))}, ptr {where}"), kind)

    def keep(self, value: str, base: str, kind: str) -> None:
        assert self.here is not None
        stored = self.w.to_memory(value, kind)
        self.w.put(
            f"store {self.w.type(self.w.stored(kind))} {stored}, ptr {self.address(base, kind, self.here.position)}"
        )

    def slot(self, n: int) -> str:
        """The array of a vector that is assigned to: a parameter of a loop, a result of a branch."""
        found = self.arrays.get(n)
        if found is None:
            found = self.arrays[n] = self.space_for(n)
            assert self.schedule is not None
            self.schedule.slots[found] = self.w.graph.length[n]
        return found
