"""The point of the manifold that is nearest to a given one, in the mass metric."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...core.types import Factor, Numbers, Real
from ...linalg import Dense, implicit_root, iterate
from ...linalg.redundant import PseudoInverse, dependent
from ...linalg.scales import relative, stall_rule
from ..abstract import AbstractSystem
from ..constraints import AbstractJacobian

__all__ = ["constraint_sizes", "nearest_point"]

NEWTON_SIZE = 64  # unknowns up to which Newton's method may form the whole matrix

# Conjugate gradients end at this fraction of the first residual, or after this many iterations.
INNER_TOLERANCE, INNER_ITERATIONS = 1e-4, 100

# An iterate above round-off is accepted if none of this many further iterations reduced the residual.
PATIENCE = 4


def constraint_sizes(system: AbstractSystem, q: Numbers, t: Real) -> Any:
    """The natural scale of each row of g at q: `sum_j |G_ij| |q_j|` (`linalg.scales`)."""
    return system.row_sizes(q, system.linearize(q, t), q)


def nearest_point(
    system: AbstractSystem, q: Numbers, t: Real, max_iterations: int, redundant: bool, newton_size: int = NEWTON_SIZE
) -> tuple[Any, Any]:
    """The nearest point of the manifold, and whether the iteration converged.

    The nearest point x and multipliers l solve `M (x - q) + G(x)^T l = 0`, `g(x) = 0`. Gauss-Newton steps neglect the
    curvature `K = D_x (G^T l)`. They fail if K is as large as M: far from a curved manifold, and near it for long
    chains, in which l sums the corrections of all links. Newton's method includes K; the better of both steps is taken.
    Up to `newton_size` unknowns it forms the whole matrix.
    """
    m = system.constraint_count(q)

    def stationarity(x: Numbers, args: PyTree):
        system, q, t = args
        here, multipliers = x[: q.size].reshape(q.shape), x[q.size :]
        pull = system.inverse_mass(q, system.linearize(here, t).transpose(multipliers))
        return jnp.concatenate([(here - q + pull).reshape(-1), system.constraint(here, t)])

    def solve(args: PyTree):
        system, q, t = args
        eps = jnp.finfo(q.dtype).eps
        length = lambda x: jnp.sum(x * system.mass_form(q).momentum(q, x))  # squared, in the mass metric

        def tried(x: Numbers):
            """A candidate with its Jacobian, its residual and the norm of the residual."""
            here, multipliers = x[: q.size].reshape(q.shape), x[q.size :]
            jac = system.linearize(here, t)
            off = here - q + system.inverse_mass(q, jac.transpose(multipliers))
            g = system.constraint(here, t)
            position = jnp.sqrt(relative(length(off), length(here) + length(q)))
            norm = jnp.maximum(position, relative(g, system.row_sizes(q, jac, here)))
            return x, jac, jnp.concatenate([off.reshape(-1), g]), norm

        def body(point: PyTree, r: Numbers):
            x, jac = point[:2]
            here, old = x[: q.size].reshape(q.shape), x[q.size :]
            gram = system.gram(q, jac, jac)
            factor = (gram.factor_redundant if redundant else gram.factor)(symmetric=True)
            multipliers = factor.solve(r[q.size :] + jac(q - here))
            new = q - system.inverse_mass(q, jac.transpose(multipliers))
            near = jnp.concatenate([new.reshape(-1), multipliers])
            if not redundant and q.size + m <= newton_size:
                full = x - _newton_matrix(system, q, t, here, old, jac).factor().solve(r)
            else:
                full = _with_curvature(system, q, t, here, old, jac, factor, new - here, multipliers)
            # one evaluation in the program for both, because the user's functions may be long
            both = jax.lax.map(tried, jnp.stack([near, full]))
            better = (both[-1][1] < both[-1][0]).astype(int)
            return jax.tree.map(lambda y: y[better], both)

        start = tried(jnp.concatenate([q.reshape(-1), jnp.zeros(m, q.dtype)]))
        options = {"tol": 2 * eps, "max_iterations": max_iterations, "patience": PATIENCE}
        done = iterate(body, lambda point: point[2:], start, **options, **stall_rule(q.dtype, quadratic=False))
        return done.x[0], done.converged

    def pseudo(x: Numbers, args: PyTree):
        jacobian = jax.jacfwd(lambda y: stationarity(y, args))(x)
        inverse = jnp.linalg.pinv(jacobian, rtol=dependent(q.dtype))
        return PseudoInverse(inverse, jnp.zeros_like(inverse), jnp.ones(()))

    x, converged = implicit_root(solve, stationarity, (system, q, t), pseudo if redundant else None)
    return x[: q.size].reshape(q.shape), converged


def _newton_matrix(
    system: AbstractSystem, q: Numbers, t: Real, here: Numbers, multipliers: Numbers, jac: AbstractJacobian
) -> Dense:
    """The derivative of stationarity, `[[1 + M^-1 K, M^-1 G^T], [G, 0]]`."""
    pull = jax.grad(lambda y: jnp.sum(multipliers * system.constraint(y, t)))
    bend = jax.jacfwd(pull)(here).reshape(q.size, q.size)
    rows, mass = jac.todense(), system.mass_form(q)
    upper = [jnp.eye(q.size, dtype=q.dtype) + mass.right(q, bend).T, mass.right(q, rows).T]
    return Dense(jnp.block([upper, [rows, jnp.zeros((len(rows),) * 2, q.dtype)]]))


def _with_curvature(
    system: AbstractSystem,
    q: Numbers,
    t: Real,
    here: Numbers,
    old: Numbers,
    jac: AbstractJacobian,
    factor: Factor,
    step: Numbers,
    multipliers: Numbers,
) -> Any:
    """Newton's step from the step of Gauss-Newton, by conjugate gradients in the tangent space.

    The steps d with `G d = -g` and the multipliers l solve `(M + K) d + G^T l = -M (x - q)`. Projecting with the Gram
    matrix of M is the preconditioner (Gould, Hribar & Nocedal 2001), so that the number of iterations depends on K
    relative to M and not on the number of rows. The iteration ends early if M + K is not positive definite.
    """
    bend = lambda v: jax.jvp(lambda y: system.linearize(y, t).transpose(old), (here,), (v,))[1]
    mass = system.mass_form(q)

    def projected(force: Numbers):
        """The force without its normal part, the acceleration that it gives, and the multipliers removed."""
        y = factor.solve(jac(system.inverse_mass(q, force)))
        tangent = force - jac.transpose(y)
        return tangent, system.inverse_mass(q, tangent), y

    def residual(loop: PyTree):
        return (), jnp.sqrt(jnp.abs(loop[4]))

    def body(loop: PyTree, _: PyTree):
        d, lam, force, way, size = loop
        image = mass.momentum(q, way) + bend(way)
        curve = jnp.sum(way * image)
        good = curve > 0
        far = jnp.where(good, size / jnp.where(good, curve, 1.0), 0.0)
        d = d + far * way
        force, fall, y = projected(force + far * image)
        new = jnp.where(good, jnp.sum(force * fall), 0.0)
        way = jnp.where(good, new / jnp.where(size > 0, size, 1.0), 0.0) * way - fall
        return d, lam - y, force, way, new

    force, fall, y = projected(bend(step))
    size = jnp.sum(force * fall)
    start = (step, multipliers - y, force, -fall, size)
    tol = INNER_TOLERANCE * jnp.sqrt(jnp.abs(size))
    done = iterate(body, residual, start, tol=tol, max_iterations=INNER_ITERATIONS)
    d, lam = done.x[:2]
    return jnp.concatenate([(here + d).reshape(-1), lam])
