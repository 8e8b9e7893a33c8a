"""Rewrites of the scheduled program that fix its rounding once for all back ends and lane widths.

Left to LLVM, the choice which product joins which sum would differ between one trajectory and eight; so it is made
here and the emitted code carries no fast-math flag at all. These are the freedoms called `arcp` and `contract`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from .graph import FLOATS, Branches, Loop

if TYPE_CHECKING:
    from .program import Program

SHARED = 2  # that many divisions by one number become one reciprocal and products


def uses(program: Program) -> Counter:
    """How often each node is used, by nodes, loops, branches and outputs."""
    g, count = program.graph, Counter()
    for block in program.blocks.values():
        for n in block.nodes:
            attr = g.attr[n]
            if isinstance(attr, Loop):
                count.update((attr.go, *attr.collect))
                for p, r, s in zip(attr.params, attr.results, g.args[n], strict=True):
                    if p in program.live:
                        count.update((r, s))
            elif isinstance(attr, Branches):
                count.update(g.args[n])
                for r in attr.results:
                    count.update(r)
            else:
                count.update(g.args[n])
    count.update(n for part in (program.step, program.rows) for leaf in part for n in leaf.nodes)
    count[program.halted] += 1
    return count


def share_reciprocals(program: Program) -> None:
    """`a/c, b/c` in one scope become `r = 1/c, a*r, b*r`."""
    g = program.graph
    for scope, block in program.blocks.items():
        groups = defaultdict(list)
        for place, n in enumerate(block.nodes):
            if g.op[n] == "div" and g.kind[n] in FLOATS:
                groups[g.args[n][1], place < block.head].append(n)
        for (c, _), nodes in groups.items():
            if len(nodes) < SHARED:
                continue
            one = g.one[g.kind[c]]
            first = block.nodes.index(nodes[0])
            recip = g._append("div", (one, c), g.kind[c], None, scope)
            program.live.update((recip, one))
            block.nodes.insert(first, recip)
            block.head += first < block.head
            for n in nodes:
                if g.args[n][0] == one:  # the reciprocal itself was asked for
                    g.op[n], g.args[n] = "same", (recip,)
                else:
                    g.op[n], g.args[n] = "mul", (g.args[n][0], recip)


def fuse(program: Program) -> None:
    """A product used once, by a sum in its own scope, becomes one fused operation.

    `fma x y c` is x*y + c, `fms` is x*y - c, `fnma` is c - x*y. Of two products the one that is ready later is taken.
    """
    g, count = program.graph, uses(program)
    depth: dict[int, int] = {}
    for scope, block in program.blocks.items():
        place = {n: k for k, n in enumerate(block.nodes)}
        gone: set[int] = set()
        for n in block.nodes:
            args = g.args[n]
            depth[n] = 1 + max((depth.get(a, 0) for a in args), default=0)
            if g.op[n] not in ("add", "sub") or g.kind[n] not in FLOATS:
                continue
            a, b = args

            def single(m: int, s=scope, at=place, user=n, cut=block.head) -> bool:
                inside = g.op[m] == "mul" and count[m] == 1 and g.scope[m] is s and m in at
                return inside and (at[m] < cut) == (at[user] < cut)

            candidates = [m for m in (a, b) if single(m)]
            if a == b or not candidates:
                continue
            m = max(candidates, key=lambda c: (depth.get(c, 0), c))
            other = b if m == a else a
            x, y = g.args[m]
            g.op[n] = "fma" if g.op[n] == "add" else "fms" if m == a else "fnma"
            g.args[n] = (x, y, other)
            gone.add(m)
            depth[n] = 1 + max(depth.get(q, 0) for q in g.args[n])
        removed_head = sum(1 for n in block.nodes[: block.head] if n in gone)
        block.nodes = [n for n in block.nodes if n not in gone]
        block.head -= removed_head
        program.live -= gone
