"""Energy, momenta and constraint errors of one state.

Particles are the rows of q: shape (particles, dim), or (dim,) for one particle.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ...core.errors import ShapeError
from ...core.types import Numbers, Real
from ..abstract import AbstractSystem


def energy(system: AbstractSystem, q: Numbers, p: Numbers, t: Real = 0.0) -> Any:
    """`v^T M v / 2 + V`."""
    return system.hamiltonian(q, p, t)


def kinetic_temperature(system: AbstractSystem, q: Numbers, p: Numbers, freedom: int | None = None) -> Any:
    """`2 K/freedom`, whose mean is kT at equilibrium; by default coordinates less constraints (all independent)."""
    freedom = q.size - system.constraint_count(q) if freedom is None else freedom
    return 2 * system.kinetic(q, p) / freedom


def linear_momentum(q: Numbers, p: Numbers) -> Any:
    """The sum of the particles' momenta, shape (dim,)."""
    return jnp.sum(_particles(p), axis=0)


def angular_momentum(q: Numbers, p: Numbers, center: Numbers | float = 0.0) -> Any:
    """`sum_a x_i p_j - x_j p_i`, the components (i, j) of a rotation in each coordinate plane.

    One number in the plane; `q x p` as (x, y, z) in space; the `dim (dim - 1)/2` planes i < j in order otherwise.
    """
    x, y = _particles(q - center), _particles(p)
    dim = x.shape[1]
    if dim == 3:
        planes = [(1, 2), (2, 0), (0, 1)]
    else:
        planes = [(i, j) for i in range(dim) for j in range(i + 1, dim)]
    if not planes:
        raise ShapeError(f"angular momentum needs at least two dimensions; q has shape {jnp.shape(q)}")
    return jnp.stack([jnp.sum(x[:, i] * y[:, j] - x[:, j] * y[:, i]) for i, j in planes])


def constraint_error(system: AbstractSystem, q: Numbers, t: Real = 0.0) -> Any:
    """`max |g(q)|`, zero without constraints."""
    if not system.has_constraints:
        return jnp.zeros((), q.dtype)
    return jnp.max(jnp.abs(system.constraint(q, t)))


def hidden_constraint_error(system: AbstractSystem, q: Numbers, p: Numbers, t: Real = 0.0) -> Any:
    """`max |G M^-1 p|`, zero without constraints."""
    if not system.has_constraints:
        return jnp.zeros((), q.dtype)
    return jnp.max(jnp.abs(system.hidden_constraint(q, p, t)))


def _particles(x: Numbers) -> Any:
    if jnp.ndim(x) == 1:
        return x[None, :]
    if jnp.ndim(x) != 2:
        raise ShapeError(f"momenta are defined for shapes (dim,) and (particles, dim), not {jnp.shape(x)}")
    return x
