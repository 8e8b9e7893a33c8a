"""Stiff systems: a strong potential keeps the motion near a manifold; their rigid and effective forms.

Total potential `U(q) + V(q)/eps^2`; the minimum set of V is the manifold `g(q) = 0`. A constrained System becomes stiff
by `system.penalized(omega)` (`V/eps^2 = omega^2/2 |g|^2`), a stiff one becomes rigid by `stiff.constrained()`, and the
limit of its motion as eps -> 0 is `effective(stiff, q0, p0)`: the rigid system with the correction potential
`W(X) = sum_k I_k omega_k(X)` of the frozen oscillations (Rubin & Ungar 1957; Takens 1980; Lubich & Weiss 2014 (7)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import is_traced, positive_array, real_array
from ..core.errors import ConvergenceError, InputError, ShapeError
from ..core.types import ArrayLike, Constraints, Function, Numbers
from ..linalg import newton_root
from ..trace.compiled import compiled
from ..trace.frozen import freeze
from ..trace.functions import as_callable
from .abstract import AbstractSystem
from .constraints import Rheonomic
from .curvature import LocalEnergy, combine_energies, local_energies
from .mass import MassLike
from .modes import generalized_modes
from .resonance import ResonanceWatch, resonances
from .structured import AbstractLocal
from .system import System

MAX_FREQUENCIES = 32
# Relative deviations from the manifold and its tangent space below which there is no oscillation.
NO_ENERGY = 1e-12


class StiffPotential(eqx.Module):
    """`V(q)/eps^2`."""

    fn: Any
    epsilon: Any

    def __call__(self, q: Numbers, *params: PyTree) -> Any:
        return self.fn(q, *params) / self.epsilon**2

    def local_energies(self, q: Numbers, extra: tuple[Any, ...]) -> list[LocalEnergy] | None:
        found = local_energies(self.fn, q, extra)
        return None if found is None else [part._replace(scale=part.scale / self.epsilon**2) for part in found]


class TotalPotential(eqx.Module):
    """`U(q) + V(q)/eps^2`, with access to both parts."""

    slow: Any
    stiff: StiffPotential

    def __call__(self, q: Numbers, *params: PyTree) -> Any:
        return self.slow(q, *params) + self.stiff(q, *params)

    def local_energies(self, q: Numbers, extra: tuple[Any, ...]) -> list[LocalEnergy] | None:
        return combine_energies([self.slow, self.stiff], q, extra)


class Penalty(eqx.Module):
    """`|g(q)|^2 / 2` for the constraint terms of a system."""

    terms: tuple[Any, ...]

    def __call__(self, q: Numbers, *params: PyTree) -> Any:
        return sum(0.5 * jnp.sum(jnp.asarray(term(q, *params)) ** 2) for term in self.terms)

    def local_energies(self, q: Numbers, extra: tuple[Any, ...]) -> list[LocalEnergy] | None:
        if not all(isinstance(term, AbstractLocal) for term in self.terms):
            return None
        return [
            LocalEnergy(t.indices, t.gather, lambda x, t=t: 0.5 * jnp.sum(t.values(x, *extra) ** 2)) for t in self.terms
        ]


class StiffSystem(AbstractSystem):
    """`StiffSystem(slow, stiff, manifold, mass=1.0, epsilon=...)`: potential `U + V/eps^2`, no constraint.

    `slow` is U, `stiff` is V, `manifold` is g with `V = 0` where `g = 0`; all take `(q, params)` when params are given.
    It has the interface of a `System` without constraints, so every method for those runs on it too.
    """

    potential_fn: TotalPotential
    constraint_terms: tuple[Any, ...]  # none
    manifold_terms: tuple[Any, ...]
    mass: Any
    force_fn: Any
    vector_fn: Any  # none
    params: Any
    shape: tuple[int, ...] | None = eqx.field(static=True)
    redundant: bool = eqx.field(static=True)
    row_sets: int = eqx.field(static=True)
    rate_count: int = eqx.field(static=True)

    def __init__(
        self,
        slow: Function,
        stiff: Function,
        manifold: Constraints,
        mass: MassLike = 1.0,
        epsilon: ArrayLike | None = None,
        force: Function | None = None,
        params: PyTree = None,
    ):
        if epsilon is None:
            raise InputError("a stiff system needs epsilon: its stiff potential is V/epsilon^2")
        epsilon = positive_array("epsilon", epsilon)
        rigid = System(slow, manifold, mass, force, params)
        if rigid.time_dependent:
            raise InputError("the potentials of a stiff system must not depend on time")
        if not rigid.has_constraints or rigid.rheonomic:
            raise InputError("a stiff system needs a manifold g(q) that does not depend on time")
        if not callable(stiff):
            raise InputError(f"stiff must be a function, not {type(stiff).__name__}")
        strong = StiffPotential(as_callable(stiff), jnp.asarray(epsilon, jnp.result_type(float)))
        self.potential_fn = TotalPotential(rigid.potential_fn, strong)
        self.constraint_terms, self.manifold_terms = (), rigid.constraint_terms
        self.mass, self.force_fn, self.vector_fn, self.params = rigid.mass, rigid.force_fn, None, rigid.params
        self.shape, self.redundant, self.row_sets, self.rate_count = None, False, 1, rigid.rate_count

    @property
    def kind(self) -> str:
        return "stiff"

    @property
    def slow_fn(self) -> Any:
        """U, as the user gave it."""
        return self.potential_fn.slow

    @property
    def stiff_fn(self) -> Any:
        """V, as the user gave it."""
        return self.potential_fn.stiff.fn

    @property
    def epsilon(self) -> Any:
        return self.potential_fn.stiff.epsilon

    # -- related systems ----------------------------------------------------------------------------------------

    @property
    def full(self) -> System:
        """The same motion as a plain System with the potential `U + V/eps^2`."""
        return System(self.potential_fn, None, self.mass, self.force_fn, self.params)

    @property
    def slow(self) -> System:
        """The kinetic energy with U alone."""
        return System(self.slow_fn, None, self.mass, self.force_fn, self.params)

    @property
    def fast(self) -> System:
        """The kinetic energy with `V/eps^2` alone: the fast motion between two kicks of an impulse method."""
        return System(self.potential_fn.stiff, None, self.mass, None, self.params)

    def constrained(self) -> System:
        """The rigid System with potential U on `g(q) = 0`."""
        return System(self.slow_fn, self.manifold_terms, self.mass, self.force_fn, self.params)

    def with_epsilon(self, epsilon: ArrayLike) -> StiffSystem:
        """The same system with another stiffness; nothing is recompiled."""
        return eqx.tree_at(lambda s: s.potential_fn.stiff.epsilon, self, jnp.asarray(epsilon, jnp.result_type(float)))

    def penalized(self, omega: ArrayLike) -> StiffSystem:
        raise InputError("this system is stiff already: use with_epsilon(...), or constrained().penalized(omega)")

    def with_params(self, params: PyTree) -> StiffSystem:
        """The same system with other parameter values, as in `System.with_params`; nothing is recompiled."""
        return eqx.tree_at(lambda s: s.params, self, self.slow.with_params(params).params, is_leaf=lambda x: x is None)

    def prepare(self, q: Numbers) -> StiffSystem:
        """The same system with its mass in final form and its functions frozen."""
        now = freeze(self, lambda system: system.try_out(q), q)
        return eqx.tree_at(lambda s: s.mass, now, now.slow.prepare(q).mass, is_leaf=lambda x: x is now.mass)

    def try_out(self, q: Numbers) -> None:
        """Call every function of the user once, as a run does, to check shapes."""
        self.full.try_out(q)
        self.constrained().try_out(q)

    # -- the manifold and the fast motion across it ----------------------------------------------------------------

    @property
    def manifold(self) -> Any:
        """`g` as a function of q."""
        return self.constrained().constraint

    def foot(self, q: Numbers) -> tuple[Any, Any]:
        """`X = q + M(q)^-1 G(q)^T lambda` with `g(X) = 0`, and lambda (Lubich & Weiss (9), (15)); differentiable.

        If there is no such point it raises, or returns NaN inside a transformation.
        """
        point, multipliers, converged = self.solve_foot(q)
        if not is_traced(converged) and not bool(converged):
            raise ConvergenceError(
                "no point of the manifold was found for q: Newton's method along M^-1 G(q)^T did not "
                "converge; start nearer to the manifold, or with smaller oscillations"
            )
        lost = lambda x: jnp.where(converged, x, jnp.nan)
        return lost(point), lost(multipliers)

    def solve_foot(self, q: Numbers) -> tuple[Any, Any, Any]:
        """The point and the multipliers of `foot`, and whether Newton's method converged."""
        start = jnp.zeros(self.constrained().constraint_count(q), q.dtype)
        args = (self.constrained(), q)
        done = newton_root(_foot_residual, start, args, known=_foot_sizes, blocks=(start.size,), inverse=_foot_inverse)
        return _move(self.constrained(), q, done.x), done.x, done.converged

    def tangent(self, q: Numbers, p: Numbers) -> Any:
        """`P(q) p`, `P = I - G^T (G M^-1 G^T)^-1 G M^-1`: the part of a momentum or force along the manifold."""
        rigid = self.constrained()
        jac = rigid.linearize(q)
        mu = rigid.gram(q, jac, jac).factor(symmetric=True).solve(jac(rigid.velocity(q, p)))
        return p - jac.transpose(mu)

    @compiled
    def project(self, q: Numbers, p: Numbers) -> tuple[Any, Any]:
        """The start `(X_0, Y_0)` of the effective system that belongs to a start of this one (Lubich & Weiss (9))."""
        foot = self.foot(q)[0]
        return foot, self.tangent(foot, p)

    @compiled
    def frequencies(self, q: Numbers) -> Any:
        """`omega_k`, ascending: fast frequencies times eps at the point of the manifold that belongs to q."""
        return self._modes(self.foot(q)[0])[0]

    @compiled
    def actions(self, q: Numbers, p: Numbers) -> Any:
        """`I_k`, energy over frequency of each fast oscillation: the adiabatic invariants (Lubich & Weiss (20))."""
        rigid, foot = self.constrained(), self.foot(q)[0]
        omega, modes = self._modes(foot)
        a = modes.T @ rigid.constraint(q)
        b = modes.T @ rigid.linearize(foot)(rigid.velocity(q, p))
        return (b**2 / 2 + omega**2 * a**2 / (2 * self.epsilon**2)) / omega

    def fast_energy(self, q: Numbers, p: Numbers) -> Any:
        """The energy of the oscillations across the manifold, `V/eps^2` and the kinetic energy normal to it."""
        rigid = self.constrained()
        v = rigid.velocity(q, p)
        across = jax.jvp(rigid.constraint, (q,), (v,))[1]
        level = self._stiff(q) / self.epsilon**2
        if is_traced(across):
            return level + rigid.kinetic(q, p - self.tangent(q, p))
        # on the manifold and tangent to it to within round-off: no oscillation
        jac, values = rigid.linearize(q), rigid.constraint(q)
        if np.all(np.abs(values) <= NO_ENERGY * rigid.row_sizes(q, jac, q)):
            level = jnp.zeros_like(level)
        if np.all(np.abs(across) <= NO_ENERGY * rigid.row_sizes(q, jac, v)):
            return level
        return level + rigid.kinetic(q, p - self.tangent(q, p))

    def correction(self, q: Numbers, actions: Numbers) -> Any:
        """`W(q) = sum_k I_k omega_k(q)`; the modes are constant under differentiation.

        This is exact, and safe at crossings: the first derivative of an eigenvalue does not involve that of its vector.
        """
        _, modes = jax.lax.stop_gradient(self._modes(q))
        square = jax.vmap(lambda c: self._quotient(q, c), in_axes=1)(modes)
        return jnp.sum(actions * jnp.sqrt(square))

    def _modes(self, q: Numbers) -> tuple[Any, Any]:
        """`S c_k = omega_k^2 B c_k` with `B = G M^-1 G^T`, `S = G M^-1 V'' M^-1 G^T`, `c_k^T B c_k = 1`."""
        rigid = self.constrained()
        jac = rigid.linearize(q)
        m = rigid.constraint_count(q)
        directions = jax.vmap(lambda e: rigid.inverse_mass(q, jac.transpose(e)))(jnp.eye(m, dtype=q.dtype))
        bend = jax.vmap(lambda u: jax.jvp(jax.grad(self._stiff), (q,), (u,))[1])(directions)
        flat = directions.reshape(m, -1)
        square, modes = generalized_modes(flat @ bend.reshape(m, -1).T, jax.vmap(jac)(directions))
        return jnp.sqrt(square), modes

    def _quotient(self, q: Numbers, c: Numbers) -> Any:
        """`c^T S(q) c / c^T B(q) c`."""
        rigid = self.constrained()
        pull = jax.vjp(rigid.constraint, q)[1](c)[0]
        u = rigid.inverse_mass(q, pull)
        bend = jax.jvp(jax.grad(self._stiff), (q,), (u,))[1]
        return jnp.sum(u * bend) / jnp.sum(u * pull)

    def _stiff(self, q: Numbers) -> Any:
        return self.stiff_fn(q) if self.params is None else self.stiff_fn(q, self.params)


