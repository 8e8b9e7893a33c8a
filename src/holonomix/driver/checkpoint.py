"""A run's complete memory as named arrays, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from .plan import Plan

__all__ = ["Identity", "check_same_run", "from_arrays", "to_arrays"]

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


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a store must have been begun with to be continued: numbers in `arrays`, names and settings in `meta`."""

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]

    @staticmethod
    def of(plan: Plan) -> Identity:
        numbers = {"system": plan.system, "method": plan.method, "q0": plan.q0, "p0": plan.p0}
        arrays = {
            f"{GIVEN}{k}{path}": leaf
            for k, x in numbers.items()
            for path, leaf in to_arrays(eqx.filter(x, eqx.is_array)).items()
        }
        meta = {"t0": float(plan.consts.t0), "save_every": plan.every if plan.saves else 0, "method": plan.method.name}
        if np.ndim(plan.consts.dt):
            arrays[f"{GIVEN}dt"] = np.asarray(plan.consts.dt)
        else:
            meta = {"dt": float(plan.consts.dt), **meta}
        if plan.many:
            meta["trajectories"] = plan.count
        return Identity(arrays, meta)


def check_same_run(saved: dict[str, np.ndarray], found: dict[str, Any], own: Identity) -> None:
    """Raise when a checkpoint belongs to another run than the one that is to go on; the length may differ."""
    other = "choose another directory for this one, or continue that one with the numbers it began with"
    for name, value in own.meta.items():
        if name in found and found[name] != value:
            raise InputError(f"the store holds a run with {name} = {found[name]}, this one has {value}; {other}")
    before = {name: x for name, x in saved.items() if name.startswith(GIVEN)}
    if not before:
        return  # old checkpoint without recorded inputs
    for name in sorted(before.keys() | own.arrays.keys()):
        a, b, what = before.get(name), own.arrays.get(name), name.removeprefix(GIVEN)
        if a is None or b is None or a.shape != b.shape:
            raise InputError(f"the store holds a run of another system or method ({what} differs in shape); {other}")
        if not np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True):
            worst = float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float))))
            raise InputError(f"the store holds a run with another {what}, off by {worst:.3g}; {other}")
