"""Legendre polynomials on [0, 1], and the polynomial of a step at the nodes of Gauss' quadrature.

A line-integral method writes the velocity of a step as `u'(c h) = sum_j P_j(c) gamma_j` in the orthonormal basis
`P_j(c) = sqrt(2 j + 1) L_j(2 c - 1)`, so that `u(c h) = q_0 + h sum_j I_j(c) gamma_j` with `I_j(c) = int_0^c P_j`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ..core.checks import whole_number
from ..core.errors import InputError
from ..core.types import Numbers, Real, State
from ..linalg import Compensation, Dense, Iterated, implicit_root, iterate
from ..linalg.careful import accepted_stall, is_careful, rescue
from ..linalg.iterate import SMALL
from ..linalg.scales import LINEAR_LIMIT, coordinate_sizes, inverse_sizes, relative, stall_rule
from ..mechanics.abstract import AbstractSystem
from .stages import MIN_SPEED_FRACTION, reaches, row_sizes, speed_sizes, velocities

ITERATIONS = ("chord", "fixed-point", "newton")
# The first sweep contracts more than later ones, which start without smooth errors: by at most this factor.
CONTRACTION_MARGIN = 320.0
# Beyond these numbers a higher degree gains nothing in double precision, and a step solves for s n unknowns at k nodes.
MAX_DEGREE, MAX_NODES = 20, 120


class Tables(NamedTuple):
    """Nodes `c`, weights `b`, and `P_j(c_l)`, `I_j(c_l)`, `P_j'(c_l)` as (k, s) matrices; `X = P^T Omega I`."""

    c: Any
    b: Any
    P: Any
    I: Any
    dP: Any
    X: Any

    @property
    def weighted(self) -> Any:
        """`Omega P`: sums over nodes against it are the Legendre coefficients."""
        return self.b[:, None] * self.P


def basis(s: int, c: Numbers | np.ndarray) -> list[Any]:
    """`P_0(c), ..., P_{s-1}(c)`; c may be an array, traced or of extended precision."""
    x = 2 * c - 1
    legendre = [x * 0 + 1, x]
    for j in range(1, s - 1):
        legendre.append(((2 * j + 1) * x * legendre[j] - j * legendre[j - 1]) / (j + 1))
    return [_root(2 * j + 1, c) * legendre[j] for j in range(s)]


def _root(x: int, like: Numbers | np.ndarray | None) -> Any:
    """The square root of an integer, as precise as `like`."""
    return np.sqrt(np.longdouble(x)) if isinstance(like, np.ndarray) and like.dtype == np.longdouble else x**0.5


def _xi(j: int, like: Numbers | np.ndarray | None = None) -> Any:
    return 0.5 / _root(4 * j * j - 1, like)


def integrals(s: int, c: Numbers | np.ndarray) -> list[Any]:
    """`I_0(c), ..., I_{s-1}(c)`: `I_0 = c`, `I_j = xi_{j+1} P_{j+1} - xi_j P_{j-1}`, `xi_j = 1/(2 sqrt(4j^2 - 1))`."""
    P = basis(s + 1, c)
    return [c] + [_xi(j + 1, c) * P[j + 1] - _xi(j, c) * P[j - 1] for j in range(1, s)]


def check_degrees(k: int | None, s: int) -> tuple[int, int]:
    """k and s as ints with `1 <= s <= k`; k is 3 s by default."""
    s = whole_number("the degree s", s)
    k = 3 * s if k is None else whole_number("k", k)
    if s > k:
        raise InputError(f"a polynomial of degree s = {s} needs at least as many quadrature nodes; k = {_count(k)}")
    if s > MAX_DEGREE or k > MAX_NODES:
        raise InputError(
            f"s = {_count(s)} and k = {_count(k)} are more than double precision can use: the degree s goes up to "
            f"{MAX_DEGREE} (order {2 * MAX_DEGREE}), the quadrature nodes k up to {MAX_NODES}"
        )
    return k, s


def _count(n: int) -> str:
    return str(n) if abs(n) < 10**9 else "more than 10^9"


def tables(k: int, s: int) -> Tables:
    """Gauss' formula with k nodes (order 2k) and s basis polynomials at them, rounded from extended precision.

    The arrays are new ones each time: JAX caches conversions by the identity of an array, and could give back one that
    was rounded to single precision elsewhere in the same process.
    """
    return Tables(*(x.copy() for x in _tables(k, s)))


@functools.cache
def _tables(k: int, s: int) -> Tables:
    c = ((np.polynomial.legendre.leggauss(k)[0] + 1) / 2).astype(np.longdouble)
    for _ in range(3):  # Newton on P_k, whose derivative also gives the weights
        top, slope = basis(k + 1, c)[k], slopes(k + 1, c)[k]
        c = c - top / slope
    b = (2 * k + 1) / (slopes(k + 1, c)[k] ** 2 * c * (1 - c))
    X = np.zeros((s, s))
    X[0, 0] = 0.5
    for j in range(1, s):
        X[j, j - 1], X[j - 1, j] = _xi(j), -_xi(j)
    P, I, dP = (np.stack(f(s, c), axis=1) for f in (basis, integrals, slopes))
    sign = (-1.0) ** np.arange(s)
    # an interior c is rounded to a multiple of 2^-53, so that 1 - c is exact; I_0 = c
    c = np.round(c * 2**53) / 2**53
    c, b, P, dP = _even(1 - c[::-1], c), _even(b[::-1], b), _even(P[::-1] * sign, P), _even(-dP[::-1] * sign, dP)
    I = np.concatenate([c[:, None], _even(-I[::-1, 1:] * sign[1:], I[:, 1:])], axis=1)
    return Tables(*(np.asarray(x, np.float64) for x in (c, b, P, I, dP, X)))


def _even(mirrored: np.ndarray, x: np.ndarray) -> Any:
    """A table rounded to double precision, its second half being the mirror image of the first to the last bit.

    The rounded tables then belong to a symmetric method: their rounding errors change the sign of their effect on
    energy and constraint with the direction of time, and do not accumulate.
    """
    half = x.shape[0] // 2
    middle = (x[half : half + 1] + mirrored[half : half + 1]) / 2 if x.shape[0] % 2 else x[:0]
    return np.concatenate([x[:half], middle, mirrored[x.shape[0] - half :]]).astype(np.float64)


def slopes(s: int, c: Numbers | np.ndarray) -> list[Any]:
    """`P_0'(c), ..., P_{s-1}'(c)` from `L'_{j+1} = L'_{j-1} + (2 j + 1) L_j`."""
    x = 2 * c - 1
    P = basis(s, c)
    slopes = [x * 0, x * 0 + 1]
    for j in range(1, s - 1):
        slopes.append(slopes[j - 1] + _root(2 * j + 1, c) * P[j])
    return [2 * _root(2 * j + 1, c) * slopes[j] for j in range(s)]


def continuation(s: int) -> Any:
    """The (s, s) matrix that continues a polynomial of a step over the next one: `E_ji = int P_j(c) P_i(1 + c) dc`."""
    t = tables(s, s)
    return np.triu(t.weighted.T @ np.stack(basis(s, 1 + t.c), axis=1))


def surprise_continuation(s: int) -> Any:
    """The (s, s) matrix `D` of a better continuation, `gamma_{n+1} = E gamma_n + D (gamma_n - E gamma_{n-1})`.

    This is the continuation, `E` being `continuation(s)`, of the polynomial of degree s + 1 that is nearest to those
    of both steps. Its error is two orders smaller than that of `E gamma_n`.
    """
    t, count = tables(2 * s, s), min(s + 2, 2 * s)
    earlier, last, later = (t.weighted.T @ np.stack(basis(count, shift + t.c), axis=1) for shift in (-1, 0, 1))
    return (later @ np.linalg.pinv(np.concatenate([earlier, last])))[:, s:] - continuation(s)


class NodeValues(NamedTuple):
    """At the k nodes: velocities `du`, `grad U` less the applied force, and the Jacobians of the constraint."""

    du: Any  # (k, n)
    pull: Any  # (k, n)
    G: Any  # a stack of k Jacobians, None without constraints


def evaluate_nodes(system: AbstractSystem, start: PyTree, gamma: Numbers, t: Real, dt: Real, tab: Tables) -> NodeValues:
    """Evaluate the system at the nodes of `u(c h) = q + (low + h I(c) gamma)`; `start` is `(q, low)`."""
    q, low = start
    shape, m = q.shape, system.constraint_count(q)
    du = tab.P @ gamma
    u = q.reshape(-1) + (low.reshape(-1) + dt * (tab.I @ gamma))

    def at(u: Numbers, du: Numbers, c: Real):
        here = u.reshape(shape)
        pull = system.gradient(here, t + c * dt).reshape(-1)
        if system.forced:
            pull = pull - system.applied_force(here, du.reshape(shape), t + c * dt).reshape(-1)
        return pull, system.linearize(here, t + c * dt) if m else None

    pull, jac = jax.vmap(at)(u, du, jnp.asarray(tab.c, u.dtype))
    return NodeValues(du, pull, jac)


class Increments(NamedTuple):
    """Position and momentum after a step, with the parts below their last bit."""

    q: Any
    p: Any
    low: Compensation


def add_increments(
    system: AbstractSystem, state: State, low: Compensation, dt: Real, bend: Numbers, kick: Numbers
) -> Increments:
    """`q + dt (M^-1 p + bend)` and `p + dt kick`; the low part of the momentum moves the position too."""
    q1, low_q = accumulate(state.q, low.q, dt * system.inverse_mass(state.q, state.p))
    q1, low_q = accumulate(q1, low_q, dt * (bend.reshape(q1.shape) + system.inverse_mass(state.q, low.p)))
    p1, low_p = accumulate(state.p, low.p, dt * kick.reshape(q1.shape))
    return Increments(q1, p1, Compensation(low_q, low_p))


def accumulate(x: PyTree, low: PyTree, increment: Numbers) -> tuple[Any, Any]:
    """`x + low + increment` as a rounded sum and the new low part, with an error of eps^2 only.

    `linalg.add` rounds `low + increment`, by eps times the increment, which would be the only drift of an
    energy-exact method.
    """
    total = x + increment
    moved = total - x
    low = low + ((x - (total - moved)) + (increment - moved))
    rounded = total + low
    return rounded, low - (rounded - total)


def coefficients(tab: Tables, values: Numbers) -> Any:
    """Legendre coefficients (s, ...) of what has the `values` (k, ...) at the nodes: `P^T Omega values`.

    Mirrored nodes are added first, so that rounding is symmetric in time: a bias of a thousandth of an ulp per step
    would be visible as a drift of the energy.
    """
    k, s = tab.P.shape
    half, weights = k // 2, tab.weighted
    mirrored = values[: k - half - 1 : -1] if half else values[:0]
    sums, differences = values[:half] + mirrored, values[:half] - mirrored
    rows = [jnp.tensordot(weights[:half, j], differences if j % 2 else sums, axes=1) for j in range(s)]
    if k % 2:
        rows = [row if j % 2 else row + weights[half, j] * values[half] for j, row in enumerate(rows)]
    return jnp.stack(rows)


def step_speeds(
    system: AbstractSystem, q: Numbers, gamma: Numbers, path: NodeValues, multipliers: Numbers, dt: Real
) -> Any:
    """The natural scale of the velocities of a step, `(n,)`: of the terms whose sum is `gamma`.

    `multipliers` are those at the nodes, `(k, m)`, or `(m,)`; constraint forces may cancel, so their parts count.

    Positions along the step are rounded in units of q, which turns G. In a long chain, far from the origin and under a
    large tension, that changes constraint forces by more than their own rounding.
    """
    pull = jnp.abs(velocities(system, q, path.pull))
    if path.G is not None:
        pull = pull + reaches(system, q, path.G, multipliers)
        if not system.dense_rows(q):
            pull = pull + jnp.abs(velocities(system, q, _turned(system, q, multipliers).reshape(1, -1)))
    return speed_sizes(system, q, jnp.max(jnp.abs(gamma), axis=0) + jnp.abs(dt) * jnp.max(pull, axis=0))


def _turned(system: AbstractSystem, q: Numbers, multipliers: Numbers) -> Any:
    """The change of `G^T lambda` when every coordinate moves by its size, neighbors in opposite directions."""
    sign = (-1.0) ** np.arange(q.shape[0]).reshape(-1, *(1,) * (q.ndim - 1))
    lam = multipliers if multipliers.ndim == 1 else jnp.mean(multipliers, axis=0)
    return jax.jvp(lambda x: system.linearize(x).transpose(lam), (q,), (sign * jnp.abs(q),))[1]


def step_norm(defect: PyTree, rows: Numbers, jacobians: PyTree, speeds: Numbers) -> Any:
    """The largest of `|defect_j| / speed_j` and `|row_i| / sum_j |G_ij| speed_j`; `rows` is `(..., m)`."""
    norm = jnp.max(jnp.abs(defect) * inverse_sizes(speeds))
    if jacobians is None:
        return norm
    return jnp.maximum(norm, relative(rows, jnp.max(row_sizes(jacobians, speeds), axis=0)))


def shorten(args: PyTree, fraction: Real) -> Any:
    """The arguments `(system, q, low, p, t, dt)` of the equations of a step, with a fraction of dt."""
    return (*args[:5], fraction * args[5], *args[6:])


def unknown_speeds(args: PyTree, x: PyTree) -> Any:
    """The sizes of the unknowns of a step, `(gamma, multipliers)`; see `speed_sizes`."""
    system, q = args[:2]
    gamma, multipliers = x
    each = jnp.max(jnp.abs(gamma), axis=0)
    if gamma.shape[1] == q.size:
        each = speed_sizes(system, q, each)
    else:  # velocities and forces
        weights = jnp.ravel(system.mass_form(q).weights(q))
        forces = coordinate_sizes(each[q.size :], 1.0 / weights, MIN_SPEED_FRACTION)
        each = jnp.concatenate([speed_sizes(system, q, each[: q.size]), forces])
    largest = jnp.max(jnp.abs(multipliers), axis=0) if multipliers.ndim > 1 else jnp.abs(multipliers)
    return jnp.broadcast_to(each, gamma.shape), jnp.broadcast_to(largest, multipliers.shape)


def solve_step(
    residual: Callable[[Any, Any], Any],
    correction: Callable[..., tuple[Any, Any]],
    start: PyTree,
    args: PyTree,
    *,
    iteration: str,
    max_iterations: int,
    prepare: Callable[..., Any] | None = None,
    evaluate: Callable[[Any, Any], Any] | None = None,
    fresh: Callable[[Any], Any] | None = None,
    noise: Callable[[Any, Any], Any] | None = None,
    ahead: bool = False,
) -> tuple[Iterated, Any]:
    """Repeat `x <- x - dx` with `(dx, norm) = correction(x, args)` down to round-off; the derivative is implicit.

    `x` is an array or a tree of arrays; compiled steps are faster if arrays are not concatenated.

    With `prepare`, its result at the start (mostly factors) serves every sweep: `correction(x, args, prepared)`.
    With `evaluate`, its result at each x is computed once and passed on: `prepare(x, args, evaluated)`,
    `correction(x, args, evaluated, prepared)`. The second result is its value at the solution, without derivatives
    (see `known_value`).

    With `ahead` the iteration also ends after a sweep that leaves no error even if it contracted less than the one
    before, by `CONTRACTION_MARGIN`.

    `norm` is relative to the unknowns. Newton's method replaces `dx` by
    `J^-1 residual(x)` with the Jacobian from forward mode.

    `fresh(args)` is a guess that does not depend on earlier steps: where the iteration fails, damped Newton iterations
    begin there (`linalg.careful`). `args` is `(system, q, low, p, t, dt)`. `noise(x, args)` is the round-off of the
    equations that does not come from that of x.
    """

    def solve(full: PyTree):
        x, args = full
        dtype = jax.tree.leaves(x)[0].dtype
        eps = jnp.finfo(dtype).eps
        evaluated = lambda x: () if evaluate is None else (evaluate(x, args),)
        first = evaluated(x)
        prepared = () if prepare is None else (prepare(x, args, *first),)

        def sweep(loop: PyTree, _: PyTree):
            x, here, previous, _ = loop
            dx, norm = correction(x, args, *here, *prepared)
            if iteration == "newton":
                flat, unflatten = ravel_pytree(x)
                equations = lambda y: ravel_pytree(residual(unflatten(y), args))[0]
                dx = unflatten(Dense(jax.jacfwd(equations)(flat)).factor().solve(equations(flat)))
            small = (norm <= SMALL) & jnp.isfinite(previous)
            left = jnp.where(small, CONTRACTION_MARGIN * norm / previous, 1.0) * norm if ahead else norm
            x = jax.tree.map(jnp.subtract, x, dx)
            return x, evaluated(x), norm, left

        # The norm is that before the last correction, which leaves less by its factor of contraction; the plain fixed
        # point improves gamma and lambda in turn, so that its norm does not fall in every sweep.
        unknown = (x, first, *(jnp.asarray(jnp.inf, dtype),) * 2)
        if iteration == "fixed-point":
            options = {"tol": eps, "floor": 64 * eps, "stall": 0.8, "limit": LINEAR_LIMIT * eps}
        else:
            options = {"tol": 2 * eps, **stall_rule(dtype, quadratic=False)}
        options |= {"max_iterations": max_iterations, "foreseen": lambda loop: loop[3] <= options["tol"]}
        done = iterate(sweep, lambda loop: ((), loop[2]), unknown, **options)
        converged, found = done.converged, (done.x[0], done.residual, done.iterations, done.x[1])
        flat, unflatten = ravel_pytree(x)
        level = accepted_stall(dtype)
        if fresh is not None and is_careful(flat.size):
            converged, found = rescue(
                converged,
                found,
                lambda y, fraction: ravel_pytree(residual(unflatten(y), shorten(args, fraction)))[0],
                ravel_pytree(fresh(args))[0],
                lambda y, norm, k: (unflatten(y), norm, done.iterations + k, evaluated(unflatten(y))),
                sizes=lambda y: ravel_pytree(unknown_speeds(args, unflatten(y)))[0],
                rows=None
                if noise is None
                else lambda y, noise=noise: ravel_pytree(noise(unflatten(y), args))[0] / level,
            )
        x, *info, last = found
        return x, (*info, converged, last)

    x, (norm, k, converged, last) = implicit_root(solve, lambda x, full: residual(x, full[1]), (start, args))
    return Iterated(x, norm, k, converged), last[0] if last else None
