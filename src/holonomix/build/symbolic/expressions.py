"""SymPy expressions as straight-line programs of JAX operations.

A `Code` is a list of operations on numbered values. Equal subexpressions get one number, so they are computed once. A
code is plain data without SymPy objects or source text, and codes of the same operations compare equal. Systems run it
with JAX; the analysis of expressions runs it with mpmath to many digits.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ...core.errors import InputError
from .library import sympy_module

Place = tuple[str, int | str | None]  # where an input comes from: ("q", 2), ("params", "length"), ("t", None)

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "pow": operator.pow,
}
RELATIONS: dict[str, Callable[..., Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
# the operations of `jax.lax`, which are traced several times faster than those of `jax.numpy`
LAX = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "neg": "neg", "pow": "integer_pow", "power": "pow"}
LAX |= {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "maximum": "max", "minimum": "min"}
LAX |= {
    name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "sqrt", "atan2", "sign", "erf")
}
LAX |= {"asin": "asin", "acos": "acos", "atan": "atan", "where": "select", "Abs": "abs", "floor": "floor"}
# SymPy's name of a function -> its names in JAX and in mpmath
FUNCTIONS = {name: (name, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "sqrt", "sinc")}
FUNCTIONS |= {f"a{name}": (f"arc{name}", f"a{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
FUNCTIONS |= {"atan2": ("arctan2", "atan2"), "Abs": ("abs", "fabs"), "sign": ("sign", "sign")}
FUNCTIONS |= {"floor": ("floor", "floor"), "ceiling": ("ceil", "ceil")}
SPECIAL = {"erf": "erf", "erfc": "erfc", "gamma": "gamma", "loggamma": "gammaln", "digamma": "digamma"}  # in jax.scipy
RECIPROCALS = {"sec": "cos", "csc": "sin", "cot": "tan", "sech": "cosh", "csch": "sinh", "coth": "tanh"}
NOT_ANALYTIC = ("Abs", "sign", "floor", "ceiling", "maximum", "minimum", "step", "where", "mod")


@functools.cache
def _jax_operations() -> dict[str, Callable[..., Any]]:
    own = {name: getattr(jnp, names[0]) for name, names in FUNCTIONS.items()}
    own |= {name: getattr(jax.scipy.special, other) for name, other in SPECIAL.items()}
    own |= {"sinc": lambda x: jnp.sinc(x / jnp.pi), "power": jnp.power, "mod": jnp.mod}
    own |= {"maximum": jnp.maximum, "minimum": jnp.minimum, "where": jnp.where, "step": jnp.heaviside}
    own |= {"and": jnp.logical_and, "or": jnp.logical_or, "not": jnp.logical_not}
    return RELATIONS | own | {name: getattr(jax.lax, other) for name, other in LAX.items()}


@functools.cache
def _mpmath_operations() -> dict[str, Callable[..., Any]]:
    import mpmath

    own = {name: getattr(mpmath, names[1]) for name, names in FUNCTIONS.items()}
    own |= {name: getattr(mpmath, name) for name in SPECIAL}
    own |= {"power": mpmath.power, "mod": mpmath.fmod, "maximum": max, "minimum": min}
    own |= {"where": lambda c, a, b: a if c else b, "step": lambda x, at: at if x == 0 else mpmath.mpf(x > 0)}
    own |= {"and": lambda a, b: a and b, "or": lambda a, b: a or b, "not": operator.not_}
    return ARITHMETIC | RELATIONS | own


class Code:
    """Operations `(name, *numbers)`, constants `("number", x)`, powers `("pow", k, n)`, inputs `("input", *place)`."""

    def __init__(self, operations: Iterable[tuple[Any, ...]], outputs: Iterable[int]):
        self.operations, self.outputs = tuple(operations), tuple(outputs)
        self.digest = hashlib.sha256(repr((self.operations, self.outputs)).encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"code {self.digest[:16]}"

    @property
    def kinds(self) -> set[str]:
        """Which arguments are used: "q", "v", "t", "params"."""
        return {operation[1] for operation in self.operations if operation[0] == "input"}

    @property
    def rough(self) -> bool:
        """Whether it contains functions that are not analytic."""
        return any(operation[0] in NOT_ANALYTIC for operation in self.operations)

    def run(self, table: Mapping[str, Callable[..., Any]], given: Mapping[str, Any], number: Callable[[float], Any]):
        """The values of the outputs."""
        values: list[Any] = []
        for name, *at in self.operations:
            if name == "number":
                values.append(number(at[0]))
            elif name == "input":
                values.append(given[at[0]] if at[1] is None else given[at[0]][at[1]])
            elif name == "pow":
                values.append(table[name](values[at[0]], at[1]))
            else:
                values.append(table[name](*(values[k] for k in at)))
        return [values[k] for k in self.outputs]

    def precise(self, given: Mapping[str, Any]) -> list[Any]:
        """The outputs in mpmath's current precision."""
        import mpmath

        return self.run(_mpmath_operations(), given, _precise_number(mpmath.mp))


