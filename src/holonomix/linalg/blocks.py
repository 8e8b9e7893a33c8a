"""Block diagonal matrices: many small independent systems solved side by side."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .small import Dense
from .tridiagonal import invert

__all__ = ["BlockDiagonal", "BlockDiagonalFactor"]

# Up to this size the elimination is unrolled over the whole stack; above it that would take long to compile.
UNROLLED_BLOCK = 4


class BlockDiagonalFactor(eqx.Module):
    factors: tuple[Any, ...]
    sizes: tuple[tuple[int, int], ...] = eqx.field(static=True)
    pivot: Any

    def solve(self, b: Any) -> Any:
        parts, start = [], 0
        for factor, (count, size) in zip(self.factors, self.sizes, strict=True):
            part = b[start : start + count * size].reshape(count, size)
            start += count * size
            if isinstance(factor, jax.Array):
                parts.append(jnp.sum(factor * part[:, None, :], axis=2).reshape(-1))
            else:
                parts.append(jax.vmap(lambda f, x: f.solve(x))(factor, part).reshape(-1))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


class BlockDiagonal(eqx.Module):
    """Stacks of square blocks, one stack `(count, size, size)` for each size."""

    stacks: tuple[Any, ...]

    def factor(self, symmetric: bool = False) -> BlockDiagonalFactor:
        factors, pivots = [], []
        for stack in self.stacks:
            if stack.shape[-1] <= UNROLLED_BLOCK:
                factor = jax.vmap(lambda a: Dense(a).factor(symmetric))(stack)
                factors.append(factor)
                pivots.append(jnp.min(factor.pivot))
            else:
                inverse, pivot = invert(stack, jnp.abs(jnp.diagonal(stack, axis1=1, axis2=2)))
                factors.append(inverse)
                pivots.append(pivot)
        sizes = tuple((stack.shape[0], stack.shape[1]) for stack in self.stacks)
        return BlockDiagonalFactor(tuple(factors), sizes, jnp.min(jnp.stack(pivots)))

    def todense(self) -> Any:
        return jax.scipy.linalg.block_diag(*(block for stack in self.stacks for block in stack))
