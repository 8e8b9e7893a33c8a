"""Rewrites of the scheduled program that fix its rounding once for all back ends and lane widths.

Left to LLVM, the choice which product joins which sum would differ between one trajectory and eight; so it is made
here and the emitted code carries no fast-math flag at all. These are the freedoms called `arcp` and `contract`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from .graph import FLOATS, Branches, Loop, Scope

if TYPE_CHECKING:
    from .program import Program

SHARED = 2  # at least so many divisions by one number become one reciprocal and products


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
    """`a/c, b/c` become `r = 1/c, a*r, b*r`; so does a single `a/c` where `c` is known outside of the loop."""
    g = program.graph
    groups: dict[int, list[int]] = defaultdict(list)
    for block in program.blocks.values():
        for n in block.nodes:
            if g.op[n] == "div" and g.kind[n] in FLOATS:
                groups[g.args[n][1]].append(n)
    for c, nodes in groups.items():
        home = g.scope[c]
        if len(nodes) < SHARED and not _in_loop(g.scope[nodes[0]], home):
            continue
        one = g.one[g.kind[c]]
        found = next((n for n in nodes if g.scope[n] is home and g.args[n][0] == one), None)
        if found is None:
            found = g.append("div", (one, c), g.kind[c], None, home, g.length[c])
            program.live.update((found, one))
            block = program.blocks[home]
            place = block.nodes.index(c) + 1 if c in block.nodes else 0
            block.nodes.insert(place, found)
            block.head += place < block.head
        else:
            _move_up(program, found, c)
        for n in nodes:
            if n == found:
                continue
            if g.args[n][0] == one:
                g.op[n], g.args[n] = "same", (found,)
            else:
                g.op[n], g.args[n] = "mul", (g.args[n][0], found)


def _in_loop(inner: Scope, outer: Scope) -> bool:
    """Whether there is a loop around `inner` that is inside of `outer`."""
    while inner is not outer:
        if not inner.barrier:
            return True
        assert inner.parent is not None
        inner = inner.parent
    return False


def _move_up(program: Program, n: int, after: int) -> None:
    """Schedule `n` right after the node it needs, so that everything that uses it comes later."""
    block = program.blocks[program.graph.scope[n]]
    old = block.nodes.index(n)
    place = block.nodes.index(after) + 1 if after in block.nodes else 0
    block.nodes.insert(place, block.nodes.pop(old))
    if old >= block.head and place < block.head:
        block.head += 1


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

            def single(
                m: int, s: Scope = scope, at: dict[int, int] = place, user: int = n, cut: int = block.head
            ) -> bool:
                inside = g.op[m] == "mul" and count[m] == 1 and g.scope[m] is s and m in at
                inside = inside and g.length[m] == g.length[user]
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


def frozen(program: Program) -> tuple[int | None, list[int]]:
    """The condition under which most of the carry keeps its old value, and the selects that say so."""
    g = program.graph
    results = Counter(n for leaf in program.step for n in leaf.nodes)
    count = uses(program)
    selects = [n for n in results if g.op[n] == "select" and count[n] == results[n]]
    conditions = Counter(g.args[n][0] for n in selects)
    if not conditions:
        return None, []
    condition, times = conditions.most_common(1)[0]
    if times < 4 or g.length[condition]:
        return None, []
    return condition, [n for n in selects if g.args[n][0] == condition]
