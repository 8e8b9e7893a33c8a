"""Reverse mode of `integrate`: states are stored, recomputed from checkpoints, or recomputed backward from the end.

`Reversible` relies on symmetry: a step with -dt undoes the step with dt (Hairer, Lubich & Wanner 2006, II.3). The
backward run starts at the final state and stores nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import one_of, whole_number
from ..core.errors import InputError, MethodError
from ..core.status import Status
from ..core.types import Numbers, State
from ..mechanics.abstract import AbstractSystem
from ..methods.base import AbstractMethod
from .backends import BACKENDS, TAKES_ALL, callback
from .stepper import Consts, LoopCarry, Stepper


@dataclasses.dataclass(frozen=True)
class Reversible:
    """Reverse mode of `integrate` whose memory does not grow with the number of steps.

    Each state is recomputed from the next one by a step with -dt; the gradient equals that of plain reverse mode up to
    the rounding errors of these steps. The method must be symmetric and have no memory beyond (q, p), and its solver
    should iterate to round-off, as it does by default. In a chaotic system rounding errors grow as fast backward as
    forward, so the gradient is accurate for about as long as the trajectory is.

    With `backend="auto"`, `"native"` or `"cuda"`, compiled kernels run both directions as callbacks of JAX; a batch of
    `jax.vmap` is one call. Kernels are many times faster and support `jit`, `vmap` and one `grad`. Higher derivatives
    and forward mode need `backend="array"`.
    """

    backend: str = TAKES_ALL

    def __post_init__(self) -> None:
        one_of("backend", self.backend, ("auto", *BACKENDS))

    @property
    def kernels(self) -> bool:
        """Whether kernels take the steps. They have no careful solves, which repeat a failed one."""
        return self.backend != TAKES_ALL


@dataclasses.dataclass(frozen=True)
class Checkpointed:
    """Reverse mode of `integrate` that stores `n` states of the run and recomputes the steps between them.

    It needs memory for `n + steps / n` states. `adjoint="checkpoint"` uses the optimal `n = sqrt(steps)`.
    """

    n: int

    def __post_init__(self) -> None:
        whole_number("n", self.n)


Adjoint = str | Reversible | Checkpointed  # the names: "checkpoint", "direct", "forward"


def check_adjoint(adjoint: object, method: AbstractMethod, system: AbstractSystem) -> None:
    """Raise if `adjoint` is unknown, or if it is `Reversible` and the method cannot run backward."""
    named = isinstance(adjoint, str) and adjoint in ("checkpoint", "direct", "forward")
    if named or isinstance(adjoint, Checkpointed):
        return
    if not isinstance(adjoint, Reversible):
        raise InputError(
            f"adjoint must be 'checkpoint', 'direct', 'forward', hx.Checkpointed(n) or hx.Reversible(), not {adjoint!r}"
        )
    reason = None
    if method.stochastic:
        reason = "draws random numbers"
    elif method.adaptive:
        reason = "chooses its own time steps"
    elif not method.one_step:
        reason = "has memory beyond (q, p)"
    elif not method.traits_on(system).symmetric:
        reason = "is not symmetric: its step with -dt does not undo the one with dt"
    if reason is not None:
        raise MethodError(
            f"adjoint=Reversible() integrates backward along the trajectory, but {method.name} {reason}. Use "
            "adjoint=hx.Checkpointed(n), or a symmetric method such as RATTLE, a composition of it, or Gauss"
        )


def advance(stepper: Stepper, carry: LoopCarry, consts: Consts, count: int, adjoint: Adjoint) -> LoopCarry:
    """Take `count` steps; `adjoint` selects their reverse mode."""
    if isinstance(adjoint, Reversible):
        return _run_reversible((carry, consts), stepper, count, adjoint.backend)
    if adjoint == "forward":
        one = _one(stepper)
        return jax.lax.fori_loop(0, count, lambda _, c: one(c, consts), carry)
    guarded = _guarded(stepper)
    one = lambda c: guarded(c, consts)
    if adjoint == "direct":
        return _scan(one, count)(carry)
    root = max(1, math.isqrt(count))
    pieces = min(adjoint.n, max(count, 1)) if isinstance(adjoint, Checkpointed) else max(1, count // root)
    block = max(1, count // pieces)
    carry = _scan(jax.checkpoint(_scan(one, block)), count // block)(carry) if count else carry
    return _scan(one, count % block)(carry) if count % block else carry


def _one(stepper: Stepper) -> Callable[[LoopCarry, Consts], LoopCarry]:
    """One step; the carry is unchanged once the run has ended."""

    def one(carry: LoopCarry, consts: Consts) -> LoopCarry:
        new = stepper.step(carry, consts)
        stop = stepper.halted(carry, consts)
        return jax.tree.map(lambda a, b: jnp.where(stop, a, b), carry, new)

    return one


def _guarded(stepper: Stepper) -> Callable[[LoopCarry, Consts], LoopCarry]:
    """`_one` with the derivative of the identity for a failed step.

    A failed step returns the state before it, so its own cotangent is zero. Its derivatives may be NaN, and zero times
    NaN would make the gradients of earlier rows NaN.
    """
    one = _one(stepper)
    guarded = jax.custom_jvp(one)

    @guarded.defjvp
    def _(primals: tuple[LoopCarry, Consts], tangents: PyTree) -> tuple[LoopCarry, Any]:
        floats, others = eqx.partition(primals, eqx.is_inexact_array)
        change = jax.tree.map(lambda x, d: d if eqx.is_inexact_array(x) else None, primals, tangents)

        def step(floats: PyTree) -> tuple[Any, Any]:
            return eqx.partition(one(*eqx.combine(floats, others)), eqx.is_inexact_array)

        end, push, rest = jax.linearize(step, floats, has_aux=True)
        stopped = stepper.halted(*primals) | (rest.status != Status.OK)
        moved = push(jax.tree.map(partial(_block_cotangents, stopped), change))
        moved = jax.tree.map(lambda a, b: jnp.where(stopped, a, b), change[0], moved)
        of_integers = lambda d, new: d if new is None else new
        return eqx.combine(end, rest), jax.tree.map(of_integers, tangents[0], moved, is_leaf=lambda x: x is None)

    return guarded


def nan_unless(good: Numbers, rows: dict[str, Any], inputs: PyTree) -> dict[str, Any]:
    """`rows` with NaN where they are not `good`; their derivatives with respect to all floats of `inputs` are NaN too.

    Otherwise the gradient of a run that fails in its first step would be zero, which looks like an optimum. In reverse
    mode a row that is not used (its cotangent is zero) does not contribute to a gradient, whether it is good or not.
    """
    floats = jax.tree.leaves(eqx.filter(inputs, eqx.is_inexact_array))

    def masked(x: Numbers) -> Any:
        # zero, but a function of all inputs, so that they receive a cotangent
        tie = sum((jnp.sum(0.0 * y.astype(x.dtype)) for y in floats), jnp.zeros((), x.dtype))
        kept = jnp.broadcast_to(good.reshape(good.shape + (1,) * (x.ndim - good.ndim)), x.shape).reshape(-1)

        def solve(_: PyTree, b: Numbers) -> Any:
            return b.at[:-1].set(jnp.where(kept, b[:-1], jnp.nan))

        def transpose_solve(_: PyTree, ct: Numbers) -> Any:
            used = ~kept & (ct[:-1] != 0)
            lost = jnp.where(jnp.any(used), jnp.nan, ct[-1])
            return jnp.append(jnp.where(kept, ct[:-1], jnp.where(used, jnp.nan, 0.0)), lost)

        # custom_linear_solve, because its transpose can be given and it supports forward and reverse mode
        flat = jnp.append(x.reshape(-1), tie)
        return jax.lax.custom_linear_solve(lambda y: y, flat, solve, transpose_solve)[:-1].reshape(x.shape)

    return {name: masked(x) for name, x in rows.items()}


def _block_cotangents(blocked: Numbers, x: Numbers) -> Any:
    """`x`, with a zero cotangent where `blocked`."""
    return jax.lax.custom_linear_solve(lambda y: y, x, lambda _, b: b, lambda _, ct: jnp.where(blocked, 0.0, ct))


def _scan(one: Callable[[LoopCarry], LoopCarry], count: int) -> Callable[[LoopCarry], LoopCarry]:
    return lambda carry: jax.lax.scan(lambda c, _: (one(c), None), carry, None, length=count)[0]


# ---- running backward


def _run_reversible(start: tuple[LoopCarry, Consts], stepper: Stepper, count: int, backend: str) -> LoopCarry:
    """Take `count` steps; their reverse mode runs backward from the final state."""
    arrays, static = eqx.partition(start, eqx.is_array)

    def walk(arrays: PyTree) -> LoopCarry:
        carry, consts = eqx.combine(arrays, static)
        run = callback(backend, stepper, carry, consts)
        if run is not None:
            return run(carry, consts, rows=1, every=count)[0]
        one = _one(stepper)
        return jax.lax.fori_loop(0, count, lambda _, c: one(c, consts), carry)

    def forth(arrays: PyTree) -> tuple[LoopCarry, Any]:
        end = walk(arrays)
        return end, (arrays, end)

    def back(saved: PyTree, cotangent: PyTree) -> tuple[Any]:
        arrays, end = saved
        found = _run_backward(eqx.combine(arrays, static), end, cotangent, stepper, count, backend)
        return (jax.tree.map(_cotangent_of, arrays, found, is_leaf=lambda x: x is None),)

    walked = jax.custom_vjp(walk)
    walked.defvjp(forth, back)
    return walked(arrays)


def _cotangent_of(x: PyTree, found: PyTree) -> Any:
    """`found` for a float; for an integer, JAX's empty cotangent (`float0`)."""
    if x is None or eqx.is_inexact_array(x):
        return found
    return np.zeros(jnp.shape(x), jax.dtypes.float0)


