"""LLVM IR for loops over long axes: fused operations, reads at constant places, and sums over an axis.

Sums over an axis have eight partial sums that are added in a fixed order, independent of the register width.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .emit_gpu import TeamReduction
from .emit_loops import Loops
from .emit_scalar import Expressions
from .graph import BOOL, FLOATS
from .values import PARTIAL, Share, Values, padded
from .vector_schedule import Piece
from .wide import in_step
from .writer import Writer, scalar_type

SHUFFLE = 64  # a constant shuffle reads at most this many elements
ROUNDS = 16  # at most this many rows of a sum over places are unrolled as shuffles
STEPS = [(0, 0), *((k, 0) for k in range(1, 6)), *((0, k) for k in (1, 2, 3, 4, 5, 30))]  # of places: up and down
REDUCTIONS = {"rsum": "add", "rprod": "mul", "rmax": "max", "rmin": "min", "rand": "and", "ror": "or"}


class Axes:
    """Operations on vectors that are not elementwise."""

    def __init__(self, writer: Writer, values: Values, loops: Loops, expressions: Expressions):
        self.w, self.values, self.loops, self.expressions = writer, values, loops, expressions

    def fused(self, piece: Piece, node: Callable[[int], None]) -> None:
        """One loop for vector nodes of one length, in order, each written by `node`; some of them are stored."""
        g = self.w.graph
        assert self.values.schedule is not None
        direct = self.values.schedule.direct
        targets = {m: self.values.slot(direct.get(m, m)) for m in piece.kept}

        def body() -> None:
            assert self.values.here is not None
            for m in piece.nodes:
                if g.op[m] == "take":
                    value = self._taken(m, g.attr[m].array)
                elif g.op[m] == "window":
                    value = self._windowed(m)
                elif g.op[m] == "gsum":
                    value = self._summed(m)
                else:
                    node(m)
                    value = self.values.names.pop(m)
                self.values.here.registers[m] = value
                if m in targets:
                    self.values.keep(value, targets[m], g.kind[m])

        self.loops.loop(piece.length, body)
        self.values.arrays.update(targets)

    # -- elements from constant places -------------------------------------------------------------
    def _taken(self, m: int, places: np.ndarray, row: str = "0") -> str:
        """`v[places]` at the position of the loop, zero where a place is negative."""
        g = self.w.graph
        (v,) = g.args[m]
        assert self.values.here is not None
        kind, base, missing = g.kind[m], self.values.array(v), bool((places < 0).any())
        size = padded(g.length[v])
        if self.values.width > 1 and self.values.here.position == "0" and places.ndim == 1 and size <= SHUFFLE:
            return self._shuffled(v, places, kind, size)
        if isinstance(self.values.here, Share) and places.ndim == 1:
            value = self._shared(self.values.here, v, kind, places)
            if value is not None:
                return value
        if (self.w.lanes > 1 or self.values.local) and places.ndim == 1:
            found = in_step(places, g.length[v])
            if found is not None and found[0] * self.w.lanes >= 4:  # a register begins with a new element
                return (self._stepped if self.w.lanes > 1 else self._at_step)(v, kind, *found, missing)
        table = self.values.constants(_whole_rows(places), "i4")
        where = self.values.here.position if row == "0" else self.w.new(f"add i64 {self.values.here.position}, {row}")
        index = self.w.new(f"load {self.w.type('i4')}, ptr {self.values.address(table, 'i4', where)}")
        nowhere = ""
        if missing:
            nowhere = self.w.new(f"icmp slt {self.w.type('i4')} {index}, {self.w.splat('0', 'i32')}")
            index = self.w.new(f"select {self.w.type(BOOL)} {nowhere}, {self.w.type('i4')} {self.w.splat('0', 'i32')}, "
                             f"{self.w.type('i4')} {index}")  # fmt: skip
        value = self._gathered(base, kind, index)
        if missing:
            ty = self.w.type(kind)
            value = self.w.new(f"select {self.w.type(BOOL)} {nowhere}, {ty} {self.w.literal(kind, 0)}, {ty} {value}")
        return value

    def _shared(self, share: Share, v: int, kind: str, places: np.ndarray) -> str | None:
        """`take` for a share with evenly spaced places: steps of 2^up, or 2^down positions per place."""
        mine = places[share.first : share.first + share.count]
        k, there = np.arange(share.first, share.first + share.count), mine >= 0
        if not there.any():
            return self.w.literal(kind, 0)
        some = int(mine[there][0])
        for up, down in STEPS:
            even = k << up >> down
            start = some - int(even[there][0])
            if (mine[there] == even[there] + start).all():
                break
        else:
            return None
        index, start = share.base, start + (share.first << up >> down)
        if up or down:
            index = self.w.new(f"{'shl' if up else 'lshr'} i64 {index}, {up or down}")
        if there.all():
            return self.values.fetch(self.values.array(v), kind, index, start)
        inside = self.values.member_of(share, there)
        index = self.w.new(f"select i1 {inside}, i64 {index}, i64 {some - start}")
        value, ty = self.values.fetch(self.values.array(v), kind, index, start), self.w.type(kind)
        return self.w.new(f"select i1 {inside}, {ty} {value}, {ty} {self.w.literal(kind, 0)}")

    def _windowed(self, m: int) -> str:
        """Elements from a runtime start on, zero outside of the source."""
        g = self.w.graph
        v, start = g.args[m]
        assert self.values.here is not None
        kind = g.kind[m]
        begin = self.literal_start(start)
        first = self.w.new(f"add i64 {self.values.here.position}, {begin}")
        if self.w.lanes == 1:
            return self._if_inside(v, kind, first)
        return self.w.from_memory(self._stretch(v, kind, first), kind)

    def _stretch(self, v: int, kind: str, first: str, missing: bool = True) -> str:
        """The elements of a register from `first` on, zero outside of the source, as they are stored."""
        size, L, stored = self.w.graph.length[v], self.w.lanes, self.w.stored(kind)
        ty, zero = self.w.type(stored), self.w.literal(stored, 0)
        if not missing:  # what is outside is not used
            where = self.values.address(self.values.array(v), kind, first)
            return self.w.new(f"load {ty}, ptr {where}, align {int(stored[1])}")
        lanes = "<" + ", ".join(f"i64 {k}" for k in range(L)) + ">"
        places = self.w.new(f"add <{L} x i64> {self.w.broadcast(first, 'i64')}, {lanes}")
        inside = self.w.new(f"icmp ult <{L} x i64> {places}, {self.w.splat(str(size), 'i64')}")
        letter = "f" if stored in FLOATS else "i"
        fn = self.w.declare(
            f"llvm.masked.load.v{L}{letter}{8 * int(stored[1])}.p0", f"{ty} @(ptr, i32, <{L} x i1>, {ty})"
        )
        where = self.values.address(self.values.array(v), kind, first)
        return self.w.new(f"call {ty} {fn}(ptr {where}, i32 {int(stored[1])}, <{L} x i1> {inside}, {ty} {zero})")

    def _stepped(self, v: int, kind: str, quarters: int, start: int, missing: bool) -> str:
        """The elements at `quarters * k // 4 + start`: neighbors, every second one, or each one twice; 0: all round."""
        assert self.values.here is not None
        L, position = self.w.lanes, self.values.here.position
        if quarters == 0:
            size, ty = self.w.graph.length[v], self.w.type(self.w.stored(kind))
            first = self.w.new(f"add i64 {position}, {start}")
            left = self.w.broadcast(self.w.new(f"sub i64 {size}, {first}"), "i64")
            lanes = "<" + ", ".join(f"i64 {k}" for k in range(L)) + ">"
            before = self.w.new(f"icmp sgt <{L} x i64> {left}, {lanes}")
            parts = [self._stretch(v, kind, x) for x in (first, self.w.new(f"sub i64 {first}, {size}"))]
            raw = self.w.new(f"select <{L} x i1> {before}, {ty} {parts[0]}, {ty} {parts[1]}")
            return self.w.from_memory(raw, kind)
        first = self.w.new(f"add i64 {self._scaled(position, quarters)}, {start}")
        raw = self._stretch(v, kind, first, missing)
        if quarters != 4:
            ty = self.w.type(self.w.stored(kind))
            more = self._stretch(v, kind, self.w.new(f"add i64 {first}, {L}"), missing) if quarters == 8 else "poison"
            order = [quarters * k // 4 for k in range(L)]
            mask = ", ".join(f"i32 {k}" for k in order)
            raw = self.w.new(f"shufflevector {ty} {raw}, {ty} {more}, <{L} x i32> <{mask}>")
        return self.w.from_memory(raw, kind)

    def _scaled(self, position: str, quarters: int) -> str:
        """`quarters * position // 4`; 0: the position itself."""
        shift = {8: "shl", 2: "lshr", 1: "lshr"}.get(quarters)
        return self.w.new(f"{shift} i64 {position}, {2 if quarters == 1 else 1}") if shift else position

    def _at_step(self, v: int, kind: str, quarters: int, start: int, missing: bool) -> str:
        """The same for one element."""
        assert self.values.here is not None
        size, index = self.w.graph.length[v], self._scaled(self.values.here.position, quarters)
        if start:
            index = self.w.new(f"add i64 {index}, {start}")
        if quarters == 0:
            beyond = self.w.new(f"icmp sge i64 {index}, {size}")
            index = self.w.new(f"select i1 {beyond}, i64 {self.w.new(f'sub i64 {index}, {size}')}, i64 {index}")
        return self._if_inside(v, kind, index) if missing else self.values.fetch(self.values.array(v), kind, index)

    def _if_inside(self, v: int, kind: str, index: str) -> str:
        """The element at an index, zero outside of the vector."""
        stored, size = self.w.stored(kind), self.w.graph.length[v]
        ty, zero = self.w.type(stored), self.w.literal(stored, 0)
        inside = self.w.new(f"icmp ult i64 {index}, {size}")
        safe = self.w.new(f"select i1 {inside}, i64 {index}, i64 0")
        raw = self.w.new(f"load {ty}, ptr {self.values.address(self.values.array(v), kind, safe)}")
        return self.w.from_memory(self.w.new(f"select i1 {inside}, {ty} {raw}, {ty} {zero}"), kind)

    def literal_start(self, n: int) -> str:
        """A scalar node in a loop, as a scalar."""
        return str(int(self.w.graph.attr[n])) if self.w.graph.op[n] == "const" else self.values.names[n]

    def _gathered(self, base: str, kind: str, index: str) -> str:
        stored = self.w.stored(kind)
        ty, scalar = self.w.type(stored), scalar_type(stored)
        far = self.w.new(f"zext {self.w.type('i4')} {index} to {self.w.type('i8')}")
        if self.w.lanes == 1:
            return self.w.from_memory(self.w.new(f"load {ty}, ptr {self.values.address(base, kind, far)}"), kind)
        L = self.w.lanes
        pointers = self.w.new(f"getelementptr inbounds {scalar}, ptr {base}, <{L} x i64> {far}")
        letter = "f" if stored in FLOATS else "i"
        fn = self.w.declare(
            f"llvm.masked.gather.v{L}{letter}{8 * int(stored[1])}.v{L}p0", f"{ty} @(<{L} x ptr>, i32, <{L} x i1>, {ty})"
        )
        mask = self.w.splat("true", "i1")
        size = int(stored[1])
        raw = self.w.new(f"call {ty} {fn}(<{L} x ptr> {pointers}, i32 {size}, <{L} x i1> {mask}, {ty} poison)")
        return self.w.from_memory(raw, kind)

    def _shuffled(self, v: int, places: np.ndarray, kind: str, size: int) -> str:
        """A constant shuffle of the whole source, for an axis that fits one register."""
        stored = scalar_type(self.w.stored(kind))
        source = self.w.new(f"load <{size} x {stored}>, ptr {self.values.array(v)}, align 64")
        places = np.concatenate([places, np.repeat(places[-1:], self.w.lanes - len(places))])
        mask = ", ".join(f"i32 {int(k) if k >= 0 else size}" for k in places)
        raw = self.w.new(
            f"shufflevector <{size} x {stored}> {source}, <{size} x {stored}> zeroinitializer, "
            f"<{self.w.lanes} x i32> <{mask}>"
        )
        return self.w.from_memory(raw, kind)

    def _summed(self, m: int) -> str:
        """The sum of the rows of places."""
        assert self.values.here is not None
        rows = self.w.graph.attr[m].array
        kind, ty = self.w.graph.kind[m], self.w.type(self.w.graph.kind[m])
        add = "fadd" if kind in FLOATS else "add"
        source = padded(self.w.graph.length[self.w.graph.args[m][0]])
        if self.values.width > 1 and self.values.here.position == "0" and source <= SHUFFLE and len(rows) <= ROUNDS:
            total = self._taken(m, rows[0])
            for row in rows[1:]:
                total = self.w.new(f"{add} {ty} {total}, {self._taken(m, row)}")
            return total
        if self.values.local and len(rows) <= ROUNDS:
            total = self.w.literal(kind, 0)
            for row in rows:
                total = self.w.new(f"{add} {ty} {total}, {self._taken(m, row)}")
            return total
        head, done = self.w.labels("sum", "sumdone")
        before, at, total = self.w.label, f"%r{self.w.fresh}", f"%q{self.w.fresh}"
        self.w.put(f"br label %{head}")
        self.w.start(head)
        self.w.put(f"{at} = phi i64 [ 0, %{before} ], [ {at}n, %{head} ]")
        self.w.put(f"{total} = phi {ty} [ {self.w.literal(kind, 0)}, %{before} ], [ {total}n, %{head} ]")
        value = self._taken(m, rows, at)
        self.w.put(f"{total}n = {add} {ty} {total}, {value}")
        length = _whole_rows(rows).size // len(rows)
        self.w.put(f"{at}n = add nuw nsw i64 {at}, {length}")
        more = self.w.new(f"icmp slt i64 {at}n, {length * len(rows)}")
        self.w.put(f"br i1 {more}, label %{head}, label %{done}")
        self.w.start(done)
        return f"{total}n"

    # -- reductions --------------------------------------------------------------------------------
    def reduction(self, m: int) -> None:
        """Reduce to eight partial results, each over every eighth element in order; then combine them pairwise."""
        g = self.w.graph
        (v,) = g.args[m]
        n, kind, op, base = g.length[v], g.kind[m], REDUCTIONS[g.op[m]], self.values.array(v)
        rounds, rest = divmod(n, PARTIAL)
        if self.w.target.team:
            self.loops.unsettled = True
            if n >= PARTIAL and kind in ("f8", "i8", "u8", BOOL):
                positive = op == "max" and kind == "f8" and self.expressions.positive(v)
                self.values.names[m] = self._by_team(base, kind, op, n, positive)
                return
        partial = self._vector_partials if self.values.width > 1 else self._scalar_partials
        items = partial(base, kind, op, n, rounds, rest)
        while len(items) > 1:
            pairs = [self.expressions.combined(op, kind, items[i], items[i + 1]) for i in range(0, len(items) - 1, 2)]
            items = pairs + items[len(items) & ~1 :]
        self.values.names[m] = items[0]

    def _by_team(self, base: str, kind: str, op: str, n: int, positive: bool) -> str:
        """The same reduction by a team: each group of 32 threads computes every partial result, in the same order."""
        team = TeamReduction(self.w, op, n)
        if positive:  # as whole numbers
            kind, combine = "i8", lambda a, b: self.w.new(self.w.intrinsic("umax", "i8", a, b))
        else:
            combine = lambda a, b: self.expressions.combined(op, kind, a, b)

        def at(place: str) -> str:
            where = self.values.address(base, kind, place)
            return self.w.from_memory(self.w.new(f"load {self.w.type(self.w.stored(kind))}, ptr {where}"), kind)

        total = team.partial(at, combine, self.w.type(kind))
        total = team.largest(total) if positive and self.w.target.redux else team.exchanged(total, kind, combine)
        return self.w.new(f"bitcast i64 {total} to double") if positive else total

    def _scalar_partials(self, base: str, kind: str, op: str, n: int, rounds: int, rest: int) -> list[str]:
        def at(place: str | int) -> str:
            where = self.values.address(base, kind, str(place))
            return self.w.from_memory(self.w.new(f"load {self.w.type(self.w.stored(kind))}, ptr {where}"), kind)

        items = [at(k) for k in range(min(n, PARTIAL))]
        if rounds > 1:
            head, done = self.w.labels("total", "totaldone")
            before, i, tag, ty = self.w.label, f"%i{self.w.fresh}", self.w.fresh, self.w.type(kind)
            self.w.put(f"br label %{head}")
            self.w.start(head)
            self.w.put(f"{i} = phi i64 [ {PARTIAL}, %{before} ], [ {i}n, %{head} ]")
            hole = self.w.hole()
            places = [self.w.new(f"add i64 {i}, {k}") for k in range(PARTIAL)]
            later = [self.expressions.combined(op, kind, f"%z{tag}_{k}", at(place)) for k, place in enumerate(places)]
            self.w.lines[hole] = "\n".join(
                f"  %z{tag}_{k} = phi {ty} [ {a}, %{before} ], [ {b}, %{head} ]"
                for k, (a, b) in enumerate(zip(items, later, strict=True))
            )
            items = later
            self.w.put(f"{i}n = add nuw nsw i64 {i}, {PARTIAL}")
            test = self.w.new(f"icmp slt i64 {i}n, {rounds * PARTIAL}")
            self.w.put(f"br i1 {test}, label %{head}, label %{done}")
            self.w.start(done)
        if rounds:
            for k in range(rest):
                items[k] = self.expressions.combined(op, kind, items[k], at(rounds * PARTIAL + k))
        return items

    def _vector_partials(self, base: str, kind: str, op: str, n: int, rounds: int, rest: int) -> list[str]:
        lanes, self.w.lanes = self.w.lanes, PARTIAL
        ty, stored = self.w.type(kind), self.w.type(self.w.stored(kind))

        def at(place: str | int) -> str:
            return self.w.from_memory(
                self.w.new(f"load {stored}, ptr {self.values.address(base, kind, str(place))}"), kind
            )

        total = at(0)
        if rounds > 1:
            head, done = self.w.labels("total", "totaldone")
            before, i, z = self.w.label, f"%i{self.w.fresh}", f"%z{self.w.fresh}"
            self.w.put(f"br label %{head}")
            self.w.start(head)
            self.w.put(f"{i} = phi i64 [ {PARTIAL}, %{before} ], [ {i}n, %{head} ]")
            hole = self.w.hole()
            more = self.expressions.combined(op, kind, z, at(i))
            self.w.lines[hole] = f"  {z} = phi {ty} [ {total}, %{before} ], [ {more}, %{head} ]"
            self.w.put(f"{i}n = add nuw nsw i64 {i}, {PARTIAL}")
            test = self.w.new(f"icmp slt i64 {i}n, {rounds * PARTIAL}")
            self.w.put(f"br i1 {test}, label %{head}, label %{done}")
            self.w.start(done)
            total = more
        if rounds and rest:
            more = self.expressions.combined(op, kind, total, at(rounds * PARTIAL))
            mask = ", ".join(f"i32 {k if k < rest else PARTIAL + k}" for k in range(PARTIAL))
            total = self.w.new(f"shufflevector {ty} {more}, {ty} {total}, <{PARTIAL} x i32> <{mask}>")
        self.w.lanes = lanes
        return [self.w.new(f"extractelement {ty} {total}, i32 {k}") for k in range(min(n, PARTIAL))]


def _whole_rows(places: np.ndarray) -> np.ndarray:
    """Rows of places one after the other, each a whole number of registers."""
    rows = np.atleast_2d(places)
    extra = np.repeat(rows[:, -1:], padded(rows.shape[1]) - rows.shape[1], axis=1)
    return np.concatenate([rows, extra], axis=1).ravel()
