r"""Kicks, drifts and projections: the flows that Verlet, SHAKE and RATTLE are made of, in compensated sums.

`PhasePoint` holds (q, p) with the parts below their last bits, so that steps can be written as `kick`, `move` and
`project_momentum` without a line about rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import PyTree

from ..core.types import Index, Real, Report, State
from ..linalg import Compensation, add
from ..mechanics.abstract import AbstractSystem
from ..mechanics.projection import AbstractSolver
from ..mechanics.projection.solvers import MomentumSolve


class PhasePoint(NamedTuple):
    """A position and a momentum with the parts of both below their last bit."""

    q: Any
    p: Any
    low: Compensation

    @classmethod
    def of(cls, state: State, low: Compensation) -> PhasePoint:
        return cls(state.q, state.p, low)

    def kick(self, push: Real) -> PhasePoint:
        """p + push."""
        p, low_p = add(self.p, self.low.p, push)
        return PhasePoint(self.q, p, Compensation(self.low.q, low_p))

    def move(self, reach: Real) -> PhasePoint:
        """q + reach."""
        q, low_q = add(self.q, self.low.q, reach)
        return PhasePoint(q, self.p, Compensation(low_q, self.low.p))

    def drift(self, system: AbstractSystem, dt: Real) -> PhasePoint:
        """q + dt M^-1 p, with the low part of p."""
        behind = self.low.q + dt * system.velocity(self.q, self.low.p)
        q, low_q = add(self.q, behind, dt * system.velocity(self.q, self.p))
        return PhasePoint(q, self.p, Compensation(low_q, self.low.p))

    def momentum_after(self, push: Real) -> Any:
        """p + push, rounded: for predictions that are not accumulated."""
        return self.p + (self.low.p + push)

    def keep_low(self, low: bool) -> PhasePoint:
        """The same point, with zero low parts unless `low`."""
        return self if low else PhasePoint(self.q, self.p, Compensation.zeros(self.q))

    def state(self, t: Real, n: Index) -> State:
        return State(self.q, self.p, t, n)


class Drift(NamedTuple):
    """The point (q1, p+) after a kick and a drift, with the diagnostics of the multiplier solve.

    `multipliers` is dt^2/2 lr in RATTLE's notation, None without constraints; `memory` is the solver's.
    """

    point: PhasePoint
    multipliers: Any
    iterations: Any
    residual: Any
    status: Any
    memory: Any


def kick_drift(
    system: AbstractSystem, solver: AbstractSolver, start: PhasePoint, push: Real, dt: Real, t: Real, memory: PyTree
) -> Drift:
    """`p+ = p + push - G(q)^T pull`, `q1 = q + dt M^-1 p+`, with the `pull` for which `g(q1, t + dt) = 0`."""
    q, low = start.q, start.low
    reach = dt * system.velocity(q, start.momentum_after(push)) + low.q
    if system.has_constraints:
        jac = system.linearize(q, t)
        solve = solver.positions(system, q, q + reach, t, t + dt, memory)
        q1, found = solve.q, (solve.multipliers, solve.iterations, solve.residual, solve.status, solve.memory)
        push = push - jac.transpose(solve.multipliers / dt)
    else:
        free = Report.ok()
        q1, found = q + reach, (None, free.iterations, free.residual, free.status, memory)
    half = start.kick(push)
    # the low part of the momentum moves the position too; without it, its bias makes the energy drift
    low_q = (dt * system.velocity(q, half.p) - (q1 - q)) + (dt * system.velocity(q, half.low.p) + low.q)
    return Drift(PhasePoint(q1, half.p, Compensation(low_q, half.low.p)), *found)


def project_momentum(
    system: AbstractSystem, solver: AbstractSolver, point: PhasePoint, push: Real, t: Real
) -> tuple[PhasePoint, MomentumSolve | None]:
    """`p + push`, projected onto the tangent space at q: `G M^-1 p + g_t = 0`."""
    if not system.has_constraints:
        return point.kick(push), None
    tangent = solver.momenta(system, point.q, point.momentum_after(push), t)
    return point.kick(push - tangent.correction), tangent
