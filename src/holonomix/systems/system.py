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
from .constraints import Rheonomic, dense_jacobian
from .coupling import Structured, find_structure, structured_gram, structured_jacobian
from .functions import as_callable
from .islands import IslandConstraint
from .mass import AbstractMass, PositionMass, as_mass
from .names import Row, as_terms, named_rows
from .potentials import as_potential

__all__ = ["System"]


class System(eqx.Module):
    """`System(potential, constraint=None, mass=1.0, force=None, params=None)`.

    `potential(q)` returns a number, `constraint(q)` a 1-D array that vanishes on the manifold; both take `(q, params)`
    when `params` is given. `potential` may be a list, to be added up; `constraint` may be a list that mixes callables,
    `Rheonomic` and structured constraints, or a dict of them, whose keys then name them in errors and results.
    `mass` is a scalar, an array shaped like q, a matrix over the flattened q, or a function `q -> matrix`.
    `force(q, v, t)` is an applied force beside `-grad V`. A System is a PyTree whose leaves are arrays: pass it through
    `jit`, `vmap` and `grad`; new values of `params` or `mass` do not recompile.
    """

    potential_fn: Any
    constraint_terms: tuple[Any, ...]
    mass: Any
    force_fn: Any
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
    ):
        potential = as_potential(potential)
        for name, fn in (("potential", potential), ("force", force)):
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
        self.mass = as_callable(mass) if callable(mass) and not isinstance(mass, AbstractMass) else _as_mass(mass)
        self.force_fn = None if force is None else as_callable(force)
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
    def conservative(self) -> bool:
        return self.force_fn is None

    @property
    def position_mass(self) -> bool:
        """Whether the mass depends on the position."""
        return isinstance(self.mass, PositionMass) or (callable(self.mass) and not isinstance(self.mass, AbstractMass))

    def prepare(self, q: Any) -> System:
        """The same system with its mass in final form (a constant matrix is factored once, not in every step)."""
        return eqx.tree_at(lambda s: s.mass, self, as_mass(self.mass, q), is_leaf=lambda x: x is self.mass)

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
        """The potential as a function of q alone."""
        return self._potential

    def _potential(self, q: Any) -> Any:
        value = self.potential_fn(q) if self.params is None else self.potential_fn(q, self.params)
        return jnp.asarray(value, jnp.result_type(q))

    def gradient(self, q: Any) -> Any:
        """grad V, in the shape of q."""
        return jax.grad(self._potential)(q)

    def velocity(self, q: Any, p: Any) -> Any:
        """M(q)^-1 p."""
        return as_mass(self.mass, q).velocity(q, p)

    def momentum(self, q: Any, v: Any) -> Any:
        """M(q) v."""
        return as_mass(self.mass, q).momentum(q, v)

    def kinetic(self, q: Any, p: Any) -> Any:
        return 0.5 * jnp.sum(p * self.velocity(q, p))

    def hamiltonian(self, q: Any, p: Any) -> Any:
        """The energy `p^T M^-1 p / 2 + V(q)`."""
        return self.kinetic(q, p) + self._potential(q)

    def force(self, q: Any, p: Any, t: Any = 0.0) -> Any:
        """`-H_q` plus the applied force: everything that drives p except the constraint forces."""
        f = -jax.grad(self.hamiltonian)(q, p) if self.position_mass else -self.gradient(q)
        if self.force_fn is not None:
            f = f + self.force_fn(q, self.velocity(q, p), t)
        return f

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
        mass = as_mass(self.mass, q)
        if self._structured(q) is not None:
            return structured_gram(mass, left, right)
        return Dense(small_product(mass.right(q, left.matrix), right.matrix))

    def structure(self, q: Any) -> str:
        """Which solver the multipliers get, and why, in a sentence or two."""
        return find_structure(self._terms(0.0), as_mass(self.mass, q), q)[1]

    def _structured(self, q: Any) -> Structured | None:
        return find_structure(self._terms(0.0), as_mass(self.mass, q), q)[0] if self.constraint_terms else None

    def islands(self, q: Any) -> IslandConstraint | None:
        """The constraint as many small groups of rows side by side, where it is that and nothing else."""
        found = self._structured(q)
        if found is None or found.plain or found.coupling.islands is None:
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
