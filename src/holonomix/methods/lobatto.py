"""Lobatto IIIA-IIIB: symplectic methods of high order for constrained systems."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import one_of, whole_number
from ..core.errors import InputError
from ..core.types import Key, Numbers, Real, Report, State
from ..linalg import Compensation, add
from ..linalg.scales import inverse_sizes
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import direct_momenta
from ..mechanics.projection.terms import MAX_ROWS_WITH_TERMS, term_sizes
from .base import AbstractMethod, Traits, solver_report
from .equations import iteration_report
from .legendre import basis, integrals, slopes, solve_step
from .stages import (
    all_blocks,
    combine,
    one_block,
    pulls,
    rates,
    reaches,
    row_sizes,
    solve_response,
    speed_sizes,
    velocities,
)

MAX_STAGES = 16


class Coefficients(NamedTuple):
    """Nodes, weights, and the coefficients of Lobatto IIIA (`a`) and IIIB (`a_hat`)."""

    c: Any
    b: Any
    a: Any
    a_hat: Any


@functools.cache
def lobatto(s: int) -> Coefficients:
    """`a` integrates the interpolation polynomial over [0, c_i]; `a_hat_ij = b_j (1 - a_ji / b_i)`."""
    inner = np.polynomial.legendre.Legendre.basis(s - 1).deriv().roots() if s > 2 else []
    c = ((np.concatenate([[-1.0], np.sort(np.real(inner)), [1.0]]) + 1) / 2).astype(np.longdouble)
    for _ in range(3):  # Newton on P'_{s-1}: c (1 - c) P'' = (2c - 1) P' - s (s - 1) P gives its derivative
        P, slope = basis(s, c[1:-1])[s - 1], slopes(s, c[1:-1])[s - 1]
        c[1:-1] -= slope * c[1:-1] * (1 - c[1:-1]) / ((2 * c[1:-1] - 1) * slope - s * (s - 1) * P)
    # discrete orthogonality of Legendre polynomials at the nodes turns values into coefficients; then integrate
    P = np.stack(basis(s, c), axis=1)
    weight = (2 * s - 1) / (s * (s - 1) * P[:, -1] ** 2)
    norms = P.T**2 @ weight
    a = np.stack(integrals(s, c), axis=1) @ ((P * weight[:, None]) / norms).T
    c, a = np.asarray(c, np.float64), np.asarray(a, np.float64)
    a[0] = 0.0
    b = a[-1].copy()
    a_hat = b[None, :] * (1 - a.T / b[:, None])
    a_hat[:, -1] = 0.0  # a_ss = b_s
    return Coefficients(c, b, a, a_hat)


@functools.cache
def continuation(s: int) -> Any:
    """Continues the interpolation polynomial of a step: slopes `(Q_i - q_0)/(c_i h)` to those of the next step."""
    c = lobatto(s).c

    def lagrange(points: PyTree):
        others = [np.delete(c, j) for j in range(s)]
        values = [np.prod((points[:, None] - o) / (x - o), axis=1) for x, o in zip(c, others, strict=True)]
        return np.stack(values, axis=1)

    ahead = lagrange(1 + c[1:]) - lagrange(np.ones(1))
    return ahead[:, 1:] * c[None, 1:] / c[1:, None]


def velocity_response(s: int) -> Any:
    """`sum_k a_ik a^_kj / c_i`: how the forces of the first s - 1 stages move the mean velocities of the last s - 1."""
    tab = lobatto(s)
    return (tab.a[1:] @ tab.a_hat[:, :-1]) / tab.c[1:, None]


def first_stages(stack: PyTree) -> Any:
    return jax.tree.map(lambda x: x[:-1], stack)


def last_stages(stack: PyTree) -> Any:
    return jax.tree.map(lambda x: x[1:], stack)


class Memory(NamedTuple):
    """The stages of the last step, as a first guess for the next one."""

    low: Compensation
    slopes: Any  # (s - 1, n): (Q_i - q_0) / (c_i h)
    missed: Any  # slopes less the continuation of the polynomial of the step before
    multipliers: Any  # (s - 1, m)
    last: Any  # (m,): the multiplier of the last stage


class LobattoIIIAB(AbstractMethod):
    r"""The partitioned Lobatto IIIA-IIIB method with s stages (Jay 1996): symplectic, symmetric, order 2s - 2.

        Q_i = q_0 + h sum_j a_ij M^-1 P_j            P_i = p_0 - h sum_j a^_ij (grad U + G^T L)_j
        g(Q_i) = 0 for i = 2..s                      a^_ij = b_j (1 - a_ji / b_i)
        q_1 = Q_s                                    p_1 = p_0 - h sum_j b_j (grad U + G^T L)_j,   G(q_1) M^-1 p_1 = 0

    The last column of a^ vanishes, so that the positions are found first and the last multiplier is a projection of the
    momentum. Two stages are RATTLE. Without constraints it is the partitioned Runge-Kutta method of the same name.
    """

    reference = "Jay 1996; Hairer, Lubich & Wanner 2006 (VII.1.4)"
    family = "line integral"

    s: int = eqx.field(static=True, default=3)
    iteration: Literal["chord", "newton"] = eqx.field(static=True, default="chord")
    max_iterations: int = eqx.field(static=True, default=100)

    def __check_init__(self) -> None:
        if whole_number("s", self.s) < 2:
            raise InputError(f"LobattoIIIAB needs at least two stages, not {self.s}")
        if self.s > MAX_STAGES:
            raise InputError(
                f"LobattoIIIAB is offered with up to {MAX_STAGES} stages (order {2 * MAX_STAGES - 2}): more gain "
                "nothing in double precision, and a step solves for all stages together"
            )
        one_of("iteration", self.iteration, ("chord", "newton"))

    @property
    def name(self) -> str:
        return f"LobattoIIIAB({self.s})"

    @property
    def traits(self) -> Mapping[str, Traits]:
        order = 2 * self.s - 2
        constrained = Traits(
            order,
            symmetric=True,
            symplectic=True,
            constraint_exact=True,
            hidden_exact=True,
            treats=(Capability.TIME, Capability.MOVING),
        )
        free = Traits(order, symmetric=True, symplectic=True, treats=(Capability.TIME,))
        return {"free": free, "constrained": constrained}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Memory:
        slopes, multipliers = _uniform_guess(system, state.q, state.p, state.t, self.s - 1)
        return Memory(Compensation.zeros(state.q), slopes, jnp.zeros_like(slopes), multipliers, multipliers[0])

    def step(
        self, system: AbstractSystem, state: State, dt: Real, carry: Memory, key: Key | None = None
    ) -> tuple[State, Memory, Report]:
        system = system.with_row_sets(self.s - 1)
        q, low, tab = state.q, carry.low, lobatto(self.s)
        # the multipliers enter linearly, so that any guess of them will do
        continued = continuation(self.s) @ carry.slopes
        guess = (continued + carry.missed, carry.multipliers)
        args = (system, q, low.q, state.p + low.p, jnp.asarray(state.t, q.dtype), jnp.asarray(dt, q.dtype))
        options = {"iteration": self.iteration, "max_iterations": self.max_iterations, "ahead": True}
        rules = {"prepare": self._factor, "fresh": self._fresh, "noise": self._noise}
        done, _ = solve_step(self._residual, self._correction, guess, args, **options, **rules)
        slopes, multipliers = done.x
        force, _, momenta = self._stages(slopes, multipliers, args)

        q1, low_q = add(q, low.q, dt * (tab.b @ velocities(system, q, momenta)).reshape(q.shape))
        kick = -dt * (tab.b[:-1] @ force + tab.b[-1] * system.gradient(q1, state.t + dt).reshape(-1)).reshape(q.shape)
        status, final, named = jnp.zeros((), jnp.int32), carry.last, {}
        if system.has_constraints:
            tangent = direct_momenta(system, q1, state.p + (low.p + kick), state.t + dt)
            kick, status = kick - tangent.correction, tangent.status
            final = tangent.multipliers / (dt * tab.b[-1])
            named = {"lambda": multipliers[0], "last": final}
        p1, low_p = add(state.p, low.p, kick)
        report = solver_report(iteration_report(done), status, **named)
        memory = Memory(Compensation(low_q, low_p), slopes, slopes - continued, multipliers, final)
        return State(q1, p1, state.t + dt, state.n), memory, report

    def _fresh(self, args: PyTree) -> tuple[Any, Any]:
        """A guess that does not depend on earlier steps: uniform motion."""
        system, q, _, p, t, _ = args
        return _uniform_guess(system, q, p, t, self.s - 1)

    def _noise(self, x: PyTree, args: PyTree) -> tuple[Any, Any]:
        """Round-off of the equations that comes from the terms of the constraint."""
        system, q, _, _, t, dt = args
        defect, rows = (jnp.zeros_like(part) for part in x)
        if not 0 < rows.shape[1] <= MAX_ROWS_WITH_TERMS:
            return defect, rows
        terms = 4 * jnp.finfo(q.dtype).eps * term_sizes(lambda y: system.constraint(y, t), q)
        return defect, terms / jnp.abs(dt * lobatto(self.s).c[1:, None])

    def _stages(self, slopes: Numbers, multipliers: Numbers, args: PyTree) -> tuple[Any, Any, Any]:
        """Forces with constraint forces at the first s - 1 stages, Jacobians at all s, and the stage momenta."""
        system, q, low, p, t, dt = args
        tab, m = lobatto(self.s), system.constraint_count(q)
        offsets = jnp.concatenate([jnp.zeros((1, q.size), q.dtype), dt * tab.c[1:, None] * slopes])
        points = q.reshape(-1) + (low.reshape(-1) + offsets)

        def at(u: Numbers, c: Numbers):
            here = u.reshape(q.shape)
            jac = system.linearize(here, t + c * dt) if m else None
            return system.gradient(here, t + c * dt).reshape(-1), jac

        gradients, G = jax.vmap(at)(points, jnp.asarray(tab.c, q.dtype))
        force = gradients[:-1] + pulls(first_stages(G), multipliers) if m else gradients[:-1]
        momenta = p.reshape(-1) - dt * (tab.a_hat[:, :-1] @ force)
        return force, G, momenta

    def _equations(self, x: PyTree, args: PyTree) -> tuple[Any, Any, Any]:
        system, q, low, _, t, dt = args
        tab = lobatto(self.s)
        slopes, multipliers = x
        force, G, _ = self._stages(slopes, multipliers, args)
        start = velocities(system, q, args[3].reshape(1, -1))
        defect = slopes - (start - dt * (velocity_response(self.s) @ velocities(system, q, force)))

        if not system.has_constraints:
            return defect, jnp.zeros((self.s - 1, 0), q.dtype), G

        def violation(v: Numbers, c: Numbers):
            return system.constraint(q + (low + c * dt * v.reshape(q.shape)), t + c * dt) * (1.0 / (c * dt))

        g = jax.vmap(violation)(slopes, jnp.asarray(tab.c[1:], q.dtype))
        return defect, g, G

    def _residual(self, x: PyTree, args: PyTree) -> Any:
        return self._equations(x, args)[:2]

    def _factor(self, x: PyTree, args: PyTree) -> Any:
        """`d g_i / d L_j` through the positions, factored at the predicted stages; serves every sweep of the step."""
        system, q, _, _, _, dt = args
        tab = lobatto(self.s)
        slopes, multipliers = x
        # positions q + c h v are only as good as eps |q|: an error eps |q| / (c h) of v is round-off
        speeds = jnp.max(jnp.abs(slopes), axis=0) + jnp.abs(q.reshape(-1)) / jnp.abs(dt)
        force, G, _ = self._stages(slopes, multipliers, args)
        speeds = speeds + jnp.abs(dt) * jnp.max(jnp.abs(velocities(system, q, force)), axis=0)
        if not system.has_constraints:
            return inverse_sizes(speed_sizes(system, q, speeds))
        before, after = first_stages(G), last_stages(G)
        # constraint forces may cancel, so their absolute values are added
        speeds = speeds + jnp.abs(dt) * jnp.sum(reaches(system, q, before, multipliers), axis=0)
        speeds = speed_sizes(system, q, speeds)
        per_row = inverse_sizes(row_sizes(after, speeds))
        if system.dense_rows(q):
            product = lambda dl: rates(after, self._response(dl, before, args))
            near = all_blocks(product, multipliers.shape, q.dtype)
        else:
            near = one_block(system, q, velocity_response(self.s), dt, combine(G, tab.b))
        return inverse_sizes(speeds), per_row, after, before, near

    def _response(self, dl: Numbers, before: PyTree, args: PyTree) -> Any:
        """How multipliers at the first s - 1 stages move the mean velocities of the last s - 1."""
        system, q, *_, dt = args
        return (dt * velocity_response(self.s)) @ velocities(system, q, pulls(before, dl))

    def _bend(self, x: PyTree, args: PyTree) -> Callable[[Any, int], Any]:
        """Changes of the slopes, less what they change in the forces of the inner stages; for structured rows only.

        `terms` counts the terms of a series, because the tension of a long chain makes the change large.
        """
        system, q, low, _, t, dt = args
        if system.dense_rows(q) or self.s == 2:
            return lambda v, terms: v
        slopes, multipliers = x
        c = jnp.asarray(lobatto(self.s).c[1:-1], q.dtype)

        def turned(slope: Numbers, lam: Numbers, c: Numbers, v: Numbers):
            here = q + (low + c * dt * slope.reshape(q.shape))
            force = lambda y: system.gradient(y, t + c * dt) + system.linearize(y, t + c * dt).transpose(lam)
            return jax.jvp(force, (here,), (c * dt * v.reshape(q.shape),))[1].reshape(-1)

        def bent(v: Numbers, terms: PyTree):
            bent = v
            for _ in range(terms):
                forces = jax.vmap(turned)(slopes[:-1], multipliers[1:], c, bent[:-1])
                bent = v - (dt * velocity_response(self.s)[:, 1:]) @ velocities(system, q, forces)
            return bent

        return bent

    def _correction(self, x: PyTree, args: PyTree, prepared: PyTree) -> tuple[Any, Any]:
        defect, g, _ = self._equations(x, args)
        if not args[0].has_constraints:
            return (defect, g), jnp.max(jnp.abs(defect) * prepared)
        per_size, per_row, after, before, near = prepared
        norm = jnp.maximum(jnp.max(jnp.abs(defect) * per_size), jnp.max(jnp.abs(g) * per_row))
        bent, response = self._bend(x, args), lambda dl: self._response(dl, before, args)
        dl = near.solve(g - rates(after, defect))
        moved = bent(defect + response(dl), 2)
        # a second, small change corrects the rows for the bending
        rest = g - rates(after, moved)
        again, more = solve_response(near, response, lambda v: rates(after, v), rest, 1)
        return (moved + bent(more, 1), -(dl + again)), norm

    def reverse(self, system: AbstractSystem, state: State, carry: Memory) -> tuple[State, Memory]:
        back, fresh = super().reverse(system, state, carry)
        return back, fresh._replace(low=carry.low.reversed())


def _uniform_guess(system: AbstractSystem, q: Numbers, p: Numbers, t: Real, stages: int) -> tuple[Any, Any]:
    """Slopes and multipliers of the start, the same for all stages."""
    both = system.velocity(q, p).reshape(-1), system.multipliers(q, p, t)
    return jnp.tile(both[0], (stages, 1)), jnp.tile(both[1], (stages, 1))


VARIANTS = {"LobattoIIIAB": (lambda: LobattoIIIAB(2), lambda: LobattoIIIAB(4))}