def _precise_number(mp: Any) -> Callable[[Any], Any]:
    return lambda x: (
        mp.mpf(x[0]) / x[1] if isinstance(x, tuple) else getattr(mp, x) if isinstance(x, str) else mp.mpf(x)
    )


def _number(x: Any, dtype: DTypeLike) -> np.ndarray:
    """A constant: a number, a quotient of two integers, or `pi` or `e`."""
    if isinstance(x, bool):
        return np.asarray(x)
    return np.asarray(x[0] / x[1] if isinstance(x, tuple) else getattr(math, x) if isinstance(x, str) else x, dtype)


class Expressions(eqx.Module):
    """Expressions as a function of the arguments named in `takes`, with values of a fixed shape."""

    code: Code = eqx.field(static=True)
    takes: tuple[str, ...] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, *args: PyTree) -> Any:
        given = dict(zip(self.takes, args, strict=True))
        dtype = jnp.result_type(float)
        used = {operation[1:] for operation in self.code.operations if operation[0] == "input"}
        for kind in {"q", "v"} & {kind for kind, _ in used}:  # one operation for all entries
            given[kind] = [jax.lax.convert_element_type(x, dtype) for x in given[kind]]
        if "t" in given:
            given["t"] = jnp.asarray(given["t"], dtype)
        if "params" in given:
            given["params"] = {name: jnp.asarray(x, dtype) for name, x in given["params"].items()}
        values = self.code.run(_jax_operations(), given, lambda x: _number(x, dtype))
        return jnp.stack(values).reshape(self.shape) if self.shape else jnp.asarray(values[0])


