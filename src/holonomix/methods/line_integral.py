"""Line-integral methods of any even order that keep energy, constraint and hidden constraint together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import one_of, whole_number
from ..core.errors import InputError
from ..core.types import Key, Numbers, Real, Report, State
from ..linalg import Compensation, Dense, Iterated, implicit_root, iterate, known_value
from ..linalg.careful import is_careful, rescue
from ..linalg.scales import LINEAR_LIMIT, stall_rule
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..trace.degrees import polynomial_degree
from .base import AbstractMethod, Traits
from .equations import iteration_report
from .legendre import (
    ITERATIONS,
    NodeValues,
    Tables,
    add_increments,
    check_degrees,
    coefficients,
    continuation,
    evaluate_nodes,
    shorten,
    step_norm,
    step_speeds,
    surprise_continuation,
    tables,
    unknown_speeds,
)
from .rounding import conserved_energy, constraint_correction, correct_energy
from .stages import all_blocks, combine, one_block, pulls, rates, velocities

# A correction with the matrix of an earlier iterate that contracts less than this calls for a new matrix.
NEW_MATRIX_RATE = 0.1
# The largest foreseen residual of a step, in eps. It has the same sign in many consecutive steps.
MAX_FORESEEN = 2.0**-6


class Guess(NamedTuple):
    """The first guess of the next step, from Legendre coefficients of the last steps."""

    last: Any  # (s, n) or (R, m)
    surprise: Any  # `last - E previous`, or zero where it does not predict anything

    def coefficients(self) -> Any:
        rows = self.last.shape[0]
        return continuation(rows) @ self.last + surprise_continuation(rows) @ self.surprise

    def follow(self, new: Numbers, smooth: Numbers) -> Guess:
        """The guess after a step with the coefficients `new`."""
        return Guess(new, jnp.where(smooth, new - continuation(new.shape[0]) @ self.last, 0.0))


class Memory(NamedTuple):
    """First guesses from past steps, and the energy by which rounding errors are measured."""

    low: Compensation
    energy: Any  # at the start, where it is conserved; else None
    gamma: Guess
    multipliers: Guess
    smooth: Any  # whether the last step converged quickly from its guess


class Pieces(NamedTuple):
    """Values of the equations at one iterate."""

    defect: Any  # (s, n), of the equation for gamma
    rows: Any  # (R, m), the first R - 1 moments of d/dt g along the step, and the hidden constraint
    push: Any  # (s, n), F - beta M gamma
    path: NodeValues
    q1: Any
    p1: Any


class LineIntegral(AbstractMethod):
    r"""Order 2R in positions and momenta with a multiplier polynomial `lambda(c h) = sum_{i<R} P_i(c) lambda_i`.

        F_j = sum_l b_l P_j(c_l) [grad U + G^T lambda](u_l)  phi_i = sum_l b_l P_i(c_l) G(u_l) u'_l
        M gamma = e_0 p_0 - h X_s (F - beta M gamma)       beta = lambda_{R-1}^T phi_{R-1} / sum_j gamma_j^T M gamma_j
        q_1 = q_0 + h gamma_0                              p_1 = p_0 - h (F_0 - beta M gamma_0)
        phi_0 = ... = phi_{R-2} = 0                        G(q_1) M^-1 p_1 = 0

    `phi_0 = 0` is the constraint; `beta` (zero at rest) restores the energy that the last moment would take.
    Energy, constraint and hidden constraint are kept to round-off where U and g are polynomials of degree at most
    `2 k / s`, or k is large enough for them; symmetric. Without constraints it is HBVM(k, s).

    `order` is 2R >= 4; `degree` is s (R by default). `quadrature` is k, at least 2R; by default it is what polynomials
    U and g need for exact integrals, at most 3 s; for other functions it is 3 s.
    """

    reference = "after Brugnano, Gurioli, Iavernaro & Weinmueller 2018; derived in docs/methods/line_integral.md"
    family = "line integral"
    reasons = {
        Capability.MASS: "its energy term divides by the kinetic energy of constant mass",
        Capability.MOVING: "it keeps a constraint by an integral along the step",
    }

    order_claimed: int = eqx.field(static=True)
    s: int = eqx.field(static=True)
    quadrature: int | None = eqx.field(static=True)
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
        self.quadrature = None if quadrature is None else whole_number("quadrature", quadrature)
        k, _ = check_degrees(self.quadrature, self.s)
        if self.s < self.R:
            raise InputError(f"degree must be at least order/2 = {self.R}, not {self.s}")
        if k < 2 * self.R:
            raise InputError(f"order {order} needs at least {2 * self.R} quadrature nodes, not {k}")
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
        q = state.q

        def uniform(rows: int, value: Numbers) -> Guess:
            zero = jnp.zeros((rows, value.size), q.dtype)
            return Guess(zero.at[0].set(value.reshape(-1)), zero)

        gamma = uniform(self.s, system.velocity(q, state.p))
        multipliers = uniform(self.R, system.multipliers(q, state.p, state.t))
        energy = conserved_energy(system, q, state.p)
        return Memory(Compensation.zeros(q), energy, gamma, multipliers, jnp.asarray(False))

    def step(
        self, system: AbstractSystem, state: State, dt: Real, carry: Memory, key: Key | None = None
    ) -> tuple[State, Memory, Report]:
        system = system.with_row_sets(self.R)
        q, low, k = state.q, carry.low, self.nodes(system, state.q)
        start = jnp.concatenate([x.coefficients().reshape(-1) for x in (carry.gamma, carry.multipliers)])
        here = jax.tree.map(lambda x: x[None], system.linearize(q, state.t)) if system.has_constraints else None
        owed = None if here is None else constraint_correction(system, q, state.t, dt, here)
        args = (system, q, low.q, state.p + low.p, state.t, jnp.asarray(dt, q.dtype), owed, k)
        done, push, smooth = self._solve(start, args)
        gamma, multipliers = self._split(done.x, q)
        bend = -dt * (tables(k, self.s).X[0] @ velocities(system, q, push))
        q1, p1, low = add_increments(system, state, low, dt, bend, -push[0])
        low = correct_energy(system, q1, p1, low, carry.energy)
        guesses = carry.gamma.follow(gamma, carry.smooth), carry.multipliers.follow(multipliers, carry.smooth)
        memory = Memory(low, carry.energy, *guesses, smooth)
        named = {"lambda": multipliers[0]} if system.has_constraints else {}
        return State(q1, p1, state.t + dt, state.n), memory, iteration_report(done, **named)

    def nodes(self, system: AbstractSystem, q: Numbers) -> int:
        """The number of quadrature nodes: `quadrature`, or enough for the degrees of the potential and constraint.

        For polynomials `P_j (grad U + G^T lambda)` has the degree `max(nu_U s, nu_g s + R - 1) - 1`.
        """
        most = 3 * self.s
        if self.quadrature is not None or not system.conservative:
            return self.quadrature or most
        degree = polynomial_degree(lambda x: system.potential(x), q) * self.s
        if system.has_constraints:
            degree = max(degree, polynomial_degree(lambda x: system.constraint(x), q) * self.s + self.R - 1)
        return max(self.s, math.ceil(min(degree / 2, most)))

    def _split(self, x: PyTree, q: Numbers) -> tuple[Any, Any]:
        return x[: self.s * q.size].reshape(self.s, q.size), x[self.s * q.size :].reshape(self.R, -1)

    def _equations(self, x: PyTree, args: PyTree) -> Pieces:
        system, q, low, p, t, dt, owed, k = args
        tab, shape = tables(k, self.s), q.shape
        gamma, multipliers = self._split(x, q)
        path = evaluate_nodes(system, (q, low), gamma, t, dt, tab)
        force, phi = path.pull, multipliers
        if path.G is not None:
            force = force + pulls(path.G, tab.P[:, : self.R] @ multipliers)
            phi = tab.weighted[:, : self.R].T @ rates(path.G, path.du)
            phi = phi.at[0].add(owed)

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
        hidden = system.hidden_constraint(q1, p1, t + dt)
        return Pieces(defect, jnp.concatenate([phi[:-1], hidden[None]]), push, path, q1, p1)

    def _residual(self, x: Numbers, args: PyTree) -> Any:
        e = self._equations(x, args)
        return jnp.concatenate([e.defect.reshape(-1), e.rows.reshape(-1)])

    def _solve(self, start: PyTree, args: PyTree) -> tuple[Iterated, Any, Any]:
        """The polynomials of the step, `push` with its derivative, and whether one matrix was enough."""
        # the plain fixed point improves gamma and lambda in turn, so that its norm does not fall in every sweep
        plain, chord, most = self.iteration == "fixed-point", self.iteration == "chord", self.max_iterations

        def solve(full: PyTree) -> tuple[Any, Any]:
            start, args = full
            eps = float(jnp.finfo(start.dtype).eps)
            rule: dict[str, Any] = {"tol": 2 * eps, "max_iterations": most, "polish": True}
            if plain:
                rule |= {"floor": 64 * eps, "stall": 0.8, "limit": LINEAR_LIMIT * eps}
            else:
                rule |= {"ahead": MAX_FORESEEN * eps, **stall_rule(start.dtype, quadratic=False)}
            if chord and args[0].has_constraints:
                rule["slow"] = NEW_MATRIX_RATE

            def measured(pair: PyTree) -> tuple[Any, Any]:
                e = self._equations(pair[0], args)
                return (e.defect, e.rows, e.push), self._norm(pair[0], e, args)

            def attempt(loop: PyTree) -> Any:
                before, attempts = loop
                correction = self._chord(before.x[0], args) if chord else partial(self._other, args=args)

                def body(pair: PyTree, e: PyTree) -> Any:
                    dx, dpush = correction(pair[0], *e[:2])
                    return pair[0] - dx, e[2] - dpush

                done = iterate(body, measured, before.x, **rule)
                return done._replace(iterations=before.iterations + done.iterations), attempts + 1

            def more(loop: PyTree) -> Any:
                done, _ = loop
                return ~done.converged & (done.iterations < most) & ~jnp.isnan(done.residual)

            pair, none = (start, jnp.zeros((self.s, args[1].size), start.dtype)), jnp.asarray(0, jnp.int32)
            first = Iterated(pair, jnp.asarray(jnp.inf, start.dtype), none, jnp.asarray(False))
            ((x, push), norm, k, converged), attempts = jax.lax.while_loop(more, attempt, (first, none))
            found = (x, push, norm, k)
            if is_careful(start.size):
                converged, found = rescue(
                    converged,
                    found,
                    lambda y, fraction: self._residual(y, self._shortened(args, fraction)),
                    self._fresh(args),
                    lambda y, norm, sweeps: (y, self._equations(y, args).push, norm, k + sweeps),
                    sizes=lambda y: self._sizes(y, args),
                )
            x, push, norm, k = found
            return x, (push, attempts < 2, norm, k, converged)

        x, (push, smooth, *rest) = implicit_root(solve, lambda x, full: self._residual(x, full[1]), (start, args))
        push = known_value(lambda pair: self._equations(*pair).push, (x, args), push)
        return Iterated(x, *rest), push, smooth

    def _fresh(self, args: PyTree) -> Any:
        """A guess that does not depend on earlier steps: uniform motion or, from rest, half of the change of velocity.

        At rest beta has no derivative, and no correction would reduce the residual.
        """
        system, q, _, p, t, dt, *_ = args
        multipliers = system.multipliers(q, p, t)
        force = system.force(q, p, t)
        if system.has_constraints:
            force = force - system.linearize(q, t).transpose(multipliers)
        p = jnp.where(jnp.any(p != 0), p, dt / 2 * force)
        gamma = jnp.zeros((self.s, q.size), q.dtype).at[0].set(system.velocity(q, p).reshape(-1))
        multipliers = jnp.zeros((self.R, multipliers.size), q.dtype).at[0].set(multipliers)
        return jnp.concatenate([gamma.reshape(-1), multipliers.reshape(-1)])

    def _shortened(self, args: PyTree, fraction: Real) -> Any:
        """The arguments of a step of `fraction dt`."""
        *most, owed, k = shorten(args, fraction)
        return (*most, None if owed is None else owed / fraction, k)

    def _sizes(self, x: Numbers, args: PyTree) -> Any:
        sizes = unknown_speeds(args, self._split(x, args[1]))
        return jnp.concatenate([size.reshape(-1) for size in sizes])

    def _norm(self, x: PyTree, e: Pieces, args: PyTree) -> Any:
        system, q, *_, dt, _, k = args
        gamma, multipliers = self._split(x, q)
        path = jax.tree.map(lambda x: x[:: k - 1], e.path)
        speeds = step_speeds(system, q, gamma, path, tables(k, self.s).P[:: k - 1, : self.R] @ multipliers, dt)
        return step_norm(e.defect, e.rows, path.G, speeds)

    def _other(self, x: PyTree, defect: PyTree, rows: Numbers, args: PyTree) -> tuple[Any, Any]:
        """Corrections of the other iterations."""
        if self.iteration == "newton":
            jacobian = jax.jacfwd(lambda y: self._residual(y, args))(x)
            dx = Dense(jacobian).factor().solve(jnp.concatenate([defect.reshape(-1), rows.reshape(-1)]))
        else:
            dx = self._chord(x, args)(x, defect, rows)[0]
            dx = jnp.concatenate([defect.reshape(-1), dx[defect.size :]])
        return dx, jax.jvp(lambda y: self._equations(y, args).push, (x,), (dx,))[1]

    def _chord(self, x: PyTree, args: PyTree) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
        """Corrections `(dx, dpush)` of x and push, with all derivatives at the given x: one matrix serves every sweep.

            d gamma = defect + h X M^-1 dpush     dpush = W^T G^T P d lambda - h K X d gamma
            d rows(d gamma, dpush) = rows         d x = (d gamma, -d lambda), to be subtracted

        K is the curvature of `U + lambda^T g` in the middle of the step. A round solves the rows for lambda with K's
        part from the round before, and with all blocks of the matrix or, for structured rows, one that is near them.
        """
        system, q, _, _, t, dt, _, k = args
        tab, R, shape = tables(k, self.s), self.R, q.shape
        e = self._equations(x, args)
        _, multipliers = self._split(x, q)
        if not system.has_constraints:
            return lambda x, defect, rows: (defect.reshape(-1), jnp.zeros_like(defect))

        G, end = e.path.G, system.linearize(e.q1, t + dt)
        # d/dq (G(q) v) = D_v G(q): the Jacobian of the hidden constraint has the structure of G
        turn = jax.jvp(lambda y: system.linearize(y, t + dt), (e.q1,), (system.velocity(e.q1, e.p1),))[1]
        moments = self._moments(end, G, tab)
        pull = combine(G, np.einsum("lj,li->jil", tab.weighted, tab.P[:, :R]))
        bend = lambda push: dt * (tab.X @ velocities(system, q, push))

        def push_of(dl: Numbers) -> Any:
            return jax.vmap(lambda row: jnp.sum(pulls(row, dl), axis=0))(pull)

        def rows_of(dgamma: Numbers, dpush: Numbers) -> Any:
            first, dp = dgamma[0].reshape(shape), velocities(system, q, dpush[:1]).reshape(shape)
            hidden = dt * turn(first) + dt * end(dp)
            return jnp.stack([end(first), *(jnp.sum(rates(J, dgamma), axis=0) for J in moments), hidden])

        def product(dl: Numbers) -> Any:
            push = push_of(dl)
            return rows_of(bend(push), push)

        if system.dense_rows(q):
            near = all_blocks(product, e.rows.shape, q.dtype)
        else:
            # with a constant G, phi_j = G gamma_j and the hidden constraint sees lambda_0 alone
            weights = np.concatenate([tab.X[: R - 1, :R], np.eye(R)[:1]])
            near = one_block(system, q, weights, dt, combine(G, tab.b))

        middle = (q + e.q1) / 2
        force = lambda y: system.gradient(y, t) + system.linearize(y, t).transpose(multipliers[0])
        curved = lambda v: jax.jvp(force, (middle,), (v.reshape(shape),))[1].reshape(-1)

        rounds = 2 if system.dense_rows(q) else 3

        def correction(_: PyTree, defect: PyTree, rows: Numbers) -> tuple[Any, Any]:
            dl, bent = jnp.zeros_like(rows), jnp.zeros_like(defect)
            push, dgamma = bent, defect
            for left in reversed(range(rounds)):
                change = near.solve(rows - rows_of(dgamma, push))
                dl, push = dl + change, push + push_of(change)
                if left:
                    before, bent = bent, dt * jax.vmap(curved)(tab.X @ (defect + bend(push)))
                    push = push + (before - bent)
                dgamma = defect + bend(push)
            return jnp.concatenate([dgamma.reshape(-1), -dl.reshape(-1)]), -push

        return correction

    def _moments(self, end: PyTree, G: PyTree, tab: Tables) -> list[Any]:
        """For 0 < i < R - 1 the Jacobians `J_ij`, stacked over j, with `d phi_i = sum_j J_ij d gamma_j`.

        They follow from `h phi_i = [P_i g] - int P_i' g`.
        """
        rows = []
        for i in range(1, self.R - 1):
            inner = combine(G, -(tab.b * tab.dP[:, i])[None] * tab.I.T)
            rows.append(jax.tree.map(lambda x, y, i=i: y.at[0].add((2 * i + 1) ** 0.5 * x), end, inner))  # P_i(1)
        return rows

    def reverse(self, system: AbstractSystem, state: State, carry: Memory) -> tuple[State, Memory]:
        back, fresh = super().reverse(system, state, carry)
        return back, fresh._replace(low=carry.low.reversed(), energy=carry.energy)


VARIANTS = {"LineIntegral": (lambda: LineIntegral(6), lambda: LineIntegral(8))}
