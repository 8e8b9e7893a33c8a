"""LLVM text of the multifrontal elimination: functions that read a plan's table and work on plain memory.

A number is a double, or, in a kernel that runs several trajectories side by side, a vector with one lane for each. A
block is `BLOCK` numbers: one wide register for a single trajectory, separate registers for lanes. Every number is
computed by the same operations in the same order in both forms, so both have the same bits.

    factor(table, entries, factors, work, symmetric, threshold)
    solve(table, factors, b, x, work, transposed)
    shorten(table, entries, factors, x, shortest, work)

The layout of `factors`: the smallest pivot relative to its diagonal entry, the inverses of all pivots (0 for a row that
depends on earlier ones), then for each front its rows of U and of the transpose of L, zero up to the diagonal.
"""

from __future__ import annotations

import functools

from .plan import BLOCK
from .writer import Writer

PANELS = (4, 2, 1)  # numbers of pivot rows that are subtracted from the others at once


@functools.cache
def functions(lanes: int, fma: bool) -> tuple[str, tuple[str, ...]]:
    """The definitions for `lanes` lanes, and the declarations they need. Names end with the number of lanes."""
    writer = Writer(lanes, fma)
    text = "\n".join((_factor(writer), _solve(writer), _shorten(writer)))
    return text, tuple(sorted(writer.declared))


def _pivot(w: Writer, front: dict[str, str], k: str, end: str, least: str, limit: str) -> None:
    """Pivot k of a front: its inverse, its row of U, for a symmetric matrix that of L, and the next rows of a panel."""
    number, truth, held = w.number, w.truth, front["held"]
    row, place = w.mul(k, held), w.add(front["first"], k)
    pivot = w.load("%work", w.add(row, k))
    scale = w.size(w.load("%entries", w.table(w.add(w.table("2"), place))))
    positive = w.op(f"fcmp ogt {number} {scale}, {w.splat(0.0)}")
    scale = w.op(f"select {truth} {positive}, {number} {scale}, {number} {w.splat(1.0)}")
    ratio = w.op(f"fdiv {number} {w.size(pivot)}, {scale}")
    before = w.get(least, number)
    smaller = w.op(f"fcmp ult {number} {ratio}, {before}")  # NaN goes in, and stays
    w.set(least, w.op(f"select {truth} {smaller}, {number} {ratio}, {number} {before}"), number)
    kept = w.op(f"fcmp ugt {number} {ratio}, {limit}")
    inverse = w.op(f"fdiv {number} {w.splat(1.0)}, {pivot}")
    inverse = w.op(f"select {truth} {kept}, {number} {inverse}, {number} {w.splat(0.0)}")
    w.store(inverse, "%factors", w.add(place, BLOCK))
    begin, after = w.down(k), w.add(k, 1)
    upper, lower = w.add(front["upper"], row), w.add(front["lower"], row)
    many = w.broadcast(inverse)
    with w.loop(begin, held, BLOCK) as j:
        x = w.load_block("%work", w.add(row, j))
        w.store_block(x, "%factors", w.add(upper, j))
        w.store_block(w.blocks(w.times, x, many), "%factors", w.add(lower, j))
    with w.loop(begin, after) as j:
        w.store(w.splat(0.0), "%factors", w.add(upper, j))
        w.store(w.splat(0.0), "%factors", w.add(lower, j))
    _subtract_pivot_row(w, front, k, after, end)


def _subtract_pivot_row(w: Writer, front: dict[str, str], k: str, first: str, last: str) -> None:
    """Subtract multiples of pivot row k from the rows `first <= i < last`."""
    held = front["held"]
    row = w.mul(k, held)
    upper, lower = w.add(front["upper"], row), w.add(front["lower"], row)
    general = w.op("icmp eq i64 %symmetric, 0")
    after = w.add(k, 1)
    with w.loop(first, last) as i:
        with w.where(general):
            inverse = w.load("%factors", w.add(w.add(front["first"], k), BLOCK))
            x = w.load("%work", w.add(w.mul(i, held), k))
            w.store(w.times(w.number, x, inverse), "%factors", w.add(lower, i))
        begin = w.down(w.op(f"select i1 {general}, i64 {after}, i64 {i}"))
        w.subtract("%work", w.mul(i, held), w.load("%factors", w.add(lower, i)), "%factors", upper, begin, held)


