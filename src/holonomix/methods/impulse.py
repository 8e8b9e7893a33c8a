"""Multiple time steps: the slow force kicks once per step, the stiff force acts in many small steps between.

Half kick with the slow force, oscillate over h under `p^T M^-1 p/2 + V/eps^2` in micro-steps, half kick. The three
methods differ in the kick only. All treat a position-dependent mass.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import one_of, whole_number
from ..core.status import Status
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import newton_root
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import direct_momenta
from ..mechanics.stiff import StiffSystem
from .base import AbstractMethod, Traits, check_one_step_map, merge_reports, solver_report
from .equations import unknown_sizes
from .rattle import RATTLE
from .verlet import StormerVerlet


class AbstractImpulse(AbstractMethod):
    """Kick, oscillate, kick: shared by the three methods."""

    position_carry = True

    inner: eqx.AbstractVar[AbstractMethod | None]
    substeps: eqx.AbstractVar[int]

    @abc.abstractmethod
    def kick(self, system: StiffSystem, q: Numbers) -> tuple[Any, Any]:
        """The slow force of a kick, and the status of its solves."""

    def __check_init__(self) -> None:
        whole_number("substeps", self.substeps)
        if self.inner is not None:
            check_one_step_map(self.name, self.inner)

    def check(self, system: AbstractSystem) -> None:
        super().check(system)
        assert isinstance(system, StiffSystem)
        self.oscillator(system).check(system.fast)

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        assert isinstance(system, StiffSystem)
        return self.kick(system, state.q)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        assert isinstance(system, StiffSystem)
        inner, fast, micro = self.oscillator(system), system.fast, dt / self.substeps

        def oscillate(_: PyTree, loop: PyTree):
            state, memory, total = loop
            state, memory, report = inner.step(fast, state, micro, memory)
            return state, memory, merge_reports(total, report)

        ok = Report.ok()
        force, before = carry
        state = State(state.q, state.p + dt / 2 * force, jnp.asarray(state.t, state.q.dtype), state.n)
        loop = (state, inner.init(fast, state, micro), Report(before, ok.iterations, ok.residual))
        state, _, total = jax.lax.fori_loop(0, self.substeps, oscillate, loop)
        force, after = self.kick(system, state.q)
        state = State(state.q, state.p + dt / 2 * force, state.t, state.n)
        return state, (force, after), solver_report(total, after)

    def oscillator(self, system: AbstractSystem) -> AbstractMethod:
        """The method of the micro-steps: Verlet, or RATTLE's generalized form of it for a mass M(q)."""
        return self.inner or (RATTLE() if system.position_mass else StormerVerlet())


class Impulse(AbstractImpulse):
    r"""The impulse method (r-RESPA): the whole slow force in every kick.

        p+ = p_n - h/2 grad U(q_n)    (q_{n+1}, p-) = flow over h of p^T M^-1 p/2 + V/eps^2    p_{n+1} = p- - h/2 grad U

    Symmetric and symplectic. On stiff systems whose frequencies depend on the position the kicks across the manifold
    change the actions by O(1), so positions are wrong however small eps is: the baseline of Lubich & Weiss.
    """

    reference = "Grubmueller et al. 1991; Tuckerman, Berne & Martyna 1992; Lubich & Weiss 2014 (2.1)"
    family = "impulse"

    inner: AbstractMethod | None = None
    substeps: int = eqx.field(static=True, default=100)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"stiff": Traits(2, symmetric=True, symplectic=True, treats=(Capability.MASS,))}

    def kick(self, system: StiffSystem, q: Numbers) -> tuple[Any, Any]:
        return -system.slow.gradient(q), jnp.asarray(Status.OK, jnp.int32)


