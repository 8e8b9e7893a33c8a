"""Potentials that are sums of equal terms over a few particles each.

Their index lists determine the structure of the second derivative (`mechanics.curvature`), and their terms are
evaluated side by side: one compiled body over lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import short_repr
from ..core.errors import InputError, ShapeError
from ..core.types import ArrayLike, Function, Index, Numbers, Real, known_array
from ..trace.functions import as_callable
from ..trace.indexing import Indices, take
from ..trace.signatures import TimeDependent, is_time, required_names, takes_time, without_params

# Up to this many pairs are evaluated at once; above, a loop runs over the distance of two groups in the list.
UNROLLED_PAIRS = 2000


def _particle_lists(needed: str, indices: ArrayLike) -> Indices:
    """Lists of particles as a table with one row each; `needed` begins the error message."""
    try:
        array = np.asarray(indices)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{needed}, not {short_repr(indices)}") from error
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.size == 0 or not np.issubdtype(array.dtype, np.integer) or array.min() < 0:
        raise ShapeError(f"{needed}; it got {array.dtype} {array.shape}")
    return Indices(array)


class LocalPotential(eqx.Module):
    """`sum_e fn(q[indices[e]])`: `LocalPotential(fn, indices)`.

    `fn(x)` takes the particles of one term, shape `(particles, ...)`, and returns a number; with `data` (arrays whose
    first axis counts terms) it is called as `fn(x, data_e)`, and where the system has params they come last.
    """

    indices: Indices = eqx.field(static=True)
    fn: Any
    data: Any

    def __init__(self, fn: Function, indices: ArrayLike, data: PyTree = None):
        if not callable(fn):
            raise InputError(f"LocalPotential needs a function of a few particles, not {type(fn).__name__}")
        self.indices = _particle_lists("LocalPotential needs indices (terms, particles) from 0 up", indices)
        self.fn = as_callable(fn)
        self.data = None if data is None else jax.tree.map(known_array, data)

    def gather(self, q: Numbers) -> Any:
        """The particles of each term, `(terms, particles, ...)`."""
        lanes, index = jnp.moveaxis(q, 0, -1), self.indices.array
        return jnp.moveaxis(jnp.stack([take(lanes, index[:, s]) for s in range(index.shape[1])]), -1, 0)

    def energy(self, x: Numbers, *extra: PyTree) -> Any:
        """The sum over the terms for `x = gather(q)`."""
        one = lambda x, data: self.fn(x, *(() if self.data is None else (data,)), *extra)
        return jnp.sum(jax.vmap(one, in_axes=(-1, 0))(jnp.moveaxis(x, 0, -1), self.data))

    def __call__(self, q: Numbers, *extra: PyTree) -> Any:
        return self.energy(self.gather(q), *extra)

    def __add__(self, other: Function) -> SumPotential:
        return SumPotential((self, other))

    __radd__ = __add__

    def local_energies(self, q: Numbers, extra: tuple[Any, ...]) -> Any:
        from .curvature import LocalEnergy

        return [LocalEnergy(self.indices, self.gather, lambda x: self.energy(x, *extra))]


class Pairs(eqx.Module):
    """`sum_{a < b} fn(q[groups[a]], q[groups[b]])` over all pairs of groups of particles: `Pairs(fn, groups)`.

    `groups` is an index array (groups, particles) of equal groups, molecules for instance, or (particles,) for single
    particles. `fn(x, y)` takes two groups, shape `(particles, ...)` each, and returns a number; params come last. One
    body is compiled and runs over the pairs in lanes: all at once, or in a loop over `b - a` for many groups, where the
    gradient recomputes instead of storing.
    """

    indices: Indices = eqx.field(static=True)
    fn: Any

    def __init__(self, fn: Function, groups: ArrayLike):
        if not callable(fn):
            raise InputError(f"Pairs needs a function of two groups, not {type(fn).__name__}")
        self.indices = _particle_lists("Pairs needs an index array (groups, particles)", groups)
        self.fn = as_callable(fn)

    def __call__(self, q: Numbers, *extra: PyTree) -> Any:
        index = self.indices.array
        lanes = jnp.moveaxis(q, 0, -1)
        x = jnp.stack([take(lanes, index[:, s]) for s in range(index.shape[1])])
        n = index.shape[0]
        each = jax.vmap(lambda a, b: self.fn(a, b, *extra), in_axes=(-1, -1))
        if n * (n - 1) // 2 <= UNROLLED_PAIRS:
            a, b = np.triu_indices(n, 1)
            return jnp.sum(each(take(x, a), take(x, b))) if n > 1 else jnp.zeros((), q.dtype)

        twice = jnp.concatenate([x, x], axis=-1)

        @jax.checkpoint
        def at_distance(x: Numbers, twice: Numbers, k: Index):
            """Every group with the one k places later, cyclically: each pair once for k < n/2."""
            other = jax.lax.dynamic_slice_in_dim(twice, k, n, axis=-1)
            return jnp.sum(each(x, other))

        def body(total: Numbers, k: Index):
            return total + at_distance(x, twice, k), None

        total, _ = jax.lax.scan(body, jnp.zeros((), q.dtype), jnp.arange(1, (n + 1) // 2))
        if n % 2 == 0:  # at distance n/2 every pair would come twice
            total = total + jnp.sum(each(x[..., : n // 2], x[..., n // 2 :]))
        return total

    def __add__(self, other: Function) -> SumPotential:
        return SumPotential((self, other))

    __radd__ = __add__


class SumPotential(eqx.Module):
    """The sum of several potentials."""

    terms: tuple[Any, ...]

    def __init__(self, terms: Iterable[Any]):
        flat: list[Any] = []
        for term in terms:
            if not callable(term):
                raise InputError(f"a potential must be a function, not {type(term).__name__}")
            flat += term.terms if isinstance(term, SumPotential) else (as_callable(term),)
        self.terms = tuple(flat)

    def __call__(self, q: Numbers, *extra: PyTree) -> Any:
        return sum((term(q, *extra) for term in self.terms[1:]), self.terms[0](q, *extra))

    def __add__(self, other: Function) -> SumPotential:
        return SumPotential((*self.terms, other))

    __radd__ = __add__

    def local_energies(self, q: Numbers, extra: tuple[Any, ...]) -> Any:
        from .curvature import combine_energies

        return combine_energies(list(self.terms), q, extra)


def as_potential(potential: Function, arguments: int = 1) -> Any:
    """A list of potentials as their sum; functions that also require `t` depend on time."""
    if isinstance(potential, (list, tuple, SumPotential)):
        terms = potential.terms if isinstance(potential, SumPotential) else potential
        return SumPotential(tuple(as_potential(term, arguments) for term in terms))
    if not callable(potential):
        return potential
    given = potential.fn if isinstance(potential, TimeDependent) else potential
    if arguments == 2:  # there are params, which the potential may leave out
        names = required_names(given)
        timed = isinstance(potential, TimeDependent) or (names is not None and len(names) == 2 and is_time(names[1]))
        plain = without_params(given, 2 if timed else 1)
        if plain is not given:
            return TimeDependent(plain) if timed else plain
    if isinstance(potential, TimeDependent):
        return potential
    return TimeDependent(potential) if takes_time(potential, arguments) else potential


def depends_on_time(potential: Function) -> bool:
    """Whether a potential, or a term of a sum, takes the time."""
    if isinstance(potential, SumPotential):
        return any(depends_on_time(term) for term in potential.terms)
    return isinstance(potential, TimeDependent)


def evaluate_potential(potential: Function, q: Numbers, t: Real, extra: tuple[Any, ...]) -> Any:
    """V at (q, t)."""
    if isinstance(potential, SumPotential) and depends_on_time(potential):
        first, *rest = (evaluate_potential(term, q, t, extra) for term in potential.terms)
        return sum(rest, first)
    return potential(q, t, *extra) if isinstance(potential, TimeDependent) else potential(q, *extra)