def _subtract_panel(w: Writer, front: dict[str, str], start: str, i: str, width: int) -> None:
    """Subtract multiples of a panel of pivot rows from row i."""
    held, number = front["held"], w.number
    uppers, lowers = [], []
    for q in range(width):
        row = w.mul(w.add(start, q), held)
        uppers.append(w.add(front["upper"], row))
        lowers.append(w.add(front["lower"], row))
    mine = w.mul(i, held)
    general = w.op("icmp eq i64 %symmetric, 0")
    with w.where(general):
        minus: list[str] = []
        for q in range(width):
            column = w.add(start, q)
            x = w.load("%work", w.add(mine, column))
            for other, multiple in zip(uppers, minus, strict=False):
                x = w.fused(number, multiple, w.load("%factors", w.add(other, column)), x)
            inverse = w.load("%factors", w.add(w.add(front["first"], column), BLOCK))
            x = w.times(number, x, inverse)
            w.store(x, "%factors", w.add(lowers[q], i))
            minus.append(w.op(f"fneg {number} {x}"))
    factors = [w.broadcast(w.op(f"fneg {number} {w.load('%factors', w.add(lower, i))}")) for lower in lowers]
    begin = w.down(w.op(f"select i1 {general}, i64 {w.add(start, width)}, i64 {i}"))
    with w.loop(begin, held, BLOCK) as j:
        place = w.add(mine, j)
        x = w.load_block("%work", place)
        for factor, upper in zip(factors, uppers, strict=True):
            x = w.blocks(w.fused, factor, w.load_block("%factors", w.add(upper, j)), x)
        w.store_block(x, "%work", place)


def _factor(w: Writer) -> str:
    number = w.number

    def body() -> None:
        least = w.slot(number, w.splat(float("inf")))
        limit = "%threshold"
        if w.lanes > 1:
            first = w.op(f"insertelement {number} poison, double %threshold, i32 0")
            limit = w.op(f"shufflevector {number} {first}, {number} poison, <{w.lanes} x i32> zeroinitializer")
        with w.loop(0, w.table("0")) as s:
            front = w.front(s)
            f, p, held = front["f"], front["p"], front["held"]
            w.clear("%work", 0, w.mul(f, held))
            general = w.op("icmp eq i64 %symmetric, 0")
            with w.loop(0, w.op(f"select i1 {general}, i64 {front['count']}, i64 {front['half']}")) as e:
                pair = w.add(front["given"], w.add(e, e))
                value = w.load("%entries", w.table(w.add(pair, 1)))
                w.store(value, "%work", w.table(pair))
            with w.loop(0, front["children"]) as c:
                place = w.add(front["joined"], w.mul(c, 3))
                left, m, spots = w.table(place), w.table(w.add(place, 1)), w.table(w.add(place, 2))
                with w.loop(0, m) as a:
                    row = w.mul(w.table(w.add(spots, a)), held)
                    given = w.add(left, w.mul(a, m))
                    begin = w.mul(a, "%symmetric")
                    with w.loop(begin, m) as b:
                        target = w.add(row, w.table(w.add(spots, b)))
                        value = w.load("%work", w.add(given, b))
                        w.store(w.op(f"fadd {number} {w.load('%work', target)}, {value}"), "%work", target)
            done = w.slot("i64", "0")
            for width in PANELS:
                with w.loop(w.get(done), w.sub(p, width - 1), width) as start:
                    end = w.add(start, width)
                    with w.loop(start, end) as k:
                        _pivot(w, front, k, end, least, limit)
                    with w.loop(end, f) as i:
                        _subtract_panel(w, front, start, i, width)
                    w.set(done, end)
            m = w.sub(f, p)
            with w.loop(0, m) as a:
                source = w.add(w.mul(w.add(a, p), held), p)
                target = w.add(front["left"], w.mul(a, m))
                with w.loop(0, m, BLOCK) as b:
                    w.store_block(w.load_block("%work", w.add(source, b)), "%work", w.add(target, b))
        w.store(w.get(least, number), "%factors", "0")

    arguments = "ptr %table, ptr %entries, ptr %factors, ptr %work, i64 %symmetric, double %threshold"
    return w.define("factor", arguments, body)


def _gather(w: Writer, front: dict[str, str]) -> None:
    w.store_block(w.zeros(), "%work", w.sub(front["held"], BLOCK))
    with w.loop(0, front["f"]) as j:
        w.store(w.load("%x", w.table(w.add(front["rows"], j))), "%work", j)


def _scatter(w: Writer, front: dict[str, str], count: str) -> None:
    with w.loop(0, count) as j:
        w.store(w.load("%work", j), "%x", w.table(w.add(front["rows"], j)))


