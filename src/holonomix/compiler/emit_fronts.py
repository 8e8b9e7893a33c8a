"""LLVM IR for multifrontal elimination: calls of the functions that `multifrontal.code` writes."""

from __future__ import annotations

from ..linalg.multifrontal.code import functions
from ..linalg.multifrontal.plan import Plan
from .emit_loops import Loops
from .graph import Unsupported
from .values import Values
from .writer import Writer


class Fronts:
    """The operations `ffactor`, `fsolve` and `fshorten`."""

    def __init__(self, writer: Writer, values: Values, loops: Loops):
        self.w, self.values, self.loops = writer, values, loops
        self.front_memory: dict[str, str] = {}  # working memory of multifrontal elimination

    def _pointer(self, n: int) -> str:
        if not self.w.graph.length[n]:
            return self.values.name(n)
        self.values.array(n)  # node n was computed before
        return self.values.pointer(n)

    def _call(self, n: int, name: str, kind: int, arguments: str, last: str) -> None:
        """Call a function; `arguments` has `{x}` where the result and `{work}` where working memory goes."""
        if not self.w.target.far:
            raise Unsupported("multifrontal elimination", "on a GPU")
        size, plan = self.w.graph.attr[n][:2]
        assert isinstance(plan, Plan)
        text, declared = functions(self.w.lanes, self.w.fma)
        self.w.helpers.setdefault(f"multifrontal_{self.w.lanes}", text)
        for line in declared:
            self.w.declared.setdefault(line.split("@")[1].split("(")[0], line)
        key = f"{plan.key} {kind}"
        if key not in self.front_memory:
            self.front_memory[key] = self.w.reserve(plan.work[kind], "f8")
        long = self.w.graph.length[n]
        out = self.values.pointer(n) if long else self.w.reserve(size, "f8")
        if not long:
            self.values.names[n] = out
        table = self.values.constants(plan.table, "i4")
        given = arguments.format(x=out, work=self.front_memory[key])
        self.w.put(f"call void @multifrontal_{name}_{self.w.lanes}(ptr {table}, {given}{last})")
        if long:
            self.loops.filled(n)

    def factor(self, n: int) -> None:
        _, _, symmetric, threshold = self.w.graph.attr[n]
        (entries,) = map(self._pointer, self.w.graph.args[n])
        lanes, self.w.lanes = self.w.lanes, 1
        limit = self.w.literal("f8", threshold)
        self.w.lanes = lanes
        last = f", i64 {int(symmetric)}, double {limit}"
        self._call(n, "factor", 0, f"ptr {entries}, ptr {{x}}, ptr {{work}}", last)

    def solve(self, n: int) -> None:
        factors, b = map(self._pointer, self.w.graph.args[n])
        last = f", i64 {int(self.w.graph.attr[n][2])}"
        self._call(n, "solve", 1, f"ptr {factors}, ptr {b}, ptr {{x}}, ptr {{work}}", last)

    def shorten(self, n: int) -> None:
        entries, factors, x = map(self._pointer, self.w.graph.args[n])
        self._call(n, "shorten", 2, f"ptr {entries}, ptr {factors}, ptr {x}, ptr {{x}}, ptr {{work}}", "")
