"""Reversible variable steps: Adaptive Verlet and its constrained forms VSHAKE and VRATTLE.

In the fictive time tau, `dt = dtau / U(q, p)`, steps have the fixed size h, so that physical steps are short where the
monitor U is large. A density `rho` that follows U from half step to half step keeps the method semi-explicit and
reversible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import one_of
from ..core.errors import InputError
from ..core.status import Status
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation, add, newton_root
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import SOR, AbstractSolver, Newton
from .base import AbstractMethod, Path, Traits, first_failure, fresh_path, solver_report, status_where
from .bordered import solve_together
from .equations import reduced_force
from .monitors import AbstractMonitor, ForceMonitor, MultiplierMonitor, as_monitor
from .rattle import RATTLE

UPDATES, STARTS = ("semi-explicit", "explicit"), ("smooth", "forward", "naive")


class Stagger(eqx.Module):
    """The carry at n: momentum and density at n - 1/2, and the fictive step h."""

    half: Any
    density: Any
    h: Any
    low: Compensation
    low_t: Any
    gradient: Any  # grad V(q_n)
    multipliers: Any  # of the last step, the first guess of the next
    monitor: Any
    solver: Any
    status: Any  # of the start


class _Ahead(NamedTuple):
    """The second half of step n: momentum and density at n + 1/2, and the position they lead to."""

    half: Any
    low_p: Any
    density: Any
    step: Any  # the physical step h / rho
    q: Any
    low_q: Any
    multipliers: Any
    solver: Any
    report: Report


class AbstractVariableStep(AbstractMethod):
    """The map of `(q_n, p_{n-1/2}, rho_{n-1/2})`, shared by the methods of this family."""

    monitor: eqx.AbstractVar[AbstractMonitor]
    update: eqx.AbstractVar[str]
    start: eqx.AbstractVar[str]
    solver: eqx.AbstractVar[AbstractSolver]

    adaptive = True
    one_step = False
    reasons = {Capability.FORCE: "applied forces break its reversibility"}
    projects: ClassVar[bool] = True  # `state.p` is p_n at every step; otherwise p_{n-1/2}, projected when it is read

    def __check_init__(self) -> None:
        one_of("update", self.update, UPDATES)
        one_of("start", self.start, STARTS)
        if self._coupled and isinstance(self.solver, SOR):
            raise InputError("the semi-explicit density is coupled to the multipliers: use Newton or SymmetricNewton")

    @property
    def _coupled(self) -> bool:
        return self.update == "semi-explicit" and not self.monitor.positional

    @property
    def _order(self) -> int:
        return 1 if self.start == "naive" else 2

    @property
    def _symmetric(self) -> bool:
        """Steps are symmetric, but a reversed run does not end at a naive start."""
        return self.start != "naive"

    # -- the start ------------------------------------------------------------------------------------------------

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Stagger:
        q, p, t = state.q, state.p, jnp.asarray(state.t, state.q.dtype)
        gradient = system.gradient(q)
        memory = self.monitor.start(system, q, p, dt)
        u = self.monitor.value(system, q, p, memory)
        h, density, half = dt * u, u, p
        solver, status = (), jnp.asarray(Status.OK, jnp.int32)
        multipliers = jnp.zeros((system.constraint_count(q) if system.has_constraints else 0,), q.dtype)
        if system.has_constraints:
            solver = self.solver.init(system, q, t)
        if self.start != "naive":
            density = u - h / 2 * self._slope(system, q, p, t, memory, u, dt) / u
            back = h / density
            half = p + back / 2 * gradient
            if system.has_constraints:
                # half a kick back such that the position one step back is on the manifold
                solve = self.solver.positions(system, q, q - back * system.velocity(q, half), t, t - back, solver)
                half = half + system.linearize(q, t).transpose(solve.multipliers / back)
                multipliers, status = solve.multipliers * (2 / back**2), solve.status
        low, low_t = Compensation.zeros(q), jnp.zeros((), q.dtype)
        return Stagger(half, density, h, low, low_t, gradient, multipliers, memory, solver, status)

    def _slope(
        self, system: AbstractSystem, q: Numbers, p: Numbers, t: Real, memory: PyTree, u: Numbers, dt: Real
    ) -> Any:
        """dU/dt along the motion at the start; one-sided, by a difference, where U has a kink there."""
        v, force = system.velocity(q, p), reduced_force(system, q, p, t)
        if self.start == "smooth":
            return jax.jvp(lambda q, p: self.monitor.value(system, q, p, memory), (q, p), (v, force))[1]
        small = 1e-6 * dt
        return (self.monitor.value(system, q + small * v, p + small * force, memory) - u) / small

    # -- one step -------------------------------------------------------------------------------------------------

    def step(
        self, system: AbstractSystem, state: State, dt: Real, carry: Stagger, key: Key | None = None
    ) -> StepResult:
        ahead = self._ahead(system, state, carry)
        good = ahead.report.status == Status.OK
        q, t = jnp.where(good, ahead.q, state.q), jnp.asarray(state.t, state.q.dtype)
        t, low_t = add(t, carry.low_t, jnp.where(good, ahead.step, 0.0))
        low = Compensation(ahead.low_q, ahead.low_p)
        new = Stagger(
            ahead.half,
            ahead.density,
            carry.h,
            low,
            low_t,
            system.gradient(q),
            ahead.multipliers,
            carry.monitor,
            ahead.solver,
            carry.status,
        )
        if not self.projects:
            return State(q, new.half, t, state.n), new, ahead.report
        p, status = self._whole(system, q, t, new)
        report = solver_report(ahead.report, status, **ahead.report.multipliers)
        return State(q, jnp.where(good, p, state.p), t, state.n), new, report

    def _ahead(self, system: AbstractSystem, state: State, carry: Stagger) -> _Ahead:
        """Kick from n - 1/2 to n + 1/2 and drift to n + 1."""
        q, t = state.q, jnp.asarray(state.t, state.q.dtype)
        if self._coupled:
            u = self.monitor.value(system, q, carry.half, carry.monitor)
            mu, density, report = self._semi_explicit(system, q, t, u, carry)
            solver = carry.solver
        else:
            p, whole = carry.half, jnp.asarray(Status.OK, jnp.int32)
            if self.update == "explicit":
                p, whole = (state.p, whole) if self.projects else self._whole(system, q, t, carry)
            u = self.monitor.value(system, q, p, carry.monitor)
            density = 2 * u - carry.density
            mu, solver, report = self._explicit(system, q, t, density, carry)
            report = Report(first_failure(whole, report.status), report.iterations, report.residual)
        step, kick = _lengths(carry, density)
        pull = -kick * carry.gradient
        if system.has_constraints:
            pull = pull - system.linearize(q, t).transpose(mu)
        half, low_p = add(carry.half, carry.low.p, pull)
        reach = step * system.velocity(q, half) + carry.low.q
        q1 = q + reach
        status = first_failure(
            carry.status,
            status_where(~(jnp.isfinite(u) & (u > 0)), Status.MONITOR),
            report.status,
            status_where(~(jnp.isfinite(density) & (density > 0)), Status.MONITOR),
            status_where(t + step == t, Status.STEP_UNDERFLOW),
        )
        multipliers = mu / kick
        shown = {"lambda": multipliers} if system.has_constraints else {}
        report = Report(status, report.iterations, report.residual, shown)
        return _Ahead(half, low_p, density, step, q1, reach - (q1 - q), multipliers, solver, report)

    def _explicit(
        self, system: AbstractSystem, q: Numbers, t: Real, density: Numbers, carry: Stagger
    ) -> tuple[Any, Any, Report]:
        """The impulse `c lambda` for a density that is known: SHAKE's problem, by any solver."""
        if not system.has_constraints:
            return jnp.zeros((0,), q.dtype), carry.solver, Report.ok()
        step, kick = _lengths(carry, density)
        reach = step * system.velocity(q, carry.half + (carry.low.p - kick * carry.gradient)) + carry.low.q
        solve = self.solver.positions(system, q, q + reach, t, t + step, carry.solver)
        return solve.multipliers / step, solve.memory, Report(solve.status, solve.iterations, solve.residual)

    def _semi_explicit(
        self, system: AbstractSystem, q: Numbers, t: Real, u: Numbers, carry: Stagger
    ) -> tuple[Any, Any, Report]:
        """The impulse `c lambda` and the density together (Appendix A)."""
        guess = 2 * u - carry.density
        guess = jnp.where(guess > 0.1 * carry.density, guess, carry.density)
        if system.has_constraints:
            start = jnp.concatenate([_lengths(carry, guess)[1] * carry.multipliers, guess[None]])
            done = solve_together(self.solver, start, (system, self.monitor, q, t, u, carry))
        else:
            ratio = (guess / carry.density)[None]
            done = newton_root(_density_residual, ratio, (system, self.monitor, q, u, carry))
            done = done._replace(x=done.x * carry.density)
        status = status_where(~done.converged, Status.NOT_CONVERGED)
        return done.x[:-1], done.x[-1], Report(status, done.iterations, done.residual)

    def _whole(self, system: AbstractSystem, q: Numbers, t: Real, carry: Stagger) -> tuple[Any, Any]:
        """`p_n = P(q_n) [p_{n-1/2} - h/(2 rho_{n-1/2}) grad V(q_n)]`, with multipliers of its own."""
        p = carry.half + (carry.low.p - carry.h / (2 * carry.density) * carry.gradient)
        if not system.has_constraints:
            return p, jnp.asarray(Status.OK, jnp.int32)
        tangent = self.solver.momenta(system, q, p, t)
        return tangent.p, tangent.status

    def read(self, system: AbstractSystem, state: State, carry: Stagger) -> State:
        if self.projects:
            return state
        p, status = self._whole(system, state.q, state.t, carry)
        return State(state.q, jnp.where(status == Status.OK, p, jnp.nan), state.t, state.n)

    def path(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Path:
        return fresh_path(RATTLE(self.solver), system, self.read(system, state, carry))

    def reverse(self, system: AbstractSystem, state: State, carry: Stagger) -> tuple[State, Stagger]:
        """`(q_n, -p_{n+1/2}, rho_{n+1/2})`: the way back begins with the half step ahead."""
        ahead = self._ahead(system, state, carry)
        back = eqx.tree_at(
            lambda c: (c.half, c.density, c.low.p, c.low_t, c.status),
            carry,
            (-ahead.half, ahead.density, -ahead.low_p, jnp.zeros_like(carry.low_t), ahead.report.status),
        )
        return State(state.q, -state.p if self.projects else -ahead.half, state.t, state.n), back


def _lengths(carry: Stagger, density: Numbers) -> tuple[Any, Any]:
    """The drift `h / rho_+` and the kick `(h/2)(1/rho_- + 1/rho_+)`."""
    return carry.h / density, carry.h / 2 * (1 / carry.density + 1 / density)


def _density_residual(x: Numbers, args: PyTree) -> Any:
    """`rho_+ + rho_- - U(q, p_+) - U(q, p_-)` in units of `rho_-`, for `x = rho_+/rho_-`, without constraints."""
    system, monitor, q, u, carry = args
    p = carry.half + (carry.low.p - _lengths(carry, x[0] * carry.density)[1] * carry.gradient)
    return x + 1 - (u + monitor.value(system, q, p, carry.monitor)) / carry.density


class VRATTLE(AbstractVariableStep):
    r"""VRATTLE: RATTLE with reversible variable steps (Barth, Leimkuhler & Reich 1998).

        p_+ = p_- - (h/2)(1/rho_- + 1/rho_+) (grad V(q_n) + G(q_n)^T lambda),      q_{n+1} = q_n + (h/rho_+) M^-1 p_+
        g(q_{n+1}) = 0,      t_{n+1} = t_n + h/rho_+
        semi-explicit:  rho_+ + rho_- = U(q_n, p_+) + U(q_n, p_-)         explicit:  rho_+ + rho_- = 2 U(q_n, p_n)
        p_n = P(q_n) [p_- - h/(2 rho_-) grad V(q_n)],                     P = I - G^T (G M^-1 G^T)^-1 G M^-1

    with `p_-`, `rho_-` at n - 1/2 and `p_+`, `rho_+` at n + 1/2. Time-reversible of order two, not symplectic; the
    energy error stays bounded over long times. `h = dt U(q_0, p_0)`: dt is the first physical step. `start="smooth"`
    takes `rho_{-1/2}` and `p_{-1/2}` half a step back; `"forward"` uses the one-sided slope of a monitor that has a
    kink at the start; `"naive"` takes U_0 and p_0 and loses an order. `lambda` of a step is of order two.
    """

    reference = "Barth, Leimkuhler & Reich 1998 (3.9)-(3.15); Huang & Leimkuhler 1997"
    family = "adaptive"

    monitor: AbstractMonitor = eqx.field(converter=as_monitor, default=MultiplierMonitor())
    update: str = eqx.field(static=True, default="semi-explicit")
    start: str = eqx.field(static=True, default="smooth")
    solver: AbstractSolver = Newton()

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"constrained": Traits(self._order, symmetric=self._symmetric, constraint_exact=True, hidden_exact=True)}


