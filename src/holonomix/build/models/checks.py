"""Checks of the numbers a model is built from. Traced values pass: a gradient with respect to a length needs that."""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ...core.errors import InputError, ShapeError, real_array
from ...core.types import known_array


def is_traced(*values: Any) -> bool:
    """Whether a value is known only symbolically, inside `jit`, `grad` or `vmap`."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(values))


def array_module(*values: Any) -> Any:
    """`numpy` where all values are known: every operation of JAX on known numbers compiles a program of its own."""
    return jnp if is_traced(*values) else np


def finite(name: str, value: Any) -> Any:
    """`value` as a floating point array, without NaN or infinity."""
    value = real_array(name, value)
    if not is_traced(value) and not np.all(np.isfinite(np.asarray(value))):
        raise InputError(f"{name} must be finite, not {np.asarray(value)}")
    return value


def positive(name: str, value: Any) -> Any:
    """`value` as a floating point array of positive numbers."""
    value = finite(name, value)
    if not is_traced(value) and np.any(np.asarray(value) <= 0):
        raise InputError(f"{name} must be positive, not {np.asarray(value)}")
    return value


def vector(name: str, value: Any, size: int) -> Any:
    """`value` as a vector of `size` entries; a single number is repeated."""
    value = real_array(name, value)
    if value.ndim == 0:
        return jnp.full((size,), value) if is_traced(value) else known_array(np.full(size, value))
    if value.shape != (size,):
        raise ShapeError(f"{name} has shape {value.shape}; {size} values are needed, or one for all")
    return value
