r"""The n-th Taylor coefficient of every elementary operation, from lower ones.

With normalized coefficients `a^[n] = a^(n)/n!` and sums over j (Moore 1966; Jorba & Zou 2005, section 2):

    (a b)^[n]  = sum a^[j] b^[n-j]                        (a/b)^[n] = (a^[n] - sum_{j>=1} b^[j] (a/b)^[n-j]) / b^[0]
    a^k:   n a^[0] c^[n] = sum_{j>=1} (j k - (n - j)) a^[j] c^[n-j]
    exp:   n c^[n] = sum_{j>=1} j a^[j] c^[n-j]           sin, cos together; atan, asin, erf, ... by their derivative
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .series import Node, Series, SeriesProgram, center, convolve, minus, over, plus, scaled, square, times

__all__ = ["RULES", "monomial"]

Rule = Callable[[Node, Any], Any]


# -- operations that act on every coefficient alone ------------------------------------------------------------------

_LINEAR = {
    "neg", "reshape", "broadcast_in_dim", "transpose", "slice", "squeeze", "expand_dims", "reduce_sum", "cumsum", "rev",
    "convert_element_type", "copy", "copy_p", "reduce_precision", "real", "imag", "concatenate", "pad", "gather",
    "scatter-add", "scatter_add", "scatter", "dynamic_slice", "dynamic_update_slice", "add", "sub", "add_any",
}  # fmt: skip

# positions of the arguments that are numbers; the others (indices) are kept
_VALUES = {
    "gather": (0,),
    "scatter-add": (0, 2),
    "scatter_add": (0, 2),
    "scatter": (0, 2),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
}


def _linear(node: Node, n: Any) -> Any:
    return _apply_linear(node, [x[n] if isinstance(x, Series) else None for x in node.inputs])


def _apply_linear(node: Node, terms: list[Any]) -> Any:
    """The operation on one term of each input, None standing for zero; indices are those of the center."""
    name = node.name
    values = _VALUES.get(name, range(len(node.inputs)))
    if all(terms[k] is None for k in values):
        return None
    if name in ("add", "add_any", "sub") and any(t is None for t in terms):
        left, right = terms
        shape = node.output.shape
        result = left if right is None else (-right if name == "sub" else right)
        return jnp.broadcast_to(result, shape) if jnp.shape(result) != shape else result
    centers = [center(x) for x in node.inputs]
    filled = [jnp.zeros(jnp.shape(c), jnp.result_type(c)) if t is None else t for t, c in zip(terms, centers)]
    return node.bind(*(x if k in values else centers[k] for k, x in enumerate(filled)))


def _select(node: Node, n: Any) -> Any:
    """`which` follows the center; the cases go coefficient by coefficient."""
    which, *cases = node.inputs
    terms = [x[n] if isinstance(x, Series) else None for x in cases]
    if all(t is None for t in terms):
        return None
    zero = jnp.zeros(node.output.shape, node.output.dtype)
    return node.bind(center(which), *(zero if t is None else t for t in terms))


# -- products and quotients ------------------------------------------------------------------------------------------


def _mul(node: Node, n: Any) -> Any:
    a, b = node.inputs
    if not isinstance(a, Series):
        return scaled(b[n], a)
    if not isinstance(b, Series):
        return scaled(a[n], b)
    return square(a, n) if a is b else convolve(a, b, n)


def _dot_general(node: Node, n: Any) -> Any:
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


def _div(node: Node, n: Any) -> Any:
    a, b = node.inputs
    if not isinstance(b, Series):
        return None if a[n] is None else a[n] / b
    top = a[n] if isinstance(a, Series) else None
    return over(minus(top, convolve(b, node.output, n, 1, n)), b[0])


def _integer_pow(node: Node, n: Any) -> Any:
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

    def advance(self, n: Any) -> Any:
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


def _power(node: Node, n: Any, a: Series, k: Any) -> Any:
    """`a^k` with a constant exponent, by `n a^[0] c^[n] = sum_j (j k - (n - j)) a^[j] c^[n-j]`."""
    c = node.output
    if a.buffer is not None:
        j = jnp.arange(1, len(a.buffer)).reshape((-1,) + (1,) * len(a.shape))
        return jnp.sum(((j * k - (n - j)) / n) * a.buffer[1:] * c.shifted(n, 1), axis=0) / a[0]
    weight = lambda j: (j * k - (n - j)) / n
    total, rest = _inner(a, c, n, weight)
    for j in rest:
        if a[j] is not None and c[n - j] is not None:
            total = plus(total, weight(j) * times(a[j], c[n - j]))
    return over(total, a[0])


def _inner(a: Series, c: Series, n: int, weight: Callable[[Any], Any]) -> tuple[Any, Sequence[int]]:
    """`sum_j weight(j) a[j] c[n - j]` over 1 < j < n, and the j that are left, the newest coefficients last."""
    window, tail = a.window(2, n - 1), c.window(1, n - 2)
    if n < 4 or window is None or tail is None:
        return None, range(1, n + 1)
    j = np.arange(2, n).reshape((-1,) + (1,) * len(a.shape))
    return lax.reduce_sum(times(weight(j) * window, lax.rev(tail, (0,))), (0,)), (1, n)


def _sqrt(node: Node, n: Any) -> Any:
    # by the power rule: the shorter recurrence over s^[j] s^[n-j] loses several more digits
    return _power(node, n, node.inputs[0], 0.5)


def _rsqrt(node: Node, n: Any) -> Any:
    return _power(node, n, node.inputs[0], -0.5)


def _cbrt(node: Node, n: Any) -> Any:
    return _power(node, n, node.inputs[0], 1.0 / 3.0)


def _pow(node: Node, n: Any) -> Any:
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
    top = minus(base[n], scaled(_weighted(log, base, n, n - 1), 1.0 / n))
    log.put(n, over(top, base[0]))
    exponent.put(n, convolve(k, log, n))
    return scaled(_weighted(exponent, node.output, n), 1.0 / n)


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


def _monomial_rule(node: Node, n: Any) -> Any:
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


# -- functions by their differential equations -------------------------------------------------------------------------


def _weighted(a: Series, c: Series, n: Any, last: Any = None) -> Any:
    """`sum_{j=1}^{last} j a[j] c[n - j]`, up to n where `last` is not given."""
    if a.buffer is not None:
        j = jnp.arange(1.0, len(a.buffer)).reshape((-1,) + (1,) * len(a.shape))
        j = j if last is None else jnp.where(j <= last, j, 0.0)
        return jnp.sum((j * a.buffer[1:]) * c.shifted(n, 1), axis=0)
    last = n if last is None else last
    total, rest = _inner(a, c, n, lambda j: np.asarray(j, float))
    for j in rest:
        if j <= last and a[j] is not None and c[n - j] is not None:
            total = plus(total, times(float(j) * a[j], c[n - j]))
    return total


def _exp(node: Node, n: Any) -> Any:
    return scaled(_weighted(node.inputs[0], node.output, n), 1.0 / n)


def _exp2(node: Node, n: Any) -> Any:
    return scaled(_weighted(node.inputs[0], node.output, n), math.log(2.0) / n)


def _expm1(node: Node, n: Any) -> Any:
    if "whole" not in node.memory:
        node.memory["whole"] = Series(node.output[0] + 1.0)
    whole = node.memory["whole"]
    whole.put(n, scaled(_weighted(node.inputs[0], whole, n), 1.0 / n))
    return whole[n]


def _log(node: Node, n: Any) -> Any:
    (a,), c = node.inputs, node.output
    return over(minus(a[n], scaled(_weighted(c, a, n, n - 1), 1.0 / n)), a[0])


def _log1p(node: Node, n: Any) -> Any:
    (a,), c = node.inputs, node.output
    if "shifted" not in node.memory:
        node.memory["shifted"] = Series(a[0] + 1.0)
    b = node.memory["shifted"]
    b.put(n, a[n])
    return over(minus(a[n], scaled(_weighted(c, b, n, n - 1), 1.0 / n)), b[0])


def _pair(first: Callable[..., Any], second: Callable[..., Any], sign: float, shown: int) -> Rule:
    """`s' = c a'`, `c' = sign s a'` together: sine and cosine, or their hyperbolic forms."""

    def rule(node: Node, n: Any) -> Any:
        (a,) = node.inputs
        if "s" not in node.memory:
            node.memory |= {"s": Series(first(a[0])), "c": Series(second(a[0]))}
        s, c = node.memory["s"], node.memory["c"]
        new_s, new_c = _weighted(a, c, n), _weighted(a, s, n)
        s.put(n, scaled(new_s, 1.0 / n))
        c.put(n, scaled(new_c, sign / n))
        return (s, c)[shown][n]

    return rule


class _Expression:
    """The series of `fn(*inputs)`, one order behind its inputs."""

    def __init__(self, fn: Callable[..., Any], *inputs: Series):
        self.program = SeriesProgram(lambda *x: [fn(*x)], inputs)
        (self.value,) = self.program.results

    def advance(self, n: Any) -> None:
        self.program.advance(n)

    def series(self) -> Iterator[Series]:
        yield from self.program.series()


def _integral(slope: Callable[[Node], _Expression]) -> Rule:
    """`c' = w a'`, where `slope(node)` makes the series of w, whose coefficients up to n - 1 are needed."""

    def rule(node: Node, n: Any) -> Any:
        if "slope" not in node.memory:
            node.memory["slope"] = slope(node)
        else:
            node.memory["slope"].advance(n - 1)
        return scaled(_weighted(node.inputs[0], node.memory["slope"].value, n), 1.0 / n)

    return rule


def _of_input(fn: Callable[[Any], Any]) -> Rule:
    return _integral(lambda node: _Expression(fn, node.inputs[0]))


def _of_output(fn: Callable[[Any], Any]) -> Rule:
    """`c' = fn(c) a'`, where the slope depends on the value itself."""
    return _integral(lambda node: _Expression(fn, node.output))


def _atan2(node: Node, n: Any) -> Any:
    """`c' = (x y' - y x') / (x^2 + y^2)`."""
    if "r2" not in node.memory:
        y, x = (v if isinstance(v, Series) else Series(jnp.broadcast_to(v, node.output.shape)) for v in node.inputs)
        node.memory |= {"y": y, "x": x, "r2": _Expression(lambda y, x: x * x + y * y, y, x)}
    else:
        node.memory["r2"].advance(n - 1)
    y, x, r2 = node.memory["y"], node.memory["x"], node.memory["r2"].value
    top = minus(_weighted(y, x, n), _weighted(x, y, n))
    top = minus(top, _weighted(node.output, r2, n, n - 1))
    return over(scaled(top, 1.0 / n), r2[0])


# -- branches ----------------------------------------------------------------------------------------------------------


def _abs(node: Node, n: Any) -> Any:
    (a,) = node.inputs
    return scaled(a[n], jnp.sign(a[0]))


def _extreme(node: Node, n: Any) -> Any:
    """`max` and `min`: the coefficient of the argument that the center takes."""
    centers = [center(x) for x in node.inputs]
    terms = [x[n] if isinstance(x, Series) else None for x in node.inputs]
    if all(t is None for t in terms):
        return None
    shape = node.output.shape
    first = jnp.equal(node.output[0], centers[0])
    left, right = (jnp.zeros(shape) if t is None else jnp.broadcast_to(t, shape) for t in terms)
    return jnp.where(first, left, right)


def _reduce_extreme(node: Node, n: Any) -> Any:
    """`reduce_max` and `reduce_min`: the coefficients of the entry that is first attained."""
    (a,) = node.inputs
    if a[n] is None:
        return None
    axes = node.params["axes"]
    hit = jnp.equal(a[0], lax.expand_dims(node.output[0], axes))
    share = hit / jnp.sum(hit, axis=axes, keepdims=True)
    return jnp.sum(share * a[n], axis=axes)


def _flat(node: Node, n: Any) -> Any:
    """Functions that are constant between jumps."""
    return None


def _clamp(node: Node, n: Any) -> Any:
    low, x, high = node.inputs
    if not isinstance(x, Series) or x[n] is None:
        return None
    return jnp.where((x[0] > center(low)) & (x[0] < center(high)), x[n], 0.0)


def _reduce_prod(node: Node, n: Any) -> Any:
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


def _leading(x: Any, memory: dict[str, Any]) -> list[Any]:
    flat = jnp.transpose(x, memory["order"]).reshape((memory["count"], *memory["rest"]))
    return [flat[k] for k in range(memory["count"])]


_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_LINEAR, _linear),
    "select_n": _select,
    "mul": _mul,
    "dot_general": _dot_general,
    "div": _div,
    "integer_pow": _integer_pow,
    "square": lambda node, n: square(node.inputs[0], n),
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "cbrt": _cbrt,
    "pow": _pow,
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "sin": _pair(jnp.sin, jnp.cos, -1.0, 0),
    "cos": _pair(jnp.sin, jnp.cos, -1.0, 1),
    "sinh": _pair(jnp.sinh, jnp.cosh, 1.0, 0),
    "cosh": _pair(jnp.sinh, jnp.cosh, 1.0, 1),
    "tan": _of_output(lambda c: 1.0 + c * c),
    "tanh": _of_output(lambda c: 1.0 - c * c),
    "logistic": _of_output(lambda c: c * (1.0 - c)),
    "atan": _of_input(lambda a: 1.0 / (1.0 + a * a)),
    "asin": _of_input(lambda a: 1.0 / jnp.sqrt(1.0 - a * a)),
    "acos": _of_input(lambda a: -1.0 / jnp.sqrt(1.0 - a * a)),
    "asinh": _of_input(lambda a: lax.rsqrt(1.0 + a * a)),
    "acosh": _of_input(lambda a: 1.0 / jnp.sqrt(a * a - 1.0)),
    "atanh": _of_input(lambda a: 1.0 / ((1.0 - a) * (1.0 + a))),
    "erf": _of_input(lambda a: _TWO_OVER_ROOT_PI * jnp.exp(-a * a)),
    "erfc": _of_input(lambda a: -_TWO_OVER_ROOT_PI * jnp.exp(-a * a)),
    "erf_inv": _of_output(lambda c: 1.0 / _TWO_OVER_ROOT_PI * jnp.exp(c * c)),
    "atan2": _atan2,
    "abs": _abs,
    "max": _extreme,
    "min": _extreme,
    "reduce_max": _reduce_extreme,
    "reduce_min": _reduce_extreme,
    "reduce_prod": _reduce_prod,
    "clamp": _clamp,
    "sign": _flat,
    "floor": _flat,
    "ceil": _flat,
    "round": _flat,
}
