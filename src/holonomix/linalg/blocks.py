"""Block diagonal matrices: many small independent systems solved side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..core.types import Numbers
from .graph import Graph, positions
from .layout import AbstractLayout, Piece, merge_blocks, sum_parts
from .redundant import min_norm_factor
from .small import UNROLL, UnrolledFactor, factor_unrolled
from .tridiagonal import apply, diagonals, invert, smallest_pivot

# Up to this size the elimination is unrolled over the whole stack; above it that would take long to compile.
UNROLLED_BLOCK = 6


class BlockDiagonalFactor(eqx.Module):
    factors: tuple[Any, ...]
    sizes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    pivot: Any

    def _each(self, b: Numbers, call: Callable[[Any, Any], Any]) -> Any:
        """`call(factor, rows)` for every stack, its rows as `(size, count)`."""
        parts, start = [], 0
        for factor, (size, count) in zip(self.factors, self.sizes, strict=True):
            part = b[start : start + count * size].reshape(count, size).T
            start += count * size
            parts.append(call(factor, part).T.reshape(-1))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def solve(self, b: Numbers) -> Any:
        return self._each(b, lambda f, part: apply(f, part) if isinstance(f, jax.Array) else f.solve(part))

    @property
    def signed_pivot(self) -> Any:
        pivots = [f.smallest_pivot if isinstance(f, UnrolledFactor) else smallest_pivot(f) for f in self.factors]
        return jnp.min(jnp.stack(pivots))

    def shortest(self, x: Numbers) -> Any:
        """The solution of least norm with the same product, for factors that accept redundant rows."""
        return self._each(x, lambda factor, part: factor.shortest(part))


class BlockDiagonal(eqx.Module):
    """Stacks of square blocks, one stack `(size, size, count)` for each size; unknowns lie block by block."""

    stacks: tuple[Any, ...]

    def factor(self, symmetric: bool = False) -> BlockDiagonalFactor:
        factors, pivots = [], []
        for stack in self.stacks:
            if stack.shape[0] <= UNROLLED_BLOCK:
                factor = factor_unrolled(stack, stack.shape[0], symmetric)
                pivot = factor.pivot
            else:
                factor, pivot = invert(stack, diagonals(stack))
            factors.append(factor)
            pivots.append(jnp.min(pivot))
        sizes = tuple((stack.shape[0], stack.shape[2]) for stack in self.stacks)
        return BlockDiagonalFactor(tuple(factors), sizes, jnp.min(jnp.stack(pivots)))

    def factor_redundant(self, symmetric: bool = False) -> BlockDiagonalFactor:
        """Factors that accept blocks of lower rank."""
        factors = tuple(min_norm_factor(stack, symmetric) for stack in self.stacks)
        sizes = tuple((stack.shape[0], stack.shape[2]) for stack in self.stacks)
        return BlockDiagonalFactor(factors, sizes, jnp.ones((), self.stacks[0].dtype))

    def todense(self) -> Any:
        return jax.scipy.linalg.block_diag(*(stack[:, :, k] for stack in self.stacks for k in range(stack.shape[2])))


@dataclasses.dataclass(frozen=True, eq=False)
class BlockLayout(AbstractLayout):
    """Equal blocks side by side; `groups` are (nodes per block, number of blocks), in the order of the nodes."""

    place: np.ndarray  # position of every node in the order of the solver
    groups: tuple[tuple[int, int], ...]

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        a, b = self.place[i], self.place[j]
        out, start, offset = np.zeros_like(a), 0, 0
        for c, k in self.groups:
            here = (a >= start) & (a < start + c * k)
            (block, row), column = divmod(a - start, c), (b - start) % c
            out = np.where(here, offset + (row * c + column) * k + block, out)
            start, offset = start + c * k, offset + c * c * k
        return out

    def assemble(self, pieces: Sequence[Piece]) -> BlockDiagonal:
        parts, stacks, start = sum_parts(pieces, self.sizes, self.rows), [], 0
        for c, _ in self.groups:
            stacks.append(merge_blocks(parts[start : start + c * c], c, self.rows))
            start += c * c
        return BlockDiagonal(tuple(stacks))


def plan_blocks(graph: Graph) -> BlockLayout | None:
    """Independent blocks of at most `UNROLL` rows, or nodes of any size that are not coupled at all."""
    label, r = graph.components, graph.r
    sizes = np.bincount(label)
    if graph.i.size and sizes.max() * r > UNROLL:
        return None
    # equal blocks side by side, each in natural order
    nodes = np.lexsort((graph.natural, label, sizes[label]))
    groups = tuple((int(c), int(k)) for c, k in zip(*np.unique(sizes, return_counts=True), strict=True))
    text = "; ".join(f"{k} independent " + (f"blocks of {c * r} rows" if c * r > 1 else "equations") for c, k in groups)
    stored = tuple(k for c, k in groups for _ in range(c * c))
    return BlockLayout(r, stored, *graph.row_order(nodes), text, positions(nodes, graph.n), groups)