class MollifiedImpulse(AbstractImpulse):
    r"""The impulse method for the mollified slow potential `U(alpha(x))`.

    `mollifier="projection"`: `alpha(x) = X = x + M^-1 G(x)^T lambda`, `g(X) = 0` (Izaguirre, Reich & Skeel 1999), and
    `mollifier="nearest"`: `alpha(x) = X` with `x = X + M^-1 G(X)^T mu`, `g(X) = 0`, the transformed-variable mollifier
    (22) of Lubich & Weiss in normal coordinates.

        kick:  p -= h/2 alpha'(x)^T grad U(alpha(x))

    Symplectic and symmetric; keeps the actions to O(eps), and positions and tangential momenta of the effective system
    to O(h^2) + O(eps) with steps h that eps does not bound (Theorem 2.2). The normal momentum stays O(1) off.
    """

    reference = "Garcia-Archilla, Sanz-Serna & Skeel 1998; Izaguirre, Reich & Skeel 1999; Lubich & Weiss 2014 (2.2)"
    family = "impulse"

    inner: AbstractMethod | None = None
    substeps: int = eqx.field(static=True, default=100)
    mollifier: Literal["projection", "nearest"] = eqx.field(static=True, default="projection")

    def __check_init__(self) -> None:
        one_of("mollifier", self.mollifier, ("projection", "nearest"))

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"stiff": Traits(2, symmetric=True, symplectic=True, treats=(Capability.MASS,))}

    def kick(self, system: StiffSystem, q: Numbers) -> tuple[Any, Any]:
        def mollified(x: Numbers):
            point, converged = foot(system, x) if self.mollifier == "projection" else nearest(system, x)
            return system.slow.potential(point), converged

        gradient, converged = jax.grad(mollified, has_aux=True)(q)
        return -gradient, jnp.where(converged, Status.OK, Status.NOT_CONVERGED).astype(jnp.int32)


class ProjectedImpulse(AbstractImpulse):
    r"""The impulse method with the slow force projected onto the tangent space.

        kick:  p -= h/2 P(x) grad U(x),      P = I - G^T (G M^-1 G^T)^-1 G M^-1

    Within O(eps) of the mollified method at the price of one m x m solve per kick; symmetric, not symplectic.
    """

    reference = "Lubich & Weiss 2014 (2.3)"
    family = "impulse"

    inner: AbstractMethod | None = None
    substeps: int = eqx.field(static=True, default=100)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"stiff": Traits(2, symmetric=True, treats=(Capability.MASS,))}

    def kick(self, system: StiffSystem, q: Numbers) -> tuple[Any, Any]:
        tangent = direct_momenta(system.constrained(), q, -system.slow.gradient(q))
        return tangent.p, tangent.status


# -- their parts ---------------------------------------------------------------------------------------------------


def foot(system: StiffSystem, x: Numbers) -> tuple[Any, Any]:
    """The point of the manifold along `M^-1 G(x)^T`, and whether it was found."""
    point, _, converged = system.solve_foot(x)
    return point, converged


def nearest(system: StiffSystem, x: Numbers) -> tuple[Any, Any]:
    """`X` with `x = X + M(X)^-1 G(X)^T mu`, `g(X) = 0`: the point of the manifold nearest to x in the mass metric.

    With it, whether it was found.
    """
    rigid = system.constrained()
    m = rigid.constraint_count(x)
    start = jnp.concatenate([x.reshape(-1), jnp.zeros(m, x.dtype)])
    options = {"blocks": (x.size, m), "inverse": _near_inverse, "sizes": unknown_sizes("q")}
    done = newton_root(_nearest_residual, start, (rigid, x), **options)
    return done.x[: x.size].reshape(x.shape), done.converged


def _near_inverse(unknown: Numbers, args: PyTree) -> Callable[[Numbers], Numbers]:
    """The inverse of the Jacobian of `_nearest_residual` without the curvature of the constraint."""
    rigid, x = args
    here = unknown[: x.size].reshape(x.shape)
    jac = rigid.linearize(here)
    factor = rigid.gram(here, jac, jac).factor(symmetric=True)

    def inverse(r: Numbers):
        way = r[: x.size].reshape(x.shape)
        mu = factor.solve(jac(way) - r[x.size :])
        return jnp.concatenate([(way - rigid.inverse_mass(here, jac.transpose(mu))).reshape(-1), mu])

    return inverse


def _nearest_residual(unknown: Numbers, args: PyTree) -> Any:
    rigid, x = args
    here, mu = unknown[: x.size].reshape(x.shape), unknown[x.size :]
    g, pull = jax.vjp(rigid.constraint, here)
    return jnp.concatenate([(here - x + rigid.inverse_mass(here, pull(mu)[0])).reshape(-1), g])


VARIANTS = {"MollifiedImpulse": (lambda: MollifiedImpulse(mollifier="nearest"),)}
