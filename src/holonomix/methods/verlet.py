"""Stormer-Verlet in its two forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation, newton_root
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import Newton
from .base import EXPLICIT, AbstractMethod, Traits
from .equations import iteration_report, reduced_force, unknown_sizes
from .kick_drift import PhasePoint
from .rattle import RATTLE, verlet_substep


class StormerVerlet(AbstractMethod):
    r"""Velocity Verlet: half kick, drift, half kick.

        p+ = p_n + dt/2 F(q_n)      q_{n+1} = q_n + dt M^-1 p+      p_{n+1} = p+ + dt/2 F(q_{n+1})

    With constraints (index-reduced, the drifting control) or an applied force the force depends on the momentum: the
    first kick takes it at p_n and the second, implicit one at p_{n+1}, which keeps the method symmetric. With a mass
    M(q) or a vector potential it is the generalized form, implicit and symplectic, that RATTLE has there.
    """

    reference = "Verlet 1967; Hairer, Lubich & Wanner 2003; Farrell 2009 (5.2)"
    family = "classical"

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {
            "free": Traits(2, symmetric=True, symplectic=True, treats=EXPLICIT),
            "constrained": Traits(2, symmetric=True, treats=(Capability.FORCE, Capability.TIME, Capability.MOVING)),
        }

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return Compensation.zeros(state.q), reduced_force(system, state.q, state.p, state.t)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        low, force = carry
        if not system.separable:
            state, (low, *_), report = RATTLE().step(system, state, dt, (low, force, ()))
            return state, (low, force), report
        t1 = state.t + dt
        point = PhasePoint.of(state, low).kicked(dt / 2 * force).drifted(system, dt)
        if system.has_constraints or system.forced:

            def residual(x: Numbers, args: PyTree):
                system, q, half, t1, dt = args
                return x - (half + dt / 2 * reduced_force(system, q, x.reshape(q.shape), t1)).reshape(-1)

            q, half = point.q, point.p
            args = (system, q, half, t1, jnp.asarray(dt, q.dtype))
            done = newton_root(residual, half.reshape(-1), args, blocks=(q.size,), sizes=unknown_sizes("p"))
            report = iteration_report(done)
            force = reduced_force(system, q, done.x.reshape(q.shape), t1)
        else:
            report = Report.ok()
            force = system.force(point.q, point.p, t1)
        end = point.kicked(dt / 2 * force)
        return end.state(t1, state.n), (end.low, force), report

    def substep(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> tuple[State, Any]:
        return verlet_substep(system, Newton(), self.read(system, state, carry), dt)

    def reverse(self, system: AbstractSystem, state: State, carry: PyTree) -> tuple[State, Any]:
        back = State(state.q, -state.p, state.t, state.n)
        return back, (carry[0].reversed(), reduced_force(system, back.q, back.p, back.t))


class Leapfrog(AbstractMethod):
    r"""Verlet with staggered momenta: `p_{n+1/2} = p_{n-1/2} + dt F(q_n)`, `q_{n+1} = q_n + dt M^-1 p_{n+1/2}`.

    The momentum shown is `p_n = (p_{n-1/2} + p_{n+1/2})/2`. Positions equal StormerVerlet's.
    """

    reference = "Stormer 1907; Farrell 2009 (5.2)"
    family = "classical"
    one_step = False

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"free": Traits(2, symmetric=True, symplectic=True, treats=(Capability.TIME,))}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        force = system.force(state.q, state.p, state.t)
        return Compensation.zeros(state.q), state.p - dt / 2 * force, force, jnp.asarray(dt, state.q.dtype)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        low, half, force, _ = carry
        end = PhasePoint(state.q, half, low).kicked(dt * force).drifted(system, dt)
        force = system.force(end.q, end.p, state.t + dt)
        carry = (end.low, end.p, force, jnp.asarray(dt, end.q.dtype))
        return end.state(state.t + dt, state.n), carry, Report.ok()

    def read(self, system: AbstractSystem, state: State, carry: PyTree) -> State:
        _, half, force, dt = carry
        return State(state.q, half + dt / 2 * force, state.t, state.n)

    def reverse(self, system: AbstractSystem, state: State, carry: PyTree) -> tuple[State, Any]:
        low, half, force, dt = carry
        half = -(half + dt * force)
        return State(state.q, half, state.t, state.n), (low.reversed(), half, force, dt)
