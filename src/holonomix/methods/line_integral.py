"""Line-integral methods of any even order that keep energy, constraint and hidden constraint together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import InputError, one_of, whole_number
from ..linalg import Compensation
from ..systems.abstract import AbstractSystem
from ..systems.capabilities import Capability
from ..types import Key, Numbers, Real, Report, State
from .base import AbstractMethod, Traits
from .equations import iteration_report
from .legendre import (
    ITERATIONS,
    Path,
    along,
    basis,
    check_degrees,
    coefficients,
    compensated,
    continuation,
    solve_step,
    step_norm,
    step_speeds,
    tables,
)
from .rounding import conserved_energy, energy_returned, returned
from .stages import all_blocks, combined, one_block, pulls, rates, solve_blocks, velocities

__all__ = ["LineIntegral"]


class Memory(NamedTuple):
    """The polynomials of the last step, a starting guess for the next one, and what rounding errors are measured by."""

    low: Compensation
    energy: Any  # at the start, where it is conserved; else None
    gamma: Any  # (s, n)
    multipliers: Any  # (R, m)


class Pieces(NamedTuple):
    """What one evaluation of the equations yields."""

    defect: Any  # (s, n), of the equation for gamma
    phi: Any  # (R, m), moments of d/dt g along the step
    hidden: Any  # (m,)
    push: Any  # (s, n), F - beta M gamma
    path: Path
    q1: Any
    p1: Any


class LineIntegral(AbstractMethod):
    r"""Order 2R in positions and momenta with a multiplier polynomial `lambda(c h) = sum_{i<R} P_i(c) lambda_i`.

        F_j = sum_l b_l P_j(c_l) [grad U + G^T lambda](u_l)  phi_i = sum_l b_l P_i(c_l) G(u_l) u'_l
        M gamma = e_0 p_0 - h X_s (F - beta M gamma)       beta = lambda_{R-1}^T phi_{R-1} / sum_j gamma_j^T M gamma_j
        q_1 = q_0 + h gamma_0                              p_1 = p_0 - h (F_0 - beta M gamma_0)
        phi_0 = ... = phi_{R-2} = 0                        G(q_1) M^-1 p_1 = 0

    `phi_0 = 0` is the constraint, `beta` (zero at rest) gives back what the last moment would take from the energy.
    Energy, constraint and hidden constraint are kept to round-off where U and g are polynomials of degree at most
    `2 k / s`, or k is large enough for them; symmetric. Without constraints it is HBVM(k, s).

    `order` is 2R >= 4; `degree` is s (R by default), `quadrature` is k (3 s by default, at least 2R).
    """

    reference = "after Brugnano, Gurioli, Iavernaro & Weinmueller 2018; derived in docs/methods/line_integral.md"
    family = "line integral"
    reasons = {
        Capability.MASS: "its energy term divides by the kinetic energy of constant mass",
        Capability.MOVING: "it keeps a constraint by an integral along the step",
    }

    order_claimed: int = eqx.field(static=True)
    s: int = eqx.field(static=True)
    k: int = eqx.field(static=True)
    iteration: str = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    def __init__(
        self,
        order: int = 4,
        quadrature: int | None = None,
        *,
        degree: int | None = None,
        iteration: str = "chord",
        max_iterations: int = 100,
    ):
        if whole_number("order", order) < 4 or order % 2:
            raise InputError(f"order must be 4, 6, 8, ...; {order} is not (HBVM(k, 1) has order 2)")
        one_of("iteration", iteration, ITERATIONS)
        self.order_claimed = int(order)
        self.s = self.R if degree is None else whole_number("degree", degree)
        self.k = 3 * self.s if quadrature is None else whole_number("quadrature", quadrature)
        check_degrees(self.k, self.s)
        if self.s < self.R:
            raise InputError(f"degree must be at least order/2 = {self.R}, not {self.s}")
        if self.k < 2 * self.R:
            raise InputError(f"order {order} needs at least {2 * self.R} quadrature nodes, not {self.k}")
        self.iteration, self.max_iterations = iteration, max_iterations

    @property
    def R(self) -> int:
        """The number of Legendre coefficients of the multiplier."""
        return self.order_claimed // 2

    @property
    def name(self) -> str:
        return f"LineIntegral({self.order_claimed})"

    @property
    def traits(self) -> Mapping[str, Traits]:
        constrained = Traits(
            self.order_claimed,
            True,
            None,
            energy_exact=True,
            constraint_exact=True,
            hidden_exact=True,
            treats=(Capability.FORCE, Capability.TIME),
        )
        free = Traits(2 * self.s, True, energy_exact=True, treats=(Capability.FORCE, Capability.TIME))
        return {"free": free, "constrained": constrained}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Memory:
        q, m = state.q, system.constraint_count(state.q)
        gamma = jnp.zeros((self.s, q.size), q.dtype).at[0].set(system.velocity(q, state.p).reshape(-1))
        rest = jnp.zeros((self.R - 1, m), q.dtype)
        multipliers = jnp.concatenate([system.multipliers(q, state.p, state.t)[None], rest])
        return Memory(Compensation.zeros(q), conserved_energy(system, q, state.p), gamma, multipliers)

    def step(
        self, system: AbstractSystem, state: State, dt: Real, carry: Memory, key: Key | None = None
    ) -> tuple[State, Memory, Report]:
        q, low = state.q, carry.low
        guess = continuation(self.s) @ carry.gamma, continuation(self.R) @ carry.multipliers
        start = jnp.concatenate([x.reshape(-1) for x in guess])
        args = (system, q, low.q, state.p + low.p, state.t, jnp.asarray(dt, q.dtype))
        options = {"iteration": self.iteration, "max_iterations": self.max_iterations}
        done = solve_step(self._residual, self._correction, start, args, **options, prepare=self._factor)
        gamma, multipliers = self._split(done.x, q)
        push = self._equations(done.x, args).push
        bend = -dt * (tables(self.k, self.s).X[0] @ velocities(system, q, push))
        q1, p1, low = compensated(system, state, low, dt, bend, -push[0])
        memory = Memory(energy_returned(system, q1, p1, low, carry.energy), carry.energy, gamma, multipliers)
        named = {"lambda": multipliers[0]} if system.has_constraints else {}
        return State(q1, p1, state.t + dt, state.n), memory, iteration_report(done, **named)

    def _split(self, x: Any, q: Numbers) -> tuple[Any, Any]:
        return x[: self.s * q.size].reshape(self.s, q.size), x[self.s * q.size :].reshape(self.R, -1)

    def _equations(self, x: Any, args: PyTree) -> Pieces:
        system, q, low, p, t, dt = args
        tab, shape = tables(self.k, self.s), q.shape
        gamma, multipliers = self._split(x, q)
        path = along(system, (q, low), gamma, t, dt, tab)
        force, phi = path.pull, multipliers
        if path.G is not None:
            force = force + pulls(path.G, tab.P[:, : self.R] @ multipliers)
            phi = tab.weighted[:, : self.R].T @ rates(path.G, path.du)
            phi = phi.at[0].add(returned(system, q, t, dt, path.G))

        rows = jax.vmap(lambda v: system.momentum(q, v.reshape(shape)).reshape(-1))(gamma)
        twice_kinetic = jnp.sum(gamma * rows)
        moving = twice_kinetic > 0
        beta = jnp.where(moving, jnp.sum(multipliers[-1] * phi[-1]) / jnp.where(moving, twice_kinetic, 1.0), 0.0)
        push = coefficients(tab, force) - beta * rows

        drift = dt * (tab.X @ velocities(system, q, push))
        first = gamma[0] - system.velocity(q, p).reshape(-1) + drift[0]
        defect = jnp.concatenate([first[None], gamma[1:] + drift[1:]])
        q1 = q + (low + dt * gamma[0].reshape(shape))
        p1 = p - dt * push[0].reshape(shape)
        return Pieces(defect, phi, system.hidden_constraint(q1, p1, t + dt), push, path, q1, p1)

    def _residual(self, x: Any, args: PyTree) -> Any:
        e = self._equations(x, args)
        return jnp.concatenate([e.defect.reshape(-1), e.phi[:-1].reshape(-1), e.hidden])

    def _factor(self, x: Any, args: PyTree) -> Any:
        """For structured rows one Gram matrix, at the mean of the predicted step: serves every sweep."""
        system, q, low, _, t, dt = args
        tab = tables(self.k, self.s)
        if not system.has_constraints or system.dense_rows(q):
            return None
        # with a constant G, phi_j = G gamma_j and the hidden constraint sees lambda_0 alone
        weights = np.concatenate([tab.X[: self.R - 1, : self.R], np.eye(self.R)[:1]])
        middle = combined(along(system, (q, low), self._split(x, q)[0], t, dt, tab).G, tab.b)
        return one_block(system, q, weights, dt, middle)

    def _correction(self, x: Any, args: PyTree, near: Any) -> tuple[Any, Any]:
        system, q, _, _, t, dt = args
        e = self._equations(x, args)
        tab, R, G = tables(self.k, self.s), self.R, e.path.G
        gamma, multipliers = self._split(x, q)
        speeds = step_speeds(system, q, gamma, e.path, tab.P[:, :R] @ multipliers, dt)
        norm = step_norm(e.defect, jnp.concatenate([e.phi[:-1], e.hidden[None]]), G, speeds)
        if not system.has_constraints:
            return e.defect.reshape(-1), norm

        # d gamma = -defect - response d lambda; then the rows of the constraint as functions of d gamma
        reply = dt * (tab.X @ tab.weighted.T)
        end = system.linearize(e.q1, t + dt)
        # d/dq (G(q) v) = D_v G(q): the Jacobian of the hidden constraint has the structure of G
        velocity = system.velocity(e.q1, e.p1)
        turn = jax.jvp(lambda y: system.linearize(y, t + dt), (e.q1,), (velocity,))[1]
        force = lambda dl: pulls(G, tab.P[:, :R] @ dl)
        response = lambda force: velocities(system, q, reply @ force)

        def rows(dgamma: Any, dp: Any) -> Any:
            hidden = dt * turn(dgamma[0].reshape(q.shape)) + dt * end(dp.reshape(q.shape))
            return jnp.concatenate([self._moments(end, G, dgamma), hidden[None]])

        def product(dl: Any) -> Any:
            f = force(dl)
            return rows(response(f), velocities(system, q, (tab.b @ f)[None])[0])

        target = jnp.concatenate([e.phi[:-1], e.hidden[None]]) - rows(e.defect, jnp.zeros_like(e.defect[0]))
        near = all_blocks(product, target.shape, q.dtype) if near is None else near
        dl = solve_blocks(near, product, target)
        dgamma = e.defect
        if self.iteration != "fixed-point":
            dgamma = dgamma + response(force(dl))
        return jnp.concatenate([dgamma.reshape(-1), -dl.reshape(-1)]), norm

    def _moments(self, end: Any, G: Any, v: Numbers) -> Any:
        """`sum_j d phi_i / d gamma_j v_j` for i < R - 1, from `h phi_i = [P_i g] - int P_i' g`."""
        tab, R = tables(self.k, self.s), self.R
        at_end = end(v[0].reshape(end.shape))
        if R == 2:
            return at_end[None]
        inner = (tab.b[:, None] * tab.dP[:, 1 : R - 1]).T @ rates(G, tab.I @ v)
        ends = basis(R - 1, 1.0)
        return jnp.stack([at_end, *(ends[i] * at_end - inner[i - 1] for i in range(1, R - 1))])

    def reverse(self, system: AbstractSystem, state: State, carry: Memory) -> tuple[State, Memory]:
        back = State(state.q, -state.p, state.t, state.n)
        fresh = self.init(system, back, jnp.nan)
        return back, Memory(carry.low.reversed(), carry.energy, fresh.gamma, fresh.multipliers)


VARIANTS = {"LineIntegral": (lambda: LineIntegral(6), lambda: LineIntegral(8))}
