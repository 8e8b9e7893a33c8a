r"""HBVM's polynomial for a Hamiltonian that is not a sum `T(p) + V(q)`: a mass M(q) or a vector potential.

Position and momentum share one polynomial `y = (q, p)` of degree s,

    y(c h) = y_0 + h sum_j I_j(c) gamma_j        gamma_j = sum_l b_l P_j(c_l) F(y(c_l h))
    F = (H_p, -H_q + f - G^T lambda)             sum_l b_l G(q_l) q'_l = 0, which is g(q_1) = g(q_0)

The change of H along it is `sum_j (H_q)_j . (H_p)_j - (H_p)_j . ((H_q)_j + (G^T lambda)_j)`, in Legendre coefficients,
`= -lambda^T sum_l b_l G_l q'_l = 0`: energy and constraint are exact where the quadrature is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.types import Numbers, Real
from ..linalg.scales import coordinate_sizes, inverse_sizes
from ..mechanics.abstract import AbstractSystem
from .legendre import Tables, coefficients, step_norm
from .rounding import constraint_correction
from .stages import MIN_SPEED_FRACTION, combine, pulls, rates, speed_sizes, velocities


class Nodes(NamedTuple):
    """Values of the equations at one iterate."""

    defect: Any  # (s, 2 n), of the equation for gamma
    along_g: Any  # (m,), d/dt g summed along the step
    field: Any  # (s, 2 n), Legendre coefficients of F
    G: Any  # a stack of k Jacobians, None without constraints


def start_slopes(system: AbstractSystem, q: Numbers, p: Numbers, t: Real, s: int) -> Any:
    """A first guess of gamma: the motion without constraint forces, as if it were uniform."""
    slope = jnp.concatenate([system.velocity(q, p).reshape(-1), system.force(q, p, t).reshape(-1)])
    return jnp.zeros((s, slope.size), q.dtype).at[0].set(slope)


def equations(gamma: Numbers, multipliers: Numbers, args: PyTree, tab: Tables) -> Nodes:
    """The equations at `gamma` and lambda; `args` is `(system, q, low_q, p, t, dt)`."""
    system, q, low, p, t, dt = args
    n, shape, m = q.size, q.shape, multipliers.size
    start = jnp.concatenate([q.reshape(-1), p.reshape(-1)])
    below = jnp.concatenate([low.reshape(-1), jnp.zeros_like(low).reshape(-1)])
    y = start + (below + dt * (tab.I @ gamma))

    def at(y: Numbers, c: Numbers):
        here, momentum, when = y[:n].reshape(shape), y[n:].reshape(shape), t + c * dt
        force = system.force(here, momentum, when).reshape(-1)
        jac = system.linearize(here, when) if m else None
        force = force if jac is None else force - jac.transpose(multipliers).reshape(-1)
        return jnp.concatenate([system.velocity(here, momentum).reshape(-1), force]), jac

    values, G = jax.vmap(at)(y, jnp.asarray(tab.c, q.dtype))
    field = coefficients(tab, values)
    along_g = multipliers
    if m:
        along_g = tab.b @ rates(G, tab.P @ gamma[:, :n]) + constraint_correction(system, q, t, dt, G)
    return Nodes(gamma - field, along_g, field, G)


def residual(x: tuple[Any, Any], args: PyTree, tab: Tables) -> tuple[Any, Any]:
    nodes = equations(*x, args, tab)
    return nodes.defect, nodes.along_g


def correction(x: tuple[Any, Any], args: PyTree, tab: Tables) -> tuple[Any, Any]:
    """One sweep: gamma by its fixed point, lambda such that the end of the step is on the manifold.

    The response of the positions to lambda takes the mass at the start of the step.
    """
    system, q, low, p, t, dt = args
    n = q.size
    gamma, multipliers = x
    nodes = equations(gamma, multipliers, args, tab)
    speeds = jnp.max(jnp.abs(gamma[:, :n]) + jnp.abs(nodes.field[:, :n]), axis=0)
    # forces may cancel, so their parts count
    reach = jnp.max(jnp.abs(nodes.field[:, n:]), axis=0)
    if multipliers.size:
        reach = reach + jnp.max(pulls(jax.tree.map(jnp.abs, nodes.G), jnp.abs(multipliers)), axis=0)
    speeds = speed_sizes(system, q, speeds + jnp.abs(dt * velocities(system, q, reach[None])[0]))
    weights = jnp.ravel(system.mass_form(q).weights(q))
    reach = coordinate_sizes(jnp.abs(p.reshape(-1)) + jnp.abs(dt) * reach, 1.0 / weights, MIN_SPEED_FRACTION)
    off_p = jnp.max(jnp.abs(dt * nodes.defect[:, n:]) * inverse_sizes(reach))
    norm = jnp.maximum(step_norm(nodes.defect[:, :n], nodes.along_g, nodes.G, speeds), off_p)
    if not multipliers.size:
        return (nodes.defect, nodes.along_g), norm

    end = system.linearize(q + (low + dt * gamma[0, :n].reshape(q.shape)), t + dt)
    gram = system.gram(q, end, combine(nodes.G, dt * (tab.X @ tab.weighted.T)[0]))
    dl = gram.factor().solve(nodes.along_g - end(nodes.defect[0, :n].reshape(q.shape)))
    pull = tab.weighted.T @ pulls(nodes.G, dl)
    change = jnp.concatenate([dt * (tab.X @ velocities(system, q, pull)), pull], axis=1)
    # a change of lambda moves momenta at once and positions through them: d gamma_p = -pull, d gamma_q = -h X M^-1 pull
    return (nodes.defect + change, -dl), norm
