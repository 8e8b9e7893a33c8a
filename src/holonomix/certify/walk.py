"""Stepping a method through its public protocol, compiled once for any step size and number of steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..compiled import compiled
from ..status import Status
from ..types import State

__all__ = ["Walk", "begin", "one_step", "turn", "walk"]

ROWS = 512


class Walk(NamedTuple):
    """Where a walk ended, the rows it saved (the start first), and what its steps reported."""

    state: State
    carry: Any
    q: Any
    p: Any
    t: Any
    status: Status
    steps: int
    iterations: float  # mean per step
    most_iterations: int
    multipliers: dict[str, Any]  # of the last step


def begin(system: Any, method: Any, q: Any, p: Any, t: Any, dt: Any) -> tuple[State, Any]:
    """The first state and carry."""
    state = State(q, p, jnp.asarray(t, q.dtype), jnp.asarray(0, jnp.int32))
    return state, _init(system, method, state, jnp.asarray(dt, q.dtype))


@compiled
def _init(system: Any, method: Any, state: State, dt: Any) -> Any:
    return method.init(system, state, dt)


@compiled
def turn(system: Any, method: Any, state: State, carry: Any) -> tuple[State, Any]:
    """The state and carry that walk back."""
    back, carry = method.reverse(system, state, carry)
    return State(back.q, back.p, jnp.asarray(back.t, back.q.dtype), state.n), carry


def one_step(
    system: Any, method: Any, q: Any, p: Any, t: Any, dt: Any, *, shown: bool = True, carry: Any = None
) -> tuple[Any, Any]:
    """One step as a map of (q, p): of what the method shows, or of the variables its step works with.

    The step begins afresh at (q, p) unless a carry is given, which is then held fixed.
    """
    state = State(q, p, t, jnp.asarray(0, jnp.int32))
    carry = method.init(system, state, dt) if carry is None else carry
    state, carry, _ = method.step(system, state, dt, carry)
    if shown:
        state = method.read(system, state, carry)
    return state.q, state.p


def walk(
    system: Any, method: Any, state: State, carry: Any, dt: float, steps: int, every: int = 0, key: Any = None
) -> Walk:
    """Take `steps` steps and save every `every`-th; with 0, only the start and the end."""
    every = every or max(steps, 1)
    if steps // every > ROWS:
        raise ValueError(f"{steps // every} rows are more than the {ROWS} that a walk keeps")
    state = State(state.q, state.p, state.t, jnp.zeros_like(state.n))
    key = jax.random.key(0) if key is None and method.stochastic else key
    state, carry, rows, status, counts, multipliers = _loop(
        system, method, state, carry, jnp.asarray(dt, state.q.dtype), jnp.asarray(steps), jnp.asarray(every), key
    )
    taken = int(state.n)
    kept = taken // every + 1
    q, p, t = (np.asarray(x)[:kept] for x in rows)
    total, most = (int(x) for x in counts)
    return Walk(state, carry, q, p, t, Status(int(status)), taken, total / max(taken, 1), most, multipliers)


@compiled
def _loop(system: Any, method: Any, state: State, carry: Any, dt: Any, steps: Any, every: Any, key: Any) -> Any:
    t0 = state.t

    def save(rows, state, carry):
        shown = method.read(system, state, carry)
        k = state.n // every
        return tuple(row.at[k].set(x) for row, x in zip(rows, (shown.q, shown.p, shown.t)))

    def step(loop):
        state, carry, rows, status, (total, most), _ = loop
        draw = None if key is None else jax.random.fold_in(key, state.n)
        new, carry1, report = method.step(system, state, dt, carry, draw)
        n = state.n + 1
        new = State(new.q, new.p, new.t if method.adaptive else t0 + n * dt, n)
        finite = jnp.all(jnp.isfinite(new.q)) & jnp.all(jnp.isfinite(new.p)) & jnp.isfinite(new.t)
        status = jnp.where(finite, report.status, Status.NONFINITE).astype(jnp.int32)
        good = status == Status.OK
        new, carry1 = jax.tree.map(lambda a, b: jnp.where(good, a, b), (new, carry1), (state, carry))
        rows = jax.lax.cond(good & (n % every == 0), save, lambda rows, *_: rows, rows, new, carry1)
        return (
            new,
            carry1,
            rows,
            status,
            (total + report.iterations, jnp.maximum(most, report.iterations)),
            report.multipliers,
        )

    shape = jax.eval_shape(lambda s, c: method.step(system, s, dt, c, key)[2], state, carry)
    blank = tuple(jnp.zeros((ROWS + 1, *x.shape), x.dtype) for x in (state.q, state.p, state.t))
    counts = tuple(jnp.zeros(x.shape, x.dtype) for x in (shape.iterations, shape.iterations))
    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape.multipliers)
    start = (state, carry, save(blank, state, carry), jnp.asarray(Status.OK, jnp.int32), counts, none)
    return jax.lax.while_loop(lambda loop: (loop[0].n < steps) & (loop[3] == Status.OK), step, start)
