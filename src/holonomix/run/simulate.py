"""`simulate`: one trajectory in chunks, with progress, checkpoints, partial results and readable errors."""

from __future__ import annotations

import numpy as np

from ..core.status import Status
from ..core.types import ArrayLike
from ..mechanics import resonance_watch
from .advice import failure
from .arguments import (
    Arguments,
    Events,
    MethodLike,
    Observe,
    Options,
    ProgressLike,
    StoreLike,
    SystemLike,
    check_concrete,
)
from .events import records_of
from .interrupts import interruptible
from .loop import make_loop
from .progress import Progress
from .run import Run, failed
from .solution import Solution

__all__ = ["simulate"]


@interruptible
def simulate(
    system: SystemLike,
    method: MethodLike,
    q0: ArrayLike | None = None,
    p0: ArrayLike | None = None,
    *,
    dt: float | None = None,
    steps: int | None = None,
    t1: float | None = None,
    t0: float = 0.0,
    max_steps: int = Options.max_steps,
    save_every: int = 1,
    save_at: ArrayLike | None = None,
    observe: Observe | None = None,
    events: Events = (),
    dense: bool = False,
    progress: ProgressLike = False,
    store: StoreLike | None = None,
    key: ArrayLike | None = None,
    backend: str = "auto",
    throw: bool = True,
    allow_different_bits: bool = False,
) -> Solution:
    """Run a method and return a `Solution` with rows 0, `save_every`, 2 `save_every`, ...

    `simulate(problem, method)` takes system, start, step and end from a `Problem`; explicit arguments override them.
    Otherwise give either `steps` or `t1`. A fixed-step method takes the steps needed to reach `t1`; an adaptive
    one runs until its own time passes it, for at most `max_steps`, and its last state is added as a row. `dt` may be
    negative. `observe` is a function of (q, p) or (q, p, t), or a dict of them, evaluated in the loop. `store` is a
    directory (or any `Sink`) that receives rows and checkpoints. A run in a store is resumed, bitwise identical to an
    uninterrupted one, and may be extended to more `steps`. A store with another system, method, key or other numbers,
    or with more steps, raises an error. `backend` is `"auto"`, `"array"`, `"native"`, or on a GPU `"cuda"`.

    `save_at` saves rows at these times instead: states on the manifold, accurate to the order of the method, from which
    a run can be started. `dense=True` keeps the memory of the run, so `sol.at(t)` returns the same states later.
    `events` are `Event`s, or functions whose zeros are located in the same way; `sol.events` lists them. An event with
    `bounce=True` is a wall.

    If a stiff or effective system has fast oscillations with energy, a `ResonanceWarning` reports where among the saved
    rows their frequencies crossed or resonated.

    When a step fails, `SimulationError` is raised with step, time, residual and advice, and with everything computed
    so far in `error.solution`; `throw=False` returns that partial solution instead. Ctrl-C ends the run between two
    chunks, which takes about half a second; a second Ctrl-C ends it at once.
    """
    options = Options(
        dt, steps, t1, t0, max_steps, save_every, save_at, observe, events, dense=dense, key=key, backend=backend
    )
    check_concrete("simulate", system, method, q0, p0, dt, t0, t1)
    loop = make_loop(Arguments.of(system, method, q0, p0, options).alone(stored=store is not None))
    run = Run(loop, store=store, allow_different_bits=allow_different_bits)
    if loop.resonant and not method.stochastic:  # noise changes the actions anyway
        run.record.resonance = resonance_watch(loop.system, loop.q0[0], loop.p0[0])
    bar = None
    if progress is not None and progress is not False:
        length = float(loop.consts.dt) * loop.steps if loop.t1 is None else loop.t1 - float(loop.consts.t0)
        bar = Progress(progress, None if loop.adaptive_end else loop.steps, abs(length), method.name, run.first)
    try:
        run.go(bar)
    finally:
        if bar is not None:
            bar.close()
        if store is not None:
            run.close()
    end, kinds = run.passages.ends.get(0), len(loop.watch.events)
    q, p, t = (np.array(run.shown()[name][0]) if end is None else getattr(end, name) for name in ("q", "p", "t"))
    solution = Solution(
        loop=loop,
        load=lambda: {key: x[0] for key, x in run.rows().items()},
        status=Status(int(run.status[0])),
        stats=run.stats(),
        final_q=q,
        final_p=p,
        final_t=float(t),
        interpolant=run.interpolant if dense else None,
        events=records_of(run.passages.to_arrays(), kinds, 1, loop.q0.shape[1:])[0] if kinds else [],
    )
    if run.record.resonance is not None:
        run.record.resonance.judge()
    if throw and failed(run.status)[0]:
        raise failure(run, solution)
    return solution
