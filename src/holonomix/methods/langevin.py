"""Constant temperature: exact Ornstein-Uhlenbeck steps beside deterministic ones, tangent to the manifold.

All sample `exp(-H/kT)` on the cotangent bundle of the manifold, up to the error of the step: momenta are Gaussian with
covariance `kT M` projected on the tangent space, positions have the density `exp(-V/kT)` with respect to the surface
measure of the mass metric. Friction is a rate (1/time), temperature is kT (energy).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from ..core.checks import real_array, whole_number
from ..core.errors import InputError
from ..core.status import Status
from ..core.types import ArrayLike, Key, Numbers, Real, Report, State, StepResult
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import AbstractSolver, Newton, accepts_redundant, direct_momenta
from .base import AbstractMethod, Traits, check_one_step_map, first_failure, merge_reports, solver_report
from .rattle import RATTLE

FIXED_MANIFOLD = {Capability.MOVING: "it samples on a fixed manifold"}


class Thermalized(NamedTuple):
    p: Any
    status: Any


def tangent_momentum(
    system: AbstractSystem, q: Numbers, p: Numbers, t: Real = 0.0, redundant: str | None = None
) -> Thermalized:
    """`P(q) p`, with `P = I - G^T (G M^-1 G^T)^-1 G M^-1`: the M^-1-orthogonal projection onto the tangent space."""
    if not system.has_constraints:
        return Thermalized(p, jnp.asarray(Status.OK, jnp.int32))
    solve = direct_momenta(system, q, p, t, redundant)
    return Thermalized(solve.p, solve.status)


def ornstein_uhlenbeck(
    system: AbstractSystem,
    q: Numbers,
    p: Numbers,
    t: Real,
    *,
    dt: Real,
    friction: Real,
    temperature: Real,
    key: Key,
    redundant: str | None = None,
) -> Thermalized:
    r"""The exact flow of `dp = -gamma p dt + sqrt(2 gamma kT) M^{1/2} dW` over dt, projected onto the tangent space:

        p <- P(q) [ e^{-gamma dt} p + sqrt(kT (1 - e^{-2 gamma dt})) M^{1/2} xi ]

    P commutes with the friction because that is a rate, so the projected Gaussian is kept exactly. With a vector
    potential p stands for the mechanical momentum `p - A(q)` here.
    """
    xi, kept = jax.random.normal(key, q.shape, q.dtype), jnp.exp(-friction * dt)
    rest = 0.0 if system.vector_potential is None else (1 - kept) * system.vector_potential(q)
    noise = system.mass_form(q).root(q, xi, -jnp.expm1(-2 * friction * dt) * temperature)
    return tangent_momentum(system, q, kept * p + (rest + noise), t, redundant)


class GLA(AbstractMethod):
    r"""Geometric Langevin algorithm: a deterministic step, an exact Ornstein-Uhlenbeck one (Bou-Rabee & Owhadi 2010).

        z <- Phi_dt(z),    p <- P(q) [ e^{-gamma dt} p + sqrt(kT (1 - e^{-2 gamma dt})) M^{1/2} xi ]

    `GLA(RATTLE(), friction=1.0, temperature=1.0)`: friction is a rate, temperature is kT. Any one-step method may be
    inside; a symplectic one makes the error of the sampled measure that of its modified Hamiltonian. `symmetric=True`
    puts half of the Ornstein-Uhlenbeck flow on either side. With friction 0 it is the method inside with its momentum
    projected after every step. Where a method needs a momentum that is not tangent (`HBVM`), each step adds it again.
    """

    reference = "Bou-Rabee & Owhadi 2010; Lelievre, Rousset & Stoltz 2012"
    family = "sampling"
    stochastic = True
    reasons = FIXED_MANIFOLD

    method: AbstractMethod
    friction: Any
    temperature: Any
    symmetric: bool = eqx.field(static=True)

    def __init__(
        self,
        method: AbstractMethod | None = None,
        friction: ArrayLike = 1.0,
        temperature: ArrayLike = 1.0,
        symmetric: bool = False,
    ):
        method = RATTLE() if method is None else method
        check_one_step_map("GLA", method)
        self.method, self.symmetric = method, symmetric
        self.friction, self.temperature = thermostat(friction, temperature)

    @property
    def name(self) -> str:
        return f"GLA({self.method.name})"

    @property
    def traits(self) -> Mapping[str, Traits]:
        # the order is that of a path without noise and of the sampled measure; noise leaves no symmetry or
        # symplecticity of a single path
        return {
            kind: Traits(
                _projected_order(t.order) if kind == "constrained" else t.order,
                constraint_exact=t.constraint_exact,
                hidden_exact=kind == "constrained" or t.hidden_exact,
                treats=tuple(c for c in t.treats if c is not Capability.MOVING),
            )
            for kind, t in self.method.traits.items()
        }

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return self.method.renew(system, state, dt, self.method.init(system, state, dt))

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Any = None) -> StepResult:
        before = jnp.asarray(Status.OK, jnp.int32)
        if self.symmetric:
            state, carry, before = self._thermalize(system, state, dt, dt / 2, carry, jax.random.fold_in(key, 1))
        state, carry, report = self.method.step(system, state, dt, carry)
        span = dt / 2 if self.symmetric else dt
        state, carry, after = self._thermalize(system, state, dt, span, carry, key)
        status = first_failure(before, report.status, after)
        return state, carry, Report(status, report.iterations, report.residual, report.multipliers)

    def _thermalize(
        self, system: AbstractSystem, state: State, dt: Real, span: Real, carry: PyTree, key: Key
    ) -> tuple[State, Any, Any]:
        """The Ornstein-Uhlenbeck flow over `span`, and the carry that goes with the new momentum."""
        rates = {"friction": self.friction, "temperature": self.temperature, "redundant": redundancy(self)}
        p, status = ornstein_uhlenbeck(system, state.q, state.p, state.t, dt=span, key=key, **rates)
        state = State(state.q, p, state.t, state.n)
        return state, self.method.renew(system, state, dt, carry), status

    def read(self, system: AbstractSystem, state: State, carry: PyTree) -> State:
        return self.method.read(system, state, carry)


class GeodesicBAOAB(AbstractMethod):
    r"""g-BAOAB (Leimkuhler & Matthews 2016): kick, geodesic drift, Ornstein-Uhlenbeck, geodesic drift, kick.

        B: p <- P(q) [p - dt/2 grad V(q)]      A: K RATTLE steps of dt/(2K) without force      O: `ornstein_uhlenbeck`

    One gradient per step. Without constraints it is BAOAB, whose positions are exact for harmonic wells.
    """

    reference = "Leimkuhler & Matthews 2016 (Proc. R. Soc. A 472, 20160138)"
    family = "sampling"
    stochastic = True
    reasons = FIXED_MANIFOLD

    friction: Any
    temperature: Any
    geodesic_steps: int = eqx.field(static=True)
    solver: AbstractSolver

    def __init__(
        self,
        friction: ArrayLike = 1.0,
        temperature: ArrayLike = 1.0,
        geodesic_steps: int = 1,
        solver: AbstractSolver | None = None,
    ):
        geodesic_steps = whole_number("geodesic_steps", geodesic_steps)
        self.friction, self.temperature = thermostat(friction, temperature)
        self.geodesic_steps, self.solver = geodesic_steps, Newton() if solver is None else solver

    @property
    def traits(self) -> Mapping[str, Traits]:
        treats = (Capability.TIME, Capability.REDUNDANT)
        return {
            "free": Traits(2, treats=(Capability.TIME,)),
            "constrained": Traits(2, constraint_exact=True, hidden_exact=True, treats=treats),
        }

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        memory = self.solver.init(system, state.q, state.t) if system.has_constraints else ()
        return system.gradient(state.q, state.t), memory

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Any = None) -> StepResult:
        gradient, memory = carry
        q, t = state.q, state.t
        p, kicked = tangent_momentum(system, q, state.p - dt / 2 * gradient, t, self.solver.redundant)
        q, p, memory, first = self._geodesic(system, q, p, dt / 2, t, memory)
        rates = {"friction": self.friction, "temperature": self.temperature, "redundant": self.solver.redundant}
        p, thermal = ornstein_uhlenbeck(system, q, p, t, dt=dt, key=key, **rates)
        q, p, memory, second = self._geodesic(system, q, p, dt / 2, t, memory)
        gradient = system.gradient(q, t + dt)
        p, again = tangent_momentum(system, q, p - dt / 2 * gradient, t, self.solver.redundant)
        status = first_failure(kicked, first.status, thermal, second.status, again)
        both = merge_reports(first, second)
        report = Report(status, both.iterations, both.residual)
        return State(q, p, t + dt, state.n), (gradient, memory), report

    def _geodesic(
        self, system: AbstractSystem, q: Numbers, p: Numbers, span: Real, t: Real, memory: PyTree
    ) -> tuple[Any, Any, Any, Report]:
        """Free motion on the manifold over `span`, in `geodesic_steps` RATTLE steps."""
        h = span / self.geodesic_steps
        if not system.has_constraints:
            return q + span * system.velocity(q, p), p, memory, Report.ok()

        def drift(_: PyTree, loop: PyTree):
            q, p, memory, report = loop
            solve = self.solver.positions(system, q, q + h * system.velocity(q, p), t, t, memory)
            p, status = tangent_momentum(
                system, solve.q, system.momentum(q, (solve.q - q) / h), t, self.solver.redundant
            )
            return solve.q, p, solve.memory, merge_reports(report, solver_report(solve, status))

        start = (q, p, memory, Report.ok())
        return drift(0, start) if self.geodesic_steps == 1 else jax.lax.fori_loop(0, self.geodesic_steps, drift, start)


def _projected_order(order: int | Mapping[str, int]) -> int | Mapping[str, int]:
    """The order of a method whose momenta are projected in every step: their tangential part is as accurate as q.

    Multipliers that are constant over a step (`HBVM`) no longer alternate; they are those of the middle of the step.
    """
    return order if isinstance(order, int) else {**order, "p": order["q"], "multipliers": 2}


def redundancy(method: AbstractMethod) -> str | None:
    """The `redundant` option of the solver inside a method."""
    return "min-norm" if accepts_redundant(method) else None


def thermostat(friction: ArrayLike, temperature: ArrayLike) -> tuple[Any, Any]:
    """Both as runtime values; known negative numbers are refused."""
    friction, temperature = real_array("friction", friction), real_array("temperature", temperature)
    for name, value in (("friction", friction), ("temperature", temperature)):
        if not isinstance(value, Tracer) and not bool(np.all(np.asarray(value) >= 0)):
            raise InputError(f"{name} must not be negative, but it is {value}")
    return friction, temperature


VARIANTS = {"GLA": (lambda: GLA(symmetric=True),), "GeodesicBAOAB": (lambda: GeodesicBAOAB(geodesic_steps=2),)}
