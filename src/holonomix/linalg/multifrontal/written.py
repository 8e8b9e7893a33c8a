"""The solve of a small plan as straight-line LLVM text, in place of the loops of `code` that read the table.

The loops wait for memory: each pivot of a front stores what the next one loads. Here the unknowns stay in registers.
The operations and their order are those of `code`, without products with stored zeros, so both have the same bits.
LLVM needs more than linear time for a function, so long solves are cut into parts with the unknowns in memory between.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from .plan import BLOCK, HEADER, RECORD, Plan
from .writer import FRONT, Writer

MAX_PRODUCTS = 6_000  # of a solve that is written out
PART_PRODUCTS = 600  # of one function of it

Front = dict[str, int]


@functools.lru_cache(maxsize=64)
def written_solve(plan: Plan, lanes: int, fma: bool, transposed: bool) -> tuple[str, str, tuple[str, ...]] | None:
    """Name, definitions and declarations of `name(factors, b, x)`; None for a plan that is too long."""
    fronts = _fronts(plan)
    if sum(front["p"] * (2 * front["f"] - front["p"]) for front in fronts) > MAX_PRODUCTS:
        return None
    w = Writer(lanes, fma)
    name, arguments = f"solve_{plan.key}_{'transposed' if transposed else 'plain'}", "ptr %factors, ptr %b, ptr %x"
    texts: list[str] = []
    stored: set[int] = set()
    for k, part in enumerate(_parts(fronts)):
        body = functools.partial(_pivots, w, plan, part, transposed, stored)
        texts.append(w.define(f"{name}_part{k}", arguments, body))

    def calls() -> None:
        for k in range(len(texts)):
            w.put(f"call void @multifrontal_{name}_part{k}_{lanes}({arguments})")

    texts.append(w.define(name, arguments, calls))
    return f"multifrontal_{name}_{lanes}", "\n".join(texts), tuple(sorted(w.declared))


def _fronts(plan: Plan) -> list[Front]:
    records = plan.table[HEADER : HEADER + RECORD * plan.fronts].reshape(-1, RECORD).tolist()
    return [dict(zip(FRONT, record, strict=False)) for record in records]


def _parts(fronts: list[Front]) -> Iterator[list[tuple[Front, int, bool]]]:
    """The pivots in the order of the solve, forward and then back, in lists of about `PART_PRODUCTS` products."""
    ahead = [(front, k, True) for front in fronts for k in range(front["p"])]
    part, size = [], 0
    for front, k, forward in [*ahead, *((front, k, False) for front, k, _ in reversed(ahead))]:
        part.append((front, k, forward))
        size += front["f"] - k
        if size >= PART_PRODUCTS:
            yield part
            part, size = [], 0
    if part:
        yield part


def _pivots(w: Writer, plan: Plan, pivots: list[tuple[Front, int, bool]], transposed: bool, stored: set[int]) -> None:
    """The operations of some pivots; unknowns in `stored` are read from x, others from b."""
    x: dict[int, str] = {}
    changed: dict[int, None] = {}
    ahead, back = ("upper", "lower") if transposed else ("lower", "upper")

    def value(i: int) -> str:
        if i not in x:
            x[i] = w.load("%x" if i in stored else "%b", str(i))
        return x[i]

    def change(i: int, new: str) -> None:
        x[i], changed[i] = new, None

    def factor(front: Front, side: str, k: int, j: int) -> str:
        return w.load("%factors", str(front[side] + k * front["held"] + j))

    for front, k, forward in pivots:
        rows = plan.table[front["rows"] : front["rows"] + front["f"]].tolist()
        after = range(k + 1, front["f"])
        if not forward:
            change(rows[k], _less(w, value(rows[k]), [(factor(front, back, k, j), value(rows[j]), j) for j in after]))
        if forward == transposed:
            inverse = w.load("%factors", str(BLOCK + front["first"] + k))
            change(rows[k], w.times(w.number, value(rows[k]), inverse))
        if forward and after:
            minus = w.op(f"fneg {w.number} {value(rows[k])}")
            for j in after:
                change(rows[j], w.fused(w.number, minus, factor(front, ahead, k, j), value(rows[j])))
    for i in changed:
        w.store(x[i], "%x", str(i))
    stored.update(changed)


def _less(w: Writer, value: str, products: list[tuple[str, str, int]]) -> str:
    """`value` less a sum of products, added as `Writer.dot` does: one sum for each place in a block, then neighbors."""
    sums: list[str | None] = [None] * BLOCK
    for a, b, j in products:
        old = sums[j % BLOCK]
        sums[j % BLOCK] = w.times(w.number, a, b) if old is None else w.fused(w.number, a, b, old)
    while len(sums) > 1:
        sums = [_sum(w, a, b) for a, b in zip(sums[::2], sums[1::2], strict=True)]
    return value if sums[0] is None else w.op(f"fsub {w.number} {value}, {sums[0]}")


def _sum(w: Writer, a: str | None, b: str | None) -> str | None:
    if a is None or b is None:
        return a or b
    return w.op(f"fadd {w.number} {a}, {b}")
