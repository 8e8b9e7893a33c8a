"""Compensated accumulation: what rounding loses in one step is added in the next.

Kahan 1965; Hairer, Lubich & Wanner 2006 (VIII.5).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

__all__ = ["Compensation", "add"]


class Compensation(eqx.Module):
    """The parts of q and p below their last bit."""

    q: Any
    p: Any

    @staticmethod
    def zeros(q: Any) -> Compensation:
        return Compensation(jnp.zeros_like(q), jnp.zeros_like(q))


def add(x: Any, low: Any, increment: Any) -> tuple[Any, Any]:
    """`x + low + increment` as a rounded sum and the new low part."""
    increment = increment + low
    total = x + increment
    return total, increment - (total - x)
