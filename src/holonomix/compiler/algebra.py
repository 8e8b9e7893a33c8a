"""Smart constructors: each builds a node or a simpler equivalent.

Foldings assume that a structural zero times anything is zero: a NaN that the step multiplies by a literal zero does
not show in the result. Nothing else assumes finite values, and nothing re-associates sums or products (but for exact
factors that are powers of two). Division by a literal becomes multiplication by its reciprocal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .graph import BOOL, FLOATS, INTEGERS, Graph
from .logic import SWAPPED, Logic, power_of_two

TINY = {"f8": 1e-300, "f4": 1e-30}  # constants outside of TINY .. 1 / TINY are not combined: they would overflow


def _power(x: np.floating, y: np.floating):
    """NumPy takes the square root for the power 1/2, which differs at -inf and -0."""
    if y == 0.5 and x <= 0:
        return np.inf if x == -np.inf else 0.0 if x == 0 else np.nan
    return np.power(x, y)


def _scipy(name: str):
    def call(x: np.floating):
        import scipy.special

        return getattr(scipy.special, name)(x)

    return call


_FOLD_UNARY: dict[str, Callable] = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "cbrt": np.cbrt, "floor": np.floor, "ceil": np.ceil, "round_even": np.round,
    "erf": _scipy("erf"), "erfc": _scipy("erfc"), "erf_inv": _scipy("erfinv"), "lgamma": _scipy("gammaln"),
    "round_away": lambda x: np.copysign(np.floor(abs(x) + 0.5), x) if abs(x) < 2**52 else x,
    "abs": np.abs, "is_finite": np.isfinite,
}  # fmt: skip


class Algebra(Logic):
    """Adds arithmetic and functions."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self._signs: dict[int, bool] = {}

    # -- arithmetic --------------------------------------------------------------------------------
    def scale(self, factor: float, n: int) -> int:
        """`n` times an exact factor."""
        if factor == 1.0:
            return n
        return self.neg(n) if factor == -1.0 else self.mul(self.graph.constant(factor, self.graph.kind[n]), n)

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
        if kind in FLOATS:
            (ca, x), (cb, y) = self.split(a), self.split(b)
            if ca == cb != 1.0:
                return self.scale(ca, self.add(x, y))
            if ca == -cb and ca != -1.0 and cb != -1.0:
                return self.scale(ca, self.sub(x, y))
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
        if kind in FLOATS:
            (ca, x), (cb, y) = self.split(a), self.split(b)
            if ca == cb != 1.0:
                return self.scale(ca, self.sub(x, y))
            if ca == -cb:
                return self.scale(ca, self.add(x, y))
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
        if kind not in FLOATS:
            return g.node("mul", (a, b) if a < b else (b, a), kind)
        if b in g.value:
            a, b = b, a
        if a in g.value:
            return self._scaled(a, b, kind)
        (ca, x), (cb, y) = self.split(a), self.split(b)
        factor = ca * cb
        if factor == 1.0 or not power_of_two(factor):
            x, y = (x, y) if factor == 1.0 else (a, b)
            return g.node("mul", (x, y) if x < y else (y, x), kind)
        # the exact factor goes to a constant of the run where there is one, else to the product
        if (g.scope[x] is g.root) != (g.scope[y] is g.root):
            x, y = (x, y) if g.scope[x] is g.root else (y, x)
            x = self.scale(abs(factor), x)
            return self.scale(math.copysign(1.0, factor), g.node("mul", (x, y) if x < y else (y, x), kind))
        return self.scale(factor, g.node("mul", (x, y) if x < y else (y, x), kind))

    def _scaled(self, c: int, n: int, kind: str) -> int:
        """A constant times a node."""
        g = self.graph
        value = float(g.value[c])
        if value == -1.0:
            return self.neg(n)
        if g.op[n] == "neg":
            return self.mul(self.neg(c), g.args[n][0])
        if g.op[n] == "mul" and g.args[n][0] in g.value:
            inner = float(g.value[g.args[n][0]])
            exact = power_of_two(value) or power_of_two(inner)
            if exact and TINY[kind] < abs(value * inner) < 1.0 / TINY[kind]:
                return self.mul(g.constant(value * inner, kind), g.args[n][1])
        return g.node("mul", (c, n), kind)

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
        if b in g.value and TINY[kind] < abs(float(g.value[b])) < 1.0 / TINY[kind]:
            return self.mul(g.constant(1.0 / float(g.value[b]), kind), a)
        (ca, x), (cb, y) = self.split(a), self.split(b)
        factor = ca / cb
        if factor != 1.0 and power_of_two(factor):
            return self.scale(factor, self.div(x, y))
        return g.node("div", (x, y) if factor == 1.0 else (a, b), kind)

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
            return self._fold(_power, kind, a, b)
        if b in g.value:
            exponent = float(g.value[b])
            if exponent.is_integer() and abs(exponent) <= 16:
                return self.power(a, int(exponent))
            if 0 < exponent <= 8 and (2 * exponent).is_integer():
                return self._half_power(a, int(exponent - 0.5))
        return g.node("pow", (a, b), kind)

    def _half_power(self, a: int, whole: int) -> int:
        """The power `whole + 1/2`; unlike the square root, a power of -inf is inf, and of -0 it is 0."""
        g = self.graph
        kind = g.kind[a]
        zero = g.zero[kind]
        result = self.unary("sqrt", a) if whole == 0 else self.mul(self.power(a, whole), self.unary("sqrt", a))
        if self.never_negative(a):
            return result
        infinite = self.compare("eq", a, g.constant(-np.inf, kind))
        other = self.select(infinite, g.constant(np.inf, kind), g.constant(np.nan, kind))
        return self.select(self.compare("gt", a, zero), result, self.select(self.compare("eq", a, zero), zero, other))

    def never_negative(self, n: int) -> bool:
        """Whether the sign bit is certainly clear unless the value is NaN, as in squares and their sums."""
        g, known = self.graph, self._signs
        work = [n]
        while work:
            m = work[-1]
            if m in known:
                work.pop()
                continue
            op, args = g.op[m], g.args[m]
            if m in g.value:
                known[m] = not np.signbit(g.value[m])
            elif op in ("abs", "exp", "exp2", "cosh") or (op == "mul" and args[0] == args[1]):
                known[m] = True
            elif op not in ("add", "mul", "div", "max", "min", "sqrt", "select"):
                known[m] = False
            else:
                parts = args[1:] if op == "select" else args
                missing = [a for a in parts if a not in known]
                if missing:
                    work += missing
                    continue
                known[m] = all(known[a] for a in parts)
            work.pop()
        return known[n]

    def compare(self, op: str, a: int, b: int) -> int:
        """`c / x > k` is `x < c / k` for positive constants and an x that is never negative: saves a division."""
        g = self.graph
        if b in g.value and g.kind[a] in FLOATS and op in ("lt", "le", "gt", "ge"):
            factor, rest = self.split(a)
            bound = float(g.value[b])
            if g.op[rest] == "div" and g.args[rest][0] in g.value and factor > 0 and bound > 0:
                above, x = g.args[rest]
                quotient = factor * float(g.value[above]) / bound
                if 1e-30 < quotient < 1e30 and self.never_negative(x):
                    return super().compare(SWAPPED[op], x, g.constant(quotient, g.kind[a]))
        return super().compare(op, a, b)

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
        if kind in FLOATS:
            neutral = g.constant(-np.inf if op == "max" else np.inf, kind)
            if neutral in (a, b):
                return b if a == neutral else a
            (ca, x), (cb, y) = self.split(a), self.split(b)
            if ca == cb and ca not in (1.0, -1.0) and ca > 0:
                return self.scale(ca, self.extremum(op, x, y))
        return g.node(op, (a, b) if a < b else (b, a), kind)

    def unary(self, op: str, a: int) -> int:
        """A function of one number; the result has the type of the argument."""
        g = self.graph
        kind = g.kind[a]
        if a in g.value and op in _FOLD_UNARY:
            return self._fold(_FOLD_UNARY[op], kind, a)
        if op == "abs" and kind in FLOATS:
            factor, rest = self.split(a)
            if factor != 1.0:
                return self.scale(abs(factor), self.unary("abs", rest))
            if g.op[a] in ("abs", "sqrt"):
                return a
        if kind in FLOATS and g.op[a] == "neg":
            if op in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "erf_inv", "cbrt"):
                return self.neg(self.unary(op, g.args[a][0]))
            if op in ("cos", "cosh"):
                return self.unary(op, g.args[a][0])
        return g.node(op, (a,), kind)

    def binary(self, op: str, a: int, b: int) -> int:
        g = self.graph
        if self._both(a, b):
            return self._fold({"atan2": np.arctan2, "nextafter": np.nextafter}[op], g.kind[a], a, b)
        if op == "nextafter" and g.kind[a] == "f4":
            return self._next_single(a, b)
        return g.node(op, (a, b), g.kind[a])

    def _next_single(self, a: int, b: int) -> int:
        """The neighbor of a 32-bit float: one more or one less as an integer. (Functions are computed in 64 bits.)"""
        g = self.graph
        one, zero = g.one["i4"], g.zero["f4"]
        bits = self.bitcast(a, "i4")
        up = self.compare("eq", self.compare("lt", a, b), self.compare("gt", a, zero))
        near = self.bitcast(self.add(bits, self.select(up, one, self.neg(one))), "f4")
        sign = self.bits("and", self.bitcast(b, "i4"), g.constant(-(2**31), "i4"))
        least = self.bitcast(self.bits("or", sign, one), "f4")
        moved = self.select(self.compare("eq", a, zero), least, near)
        different = self.select(self.compare("eq", a, b), b, moved)
        ordered = self.bits("and", self.compare("eq", a, a), self.compare("eq", b, b))
        return self.select(ordered, different, self.add(a, b))

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

    def apply(self, op: str, args: tuple[int, ...], kind: str, attr: object = None) -> int:
        """An operation by name, simplified."""
        if op in ("add", "sub", "mul", "div", "neg", "select"):
            return getattr(self, op)(*args)
        if op in ("max", "min"):
            return self.extremum(op, *args)
        if op in _FOLD_UNARY and op != "is_finite":
            return self.unary(op, *args)
        return self.graph.node(op, args, kind, attr)

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
        found = g.in_memory(np.array(items, np.int64))
        if found is not None:
            return g.node("fetch", (self.place(found[1], self.convert(index, "i8")),), kind, found[0], 0)
        table = g.node("table", tuple(items), kind, None, 0)
        return g.node("load", (table, index), kind, None, 0)

    def place(self, places: np.ndarray, index: int) -> int:
        """`places[index]`: by arithmetic where the places are evenly spaced."""
        start, step = int(places[0]), int(places[1] - places[0])
        if (np.diff(places) == step).all():
            return self.add(self.mul(index, self.const(step, "i8")), self.const(start, "i8"))
        return self.pick([self.const(k, "i8") for k in places.tolist()], index)

    def fold_tree(self, fn: Callable[[int, int], int], items: list[int]) -> int:
        """A balanced tree of pairwise combinations: short chains and small rounding errors."""
        while len(items) > 1:
            pairs = [fn(items[i], items[i + 1]) for i in range(0, len(items) - 1, 2)]
            items = pairs + items[len(items) & ~1 :]
        return items[0]
