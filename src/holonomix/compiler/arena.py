"""Memory layout of a program's arrays: two arrays share memory if they are never alive at the same time.

The threads of a GPU have little memory of their own, so the memory of a trajectory limits how many run on a processor.
On a CPU the arrays of a long chain stay in the second cache. The schedule is walked through once in the
order in which it is written; an array is alive from where it is first written to where it is last read, and to the end
of every loop that reads it and began after it. The state and what is computed once for a trajectory are alive
throughout.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING

from .graph import Branches, Loop, Scope
from .vector_schedule import FROM_MEMORY, VectorSchedule

if TYPE_CHECKING:
    from .program import Program

ALIGNED = 8  # bytes per element, for every type
FILLED = {"pack", "join", "ffactor", "fsolve", "fshorten"}  # vectors that are not results of loops over an axis


def owned(program: Program, schedule: VectorSchedule) -> set[int]:
    """Vectors whose elements are each written and read by the same thread of a team, at their own position only.

    Vectors that have one array are owned together: a parameter of a loop, what takes its place and what it becomes.
    """
    g, live, same = program.graph, program.live, dict(schedule.direct)
    projections = [u for u in live if g.op[u] == "proj" and isinstance(g.attr[g.args[u][0]], Loop)]
    same.update((u, g.attr[g.args[u][0]].params[g.attr[u]]) for u in projections)
    for old, new in zip(program.carry, program.read_carry, strict=True):
        same.update(zip(new.nodes, old.nodes, strict=True))

    def array(n: int) -> int:
        while n in same:
            n = same[n]
        return n

    met = {array(n) for piece in schedule.block(g.root, "all") for n in piece.kept}  # those are written only once
    for piece in (piece for pieces in schedule.pieces.values() for piece in pieces):
        for n in piece.nodes:
            if piece.length and g.op[n] in FROM_MEMORY:
                met.update(map(array, g.args[n]))
            elif not piece.length and g.op[n] not in ("while", "cond"):
                met.update(map(array, (n, *g.args[n])))
    return {n for n in live if g.length[n] and array(n) not in met}


def places(program: Program, schedule: VectorSchedule, elsewhere: Set[int] = frozenset()) -> tuple[dict[int, int], int]:
    """The offset in bytes of the array of each vector that has one, and how many bytes there are in all.

    Those that are `elsewhere` have none.
    """
    g, spans = program.graph, _Lives(program, schedule).spans()
    spans = {n: span for n, span in spans.items() if n not in elsewhere}
    # long ones first, as they are hardest to place, and of those the ones that live longest; or all as they come
    longest = lambda n: (-g.length[n], spans[n][0] - spans[n][1], n)
    orders = [sorted(spans, key=key) for key in (longest, lambda n: (-g.length[n], spans[n]), lambda n: (spans[n], n))]
    return min((_fitted(order, spans, g.length) for order in orders), key=lambda fit: fit[1])


def _fitted(order: list[int], spans: dict[int, tuple[int, int]], lengths: Sequence[int]) -> tuple[dict[int, int], int]:
    """First fit: each array at the first offset that is free while it is alive."""
    found: dict[int, int] = {}
    for n in order:
        first, last = spans[n]
        size, at = ALIGNED * lengths[n], 0
        for begin, end in sorted(
            (found[m], found[m] + ALIGNED * lengths[m]) for m in found if spans[m][0] <= last and first <= spans[m][1]
        ):
            if at + size <= begin:
                break
            at = max(at, end)
        found[n] = at
    return found, max((found[n] + ALIGNED * lengths[n] for n in found), default=0)


def recycled(program: Program, schedule: VectorSchedule, size: Callable[[int], int]) -> tuple[dict[int, int], int]:
    """Layout in linear time, for a CPU: an array reuses the block of `size(length)` bytes that was freed last.

    Lengths of which `size` makes zero are left out.
    """
    g, spans = program.graph, _Lives(program, schedule).spans()
    free: defaultdict[int, list[int]] = defaultdict(list)  # places by their size
    busy: list[tuple[int, int]] = []  # when a place becomes free, and whose it is
    found: dict[int, int] = {}
    total = 0
    for n in sorted(spans, key=lambda n: (spans[n][0], n)):
        needed = size(g.length[n])
        if not needed:
            continue
        while busy and busy[0][0] < spans[n][0]:
            old = heapq.heappop(busy)[1]
            free[size(g.length[old])].append(found[old])
        if free[needed]:
            found[n] = free[needed].pop()
        else:
            found[n], total = total, total + needed
        heapq.heappush(busy, (spans[n][1], n))
    return found, total


class _Lives:
    """The lifetimes of arrays, from one walk through the schedule with a clock that counts pieces."""

    def __init__(self, program: Program, schedule: VectorSchedule):
        self.program, self.schedule, self.graph = program, schedule, program.graph
        self.clock = 0
        self.elsewhere = {n for leaf in program.consts for n in leaf.nodes}  # constants stay in the caller's memory
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.alias: dict[int, int] = {}  # nodes that read the array of another one
        self.loops: list[tuple[int, set[int]]] = []  # enclosing loops: their start, the arrays they use

    def spans(self) -> dict[int, tuple[int, int]]:
        program = self.program
        for leaf in program.carry:
            self.use(leaf.nodes)
        self.block(self.graph.root, "all")
        forever = set(self.first)
        self.block(program.scope, "head")
        self.block(program.scope, "body")
        self.clock += 1
        for leaf in program.step:
            for n in leaf.nodes:
                self.use(self.graph.args[n] if n in self.schedule.deferred else (n,))
        self.clock += 1
        for old, new in zip(program.carry, program.read_carry, strict=True):
            self.alias.update(zip(new.nodes, old.nodes, strict=True))
        self.block(program.read_scope, "all")
        self.clock += 1
        for leaf in program.rows:
            self.use(leaf.nodes)
        for n in forever:
            self.last[n] = self.clock
        return {n: (self.first[n], self.last[n]) for n in self.first}

    def use(self, nodes: Iterable[int]) -> None:
        """Mark arrays as written or read now."""
        for n in nodes:
            while n in self.alias:
                n = self.alias[n]
            if not self.graph.length[n] or self.graph.op[n] == "vconst" or n in self.elsewhere:
                continue
            self.first.setdefault(n, self.clock)
            self.last[n] = self.clock
            for _, used in self.loops:
                used.add(n)

    def block(self, scope: Scope, part: str) -> None:
        g, direct = self.graph, self.schedule.direct
        for piece in self.schedule.block(scope, part):
            self.clock += 1
            if piece.length:
                kept = set(piece.kept)
                inside = set(piece.nodes)
                self.alias.update((m, direct[m]) for m in kept if m in direct)
                self.use(a for n in piece.nodes for a in g.args[n] if a not in inside)
                self.use(kept)
                continue
            for n in piece.nodes:
                self.clock += 1
                attr = g.attr[n]
                if isinstance(attr, Loop):
                    self.loop(n, attr)
                elif isinstance(attr, Branches):
                    self.branches(n, attr)
                else:
                    self.use((*g.args[n], *((n,) if g.op[n] in FILLED else ())))

    def loop(self, n: int, loop: Loop) -> None:
        """Walk through a loop once; arrays from before it that it uses stay alive to its end."""
        g, live = self.graph, self.program.live
        moving = [j for j, p in enumerate(loop.params) if p in live]
        collected = [u for u in live if g.op[u] == "collected" and g.args[u][0] == n]
        self.alias.update((u, loop.params[g.attr[u]]) for u in live if g.op[u] == "proj" and g.args[u][0] == n)
        self.use(g.args[n][j] for j in moving)
        self.use(loop.params[j] for j in moving)
        self.use(collected)
        start, used = self.clock, set()
        self.loops.append((start, used))
        self.use(loop.params[j] for j in moving)
        self.block(loop.scope, "head")
        self.block(loop.scope, "body")
        self.clock += 1
        self.use(loop.results[j] for j in moving)
        self.use(loop.params[j] for j in moving)
        self.use(collected)
        self.loops.pop()
        for m in used:
            if self.first[m] <= start:
                self.last[m] = self.clock

    def branches(self, n: int, branches: Branches) -> None:
        g, live = self.graph, self.program.live
        users = [u for u in live if g.op[u] == "proj" and g.args[u][0] == n]
        for scope, results in zip(branches.scopes, branches.results, strict=True):
            self.block(scope, "all")
            self.clock += 1
            self.use(results[g.attr[u]] for u in users)
            self.use(users)
