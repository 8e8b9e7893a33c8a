"""Taylor methods: as many derivatives of the solution as the order asks for, by Taylor-mode differentiation."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental import jet

from ..errors import InputError
from ..linalg import Compensation, add
from ..types import Report, State
from .base import AbstractMethod
from .equations import reduced_traits, vector_field

__all__ = ["Taylor"]


class Taylor(AbstractMethod):
    r"""`z_{n+1} = z_n + dt T_p(z_n)`, `T_p = f + dt/2 f' + ... + dt^{p-1}/p! f^{(p-1)}` with total derivatives of f.

    The derivatives along the solution follow from `z' = f(t, z)` one after the other: knowing k of them, one pass of
    Taylor-mode differentiation through f gives the next. Constrained systems are index-reduced and drift.
    """

    reference = "Hairer, Norsett & Wanner 1993 (I.8); Farrell 2009 (3.3)"
    family = "classical"

    derivatives: int = eqx.field(static=True)

    def __init__(self, order: int = 4):
        if not isinstance(order, int) or not 1 <= order <= 20:
            raise InputError(f"order must be a whole number from 1 to 20, not {order!r}")
        self.derivatives = order

    @property
    def name(self) -> str:
        return f"Taylor({self.derivatives})"

    @property
    def traits(self):
        return reduced_traits(self.derivatives)

    def init(self, system: Any, state: State, dt: Any) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: Any, state: State, dt: Any, carry: Any, key: Any = None) -> tuple[State, Any, Report]:
        series = solution_series(system, state.q, state.p, state.t, self.derivatives)
        dq = dp = jnp.zeros_like(state.q)
        for k in reversed(range(self.derivatives)):
            dq = dt / (k + 1) * (series[k][0] + dq)
            dp = dt / (k + 1) * (series[k][1] + dp)
        q, low_q = add(state.q, carry.q, dq)
        p, low_p = add(state.p, carry.p, dp)
        return State(q, p, state.t + dt, state.n), Compensation(low_q, low_p), Report.ok()


def solution_series(system: Any, q: Any, p: Any, t: Any, count: int) -> list[tuple[Any, Any]]:
    """The first `count` time derivatives of (q, p) along the solution."""
    t = jnp.asarray(t, q.dtype)
    field = lambda q, p, t: vector_field(system, (q, p), t)
    found = [field(q, p, t)]
    try:
        while len(found) < count:
            k = len(found)
            clock = [jnp.ones_like(t)] + [jnp.zeros_like(t)] * (k - 1)
            _, ((*_, dq), (*_, dp)) = jet.jet(field, (q, p, t), ([x[0] for x in found], [x[1] for x in found], clock))
            found.append((dq, dp))
    except (NotImplementedError, KeyError, AssertionError):
        return _nested(field, q, p, t, count)
    return found


def _nested(field: Any, q: Any, p: Any, t: Any, count: int) -> list[tuple[Any, Any]]:
    """The same by nested forward mode, for functions with primitives that Taylor mode does not know."""

    def derivative(g):
        def along(q, p, t):
            dq, dp = field(q, p, t)
            return jax.jvp(g, (q, p, t), (dq, dp, jnp.ones_like(t)))[1]

        return along

    functions = [field]
    for _ in range(count - 1):
        functions.append(derivative(functions[-1]))
    return [g(q, p, t) for g in functions]


def remainder_bound(order: int, dt: float, largest: float) -> float:
    """Lagrange's bound of one step's error, `dt^{p+1}/(p+1)! max|z^{(p+1)}|`."""
    return dt ** (order + 1) / math.factorial(order + 1) * largest


VARIANTS = {"Taylor": (lambda: Taylor(2), lambda: Taylor(6))}
