"""A mechanical system: potential, constraint, mass, applied force.

Convention: `M q'' = F(q) - G(q)^T lambda`, `g(q) = 0`, `G = dg/dq`, `p = M q'`, `F = -grad V (+ applied force)`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..linalg import Dense
from ..linalg.small import small_product
from .capabilities import Capability
from .constraints import Rheonomic, dense_jacobian
from .coupling import Structured, find_structure, structured_gram, structured_jacobian
from .frozen import freeze
from .functions import as_callable
from .islands import IslandConstraint
from .mass import AbstractMass, BoundMass, PositionMass, as_mass
from .names import Row, as_terms, named_rows
from .potentials import as_potential, depends_on_time, evaluate_potential
from .signatures import Parametrized, with_params

__all__ = ["System"]


class System(eqx.Module):
    """`System(potential, constraint=None, mass=1.0, force=None, params=None, vector_potential=None)`.

    `potential(q)` returns a number, `constraint(q)` a 1-D array that vanishes on the manifold; both take `(q, params)`
    when `params` is given. A potential that depends on time takes `(q, t)`, or `(q, t, params)`. `potential` may be a
    list, to be added up; `constraint` may be a list that mixes callables, `Rheonomic` and structured constraints,
    or a dict of them, whose keys then name them in errors and results.
    `mass` is a scalar, an array shaped like q, one number for each particle (an entry of the first axis of q), a matrix
    over the flattened q, or a function `mass(q) -> matrix`. `force(q, v, t)` is an applied force beside `-grad V`.
    Where params are given, `mass(q, params)` and `force(q, v, t, params)` are called with them if they require them.

    `vector_potential(q)`, in the shape of q, couples charges to a magnetic field: then
    `H = (p - A(q))^T M^-1 (p - A(q))/2 + V`, the momentum is the canonical one, `p = M v + A(q)` (`system.momentum`),
    and charges are part of A.

    A System is a PyTree whose leaves are arrays: pass it through `jit`, `vmap` and `grad`; new values of `params` or
    `mass` do not recompile.
    """

    potential_fn: Any
    constraint_terms: tuple[Any, ...]
    mass: Any
    force_fn: Any
    vector_fn: Any
    params: Any
    shape: tuple[int, ...] | None = eqx.field(static=True)  # of q, where it is known
    redundant: bool = eqx.field(static=True)  # whether `multipliers` accepts rows that depend on each other

    def __init__(
        self,
        potential: Any,
        constraint: Any = None,
        mass: Any = 1.0,
        force: Any = None,
        params: Any = None,
        vector_potential: Any = None,
    ):
        potential = as_potential(potential, 1 if params is None else 2)
        for name, fn in (("potential", potential), ("force", force), ("vector_potential", vector_potential)):
            if fn is not None and not callable(fn):
                raise InputError(f"{name} must be a function, not {type(fn).__name__}")
        if potential is None:
            raise InputError("potential must be a function of q; write `lambda q: 0.0` for free motion")
        terms = as_terms(constraint)
        for k, term in enumerate(terms):
            if not callable(term):
                kind = type(term).__name__
                raise InputError(f"constraint {k} must be a function or a structured constraint, not {kind}")
        self.potential_fn = as_callable(potential)
        self.constraint_terms = tuple(as_callable(term) for term in terms)
        if callable(mass) and not isinstance(mass, AbstractMass):
            self.mass = as_callable(with_params(mass, 1, params))
        else:
            self.mass = _as_mass(mass)
        self.force_fn = None if force is None else as_callable(with_params(force, 3, params))
        self.vector_fn = None if vector_potential is None else as_callable(vector_potential)
        self.params = None if params is None else jax.tree.map(_as_value, params)
        self.shape = None
        self.redundant = False

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def constrained(self) -> bool:
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
        """Whether H is an energy that the motion keeps, as long as the constraints do not move."""
        return not self.forced and not self.time_dependent

    @property
    def position_mass(self) -> bool:
        """Whether the mass depends on the position."""
        return isinstance(self.mass, PositionMass) or (callable(self.mass) and not isinstance(self.mass, AbstractMass))

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
        """What a method must be able to treat. (Whether rows are redundant is seen at the start of a run only.)"""
        found = {
            Capability.MASS: self.position_mass,
            Capability.FORCE: self.forced,
            Capability.TIME: self.time_dependent,
            Capability.MAGNETIC: self.magnetic,
            Capability.MOVING: self.rheonomic,
        }
        return frozenset(c for c, needed in found.items() if needed)

    def mass_form(self, q: Any) -> AbstractMass:
        """The mass in the form that its structure asks for."""
        if isinstance(self.mass, Parametrized):
            return PositionMass(BoundMass(self.mass, self.params))
        return as_mass(self.mass, q)

    def prepare(self, q: Any) -> System:
        """The same system as steps use it: its mass in final form, its functions frozen as they are now.

        A constant mass matrix is factored once, not in every step. What a function closes over may change later: the
        prepared system does not.
        """
        now = freeze(self, lambda system: system.try_out(q), q)
        if isinstance(now.mass, Parametrized):
            return now
        return eqx.tree_at(lambda s: s.mass, now, as_mass(now.mass, q), is_leaf=lambda x: x is now.mass)

    def try_out(self, q: Any) -> None:
        """Call every function of the user once, the way a run does; shapes are all that matters."""
        q = jnp.asarray(q)
        t = jnp.zeros((), q.dtype)
        self._potential(q, t)
        self._constraint(q, t)
        if self.forced:
            self.applied_force(q, q, t)
        if self.magnetic:
            self._vector(q)
        if self.position_mass:
            self.mass_form(q).momentum(q, q)

    def accepting_redundant(self) -> System:
        """The same system with `multipliers` of least norm where constraints depend on each other."""
        return self._with(redundant=True)

    def shaped(self, shape: tuple[int, ...]) -> System:
        """The same system with the shape of q on record, so that `explain` needs no start."""
        return self._with(shape=tuple(shape))

    def _with(self, **static: Any) -> System:
        new = object.__new__(type(self))
        for field in dataclasses.fields(self):
            object.__setattr__(new, field.name, static.get(field.name, getattr(self, field.name)))
        return new

    def with_params(self, params: Any) -> System:
        """The same system with other parameter values; nothing is recompiled."""
        return eqx.tree_at(lambda s: s.params, self, jax.tree.map(_as_value, params), is_leaf=lambda x: x is None)

    def penalized(self, omega: Any) -> Any:
        """The stiff system with the constraint replaced by the potential `omega^2/2 |g|^2`."""
        from .stiff import penalized

        return penalized(self, omega)

    # -- energies -----------------------------------------------------------------------------------------------

    @property
    def potential(self) -> Any:
        """The potential as a function of q (and of t, default 0)."""
        return self._potential

    def _potential(self, q: Any, t: Any = 0.0) -> Any:
        extra = () if self.params is None else (self.params,)
        return jnp.asarray(evaluate_potential(self.potential_fn, q, t, extra), jnp.result_type(q))

    def gradient(self, q: Any, t: Any = 0.0) -> Any:
        """grad V, in the shape of q."""
        return jax.grad(self._potential)(q, t)

    @property
    def vector_potential(self) -> Any:
        """The vector potential as a function of q, or None."""
        return None if self.vector_fn is None else self._vector

    def _vector(self, q: Any) -> Any:
        return self.vector_fn(q) if self.params is None else self.vector_fn(q, self.params)

    def inverse_mass(self, q: Any, x: Any) -> Any:
        """M(q)^-1 x for a force or a change of momentum."""
        return self.mass_form(q).velocity(q, x)

    def velocity(self, q: Any, p: Any) -> Any:
        """M(q)^-1 p, or M(q)^-1 (p - A(q)) where there is a vector potential."""
        return self.inverse_mass(q, p if self.vector_fn is None else p - self._vector(q))

    def momentum(self, q: Any, v: Any) -> Any:
        """M(q) v, plus A(q) where there is a vector potential."""
        mechanical = self.mass_form(q).momentum(q, v)
        return mechanical if self.vector_fn is None else mechanical + self._vector(q)

    def kinetic(self, q: Any, p: Any) -> Any:
        """`v^T M v / 2`."""
        mechanical = p if self.vector_fn is None else p - self._vector(q)
        return 0.5 * jnp.sum(mechanical * self.velocity(q, p))

    def hamiltonian(self, q: Any, p: Any, t: Any = 0.0) -> Any:
        """The energy `v^T M v / 2 + V`, as a function of position, canonical momentum and time."""
        return self.kinetic(q, p) + self._potential(q, t)

    def force(self, q: Any, p: Any, t: Any = 0.0) -> Any:
        """`-H_q` plus the applied force: everything that drives p except the constraint forces."""
        f = -self.gradient(q, t) if self.separable else -jax.grad(self.hamiltonian)(q, p, t)
        return f + self.applied_force(q, self.velocity(q, p), t) if self.forced else f

    def applied_force(self, q: Any, v: Any, t: Any) -> Any:
        """The user's `force(q, v, t)`."""
        extra = (self.params,) if isinstance(self.force_fn, Parametrized) else ()
        return self.force_fn(q, v, t, *extra)

    # -- constraints --------------------------------------------------------------------------------------------

    @property
    def constraint(self) -> Any:
        """The constraint as a function of q (and of t, default 0), or None."""
        return self._constraint if self.constraint_terms else None

    def _terms(self, t: Any) -> tuple[tuple[Any, Any], ...]:
        """Every term with the arguments it takes beside q."""
        extra = () if self.params is None else (self.params,)
        return tuple((term, (t, *extra) if isinstance(term, Rheonomic) else extra) for term in self.constraint_terms)

    def _constraint(self, q: Any, t: Any = 0.0) -> Any:
        parts = [jnp.asarray(term(q, *extra)) for term, extra in self._terms(t)]
        if not parts:
            return jnp.zeros((0,), q.dtype)
        for part in parts:
            if not jnp.issubdtype(part.dtype, jnp.floating):
                raise InputError(f"a constraint must return real numbers with a derivative, not {part.dtype.name}")
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def constraint_rows(self, q: Any) -> list[Row]:
        """Number and name of every row of the constraint."""
        return named_rows(self._terms(0.0), q)

    def constraint_forces(self, q: Any, p: Any, t: Any = 0.0) -> dict[str, Any]:
        """The force `-G^T lambda` of each named constraint, each in the shape of q; rows without a name stand alone."""
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

    def constraint_count(self, q: Any) -> int:
        """m, the number of constraint equations."""
        return jax.eval_shape(self._constraint, q).shape[0]

    def linearize(self, q: Any, t: Any = 0.0) -> Any:
        """`G(q)` as an object that applies itself and its transpose."""
        structured = self._structured(q)
        if structured is None:
            return dense_jacobian(lambda x: self._constraint(x, t), q, self.constraint_count(q))
        return structured_jacobian(structured, self._terms(t), q)

    def gram(self, q: Any, left: Any, right: Any) -> Any:
        """`G_left M(q)^-1 G_right^T`, in a form with `.factor(symmetric)`."""
        mass = self.mass_form(q)
        if self._structured(q) is not None:
            return structured_gram(mass, left, right)
        return Dense(small_product(mass.right(q, left.matrix), right.matrix))

    def structure(self, q: Any) -> str:
        """Which solver the multipliers get, and why, in a sentence or two."""
        return find_structure(self._terms(0.0), self.mass_form(q), q)[1]

    def _structured(self, q: Any) -> Structured | None:
        return find_structure(self._terms(0.0), self.mass_form(q), q)[0] if self.constraint_terms else None

    def dense_rows(self, q: Any) -> bool:
        """Whether the Jacobian of the constraint is held as a matrix: few rows, or no structure."""
        return self._structured(q) is None

    def islands(self, q: Any) -> IslandConstraint | None:
        """The constraint as many small groups of rows side by side, where it is that and nothing else."""
        found = self._structured(q)
        if found is None or found.plain or found.patterns or found.coupling.islands is None:
            return None
        terms, extra = zip(*self._terms(0.0), strict=True)
        return IslandConstraint(terms, extra, found.coupling.islands)

    def hidden_constraint(self, q: Any, p: Any, t: Any = 0.0) -> Any:
        """`G M^-1 p` (plus dg/dt for a rheonomic constraint): zero when the velocity is tangent."""
        t = jnp.asarray(t, q.dtype)
        return jax.jvp(self._constraint, (q, t), (self.velocity(q, p), jnp.ones_like(t)))[1]

    def multipliers(self, q: Any, p: Any, t: Any = 0.0) -> Any:
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
        gram = self.gram(q, jac, jac)
        if not self.redundant:
            return gram.factor(symmetric=True).solve(rate)
        factor = gram.factor_redundant(symmetric=True)
        return factor.shortest(factor.solve(rate))


def _as_mass(mass: Any) -> Any:
    if isinstance(mass, AbstractMass):
        return mass
    try:
        return jnp.asarray(mass, jnp.result_type(float))
    except (TypeError, ValueError) as error:
        raise InputError(f"mass must be a number, an array or a function of q, not {mass!r}") from error


def _as_value(x: Any) -> Any:
    """A leaf of params as an array. Numbers become floats of the full type: 1 and 2.5 share a compiled program."""
    if callable(x):
        return x
    try:
        value = jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise InputError(f"params must be a PyTree of numbers and arrays; one of its leaves is {x!r}") from error
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return jnp.asarray(value, jnp.result_type(float))
    return jax.lax.convert_element_type(value, value.dtype) if value.weak_type else value
