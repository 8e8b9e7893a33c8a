"""Solving with Gram matrices of redundant rows: rank from the pivots, multipliers of least norm.

Elimination without exchanges of a positive semidefinite matrix meets a vanishing pivot exactly at a row that depends on
earlier ones; that row is skipped (its multiplier is zero) and the rest solved as usual. `shortest` then takes off the
part of a solution that lies in the null space, so that the multipliers have the least norm among all that give the
same constraint force. Up to `UNROLL` rows this is straight-line arithmetic; above that, singular values.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from .small import UNROLL, UnrolledFactor, unrolled

__all__ = ["DEPENDENT", "MinNormFactor", "PseudoInverse", "min_norm_factor"]

# Below this ratio of a pivot to the diagonal entry it came from, a row counts as dependent.
DEPENDENT = 1e-9


class MinNormFactor(eqx.Module):
    """Factors that skip dependent rows, and a basis of the null space with its factored Gram matrix.

    Arrays may carry a last axis of blocks (lanes).
    """

    factor: UnrolledFactor
    null: Any  # (n, n, ...): null vectors in the columns of dependent rows, zero elsewhere
    overlap: UnrolledFactor
    pivot: Any

    def solve(self, b: Any) -> Any:
        return self.factor.solve(b)

    def shortest(self, x: Any) -> Any:
        """The solution of least norm with the same product."""
        part = self.overlap.solve(jnp.sum(self.null * x[:, None], axis=0))
        return x - jnp.sum(self.null * part[None], axis=1)


class PseudoInverse(eqx.Module):
    """The Moore-Penrose inverse by singular values, for larger matrices."""

    inverse: Any
    pivot: Any

    def solve(self, b: Any) -> Any:
        return self.inverse @ b

    def shortest(self, x: Any) -> Any:
        return x


def min_norm_factor(a: Any, symmetric: bool = False) -> MinNormFactor | PseudoInverse:
    """Factors of a square matrix of any rank, `(n, n)` or, for n up to `UNROLL`, `(n, n, lanes)`."""
    n = a.shape[0]
    one = jnp.ones((), a.dtype)
    if n > UNROLL:
        u, s, vt = jnp.linalg.svd(a)
        inverse = jnp.where(s > DEPENDENT * s[0], 1.0 / jnp.where(s > 0, s, 1.0), 0.0)
        return PseudoInverse(vt.T @ (inverse[:, None] * u.T), one)
    factor = unrolled(a, n, symmetric, dependent=DEPENDENT)
    kept = jnp.stack([(x != 0).astype(a.dtype) for x in factor.inverse_pivots])
    unit = jnp.eye(n, dtype=a.dtype).reshape((n, n) + (1,) * (a.ndim - 2))
    null = (unit - factor.solve(a)) * (1.0 - kept)[None]
    overlap = jnp.sum(null[:, :, None] * null[:, None], axis=0) + unit * kept[None]
    return MinNormFactor(factor, null, unrolled(overlap, n, True), one)
