"""RATTLE: the symplectic method of order two for constrained systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from ..core.types import Key, Real, Report, State, StepResult
from ..linalg import Compensation
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import AbstractSolver, Newton
from .base import EXPLICIT, AbstractMethod, Traits, solver_report
from .implicit_drift import implicit_kick_drift, is_general
from .kick_drift import PhasePoint, kick_drift, project_momentum

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
    position_carry = True

    solver: AbstractSolver = Newton()
    compensated: bool = eqx.field(static=True, default=True)

    @property
    def traits(self) -> Mapping[str, Traits]:
        constrained = Traits(
            2, symmetric=True, symplectic=True, constraint_exact=True, hidden_exact=True, treats=tuple(Capability)
        )
        return _VERLET | {"constrained": constrained}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        q = state.q
        memory = self.solver.init(system, q, state.t) if system.has_constraints else ()
        return Compensation.zeros(q), system.gradient(q, state.t), memory

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        low, gradient, memory = carry
        start, t1 = PhasePoint.of(state, low).keep_low(self.compensated), state.t + dt

        # kick, and drift to the point of the manifold
        if is_general(system):
            drift = implicit_kick_drift(system, self.solver, start, dt, state.t, memory)
            kick = dt / 2 * system.force(drift.point.q, drift.point.p, t1)
        else:
            drift = kick_drift(system, self.solver, start, -dt / 2 * gradient, dt, state.t, memory)
            gradient = system.gradient(drift.point.q, t1)
            kick = -dt / 2 * gradient

        # kick, and project onto the tangent space
        end, tangent = project_momentum(system, self.solver, drift.point.keep_low(self.compensated), kick, t1)

        report = Report(drift.status, drift.iterations, drift.residual)
        if tangent is not None:
            lr, lv = drift.multipliers * (2 / dt**2), tangent.multipliers * (2 / dt)
            report = solver_report(drift, tangent.status, lr=lr, lv=lv)
        return end.state(t1, state.n), (end.keep_low(self.compensated).low, gradient, drift.memory), report
