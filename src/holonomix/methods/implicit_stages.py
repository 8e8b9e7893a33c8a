"""The stages of an implicit Runge-Kutta method, partitioned or not, for any Hamiltonian system.

    Q_i = q + dt sum_j a_ij  q'(Q_j, P_j)        P_i = p + dt sum_j a^_ij p'(Q_j, P_j)

Positions and momenta of all stages are found together by Newton's method, so H need not be separable.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.types import Numbers, Real, Report, State
from ..linalg import newton_root
from ..mechanics.abstract import AbstractSystem
from .equations import iteration_report, unknown_sizes, vector_field


def stage_slopes(
    system: AbstractSystem, state: State, dt: Real, a: np.ndarray, a_hat: np.ndarray
) -> tuple[list[tuple[Any, Any]], Report]:
    """`(q', p')` at every stage, and how the iteration ended. Stage i is at the time `t + dt sum_j a_ij`."""
    q, p = state.q, state.p
    dt = jnp.asarray(dt, q.dtype)
    times = [state.t + float(x) * dt for x in a.sum(axis=1)]
    dq, dp = vector_field(system, (q, p), state.t)
    first = [(q + dt * float(x) * dq, p + dt * float(y) * dp) for x, y in zip(a.sum(axis=1), a_hat.sum(axis=1))]
    start = jnp.concatenate([x.reshape(-1) for pair in first for x in pair])
    args = (system, q, p, jnp.stack([jnp.asarray(t, q.dtype) for t in times]), dt)
    options = {"blocks": (q.size,) * (2 * len(a)), "sizes": unknown_sizes("qp" * len(a))}
    done = newton_root(_residual(a, a_hat), start, args, **options)
    stages = done.x.reshape(len(a), 2, *q.shape)
    return [vector_field(system, (z[0], z[1]), t) for z, t in zip(stages, times)], iteration_report(done)


def _residual(a: np.ndarray, a_hat: np.ndarray) -> Any:
    def residual(x: Numbers, args: PyTree):
        system, q, p, times, dt = args
        stages = x.reshape(len(a), 2, *q.shape)
        slopes = [vector_field(system, (stages[i, 0], stages[i, 1]), times[i]) for i in range(len(a))]
        rows = []
        for i in range(len(a)):
            for k, (old, weights) in enumerate(((q, a[i]), (p, a_hat[i]))):
                moved = sum((float(w) * slopes[j][k] for j, w in enumerate(weights) if w), jnp.zeros_like(q))
                rows.append((stages[i, k] - old - dt * moved).reshape(-1))
        return jnp.concatenate(rows)

    return residual
