"""Runge-Kutta methods of any tableau and the two Euler methods.

On constrained systems they integrate the index-reduced equations and drift off the manifold: the honest control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from ..core.errors import InputError
from ..core.types import Key, Real, Report, State, StepResult
from ..linalg import Compensation
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from .base import AbstractMethod, Traits
from .equations import reduced_force, reduced_traits, vector_field
from .implicit_stages import stage_increments
from .kick_drift import PhasePoint
from .tableaus import CLASSICAL, EULER, IMPLICIT_MIDPOINT, KUTTA3, MIDPOINT, Tableau, gauss_tableau, radau_tableau


class RungeKutta(AbstractMethod):
    r"""Runge-Kutta method of a tableau: `k_i = f(z + dt sum_j a_ij k_j)`, `z_{n+1} = z + dt sum_i b_i k_i`.

    Here `f` is the vector field of Hamilton's equations, index-reduced where the system is constrained. The stages of
    an implicit tableau (`gauss_tableau(s)`, `radau_tableau(s)`, any other) are found together by Newton's method.
    """

    reference = "Kutta 1901; Butcher 1964; Farrell 2009 (section 3.4)"
    family = "classical"

    tableau: Tableau = CLASSICAL

    def __check_init__(self) -> None:
        if not isinstance(self.tableau, Tableau) or self.tableau.partitioned:
            raise InputError(f"RungeKutta needs a Tableau(name, a, b, order), not {self.tableau!r}")

    @property
    def name(self) -> str:
        return self.tableau.name

    @property
    def traits(self) -> Mapping[str, Traits]:
        return reduced_traits(self.tableau.order, self.tableau.symmetric, self.tableau.symplectic)

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        if self.tableau.explicit:
            slopes, report = [], Report.ok()
            for row, c in zip(self.tableau.a, self.tableau.c, strict=True):
                here = _combine((state.q, state.p), dt, row, slopes)
                slopes.append(vector_field(system, here, state.t + c * dt))
            dq, dp = _combine((0.0, 0.0), dt, self.tableau.b, slopes)
        else:
            dq, dp, report = stage_increments(system, state, dt, self.tableau)
        end = PhasePoint.of(state, carry).moved(dq).kicked(dp)
        return end.state(state.t + dt, state.n), end.low, report


def _combine(z: tuple[Any, Any], dt: Real, weights: Sequence[float], slopes: list[Any]) -> tuple[Any, Any]:
    for w, k in zip(map(float, weights), slopes):  # an explicit stage uses those before it
        if w:
            z = jax.tree.map(lambda a, b, w=w: a + dt * w * b, z, k)
    return z


def ExplicitEuler() -> RungeKutta:
    """Euler's method, order one."""
    return RungeKutta(EULER)


def ExplicitMidpoint() -> RungeKutta:
    """Runge's midpoint rule, order two."""
    return RungeKutta(MIDPOINT)


def RK4() -> RungeKutta:
    """The classical Runge-Kutta method, order four."""
    return RungeKutta(CLASSICAL)


def ImplicitMidpoint() -> RungeKutta:
    """`z_{n+1} = z_n + dt f((z_n + z_{n+1})/2)`: order two, symmetric, symplectic; the Gauss method of one stage."""
    return RungeKutta(IMPLICIT_MIDPOINT)


class SymplecticEuler(AbstractMethod):
    r"""`p_{n+1} = p_n + dt F(q_n)`, `q_{n+1} = q_n + dt M^-1 p_{n+1}`: order one, symplectic without constraints."""

    reference = "de Vogelaere 1956; Farrell 2009 (5)"
    family = "classical"

    @property
    def traits(self) -> Mapping[str, Traits]:
        treats = (Capability.FORCE, Capability.TIME)
        return {
            "free": Traits(1, symplectic=True, treats=treats),
            "constrained": Traits(1, treats=(*treats, Capability.MOVING)),
        }

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        point = PhasePoint.of(state, carry).kicked(dt * reduced_force(system, state.q, state.p, state.t))
        point = point.moved(dt * system.velocity(state.q, point.p))
        return point.state(state.t + dt, state.n), point.low, Report.ok()


VARIANTS = {
    "RungeKutta": tuple(
        lambda t=t: RungeKutta(t) for t in (KUTTA3, gauss_tableau(2), radau_tableau(2), radau_tableau(3))
    )
}
