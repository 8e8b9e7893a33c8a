"""A run's complete memory as named arrays, and back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError

__all__ = ["from_arrays", "to_arrays"]


def to_arrays(carry: Any) -> dict[str, np.ndarray]:
    """Every leaf of the carry under the name of its path."""
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(carry)}


def from_arrays(like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The carry with the structure of `like` and the values of a checkpoint."""
    paths, treedef = jax.tree_util.tree_flatten_with_path(like)
    leaves = []
    for path, leaf in paths:
        name = jax.tree_util.keystr(path)
        if name not in arrays or arrays[name].shape != np.shape(leaf):
            raise InputError(
                f"the checkpoint does not belong to this system and method: {name} is missing or has another shape"
            )
        leaves.append(jnp.asarray(arrays[name], leaf.dtype))
    return jax.tree.unflatten(treedef, leaves)
