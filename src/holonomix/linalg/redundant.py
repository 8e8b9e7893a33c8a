"""Solving with Gram matrices of redundant rows: rank from the pivots, multipliers of least norm.

Elimination without exchanges of a positive semidefinite matrix has a zero pivot exactly at each row that depends on
earlier ones. That row is skipped (its multiplier is zero) and the rest is solved as usual. `shortest` then removes the
component of a solution in the null space, so that the multipliers have the least norm among all that give the same
constraint force. Up to `UNROLL` rows this is straight-line arithmetic; above that, compiled elimination on a CPU
(`linalg.fronts`) and singular values elsewhere.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike

from ..core.types import Numbers
from .fronts import FrontFactor, dense_fronts, fronts_available
from .small import UNROLL, UnrolledFactor, diagonal_scale, factor_unrolled

# Below this ratio of a pivot to the diagonal entry it came from, a row counts as dependent.
DEPENDENT = 1e-9


def dependent(dtype: DTypeLike) -> float:
    """The threshold `DEPENDENT`, or a larger one for the round-off of single precision."""
    return max(DEPENDENT, 256 * float(jnp.finfo(dtype).eps))


class MinNormFactor(eqx.Module):
    """Factors that skip dependent rows, and a basis of the null space with its factored Gram matrix.

    Arrays may carry a last axis of blocks (lanes).
    """

    factor: UnrolledFactor
    null: Any  # (n, n, ...): null vectors in the columns of dependent rows, zero elsewhere
    overlap: UnrolledFactor
    pivot: Any

    def solve(self, b: Numbers) -> Any:
        return self.factor.solve(b)

    def shortest(self, x: Numbers) -> Any:
        """The solution of least norm with the same product."""
        part = self.overlap.solve(jnp.sum(self.null * x[:, None], axis=0))
        return x - jnp.sum(self.null * part[None], axis=1)


class PseudoInverse(eqx.Module):
    """A generalized inverse by singular values, for larger matrices, and an orthonormal basis of the null space."""

    inverse: Any
    null: Any  # (n, n): null vectors, zero columns elsewhere
    pivot: Any

    def solve(self, b: Numbers) -> Any:
        return self.inverse @ b

    def shortest(self, x: Numbers) -> Any:
        return x - self.null @ (self.null.T @ x)


def min_norm_factor(a: Numbers, symmetric: bool = False) -> MinNormFactor | FrontFactor | PseudoInverse:
    """Factors of a square matrix of any rank, `(n, n)` or, for n up to `UNROLL`, `(n, n, lanes)`."""
    n = a.shape[0]
    one = jnp.ones((), a.dtype)
    if n > UNROLL and fronts_available(a.dtype):
        return dense_fronts(a).factor_redundant(symmetric)
    if n > UNROLL:
        # scale rows to a diagonal of order one, so that the rank does not depend on units
        scale = diagonal_scale(a)
        u, s, vt = jnp.linalg.svd(scale[:, None] * a * scale)
        kept = s > dependent(a.dtype) * s[0]
        inverse = vt.T @ (jnp.where(kept, 1.0 / jnp.where(kept, s, 1.0), 0.0)[:, None] * u.T)
        basis, _, _ = jnp.linalg.svd(jnp.where(kept, 0.0, scale[:, None] * vt.T), full_matrices=False)
        null = jnp.where(jnp.arange(n) < n - jnp.sum(kept), basis, 0.0)
        return PseudoInverse(scale[:, None] * inverse * scale, null, one)
    factor = factor_unrolled(a, n, symmetric, dependent=dependent(a.dtype))
    kept = jnp.stack([(x != 0).astype(a.dtype) for x in factor.inverse_pivots])
    unit = jnp.eye(n, dtype=a.dtype).reshape((n, n) + (1,) * (a.ndim - 2))
    null = (unit - factor.solve(a)) * (1.0 - kept)[None]
    overlap = jnp.sum(null[:, :, None] * null[:, None], axis=0) + unit * kept[None]
    return MinNormFactor(factor, null, factor_unrolled(overlap, n, True), one)
