"""`integrate`: the pure form of a run, for use inside `jit`, `vmap` and `grad`."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from ..core.checks import flag
from ..core.errors import FailedTrajectoriesWarning, InputError
from ..core.status import Status
from ..core.types import ArrayLike, Index, Info, Numbers
from ..mechanics.projection import check_functions
from ..trace.compiled import Recent, compiled
from .adjoints import Adjoint, Reversible, advance, check_adjoint, nan_unless
from .arguments import Arguments, MethodLike, Options, SystemLike
from .loop import Loop, prepare
from .stepper import REPEATED, Consts, LoopCarry, Stepper

MAX_REPORTED = 1000  # failed calls that have warned already
_reported: Recent[bool] = Recent(MAX_REPORTED)


def integrate(
    system: SystemLike,
    method: MethodLike,
    q0: ArrayLike | None = None,
    p0: ArrayLike | None = None,
    *,
    dt: ArrayLike | None = None,
    steps: Index | None = None,
    t1: float | None = None,
    t0: ArrayLike = 0.0,
    save_every: int | None = None,
    key: ArrayLike | None = None,
    info: bool = False,
    adjoint: Adjoint = "checkpoint",
    careful: bool = False,
) -> Any:
    """The final `(q, p)` after `steps` steps, or with `save_every=k` the rows 0, k, 2k, ...

    `t1` may be given instead of `steps`: as in `simulate`, the run takes the number of steps that reaches it.
    `integrate(problem, method)` takes system, start, step and `t1` from a `Problem`. The number of steps is static, so
    with `t1` the values of `t0`, `t1` and `dt` must be concrete, and methods that choose their own steps need `steps`.

    Pure: works under `jit`, `vmap`, `grad` and `jvp`. Checks that need values are left out, so a start off the manifold
    is not refused here (`hx.project` moves it there, also under `jit`). After a failure the results and their
    derivatives are NaN. `info=True` adds a third result, an `Info(t, multipliers, status, stats)`, that gives the
    reason. Outside of `jit` and `vmap`, where the status is known, a call without `info` warns of a failure: once per
    compiled function, so that a fit does not repeat it. Code that ignores NaN rows (`jnp.where`, `jnp.nansum`) keeps a
    finite gradient.

    `adjoint` selects how reverse mode recovers the states of the run: `"checkpoint"` (memory of order sqrt(steps), each
    step computed twice), `hx.Checkpointed(n)` (n states stored), `"direct"` (all states stored), `hx.Reversible()`
    (none stored: a symmetric method is run backwards) or `"forward"` (a plain loop: forward mode only, least overhead).

    A step whose iteration does not converge is repeated as in `simulate`, by damped Newton iterations and shorter
    steps. Inside a transformation the repetition has to be compiled into the program, which then takes longer to
    compile and to run: request it with `careful=True` if steps are long.
    """
    flag("info", info)
    kernels = isinstance(adjoint, Reversible) and adjoint.kernels
    if flag("careful", careful) and kernels:
        raise InputError('careful=True needs the array path: give adjoint=hx.Reversible("array"), or another adjoint')
    if t1 is not None and any(isinstance(x, Tracer) for x in (t0, t1, dt)):
        raise InputError(
            "integrate(t1=...) counts its steps before tracing: t0, t1 and dt must be concrete; give steps"
        )
    given = Arguments.of(system, method, q0, p0, Options(dt, steps, t1, t0, save_every=save_every, key=key)).pure()
    if method.adaptive and steps is None:
        raise InputError(f"{method.name} chooses its own steps: give integrate(..., steps=...); simulate knows t1")
    loop = prepare(given, given.q0.shape, given.q0.dtype)
    consts = loop.constants(given.options, given.q0.dtype, given.keys)
    check_adjoint(adjoint, loop.method, loop.system)
    every = None if save_every is None else int(save_every)
    run = lambda stepper: _integrate(stepper, consts, given.q0, given.p0, given.steps, every, adjoint)
    row, final = run(loop.stepper.with_care() if careful else loop.stepper)
    known = not careful and not kernels and not isinstance(final.status, Tracer)
    if known and int(final.status) in REPEATED and int(final.most_iterations):
        row, final = run(loop.stepper.with_care())
    if not info:
        if not isinstance(final.status, Tracer) and Status(int(final.status)).failed:
            _warn_of_failure(loop, final, (given.steps, every, given.q0.shape))
        return row["q"], row["p"]
    multipliers = loop.system.multipliers if every is None else jax.vmap(loop.system.multipliers)
    stats = {
        "iterations": final.iterations,
        "max_iterations": final.most_iterations,
        "residual": final.residual,
        "steps": final.state.n,
    }
    return row["q"], row["p"], Info(row["t"], multipliers(row["q"], row["p"], row["t"]), final.status, stats)


def _warn_of_failure(loop: Loop, final: LoopCarry, program: tuple[Any, ...]) -> None:
    """Warn of a failed run, once for each compiled function and status."""
    status, static = Status(int(final.status)), jax.tree.structure((loop.system, loop.method))
    key = (static, program, status)
    if _reported.get(key):
        return
    _reported.put(key, True)
    warnings.warn(
        f"integrate with {loop.method.title}: {status.message} in step {int(final.state.n) + 1} ({status.name}), so "
        f"the results from there on and their derivatives are NaN. {status.advice[:1].upper()}{status.advice[1:]}. "
        "info=True returns the status; hx.simulate raises an error and keeps the rows before it",
        FailedTrajectoriesWarning,
        stacklevel=3,
    )


@compiled
def _integrate(
    stepper: Stepper, consts: Consts, q0: Numbers, p0: Numbers, steps: int, every: int | None, adjoint: Adjoint
) -> tuple[dict[str, Any], LoopCarry]:
    """The final state or the saved rows, with NaN for rows that were not reached, and the final carry."""
    check_functions(stepper.parts(consts)[0], q0, p0, consts.t0)
    carry = stepper.start(consts, q0, p0)

    inputs = (consts.arrays, consts.dt, consts.t0, q0, p0)

    def row_of(carry: LoopCarry, expected: Index) -> tuple[Any, dict[str, Any]]:
        """Whether the run reached this row, and the row."""
        row = stepper.read(carry, consts)
        good = (carry.status == Status.OK) & (row["n"] == expected)
        return good, {name: row[name] for name in ("t", "q", "p")}

    if every is None:
        carry = advance(stepper, carry, consts, steps, adjoint)
        return nan_unless(*row_of(carry, steps), inputs), carry

    def save(carry: LoopCarry, k: Index) -> tuple[LoopCarry, Any]:
        carry = advance(stepper, carry, consts, every, adjoint)
        return carry, row_of(carry, k * every)

    first = row_of(carry, 0)
    carry, later = jax.lax.scan(save, carry, jnp.arange(1, steps // every + 1))
    good, rows = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, later)
    return nan_unless(good, rows, inputs), advance(stepper, carry, consts, steps % every, adjoint)
