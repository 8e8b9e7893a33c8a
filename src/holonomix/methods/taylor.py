"""Taylor methods: the power series of the solution, with a fixed step or one chosen from its coefficients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import flag
from ..core.errors import InputError, MethodError
from ..core.status import Status
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation, add
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import AbstractSolver, Newton
from ..trace.taylor import Series, SeriesError, SeriesProgram, in_two_forms, loop
from ..trace.taylor.arithmetic import over, times
from ..trace.taylor.series import Order
from .base import EXPLICIT, AbstractMethod, Path, Traits, solver_report, status_where
from .kick_drift import PhasePoint
from .rounding import conserved_energy, correct_energy

MAX_STEP = 1e3  # of TaylorAdaptive, in units of dt: the limit where the series has no higher coefficients


class SolutionSeries(NamedTuple):
    """Normalized Taylor coefficients of q and p in units of a time step, lowest first: `order + 1` arrays each."""

    q: Sequence[Any]
    p: Sequence[Any]


def solution_series(
    system: AbstractSystem, q: Numbers, p: Numbers, t: Real, order: int, unit: Real = 1.0
) -> SolutionSeries:
    r"""The series of the solution of `q' = H_p`, `p' = F - G^T lambda` through (q, p), up to `order`.

    Time is measured in units of `unit`, so that coefficients stay of moderate size whatever the unit of time is.

    The multipliers are a series too. Coefficient n + 2 of `g(q(t), t)` must vanish. It depends linearly on `lambda^[n]`
    through `p^[n+1]` and `q^[n+2]`, with the matrix `-G M^-1 G^T unit^2/((n + 1)(n + 2))` evaluated at (q, p). Evaluate
    this coefficient with `lambda^[n] = 0`, and solve for `lambda^[n]`; one factorization serves all orders.

    Raises `MethodError` if a function of the system has no Taylor recurrence.
    """
    arrays, static = eqx.partition(system, eqx.is_array)
    leaves, tree = jax.tree.flatten(arrays)

    def form(looped: bool) -> Any:
        def run(q: Numbers, p: Numbers, t: Real, unit: Real, *leaves: Numbers) -> list[Any]:
            whole = eqx.combine(jax.tree.unflatten(tree, leaves), static)
            try:
                return _coefficients(whole, q, p, t, order, unit, looped)
            except SeriesError as error:
                raise MethodError(f"Taylor series: {error}") from error

        return run

    t, unit = jnp.asarray(t, q.dtype), jnp.asarray(unit, q.dtype)
    name = f"Taylor series of order {order}"
    found = in_two_forms(name, form(False), form(True), [q] * (order + 1) + [p] * (order + 1), q, p, t, unit, *leaves)
    return SolutionSeries(found[: order + 1], found[order + 1 :])


def _coefficients(
    system: AbstractSystem, q: Numbers, p: Numbers, t: Real, order: int, unit: Real, looped: bool
) -> list[Any]:
    qs, ps, clock = Series(q), Series(p), Series(t, unit)
    units = jnp.broadcast_to(unit, q.shape)
    velocity = SeriesProgram(lambda q, p: [system.velocity(q, p)], [qs, ps])

    def integrate(slope: Numbers | None, n: Order) -> Any:
        """Coefficient n + 1 of a series from coefficient n of its derivative."""
        return jnp.zeros_like(q) if slope is None else times(slope, over(units, _number(n + 1)))

    if not system.has_constraints:
        force = SeriesProgram(lambda q, p, t: [system.force(q, p, t)], [qs, ps, clock])
        programs = (velocity, force)

        def advance(n: Order) -> None:
            """Coefficient n of the slopes, and so coefficient n + 1 of q and p."""
            slopes = velocity.advance(n) + force.advance(n)
            for series, slope in zip((qs, ps), slopes, strict=True):
                series.put(n + 1, integrate(slope, n))

    else:

        def constrained(q: Numbers, p: Numbers, multipliers: Numbers, t: Real) -> list[Any]:
            _, pull = jax.vjp(lambda x: system.constraint(x, t), q)
            return [system.force(q, p, t) - pull(multipliers)[0]]

        jac = system.linearize(q, t)
        gram = system.gram(q, jac, jac)
        factor = (gram.factor_redundant if system.redundant else gram.factor)(symmetric=True)
        multipliers = Series(system.multipliers(q, p, t))
        rates = jnp.broadcast_to(1.0 / (unit * unit), multipliers.shape)
        force = SeriesProgram(constrained, [qs, ps, multipliers, clock])
        constraint = SeriesProgram(lambda q, t: [system.constraint(q, t)], [qs, clock])
        programs = (velocity, force, constraint)

        def follow(n: Order) -> None:
            """Coefficient n + 1 of p and n + 2 of q from what is known of the multipliers."""
            ps.put(n + 1, integrate(force.advance(n)[0], n))
            qs.put(n + 2, integrate(velocity.advance(n + 1)[0], n + 1))

        def advance(n: Order) -> None:
            if not (isinstance(n, int) and n == 0):
                multipliers.put(n, None)
                follow(n)
                (residual,) = constraint.advance(n + 2)
                if residual is not None:
                    multipliers.put(n, factor.solve(times(residual, times(rates, _number((n + 1) * (n + 2))))))
            follow(n)
            constraint.advance(n + 2)

        qs.put(1, integrate(velocity.advance(0)[0], 0))
        constraint.advance(1)

    first = min(order, 2) if looped else order
    for n in range(first):
        advance(n)
    if looped:
        loop(programs, advance, first, order, order + 2)
    return [*qs.terms[: order + 1], *ps.terms[: order + 1]]


def _number(n: Order) -> Any:
    """An order as a factor; inside a loop it is an array."""
    return float(n) if isinstance(n, int) else n


def _increment(terms: Sequence[Any], h: Real) -> Any:
    """`sum_{n >= 1} c[n] h^n` by Horner's rule, smallest terms first."""
    total = terms[-1]
    for n in reversed(range(1, len(terms) - 1)):
        total = terms[n] + h * total
    return h * total