class Writer:
    """Writes a `Code`; `places` says where the symbols come from."""

    def __init__(self, places: Mapping[Any, Place]):
        self.places = places
        self.operations: list[tuple[Any, ...]] = []
        self.known: dict[Any, int] = {}  # operation -> its number
        self.numbers: dict[Any, int] = {}  # expression -> its number

    def emit(self, *operation: Any) -> int:
        """The number of the value of an operation; the same operation is not repeated."""
        key = (*operation, type(operation[1]))  # 1 and 1.0 are equal keys
        if key not in self.known:
            self.known[key] = len(self.operations)
            self.operations.append(operation)
        return self.known[key]

    def write(self, expression: Any) -> int:
        """The number of the value of an expression; operands come first, on a stack because expressions may be deep."""
        stack = [expression]
        while stack:
            x = stack[-1]
            if x in self.numbers:
                stack.pop()
                continue
            missing = [y for y in _operands(x) if y not in self.numbers]
            if missing:
                stack += missing
            else:
                self.numbers[x] = self._operation(x)
                stack.pop()
        return self.numbers[expression]

    def _operation(self, x: Any) -> int:
        sympy = sympy_module()

        if x in self.places:
            return self.emit("input", *self.places[x])
        if x.is_Boolean and x in (sympy.true, sympy.false):
            return self.emit("number", bool(x))
        if x.is_number and not x.args:
            return self._constant(x)
        at = [self.numbers[y] for y in _operands(x)]
        if x.is_Add:
            return self._sum(x)
        if x.is_Mul:
            return self._product(x)
        if x.is_Pow:
            return self._power(x)
        name = type(x).__name__
        if name in FUNCTIONS or name in SPECIAL:
            return self.emit(name, *at)
        if name in RECIPROCALS:
            return self.emit("div", self.emit("number", 1.0), self.emit(RECIPROCALS[name], *at))
        if name in ("Max", "Min", "And", "Or"):
            kind = {"Max": "maximum", "Min": "minimum", "And": "and", "Or": "or"}[name]
            return functools.reduce(lambda a, b: self.emit(kind, a, b), at)
        if name == "Heaviside":
            return self.emit("step", *at)
        if name == "Mod":
            return self.emit("mod", *at)
        if name == "Not":
            return self.emit("not", *at)
        if isinstance(x, sympy.core.relational.Relational):
            return self.emit(x.rel_op, *at)
        if name == "Piecewise":
            return self._piecewise(x)
        if name in ("Symbol", "Dummy"):
            raise InputError(f"the symbol {x} has no value: give it in parameters={{...}}")
        raise InputError(f"{name} in {_short(x)} is not available in JAX: rewrite it with elementary functions")

    def _constant(self, x: Any) -> int:
        sympy = sympy_module()

        if x.is_Rational:
            return self.emit("number", float(x) if x.is_Integer else (int(x.p), int(x.q)))
        if x in (sympy.pi, sympy.E):
            return self.emit("number", "pi" if x is sympy.pi else "e")
        if x.is_real is False or x.is_finite is False:
            raise InputError(f"the expression contains {x}, which is not a real number")
        return self.emit("number", float(x))

    def _sum(self, x: Any) -> int:
        total: int | None = None
        for term in x.args:
            negative = term.is_Mul and term.args[0].is_Rational and term.args[0] == -1
            if negative and total is not None:
                rest = self.numbers.get(-term)
                if rest is None:
                    rest = self._factors(term.args[1:])
                total = self.emit("sub", total, rest)
            else:
                at = self.numbers[term]
                total = at if total is None else self.emit("add", total, at)
        assert total is not None
        return total

    def _product(self, x: Any) -> int:
        factors = list(x.args)
        negative = factors[0].is_Rational and factors[0] == -1
        number = self._factors(factors[1:] if negative else factors)
        return self.emit("neg", number) if negative else number

    def _factors(self, factors: Sequence[Any]) -> int:
        """A product; factors with negative exponents are divided by."""
        over, under = [], []
        for factor in factors:
            inverse = factor.is_Pow and factor.exp.is_Rational and factor.exp < 0
            (under if inverse else over).append(
                self._root(factor.base, -factor.exp) if inverse else self.numbers[factor]
            )
        times = lambda a, b: self.emit("mul", a, b)
        top = functools.reduce(times, over) if over else self.emit("number", 1.0)
        return self.emit("div", top, functools.reduce(times, under)) if under else top

    def _power(self, x: Any) -> int:
        if x.exp.is_Rational and x.exp < 0:
            return self.emit("div", self.emit("number", 1.0), self._root(x.base, -x.exp))
        return self._root(x.base, x.exp)

    def _root(self, base: Any, exponent: Any) -> int:
        at = self.numbers[base]
        if exponent.is_Integer or (exponent.is_Float and exponent == int(exponent)):
            return at if exponent == 1 else self.emit("pow", at, int(exponent))
        if exponent.is_Rational and exponent.q == 2:
            root = self.emit("sqrt", at)
            return root if exponent.p == 1 else self.emit("pow", root, int(exponent.p))
        if exponent not in self.numbers:
            self.numbers[exponent] = self._constant(exponent)
        return self.emit("power", at, self.numbers[exponent])

    def _piecewise(self, x: Any) -> int:
        *cases, (last, condition) = x.args
        total = self.numbers[last]
        if condition != True:  # noqa: E712 - SymPy's own truth value
            total = self.emit("where", self.numbers[condition], total, self.emit("number", float("nan")))
        for value, condition in reversed(cases):
            total = self.emit("where", self.numbers[condition], self.numbers[value], total)
        return total


def _operands(x: Any) -> Sequence[Any]:
    """The operands of an expression, which are computed first."""
    if x.is_Pow:
        return (x.base,) if x.exp.is_Rational or x.exp.is_Float else x.args
    if type(x).__name__ == "Piecewise":
        return [y for pair in x.args for y in pair.args]
    return x.args


def _short(x: Any) -> str:
    text = str(x)
    return text if len(text) <= 80 else text[:77] + "..."


def encode(expressions: Iterable[Any], places: Mapping[Any, Place]) -> Code:
    """The code of several expressions, which share their common subexpressions."""
    writer = Writer(places)
    outputs = [writer.write(x) for x in expressions]
    return _drop_unused(writer.operations, outputs)


def _drop_unused(operations: list[tuple[Any, ...]], outputs: list[int]) -> Code:
    """The code without operations whose values are not used."""
    used = set(outputs)
    for k in reversed(range(len(operations))):
        if k in used:
            used.update(_arguments(operations[k]))
    new = {k: number for number, k in enumerate(sorted(used))}
    kept = []
    for k in sorted(used):
        name, *at = operations[k]
        count = len(_arguments(operations[k]))
        kept.append((name, *(new[i] for i in at[:count]), *at[count:]))
    return Code(kept, [new[k] for k in outputs])


def _arguments(operation: tuple[Any, ...]) -> tuple[int, ...]:
    """The numbers of the values that an operation uses."""
    name, *at = operation
    return () if name in ("number", "input") else tuple(at[:1]) if name == "pow" else tuple(at)
