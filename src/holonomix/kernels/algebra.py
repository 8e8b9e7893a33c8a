"""Smart constructors: each builds a node, or something simpler that means the same.

Foldings assume that a structural zero times anything is zero: a NaN that the step multiplies by a literal zero does
not show in the result. Nothing else assumes finite values, and nothing re-associates sums or products (but for exact
factors that are powers of two). Division by a literal becomes multiplication by its reciprocal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .graph import BOOL, FLOATS, INTEGERS, Graph, dtype_of

_SWAP = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_FOLD_COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
                 "ne": np.not_equal}  # fmt: skip


def _power_of_two(x: float) -> bool:
    return x != 0 and math.isfinite(x) and abs(math.frexp(x)[0]) == 0.5 and 1e-150 < abs(x) < 1e150


def _erf_inv(x):
    from scipy.special import erfinv  # folding only; scipy comes with jax

    return erfinv(x)


def _vector(fn):
    return lambda x: fn(float(x))


def _scipy(name):
    def call(x):
        import scipy.special

        return getattr(scipy.special, name)(x)

    return call


_FOLD_UNARY: dict[str, Callable] = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "cbrt": np.cbrt, "floor": np.floor, "ceil": np.ceil, "round_even": np.round,
    "erf": _scipy("erf"), "erfc": _scipy("erfc"), "erf_inv": _erf_inv, "lgamma": _scipy("gammaln"),
    "round_away": lambda x: np.copysign(np.floor(abs(x) + 0.5), x) if abs(x) < 2**52 else x,
    "abs": np.abs, "is_finite": np.isfinite,
}  # fmt: skip


class Algebra:
    """Scalar operations over a graph; every method takes and returns node numbers."""

    def __init__(self, graph: Graph):
        self.graph = graph

    # -- helpers -----------------------------------------------------------------------------------
    def _fold(self, fn, kind: str, *nodes: int) -> int:
        with np.errstate(all="ignore"):
            return self.graph.constant(fn(*(self.graph.value[n] for n in nodes)), kind)

    def _both(self, a: int, b: int) -> bool:
        value = self.graph.value
        return a in value and b in value

    def const(self, value, kind: str) -> int:
        return self.graph.constant(value, kind)

    # -- arithmetic --------------------------------------------------------------------------------
    def add(self, a: int, b: int) -> int:
        g = self.graph
        kind = g.kind[a]
        if self._both(a, b):
            return self._fold(np.add, kind, a, b)
        zero = g.zero[kind]
        if a == zero:
            return b
        if b == zero:
            return a
        if g.op[b] == "neg":
            return self.sub(a, g.args[b][0])
        if g.op[a] == "neg":
            return self.sub(b, g.args[a][0])
        return g.node("add", (a, b) if a < b else (b, a), kind)

    def sub(self, a: int, b: int) -> int:
        g = self.graph
        kind = g.kind[a]
        if self._both(a, b):
            return self._fold(np.subtract, kind, a, b)
        zero = g.zero[kind]
        if b == zero:
            return a
        if a == zero:
            return self.neg(b)
        if g.op[b] == "neg":
            return self.add(a, g.args[b][0])
        if a == b and kind in INTEGERS:
            return zero
        return g.node("sub", (a, b), kind)

    def neg(self, a: int) -> int:
        g = self.graph
        kind = g.kind[a]
        if a in g.value:
            return g.zero[kind] if a == g.zero[kind] else self._fold(np.negative, kind, a)
        op = g.op[a]
        if op == "neg":
            return g.args[a][0]
        if op == "sub":
            return g.node("sub", g.args[a][::-1], kind)
        if op == "mul" and g.args[a][0] in g.value:
            return self.mul(self.neg(g.args[a][0]), g.args[a][1])
        return g.node("neg", (a,), kind)

    def mul(self, a: int, b: int) -> int:
        g = self.graph
        kind = g.kind[a]
        if kind == BOOL:
            return self.bits("and", a, b)
        if self._both(a, b):
            return self._fold(np.multiply, kind, a, b)
        zero, one = g.zero[kind], g.one[kind]
        if a == zero or b == zero:
            return zero
        if a == one:
            return b
        if b == one:
            return a
        if b in g.value:
            a, b = b, a
        if a in g.value and kind in FLOATS:
            value = float(g.value[a])
            if value == -1.0:
                return self.neg(b)
            if g.op[b] == "neg":
                return self.mul(self.neg(a), g.args[b][0])
            if g.op[b] == "mul" and g.args[b][0] in g.value:
                inner = float(g.value[g.args[b][0]])
                if _power_of_two(value) or _power_of_two(inner):
                    return self.mul(g.constant(value * inner, kind), g.args[b][1])
            return g.node("mul", (a, b), kind)
        if kind in FLOATS:
            if g.op[a] == "neg":
                return self.neg(self.mul(g.args[a][0], b))
            if g.op[b] == "neg":
                return self.neg(self.mul(a, g.args[b][0]))
        return g.node("mul", (a, b) if a < b else (b, a), kind)

    def div(self, a: int, b: int) -> int:
        g = self.graph
        kind = g.kind[a]
        one = g.one[kind]
        if b == one:
            return a
        if kind in INTEGERS:
            if self._both(a, b) and int(g.value[b]) != 0:
                x, y = int(g.value[a]), int(g.value[b])
                return g.constant(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1), kind)
            return g.node("div", (a, b), kind)
        if self._both(a, b):
            return self._fold(np.divide, kind, a, b)
        if a == g.zero[kind]:
            return a
        if b in g.value and math.isfinite(float(g.value[b])) and abs(float(g.value[b])) > 1e-300:
            return self.mul(g.constant(1.0 / float(g.value[b]), kind), a)
        if g.op[b] == "neg":
            return self.neg(self.div(a, g.args[b][0]))
        if g.op[a] == "neg":
            return self.neg(self.div(g.args[a][0], b))
        return g.node("div", (a, b), kind)

    def rem(self, a: int, b: int) -> int:
        g = self.graph
        kind = g.kind[a]
        if self._both(a, b) and g.value[b] != 0:
            return self._fold(np.fmod, kind, a, b)
        return g.node("rem", (a, b), kind)

    def power(self, a: int, exponent: int) -> int:
        """An integer power, by repeated squaring as XLA does it."""
        g = self.graph
        kind = g.kind[a]
        if exponent == 0:
            return g.one[kind]
        result, square, n = None, a, abs(exponent)
        while n:
            if n & 1:
                result = square if result is None else self.mul(result, square)
            n >>= 1
            if n:
                square = self.mul(square, square)
        assert result is not None
        return self.div(g.one[kind], result) if exponent < 0 else result

    def pow(self, a: int, b: int) -> int:
        g = self.graph
        kind = g.kind[a]
        if self._both(a, b):
            return self._fold(np.power, kind, a, b)
        if b in g.value:
            exponent = float(g.value[b])
            if exponent == int(exponent) and abs(exponent) <= 16:
                return self.power(a, int(exponent))
            if exponent == 0.5:
                return self.unary("sqrt", a)
            if abs(exponent) <= 8 and (2 * exponent) == int(2 * exponent) and exponent > 0:
                return self.mul(self.power(a, int(exponent - 0.5)), self.unary("sqrt", a))
        return g.node("pow", (a, b), kind)

    def extremum(self, op: str, a: int, b: int) -> int:
        """`max` or `min`, where a NaN wins."""
        g = self.graph
        kind = g.kind[a]
        if kind == BOOL:
            return self.bits("or" if op == "max" else "and", a, b)
        if self._both(a, b):
            return self._fold(np.maximum if op == "max" else np.minimum, kind, a, b)
        if a == b:
            return a
        return g.node(op, (a, b) if a < b else (b, a), kind)

    def unary(self, op: str, a: int) -> int:
        """A function of one number, which keeps its type."""
        g = self.graph
        kind = g.kind[a]
        if a in g.value and op in _FOLD_UNARY:
            return self._fold(_FOLD_UNARY[op], kind, a)
        if op == "abs" and g.op[a] in ("neg", "abs"):
            return self.unary("abs", g.args[a][0])
        if kind in FLOATS and g.op[a] == "neg":
            if op in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "erf_inv", "cbrt"):
                return self.neg(self.unary(op, g.args[a][0]))
            if op in ("cos", "cosh"):
                return self.unary(op, g.args[a][0])
        return g.node(op, (a,), kind)

    def binary(self, op: str, a: int, b: int) -> int:
        g = self.graph
        if op == "atan2" and self._both(a, b):
            return self._fold(np.arctan2, g.kind[a], a, b)
        return g.node(op, (a, b), g.kind[a])

    def is_finite(self, a: int) -> int:
        if a in self.graph.value:
            return self._fold(np.isfinite, BOOL, a)
        return self.graph.node("is_finite", (a,), BOOL)

    def sign(self, a: int) -> int:
        g = self.graph
        kind = g.kind[a]
        if a in g.value:
            return self._fold(np.sign, kind, a)
        if kind in FLOATS:  # keeps signed zeros and NaN
            one = g.one[kind]
            step = self.select(self.compare("gt", a, g.zero[kind]), one, self.neg(one))
            return self.select(self.compare("ne", a, g.zero[kind]), self.select(self.compare("eq", a, a), step, a), a)
        negative = g.constant(-1, kind) if kind[0] == "i" else g.one[kind]
        step = self.select(self.compare("gt", a, g.zero[kind]), g.one[kind], negative)
        return self.select(self.compare("eq", a, g.zero[kind]), a, step)

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
            a, b, op = b, a, _SWAP[op]
        return g.node(op, (a, b), BOOL)

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

    # -- sums and tables ---------------------------------------------------------------------------
    def fold_tree(self, fn: Callable[[int, int], int], items: list[int]) -> int:
        """Combine neighbours, then their results, and so on: short chains and small rounding errors."""
        while len(items) > 1:
            pairs = [fn(items[i], items[i + 1]) for i in range(0, len(items) - 1, 2)]
            items = pairs + items[len(items) & ~1 :]
        return items[0]

    def pick(self, items: list[int], index: int) -> int:
        """`items[index]` for an index within bounds."""
        g = self.graph
        if index in g.value:
            return items[int(g.value[index])]
        if len(set(items)) == 1:
            return items[0]
        kind = g.kind[items[0]]
        if kind == "key":
            words = zip(*(g.args[n] for n in items), strict=True)
            return self.key(*(self.pick(list(w), index) for w in words))
        if len(items) == 2:
            return self.select(self.compare("eq", index, g.zero[g.kind[index]]), items[0], items[1])
        table = g.node("table", tuple(items), kind)
        return g.node("load", (table, index), kind)
