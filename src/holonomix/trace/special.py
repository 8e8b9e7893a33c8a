"""Special functions in terms of elementary ones, for kernels and Taylor coefficients."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

SHIFT = 8  # the asymptotic series is used from here on
# B_2k / 2k, from k = 1 on
COEFFICIENTS = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)


def digamma(x: jax.Array) -> jax.Array:
    """The derivative of log Gamma: `psi(y) ~ log y - 1/(2 y) - sum_k B_2k / (2k y^2k)` (DLMF 5.11.2).

    Small arguments are shifted by `psi(y) = psi(y + 1) - 1/y` and negative ones reflected by
    `psi(x) = psi(1 - x) - pi cot(pi x)`.
    """
    reflected = x < 0.5
    y, total = jnp.where(reflected, 1.0 - x, x), jnp.zeros_like(x)
    for _ in range(SHIFT):
        small = y < SHIFT
        total = total - jnp.where(small, 1.0 / y, 0.0)
        y = jnp.where(small, y + 1.0, y)
    squared, series = 1.0 / (y * y), jnp.zeros_like(x)
    for c in reversed(COEFFICIENTS):
        series = (series + c) * squared
    total = total + jnp.log(y) - 0.5 / y - series
    angle = math.pi * jnp.where(reflected, x - jnp.round(x), 0.25)
    sine = jnp.sin(angle)
    pole = reflected & (sine == 0.0)
    cotangent = jnp.cos(angle) / jnp.where(pole, 1.0, sine)
    return jnp.where(pole, jnp.nan, total - jnp.where(reflected, math.pi * cotangent, 0.0))
