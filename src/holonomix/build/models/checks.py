"""Checks of the arguments of models. Traced values pass, so that gradients with respect to a length are possible."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.checks import finite_array as finite
from ...core.checks import is_traced, positive_array, real_array
from ...core.errors import ShapeError
from ...core.types import Array, ArrayLike, known_array


def array_module(*values: PyTree) -> Any:
    """`numpy` where all values are known: every operation of JAX on known numbers compiles a program of its own."""
    return jnp if is_traced(*values) else np


def positive(name: str, value: ArrayLike) -> Array:
    """`value` as a floating point array of positive numbers."""
    return positive_array(name, finite(name, value))


def vector(name: str, value: ArrayLike, size: int) -> Array:
    """`value` as a vector of `size` entries; a single number is repeated."""
    array = real_array(name, value)
    if array.ndim == 0:
        return jnp.full((size,), array) if is_traced(array) else known_array(np.full(size, array))
    if array.shape != (size,):
        raise ShapeError(f"{name} has shape {array.shape}; {size} values are needed, or one for all")
    return array
