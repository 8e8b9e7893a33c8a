"""Values of the parameters of many trajectories, merged with those of a system."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import InputError, ShapeError


def merge_params(known: PyTree, given: PyTree, name: str = "params") -> tuple[PyTree, PyTree, int | None]:
    """The parameters with the given values, the axis (0 or None) of each leaf, and the length of the axes."""
    lengths: dict[str, int] = {}

    def merge(own: PyTree, new: PyTree, where: str) -> tuple[PyTree, PyTree]:
        if isinstance(own, Mapping):
            unknown = sorted(map(str, set(new) - set(own))) if isinstance(new, Mapping) else []
            if unknown or not isinstance(new, Mapping):
                extra = f"; not {', '.join(unknown)}" if unknown else f", not {type(new).__name__}"
                raise InputError(f"{where} of the system has the entries {', '.join(map(str, own))}{extra}")
            parts = {k: merge(x, new[k], f"{where}[{k!r}]") if k in new else (x, none(x)) for k, x in own.items()}
            return {k: part[0] for k, part in parts.items()}, {k: part[1] for k, part in parts.items()}
        leaves, tree = jax.tree.flatten(own)
        if tree != jax.tree.structure(new):
            raise InputError(f"{where} must have the structure of the system's: {tree}, not {jax.tree.structure(new)}")
        values, axes = [], []
        for number, (x, value) in enumerate(zip(leaves, map(np.asarray, jax.tree.leaves(new)), strict=True)):
            label = where if len(leaves) == 1 else f"{where}, leaf {number}"
            if value.shape[1:] == np.shape(x) and value.ndim:
                lengths[label] = len(value)
            elif value.shape != np.shape(x):
                each = ", ".join(("n", *map(str, np.shape(x))))
                raise ShapeError(
                    f"{label} has shape {value.shape}: give shape {np.shape(x)} for one value that all share, or "
                    f"({each}) for the values of n trajectories"
                )
            values.append(jnp.asarray(value, jnp.result_type(x)))
            axes.append(0 if label in lengths else None)
        return jax.tree.unflatten(tree, values), jax.tree.unflatten(tree, axes)

    none = lambda tree: jax.tree.map(lambda _: None, tree)
    values, axes = merge(known, given, name)
    if len(set(lengths.values())) > 1:
        raise ShapeError(f"the leading axes differ: {', '.join(f'{k} has {v}' for k, v in lengths.items())}")
    return values, axes, next(iter(lengths.values()), None)
