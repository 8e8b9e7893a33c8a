r"""Half a kick and the drift onto the manifold for systems with a mass M(q) or an applied force.

    p+ = p - dt/2 (H_q(q, p+) - f(q, M^-1 p+, t) + G(q)^T lr)     q1 = q + dt/2 (H_p(q, p+) + H_p(q1, p+))     g(q1) = 0

p+ is implicit. With a mass M(q), Newton's method solves for (p+, q1, lr) together. With a constant mass and a force
that depends on the velocity, each sweep updates force and multipliers at once and costs as much as without the force.
If the force declares the rates that it depends on, as in mechanisms, `rate_forces` solves for these implicitly. Strong
damping (a rate above 2/dt) makes the sweeps diverge. Then Newton's method with the derivative of the force follows: at
once for few coordinates; for many, when the driver repeats the step with damped iterations.

Rows that depend on others (`redundant="min-norm"`) leave the multipliers open along N, the null space of `G(q)^T`. The
equation `N N^T lr = 0` is added to the rows: `g(q1) - a N N^T lr = 0` with any positive a has the same q1, multipliers
of least norm, and a regular Jacobian, so that derivatives are those of any other root.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.status import Status
from ..core.types import Numbers, Real
from ..linalg import Compensation, Dense, implicit_root, iterate, newton_root
from ..linalg.careful import asked_for_care, is_careful, rescue
from ..linalg.krylov import LARGE, JacobianProduct, block_units
from ..linalg.scales import inverse_sizes, particle_sizes, relative, stall_rule
from ..mechanics.abstract import AbstractSystem
from ..mechanics.projection import AbstractSolver
from .equations import unknown_sizes
from .kick_drift import Drift, PhasePoint
from .rate_forces import solve_with_rates


def is_general(system: AbstractSystem) -> bool:
    """Whether the plain form (H = T(p) + V, no applied force) does not apply."""
    return system.forced or not system.separable


def implicit_kick_drift(
    system: AbstractSystem, solver: AbstractSolver, start: PhasePoint, dt: Real, t: Real, memory: PyTree = ()
) -> Drift:
    """From (q, p) to p+ and the point of the manifold at t + dt."""
    q, p, low = start
    dt, t = jnp.asarray(dt, q.dtype), jnp.asarray(t, q.dtype)
    if system.separable and system.rate_count and solver.redundant is None:
        pull, q1, force, (k, residual, converged) = solve_with_rates(system, q, p, low, dt, t)
    else:
        solve = _solve_by_sweeps if system.separable else _solve_together
        pull, q1, half, (k, residual, converged) = solve(system, solver, q, p, low, dt, t)
        force = system.force(q, half, t)
    kicked = start.kick(dt / 2 * force - _constraint_force(system, q, t, pull))
    low_q = (dt / 2 * (system.velocity(q, kicked.p) + system.velocity(q1, kicked.p)) + low.q) - (q1 - q)
    point = PhasePoint(q1, kicked.p, Compensation(low_q, kicked.low.p))
    found = Status.OK
    if system.has_constraints:
        turned = system.turns(q, q1, t, t + dt, solver.redundant is None)
        found = jnp.where(turned, Status.OTHER_ROOT, Status.OK)
    status = jnp.where(converged, found, Status.NOT_CONVERGED).astype(jnp.int32)
    return Drift(point, pull * dt, k, residual, status, memory)


def _constraint_force(system: AbstractSystem, q: Numbers, t: Real, pull: Numbers) -> Any:
    return system.linearize(q, t).transpose(pull) if system.has_constraints else jnp.zeros_like(q)


def _null_part(system: AbstractSystem, q: Numbers, t: Real, pull: Numbers) -> Any:
    """`a N N^T pull`, zero for multipliers of least norm; a is about as large as the diagonal of `G M^-1 G^T`."""
    jac = system.linearize(q, t)
    rows = jax.tree.map(jnp.abs, jac)
    size = rows(jnp.abs(system.inverse_mass(q, rows.transpose(jnp.ones_like(pull)))))
    return size * (pull - system.gram(q, jac, jac).factor_redundant(symmetric=True).shortest(pull))


# -- a mass that depends on the position -----------------------------------------------------------------------------


def _solve_together(
    system: AbstractSystem, solver: AbstractSolver, q: Numbers, p: Numbers, low: PyTree, dt: Real, t: Real
) -> tuple[Any, Any, Any, Any]:
    n, m = q.size, system.constraint_count(q)
    guess = q + dt * system.velocity(q, p)
    start = jnp.concatenate([p.reshape(-1), guess.reshape(-1), jnp.zeros(m, q.dtype)])
    args = (system, q, p + low.p, low.q, dt, t, solver.redundant is not None)
    done = newton_root(_residual, start, args, blocks=(n, n, m), inverse=_near_inverse, sizes=unknown_sizes("pq"))
    half, q1 = (done.x[k * n : (k + 1) * n].reshape(q.shape) for k in range(2))
    return done.x[2 * n :], q1, half, (done.iterations, done.residual, done.converged)


def _residual(x: Numbers, args: PyTree) -> Any:
    system, q, p, low_q, dt, t, redundant = args
    n = q.size
    half, q1, pull = x[:n].reshape(q.shape), x[n : 2 * n].reshape(q.shape), x[2 * n :]
    kick = half - p - dt / 2 * system.force(q, half, t) + _constraint_force(system, q, t, pull)
    move = q1 - q - (dt / 2 * (system.velocity(q, half) + system.velocity(q1, half)) + low_q)
    parts = [kick.reshape(-1), move.reshape(-1)]
    if not system.has_constraints:
        return jnp.concatenate(parts)
    rows = system.constraint(q1, t + dt)
    return jnp.concatenate([*parts, rows - dt * _null_part(system, q, t, pull) if redundant else rows])


def _near_inverse(x: Numbers, args: PyTree) -> Callable[[Numbers], Numbers]:
    """The inverse of the Jacobian of `_residual` without the derivatives of forces and mass: a solve for the pull."""
    system, q, _, _, dt, t, redundant = args
    n, m = q.size, x.size - 2 * q.size
    drift = lambda a, b: b + dt * system.inverse_mass(q, a)
    parts = lambda r: tuple(r[k * n : (k + 1) * n].reshape(q.shape) for k in range(2))
    joined = lambda a, b, *pull: jnp.concatenate([a.reshape(-1), drift(a, b).reshape(-1), *pull])
    if not m:
        return lambda r: joined(*parts(r))
    here, there = system.linearize(q, t), system.linearize(x[n : 2 * n].reshape(q.shape), t + dt)
    gram = system.gram(q, there, here)
    factor = gram.factor_redundant() if redundant else gram.factor()

    def inverse(r: Numbers):
        a, b = parts(r)
        pull = factor.solve((there(drift(a, b)) - r[2 * n :]) / dt)
        return joined(a - here.transpose(pull), b, pull)

    return inverse


# -- a constant mass and an applied force ----------------------------------------------------------------------------

MAX_SWEEPS = 100
# Up to this many coordinates, every step may use the derivative of the force by the velocity.
MAX_COUPLED = 8


def _solve_by_sweeps(
    system: AbstractSystem, solver: AbstractSolver, q: Numbers, p: Numbers, low: PyTree, dt: Real, t: Real
) -> tuple[Any, Any, Any, Any]:
    m = system.constraint_count(q)
    start = jnp.concatenate([jnp.zeros(m, q.dtype), system.force(q, p, t).reshape(-1)])
    args = (system, q, p + low.p, low.q, dt, t, start, solver.redundant is not None)
    x, info = implicit_root(_iterate_sweeps, _sweep_residual, args, None if start.size <= LARGE else _sweep_factor)
    half = _half_momentum(x, args)
    return x[:m], _end(x, args), half, info


def _iterate_sweeps(args: PyTree) -> tuple[Any, Any]:
    system, q, _, _, dt, t, start, redundant = args
    m = start.size - q.size
    jac = system.linearize(q, t) if m else None
    fixed = system.gram(q, jac, jac).factor_redundant(symmetric=True) if redundant and m else None
    # rows of rigid bodies are eliminated at the start of the step; sweeps converge linearly as it is
    chord = m > 0 and not redundant and not asked_for_care() and system.has_rigid_rows(q)
    start_factor = system.gram_on_manifold(q, jac).factor(symmetric=True) if chord else None

    # sizes at the end of the free motion, because a constraint may vanish at q
    per_row = inverse_sizes(_constraint_sizes(start, args)) if m else None

    def measured(x: Numbers):
        r = _plain_residual(x, args)
        off = relative(jnp.abs(dt) / 2 * r[m:], _momentum_sizes(x, args))
        return r, off if per_row is None else jnp.maximum(jnp.max(jnp.abs(r[:m]) * per_row), off)

    def body(x: Numbers, r: Numbers):
        change = -r[m:]
        if jac is None:
            return x + change
        there = jac if chord else system.linearize(_end(x, args), t + dt)
        shift = r[:m] / dt + dt / 2 * there(system.velocity(q, change.reshape(q.shape)))
        if start_factor is not None:
            return x + jnp.concatenate([start_factor.solve(shift), change])
        if fixed is None:
            return x + jnp.concatenate([system.gram(q, there, jac).factor().solve(shift), change])
        return jnp.concatenate([fixed.shortest(x[:m] + fixed.solve(shift)), x[m:] + change])

    few = q.size <= MAX_COUPLED and m <= MAX_COUPLED
    tol, none = 0.5 * jnp.finfo(q.dtype).eps, jnp.zeros_like(start)
    options = {"tol": tol, "max_iterations": MAX_SWEEPS, "slow": 1.0 if few else 4.0}
    done = iterate(body, measured, start, **options, **stall_rule(q.dtype, quadratic=False))

    def again(loop: PyTree):
        newton = lambda x, r: _newton_sweep(x, r, args)
        options = {"tol": tol, "max_iterations": MAX_SWEEPS} | stall_rule(q.dtype, quadratic=True)
        found = iterate(newton, measured, none, **options)
        return found._replace(iterations=loop[0].iterations + found.iterations), jnp.asarray(False)

    if few:
        done, _ = jax.lax.while_loop(lambda loop: loop[1], again, (done, ~done.converged))
    converged, found = done.converged, (done.x, done.residual, done.iterations)
    if is_careful(start.size):
        shorter = lambda fraction: (*args[:4], fraction * dt, *args[5:])
        rescale = lambda x, ratio: x.at[:m].multiply(ratio)  # pulls grow with the step
        equations = lambda x, fraction: _sweep_residual(x, shorter(fraction))
        finish = lambda x, norm, k: (x, norm.astype(q.dtype), done.iterations + k)
        near = lambda x, at: ~system.turns(q, _end(x, at), t, t + at[4], not redundant) if m else jnp.asarray(True)
        rescued, found = rescue(
            converged & near(done.x, args),
            found,
            equations,
            none,
            finish,
            sizes=lambda x: _unknown_sizes(x, args),
            rows=lambda x: _row_sizes(x, args),
            rescale=rescale,
            accept=lambda x, fraction: near(x, shorter(fraction)),
        )
        converged = converged | rescued
    x, residual, iterations = found
    return x, (iterations, residual, converged)


def _momentum_sizes(x: Numbers, args: PyTree) -> Any:
    """The size of p+: a sum of p, half a step of the force, and constraint forces, which may cancel."""
    system, q, p, _, dt, t, *_ = args
    m, half_step = x.size - q.size, jnp.abs(dt) / 2
    size = jnp.abs(p) + half_step * jnp.abs(x[m:]).reshape(q.shape)
    if m:
        size = size + jax.tree.map(jnp.abs, system.linearize(q, t)).transpose(jnp.abs(x[:m]))
    weights = None if q.ndim > 1 else 1.0 / system.mass_form(q).weights(q)
    return particle_sizes(size, weights).reshape(-1)


def _constraint_sizes(x: Numbers, args: PyTree) -> Any:
    """The natural scale of each row of the constraint (`linalg.scales`) at the point that x leads to."""
    system, q, _, _, _, t, *_ = args
    return system.row_sizes(q, system.linearize(q, t), jnp.maximum(jnp.abs(q), jnp.abs(_end(x, args))))


def _row_sizes(x: Numbers, args: PyTree) -> Any:
    force = _force_sizes(x, args)
    return force if x.size == force.size else jnp.concatenate([_constraint_sizes(x, args), force])


def _force_sizes(x: Numbers, args: PyTree) -> Any:
    return _momentum_sizes(x, args) * (2 / jnp.abs(args[4]))


def _unknown_sizes(x: Numbers, args: PyTree) -> Any:
    m = x.size - args[1].size
    return jnp.concatenate([jnp.abs(x[:m]), _force_sizes(x, args)])


def _newton_sweep(x: Numbers, r: Numbers, args: PyTree) -> Any:
    """One correction by Newton's method, with `K = (1 - dt/2 df/dp)^-1`:

    dp+ = K (dt/2 b - G(q)^T dl)     G(q1) M^-1 dp+ = -g(q1) / dt     b = -(f - f(p+))     df = b + df/dp dp+
    """
    system, q, _, _, dt, t, _, redundant = args
    n, m = q.size, x.size - q.size
    half = _half_momentum(x, args).reshape(-1)
    slope = jax.jacfwd(lambda h: system.force(q, h.reshape(q.shape), t).reshape(-1))(half)
    damped = Dense(jnp.eye(n, dtype=q.dtype) - dt / 2 * slope).factor()
    push, pull = damped.solve(dt / 2 * -r[m:]), x[:m]
    if m:
        jac, there = (system.linearize(*at) for at in ((q, t), (_end(x, args), t + dt)))
        rows = system.mass_form(q).right(q, there.todense())
        columns = jnp.stack([damped.solve(row) for row in jac.todense()], axis=1)
        gram = Dense(jnp.sum(rows[:, :, None] * columns[None], axis=1))
        factor = gram.factor_redundant() if redundant else gram.factor()
        change = factor.solve(jnp.sum(rows * push, axis=1) + r[:m] / dt)
        push = push - jnp.sum(columns * change, axis=1)
        pull = pull + change
        if redundant:
            pull = system.gram(q, jac, jac).factor_redundant(symmetric=True).shortest(pull)
    return jnp.concatenate([pull, x[m:] - r[m:] + jnp.sum(slope * push, axis=1)])


def _half_momentum(x: Numbers, args: PyTree) -> Any:
    """p+ for given multipliers and force."""
    system, q, p, _, dt, t, *_ = args
    m = x.size - q.size
    return p + dt / 2 * x[m:].reshape(q.shape) - _constraint_force(system, q, t, x[:m])


def _end(x: Numbers, args: PyTree) -> Any:
    """q1 for given multipliers and force."""
    system, q, _, low_q, dt, *_ = args
    return q + (dt * system.velocity(q, _half_momentum(x, args)) + low_q)


def _plain_residual(x: Numbers, args: PyTree) -> Any:
    """The rows of the constraint at q1, and the error of the force."""
    system, q, _, _, dt, t, *_ = args
    m = x.size - q.size
    off = (x[m:].reshape(q.shape) - system.force(q, _half_momentum(x, args), t)).reshape(-1)
    return jnp.concatenate([system.constraint(_end(x, args), t + dt), off]) if m else off


def _sweep_residual(x: Numbers, args: PyTree) -> Any:
    """The same, with multipliers of least norm."""
    system, q, _, _, dt, t, _, redundant = args
    r, m = _plain_residual(x, args), x.size - q.size
    return r.at[:m].add(-dt * _null_part(system, q, t, x[:m])) if redundant and m else r


class _SweepFactor(NamedTuple):
    """Solves with the Jacobian of many equations, for derivatives: to round-off, or NaN."""

    jacobian: JacobianProduct
    units: Any

    def solve(self, b: Numbers) -> Any:
        accuracy = 8 * float(jnp.finfo(b.dtype).eps)
        return self.jacobian.solve(b, self.units, accuracy=accuracy, checked=True)


def _sweep_factor(x: Numbers, args: PyTree) -> _SweepFactor:
    system, q, _, _, dt, t, _, redundant = args
    m = x.size - q.size
    _, product = jax.linearize(lambda y: _sweep_residual(y, args), x)
    inverse = lambda r: r
    if m:
        there = system.linearize(_end(x, args), t + dt)
        gram = system.gram(q, there, system.linearize(q, t))
        factor = gram.factor_redundant() if redundant else gram.factor()

        def inverse(r: Numbers):
            """As if the force did not depend on the velocity."""
            shift = dt / 2 * there(system.velocity(q, r[m:].reshape(q.shape)))
            return jnp.concatenate([factor.solve(shift - r[:m] / dt), r[m:]])

    jacobian = JacobianProduct(product, inverse)
    return _SweepFactor(jacobian, block_units(jacobian.row_sizes(jnp.abs(x)), (m, q.size)))
