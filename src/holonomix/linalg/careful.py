"""Fallback for solves that did not converge: damped Newton iterations, and continuation from shorter steps.

Steps are first compiled without this fallback (`careful_solves` is off), so that the fast program pays nothing for it.
The driver repeats a step that did not converge with the fallback. A differentiated step includes it, inside a loop that
runs zero times if the fast iteration converges.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ..core.types import Numbers
from .redundant import dependent
from .scales import balance, loose, relative, row_sizes

# The Jacobian is formed for at most this many unknowns.
MAX_UNKNOWNS = 2000
# Limits of Newton iterations, and of halvings of one correction.
MAX_SWEEPS, MAX_HALVINGS = 60, 12
# A residual that no correction reduces is round-off up to this many eps, and up to `loose` if corrections are tiny.
STALL = 2.0**22
# Fractions of the step that are solved in turn: the whole step, then steps that grow to it.
SCHEDULES = ((1.0,), (0.5, 1.0), (0.25, 0.5, 0.75, 1.0))

_on: ContextVar[bool] = ContextVar("careful_solves", default=False)


@contextlib.contextmanager
def careful_solves(on: bool = True) -> Iterator[None]:
    """Set whether steps traced in this context include the fallback for solves that do not converge."""
    token = _on.set(on)
    try:
        yield
    finally:
        _on.reset(token)


def asked_for_care() -> bool:
    """Whether `careful_solves` is on."""
    return _on.get()


def accepted_stall(dtype: DTypeLike) -> float:
    """The relative residual up to which a residual that no longer decreases counts as round-off."""
    return STALL * float(jnp.finfo(dtype).eps)


def is_careful(unknowns: int) -> bool:
    """Whether a solve with this many unknowns includes the fallback."""
    return asked_for_care() and 0 < unknowns <= MAX_UNKNOWNS


def rescue(
    converged: Numbers,
    found: PyTree,
    residual: Callable[[Any, Any], Any],
    guess: Numbers,
    finish: Callable[[Any, Any, Any], Any],
    *,
    sizes: Callable[[Any], Any] = jnp.abs,
    rows: Callable[[Any], Any] | None = None,
    rescale: Callable[[Any, Any], Any] = lambda x, ratio: x,
    grows: bool = True,
    stiff: bool = False,
    dependent_rows: bool = False,
    accept: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, Any]:
    """`(converged, found)`, or the result of damped Newton iterations if a solve did not converge.

    `residual(x, fraction)` are the equations of a step of length `fraction dt` in a flat x; `guess` is the initial
    guess. If `grows`, shorter steps are tried, and their solution, passed through `rescale(x, ratio of the lengths)`,
    is the guess for a longer one. `finish(x, norm, iterations)` converts x to the form of `found`. `sizes(x)` are the
    sizes of the unknowns and `rows(x)` lower bounds for the sizes of the equations (`linalg.scales`). If equations may
    be `stiff`, their sizes are unreliable, and a residual that no longer decreases is accepted only with tiny
    corrections. Roots for which `accept(x, fraction)` is false are rejected.
    """
    schedules = SCHEDULES if grows else SCHEDULES[:1]
    fractions = np.array([f for schedule in schedules for f in schedule])
    begins = np.array([k == 0 for schedule in schedules for k in range(len(schedule))])
    ratios = np.where(begins, 1.0, fractions / np.roll(fractions, 1))
    # after a stage that failed, continue at the beginning of the next schedule
    after = [next((j for j in range(k + 1, len(begins)) if begins[j]), len(begins)) for k in range(len(begins))]
    table = [jnp.asarray(x) for x in (fractions, begins, ratios, np.array(after), fractions == 1.0)]

    def more(loop: PyTree):
        converged, _, _, stage, _ = loop
        return ~converged & (stage < len(fractions))

    def attempt(loop: PyTree):
        _, found, x, stage, total = loop
        fraction, begin, ratio, next_schedule, whole = (column[stage] for column in table)
        x = jnp.where(begin, guess, rescale(x, ratio))
        x, norm, k, good = _damped_newton(lambda y: residual(y, fraction), x, sizes, rows, stiff, dependent_rows)
        good = good if accept is None else good & accept(x, fraction)
        done, total = good & whole, total + k
        found = jax.tree.map(lambda new, old: jnp.where(done, new, old), finish(x, norm, total), found)
        return done, found, x, jnp.where(good, stage + 1, next_schedule), total

    none = jnp.asarray(0, jnp.int32)
    start = (converged, found, guess, jnp.asarray(0, table[3].dtype), none)
    converged, found, *_ = jax.lax.while_loop(more, attempt, start)
    return converged, found


def _damped_newton(
    residual: Callable[[Any], Any],
    start: Numbers,
    sizes: Callable[[Any], Any],
    least: Callable[[Any], Any] | None,
    stiff: bool,
    dependent_rows: bool,
) -> tuple[Any, Any, Any, Any]:
    """Newton's method with the true Jacobian; each correction is halved until the residual decreases.

    Returns x, the residual norm, the number of iterations, and whether x is a root to round-off: the norm is small, or
    it no longer decreases and is below `sqrt(eps)`, or the last correction changed no unknown.
    """
    eps = jnp.finfo(start.dtype).eps

    def solved(jacobian: Numbers, size: Numbers, r: Numbers) -> Any:
        if dependent_rows:
            units = jnp.where(size > 0, size, 1.0)
            return units * (jnp.linalg.pinv(jacobian * units, rtol=dependent(r.dtype)) @ r)
        return balance(jacobian, size, lambda scaled: lambda b: jnp.linalg.solve(scaled, b))(r)

    def more(loop: PyTree):
        _, _, norm, k, converged, stuck = loop
        return ~converged & ~stuck & (k < MAX_SWEEPS) & jnp.isfinite(norm)

    def sweep(loop: PyTree):
        x, r, _, k, _, _ = loop
        jacobian, size = jax.jacfwd(residual)(x), sizes(x)
        dx = solved(jacobian, size, r)
        # an unknown that is still zero has the size of its first correction
        scale = row_sizes(jacobian, jnp.where(size > 0, size, jnp.abs(dx)))
        scale = scale if least is None else jnp.maximum(scale, least(x))
        before = relative(r, scale)

        def shorter(search: PyTree):
            length, *_ = search
            new = x - length / 2 * dx
            return length / 2, new, *_measure(residual, new, scale)

        def rejected(search: PyTree):
            length, _, _, norm = search
            return ~(norm <= (1 - length / 4) * before) & (length > 2.0**-MAX_HALVINGS)

        whole = x - dx
        first = (jnp.ones_like(before), whole, *_measure(residual, whole, scale))
        length, new, r_new, norm = jax.lax.while_loop(rejected, shorter, first)
        falls = norm < before
        # at round-off neither a whole correction nor its parts reduce the residual any more
        settled = jnp.all(jnp.abs(dx) <= 8 * eps * size)
        tiny = jnp.all(jnp.abs(dx) <= loose(x.dtype) * size)
        small = tiny if stiff else tiny | (before <= accepted_stall(x.dtype))
        stalled = ~(norm < 0.5 * before) & (before <= loose(x.dtype)) & small
        converged = (norm <= 2 * eps) | (before <= 2 * eps) | settled | stalled
        x = jnp.where(falls, new, x)
        r = jnp.where(falls, r_new, r)
        return x, r, jnp.minimum(norm, before), k + 1, converged, ~falls

    r = residual(start)
    unknown = jnp.where(jnp.all(jnp.isfinite(r)), jnp.ones((), start.dtype), jnp.nan)
    zero = jnp.all(r == 0)
    loop = (start, r, jnp.where(zero, 0.0, unknown), jnp.asarray(0, jnp.int32), zero, jnp.asarray(False))
    x, _, norm, k, converged, _ = jax.lax.while_loop(more, sweep, loop)
    return x, norm, k, converged


def _measure(residual: Callable[[Any], Any], x: Numbers, scale: Numbers) -> tuple[Any, Any]:
    r = residual(x)
    return r, relative(r, scale)
