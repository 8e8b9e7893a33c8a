"""SHAKE and RATTLE: the symplectic methods of order two for constrained systems."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..linalg import Compensation, add
from ..projection import AbstractSolver, Newton
from ..systems.capabilities import Capability
from ..types import Report, State
from .base import EXPLICIT, AbstractMethod, Traits, first_failure, solver_report
from .implicit_drift import drift, is_general, kick_force

__all__ = ["RATTLE", "verlet_substep"]

_VERLET = {"free": Traits(2, symmetric=True, symplectic=True, treats=EXPLICIT)}


class RATTLE(AbstractMethod):
    r"""RATTLE (Andersen 1983): Verlet with the position on the manifold and the momentum on its tangent space.

        p+      = p_n - dt/2 (grad V(q_n) + G(q_n)^T lr)         q_{n+1} = q_n + dt M^-1 p+        g(q_{n+1}) = 0
        p_{n+1} = p+ - dt/2 (grad V(q_{n+1}) + G(q_{n+1})^T lv)  G(q_{n+1}) M^-1 p_{n+1} = 0

    Symplectic on the cotangent bundle of the manifold (Leimkuhler & Skeel 1994), symmetric, of order two. `lr` and `lv`
    approximate lambda(t_n) and lambda(t_{n+1}) to first order; the mean of `lv` and the next step's `lr` to second.
    Without constraints it is velocity Verlet.

    Constraints g(q, t) hold at t_{n+1}, with `G M^-1 p + g_t = 0`. With a mass M(q), `H = p^T M(q)^-1 p/2 + V`,

        p+ = p_n - dt/2 (H_q(q_n, p+) + G^T lr)         q_{n+1} = q_n + dt/2 (H_p(q_n, p+) + H_p(q_{n+1}, p+))
        p_{n+1} = p+ - dt/2 (H_q(q_{n+1}, p+) + G^T lv)    (Jay 1996; Hairer, Lubich & Wanner 2006, VII.1.3)

    is symplectic; an applied force f(q, v, t) enters beside -H_q in both kicks, at `v = M^-1 p+`.
    """

    reference = "Andersen 1983; Leimkuhler & Skeel 1994; Farrell 2009 (6.2)"
    family = "rattle"

    solver: AbstractSolver = Newton()
    compensated: bool = eqx.field(static=True, default=True)

    @property
    def traits(self):
        constrained = Traits(
            2, symmetric=True, symplectic=True, constraint_exact=True, hidden_exact=True, treats=tuple(Capability)
        )
        return _VERLET | {"constrained": constrained}

    def init(self, system: Any, state: State, dt: Any) -> Any:
        q = state.q
        memory = self.solver.init(system, q, state.t) if system.constrained else ()
        return Compensation.zeros(q), system.gradient(q, state.t), memory

    def step(self, system: Any, state: State, dt: Any, carry: Any, key: Any = None) -> tuple[State, Any, Report]:
        if is_general(system):
            return self._general(system, state, dt, carry)
        q, p, t, t1 = state.q, state.p, state.t, state.t + dt
        low, gradient, memory = carry

        # kick and drift without the constraint, then the multipliers that put the end point on the manifold
        pull = -dt / 2 * gradient
        reach = dt * system.velocity(q, p + (low.p + pull)) + low.q
        if system.constrained:
            jac = system.linearize(q, t)
            solve = self.solver.positions(system, q, q + reach, t, t1, memory)
            q1, memory = solve.q, solve.memory
            pull = pull - jac.transpose(solve.multipliers / dt)
        else:
            q1 = q + reach
        half, low_p = add(p, low.p, pull)
        # the low part of the momentum moves the position too: left out, its bias makes the energy drift
        low_q = (dt * system.velocity(q, half) - (q1 - q)) + (dt * system.velocity(q, low_p) + low.q)

        # second kick, and the projection onto the tangent space
        gradient = system.gradient(q1, t1)
        if system.constrained:
            free = half + (low_p - dt / 2 * gradient)
            tangent = self.solver.momenta(system, q1, free, t1)
            p1, low_p = add(half, low_p, -dt / 2 * gradient - tangent.correction)
            lr, lv = solve.multipliers * (2 / dt**2), tangent.multipliers * (2 / dt)
            report = solver_report(solve, tangent.status, lr=lr, lv=lv)
        else:
            p1, low_p = add(half, low_p, -dt / 2 * gradient)
            report = Report.ok()

        low = Compensation(low_q, low_p) if self.compensated else Compensation.zeros(q)
        return State(q1, p1, t1, state.n), (low, gradient, memory), report

    def _general(self, system: Any, state: State, dt: Any, carry: Any) -> tuple[State, Any, Report]:
        """A mass M(q), a vector potential or an applied force: the kicks take H_q and f at the half-step momentum."""
        low, gradient, memory = carry
        t1 = state.t + dt
        there = drift(system, self.solver, state.q, state.p, low, dt, state.t)
        push = dt / 2 * kick_force(system, there.q, there.half, t1)
        if system.constrained:
            tangent = self.solver.momenta(system, there.q, there.half + (there.low_p + push), t1)
            p1, low_p = add(there.half, there.low_p, push - tangent.correction)
            status = first_failure(there.status, tangent.status)
            multipliers = {"lr": there.pull * (2 / dt), "lv": tangent.multipliers * (2 / dt)}
        else:
            p1, low_p = add(there.half, there.low_p, push)
            status, multipliers = there.status, {}
        low = Compensation(there.low_q, low_p) if self.compensated else Compensation.zeros(state.q)
        report = Report(status, there.iterations, there.residual, multipliers)
        return State(there.q, p1, t1, state.n), (low, gradient, memory), report

    def reverse(self, system: Any, state: State, carry: Any) -> tuple[State, Any]:
        low, gradient, memory = carry
        back = State(state.q, -state.p, state.t, state.n)
        return back, (Compensation(low.q, -low.p), gradient, memory)

    def renew(self, system: Any, state: State, dt: Any, carry: Any) -> Any:
        low, gradient, memory = carry
        return Compensation(low.q, jnp.zeros_like(state.p)), gradient, memory


def verlet_substep(system: Any, solver: AbstractSolver, shown: State, dt: Any) -> tuple[State, Any]:
    """One step of RATTLE (Verlet without constraints) from a state as shown: `substep` of methods of order two."""
    method = RATTLE(solver)
    state, _, report = method.step(system, shown, dt, method.init(system, shown, dt))
    return state, report.status
