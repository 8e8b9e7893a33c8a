"""Locations of the values of nodes while a kernel is written: registers, literals, or arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .arena import owned, places, recycled
from .vector_schedule import VectorSchedule
from .wide import Numbers
from .writer import Writer, scalar_type

ARENA = "%arena"
OWN = "%own"
NEAR = 60  # lines of text for which a number read from shared memory stays in its register
SHARES = 4  # positions of an axis that a thread of a team computes at once
IN_REGISTERS = 64  # arrays of at most this many elements are on the stack
SLACK = 16  # readable elements after an array: whole registers are loaded at its end
PARTIAL = 8  # partial sums of a reduction, and the unit of reserved space


@dataclass
class Here:
    """The body of a loop that is being written: its position, and the vectors that are in registers."""

    position: str
    registers: dict[int, str] = field(default_factory=dict)


@dataclass
class Share(Here):
    """A loop body whose `count` positions from `first` on belong to the threads of a team, one each.

    Threads beyond the last position repeat it. The position is `base + first`. What is stored waits in `stores` until
    all shares of the loop are computed; `read` are the arrays of which elements were read.
    """

    member: str = ""
    first: int = 0
    count: int = 0
    base: str = ""
    stores: list[tuple[str, str, str]] = field(default_factory=list)
    read: set[str] = field(default_factory=set)


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
        self.common: dict[int, int] = {}  # numbers that are in shared memory, and where
        self.recent: dict[int, tuple[str, str, int]] = {}  # where they were read last
        self.schedule = VectorSchedule(writer.program) if writer.program.wide else None
        self.places: dict[int, int] = {}
        self.space = 0  # bytes of arrays that a thread or a team of a GPU has for itself
        self.owned: set[int] = set()  # vectors of which a thread of a team has its elements for itself
        self.own: dict[str, str] = {}  # where it has them, with their types
        if self.schedule and writer.target.team:
            most = SHARES * writer.target.team
            found = owned(writer.program, self.schedule)
            self.owned = {n for n in found if writer.graph.length[n] <= most}
        if self.schedule and width == 1:
            self.places, self.space = places(writer.program, self.schedule, self.owned)
        elif self.schedule:
            self.places, writer.scratch = recycled(writer.program, self.schedule, far_bytes)
        self.local = writer.target.local

    def name(self, n: int) -> str:
        """The register or literal that holds a node: of the position of the loop that is being written, if any."""
        here, g = self.here, self.w.graph
        if here is None:
            found = self.names.get(n)
            if found is None and n in self.common:
                return self._shared(n)
            if found is None:
                if g.op[n] != "const":
                    raise KeyError(f"node {n} ({g.op[n]}) is used before it is computed")
                found = self.names[n] = self.w.literal(g.kind[n], g.attr[n])
            return found
        found = here.registers.get(n)
        if found is None:
            if g.length[n]:
                found = self._chosen(here, n) if isinstance(here, Share) and g.op[n] == "vconst" else None
                found = found or self.fetch(self.array(n), g.kind[n])
            elif g.op[n] == "const":
                found = self.w.literal(g.kind[n], g.attr[n])
            else:
                found = self.w.broadcast(self.names[n], scalar_type(g.kind[n]))
            here.registers[n] = found
        return found

    def share(self, nodes: list[int]) -> None:
        """Put numbers that are equal for all threads of a block into shared memory; they are loaded at each use."""
        self.common = {n: k for k, n in enumerate(nodes)}
        self.w.globals["@common"] = f"@common = internal addrspace(3) global [{len(nodes)} x double] undef, align 16"
        for n, k in self.common.items():
            self.w.put(f"store volatile double {self.names.pop(n)}, {self._place(k)}")

    def _shared(self, n: int) -> str:
        name, label, line = self.recent.get(n, ("", "", 0))
        if label != self.w.label or len(self.w.lines) - line > NEAR:
            name = self.w.new(f"load volatile double, {self._place(self.common[n])}")
            self.recent[n] = name, self.w.label, len(self.w.lines)
        return name

    def _place(self, k: int) -> str:
        return f"ptr addrspace(3) getelementptr (double, ptr addrspace(3) @common, i64 {k})"

    def array(self, n: int) -> str:
        """The address of the elements of a vector."""
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
        if node in self.owned:
            return f"{OWN} {node}"
        if self.width == 1:
            return f"{ARENA} {self.places[node]} {node}"
        if n <= IN_REGISTERS:
            lanes, self.w.lanes = self.w.lanes, 1
            name = self.w.reserve(padded(n) + SLACK, kind)
            self.w.lanes = lanes
            return name
        if node not in self.places:  # inputs are alive throughout
            return self.w.beyond(far_bytes(n))
        return self.w.far(self.places[node], f"%array{node}")

    def _chosen(self, share: Share, n: int) -> str | None:
        """Constants of a share without a load, where there are at most two."""
        numbers, kind = self.w.graph.attr[n].array[share.first : share.first + share.count], self.w.graph.kind[n]
        raw = numbers.view(f"u{numbers.itemsize}")
        other = raw != raw[0]
        if (raw[other] != raw[int(np.argmax(other))]).any():
            return None
        first, second = (self.w.literal(kind, x) for x in (numbers[0], numbers[int(np.argmax(other))]))
        ty = self.w.type(kind)
        return self.w.new(f"select i1 {self.member_of(share, other)}, {ty} {second}, {ty} {first}")

    def member_of(self, share: Share, which: np.ndarray) -> str:
        """Whether `which` holds at the position of this thread."""
        if (which == which[0]).all():
            return "true" if which[0] else "false"
        team = self.w.target.team
        bits = np.append(which, np.repeat(which[-1:], team - len(which)))
        word = int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little", signed=True)
        lane = self.w.new(f"trunc i64 {share.member} to i{team}") if team < 64 else share.member
        bit = self.w.new(f"and i{team} {self.w.new(f'lshr i{team} {word}, {lane}')}, 1")
        return self.w.new(f"icmp ne i{team} {bit}, 0")

    def address(self, base: str, kind: str, position: str, start: int = 0) -> str:
        """The place `start` elements after one. Arrays of a GPU's thread are parts of one: they share the index."""
        scalar = scalar_type(self.w.stored(kind))
        where, _, offset = base.partition(" ")
        if where == OWN:
            return self._own(int(offset), kind, position)
        if start and where != ARENA:
            position = self.w.new(f"add i64 {position}, {start}")
        if not offset:
            return self.w.new(f"getelementptr {scalar}, ptr {base}, i64 {position}")
        if where != ARENA:  # an array of the interface, whose elements stand in turns
            first, stride = offset.split()
            position = self.w.new(f"add i64 {self.w.new(f'mul i64 {position}, {stride}')}, {first}")
            return self.w.new(f"getelementptr inbounds {scalar}, ptr {where}, i64 {position}")
        row = self.w.new(f"getelementptr inbounds {scalar}, ptr {self.local}{where}, i64 {position}")
        behind = int(offset.split()[0]) + start * int(self.w.stored(kind)[1])
        return self.local + self.w.new(f"getelementptr inbounds i8, ptr {self.local}{row}, i64 {behind}")

    def pointer(self, n: int) -> str:
        """The address of the first element of a vector, for functions that take one."""
        base, kind = self.slot(n) if self.w.graph.op[n] != "vconst" else self.array(n), self.w.graph.kind[n]
        return self.address(base, kind, "0") if " " in base else base

    def _own(self, node: int, kind: str, position: str) -> str:
        """Where a thread of a team has the element at a position. LLVM keeps it in a register in quick steps."""
        name, team = f"{OWN}{self.w.tag}{node}", self.w.target.team
        ty = f"[{-(-self.w.graph.length[node] // team)} x {scalar_type(self.w.stored(kind))}]"
        self.own.setdefault(name, ty)
        which = (
            str(self.here.first // team) if isinstance(self.here, Share) else self.w.new(f"udiv i64 {position}, {team}")
        )
        return self.w.new(f"getelementptr inbounds {ty}, ptr {name}, i64 0, i64 {which}")

    def _here(self) -> tuple[str, int]:
        assert self.here is not None
        return (self.here.base, self.here.first) if isinstance(self.here, Share) else (self.here.position, 0)

    def fetch(self, base: str, kind: str, position: str | None = None, start: int = 0) -> str:
        """The elements at the position of the loop, or at another."""
        if base.startswith(OWN):
            if f"{OWN}{self.w.tag}{base.split()[1]}" not in self.own:
                raise KeyError(f"vector {base.split()[1]} is used before it is computed")
        elif isinstance(self.here, Share):
            self.here.read.add(base)
        where = self.address(base, kind, *(self._here() if position is None else (position, start)))
        return self.w.from_memory(self.w.new(f"load {self.w.type(self.w.stored(kind))}, ptr {where}"), kind)

    def keep(self, value: str, base: str, kind: str) -> None:
        if isinstance(self.here, Share):
            self.here.stores.append((value, base, kind))
        else:
            self.store(value, base, kind)

    def store(self, value: str, base: str, kind: str) -> None:
        """Write the elements at the position of the loop."""
        where = self.address(base, kind, *self._here())
        self.w.put(f"store {self.w.type(self.w.stored(kind))} {self.w.to_memory(value, kind)}, ptr {where}")

    def slot(self, n: int) -> str:
        """The array of a vector that is assigned to: a parameter of a loop, a result of a branch."""
        found = self.arrays.get(n)
        if found is None:
            found = self.arrays[n] = self.space_for(n)
            assert self.schedule is not None
            self.schedule.slots[found] = self.w.graph.length[n]
        return found
