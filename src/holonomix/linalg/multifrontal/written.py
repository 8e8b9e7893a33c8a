"""The solve of a small plan as straight-line LLVM text, in place of the loops of `code` that read the table.

The loops wait for memory: each pivot of a front stores what the next one loads. Here the unknowns stay in registers.
The operations and their order are those of `code`, without products with stored zeros, so both have the same bits.
"""

from __future__ import annotations

import functools

from .plan import BLOCK, HEADER, RECORD, Plan
from .writer import FRONT, Writer

LONGEST = 6_000  # multiplications of a solve that is written out


@functools.lru_cache(maxsize=64)
def written_solve(plan: Plan, lanes: int, fma: bool, transposed: bool) -> tuple[str, str, tuple[str, ...]] | None:
    """Name, definition and declarations of `name(factors, b, x)`; None for a plan that is too long."""
    fronts = _fronts(plan)
    if sum(front["p"] * (2 * front["f"] - front["p"]) for front in fronts) > LONGEST:
        return None
    w = Writer(lanes, fma)
    ahead, back = ("upper", "lower") if transposed else ("lower", "upper")

    def body() -> None:
        x = [w.load("%b", str(i)) for i in range(plan.n)]
        for front in fronts:
            rows = _rows(plan, front)
            for k in range(front["p"]):
                if transposed:
                    x[rows[k]] = w.times(w.number, x[rows[k]], _inverse(w, front, k))
                minus = w.op(f"fneg {w.number} {x[rows[k]]}")
                for j in range(k + 1, front["f"]):
                    x[rows[j]] = w.fused(w.number, minus, _factor(w, front, ahead, k, j), x[rows[j]])
        for front in reversed(fronts):
            rows = _rows(plan, front)
            for k in reversed(range(front["p"])):
                after = range(k + 1, front["f"])
                x[rows[k]] = _less(w, x[rows[k]], [(_factor(w, front, back, k, j), x[rows[j]], j) for j in after])
                if not transposed:
                    x[rows[k]] = w.times(w.number, x[rows[k]], _inverse(w, front, k))
        for i, value in enumerate(x):
            w.store(value, "%x", str(i))

    name = f"solve_{plan.key}_{'transposed' if transposed else 'plain'}"
    text = w.define(name, "ptr %factors, ptr %b, ptr %x", body)
    return f"multifrontal_{name}_{lanes}", text, tuple(sorted(w.declared))


def _fronts(plan: Plan) -> list[dict[str, int]]:
    records = plan.table[HEADER : HEADER + RECORD * plan.fronts].reshape(-1, RECORD).tolist()
    return [dict(zip(FRONT, record, strict=False)) for record in records]


def _rows(plan: Plan, front: dict[str, int]) -> list[int]:
    return plan.table[front["rows"] : front["rows"] + front["f"]].tolist()


def _inverse(w: Writer, front: dict[str, int], k: int) -> str:
    return w.load("%factors", str(BLOCK + front["first"] + k))


def _factor(w: Writer, front: dict[str, int], side: str, k: int, j: int) -> str:
    return w.load("%factors", str(front[side] + k * front["held"] + j))


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
