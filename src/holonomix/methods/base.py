"""What a method is: a final class with declared traits, `init`, `step` and `read`, and three optional protocols."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from ..core.checks import described, whole_number
from ..core.errors import InputError, MethodError
from ..core.status import Status
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import AbstractSolver, accepts_redundant
from ..mechanics.projection.solvers import MomentumSolve

KINDS = ("free", "constrained", "stiff")

# Capabilities of methods that integrate the (index-reduced) equations of motion as an ordinary differential equation.
EXPLICIT = (Capability.MASS, Capability.FORCE, Capability.TIME, Capability.MAGNETIC)


@dataclasses.dataclass(frozen=True)
class Traits:
    """What a method promises on one kind of system; every entry is measured by the tests.

    `order` is the order of convergence of positions and momenta, or a mapping by variable (`q`, `p`, `multipliers`).
    `symplectic` is None where it is unknown; `wedge` promises only the wedge product on `{G dq = 0}`.
    `constraint_exact` and `hidden_exact` mean round-off; so does `energy_exact`. `composable` is false for a map that
    is not smooth near the identity, so that symmetric compositions gain no order. `treats` lists what a system
    may have beyond a constant mass, a potential V(q) and fixed, independent constraints; order, constraint and hidden
    constraint are then as declared, symplecticity and energy where the system has them.
    """

    order: int | Mapping[str, int]
    symmetric: bool = False
    symplectic: bool | None = False
    energy_exact: bool = False
    constraint_exact: bool = False
    hidden_exact: bool = False
    wedge: bool = False
    composable: bool = True
    treats: Collection[Capability] = ()

    def order_of(self, variable: str = "q") -> int:
        return self.order if isinstance(self.order, int) else self.order[variable]


# The q, p and status of a state as functions of the time since another state.
Path = Callable[[Real], tuple[Any, Any, Any]]


class AbstractTally(eqx.Module):
    """Counts that the carry of a method holds about the run."""

    @abc.abstractmethod
    def rates(self) -> dict[str, Any]:
        """What `sol.stats` shows of them, such as an acceptance rate."""


class AbstractMethod(eqx.Module):
    """`traits`, `init(system, state, dt) -> carry` and `step(system, state, dt, carry, key) -> (state, carry, report)`.

    `step` sets q, p and t of the new state; the driver counts steps and, for a fixed step, computes time as
    `t0 + n dt`. Everything a step remembers beyond (q, p) is in the carry, an ordinary PyTree. `read` gives the state
    to show where the carry holds a staggered momentum.

    Three protocols have defaults that `init` and `step` give; a method that knows better implements them:

    - it reverses: `reverse` (certificates, Hamiltonian Monte Carlo);
    - it resizes: `resize` for a step of another size (compositions, adjoints), `renew` for another momentum
      (thermostats);
    - it has a path: `path` for states between steps (dense output, events).

    Fields of these names have a meaning: `solver` and `max_iterations` are checked; `method` is a method inside, which
    must treat the system too; the `monitor` of an adaptive method is checked at the start; with `friction` a
    stochastic method does not run backwards in time.
    """

    reference: ClassVar[str]
    reasons: ClassVar[Mapping[Capability, str]] = {}  # why the method does not treat something
    family: ClassVar[str]
    one_step: ClassVar[bool] = True  # (q, p) is the whole memory, up to what can be recomputed from it
    adaptive: ClassVar[bool] = False  # the method owns time
    stochastic: ClassVar[bool] = False  # the method needs a key
    tolerance_driven: ClassVar[bool] = False  # a tolerance sets the error, whatever dt is: no order in dt to measure
    position_carry: ClassVar[bool] = False  # the carry depends on q alone, except for the low part of p
    continuous: ClassVar[bool] = False  # `path` is the solution over the next step, as accurate as the step itself

    def __check_init__(self) -> None:
        solver = getattr(self, "solver", None)
        if solver is not None and not isinstance(solver, AbstractSolver):
            raise InputError(f"solver must be a multiplier solver such as Newton() or SOR(1.7), not {solver!r}")
        if hasattr(self, "max_iterations"):
            whole_number("max_iterations", self.max_iterations)  # pyright: ignore

    def __repr__(self) -> str:
        return described(self)

    @property
    @abc.abstractmethod
    def traits(self) -> Mapping[str, Traits]:
        """Declared traits by kind of system; a kind that is missing cannot be treated."""

    @abc.abstractmethod
    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any: ...

    @abc.abstractmethod
    def step(
        self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None
    ) -> StepResult: ...

    def read(self, system: AbstractSystem, state: State, carry: PyTree) -> State:
        """The state to show: whole-step momentum, for methods whose memory is staggered."""
        return state

    # -- three protocols ------------------------------------------------------------------------------------------

    def reverse(self, system: AbstractSystem, state: State, carry: PyTree) -> tuple[State, Any]:
        """The state and carry from which the same method goes back."""
        back = State(state.q, -state.p, state.t, state.n)
        if self.position_carry:
            return back, map_low_parts(Compensation.reversed, carry)
        return back, self.init(system, back, jnp.nan)

    def resize(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Any:
        """The carry that `step(system, state, dt, ...)` expects after a step of another size."""
        return carry

    def renew(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Any:
        """The carry after the momentum was replaced at the same position, as a thermostat does."""
        if self.position_carry:
            return map_low_parts(lambda low: Compensation(low.q, jnp.zeros_like(low.p)), carry)
        return self.init(system, state, dt)

    def path(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Path:
        """The states to show near `state`, at times since `state.t` that are not zero and may be negative.

        `state` and `carry` are those of a run with steps `dt`. A one-step method takes a step of its own. Others use
        `fresh_path` with a one-step method of at least their order.
        """
        if self.adaptive or not self.one_step:
            raise MethodError(f"{self.name} has no states between its steps")

        def at(time: Real) -> tuple[Any, Any, Any]:
            new, memory, report = self.step(system, state, time, self.resize(system, state, time, carry))
            shown = self.read(system, new, memory)
            return shown.q, shown.p, report.status

        return at

    # -- what the library asks ------------------------------------------------------------------------------------

    def traits_on(self, system: AbstractSystem) -> Traits:
        """What the method promises on this system; a stiff system is also an unconstrained one."""
        kind = system.kind
        return self.traits["free" if kind == "stiff" and "stiff" not in self.traits else kind]

    def check(self, system: AbstractSystem) -> None:
        """Raise `MethodError` when this method cannot treat the system."""
        kind = system.kind
        if kind not in self.traits and not (kind == "stiff" and "free" in self.traits):
            able = " and ".join(_DESCRIPTION[k] for k in self.traits)
            hint = _SPLIT if kind == "free" and "stiff" in self.traits else _HINT[kind]
            raise MethodError(f"{self.title} treats {able}; this one is {_ONE[kind]}. {hint}")
        treats = self.traits_on(system).treats
        needs = system.needs | ({Capability.REDUNDANT} if kind == "constrained" and accepts_redundant(self) else set())
        for capability in Capability:
            if capability in needs and capability not in treats:
                where = f" on {kind} systems" if any(capability in t.treats for t in self.traits.values()) else ""
                reason = f" ({self.reasons[capability]})" if capability in self.reasons else ""
                having = "its solver accepts" if capability is Capability.REDUNDANT else "this system has"
                raise MethodError(
                    f"{self.title} needs {capability.condition}{where}{reason}; {having} {capability.meaning}. "
                    f"{_OTHERS[capability]}"
                )
        if isinstance(inner := getattr(self, "method", None), AbstractMethod):
            inner.check(system)

    def validate(self, system: AbstractSystem, state: State, dt: Real) -> None:
        """Raise when the monitor of the step size does not suit the start."""
        if self.adaptive and (monitor := getattr(self, "monitor", None)) is not None:
            # a density that follows the monitor is reversible only if the monitor is even in p
            monitor.check(system, state.q, state.p, dt, even=not self.one_step)

    def one_way(self) -> str:
        """Why steps with dt < 0 have no meaning; empty where they have one."""
        friction = getattr(self, "friction", 0.0) if self.stochastic else 0.0  # None: a new momentum in every step
        if friction is not None and (isinstance(friction, Tracer) or not np.any(np.asarray(friction) > 0)):
            return ""
        return "friction has one direction of time, and backwards it would grow without bound"

    def statistics(self, carry: PyTree) -> dict[str, Any]:
        """The rates of the tallies in the carry, such as an acceptance rate."""
        is_tally = lambda x: isinstance(x, AbstractTally)
        tallies = filter(is_tally, jax.tree.leaves(carry, is_leaf=is_tally))
        return {name: rate for tally in tallies for name, rate in tally.rates().items()}

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def title(self) -> str:
        """The name in errors: as the user may have written it."""
        return self.name

    @property
    def order(self) -> int:
        """The order in q on the first kind of system the method declares."""
        return next(iter(self.traits.values())).order_of("q")


_DESCRIPTION = {"free": "unconstrained systems", "constrained": "constrained systems", "stiff": "stiff systems"}
_ONE = {"free": "unconstrained", "constrained": "constrained", "stiff": "stiff"}
_HINT = {
    "free": "Use StormerVerlet, a composition of it, or a Gauss method.",
    "constrained": "Use RATTLE, a composition of it, or LineIntegral; or penalize the constraint (system.penalized).",
    "stiff": "Use ZhangSkeel, an impulse method, or the constrained limit (stiff.constrained()).",
}
_SPLIT = (
    "Give the stiff springs apart from the slow potential, hx.StiffSystem(slow, stiff, manifold, epsilon=...), or rods "
    "in their place, hx.System(slow, rods).penalized(omega). ZhangSkeel, Newmark and StormerVerlet treat it as it is."
)


_OTHERS = {
    Capability.MASS: "RATTLE, SHAKE, Gauss, HBVM, ImplicitMidpoint and RK4 treat it.",
    Capability.FORCE: "RATTLE, SHAKE, Gauss, LineIntegral, ImplicitMidpoint and RK4 treat it.",
    Capability.TIME: "RATTLE, SHAKE, LobattoIIIAB, Gauss, ImplicitMidpoint and RK4 treat it.",
    Capability.MAGNETIC: "RATTLE, SHAKE, Gauss, HBVM, ImplicitMidpoint and RK4 treat it.",
    Capability.MOVING: "RATTLE, SHAKE, LobattoIIIAB and RK4 treat it.",
    Capability.REDUNDANT: 'RATTLE(Newton(redundant="min-norm")) and SHAKE with the same solver treat it.',
}


def map_low_parts(change: Callable[[Compensation], Compensation], carry: PyTree) -> PyTree:
    """The carry with `change` applied to its `Compensation`."""
    is_low = lambda x: isinstance(x, Compensation)
    return jax.tree.map(lambda x: change(x) if is_low(x) else x, carry, is_leaf=is_low)


def fresh_path(method: AbstractMethod, system: AbstractSystem, shown: State) -> Path:
    """The `path` of a one-step method that starts at a state as another method shows it."""
    return lambda time: method.path(system, shown, time, method.init(system, shown, time))(time)


def check_one_step_map(user: str, method: object) -> None:
    """Raise `MethodError` unless `method` is a method that `user` can apply as a map of (q, p)."""
    if not isinstance(method, AbstractMethod):
        hint = f"; write {method.__name__}()" if isinstance(method, type) else ""
        raise MethodError(f"{user} needs an instance of a method, not {method!r}{hint}")
    if not method.one_step or method.stochastic or method.adaptive:
        raise MethodError(f"{user} needs a deterministic one-step map of (q, p); {method.name} is not one")


def first_failure(*statuses: Numbers) -> Any:
    """The first status that is not OK."""
    result = jnp.asarray(Status.OK, jnp.int32)
    for status in reversed(statuses):
        result = jnp.where(status != Status.OK, status, result)
    return result


def status_where(failed: Numbers, status: Status) -> Any:
    """`status` where `failed`, else OK."""
    return jnp.where(failed, status, Status.OK).astype(jnp.int32)


def shown_momentum(solve: MomentumSolve) -> Any:
    """The momentum of a projection for output: NaN where the projection failed."""
    return jnp.where(solve.status == Status.OK, solve.p, jnp.nan)


def merge_reports(first: Report, second: Report) -> Report:
    """The report of two steps in a row, without multipliers."""
    status = first_failure(first.status, second.status)
    return Report(status, first.iterations + second.iterations, jnp.maximum(first.residual, second.residual))


def solver_report(solve: Any, *further: Numbers, **multipliers: Numbers) -> Report:
    """The report of a solve, or of another report, with the first failure of it and of further statuses."""
    return Report(first_failure(solve.status, *further), solve.iterations, solve.residual, multipliers)
