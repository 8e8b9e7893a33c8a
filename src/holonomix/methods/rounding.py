"""Rounding errors of the energy and of constraints, removed a little in every step so that they do not add up."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.types import Numbers, Real
from ..linalg import Compensation
from ..mechanics.abstract import AbstractSystem
from .stages import row_sizes

# The fraction of a rounding error in g or in the energy that one step removes. Rounding errors are not random: the
# product of a number with dt = 0.05 (whose bits repeat) has only five different rounding errors, which depend on its
# size. So g changes by about eps dt in each step, mostly to the same side, and without this the errors add up. Removing
# all of an error in g (eps) at once would perturb momenta by eps/dt.
RETURNED, LARGEST_RETURNED = 2.0**-7, 64


def returned(system: AbstractSystem, q: Numbers, t: Real, dt: Real, G: PyTree) -> Any:
    """What `d/dt g` must make up for over a step from q, from the Jacobians `G` along it: round-off or zero.

    An error of g above round-off belongs to the method or to the start, and stays.
    """
    g = system.constraint(q, t)
    size = jnp.max(row_sizes(G, jnp.full(q.size, jnp.max(jnp.abs(q)))), axis=0)
    small = jnp.abs(g) <= LARGEST_RETURNED * jnp.finfo(g.dtype).eps * size
    return jax.lax.stop_gradient(jnp.where(small, RETURNED / dt * g, 0.0))  # no part of the method's derivative


def conserved_energy(system: AbstractSystem, q: Numbers, p: Numbers) -> Any:
    """The energy at the start, for `energy_returned`; None where forces or time change the energy."""
    if not system.conservative or system.rheonomic:
        return None
    return jax.lax.stop_gradient(system.hamiltonian(q, p))


def energy_returned(
    system: AbstractSystem, q: Numbers, p: Numbers, low: Compensation, energy: Real | None
) -> Compensation:
    """The low parts after a step, with a part of what rounding has done to the energy since the start removed.

    The momentum changes along `M v`, which keeps it tangent, by less than an ulp. Like `returned`, this leaves an error
    above round-off alone: that one belongs to the method.
    """
    if energy is None:
        return low
    v = system.velocity(q, p)
    kinetic, potential = system.kinetic(q, p), system.potential(q)
    error, size = kinetic + potential - energy, kinetic + jnp.abs(potential)
    small = (jnp.abs(error) <= LARGEST_RETURNED * jnp.finfo(q.dtype).eps * size) & (size > 0)
    part = jnp.where(small, RETURNED * error / jnp.where(small, 2 * kinetic + size, 1.0), 0.0)
    return Compensation(low.q, low.p - jax.lax.stop_gradient(part * system.mass_form(q).momentum(q, v)))
