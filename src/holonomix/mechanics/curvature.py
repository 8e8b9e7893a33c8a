"""`A = M + shift V''(q)`, the matrix of linearly implicit methods, in the structure of its potential.

If the potential is a sum of terms that each touch a few particles (`Distance` or `Local` constraints in a penalty,
`LocalPotential`, anything linear in q), the small Hessians of the terms are assembled in the structure of the coupling
graph of particles: one block per molecule, block tridiagonal for chains and rings, sparse otherwise. All other
potentials have a dense matrix.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..core.types import Function, Numbers, Real
from ..linalg.definite import UNROLL_DEFINITE, Definite
from ..linalg.layout import AbstractLayout
from ..linalg.structures import plan_layout
from ..trace.indexing import Indices, take
from .abstract import AbstractSystem
from .mass import AbstractParticleMass


class LocalEnergy(NamedTuple):
    """`scale * energy(x)`, a sum over blocks of particles `x = gather(q)`, shape `(blocks, particles, ...)`."""

    indices: Indices
    gather: Callable[[Any], Any]
    energy: Callable[[Any], Any]
    scale: Any = 1.0

    def hessians(self, q: Numbers) -> Any:
        """One Hessian per block, `(blocks, particles, coordinates, particles, coordinates)`.

        The energy does not couple blocks, so one directional derivative serves all of them.
        """
        x = self.gather(q)
        k, s = x.shape[:2]
        d = int(np.prod(x.shape[2:]))
        basis = jnp.broadcast_to(jnp.eye(s * d, dtype=x.dtype)[:, None], (s * d, k, s * d)).reshape((s * d, *x.shape))
        columns = jax.vmap(lambda v: jax.jvp(jax.grad(self.energy), (x,), (v,))[1])(basis)
        return self.scale * columns.reshape(s, d, k, s, d).transpose(2, 3, 4, 0, 1)


def curvature(system: AbstractSystem, q: Numbers, shift: Real, weight: Real = 1.0) -> Any:
    """`weight M + shift V''(q)` over the flattened q, with `.factor(once)` giving `.solve(b)` and `.smallest` (pivot).

    V is the potential of `system` (`stiff.full`, `stiff.fast`, ...), whose mass must be constant.
    """
    found = _find(system, q)
    if found is not None:
        return _structured(system, q, shift, weight, *found)
    hessian = jax.jacfwd(system.gradient)(q).reshape(q.size, q.size)
    return Definite(shift * hessian + weight * system.mass_form(q).matrix_at(q))


# -- terms of the potential ------------------------------------------------------------------------------------------


def _find(system: AbstractSystem, q: Numbers) -> tuple[list[LocalEnergy], Pattern] | None:
    """The potential as local energies and the structure of its Hessian; None if a dense matrix is used.

    The matrix is dense if q is short, if the mass couples particles, or if the potential has unknown locality.
    """
    if q.size <= UNROLL_DEFINITE or not isinstance(system.mass_form(q), AbstractParticleMass):
        return None
    extra = () if system.params is None else (system.params,)
    parts = local_energies(system.potential_fn, q, extra)
    if parts is None:
        return None
    pattern = pattern_of(tuple(part.indices for part in parts), q.shape[0], q.size // q.shape[0])
    return None if pattern is None else (parts, pattern)


def local_energies(potential: Function, q: Numbers, extra: tuple[Any, ...]) -> list[LocalEnergy] | None:
    """The potential as local energies, without terms linear in q; None if its locality is unknown."""
    if hasattr(potential, "local_energies"):
        return potential.local_energies(q, extra)  # pyright: ignore[reportFunctionMemberAccess]
    return [] if _is_linear(potential, q, extra) else None


def combine_energies(potentials: list[Any], q: Numbers, extra: tuple[Any, ...]) -> list[LocalEnergy] | None:
    """The local energies of a sum."""
    found = [local_energies(p, q, extra) for p in potentials]
    return None if any(x is None for x in found) else [part for x in found for part in x or ()]


def _is_linear(potential: Function, q: Numbers, extra: tuple[Any, ...]) -> bool:
    """Whether the traced second derivative vanishes: no output depends on the direction."""
    gradient = jax.grad(lambda x: jnp.asarray(potential(x, *extra)))
    like = jax.ShapeDtypeStruct(q.shape, q.dtype)
    closed = jax.make_jaxpr(lambda x, v: jax.jvp(gradient, (x,), (v,))[1])(like, like)
    touched = {closed.jaxpr.invars[1]}
    for eqn in closed.jaxpr.eqns:
        if any(not hasattr(v, "val") and v in touched for v in eqn.invars):
            touched.update(eqn.outvars)
    return not any(not hasattr(v, "val") and v in touched for v in closed.jaxpr.outvars)


# -- assembly of the small Hessians ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Pattern:
    """The coupling of particles; compared by identity, which the cache makes safe."""

    layout: AbstractLayout
    diagonal: np.ndarray  # places of the diagonal entries
    targets: tuple[tuple[tuple[int, int, np.ndarray], ...], ...]  # per term: slot, slot, entries


@functools.lru_cache(maxsize=64)
def pattern_of(indices: tuple[Indices, ...], particles: int, d: int) -> Pattern | None:
    """The structure of the Hessian of terms with these particles, d coordinates each; None for a dense matrix."""
    pairs = [
        (x.array[:, s], x.array[:, z])
        for x in indices
        for s in range(x.array.shape[1])
        for z in range(x.array.shape[1])
    ]
    i = np.concatenate([np.zeros(0, np.int64), *(a for a, _ in pairs)])
    j = np.concatenate([np.zeros(0, np.int64), *(b for _, b in pairs)])
    moving = (i >= 0) & (j >= 0)
    own = np.arange(particles)
    coupled = i[moving], j[moving]
    layout = plan_layout(*coupled, own[:, None] * d + np.arange(d))
    if layout is None:
        return None

    def entries(a: np.ndarray, b: np.ndarray):
        fixed = (a < 0) | (b < 0)
        return np.where(fixed, -1, layout.entry(np.where(fixed, 0, a), np.where(fixed, 0, b)))

    targets = tuple(
        tuple((s, z, entries(x.array[:, s], x.array[:, z])) for s in range(w) for z in range(w))
        for x in indices
        for w in (x.array.shape[1],)
    )
    return Pattern(layout, layout.entry(own, own), targets)


class Curvature(eqx.Module):
    """The matrix in the solver's order."""

    matrix: Any
    pattern: Pattern = eqx.field(static=True)

    def factor(self, once: bool = False) -> CurvatureFactor:
        factor = self.matrix.factor(symmetric=True)
        return CurvatureFactor(factor, factor.signed_pivot, self.pattern)

    def todense(self) -> Any:
        place = jnp.asarray(self.pattern.layout.inverse.array)
        return self.matrix.todense()[place][:, place]


class CurvatureFactor(eqx.Module):
    factor: Any
    smallest: Any
    pattern: Pattern = eqx.field(static=True)

    def solve(self, b: Numbers) -> Any:
        layout = self.pattern.layout
        return take(self.factor.solve(take(b, layout.order)), layout.inverse)


def _structured(
    system: AbstractSystem, q: Numbers, shift: Real, weight: Real, parts: list[LocalEnergy], pattern: Pattern
) -> Curvature:
    mass: Any = system.mass_form(q)
    pieces = [(jnp.moveaxis(weight * mass.blocks(q), 0, -1), pattern.diagonal)]
    for part, targets in zip(parts, pattern.targets, strict=True):
        hessians = jnp.moveaxis(shift * part.hessians(q), 0, -1)
        pieces += [(hessians[s, :, z], entries) for s, z, entries in targets]
    return Curvature(pattern.layout.assemble(pieces), pattern)