def _advance(
    system: AbstractSystem,
    solver: AbstractSolver | None,
    series: SolutionSeries,
    state: State,
    low: Compensation,
    h: Real,
    t1: Real,
) -> tuple[State, Compensation, Report]:
    """The state at t1, a step of h units ahead, brought back to the manifold where there is a solver for that."""
    point = PhasePoint.of(state, low).move(_increment(series.q, h)).kick(_increment(series.p, h))
    if not system.has_constraints or solver is None:
        return point.state(t1, state.n), point.low, Report.ok()
    solve = solver.positions(system, point.q, point.q, t1, t1)
    shift = system.inverse_mass(point.q, system.linearize(point.q, t1).transpose(solve.multipliers))
    point = point.move(-shift)
    tangent = solver.momenta(system, point.q, point.p + point.low.p, t1)
    point = point.kick(-tangent.correction)
    return point.state(t1, state.n), point.low, solver_report(solve, tangent.status)


def _traits(order: int, exact: bool) -> dict[str, Traits]:
    constrained = Traits(
        order, constraint_exact=exact, hidden_exact=exact, treats=(*EXPLICIT, Capability.MOVING, Capability.REDUNDANT)
    )
    return {"free": Traits(order, treats=EXPLICIT), "constrained": constrained}


class Taylor(AbstractMethod):
    r"""`z_{n+1} = sum_{k <= order} z^[k] dt^k` with the normalized Taylor coefficients `z^[k]` of the solution.

    The coefficients come one after the other from `z^[k+1] = f^[k]/(k+1)`, where coefficient k of every operation of f
    follows from lower ones; constrained systems carry their multipliers as a series too. After the step q and p are
    brought back to the manifold, unless `project=False`.
    """

    reference = "Moore 1966; Hairer, Norsett & Wanner 1993 (I.8); Farrell 2009 (3.3)"
    family = "classical"

    derivatives: int = eqx.field(static=True)
    solver: AbstractSolver | None

    def __init__(self, order: int = 4, project: bool = True, solver: AbstractSolver | None = None):
        if isinstance(order, bool) or not isinstance(order, int) or not 1 <= order <= 40:
            raise InputError(f"order must be a whole number from 1 to 40, not {order!r}")
        self.derivatives = order
        self.solver = (Newton() if solver is None else solver) if flag("project", project) else None

    @property
    def name(self) -> str:
        return f"Taylor({self.derivatives})"

    @property
    def traits(self) -> Mapping[str, Traits]:
        return _traits(self.derivatives, self.solver is not None)

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        series = solution_series(system, state.q, state.p, state.t, self.derivatives, dt)
        return _advance(system, self.solver, series, state, carry, 1.0, state.t + dt)


