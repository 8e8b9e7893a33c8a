"""The runs that `certify` measures, made by the same plans and loop as the runs of users."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ...core.errors import SimulationError
from ...core.status import Status
from ...core.types import Key, Numbers, State
from ...mechanics.abstract import AbstractSystem
from ...methods.base import AbstractMethod
from ...run.arguments import Arguments, Options
from ...run.loop import Loop, make_loop
from ...run.run import Run
from ...run.stepper import Consts, LoopCarry, Stepper, make_stepper


class Trajectory(NamedTuple):
    """A run: its loop, its carry at the end, its saved rows (the start first), and the reports of its steps."""

    loop: Loop
    carry: LoopCarry
    q: np.ndarray
    p: np.ndarray
    t: np.ndarray
    status: Status
    steps: int
    iterations: float  # mean per step
    most_iterations: int
    multipliers: dict[str, Any]  # of the last step

    @property
    def state(self) -> State:
        """The last state, in the variables of the step."""
        return jax.tree.map(jnp.asarray, self.carry.state)


def follow(
    system: AbstractSystem,
    method: AbstractMethod,
    q: Numbers,
    p: Numbers,
    t: float,
    dt: float,
    steps: int,
    every: int = 0,
    key: Key | None = None,
) -> Trajectory:
    """Take `steps` steps and save every `every`-th; with `every=0`, only the start and the end."""
    return _run(system, method, q, p, Options(dt=dt, steps=steps, t0=t, save_every=every or max(steps, 1)), key)


def follow_until(
    system: AbstractSystem,
    method: AbstractMethod,
    q: Numbers,
    p: Numbers,
    dt: float,
    t1: float,
    every: int = 1,
    key: Key | None = None,
) -> Trajectory:
    """Run an adaptive method to t1 and save every `every`-th step."""
    return _run(system, method, q, p, Options(dt=dt, t1=t1, save_every=every), key)


def _run(
    system: AbstractSystem, method: AbstractMethod, q: Numbers, p: Numbers, options: Options, key: Key | None
) -> Trajectory:
    key = jax.random.key(0) if key is None and method.stochastic else key
    arguments = Arguments.of(system, method, q, p, dataclasses.replace(options, key=key))
    return _execute(make_loop(arguments.alone(stored=False)), None)


def stop_error(done: Trajectory, what: str) -> SimulationError:
    """The error of a run that stopped early, which certificates quote; `what` names the run."""
    text = f"{what} stopped after {done.steps} steps: {done.status.message}"
    return SimulationError(text, status=done.status, step=done.steps, time=float(done.carry.state.t))


def follow_back(there: Trajectory) -> Trajectory:
    """Reverse the end of a run and take the same number of steps."""
    loop = there.loop
    carry = loop.compiled(_reverse, jax.tree.map(lambda x: np.asarray(x)[None], there.carry))
    later = eqx.tree_at(lambda c: c.t0, loop.consts, jnp.asarray(there.carry.state.t, loop.consts.t0.dtype))
    return _execute(dataclasses.replace(loop, consts=later), carry)


def _execute(loop: Loop, carry: LoopCarry | None) -> Trajectory:
    run = Run(loop, carry=carry)
    run.go()
    rows, stats, end = run.rows(), run.stats(), run.lane(0)
    whole = rows["n"][0] % loop.every == 0  # a failed run also has a row for the step where it stopped
    q, p, t = (rows[name][0, whole] for name in ("q", "p", "t"))
    multipliers = {name: np.asarray(x) for name, x in end.multipliers.items()}
    counts = stats["mean_iterations"], stats["max_iterations"]
    return Trajectory(loop, end, q, p, t, Status(int(end.status)), stats["steps"], *counts, multipliers)


def _reverse(stepper: Stepper, consts: Consts, carry: LoopCarry) -> LoopCarry:
    system, method = stepper.parts(consts)[:2]
    back, memory = method.reverse(system, carry.state, carry.memory)
    state = State(back.q, back.p, jnp.asarray(back.t, back.q.dtype), jnp.zeros_like(carry.state.n))
    return eqx.tree_at(lambda c: (c.state, c.memory), carry, (state, memory))


def step_functions(
    system: AbstractSystem, method: AbstractMethod, t: float, dt: float, dtype: DTypeLike
) -> tuple[Stepper, Consts]:
    """The loop functions of a run of this method, for maps of one step."""
    return make_stepper(system, method, dt=dt, t0=t, dtype=dtype)


def one_step(
    stepper: Stepper, consts: Consts, q: Numbers, p: Numbers, *, shown: bool = True, carry: LoopCarry | None = None
) -> tuple[Any, Any, Any]:
    """One step as a map of (q, p), and its status.

    With `shown` the map is that of the output of the method, otherwise that of its internal variables. It starts
    at (q, p) with a new memory, or with the memory of `carry`, which is then held fixed.
    """
    if carry is None:
        before = stepper.start(consts, q, p)
    else:
        before = eqx.tree_at(lambda c: (c.state.q, c.state.p), carry, (q, p))
    after = stepper.step(before, consts)
    if not shown:
        return after.state.q, after.state.p, after.status
    row = stepper.read(after, consts)
    return row["q"], row["p"], after.status
