"""Measurements that several tests share."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from holonomix.types import State


@eqx.filter_jit
def advance(system, method, q, p, h, steps=1):
    """`steps` steps from (q, p), as a differentiable map."""
    state = State(q, p, jnp.zeros(()), 0)
    carry = method.init(system, state, h)

    def body(_, loop):
        return method.step(system, loop[0], h, loop[1])[:2]

    if steps == 1:
        state, _ = body(0, (state, carry))
    else:
        state, _ = jax.lax.fori_loop(0, steps, body, (state, carry))
    return state.q, state.p


def jacobian(system, method, q, p, h):
    n = q.size

    def step(z):
        a, b = advance(system, method, z[:n].reshape(q.shape), z[n:].reshape(q.shape), h)
        return jnp.concatenate([a.reshape(-1), b.reshape(-1)])

    return np.asarray(jax.jit(jax.jacfwd(step))(jnp.concatenate([q.reshape(-1), p.reshape(-1)])))


def symplectic_defect(system, method, q, p, h):
    """`max |J^T W J - W|` of one step in the ambient space."""
    j, n = jacobian(system, method, q, p, h), q.size
    w = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    return float(np.max(np.abs(j.T @ w @ j - w)))


def away(problem, position=0.05, momentum=1.0, seed=0):
    """A start off the special one of a problem."""
    a, b = jax.random.split(jax.random.key(seed))
    q = problem.q0 + position * jax.random.normal(a, problem.q0.shape)
    return q, problem.p0 + momentum * jax.random.normal(b, problem.q0.shape)


def slope(steps, errors):
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])
