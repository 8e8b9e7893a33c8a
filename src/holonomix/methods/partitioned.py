"""Partitioned Runge-Kutta methods: one tableau for positions, another for momenta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import PyTree

from ..core.errors import InputError
from ..core.types import Key, Real, State, StepResult
from ..linalg import Compensation
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from .base import AbstractMethod, Traits
from .implicit_stages import stage_increments
from .kick_drift import PhasePoint
from .lobatto import lobatto
from .tableaus import Tableau


def lobatto_pair(s: int) -> Tableau:
    """Lobatto IIIA for positions with IIIB for momenta, order 2 s - 2 (Hairer, Lubich & Wanner 2006, II.1.4)."""
    if not 2 <= s <= 8:
        raise InputError(f"Lobatto methods are offered with 2 to 8 stages, not {s}")
    _, b, a, a_hat = lobatto(s)
    rows = lambda x: tuple(tuple(float(y) for y in row) for row in x)
    weights = tuple(float(x) for x in b)
    name = f"LobattoIIIA-IIIB({s})"
    return Tableau(name, rows(a), weights, 2 * s - 2, "Sun 1993", a_hat=rows(a_hat), b_hat=weights)


SYMPLECTIC_EULER = Tableau("SymplecticEuler", ((0.0,),), (1.0,), 1, a_hat=((1.0,),), b_hat=(1.0,))
LOBATTO_IIIAB = {s: lobatto_pair(s) for s in range(2, 6)}


class PartitionedRungeKutta(AbstractMethod):
    r"""`Q_i = q + dt sum_j a_ij H_p(Q_j, P_j)`, `P_i = p - dt sum_j a^_ij H_q(Q_j, P_j)`, weights b and b^.

    Symplectic when `b_i a^_ij + b^_j a_ji = b_i b^_j`. The default is Lobatto IIIA-IIIB with three stages, order four;
    two stages are Verlet, and `SYMPLECTIC_EULER` is an instance too. On separable systems stages are solved by Newton's
    method in the positions unless each is explicit; with a mass M(q) or a vector potential in positions and momenta
    together, and then weights `b = b^` are needed. For constrained systems use `LobattoIIIAB`.
    """

    reference = "Hairer, Lubich & Wanner 2006 (II.2, VI.4); Sun 1993; Farrell 2009 (section 5)"
    family = "classical"

    tableau: Tableau = LOBATTO_IIIAB[3]

    @property
    def name(self) -> str:
        return f"PartitionedRungeKutta({self.tableau.name})"

    @property
    def traits(self) -> Mapping[str, Traits]:
        t = self.tableau
        treats = (Capability.TIME, *((Capability.MASS, Capability.MAGNETIC) if t.same_weights else ()))
        return {"free": Traits(t.order, symmetric=t.symmetric, symplectic=t.symplectic, treats=treats)}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        dq, dp, report = stage_increments(system, state, dt, self.tableau)
        end = PhasePoint.of(state, carry).move(dq).kick(dp)
        return end.state(state.t + dt, state.n), end.low, report


OTHERS = (LOBATTO_IIIAB[2], LOBATTO_IIIAB[4], SYMPLECTIC_EULER)
VARIANTS = {"PartitionedRungeKutta": tuple(lambda t=t: PartitionedRungeKutta(t) for t in OTHERS)}
