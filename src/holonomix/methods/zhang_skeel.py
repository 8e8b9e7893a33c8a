"""The symplectic, linearly implicit methods of Zhang & Skeel: Newmark's stability for one linear solve per step."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.types import Key, Numbers, Real, State, StepResult
from ..linalg import Compensation
from ..mechanics.abstract import AbstractSystem
from ..mechanics.curvature import curvature
from ..mechanics.stiff import StiffSystem
from .base import Traits
from .kick_drift import PhasePoint
from .newmark import AbstractImplicit, as_beta, definite_report, full_system, vanishes


class AbstractFiltered(AbstractImplicit):
    """Velocity Verlet with a force filtered by a linear solve, shared by three methods."""

    definite: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def force_at(self, system: AbstractSystem, q: Numbers, dt: Real, once: bool = False) -> tuple[Any, Any]:
        """The force, and the factors of the matrix that filtered it (`once`: computed once per run)."""

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        force, factor = self.force_at(system, state.q, dt, once=True)
        return Compensation.zeros(state.q), force, factor.smallest

    def resize(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Any:
        force, factor = self.force_at(system, state.q, dt)
        return carry[0], force, factor.smallest

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        return verlet_step(system, state, dt, carry, lambda q: self.force_at(system, q, dt), self.definite)


class ZhangSkeel(AbstractFiltered):
    r"""Z&S: velocity Verlet with the force of a modified potential.

        A(x) = M + beta h^2 V''(x)        a = -A^-1 grad V        M f = M a - (1/2) beta^2 h^4 a.V'''.a
        x_{n+1} = x_n + h v_n + h^2/2 f_n        v_{n+1} = v_n + h/2 (f_n + f_{n+1})

    `M f = -grad W`, `W = V - (1/2) beta h^2 grad V^T A^-1 grad V`: hence symplectic, variational, symmetric, of order
    two. Linearly stable for every h when beta >= 1/4; in nonlinear problems a step ends with the status INDEFINITE
    where A is no longer positive definite (`definite=False` lets it go on). No third derivative is formed: the
    contraction is a second directional derivative of the gradient.
    """

    reference = "Zhang & Skeel 1997; Tao & Owhadi 2015 (1.3)"
    family = "newmark"

    beta: Any = eqx.field(converter=as_beta, default=0.25)
    definite: bool = eqx.field(static=True, default=True)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return dict.fromkeys(("free", "stiff"), Traits(2, symmetric=True, symplectic=True))

    def force_at(self, system: AbstractSystem, q: Numbers, dt: Real, once: bool = False) -> tuple[Any, Any]:
        return modified_force(system, q, dt, self.beta, once=once)


class ZhangSkeelSimplified(AbstractFiltered):
    r"""Z&Ss: Z&S without the third derivative, `f = a = -A^-1 grad V`, one linear solve per step.

    Symmetric, of order two; symplectic only where `A` and `V'''.a` commute (one degree of freedom, a Hessian with a
    constant eigenbasis), so the trait is False. The cheap choice for many coordinates.
    """

    reference = "Zhang & Skeel 1997; Tao & Owhadi 2015 (2.7)"
    family = "newmark"

    beta: Any = eqx.field(converter=as_beta, default=0.25)
    definite: bool = eqx.field(static=True, default=True)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return dict.fromkeys(("free", "stiff"), Traits(2, symmetric=True, symplectic=vanishes(self.beta)))

    def force_at(self, system: AbstractSystem, q: Numbers, dt: Real, once: bool = False) -> tuple[Any, Any]:
        a, factor = filter_gradient(full_system(system), system.gradient(q), q, self.beta * dt**2, once=once)
        return system.momentum(q, a), factor


class StiffZhangSkeel(AbstractFiltered):
    r"""Z&Ss for `U + V/eps^2` with the Hessian of the stiff part alone.

        a = -(M + beta h^2 V''/eps^2)^-1 (grad U + grad V/eps^2)

    The stiff Hessian is often block diagonal (one block per molecule) or banded, and then so is the solve. Stable on
    linear problems for `beta > 1/4 + O(eps^2)`; symmetric, of order two, not symplectic.
    """

    reference = "Tao & Owhadi 2015 (2.8)"
    family = "newmark"

    beta: Any = eqx.field(converter=as_beta, default=0.3)
    definite: bool = eqx.field(static=True, default=True)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"stiff": Traits(2, symmetric=True, symplectic=vanishes(self.beta))}

    def force_at(self, system: AbstractSystem, q: Numbers, dt: Real, once: bool = False) -> tuple[Any, Any]:
        assert isinstance(system, StiffSystem)
        a, factor = filter_gradient(system.fast, system.gradient(q), q, self.beta * dt**2, once=once)
        return system.momentum(q, a), factor


def filter_gradient(
    system: AbstractSystem, gradient: Numbers, q: Numbers, shift: Real, weight: Real = 1.0, once: bool = False
) -> tuple[Any, Any]:
    """`a = -(weight M + shift V'')^-1 gradient` with the Hessian of `system`, and the factors."""
    factor = curvature(system, q, shift, weight).factor(once)
    return -factor.solve(gradient.reshape(-1)).reshape(q.shape), factor


def modified_force(
    system: AbstractSystem, q: Numbers, dt: Real, beta: Real, weight: Real = 1.0, once: bool = False
) -> tuple[Any, Any]:
    """`-grad W` of the modified potential `W = V - (beta h^2/2) grad V^T (weight M + beta h^2 V'')^-1 grad V`."""
    shift = beta * dt**2
    a, factor = filter_gradient(full_system(system), system.gradient(q), q, shift, weight, once)
    # a.V'''.a is the second derivative of the gradient along a
    along = lambda x: jax.jvp(system.gradient, (x,), (a,))[1]
    bend = jax.jvp(along, (q,), (a,))[1]
    return weight * system.momentum(q, a) - 0.5 * shift**2 * bend, factor


def verlet_step(
    system: AbstractSystem, state: State, dt: Real, carry: PyTree, force_at: Callable[..., Any], watch: bool
) -> StepResult:
    """Half kick, drift, half kick; the status tells whether the matrices at both ends were definite."""
    low, force, before = carry
    half = PhasePoint.of(state, low).kick(dt / 2 * force)
    point = half.move(dt * system.velocity(state.q, half.p))
    force, factor = force_at(point.q)
    end = point.kick(dt / 2 * force)
    report = definite_report(jnp.minimum(before, factor.smallest), watch)
    return end.state(state.t + dt, state.n), (end.low, force, factor.smallest), report
