"""Vector fields and small flows that several families share."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..status import Status
from ..systems.abstract import AbstractSystem
from ..systems.capabilities import Capability
from ..types import Numbers, Real, Report
from .base import EXPLICIT, Traits


def reduced_traits(order: int, symmetric: bool = False, symplectic: bool = False) -> dict[str, Traits]:
    """Traits of a method for ordinary differential equations, applied to the index-reduced equations of motion."""
    return {
        "free": Traits(order, symmetric=symmetric, symplectic=symplectic, treats=EXPLICIT),
        "constrained": Traits(order, symmetric=symmetric, treats=(*EXPLICIT, Capability.MOVING)),
    }


def reduced_force(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    """`F - G^T Lambda(q, p)`: the force of the index-reduced equations, an ordinary differential equation.

    Its solutions stay on the manifold only as well as the integrator is accurate: this is the drifting control.
    """
    force = system.force(q, p, t)
    if not system.has_constraints:
        return force
    return force - system.linearize(q, t).transpose(system.multipliers(q, p, t))


def vector_field(system: AbstractSystem, z: tuple[Any, Any], t: Real) -> tuple[Any, Any]:
    """`(q', p')` of the (index-reduced) equations of motion."""
    q, p = z
    return system.velocity(q, p), reduced_force(system, q, p, t)


def iteration_report(done: Any, **multipliers: Numbers) -> Report:
    """A report from `linalg.Iterated`."""
    status = jnp.where(done.converged, Status.OK, Status.NOT_CONVERGED).astype(jnp.int32)
    return Report(status, done.iterations, done.residual, multipliers)
