"""Orders the operations of a block so that few values are alive at once, for processors with few registers.

Programs arrive in the order of the traced array operations: all components of the first array, then all of the second.
A GPU's thread has room for about 120 numbers, and what does not fit goes through memory. Orders are found by walking
up from the results, so that a value is computed shortly before its first use; the one with the least excess is taken.
The order changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any

from .graph import BOOL, IN_MEMORY, Branches, Loop, is_within
from .passes import frozen

if TYPE_CHECKING:
    from .program import Program

ROOM = 100  # numbers that fit in registers, apart from addresses and counters


def reordered(program: Program, nodes: list[int], elsewhere: Container[int] = ()) -> list[int]:
    """The nodes of one part of a block in an order with the fewest numbers beyond ROOM, summed over the part.

    They keep their order where no other is better by a fifth: as it is, more can be computed at once. Numbers that are
    `elsewhere` take no register.
    """
    g, last = program.graph, set(frozen(program)[1])
    rest = [n for n in nodes if n in last]  # selects that are written by hand at the end of the step
    nodes = [n for n in nodes if n not in last]
    here = set(nodes)
    needs = {
        n: [a for a in dict.fromkeys((*g.args[n], *_inside(program, n))) if g.op[a] != "const" and a not in elsewhere]
        for n in nodes
    }
    later = _used_later(program, here, last)
    weight, place = _weights(nodes, needs, here), {n: k for k, n in enumerate(nodes)}
    heavy: Callable[[int], Any] = lambda n: (-weight[n], place[n])
    before = excess(program, nodes, needs, later)[0]
    if not before:
        return nodes + rest
    roots, orders = [n for n in nodes if n in later], []
    for first in (roots, sorted(roots, key=heavy)):
        orders += [_walk(first, needs, here, key) for key in (heavy, place.__getitem__)]
    best = min(orders, key=lambda order: excess(program, order, needs, later))
    return (best if 5 * excess(program, best, needs, later)[0] <= 4 * before else nodes) + rest


def excess(program: Program, order: list[int], needs: dict[int, list[int]], later: set[int]) -> tuple[int, int]:
    """Numbers beyond ROOM summed over the order, and the most that are alive at once."""
    g = program.graph
    last: dict[int, int] = {}
    for k, n in enumerate(order):
        for a in needs[n]:
            last[a] = k
    ends: dict[int, list[int]] = {}
    for a, k in last.items():
        if a not in later:
            ends.setdefault(k, []).append(a)
    size = lambda n: 0 if g.kind[n] == BOOL else 1
    alive = sum(size(a) for a in last if a not in needs)  # from outside
    total = most = 0
    for k, n in enumerate(order):
        alive += size(n) if n in last or n in later else 0
        most = max(most, alive)
        total += max(0, alive - ROOM)
        alive -= sum(size(a) for a in ends.get(k, ()))
    return total, most


def _walk(roots: Iterable[int], needs: dict[int, list[int]], here: set[int], key: Callable[[int], object]) -> list[int]:
    """Depth first from the roots, arguments before what needs them."""
    done: set[int] = set()
    order: list[int] = []
    for root in roots:
        work = [root]
        while work:
            n = work[-1]
            missing = [a for a in needs[n] if a in here and a not in done] if n not in done else []
            if missing:
                work.append(min(missing, key=key))  # type: ignore[type-var]
                continue
            work.pop()
            if n not in done:
                done.add(n)
                order.append(n)
    return order


def _weights(nodes: list[int], needs: dict[int, list[int]], here: set[int]) -> dict[int, int]:
    """About how many numbers are alive while a node is computed (Sethi & Ullman 1970)."""
    weight: dict[int, int] = {}
    for n in nodes:
        below = sorted((weight[a] for a in needs[n] if a in here and a in weight), reverse=True)
        weight[n] = max((w + k for k, w in enumerate(below)), default=1)
    return weight


def _used_later(program: Program, here: set[int], last: set[int]) -> set[int]:
    """Nodes of `here` that are results, or that something outside of `here` uses."""
    g = program.graph
    out = {program.halted}
    for part in (program.step, program.rows):
        out.update(n for leaf in part for n in leaf.nodes)
    out.update(g.args[n][k] for n in last for k in (0, 2))  # the old state is read again where a step fails
    for n in program.live - here - last:
        attr = g.attr[n]
        out.update(g.args[n], attr.uses if isinstance(attr, Loop | Branches) else ())
    return out & here


def used_outside(program: Program) -> set[int]:
    """Numbers that are computed once per trajectory and used in its steps or rows; tables stay in memory."""
    g, root = program.graph, program.graph.root
    out = {n for part in (program.step, program.rows) for leaf in part for n in leaf.nodes}
    for scope in (program.scope, program.read_scope):
        for n in program.blocks[scope].nodes:
            out.update(g.args[n])
            out |= _inside(program, n)
    number = lambda n: g.kind[n] == "f8" and not g.length[n] and g.op[n] not in ("const", *IN_MEMORY)
    return {n for n in out if g.scope[n] is root and number(n)}


def _inside(program: Program, n: int) -> set[int]:
    """All nodes that the bodies of a while or cond mention."""
    g, attr = program.graph, program.graph.attr[n]
    if not isinstance(attr, Loop | Branches):
        return set()
    out = set(attr.uses)
    for scope in attr.scopes:
        for m in program.blocks[scope].nodes:
            out.update(g.args[m])
            out |= _inside(program, m)
    return {a for a in out if not any(is_within(g.scope[a], s) for s in attr.scopes)}
