"""The loop of one trajectory, which every back end runs.

A `Stepper` is the static description (system and method without their arrays, observables and reductions). Arrays are
in `consts`, and everything that changes is in `LoopCarry`. Failure is a status in the carry: the state freezes
at the last good step.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ..core.status import Status
from ..core.types import ArrayLike, Index, Key, Numbers, Real, State, known_array
from ..linalg.careful import careful_solves
from ..mechanics.abstract import AbstractSystem
from ..methods.base import AbstractMethod, first_failure
from ..trace.compiled import compiled, traced_once
from .arguments import key_data

# Statuses of steps that are repeated with care. An iteration that diverges leaves NaN.
REPEATED = (Status.NOT_CONVERGED, Status.NONFINITE, Status.OTHER_ROOT)
PARTS = 4  # points of a step at which events are checked, if the method has a continuous path


class Consts(eqx.Module):
    """Runtime values that do not change during a run."""

    arrays: Any  # the arrays of (system, method, reducers, observe)
    dt: Any
    t0: Any
    t_end: Any
    n_end: Any  # the step count at which to halt; the driver increases it from chunk to chunk
    key: Any  # raw key data, or None


class LoopCarry(eqx.Module):
    """The complete memory of a run, with which it continues bitwise identically."""

    state: State
    memory: Any
    status: Any
    multipliers: dict[str, Any]  # multipliers of the last step
    iterations: Any  # total
    most_iterations: Any
    residual: Any  # largest so far
    reduced: Any


class AbstractWatch(eqx.Module):
    """A reduction that can halt the run before a step that contains an event."""

    @abc.abstractmethod
    def init(self, q: Numbers, p: Numbers, t: Real) -> Any: ...

    @abc.abstractmethod
    def update(self, acc: PyTree, q: Numbers, p: Numbers, t: Real) -> Any: ...

    @abc.abstractmethod
    def interrupts(self, before: PyTree, after: PyTree) -> Any:
        """Whether an event lies between these two values of the accumulator."""


@traced_once
def _step(
    method: AbstractMethod,
    system: AbstractSystem,
    state: State,
    dt: Real,
    memory: PyTree,
    key: Key | None,
    careful: bool = False,
) -> Any:
    with careful_solves(careful):
        return method.step(system, state, dt, memory, key)


class Stepper(eqx.Module):
    """`step`, `read` and `halted` of one run, without arrays; it is a key of the compilation caches."""

    static: Any
    dense: bool = eqx.field(static=True, default=False)  # rows hold the complete memory
    careful: bool = eqx.field(static=True, default=False)  # solves that do not converge are repeated (`linalg.careful`)

    def with_care(self) -> Stepper:
        """The same run with steps that repeat solves that do not converge (`linalg.careful`)."""
        return dataclasses.replace(self, careful=True)

    def parts(self, consts: Consts) -> Any:
        return eqx.combine(consts.arrays, self.static)

    def start(self, consts: Consts, q: Numbers, p: Numbers) -> LoopCarry:
        system, method, observe, reducers = self.parts(consts)
        dtype = q.dtype
        state = State(q, p, jnp.asarray(consts.t0, dtype), jnp.asarray(0, jnp.result_type(int)))
        memory = method.init(system, state, consts.dt)
        report = jax.eval_shape(
            lambda s, m: _step(method, system, s, consts.dt, m, self._key(method, consts, s.n))[2], state, memory
        )
        multipliers = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), report.multipliers)
        integer = jnp.result_type(int)
        zero = jnp.asarray(0, integer)
        reduced = {name: r.init(*_shown(method, system, state, memory)) for name, r in reducers.items()}
        ok = jnp.asarray(Status.OK, jnp.int32)
        return LoopCarry(state, memory, ok, multipliers, zero, zero, jnp.asarray(0.0, dtype), reduced)

    def step(self, carry: LoopCarry, consts: Consts) -> LoopCarry:
        """One step with its reductions and diagnostics; after a failure, or before an event, the state stays."""
        system, method, _, reducers = self.parts(consts)
        key = self._key(method, consts, carry.state.n)
        new, memory, report = _step(method, system, carry.state, consts.dt, carry.memory, key, self.careful)
        n = carry.state.n + 1
        t = new.t if method.adaptive else consts.t0 + n * consts.dt
        new = State(new.q, new.p, t, n)
        size = jnp.sum(jnp.abs(new.q)) + jnp.sum(jnp.abs(new.p)) + jnp.abs(t)
        finite = jnp.where(jnp.isfinite(size), Status.OK, Status.NONFINITE).astype(jnp.int32)
        # A NaN also makes iterations fail: the cause is reported, not the consequence.
        status = first_failure(finite, report.status)
        reduced = {
            name: r.update(carry.reduced[name], *_shown(method, system, new, memory)) for name, r in reducers.items()
        }
        good = LoopCarry(
            new,
            memory,
            status,
            report.multipliers,
            carry.iterations + report.iterations,
            jnp.maximum(carry.most_iterations, report.iterations),
            jnp.maximum(carry.residual, report.residual),
            reduced,
        )
        for name, reducer in reducers.items():
            if isinstance(reducer, AbstractWatch):
                # the run halts before a step with an event
                values = [carry.reduced[name], *self.inside(name, carry, t, consts), reduced[name]]
                passed = [reducer.interrupts(*pair) for pair in zip(values[:-1], values[1:], strict=True)]
                event = jnp.any(jnp.stack(passed))
                status = first_failure(status, jnp.where(event, Status.TERMINATED, Status.OK).astype(jnp.int32))
        failed = status != Status.OK
        kept = jax.tree.map(lambda a, b: jnp.where(failed, a, b), carry, good)
        # The diagnostics of the failed step stay visible beside the frozen state. If the driver repeats the step, the
        # repetition gives its residual: that of a diverged first attempt says nothing about the run.
        ended = good.status != Status.OK
        for repeated in () if self.careful else REPEATED:
            ended = ended & (good.status != repeated)
        return eqx.tree_at(
            lambda c: (c.status, c.residual, c.most_iterations),
            kept,
            (status, jnp.where(ended, report.residual, kept.residual), good.most_iterations),
        )

    def inside(self, name: str, carry: LoopCarry, t: Real, consts: Consts) -> list[Any]:
        """The values of a watch at inner points of the step to time t, if the method has a continuous path.

        NaN if the value before the step is NaN, so that no event interrupts this step.
        """
        system, method, _, reducers = self.parts(consts)
        state, before = carry.state, carry.reduced[name]
        if not method.continuous:
            return []
        path = method.path(system, state, consts.dt, carry.memory)
        times = [(k / PARTS) * (t - state.t) for k in range(1, PARTS)]
        values = [reducers[name].init(*path(time)[:2], state.t + time) for time in times]
        return [jax.tree.map(lambda v, b: jnp.where(jnp.isnan(b), b, v), value, before) for value in values]

    def read(self, carry: LoopCarry, consts: Consts) -> dict[str, Any]:
        system, method, observe, _ = self.parts(consts)
        shown = method.read(system, carry.state, carry.memory)
        row = {"t": carry.state.t, "n": carry.state.n, "q": shown.q, "p": shown.p}
        row |= {f"step/{name}": value for name, value in carry.multipliers.items()}
        row |= {f"obs/{name}": jnp.asarray(fn(shown.q, shown.p, shown.t, system)) for name, fn in observe.items()}
        if self.dense:
            row |= {f"memory/{k}": x for k, x in enumerate(jax.tree.leaves((carry.state, carry.memory)))}
        return row

    def halted(self, carry: LoopCarry, consts: Consts) -> Any:
        method = self.parts(consts)[1]
        stop = (carry.status != Status.OK) | (carry.state.n >= consts.n_end)
        if method.adaptive:
            # time runs backward if dt is negative; an infinite end is never reached, whatever its sign
            late = (carry.state.t - consts.t_end) * jnp.sign(consts.dt) >= 0
            stop = stop | (late & jnp.isfinite(consts.t_end))
        return stop

    def _key(self, method: AbstractMethod, consts: Consts, n: Index) -> Any:
        if not method.stochastic:
            return None
        return jax.random.fold_in(jax.random.wrap_key_data(consts.key), n)


@compiled
def take_step(stepper: Stepper, carry: LoopCarry, consts: Consts) -> LoopCarry:
    """Take the step before which a trajectory halted."""
    return stepper.step(eqx.tree_at(lambda c: c.status, carry, jnp.zeros_like(carry.status)), consts)


def _shown(method: AbstractMethod, system: AbstractSystem, state: State, memory: PyTree) -> tuple[Any, Any, Any]:
    shown = method.read(system, state, memory)
    return shown.q, shown.p, shown.t


def make_stepper(
    system: AbstractSystem,
    method: AbstractMethod,
    *,
    dt: ArrayLike,
    t0: ArrayLike = 0.0,
    t_end: ArrayLike = jnp.inf,
    key: Key | None = None,
    observe: dict[str, Any] | None = None,
    reducers: dict[str, Any] | None = None,
    dtype: DTypeLike | None = None,
    dense: bool = False,
) -> tuple[Stepper, Consts]:
    """The static and the runtime half of a run."""
    dtype = jnp.result_type(float) if dtype is None else dtype
    arrays, static = eqx.partition((system, method, observe or {}, reducers or {}), eqx.is_array)
    data = None if key is None else key_data(key)
    dt, t0, t_end = (known_array(x, dtype) for x in (dt, t0, t_end))
    integer = jnp.result_type(int)
    return Stepper(static, dense), Consts(arrays, dt, t0, t_end, known_array(jnp.iinfo(integer).max, integer), data)


def over_trajectories(fn: Callable[..., Any], consts: Consts, axes: Consts | None, *args: PyTree) -> Any:
    """`fn(consts, *args)` for every trajectory; `args` have a leading axis over them, and constants where `axes` is 0.

    Without axes there is one trajectory, and `fn` is not batched: XLA compiles a batch of one to other bits.
    """
    if axes is None:
        found = fn(consts, *jax.tree.map(lambda x: jnp.squeeze(x, 0), args))
        return jax.tree.map(lambda x: jnp.expand_dims(x, 0), found)
    return jax.vmap(fn, in_axes=(axes, *(0 for _ in args)))(consts, *args)
