"""Rings: tridiagonal matrices with corners.

Eliminating every second row of a ring of numbers leaves a ring of half the length. A ring of odd length is solved as a
chain bordered by its last row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..core.types import Numbers
from .fronts import MIN_FRONT_BLOCK, StoredFrontLayout, fronts_available
from .graph import Graph
from .layout import AbstractLayout, Piece, sum_parts
from .small import UNROLL, factor_unrolled
from .tridiagonal import Tridiagonal, dense_ring, diagonals, invert, smallest_pivot

# Rings of at most this many rows are not halved.
MAX_BORDERED_ROWS = 8


class CyclicFactor(eqx.Module):
    """The factored chain, `T^-1 F` for the border column F, the border row and the factored Schur complement."""

    chain: Any
    solved: Any  # (n - 1,) or (b, b, n - 1)
    row: tuple[Any, Any]
    schur: Any
    pivot: Any

    @property
    def signed_pivot(self) -> Any:
        corner = self.schur.smallest_pivot
        return jnp.minimum(self.chain.signed_pivot, corner)

    def solve(self, b: Numbers) -> Any:
        single = self.solved.ndim == 1
        size = 1 if single else self.solved.shape[0]
        y = self.chain.solve(b[:-size])
        first, last = self.row
        if single:
            x = self.schur.solve(b[-1:] - first * y[:1] - last * y[-1:])
            return jnp.concatenate([y - self.solved * x, x])
        x = self.schur.solve(b[-size:] - first @ y[:size] - last @ y[-size:])
        y = y.reshape(-1, size).T - jnp.sum(self.solved * x[None, :, None], axis=1)
        return jnp.concatenate([y.T.reshape(-1), x])


class HalvedFactor(eqx.Module):
    """Coefficients of each halving, for the substitutions, and the factors of the last ring."""

    levels: tuple[tuple[Any, ...], ...]
    last: CyclicFactor
    pivot: Any

    @property
    def signed_pivot(self) -> Any:
        halved = jnp.min(jnp.stack([smallest_pivot(level[0]) for level in self.levels]))
        return jnp.minimum(self.last.signed_pivot, halved)

    def solve(self, b: Numbers) -> Any:
        d, kept = b, []
        for *_, alpha, gamma in self.levels:
            even, odd = d[0::2], d[1::2]
            kept.append(even)
            d = odd - alpha * even - gamma * jnp.roll(even, -1)
        x = self.last.solve(d)
        for (inverse, lower, upper, _, _), d in zip(reversed(self.levels), reversed(kept), strict=True):
            even = inverse * (d - lower * jnp.roll(x, 1) - upper * x)
            x = jnp.stack([even, x], axis=-1).reshape(-1)
        return x


class CyclicTridiagonal(eqx.Module):
    """Row i is `lower[i] x[i-1] + diagonal[i] x[i] + upper[i] x[i+1]`, indices modulo n; numbers or square blocks.

    Arrays of shape `(n,)` or `(b, b, n)`, as in `Tridiagonal`.
    """

    lower: Any
    diagonal: Any
    upper: Any

    def factor(self, symmetric: bool = False) -> CyclicFactor | HalvedFactor:
        """Factors for `solve`: by cyclic reduction if n is even and large. `symmetric` asserts a symmetric matrix."""
        a, b, c = self.lower, self.diagonal, self.upper
        if b.ndim > 1 or b.shape[0] % 2 or b.shape[0] <= MAX_BORDERED_ROWS:
            return self._bordered(symmetric)
        levels, pivot, scale = [], jnp.asarray(jnp.inf, b.dtype), diagonals(b)
        while b.shape[0] % 2 == 0 and b.shape[0] > MAX_BORDERED_ROWS:
            inverse, smallest = invert(b[0::2], scale[0::2])
            pivot, scale = jnp.minimum(pivot, smallest), scale[1::2]
            lower, upper = a[0::2], a[1::2] if symmetric else c[0::2]
            after = c[1::2]
            alpha, gamma = a[1::2] * inverse, after * jnp.roll(inverse, -1)
            levels.append((inverse, lower, upper, alpha, gamma))
            b = b[1::2] - alpha * upper - gamma * (after if symmetric else jnp.roll(lower, -1))
            a, c = -alpha * lower, -gamma * jnp.roll(upper, -1)
            c = jnp.roll(a, -1) if symmetric else c
        last = CyclicTridiagonal(a, b, c)._bordered(symmetric)
        return HalvedFactor(tuple(levels), last, jnp.minimum(pivot, last.pivot))

    def _bordered(self, symmetric: bool) -> CyclicFactor:
        a, b, c = self.lower, self.diagonal, self.upper
        zero = jnp.zeros_like(a[..., :1])
        join = lambda *parts: jnp.concatenate(parts, axis=-1)
        chain = Tridiagonal(join(zero, a[..., 1:-1]), b[..., :-1], join(c[..., :-2], zero)).factor(symmetric)
        border = join(a[..., :1], jnp.zeros_like(b[..., 3:]), c[..., -2:-1])
        row = c[..., -1], a[..., -1]
        if b.ndim == 1:
            solved = chain.solve(border)
            corner, left = b[-1:], row[0] * solved[:1] + row[1] * solved[-1:]
            corner, left = corner[None], left[None]
        else:
            size = b.shape[0]
            column = lambda k: chain.solve(border[:, k].T.reshape(-1)).reshape(-1, size).T
            solved = jnp.stack([column(k) for k in range(size)], axis=1)
            corner, left = b[..., -1], row[0] @ solved[..., 0] + row[1] @ solved[..., -1]
        schur = factor_unrolled(corner - left, corner.shape[0], symmetric)
        scale = diagonals(corner[..., None])[:, 0]
        kept = diagonals((corner - left)[..., None])[:, 0] / jnp.where(scale > 0, scale, 1.0)
        return CyclicFactor(
            chain, solved, row, schur, jnp.minimum(chain.pivot, jnp.minimum(schur.pivot, jnp.min(kept)))
        )

    def factor_redundant(self, symmetric: bool = False) -> None:
        """A dense matrix must serve."""

    def todense(self) -> Any:
        return dense_ring(self.lower, self.diagonal, self.upper)


@dataclasses.dataclass(frozen=True, eq=False)
class RingLayout(AbstractLayout):
    """The lower, diagonal and upper entries of a ring in natural order."""

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        count = self.sizes[0]
        return (j - i + 1) % count * count + i

    def assemble(self, pieces: Sequence[Piece]) -> CyclicTridiagonal:
        parts = sum_parts(pieces, self.sizes, self.rows)
        return CyclicTridiagonal(*(x[0, 0] if self.rows == 1 else x for x in parts))


def plan_ring(graph: Graph) -> AbstractLayout | None:
    """A ring in natural order; blocks of `MIN_FRONT_BLOCK` rows or more are eliminated in fronts where possible."""
    n, r = graph.rows.shape
    if not (graph.i.size and n > 4 and r <= UNROLL and np.isin((graph.i - graph.j) % n, (1, n - 1)).all()):
        return None
    kind = "tridiagonal" if r == 1 else "block tridiagonal"
    text = f"{n * r} rows in a ring: a {kind} matrix with corners"
    layout = RingLayout(r, (n, n, n), *graph.row_order(graph.natural), text)
    in_fronts = r >= MIN_FRONT_BLOCK and fronts_available()
    return StoredFrontLayout.of(layout, graph) if in_fronts else layout
