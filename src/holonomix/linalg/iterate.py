"""The loop of all nonlinear solves, and the implicit derivative of its result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ..core.types import Index, Numbers, Real
from .careful import asked_for_care, careful_solves, is_careful, rescue
from .krylov import LARGE, JacobianProduct, block_units
from .scales import LINEAR_STALL, balance, loose, relative, row_sizes, size_with_margin, stall_rule
from .small import UNROLL, Dense

__all__ = ["Iterated", "implicit_root", "iterate", "known_value", "newton_root"]


# Number of previous norms that distinguish fluctuation from a trend.
FLUCTUATION = 3
# A norm that stays level does not grow by more than this factor.
LEVEL = 2.0
# The next residual is predicted only from a relative residual below this one.
SMALL = 2.0**-10
# A quadratic iteration has reached round-off if it stalls after a sweep that reduced the residual by the factor PLUNGE
# to below RELIABLE. A norm above MEASURED was computed with sizes that are zero.
PLUNGE, RELIABLE, MEASURED = 2.0**-10, 2.0**-13, 2.0**30
# A residual is round-off only if the curvature along the last correction explains at most this fraction of it.
EXPLAINED = 0.25


class Iterated(NamedTuple):
    """The last iterate, its residual, the number of sweeps, and whether it converged."""

    x: Any
    residual: Any
    iterations: Any
    converged: Any


def iterate(
    body: Callable[[Any, Any], Any],
    residual: Callable[[Any], tuple[Any, Any]],
    x: PyTree,
    *,
    tol: Real,
    max_iterations: int,
    floor: Real = 0.0,
    stall: float = 0.5,
    limit: Index | None = None,
    level: Real | None = None,
    polish: bool = False,
    ahead: PyTree = None,
    slow: float | None = None,
    patience: int = 1,
    curvature: Callable[[Any, Any], Any] | None = None,
    foreseen: Callable[[Any], Any] | None = None,
) -> Iterated:
    """Repeat `x <- body(x, r)` until the residual norm is at most `tol`.

    `residual(x)` returns `(r, norm)`; `r` is passed to `body`, so that it is evaluated once per iteration. A tolerance
    below round-off would never be met. Therefore an iterate also counts as converged if its norm is at most `floor` and
    an iteration no longer reduces it by the factor `stall`, or if its norm is at most `limit` and only fluctuates. NaN
    ends the loop without convergence. A norm fluctuates if, of its last four values, the last two are not below half of
    the values two sweeps before (rounding errors may alternate), and the values neither all decrease nor all increase:
    an iteration that diverges slowly from a good guess is not accepted.

    A quadratically convergent iteration may stall for one sweep beside a singular point, with any residual, and then
    move away. With `level`, a norm between `floor` and `level` counts as round-off only if it stays level: it neither
    falls by the factor `stall` nor grows by LEVEL.

    A linearly convergent iteration approaches from one side and stops with a residual just below `tol`, always of the
    same sign, which is a drift over many steps. `polish` uses the last residual for one more correction. With `ahead`
    the loop also ends if that correction is predicted to leave a residual of at most `ahead`; the prediction assumes
    the same reduction as in the previous iteration. With `slow` the loop ends, without convergence or polish, if an
    iteration does not reduce the norm by that factor.

    An iteration that is not monotone far from the solution compares its norm with the largest of the last `patience`.
    A quadratically convergent iteration that stalls after a plunge has reached round-off, even if round-off is much
    larger than the sizes of the data (a constraint with large constants, near the origin), unless its corrections are
    so long that the equations are not linear along them. `curvature(a, b)`, the norm of `(J(b) - J(a)) (b - a)`, tells
    the two apart: with it, a stall after a plunge is accepted, and every stall above LINEAR_STALL eps is checked. Use
    it for constraints only; the sizes of stiff equations are so large that one sweep may look like a plunge.
    `foreseen(x)` is an additional test of convergence.
    """
    r, norm = residual(x)
    history = patience if limit is None or patience > 1 else FLUCTUATION

    def stalled(norm: PyTree, previous: PyTree):
        largest = functools.reduce(jnp.maximum, previous[:patience])
        at_floor = norm <= floor
        if level is not None:
            at_floor = at_floor | ((norm <= LEVEL * largest) & (norm <= level))
        at_floor = at_floor & (norm >= stall * largest)
        if limit is None:
            return at_floor
        if patience > 1:
            return at_floor | ((norm >= largest) & (norm <= limit))
        rises = [new > old for new, old in zip((norm, *previous[:-1]), previous, strict=True)]
        some, every = functools.reduce(jnp.logical_or, rises), functools.reduce(jnp.logical_and, rises)
        lasting = (norm >= 0.5 * previous[1]) & (previous[0] >= 0.5 * previous[2])
        return at_floor | (lasting & some & ~every & (norm <= limit))

    def accepted(x: PyTree, norm: PyTree, previous: PyTree, plunged: PyTree):
        found = stalled(norm, previous)
        if curvature is not None:
            found = found | (plunged & (norm >= stall * previous[0]) & (norm <= RELIABLE))
        if foreseen is not None:
            found = found | foreseen(x)
        if ahead is None:
            return found
        # the first norm has no predecessor, and a large one does not predict the next
        soon = (norm * norm <= ahead * previous[0]) & (previous[0] < jnp.inf) & (norm <= SMALL)
        return soon | found

    def more(loop: PyTree):
        x, _, norm, previous, plunged, k, _ = loop
        going = (norm > tol) & ~accepted(x, norm, previous, plunged) & (k < max_iterations)
        return going if slow is None else going & ~(norm > slow * previous[0])

    def sweep(loop: PyTree):
        before, r, norm, previous, plunged, k, _ = loop
        x = body(before, r)
        r, new = residual(x)
        if curvature is not None:
            plunged = plunged | ((new <= PLUNGE * norm) & (new <= RELIABLE) & (norm <= MEASURED))
        kept = () if curvature is None else before
        return x, r, new, (norm, *previous[:-1]), plunged, k + 1, kept

    unknown = (jnp.full_like(norm, jnp.inf),) * history
    before = () if curvature is None else x
    start = (x, r, norm, unknown, jnp.zeros_like(norm, bool), jnp.asarray(0, jnp.int32), before)
    x, r, norm, previous, plunged, k, before = jax.lax.while_loop(more, sweep, start)
    converged = (norm <= tol) | accepted(x, norm, previous, plunged)
    if curvature is not None:
        high = LINEAR_STALL * jnp.finfo(norm.dtype).eps
        passes = lambda: converged & ((norm <= tol) | (curvature(before, x) <= EXPLAINED * norm))
        converged = jax.lax.while_loop(lambda loop: loop[1], lambda _: (passes(), False), (converged, norm > high))[0]
    if polish:
        polished = body(x, r)
        x = polished if slow is None else jax.tree.map(lambda new, old: jnp.where(converged, new, old), polished, x)
    return Iterated(x, norm, k, converged)


def implicit_root(
    solve: Callable[[Any], tuple[Any, Any]],
    residual: Callable[[Any, Any], Any],
    args: PyTree,
    factor: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, Any]:
    """`(x, aux) = solve(args)` with the derivative of `x` taken from `residual(x, args) = 0`.

    The iterations are not differentiated: `dx = -(dr/dx)^-1 (dr/dargs) dargs`, in forward and reverse mode and to any
    order. `factor(x, args)` returns an object with `.solve(b)` for `dr/dx`; by default the dense Jacobian is formed.
    `x` is an array or a tree of arrays, and `residual` returns the same; factors act on flat vectors. `aux`
    carries no derivative. Both functions must take everything from `args`.
    """
    dynamic, static = eqx.partition(args, eqx.is_array)
    care = asked_for_care()  # the rule of the derivative is traced later

    def dense(x: PyTree, args: PyTree):
        flat, unflatten = ravel_pytree(x)
        return Dense(jax.jacfwd(lambda y: ravel_pytree(residual(unflatten(y), args))[0])(flat)).factor()

    @jax.custom_jvp
    def root(dynamic: PyTree):
        with careful_solves(care):
            return solve(eqx.combine(dynamic, static))

    @root.defjvp
    def _(primals: PyTree, tangents: PyTree):
        (dynamic,), (direction,) = primals, tangents
        x, aux = root(dynamic)
        _, change = jax.jvp(lambda d: residual(x, eqx.combine(d, static)), (dynamic,), (direction,))
        factored = (factor or dense)(x, eqx.combine(dynamic, static))
        dx = ravel_pytree(x)[1](-factored.solve(ravel_pytree(change)[0]))
        return (x, aux), (dx, jax.tree.map(_no_tangent, aux))

    return root(dynamic)


def known_value(fn: Callable[[Any], Any], args: PyTree, value: PyTree) -> Any:
    """`value`, which is `fn(args)` computed before, with the derivative of `fn`."""
    dynamic, static = eqx.partition(args, eqx.is_array)

    @jax.custom_jvp
    def known(dynamic: PyTree, value: PyTree):
        return value

    @known.defjvp
    def _(primals: PyTree, tangents: PyTree):
        _, change = jax.jvp(lambda d: fn(eqx.combine(d, static)), primals[:1], tangents[:1])
        return known(*primals), change

    return known(dynamic, value)


def newton_root(
    residual: Callable[[Any, Any], Any],
    start: PyTree,
    args: PyTree,
    *,
    max_iterations: int = 50,
    known: Callable[[Any], Any] | None = None,
    sizes: Callable[[Any, Any], Any] | None = None,
    blocks: Sequence[int] = (),
    inverse: Callable[[Any, Any], Callable[[Any], Any]] | None = None,
) -> Iterated:
    """Newton's method for `residual(x, args) = 0` in a flat vector x, to round-off.

    The residual is measured against `row_sizes` of the Jacobian, so unknowns and equations may have any units. Where
    the unknowns are only changes of larger data (a multiplier that moves a position), `known(args)` gives the natural
    scale that the data have in each row. `sizes(x, args)` are the sizes of the unknowns, by default their own: an
    unknown that is zero has none. The Jacobian is formed by forward mode; the result has the implicit derivative.
    `args` must contain every array that the residual depends on.

    With `blocks`, the lengths of the parts of x that have units of their own, more than `LARGE` unknowns are found
    without forming the Jacobian. Its linear systems are solved by GMRES, which needs an approximate inverse:
    `inverse(x, args)` returns it as a linear function. The default, the identity, suits `x - known - dt f(x)`.
    """
    large = len(blocks) > 0 and start.size > LARGE

    def matrix_free(x: PyTree, args: PyTree):
        _, product = jax.linearize(lambda y: residual(y, args), x)
        return JacobianProduct(product, (lambda r: r) if inverse is None else inverse(x, args))

    def solve(full: PyTree):
        start, args = full
        eps = jnp.finfo(start.dtype).eps

        # without known data there are no sizes before the first Jacobian: only an exact root is accepted at once
        least = jnp.zeros_like(start) if known is None else known(args)
        size_of = jnp.abs if sizes is None else partial(_given_sizes, sizes, args)
        first_size = size_of(start)

        def measured(loop: PyTree):
            x, rows = loop
            r = residual(x, args)
            return r, relative(r, rows)

        def large_body(loop: PyTree, r: PyTree):
            x, _ = loop
            jacobian = matrix_free(x, args)
            rows = jnp.maximum(jacobian.row_sizes(jnp.maximum(size_of(x), first_size)), least)
            # in units of what is rounded, no block's rounding errors hide the residual of another; rows far below their
            # block's size are not resolved by a norm and count with sqrt(eps) of it
            units = block_units(jnp.maximum(rows, jnp.abs(r)), blocks)
            return x - jacobian.solve(r, units), jnp.maximum(rows, loose(x.dtype) * units)

        def body(loop: PyTree, r: PyTree):
            x, _ = loop
            jacobian = jax.jacfwd(lambda y: residual(y, args))(x)
            x1 = x - _solve_balanced(jacobian, size_with_margin(x, start), r)
            return x1, jnp.maximum(row_sizes(jacobian, jnp.maximum(size_of(x1), first_size)), least)

        first = (start, least)
        options = stall_rule(start.dtype, quadratic=True)
        chosen = large_body if large else body
        done = iterate(chosen, measured, first, tol=eps / 4, max_iterations=max_iterations, **options)
        converged, found = done.converged, (done.x[0], done.residual, done.iterations)
        if is_careful(start.size):
            equations = lambda x, fraction: residual(x, args)
            finish = lambda x, norm, k: (x, norm, done.iterations + k)
            floors = {"sizes": lambda x: jnp.maximum(size_of(x), first_size), "rows": lambda x: least}
            converged, found = rescue(converged, found, equations, start, finish, **floors, grows=False, stiff=True)
        x, *info = found
        return x, (*info, converged)

    def accurate(x: PyTree, full: PyTree):
        """Solves for derivatives: to round-off, or NaN."""
        start, args = full
        jacobian = matrix_free(x, args)
        units = block_units(jacobian.row_sizes(size_with_margin(x, start)), blocks)
        accuracy = 8 * float(jnp.finfo(x.dtype).eps)
        return _Solver(partial(jacobian.solve, units=units, accuracy=accuracy, checked=True))

    factor = accurate if large else None
    x, (norm, k, converged) = implicit_root(solve, lambda x, full: residual(x, full[1]), (start, args), factor)
    return Iterated(x, norm, k, converged)


def _given_sizes(sizes: Callable[[Any, Any], Any], args: PyTree, x: Numbers) -> Any:
    return sizes(x, args)


class _Solver(NamedTuple):
    """The factor that `implicit_root` needs."""

    solve: Callable[[Any], Any]


def _solve_balanced(matrix: Numbers, sizes: PyTree, b: Numbers) -> Any:
    if matrix.shape[0] <= UNROLL:
        return Dense(matrix).factor().solve(b)
    return balance(matrix, sizes, lambda scaled: partial(jnp.linalg.solve, scaled))(b)


def _no_tangent(x: PyTree) -> Any:
    if jnp.issubdtype(jnp.result_type(x), jnp.inexact):
        return jnp.zeros_like(x)
    return np.zeros(jnp.shape(x), jax.dtypes.float0)
