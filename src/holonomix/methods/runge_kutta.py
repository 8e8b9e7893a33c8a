"""Explicit Runge-Kutta methods and the two Euler methods.

On constrained systems they integrate the index-reduced equations and drift off the manifold: the honest control.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..errors import InputError, number_list, whole_number
from ..linalg import Compensation
from ..systems.abstract import AbstractSystem
from ..systems.capabilities import Capability
from ..types import Report, State, StepResult
from .base import AbstractMethod, Traits
from .equations import reduced_force, reduced_traits, vector_field
from .kick_drift import PhasePoint

__all__ = ["RK4", "ExplicitEuler", "ExplicitMidpoint", "RungeKutta", "SymplecticEuler", "Tableau"]


class Tableau(eqx.Module):
    """Butcher's coefficients `a` (strictly lower triangular), weights `b`, and the order they give."""

    name: str = eqx.field(static=True)
    a: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    b: tuple[float, ...] = eqx.field(static=True)
    order: int = eqx.field(static=True)
    source: str = eqx.field(static=True, default="")

    def __check_init__(self) -> None:
        number_list("b", self.b)
        if not isinstance(self.a, (tuple, list)):
            raise InputError(f"tableau {self.name}: `a` must be a list of rows, not {self.a!r}")
        for k, row in enumerate(self.a):
            number_list(f"a[{k}]", row)
        whole_number("order", self.order)
        if len(self.a) != len(self.b) or any(len(row) != i for i, row in enumerate(self.a)):
            raise InputError(
                f"tableau {self.name}: `a` needs one row for each of the {len(self.b)} weights, row i with i entries"
            )
        if abs(sum(self.b) - 1) > 1e-12:
            raise InputError(f"tableau {self.name}: the weights add up to {sum(self.b):g} instead of 1")

    @property
    def c(self) -> tuple[float, ...]:
        return tuple(float(np.sum(row)) for row in self.a)


EULER = Tableau("ExplicitEuler", ((),), (1.0,), 1, "Euler 1768")
MIDPOINT = Tableau("ExplicitMidpoint", ((), (0.5,)), (0.0, 1.0), 2, "Runge 1895")
CLASSICAL = Tableau("RK4", ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6), 4, "Kutta 1901")


class RungeKutta(AbstractMethod):
    r"""Explicit Runge-Kutta method of a tableau: `k_i = f(z + dt sum_j a_ij k_j)`, `z_{n+1} = z + dt sum_i b_i k_i`.

    Here `f` is the vector field of Hamilton's equations, index-reduced where the system is constrained.
    """

    reference = "Kutta 1901; Farrell 2009 (4)"
    family = "classical"

    tableau: Tableau = CLASSICAL

    def __check_init__(self) -> None:
        if not isinstance(self.tableau, Tableau):
            raise InputError(f"RungeKutta needs a Tableau(name, a, b, order), not {self.tableau!r}")

    @property
    def name(self) -> str:
        return self.tableau.name

    @property
    def traits(self):
        return reduced_traits(self.tableau.order)

    def init(self, system: AbstractSystem, state: State, dt: Any) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Any, carry: Any, key: Any = None) -> StepResult:
        z, slopes = (state.q, state.p), []
        for row, c in zip(self.tableau.a, self.tableau.c, strict=True):
            here = _combine(z, dt, row, slopes)
            slopes.append(vector_field(system, here, state.t + c * dt))
        dq, dp = _combine((0.0, 0.0), dt, self.tableau.b, slopes)
        end = PhasePoint.of(state, carry).moved(dq).kicked(dp)
        return end.state(state.t + dt, state.n), end.low, Report.ok()


def _combine(z: tuple[Any, Any], dt: Any, weights: Any, slopes: list[Any]) -> tuple[Any, Any]:
    for w, k in zip(weights, slopes, strict=True):
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


class SymplecticEuler(AbstractMethod):
    r"""`p_{n+1} = p_n + dt F(q_n)`, `q_{n+1} = q_n + dt M^-1 p_{n+1}`: order one, symplectic without constraints."""

    reference = "de Vogelaere 1956; Farrell 2009 (5)"
    family = "classical"

    @property
    def traits(self):
        treats = (Capability.FORCE, Capability.TIME)
        return {
            "free": Traits(1, symplectic=True, treats=treats),
            "constrained": Traits(1, treats=(*treats, Capability.MOVING)),
        }

    def init(self, system: AbstractSystem, state: State, dt: Any) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Any, carry: Any, key: Any = None) -> StepResult:
        point = PhasePoint.of(state, carry).kicked(dt * reduced_force(system, state.q, state.p, state.t))
        point = point.moved(dt * system.velocity(state.q, point.p))
        return point.state(state.t + dt, state.n), point.low, Report.ok()
