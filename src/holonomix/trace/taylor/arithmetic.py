"""Arithmetic on the coefficients of series: sums of products over the order; None is zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PyTree

if TYPE_CHECKING:
    from .series import Order, Series

# (Operators take several times as long to trace as functions of `lax`.)


def _alike(x: PyTree, y: PyTree) -> bool:
    """Whether `lax` takes the two: arrays of one shape and type, or an array and a Python number."""
    if isinstance(y, float):
        return hasattr(x, "dtype")
    return jnp.shape(x) == jnp.shape(y) and getattr(x, "dtype", None) == getattr(y, "dtype", None)


def times(x: PyTree, y: PyTree) -> Any:
    return lax.mul(x, y) if _alike(x, y) else x * y


def in_step(x: PyTree, y: PyTree) -> Any:
    """Products of coefficients that are stacked along a first axis, also where the terms have different ranks."""
    rank = max(x.ndim, y.ndim)
    fit = lambda z: z if z.ndim == rank else lax.expand_dims(z, range(1, 1 + rank - z.ndim))
    return times(fit(x), fit(y))


def scaled(x: PyTree, factor: PyTree) -> Any:
    return None if x is None else times(x, factor)


def plus(x: PyTree, y: PyTree) -> Any:
    if x is None or y is None:
        return y if x is None else x
    return lax.add(x, y) if _alike(x, y) else x + y


def minus(x: PyTree, y: PyTree) -> Any:
    if y is None:
        return x
    if x is None:
        return -y
    return lax.sub(x, y) if _alike(x, y) else x - y


def over(numerator: PyTree, denominator: PyTree) -> Any:
    if numerator is None:
        return None
    return lax.div(numerator, denominator) if _alike(numerator, denominator) else numerator / denominator


def convolve(a: Series, b: Series, n: Order, first: int = 0, last: Order | None = None) -> Any:
    """`sum_j a[j] b[n - j]` for j from `first` to `last` (n by default); None where every product is zero.

    In a buffer `last` is ignored: coefficients that are not known yet are zero.
    """
    if a.buffer is not None:
        return jnp.sum(in_step(a.buffer[first:], b.shifted(n, first)), axis=0)
    last = n if last is None else last
    if last < first:
        return None
    # products with the newest coefficients come last: the others can be summed before these are known
    newest = [j for j in (0, n) if first <= j <= last and n > 1]
    low, high = first + (0 in newest), last - (n in newest)
    total, rest = None, range(first, last + 1)
    left, right = a.window(low, high), b.window(n - high, n - low)
    if high > low and left is not None and right is not None:
        total, rest = lax.reduce_sum(in_step(left, lax.rev(right, (0,))), (0,)), newest
    for j in rest:
        x, y = a[j], b[n - j]
        if x is not None and y is not None:
            total = plus(total, times(x, y))
    return total


def square(a: Series, n: Order) -> Any:
    """`sum_j a[j] a[n - j]`, with every product formed once where the orders are unrolled."""
    if a.buffer is not None:
        return convolve(a, a, n)
    half = convolve(a, a, n, 0, (n - 1) // 2)
    total = scaled(half, 2.0)
    middle = a[n // 2]
    return total if n % 2 or middle is None else plus(total, times(middle, middle))


def inner(a: Series, c: Series, n: int, weight: Callable[[Any], Any]) -> tuple[Any, Sequence[int]]:
    """`sum_j weight(j) a[j] c[n - j]` over 1 < j < n, and the j that are left, the newest coefficients last."""
    window, tail = a.window(2, n - 1), c.window(1, n - 2)
    if n < 4 or window is None or tail is None:
        return None, range(1, n + 1)
    j = np.arange(2, n).reshape((-1,) + (1,) * len(a.shape))
    return lax.reduce_sum(in_step(weight(j) * window, lax.rev(tail, (0,))), (0,)), (1, n)


def weighted(a: Series, c: Series, n: Order, last: Order | None = None) -> Any:
    """`sum_{j=1}^{last} j a[j] c[n - j]`, up to n where `last` is not given."""
    if a.buffer is not None:
        j = jnp.arange(1.0, len(a.buffer)).reshape((-1,) + (1,) * len(a.shape))
        j = j if last is None else jnp.where(j <= last, j, 0.0)
        return jnp.sum(in_step(j * a.buffer[1:], c.shifted(n, 1)), axis=0)
    last = n if last is None else last
    total, rest = inner(a, c, n, lambda j: np.asarray(j, float))
    for j in rest:
        if j <= last and a[j] is not None and c[n - j] is not None:
            total = plus(total, times(float(j) * a[j], c[n - j]))
    return total
