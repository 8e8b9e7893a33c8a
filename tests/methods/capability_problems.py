"""Small nonlinear systems, one for each thing that a method may treat, and the order of a method on them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.mechanics import Capability

T1 = 1.0


def potential(q):
    return 0.5 * q[0] ** 2 + 0.8 * q[1] ** 2 + 0.3 * q[0] * q[1] ** 2 + 0.2 * q[-1] ** 3


def moving_potential(q, t):
    return potential(q) + 0.5 * jnp.sin(2 * t) * q[0] + 0.2 * jnp.cos(t) * q[1] ** 2


def mass(q):
    """Not diagonal, and different everywhere."""
    extra = 0.3 * jnp.outer(q, q) + 0.2 * jnp.diag(jnp.sin(q))
    return jnp.diag(jnp.asarray([2.0, 1.5, 1.2])[: q.size]) + extra


def push(q, v, t):
    return -0.3 * v - 0.1 * v * jnp.sum(v**2) + 0.4 * jnp.cos(3 * t)


def vector_potential(q):
    return 0.7 * jnp.stack([-q[1] * (1 + 0.2 * q[0] ** 2), q[0], 0.3 * q[0] * q[1]])[: q.size]


def surface(q):
    return jnp.stack([q[0] ** 2 + q[1] ** 2 + 1.5 * q[2] ** 2 + 0.3 * q[0] * q[1] * q[2] - 1])


def moving_surface(q, t):
    return surface(q) - 0.1 * jnp.sin(2 * t)


def twice(constraint):
    """The same rows once more: they depend on each other."""
    return lambda *args: jnp.concatenate([constraint(*args), 2 * constraint(*args)])


PARTS = {
    Capability.MASS: {"mass": mass},
    Capability.FORCE: {"force": push},
    Capability.TIME: {"potential": moving_potential},
    Capability.MAGNETIC: {"vector_potential": vector_potential},
    Capability.MOVING: {"constraint": moving_surface},
    Capability.REDUNDANT: {},
}
CONSTRAINED_ONLY = (Capability.MOVING, Capability.REDUNDANT)

Capabilities = frozenset[Capability]


@functools.cache
def problem(kind: str, capabilities: Capabilities):
    """`(system, q, p)` at t = 0, of a system that has all of the capabilities together."""
    parts = {"potential": potential, "constraint": surface, "mass": 1.3}
    for capability in capabilities:
        parts |= PARTS[capability]
    if Capability.REDUNDANT in capabilities:
        parts["constraint"] = twice(parts["constraint"])
    if Capability.MOVING in capabilities:
        parts["constraint"] = hx.Rheonomic(parts["constraint"])
    q, v = jnp.asarray([0.5, -0.4, 0.7]), jnp.asarray([0.6, 0.5, -0.3])
    if kind == "free":
        parts["constraint"], q, v = None, q[:2], v[:2]
    system = hx.System(**parts)
    p = system.momentum(q, v)
    if kind == "constrained":
        redundant = "min-norm" if Capability.REDUNDANT in capabilities else None
        q, p = hx.project(system, q, p, redundant=redundant)
    if kind == "stiff":
        rigid = system
        q, p = hx.project(rigid, q, p)
        system = rigid.penalized(8.0)
    return system.prepare(q), q, p


def walk(system, method, q, p, key=None):
    """`(dt, n) -> (q, p)` at `n dt`, compiled once for all numbers of steps."""

    def run(dt, n):
        state = hx.State(q, p, jnp.asarray(0.0), 0)

        def body(k, loop):
            state, carry, failed = loop
            state = hx.State(state.q, state.p, k * dt, 0)
            state, carry, report = method.step(system, state, dt, carry, *(() if key is None else (key,)))
            state = hx.State(state.q, state.p, jnp.asarray(state.t, q.dtype), 0)
            return state, carry, failed | (report.status != 0)

        start = (state, method.init(system, state, dt), jnp.asarray(False))
        state, carry, failed = jax.lax.fori_loop(0, n, body, start)
        shown = method.read(system, hx.State(state.q, state.p, n * dt, 0), carry)
        return shown.q, shown.p, failed

    return jax.jit(run)


@functools.cache
def reference(kind: str, capabilities: Capabilities):
    """The end at T1 to about 1e-12, by RK4 on the index-reduced equations."""
    system, q, p = problem(kind, capabilities - {Capability.REDUNDANT})
    run = walk(system, hx.RK4(), q, p)
    return tuple(np.asarray(x) for x in run(T1 / 4000, 4000)[:2])


def measured_order(method, kind: str, capabilities: Capabilities):
    """Orders in q and p from the errors at two step sizes, and the last state.

    The steps are short enough for the leading term of the error to rule, which the Adams methods with their long
    histories need most, and long enough for errors above round-off.
    """
    system, q, p = problem(kind, capabilities)
    if Capability.REDUNDANT in capabilities:
        system = system.accepting_redundant()
    run = walk(system, method, q, p)
    first = {1: 256, 2: 48, 3: 40, 4: 80, 5: 80, 6: 32}.get(method.traits[kind].order_of("q"), 6)
    errors = []
    for n in (first, 2 * first):
        *end, failed = run(T1 / n, n)
        assert not bool(failed), f"{method.name} fails with {n} steps"
        errors.append(end_errors(end, kind, capabilities))
    return np.log2(np.asarray(errors[0]) / np.asarray(errors[1])), np.asarray(errors), (system, *end)


def end_errors(end, kind: str, capabilities: Capabilities) -> list[float]:
    """The largest errors of q and of p at T1."""
    return [np.max(np.abs(np.asarray(a) - b)) for a, b in zip(end, reference(kind, capabilities), strict=True)]