def _solve(w: Writer) -> str:
    number = w.number

    def body() -> None:
        count = w.table("0")
        turned = w.op("icmp ne i64 %transposed, 0")
        with w.loop(0, w.table("1")) as i:
            w.store(w.load("%b", i), "%x", i)

        def scaled(value: str, inverse: str, when: bool) -> str:
            product = w.op(f"fmul {number} {value}, {inverse}")
            yes, no = (product, value) if when else (value, product)
            return w.op(f"select i1 {turned}, {number} {yes}, {number} {no}")

        for forward in (True, False):
            with w.loop(0, count, 1 if forward else -1) as s:
                front = w.front(s)
                sides = (front["upper"], front["lower"]) if forward else (front["lower"], front["upper"])
                rows = w.op(f"select i1 {turned}, i64 {sides[0]}, i64 {sides[1]}")
                _gather(w, front)
                with w.loop(0, front["p"], 1 if forward else -1) as k:
                    row = w.add(rows, w.mul(k, front["held"]))
                    inverse = w.load("%factors", w.add(w.add(front["first"], k), BLOCK))
                    begin, value = w.down(k), w.load("%work", k)
                    if forward:
                        value = scaled(value, inverse, True)
                        w.store(value, "%work", k)
                        w.subtract("%work", "0", value, "%factors", row, begin, front["held"])
                    else:
                        total = w.dot("%factors", row, "%work", "0", begin, front["held"])
                        value = w.op(f"fsub {number} {value}, {total}")
                        w.store(scaled(value, inverse, False), "%work", k)
                _scatter(w, front, front["f"] if forward else front["p"])

    arguments = "ptr %table, ptr %factors, ptr %b, ptr %x, ptr %work, i64 %transposed"
    return w.define("solve", arguments, body)


def _shorten(w: Writer) -> str:
    number, truth = w.number, w.truth

    def body() -> None:
        n, size, most = w.table("1"), w.table("7"), w.table("8")
        start = w.table("9")
        at = lambda k: w.at("%work", w.add(start, w.mul(size, k)))
        x, column, null = at(0), at(1), at(2)
        basis = w.add(start, w.mul(size, 3))
        found = w.slot("i64", "0")
        w.clear(x, 0, size)
        with w.loop(0, n) as i:
            w.store(w.load("%x", i), x, i)
        with w.loop(0, n) as k:
            inverse = w.load("%factors", w.add(k, BLOCK))
            dependent = w.op(f"fcmp oeq {number} {inverse}, {w.splat(0.0)}")
            with w.where(w.any(dependent)):
                row = w.table(w.add(w.table("3"), k))
                w.clear(column, 0, size)
                w.clear(null, 0, size)
                begins = w.add(w.table("4"), row)
                with w.loop(w.table(begins), w.table(w.add(begins, 1))) as e:
                    value = w.load("%entries", w.table(w.add(w.table("6"), e)))
                    w.store(value, column, w.table(w.add(w.table("5"), e)))
                w.put(
                    f"call void @multifrontal_solve_{w.lanes}(ptr %table, ptr %factors, ptr {column}, ptr {null}, "
                    "ptr %work, i64 0)"
                )
                yes = w.op(f"select {truth} {dependent}, {number} {w.splat(1.0)}, {number} {w.splat(0.0)}")
                minus = w.broadcast(w.op(f"fneg {number} {yes}"))
                with w.loop(0, size, BLOCK) as j:
                    w.store_block(w.blocks(w.times, w.load_block(null, j), minus), null, j)
                w.store(w.op(f"fadd {number} {w.load(null, row)}, {yes}"), null, row)
                for _ in range(2):  # twice, so that round-off leaves the vectors orthogonal
                    with w.loop(0, w.get(found)) as r:
                        other = w.add(basis, w.mul(size, r))
                        part = w.dot(null, "0", "%work", other, 0, size)
                        w.subtract(null, "0", part, "%work", other, 0, size)
                square = w.dot(null, "0", null, "0", 0, size)
                there = w.op(f"fcmp une {number} {square}, {w.splat(0.0)}")
                scale = w.op(f"fdiv {number} {w.splat(1.0)}, {w._call('sqrt', number, square)}")
                scale = w.op(f"select {truth} {there}, {number} {scale}, {number} {w.splat(0.0)}")
                count = w.get(found)
                room = w.op(f"icmp slt i64 {count}, {most}")
                with w.where(room):
                    target = w.add(basis, w.mul(size, count))
                    many = w.broadcast(scale)
                    with w.loop(0, size, BLOCK) as j:
                        w.store_block(w.blocks(w.times, w.load_block(null, j), many), "%work", w.add(target, j))
                    w.set(found, w.add(count, 1))
                with w.where(w.op(f"xor i1 {room}, true")):  # too many: no answer rather than a wrong one
                    w.store(w.splat(float("nan")), x, "0")
        with w.loop(0, w.get(found)) as r:
            other = w.add(basis, w.mul(size, r))
            part = w.dot(x, "0", "%work", other, 0, size)
            w.subtract(x, "0", part, "%work", other, 0, size)
        with w.loop(0, n) as i:
            w.store(w.load(x, i), "%shortest", i)

    arguments = "ptr %table, ptr %entries, ptr %factors, ptr %x, ptr %shortest, ptr %work"
    return w.define("shorten", arguments, body)
