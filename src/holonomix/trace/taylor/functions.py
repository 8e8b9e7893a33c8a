"""Taylor coefficients of functions from the differential equations that they satisfy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from jax import lax

from ..special import digamma
from .arithmetic import minus, over, scaled, weighted
from .series import Node, Order, Rule, Series, SeriesProgram, recurrence


@recurrence("exp")
def _exp(node: Node, n: Order) -> Any:
    return scaled(weighted(node.inputs[0], node.output, n), 1.0 / n)


@recurrence("exp2")
def _exp2(node: Node, n: Order) -> Any:
    return scaled(weighted(node.inputs[0], node.output, n), math.log(2.0) / n)


@recurrence("expm1")
def _expm1(node: Node, n: Order) -> Any:
    if "whole" not in node.memory:
        node.memory["whole"] = Series(node.output[0] + 1.0)
    whole = node.memory["whole"]
    whole.put(n, scaled(weighted(node.inputs[0], whole, n), 1.0 / n))
    return whole[n]


@recurrence("log")
def _log(node: Node, n: Order) -> Any:
    (a,), c = node.inputs, node.output
    return over(minus(a[n], scaled(weighted(c, a, n, n - 1), 1.0 / n)), a[0])


@recurrence("log1p")
def _log1p(node: Node, n: Order) -> Any:
    (a,), c = node.inputs, node.output
    if "shifted" not in node.memory:
        node.memory["shifted"] = Series(a[0] + 1.0)
    b = node.memory["shifted"]
    b.put(n, a[n])
    return over(minus(a[n], scaled(weighted(c, b, n, n - 1), 1.0 / n)), b[0])


def _pair(first: Callable[..., Any], second: Callable[..., Any], sign: float, shown: int) -> Rule:
    """`s' = c a'`, `c' = sign s a'` together: sine and cosine, or their hyperbolic forms."""

    def rule(node: Node, n: Order) -> Any:
        (a,) = node.inputs
        if "s" not in node.memory:
            node.memory |= {"s": Series(first(a[0])), "c": Series(second(a[0]))}
        s, c = node.memory["s"], node.memory["c"]
        new_s, new_c = weighted(a, c, n), weighted(a, s, n)
        s.put(n, scaled(new_s, 1.0 / n))
        c.put(n, scaled(new_c, sign / n))
        return (s, c)[shown][n]

    return rule


class _Expression:
    """The series of `fn(*inputs)`, one order behind its inputs."""

    def __init__(self, fn: Callable[..., Any], *inputs: Series):
        self.program = SeriesProgram(lambda *x: [fn(*x)], inputs)
        (self.value,) = self.program.results

    def advance(self, n: Order) -> None:
        self.program.advance(n)

    def series(self) -> Iterator[Series]:
        yield from self.program.series()


def _integral(slope: Callable[[Node], _Expression]) -> Rule:
    """`c' = w a'`, where `slope(node)` makes the series of w, whose coefficients up to n - 1 are needed."""

    def rule(node: Node, n: Order) -> Any:
        if "slope" not in node.memory:
            node.memory["slope"] = slope(node)
        else:
            node.memory["slope"].advance(n - 1)
        return scaled(weighted(node.inputs[0], node.memory["slope"].value, n), 1.0 / n)

    return rule


def _of_input(fn: Callable[[Any], Any]) -> Rule:
    return _integral(lambda node: _Expression(fn, node.inputs[0]))


def _of_output(fn: Callable[[Any], Any]) -> Rule:
    """`c' = fn(c) a'`, where the slope depends on the value itself."""
    return _integral(lambda node: _Expression(fn, node.output))


@recurrence("atan2")
def _atan2(node: Node, n: Order) -> Any:
    """`c' = (x y' - y x') / (x^2 + y^2)`."""
    if "r2" not in node.memory:
        y, x = (v if isinstance(v, Series) else Series(jnp.broadcast_to(v, node.output.shape)) for v in node.inputs)
        node.memory |= {"y": y, "x": x, "r2": _Expression(lambda y, x: x * x + y * y, y, x)}
    else:
        node.memory["r2"].advance(n - 1)
    y, x, r2 = node.memory["y"], node.memory["x"], node.memory["r2"].value
    top = minus(weighted(y, x, n), weighted(x, y, n))
    top = minus(top, weighted(node.output, r2, n, n - 1))
    return over(scaled(top, 1.0 / n), r2[0])


_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)

recurrence("sin")(_pair(jnp.sin, jnp.cos, -1.0, 0))
recurrence("cos")(_pair(jnp.sin, jnp.cos, -1.0, 1))
recurrence("sinh")(_pair(jnp.sinh, jnp.cosh, 1.0, 0))
recurrence("cosh")(_pair(jnp.sinh, jnp.cosh, 1.0, 1))
recurrence("tan")(_of_output(lambda c: 1.0 + c * c))
recurrence("tanh")(_of_output(lambda c: 1.0 - c * c))
recurrence("logistic")(_of_output(lambda c: c * (1.0 - c)))
recurrence("atan")(_of_input(lambda a: 1.0 / (1.0 + a * a)))
recurrence("asin")(_of_input(lambda a: 1.0 / jnp.sqrt(1.0 - a * a)))
recurrence("acos")(_of_input(lambda a: -1.0 / jnp.sqrt(1.0 - a * a)))
recurrence("asinh")(_of_input(lambda a: lax.rsqrt(1.0 + a * a)))
recurrence("acosh")(_of_input(lambda a: 1.0 / jnp.sqrt(a * a - 1.0)))
recurrence("atanh")(_of_input(lambda a: 1.0 / ((1.0 - a) * (1.0 + a))))
recurrence("erf")(_of_input(lambda a: _TWO_OVER_ROOT_PI * jnp.exp(-a * a)))
recurrence("erfc")(_of_input(lambda a: -_TWO_OVER_ROOT_PI * jnp.exp(-a * a)))
recurrence("erf_inv")(_of_output(lambda c: 1.0 / _TWO_OVER_ROOT_PI * jnp.exp(c * c)))
recurrence("lgamma")(_of_input(digamma))
