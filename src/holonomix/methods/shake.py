"""SHAKE: the positions of RATTLE, with momenta that are staggered or not tangent to the manifold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import one_of
from ..core.status import Status
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation, newton_root
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import AbstractSolver, Newton
from .base import AbstractMethod, Path, Traits, first_failure, fresh_path, shown_momentum, solver_report
from .equations import unknown_sizes
from .implicit_drift import implicit_kick_drift, is_general
from .kick_drift import PhasePoint, kick_drift
from .rattle import RATTLE


class SHAKE(AbstractMethod):
    r"""SHAKE (Ryckaert, Ciccotti & Berendsen 1977).

    `form="leapfrog"`, the original with staggered momenta, one position solve per step:

        p_{n+1/2} = p_{n-1/2} - dt (grad V(q_n) + G(q_n)^T lambda_n)
        q_{n+1} = q_n + dt M^-1 p_{n+1/2},  g(q_{n+1}) = 0

    `form="velocity"` is the one-step map of (q_n, p_n) with `p_n = (p_{n-1/2} + p_{n+1/2})/2` (Leimkuhler & Skeel
    1994): it keeps the wedge product on `{G dq = 0}` although `G M^-1 p_n` is not zero. Both show the projected
    momentum, which is RATTLE's. `lambda_n` is of order two.

    With a mass M(q) or an applied force the leapfrog form takes half of each kick at either momentum,
    `p_{n+1/2} = p_{n-1/2} + dt/2 F(q_n, p_{n-1/2}) + dt/2 F(q_n, p_{n+1/2}) - dt G^T lambda_n` with `F = -H_q + f`.
    """

    reference = "Ryckaert, Ciccotti & Berendsen 1977; Leimkuhler & Skeel 1994; Farrell 2009 (6.1)"
    family = "rattle"
    one_step = False

    form: Literal["leapfrog", "velocity"] = eqx.field(static=True, default="leapfrog")
    solver: AbstractSolver = Newton()

    def __check_init__(self) -> None:
        one_of("form", self.form, ("leapfrog", "velocity"))

    @property
    def traits(self) -> Mapping[str, Traits]:
        # Positions are RATTLE's; (q, p) shown is RATTLE's point, so its symplecticity is RATTLE's.
        plain = (Capability.TIME, Capability.MOVING, Capability.REDUNDANT)
        return {
            "constrained": Traits(
                2,
                symmetric=True,
                symplectic=None,
                constraint_exact=True,
                hidden_exact=True,
                wedge=True,
                treats=tuple(Capability) if self.form == "leapfrog" else plain,
            )
        }

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        gradient, status = system.gradient(state.q, state.t), jnp.asarray(Status.OK, jnp.int32)
        if is_general(system):
            dt, t = jnp.asarray(dt, state.q.dtype), jnp.asarray(state.t, state.q.dtype)
            args = (system, state.q, state.p, dt, t)
            done = newton_root(_before, state.p.reshape(-1), args, blocks=(state.p.size,), sizes=unknown_sizes("p"))
            raw = done.x.reshape(state.q.shape)
            status = jnp.where(done.converged | jnp.isnan(dt), status, Status.NOT_CONVERGED).astype(jnp.int32)
        else:
            raw = state.p + dt / 2 * gradient if self.form == "leapfrog" else state.p
        memory = self.solver.init(system, state.q, state.t)
        return Compensation.zeros(state.q), raw, gradient, jnp.asarray(dt, state.q.dtype), memory, status

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        low, raw, gradient, _, memory, begun = carry
        start, t1, size = PhasePoint(state.q, raw, low), state.t + dt, jnp.asarray(dt, state.q.dtype)
        if is_general(system):
            start = start._replace(p=raw + dt / 2 * system.force(state.q, raw, state.t))
            drift = implicit_kick_drift(system, self.solver, start, dt, state.t, memory)
            end, status = drift.point, first_failure(begun, drift.status)
            report = Report(status, drift.iterations, drift.residual, {"lambda": drift.multipliers / dt**2})
            return end.state(t1, state.n), (end.low, end.p, gradient, size, memory, begun), report
        kick = -dt * gradient if self.form == "leapfrog" else -dt / 2 * gradient
        drift = kick_drift(system, self.solver, start, kick, dt, state.t, memory)
        end = drift.point
        gradient = system.gradient(end.q, t1)
        if self.form == "leapfrog":
            report = solver_report(drift, **{"lambda": drift.multipliers / dt**2})
        else:
            # the multiplier of the second half kick is the one that takes the *next* position to the manifold
            point = PhasePoint(end.q, end.p, Compensation.zeros(end.q))
            ahead = kick_drift(system, self.solver, point, -dt * gradient, dt, t1, drift.memory)
            pull = system.linearize(end.q, t1).transpose(ahead.multipliers / (2 * dt))
            end = end.kick(-dt / 2 * gradient - pull)
            report = solver_report(drift, ahead.status, **{"lambda": ahead.multipliers / dt**2})
        return end.state(t1, state.n), (end.low, end.p, gradient, size, drift.memory, begun), report

    def read(self, system: AbstractSystem, state: State, carry: PyTree) -> State:
        _, raw, gradient, dt, _, _ = carry
        if is_general(system):
            p = raw + dt / 2 * system.force(state.q, raw, state.t)
        else:
            p = raw - dt / 2 * gradient if self.form == "leapfrog" else raw
        return State(state.q, shown_momentum(self.solver.momenta(system, state.q, p, state.t)), state.t, state.n)

    def path(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Path:
        return fresh_path(RATTLE(self.solver), system, self.read(system, state, carry))

    def reverse(self, system: AbstractSystem, state: State, carry: PyTree) -> tuple[State, Any]:
        low, raw, gradient, dt, memory, begun = carry
        start = PhasePoint(state.q, raw, low)
        if is_general(system):
            start = start._replace(p=raw + dt / 2 * system.force(state.q, raw, state.t))
            drift = implicit_kick_drift(system, self.solver, start, dt, state.t)
            raw, begun = drift.point.p, first_failure(begun, drift.status)
        elif self.form == "leapfrog":
            drift = kick_drift(system, self.solver, start, -dt * gradient, dt, state.t, memory)
            raw, begun = drift.point.p, first_failure(begun, drift.status)
        return State(state.q, -raw, state.t, state.n), (low.reversed(), -raw, gradient, dt, memory, begun)


def _before(raw: Numbers, args: PyTree) -> Any:
    """The momentum before a kick that ends at p."""
    system, q, p, dt, t = args
    raw = raw.reshape(q.shape)
    return (raw + dt / 2 * system.force(q, raw, t) - p).reshape(-1)


VARIANTS = {"SHAKE": (lambda: SHAKE("velocity"),)}
