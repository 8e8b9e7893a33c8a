"""Dense solves for the small matrices inside a step.

Up to `UNROLL` unknowns the elimination is unrolled into scalar arithmetic: XLA fuses it, and the kernel compiler sees
every structural zero, so that a tridiagonal matrix in dense form costs as much as a tridiagonal solve. There is no
pivoting, because the matrices are Gram matrices or close to one; the smallest pivot reveals a singular matrix. Larger
matrices use LAPACK.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..core.types import Numbers
from .scales import power_of_two

UNROLL = 16
# Up to this size the unrolled elimination works on scalars, above it on rows and columns.
SCALARS = 4


class UnrolledFactor(eqx.Module):
    """`A = L U` with unit lower triangular `L`, as nested tuples of scalars (or of batch arrays)."""

    lower: tuple[tuple[Any, ...], ...]
    upper: tuple[tuple[Any, ...], ...]
    inverse_pivots: tuple[Any, ...]
    pivot: Any

    @property
    def smallest_pivot(self) -> Any:
        """Positive exactly when a symmetric matrix (or all matrices of a batch) is positive definite."""
        return jnp.min(jnp.stack([row[k] for k, row in enumerate(self.upper)]))

    def solve(self, b: Numbers) -> Any:
        return jnp.stack(self.unknowns(b))

    def unknowns(self, b: Sequence[Any] | Numbers, divide: bool = False) -> list[Any]:
        """The unknowns as a list; `divide` divides by the pivots instead of multiplying by their inverses."""
        n = len(self.upper)
        y: list[Any] = []
        for i in range(n):
            acc = b[i]
            for j in range(i):
                acc = acc - self.lower[i][j] * y[j]
            y.append(acc)
        x: list[Any] = [None] * n
        for i in reversed(range(n)):
            acc = y[i]
            for j in range(i + 1, n):
                acc = acc - self.upper[i][j] * x[j]
            x[i] = acc / self.upper[i][i] if divide else acc * self.inverse_pivots[i]
        return x


class PairFactor(eqx.Module):
    """Two unknowns by Cramer's rule: one division instead of two in sequence."""

    matrix: tuple[tuple[Any, Any], tuple[Any, Any]]
    inverse: Any  # of the determinant
    pivot: Any

    @property
    def inverse_pivots(self) -> tuple[Any, Any]:
        return 1.0 / self.matrix[0][0], self.matrix[0][0] * self.inverse

    def solve(self, b: Numbers) -> Any:
        (a00, a01), (a10, a11) = self.matrix
        return jnp.stack([(a11 * b[0] - a01 * b[1]) * self.inverse, (a00 * b[1] - a10 * b[0]) * self.inverse])


class EliminatedFactor(eqx.Module):
    """The same factors with the rows of U and the columns of L as vectors: fewer, longer operations for XLA."""

    rows: tuple[Any, ...]
    columns: tuple[Any, ...]
    inverse_pivots: tuple[Any, ...]
    pivot: Any

    def solve(self, b: Numbers) -> Any:
        """For one right-hand side `(n,)`, or several side by side `(n, k)`."""
        heads, flat = [], b.ndim == 1
        for column in self.columns:
            heads.append(b[0])
            b = b[1:] - (column if flat else column[:, None]) * b[0]
        x = b
        for row, head, inverse in zip(self.rows[::-1], heads[::-1], self.inverse_pivots[::-1], strict=True):
            taken = jnp.sum((row if flat else row[:, None]) * x, axis=0)
            x = jnp.concatenate([((head - taken) * inverse)[None], x])
        return x


class DenseFactor(eqx.Module):
    """LU factors from LAPACK of `S A S`, for matrices above the unrolling limit; S makes the diagonal of order one.

    S consists of powers of two: nothing is rounded, and neither row exchanges nor pivots depend on how rows are scaled.
    """

    lu: Any
    permutation: Any
    scale: Any
    pivot: Any

    def solve(self, b: Numbers) -> Any:
        scale = self.scale if b.ndim == 1 else self.scale[:, None]
        return scale * jax.scipy.linalg.lu_solve((self.lu, self.permutation), scale * b)


class Dense(eqx.Module):
    """A square matrix that can be factored once and solved often."""

    matrix: Any

    def factor(self, symmetric: bool = False) -> UnrolledFactor | PairFactor | EliminatedFactor | DenseFactor:
        """LU factors; `symmetric=True` halves the work for a symmetric matrix (L D L^T)."""
        a = self.matrix
        n = a.shape[0]
        if n > UNROLL:
            scale = diagonal_scale(a)
            lu, permutation = jax.scipy.linalg.lu_factor(scale[:, None] * a * scale)
            return DenseFactor(lu, permutation, scale, jnp.min(jnp.abs(jnp.diagonal(lu))))
        if n == 2:
            return _pair(a[0, 0], a[0, 1], a[0, 1] if symmetric else a[1, 0], a[1, 1])
        return factor_unrolled(a, n, symmetric) if n <= SCALARS else factor_by_rows(a, n, symmetric)

    def factor_redundant(self, symmetric: bool = False) -> Any:
        """Factors that accept a matrix of lower rank; `.shortest(x)` removes the component in the null space."""
        from .redundant import min_norm_factor

        return min_norm_factor(self.matrix, symmetric)

    def __matmul__(self, x: Numbers) -> Any:
        return self.matrix @ x

    def todense(self) -> Any:
        return self.matrix


