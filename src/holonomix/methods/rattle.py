"""SHAKE and RATTLE: the symplectic methods of order two for constrained systems."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ..linalg import Compensation, add
from ..projection import AbstractSolver, Newton
from ..types import Report, State
from .base import AbstractMethod, Traits, solver_report

__all__ = ["RATTLE"]

_VERLET = {"free": Traits(2, symmetric=True, symplectic=True)}


class RATTLE(AbstractMethod):
    r"""RATTLE (Andersen 1983): Verlet with the position on the manifold and the momentum on its tangent space.

        p+      = p_n - dt/2 (grad V(q_n) + G(q_n)^T lr)         q_{n+1} = q_n + dt M^-1 p+        g(q_{n+1}) = 0
        p_{n+1} = p+ - dt/2 (grad V(q_{n+1}) + G(q_{n+1})^T lv)  G(q_{n+1}) M^-1 p_{n+1} = 0

    Symplectic on the cotangent bundle of the manifold (Leimkuhler & Skeel 1994), symmetric, of order two. `lr` and `lv`
    approximate lambda(t_n) and lambda(t_{n+1}) to first order; the mean of `lv` and the next step's `lr` to second.
    Without constraints it is velocity Verlet.
    """

    reference = "Andersen 1983; Leimkuhler & Skeel 1994; Farrell 2009 (6.2)"
    family = "rattle"

    solver: AbstractSolver = Newton()
    compensated: bool = eqx.field(static=True, default=True)

    @property
    def traits(self):
        constrained = Traits(2, symmetric=True, symplectic=True, constraint_exact=True, hidden_exact=True)
        return _VERLET | {"constrained": constrained}

    def init(self, system: Any, state: State, dt: Any) -> Any:
        q = state.q
        memory = self.solver.init(system, q, state.t) if system.constrained else ()
        return Compensation.zeros(q), system.gradient(q), memory

    def step(self, system: Any, state: State, dt: Any, carry: Any, key: Any = None) -> tuple[State, Any, Report]:
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
        low_q = (dt * system.velocity(q, half) + low.q) - (q1 - q)

        # second kick, and the projection onto the tangent space
        gradient = system.gradient(q1)
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

    def reverse(self, system: Any, state: State, carry: Any) -> tuple[State, Any]:
        low, gradient, memory = carry
        back = State(state.q, -state.p, state.t, state.n)
        return back, (Compensation(low.q, -low.p), gradient, memory)

    def renew(self, system: Any, state: State, dt: Any, carry: Any) -> Any:
        low, gradient, memory = carry
        return Compensation(low.q, jnp.zeros_like(state.p)), gradient, memory
