"""Checks of a finished program before any back end uses it: an error here would become wrong machine code.

Every value is computed before it is used, in a scope that encloses its use; operations get the types and lengths they
are written for; indices into memory are 64-bit integers; the leaves have as many nodes as their shapes say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .graph import BOOL, FLOATS, INTEGERS, Branches, Defect, Loop, Scope

if TYPE_CHECKING:
    from .program import Leaf, Program

_COMPARE = {"lt", "le", "gt", "ge", "eq", "ne"}
_TOTALS = {"rsum", "rprod", "rmax", "rmin", "rand", "ror"}
_CHANGE_TYPE = {"convert", "bitcast", "is_finite", "select"}  # elementwise, but not of one type
_OTHERS = _TOTALS | {"proj", "collected", "key", "load", "fetch", "window", "take", "gsum", "pack", "table", "vconst"}
_OTHERS |= {"join", "ffactor", "fsolve", "fshorten"}


def verify(program: Program) -> None:
    """Raise a `Defect` that names the first error, if there is one."""
    _Verifier(program).run()


class _Verifier:
    def __init__(self, program: Program):
        self.program, self.graph = program, program.graph
        self.known: set[int] = set()  # computed so far
        self.open: set[Scope] = set()  # scopes that enclose the place that is looked at
        self.results: dict[int, set[int]] = defaultdict(set)  # which results of a while or cond are used
        self.filled: dict[int, set[int]] = defaultdict(set)  # the same for its tables
        for n in program.live:
            if self.graph.op[n] in ("proj", "collected"):
                used = self.results if self.graph.op[n] == "proj" else self.filled
                used[self.graph.args[n][0]].add(self.graph.attr[n])

    def run(self) -> None:
        p, root = self.program, self.graph.root
        for part in (p.consts, p.carry, p.step, p.read_carry, p.rows):
            for leaf in part:
                self._leaf(leaf)
        self.open.add(root)
        self._define(p.consts)
        self._block(root)
        self._define(p.carry)
        self.open.add(p.scope)
        self._block(p.scope)
        self._use("the test that ends a run", (p.halted,))
        self._expect(self.graph.kind[p.halted] == BOOL and not self.graph.length[p.halted], "halted is no truth value")
        self._use("the new state", (n for leaf in p.step for n in leaf.nodes))
        self.open.discard(p.scope)
        self._define(p.read_carry)
        self.open.add(p.read_scope)
        self._block(p.read_scope)
        self._use("a row", (n for leaf in p.rows for n in leaf.nodes))

    def _expect(self, condition: bool, what: str) -> None:
        if not condition:
            raise Defect(what)

    def _leaf(self, leaf: Leaf) -> None:
        elements = len(leaf.nodes) * (leaf.length or 1)
        self._expect(elements == leaf.count, f"an array of shape {leaf.shape} has {elements} elements")
        self._expect(not leaf.length or len(leaf.starts) == len(leaf.nodes), "a leaf without places for its vectors")
        for n in leaf.nodes:
            self._expect(self.graph.kind[n] == leaf.kind, f"{self.graph.kind[n]} in an array of {leaf.kind}")
            self._expect(self.graph.length[n] in (0, leaf.length), "a vector of another length in an array")

    def _define(self, leaves: list[Leaf]) -> None:
        self.known.update(n for leaf in leaves for n in leaf.nodes)

    def _use(self, by: str, nodes: Iterable[int]) -> None:
        g = self.graph
        for n in nodes:
            if g.op[n] in ("const", "vconst"):
                continue
            if n not in self.known:
                raise Defect(f"node {n} ({g.op[n]}) is used by {by} before it is computed")
            if g.scope[n] not in self.open:
                raise Defect(f"node {n} ({g.op[n]}) is used by {by} outside of its scope")

    def _block(self, scope: Scope) -> None:
        for n in self.program.blocks[scope].nodes:
            attr = self.graph.attr[n]
            if isinstance(attr, Loop):
                self._loop(n, attr)
            elif isinstance(attr, Branches):
                self._branches(n, attr)
            else:
                self._use(f"{self.graph.op[n]} {n}", self.graph.args[n])
                self._types(n)
            self.known.add(n)

    def _loop(self, n: int, loop: Loop) -> None:
        g, live = self.graph, self.program.live
        moving = [j for j, p in enumerate(loop.params) if p in live]
        self._expect(len(loop.params) == len(loop.results) == len(g.args[n]), "a loop with another number of results")
        self._use("a loop", (g.args[n][j] for j in moving))
        for j in moving:
            p = loop.params[j]
            for m in (g.args[n][j], loop.results[j]):
                self._expect(g.kind[m] == g.kind[p], f"a loop carries {g.kind[m]} in the place of {g.kind[p]}")
                self._expect(g.length[m] in (0, g.length[p]), "a loop carries a vector of another length")
        self.known.update(loop.params[j] for j in moving)
        self.open.add(loop.scope)
        self._block(loop.scope)
        self._use("the test of a loop", (loop.go,))
        self._expect(g.kind[loop.go] == BOOL and not g.length[loop.go], "the test of a loop is no truth value")
        self._use("the end of a loop", (loop.results[j] for j in moving if not (loop.trips is not None and j == 0)))
        filled = self.filled[n]
        if filled:
            self._use("a table that a loop fills", (loop.collect[0], *(loop.collect[1 + k] for k in filled)))
            self._expect(g.kind[loop.collect[0]] == "i8", "a place in a table is no 64-bit integer")
        self.open.discard(loop.scope)

    def _branches(self, n: int, branches: Branches) -> None:
        g, used = self.graph, self.results[n]
        self._use("a branch", g.args[n])
        self._expect(g.kind[g.args[n][0]] in INTEGERS | {BOOL}, "the number of a branch is no integer")
        for scope, results in zip(branches.scopes, branches.results, strict=True):
            self.open.add(scope)
            self._block(scope)
            self._use("the end of a branch", (results[j] for j in used))
            for j in used:
                first = branches.results[0][j]
                self._expect(g.kind[results[j]] == g.kind[first], "the results of branches have different types")
            self.open.discard(scope)

    def _types(self, n: int) -> None:
        g = self.graph
        op, kind, args = g.op[n], g.kind[n], g.args[n]
        kinds = [g.kind[a] for a in args]
        where = f"{op} {kind} of {', '.join(kinds)}"
        if op in _COMPARE:
            self._expect(kind == BOOL and kinds[0] == kinds[1], where)
        elif op == "select":
            self._expect(kinds == [BOOL, kind, kind], where)
        elif op == "fetch":
            leaf = self.program.consts[g.attr[n]]
            self._expect(kinds == ["i8"] and not g.length[args[0]] and (leaf.kind, leaf.length) == (kind, 0), where)
        elif op in ("load", "window"):
            self._expect(kinds == [kind, "i8"] and not g.length[args[1]], where)
        elif op == "bitcast":
            self._expect(kind[1] == kinds[0][1], where)
        elif op == "is_finite":
            self._expect(kind == BOOL and kinds[0] in FLOATS, where)
        elif op in ("take", "gsum") or op in _TOTALS:
            self._expect(kinds == [kind] and g.length[args[0]] > 0, where)
            if op in ("take", "gsum"):
                places = g.attr[n].array
                inside = places.max() < g.length[args[0]] and places.shape[-1] == g.length[n]
                self._expect(bool(inside), f"{op} of places outside of a vector of {g.length[args[0]]}")
        elif op in ("table", "pack") or op not in _CHANGE_TYPE | _OTHERS:
            self._expect(all(k == kind for k in kinds), where)
        if op in _OTHERS:
            return
        self._expect(all(g.length[a] in (0, g.length[n]) for a in args), f"{op} of vectors of different lengths")
        self._expect(not g.length[n] or any(g.length[a] for a in args), f"{op} makes a vector of scalars")
