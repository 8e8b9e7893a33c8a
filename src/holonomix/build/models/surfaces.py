"""A bead that slides without friction on a surface given by an equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.errors import ConstraintRankError, InconsistentStateError, InputError, ShapeError
from ...core.types import ArrayLike, Numbers
from ...mechanics import System
from ...mechanics.problem import Problem
from .checks import finite, is_traced, positive
from .pendula import vertical_momentum


def torus(q: Numbers, radii: Numbers) -> Any:
    """`(sqrt(x^2 + y^2) - R)^2 + z^2 - r^2` with `radii = (R, r)`."""
    return (jnp.sqrt(q[0] ** 2 + q[1] ** 2) - radii[0]) ** 2 + q[2] ** 2 - radii[1] ** 2


def ellipsoid(q: Numbers, axes: Numbers) -> Any:
    """`x^2/a^2 + y^2/b^2 + z^2/c^2 - 1`."""
    return jnp.sum((q / axes) ** 2) - 1.0


class _Surface(eqx.Module):
    """A scalar equation as a constraint; equal for equal functions, so that it is traced once."""

    fn: Callable[..., Any] = eqx.field(static=True)
    takes_params: bool = eqx.field(static=True)

    def __call__(self, q: Numbers, params: PyTree) -> Any:
        value = self.fn(q, params["surface"]) if self.takes_params else self.fn(q)
        return jnp.reshape(value, (1,))


def _weight(q: Numbers, params: PyTree) -> Any:
    return params["mass"] * params["gravity"] * q[-1]


_NAMED = {
    "torus": (torus, (1.0, 0.4), lambda s: (s[0] + s[1], 0.0, 0.0), (0.0, 0.8, 0.6)),
    "ellipsoid": (ellipsoid, (1.5, 1.0, 0.7), lambda s: (s[0], 0.0, 0.0), (0.0, 0.8, 0.6)),
}


def bead_on_surface(
    surface: str | Callable[..., Any] = "torus",
    params: PyTree = None,
    q0: ArrayLike | None = None,
    p0: ArrayLike | None = None,
    gravity: ArrayLike = 0.0,
    mass: ArrayLike = 1.0,
) -> Problem:
    """A bead on `surface(q) = 0` (or `surface(q, params) = 0`), free or under gravity along the last axis.

    `surface` is "torus" (`params` = radii), "ellipsoid" (`params` = axes) or any function with a value; then give a
    start `q0` on the surface. The momentum is made tangent. Without gravity it moves on a geodesic at constant speed.
    """
    invariants = {}
    if isinstance(surface, str):
        if surface not in _NAMED:
            raise InputError(f"unknown surface {surface!r}; give one of {', '.join(_NAMED)}, or a function of q")
        fn, default, place, push = _NAMED[surface]
        params = positive("params", default if params is None else params)
        q0 = jnp.stack([jnp.asarray(x, params.dtype) for x in place(params)]) if q0 is None else q0
        p0 = push if p0 is None else p0
        if surface == "torus":
            if params.shape != (2,) or (not is_traced(params) and float(params[1]) >= float(params[0])):
                raise InputError(f"a torus needs two radii, the first larger; got {params}")
            invariants = {"angular momentum z": vertical_momentum}
        name = f"bead on a {surface}" if surface == "torus" else f"bead on an {surface}"
    else:
        if q0 is None:
            raise InputError("give a start q0 on the surface")
        fn, name, p0 = surface, "bead on a surface", jnp.zeros_like(jnp.asarray(q0)) if p0 is None else p0
    q, p = finite("q0", q0), finite("p0", p0)
    if q.shape != p.shape or q.ndim != 1:
        raise ShapeError(f"q0 has shape {q.shape} and p0 {p.shape}; both must be one vector of coordinates")
    numbers = {"surface": params, "gravity": finite("gravity", gravity), "mass": positive("mass", mass)}
    system = System(_weight, _Surface(fn, params is not None), mass=numbers["mass"], params=numbers)
    return Problem(system, q, _tangent(system, q, p), 0.05, 20.0, None, name, invariants)


def _tangent(system: System, q: Numbers, p: Numbers) -> Any:
    """p without its part along the normal; a start off the surface or at a singular point is refused."""
    value, normal = jax.value_and_grad(lambda x: system.constraint(x)[0])(q)
    square = jnp.sum(normal**2)
    if not is_traced(value, normal):
        if not abs(float(value)) <= 1e-8 * float(jnp.sum(jnp.abs(normal * q))):
            raise InconsistentStateError(
                f"q0 is not on the surface: the equation has the value {float(value):.6g} there instead of 0; "
                "use `q, p = hx.project(system, q, p)` to move it"
            )
        if float(square) == 0:
            raise ConstraintRankError(f"the surface has no normal at q0 = {np.asarray(q)}: its gradient is 0 there")
    return p - normal * (jnp.sum(normal * p) / square)
