"""Checks of the numbers a model is built from. Traced values pass: a gradient with respect to a length needs that."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...core.checks import finite_array as finite
from ...core.checks import is_traced, positive_array, real_array
from ...core.errors import ShapeError
from ...core.types import known_array


def array_module(*values: Any) -> Any:
    """`numpy` where all values are known: every operation of JAX on known numbers compiles a program of its own."""
    return jnp if is_traced(*values) else np


def positive(name: str, value: Any) -> Any:
    """`value` as a floating point array of positive numbers."""
    return positive_array(name, finite(name, value))


def vector(name: str, value: Any, size: int) -> Any:
    """`value` as a vector of `size` entries; a single number is repeated."""
    value = real_array(name, value)
    if value.ndim == 0:
        return jnp.full((size,), value) if is_traced(value) else known_array(np.full(size, value))
    if value.shape != (size,):
        raise ShapeError(f"{name} has shape {value.shape}; {size} values are needed, or one for all")
    return value
