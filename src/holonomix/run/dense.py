"""Dense output: states between two steps, interpolated by shorter steps of the method and then projected.

A row of a dense run holds the complete carry, so the steps after it can be repeated: states between rows are recomputed
from the preceding row, not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import ConvergenceError, InputError
from ..core.status import Status
from ..core.types import ArrayLike, Real, State
from ..linalg.careful import careful_solves
from ..mechanics.abstract import AbstractSystem
from ..mechanics.projection import Newton, accepts_redundant
from ..methods.base import AbstractMethod, first_failure
from ..trace.compiled import compiled
from .stepper import Consts, LoopCarry, Stepper

if TYPE_CHECKING:
    from .solution import Solution


def between(
    method: AbstractMethod, system: AbstractSystem, before: LoopCarry, after: LoopCarry, dt: Real, forward: bool = False
) -> Callable[[Any], tuple[State, Any]]:
    r"""A function of the time since `before` that returns the state within the step to `after`, and a status.

    A method with a continuous path gives its solution over the step. Others are interpolated:

        z(t) = (1 - w) Phi_{t - t_n}(z_n) + w Phi_{t - t_{n+1}}(z_{n+1}),    w = x^2 (3 - 2 x),    x = (t - t_n)/h

    where `Phi` is the method's own step (`method.path`), taken forward from the start and backward from the end of the
    step. Both branches have the order of the method and lie on the manifold. The curve is continuously differentiable,
    equals the states at both ends, and is symmetric under their exchange. For a method that conserves the energy
    exactly, and with `forward` for every method, only the first branch is used, because a mean of two states has
    another energy. Finally the position is projected onto the manifold and the momentum onto its tangent space. The
    status is that of all solves.
    """
    path = method.path(system, before.state, dt, before.memory) if method.continuous else None
    h = after.state.t - before.state.t
    ends = jax.tree.map(lambda a, b: jnp.stack([a, b]), *((c.state, c.memory) for c in (before, after)))

    def branch(end: tuple[Any, ...]):
        (state, memory), span = end
        moved = span != 0
        new_q, new_p, status = method.path(system, state, dt, memory)(jnp.where(moved, span, h))
        shown = method.read(system, state, memory)
        q, p = (jnp.where(moved, a, b) for a, b in ((new_q, shown.q), (new_p, shown.p)))
        return q, p, jnp.where(moved, status, Status.OK).astype(jnp.int32)

    def interpolated(time: Real):
        if forward or method.traits_on(system).energy_exact:
            return branch(((before.state, before.memory), time))
        qs, ps, statuses = jax.lax.map(branch, (ends, jnp.stack([time, time - h])))
        x = time / h
        w = x * x * (3 - 2 * x)
        return qs[0] + w * (qs[1] - qs[0]), ps[0] + w * (ps[1] - ps[0]), first_failure(statuses[0], statuses[1])

    def at(time: Real):
        t = before.state.t + time
        q, p, status = interpolated(time) if path is None else path(time)
        if system.has_constraints:
            solver = Newton(redundant="min-norm" if accepts_redundant(method) else None)
            solve = solver.positions(system, q, q, t, t)
            tangent = solver.momenta(system, solve.q, p, t)
            q, p, status = solve.q, tangent.p, first_failure(status, solve.status, tangent.status)
        return State(q, p, t, after.state.n), status

    return at


class Interpolant:
    """Evaluates a run between its steps, from rows that hold the run's memory (`Stepper(dense=True)`)."""

    def __init__(self, stepper: Stepper, consts: Consts, like: LoopCarry):
        self.stepper, self.consts = stepper, consts
        self.like = eqx.tree_at(lambda c: c.status, like, jnp.zeros_like(like.status))

    def __call__(self, rows: dict[str, np.ndarray], times: np.ndarray) -> tuple[dict[str, np.ndarray], Status]:
        """The columns of `Stepper.read` at the given times, which lie between the first and the last row.

        Results end before the first time at which a solve fails; the second result is its status, or OK.
        """
        size = len(jax.tree.leaves(_memory(self.like)))
        if not len(times):
            leaves = [rows[f"memory/{k}"][:1] for k in range(size)]
            out, _ = eqx.filter_eval_shape(_evaluate, self.stepper, self.like, self.consts, leaves, jnp.zeros(1))
            return {name: np.zeros((0, *x.shape[1:]), x.dtype) for name, x in out.items()}, Status.OK
        sign = np.sign(float(self.consts.dt))
        before = np.searchsorted(sign * rows["t"], sign * times, side="left") - 1
        before = np.clip(before, 0, max(len(rows["t"]) - 2, 0))
        count = -(-len(times) // 64) * 64  # a multiple of 64, so that few programs are compiled
        pad = np.concatenate([np.arange(len(times)), np.full(count - len(times), len(times) - 1)])
        leaves = [rows[f"memory/{k}"][before[pad]] for k in range(size)]
        for stepper in (self.stepper, self.stepper.with_care()):
            out, status = _evaluate(stepper, self.like, self.consts, leaves, jnp.asarray(times[pad]))
            if not np.any(status):
                break
        failed = np.flatnonzero(np.asarray(status)[: len(times)])
        good = int(failed[0]) if len(failed) else len(times)
        first = Status(int(status[good])) if len(failed) else Status.OK
        return {name: np.asarray(x)[:good] for name, x in out.items()}, first

    def after(self, carry: LoopCarry, time: float) -> tuple[dict[str, np.ndarray], Status]:
        """The row at `time`, which lies within the step after `carry`."""
        leaves = jax.tree.leaves(_memory(carry))
        rows = {f"memory/{k}": np.asarray(leaf)[None] for k, leaf in enumerate(leaves)}
        row, status = self(rows | {"t": np.asarray(carry.state.t)[None]}, np.asarray([time]))
        return row | ({name: x[: len(row["t"])] for name, x in rows.items()} if self.stepper.dense else {}), status


def disarm(carry: LoopCarry) -> LoopCarry:
    """The carry with NaN as event values: comparisons with NaN are false, so no event interrupts the next step."""
    if "events" not in carry.reduced:
        return carry
    return eqx.tree_at(lambda c: c.reduced["events"], carry, jnp.full_like(carry.reduced["events"], jnp.nan))


def _memory(carry: LoopCarry) -> Any:
    """The part of the carry from which steps can be repeated."""
    return carry.state, carry.memory


@compiled
def _evaluate(
    stepper: Stepper, like: LoopCarry, consts: Consts, leaves: list[Any], times: ArrayLike
) -> tuple[dict[str, Any], Any]:
    """Rows and statuses at `times`; `leaves` are the arrays of `_memory` in the row before each of them."""
    system, method, observe, reducers = stepper.parts(consts)
    forward = "events" in reducers and reducers["events"].bounces  # as the passages are located
    treedef = jax.tree.structure(_memory(like))

    def one(x: PyTree):
        leaves, time = x
        state, memory = jax.tree.unflatten(treedef, leaves)
        carry = eqx.tree_at(lambda c: (c.state, c.memory), like, (state, memory))

        def short(pair: PyTree):
            before, after = pair
            late = (time - after.state.t) * jnp.sign(consts.dt) > 0
            return (late | (after.state.n == before.state.n)) & (after.status == Status.OK)

        def step(pair: PyTree):
            return pair[1], stepper.step(disarm(pair[1]), consts)

        before, after = jax.lax.while_loop(short, step, (carry, carry))
        with careful_solves(stepper.careful):
            shown, status = between(method, system, before, after, consts.dt, forward)(time - before.state.t)
        row = {"t": time, "n": after.state.n, "q": shown.q, "p": shown.p}
        row |= {f"step/{name}": value for name, value in after.multipliers.items()}
        row |= {f"obs/{name}": jnp.asarray(fn(shown.q, shown.p, time, system)) for name, fn in observe.items()}
        return row, first_failure(after.status, status)

    return jax.lax.map(one, (leaves, times))


def evaluate(solution: Solution, t: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """`(q, p)` of a dense solution at one time or an array of times.

    Raises `InputError` for a time outside of the run, and `ConvergenceError` if a step between rows fails.
    """
    if solution.interpolant is None:
        raise InputError("at(t) needs a dense run, whose rows hold the state of the method: simulate(..., dense=True)")
    times = np.asarray(t, float)
    rows = solution.rows
    low, high = sorted((float(rows["t"][0]), float(rows["t"][-1])))
    outside = ~((times >= low) & (times <= high))
    if np.any(outside):
        raise InputError(f"t = {times[outside].reshape(-1)[0]:g} is outside of the run, {low:g} .. {high:g}")
    out, status = solution.interpolant(rows, times.reshape(-1))
    if status.failed:
        at = times.reshape(-1)[len(out["t"])]
        text = f"the state at t = {at:g} cannot be computed: {status.message}; {status.advice}"
        raise ConvergenceError(text, status=status, time=at)
    q, p = (out[name].reshape((*times.shape, *out[name].shape[1:])) for name in ("q", "p"))
    return q, p
