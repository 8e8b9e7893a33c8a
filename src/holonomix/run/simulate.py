"""`simulate`: one trajectory in chunks, with progress, checkpoints, partial results and readable errors."""

from __future__ import annotations

import numpy as np

from ..core.status import Status
from ..core.types import ArrayLike
from ..mechanics import resonance_watch
from .advice import failure
from .arguments import Arguments, MethodLike, Observe, Options, StoreLike, SystemLike, check_concrete
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
    events: object = (),
    dense: bool = False,
    progress: object = False,
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
    directory (or any `Sink`) that rows and checkpoints are streamed to; a store that holds a checkpoint is continued,
    bit for bit, to more `steps` if so asked; one that was begun with another system, method, key or other numbers, or
    has taken more steps, is refused. `backend` is `"auto"`, `"array"`, `"native"`, or on a GPU `"cuda"`.

    `save_at` gives the rows at these times instead: states on the manifold, of the method's own order, from which a run
    can be started; `dense=True` keeps the memory of the run, so that `sol.at(t)` gives the same states later. `events`
    are `Event`s (or functions whose zeros are wanted), found among the same states and listed in `sol.events`.

    On a stiff system, or an effective one, whose fast oscillations carry energy, a `ResonanceWarning` says where their
    frequencies met or resonated among the saved rows.

    When a step fails, `SimulationError` is raised with step, time, residual and advice, and with everything computed
    so far in `error.solution`; `throw=False` returns that partial solution instead. Ctrl-C ends the run between two
    chunks, about twice per second; a second one at once.
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
