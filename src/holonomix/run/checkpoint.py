"""Conversion of the complete memory of a run to named arrays and back."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import DifferentBitsWarning, InputError
from ..trace.frozen import digest_of
from .io.environment import current_environment, environment_changes
from .loop import Loop

GIVEN = "given:"
OTHER = "choose another directory for this one, or continue that one with what it began with"


def to_arrays(carry: PyTree) -> dict[str, np.ndarray]:
    """The leaves of the carry, named by their paths."""
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(carry)}


def from_arrays(like: PyTree, arrays: dict[str, np.ndarray]) -> Any:
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
    """The inputs that a store must have been started with to be resumed: numbers in `arrays`, settings in `meta`."""

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]

    @staticmethod
    def of(loop: Loop) -> Identity:
        start = (loop.q0[0], loop.p0[0]) if loop.alone else (loop.q0, loop.p0)
        numbers = {"system": loop.system, "method": loop.method, "q0": start[0], "p0": start[1]}
        arrays = {
            f"{GIVEN}{k}{path}": leaf
            for k, x in numbers.items()
            for path, leaf in to_arrays(eqx.filter(x, eqx.is_array)).items()
        }
        meta = {"t0": float(loop.consts.t0), "save_every": loop.every if loop.saves else 0, "method": loop.method.name}
        if np.ndim(loop.consts.dt):
            arrays[f"{GIVEN}dt"] = np.asarray(loop.consts.dt)
        else:
            meta = {"dt": float(loop.consts.dt), **meta}
        if not loop.alone:  # a single run may be extended; the layout of an ensemble is fixed
            meta |= {"trajectories": loop.count, "steps": loop.steps, "t1": loop.t1}
        if loop.consts.key is not None:
            arrays[f"{GIVEN}key"] = np.asarray(loop.consts.key)
        parts = dict(zip(("system", "method", "observe", "reduce"), loop.stepper.parts(loop.consts), strict=True))
        meta["program"] = digest_of(parts)
        meta["environment"] = current_environment()
        return Identity(arrays, meta)


def check_same_run(saved: dict[str, np.ndarray], found: dict[str, Any], own: Identity) -> None:
    """Raise if a checkpoint belongs to another run; the length may differ."""
    for name, value in own.meta.items():
        if name not in ("program", "environment") and name in found and found[name] != value:
            then = f"{found[name]}"[:80]  # a forged store may hold anything
            raise InputError(f"the store holds a run with {name} = {then}, this one has {value}; {OTHER}")
    then, program = _texts(found.get("environment")), _texts(found.get("program"))
    _check_program(program, own.meta["program"], then, own.meta["environment"])
    _check_numbers({name: x for name, x in saved.items() if name.startswith(GIVEN)}, own.arrays)
    if changes := environment_changes(then):
        warnings.warn(
            f"since the run began, {', '.join(changes)}: the last bits may differ from here on",
            DifferentBitsWarning,
            stacklevel=5,
        )


def check_no_shorter(taken: int, steps: int) -> None:
    """Raise if the stored run has more steps than requested."""
    if taken > steps:
        raise InputError(
            f"the store holds a run of {taken} steps, but {steps} steps are requested: a run can be extended, not "
            f"shortened. Give at least {taken} steps to get the stored rows, or choose another directory"
        )


def check_same_backend(before: PyTree, now: str, allow_different_bits: bool) -> None:
    """Raise if a run would resume with another back end, unless other last bits are allowed."""
    if before != now and not allow_different_bits:
        raise InputError(
            f"the store was written with backend {before!r}, this run would use {now!r}: the bits would differ. Choose "
            "the same backend, or pass allow_different_bits=True (--allow-different-bits)"
        )


def _check_numbers(before: dict[str, np.ndarray], now: dict[str, np.ndarray]) -> None:
    if not before:
        return  # old checkpoint without recorded inputs
    for name in sorted(before.keys() | now.keys()):
        a, b, what = before.get(name), now.get(name), name.removeprefix(GIVEN)
        if a is None and what == "key":
            continue  # old checkpoint, whose key was not recorded
        if what == "key" and a is not None and b is not None and not np.array_equal(a, b):
            raise InputError(f"the store holds a run with another key for its random numbers; {OTHER}")
        if a is None or b is None or a.shape != b.shape:
            raise InputError(f"the store holds a run of another system or method ({what} differs in shape); {OTHER}")
        if not np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True):
            worst = float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float))))
            raise InputError(f"the store holds a run with another {what}, off by {worst:.3g}; {OTHER}")


def _texts(found: object) -> dict[str, str]:
    """Recorded descriptions as text; a forged store may hold other types."""
    return {name: str(x) for name, x in found.items()} if isinstance(found, dict) else {}


def _check_program(before: dict[str, str], now: dict[str, str], then: dict[str, str], here: dict[str, str]) -> None:
    """Raise unless functions and settings are equal. Descriptions of other versions may differ, so less is compared."""
    same_package = then.get("holonomix") == here["holonomix"]
    same_jax = then.get("jax") == here["jax"]
    for path in sorted(before.keys() | now.keys()) if before else ():
        a, b, what = before.get(path), now.get(path), path.replace("['", ".").replace("']", "").lstrip(".")
        function = any(x is not None and x.startswith("function") for x in (a, b))
        if a == b or (function and not same_jax) or (None in (a, b) and not same_package):
            continue
        if function and None not in (a, b):
            raise InputError(f"the store holds a run in which {what[:80]} computes something else; {OTHER}")
        raise InputError(
            f"the store holds a run in which {what[:80]} is {a[:80] if a else 'missing'}, here it is {b or 'missing'}; "
            f"{OTHER}"
        )