class VSHAKE(AbstractVariableStep):
    r"""VSHAKE: the positions of VRATTLE, with the staggered momentum projected only when it is shown.

    With the semi-explicit update a step takes one linear solve less than VRATTLE's; the explicit update needs `p_n`.
    """

    reference = "Barth, Leimkuhler & Reich 1998 (3.9)-(3.15)"
    family = "adaptive"
    projects = False

    monitor: AbstractMonitor = eqx.field(converter=as_monitor, default=MultiplierMonitor())
    update: str = eqx.field(static=True, default="semi-explicit")
    start: str = eqx.field(static=True, default="smooth")
    solver: AbstractSolver = Newton()

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"constrained": Traits(self._order, symmetric=self._symmetric, constraint_exact=True, hidden_exact=True)}


class AdaptiveVerlet(AbstractVariableStep):
    r"""Adaptive Verlet (Huang & Leimkuhler 1997): VRATTLE without constraints.

        p_+ = p_- - (h/2)(1/rho_- + 1/rho_+) grad V(q_n),  q_{n+1} = q_n + (h/rho_+) M^-1 p_+,  t_{n+1} = t_n + h/rho_+

    with the density of the semi-explicit or the explicit (Holder, Leimkuhler & Reich 2001) update; one gradient
    per step.
    """

    reference = "Huang & Leimkuhler 1997; Holder, Leimkuhler & Reich 2001"
    family = "adaptive"

    monitor: AbstractMonitor = eqx.field(converter=as_monitor, default=ForceMonitor())
    update: str = eqx.field(static=True, default="semi-explicit")
    start: str = eqx.field(static=True, default="smooth")
    solver: AbstractSolver = Newton()

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {"free": Traits(self._order, symmetric=self._symmetric)}


VARIANTS = {
    "VRATTLE": (lambda: VRATTLE(ForceMonitor(), update="explicit"), lambda: VRATTLE(start="naive")),
    "AdaptiveVerlet": (lambda: AdaptiveVerlet(update="explicit"), lambda: AdaptiveVerlet(start="naive")),
}
