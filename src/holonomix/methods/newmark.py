"""Newmark's methods (gamma = 1/2): implicit, unconditionally stable on linear problems for beta >= 1/4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import PyTree

from ..core.checks import runtime_number
from ..core.status import Status
from ..core.types import ArrayLike, Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation, Iterated, implicit_root, iterate
from ..linalg.careful import is_careful, rescue
from ..linalg.scales import relative, stall_rule
from ..mechanics.abstract import AbstractSystem
from ..mechanics.curvature import curvature
from ..mechanics.stiff import StiffSystem
from .base import AbstractMethod, Traits
from .equations import iteration_report
from .kick_drift import PhasePoint

REFERENCE = "Newmark 1959; Kane, Marsden, Ortiz & West 2000; Tao & Owhadi 2015"


def as_beta(beta: ArrayLike) -> Any:
    """A runtime value between 0 and 1; 1/4 and above gives unconditional linear stability."""
    return runtime_number("beta", beta, 0, 1)


def vanishes(beta: Real) -> bool:
    """Whether beta is known to be zero."""
    return not isinstance(beta, Tracer) and float(beta) == 0.0


class AbstractImplicit(AbstractMethod):
    """Shared by the families of Newmark and of Zhang & Skeel: beta, and a carry of low parts, force and maybe more."""

    position_carry = True

    beta: eqx.AbstractVar[Any]


class Newmark(AbstractImplicit):
    r"""Newmark's method with gamma = 1/2, its nonlinear equations solved to round-off.

        q_{n+1} = q_n + h v_n + h^2/2 ((1 - 2 beta) a_n + 2 beta a_{n+1})
        v_{n+1} = v_n + h/2 (a_n + a_{n+1})                                  a_n = -M^-1 grad V(q_n)

    Symmetric, of order two. It preserves a symplectic form, but the canonical one only after the change of variables
    that `PushforwardNewmark` makes.
    """

    reference = REFERENCE + " (2.1)"
    family = "newmark"

    beta: Any = eqx.field(converter=as_beta, default=0.25)
    max_iterations: int = eqx.field(static=True, default=50)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return dict.fromkeys(("free", "stiff"), Traits(2, symmetric=True, symplectic=vanishes(self.beta)))

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return Compensation.zeros(state.q), system.gradient(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        q, (low, gradient), shift = state.q, carry, self.beta * dt**2
        reach = predictor(system, state, dt, carry, self.beta)
        done = implicit_position(system, q + reach, shift, q + reach, self.max_iterations)
        ahead = system.gradient(done.x)
        end = _move(state, low, reach - shift * system.velocity(q, ahead)).kick(-dt / 2 * (gradient + ahead))
        return end.state(state.t + dt, state.n), (end.low, ahead), iteration_report(done)


class LinearlyImplicitNewmark(AbstractImplicit):
    r"""Newmark's method with a single Newton iteration, the paper's non-symplectic baseline.

        guess   Q = q_n + h v_n + h^2/2 (1 - 2 beta) a_n
        q_{n+1} = Q - beta h^2 (M + beta h^2 V''(Q))^-1 grad V(Q)        v_{n+1} = v_n + h/2 (a_n + a_{n+1})

    Of order two, neither symmetric nor symplectic. It ends with a status where the matrix is no longer definite
    (`definite=False` lets it go on).
    """

    reference = "Tao & Owhadi 2015 (4.1, Newmark with one-step nonlinear solve)"
    family = "newmark"

    beta: Any = eqx.field(converter=as_beta, default=0.25)
    definite: bool = eqx.field(static=True, default=True)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return dict.fromkeys(("free", "stiff"), Traits(2))

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return Compensation.zeros(state.q), system.gradient(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        q, (low, gradient), shift = state.q, carry, self.beta * dt**2
        reach = predictor(system, state, dt, carry, self.beta)
        guess = q + reach
        factor = curvature(full_system(system), guess, shift).factor()
        change = factor.solve((shift * system.gradient(guess)).reshape(-1)).reshape(q.shape)
        point = _move(state, low, reach - change)
        ahead = system.gradient(point.q)
        end = point.kick(-dt / 2 * (gradient + ahead))
        report = definite_report(factor.smallest, self.definite)
        return end.state(state.t + dt, state.n), (end.low, ahead), report


class PushforwardNewmark(AbstractImplicit):
    r"""Newmark's method in the variables `x = q + beta h^2 M^-1 grad V(q)`, where it is symplectic.

        x_{n+1} = x_n + h v_n + h^2/2 a_n        v_{n+1} = v_n + h/2 (a_n + a_{n+1})
        a_n = -M^-1 grad V(x_n + beta h^2 a_n)

    Symmetric, symplectic, of order two; variational (Tao & Owhadi (2.4)).
    """

    reference = "Skeel, Zhang & Schlick 1997; Marsden & West 2001; Tao & Owhadi 2015 (2.3)"
    family = "newmark"

    beta: Any = eqx.field(converter=as_beta, default=0.25)
    max_iterations: int = eqx.field(static=True, default=50)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return dict.fromkeys(("free", "stiff"), Traits(2, symmetric=True, symplectic=True))

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return self._start(system, state, dt, Compensation.zeros(state.q), once=True)

    def resize(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Any:
        return self._start(system, state, dt, carry[0])

    def _start(self, system: AbstractSystem, state: State, dt: Real, low: Compensation, once: bool = False) -> Any:
        gradient, done = self._gradient(system, state.q, dt, once)
        # NaN stops the run if there is no first gradient; dt is NaN for a reversal
        return low, jnp.where(done.converged | jnp.isnan(dt), gradient, jnp.nan)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        low, gradient = carry
        half = PhasePoint.of(state, low).kick(-dt / 2 * gradient)
        point = half.move(dt * system.velocity(state.q, half.p))
        gradient, done = self._gradient(system, point.q, dt)
        end = point.kick(-dt / 2 * gradient)
        return end.state(state.t + dt, state.n), (end.low, gradient), iteration_report(done)

    def _gradient(self, system: AbstractSystem, x: Numbers, dt: Real, once: bool = False) -> tuple[Any, Iterated]:
        """`-M a`: the gradient of V at the point `x + beta h^2 a`, which lies implicitly downhill from x."""
        shift = self.beta * dt**2
        done = implicit_position(system, x, shift, x, self.max_iterations, once)
        return system.gradient(done.x), done


# -- their parts -----------------------------------------------------------------------------------------------------


def _move(state: State, low: Compensation, reach: Numbers) -> PhasePoint:
    """q + reach, where `reach` includes the low part of q."""
    return PhasePoint(state.q, state.p, Compensation(jnp.zeros_like(low.q), low.p)).move(reach)


def full_system(system: AbstractSystem) -> Any:
    """The plain System with the whole potential."""
    return system.full if isinstance(system, StiffSystem) else system


def predictor(system: AbstractSystem, state: State, dt: Real, carry: PyTree, beta: Real) -> Any:
    """`h v + h^2/2 (1 - 2 beta) a`, the explicit part of a Newmark step, with the low part of q."""
    low, gradient = carry
    p = state.p + low.p
    return low.q + system.velocity(state.q, dt * p - dt**2 / 2 * (1 - 2 * beta) * gradient)


def implicit_position(
    system: AbstractSystem, origin: Numbers, shift: Real, start: Numbers, max_iterations: int, once: bool = False
) -> Iterated:
    """The point y with `y + shift M^-1 grad V(y) = origin`, by Newton's method with the matrix `M + shift V''(y)`."""
    args = (full_system(system), origin, jnp.asarray(shift, origin.dtype), start)

    def solve(args: PyTree):
        system, origin, shift, start = args
        eps = jnp.finfo(origin.dtype).eps

        def residual(y: Numbers):
            r = _position_residual(y, args)
            length = lambda x: jnp.sum(x * system.momentum(y, x))  # squared, in the mass metric: the same in all units
            return r, jnp.sqrt(relative(length(r), length(y) + length(origin)))

        def body(y: Numbers, r: Numbers):
            pull = system.momentum(y, r).reshape(-1)
            return y - curvature(system, y, shift).factor(once).solve(pull).reshape(y.shape)

        options = stall_rule(origin.dtype, quadratic=True)
        done = iterate(body, residual, start, tol=2 * eps, max_iterations=max_iterations, **options)
        converged, found = done.converged, (done.x, done.residual, done.iterations)
        if is_careful(origin.size) and not once:
            converged, found = rescue(
                converged,
                found,
                lambda y, fraction: _position_residual(y.reshape(origin.shape), args).reshape(-1),
                origin.reshape(-1),
                lambda y, norm, k: (y.reshape(origin.shape), norm, done.iterations + k),
                grows=False,
                stiff=True,
            )
        x, *info = found
        return x, (*info, converged)

    def factor(y: Numbers, args: PyTree):
        return _Premultiplied(args[0], y, curvature(args[0], y, args[2]).factor(once))

    x, (norm, k, converged) = implicit_root(solve, _position_residual, args, factor)
    return Iterated(x, norm, k, converged)


def _position_residual(y: Numbers, args: PyTree) -> Any:
    system, origin, shift, _ = args
    return y - origin + shift * system.velocity(y, system.gradient(y))


class _Premultiplied(eqx.Module):
    """`I + shift M^-1 V''` through the symmetric factors of `M + shift V''`."""

    system: AbstractSystem
    y: Any
    factor: Any

    def solve(self, b: Numbers) -> Any:
        return self.factor.solve(self.system.momentum(self.y, b.reshape(self.y.shape)).reshape(-1))


def definite_report(smallest: Numbers, watch: bool) -> Report:
    """OK, or INDEFINITE where the matrix of the step is no longer positive definite."""
    ok = Report.ok()
    if not watch:
        return ok
    # NaN is not definite either
    status = jnp.where(smallest > 0, Status.OK, Status.INDEFINITE).astype(jnp.int32)
    return Report(status, ok.iterations, ok.residual)
