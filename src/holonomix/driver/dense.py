"""States between the steps: a method's own polynomial where it has one, two-point Hermite interpolation elsewhere.

A row of a dense run holds the complete memory of the run. To evaluate at a time, the step that covers it is taken again
from the row before, and its polynomial is read; nothing but rows has to be kept.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError, MethodError
from ..methods.equations import vector_field
from ..status import Status
from ..types import State
from .loop import Consts, LoopCarry, Stepper

__all__ = ["Interpolant", "check_output", "check_times", "disarmed", "evaluate", "hermite", "interpolate"]

MOST_DERIVATIVES = 3


def hermite(system: Any, before: State, after: State, theta: Any, derivatives: int) -> State:
    r"""The polynomial of degree 2 d + 1 that has q and its first d derivatives at both ends of a step.

        u(x) = (1 - x)^{d+1} sum_{k<=d} h^k q_0^(k)/k! x^k sum_{i<=d-k} C(d+i, i) x^i  +  the same from the end

    Derivatives come from the equations of motion, the momentum is `M u'`. Symmetric in its two ends; u errs by
    O(h^{2d+2}), p by O(h^{2d+1}), beside the errors of the ends.
    """
    h, d = after.t - before.t, derivatives
    start, end = (_taylor(system, state, d) for state in (before, after))

    def half(x, terms, h):
        total = 0.0
        for k in range(d + 1):
            weight = sum(math.comb(d + i, i) * x**i for i in range(d - k + 1)) * x**k / math.factorial(k)
            total = total + weight * h**k * terms[k]
        return (1 - x) ** (d + 1) * total

    def u(theta):
        return half(theta, start, h) + half(1 - theta, end, -h)

    q, slope = jax.jvp(u, (theta,), (jnp.ones_like(theta),))
    return State(q, system.momentum(q, slope / h), before.t + theta * h, before.n)


def _taylor(system: Any, state: State, d: int) -> list[Any]:
    """q and its first d derivatives along the motion."""

    def along(f):
        def rate(q, p, t):
            dq, dp = vector_field(system, (q, p), t)
            return jax.jvp(f, (q, p, t), (dq, dp, jnp.ones_like(t)))[1]

        return rate

    terms = [lambda q, p, t: q, lambda q, p, t: system.velocity(q, p)]
    while len(terms) <= d:
        terms.append(along(terms[-1]))
    t = jnp.asarray(state.t, state.q.dtype)
    return [f(state.q, state.p, t) for f in terms[: d + 1]]


def interpolate(
    method: Any, system: Any, before: State, after: State, dt: Any, carry: Any, carry_after: Any, theta: Any
) -> State:
    """The state at the fraction `theta` of a step from `before` to `after`."""
    if hasattr(method, "interpolate"):
        return method.interpolate(system, before, after, dt, carry, carry_after, theta)
    shown = method.read(system, before, carry), method.read(system, after, carry_after)
    order = method.traits_on(system).order_of("q")
    return hermite(system, *shown, theta, max(1, min(MOST_DERIVATIVES, -(-order // 2))))


def check_times(save_at: Any, dt: float, t0: float) -> np.ndarray:
    """The times asked for, which must run the way of the simulation."""
    try:
        times = np.atleast_1d(np.asarray(save_at, float))
    except (TypeError, ValueError) as error:
        raise InputError(f"save_at must be a list of times, not {save_at!r}") from error
    way = np.sign(dt)
    if times.ndim != 1 or not len(times) or not np.all(np.isfinite(times)) or np.any(way * np.diff(times) <= 0):
        order = "increasing" if way > 0 else "decreasing"
        raise InputError(f"save_at must be a strictly {order} list of finite times")
    if way * (times[0] - t0) < 0:
        raise InputError(f"save_at begins at {times[0]:g}, before the start at t0 = {t0:g}")
    return times


def slack(t: float, dt: float) -> float:
    """How far beyond t a time may lie and still mean t: a rounding of `t0 + n dt`, or a trifle of a step."""
    return 1e-9 * abs(dt) + 8 * float(np.spacing(abs(t)))


def check_output(method: Any, wanted: Any, dense: bool, store: Any, t_last: float, dt: float) -> None:
    """What was asked to be shown must be there to show."""
    if wanted is None and not dense:
        return
    if method.stochastic:
        raise MethodError(f"{method.name} draws random numbers in every step: it has no state between two steps")
    if dense and (store is not None or wanted is not None):
        other = "a store" if store is not None else "save_at"
        raise InputError(f"dense=True keeps the memory of every row, which {other} does not hold; use one of them")
    if wanted is not None and (wanted[-1] - t_last) * np.sign(dt) > slack(t_last, dt):
        raise InputError(f"save_at ends at {wanted[-1]:g}, after the end of the run at {t_last:g}")


class Interpolant:
    """Evaluates a run between its steps, from rows that hold the run's memory (`Stepper(dense=True)`)."""

    def __init__(self, stepper: Stepper, consts: Consts, like: LoopCarry):
        self.stepper, self.consts = stepper, consts
        self.like = eqx.tree_at(lambda c: c.status, like, jnp.zeros_like(like.status))

    def __call__(self, rows: dict[str, np.ndarray], times: np.ndarray) -> dict[str, np.ndarray]:
        """What `Stepper.read` shows, at times that lie between the first and the last row."""
        size = len(jax.tree.leaves(_memory(self.like)))
        if not len(times):
            leaves = [rows[f"memory/{k}"][:1] for k in range(size)]
            out = eqx.filter_eval_shape(_evaluate, self.stepper, self.like, self.consts, leaves, jnp.zeros(1))
            return {name: np.zeros((0, *x.shape[1:]), x.dtype) for name, x in out.items()}
        way = np.sign(float(self.consts.dt))
        before = np.searchsorted(way * rows["t"], way * times, side="left") - 1
        before = np.clip(before, 0, max(len(rows["t"]) - 2, 0))
        count = -(-len(times) // 64) * 64  # a few sizes only, so that few programs are compiled
        pad = np.concatenate([np.arange(len(times)), np.full(count - len(times), len(times) - 1)])
        leaves = [rows[f"memory/{k}"][before[pad]] for k in range(size)]
        out = _evaluate(self.stepper, self.like, self.consts, leaves, jnp.asarray(times[pad]))
        return {name: np.asarray(x)[: len(times)] for name, x in out.items()}

    def after(self, carry: LoopCarry, time: float) -> dict[str, np.ndarray]:
        """One row, at a time within the step that follows `carry`."""
        leaves = jax.tree.leaves(_memory(carry))
        rows = {f"memory/{k}": np.asarray(leaf)[None] for k, leaf in enumerate(leaves)}
        row = self(rows | {"t": np.asarray(carry.state.t)[None]}, np.asarray([time]))
        return row | (rows if self.stepper.dense else {})


def disarmed(carry: LoopCarry) -> LoopCarry:
    """The carry with its event values forgotten, so that the next step is taken whatever it passes."""
    if "events" not in carry.reduced:
        return carry
    return eqx.tree_at(lambda c: c.reduced["events"], carry, jnp.full_like(carry.reduced["events"], jnp.nan))


def _memory(carry: LoopCarry) -> Any:
    return carry.state, carry.memory


@eqx.filter_jit
def _evaluate(stepper: Stepper, like: LoopCarry, consts: Consts, leaves: list[Any], times: Any) -> dict[str, Any]:
    system, method, observe, _ = stepper.parts(consts)
    treedef = jax.tree.structure(_memory(like))

    def one(x):
        leaves, time = x
        state, memory = jax.tree.unflatten(treedef, leaves)
        carry = eqx.tree_at(lambda c: (c.state, c.memory), like, (state, memory))

        def short(pair):
            _, after = pair
            return ((time - after.state.t) * jnp.sign(consts.dt) > 0) & (after.status == Status.OK)

        def step(carry):
            return carry, stepper.step(disarmed(carry), consts)

        before, after = jax.lax.while_loop(short, lambda pair: step(pair[1]), step(carry))
        theta = (time - before.state.t) / (after.state.t - before.state.t)
        shown = interpolate(method, system, before.state, after.state, consts.dt, before.memory, after.memory, theta)
        good = after.status == Status.OK
        q, p = (jnp.where(good, x, jnp.nan) for x in (shown.q, shown.p))
        row = {"t": time, "n": after.state.n, "q": q, "p": p}
        row |= {f"step/{name}": value for name, value in after.multipliers.items()}
        return row | {f"obs/{name}": jnp.asarray(fn(q, p, time)) for name, fn in observe.items()}

    return jax.lax.map(one, (leaves, times))


def evaluate(solution: Any, t: Any) -> tuple[np.ndarray, np.ndarray]:
    """`(q, p)` of a dense solution at one time or an array of times."""
    if solution.interpolant is None:
        raise InputError("at(t) needs the run's memory: call simulate(..., dense=True)")
    times = np.asarray(t, float)
    rows = solution.rows
    low, high = sorted((float(rows["t"][0]), float(rows["t"][-1])))
    outside = ~((times >= low) & (times <= high))
    if np.any(outside):
        raise InputError(f"t = {times[outside].reshape(-1)[0]:g} is outside of the run, {low:g} .. {high:g}")
    out = solution.interpolant(rows, times.reshape(-1))
    q, p = (out[name].reshape((*times.shape, *out[name].shape[1:])) for name in ("q", "p"))
    return q, p
