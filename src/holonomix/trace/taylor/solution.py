"""The Taylor series of the solution of `z' = f(z)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...core.checks import whole_number
from ...core.errors import InputError
from ...core.types import Numbers, Real
from .series import Series, SeriesProgram


def series(f: Callable[..., Any], z: PyTree, order: int, t: Real | None = None) -> Any:
    """Normalized Taylor coefficients of the solution of `z' = f(z)` through z, or of `z' = f(z, t)` where t is given.

    `z` is a PyTree of arrays and `f` returns one of the same structure. The result has the structure of z, each leaf
    with a leading axis of `order + 1`: `z(t + h) = sum_n c[n] h^n`.
    """
    order = whole_number("order", order)
    leaves, tree = jax.tree.flatten(z)
    leaves = [jnp.asarray(x, jnp.result_type(float, x)) for x in leaves]
    if not leaves:
        raise InputError("z has no arrays")
    unknowns = [Series(x) for x in leaves]
    clock = [] if t is None else [Series(jnp.asarray(t, jnp.result_type(float)), jnp.ones(()))]

    def slope(*arguments: Numbers) -> list[Any]:
        state = jax.tree.unflatten(tree, arguments[: len(leaves)])
        rate = f(state, *arguments[len(leaves) :])
        found, shape = jax.tree.flatten(rate)
        if shape != tree or any(jnp.shape(a) != b.shape for a, b in zip(found, leaves, strict=False)):
            raise InputError("f must return a tree with the structure and shapes of z")
        return [jnp.asarray(x, y.dtype) for x, y in zip(found, leaves, strict=True)]

    program = SeriesProgram(slope, [*unknowns, *clock])
    for n in range(order):
        for unknown, rate in zip(unknowns, program.advance(n), strict=True):
            unknown.put(n + 1, jnp.zeros(unknown.shape) if rate is None else rate / (n + 1))
    return jax.tree.unflatten(tree, [jnp.stack(x.terms) for x in unknowns])  # pyright: ignore[reportArgumentType]


def evaluate(coefficients: PyTree, h: Real) -> Any:
    """`sum_n c[n] h^n` by Horner's rule."""

    def horner(c: PyTree) -> Any:
        total = c[-1]
        for n in reversed(range(len(c) - 1)):
            total = c[n] + h * total
        return total

    return jax.tree.map(horner, coefficients)
