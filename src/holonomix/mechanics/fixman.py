"""The Fixman potential: the difference between the position distributions of a rigid system and of its stiff form."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import is_traced
from ..core.errors import InputError
from ..core.types import Numbers, Real
from ..linalg import UNROLL, Dense
from .abstract import AbstractSystem
from .stiff import StiffSystem
from .system import System


def fixman(system: AbstractSystem, temperature: Real) -> System:
    r"""The constrained system that samples at `kT = temperature` as its stiff counterpart does (Fixman 1974).

    A rigid system visits positions with the surface measure of the mass metric, a stiff one with that measure divided
    by the product of its fast frequencies. The difference is a potential,

        W(q) = (kT/2) log det(G M^-1 G^T)          for a constrained System, meant as the limit of omega^2/2 |g|^2
        W(q) = kT sum_k log omega_k(q)             for a StiffSystem; the result is its rigid form with U + W

    and the two agree along the manifold if the stiff potential is the penalty. W is differentiated automatically.
    Whether a bond is written as |r| - L or as |r|^2 - L^2 changes W by a constant only.
    """
    if not is_traced(temperature) and not np.all(np.asarray(temperature) >= 0):
        raise InputError(f"temperature must not be negative, not {temperature}")
    stiff = isinstance(system, StiffSystem)
    if not stiff and (not system.has_constraints or system.rheonomic):
        raise InputError("the Fixman potential belongs to constraints that do not depend on time; this system has none")
    rigid = system.constrained() if stiff else system
    if rigid.time_dependent:
        raise InputError("the Fixman potential corrects an equilibrium; this system's potential depends on time")
    potential = CorrectedPotential(rigid.potential_fn, system, jnp.asarray(temperature, jnp.result_type(float)))
    return System(potential, rigid.constraint_terms, rigid.mass, rigid.force_fn, rigid.params, rigid.vector_fn)


def fixman_potential(system: AbstractSystem, q: Numbers) -> Any:
    """`W(q)/kT`: `(1/2) log det(G M^-1 G^T)`, or `sum_k log omega_k(q)` for a StiffSystem."""
    if not isinstance(system, StiffSystem):
        jac = system.linearize(q)
        return 0.5 * log_determinant(system.gram(q, jac, jac).todense())
    # prod omega_k^2 = det S / det B, without the eigenvalues
    rigid = system.constrained()
    jac = rigid.linearize(q)
    b = rigid.gram(q, jac, jac).todense()
    directions = jax.vmap(lambda e: rigid.inverse_mass(q, jac.transpose(e)))(jnp.eye(b.shape[0], dtype=q.dtype))
    extra = () if system.params is None else (system.params,)
    still = jax.tree.map(jnp.zeros_like, extra)
    bend = jax.vmap(lambda u: jax.jvp(jax.grad(system.stiff_fn), (q, *extra), (u, *still))[1])(directions)
    m = b.shape[0]
    s = directions.reshape(m, -1) @ bend.reshape(m, -1).T
    return 0.5 * (log_determinant(s) - log_determinant(b))


class CorrectedPotential(eqx.Module):
    """`V(q) + kT W(q)`."""

    potential: Any
    system: AbstractSystem
    temperature: Any

    def __call__(self, q: Numbers, *params: PyTree) -> Any:
        system = self.system.with_params(*params) if params else self.system
        return self.potential(q, *params) + self.temperature * fixman_potential(system, q)


def log_determinant(matrix: Numbers) -> Any:
    """`log det` of a symmetric positive definite matrix; unrolled where small, like every solve of a step."""
    if matrix.shape[0] > UNROLL:
        return jnp.linalg.slogdet(matrix)[1]
    factor = Dense(matrix).factor(symmetric=True)
    return -jnp.sum(jnp.log(jnp.stack(factor.inverse_pivots)))  # pyright: ignore
