"""The terms of a Lagrangian: `L = v^T M(q) v / 2 + A(q, t) . v - V(q, t)`, and what they depend on."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.errors import InputError
from .expressions import Code, encode
from .library import sympy_module

DIGITS = 50  # precision of evaluation
EQUAL_DIGITS = 35  # digits in which two values must agree to count as equal
Monomial = tuple[int, ...]  # indices of speeds, in order: (0, 0, 2) is v_0^2 v_2


class Symbols(NamedTuple):
    """The symbols of an expression after coordinates, speeds and time are replaced by plain symbols."""

    q: tuple[Any, ...]
    v: tuple[Any, ...]
    t: Any
    params: dict[Any, str]

    @property
    def places(self) -> dict[Any, Any]:
        """Where the values of symbols come from."""
        own = {x: ("q", k) for k, x in enumerate(self.q)} | {x: ("v", k) for k, x in enumerate(self.v)}
        return own | {self.t: ("t", None)} | {x: ("params", name) for x, name in self.params.items()}

    def code(self, expressions: Iterable[Any]) -> Code:
        return encode(expressions, self.places)


class Lagrangian(NamedTuple):
    """`mass[i][j]`, `vector[i]` and `potential`."""

    mass: list[list[Any]]
    vector: list[Any]
    potential: Any


def split(lagrangian: Any, symbols: Symbols, show: Callable[[Any], str]) -> Lagrangian:
    """The parts of a Lagrangian that is at most quadratic in the speeds."""
    sympy = sympy_module()

    n = len(symbols.q)
    parts = Polynomials(symbols.v, show).of(lagrangian)
    for monomial, part in parts.items():
        if len(monomial) > 2 and not vanishes(part, symbols):
            term = part * sympy.Mul(*(symbols.v[k] for k in monomial))
            raise InputError(
                f"the Lagrangian must be at most quadratic in the speeds; it contains {show(term)}, of degree "
                f"{len(monomial)}"
            )
    part = lambda *monomial: parts.get(tuple(sorted(monomial)), sympy.Integer(0))
    mass = [[part(i, j) * (2 if i == j else 1) for j in range(n)] for i in range(n)]
    return Lagrangian(mass, [part(i) for i in range(n)], -part())


class Polynomials:
    """Expressions as polynomials in the speeds, whose coefficients are left as they are."""

    def __init__(self, speeds: Sequence[Any], show: Callable[[Any], str]):
        self.place = {x: k for k, x in enumerate(speeds)}
        self.speeds, self.show = frozenset(speeds), show
        self.known: dict[Any, dict[Monomial, Any]] = {}

    def of(self, x: Any) -> dict[Monomial, Any]:
        """Monomial -> coefficient."""
        sympy = sympy_module()

        if x not in self.known:
            if x in self.place:
                found = {(self.place[x],): sympy.Integer(1)}
            elif not (x.free_symbols & self.speeds):
                found = {(): x}
            elif x.is_Add:
                found = _collected(pair for term in x.args for pair in self.of(term).items())
            elif x.is_Mul:
                found = functools.reduce(_product, (self.of(factor) for factor in x.args))
            elif x.is_Pow and x.exp.is_Integer and x.exp > 0:
                found = functools.reduce(_product, [self.of(x.base)] * int(x.exp))
            else:
                raise InputError(
                    "the Lagrangian must be at most quadratic in the speeds, which gives M(q); it contains "
                    f"{self.show(x)}"
                )
            self.known[x] = found
        return self.known[x]


def _collected(pairs: Iterable[tuple[Monomial, Any]]) -> dict[Monomial, Any]:
    sympy = sympy_module()

    found: dict[Monomial, list[Any]] = {}
    for monomial, part in pairs:
        found.setdefault(monomial, []).append(part)
    return {monomial: sympy.Add(*parts) for monomial, parts in found.items()}


def _product(a: Mapping[Monomial, Any], b: Mapping[Monomial, Any]) -> dict[Monomial, Any]:
    return _collected((tuple(sorted(m + n)), x * y) for (m, x), (n, y) in itertools.product(a.items(), b.items()))


# ---- dependence, found by evaluation to many digits at random points


class Probe:
    """Values of expressions at random points of both signs, to `DIGITS` digits."""

    def __init__(self, expressions: Sequence[Any], symbols: Symbols):
        self.code, self.symbols = symbols.code(expressions), symbols
        draws = random.Random(0)
        self.points = [self._point(draws, signs) for signs in ((1,), (-1,), (1, -1), (1, -1))]

    def _point(self, draws: random.Random, signs: Sequence[int]) -> dict[str, Any]:
        import mpmath

        # sizes from 0.5 to 2
        draw = lambda: draws.choice(signs) * mpmath.mpf(draws.randint(2**40, 2**42)) / 2**41
        n = len(self.symbols.q)
        params = {name: draw() for name in dict.fromkeys(self.symbols.params.values())}
        return {"q": [draw() for _ in range(n)], "v": [draw() for _ in range(n)], "t": draw(), "params": params}

    def values(self, symbol: Any = None) -> list[list[Any]]:
        """The values at every point, with zero for a coordinate or the time; None if a value is not real."""
        import mpmath

        rows = []
        with mpmath.workdps(DIGITS):
            for point in self.points:
                q = [
                    mpmath.mpf(0) if x == symbol else value for x, value in zip(self.symbols.q, point["q"], strict=True)
                ]
                t = mpmath.mpf(0) if symbol == self.symbols.t else point["t"]
                try:
                    row = self.code.precise({**point, "q": q, "t": t})
                except (ZeroDivisionError, ValueError, TypeError, OverflowError):
                    row = [None] * len(self.code.outputs)
                real = lambda x: x is not None and mpmath.isfinite(x) and mpmath.im(x) == 0
                rows.append([mpmath.re(x) if real(x) else None for x in row])
        return rows


def vanishes(expression: Any, symbols: Symbols) -> bool:
    """Whether an expression is zero everywhere."""
    if expression == 0:
        return True
    probe = Probe([expression], symbols)
    known = [] if probe.code.rough else [x for row in probe.values() for x in row if x is not None]
    return bool(known) and all(abs(x) < 10.0**-EQUAL_DIGITS for x in known)


def reduced(expressions: Sequence[Any], symbols: Symbols) -> list[Any]:
    """The expressions, with zero for every coordinate (or time) on which they do not depend.

    So `cos(q)^2 + sin(q)^2` becomes 1 without a search for identities. Values at random points are compared to many
    digits. Functions that are not analytic are not changed.
    """
    sympy = sympy_module()

    found = [sympy.sympify(x) for x in expressions]
    for symbol in (*symbols.q, symbols.t):
        for k in _independent(found, symbol, symbols):
            found[k] = found[k].xreplace({symbol: sympy.Integer(0)})
    return [sympy.Integer(0) if x.free_symbols and vanishes(x, symbols) else x for x in found]


def _independent(expressions: Sequence[Any], symbol: Any, symbols: Symbols) -> list[int]:
    """Which expressions contain a symbol without depending on it."""
    places = [k for k, x in enumerate(expressions) if symbol in x.free_symbols]
    groups = [places] if places else []
    found = []
    while groups:
        group = groups.pop()
        probe = Probe([expressions[k] for k in group], symbols)
        here, there = probe.values(), probe.values(symbol)
        if len(group) > 1 and (probe.code.rough or all(x is None for x in there[0])):  # one of them spoils the group
            groups += [[k] for k in group]
        elif not probe.code.rough:
            found += [k for i, k in enumerate(group) if _equal([x[i] for x in here], [x[i] for x in there])]
    return found


def _equal(here: Sequence[Any], there: Sequence[Any]) -> bool:
    """Whether values agree wherever they are defined."""
    import mpmath

    known = [(a, b) for a, b in zip(here, there, strict=True) if a is not None]
    if not known or any(b is None for _, b in known):
        return False
    with mpmath.workdps(DIGITS):
        return all(abs(a - b) <= mpmath.mpf(10) ** -EQUAL_DIGITS * (abs(a) + abs(b)) for a, b in known)


# ---- vector fields that are gradients

MAX_TERMS, MAX_FACTOR = 200, 60  # limits of integration: terms, and operations per factor


def gradient_of(field: Sequence[Any], symbols: Symbols) -> Any | None:
    """A function of q (and t) whose gradient is the field, or None if there is none or it was not found."""
    sympy = sympy_module()

    rest, total = list(field), sympy.Integer(0)
    for k, x in enumerate(symbols.q):
        part = antiderivative(rest[k], x)
        if part is None:
            return None
        total += part
        rest = [y - sympy.diff(part, z) for y, z in zip(rest, symbols.q, strict=True)]
    return total if all(vanishes(y, symbols) for y in rest) else None


def antiderivative(expression: Any, x: Any) -> Any | None:
    """The integral over x of a sum of short products, or None."""
    sympy = sympy_module()

    expression = sympy.expand(expression)
    terms = sympy.Add.make_args(expression)
    if len(terms) > MAX_TERMS:
        return None
    total = sympy.Integer(0)
    for term in terms:
        constant, factor = term.as_independent(x, as_Add=False)
        if sympy.count_ops(factor) > MAX_FACTOR:
            return None
        integral = _integral(factor, x)
        if integral is None:
            return None
        total += constant * integral
    return total


@functools.lru_cache(1024)
def _integral(factor: Any, x: Any) -> Any | None:
    sympy = sympy_module()
    manualintegrate = sympy_module("sympy.integrals.manualintegrate").manualintegrate

    found = manualintegrate(factor, x)
    return None if found.has(sympy.Integral) else found
