"""Higher order by composition, with coefficients as data; and splittings of separable systems."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import number_list, whole_number
from ..core.errors import InputError, MethodError
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import Compensation
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from .base import AbstractMethod, Traits, check_one_step_map, merge_reports
from .kick_drift import PhasePoint
from .rattle import RATTLE
from .schemes import Scheme, find_scheme, given_scheme


class Composition(AbstractMethod):
    r"""Symmetric composition `Phi_{gamma_s dt} o ... o Phi_{gamma_1 dt}` of a symmetric one-step method of order two.

    `Composition(RATTLE(), order=8)` takes the best known coefficients; `scheme=` names others (`"triple-jump-8"`) or is
    the coefficients themselves, whose order conditions are checked. All structure of the base method is kept; systems
    on which it is not a smooth map near the identity are refused (HBVM with constraints reverses the normal momentum).
    """

    reference = "Yoshida 1990; Hairer, Lubich & Wanner 2006 (V.3); Farrell 2009 (7)"
    family = "composition"

    method: AbstractMethod
    scheme: Scheme = eqx.field(static=True)

    def __init__(
        self,
        method: AbstractMethod | None = None,
        order: int | str | None = None,
        scheme: str | Sequence[float | int] | np.ndarray | None = None,
    ):
        method = RATTLE() if method is None else method
        if isinstance(order, str):
            order, scheme = None, order
        check_one_step_map("a composition", method)
        if not any(_gains(t) for t in method.traits.values()):
            raise MethodError(f"{method.name} is not a symmetric map of order two: composing it gains nothing")
        self.method = method
        if scheme is not None and not isinstance(scheme, str):
            self.scheme = given_scheme(scheme, order)
        else:
            self.scheme = find_scheme(scheme or (4 if order is None else order))
            if order is not None and scheme is not None and self.scheme.order != order:
                raise InputError(f"scheme {scheme} has order {self.scheme.order}, not {order}")

    @property
    def name(self) -> str:
        return f"Composition({self.method.name}, {self.scheme.name})"

    @property
    def traits(self) -> Mapping[str, Traits]:
        order, traits = self.scheme.order, self.method.traits
        return {kind: replace(t, order=order, energy_exact=False) for kind, t in traits.items() if _gains(t)}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return self.method.init(system, state, dt)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        def substep(loop: PyTree, gamma: Numbers):
            state, carry, total = loop
            carry = self.method.resize(system, state, gamma * dt, carry)
            state, carry, report = self.method.step(system, state, gamma * dt, carry)
            return (state, carry, merge_reports(total, report)), report.multipliers

        gammas = jnp.asarray(self.scheme.coefficients, state.q.dtype)
        state = State(state.q, state.p, jnp.asarray(state.t, state.q.dtype), state.n)
        (state, carry, total), multipliers = jax.lax.scan(substep, (state, carry, Report.ok()), gammas)
        last = jax.tree.map(lambda x: x[-1], multipliers)
        return state, carry, Report(total.status, total.iterations, total.residual, last)

    def read(self, system: AbstractSystem, state: State, carry: PyTree) -> State:
        return self.method.read(system, state, carry)

    def reverse(self, system: AbstractSystem, state: State, carry: PyTree) -> tuple[State, Any]:
        return self.method.reverse(system, state, carry)

    def renew(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree) -> Any:
        return self.method.renew(system, state, dt, carry)


def _gains(t: Traits) -> bool:
    """Whether symmetric compositions of a method with these traits are of higher order."""
    return t.composable and t.symmetric and t.order_of("q") == 2 and t.order_of("p") == 2


class Splitting(AbstractMethod):
    r"""`q += dt c_i M^-1 p`, then `p -= dt d_i grad V(q)`, for i = 1..s, on separable systems without constraints.

    The order conditions (agreement of `prod_i exp(c_i A) exp(d_i B)` with `exp(A + B)`) are checked up to the claimed
    order; without a claim the order found is used. Symplectic for any coefficients. The default is Verlet.
    """

    reference = "Yoshida 1990; Farrell 2009 (7.2)"
    family = "composition"

    c: tuple[float, ...] = eqx.field(static=True)
    d: tuple[float, ...] = eqx.field(static=True)
    claimed: int = eqx.field(static=True)

    def __init__(
        self,
        c: Sequence[float | int] | np.ndarray = (0.5, 0.5),
        d: Sequence[float | int] | np.ndarray = (1.0, 0.0),
        order: int | None = None,
    ):
        self.c, self.d = number_list("c", c), number_list("d", d)
        order = None if order is None else whole_number("order", order)
        if len(self.c) != len(self.d):
            raise InputError(f"c has {len(c)} coefficients and d has {len(d)}; their numbers must be equal")
        found = 0
        while found < (8 if order is None else order) and splitting_defect(self.c, self.d, found + 1) < 1e-10:
            found += 1
        if found == 0:
            raise InputError(
                f"the coefficients must each add up to 1: sum c = {sum(self.c):g}, sum d = {sum(self.d):g}"
            )
        if order is not None and found < order:
            defect = splitting_defect(self.c, self.d, found + 1)
            raise InputError(
                f"the coefficients satisfy the order conditions up to {found} only, not {order} (off by {defect:.2g})"
            )
        self.claimed = found

    @property
    def traits(self) -> Mapping[str, Traits]:
        # a palindrome ends with a drift if the last d is zero, and starts with a kick if the first c is zero
        c, d = list(self.c), list(self.d)
        flows = [x for pair in zip(c, d, strict=True) for x in pair]
        while flows and flows[-1] == 0.0:
            flows.pop()
        while flows and flows[0] == 0.0:
            flows.pop(0)
        return {
            "free": Traits(
                self.claimed,
                symmetric=len(flows) % 2 == 1 and np.allclose(flows, flows[::-1], atol=1e-15),
                symplectic=True,
                treats=(Capability.TIME,),
            )
        }

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return Compensation.zeros(state.q)

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        def stage(point: PyTree, weights: tuple[Any, ...]):
            c, d, when = weights
            point = point.move(dt * c * system.velocity(point.q, point.p))
            return point.kick(-dt * d * system.gradient(point.q, state.t + when * dt)), None

        # drifts advance the time
        weights = tuple(jnp.asarray(x, state.q.dtype) for x in (self.c, self.d, np.cumsum(self.c)))
        end, _ = jax.lax.scan(stage, PhasePoint.of(state, carry), weights)
        return end.state(state.t + dt, state.n), end.low, Report.ok()


def splitting_defect(c: Sequence[float], d: Sequence[float], order: int) -> float:
    """Largest coefficient of degree `order` in `prod_i exp(c_i A) exp(d_i B) - exp(A + B)`, A and B not commuting."""
    words = [w for k in range(order + 1) for w in itertools.product("AB", repeat=k)]

    def exponential(letter: str, factor: float):
        return {(letter,) * k: factor**k / _factorial(k) for k in range(order + 1)}

    product: dict[tuple[str, ...], float] = {(): 1.0}
    for ci, di in zip(c, d, strict=True):
        for letter, factor in (("A", ci), ("B", di)):
            if factor:
                product = _multiply(product, exponential(letter, factor), order)
    return max(abs(product.get(w, 0.0) - 1.0 / _factorial(len(w))) for w in words if len(w) == order)


def _multiply(a: dict, b: dict, order: int) -> dict:
    out: dict = {}
    for (u, x), (v, y) in itertools.product(a.items(), b.items()):
        if len(u) + len(v) <= order:
            out[u + v] = out.get(u + v, 0.0) + x * y
    return out


def _factorial(k: int) -> float:
    return float(np.prod(np.arange(1, k + 1))) if k else 1.0


VARIANTS = {"Composition": tuple(lambda k=k: Composition(RATTLE(), order=k) for k in (6, 8, 10))}
