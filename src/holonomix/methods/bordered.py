"""Multipliers and step density solved together: Appendix A of Barth, Leimkuhler & Reich 1998.

Unknowns are the impulse `mu = c lambda` and the density `rho_+`:

    0 = g(q_n + (h/rho_+) M^-1 p_+),      p_+ = p_- - (h/2)(1/rho_- + 1/rho_+) grad V(q_n) - G(q_n)^T mu
    0 = rho_+ + rho_- - U(q_n, p_+) - U(q_n, p_-)

The Jacobian is the Gram matrix of SHAKE bordered by one row and one column: one factorization and two solves per sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.types import Numbers
from ..linalg import Iterated, implicit_root, iterate
from ..linalg.careful import is_careful, rescue
from ..linalg.scales import inverse_sizes, stall_rule
from ..mechanics.projection import SymmetricNewton
from ..mechanics.projection.solvers import AbstractSolver

# The density equation is solved to this many ulps of rho, because the monitor has round-off too.
DENSITY_ULPS = 8.0


class Bordered(NamedTuple):
    """`[[A, b], [c^T, d]]` with a factored A, by the Schur complement `d - c^T A^-1 b`."""

    inner: Callable[[Any], Any]  # A^-1
    column: Any
    row: Callable[[Any], Any]  # y -> c^T y
    corner: Any

    def solve(self, r: Numbers) -> Any:
        y, z = self.inner(r[:-1]), self.inner(self.column)
        last = (r[-1] - self.row(y)) / (self.corner - self.row(z))
        return jnp.concatenate([y - z * last, last[None]])


def solve_together(solver: AbstractSolver, start: Numbers, args: PyTree) -> Iterated:
    """`x = (mu, rho_+)` by Newton's method, or with the symmetric Gram matrix at q_n for `SymmetricNewton`.

    `args = (system, monitor, q, t, U(q, p_-), carry)`. The derivative is that of the implicit function.
    """

    def solve(full: PyTree):
        start, args, solver = full
        system, _, q, t, _, carry = args
        eps = jnp.finfo(q.dtype).eps
        jac = system.linearize(q, t)
        # the impulse cancels forces, whose own effect sets the round-off
        free = _trial(jnp.zeros_like(start[:-1]), start[-1], args)[1]
        sizes = system.row_sizes(q, jac, jnp.maximum(jnp.abs(q), jnp.abs(free)))
        scale = inverse_sizes(sizes) if solver.tol is None else jnp.ones_like(sizes)
        units = DENSITY_ULPS if solver.tol is None else 1.0
        frozen = system.gram(q, jac, jac).factor(symmetric=True) if isinstance(solver, SymmetricNewton) else None

        def residual(x: Numbers):
            r = _residual(x, args)
            density = jnp.abs(r[-1]) / (units * (jnp.abs(x[-1]) + carry.density))
            return r, jnp.maximum(jnp.max(jnp.abs(r[:-1]) * scale), density)

        done = iterate(
            lambda x, r: x - _jacobian(x, args, frozen).solve(r),
            residual,
            start,
            tol=eps if solver.tol is None else solver.tol,
            max_iterations=solver.max_iterations,
            **stall_rule(q.dtype, 1.0 if solver.tol is None else jnp.max(sizes), quadratic=frozen is None),
        )
        converged, found = done.converged, (done.x, done.residual, done.iterations)
        if is_careful(start.size):
            finish = lambda x, norm, k: (x, norm, done.iterations + k)
            rows = lambda x: jnp.append(sizes, jnp.abs(x[-1]) + carry.density)
            equations = lambda x, fraction: _residual(x, args)
            converged, found = rescue(converged, found, equations, start, finish, rows=rows, grows=False)
        x, *info = found
        return x, (*info, converged)

    def factor(x: Numbers, full: PyTree):
        return _jacobian(x, full[1], None)

    x, (norm, k, converged) = implicit_root(solve, lambda x, full: _residual(x, full[1]), (start, args, solver), factor)
    return Iterated(x, norm, k, converged)


def _trial(mu: Numbers, density: Numbers, args: PyTree) -> tuple[Any, Any, Any]:
    """`p_+`, `q_{n+1}` and `t_{n+1}` for a guess of impulse and density."""
    system, _, q, t, _, carry = args
    kick = carry.h / 2 * (1 / carry.density + 1 / density)
    p = carry.half + (carry.low.p - kick * carry.gradient - system.linearize(q, t).transpose(mu))
    step = carry.h / density
    return p, q + (step * system.velocity(q, p) + carry.low.q), t + step


def _residual(x: Numbers, args: PyTree) -> Any:
    system, monitor, q, _, u, carry = args
    p, q1, t1 = _trial(x[:-1], x[-1], args)
    balance = x[-1] + carry.density - u - monitor.value(system, q, p, carry.monitor)
    return jnp.concatenate([system.constraint(q1, t1), balance[None]])


def _jacobian(x: Numbers, args: PyTree, frozen: PyTree) -> Bordered:
    system, monitor, q, t, _, carry = args
    density, step = x[-1], carry.h / x[-1]
    p, q1, t1 = _trial(x[:-1], density, args)
    here, there = system.linearize(q, t), system.linearize(q1, t1)
    gram = system.gram(q, there, here).factor() if frozen is None else frozen
    _, slope = jax.linearize(lambda p: monitor.value(system, q, p, carry.monitor), p)
    dp = carry.h / (2 * density**2) * carry.gradient  # of p_+ by rho_+
    column = there(system.velocity(q, step * dp - step / density * p))
    return Bordered(lambda r: gram.solve(r) / -step, column, lambda y: slope(here.transpose(y)), 1 - slope(dp))