class TaylorAdaptive(AbstractMethod):
    r"""Taylor series of high order with a step chosen from the last coefficients, to the tolerance `tol`.

        N = ceil(1 - ln(tol)/2)        rho = min_{n = N-1, N} (|q|/|q^[n]|)^(1/n)        h = rho exp(-2 - 0.7/(N - 1))

    (Jorba & Zou 2005, section 3; maximum norms, `|q|` enlarged by `|dt q'|` so that a start at the origin has a scale;
    at rest there, the first term of the series that is not zero).
    The error per step is about `tol` relative to q; at the default it is round-off, and sums are compensated. Each step
    removes a part of the rounding error of the energy (`rounding.py`), which would grow by 3e-19 per step of the double
    pendulum. Constrained systems have their multipliers as a series and are brought back to the manifold
    after every step. The step does not depend on `dt` beyond that scale; no step is longer than 1000 `dt`. Between
    steps the Taylor polynomial itself is the dense output.
    """

    reference = "Jorba & Zou 2005; Moore 1966"
    family = "taylor"
    adaptive = True
    tolerance_driven = True
    continuous = True

    tol: float = eqx.field(static=True)
    solver: AbstractSolver | None

    def __init__(self, tol: float = 1e-16, solver: AbstractSolver | None = None):
        if isinstance(tol, bool) or not isinstance(tol, (int, float)) or not 1e-20 <= tol <= 1e-2:
            raise InputError(f"tol must be a number between 1e-20 and 1e-2, not {tol!r}")
        self.tol, self.solver = float(tol), Newton() if solver is None else solver

    @property
    def order(self) -> int:
        """The order of the series, fixed by the tolerance."""
        return math.ceil(1 - math.log(self.tol) / 2)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return _traits(self.order, True)

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        energy = conserved_energy(system, state.q, state.p)
        return Compensation.zeros(state.q), jnp.zeros((), state.q.dtype), energy

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        low, low_t, energy = carry
        series = solution_series(system, state.q, state.p, state.t, self.order, dt)
        h = self._size(series)
        t, low_t = add(jnp.asarray(state.t, h.dtype), low_t, h * dt)
        new, low, report = _advance(system, self.solver, series, state, low, h, t)
        low = correct_energy(system, new.q, new.p, low, energy)
        small = status_where(t == state.t, Status.STEP_UNDERFLOW)
        return State(new.q, new.p, t, state.n), (low, low_t, energy), solver_report(report, small)

    def path(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Path:
        low, low_t, _ = carry
        series = solution_series(system, state.q, state.p, state.t, self.order, dt)

        def at(time: Real) -> tuple[Any, Any, Any]:
            h = (time - low_t) / dt  # the state belongs to the time t + low_t
            q, p = state.q + (low.q + _increment(series.q, h)), state.p + (low.p + _increment(series.p, h))
            return q, p, jnp.asarray(Status.OK, jnp.int32)

        return at

    def _size(self, series: SolutionSeries) -> Any:
        """The step of Jorba & Zou in units of dt."""
        n = self.order
        largest = lambda x: jnp.max(jnp.abs(x))
        scale = largest(series.q[0]) + largest(series.q[1])
        for k in range(2, n - 1):  # a start at rest at the origin has the size of its first term that is not zero
            scale = jnp.where(scale > 0, scale, largest(series.q[k]))
        h = jnp.asarray(MAX_STEP, scale.dtype)
        for k in (n - 1, n):
            top = largest(series.q[k])
            radius = jnp.exp(jnp.log(scale / jnp.where(top > 0, top, scale)) / k)
            h = jnp.minimum(h, jnp.where(top > 0, radius * math.exp(-2 - 0.7 / (n - 1)), h))
        return h

    def reverse(self, system: AbstractSystem, state: State, carry: PyTree) -> tuple[State, Any]:
        low, low_t, energy = carry
        back = State(state.q, -state.p, state.t, state.n)
        return back, (low.reversed(), -low_t, energy)


VARIANTS = {"Taylor": (lambda: Taylor(2), lambda: Taylor(6), lambda: Taylor(4, project=False))}
