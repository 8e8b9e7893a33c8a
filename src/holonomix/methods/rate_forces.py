r"""The implicit half kick of `implicit_drift` for applied forces along a few rates, such as those of joints.

The force is `F(q, t) + S(q)^T c(S v, q, t)` with few rows S: dampers and motors. Unknown are the multipliers and c:

    p+ = p + dt/2 (F + S^T c) - G(q)^T l     g(q + dt M^-1 p+) = 0     c = c(S M^-1 p+)

Newton's method with the derivative D of c, by `u = A^-1 g/dt` with `A = G(q1) M^-1 G(q)^T`:

    (1 - dt/2 D Z) dc = -r - D S M^-1 G^T u     dl = u + dt/2 A^-1 G(q1) M^-1 S^T dc

`Z = S M^-1 S^T - (G M^-1 S^T)^T (G M^-1 G^T)^-1 G M^-1 S^T` is the inverse inertia along the rates. It is computed at
q, once per step, so a sweep costs two solves for any damping; with A of the start of the step, one: the solutions that
Z is made of give the second.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.types import Numbers, Real
from ..linalg import Dense, implicit_root, iterate
from ..linalg.careful import asked_for_care, is_careful, rescue
from ..linalg.scales import inverse_sizes, particle_sizes, relative, stall_rule
from ..linalg.small import UNROLL, factor_by_rows
from ..mechanics.abstract import AbstractSystem

MAX_SWEEPS = 50


def solve_with_rates(
    system: AbstractSystem, q: Numbers, p: Numbers, low: PyTree, dt: Real, t: Real
) -> tuple[Any, Any, Any, Any]:
    """The multipliers (without dt), q1, the force less that of the constraint, and (sweeps, residual, converged)."""
    m = system.constraint_count(q)
    args = (system, q, p + low.p, low.q, dt, t, jnp.zeros(m + system.rate_count, q.dtype))
    x, info = implicit_root(_iterate, _residual, args)
    step = _Step(args)
    return x[:m], step.end(x), step.force(x), info


def _rates(slopes: Numbers, v: Numbers) -> Any:
    return jnp.sum(slopes * v, axis=tuple(range(1, slopes.ndim)))


class _Step:
    """Quantities that are constant during the sweeps of one step."""

    def __init__(self, args: PyTree):
        self.system, self.q, self.p, self.low_q, self.dt, self.t, self.start = args
        self.m = self.system.constraint_count(self.q)
        self.slopes, self.rest = self.system.rate_slopes(self.q, self.t)
        self.jac: Any = self.system.linearize(self.q, self.t) if self.m else None

    def push(self, loads: Numbers) -> Any:
        """`S^T c`."""
        return _push(self.slopes, loads)

    def force(self, x: Numbers) -> Any:
        return self.rest + self.push(x[self.m :])

    def half(self, x: Numbers) -> Any:
        out = self.p + self.dt / 2 * self.force(x)
        return out if self.jac is None else out - self.jac.transpose(x[: self.m])

    def end(self, x: Numbers) -> Any:
        return self.q + (self.dt * self.system.velocity(self.q, self.half(x)) + self.low_q)

    def rates(self, x: Numbers) -> Any:
        return _rates(self.slopes, self.system.velocity(self.q, self.half(x)))

    def residual(self, x: Numbers) -> tuple[Any, Any]:
        """The rows of the constraint at q1 with the errors of c, and the derivative of c."""
        loads, slope = self.system.rate_loads(self.q, self.rates(x), self.t)
        off = x[self.m :] - loads
        rows = [self.system.constraint(self.end(x), self.t + self.dt)] if self.m else []
        return jnp.concatenate([*rows, off]), slope


def _residual(x: Numbers, args: PyTree) -> Any:
    return _Step(args).residual(x)[0]


def _iterate(args: PyTree) -> tuple[Any, Any]:
    step = _Step(args)
    system, q, dt, m = step.system, step.q, step.dt, step.m
    spread = jnp.stack([system.inverse_mass(q, row) for row in step.slopes])  # S M^-1
    free = jnp.stack([_rates(step.slopes, row) for row in spread])
    # rows of rigid bodies are eliminated at the start of the step; sweeps converge linearly as it is
    chord = m > 0 and not asked_for_care() and system.has_rigid_rows(q)
    fixed: Any = None
    held: Any = None
    if m:
        fixed = system.gram_on_manifold(q, step.jac).factor(symmetric=True)
        across = jnp.stack([step.jac(row) for row in spread])
        held = jax.lax.map(fixed.solve, across)  # a loop: the code of a solve is long
        free = free - jnp.sum(across[:, None] * held[None], axis=-1)

    def damped(slope: Numbers) -> Any:
        matrix = jnp.eye(len(slope), dtype=q.dtype) - dt / 2 * slope @ free
        return Dense(matrix).factor() if len(slope) <= UNROLL else factor_by_rows(matrix, len(slope), False)

    # first guess: the rates of p, changed by the loads; exact for linear dampers without constraints
    loads, slope = system.rate_loads(q, _rates(step.slopes, system.velocity(q, step.p)), step.t)
    start = step.start.at[m:].set(damped(slope).solve(loads))
    per_row = jnp.zeros(0, q.dtype)
    if m:
        apart = jnp.maximum(jnp.abs(q), jnp.abs(step.end(start)))
        per_row = inverse_sizes(system.row_sizes(q, step.jac, apart))
    weights = None if q.ndim > 1 else 1.0 / system.mass_form(q).weights(q)

    def sizes(x: Numbers, slope: Numbers):
        """The scale of p+, a sum of p, half a step of the force, and constraint forces, which may cancel."""
        rates = _rates(jnp.abs(step.slopes), jnp.abs(system.velocity(q, step.p)))
        loads = jnp.abs(x[m:]) + jnp.abs(slope) @ rates
        size = jnp.abs(step.p) + jnp.abs(dt) / 2 * (jnp.abs(step.rest) + _push(jnp.abs(step.slopes), loads))
        if m:
            size = size + jax.tree.map(jnp.abs, step.jac).transpose(jnp.abs(x[:m]))
        return particle_sizes(size, weights)

    def measured(x: Numbers):
        r, slope = step.residual(x)
        off = relative(jnp.abs(dt) / 2 * _push(jnp.abs(step.slopes), jnp.abs(r[m:])), sizes(x, slope))
        return (r, slope), jnp.maximum(jnp.max(jnp.abs(r[:m]) * per_row), off) if m else off

    def body(x: Numbers, found: tuple[Numbers, Numbers]):
        r, slope = found
        if not m:
            return x - damped(slope).solve(r)
        there: Any = None if chord else system.linearize(step.end(x), step.t + dt)
        factor: Any = fixed if chord else system.gram(q, there, step.jac).factor()
        pull = factor.solve(r[:m] / dt)
        change = damped(slope).solve(-r[m:] - slope @ _rates(spread, step.jac.transpose(pull)))
        back = change @ held if chord else factor.solve(there(system.inverse_mass(q, step.push(change))))
        return x + jnp.concatenate([pull + dt / 2 * back, change])

    # sweeps that diverge end while all is finite; the step is then repeated with care
    options = {"tol": 0.5 * jnp.finfo(q.dtype).eps, "max_iterations": MAX_SWEEPS, "slow": 100.0 if chord else None}
    done = iterate(body, measured, start, **options, **stall_rule(q.dtype, quadratic=False))
    converged, found = done.converged, (done.x, done.residual, done.iterations)
    if is_careful(start.size):
        shorter = lambda fraction: (*args[:4], fraction * dt, *args[5:])
        near = lambda x, at: ~system.turns(q, at.end(x), at.t, at.t + at.dt) if m else jnp.asarray(True)
        rescued, found = rescue(
            converged & near(done.x, step),
            found,
            lambda x, fraction: _residual(x, shorter(fraction)),
            start,
            lambda x, norm, k: (x, norm.astype(q.dtype), done.iterations + k),
            rescale=lambda x, ratio: x.at[:m].multiply(ratio),
            accept=lambda x, fraction: near(x, _Step(shorter(fraction))),
            stiff=True,
        )
        converged = converged | rescued
    x, residual, iterations = found
    return x, (iterations, residual, converged)


def _push(slopes: Numbers, loads: Numbers) -> Any:
    return jnp.sum(slopes * loads.reshape(-1, *(1,) * (slopes.ndim - 1)), axis=0)
