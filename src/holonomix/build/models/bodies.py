"""Rigid bodies as rotation matrices: q = R of shape (3, 3), `R^T R = I`, ambient momentum `p = R Omega^ J_d`.

`J_d = tr(J)/2 I - J` turns the kinetic energy into `tr(R' J_d R'^T)/2`; a unit inertia has `J_d = I/2`. The constraint
has six rows, those off the diagonal scaled by sqrt 2, so that `|g|^2 = tr((R^T R - I)^2)`. Tao & Owhadi (4.5).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.errors import InputError
from ...core.scene import Frame, Scene, ShapeMark
from ...core.types import ArrayLike, Function, Numbers, Real
from ...linalg.rotations import hat, vee
from ...mechanics import System
from ...mechanics.problem import Problem
from .checks import finite, is_traced, vector

ROWS, COLUMNS = np.triu_indices(3)
WEIGHTS = np.where(ROWS == COLUMNS, 1.0, np.sqrt(2.0))


def orthonormality(q: Numbers, *params: PyTree) -> Any:
    """The upper triangle of `R^T R - I`, off-diagonal entries times sqrt 2."""
    return (q.T @ q - jnp.eye(3, dtype=q.dtype))[ROWS, COLUMNS] * WEIGHTS


def spatial_momentum(q: Numbers, p: Numbers) -> Any:
    """The angular momentum in space, `R J Omega`."""
    return vee(p @ q.T - q @ p.T)


def free(q: Numbers, params: PyTree) -> Any:
    return jnp.zeros((), q.dtype)


def rigid_body(
    potential: Function | None = None,
    inertia: ArrayLike = (1.0, 1.0, 1.0),
    rotation: ArrayLike | None = None,
    angular_velocity: ArrayLike = (1.0, 0.2, 0.1),
    params: PyTree | None = None,
    name: str = "rigid body",
    **options: Any,
) -> Problem:
    """A rigid body with a fixed point and the potential `V(R)` (or `V(R, params)`), free when none is given.

    `inertia` holds the principal moments or the whole matrix; `angular_velocity` is that of the body frame.
    """
    inertia = finite("inertia", inertia)
    if inertia.ndim != 2:
        inertia = jnp.diag(vector("inertia", inertia, 3))
    second = jnp.trace(inertia) / 2 * jnp.eye(3) - inertia
    if not is_traced(second):
        least = float(np.linalg.eigvalsh(np.asarray(second))[0])
        if least <= 0:
            raise InputError(
                f"the moments of inertia must satisfy the triangle inequality, as those of a solid body do; "
                f"the smallest second moment is {least:g}"
            )
    diagonal = not is_traced(second) and np.count_nonzero(second - np.diag(np.diag(second))) == 0
    mass = jnp.broadcast_to(jnp.diag(second), (3, 3)) if diagonal else jnp.kron(jnp.eye(3), second)
    if potential is None:
        potential, params = free, {}
    q0 = jnp.eye(3) if rotation is None else jnp.asarray(rotation, jnp.result_type(float))
    p0 = q0 @ hat(vector("angular_velocity", finite("angular_velocity", angular_velocity), 3)) @ second
    system = System(potential, orthonormality, mass=mass, params=params)
    if not is_traced(inertia):
        options.setdefault("scene", _scene(np.asarray(inertia)))
    return Problem(system, q0, p0, options.pop("dt", 0.05), options.pop("t1", 10.0), name=name, **options)


def _scene(inertia: np.ndarray) -> Scene:
    """A box with these moments of inertia (up to its size), turning about the origin."""
    moments, axes = np.linalg.eigh(inertia)
    squares = np.sqrt(np.maximum(moments.sum() / 2 - moments, 0.02 * moments.max()))
    sides, rotation = tuple(float(x) for x in 2 * squares / squares.max()), tuple(float(x) for x in axes.reshape(-1))
    body = Frame("body", -1, (0, 1, 2), (ShapeMark("box", sides, rotation=rotation),))
    return Scene(3, frames=(body,), anchors=((0.0, 0.0, 0.0),), layout="rotation")


def dipole(q: Numbers, params: PyTree) -> Any:
    return params["field"] * q[2, 2]


def magnetized_body(
    field: ArrayLike = 1.0,
    inertia: ArrayLike = 1.0,
    rotation: ArrayLike | None = None,
    angular_velocity: ArrayLike = (1.0, 0.2, 0.1),
) -> Problem:
    """A magnetized body in a constant field, `V = B mu R_33` (Tao & Owhadi (4.5)); `field` is `B mu`."""
    moments = vector("inertia", finite("inertia", inertia), 3) if np.ndim(inertia) < 2 else inertia
    vertical = {"vertical angular momentum": lambda q, p: spatial_momentum(q, p)[2]}
    params = {"field": finite("field", field)}
    return rigid_body(
        dipole, moments, rotation, angular_velocity, params, "magnetized body", invariants=vertical, dt=0.1, t1=5.0
    )


def top_weight(q: Numbers, params: PyTree) -> Any:
    return params["weight"] * jnp.sum(q[2] * params["center"])


def heavy_top(
    inertia: ArrayLike = (1.0, 1.0, 0.5),
    center: ArrayLike = (0.0, 0.0, 1.0),
    weight: ArrayLike = 1.0,
    tilt: Real = 0.3,
    angular_velocity: ArrayLike = (0.0, 0.0, 8.0),
) -> Problem:
    """A top with its point fixed, `V = m g (R c)_3` for the center of mass c in the body, tilted from the vertical."""
    params = {"weight": finite("weight", weight), "center": vector("center", finite("center", center), 3)}
    c, s = jnp.cos(tilt), jnp.sin(tilt)
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    rotation = jnp.stack([jnp.stack([one, zero, zero]), jnp.stack([zero, c, -s]), jnp.stack([zero, s, c])])
    vertical = {"vertical angular momentum": lambda q, p: spatial_momentum(q, p)[2]}
    options = {"scene": None if is_traced(params["center"]) else _top_scene(np.asarray(params["center"]))}
    return rigid_body(
        top_weight,
        inertia,
        rotation,
        angular_velocity,
        params,
        "heavy top",
        invariants=vertical,
        dt=0.02,
        t1=10.0,
        **options,
    )


def _top_scene(center: np.ndarray) -> Scene:
    """A disk with a mark on an axle through its center of mass, which stands on the origin."""
    size = float(np.linalg.norm(center)) or 1.0
    axle = center / size if np.any(center) else np.array([0.0, 0.0, 1.0])
    side = np.cross(axle, [1.0, 0.0, 0.0] if abs(axle[0]) < 0.9 else [0.0, 1.0, 0.0])
    side = side / np.linalg.norm(side)
    turn = tuple(float(x) for x in np.stack([side, np.cross(axle, side), axle], axis=1).reshape(-1))
    at = tuple(float(x) for x in center)
    mark = tuple(float(x) for x in center + 0.4 * size * side)
    shapes = (
        ShapeMark("line", (0.0, 0.0, 0.0, *(1.4 * float(x) for x in size * axle))),
        ShapeMark("cylinder", (0.5 * size, 0.1 * size), at, turn),
        ShapeMark("sphere", (0.1 * size,), mark, color="#d97706"),
    )
    return Scene(3, frames=(Frame("top", -1, (0, 1, 2), shapes),), anchors=((0.0, 0.0, 0.0),), layout="rotation")
