"""The increments of an implicit Runge-Kutta step, partitioned or not.

    Q_i = q + dt sum_j a_ij  q'(Q_j, P_j)        q_{n+1} = q + dt sum_i b_i  q'(Q_i, P_i)
    P_i = p + dt sum_j a^_ij p'(Q_j, P_j)        p_{n+1} = p + dt sum_i b^_i p'(Q_i, P_i)

Where `q' = M^-1 p` and `p' = F(q, t)` the unknowns are the positions alone. Otherwise Newton's method finds positions
and momenta of all stages together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.types import Numbers, Real, Report, State
from ..linalg import newton_root
from ..mechanics.abstract import AbstractSystem
from .equations import iteration_report, unknown_sizes, vector_field
from .tableaus import Tableau


def stage_increments(system: AbstractSystem, state: State, dt: Real, tableau: Tableau) -> tuple[Any, Any, Report]:
    """`q_{n+1} - q`, `p_{n+1} - p`, and how the iteration ended."""
    plain = system.separable and not system.forced and not system.has_constraints
    return (_from_positions if plain else _from_slopes)(system, state, jnp.asarray(dt, state.q.dtype), tableau)


# -- separable systems: Q_i = q + dt c_i M^-1 p + dt^2 sum_k (a a^)_ik M^-1 F(Q_k) ------------------------------------


def _from_positions(system: AbstractSystem, state: State, dt: Real, tableau: Tableau) -> tuple[Any, Any, Report]:
    q, p = state.q, state.p
    (a, b), (a_hat, b_hat) = tableau.positions, tableau.momenta
    pairs, c = a @ a_hat, a.sum(axis=1)
    drift = system.velocity(q, p)
    start = jnp.stack([q + dt * float(x) * drift for x in c])
    if np.allclose(np.triu(pairs), 0.0, atol=1e-15):  # each stage is explicit
        forces: list[Any] = []
        for i in range(len(c)):
            pull = _weighted(pairs[i], forces, q)
            forces.append(-system.gradient(start[i] + dt**2 * system.velocity(q, pull), state.t + float(c[i]) * dt))
        report = Report.ok()
    else:
        args = (system, start, jnp.asarray(state.t, q.dtype), dt)
        sizes = unknown_sizes("q" * len(c), lambda args: (args[0], args[1][0]))
        done = newton_root(_position_residual(pairs, c), start.reshape(-1), args, blocks=(start.size,), sizes=sizes)
        stages = done.x.reshape(start.shape)
        forces = [-system.gradient(stages[i], state.t + float(c[i]) * dt) for i in range(len(c))]
        report = iteration_report(done)
    dp = dt * _weighted(b_hat, forces, p)
    return dt * (drift + dt * system.velocity(q, _weighted(b @ a_hat, forces, p))), dp, report


def _position_residual(pairs: np.ndarray, c: np.ndarray) -> Callable[[Numbers, PyTree], Numbers]:
    def residual(x: Numbers, args: PyTree) -> Numbers:
        system, start, t, dt = args
        stages = x.reshape(start.shape)
        forces = jnp.stack([-system.gradient(stages[i], t + float(c[i]) * dt) for i in range(len(pairs))])
        pulls = jnp.tensordot(jnp.asarray(pairs, x.dtype), forces, axes=1)
        moved = jnp.stack([dt**2 * system.velocity(stages[0], pulls[i]) for i in range(len(pairs))])
        return (stages - start - moved).reshape(-1)

    return residual


# -- any system ------------------------------------------------------------------------------------------------------


def _from_slopes(system: AbstractSystem, state: State, dt: Real, tableau: Tableau) -> tuple[Any, Any, Report]:
    q, p = state.q, state.p
    (a, b), (a_hat, b_hat) = tableau.positions, tableau.momenta
    times = [state.t + float(x) * dt for x in a.sum(axis=1)]
    dq, dp = vector_field(system, (q, p), state.t)
    first = [(q + dt * float(x) * dq, p + dt * float(y) * dp) for x, y in zip(a.sum(axis=1), a_hat.sum(axis=1))]
    start = jnp.concatenate([x.reshape(-1) for pair in first for x in pair])
    args = (system, q, p, jnp.stack([jnp.asarray(t, q.dtype) for t in times]), dt)
    options = {"blocks": (q.size,) * (2 * len(a)), "sizes": unknown_sizes("qp" * len(a))}
    done = newton_root(_residual(a, a_hat), start, args, **options)
    stages = done.x.reshape(len(a), 2, *q.shape)
    slopes = [vector_field(system, (z[0], z[1]), t) for z, t in zip(stages, times)]
    dq, dp = (dt * _weighted(w, [k[part] for k in slopes], q) for part, w in enumerate((b, b_hat)))
    return dq, dp, iteration_report(done)


def _residual(a: np.ndarray, a_hat: np.ndarray) -> Callable[[Numbers, PyTree], Numbers]:
    def residual(x: Numbers, args: PyTree) -> Numbers:
        system, q, p, times, dt = args
        stages = x.reshape(len(a), 2, *q.shape)
        slopes = [vector_field(system, (stages[i, 0], stages[i, 1]), times[i]) for i in range(len(a))]
        rows = []
        for i in range(len(a)):
            for k, (old, weights) in enumerate(((q, a[i]), (p, a_hat[i]))):
                moved = _weighted(weights, [slope[k] for slope in slopes], q)
                rows.append((stages[i, k] - old - dt * moved).reshape(-1))
        return jnp.concatenate(rows)

    return residual


def _weighted(weights: np.ndarray, terms: list[Any], like: Numbers) -> Any:
    """`sum_i w_i terms_i`; an explicit stage has the terms before it only."""
    return sum((float(w) * x for w, x in zip(weights, terms) if w), jnp.zeros_like(like))
