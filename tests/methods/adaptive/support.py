"""Stepping by hand, with the densities visible, forward and back."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.core.status import Status
from holonomix.core.types import State


def whip():
    """Benchmark A: a light inner mass whips the pendulum round."""
    return hx.models.double_pendulum((1.0, 1.0), masses=(1e-3, 1.0), angles=(np.pi / 2, 0.0))


def without_structure(problem):
    """The same problem with its constraints as one plain function: dense solves, which compile quickly."""
    system = problem.system
    terms = system.constraint_terms
    plain = hx.System(
        system.potential_fn,
        lambda q, params: jnp.concatenate([term(q, params) for term in terms]),
        mass=system.mass,
        params=system.params,
    )
    return dataclasses.replace(problem, system=plain)


def begin(problem, method, dt):
    system = problem.system.prepare(problem.q0)
    state = State(problem.q0, problem.p0, jnp.asarray(0.0), jnp.asarray(0))
    return system, state, eqx.filter_jit(method.init)(system, state, jnp.asarray(dt))


@eqx.filter_jit
def advance(system, method, state, carry, steps):
    """`(state, carry, status, largest energy error, iterations)` after `steps` steps (a traced number)."""
    shown = method.read(system, state, carry)
    energy = system.hamiltonian(shown.q, shown.p)

    def body(_, loop):
        state, carry, status, error, iterations = loop
        new, carry, report = method.step(system, state, jnp.nan, carry)
        shown = method.read(system, new, carry)
        error = jnp.maximum(error, jnp.abs(system.hamiltonian(shown.q, shown.p) - energy))
        status = jnp.where(status == Status.OK, report.status, status)
        return State(new.q, new.p, new.t, state.n + 1), carry, status, error, iterations + report.iterations

    zero = jnp.asarray(0, jnp.int32)
    return jax.lax.fori_loop(0, steps, body, (state, carry, zero, jnp.asarray(0.0), zero))


def there_and_back(problem, method, dt, steps):
    """Distance from the start after `steps` steps forward, reversed, and as many again."""
    system, state, carry = begin(problem, method, dt)
    steps = jnp.asarray(steps)
    state, carry, status, *_ = advance(system, method, state, carry, steps)
    moved = float(jnp.max(jnp.abs(state.q - problem.q0)))
    reverse = eqx.filter_jit(method.reverse)
    state, carry = reverse(system, state, carry)
    state, carry, status_back, *_ = advance(system, method, state, carry, steps)
    state, carry = reverse(system, state, carry)
    assert int(status) == int(status_back) == Status.OK
    shown = method.read(system, state, carry)
    apart = max(float(jnp.max(jnp.abs(shown.q - problem.q0))), float(jnp.max(jnp.abs(shown.p - problem.p0))))
    return apart, moved


def orders(problem, method, dt, steps, doublings=3):
    """Observed orders of (q, p, t) at a fixed fictive time, from steps halved `doublings + 1` times."""
    ends = []
    for k in range(doublings + 2):
        system, state, carry = begin(problem, method, dt / 2**k)
        state, carry, status, *_ = advance(system, method, state, carry, jnp.asarray(steps * 2**k))
        assert int(status) == Status.OK
        shown = method.read(system, state, carry)
        ends.append(np.concatenate([np.ravel(shown.q), np.ravel(shown.p), [float(shown.t)]]))
    apart = [np.max(np.abs(a - b)) for a, b in zip(ends[:-1], ends[1:])]
    return [float(np.log2(a / b)) for a, b in zip(apart[:-1], apart[1:])], ends[-1][-1]


def densities(problem, method, start, dt, steps):
    """`rho_{n+1/2}` for the first steps of `method` from the start of another instance of it."""
    system, state, carry = begin(problem, start, dt)
    out = [float(carry.density)]
    for _ in range(steps):
        state, carry, status, *_ = advance(system, method, state, carry, jnp.asarray(1))
        assert int(status) == Status.OK
        out.append(float(carry.density))
    return np.asarray(out)
