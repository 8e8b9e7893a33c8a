"""What a method is: a final class with declared traits, an `init`, a `step`, and a way to be read and reversed."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.errors import InputError, MethodError, whole_number
from ..core.status import Status
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import AbstractSolver, accepts_redundant
from ..mechanics.projection.solvers import MomentumSolve

KINDS = ("free", "constrained", "stiff")

# What an ordinary differential equation may have: for methods that integrate the (index-reduced) equations of motion.
EXPLICIT = (Capability.MASS, Capability.FORCE, Capability.TIME, Capability.MAGNETIC)


@dataclasses.dataclass(frozen=True)
class Traits:
    """What a method promises on one kind of system; every entry is measured by the tests.

    `order` is the order of convergence of positions and momenta, or a mapping by variable (`q`, `p`, `multipliers`).
    `symplectic` is None where nobody proved it either way; `wedge` promises only the wedge product on `{G dq = 0}`.
    `constraint_exact` and `hidden_exact` mean round-off; so does `energy_exact`. `composable` is false for a map that
    is not smooth near the identity: symmetric compositions of it stay at its own order. `treats` lists what a system
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


Path = Callable[[Any], tuple[Any, Any]]  # q and p as functions of time


class AbstractMethod(eqx.Module):
    """`init(system, state, dt) -> carry`, then `step(system, state, dt, carry, key) -> (state, carry, report)`.

    `step` sets q, p and t of the new state; the driver counts steps and, for a fixed step, computes time as
    `t0 + n dt`. Everything a step remembers beyond (q, p) is in the carry, an ordinary PyTree.
    """

    reference: ClassVar[str]
    reasons: ClassVar[Mapping[Capability, str]] = {}  # why the method does not treat something
    family: ClassVar[str]
    one_step: ClassVar[bool] = True  # (q, p) is the whole memory, up to what can be recomputed from it
    adaptive: ClassVar[bool] = False  # the method owns time
    stochastic: ClassVar[bool] = False  # the method needs a key
    tolerance_driven: ClassVar[bool] = False  # a tolerance sets the error, whatever dt is: no order in dt to measure

    def __check_init__(self) -> None:
        solver = getattr(self, "solver", None)
        if solver is not None and not isinstance(solver, AbstractSolver):
            raise InputError(f"solver must be a multiplier solver such as Newton() or SOR(1.7), not {solver!r}")
        if hasattr(self, "max_iterations"):
            whole_number("max_iterations", self.max_iterations)  # pyright: ignore

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

    def reverse(self, system: AbstractSystem, state: State, carry: PyTree) -> tuple[State, Any]:
        """The state and carry from which the same method walks back."""
        back = State(state.q, -state.p, state.t, state.n)
        return back, self.init(system, back, jnp.nan)

    def renew(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Any:
        """The carry after the momentum was replaced at the same position: what a thermostat hands to the next step.

        Built afresh unless a method knows which of its parts depend on the position alone.
        """
        return self.init(system, state, dt)

    def resize(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Any:
        """The carry that `step(system, state, dt, ...)` expects when the step before had another size."""
        return carry

    def substep(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> tuple[State, Any]:
        """The state to show after a step of another size, with its status: points between steps are made of it.

        `state` and `carry` are those of the run; `dt` is not zero and may point backwards. A one-step method takes a
        step of its own. Methods with a longer memory, or with a time of their own, say what stands in for it: a
        one-step method of at least their order.
        """
        if self.adaptive or not self.one_step:
            raise MethodError(f"{self.name} has no states between its steps")
        new, carry, report = self.step(system, state, dt, self.resize(system, state, dt, carry))
        return self.read(system, new, carry), report.status

    def path(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Path | None:
        """The solution over the next step as a function of the time since `state.t`, where the step has one.

        It takes the place of `substep` between steps, and events are watched for inside of the step as well.
        """
        return None

    def traits_on(self, system: AbstractSystem) -> Traits:
        """What the method promises on this system; a stiff system is also an unconstrained one."""
        kind = system.kind
        return self.traits["free" if kind == "stiff" and "stiff" not in self.traits else kind]

    def check(self, system: AbstractSystem) -> None:
        """Raise `MethodError` when this method cannot treat the system."""
        kind = system.kind
        if kind not in self.traits and not (kind == "stiff" and "free" in self.traits):
            able = " and ".join(_DESCRIPTION[k] for k in self.traits)
            raise MethodError(f"{self.name} treats {able}; this one is {_ONE[kind]}. {_HINT[kind]}")
        treats = self.traits_on(system).treats
        needs = system.needs | ({Capability.REDUNDANT} if kind == "constrained" and accepts_redundant(self) else set())
        for capability in Capability:
            if capability in needs and capability not in treats:
                where = f" on {kind} systems" if any(capability in t.treats for t in self.traits.values()) else ""
                reason = f" ({self.reasons[capability]})" if capability in self.reasons else ""
                having = "its solver accepts" if capability is Capability.REDUNDANT else "this system has"
                raise MethodError(
                    f"{self.name} needs {capability.condition}{where}{reason}; {having} {capability.meaning}. "
                    f"{_OTHERS[capability]}"
                )
        self.check_conditions(system)

    def check_conditions(self, system: AbstractSystem) -> None:
        """Raise `MethodError` for conditions that no declared trait can express."""

    def one_way(self) -> str:
        """Why steps with dt < 0 have no meaning, and what to do instead; empty where they have one."""
        return ""

    def validate(self, system: AbstractSystem, state: State, dt: Real) -> None:
        """Raise when the start, with its numbers, does not suit the method (a monitor that is not positive there)."""

    def statistics(self, carry: PyTree) -> dict[str, Any]:
        """Numbers that the method's memory holds about the run, such as an acceptance rate."""
        return {}

    @property
    def name(self) -> str:
        return type(self).__name__

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


_OTHERS = {
    Capability.MASS: "RATTLE, SHAKE, Gauss, HBVM, ImplicitMidpoint and RK4 treat it.",
    Capability.FORCE: "RATTLE, SHAKE, Gauss, LineIntegral, ImplicitMidpoint and RK4 treat it.",
    Capability.TIME: "RATTLE, SHAKE, LobattoIIIAB, Gauss, ImplicitMidpoint and RK4 treat it.",
    Capability.MAGNETIC: "RATTLE, SHAKE, Gauss, HBVM, ImplicitMidpoint and RK4 treat it.",
    Capability.MOVING: "RATTLE, SHAKE, LobattoIIIAB and RK4 treat it.",
    Capability.REDUNDANT: 'RATTLE(Newton(redundant="min-norm")) and SHAKE with the same solver treat it.',
}


def first_failure(*statuses: Numbers) -> Any:
    """The first status that is not OK."""
    result = jnp.asarray(Status.OK, jnp.int32)
    for status in reversed(statuses):
        result = jnp.where(status != Status.OK, status, result)
    return result


def shown_momentum(solve: MomentumSolve) -> Any:
    """The momentum of a projection for output: NaN where the projection failed."""
    return jnp.where(solve.status == Status.OK, solve.p, jnp.nan)


def solver_report(solve: Any, *further: Numbers, **multipliers: Numbers) -> Report:
    """A report from a position solve and further statuses."""
    return Report(first_failure(solve.status, *further), solve.iterations, solve.residual, multipliers)
