"""Verlet for a mass that depends on the position, without constraints."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..errors import MethodError
from ..linalg import Compensation, add, newton_root
from ..types import Report, State
from .base import AbstractMethod, Traits, first_failure
from .flows import iteration_report

__all__ = ["GeneralizedVerlet"]


class GeneralizedVerlet(AbstractMethod):
    r"""The generalised Stormer-Verlet method for `H = p^T M(q)^-1 p/2 + V(q)`: two implicit half steps.

        p+      = p_n - h/2 H_q(q_n, p+)              q_{n+1} = q_n + h/2 (H_p(q_n, p+) + H_p(q_{n+1}, p+))
        p_{n+1} = p+ - h/2 H_q(q_{n+1}, p+)

    Symplectic, symmetric, of order two; velocity Verlet when the mass is constant.
    """

    reference = "Hairer, Lubich & Wanner 2006 (VI.3)"
    family = "classical"

    @property
    def traits(self):
        return {"free": Traits(2, symmetric=True, symplectic=True)}

    def check_further(self, system: Any) -> None:
        if not system.conservative:
            raise MethodError("GeneralizedVerlet needs a force that derives from a potential")

    def init(self, system: Any, state: State, dt: Any) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: Any, state: State, dt: Any, carry: Any, key: Any = None) -> tuple[State, Any, Report]:
        q, p, dt = state.q, state.p, jnp.asarray(dt, state.q.dtype)
        slope = jax.grad(system.hamiltonian)
        if not system.position_mass:
            half, low_p = add(p, carry.p, -dt / 2 * slope(q, p))
            q1, low_q = add(q, carry.q, dt * system.velocity(q, half))
            p1, low_p = add(half, low_p, -dt / 2 * slope(q1, half))
            return State(q1, p1, state.t + dt, state.n), Compensation(low_q, low_p), Report.ok()
        first = newton_root(_kick_residual, p.reshape(-1), (system, q, p, dt))
        half, low_p = add(p, carry.p, -dt / 2 * slope(q, first.x.reshape(q.shape)))
        speed = system.velocity(q, half)
        second = newton_root(_drift_residual, (q + dt * speed).reshape(-1), (system, q, half, dt))
        end = system.velocity(second.x.reshape(q.shape), half)
        q1, low_q = add(q, carry.q, dt / 2 * (speed + end))
        p1, low_p = add(half, low_p, -dt / 2 * slope(q1, half))
        one, two = iteration_report(first), iteration_report(second)
        report = Report(
            first_failure(one.status, two.status),
            one.iterations + two.iterations,
            jnp.maximum(one.residual, two.residual),
        )
        return State(q1, p1, state.t + dt, state.n), Compensation(low_q, low_p), report

    def reverse(self, system: Any, state: State, carry: Any) -> tuple[State, Any]:
        return State(state.q, -state.p, state.t, state.n), Compensation(carry.q, -carry.p)


def _kick_residual(x: Any, args: Any) -> Any:
    system, q, p, dt = args
    half = x.reshape(q.shape)
    return (half - p + dt / 2 * jax.grad(system.hamiltonian)(q, half)).reshape(-1)


def _drift_residual(x: Any, args: Any) -> Any:
    system, q, half, dt = args
    end = x.reshape(q.shape)
    return (end - q - dt / 2 * (system.velocity(q, half) + system.velocity(end, half))).reshape(-1)
