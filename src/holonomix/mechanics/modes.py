"""The small generalized eigenproblem of the frequencies of a stiff system."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..core.types import Numbers


def generalized_modes(s: Numbers, b: Numbers) -> tuple[Any, Any]:
    """`S c_k = w_k B c_k` with `c_k^T B c_k = 1`: eigenvalues ascending and modes as columns; S symmetric, B definite.

    One and two modes have closed forms, so that steps that need them do not call LAPACK.
    """
    s = (s + s.T) / 2
    if s.shape[0] == 1:
        return s[0] / b[0], 1.0 / jnp.sqrt(b)
    if s.shape[0] == 2:
        return _two(s, b)
    lower = jnp.linalg.cholesky(b)
    half = jnp.linalg.solve(lower, s)
    values, vectors = jnp.linalg.eigh(jnp.linalg.solve(lower, half.T).T)
    return values, jnp.linalg.solve(lower.T, vectors)


def _two(s: Numbers, b: Numbers) -> tuple[Any, Any]:
    l00 = jnp.sqrt(b[0, 0])
    l10 = b[1, 0] / l00
    l11 = jnp.sqrt(b[1, 1] - l10 * l10)
    # T = L^-1 S L^-T
    t00 = s[0, 0] / b[0, 0]
    t10 = (s[1, 0] / l00 - l10 * t00) / l11
    t11 = (s[1, 1] - 2 * l10 * (t10 * l11 + l10 * t00) + l10 * l10 * t00) / (l11 * l11)
    mean, half = (t00 + t11) / 2, (t11 - t00) / 2
    radius = jnp.sqrt(half * half + t10 * t10)
    # the larger eigenvalue has the vector (t10, half + radius) or (radius - half, t10): one of them does not cancel
    x = jnp.where(half >= 0, t10, radius - half)
    y = jnp.where(half >= 0, half + radius, t10)
    size = jnp.sqrt(x * x + y * y)
    degenerate = size == 0
    safe = jnp.where(degenerate, 1.0, size)
    x, y = jnp.where(degenerate, 0.0, x / safe), jnp.where(degenerate, 1.0, y / safe)
    vectors = jnp.stack([jnp.stack([y, x]), jnp.stack([-x, y])])
    # c = L^-T v
    second = vectors[1] / l11
    modes = jnp.stack([(vectors[0] - l10 * second) / l00, second])
    return jnp.stack([mean - radius, mean + radius]), modes
