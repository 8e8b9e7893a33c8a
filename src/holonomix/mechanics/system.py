"""A mechanical system: potential, constraint, mass, applied force.

Convention: `M q'' = F(q) - G(q)^T lambda`, `g(q) = 0`, `G = dg/dq`, `p = M q'`, `F = -grad V (+ applied force)`.
"""

from __future__ import annotations

import copy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core import forks
from ..core.checks import is_plain_number, short_repr
from ..core.errors import InputError
from ..core.types import ArrayLike, Constraints, Function, Numbers, known_array
from ..trace.frozen import freeze
from ..trace.functions import as_callable
from ..trace.signatures import Parametrized, with_params, without_params
from .abstract import AbstractSystem
from .constraints import Rheonomic
from .mass import AbstractMass, MassLike, ParameterMass, as_mass
from .names import Named, as_terms
from .potentials import as_potential


class System(AbstractSystem):
    """`System(potential, constraint=None, mass=1.0, force=None, params=None, vector_potential=None)`.

    `potential(q)` returns a number, `constraint(q)` a 1-D array that vanishes on the manifold; both may take
    `(q, params)` when `params` is given. A potential that depends on time takes `(q, t)`, or `(q, t, params)`, and
    calls its second argument `t` or `time`. `potential` may be a list, to be added up; `constraint` may be a list that
    mixes callables, `Rheonomic` and structured constraints, or a dict of them, whose keys then name them in errors and
    results.
    `mass` is a scalar, an array shaped like q, one number per particle (an entry of the first axis of q), a matrix over
    the flattened q, or a function of q that returns one. `force(q, v, t)` is an applied force in addition to `-grad V`.
    If params are given, `mass(q, params)` and `force(q, v, t, params)` receive them if they require them.

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
    row_sets: int = eqx.field(static=True)  # of multipliers that a step solves for together
    rate_count: int = eqx.field(static=True)  # rates through which the applied force depends on v; 0: unknown, or none

    def __init__(
        self,
        potential: Function,
        constraint: Constraints | None = None,
        mass: MassLike = 1.0,
        force: Function | None = None,
        params: PyTree = None,
        vector_potential: Function | None = None,
    ):
        if forks.forked:
            raise forks.fork_error()
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
        if params is not None:
            terms = tuple(_without_params(term) for term in terms)
        self.potential_fn = as_callable(potential)
        self.constraint_terms = tuple(as_callable(term) for term in terms)
        if callable(mass) and not isinstance(mass, AbstractMass):
            self.mass = as_callable(with_params(mass, 1, params))
        else:
            self.mass = _as_mass(mass)
        self.force_fn = None if force is None else as_callable(with_params(force, 3, params))
        if vector_potential is not None and params is not None:
            vector_potential = without_params(vector_potential, 1)
        self.vector_fn = None if vector_potential is None else as_callable(vector_potential)
        self.params = None if params is None else _as_values(params)
        self.shape = None
        self.redundant = False
        self.row_sets = 1
        self.rate_count = getattr(force.fn if isinstance(force, Parametrized) else force, "rate_count", 0)

    @property
    def constrained(self) -> bool:
        """Whether the motion is constrained; the same as `has_constraints`."""
        return self.has_constraints

    @property
    def kind(self) -> str:
        return "constrained" if self.has_constraints else "free"

    def prepare(self, q: Numbers) -> System:
        """The same system for use in steps: mass in its final form, functions frozen.

        A constant mass matrix is factored once, not in every step. The prepared system does not change if variables
        that a function closes over change later.
        """
        now = freeze(self, lambda system: system.try_out(q), q)
        if isinstance(now.mass, (Parametrized, ParameterMass)):
            return now
        return eqx.tree_at(lambda s: s.mass, now, as_mass(now.mass, q), is_leaf=lambda x: x is now.mass)

    def try_out(self, q: Numbers) -> None:
        """Call every function of the user once, as a run does, to check shapes."""
        q = jnp.asarray(q)
        t = jnp.zeros((), q.dtype)
        self._potential(q, t)
        self._constraint(q, t)
        if self.forced:
            self.applied_force(q, q, t)
        if self.rate_count:
            self.rate_slopes(q, t)
            self.rate_loads(q, jnp.zeros(self.rate_count, q.dtype), t)
        if self.magnetic:
            self._vector(q)
        if self.position_mass:
            self.mass_form(q).momentum(q, q)

    def accepting_redundant(self) -> System:
        """The same system with `multipliers` of least norm if constraints depend on each other."""
        return self._with(redundant=True)

    def with_params(self, params: PyTree) -> System:
        """The same system with other parameter values; nothing is recompiled.

        If params are a dictionary, names that are left out keep their values, and unknown names raise an error.
        """
        if self.params is None and params is not None:
            raise InputError(
                f"the system has no params, so with_params({short_repr(params)}) cannot change them; give them first: "
                "hx.System(..., params=...)"
            )
        values = _updated(self.params, _as_values(params), "params")
        return eqx.tree_at(lambda s: s.params, self, values, is_leaf=lambda x: x is None)

    def penalized(self, omega: ArrayLike) -> Any:
        """The stiff system with the constraint replaced by the potential `omega^2/2 |g|^2`."""
        from .stiff import penalized

        return penalized(self, omega)


def _without_params(term: PyTree) -> Any:
    """A constraint term of a system with params that is called without them if it cannot take them."""
    if not isinstance(term, (Named, Rheonomic)):
        return without_params(term, 1)
    fn = without_params(term.fn, 2 if isinstance(term, Rheonomic) else 1)
    return term if fn is term.fn else eqx.tree_at(lambda x: x.fn, term, fn)


def _as_mass(mass: MassLike) -> Any:
    if isinstance(mass, AbstractMass):
        return mass
    try:
        return known_array(mass, jnp.result_type(float))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"mass must be a number, an array or a function of q, not {short_repr(mass)}") from error


def _updated(known: PyTree, new: PyTree, where: str) -> Any:
    """Merge `new` into `known`: dictionary entries that `new` leaves out keep their values, lists become arrays."""
    if not isinstance(known, dict):
        return _as_value(jnp.asarray(new)) if np.ndim(known) and isinstance(new, (list, tuple)) else new
    unknown = [repr(name) for name in new if name not in known] if isinstance(new, dict) else [short_repr(new)]
    if unknown:
        names = ", ".join(map(repr, known)) or "none"
        raise InputError(f"{where} of the system has the names {names}; not {', '.join(unknown)}")
    values = copy.copy(known)
    for name in new:
        values[name] = _updated(known[name], new[name], f"{where}[{name!r}]")
    return values


def _as_values(params: PyTree) -> Any:
    try:
        leaves, structure = jax.tree.flatten(params)
    except ValueError as error:  # JAX sorts the keys of dictionaries
        raise InputError(
            f"the names in params must be comparable, for instance all strings: {short_repr(params)}"
        ) from error
    return jax.tree.unflatten(structure, [_as_value(x) for x in leaves])


def _as_value(x: object) -> Any:
    """A leaf of params as an array. Numbers become floats of the full type: 1 and 2.5 share a compiled program."""
    if callable(x):
        return x
    try:
        value = known_array(x, jnp.result_type(float) if is_plain_number(x) else None)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"params must be a PyTree of numbers and arrays; one of its leaves is {short_repr(x)}"
        ) from error
    if jnp.iscomplexobj(value):
        raise InputError(f"params must hold real numbers; one of its leaves is {short_repr(x)}")
    return jax.lax.convert_element_type(value, value.dtype) if value.weak_type else value
