"""Which results of a loop may be written at once where the parameter is that they become, found from the schedule.

That saves a copy at the end of each iteration. It is allowed only where nothing reads the old vector afterwards: no
later piece of the body, loops and branches inside of it and what the schedule computes again included; nothing in the
same piece that reads the vector from memory at other places; and no later node of the same piece that would be the
first there to fetch its element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .graph import Branches, Loop

if TYPE_CHECKING:
    from .vector_schedule import Piece, VectorSchedule


def written_in_place(schedule: VectorSchedule, from_memory: set[str]) -> dict[int, int]:
    """For each such result, the parameter whose memory it takes over."""
    g, out = schedule.graph, {}
    for n in schedule.program.live:
        loop = g.attr[n]
        if not isinstance(loop, Loop):
            continue
        pieces = schedule.pieces[loop.scope, "body"]
        taken: set[int] = set()
        for p, r in zip(loop.params, loop.results, strict=True):
            at = next((k for k, piece in enumerate(pieces) if piece.length and r in piece.kept), None)
            if at is None or p not in schedule.program.live or r in taken or p in loop.results:
                continue
            later = any(p in read_by(schedule, m) for piece in pieces[at + 1 :] for m in piece.nodes)
            if not later and not _read_after(schedule, pieces[at], r, p, from_memory):
                out[r] = p
                taken.add(r)
    return out


def _read_after(schedule: VectorSchedule, piece: Piece, r: int, p: int, from_memory: set[str]) -> bool:
    """Does a piece read vector `p` from memory after it has stored `r`?"""
    g = schedule.graph
    readers = [k for k, m in enumerate(piece.nodes) if p in g.args[m]]
    if any(g.op[piece.nodes[k]] in from_memory for k in readers):
        return True
    return bool(readers) and readers[0] > piece.nodes.index(r)  # once fetched, an element stays in its register


def read_by(schedule: VectorSchedule, n: int) -> set[int]:
    """All vectors and scalars that a node reads, the bodies of a while or cond included, as they are scheduled."""
    found = schedule.read.get(n)
    if found is None:
        found = schedule.read[n] = set(schedule.graph.args[n]) | _inside(schedule, n)
    return found


def _inside(schedule: VectorSchedule, n: int) -> set[int]:
    attr = schedule.graph.attr[n]
    if not isinstance(attr, Loop | Branches):
        return set()
    out = set(attr.uses)
    for scope in attr.scopes:
        for piece in schedule.block(scope, "all"):
            for m in piece.nodes:
                out |= read_by(schedule, m)
    return out
