r"""Half a kick and the drift onto the manifold for systems with a mass M(q) or an applied force.

    p+ = p - dt/2 (H_q(q, p+) - f(q, M^-1 p+, t) + G(q)^T lr)     q1 = q + dt/2 (H_p(q, p+) + H_p(q1, p+))     g(q1) = 0

p+ is implicit. A mass M(q) takes Newton's method on (p+, q1, lr) together; a constant mass with a force that depends
on the velocity takes sweeps that refresh force and multipliers at once and cost as much as a solve without the force.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..linalg import Compensation, implicit_root, iterate, newton_root
from ..linalg.scales import inverse_sizes, particle_sizes, relative, stall_rule
from ..projection import AbstractSolver
from ..status import Status
from ..systems.abstract import AbstractSystem
from ..types import Numbers, Real
from .kick_drift import Drift, PhasePoint


def is_general(system: AbstractSystem) -> bool:
    """Whether the plain form (H = T(p) + V, no applied force) does not apply."""
    return system.forced or not system.separable


def implicit_kick_drift(
    system: AbstractSystem, solver: AbstractSolver, start: PhasePoint, dt: Real, t: Real, memory: PyTree = ()
) -> Drift:
    """From (q, p) to p+ and the point of the manifold at t + dt."""
    q, p, low = start
    dt, t = jnp.asarray(dt, q.dtype), jnp.asarray(t, q.dtype)
    solve = _sweeps if system.separable else _together
    pull, q1, half, (k, residual, converged) = solve(system, solver, q, p, low, dt, t)
    kicked = start.kicked(dt / 2 * system.force(q, half, t) - _held(system, q, t, pull))
    low_q = (dt / 2 * (system.velocity(q, kicked.p) + system.velocity(q1, kicked.p)) + low.q) - (q1 - q)
    point = PhasePoint(q1, kicked.p, Compensation(low_q, kicked.low.p))
    status = jnp.where(converged, Status.OK, Status.NOT_CONVERGED).astype(jnp.int32)
    return Drift(point, pull * dt, k, residual, status, memory)


def _held(system: AbstractSystem, q: Numbers, t: Real, pull: Numbers) -> Any:
    return system.linearize(q, t).transpose(pull) if system.has_constraints else jnp.zeros_like(q)


# -- a mass that depends on the position -----------------------------------------------------------------------------


def _together(
    system: AbstractSystem, solver: AbstractSolver, q: Numbers, p: Numbers, low: PyTree, dt: Real, t: Real
) -> tuple[Any, Any, Any, Any]:
    n, m = q.size, system.constraint_count(q)
    guess = q + dt * system.velocity(q, p)
    start = jnp.concatenate([p.reshape(-1), guess.reshape(-1), jnp.zeros(m, q.dtype)])
    args = (system, q, p + low.p, low.q, dt, t)
    done = newton_root(_residual, start, args, blocks=(n, n, m), inverse=_near_inverse)
    half, q1 = (done.x[k * n : (k + 1) * n].reshape(q.shape) for k in range(2))
    return done.x[2 * n :], q1, half, (done.iterations, done.residual, done.converged)


def _residual(x: Numbers, args: PyTree) -> Any:
    system, q, p, low_q, dt, t = args
    n = q.size
    half, q1, pull = x[:n].reshape(q.shape), x[n : 2 * n].reshape(q.shape), x[2 * n :]
    kick = half - p - dt / 2 * system.force(q, half, t) + _held(system, q, t, pull)
    move = q1 - q - (dt / 2 * (system.velocity(q, half) + system.velocity(q1, half)) + low_q)
    parts = [kick.reshape(-1), move.reshape(-1)]
    return jnp.concatenate([*parts, system.constraint(q1, t + dt)] if system.has_constraints else parts)


def _near_inverse(x: Numbers, args: PyTree) -> Callable[[Numbers], Numbers]:
    """The inverse of the Jacobian of `_residual` without the derivatives of forces and mass: a solve for the pull."""
    system, q, _, _, dt, t = args
    n, m = q.size, x.size - 2 * q.size
    drift = lambda a, b: b + dt * system.inverse_mass(q, a)
    parts = lambda r: tuple(r[k * n : (k + 1) * n].reshape(q.shape) for k in range(2))
    joined = lambda a, b, *pull: jnp.concatenate([a.reshape(-1), drift(a, b).reshape(-1), *pull])
    if not m:
        return lambda r: joined(*parts(r))
    here, there = system.linearize(q, t), system.linearize(x[n : 2 * n].reshape(q.shape), t + dt)
    factor = system.gram(q, there, here).factor()

    def inverse(r: Numbers):
        a, b = parts(r)
        pull = factor.solve((there(drift(a, b)) - r[2 * n :]) / dt)
        return joined(a - here.transpose(pull), b, pull)

    return inverse


# -- a constant mass and an applied force ----------------------------------------------------------------------------


def _sweeps(
    system: AbstractSystem, solver: AbstractSolver, q: Numbers, p: Numbers, low: PyTree, dt: Real, t: Real
) -> tuple[Any, Any, Any, Any]:
    m = system.constraint_count(q)
    start = system.force(q, p, t)
    redundant = solver.redundant is not None

    def solve(args: PyTree):
        system, q, p, low_q, dt, t, start = args
        eps = jnp.finfo(q.dtype).eps
        jac = system.linearize(q, t) if m else None
        scale = None if jac is None else inverse_sizes(jac.row_sizes(q))
        half_step = jnp.abs(dt) / 2
        pulls = None if jac is None else jax.tree.map(jnp.abs, jac)
        fixed = None if jac is None or not redundant else system.gram(q, jac, jac).factor_redundant(symmetric=True)

        def measured(x: Numbers):
            r = _sweep_residual(x, args)
            # p+ is a sum of p, half a step of the force, and constraint forces, which may cancel
            size = jnp.abs(p.reshape(-1)) + half_step * jnp.abs(x[m:])
            size = size if pulls is None else size + pulls.transpose(jnp.abs(x[:m])).reshape(-1)
            off = relative(half_step * r[m:], particle_sizes(size.reshape(q.shape)).reshape(-1))
            return r, off if scale is None else jnp.maximum(jnp.max(jnp.abs(r[:m]) * scale), off)

        def body(x: Numbers, r: Numbers):
            change = -r[m:]
            if jac is None:
                return x + change
            there = system.linearize(q + (dt * system.velocity(q, _swept(x, args)) + low_q), t + dt)
            factor = system.gram(q, there, jac).factor() if fixed is None else fixed
            shift = dt / 2 * there(system.velocity(q, change.reshape(q.shape)))
            return x + jnp.concatenate([factor.solve(r[:m] / dt + shift), change])

        first = jnp.concatenate([jnp.zeros(m, q.dtype), start.reshape(-1)])
        options = stall_rule(q.dtype, quadratic=False)
        done = iterate(body, measured, first, tol=0.5 * eps, max_iterations=100, **options)
        return done.x, (done.iterations, done.residual, done.converged)

    args = (system, q, p + low.p, low.q, dt, t, start)
    x, info = implicit_root(solve, _sweep_residual, args)
    half = _swept(x, args)
    return x[:m], q + (dt * system.velocity(q, half) + low.q), half, info


def _swept(x: Numbers, args: PyTree) -> Any:
    """p+ for given multipliers and force."""
    system, q, p, _, dt, t, _ = args
    m = x.size - q.size
    return p + dt / 2 * x[m:].reshape(q.shape) - _held(system, q, t, x[:m])


def _sweep_residual(x: Numbers, args: PyTree) -> Any:
    system, q, _, low_q, dt, t, _ = args
    m = x.size - q.size
    half = _swept(x, args)
    off = (x[m:].reshape(q.shape) - system.force(q, half, t)).reshape(-1)
    if not m:
        return off
    return jnp.concatenate([system.constraint(q + (dt * system.velocity(q, half) + low_q), t + dt), off])
