"""Hamiltonian Boundary Value Methods and Gauss collocation, with and without constraints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import one_of
from ..core.types import Key, Numbers, Real, Report, State
from ..linalg import Compensation, add, known_value
from ..linalg.scales import inverse_sizes
from ..mechanics.abstract import AbstractSystem
from ..mechanics.capabilities import Capability
from ..mechanics.projection import direct_momenta
from .base import EXPLICIT, AbstractMethod, Path, Traits, fresh_path, shown_momentum
from .composition import Composition
from .equations import iteration_report, reduced_force
from .hamiltonian_path import correction, equations, residual, start_slopes
from .legendre import (
    ITERATIONS,
    NodeValues,
    add_increments,
    check_degrees,
    coefficients,
    continuation,
    evaluate_nodes,
    solve_step,
    step_speeds,
    tables,
)
from .line_integral import LineIntegral
from .rattle import RATTLE
from .rounding import conserved_energy, constraint_correction, correct_energy
from .stages import combine, pulls, rates, row_sizes, velocities

# Corrections of a sweep for the change of the forces. Two are enough for long chains under tension.
REFINEMENTS = 2


class Memory(NamedTuple):
    """The polynomial of the last step, a first guess for the next, and the energy by which rounding is measured."""

    low: Compensation
    energy: Any  # at the start, where it is conserved; else None
    gamma: Any  # (s, n); (s, 2 n) where H is no sum T(p) + V(q)
    missed: Any  # gamma less the continuation of the polynomial before it
    multipliers: Any  # (m,)


class Sizes(NamedTuple):
    """The inverse sizes of `gamma`, (n,), and of the rows of the constraint, (m,)."""

    gamma: Any
    rows: Any


class HBVM(AbstractMethod):
    r"""HBVM(k, s): the polynomial of degree s whose energy, integrated along it with k Gauss nodes, does not change.

        u(c h) = q_0 + h sum_j I_j(c) gamma_j     psi_j + rho_j lambda = sum_l b_l P_j(c_l) [grad U + G^T lambda](u_l)
        gamma = e_0 M^-1 p_0 - h X_s M^-1 (psi + rho lambda)                                                      (54)
        sum_j rho_j^T gamma_j = 0                 equivalent to (51), and to g(q_1) = g(q_0)
        q_1 = q_0 + h gamma_0                     p_1 = p_0 - h (psi_0 + rho_0 lambda)                            (52)

    Energy and constraint are exact to round-off where both are polynomials of degree at most `2 k / s` (or k is large
    enough); otherwise they err by O(h^2k). Symmetric. Without constraints the order is 2s. With constraints lambda is
    constant over a step: for s >= 2 positions and tangential momenta are of order 4, the normal momentum of order 2 and
    lambda (at the start of the step) of order 1; `momentum="projected"` shows the momentum projected onto the tangent
    space, of order 4 like `Lambda(q, p)` then. A start with `lambda'(0) != 0` leaves an alternating O(h^2) in the
    hidden constraint; `start="corrected"` adds `(h^2/12) G^T lambda'(0)` to p_0, which removes it and moves the energy
    by O(h^4).

    With a mass M(q) or a vector potential position and momentum share one polynomial (`methods.hamiltonian_path`);
    energy and constraint are exact in the same sense, for polynomials H and g.

    `iteration` is `"chord"` (an m x m solve per sweep), `"fixed-point"` or `"newton"`.
    """

    reference = "Brugnano, Iavernaro & Trigiante 2010; Brugnano, Gurioli, Iavernaro & Weinmueller 2018 (50)-(54)"
    family = "line integral"
    reasons = {Capability.MOVING: "it keeps a constraint by an integral along the step"}

    k: int = eqx.field(static=True)
    s: int = eqx.field(static=True)
    momentum: str = eqx.field(static=True)
    start: str = eqx.field(static=True)
    iteration: str = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    def __init__(
        self,
        k: int | None = None,
        s: int = 2,
        *,
        momentum: str = "raw",
        start: str = "plain",
        iteration: str = "chord",
        max_iterations: int = 100,
    ):
        self.k, self.s = check_degrees(k, s)
        self.momentum, self.start, self.iteration, self.max_iterations = momentum, start, iteration, max_iterations
        choices = {"momentum": ("raw", "projected"), "start": ("plain", "corrected"), "iteration": ITERATIONS}
        for name, allowed in choices.items():
            one_of(name, getattr(self, name), allowed)

    @property
    def name(self) -> str:
        return f"Gauss({self.s})" if self.k == self.s else f"HBVM({self.k}, {self.s})"

    @property
    def title(self) -> str:
        own = f"HBVM({self.k}, {self.s})"
        return f"{own} = {self.name}" if self.k == self.s else own

    @property
    def degree(self) -> int:
        """The polynomial degree of U and g up to which energy and constraint are exact: `2 k / s`."""
        return 2 * self.k // self.s

    @property
    def traits(self) -> Mapping[str, Traits]:
        # The conditional promises are for polynomials of this degree, as in `_exact_on`.
        free = Traits(2 * self.s, True, symplectic=self.k == self.s, energy_exact=self.degree >= 4, treats=EXPLICIT)
        exact, projected = self.degree >= 2, self.momentum == "projected"
        order = {"q": min(4, 2 * self.s), "p": 4 if projected and self.s > 1 else 2, "multipliers": 1}
        # the energy kept is that of the raw state, the hidden constraint that of the projected one
        # not composable: the normal part of the raw momentum changes its sign in every step, however small
        constrained = Traits(
            order,
            True,
            None,
            energy_exact=exact and not projected,
            constraint_exact=exact,
            hidden_exact=projected,
            composable=False,
            treats=EXPLICIT,
        )
        return {"free": free, "constrained": constrained}

    def init(self, system: AbstractSystem, state: State, dt: Real) -> Memory:
        q, p = state.q, state.p
        gamma = self._first_guess(system, q, p, state.t)
        low = Compensation.zeros(q)
        if self.start == "corrected" and system.has_constraints:
            low = Compensation(low.q, _start_correction(system, state, dt))
        energy = conserved_energy(system, q, p + low.p) if self._exact_on(system) else None
        return Memory(low, energy, gamma, jnp.zeros_like(gamma), system.multipliers(q, p, state.t))

    def _exact_on(self, system: AbstractSystem) -> bool:
        """Whether the energy of the raw state is exact for common polynomials: links (2), quartic wells (4)."""
        return self.degree >= (2 if system.has_constraints else 4)

    def _first_guess(self, system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
        if not system.separable:
            return start_slopes(system, q, p, t, self.s)
        return jnp.zeros((self.s, q.size), q.dtype).at[0].set(system.velocity(q, p).reshape(-1))

    def _fresh(self, args: PyTree) -> tuple[Any, Any]:
        """A guess that does not depend on earlier steps."""
        system, q, _, p, t, _ = args
        return self._first_guess(system, q, p, t), system.multipliers(q, p, t)

    def step(
        self, system: AbstractSystem, state: State, dt: Real, carry: Memory, key: Key | None = None
    ) -> tuple[State, Memory, Report]:
        q, low = state.q, carry.low
        p, low_p = add(state.p, jnp.zeros_like(q), low.p)  # a corrected start has more than round-off there
        state, low = State(q, p, state.t, state.n), Compensation(low.q, low_p)
        continued = continuation(self.s) @ carry.gamma
        guess = (continued + carry.missed, carry.multipliers)  # predictions err by much the same from step to step
        args = (system, q, low.q, p, state.t, jnp.asarray(dt, q.dtype))
        # if H is not separable, the sweep is a fixed point in gamma, whose norm does not fall in every sweep
        plain = system.separable or self.iteration == "newton"
        iteration = self.iteration if plain else "fixed-point"
        options = {"iteration": iteration, "max_iterations": self.max_iterations, "ahead": iteration != "fixed-point"}
        rules = {"prepare": self._prepare, "evaluate": self._evaluate, "fresh": self._fresh}
        done, evaluated = solve_step(self._residual, self._correction, guess, args, **rules, **options)
        gamma, multipliers = done.x
        if system.separable:
            push = known_value(lambda at: self._evaluate(*at)[0], (done.x, args), evaluated[0])
            bend = -dt * (tables(self.k, self.s).X[0] @ velocities(system, q, push))
            q1, p1, low = add_increments(system, state, low, dt, bend, -push[0])
        else:
            rate, kick = jnp.split(equations(gamma, multipliers, args, tables(self.k, self.s)).field[0], 2)
            q1, low_q = add(q, low.q + dt * system.inverse_mass(q, low.p), dt * rate.reshape(q.shape))
            p1, low_p = add(p, low.p, dt * kick.reshape(q.shape))
            low = Compensation(low_q, low_p)
        named = {"lambda": multipliers} if system.has_constraints else {}
        low = correct_energy(system, q1, p1, low, carry.energy)
        memory = Memory(low, carry.energy, gamma, gamma - continued, multipliers)
        return State(q1, p1, state.t + dt, state.n), memory, iteration_report(done, **named)

    def _evaluate(self, x: PyTree, args: PyTree) -> Any:
        """`psi + rho lambda`, (s, n); `sum_j rho_j gamma_j`, (m,); and `rho`, a stack of s Jacobians or None."""
        system, q, low, _, t, dt = args
        if not system.separable:
            return None
        gamma, multipliers = x
        tab = tables(self.k, self.s)
        path = evaluate_nodes(system, (q, low), gamma, t, dt, tab)
        push, rho = coefficients(tab, path.pull), jax.tree.map(lambda G: coefficients(tab, G), path.G)
        if rho is None:
            return push, multipliers, rho
        return push + pulls(rho, multipliers), jnp.sum(rates(rho, gamma), axis=0), rho

    def _defect(self, gamma: Numbers, push: Numbers, args: PyTree) -> Any:
        """The residual of (54)."""
        system, q, _, p, _, dt = args
        drift = dt * (tables(self.k, self.s).X @ velocities(system, q, push))
        first = gamma[0] - system.velocity(q, p).reshape(-1) + drift[0]
        return jnp.concatenate([first[None], gamma[1:] + drift[1:]])

    def _residual(self, x: PyTree, args: PyTree) -> Any:
        system, q, _, _, t, dt = args
        if not system.separable:
            return residual(x, args, tables(self.k, self.s))
        push, along_g, rho = self._evaluate(x, args)
        due = 0.0 if rho is None else constraint_correction(system, q, t, dt, rho)
        return self._defect(x[0], push, args), along_g + due

    def _prepare(self, x: PyTree, args: PyTree, evaluated: PyTree) -> Any:
        """Sizes of the equations and, for structured rows, factors, at the predicted step."""
        system, q, _, _, t, dt = args
        if not system.separable:
            return None
        gamma, multipliers = x
        push, _, rho = evaluated
        speeds = step_speeds(system, q, gamma, NodeValues(gamma, push, rho), multipliers, dt)
        if rho is None:
            return Sizes(inverse_sizes(speeds), None), 0.0, None
        per_row = inverse_sizes(jnp.max(row_sizes(rho, speeds), axis=0))
        fixed = None if system.dense_rows(q) or self.iteration == "fixed-point" else self._factors(gamma, rho, args)
        return Sizes(inverse_sizes(speeds), per_row), constraint_correction(system, q, t, dt, rho), fixed

    def _factors(self, gamma: Numbers, rho: PyTree, args: PyTree) -> tuple[Any, Any, Any]:
        """`rho`, `G(q_1)`, and factors of the product of `G(q_1)` with what lambda does to q_1.

        h along_g is g(q_1) - g(q_0), so its derivative is exactly `G(q_1) d gamma_0`.
        """
        system, q, low, _, t, dt = args
        end = system.linearize(q + (low + dt * gamma[0].reshape(q.shape)), t + dt)
        return rho, end, system.gram(q, end, combine(rho, dt * tables(self.k, self.s).X[0])).factor()

    def _correction(self, x: PyTree, args: PyTree, evaluated: PyTree, prepared: PyTree) -> tuple[Any, Any]:
        system, q, _, _, t, dt = args
        if not system.separable:
            return correction(x, args, tables(self.k, self.s))
        gamma, multipliers = x
        push, along_g, rho = evaluated
        sizes, due, fixed = prepared
        defect, along_g = self._defect(gamma, push, args), along_g + due
        norm = jnp.max(jnp.abs(defect) * sizes.gamma)
        if rho is None:
            return (defect, along_g), norm
        norm = jnp.maximum(norm, jnp.max(jnp.abs(along_g) * sizes.rows))

        X = tables(self.k, self.s).X
        if self.iteration == "fixed-point":
            each = [jax.tree.map(lambda x, j=j: x[j], rho) for j in range(self.s)]
            grams = [system.gram(q, r, combine(rho, dt * X[j])) for j, r in enumerate(each)]
            gram = jax.tree.map(lambda *x: sum(x[1:], x[0]), *grams)
            return (defect, -gram.factor().solve(along_g - jnp.sum(rates(rho, defect), axis=0))), norm
        rho, end, factor = self._factors(gamma, rho, args) if fixed is None else fixed

        def solved(defect: PyTree):
            dl = factor.solve(along_g - end(defect[0].reshape(q.shape)))
            return defect + dt * (X @ velocities(system, q, pulls(rho, dl))), -dl

        change = solved(defect)
        if fixed is not None:
            # the change of the forces by d gamma: the tension of a long chain is large
            middle = q + dt / 2 * gamma[0].reshape(q.shape)
            force = lambda x: system.gradient(x, t) + system.linearize(x, t).transpose(multipliers)
            bent = jax.vmap(lambda v: jax.jvp(force, (middle,), (v.reshape(q.shape),))[1].reshape(-1))
            for _ in range(REFINEMENTS):
                change = solved(defect - dt**2 * (X @ X) @ velocities(system, q, bent(change[0])))
        return change, norm

    def read(self, system: AbstractSystem, state: State, carry: Memory) -> State:
        if self.momentum == "raw" or not system.has_constraints:
            return state
        return State(state.q, shown_momentum(direct_momenta(system, state.q, state.p, state.t)), state.t, state.n)

    def reverse(self, system: AbstractSystem, state: State, carry: Memory) -> tuple[State, Memory]:
        back = State(state.q, -state.p, state.t, state.n)
        gamma = self._first_guess(system, back.q, back.p, back.t)
        return back, Memory(carry.low.reversed(), carry.energy, gamma, jnp.zeros_like(gamma), carry.multipliers)

    def renew(self, system: AbstractSystem, state: State, dt: Real, carry: Memory) -> Memory:
        """Adds the normal momentum of `start="corrected"`, because a thermostat leaves a tangential one.

        Without it every step would start another alternating component, and positions would be of order 3.
        """
        memory = self.init(system, state, dt)
        if self.start == "corrected" or not system.has_constraints:
            return memory
        return memory._replace(low=Compensation(memory.low.q, _start_correction(system, state, dt)))

    def path(self, system: AbstractSystem, state: State, dt: Real, carry: Memory) -> Path:
        """With constraints, another method of order four: a short step magnifies the normal part of a raw momentum."""
        if not system.has_constraints:
            return super().path(system, state, dt, carry)
        inner: AbstractMethod = Composition(RATTLE(), order=4)
        if system.separable:
            inner = LineIntegral(4, iteration=self.iteration, max_iterations=self.max_iterations)
        shown = State(state.q, direct_momenta(system, state.q, state.p, state.t).p, state.t, state.n)
        return fresh_path(inner, system, shown)


def _start_correction(system: AbstractSystem, state: State, dt: Real) -> Any:
    """`(h^2/12) G^T lambda'(0)`, with lambda' along the exact motion."""
    q, p, t = state.q, state.p, jnp.asarray(state.t, state.q.dtype)
    rates = (system.velocity(q, p), reduced_force(system, q, p, t), jnp.ones_like(t))
    slope = jax.jvp(system.multipliers, (q, p, t), rates)[1]
    return dt**2 / 12 * system.linearize(q, t).transpose(slope)


def Gauss(s: int = 2, **options: Any) -> HBVM:
    """Gauss collocation with s stages: `HBVM(s, s)`, order 2s and symplectic without constraints."""
    return HBVM(s, s, **options)


VARIANTS = {
    "HBVM": (lambda: HBVM(3, 1), lambda: HBVM(9, 3), lambda: HBVM(6, 2, momentum="projected")),
    "Gauss": (lambda: Gauss(1), lambda: Gauss(3)),
}
