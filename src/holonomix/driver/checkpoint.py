"""A run's complete memory as named arrays, and back."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError

__all__ = ["check_same_run", "from_arrays", "given_arrays", "to_arrays"]

GIVEN = "given:"


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


def given_arrays(system: Any, method: Any, q0: Any, p0: Any) -> dict[str, np.ndarray]:
    """What a run was given: its start, and the numbers of its system and method."""
    numbers = {"system": system, "method": method, "q0": q0, "p0": p0}
    named = [(k, to_arrays(eqx.filter(x, eqx.is_array))) for k, x in numbers.items()]
    return {f"{GIVEN}{k}{path}": leaf for k, leaves in named for path, leaf in leaves.items()}


def check_same_run(
    saved: dict[str, np.ndarray], found: dict[str, Any], given: dict[str, np.ndarray], meta: dict[str, Any]
) -> None:
    """Raise when a checkpoint belongs to another run than the one that is to go on; the length may differ."""
    other = "choose another directory for this one, or continue that one with the numbers it began with"
    for name, value in meta.items():
        if name in found and found[name] != value:
            raise InputError(f"the store holds a run with {name} = {found[name]}, this one has {value}; {other}")
    before = {name: x for name, x in saved.items() if name.startswith(GIVEN)}
    if not before:
        return  # written before runs said what they were given
    for name in sorted(before.keys() | given.keys()):
        a, b, what = before.get(name), given.get(name), name.removeprefix(GIVEN)
        if a is None or b is None or a.shape != b.shape:
            raise InputError(f"the store holds a run of another system or method ({what} differs in shape); {other}")
        if not np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True):
            worst = float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float))))
            raise InputError(f"the store holds a run with another {what}, off by {worst:.3g}; {other}")
