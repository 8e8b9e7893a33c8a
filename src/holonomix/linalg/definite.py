"""Dense symmetric matrices, with a test of positive definiteness in their factors.

`smallest` is the smallest pivot of `A = L D L^T`. Without row exchanges all pivots are positive exactly when A is
positive definite, so a step can end with a status if `M + beta h^2 V''` is no longer definite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..core.types import Numbers
from .small import UnrolledFactor, factor_unrolled

# Symmetric elimination takes half the work of a general one, so it is unrolled up to a larger size.
UNROLL_DEFINITE = 24


class DefiniteFactor(eqx.Module):
    """The argument `held` of `solver`: the matrix itself, unrolled `L D L^T`, or LAPACK's factors.

    `smallest` is the smallest pivot or eigenvalue; LAPACK's factors are NaN if the matrix is not definite.
    """

    held: Any
    smallest: Any
    solver: Callable[[Any, Any], Any] = eqx.field(static=True)

    def solve(self, b: Numbers) -> Any:
        return self.solver(self.held, b)


def _solve_lower(lower: Numbers, b: Numbers) -> Any:
    return jax.scipy.linalg.cho_solve((lower, True), b)


class Definite(eqx.Module):
    """A dense symmetric matrix, to be factored once and solved often."""

    matrix: Any

    def factor(self, once: bool = False) -> DefiniteFactor:
        """Factors; `once` uses LAPACK, for matrices that a run factors a single time.

        XLA takes seconds to compile a long unrolled elimination.
        """
        n = self.matrix.shape[0]
        if once and 4 < n <= UNROLL_DEFINITE:
            smallest = jnp.linalg.eigvalsh(jax.lax.stop_gradient(self.matrix))[0]
            return DefiniteFactor(self.matrix, smallest, jnp.linalg.solve)
        if n <= UNROLL_DEFINITE:
            factor = factor_unrolled(self.matrix, n, True)
            pivots = [factor.upper[i][i] for i in range(n)]
            return DefiniteFactor(factor, functools.reduce(jnp.minimum, pivots), UnrolledFactor.solve)
        lower = jnp.linalg.cholesky(self.matrix, symmetrize_input=False)
        diagonal = jnp.diagonal(lower)
        smallest = jnp.where(jnp.all(jnp.isfinite(diagonal)), jnp.min(diagonal) ** 2, -1.0)
        return DefiniteFactor(lower, smallest, _solve_lower)

    def todense(self) -> Any:
        return self.matrix