def diagonal_scale(a: Numbers) -> Any:
    """Powers of two near `1/sqrt|a_ii|`; a zero diagonal entry is replaced by the largest entry of its row."""
    diagonal = jnp.abs(jnp.diagonal(a))
    return 1.0 / power_of_two(jnp.sqrt(jnp.where(diagonal > 0, diagonal, jnp.max(jnp.abs(a), axis=1))))


def diagonal_size(x: Numbers) -> Any:
    """The size of a diagonal entry, with which its pivot is compared; one for a zero entry.

    The `pivot` of all factors is the smallest ratio, `1 / max(size |inverse of the pivot|)`: a single division. A pivot
    that is much smaller than its diagonal entry results from cancellation: its row depends on earlier ones.
    """
    size = jnp.abs(x)
    return jnp.where(size == 0, 1.0, size)


def _pair(a00: Numbers, a01: Numbers, a10: Numbers, a11: Numbers) -> PairFactor:
    inverse = 1.0 / (a00 * a11 - a01 * a10)
    pivot = 1.0 / (diagonal_size(a11) * diagonal_size(a00) * jnp.abs(inverse))
    return PairFactor(((a00, a01), (a10, a11)), inverse, pivot)


def factor_by_rows(a: Numbers, n: int, symmetric: bool, scale: Sequence[Any] | None = None) -> EliminatedFactor:
    """Factors as vectors; pivots are compared with `scale`, by default the diagonal of `a`."""
    rows, columns, inverse = [], [], []
    scale = [diagonal_size(a[k, k]) for k in range(n)] if scale is None else scale
    for _ in range(n):
        inverse.append(1.0 / a[0, 0])
        rows.append(a[0, 1:])
        columns.append((a[0, 1:] if symmetric else a[1:, 0]) * inverse[-1])
        a = a[1:, 1:] - columns[-1][:, None] * rows[-1]
    growth = [size * jnp.abs(x) for size, x in zip(scale, inverse, strict=True)]
    return EliminatedFactor(tuple(rows), tuple(columns), tuple(inverse), 1.0 / jnp.max(jnp.stack(growth)))


def factor_unrolled(
    a: Mapping[tuple[int, int], Any] | Numbers, n: int, symmetric: bool, dependent: float = 0.0
) -> UnrolledFactor:
    """Factors as scalars (or arrays over the last axis of `a`). `a` may be a mapping with entries `a[i, j]`.

    A row whose pivot falls below `dependent` times its diagonal entry is skipped: its unknown is zero.
    """
    rows = [[a[i, j] for j in range(n)] for i in range(n)]
    lower: list[tuple[Any, ...]] = [()]
    inverse: list[Any] = []
    scale = [diagonal_size(rows[i][i]) for i in range(n)]
    growth: list[Any] = []
    factors: list[list[Any]] = [[] for _ in range(n)]
    for k in range(n):
        if dependent:
            # do not form the inverse of a zero pivot: in reverse mode it would give NaN
            kept = jnp.abs(rows[k][k]) > dependent * scale[k]
            inverse.append(jnp.where(kept, 1.0 / jnp.where(kept, rows[k][k], 1.0), 0.0))
        else:
            inverse.append(1.0 / rows[k][k])
        growth.append(scale[k] * jnp.abs(inverse[k]))
        for i in range(k + 1, n):
            head = rows[k][i] if symmetric else rows[i][k]
            f = head * inverse[k]
            factors[i].append(f)
            for j in range(i if symmetric else k + 1, n):
                rows[i][j] = rows[i][j] - f * rows[k][j]
    lower += [tuple(factors[i]) for i in range(1, n)]
    upper = tuple(tuple(None if j < i else rows[i][j] for j in range(n)) for i in range(n))
    return UnrolledFactor(tuple(lower), upper, tuple(inverse), 1.0 / reduce(jnp.maximum, growth))


def solve(matrix: Numbers, b: Numbers, symmetric: bool = False) -> Any:
    """`x` with `matrix x = b` for a small dense matrix."""
    return Dense(matrix).factor(symmetric).solve(b)


def small_product(a: Numbers, b: Numbers) -> Any:
    """`a b^T`. Small products are sums, which XLA fuses with their surroundings: a call would cost more."""
    if a.shape[0] * b.shape[0] * a.shape[1] > 4096:
        return a @ b.T
    return jnp.sum(a[:, None, :] * b[None, :, :], axis=-1)


def root(matrix: Numbers) -> Any:
    """Lower triangular `L` with `L L^T = matrix`, symmetric positive definite; unrolled where small."""
    n = matrix.shape[0]
    if n > UNROLL:
        return jnp.linalg.cholesky(matrix)
    factor = factor_unrolled(matrix, n, symmetric=True)
    zero = jnp.zeros((), matrix.dtype)
    rows = [[*factor.lower[i], jnp.ones((), matrix.dtype), *[zero] * (n - 1 - i)] for i in range(n)]
    scale = [1.0 / jnp.sqrt(x) for x in factor.inverse_pivots]
    return jnp.stack([jnp.stack([x * s for x, s in zip(row, scale, strict=True)]) for row in rows])
