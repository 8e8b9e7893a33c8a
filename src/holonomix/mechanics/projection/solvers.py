"""Multiplier solvers: the Lambda that puts a position on the manifold and a momentum on its tangent space.

Position problem: given the reference `q` (where the directions `M^-1 G(q)^T` are taken) and a trial position `Q`, find
`Lambda` with `g(Q - M^-1 G(q)^T Lambda) = 0`. Momentum problem: find `mu` with `G(q) M^-1 (p - G(q)^T mu) = 0`. The
solvers differ in the iteration; the result and its derivative (implicit function theorem) are the same.

Redundant rows make both problems singular. With `redundant="min-norm"` rows that depend on others are skipped and the
multipliers of least norm are reported; the matrix is then `G(q) M^-1 G(q)^T` for every solver.

By default an iteration runs down to round-off, measured against `eps sum_j |G_ij Q_j|` (`linalg.scales`); `tol` asks
for a fixed bound on `max|g|` instead, in the units of g.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ...core.checks import described, is_plain_number, is_traced, one_of, real_array, short_repr, whole_number
from ...core.errors import InputError
from ...core.status import Status
from ...core.types import Index, Numbers, Real
from ...linalg import implicit_root, iterate
from ...linalg.careful import accepted_stall, asked_for_care, is_careful, rescue
from ...linalg.scales import inverse_sizes, stall_rule
from ..abstract import AbstractSystem
from .position_problem import IslandPositionProblem, PositionProblem, island_momenta, position_problem
from .terms import MAX_ROWS_WITH_TERMS, term_sizes

__all__ = ["SOR", "AbstractSolver", "GaussSeidel", "MomentumSolve", "Newton", "PositionSolve", "SymmetricNewton"]

# Below this ratio of a pivot to the diagonal entry it came from, a Gram matrix counts as singular.
SINGULAR_PIVOT = 1e-13


def singular_pivot(dtype: DTypeLike) -> float:
    """The threshold `SINGULAR_PIVOT`, or a larger one for the round-off of single precision."""
    return max(SINGULAR_PIVOT, 64 * float(jnp.finfo(dtype).eps))


# Round-off in multiples of eps and the natural scale of a row.
ROUND_OFF = 1.0
# The residual of a relaxation oscillates, so a stall is accepted only near round-off, in multiples of eps.
RELAXED = 8.0


class PositionSolve(NamedTuple):
    q: Any
    multipliers: Any
    iterations: Any
    residual: Any
    status: Any
    memory: Any


class MomentumSolve(NamedTuple):
    p: Any
    multipliers: Any
    correction: Any  # G^T mu, the change of p
    status: Any


def as_tolerance(tol: Any) -> Any:
    """A tolerance as a runtime value; raises if the floating point type cannot reach it. None means round-off."""
    if tol is None or is_traced(tol):
        return tol
    if isinstance(tol, jax.Array) and not tol.ndim and jnp.issubdtype(tol.dtype, jnp.number):
        tol = float(tol)
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    if not is_plain_number(tol) or not tol > 0:
        raise InputError(f"tol must be a positive number or None, not {short_repr(tol)}")
    if tol < eps:
        raise InputError(
            f"tol = {tol:g} is below the round-off {eps:.2g} of {jnp.result_type(float).name}; "
            "leave tol=None to iterate to round-off, or keep HOLONOMIX_X64 enabled"
        )
    return real_array("tol", tol)


class AbstractSolver(eqx.Module):
    """`positions` and `momenta` solve the two problems; `init` creates the memory that is carried between steps."""

    tol: eqx.AbstractVar[Any]  # a runtime value, or None
    max_iterations: eqx.AbstractVar[int]
    redundant: eqx.AbstractVar[str | None]

    def __check_init__(self) -> None:
        whole_number("max_iterations", self.max_iterations)
        one_of("redundant", self.redundant, (None, "min-norm"))

    def __repr__(self) -> str:
        return described(self)

    @abc.abstractmethod
    def init(self, system: AbstractSystem, q: Numbers, t: Real) -> Any: ...

    @abc.abstractmethod
    def iterate_positions(
        self, system: AbstractSystem, q: Numbers, trial: Numbers, t: Real, t1: Real, memory: PyTree
    ) -> tuple[Any, Any]:
        """`(Lambda, (iterations, residual, converged, memory))`."""

    @abc.abstractmethod
    def momenta(self, system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> MomentumSolve: ...

    def positions(
        self, system: AbstractSystem, q: Numbers, trial: Numbers, t: Real, t1: Real, memory: PyTree = ()
    ) -> PositionSolve:
        """The point of the manifold at time `t1` reached from `trial` along `M^-1 G(q, t)^T`."""
        t, t1 = jnp.asarray(t, q.dtype), jnp.asarray(t1, q.dtype)
        multipliers, (k, residual, converged, memory) = implicit_root(
            _solve_positions,
            _position_residual,
            (system, q, trial, t, t1, (self, memory)),
            partial(_position_factor, self.redundant is not None),
        )
        if self.redundant is not None:
            multipliers = _gram_factor(system, q, t, True).shortest(multipliers)
        q1 = shift_position(system, q, trial, t, multipliers)
        found = jnp.where(system.turns(q, q1, t, t1, self.redundant is None), Status.OTHER_ROOT, Status.OK)
        status = jnp.where(converged, found, Status.NOT_CONVERGED).astype(jnp.int32)
        return PositionSolve(q1, multipliers, k, residual, status, memory)


def shift_position(system: AbstractSystem, q: Numbers, trial: Numbers, t: Real, multipliers: Numbers) -> Any:
    """`trial - M^-1 G(q, t)^T Lambda`."""
    return trial - system.inverse_mass(q, system.linearize(q, t).transpose(multipliers))


def _solve_positions(args: PyTree) -> tuple[Any, Any]:
    *problem, (solver, memory) = args
    multipliers, (k, residual, converged, memory) = solver.iterate_positions(*problem, memory)
    if is_careful(multipliers.size):
        found = (multipliers, residual, k)
        finish = lambda x, norm, sweeps: (x, norm.astype(residual.dtype), k + sweeps)
        system, q, trial, t, t1 = problem
        near = ~system.turns(q, shift_position(system, q, trial, t, multipliers), t, t1, solver.redundant is None)
        rescued, found = _rescue_positions(tuple(problem), solver, converged & near, found, finish)
        converged = converged | rescued
        multipliers, residual, k = found
    return multipliers, (k, residual, converged, memory)


def _rescue_positions(
    problem: tuple[Any, ...], solver: AbstractSolver, converged: Numbers, found: PyTree, finish: Callable[..., Any]
) -> tuple[Any, Any]:
    """Damped Newton iterations if the solver did not converge; multipliers scale with the square of the step."""
    system, q, trial, t, t1 = problem
    few = found[0].size <= MAX_ROWS_WITH_TERMS

    def equations(multipliers: Numbers, fraction: Real):
        near = q + fraction * (trial - q)
        return system.constraint(shift_position(system, q, near, t, multipliers), t + fraction * (t1 - t))

    def rows(multipliers: Numbers):
        here = shift_position(system, q, trial, t, multipliers)
        sizes = system.row_sizes(q, system.linearize(here, t1), jnp.maximum(jnp.abs(here), jnp.abs(q)))
        # accept a residual that no longer decreases if it is round-off of the terms of the constraint, or not larger
        # than the residual at the beginning of the step
        terms = term_sizes(lambda x: system.constraint(x, t1), here) if few else 0.0
        noise = 4 * jnp.finfo(q.dtype).eps * terms
        return jnp.maximum(sizes, (noise + jnp.abs(system.constraint(q, t))) / accepted_stall(q.dtype))

    def accept(multipliers: Numbers, fraction: Real):
        here = shift_position(system, q, q + fraction * (trial - q), t, multipliers)
        return ~system.turns(q, here, t, t + fraction * (t1 - t), solver.redundant is None)

    options = {"rows": rows, "rescale": lambda x, ratio: ratio**2 * x, "dependent_rows": solver.redundant is not None}
    options["accept"] = accept
    return rescue(converged, found, equations, jnp.zeros_like(found[0]), finish, **options)


def _position_residual(multipliers: Numbers, args: PyTree) -> Any:
    system, q, trial, t, t1, _ = args
    return system.constraint(shift_position(system, q, trial, t, multipliers), t1)


class _NegatedFactor(NamedTuple):
    factor: Any

    def solve(self, b: Numbers) -> Any:
        return -self.factor.solve(b)


def _position_factor(redundant: bool, multipliers: Numbers, args: PyTree) -> Any:
    system, q, trial, t, t1, _ = args
    q1 = shift_position(system, q, trial, t, multipliers)
    gram = system.gram(q, system.linearize(q1, t1), system.linearize(q, t))
    return _NegatedFactor(gram.factor_redundant() if redundant else gram.factor())


def _measure(line: PositionProblem | IslandPositionProblem, tol: Real | None) -> tuple[Any, Any, Any]:
    """The residual function of Lambda with its norm, the tolerance, and the unit of `stall_rule`.

    The norm is `max|g|` for a fixed tolerance, and `max |g_i| / sum_j |G_ij Q_j|` for an iteration to round-off.
    """
    sizes = line.row_sizes()
    scale = jax.tree.map(lambda x: inverse_sizes(x) if tol is None else jnp.ones_like(x), sizes)

    def residual(multipliers: PyTree):
        value = line.values(multipliers)
        return value, _largest(jax.tree.map(lambda x, r: jnp.abs(x) * r, value, scale))

    eps = jnp.finfo(jax.tree.leaves(sizes)[0].dtype).eps
    return (residual, ROUND_OFF * eps, 1.0) if tol is None else (residual, tol, _largest(sizes))


def _curvature(line: PositionProblem | IslandPositionProblem) -> Callable[[Any, Any], Any]:
    """The norm of `(J(b) - J(a)) (b - a)` for the rows as functions of Lambda."""
    scale = jax.tree.map(inverse_sizes, line.row_sizes())

    def norm(a: PyTree, b: PyTree):
        along = lambda x: jax.jvp(line.values, (x,), (jax.tree.map(jnp.subtract, b, a),))[1]
        return _largest(jax.tree.map(lambda x, y, r: jnp.abs(x - y) * r, along(b), along(a), scale))

    return norm


def _largest(tree: PyTree) -> Any:
    """The maximum over all arrays of a tree; arrays of one shape are compared side by side first."""
    first, *rest = jax.tree.leaves(tree)
    if any(x.shape != first.shape for x in rest):
        return reduce(jnp.maximum, (jnp.max(x) for x in (first, *rest)))
    return jnp.max(reduce(jnp.maximum, rest, first))


class Newton(AbstractSolver):
    """Newton's method with the full matrix `R = G(Q) M^-1 G(q)^T`, refreshed in every sweep.

    With rigid bodies it keeps `G(q) M^-1 G(q)^T`, from which the rows of bodies are eliminated: more sweeps of a much
    smaller cost. A step that does not converge this way is repeated with the full matrix.
    """

    tol: Any = eqx.field(converter=as_tolerance, default=None)
    max_iterations: int = eqx.field(static=True, default=50)
    redundant: str | None = eqx.field(static=True, default=None)

    def init(self, system: AbstractSystem, q: Numbers, t: Real) -> Any:
        return ()

    def iterate_positions(
        self, system: AbstractSystem, q: Numbers, trial: Numbers, t: Real, t1: Real, memory: PyTree
    ) -> tuple[Any, Any]:
        line = position_problem(system, q, trial, t, t1, self.redundant is None)
        residual, tol, unit = _measure(line, self.tol)
        fixed = None if self.redundant is None else _gram_factor(system, q, t, True)
        chord = fixed is None and line.rigid and not asked_for_care()
        if chord:
            fixed = line.start_factor()

        def body(multipliers: PyTree, value: PyTree):
            return _sum(multipliers, (line.factor(multipliers) if fixed is None else fixed).solve(value))

        options = stall_rule(q.dtype, unit, quadratic=fixed is None)
        if fixed is None and self.tol is None and asked_for_care():
            options["curvature"] = _curvature(line)
        options["polish"] = chord and self.tol is None
        most = max(self.max_iterations, 2 * Newton.max_iterations) if chord else self.max_iterations
        done = iterate(body, residual, line.zero, tol=tol, max_iterations=most, **options)
        return line.natural(done.x), (done.iterations, done.residual, done.converged, memory)

    def momenta(self, system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> MomentumSolve:
        return direct_momenta(system, q, p, t, self.redundant)


class SymmetricNewton(AbstractSolver):
    """SNIP: `R = G(q) M^-1 G(q)^T` is symmetric and factored once per step (Barth, Kuczera, Leimkuhler & Skeel 1995).

    With `frozen=True` the factors are reused over steps and refreshed if a solve takes more than `slow` sweeps.
    """

    tol: Any = eqx.field(converter=as_tolerance, default=None)
    max_iterations: int = eqx.field(static=True, default=100)
    frozen: bool = eqx.field(static=True, default=False)
    slow: int = eqx.field(static=True, default=7)
    redundant: str | None = eqx.field(static=True, default=None)

    def init(self, system: AbstractSystem, q: Numbers, t: Real) -> Any:
        return (self._factor(system, q, t), jnp.asarray(0, jnp.int32)) if self.frozen else ()

    def _factor(self, system: AbstractSystem, q: Numbers, t: Real) -> Any:
        return _gram_factor(system, q, t, self.redundant is not None)

    def iterate_positions(
        self, system: AbstractSystem, q: Numbers, trial: Numbers, t: Real, t1: Real, memory: PyTree
    ) -> tuple[Any, Any]:
        plain = self.redundant is None and not self.frozen
        line = position_problem(system, q, trial, t, t1, plain)
        residual, tol, unit = _measure(line, self.tol)
        if self.frozen:
            factor, refreshed = memory
        else:
            factor, refreshed = line.start_factor() if plain else self._factor(system, q, t), 0

        def body(multipliers: PyTree, value: PyTree):
            return _sum(multipliers, factor.solve(value))

        options = stall_rule(q.dtype, unit, quadratic=False)
        options["polish"] = self.tol is None
        done = iterate(body, residual, line.zero, tol=tol, max_iterations=self.max_iterations, **options)
        if self.frozen:
            stale = done.iterations > self.slow
            fresh = self._factor(system, shift_position(system, q, trial, t, done.x), t1)
            memory = (jax.tree.map(lambda a, b: jnp.where(stale, a, b), fresh, factor), refreshed + stale)
        return line.natural(done.x), (done.iterations, done.residual, done.converged, memory)

    def momenta(self, system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> MomentumSolve:
        return direct_momenta(system, q, p, t, self.redundant)


class SOR(AbstractSolver):
    """Gauss-Seidel with over-relaxation: one multiplier at a time, the correction scaled by `omega`.

    `omega = 1` is SHAKE's own iteration (Ryckaert, Ciccotti & Berendsen 1977); momenta are corrected in the same cyclic
    way, accumulating (Andersen 1983). 1.7 is a good factor for chains.
    """

    omega: Any  # a runtime value: a scan over it compiles once
    tol: Any
    max_iterations: int = eqx.field(static=True)
    redundant: str | None = eqx.field(static=True)

    def __init__(
        self,
        omega: object = 1.7,
        tol: float | None = None,
        max_iterations: int = 20_000,
        redundant: str | None = None,
    ):
        self.omega = real_array("omega", omega)
        if not is_traced(omega) and (self.omega.ndim or not 0 < float(self.omega) < 2):
            raise InputError(f"omega must be a number between 0 and 2 for the relaxation to converge, not {omega}")
        self.tol, self.max_iterations, self.redundant = as_tolerance(tol), max_iterations, redundant

    def init(self, system: AbstractSystem, q: Numbers, t: Real) -> Any:
        return ()

    def iterate_positions(
        self, system: AbstractSystem, q: Numbers, trial: Numbers, t: Real, t1: Real, memory: PyTree
    ) -> tuple[Any, Any]:
        residual, tol, unit = _measure(position_problem(system, q, trial, t, t1, False), self.tol)
        m = system.constraint_count(q)
        directions = system.mass_form(q).right(q, system.linearize(q, t).todense())

        def relax(i: Index, sweep: PyTree):
            here, multipliers = sweep
            value, pull = jax.vjp(lambda x: system.constraint(x, t1), here)
            row = pull(jnp.zeros(m, q.dtype).at[i].set(1.0))[0].reshape(-1)
            change = self.omega * value[i] / (row @ directions[i])
            return here - (directions[i] * change).reshape(q.shape), multipliers.at[i].add(change)

        def body(multipliers: PyTree, value: PyTree):
            here = trial - (multipliers @ directions).reshape(q.shape)
            return jax.lax.fori_loop(0, m, relax, (here, multipliers))[1]

        done = iterate(
            body,
            residual,
            jnp.zeros(m, q.dtype),
            tol=tol,
            floor=RELAXED * jnp.finfo(q.dtype).eps * unit,
            max_iterations=self.max_iterations,
            stall=0.999,
        )
        return done.x, (done.iterations, done.residual, done.converged, memory)

    def momenta(self, system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> MomentumSolve:
        def solve(args: PyTree):
            system, q, p, t, (omega, given) = args
            tol = 4 * jnp.finfo(q.dtype).eps if given is None else given
            gram = system.gram(q, *(system.linearize(q, t),) * 2).todense()
            target = system.hidden_constraint(q, p, t)
            sizes = momentum_sizes(system, q, p, t)
            scale = inverse_sizes(sizes) if given is None else jnp.ones_like(sizes)

            def residual(mu: Numbers):
                left = target - gram @ mu
                return left, jnp.max(jnp.abs(left) * scale)

            def relax(i: Index, mu: Numbers):
                return mu.at[i].add(omega * (target[i] - gram[i] @ mu) / gram[i, i])

            done = iterate(
                lambda mu, _: jax.lax.fori_loop(0, mu.size, relax, mu),
                residual,
                jnp.zeros_like(target),
                tol=tol,
                floor=RELAXED * tol,
                max_iterations=self.max_iterations,
                stall=0.999,
            )
            if not asked_for_care():
                return done.x, done.converged
            # the problem is linear, so a factor solves it where the relaxation is too slow
            factor = _gram_factor(system, q, t, self.redundant is not None)
            regular = factor.pivot > singular_pivot(q.dtype)
            return jnp.where(done.converged, done.x, factor.solve(target)), done.converged | regular

        mu, converged = implicit_root(
            solve,
            _momentum_residual,
            (system, q, p, jnp.asarray(t, q.dtype), (self.omega, self.tol)),
            partial(_momentum_factor, self.redundant is not None),
        )
        status = jnp.where(converged, Status.OK, Status.NOT_CONVERGED).astype(jnp.int32)
        correction = system.linearize(q, t).transpose(mu)
        return MomentumSolve(p - correction, mu, correction, status)


def GaussSeidel(tol: float | None = None, max_iterations: int = 20_000, redundant: str | None = None) -> SOR:
    """SHAKE's own iteration: `SOR` with omega = 1."""
    return SOR(omega=1.0, tol=tol, max_iterations=max_iterations, redundant=redundant)


