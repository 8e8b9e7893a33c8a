"""The schedule of a block with vectors: scalars, and loops over axes with as many operations as possible."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .graph import Branches, Graph, Loop, Scope
from .passes import frozen
from .wide import in_step

if TYPE_CHECKING:
    from .program import Program

SPACE = 1 << 27  # bytes of arrays of one trajectory
REGISTER = 8  # elements per vector register
LOOP = 20  # the overhead of a loop, in operations
# vectors that are in memory without a loop
PLACED: set[str] = set("vconst proj collected param pack join ffactor fsolve fshorten".split())
# read their vector from memory
FROM_MEMORY: set[str] = set("take gsum window load rsum rprod rmax rmin rand ror".split())
CHEAP: set[str] = set(
    "add sub mul neg fma fms fnma select abs max min and or xor not lt le gt ge eq ne convert same".split()
)


@dataclass
class Piece:
    """Scalars (length 0) in order, or one loop over an axis with the vectors that it leaves in memory."""

    length: int
    nodes: list[int]
    kept: list[int] = field(default_factory=list)


class VectorSchedule:
    """The pieces of all blocks of a program, in the order in which they are written."""

    def __init__(self, program: Program):
        self.program, self.graph = program, program.graph
        self.slots: dict[str, int] = {}  # arrays that are assigned to, with their length
        self.inner: dict[int, set[int]] = {}  # what the bodies of a loop or branch use
        self.deferred = set(frozen(program)[1])
        self.pieces: dict[tuple[Scope, str], list[Piece]] = {}
        for scope, block in program.blocks.items():
            for part, nodes in (("head", block.nodes[: block.head]), ("body", block.nodes[block.head :])):
                self.pieces[scope, part] = self._pieces([n for n in nodes if n not in self.deferred])
        self.loops = [p for pieces in self.pieces.values() for p in pieces if p.length]
        self.first = {id(p): set(p.nodes) for p in self.loops}  # what they compute for other nodes
        self._repeat()
        self._keep()
        self.read: dict[int, set[int]] = {}  # what each node reads, as it is scheduled now
        self.direct = in_place_results(self)

    def block(self, scope: Scope, part: str) -> list[Piece]:
        if part == "all":
            return self.pieces[scope, "head"] + self.pieces[scope, "body"]
        return self.pieces[scope, part]

    def size(self) -> tuple[int, int]:
        """How many loops over axes there are, and the bytes of the arrays they leave behind."""
        g = self.graph
        placed = {n for n in self.program.live if g.op[n] in PLACED - {"vconst"}}
        placed.update(n for leaf in (*self.program.carry, *self.program.consts) for n in leaf.nodes)
        lengths = [p.length for p in self.loops for _ in p.kept] + [g.length[n] for n in placed if g.length[n]]
        return len(self.loops), 8 * sum(n + 3 * REGISTER for n in lengths)

    def effort(self) -> int:
        """The estimated cost in scalar operations: one per whole register, one per single element."""
        g, total = self.graph, 0
        for pieces in self.pieces.values():
            for piece in pieces:
                total += len(piece.nodes) * -(-max(piece.length, 1) // REGISTER) + (LOOP if piece.length else 0)
                total += sum(self._loose(n) for n in piece.nodes if g.op[n] in ("take", "gsum"))
        return total

    def _loose(self, n: int) -> int:
        """The number of elements that a node fetches one by one."""
        places, size = self.graph.attr[n].array, self.graph.length[self.graph.args[n][0]]
        return 0 if in_step(places, size) else places.size

    # -- what is in memory -------------------------------------------------------------------------
    def _wanted(self) -> set[int]:
        """Vectors that something other than a loop reads."""
        g, program = self.graph, self.program
        out: set[int] = set()
        for pieces in self.pieces.values():
            for piece in pieces:
                for n in piece.nodes:
                    attr = g.attr[n]
                    if piece.length == 0 or g.op[n] in FROM_MEMORY:
                        out.update(g.args[n])
                    if isinstance(attr, Loop):
                        out.update(attr.results)
                    elif isinstance(attr, Branches):
                        out.update(m for r in attr.results for m in r)
        for leaf in program.rows:
            out.update(leaf.nodes)
        for leaf in program.step:
            for n in leaf.nodes:
                out.update(g.args[n][1:] if n in self.deferred else (n,))
        return {n for n in out if g.length[n]}

    def _read(self, piece: Piece) -> set[int]:
        """Vectors that a loop reads element by element without computing them."""
        g, inside = self.graph, set(piece.nodes)
        return {
            a for n in piece.nodes if g.op[n] not in FROM_MEMORY for a in g.args[n] if g.length[a] and a not in inside
        }

    def _repeat(self) -> None:
        """Recompute values that cost no more than a load: fewer arrays, and fewer values that cross loops."""
        g = self.graph
        for piece in self.loops:
            read = self._read(piece)
            inside, again = set(piece.nodes), []
            changed = True
            while changed:
                changed = False
                for v in sorted(read):
                    if g.op[v] == "take" and not self._loose(v):  # its source is in memory
                        read.discard(v)
                        inside.add(v)
                        again.append(v)
                        continue
                    if g.op[v] not in CHEAP:
                        continue
                    needs = [a for a in dict.fromkeys(g.args[v]) if g.length[a] and a not in inside and a not in read]
                    if len(needs) <= 1 and all(g.op[a] in PLACED for a in needs):
                        read.discard(v)
                        read.update(needs)
                        inside.add(v)
                        again.append(v)
                        changed = True
            piece.nodes = self._ordered(again) + piece.nodes

    def _ordered(self, nodes: list[int]) -> list[int]:
        """Sort nodes so that arguments come first."""
        g, left, out = self.graph, set(nodes), []
        for n in nodes:
            work = [n]
            while work:
                m = work[-1]
                missing = [a for a in g.args[m] if a in left and a != m]
                if m in left and missing:
                    work += missing[::-1]
                    continue
                work.pop()
                if m in left:
                    left.discard(m)
                    out.append(m)
        return out

    def _keep(self) -> None:
        """Find what each loop stores, and drop unused vectors."""
        g, done = self.graph, False
        while not done:
            done = True
            wanted = self._wanted().union(*(self._read(p) for p in self.loops))
            for piece in self.loops:
                kept, used = [], set()
                for n in reversed(piece.nodes):
                    keep = n in wanted and n in self.first[id(piece)]
                    if keep:
                        kept.append(n)
                    if keep or n in used:
                        used.add(n)
                        used.update(g.args[n])
                    else:
                        done = False
                piece.nodes = [n for n in piece.nodes if n in used]
                piece.kept = kept[::-1]
        self.loops = [piece for piece in self.loops if piece.nodes]
        for place, pieces in self.pieces.items():
            self.pieces[place] = [piece for piece in pieces if piece.nodes]

    def _inside(self, n: int) -> set[int]:
        """All nodes that the bodies of a while or cond mention."""
        found = self.inner.get(n)
        if found is not None:
            return found
        g, attr = self.graph, self.graph.attr[n]
        if not isinstance(attr, Loop | Branches):
            return set()
        out = self.inner[n] = set(attr.uses)
        for scope in attr.scopes:
            for m in self.program.blocks[scope].nodes:
                out.update(g.args[m])
                out |= self._inside(m)
        return out

    def _pieces(self, nodes: list[int]) -> list[Piece]:
        """The nodes of a block in pieces: scalars as early as possible, loops as long as possible."""
        g = self.graph
        here = set(nodes)
        needs = {n: {a for a in (*g.args[n], *self._inside(n)) if a in here and a != n} for n in nodes}
        waiting = {n: len(needs[n]) for n in nodes}
        used_by: dict[int, list[int]] = defaultdict(list)
        for n in nodes:
            for a in needs[n]:
                used_by[a].append(n)
        kind = {n: 0 if g.op[n] in PLACED else g.length[n] for n in nodes}
        ready: dict[int, list[int]] = defaultdict(list)
        for n in nodes:
            if not waiting[n]:
                ready[kind[n]].append(n)
        pieces: list[tuple[int, list[int]]] = []

        def drain(length: int) -> list[int]:
            """All nodes of this length that can be computed now, in one loop."""
            done: list[int] = []
            inside: set[int] = set()
            later: list[int] = []
            work = sorted(ready[length], reverse=True)
            ready[length] = []
            while work:
                n = work.pop()
                if length and g.op[n] in FROM_MEMORY and any(a in inside for a in g.args[n]):
                    later.append(n)
                    continue
                done.append(n)
                inside.add(n)
                for u in used_by[n]:
                    waiting[u] -= 1
                    if not waiting[u]:
                        if kind[u] == length and (length or not _structured(g, u)):
                            work.append(u)
                        else:
                            ready[kind[u]].append(u)
            ready[length] += later
            return done

        while any(ready.values()):
            plain = [n for n in ready[0] if not _structured(g, n)]
            if plain:
                held = [n for n in ready[0] if _structured(g, n)]
                ready[0] = plain
                pieces.append((0, drain(0)))
                ready[0] += held
                continue
            lengths = [n for n in ready if n and ready[n]]
            if lengths:
                length = max(lengths, key=lambda n: (len(ready[n]), n))
                pieces.append((length, drain(length)))
                continue
            held = sorted(ready[0])
            ready[0] = held[:1]
            pieces.append((0, drain(0)))
            ready[0] += held[1:]
        return [Piece(length, p) for length, p in pieces if p]


def _structured(g: Graph, n: int) -> bool:
    return g.op[n] in ("while", "cond")


# -- results that take the place of parameters ---------------------------------------------------------


def in_place_results(schedule: VectorSchedule) -> dict[int, int]:
    """For results of a loop body that may overwrite the array of their parameter: result -> parameter.

    This saves a copy at the end of each iteration. It is allowed only if nothing reads the old vector afterward:

    - no later piece of the body, including nested loops and branches and recomputed values;
    - nothing in the same piece that reads the vector from memory at other places;
    - no later node of the same piece that would be the first there to fetch its element.
    """
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
            if not later and not _read_after(schedule, pieces[at], r, p):
                out[r] = p
                taken.add(r)
    return out


def _read_after(schedule: VectorSchedule, piece: Piece, r: int, p: int) -> bool:
    """Whether a piece reads vector `p` from memory after it has stored `r`."""
    g = schedule.graph
    readers = [k for k, m in enumerate(piece.nodes) if p in g.args[m]]
    if any(g.op[piece.nodes[k]] in FROM_MEMORY for k in readers):
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
