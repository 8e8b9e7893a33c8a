"""Parameter values of many trajectories, merged with those of a system, and the axes of their starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import InputError, ShapeError
from ..core.types import ArrayLike
from ..mechanics.abstract import AbstractSystem
from ..mechanics.projection import check_functions


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
        if isinstance(new, (list, tuple)) and jax.tree_util.treedef_is_leaf(tree):
            new = jnp.asarray(new)
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
                    f"{label} has shape {value.shape}: give shape {np.shape(x)} for one shared value, or "
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


def axes_of_start(
    system: AbstractSystem, q0: ArrayLike, p0: ArrayLike, count: int, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Whether q0 and p0 have an axis over `count` trajectories (0) or are shared (None); raises if both are possible.

    `given` is `in_axes`. If the shape of q is not known and a start has `count` entries along its first axis, the
    functions of the system decide: it is shared if they accept its shape, per trajectory if they accept that of its
    entries.
    """

    def possible(name: str, x: ArrayLike) -> list[int | None]:
        shape = np.shape(x)
        if name in given:
            return [given[name]]
        if system.shape is not None:
            return [None if shape == system.shape else 0]
        return [None, 0] if shape[:1] == (count,) else [None]

    def one(x: ArrayLike, axis: int | None) -> tuple[int, ...]:
        return np.shape(x) if axis is None else np.shape(x)[1:]

    pairs = [(a, b) for a in possible("q0", q0) for b in possible("p0", p0)]
    readings = {one(q0, a): {"q0": a, "p0": b} for a, b in pairs if one(q0, a) == one(p0, b)}
    if len(readings) > 1:
        readings = {shape: axes for shape, axes in readings.items() if _fits(system, shape)} or readings
    if len(readings) > 1:
        shared, each = readings.items()
        raise InputError(
            f"q0 of shape {np.shape(q0)} with {count} values of params is ambiguous. For one start of shape "
            f"{shared[0]} that all {count} trajectories share, write in_axes={shared[1]}; for {count} starts of shape "
            f"{each[0]}, one per trajectory, write in_axes={each[1]}"
        )
    axes: dict[str, Any] = (
        next(iter(readings.values())) if readings else dict(zip(("q0", "p0"), pairs[-1], strict=True))
    )
    shape, shared = np.shape(q0), axes == {"q0": None, "p0": None} and not given
    if shared and len(shape) > 1 and shape == np.shape(p0) and not _fits(system, shape) and _fits(system, shape[1:]):
        return {"q0": 0, "p0": 0}  # another number of starts than of parameters, which is an error of its own
    return axes


def _fits(system: AbstractSystem, shape: tuple[int, ...]) -> bool:
    """Whether the functions and the mass of a system accept a q of this shape."""
    q = jnp.ones(shape)
    try:
        check_functions(system, q, q, 0.0)
        jax.eval_shape(system.momentum, q, q)
    except Exception:  # user functions may raise anything
        return False
    return True
