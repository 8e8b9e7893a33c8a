"""Measurements that several tests share."""

import equinox as eqx
import jax
import jax.numpy as jnp

from holonomix.core.types import State


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


def away(problem, position=0.05, momentum=1.0, seed=0):
    """A start off the special one of a problem."""
    a, b = jax.random.split(jax.random.key(seed))
    q = problem.q0 + position * jax.random.normal(a, problem.q0.shape)
    return q, problem.p0 + momentum * jax.random.normal(b, problem.q0.shape)
