"""LLVM IR for vectors: loops over long axes (see `wide`).

Vector operations of one length that follow each other become one loop. In its body a vector is a value of `width`
elements (the SIMD lanes of a CPU, 1 for a GPU), so the same code as for scalars and lanes writes it; only what is used
outside of the loop is stored, in arrays reserved at the function's entry. Arrays end with copies of their last element,
up to a whole number of registers: values computed there repeat those of the last element and are never used.

Every element is computed by the same operations for any width, so that all widths give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .graph import Unsupported
from .program import Leaf
from .values import SHARES, Here, Share, Values, padded
from .writer import WARP, Writer, scalar_type


class Loops:
    """Loops over long axes, and the copies they make."""

    def __init__(self, writer: Writer, values: Values):
        self.w, self.values = writer, values
        self.unsettled = False  # a thread of a team may still use arrays that it does not write in loops

    def loop(self, n: int, body: Callable[[], None], width: int | None = None) -> None:
        """Write `body` for all positions of an axis of n elements."""
        if self.w.target.team and self.values.here is None:
            return self._team_loop(n, body)
        width = width or self.values.width
        outer, lanes = self.values.here, self.w.lanes
        count = -(-n // width)
        self.w.lanes = width
        if count == 1:
            self.values.here = Here("0")
            body()
        else:
            head, done = self.w.labels("axis", "axisdone")
            before, index = self.w.label, f"%i{self.w.fresh}"
            self.w.put(f"br label %{head}")
            self.w.start(head)
            hole = self.w.hole()
            self.values.here = Here(index)
            body()
            following = self.w.new(f"add nuw nsw i64 {index}, {width}")
            more = self.w.new(f"icmp slt i64 {following}, {n}")
            self.w.lines[hole] = f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{self.w.label} ]"
            self.w.put(f"br i1 {more}, label %{head}, label %{done}")
            self.w.start(done)
        self.values.here, self.w.lanes = outer, lanes

    def _team_loop(self, n: int, body: Callable[[], None]) -> None:
        """Write `body` for n positions; thread k of a team takes every team-th one from k on. A barrier follows."""
        if self.unsettled:
            self.wait()
        member = self.w.target.member(self.w)  # computed again, to keep it out of registers between loops
        if self.w.tag and n <= SHARES * self.w.target.team:
            return self._unroll_team(n, body, member)
        head, done = self.w.labels("axis", "axisdone")
        before, index = self.w.label, f"%i{self.w.fresh}"
        mine = self.w.new(f"icmp slt i64 {member}, {n}")
        self.w.put(f"br i1 {mine}, label %{head}, label %{done}")
        self.w.start(head)
        hole = self.w.hole()
        self.values.here = Here(index)
        body()
        following = self.w.new(f"add nuw nsw i64 {index}, {self.w.target.team}")
        more = self.w.new(f"icmp slt i64 {following}, {n}")
        self.w.lines[hole] = f"  {index} = phi i64 [ {member}, %{before} ], [ {following}, %{self.w.label} ]"
        self.w.put(f"br i1 {more}, label %{head}, label %{done}")
        self.w.start(done)
        self.values.here = None
        self.wait()

    def _unroll_team(self, n: int, body: Callable[[], None], member: str) -> None:
        """The same without a loop or branches: each thread computes all of its positions, and then stores them.

        `member` is the register with the number of the thread.
        """
        team, count, shares = self.w.target.team, 0, []
        for first in range(0, n, team):
            count, base = min(n - first, team), member
            if count < team:
                base = self.w.new(self.w.intrinsic("smin", "i8", member, str(count - 1)))
            position = self.w.new(f"add i64 {base}, {first}")
            self.values.here = Share(position, {}, member, first, count, base)
            shares.append(self.values.here)
            body()
        read = set().union(*(share.read for share in shares))
        if count < team and any(base in read for share in shares for _, base, _ in share.stores):
            self.wait()  # threads that repeat the last position must have read it
        for share in shares:
            self.values.here = share
            for item in share.stores:
                self.values.store(*item)
        self.values.here = None
        self.wait()

    def wait(self) -> None:
        """A barrier of the team: afterwards all threads see what any of them has written."""
        self.unsettled = False
        if self.w.target.team > WARP:
            self.w.put(f"call void {self.w.declare('llvm.nvvm.barrier0', 'void @()')}()")
        elif self.w.target.team:
            self.w.put(f"call void {self.w.declare('llvm.nvvm.bar.warp.sync', 'void @(i32)')}(i32 -1)")

    def assign(self, pairs: list[tuple[int, str]]) -> None:
        """Copy vectors, or repeated scalars, to arrays as one assignment: all reads see the old contents."""
        g = self.w.graph
        lengths = self.values.schedule.slots if self.values.schedule else {}
        groups: dict[int, list[tuple[int, str, str]]] = {}
        for source, target in pairs:
            if self.values.arrays.get(source) != target:
                groups.setdefault(lengths[target], []).append((source, target, g.kind[source]))
        for n, items in groups.items():

            def body(items: Sequence[Any] = items) -> None:
                values = [self.values.name(source) for source, _, _ in items]
                for value, (_, target, kind) in zip(values, items, strict=True):
                    self.values.keep(value, target, kind)

            self.loop(n, body)

    def gathered_leaf(self, leaf: Leaf, wanted: list[tuple[int, int]], base: str) -> None:
        """Fill the arrays of a leaf's vectors from its interleaved elements, and repeat the last one at the end."""
        n, kind = leaf.length, leaf.kind
        if self.values.width == 1 and leaf not in self.w.program.carry:
            self.values.arrays.update((m, f"{base} {start} {leaf.stride}") for start, m in wanted)
            return
        targets = [(start, self.values.slot(m)) for start, m in wanted]

        def body() -> None:
            assert self.values.here is not None
            position = self.values.here.position
            inside = self.w.new(f"icmp slt i64 {position}, {n}")
            at = self.w.new(f"mul i64 {self.w.new(f'select i1 {inside}, i64 {position}, i64 {n - 1}')}, {leaf.stride}")
            for start, target in targets:
                self.values.keep(self.values.fetch(base, kind, self.w.new(f"add i64 {at}, {start}")), target, kind)

        self.loop(padded(n) if self.values.width > 1 else n, body, 1)

    def spread_leaf(self, leaf: Leaf, nodes: tuple[int, ...], base: str) -> None:
        """Write a leaf's vectors to its interleaved elements; the inverse of reading them."""

        def body() -> None:
            assert self.values.here is not None
            at = self.w.new(f"mul i64 {self.values.here.position}, {leaf.stride}")
            for start, m in zip(leaf.starts, nodes, strict=True):
                where = self.values.address(base, leaf.kind, self.w.new(f"add i64 {at}, {start}"))
                value = self.w.to_memory(self.values.name(m), leaf.kind)
                self.w.put(f"store {self.w.type(self.w.stored(leaf.kind))} {value}, ptr {where}")

        self.loop(leaf.length, body, 1)

    def pack(self, n: int) -> None:
        """A vector of scalars."""
        kind, base = self.w.graph.kind[n], self.values.slot(n)
        self.wait()  # until all threads have read the previous contents
        for k, a in enumerate(self.w.graph.args[n]):
            value = self.w.to_memory(self.values.name(a), kind)
            self.w.put(
                f"store {self.w.type(self.w.stored(kind))} {value}, ptr {self.values.address(base, kind, str(k))}"
            )
        self.filled(n)

    def join(self, n: int) -> None:
        """Vectors, or repeated scalars, one after the other."""
        w, values, g = self.w, self.values, self.w.graph
        if values.local:
            raise Unsupported("vectors joined to one", "on a GPU")
        kind, base, start = g.kind[n], values.pointer(n), 0
        stored = w.stored(kind)
        copy = w.declare("llvm.memcpy.p0.p0.i64", "void @(ptr, ptr, i64, i1)")
        for v, size in zip(g.args[n], g.attr[n], strict=True):
            where = w.new(f"getelementptr {scalar_type(stored)}, ptr {base}, i64 {start}")
            start += size
            if g.length[v]:
                count = size * int(stored[1])
                w.put(f"call void {copy}(ptr {where}, ptr {values.pointer(v)}, i64 {count}, i1 false)")
            else:
                self.loop(size, lambda v=v, where=where: values.keep(values.name(v), where, kind), 1)
        self.filled(n)

    def filled(self, n: int) -> None:
        """Write copies of the last element after the end of an array that was filled one by one."""
        length, kind, base = self.w.graph.length[n], self.w.graph.kind[n], self.values.array(n)
        ty = self.w.type(self.w.stored(kind))
        last = self.w.new(f"load {ty}, ptr {self.values.address(base, kind, str(length - 1))}")
        for k in range(length, padded(length) if self.values.width > 1 else length):
            self.w.put(f"store {ty} {last}, ptr {self.values.address(base, kind, str(k))}")
        self.unsettled = True
