"""`simulate`: a run in chunks, with progress, checkpoints, partial results and errors for people."""

from __future__ import annotations

import time
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..projection import accepts_redundant, as_state_arrays, check_start
from ..systems import ResonanceWatch, System, fast_subsystem
from ..types import State
from .backends import choose
from .checkpoint import given_arrays
from .checks import check_concrete, check_length, check_run
from .dense import check_output, check_times
from .events import Watch, as_events, check_events
from .loop import Consts, LoopCarry, Stepper, make_stepper
from .observe import as_observables, check_observables
from .progress import Progress
from .run import Run
from .solution import Solution

__all__ = ["simulate"]

MAX_STEPS = 10_000_000


def simulate(
    system: Any,
    method: Any,
    q0: Any,
    p0: Any,
    *,
    dt: float,
    steps: int | None = None,
    t1: float | None = None,
    t0: float = 0.0,
    max_steps: int = MAX_STEPS,
    save_every: int = 1,
    save_at: Any = None,
    observe: Any = None,
    events: Any = (),
    dense: bool = False,
    progress: Any = False,
    store: Any = None,
    key: Any = None,
    backend: str = "auto",
    throw: bool = True,
    allow_different_bits: bool = False,
) -> Solution:
    """Run a method and return a `Solution` with rows 0, `save_every`, 2 `save_every`, ...

    Give either `steps` or `t1`. A fixed-step method takes the steps needed to reach `t1`; an adaptive one runs until
    its own time passes it, for at most `max_steps`, and its last state is added as a row. `dt` may be negative.
    `observe` is a function of (q, p) or (q, p, t), or a dict of them, evaluated in the loop. `store` is a directory
    (or any `Sink`) that rows and checkpoints are streamed to; a store that holds a checkpoint is continued, bit for
    bit, to more `steps` if so asked; one that was begun with other numbers is refused. `backend` is `"auto"`,
    `"array"`, `"native"`, or on a GPU `"cuda"`.

    `save_at` gives the rows at these times instead, read from the method's own polynomial (or a symmetric interpolant
    of matching order); `dense=True` keeps the memory of the run, so that `sol.at(t)` does the same later. `events` are
    `Event`s (or functions whose zeros are wanted), found on the same polynomials and listed in `sol.events`.

    On a stiff system, or an effective one, whose fast oscillations carry energy, a `ResonanceWarning` says where their
    frequencies met or resonated among the saved rows.

    When a step fails, `SimulationError` is raised with step, time, residual and advice, and with everything computed
    so far in `error.solution`; `throw=False` returns that partial solution instead.
    """
    check_concrete("simulate", system, method, q0, p0, dt, t0, t1)
    q0, p0 = as_state_arrays(q0, p0)
    check_run(method, system, dt, 0, key)
    wanted = None if save_at is None else check_times(save_at, dt, t0)
    if wanted is not None and save_every != 1:
        raise InputError("give either save_every or save_at, not both")
    if wanted is not None and steps is None and t1 is None:
        t1 = float(wanted[-1]) if wanted[-1] != t0 else t0 + dt
    check_length(steps, t1, t0, dt, save_every)
    if t1 is not None:
        steps = max_steps if method.adaptive else int(np.ceil((t1 - t0) / dt - 1e-9))
    steps = check_run(method, system, dt, steps, key)
    check_output(method, wanted, dense, store, t0 + dt * steps if t1 is None else t1, dt)
    redundant = accepts_redundant(method)
    system = system.accepting_redundant() if redundant and isinstance(system, System) else system
    prepared = system.prepare(q0)
    check_start(prepared, q0, p0, t0, redundant=redundant)
    method.validate(prepared, State(q0, p0, jnp.asarray(t0, q0.dtype), jnp.asarray(0)), dt)

    t_end = np.copysign(np.inf, dt) if t1 is None else t1
    observables = as_observables(observe)
    check_observables(observables, q0, p0, t0)
    watch = Watch(as_events(events))
    check_events(watch.events, q0, p0, t0)
    stepper, consts = make_stepper(
        prepared,
        method,
        dt=dt,
        t0=t0,
        t_end=t_end,
        key=key,
        observe=observables,
        reducers={"events": watch} if watch.events else None,
        dtype=q0.dtype,
        dense=dense or wanted is not None,
    )
    began = time.perf_counter()
    carry = _start(stepper, consts, q0, p0)
    choice = choose(backend, stepper, carry, consts)
    run = Run(system, method, stepper, consts, choice, carry, steps, int(save_every), t1 is not None, wanted, watch)
    if not method.stochastic:  # noise changes the actions anyway
        run.resonance = ResonanceWatch(*fast_subsystem(prepared, q0, p0))
    run.compile_time = time.perf_counter() - began
    if store is None:
        run.keep(run.first_row())
    else:
        run.identity = {"dt": float(dt), "t0": float(t0), "save_every": int(save_every), "method": method.name}
        run.given = given_arrays(system, method, q0, p0)
        run.attach(store, allow_different_bits)
    span = steps * abs(float(dt)) if t1 is None else abs(t1 - t0)
    bar = Progress(progress, None if method.adaptive and t1 is not None else steps, span, method.name, run.first)
    try:
        run.go(bar)
    finally:
        bar.close()
        run.close()
    solution = run.solution()
    run.resonance.judge()
    if solution.status.failed and throw:
        raise run.error(solution)
    return solution


@eqx.filter_jit
def _start(stepper: Stepper, consts: Consts, q: Any, p: Any) -> LoopCarry:
    return stepper.start(consts, q, p)
