"""The interface of all systems: energies, forces and constraints.

Convention: `M q'' = F(q) - G(q)^T lambda`, `g(q) = 0`, `G = dg/dq`, `p = M q'`, `F = -grad V (+ applied force)`.
"""

from __future__ import annotations

import abc
import dataclasses
from functools import reduce
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from ..core.errors import InputError
from ..core.types import ArrayLike, Numbers, Real
from ..linalg.small import UNROLL
from ..trace.compiled import traced_once
from ..trace.signatures import Parametrized
from .capabilities import Capability
from .constraints import AbstractJacobian, Rheonomic, dense_jacobian
from .coupling import Structured, find_structure
from .gram import structured_jacobian
from .islands import IslandConstraint
from .mass import AbstractMass, BoundMass, DiagonalMass, ParameterMass, PositionMass, as_mass
from .names import Row, list_rows
from .potentials import depends_on_time, evaluate_potential

S = TypeVar("S", bound="AbstractSystem")
MAX_NAMES = 8  # of constraints or parameters in the representation of a system


def _function_name(fn: Any) -> str:
    while not hasattr(fn, "__name__") and hasattr(fn, "fn"):
        fn = fn.fn
    return getattr(fn, "__name__", type(fn).__name__)


class AbstractSystem(eqx.Module):
    """A mechanical system as methods and drivers use it.

    A final class provides, as fields or properties, the potential, the terms of the constraint, the applied force and
    the vector potential (None if absent), the mass and the parameters.
    """

    potential_fn: eqx.AbstractVar[Any]
    constraint_terms: eqx.AbstractVar[tuple[Any, ...]]
    mass: eqx.AbstractVar[Any]
    force_fn: eqx.AbstractVar[Any]
    vector_fn: eqx.AbstractVar[Any]
    params: eqx.AbstractVar[Any]
    shape: eqx.AbstractVar[tuple[int, ...] | None]  # of q, where it is known
    redundant: eqx.AbstractVar[bool]  # whether `multipliers` accepts rows that depend on each other
    row_sets: eqx.AbstractVar[int]  # of multipliers that a step solves for together
    rate_count: eqx.AbstractVar[int]  # rates through which the applied force depends on v; 0: unknown, or none

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """`free`, `constrained` or `stiff`: the kinds for which methods declare their traits."""

    @abc.abstractmethod
    def prepare(self, q: Numbers) -> AbstractSystem:
        """The same system for use in steps: mass in its final form, functions frozen."""

    @abc.abstractmethod
    def try_out(self, q: Numbers) -> None:
        """Call every function of the user once, as a run does, to check shapes."""

    @abc.abstractmethod
    def with_params(self, params: PyTree) -> AbstractSystem:
        """The same system with other parameter values; nothing is recompiled."""

    @abc.abstractmethod
    def penalized(self, omega: ArrayLike) -> AbstractSystem:
        """The stiff system with the constraint replaced by the potential `omega^2/2 |g|^2`."""

    def shaped(self: S, shape: tuple[int, ...]) -> S:
        """The same system with a known shape of q, so that `explain` needs no initial state."""
        return self._with(shape=tuple(shape))

    def with_row_sets(self: S, count: int) -> S:
        """The same system for a method that solves for `count` sets of multipliers together.

        Rows are held as a matrix up to `UNROLL` unknowns of such a solve, and beyond that by their structure.
        """
        return self._with(row_sets=count)

    def _with(self: S, **static: Any) -> S:
        new = object.__new__(type(self))
        for field in dataclasses.fields(self):
            object.__setattr__(new, field.name, static.get(field.name, getattr(self, field.name)))
        return new

    # -- properties ---------------------------------------------------------------------------------------------

    @property
    def has_constraints(self) -> bool:
        """Whether the motion is constrained to a manifold `g(q, t) = 0`."""
        return bool(self.constraint_terms)

    @property
    def rheonomic(self) -> bool:
        """Whether a constraint depends on time."""
        return any(isinstance(term, Rheonomic) for term in self.constraint_terms)

    @property
    def time_dependent(self) -> bool:
        """Whether the potential depends on time."""
        return depends_on_time(self.potential_fn)

    @property
    def forced(self) -> bool:
        """Whether there is an applied force."""
        return self.force_fn is not None

    @property
    def conservative(self) -> bool:
        """Whether H is conserved if the constraints do not depend on time."""
        return not self.forced and not self.time_dependent

    @property
    def keeps_energy(self) -> bool:
        """Whether the exact motion conserves H: no applied force, no potential in time, no moving constraint."""
        return self.conservative and not self.rheonomic

    @property
    def position_mass(self) -> bool:
        """Whether the mass depends on the position."""
        constant = isinstance(self.mass, (AbstractMass, ParameterMass))
        return isinstance(self.mass, PositionMass) or (callable(self.mass) and not constant)

    @property
    def magnetic(self) -> bool:
        """Whether there is a vector potential."""
        return self.vector_fn is not None

    @property
    def separable(self) -> bool:
        """Whether `H = T(p) + V(q, t)`."""
        return not self.position_mass and not self.magnetic

    @property
    def needs(self) -> frozenset[Capability]:
        """What a method must be able to treat. (Redundant rows are detected only at the start of a run.)"""
        found = {
            Capability.MASS: self.position_mass,
            Capability.FORCE: self.forced,
            Capability.TIME: self.time_dependent,
            Capability.MAGNETIC: self.magnetic,
            Capability.MOVING: self.rheonomic,
        }
        return frozenset(c for c, needed in found.items() if needed)

    def __repr__(self) -> str:
        """One line: the names of the functions, and those of the parameters."""
        facts: dict[str, Any] = {"potential": _function_name(self.potential_fn)}
        if self.constraint_terms:
            names = [getattr(term, "name", None) or _function_name(term) for term in self.constraint_terms]
            short = len(names) <= MAX_NAMES and all(isinstance(name, str) for name in names)
            facts["constraint"] = ", ".join(names) if short else f"{len(names)} term{'s' * (len(names) > 1)}"
        mass = self.mass
        if hasattr(mass, "dtype"):
            known = isinstance(mass, np.ndarray | jax.Array) and not isinstance(mass, Tracer)
            one = known and not mass.ndim
            facts["mass"] = f"{float(mass):g}" if one else f"of shape {np.shape(mass)}"
        else:
            facts["mass"] = _function_name(mass)
        if self.force_fn is not None:
            facts["force"] = _function_name(self.force_fn)
        if self.vector_fn is not None:
            facts["vector potential"] = _function_name(self.vector_fn)
        if isinstance(self.params, dict) and self.params:
            facts["params"] = ", ".join(map(str, self.params)) if len(self.params) <= MAX_NAMES else len(self.params)
        elif self.params is not None:
            facts["params"] = "yes"
        return f"{type(self).__name__}({'; '.join(f'{key}: {value}' for key, value in facts.items())})"

    def mass_form(self, q: Numbers) -> AbstractMass:
        """The mass as the class of its structure; a mass that depends on the position is evaluated at q."""
        if isinstance(self.mass, ParameterMass):
            return as_mass(self.mass(self.params), q)
        bound = isinstance(self.mass, Parametrized)
        form = PositionMass(BoundMass(self.mass, self.params)) if bound else as_mass(self.mass, q)
        return form.at(q) if isinstance(form, PositionMass) else form

    def row_sizes(self, q: Numbers, jac: AbstractJacobian, x: Numbers) -> Any:
        """The natural scale of each row of `jac` for positions or velocities of the size of x (`linalg.scales`)."""
        return jac.row_sizes(x, None if x.ndim > 1 else self.mass_form(q).weights(q))

    # -- energies -----------------------------------------------------------------------------------------------

    @property
    def potential(self) -> Any:
        """The potential as a function of q (and of t, default 0)."""
        return self._potential

    def _potential(self, q: Numbers, t: Real = 0.0) -> Any:
        extra = () if self.params is None else (self.params,)
        return jnp.asarray(evaluate_potential(self.potential_fn, q, t, extra), jnp.result_type(q))

    @traced_once
    def potential_and_gradient(self, q: Numbers, t: Real = 0.0) -> tuple[Any, Any]:
        """V and grad V, the latter in the shape of q."""
        return jax.value_and_grad(self._potential)(q, t)

    def gradient(self, q: Numbers, t: Real = 0.0) -> Any:
        """grad V, in the shape of q."""
        return self.potential_and_gradient(q, t)[1]

    @property
    def vector_potential(self) -> Any:
        """The vector potential as a function of q, or None."""
        return None if self.vector_fn is None else self._vector

    def _vector(self, q: Numbers) -> Any:
        return self.vector_fn(q) if self.params is None else self.vector_fn(q, self.params)

    def inverse_mass(self, q: Numbers, x: Numbers) -> Any:
        """M(q)^-1 x for a force or a change of momentum."""
        return self.mass_form(q).velocity(q, x)

    def velocity(self, q: Numbers, p: Numbers) -> Any:
        """M(q)^-1 p, or M(q)^-1 (p - A(q)) where there is a vector potential."""
        return self.inverse_mass(q, p if self.vector_fn is None else p - self._vector(q))

    def momentum(self, q: Numbers, v: Numbers) -> Any:
        """M(q) v, plus A(q) where there is a vector potential."""
        mechanical = self.mass_form(q).momentum(q, v)
        return mechanical if self.vector_fn is None else mechanical + self._vector(q)

    def kinetic(self, q: Numbers, p: Numbers) -> Any:
        """`v^T M v / 2`."""
        mechanical = p if self.vector_fn is None else p - self._vector(q)
        return 0.5 * jnp.sum(mechanical * self.velocity(q, p))

    def hamiltonian(self, q: Numbers, p: Numbers, t: Real = 0.0) -> Any:
        """The energy `v^T M v / 2 + V`, as a function of position, canonical momentum and time."""
        return self.kinetic(q, p) + self._potential(q, t)

    def force(self, q: Numbers, p: Numbers, t: Real = 0.0) -> Any:
        """`-H_q` plus the applied force: the rate of p without the constraint forces."""
        f = -self.gradient(q, t) if self.separable else -jax.grad(self.hamiltonian)(q, p, t)
        return f + self.applied_force(q, self.velocity(q, p), t) if self.forced else f

    def applied_force(self, q: Numbers, v: Numbers, t: Real) -> Any:
        """The user's `force(q, v, t)`."""
        extra = (self.params,) if isinstance(self.force_fn, Parametrized) else ()
        return self.force_fn(q, v, t, *extra)

    def rate_slopes(self, q: Numbers, t: Real) -> tuple[Any, Any]:
        """Rows S, `(rate_count, *q.shape)`, with rates `S v`, and the force in the shape of q without `S^T c(S v)`."""
        slopes, rest = self.force_fn(q, q, t, self.params, "slopes")
        return slopes, rest - self.gradient(q, t)

    def rate_loads(self, q: Numbers, rates: Numbers, t: Real) -> tuple[Any, Any]:
        """The loads c on the rates, and the matrix of their derivatives with respect to the rates."""
        return self.force_fn(q, rates, t, self.params, "loads")

    # -- constraints --------------------------------------------------------------------------------------------

    @property
    def constraint(self) -> Any:
        """The constraint as a function of q (and of t, default 0), or None."""
        return self._constraint if self.constraint_terms else None

    def _terms(self, t: Real) -> tuple[tuple[Any, Any], ...]:
        """Every term with its arguments other than q."""
        extra = () if self.params is None else (self.params,)
        return tuple((term, (t, *extra) if isinstance(term, Rheonomic) else extra) for term in self.constraint_terms)

    @traced_once
    def _constraint(self, q: Numbers, t: Real = 0.0) -> Any:
        parts = [jnp.asarray(term(q, *extra)) for term, extra in self._terms(t)]
        if not parts:
            return jnp.zeros((0,), q.dtype)
        for part in parts:
            if not jnp.issubdtype(part.dtype, jnp.floating):
                raise InputError(
                    f"a constraint must return real numbers with a derivative, not {part.dtype.name}; it is an "
                    "equation g(q) = 0: inequalities and contact are not treated, see docs/scope.md"
                )
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def constraint_rows(self, q: Numbers) -> list[Row]:
        """Number and name of every row of the constraint."""
        return list_rows(self._terms(0.0), q)

    def constraint_forces(self, q: Numbers, p: Numbers, t: Real = 0.0) -> dict[str, Any]:
        """The force `-G^T lambda` of each named constraint, and of each unnamed row, in the shape of q."""
        if not self.constraint_terms:
            return {}
        members: dict[str, list[int]] = {}
        for row in self.constraint_rows(q):
            members.setdefault(row.key, []).append(row.number)
        multipliers = self.multipliers(q, p, t)
        chosen = np.zeros((len(members), multipliers.shape[0]))
        for k, numbers in enumerate(members.values()):
            chosen[k, numbers] = 1.0
        forces = -jax.vmap(self.linearize(q, t).transpose)(jnp.asarray(chosen, q.dtype) * multipliers)
        return dict(zip(members, forces, strict=True))

    def constraint_count(self, q: Numbers) -> int:
        """m, the number of constraint equations."""
        return jax.eval_shape(self._constraint, q).shape[0]

    @traced_once
    def linearize(self, q: Numbers, t: Real = 0.0) -> AbstractJacobian:
        """`G(q)` as an object that applies itself and its transpose."""
        structured = self._structured(q)
        if structured is None:
            return dense_jacobian(lambda x: self._constraint(x, t), q, self.constraint_count(q))
        return structured_jacobian(structured, self._terms(t), q)

    def gram(self, q: Numbers, left: AbstractJacobian, right: AbstractJacobian) -> Any:
        """`G_left M(q)^-1 G_right^T`, in a form with `.factor(symmetric)`."""
        return left.gram(self.mass_form(q), q, right)

    def gram_on_manifold(self, q: Numbers, jac: AbstractJacobian) -> Any:
        """`G M(q)^-1 G^T` at a point of the manifold, symmetric; less work with rigid bodies."""
        return jac.on_manifold(self.mass_form(q), q)

    def has_rigid_rows(self, q: Numbers) -> bool:
        """Whether `gram_on_manifold` eliminates the rows of rigid bodies."""
        jac = jax.eval_shape(self.linearize, q)
        return getattr(jac, "rigid", None) is not None and isinstance(self.mass_form(q), DiagonalMass)

    def turns(self, q: Numbers, q1: Numbers, t: Real, t1: Real, split: bool = True) -> Any:
        """Whether a row of G turned by more than a right angle between two positions, in the mass metric at the first.

        A step that long may have gone to another solution of `g(q1) = 0`: for one row, it lies beyond the fold.
        """
        mass, islands = self.mass_form(q), self.islands(q) if split else None
        if islands is None:
            # weight the rows at the second position: the Gram matrix there, which a step needs too, uses the same
            return jnp.min(self.linearize(q1, t1).row_products(mass, q, self.linearize(q, t))) < 0
        before, after = (islands.linearize(islands.gather(x)) for x in (q, q1))
        products = after.weighted(mass, q.shape).row_products(before)
        return reduce(jnp.minimum, [jnp.min(x) for x in products]) < 0

    def structure(self, q: Numbers) -> str:
        """Which solver computes the multipliers, and why, in a sentence or two."""
        return find_structure(self._terms(0.0), self.mass_form(q), q, self.row_sets)[1]

    def _structured(self, q: Numbers) -> Structured | None:
        # the count is cached while tracing
        if not self.constraint_terms or self.row_sets * self.constraint_count(q) <= UNROLL:
            return None
        return find_structure(self._terms(0.0), self.mass_form(q), q, self.row_sets)[0]

    def dense_rows(self, q: Numbers) -> bool:
        """Whether the Jacobian of the constraint is stored as a matrix: few rows, or no structure."""
        return self._structured(q) is None

    def islands(self, q: Numbers) -> IslandConstraint | None:
        """The constraint as many small independent groups of rows; None if it has any other rows."""
        found = self._structured(q)
        if found is None or found.plain or found.patterns or found.coupling.islands is None:
            return None
        terms, extra = zip(*self._terms(0.0), strict=True)
        return IslandConstraint(terms, extra, found.coupling.islands)

    def hidden_constraint(self, q: Numbers, p: Numbers, t: Real = 0.0) -> Any:
        """`G M^-1 p` (plus dg/dt for a rheonomic constraint): zero when the velocity is tangent."""
        t = jnp.asarray(t, q.dtype)
        return jax.jvp(self._constraint, (q, t), (self.velocity(q, p), jnp.ones_like(t)))[1]

    def multipliers(self, q: Numbers, p: Numbers, t: Real = 0.0) -> Any:
        """`Lambda(q, p)`: the multipliers that keep the hidden constraint along the motion.

        `Lambda = (G M^-1 G^T)^-1 d/dt [G M^-1 p]` with p driven by the applied forces alone; for constant mass and
        fixed constraints this is `(G M^-1 G^T)^-1 (g''(v, v) - G M^-1 grad V)`.
        """
        if not self.constraint_terms:
            return jnp.zeros((0,), q.dtype)
        t = jnp.asarray(t, q.dtype)
        jac = self.linearize(q, t)
        directions = (self.velocity(q, p), self.force(q, p, t), jnp.ones_like(t))
        rate = jax.jvp(self.hidden_constraint, (q, p, t), directions)[1]
        return self._held_by(q, jac, rate)

    def _held_by(self, q: Numbers, jac: AbstractJacobian, rate: Numbers) -> Any:
        """The multipliers `(G M^-1 G^T)^-1 rate`; the shortest ones if rows depend on each other."""
        if not self.redundant:
            return self.gram_on_manifold(q, jac).factor(symmetric=True).solve(rate)
        factor = self.gram(q, jac, jac).factor_redundant(symmetric=True)
        return factor.shortest(factor.solve(rate))

    def tangent_force(self, q: Numbers, force: Numbers, t: Real = 0.0) -> Any:
        """The force without the part that the constraints balance: `f - G^T (G M^-1 G^T)^-1 G M^-1 f`."""
        if not self.constraint_terms:
            return force
        jac = self.linearize(q, jnp.asarray(t, q.dtype))
        return force - jac.transpose(self._held_by(q, jac, jac(self.inverse_mass(q, force))))

    def power(self, q: Numbers, p: Numbers, t: Real = 0.0) -> Any:
        """The rate of H along the exact motion: `f v + dV/dt + lambda dg/dt`.

        Work of the applied force, of a potential that changes in time and of moving constraints (`G v = -dg/dt`).
        """
        t, total = jnp.asarray(t, q.dtype), jnp.zeros((), q.dtype)
        if self.forced:
            v = self.velocity(q, p)
            total += jnp.sum(self.applied_force(q, v, t) * v)
        if self.time_dependent:
            total += jax.grad(self._potential, 1)(q, t)
        if self.rheonomic:
            change = jax.jvp(lambda t: self._constraint(q, t), (t,), (jnp.ones_like(t),))[1]
            total += jnp.sum(self.multipliers(q, p, t) * change)
        return total
