"""Anderson acceleration: a fixed-point iteration that remembers its last sweeps (Anderson 1965; Walker & Ni 2011)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from ..types import Numbers, Real
from .iterate import Iterated, iterate
from .small import Dense, small_product

# Sweeps that are remembered: so many directions in which the plain iteration does not contract are solved for.
WINDOW = 6
# What is added to the normal equations of unit columns, so that dependent ones do no harm.
REGULAR = 1e-13


def accelerated(
    body: Callable[[Any, Any], Any],
    residual: Callable[[Any], tuple[Any, Any]],
    x: Numbers,
    weights: Callable[[Any], Any],
    *,
    tol: Real,
    max_iterations: int,
    **options: Any,
) -> Iterated:
    """`iterate` for a flat x, where `body` alone need not contract.

    The last changes of x and of `body(x) - x` span a space in which the next change is the solution of a least-squares
    problem: on a linear problem this is GMRES. `weights(x)` makes the entries of `body(x) - x` comparable; those of
    weight zero follow the others.
    """

    def mixed(loop: PyTree, r: Numbers) -> Any:
        x, last_x, last_step, moves, turns, k = loop
        step = body(x, r) - x
        # before the second sweep there is nothing to compare with
        old = jnp.where(k > 0, 1.0, 0.0)
        moves = jnp.concatenate([(old * (x - last_x))[None], moves[:-1]])
        turns = jnp.concatenate([(old * (step - last_step))[None], turns[:-1]])
        weight = weights(x)
        columns = turns * weight
        length = jnp.sqrt(jnp.sum(columns**2, axis=1))
        unit = jnp.where(length > 0, 1.0 / jnp.where(length > 0, length, 1.0), 0.0)
        columns = columns * unit[:, None]
        unused = REGULAR + jnp.where(length > 0, 0.0, 1.0)
        normal = small_product(columns, columns) + jnp.eye(WINDOW, dtype=x.dtype) * unused
        share = unit * Dense(normal).factor(symmetric=True).solve(jnp.sum(columns * (weight * step), axis=1))
        new = x + step - jnp.sum(share[:, None] * (moves + turns), axis=0)
        return new, x, step, moves, turns, k + 1

    none = jnp.zeros((WINDOW, x.size), x.dtype)
    start = (x, x, jnp.zeros_like(x), none, none, jnp.asarray(0, jnp.int32))
    done = iterate(mixed, lambda loop: residual(loop[0]), start, tol=tol, max_iterations=max_iterations, **options)
    return done._replace(x=done.x[0])
