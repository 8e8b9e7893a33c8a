"""Smart constructors for truth values, bits, choices and types; `algebra` adds arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import BOOL, FLOATS, INTEGERS, Graph, dtype_of

SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_FOLD_COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
                 "ne": np.not_equal}  # fmt: skip


def power_of_two(x: float) -> bool:
    """Whether x is plus or minus a power of two, of a size that cannot overflow or underflow in products."""
    return x != 0 and math.isfinite(x) and abs(math.frexp(x)[0]) == 0.5 and 1e-150 < abs(x) < 1e150


class Logic:
    """Scalar operations over a graph; every method takes and returns node numbers."""

    def __init__(self, graph: Graph):
        self.graph = graph

    # -- helpers -----------------------------------------------------------------------------------
    def _fold(self, fn: Callable[..., Any], kind: str, *nodes: int) -> int:
        with np.errstate(all="ignore"):
            return self.graph.constant(fn(*(self.graph.value[n] for n in nodes)), kind)

    def _both(self, a: int, b: int) -> bool:
        value = self.graph.value
        return a in value and b in value

    def const(self, value: Any, kind: str) -> int:
        return self.graph.constant(value, kind)

    def unit(self, n: int) -> int:
        """A one of the type of `n`."""
        return self.graph.one[self.graph.kind[n]]

    def split(self, n: int) -> tuple[float, int]:
        """`n` as an exact factor (a power of two with sign) and the rest."""
        g = self.graph
        op = g.op[n]
        if op == "neg":
            return -1.0, g.args[n][0]
        if op == "mul" and g.args[n][0] in g.value and g.kind[n] in FLOATS:
            factor = float(g.value[g.args[n][0]])
            if power_of_two(factor):
                return factor, g.args[n][1]
        return 1.0, n

    # -- truth values and bits ---------------------------------------------------------------------
    def compare(self, op: str, a: int, b: int) -> int:
        g = self.graph
        if self._both(a, b):
            return self._fold(_FOLD_COMPARE[op], BOOL, a, b)
        if a == b and g.kind[a] not in FLOATS:
            return g.constant(op in ("eq", "le", "ge"), BOOL)
        if g.kind[a] == BOOL and op in ("eq", "ne"):
            different = self.bits("xor", a, b)
            return different if op == "ne" else self.invert(different)
        if a in g.value or (b not in g.value and a > b):
            a, b, op = b, a, SWAPPED[op]
        if b == g.zero.get(g.kind[a]) and g.kind[a] in FLOATS:
            factor, rest = self.split(a)
            if factor != 1.0:
                return self.compare(op if factor > 0 else SWAPPED[op], rest, b)
        if b in g.value and self._two_constants(a):
            p, yes, no = g.args[a]
            return self.select(p, self.compare(op, yes, b), self.compare(op, no, b))
        return g.node(op, (a, b), BOOL)

    def _two_constants(self, n: int) -> bool:
        """A choice between two constants, such as a status."""
        g = self.graph
        return g.op[n] == "select" and g.args[n][1] in g.value and g.args[n][2] in g.value

    def bits(self, op: str, a: int, b: int) -> int:
        """and, or, xor on truth values and integers."""
        g = self.graph
        kind = g.kind[a]
        if self._both(a, b):
            fn = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
            return self._fold(fn, kind, a, b)
        if a == b:
            return g.zero[kind] if op == "xor" else a
        if a in g.value:
            a, b = b, a
        if b in g.value:
            none = b == g.zero[kind]
            ones = b == (g.one[kind] if kind == BOOL else g.constant(~dtype_of(kind).type(0), kind))
            if op == "and":
                if none:
                    return b
                if ones:
                    return a
            elif op == "or":
                if none:
                    return a
                if ones:
                    return b
            elif none:
                return a
            elif ones:
                return self.invert(a)
        return g.node(op, (a, b) if a < b else (b, a), kind)

    def invert(self, a: int) -> int:
        g = self.graph
        kind = g.kind[a]
        if a in g.value:
            return self._fold(np.invert, kind, a)
        if g.op[a] == "not":
            return g.args[a][0]
        if g.op[a] in ("eq", "ne"):
            return g.node("ne" if g.op[a] == "eq" else "eq", g.args[a], BOOL)
        return g.node("not", (a,), kind)

    def shift(self, op: str, a: int, b: int) -> int:
        """shl, shr (logical), sar (arithmetic); a shift by the width or more gives zero or the sign."""
        g = self.graph
        kind = g.kind[a]
        width = 8 * int(kind[1])
        if b in g.value and int(g.value[b]) == 0:
            return a
        if self._both(a, b):
            n = int(g.value[b]) & (2**width - 1)
            raw = int(g.value[a]) & (2**width - 1)
            signed = raw - 2**width if raw >> (width - 1) else raw
            if op == "shl":
                out = (raw << n) & (2**width - 1) if n < width else 0
            elif op == "shr":
                out = raw >> n if n < width else 0
            else:
                out = (signed >> min(n, width - 1)) & (2**width - 1)
            return g.constant(np.array(out, f"u{width // 8}").view(dtype_of(kind)), kind)
        return g.node(op, (a, b), kind)

    def select(self, p: int, yes: int, no: int) -> int:
        g = self.graph
        if p in g.value:
            return yes if g.value[p] else no
        if yes == no:
            return yes
        kind = g.kind[yes]
        if kind == "key":
            return self.key(*(self.select(p, y, n) for y, n in zip(g.args[yes], g.args[no], strict=True)))
        if g.op[p] == "not":
            p, yes, no = g.args[p][0], no, yes
        if kind == BOOL:
            if yes in g.value:
                return self.bits("or", p, no) if g.value[yes] else self.bits("and", self.invert(p), no)
            if no in g.value:
                return self.bits("or", self.invert(p), yes) if g.value[no] else self.bits("and", p, yes)
        if g.op[no] == "select" and g.args[no][0] == p:
            no = g.args[no][2]
        if g.op[yes] == "select" and g.args[yes][0] == p:
            yes = g.args[yes][1]
        return g.node("select", (p, yes, no), kind)

    # -- types -------------------------------------------------------------------------------------
    def convert(self, a: int, kind: str) -> int:
        g = self.graph
        source = g.kind[a]
        if source == kind:
            return a
        if a in g.value:
            value = g.value[a]
            if source in FLOATS and kind in INTEGERS:
                info = np.iinfo(dtype_of(kind))
                x = float(value)
                return g.constant(0 if math.isnan(x) else int(min(max(x, info.min), info.max)), kind)
            return g.constant(value, kind)
        if kind == BOOL:
            return self.compare("ne", a, g.zero[source])
        if self._two_constants(a):
            p, yes, no = g.args[a]
            return self.select(p, self.convert(yes, kind), self.convert(no, kind))
        return g.node("convert", (a,), kind)

    def bitcast(self, a: int, kind: str) -> int:
        g = self.graph
        if g.kind[a] == kind:
            return a
        if a in g.value:
            return g.constant(np.asarray(g.value[a]).view(dtype_of(kind))[()], kind)
        if g.op[a] == "bitcast":
            return self.bitcast(g.args[a][0], kind)
        return g.node("bitcast", (a,), kind)

    def key(self, k0: int, k1: int) -> int:
        return self.graph.node("key", (k0, k1), "key")
