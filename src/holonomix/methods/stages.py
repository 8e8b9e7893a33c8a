"""Stacked Jacobians of the constraint at several points of a step, their products and solves.

A stack is what `jax.vmap` makes of `system.linearize`: a Jacobian object whose arrays have a leading axis of points.
Every product keeps the structure of the constraint, so that costs are linear in the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ..core.types import Numbers, Real
from ..linalg import Dense
from ..linalg.scales import coordinate_sizes
from ..mechanics.abstract import AbstractSystem
from ..mechanics.constraints import AbstractJacobian
from ..mechanics.mass import DiagonalMass

# Corrections of a solve with one Gram matrix for all stages. Two leave as many sweeps as an exact solve takes.
REFINEMENTS = 2


def pulls(jacobians: PyTree, multipliers: Numbers) -> Any:
    """`G_l^T lambda_l`, `(points, n)`; multipliers are `(points, m)`, or `(m,)` for the same everywhere."""
    axis = None if multipliers.ndim == 1 else 0
    return jax.vmap(lambda G, y: G.transpose(y).reshape(-1), in_axes=(0, axis))(jacobians, multipliers)


def rates(jacobians: PyTree, v: Numbers) -> Any:
    """`G_l v_l`, `(points, m)`, for flat velocities `(points, n)`."""
    return jax.vmap(lambda G, v: G(v.reshape(G.shape)))(jacobians, v)


def combine(jacobians: PyTree, weights: Numbers) -> Any:
    """`sum_l w_l G_l`: one Jacobian of the same structure."""
    return jax.tree.map(lambda x: jnp.tensordot(jnp.asarray(weights, x.dtype), x, axes=1), jacobians)


def reaches(system: AbstractSystem, q: Numbers, jacobians: PyTree, multipliers: Numbers) -> Any:
    """`|G_l M^-1|^T |lambda_l|`, `(points, n)`; multipliers `(m,)` serve all points."""
    mass = system.mass_form(q)
    if isinstance(mass, DiagonalMass):
        return velocities(system, q, pulls(jax.tree.map(jnp.abs, jacobians), jnp.abs(multipliers)))
    multipliers = jnp.broadcast_to(multipliers, jax.tree.leaves(jacobians)[0].shape[:1] + multipliers.shape[-1:])
    return jax.vmap(lambda G, y: G.reach(mass, q, y))(jacobians, multipliers)


def row_sizes(jacobians: PyTree, speeds: Numbers) -> Any:
    """`sum_j |G_l,ij| speed_j`, `(points, m)`; speeds are flat, `(n,)`."""
    return jax.vmap(lambda G: G(speeds.reshape(G.shape)))(jax.tree.map(jnp.abs, jacobians))


# The smallest size of a velocity, as a fraction of the largest one in the mass metric: for coordinates at rest.
MIN_SPEED_FRACTION = 2.0**-13


def speed_sizes(system: AbstractSystem, q: Numbers, speeds: Numbers) -> Any:
    """Flat `speeds`, none of them less than `MIN_SPEED_FRACTION` of the largest (`linalg.scales`)."""
    return coordinate_sizes(speeds, jnp.ravel(system.mass_form(q).weights(q)), MIN_SPEED_FRACTION)


def velocities(system: AbstractSystem, q: Numbers, rows: Numbers) -> Any:
    """`M^-1` applied to each row of a matrix of flat momenta (the last axis is the coordinate)."""
    flat = rows.reshape(-1, q.size)
    return system.mass_form(q).right(q, flat).reshape(rows.shape)


class AllBlocks(eqx.Module):
    """Factors of all blocks together; right-hand sides and solutions are `(blocks, m)`."""

    factor: Any

    def solve(self, b: Numbers) -> Any:
        return self.factor.solve(b.reshape(-1)).reshape(b.shape)


class OneBlock(eqx.Module):
    """`K^-1 (x) A^-1`: the inverse of all blocks if the Jacobian is constant along the step, else an approximation."""

    small: Any  # K^-1
    factor: Any  # of A

    def solve(self, b: Numbers) -> Any:
        return self.small @ jnp.stack([self.factor.solve(row) for row in b])


def all_blocks(product: Callable[[Any], Any], shape: tuple[int, int], dtype: DTypeLike) -> AllBlocks:
    """Factors of the linear map `product` on arrays `(blocks, m)`: for few rows, or rows without structure."""
    size = shape[0] * shape[1]
    unit = jnp.eye(size, dtype=dtype).reshape(size, *shape)
    return AllBlocks(Dense(jax.vmap(product)(unit).reshape(size, size).T).factor())


def one_block(system: AbstractSystem, q: Numbers, weights: np.ndarray, dt: Real, G: AbstractJacobian) -> OneBlock:
    """Factors of `h w (x) G M^-1 G^T` for a Jacobian in the middle of the step: one structured factorization."""
    small = jnp.asarray(np.linalg.inv(weights), q.dtype) / dt
    return OneBlock(small, system.gram(q, G, G).factor(symmetric=True))


def solve_response(
    inverse: AllBlocks | OneBlock,
    response: Callable[[Any], Any],
    rows: Callable[[Any], Any],
    b: Numbers,
    refinements: int = REFINEMENTS,
) -> tuple[Any, Any]:
    """Solve `rows(response(x)) = b`; returns x and `response(x)`. Both functions are linear.

    `inverse` is the inverse of this map (`AllBlocks`), or a preconditioner (`OneBlock`) for `refinements` iterations of
    GCR, which give a few digits. The residual never grows, however poor the preconditioner is.
    """
    if isinstance(inverse, AllBlocks):
        x = inverse.solve(b)
        return x, response(x)
    x, moved, r, ways = jnp.zeros_like(b), None, b, []
    for _ in range(refinements):
        way = inverse.solve(r)
        reply = response(way)
        image = rows(reply)
        for older, its_reply, its_image, per_size in ways:
            part = jnp.sum(image * its_image) * per_size
            way, reply, image = way - part * older, reply - part * its_reply, image - part * its_image
        size = jnp.sum(image * image)
        per_size = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
        ways.append((way, reply, image, per_size))
        step = jnp.sum(r * image) * per_size
        x, r, moved = x + step * way, r - step * image, step * reply if moved is None else moved + step * reply
    return x, moved
