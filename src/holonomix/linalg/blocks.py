"""Block diagonal matrices: many small independent systems solved side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..core.types import Numbers
from .redundant import min_norm_factor
from .small import unrolled
from .tridiagonal import apply, diagonals, invert

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

    def shortest(self, x: Numbers) -> Any:
        """The least-norm form of a solution, for factors that accept redundant rows."""
        return self._each(x, lambda factor, part: factor.shortest(part))


class BlockDiagonal(eqx.Module):
    """Stacks of square blocks, one stack `(size, size, count)` for each size; unknowns lie block by block."""

    stacks: tuple[Any, ...]

    def factor(self, symmetric: bool = False) -> BlockDiagonalFactor:
        factors, pivots = [], []
        for stack in self.stacks:
            if stack.shape[0] <= UNROLLED_BLOCK:
                factor = unrolled(stack, stack.shape[0], symmetric)
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
