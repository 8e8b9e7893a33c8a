"""Compensated summation: the rounding error of one step is added in the next.

Kahan 1965; Hairer, Lubich & Wanner 2006 (VIII.5).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..core.types import Numbers, Real


class Compensation(eqx.Module):
    """The rounding errors of q and p, below their last bit."""

    q: Any
    p: Any

    @staticmethod
    def zeros(q: Numbers) -> Compensation:
        return Compensation(jnp.zeros_like(q), jnp.zeros_like(q))

    def reversed(self) -> Compensation:
        """For the same point with reversed momentum."""
        return Compensation(self.q, -self.p)


def add(x: Numbers, low: Numbers, increment: Real) -> tuple[Any, Any]:
    """`x + low + increment` as a rounded sum and the new low part."""
    shape = x.shape
    x, increment = flatten_odd(x), flatten_odd(increment + low)
    total = x + increment
    return total.reshape(shape), (increment - (total - x)).reshape(shape)


def flatten_odd(x: Numbers) -> Any:
    """Flatten an array whose last axis is not a power of two: XLA does not vectorize loops over short odd axes.

    (3000, 3) numbers take five times as long as 9000 in one vector; (4500, 2) do not.
    """
    last = x.shape[-1] if x.ndim > 1 else 1
    return x.reshape(-1) if last & (last - 1) else x
