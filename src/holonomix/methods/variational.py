"""Any discrete Lagrangian as a method: its discrete Euler-Lagrange equations, by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import runtime_number
from ..core.errors import InputError
from ..core.types import Key, Numbers, Real, Report, State, StepResult
from ..linalg import newton_root
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..trace.functions import as_callable
from .base import AbstractMethod, Traits
from .equations import iteration_report, unknown_sizes
from .newmark import as_beta


class EulerLagrangian(eqx.Module):
    """`L_d = h L(q_0, (q_1 - q_0)/h)`: variational Euler, order one; implicit when the mass depends on the position."""

    def bind(self, system: AbstractSystem) -> Any:
        return lambda q0, q1, h: h * (_kinetic(system, q0, (q1 - q0) / h) - system.potential(q0))


class TrapezoidalLagrangian(eqx.Module):
    """`L_d = h/2 L(q_0, v) + h/2 L(q_1, v)`, `v = (q_1 - q_0)/h`: velocity Verlet, also for M(q)."""

    def bind(self, system: AbstractSystem) -> Any:
        def lagrangian(q0: Numbers, q1: Numbers, h: Real):
            v = (q1 - q0) / h
            ends = (_kinetic(system, q, v) - system.potential(q) for q in (q0, q1))
            return h / 2 * sum(ends)

        return lagrangian


class MidpointLagrangian(eqx.Module):
    """`L_d = h L((q_0 + q_1)/2, (q_1 - q_0)/h)`: the implicit midpoint rule."""

    def bind(self, system: AbstractSystem) -> Any:
        def lagrangian(q0: Numbers, q1: Numbers, h: Real):
            middle = (q0 + q1) / 2
            return h * (_kinetic(system, middle, (q1 - q0) / h) - system.potential(middle))

        return lagrangian


class NewmarkLagrangian(eqx.Module):
    """Tao & Owhadi (2.4), whose method is `PushforwardNewmark(beta)`; two auxiliary accelerations, one at each end."""

    beta: Any = eqx.field(converter=as_beta, default=0.25)

    def bind(self, system: AbstractSystem) -> Any:
        def lagrangian(q0: Numbers, q1: Numbers, h: Real, a: Numbers):
            shift = self.beta * h**2
            ends = (
                shift * _kinetic(system, q, x) + system.potential(q + shift * x)
                for q, x in zip((q0, q1), a, strict=True)
            )
            return h * (_kinetic(system, q0, (q1 - q0) / h) - sum(ends) / 2)

        return lagrangian


class ZhangSkeelLagrangian(eqx.Module):
    """Tao & Owhadi (1.2): (2.4) expanded to second order in the accelerations; its method is `ZhangSkeel(beta)`.

    `weight` scales the mass of the auxiliary term (`2c` of the rigid body, section 4.5); with `one_sided=True` the
    potential stands at `q_0` alone, which gives the scheme of order one.
    """

    beta: Any = eqx.field(converter=as_beta, default=0.25)
    weight: Any = eqx.field(converter=partial(runtime_number, "weight", above=0), default=1.0)
    one_sided: bool = eqx.field(static=True, default=False)

    def bind(self, system: AbstractSystem) -> Any:
        def at(q: Numbers, a: Numbers, h: Real):
            shift = self.beta * h**2
            value, slope = jax.jvp(system.potential, (q,), (a,))
            bend = jax.jvp(lambda x: jax.jvp(system.potential, (x,), (a,))[1], (q,), (a,))[1]
            return shift * self.weight * _kinetic(system, q, a) + value + shift * slope + shift**2 / 2 * bend

        def lagrangian(q0: Numbers, q1: Numbers, h: Real, a: Numbers):
            moving = _kinetic(system, q0, (q1 - q0) / h)
            if self.one_sided:
                return h * (moving - at(q0, a[0], h))
            return h * (moving - at(q0, a[0], h) / 2 - at(q1, a[1], h) / 2)

        return lagrangian


def _kinetic(system: AbstractSystem, q: Numbers, v: Numbers) -> Any:
    return 0.5 * jnp.sum(v * system.momentum(q, v))


class VariationalIntegrator(AbstractMethod):
    r"""The method of a discrete Lagrangian `L_d(q_0, q_1, h)`, stepped by automatic differentiation of it.

        p_n = -D_1 L_d(q_n, q_{n+1}, h)        p_{n+1} = D_2 L_d(q_n, q_{n+1}, h)

    With `auxiliary=k` the Lagrangian is `L_d(q_0, q_1, h, a)`, `a` being k arrays like q with respect to which it is
    stationary. Symplectic for every L_d; `order` and `symmetric` are those of the Lagrangian given. A Lagrangian with a
    method `bind(system)` is bound to the system of the run; a plain function carries its own physics. `symmetries` are
    functions `q -> dq` that leave L_d unchanged: their Noether momenta `p . dq`, which the method keeps exactly, are
    reported in `sol.step_multipliers["noether"]`.
    """

    reference = "Marsden & West 2001; Tao & Owhadi 2015 (2.1)"
    family = "variational"
    position_carry = True
    reasons = {Capability.FORCE: "its forces come from the discrete Lagrangian"}

    lagrangian: Any
    auxiliary: int = eqx.field(static=True)
    claimed: int = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)
    symmetries: tuple[Callable[[Any], Any], ...]

    def __init__(
        self,
        lagrangian: Any | None = None,
        auxiliary: int | None = None,
        order: int = 2,
        symmetric: bool = True,
        symmetries: Sequence[Callable[[Any], Any]] = (),
    ):
        lagrangian = TrapezoidalLagrangian() if lagrangian is None else lagrangian
        if auxiliary is None:
            auxiliary = 0
            if isinstance(lagrangian, NewmarkLagrangian | ZhangSkeelLagrangian):
                auxiliary = 1 if getattr(lagrangian, "one_sided", False) else 2
        if not hasattr(lagrangian, "bind") and not callable(lagrangian):
            raise InputError(f"the discrete Lagrangian must be a function, not {type(lagrangian).__name__}")
        if isinstance(lagrangian, EulerLagrangian) or getattr(lagrangian, "one_sided", False):
            order, symmetric = 1, False
        self.lagrangian = lagrangian if hasattr(lagrangian, "bind") else as_callable(lagrangian)
        self.auxiliary, self.claimed, self.symmetric = auxiliary, order, symmetric
        if not isinstance(symmetries, (tuple, list)) or not all(callable(x) for x in symmetries):
            raise InputError(f"symmetries must be a list of functions, not {symmetries!r}")
        self.symmetries = tuple(as_callable(direction) for direction in symmetries)

    @property
    def traits(self) -> Mapping[str, Traits]:
        # the modified potentials of the two others need a constant mass
        general = not isinstance(self.lagrangian, NewmarkLagrangian | ZhangSkeelLagrangian)
        treats = (Capability.MASS,) if general else ()
        return {"free": Traits(self.claimed, symmetric=self.symmetric, symplectic=True, treats=treats)}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Any:
        return ()

    def step(self, system: AbstractSystem, state: State, dt: Real, carry: PyTree, key: Key | None = None) -> StepResult:
        q, p, h = state.q, state.p, jnp.asarray(dt, state.q.dtype)
        guess = jnp.concatenate(
            [(q + h * system.velocity(q, p)).reshape(-1), jnp.zeros(self.auxiliary * q.size, q.dtype)]
        )
        blocks = (q.size,) * (1 + self.auxiliary)
        sizes = unknown_sizes("q" * len(blocks), lambda args: args[1:3])
        done = newton_root(_euler_lagrange, guess, (self, system, q, p, h), blocks=blocks, sizes=sizes)
        q1, a = _split(done.x, q)
        p1 = jax.grad(self._action(system), argnums=1)(q, q1, h, a)
        report = iteration_report(done)
        if self.symmetries:
            momenta = jnp.stack([jnp.sum(p1 * direction(q1)) for direction in self.symmetries])
            report = Report(report.status, report.iterations, report.residual, {"noether": momenta})
        return State(q1, p1, state.t + dt, state.n), (), report

    def _action(self, system: AbstractSystem) -> Any:
        bound = self.lagrangian.bind(system) if hasattr(self.lagrangian, "bind") else self.lagrangian
        return bound if self.auxiliary else lambda q0, q1, h, a: bound(q0, q1, h)


def _split(x: Numbers, q: Numbers) -> tuple[Any, Any]:
    return x[: q.size].reshape(q.shape), x[q.size :].reshape(-1, *q.shape)


def _euler_lagrange(x: Numbers, args: PyTree) -> Any:
    """`h (p_n + D_1 L_d) = 0`, scaled to lengths, and `D_a L_d = 0`."""
    method, system, q, p, h = args
    q1, a = _split(x, q)
    first, inner = jax.grad(method._action(system), argnums=(0, 3))(q, q1, h, a)
    return jnp.concatenate([h * system.velocity(q, p + first).reshape(-1), (inner / h).reshape(-1)])


VARIANTS = {
    "VariationalIntegrator": (
        lambda: VariationalIntegrator(EulerLagrangian()),
        lambda: VariationalIntegrator(MidpointLagrangian()),
        lambda: VariationalIntegrator(NewmarkLagrangian(0.4)),
        lambda: VariationalIntegrator(ZhangSkeelLagrangian(0.4)),
    )
}
