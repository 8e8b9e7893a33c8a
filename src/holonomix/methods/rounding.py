"""Corrections that keep rounding errors of the energy and of constraints from accumulating."""

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
# size. So g changes by about eps dt per step, mostly with the same sign, and the errors accumulate. Removing all of an
# error in g (eps) at once would perturb momenta by eps/dt.
CORRECTED_FRACTION = 2.0**-7
# Larger errors, in eps, are no rounding errors and stay.
MAX_CORRECTED = 64


def constraint_correction(system: AbstractSystem, q: Numbers, t: Real, dt: Real, G: PyTree) -> Any:
    """The rate by which `d/dt g` must be off over a step from q to remove a part of the rounding error in `g(q)`.

    `G` are the Jacobians along the step. An error of g above round-off comes from the method or the start, and stays.
    """
    g = system.constraint(q, t)
    size = jnp.max(row_sizes(G, jnp.full(q.size, jnp.max(jnp.abs(q)))), axis=0)
    small = jnp.abs(g) <= MAX_CORRECTED * jnp.finfo(g.dtype).eps * size
    # not part of the method's derivative
    return jax.lax.stop_gradient(jnp.where(small, CORRECTED_FRACTION / dt * g, 0.0))


def conserved_energy(system: AbstractSystem, q: Numbers, p: Numbers) -> Any:
    """The energy at the start, for `correct_energy`; None where forces or time change the energy."""
    if not system.conservative or system.rheonomic:
        return None
    return jax.lax.stop_gradient(system.hamiltonian(q, p))


def correct_energy(
    system: AbstractSystem, q: Numbers, p: Numbers, low: Compensation, energy: Real | None
) -> Compensation:
    """The low parts after a step, without a fraction of the rounding error of the energy since the start.

    The momentum changes along `M v`, which keeps it tangent, by less than an ulp. An error above round-off comes from
    the method, and stays.
    """
    if energy is None:
        return low
    v = system.velocity(q, p)
    kinetic, potential = system.kinetic(q, p), system.potential(q)
    error, size = kinetic + potential - energy, kinetic + jnp.abs(potential)
    small = (jnp.abs(error) <= MAX_CORRECTED * jnp.finfo(q.dtype).eps * size) & (size > 0)
    part = jnp.where(small, CORRECTED_FRACTION * error / jnp.where(small, 2 * kinetic + size, 1.0), 0.0)
    return Compensation(low.q, low.p - jax.lax.stop_gradient(part * system.mass_form(q).momentum(q, v)))