def _run_backward(
    start: tuple[LoopCarry, Consts], end: LoopCarry, cotangent: PyTree, stepper: Stepper, count: int, backend: str
) -> tuple[Any, Any]:
    """The cotangents of the initial carry and of the constants, from the cotangent of the final carry."""
    first, consts = start
    cotangent = jax.tree.map(lambda x, ct: ct if eqx.is_inexact_array(x) else None, end, cotangent)
    total = jax.tree.map(jnp.zeros_like, eqx.filter(consts, eqx.is_inexact_array))
    # the steps that were taken: fewer than `count` if one failed
    back, walker = Back(end, cotangent, total, end.state.n - first.state.n), BackStepper(stepper)
    run = callback(backend, walker, back, consts)
    if run is not None:
        back = run(back, consts, rows=1, every=count)[0]
    else:
        back = jax.lax.fori_loop(0, back.left, lambda _, b: walker.step(b, consts), back)
    return back.cotangent, back.total


class Back(eqx.Module):
    """The carry of the backward run."""

    carry: LoopCarry
    cotangent: Any  # derivative of the result with respect to the carry
    total: Any  # derivative with respect to the constants, summed over the steps undone so far
    left: Any  # number of steps to undo


class BackStepper(eqx.Module):
    """Undo one step and pull the cotangent back through it; back ends run this class like a `Stepper`."""

    stepper: Stepper

    def step(self, back: Back, consts: Consts) -> Back:
        before = _undo_step(self.stepper, back.carry, consts)
        floats, others = eqx.partition(before, eqx.is_inexact_array)
        values, rest = eqx.partition(consts, eqx.is_inexact_array)

        def step(floats: PyTree, values: PyTree) -> Any:
            after = self.stepper.step(eqx.combine(floats, others), eqx.combine(values, rest))
            return eqx.filter(after, eqx.is_inexact_array)

        _, pull = jax.vjp(step, floats, values)
        cotangent, share = pull(back.cotangent)
        return Back(before, cotangent, jax.tree.map(jnp.add, back.total, share), back.left - 1)

    def read(self, back: Back, consts: Consts) -> dict[str, Any]:
        return {"left": back.left}

    def halted(self, back: Back, consts: Consts) -> Any:
        return back.left <= 0


def _undo_step(stepper: Stepper, carry: LoopCarry, consts: Consts) -> LoopCarry:
    """The carry before the last step, recomputed by a step with -dt."""
    system, method = stepper.parts(consts)[:2]
    state, dt = carry.state, consts.dt
    memory = method.resize(system, state, -dt, carry.memory)
    new, memory, _ = method.step(system, state, -dt, memory, None)
    n = state.n - 1
    new = State(new.q, new.p, consts.t0 + n * dt, n)
    memory = method.resize(system, new, dt, memory)
    return eqx.tree_at(
        lambda c: (c.state, c.memory, c.status), carry, (new, memory, jnp.full_like(carry.status, Status.OK))
    )
