"""Elastic impacts: a step to the wall, the reflected momentum, and the rest of the step.

The step of a trajectory that meets a wall is taken here, by itself. The other steps do not know of walls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..core.status import Status
from ..core.types import ArrayLike, Real, State
from ..trace.compiled import compiled
from .dense import disarm
from .events import Found, Watch
from .stepper import REPEATED, Consts, LoopCarry, Stepper, take_step

MAX_IMPACTS = 32  # in one step; its rest is then taken without walls


def step_through(
    watch: Watch,
    stepper: Stepper,
    carry: LoopCarry,
    consts: Consts,
    found: Found,
    note: Callable[[LoopCarry, Consts], Found | None],
) -> tuple[LoopCarry, int]:
    """The carry after the next step, which meets a wall at `found`, and the number of solves that were repeated.

    `note(carry, consts)` records the passages of the rest of the step and returns the first that ends it, if any. At a
    terminal event the carry is that of the event, with its status.
    """
    t_next, rest, count, retries = _end_of_step(carry, consts), consts, 0, 0
    resolution = 4 * np.finfo(t_next.dtype).eps * max(abs(float(t_next)), abs(float(consts.dt)))
    while True:
        count += 1
        if found.status.failed:
            return _with_status(carry, found.status), retries
        at, free = (np.int32(found.event), np.asarray(found.t, t_next.dtype), found.q, found.p), count > MAX_IMPACTS
        carry, rest = rebound(watch, stepper, carry, rest, at, t_next, np.bool_(free))
        if watch.events[found.event].terminal:
            return _with_status(carry, Status.TERMINATED), retries
        if abs(float(rest.dt)) <= resolution:
            return rejoin(stepper, arrive(stepper, carry, rest, t_next), consts, t_next), retries
        after, repeated = _step_once(stepper, carry, rest)
        retries += repeated
        if int(after.status) != Status.TERMINATED:
            break
        following = note(carry, rest)
        if following is None:  # its events neither end the run nor are walls
            after, repeated = _step_once(stepper, disarm(carry), rest)
            retries += repeated
            break
        found = following
    return after if Status(int(after.status)).failed else rejoin(stepper, after, consts, t_next), retries


def _step_once(stepper: Stepper, carry: LoopCarry, consts: Consts) -> tuple[LoopCarry, int]:
    """One step of one trajectory, repeated with care if it does not converge."""
    after = take_step(stepper, carry, consts)
    if int(after.status) in REPEATED:
        return take_step(stepper.with_care(), carry, consts), 1
    return after, 0


def _end_of_step(carry: LoopCarry, consts: Consts) -> Any:
    return np.asarray(consts.t0 + (carry.state.n + 1) * consts.dt)


def _with_status(carry: LoopCarry, status: Status) -> LoopCarry:
    return eqx.tree_at(lambda c: c.status, carry, np.asarray(status, np.int32))


@compiled
def rebound(
    watch: Watch, stepper: Stepper, carry: LoopCarry, consts: Consts, at: tuple[Any, ...], t_next: Real, free: ArrayLike
) -> tuple[LoopCarry, Consts]:
    """The carry after the passage `at`, `(event, t, q, p)`, and the constants of the rest of the step to `t_next`.

    If the event is a wall that the motion enters, the momentum is reflected. With `free` no wall acts in the rest.
    """
    system, method = stepper.parts(consts)[:2]
    k, t, q, p = at
    functions = [lambda q, t, fn=e.fn: jnp.asarray(fn(q, p, t), q.dtype).reshape(()) for e in watch.events]
    normal, drift = jax.grad(lambda q, t: jax.lax.switch(k, functions, q, t), argnums=(0, 1))(q, t)
    push = system.tangent_force(q, normal, t)
    rate, reach = jnp.sum(normal * system.velocity(q, p)) + drift, jnp.sum(normal * system.inverse_mass(q, push))
    walls = jnp.array([e.bounce for e in watch.events])
    way = jnp.array([e.direction for e in watch.events])[k].astype(q.dtype)
    hits = walls[k] & (way * rate * jnp.sign(consts.dt) > 0) & (reach > 0)
    p = jnp.where(hits, p - 2 * rate / jnp.where(hits, reach, 1.0) * push, p)
    state, rest = State(q, p, t, carry.state.n), t_next - t
    # rounding must not put the state after an impact behind the wall
    values = watch.init(q, p, t)
    values = jnp.where(hits, values.at[k].set(-way * jnp.finfo(q.dtype).tiny), values)
    # the motion turned away from a wall, and within this step it would turn back: the wall acts from the next step on
    off = walls & (free | (~hits & (jnp.arange(len(walls)) == k)))
    values = jnp.where(off, jnp.nan, values)
    carry = eqx.tree_at(
        lambda c: (c.state, c.memory, c.status, c.reduced["events"]),
        carry,
        (state, method.init(system, state, rest), jnp.zeros_like(carry.status), values),
    )
    return carry, dataclasses.replace(consts, dt=rest, t0=t_next - (state.n + 1) * rest)


@compiled
def rejoin(stepper: Stepper, carry: LoopCarry, consts: Consts, t: Real) -> LoopCarry:
    """The carry after the rest of a step, at the time t of its end, ready for whole steps."""
    system, method = stepper.parts(consts)[:2]
    shown = method.read(system, carry.state, carry.memory)
    state = State(shown.q, shown.p, t, carry.state.n)
    return eqx.tree_at(lambda c: (c.state, c.memory), carry, (state, method.init(system, state, consts.dt)))


@compiled
def arrive(stepper: Stepper, carry: LoopCarry, consts: Consts, t: Real) -> LoopCarry:
    """The carry after a step that an impact ends: there is no rest to take."""
    _, _, _, reducers = stepper.parts(consts)
    state = State(carry.state.q, carry.state.p, t, carry.state.n + 1)
    reduced = {name: r.update(carry.reduced[name], state.q, state.p, t) for name, r in reducers.items()}
    reduced["events"] = carry.reduced["events"]
    return eqx.tree_at(lambda c: (c.state, c.reduced), carry, (state, reduced))
