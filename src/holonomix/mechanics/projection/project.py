"""Projection to consistent states, and checks of initial states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core import forks
from ...core.checks import is_traced, number, one_of, real_array, whole_number
from ...core.errors import (
    ConstraintRankError,
    ConvergenceError,
    InconsistentStateError,
    InputError,
    NonFiniteError,
    ShapeError,
)
from ...core.types import Array, ArrayLike, Numbers, Real, known_array
from ...trace.compiled import compiled_for_one_run, rarely_collecting
from ...trace.functions import user_function_errors
from ...trace.signatures import Parametrized
from ..abstract import AbstractSystem
from ..mass import DenseMass, ParameterMass, PositionMass, check_shape
from ..problem import Problem
from .nearest import constraint_sizes, nearest_point
from .solvers import direct_momenta, momentum_sizes, singular_pivot
from .terms import term_sizes

__all__ = [
    "as_array",
    "as_state_arrays",
    "check_constant_mass",
    "check_functions",
    "check_rank",
    "check_start",
    "check_system",
    "project",
]

# Above this many rows the rank is estimated from the pivots; naming the rows would take a dense eigenproblem.
LARGE_RANK_CHECK = 600
DEPENDENT = 1e-10  # rows are dependent if an eigenvalue of G M^-1 G^T, scaled to a unit diagonal, is below this


def check_system(system: object) -> None:
    """Raise unless `system` is a System or a StiffSystem."""
    if not isinstance(system, AbstractSystem):
        hint = "; give problem.system" if isinstance(system, Problem) else ""
        raise InputError(f"system must be a System or a StiffSystem, not {type(system).__name__}{hint}")


def as_state_arrays(q: ArrayLike, p: ArrayLike) -> tuple[Array, Array]:
    """q and p as floating point arrays of one shape."""
    q, p = as_array("q", q), as_array("p", p)
    if q.shape != p.shape:
        raise ShapeError(f"q has shape {q.shape} and p has shape {p.shape}; they must be the same")
    return q, p


def as_array(name: str, x: ArrayLike) -> Array:
    """`x` as a floating point array of real numbers."""
    array = real_array(name, x)
    if not array.size:
        raise InputError(f"{name} must be an array of real numbers; it has no entries (shape {array.shape})")
    return array


@rarely_collecting()
def project(
    system: AbstractSystem,
    q: ArrayLike,
    p: ArrayLike,
    t: ArrayLike = 0.0,
    *,
    max_iterations: int = 200,
    redundant: str | None = None,
) -> tuple[Any, Any]:
    """The nearest consistent state: q moved onto the manifold (in the mass metric), p onto its tangent space.

    Constraints that depend on each other are an error that names them, unless `redundant="min-norm"` is chosen.

    Works under `jit`, `vmap` and `grad`. Outside of a transformation a failure raises `ConvergenceError` with the
    constraint residual that was left.
    """
    if forks.forked:
        raise forks.fork_error()
    check_system(system)
    whole_number("max_iterations", max_iterations)
    one_of("redundant", redundant, (None, "min-norm"))
    q, p = as_state_arrays(q, p)
    now = known_array(t if is_traced(t) else number("t", t), q.dtype)
    if not system.has_constraints:
        return q, p
    if not is_traced(system, q, p):
        _check_finite(q, p)
        with user_function_errors("mass", q, "(q)"):
            system.mass_form(q).check(q)
    system = system.prepare(q)
    q1, p1, residual, converged, rank = _nearest(system, q, p, now, max_iterations, redundant)
    if not is_traced(q1, p1):
        if not bool(converged):
            if redundant is None:
                check_rank(system, q, now)
            raise ConvergenceError(
                f"projection onto the manifold did not converge: max|g| = {float(residual):.3g} is left after "
                f"{max_iterations} iterations; start nearer to the manifold"
            )
        if redundant is None:
            _judge_rank(system, q1, *map(np.asarray, rank))
    return q1, p1


@compiled_for_one_run
def _nearest(
    system: AbstractSystem, q: Numbers, p: Numbers, t: Real, max_iterations: int, redundant: str | None
) -> tuple[Any, ...]:
    check_functions(system, q, p, t)
    here, converged = nearest_point(system, q, t, max_iterations, redundant is not None)
    there = direct_momenta(system, here, p, t, redundant).p
    rank = gram_of(system, here, t) if redundant is None else ()
    return here, there, jnp.max(jnp.abs(system.constraint(here, t))), converged, rank


def rounding_sizes(system: AbstractSystem, q: Numbers, t: Real) -> Any:
    """The scale of rounding errors inside each row of g: they are at most `eps` times this (`term_sizes`)."""
    return term_sizes(lambda x: system.constraint(x, t), q)


def local_sizes(system: AbstractSystem, q: Numbers, p: Numbers, t: Real, dt: Real) -> Any:
    """The natural scale of rows where positions are zero: the gradient times a radius of curvature, or times a step.

    Neither depends on the origin.
    """
    mass = system.mass_form(q)
    way = jnp.cos(jnp.arange(q.size)).reshape(q.shape) / mass.weights(q)
    rows, bends = jax.jvp(lambda x: system.linearize(x, t).todense(), (q,), (way,))
    square, bend = (jnp.sum(mass.right(q, x) * x, axis=1) for x in (rows, bends))
    unit = jnp.sqrt(jnp.sum(way * mass.momentum(q, way)))
    radius = jnp.where(bend > 0, unit * jnp.sqrt(square / jnp.where(bend > 0, bend, 1.0)), 0.0)
    move = jnp.abs(dt * system.velocity(q, p)) + dt**2 * jnp.abs(system.inverse_mass(q, system.force(q, p, t)))
    step = jnp.broadcast_to(jnp.max(move * mass.weights(q)) / mass.weights(q), q.shape)
    return jnp.maximum(jnp.sqrt(square) * radius, system.row_sizes(q, system.linearize(q, t), step))


def check_rank(system: AbstractSystem, q: Numbers, t: Real = 0.0) -> None:
    """Raise `ConstraintRankError`, naming the rows, if constraints are redundant or singular at q."""
    if not system.has_constraints:
        return
    _judge_rank(system, q, *map(np.asarray, _rank(system, q, jnp.asarray(t, q.dtype))))


def _judge_rank(system: AbstractSystem, q: Numbers, gram: np.ndarray, bend: np.ndarray) -> None:
    """Raise if the result of `gram_of` shows dependent rows."""
    if not gram.ndim:
        if not gram > singular_pivot(q.dtype):
            raise ConstraintRankError(
                f"the {system.constraint_count(q)} constraints are redundant or singular at the start: the smallest "
                f"relative pivot of G M^-1 G^T is {gram:.2g}; check a smaller model of the same kind, whose rows can "
                "be named"
            )
        return
    diagonal = np.sqrt(np.clip(np.diag(gram), 0.0, None))
    # a gradient counts as zero if it is zero to within one ulp of q
    flat = diagonal <= 16 * np.finfo(gram.dtype).eps * bend
    if np.any(flat):
        k = int(np.argmax(flat))
        raise ConstraintRankError(
            f"{_row_name(system, q, k)} has a zero gradient at the start: it cannot hold a velocity (write |r|^2 - L^2 "
            "rather than a squared expression, and start away from the singular point)"
        )
    scaled = gram / np.outer(diagonal, diagonal)
    values, vectors = np.linalg.eigh(scaled)
    if values[0] > DEPENDENT:
        return
    weights = np.abs(vectors[:, values <= DEPENDENT]).max(axis=1)
    involved = [int(i) for i in np.flatnonzero(weights > 1e-3 * weights.max())]
    condition = np.inf if values[0] <= 0 else float(values[-1] / values[0])
    rank = int(np.sum(values > DEPENDENT))
    raise ConstraintRankError(
        f"the {len(values)} constraints have rank {rank} at the start: {_row_names(system, q, involved)} depend on "
        "each other "
        f'(condition number {condition:.2g} of G M^-1 G^T); remove a redundant row, or choose redundant="min-norm", '
        'as in RATTLE(Newton(redundant="min-norm"))'
    )


def gram_of(system: AbstractSystem, q: Numbers, t: Real) -> tuple[Array, Array]:
    """`G M^-1 G^T` as a matrix, and the change of each row of G over a distance of the size of q.

    For many rows, the smallest pivot of the matrix instead of both.
    """
    if system.constraint_count(q) > LARGE_RANK_CHECK:
        jac = system.linearize(q, t)
        pivot = system.gram(q, jac, jac).factor(symmetric=True).pivot
        return pivot, pivot
    mass = system.mass_form(q)
    way = jnp.max(jnp.abs(q)) * jnp.cos(jnp.arange(q.size)).reshape(q.shape)
    rows, bends = jax.jvp(lambda x: system.linearize(x, t).todense(), (q,), (way,))
    gram, size = (mass.right(q, x) @ x.T for x in (rows, bends))
    return gram, jnp.sqrt(jnp.clip(jnp.diag(size), 0.0))


_rank = compiled_for_one_run(gram_of)


def _check_finite(q: Numbers, p: Numbers) -> None:
    for name, x in (("q", q), ("p", p)):
        bad = int(np.sum(~np.isfinite(np.asarray(x))))
        if bad:
            raise NonFiniteError(f"{name} has {bad} entries that are NaN or infinite")


def check_functions(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> None:
    """Raise unless the user's functions can be called and differentiated at this state.

    Only shapes are evaluated, so the check costs nothing in compiled programs.
    """
    extra = "" if system.params is None else ", params"
    with user_function_errors("potential", q, f"(q{extra})", system.params):
        returned = jax.eval_shape(system.potential, q, t).shape
    if returned != ():
        raise ShapeError(f"the potential must return a number; it returned an array of shape {returned}")
    with user_function_errors("gradient of the potential", q, f"(q{extra})", system.params):
        jax.eval_shape(system.gradient, q, t)
    if system.has_constraints:
        _check_constraint(system, q, t, f"(q{', t' if system.rheonomic else ''}{extra})")
    if system.force_fn is not None:
        own = extra if isinstance(system.force_fn, Parametrized) else ""
        with user_function_errors("force", q, f"(q, v, t{own})", system.params if own else None):
            force = lambda *state: jnp.asarray(system.applied_force(*state))
            returned = jax.eval_shape(force, q, p, known_array(t, q.dtype)).shape
        if returned != q.shape:
            raise ShapeError(f"the force must have the shape of q, {q.shape}; it returned shape {returned}")


def _check_constraint(system: AbstractSystem, q: Numbers, t: Real, form: str) -> None:
    def g(x: Numbers):
        return system.constraint(x, t)

    with user_function_errors("constraint", q, form, system.params):
        shape = jax.eval_shape(g, q).shape
    if len(shape) != 1:
        hint = "use jnp.stack or jnp.array([...])"
        raise ShapeError(f"the constraint must return a 1-D array; it returned shape {shape} ({hint})")
    if shape[0] == 0:
        raise InputError("the constraint has 0 rows; leave it out (constraint=None) if nothing is constrained")
    if shape[0] > q.size:
        raise InputError(f"{shape[0]} constraints on {q.size} coordinates leave nothing to move")
    with user_function_errors("derivative of the constraint", q, form):
        jax.eval_shape(lambda x: jax.vjp(g, x)[1](jnp.zeros(shape, q.dtype)), q)


def check_start(
    system: AbstractSystem,
    q: Numbers,
    p: Numbers,
    t: Real = 0.0,
    *,
    dt: Real = 0.0,
    tolerance: float | None = None,
    redundant: bool = False,
) -> None:
    """Raise unless an initial state is finite, consistent and not singular; `redundant` accepts dependent rows.

    `tolerance` is relative to the natural scale of each row (`linalg.scales`): 1e-8, or what single precision can hold.
    With the step `dt`, the scale of positions at zero is the distance that a step moves them.
    """
    eps = float(jnp.finfo(q.dtype).eps)
    tolerance = max(1e-8, 64 * eps) if tolerance is None else tolerance
    _check_finite(q, p)
    *found, mass, gram, bend = _evaluate_start(system, q, p, q.dtype.type(t), redundant)
    if mass is not None:
        mass.check(q)
    potential, gradient, g, hidden, sizes, speeds = (np.asarray(x) for x in found)
    for name, x in (("potential", potential), ("gradient of the potential", gradient)):
        if not np.all(np.isfinite(x)):
            raise NonFiniteError(
                f"the {name} is not finite at the start: {x.reshape(-1)[:6]}; start elsewhere, or look for "
                "a logarithm, root or quotient that has no value or slope there"
            )
    if not g.size:
        return
    if not np.all(np.isfinite(g)):
        raise NonFiniteError(
            f"the constraint is not finite at the start: rows {np.flatnonzero(~np.isfinite(g)).tolist()}"
        )
    off = np.abs(g) > tolerance * sizes
    if np.any(off) and len(g) <= LARGE_RANK_CHECK:
        now = known_array(t, q.dtype)
        off &= np.abs(g) > 64 * eps * np.asarray(_rounding_sizes(system, q, now))
        if np.any(off):
            off &= np.abs(g) > 64 * eps * np.asarray(_local_sizes(system, q, p, now, known_array(dt, q.dtype)))
    if np.any(off):
        k = int(np.argmax(np.where(off, np.abs(g), 0.0)))
        raise InconsistentStateError(
            f"q is not on the manifold: {_row_name(system, q, k)} is {g[k]:.6g} instead of 0; "
            f"use `q, p = {_project_call(system, t)}` to move it there"
        )
    if not redundant:
        _judge_rank(system, q, np.asarray(gram), np.asarray(bend))
    off = np.abs(hidden) > tolerance * speeds
    if np.any(off):
        k = int(np.argmax(np.where(off, np.abs(hidden), 0.0)))
        rate = "G v + dg/dt, with v = M^-1 p, which moving constraints require," if system.rheonomic else "G M^-1 p"
        raise InconsistentStateError(
            f"p is not tangent to the manifold: row {k} of {rate}{_of_name(system, q, k)} is {hidden[k]:.6g} "
            f"instead of 0; use `q, p = {_project_call(system, t)}` to correct it"
        )


def _project_call(system: AbstractSystem, t: Real) -> str:
    """The call that makes a start consistent; moving constraints are met at the time of the start."""
    now = f", t={float(t):g}" if system.rheonomic and float(t) != 0 else ""
    return f"hx.project(system, q, p{now})"


def _row_name(system: AbstractSystem, q: Numbers, k: int) -> str:
    """`constraint 3`, or the name that the user gave."""
    return str(system.constraint_rows(q)[k])


def _of_name(system: AbstractSystem, q: Numbers, k: int) -> str:
    name = _row_name(system, q, k)
    return "" if name == f"constraint {k}" else f" ({name})"


def _row_names(system: AbstractSystem, q: Numbers, numbers: list[int]) -> str:
    names = [_row_name(system, q, k) for k in numbers]
    if all(name == f"constraint {k}" for name, k in zip(names, numbers, strict=True)):
        return f"rows {numbers}"
    return "; ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


_rounding_sizes = compiled_for_one_run(rounding_sizes)
_local_sizes = compiled_for_one_run(local_sizes)


@compiled_for_one_run
def _evaluate_start(system: AbstractSystem, q: Numbers, p: Numbers, t: Real, redundant: bool) -> tuple[Any, ...]:
    """All values that `check_start` needs, in one compiled call.

    Potential, gradient, constraint, hidden constraint and the natural scales of both; the mass if it depends on q; and
    the result of `gram_of`, unless rows may be `redundant`.
    """
    mass = None
    if system.position_mass:
        with user_function_errors("mass", q, "(q)"):
            mass = system.mass_form(q)
            if isinstance(mass, PositionMass):
                mass = DenseMass(check_shape(mass.matrix_at(q), q), None)
    check_functions(system, q, p, t)
    first = system.potential_and_gradient(q, t)
    if not system.has_constraints:
        return *first, *(jnp.zeros(0),) * 4, mass, None, None
    held = system.constraint(q, t), system.hidden_constraint(q, p, t)
    rank = (None, None) if redundant else gram_of(system, q, t)
    return *first, *held, constraint_sizes(system, q, t), speed_sizes(system, q, p, t), mass, *rank


def check_constant_mass(system: AbstractSystem, q: Numbers) -> None:
    """Check a constant mass: it must be positive and fit q. One check serves every initial state."""
    values = system.params if isinstance(system.mass, ParameterMass) else system.mass
    if not system.position_mass and not is_traced(values):
        with jax.ensure_compile_time_eval():  # its numbers are known inside `jit` too
            system.mass_form(q).check(q)


def speed_sizes(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    """The natural scale of the hidden constraint: of the velocity, or of the speed that forces give over the size of q.

    The second avoids comparing the rounding error of a zero momentum with itself.
    """
    fall = jnp.sqrt(jnp.abs(system.inverse_mass(q, system.gradient(q, t)) * q))
    own = momentum_sizes(system, q, p, t)
    return jnp.maximum(own, system.row_sizes(q, system.linearize(q, t), fall))
