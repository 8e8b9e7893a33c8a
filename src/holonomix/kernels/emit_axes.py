"""LLVM IR for loops over long axes: fused operations, elements from constant places, and sums over an axis.

Sums over an axis have eight partial sums that are added in a fixed order, whatever the width of registers.
"""

from __future__ import annotations

import numpy as np

from .emit_loops import PARTIAL, LoopEmitter, padded
from .graph import BOOL, FLOATS
from .vector_schedule import Piece
from .wide import in_step
from .writer import scalar_type

SHUFFLE = 64  # elements of an array that a constant shuffle may read
ROUNDS = 16  # rows of a sum over places that are written out as shuffles
_TOTAL = {"rsum": "add", "rprod": "mul", "rmax": "max", "rmin": "min", "rand": "and", "ror": "or"}


class AxisEmitter(LoopEmitter):
    """Adds the operations on vectors that are not element by element."""

    def node(self, n: int) -> None:
        raise NotImplementedError

    def fused(self, piece: Piece) -> None:
        """One loop for vector nodes of one length, in order; some of them are stored."""
        g = self.graph
        assert self.schedule is not None
        direct = self.schedule.direct
        targets = {m: self.slot(direct.get(m, m)) for m in piece.kept}

        def body() -> None:
            assert self.here is not None
            for m in piece.nodes:
                if g.op[m] == "take":
                    value = self._taken(m, g.attr[m].array)
                elif g.op[m] == "window":
                    value = self._windowed(m)
                elif g.op[m] == "gsum":
                    value = self._summed(m)
                else:
                    self.node(m)
                    value = self.names.pop(m)
                self.here.registers[m] = value
                if m in targets:
                    self.keep(value, targets[m], g.kind[m])

        self.loop(piece.length, body)
        self.arrays.update(targets)

    # -- elements from constant places -------------------------------------------------------------
    def _taken(self, m: int, places: np.ndarray, row: str = "0") -> str:
        """`v[places]` at the position of the loop, zero where a place is negative."""
        g = self.graph
        (v,) = g.args[m]
        assert self.here is not None
        kind, base, missing = g.kind[m], self.array(v), bool((places < 0).any())
        size = padded(g.length[v])
        if self.width > 1 and self.here.position == "0" and places.ndim == 1 and size <= SHUFFLE:
            return self._shuffled(v, places, kind, size)
        if self.lanes > 1 and places.ndim == 1:
            found = in_step(places, g.length[v])
            if found is not None:
                return self._stepped(v, kind, *found, missing)
        table = self.constants(_whole_rows(places), "i4")
        where = self.here.position if row == "0" else self.new(f"add i64 {self.here.position}, {row}")
        index = self.new(f"load {self.type('i4')}, ptr {self.address(table, 'i4', where)}")
        if missing:
            nowhere = self.new(f"icmp slt {self.type('i4')} {index}, {self.splat('0', 'i32')}")
            index = self.new(f"select {self.type(BOOL)} {nowhere}, {self.type('i4')} {self.splat('0', 'i32')}, "
                             f"{self.type('i4')} {index}")  # fmt: skip
        value = self._gathered(base, kind, index)
        if missing:
            ty = self.type(kind)
            value = self.new(f"select {self.type(BOOL)} {nowhere}, {ty} {self.literal(kind, 0)}, {ty} {value}")
        return value

    def _windowed(self, m: int) -> str:
        """Elements from a runtime start on, zero outside of the source."""
        g = self.graph
        v, start = g.args[m]
        assert self.here is not None
        kind, size = g.kind[m], g.length[v]
        begin = self.literal_start(start)
        first = self.new(f"add i64 {self.here.position}, {begin}")
        stored = self.stored(kind)
        ty, zero = self.type(stored), self.literal(stored, 0)
        if self.lanes == 1:
            inside = self.new(f"icmp ult i64 {first}, {size}")
            safe = self.new(f"select i1 {inside}, i64 {first}, i64 0")
            raw = self.new(f"load {ty}, ptr {self.address(self.array(v), kind, safe)}")
            return self.from_memory(self.new(f"select i1 {inside}, {ty} {raw}, {ty} {zero}"), kind)
        return self.from_memory(self._stretch(v, kind, first), kind)

    def _stretch(self, v: int, kind: str, first: str, missing: bool = True) -> str:
        """The elements of a register from `first` on, zero outside of the source, as they are stored."""
        size, L, stored = self.graph.length[v], self.lanes, self.stored(kind)
        ty, zero = self.type(stored), self.literal(stored, 0)
        if not missing:  # what is outside is not used
            where = self.address(self.array(v), kind, first)
            return self.new(f"load {ty}, ptr {where}, align {int(stored[1])}")
        lanes = "<" + ", ".join(f"i64 {k}" for k in range(L)) + ">"
        places = self.new(f"add <{L} x i64> {self.broadcast(first, 'i64')}, {lanes}")
        inside = self.new(f"icmp ult <{L} x i64> {places}, {self.splat(str(size), 'i64')}")
        letter = "f" if stored in FLOATS else "i"
        fn = self.declare(
            f"llvm.masked.load.v{L}{letter}{8 * int(stored[1])}.p0", f"{ty} @(ptr, i32, <{L} x i1>, {ty})"
        )
        where = self.address(self.array(v), kind, first)
        return self.new(f"call {ty} {fn}(ptr {where}, i32 {int(stored[1])}, <{L} x i1> {inside}, {ty} {zero})")

    def _stepped(self, v: int, kind: str, halves: int, start: int, missing: bool) -> str:
        """The elements at `halves / 2 * k + start`: neighbors, every second one, or each one twice; 0: all round."""
        assert self.here is not None
        L, position = self.lanes, self.here.position
        if halves == 0:
            size, ty = self.graph.length[v], self.type(self.stored(kind))
            first = self.new(f"add i64 {position}, {start}")
            left = self.broadcast(self.new(f"sub i64 {size}, {first}"), "i64")
            lanes = "<" + ", ".join(f"i64 {k}" for k in range(L)) + ">"
            before = self.new(f"icmp sgt <{L} x i64> {left}, {lanes}")
            parts = [self._stretch(v, kind, x) for x in (first, self.new(f"sub i64 {first}, {size}"))]
            raw = self.new(f"select <{L} x i1> {before}, {ty} {parts[0]}, {ty} {parts[1]}")
            return self.from_memory(raw, kind)
        if halves == 1:
            first = self.new(f"lshr i64 {position}, 1")
        else:
            scaled = position if halves == 2 else self.new(f"shl i64 {position}, 1")
            first = self.new(f"add i64 {scaled}, {start}")
        raw = self._stretch(v, kind, first, missing)
        if halves != 2:
            ty = self.type(self.stored(kind))
            more = self._stretch(v, kind, self.new(f"add i64 {first}, {L}"), missing) if halves == 4 else "poison"
            order = [2 * k for k in range(L)] if halves == 4 else [k // 2 for k in range(L)]
            mask = ", ".join(f"i32 {k}" for k in order)
            raw = self.new(f"shufflevector {ty} {raw}, {ty} {more}, <{L} x i32> <{mask}>")
        return self.from_memory(raw, kind)

    def literal_start(self, n: int) -> str:
        """A scalar node in a loop, as a scalar."""
        return str(int(self.graph.attr[n])) if self.graph.op[n] == "const" else self.names[n]

    def _gathered(self, base: str, kind: str, index: str) -> str:
        stored = self.stored(kind)
        ty, scalar = self.type(stored), scalar_type(stored)
        far = self.new(f"zext {self.type('i4')} {index} to {self.type('i8')}")
        if self.lanes == 1:
            return self.from_memory(self.new(f"load {ty}, ptr {self.address(base, kind, far)}"), kind)
        L = self.lanes
        pointers = self.new(f"getelementptr inbounds {scalar}, ptr {base}, <{L} x i64> {far}")
        letter = "f" if stored in FLOATS else "i"
        fn = self.declare(
            f"llvm.masked.gather.v{L}{letter}{8 * int(stored[1])}.v{L}p0", f"{ty} @(<{L} x ptr>, i32, <{L} x i1>, {ty})"
        )
        mask = self.splat("true", "i1")
        size = int(stored[1])
        raw = self.new(f"call {ty} {fn}(<{L} x ptr> {pointers}, i32 {size}, <{L} x i1> {mask}, {ty} poison)")
        return self.from_memory(raw, kind)

    def _shuffled(self, v: int, places: np.ndarray, kind: str, size: int) -> str:
        """A constant shuffle of the whole source, for an axis that fits one register."""
        stored = scalar_type(self.stored(kind))
        source = self.new(f"load <{size} x {stored}>, ptr {self.array(v)}, align 64")
        places = np.concatenate([places, np.repeat(places[-1:], self.lanes - len(places))])
        mask = ", ".join(f"i32 {int(k) if k >= 0 else size}" for k in places)
        raw = self.new(
            f"shufflevector <{size} x {stored}> {source}, <{size} x {stored}> zeroinitializer, "
            f"<{self.lanes} x i32> <{mask}>"
        )
        return self.from_memory(raw, kind)

    def _summed(self, m: int) -> str:
        """The sum of the rows of places."""
        assert self.here is not None
        rows = self.graph.attr[m].array
        kind, ty = self.graph.kind[m], self.type(self.graph.kind[m])
        add = "fadd" if kind in FLOATS else "add"
        source = padded(self.graph.length[self.graph.args[m][0]])
        if self.width > 1 and self.here.position == "0" and source <= SHUFFLE and len(rows) <= ROUNDS:
            total = self._taken(m, rows[0])
            for row in rows[1:]:
                total = self.new(f"{add} {ty} {total}, {self._taken(m, row)}")
            return total
        head, done = self.labels("sum", "sumdone")
        before, at, total = self.label, f"%r{self.fresh}", f"%q{self.fresh}"
        self.put(f"br label %{head}")
        self.start(head)
        self.put(f"{at} = phi i64 [ 0, %{before} ], [ {at}n, %{head} ]")
        self.put(f"{total} = phi {ty} [ {self.literal(kind, 0)}, %{before} ], [ {total}n, %{head} ]")
        value = self._taken(m, rows, at)
        self.put(f"{total}n = {add} {ty} {total}, {value}")
        length = _whole_rows(rows).size // len(rows)
        self.put(f"{at}n = add nuw nsw i64 {at}, {length}")
        more = self.new(f"icmp slt i64 {at}n, {length * len(rows)}")
        self.put(f"br i1 {more}, label %{head}, label %{done}")
        self.start(done)
        return f"{total}n"

    # -- reductions --------------------------------------------------------------------------------
    def _reduction(self, m: int) -> None:
        """Eight partial results, each of every eighth element in order; then neighbors, then their results."""
        g = self.graph
        (v,) = g.args[m]
        n, kind, op, base = g.length[v], g.kind[m], _TOTAL[g.op[m]], self.array(v)
        rounds, rest = divmod(n, PARTIAL)
        partial = self._vector_partials if self.width > 1 else self._scalar_partials
        items = partial(base, kind, op, n, rounds, rest)
        while len(items) > 1:
            pairs = [self._combined(op, kind, items[i], items[i + 1]) for i in range(0, len(items) - 1, 2)]
            items = pairs + items[len(items) & ~1 :]
        self.names[m] = items[0]

    _op_rsum = _op_rprod = _op_rmax = _op_rmin = _op_rand = _op_ror = _reduction

    def _combined(self, op: str, kind: str, a: str, b: str) -> str:
        ty = self.type(kind)
        if op in ("and", "or"):
            return self.new(f"{op} {ty} {a}, {b}")
        text = self._float(op, kind, ty, [a, b]) if kind in FLOATS else self._integer(op, kind, kind, ty, [a, b])
        return self.new(text)

    def _scalar_partials(self, base: str, kind: str, op: str, n: int, rounds: int, rest: int) -> list[str]:
        def at(place: str | int) -> str:
            where = self.address(base, kind, str(place))
            return self.from_memory(self.new(f"load {self.type(self.stored(kind))}, ptr {where}"), kind)

        items = [at(k) for k in range(min(n, PARTIAL))]
        if rounds > 1:
            head, done = self.labels("total", "totaldone")
            before, i, tag, ty = self.label, f"%i{self.fresh}", self.fresh, self.type(kind)
            self.put(f"br label %{head}")
            self.start(head)
            self.put(f"{i} = phi i64 [ {PARTIAL}, %{before} ], [ {i}n, %{head} ]")
            hole = len(self.lines)
            self.lines.append("")
            places = [self.new(f"add i64 {i}, {k}") for k in range(PARTIAL)]
            later = [self._combined(op, kind, f"%z{tag}_{k}", at(place)) for k, place in enumerate(places)]
            self.lines[hole] = "\n".join(
                f"  %z{tag}_{k} = phi {ty} [ {a}, %{before} ], [ {b}, %{head} ]"
                for k, (a, b) in enumerate(zip(items, later, strict=True))
            )
            items = later
            self.put(f"{i}n = add nuw nsw i64 {i}, {PARTIAL}")
            test = self.new(f"icmp slt i64 {i}n, {rounds * PARTIAL}")
            self.put(f"br i1 {test}, label %{head}, label %{done}")
            self.start(done)
        if rounds:
            for k in range(rest):
                items[k] = self._combined(op, kind, items[k], at(rounds * PARTIAL + k))
        return items

    def _vector_partials(self, base: str, kind: str, op: str, n: int, rounds: int, rest: int) -> list[str]:
        lanes, self.lanes = self.lanes, PARTIAL
        ty, stored = self.type(kind), self.type(self.stored(kind))

        def at(place: str | int) -> str:
            return self.from_memory(self.new(f"load {stored}, ptr {self.address(base, kind, str(place))}"), kind)

        total = at(0)
        if rounds > 1:
            head, done = self.labels("total", "totaldone")
            before, i, z = self.label, f"%i{self.fresh}", f"%z{self.fresh}"
            self.put(f"br label %{head}")
            self.start(head)
            self.put(f"{i} = phi i64 [ {PARTIAL}, %{before} ], [ {i}n, %{head} ]")
            hole = len(self.lines)
            self.lines.append("")
            more = self._combined(op, kind, z, at(i))
            self.lines[hole] = f"  {z} = phi {ty} [ {total}, %{before} ], [ {more}, %{head} ]"
            self.put(f"{i}n = add nuw nsw i64 {i}, {PARTIAL}")
            test = self.new(f"icmp slt i64 {i}n, {rounds * PARTIAL}")
            self.put(f"br i1 {test}, label %{head}, label %{done}")
            self.start(done)
            total = more
        if rounds and rest:
            more = self._combined(op, kind, total, at(rounds * PARTIAL))
            mask = ", ".join(f"i32 {k if k < rest else PARTIAL + k}" for k in range(PARTIAL))
            total = self.new(f"shufflevector {ty} {more}, {ty} {total}, <{PARTIAL} x i32> <{mask}>")
        self.lanes = lanes
        return [self.new(f"extractelement {ty} {total}, i32 {k}") for k in range(min(n, PARTIAL))]


def _whole_rows(places: np.ndarray) -> np.ndarray:
    """Rows of places one after the other, each a whole number of registers."""
    rows = np.atleast_2d(places)
    extra = np.repeat(rows[:, -1:], padded(rows.shape[1]) - rows.shape[1], axis=1)
    return np.concatenate([rows, extra], axis=1).ravel()