def _move(rigid: System, q: Numbers, multipliers: Numbers) -> Any:
    pull = jax.vjp(rigid.constraint, q)[1](multipliers)[0]
    return q + rigid.inverse_mass(q, pull)


def _foot_residual(multipliers: Numbers, args: PyTree) -> Any:
    rigid, q = args
    return rigid.constraint(_move(rigid, q, multipliers))


def _foot_inverse(multipliers: Numbers, args: PyTree) -> Callable[[Numbers], Numbers]:
    rigid, q = args
    there = rigid.linearize(_move(rigid, q, multipliers))
    return rigid.gram(q, there, rigid.linearize(q)).factor().solve


def _foot_sizes(args: PyTree) -> Any:
    rigid, q = args
    return rigid.row_sizes(q, rigid.linearize(q), q)


def penalized(system: System, omega: ArrayLike) -> StiffSystem:
    """The stiff system with the constraint of `system` replaced by the potential `omega^2/2 |g|^2`."""
    if not system.has_constraints:
        raise InputError("there is nothing to penalize: this system has no constraint")
    if system.rheonomic:
        moving = [k for k, term in enumerate(system.constraint_terms) if isinstance(term, Rheonomic)]
        which = "its constraint is" if len(system.constraint_terms) == 1 else f"its constraints {moving} are"
        raise InputError(
            f"this system cannot be penalized: {which} Rheonomic, and the manifold of a stiff system does not depend "
            "on time. Keep it rigid (RATTLE, SHAKE and LobattoIIIAB treat it), or write the moving springs into the "
            "potential: V(q, t) + omega**2 / 2 * sum(g(q, t)**2)"
        )
    if system.time_dependent or system.magnetic:
        what = "potential depends on time" if system.time_dependent else "vector potential is not supported"
        raise InputError(
            f"this system cannot be penalized: its {what}. Write the springs into the potential, V + omega**2 / 2 * "
            "sum(g**2), and give the sum to hx.System"
        )
    penalty, epsilon = Penalty(system.constraint_terms), 1.0 / positive_array("omega", omega)
    return StiffSystem(
        system.potential_fn, penalty, system.constraint_terms, system.mass, epsilon, system.force_fn, system.params
    )


