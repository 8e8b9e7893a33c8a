"""Vector fields, traits and reports that several families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.status import Status
from ..core.types import Numbers, Real, Report
from ..linalg import Iterated
from ..linalg.scales import coordinate_sizes, loose
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from .base import EXPLICIT, Traits


def reduced_traits(order: int, symmetric: bool = False, symplectic: bool = False) -> dict[str, Traits]:
    """Traits of a method for ordinary differential equations, applied to the index-reduced equations of motion."""
    return {
        "free": Traits(order, symmetric=symmetric, symplectic=symplectic, treats=EXPLICIT),
        "constrained": Traits(order, symmetric=symmetric, treats=(*EXPLICIT, Capability.MOVING)),
    }


def unknown_sizes(
    kinds: str, find: Callable[[Any], tuple[AbstractSystem, Any]] = lambda args: args[:2]
) -> Callable[[Any, Any], Any]:
    """The `sizes` of `newton_root` for unknowns that are positions and momenta one after the other, as in "qpq".

    Further unknowns have their own absolute values as sizes. `find(args)` gives the system and a position. A coordinate
    that is zero has a small fraction of the size of its block, in the mass metric (`linalg.scales`).
    """

    def sizes(x: Numbers, args: PyTree) -> Any:
        system, q = find(args)
        weights, n = jnp.ravel(system.mass_form(q).weights(q)), q.size
        parts = [
            coordinate_sizes(jnp.abs(x[k * n : (k + 1) * n]), weights if kind == "q" else 1.0 / weights, loose(x.dtype))
            for k, kind in enumerate(kinds)
        ]
        return jnp.concatenate([*parts, jnp.abs(x[len(kinds) * n :])])

    return sizes


def reduced_force(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    """`F - G^T Lambda(q, p)`: the force of the index-reduced equations, an ordinary differential equation.

    Its numerical solutions drift off the manifold by the error of the integrator.
    """
    force = system.force(q, p, t)
    if not system.has_constraints:
        return force
    return force - system.linearize(q, t).transpose(system.multipliers(q, p, t))


def vector_field(system: AbstractSystem, z: tuple[Any, Any], t: Real) -> tuple[Any, Any]:
    """`(q', p')` of the (index-reduced) equations of motion."""
    q, p = z
    return system.velocity(q, p), reduced_force(system, q, p, t)


def iteration_report(done: Iterated, **multipliers: Numbers) -> Report:
    """A report from `linalg.Iterated`."""
    status = jnp.where(done.converged, Status.OK, Status.NOT_CONVERGED).astype(jnp.int32)
    return Report(status, done.iterations, done.residual, multipliers)
