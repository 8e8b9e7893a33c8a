"""Finds the values of a finished program that are equal in all lanes.

Only literals and the counters of counted loops are known to be; what is computed from such values alone is so too. A
value that a loop carries is the same in all lanes if it starts so and every iteration leaves it so; this is assumed
of all of them first and taken back until nothing changes. A loop that runs while its test holds, and a branch, keep
the old values of lanes that take no part: their results are the same in all lanes only where all lanes go the same way,
the test included, and where no lane has halted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .graph import Branches, Loop, Scope

if TYPE_CHECKING:
    from .program import Program


def uniform_nodes(program: Program) -> set[int]:
    """The nodes whose values are equal in all lanes, masked lanes included."""
    g = program.graph
    asked = any(g.op[n] == "collected" or (g.op[n] == "load" and g.op[g.args[n][1]] != "const") for n in program.live)
    return _Uniform(program).found if asked else set()


class _Uniform:
    def __init__(self, program: Program):
        self.program, self.graph = program, program.graph
        self.varying: set[int] = set()  # carried values that differ between lanes
        while True:
            self.found: set[int] = set()
            before = len(self.varying)
            self._block(self.graph.root, together=True)
            self._block(program.scope, together=False)  # lanes halt one by one
            self._block(program.read_scope, together=True)
            if len(self.varying) == before:
                return

    def same(self, n: int) -> bool:
        return n in self.found or self.graph.op[n] == "const"

    def _block(self, scope: Scope, together: bool) -> None:
        """Visit a scope; `together`: no lane is masked in it."""
        g = self.graph
        for n in self.program.blocks[scope].nodes:
            attr = g.attr[n]
            if isinstance(attr, Loop):
                self._loop(n, attr, together)
            elif isinstance(attr, Branches):
                inside = together and self.same(g.args[n][0])
                for s in attr.scopes:
                    self._block(s, inside)
                if inside:
                    self.found.add(n)
            elif g.op[n] == "proj":
                if self._result(g.args[n][0], g.attr[n]):
                    self.found.add(n)
            elif g.op[n] == "collected":
                loop = g.attr[g.args[n][0]]
                if self.same(loop.collect[1 + g.attr[n]]):
                    self.found.add(n)
            elif g.op[n] != "fetch" and g.args[n] and all(self.same(a) for a in g.args[n]):
                self.found.add(n)  # (lanes may have constants of their own to fetch from)

    def _result(self, node: int, j: int) -> bool:
        attr = self.graph.attr[node]
        if isinstance(attr, Loop):
            return attr.params[j] in self.found
        return node in self.found and all(self.same(r[j]) for r in attr.results)

    def _loop(self, n: int, loop: Loop, together: bool) -> None:
        g, live = self.graph, self.program.live
        counted = loop.trips is not None
        carried = [j for j, p in enumerate(loop.params) if p in live and not (counted and j == 0)]
        params = {loop.params[j] for j in carried}
        self.varying.update(loop.params[j] for j in carried if not self.same(g.args[n][j]))
        if counted:
            self.found.add(loop.params[0])
        elif not together:
            self.varying |= params
        self.found |= params - self.varying
        self._block(loop.scope, together)
        if not counted and together and not self.same(loop.go):  # lanes leave one by one: once more, without them
            self.varying |= params
            self.found -= params
            self._forget(loop.scope)
            self._block(loop.scope, together=False)
        self.varying.update(loop.params[j] for j in carried if not self.same(loop.results[j]))

    def _forget(self, scope: Scope) -> None:
        """Discard the results for the nodes of a scope."""
        g = self.graph
        for m in self.program.blocks[scope].nodes:
            self.found.discard(m)
            attr = g.attr[m]
            for s in attr.scopes if isinstance(attr, Loop | Branches) else ():
                self._forget(s)
