"""Taylor coefficients of products, quotients and powers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .arithmetic import convolve, inner, minus, over, plus, scaled, square, times, weighted
from .series import Node, Order, Rule, Series, recurrence


@recurrence("mul")
def _mul(node: Node, n: Order) -> Any:
    a, b = node.inputs
    if not isinstance(a, Series):
        return scaled(b[n], a)
    if not isinstance(b, Series):
        return scaled(a[n], b)
    return square(a, n) if a is b else convolve(a, b, n)


@recurrence("dot_general")
def _dot_general(node: Node, n: Order) -> Any:
    a, b = node.inputs
    if not isinstance(a, Series):
        return None if b[n] is None else node.bind(a, b[n])
    if not isinstance(b, Series):
        return None if a[n] is None else node.bind(a[n], b)
    if a.buffer is not None:
        return jnp.sum(jax.vmap(node.bind)(a.buffer, b.shifted(n, 0)), axis=0)
    total = None
    for j in range(n + 1):
        if a[j] is not None and b[n - j] is not None:
            total = plus(total, node.bind(a[j], b[n - j]))
    return total


@recurrence("div")
def _div(node: Node, n: Order) -> Any:
    a, b = node.inputs
    if not isinstance(b, Series):
        return None if a[n] is None else a[n] / b
    top = a[n] if isinstance(a, Series) else None
    return over(minus(top, convolve(b, node.output, n, 1, n)), b[0])


@recurrence("integer_pow")
def _integer_pow(node: Node, n: Order) -> Any:
    (a,), k = node.inputs, node.params["y"]
    if k == 2:
        return square(a, n)
    if k == 1:
        return a[n]
    if k < 0:
        return _power(node, n, a, float(k))
    if "product" not in node.memory:
        node.memory["product"] = Product([a] * k)
    return node.memory["product"].advance(n)


class Product:
    """A product of equal or different series by repeated halving: `a^5 = (a^2)(a^2 a)`."""

    def __init__(self, factors: list[Series]):
        self.parts: list[Product] = []
        if len(factors) == 1:
            self.value = factors[0]
            return
        half = len(factors) // 2
        left = Product(factors[:half])
        even = len(factors) % 2 == 0 and all(x is factors[0] for x in factors)
        self.parts = [left, left if even else Product(factors[half:])]
        self.value = Series(self.parts[0].value[0] * self.parts[1].value[0])

    def advance(self, n: Order) -> Any:
        """Coefficient n; the factors must hold theirs."""
        if self.parts:
            left, right = self.parts
            left.advance(n)
            if right is not left:
                right.advance(n)
            a, b = left.value, right.value
            self.value.put(n, square(a, n) if a is b else convolve(a, b, n))
        return self.value[n]

    def series(self) -> Iterator[Series]:
        if self.parts:
            yield self.value
            for part in self.parts:
                yield from part.series()


def _power(node: Node, n: Order, a: Series, k: jax.Array | np.ndarray | float) -> Any:
    """`a^k` with a constant exponent, by `n a^[0] c^[n] = sum_j (j k - (n - j)) a^[j] c^[n-j]`."""
    c = node.output
    if a.buffer is not None:
        j = jnp.arange(1, len(a.buffer)).reshape((-1,) + (1,) * len(a.shape))
        return jnp.sum(((j * k - (n - j)) / n) * a.buffer[1:] * c.shifted(n, 1), axis=0) / a[0]
    weight = lambda j: (j * k - (n - j)) / n
    total, rest = inner(a, c, n, weight)
    for j in rest:
        if a[j] is not None and c[n - j] is not None:
            total = plus(total, weight(j) * times(a[j], c[n - j]))
    return over(total, a[0])


# sqrt too is computed by the power rule: the shorter recurrence over s^[j] s^[n-j] loses several more digits
recurrence("sqrt")(lambda node, n: _power(node, n, node.inputs[0], 0.5))
recurrence("rsqrt")(lambda node, n: _power(node, n, node.inputs[0], -0.5))
recurrence("cbrt")(lambda node, n: _power(node, n, node.inputs[0], 1.0 / 3.0))
recurrence("square")(lambda node, n: square(node.inputs[0], n))


@recurrence("pow")
def _pow(node: Node, n: Order) -> Any:
    a, k = node.inputs
    if not isinstance(k, Series):
        return _power(node, n, a, k)
    # a^k = exp(k log a)
    if "exponent" not in node.memory:
        base = a if isinstance(a, Series) else Series(jnp.broadcast_to(a, node.output.shape))
        log = Series(jnp.log(base[0]))
        node.memory |= {"base": base, "log": log, "exponent": Series(k[0] * log[0])}
    memory = node.memory
    base, log, exponent = memory["base"], memory["log"], memory["exponent"]
    top = minus(base[n], scaled(weighted(log, base, n, n - 1), 1.0 / n))
    log.put(n, over(top, base[0]))
    exponent.put(n, convolve(k, log, n))
    return scaled(weighted(exponent, node.output, n), 1.0 / n)


# -- monomials -------------------------------------------------------------------------------------------------------
#
# Derivatives of roots and reciprocals are chains of products and quotients of powers of one value: the gradient of
# 1/sqrt(x) is -1/(2 sqrt(x) x). Such a chain is one power, `factor base^exponent`, and costs one recurrence.


def monomial(node: Node) -> tuple[Any, Rule]:
    """What a node is as a power of another series, or None, and the rule that serves it best."""
    found = _as_power(node)
    return (None, node.rule) if found is None else (found, _monomial_rule)


def _as_power(node: Node) -> Any:
    name, shape = node.name, node.output.shape
    if name not in ("mul", "div", "neg", "square", "integer_pow", "sqrt", "rsqrt"):
        return None
    parts = []
    for x in node.inputs:
        if isinstance(x, Series):
            parts.append(x.monomial or (x, 1.0, 1.0))
        elif np.shape(x) in ((), shape):
            parts.append((None, 0.0, x))
    if len(parts) != len(node.inputs) or any(b is not None and b.shape != shape for b, _, _ in parts):
        return None
    base, k, c = parts[0]
    if name == "neg":
        return base, k, -c
    if name in ("square", "integer_pow"):
        y = 2 if name == "square" else node.params["y"]
        return base, k * y, c**y
    if name in ("sqrt", "rsqrt"):  # a root of an even power would lose the sign
        plain = k == 1.0 and isinstance(c, float) and c == 1.0
        return (base, 0.5 if name == "sqrt" else -0.5, 1.0) if plain else None
    other, m, d = parts[1]
    if base is not None and other is not None and base is not other:
        return None
    base = other if base is None else base
    return (base, k + m, c * d) if name == "mul" else (base, k - m, c / d)


def _monomial_rule(node: Node, n: Order) -> Any:
    base, k, factor = node.output.monomial
    if k == 0.0:
        return None
    if k == 1.0:
        return scaled(base[n], factor)
    if k == 2.0:
        return scaled(square(base, n), factor)
    if k > 0 and k == int(k):
        if "product" not in node.memory:
            node.memory["product"] = Product([base] * int(k))
        return scaled(node.memory["product"].advance(n), factor)
    return _power(node, n, base, k)


@recurrence("reduce_prod")
def _reduce_prod(node: Node, n: Order) -> Any:
    """A product along axes, one factor after the other."""
    (a,), axes = node.inputs, node.params["axes"]
    if "product" not in node.memory:
        order = (*axes, *(k for k in range(len(a.shape)) if k not in axes))
        rest = tuple(a.shape[k] for k in order[len(axes) :])
        count = math.prod(a.shape[k] for k in axes)
        node.memory |= {"order": tuple(order), "rest": rest, "count": count}
        node.memory["factors"] = [Series(x) for x in _leading(a[0], node.memory)]
        node.memory["product"] = Product(node.memory["factors"])
    memory = node.memory
    parts = [None] * memory["count"] if a[n] is None else _leading(a[n], memory)
    for factor, term in zip(memory["factors"], parts, strict=True):
        factor.put(n, term)
    return memory["product"].advance(n)


def _leading(x: PyTree, memory: dict[str, Any]) -> list[Any]:
    flat = jnp.transpose(x, memory["order"]).reshape((memory["count"], *memory["rest"]))
    return [flat[k] for k in range(memory["count"])]