class EffectivePotential(eqx.Module):
    """`U(X) + sum_k I_k omega_k(X)`."""

    stiff: StiffSystem
    actions: Any

    def __call__(self, q: Numbers, *params: PyTree) -> Any:
        stiff = self.stiff.with_params(*params) if params else self.stiff
        return stiff.slow.potential(q) + stiff.correction(q, self.actions)


def effective(stiff: Any, q0: ArrayLike, p0: ArrayLike, *, margin: float = 0.02) -> System:
    """The constrained System that the stiff motion from `(q0, p0)` follows up to O(eps) (Lubich & Weiss (7), (8)).

    Its start is `stiff.project(q0, p0)`. Valid while the frequencies stay apart and away from resonances of second
    order: a `ResonanceWarning` says so when the start is within the relative `margin` of one.
    """
    if not isinstance(stiff, StiffSystem):
        raise InputError(
            "the effective system is the limit of a stiff one: give system.penalized(omega) or a StiffSystem"
        )
    q0, p0 = real_array("q0", q0), real_array("p0", p0)
    if q0.shape != p0.shape or not q0.size:
        raise ShapeError(f"q0 has shape {q0.shape} and p0 has shape {p0.shape}; they must be the same, with entries")
    stiff = stiff.prepare(q0)
    potential = EffectivePotential(stiff, stiff.actions(q0, p0))
    if not is_traced(q0):
        resonances(stiff, q0[None], margin=margin)
    return System(potential, stiff.manifold_terms, stiff.mass, stiff.force_fn, stiff.params)


def resonance_watch(system: AbstractSystem, q: Numbers, p: Numbers) -> ResonanceWatch | None:
    """A watch for resonances of the fast oscillations that a run of `system` resolves or averages.

    None if no oscillation carries energy (only those act on the slow motion), if there is one frequency, or if there
    are more than `MAX_FREQUENCIES`, among which some always resonate.
    """
    origin = system.potential_fn
    stiff = system if isinstance(system, StiffSystem) else getattr(origin, "stiff", None)
    if not isinstance(stiff, StiffSystem) or not 2 <= stiff.constrained().constraint_count(q) <= MAX_FREQUENCIES:
        return None
    averaged = isinstance(origin, EffectivePotential)
    energy = float(jnp.sum(origin.actions * stiff.frequencies(q)) if averaged else stiff.fast_energy(q, p))
    return ResonanceWatch(stiff, energy) if energy > 0 else None
