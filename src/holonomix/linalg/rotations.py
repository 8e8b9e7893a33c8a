"""Vectors and skew matrices of three dimensions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..core.types import Numbers


def hat(w: Numbers) -> Any:
    """The skew matrix of a vector: `hat(w) x` is the cross product `w x x`."""
    zero = jnp.zeros_like(w[0])
    rows = ((zero, -w[2], w[1]), (w[2], zero, -w[0]), (-w[1], w[0], zero))
    return jnp.stack([jnp.stack(row) for row in rows])


def vee(skew: Numbers) -> Any:
    """The vector of a skew matrix."""
    return jnp.stack([skew[2, 1], skew[0, 2], skew[1, 0]])
