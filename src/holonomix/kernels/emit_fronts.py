"""LLVM IR for multifrontal elimination: calls of the functions that `multifrontal.code` writes."""

from __future__ import annotations

from ..multifrontal.code import functions
from ..multifrontal.plan import Plan
from .emit_flow import FlowEmitter
from .graph import Unsupported


class FrontEmitter(FlowEmitter):
    """Adds the operations `ffactor`, `fsolve` and `fshorten`."""

    def _pointer(self, n: int) -> str:
        return self.array(n) if self.graph.length[n] else self.name(n)

    def _call(self, n: int, name: str, kind: int, arguments: str, last: str) -> None:
        """Call a function; `arguments` has `{x}` where the result and `{work}` where working memory goes."""
        if not self.far:
            raise Unsupported("multifrontal elimination", "on a GPU")
        size, plan = self.graph.attr[n][:2]
        assert isinstance(plan, Plan)
        text, declared = functions(self.lanes, self.fma)
        self.helpers.setdefault(f"multifrontal_{self.lanes}", text)
        for line in declared:
            self.declared.setdefault(line.split("@")[1].split("(")[0], line)
        key = f"{plan.key} {kind}"
        if key not in self.front_memory:
            self.front_memory[key] = self.reserve(plan.work[kind], "f8")
        long = self.graph.length[n]
        out = self.slot(n) if long else self.reserve(size, "f8")
        if not long:
            self.names[n] = out
        table = self.constants(plan.table, "i4")
        given = arguments.format(x=out, work=self.front_memory[key])
        self.put(f"call void @multifrontal_{name}_{self.lanes}(ptr {table}, {given}{last})")
        if long:
            self.filled(n)

    def _op_ffactor(self, n: int) -> None:
        _, _, symmetric, threshold = self.graph.attr[n]
        (entries,) = map(self._pointer, self.graph.args[n])
        lanes, self.lanes = self.lanes, 1
        limit = self.literal("f8", threshold)
        self.lanes = lanes
        last = f", i64 {int(symmetric)}, double {limit}"
        self._call(n, "factor", 0, f"ptr {entries}, ptr {{x}}, ptr {{work}}", last)

    def _op_fsolve(self, n: int) -> None:
        factors, b = map(self._pointer, self.graph.args[n])
        last = f", i64 {int(self.graph.attr[n][2])}"
        self._call(n, "solve", 1, f"ptr {factors}, ptr {b}, ptr {{x}}, ptr {{work}}", last)

    def _op_fshorten(self, n: int) -> None:
        entries, factors, x = map(self._pointer, self.graph.args[n])
        self._call(n, "shorten", 2, f"ptr {entries}, ptr {factors}, ptr {x}, ptr {{x}}, ptr {{work}}", "")
