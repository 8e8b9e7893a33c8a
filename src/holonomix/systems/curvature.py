"""`A = M + shift V''(q)`, the matrix behind every linearly implicit method, in the structure its potential has."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..linalg.definite import Definite
from .mass import DenseMass, as_mass

__all__ = ["curvature"]


def curvature(system: Any, q: Any, shift: Any, weight: Any = 1.0) -> Any:
    """`weight M + shift V''(q)` over the flattened q, with `.factor()` giving `.solve(b)` and `.smallest` (pivot).

    `system` is the System whose potential is meant (`stiff.full`, `stiff.fast`, ...); its mass is constant.
    """
    hessian = jax.jacfwd(system.gradient)(q).reshape(q.size, q.size)
    return Definite(shift * hessian + weight * mass_matrix(system, q))


def mass_matrix(system: Any, q: Any) -> Any:
    """The constant mass as a matrix over the flattened q."""
    mass = as_mass(system.mass, q)
    if isinstance(mass, DenseMass):
        return mass.matrix
    value: Any = mass.value  # pyright: ignore[reportAttributeAccessIssue]
    return jnp.diag(jnp.broadcast_to(value, q.shape).reshape(-1))
