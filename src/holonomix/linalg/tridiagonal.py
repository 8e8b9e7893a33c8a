"""Tridiagonal and block tridiagonal matrices by odd-even (cyclic) reduction, or by the recurrence along the chain.

Rows 0, 2, 4, ... are eliminated at once, which leaves a matrix of the same kind and half the size: log2(n) vectorized
levels on any device; for scalars on one CPU core this is as fast as the sequential recurrence. It is Gaussian
elimination in another order, so it is stable without pivoting for positive definite Gram matrices. Long chains of
blocks on a CPU use the recurrence: a block stays in registers and in the cache, the kernel compiler unrolls the
elimination of one block without its zeros, and the size of the program does not depend on the length of the chain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.types import Index, Numbers
from .fronts import MIN_FRONT_BLOCK, FrontFactor, FrontLayout, FrontMatrix, StoredFrontLayout, fronts_available
from .graph import Graph, positions
from .layout import AbstractLayout, Piece, merge_blocks, sum_parts
from .multifrontal import Plan
from .small import UNROLL, EliminatedFactor, diagonal_size, factor_by_rows

# Chains of at most this many blocks are reduced, which the kernel compiler turns into straight-line code.
MAX_REDUCED_BLOCKS = 8
# The recurrence is written out by the kernel compiler up to blocks of this size; larger ones are eliminated in fronts.
MAX_RECURRENCE_BLOCK = 6
# Number of lanes per tile of a long loop; a tile fits into the cache of a core.
TILE = 256


class TridiagonalFactor(eqx.Module):
    """Coefficients of each level of the reduction, for the substitutions."""

    levels: tuple[tuple[Any, ...], ...]
    last: Any
    pivot: Any

    @property
    def signed_pivot(self) -> Any:
        inverses = [level[0] for level in self.levels] + [self.last]
        return jnp.min(jnp.stack([smallest_pivot(x) for x in inverses]))

    def solve(self, b: Numbers) -> Any:
        d = b if self.last.ndim == 1 else b.reshape(-1, self.last.shape[0]).T
        kept = []
        for _, _, _, alpha, gamma in self.levels:
            even, odd = d[..., 0::2], d[..., 1::2]
            kept.append(even)
            d = odd - apply(alpha, _fit(even, odd)) - apply(gamma, _fit(even[..., 1:], odd))
        x = apply(self.last, d)
        for (inverse, lower, upper, _, _), d in zip(reversed(self.levels), reversed(kept), strict=True):
            n, after = x.shape[-1] + d.shape[-1], _fit(x, d)
            even = apply(inverse, d - apply(lower, _behind(x, d)) - apply(upper, after))
            x = jnp.stack([even, after], axis=-1).reshape(x.shape[:-1] + (-1,))[..., :n]
        return x if self.last.ndim == 1 else x.T.reshape(b.shape)


class RecurrenceFactor(eqx.Module):
    """Block elimination from the first row to the last: `D_i = B_i - A_i W_{i-1}`, `W_i = D_i^-1 C_i`."""

    lower: Any  # A, (n, b, b)
    diagonal: EliminatedFactor  # of each D
    upper: Any  # W
    pivot: Any

    @property
    def signed_pivot(self) -> Any:
        """The smallest inverse of a pivot."""
        return jnp.min(jnp.stack(self.diagonal.inverse_pivots))

    def solve(self, b: Numbers) -> Any:
        d = b.reshape(self.lower.shape[:2])

        def forward(y: Numbers, row: PyTree):
            lower, diagonal, d = row
            y = diagonal.solve(d - lower @ y)
            return y, y

        def backward(x: Numbers, row: PyTree):
            upper, y = row
            x = y - upper @ x
            return x, x

        zero = jnp.zeros_like(d[0])
        _, y = jax.lax.scan(forward, zero, (self.lower, self.diagonal, d))
        _, x = jax.lax.scan(backward, zero, (self.upper, y), reverse=True)
        return x.reshape(b.shape)


class Tridiagonal(eqx.Module):
    """Row i is `lower[i] x[i-1] + diagonal[i] x[i] + upper[i] x[i+1]`; entries are numbers or square blocks.

    Arrays of shape `(n,)` or `(b, b, n)`; `lower[..., 0]` and `upper[..., n-1]` are zero. Unknowns lie block by block.
    """

    lower: Any
    diagonal: Any
    upper: Any
    redundant_plan: Plan | None = eqx.field(static=True, default=None)  # for dependent rows

    def factor(self, symmetric: bool = False, sizes: Numbers | None = None) -> TridiagonalFactor | RecurrenceFactor:
        """Factors; pivots are compared with `sizes`, by default the sizes of the diagonal."""
        a, b, c = self.lower, self.diagonal, self.upper
        if b.ndim > 1 and b.shape[-1] > MAX_REDUCED_BLOCKS and jax.default_backend() == "cpu":
            a, b, c = (jnp.moveaxis(x, -1, 0) for x in (a, b, c))
            return _recurrence(a, b, c, symmetric)
        levels, pivot = [], jnp.asarray(jnp.inf, b.dtype)
        scale = diagonals(b) if sizes is None else sizes
        mirrored = symmetric and b.ndim == 1
        while b.shape[-1] > 1:
            c = _grow(a[1:]) if mirrored else c
            odd = b[..., 1::2]
            inverse, smallest = invert(b[..., 0::2], scale[..., 0::2])
            pivot = jnp.minimum(pivot, smallest)
            lower, upper = a[..., 0::2], c[..., 0::2]
            before, after = (tuple(_fit(x[..., k:], odd) for x in (inverse, lower, upper)) for k in (0, 1))
            alpha, gamma = times(a[..., 1::2], before[0]), times(c[..., 1::2], after[0])
            levels.append((inverse, lower, upper, alpha, gamma))
            b = odd - times(alpha, before[2]) - times(gamma, after[1])
            a, c = -times(alpha, before[1]), c if mirrored else -times(gamma, after[2])
            scale = scale[..., 1::2]
        inverse, smallest = invert(b, scale)
        return TridiagonalFactor(tuple(levels), inverse, jnp.minimum(pivot, smallest))

    def factor_redundant(self, symmetric: bool = False) -> FrontFactor | None:
        """Factors in fronts that accept dependent rows; None where these are not planned."""
        if self.redundant_plan is None:
            return None
        flat = jnp.concatenate([x.reshape(-1) for x in (self.lower, self.diagonal, self.upper)])
        return FrontMatrix(flat.astype(jnp.float64), self.redundant_plan).factor_redundant(symmetric)

    def todense(self) -> Any:
        return dense_ring(self.lower, self.diagonal, self.upper)  # with corners that are zero


def dense_ring(lower: Numbers, diagonal: Numbers, upper: Numbers) -> Any:
    """The full matrix of a ring: numbers `(n,)` or blocks `(b, b, n)`, neighbors modulo n."""
    n = diagonal.shape[-1]
    i = jnp.arange(n)
    full = jnp.zeros(diagonal.shape[:-1] + (n, n), diagonal.dtype).at[..., i, i].set(diagonal)
    full = full.at[..., i, (i - 1) % n].add(lower).at[..., i, (i + 1) % n].add(upper)
    if diagonal.ndim == 1:
        return full
    b = diagonal.shape[0]
    return full.transpose(2, 0, 3, 1).reshape(n * b, n * b)


def _recurrence(lower: Numbers, diagonal: Numbers, upper: Numbers, symmetric: bool) -> RecurrenceFactor:
    size = diagonal.shape[-1]

    def eliminate(carried: PyTree, row: PyTree):
        a, b, c = row
        scale = [diagonal_size(b[k, k]) for k in range(size)]
        factor = factor_by_rows(b - a @ carried, size, symmetric, scale)
        product = factor.solve(c)
        return product, (factor, product)

    _, (factors, product) = jax.lax.scan(eliminate, jnp.zeros_like(diagonal[0]), (lower, diagonal, upper))
    return RecurrenceFactor(lower, factors, product, jnp.min(factors.pivot))


def part(x: Numbers, first: Index, count: int) -> Any:
    """`count` lanes from the lane `first`."""
    return jax.lax.dynamic_slice_in_dim(x, first, count, axis=x.ndim - 1)


def lane_products(x: Numbers, y: Numbers) -> Any:
    """`(a, b, lanes)` from `(a, d, lanes)` and `(b, d, lanes)`: the sum over d, in tiles that fit into the cache."""
    n = x.shape[-1]
    product = lambda x, y: jnp.sum(x[:, None] * y[None], axis=2)
    if n <= 4 * TILE or x.shape[0] * y.shape[0] == 1 or jax.default_backend() != "cpu":
        return product(x, y)

    def tile(k: Index, done: PyTree):
        first = jnp.minimum(k * TILE, n - TILE)
        found = product(part(x, first, TILE), part(y, first, TILE))
        return jax.lax.dynamic_update_slice_in_dim(done, found, first, axis=2)

    empty = jnp.zeros((x.shape[0], y.shape[0], n), x.dtype)
    return jax.lax.fori_loop(0, -(-n // TILE), tile, empty)


def invert(a: Numbers, scale: Numbers) -> tuple[Any, Any]:
    """The inverses of numbers `(n,)` or small matrices `(b, b, n)`, and the smallest pivot relative to `scale`.

    Gauss-Jordan elimination in one vectorized step per row, without pivoting.
    """
    safe = diagonal_size(scale)
    if a.ndim == 1:
        inverse = 1.0 / a
        return inverse, 1.0 / jnp.max(safe * jnp.abs(inverse))
    b = a.shape[0]
    unit = jnp.eye(b, dtype=a.dtype)[:, :, None]
    work = jnp.concatenate([a, jnp.broadcast_to(unit, a.shape)], axis=1)
    growth = []
    for k in range(b):
        inverse = 1.0 / work[k, k]
        growth.append(safe[k] * jnp.abs(inverse))
        work = work - (work[:, k] - unit[k])[:, None] * (work[k] * inverse)[None]
    return work[:, b:], 1.0 / jnp.max(reduce(jnp.maximum, growth))


def times(a: Numbers, b: Numbers) -> Any:
    """The products of two stacks of numbers or matrices."""
    return a * b if a.ndim == 1 else jnp.sum(a[:, :, None] * b[None], axis=1)


def apply(a: Numbers, x: Numbers) -> Any:
    """A stack of numbers or matrices times a stack of vectors."""
    return a * x if a.ndim == 1 else jnp.sum(a * x[None], axis=1)


def diagonals(b: Numbers) -> Any:
    """The absolute diagonals of a stack of numbers `(n,)` or of matrices, `(b, n)`."""
    return jnp.abs(b) if b.ndim == 1 else jnp.abs(jnp.diagonal(b, axis1=0, axis2=1)).T


def _grow(x: Numbers) -> Any:
    return jnp.concatenate([x, jnp.zeros(x.shape[:-1] + (1,), x.dtype)], axis=-1)


def _behind(x: Numbers, like: Numbers) -> Any:
    """The element of x before each of `like`, whose length is that of x or one more; zero before the first."""
    ends = (1, like.shape[-1] - x.shape[-1] - 1, 0)
    return jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [ends])


def _fit(x: Numbers, like: Numbers) -> Any:
    """x with the length of `like`: the last element is dropped, or a zero appended."""
    n = like.shape[-1]
    return x[..., :n] if x.shape[-1] >= n else _grow(x)


def smallest_pivot(inverse: Numbers) -> Any:
    """The smallest pivot of a stack of symmetric matrices (or numbers): positive where all are positive definite."""
    if inverse.ndim == 1:
        return jnp.min(inverse)
    work, least = inverse, jnp.min(inverse[0, 0])
    for k in range(1, inverse.shape[0]):
        head = work[k - 1, k:]
        work = work.at[k:, k:].add(-head[:, None] * head[None] / work[k - 1, k - 1])
        least = jnp.minimum(least, jnp.min(work[k, k]))
    return least


@dataclasses.dataclass(frozen=True, eq=False)
class ChainLayout(AbstractLayout):
    """Blocks of `width` nodes in a row: the lower, diagonal and upper block of each."""

    place: np.ndarray  # position of every node in the order of the solver
    width: int
    redundant_plan: Plan | None = None

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        w, count = self.width, self.sizes[0]
        (block_a, a), (block_b, b) = divmod(self.place[i], w), divmod(self.place[j], w)
        return (((block_b - block_a + 1) * w + a) * w + b) * count + block_a

    def assemble(self, pieces: Sequence[Piece]) -> Tridiagonal:
        w, r = self.width, self.rows
        parts = sum_parts(pieces, self.sizes, r)
        lower, diagonal, upper = (merge_blocks(parts[k * w * w : (k + 1) * w * w], w, r) for k in range(3))
        if w * r == 1:
            return Tridiagonal(lower[0, 0], diagonal[0, 0], upper[0, 0])
        padding = np.flatnonzero(self.order.array.reshape(-1, w * r)[-1] < 0)
        if padding.size:
            diagonal = diagonal.at[padding, padding, -1].set(1.0)
        return Tridiagonal(lower, diagonal, upper, self.redundant_plan)


def plan_chain(graph: Graph) -> AbstractLayout | None:
    """Nodes in natural order, each coupled to its neighbors only."""
    return _chain(graph, graph.natural, 1) if graph.bandwidth(graph.natural) == 1 else None


def plan_band(graph: Graph) -> AbstractLayout | None:
    """A narrow band, in natural order or in that of Cuthill and McKee, as a chain of blocks."""
    nodes = graph.cuthill_mckee()
    width, natural = graph.bandwidth(nodes), graph.bandwidth(graph.natural)
    if natural <= width:
        nodes, width = graph.natural, natural
    if width * graph.r > UNROLL or graph.n <= 4 * width:
        return None
    return _chain(graph, np.concatenate([nodes, np.full(-graph.n % width, -1)]), width)


def _chain(graph: Graph, nodes: np.ndarray, width: int) -> AbstractLayout:
    """The chain of blocks of `width` nodes, or fronts where these are available and faster."""
    n, r = graph.rows.shape
    b, count = width * r, nodes.size // width
    if b == 1:
        text = f"{n} rows in a chain: a tridiagonal matrix"
    else:
        kind = "block tridiagonal" if width == 1 else f"banded, half bandwidth {b}, held as block tridiagonal"
        text = f"{n * r} rows in a chain of {b} x {b} blocks: {kind}"
    order = graph.row_order(nodes)
    layout = ChainLayout(r, (count,) * (3 * width * width), *order, text, positions(nodes, n), width)
    if b < MIN_FRONT_BLOCK or not fronts_available():
        return layout
    if r == 1:  # a band of single entries: one array for each place in a block would be many
        return FrontLayout.of(graph, f"{n} rows in a chain of {b} x {b} blocks; ")
    if width == 1 and r <= MAX_RECURRENCE_BLOCK and n > MAX_REDUCED_BLOCKS:
        plan = StoredFrontLayout.plan_stored(layout, graph, layout.inverse.array[graph.rows])
        return dataclasses.replace(layout, redundant_plan=plan)
    return StoredFrontLayout.of(layout, graph)
