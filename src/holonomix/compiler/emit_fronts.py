"""LLVM IR for multifrontal elimination: calls of the functions that `multifrontal.code` writes."""

from __future__ import annotations

from ..linalg.multifrontal.code import functions
from ..linalg.multifrontal.plan import Plan
from ..linalg.multifrontal.written import written_solve
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
        plan = self.w.graph.attr[n][1]
        assert isinstance(plan, Plan)
        self._declare(f"multifrontal_{self.w.lanes}", *functions(self.w.lanes, self.w.fma))
        key = f"{plan.key} {kind}"
        if key not in self.front_memory:
            self.front_memory[key] = self.w.reserve(plan.work[kind], "f8")
        table = self.values.constants(plan.table, "i4")
        given = arguments.format(x=self._result(n), work=self.front_memory[key])
        self.w.put(f"call void @multifrontal_{name}_{self.w.lanes}(ptr {table}, {given}{last})")
        self._finish(n)

    def _declare(self, key: str, text: str, declared: tuple[str, ...]) -> None:
        self.w.helpers.setdefault(key, text)
        for line in declared:
            self.w.declared.setdefault(line.split("@")[1].split("(")[0], line)

    def _result(self, n: int) -> str:
        """Memory for the result of node n."""
        if self.w.graph.length[n]:
            return self.values.pointer(n)
        out = self.values.names[n] = self.w.reserve(self.w.graph.attr[n][0], "f8")
        return out

    def _finish(self, n: int) -> None:
        if self.w.graph.length[n]:
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
        _, plan, transposed = self.w.graph.attr[n]
        written = written_solve(plan, self.w.lanes, self.w.fma, transposed) if self.w.target.far else None
        if written is None:
            self._call(n, "solve", 1, f"ptr {factors}, ptr {b}, ptr {{x}}, ptr {{work}}", f", i64 {int(transposed)}")
            return
        name, text, declared = written
        self._declare(name, text, declared)
        self.w.put(f"call void @{name}(ptr {factors}, ptr {b}, ptr {self._result(n)})")
        self._finish(n)

    def shorten(self, n: int) -> None:
        entries, factors, x = map(self._pointer, self.w.graph.args[n])
        self._call(n, "shorten", 2, f"ptr {entries}, ptr {factors}, ptr {x}, ptr {{x}}, ptr {{work}}", "")
