"""Partitioned Runge-Kutta methods: one tableau for positions, another for momenta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import InputError
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation, newton_root
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from .base import AbstractMethod, Traits
from .equations import iteration_report, unknown_sizes
from .implicit_stages import stage_slopes
from .kick_drift import PhasePoint
from .lobatto import lobatto


class PartitionedTableau(eqx.Module):
    """Coefficients `a`, `b` for the positions and `a_hat`, `b_hat` for the momenta, and the order they give."""

    name: str = eqx.field(static=True)
    a: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    b: tuple[float, ...] = eqx.field(static=True)
    a_hat: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    b_hat: tuple[float, ...] = eqx.field(static=True)
    order: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        s = len(self.b)
        if any(len(x) != s for x in (self.a, self.a_hat, self.b_hat, *self.a, *self.a_hat)):
            raise InputError(f"tableau {self.name}: all coefficients must belong to {s} stages")
        for name, weights in (("b", self.b), ("b_hat", self.b_hat)):
            if abs(sum(weights) - 1) > 1e-12:
                raise InputError(f"tableau {self.name}: the weights {name} add up to {sum(weights):g} instead of 1")

    @property
    def symplectic(self) -> bool:
        """`b_i a^_ij + b^_j a_ji = b_i b^_j` (for separable systems), and `b = b^` for others (`same_weights`)."""
        a, a_hat, b, b_hat = map(np.asarray, (self.a, self.a_hat, self.b, self.b_hat))
        return bool(np.allclose(b[:, None] * a_hat + b_hat[None] * a.T, np.outer(b, b_hat), atol=1e-13))

    @property
    def same_weights(self) -> bool:
        return bool(np.allclose(self.b, self.b_hat, atol=1e-13))

    @property
    def symmetric(self) -> bool:
        """`a_{s+1-i, s+1-j} + a_ij = b_j` for both."""
        pairs = ((self.a, self.b), (self.a_hat, self.b_hat))
        return all(np.allclose(np.asarray(a)[::-1, ::-1] + a, np.asarray(b), atol=1e-13) for a, b in pairs)


def lobatto_pair(s: int) -> PartitionedTableau:
    """Lobatto IIIA for positions with IIIB for momenta, order 2 s - 2 (Hairer, Lubich & Wanner 2006, II.1.4)."""
    if not 2 <= s <= 8:
        raise InputError(f"Lobatto methods are offered with 2 to 8 stages, not {s}")
    c, b, a, a_hat = lobatto(s)
    tableau = lambda x: tuple(tuple(float(y) for y in row) for row in x)
    weights = tuple(float(x) for x in b)
    return PartitionedTableau(f"LobattoIIIA-IIIB({s})", tableau(a), weights, tableau(a_hat), weights, 2 * s - 2)


SYMPLECTIC_EULER = PartitionedTableau("SymplecticEuler", ((0.0,),), (1.0,), ((1.0,),), (1.0,), 1)
VERLET = lobatto_pair(2)
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

    tableau: PartitionedTableau = LOBATTO_IIIAB[3]

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
        q, p = state.q, state.p
        t = self.tableau
        a, a_hat = np.asarray(t.a), np.asarray(t.a_hat)
        if not system.separable:
            slopes, report = stage_slopes(system, state, dt, a, a_hat)
            dq, dp = (dt * sum(float(w) * k[part] for w, k in zip(t.b, slopes, strict=True)) for part in (0, 1))
            end = PhasePoint.of(state, carry).moved(dq).kicked(dp)
            return end.state(state.t + dt, state.n), end.low, report
        # Q_i = q + dt c_i M^-1 p + dt^2 sum_k (a a^)_ik M^-1 F(Q_k): explicit where the product is strictly triangular
        pairs = a @ a_hat
        c = a.sum(axis=1)
        dt = jnp.asarray(dt, q.dtype)
        drift = system.velocity(q, p)
        start = jnp.stack([q + dt * float(x) * drift for x in c])
        if np.allclose(np.triu(pairs), 0.0, atol=1e-15):
            forces: list[Any] = []
            for i in range(len(c)):
                pull = sum((float(pairs[i, k]) * forces[k] for k in range(i) if pairs[i, k]), jnp.zeros_like(q))
                forces.append(-system.gradient(start[i] + dt**2 * system.velocity(q, pull), state.t + float(c[i]) * dt))
            report = Report.ok()
        else:
            args = (system, start, jnp.asarray(state.t, q.dtype), dt)
            done = newton_root(
                _stages(pairs, c),
                start.reshape(-1),
                args,
                blocks=(start.size,),
                sizes=unknown_sizes("q" * len(c), lambda args: (args[0], args[1][0])),
            )
            stages = done.x.reshape(start.shape)
            forces = [-system.gradient(stages[i], state.t + float(c[i]) * dt) for i in range(len(c))]
            report = iteration_report(done)
        dp = dt * sum((float(w) * f for w, f in zip(t.b_hat, forces, strict=True) if w), jnp.zeros_like(p))
        lag = np.asarray(t.b) @ a_hat
        pull = sum((float(w) * f for w, f in zip(lag, forces, strict=True) if w), jnp.zeros_like(p))
        end = PhasePoint.of(state, carry).moved(dt * (drift + dt * system.velocity(q, pull))).kicked(dp)
        return end.state(state.t + dt, state.n), end.low, report


def _stages(pairs: np.ndarray, c: np.ndarray) -> Any:
    def residual(x: Numbers, args: PyTree):
        system, start, t, dt = args
        stages = x.reshape(start.shape)
        forces = jnp.stack([-system.gradient(stages[i], t + float(c[i]) * dt) for i in range(len(pairs))])
        pulls = jnp.tensordot(jnp.asarray(pairs, x.dtype), forces, axes=1)
        moved = jnp.stack([dt**2 * system.velocity(stages[0], pulls[i]) for i in range(len(pairs))])
        return (stages - start - moved).reshape(-1)

    return residual


OTHERS = (LOBATTO_IIIAB[2], LOBATTO_IIIAB[4], SYMPLECTIC_EULER)
VARIANTS = {"PartitionedRungeKutta": tuple(lambda t=t: PartitionedRungeKutta(t) for t in OTHERS)}
