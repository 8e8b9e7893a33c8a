"""Hamiltonian Monte Carlo on a manifold: sampling without the error of the step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import runtime_number, whole_number
from ..core.errors import MethodError
from ..core.status import Status
from ..core.types import ArrayLike, Key, Numbers, Real, Report, State, StepResult
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from .base import AbstractMethod, AbstractTally, Traits, check_one_step_map, first_failure
from .langevin import FIXED_MANIFOLD, ornstein_uhlenbeck, redundancy, thermostat
from .rattle import RATTLE

# A step back returns if it ends within this many ulps of q.
RETURN_ULPS = 1e3


class Tally(AbstractTally):
    """Trajectories proposed, accepted, lost to a projection that failed, lost to one that did not return."""

    proposed: Any
    accepted: Any
    unsolved: Any
    irreversible: Any

    @staticmethod
    def zeros() -> Tally:
        zero = jnp.asarray(0, jnp.result_type(int))
        return Tally(zero, zero, zero, zero)

    def rates(self) -> dict[str, Any]:
        """Over the run so far; `acceptance`, `unsolved` and `irreversible` per proposed trajectory."""
        total = jnp.maximum(self.proposed, 1)
        return {
            "proposed": self.proposed,
            "acceptance": self.accepted / total,
            "unsolved": self.unsolved / total,
            "irreversible": self.irreversible / total,
        }


class ConstrainedHMC(AbstractMethod):
    r"""Constrained Hamiltonian Monte Carlo (Hartmann 2008; Zappa, Holmes-Cerfon & Goodman 2018).

    A step draws `p ~ P(q) N(0, kT M)`, follows `inner_steps` RATTLE steps of size dt, and accepts the end with
    probability `min(1, exp(-(H_1 - H_0)/kT))`. Newton's method may find another sheet of the manifold on the way back:
    after every inner step one is taken back, and a trajectory that does not return to within `return_tol` of that step
    is rejected, as is one whose projection fails. So the measure is exact for every dt, which sets the acceptance rate.

    `friction` keeps part of the momentum (generalized HMC: an Ornstein-Uhlenbeck step over `inner_steps dt`); None, the
    default, draws a new one. `sol.stats` and the reported `acceptance` give the rates so far.
    """

    reference = "Hartmann 2008; Zappa, Holmes-Cerfon & Goodman 2018; Lelievre, Rousset & Stoltz 2019"
    family = "sampling"
    stochastic = True
    reasons = FIXED_MANIFOLD | {
        Capability.FORCE: "an applied force has no energy to accept by",
        Capability.TIME: "it samples one equilibrium",
        Capability.MAGNETIC: "its proposals are reversed by turning the momentum around",
    }

    inner_steps: int = eqx.field(static=True)
    temperature: Any
    friction: Any
    method: AbstractMethod
    return_tol: Any

    def __init__(
        self,
        inner_steps: int = 10,
        temperature: ArrayLike = 1.0,
        friction: ArrayLike | None = None,
        method: AbstractMethod | None = None,
        return_tol: float = 1e-8,
    ):
        method = RATTLE() if method is None else method
        check_one_step_map("ConstrainedHMC", method)
        for kind, t in method.traits.items():
            if not (t.symmetric and t.symplectic):
                raise MethodError(
                    f"HMC needs a reversible method that keeps volume; {method.name} is not on {kind} systems"
                )
        rate, self.temperature = thermostat(0.0 if friction is None else friction, temperature)
        self.friction = None if friction is None else rate
        self.inner_steps, self.method = whole_number("inner_steps", inner_steps), method
        # infinity omits the check; the sampler then has another measure
        unchecked = isinstance(return_tol, float) and return_tol == math.inf
        self.return_tol = jnp.asarray(math.inf) if unchecked else runtime_number("return_tol", return_tol, above=0)

    @property
    def traits(self) -> Mapping[str, Traits]:
        return {
            kind: Traits(
                t.order,
                constraint_exact=t.constraint_exact,
                hidden_exact=t.hidden_exact,
                treats=tuple(c for c in t.treats if c in (Capability.MASS, Capability.REDUNDANT)),
            )
            for kind, t in self.method.traits.items()
            if kind in ("free", "constrained")
        }

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return self.method.init(system, state, dt), Tally.zeros()

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Any = None) -> StepResult:
        inner, tally = carry
        p, status = self._refresh(system, state, dt, jax.random.fold_in(key, 0))
        start = State(state.q, p, jnp.asarray(state.t, p.dtype), state.n)
        inner = self.method.renew(system, start, dt, inner)

        end, memory, failed, strayed, iterations = self._trajectory(system, start, dt, inner)

        gain = (system.hamiltonian(start.q, start.p) - system.hamiltonian(end.q, end.p)) / self.temperature
        chance = jnp.log1p(-jax.random.uniform(jax.random.fold_in(key, 1), (), p.dtype))
        accept = (failed == Status.OK) & ~strayed & (chance < gain)
        # a rejected trajectory leaves the start with its momentum reversed
        back = State(start.q, -start.p, start.t, start.n)
        state, inner = _choose(accept, (end, memory), (back, inner))
        tally = Tally(
            tally.proposed + 1,
            tally.accepted + accept,
            tally.unsolved + (failed != Status.OK),
            tally.irreversible + ((failed == Status.OK) & strayed),
        )
        rates = {"accepted": accept.astype(p.dtype), "acceptance": tally.accepted / tally.proposed.astype(p.dtype)}
        report = Report(status, iterations, jnp.asarray(0.0, p.dtype), rates)
        return State(state.q, state.p, start.t + dt, start.n), (inner, tally), report

    def _refresh(self, system: AbstractSystem, state: State, dt: Real, key: Key) -> Any:
        """A momentum from the Gaussian on the tangent space: fresh, or what is left of the old one plus noise."""
        span = self.inner_steps * dt
        if self.friction is None:
            old, rate = jnp.zeros_like(state.p), jnp.inf
        else:
            old, rate = state.p, self.friction
        return ornstein_uhlenbeck(
            system,
            state.q,
            old,
            state.t,
            dt=span,
            friction=rate,
            temperature=self.temperature,
            key=key,
            redundant=redundancy(self),
        )

    def _trajectory(
        self, system: AbstractSystem, start: State, dt: Real, memory: PyTree
    ) -> tuple[State, Any, Any, Any, Any]:
        """`inner_steps` steps, each followed by one back; the first failure or loss freezes the state."""

        def advance(_: PyTree, loop: PyTree):
            state, memory, failed, strayed, iterations = loop
            new, carried, report = self.method.step(system, state, dt, memory)
            back, reversed_ = self.method.reverse(system, new, carried)
            again, _, returned = self.method.step(system, back, dt, reversed_)
            lost = ~self._returns(system, state.q, new.q, again.q) | (returned.status != Status.OK)
            size = jnp.sum(jnp.abs(new.q)) + jnp.sum(jnp.abs(new.p))
            finite = jnp.where(jnp.isfinite(size), Status.OK, Status.NONFINITE).astype(jnp.int32)
            bad = first_failure(failed, report.status, finite)
            good = (bad == Status.OK) & ~strayed & ~lost
            state, memory = _choose(good, (new, carried), (state, memory))
            strayed = strayed | (lost & (bad == Status.OK))
            return state, memory, bad, strayed, iterations + report.iterations + returned.iterations

        ok = Report.ok()
        loop = (start, memory, ok.status, jnp.asarray(False), ok.iterations)
        return jax.lax.fori_loop(0, self.inner_steps, advance, loop)

    def _returns(self, system: AbstractSystem, q: Numbers, there: PyTree, again: PyTree) -> Any:
        """Whether a step back ends at q: to within `return_tol` of the length of the step, or to round-off of q.

        Squared lengths are in the mass metric, so that units and origin do not matter.
        """
        square = lambda x: jnp.sum(x * system.mass_form(q).momentum(q, x))
        bound = self.return_tol**2 * square(there - q) + (RETURN_ULPS * float(jnp.finfo(q.dtype).eps)) ** 2 * square(q)
        return square(again - q) <= bound


def _choose(condition: Numbers, yes: PyTree, no: PyTree) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