def _sum(a: PyTree, b: PyTree) -> Any:
    return jax.tree.map(jnp.add, a, b)


def _gram_factor(system: AbstractSystem, q: Numbers, t: Real, redundant: bool = False) -> Any:
    jac = system.linearize(q, t)
    if redundant:
        return system.gram(q, jac, jac).factor_redundant(symmetric=True)
    return system.gram_on_manifold(q, jac).factor(symmetric=True)


def momentum_sizes(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    """The natural scale of each row of the hidden constraint: `sum_j |G_ij| |v_j|`, and `|g_t|` where g moves.

    With a vector potential `v = M^-1 (p - A)` is a difference; the sizes of both parts count.
    """
    v = jnp.abs(system.velocity(q, p))
    v = v + jnp.abs(system.inverse_mass(q, jnp.abs(p))) if system.magnetic else v
    sizes = system.row_sizes(q, system.linearize(q, t), v)
    return sizes + jnp.abs(system.hidden_constraint(q, jnp.zeros_like(p), t)) if system.rheonomic else sizes


def _momentum_residual(mu: Numbers, args: PyTree) -> Any:
    system, q, p, t, _ = args
    return system.hidden_constraint(q, p - system.linearize(q, t).transpose(mu), t)


def _momentum_factor(redundant: bool, mu: Numbers, args: PyTree) -> Any:
    system, q, _, t, _ = args
    return _NegatedFactor(_gram_factor(system, q, t, redundant))


def direct_momenta(
    system: AbstractSystem, q: Numbers, p: Numbers, t: Real = 0.0, redundant: str | None = None
) -> MomentumSolve:
    """The tangent momentum by one linear solve: `P(q) p = p - G^T (G M^-1 G^T)^-1 (G M^-1 p + g_t)`."""
    islands = system.islands(q) if redundant is None else None
    if islands is not None:
        mu, correction, pivot = island_momenta(system, islands, q, p)
    else:
        factor = _gram_factor(system, q, t, redundant is not None)
        mu, pivot = factor.solve(system.hidden_constraint(q, p, t)), factor.pivot
        if redundant is not None:
            mu = factor.shortest(mu)
        correction = system.linearize(q, t).transpose(mu)
    status = jnp.where(pivot > singular_pivot(q.dtype), Status.OK, Status.SINGULAR).astype(jnp.int32)
    return MomentumSolve(p - correction, mu, correction, status)


def accepts_redundant(method: object) -> bool:
    """Whether a solver inside `method` accepts redundant rows."""
    parts = jax.tree.leaves(method, is_leaf=lambda x: isinstance(x, AbstractSolver))
    return any(isinstance(x, AbstractSolver) and x.redundant is not None for x in parts)
