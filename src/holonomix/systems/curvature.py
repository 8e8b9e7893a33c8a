"""`A = M + shift V''(q)`, the matrix behind every linearly implicit method, in the structure its potential has.

Where the potential is a sum of terms that each touch a few particles (`Distance` or `Local` constraints in a penalty,
`LocalPotential`, anything linear in q), the small Hessians of the terms are put where the coupling graph of particles
wants them: one block a molecule, block tridiagonal for chains and rings, sparse else. Everything else is dense.
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

from ..linalg.blocks import BlockDiagonal
from ..linalg.definite import UNROLL_DEFINITE, Definite, signed_pivot
from ..linalg.graph import Structure, analyse, unique_edges
from ..linalg.indexing import Indices, add_at, take
from ..linalg.sparse import SparseMatrix, symbolic
from ..linalg.tridiagonal import Tridiagonal
from .coupling import _merge, _storage
from .mass import BlockMass, DenseMass, as_mass

__all__ = ["LocalEnergy", "curvature", "curvature_structure", "mass_matrix"]


class LocalEnergy(NamedTuple):
    """`scale * energy(x)`, a sum over blocks of particles `x = gather(q)`, shape `(blocks, particles, ...)`."""

    indices: Indices
    gather: Callable[[Any], Any]
    energy: Callable[[Any], Any]
    scale: Any = 1.0

    def hessians(self, q: Any) -> Any:
        """One Hessian a block, `(blocks, particles, coordinates, particles, coordinates)`.

        Blocks do not meet inside the energy, so one directional derivative serves all of them at once.
        """
        x = self.gather(q)
        k, s = x.shape[:2]
        d = int(np.prod(x.shape[2:]))
        basis = jnp.broadcast_to(jnp.eye(s * d, dtype=x.dtype)[:, None], (s * d, k, s * d)).reshape((s * d, *x.shape))
        columns = jax.vmap(lambda v: jax.jvp(jax.grad(self.energy), (x,), (v,))[1])(basis)
        return self.scale * columns.reshape(s, d, k, s, d).transpose(2, 3, 4, 0, 1)


def curvature(system: Any, q: Any, shift: Any, weight: Any = 1.0) -> Any:
    """`weight M + shift V''(q)` over the flattened q, with `.factor()` giving `.solve(b)` and `.smallest` (pivot).

    `system` is the System whose potential is meant (`stiff.full`, `stiff.fast`, ...); its mass is constant.
    """
    parts, pattern, _ = _find(system, q)
    if pattern is not None and parts is not None:
        return _structured(system, q, shift, weight, parts, pattern)
    hessian = jax.jacfwd(system.gradient)(q).reshape(q.size, q.size)
    return Definite(shift * hessian + weight * mass_matrix(system, q))


def curvature_structure(system: Any, q: Any) -> str:
    """How `M + shift V''` would be solved, in words."""
    return _find(system, q)[2]


def mass_matrix(system: Any, q: Any) -> Any:
    """The constant mass as a matrix over the flattened q."""
    mass = as_mass(system.mass, q)
    if isinstance(mass, DenseMass):
        return mass.matrix
    if isinstance(mass, BlockMass):
        return mass.full(q.shape[0])
    value: Any = mass.value  # pyright: ignore[reportAttributeAccessIssue]
    return jnp.diag(jnp.broadcast_to(value, q.shape).reshape(-1))


# -- what the potential is made of -----------------------------------------------------------------------------------


def _find(system: Any, q: Any) -> tuple[list[LocalEnergy] | None, Pattern | None, str]:
    if q.size <= UNROLL_DEFINITE:
        return None, None, f"{q.size} coordinates: unrolled elimination"
    if not as_mass(system.mass, q).particlewise:
        return None, None, f"{q.size} coordinates with a mass that couples particles: dense Cholesky"
    extra = () if system.params is None else (system.params,)
    parts = local_energies(system.potential_fn, q, extra)
    if parts is None:
        text = f"{q.size} coordinates, a potential of unknown locality: dense Cholesky; give it as LocalPotential"
        return None, None, text
    d = q.size // q.shape[0]
    pattern = pattern_of(tuple(part.indices for part in parts), q.shape[0], d)
    return parts, pattern if pattern.structure.kind != "dense" else None, pattern.structure.text


def local_energies(potential: Any, q: Any, extra: tuple[Any, ...]) -> list[LocalEnergy] | None:
    """The potential as local energies, nothing for what is linear in q; None where its locality is not known."""
    if hasattr(potential, "local_energies"):
        return potential.local_energies(q, extra)
    return [] if _is_linear(potential, q, extra) else None


def combined(potentials: list[Any], q: Any, extra: tuple[Any, ...]) -> list[LocalEnergy] | None:
    """The local energies of a sum."""
    found = [local_energies(p, q, extra) for p in potentials]
    return None if any(x is None for x in found) else [part for x in found for part in x or ()]


def _is_linear(potential: Any, q: Any, extra: tuple[Any, ...]) -> bool:
    """Whether the second derivative vanishes by the look of the program: no output depends on the direction."""
    gradient = jax.grad(lambda x: jnp.asarray(potential(x, *extra)))
    like = jax.ShapeDtypeStruct(q.shape, q.dtype)
    closed = jax.make_jaxpr(lambda x, v: jax.jvp(gradient, (x,), (v,))[1])(like, like)
    touched = {closed.jaxpr.invars[1]}
    for eqn in closed.jaxpr.eqns:
        if any(not hasattr(v, "val") and v in touched for v in eqn.invars):
            touched.update(eqn.outvars)
    return not any(not hasattr(v, "val") and v in touched for v in closed.jaxpr.outvars)


# -- where the small Hessians go -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Pattern:
    """The coupling of particles; compared by identity, which the cache makes safe."""

    structure: Structure
    plan: Any
    sizes: tuple[int, ...]  # entries (d x d matrices) of each part of the stored matrix
    diagonal: tuple[np.ndarray, ...]  # where the particles' own entries stand
    targets: tuple[tuple[tuple[int, int, tuple[np.ndarray, ...]], ...], ...]  # per term: slot, slot, entries
    order: Indices
    inverse: Indices


@functools.lru_cache(maxsize=64)
def pattern_of(indices: tuple[Indices, ...], particles: int, d: int) -> Pattern:
    """The structure of the Hessian of terms with these particles, d coordinates each."""
    pairs = [
        (x.array[:, s], x.array[:, z])
        for x in indices
        for s in range(x.array.shape[1])
        for z in range(x.array.shape[1])
    ]
    i = np.concatenate([np.zeros(0, np.int64), *(a for a, _ in pairs)])
    j = np.concatenate([np.zeros(0, np.int64), *(b for _, b in pairs)])
    moving = (i >= 0) & (j >= 0)
    edges = unique_edges(i[moving], j[moving], particles)
    structure = analyse(*edges, particles, d)
    plan = None
    if structure.kind == "sparse":
        plan = symbolic(*edges, particles, d)
        structure = dataclasses.replace(structure, kind=plan.kind, text=plan.text)
    slot, sizes = _storage(structure, plan, particles)

    def entries(a, b):
        fixed = (a < 0) | (b < 0)
        return tuple(np.where(fixed, -1, x) for x in slot(np.where(fixed, 0, a), np.where(fixed, 0, b)))

    targets = tuple(
        tuple((s, z, entries(x.array[:, s], x.array[:, z])) for s in range(w) for z in range(w))
        for x in indices
        for w in (x.array.shape[1],)
    )
    own = np.arange(particles)
    padded = np.where(structure.order[:, None] < 0, -1, structure.order[:, None] * d + np.arange(d)).reshape(-1)
    inverse = np.empty(particles * d, dtype=np.int64)
    inverse[padded[padded >= 0]] = np.flatnonzero(padded >= 0)
    return Pattern(structure, plan, sizes, slot(own, own), targets, Indices(padded), Indices(inverse))


class Curvature(eqx.Module):
    """The matrix in the solver's order."""

    matrix: Any
    pattern: Pattern = eqx.field(static=True)

    def factor(self) -> CurvatureFactor:
        factor = self.matrix.factor(symmetric=True)
        return CurvatureFactor(factor, signed_pivot(factor), self.pattern)

    def todense(self) -> Any:
        place = jnp.asarray(self.pattern.inverse.array)
        return self.matrix.todense()[place][:, place]


class CurvatureFactor(eqx.Module):
    factor: Any
    smallest: Any
    pattern: Pattern = eqx.field(static=True)

    def solve(self, b: Any) -> Any:
        return take(self.factor.solve(take(b, self.pattern.order)), self.pattern.inverse)


def _structured(system: Any, q: Any, shift: Any, weight: Any, parts: list[LocalEnergy], pattern: Pattern) -> Curvature:
    n = q.shape[0]
    d = q.size // n
    mass = as_mass(system.mass, q)
    if isinstance(mass, BlockMass):
        own = jnp.broadcast_to(mass.matrix, (n, d, d))
    else:
        own = jnp.broadcast_to(mass.value, q.shape).reshape(n, d)[:, :, None] * jnp.eye(d, dtype=q.dtype)
    stored = [
        add_at(weight * own, at, size) if (at >= 0).any() else jnp.zeros((size, d, d), q.dtype)
        for at, size in zip(pattern.diagonal, pattern.sizes, strict=True)
    ]
    for part, targets in zip(parts, pattern.targets, strict=True):
        hessians = shift * part.hessians(q)
        for s, z, entries in targets:
            for k, (at, size) in enumerate(zip(entries, pattern.sizes, strict=True)):
                if (at >= 0).any():
                    stored[k] = stored[k] + add_at(hessians[:, s, :, z, :], at, size)
    return Curvature(_matrix(pattern, stored, d), pattern)


def _matrix(pattern: Pattern, stored: list[Any], d: int) -> Any:
    structure = pattern.structure
    if structure.kind == "sparse":
        return SparseMatrix(stored[0], pattern.plan)
    if structure.kind == "blocks":
        return BlockDiagonal(tuple(_merge(x, c, d) for x, (c, _) in zip(stored, structure.groups, strict=True)))
    w = structure.width
    if w * d == 1:
        return Tridiagonal(*(x.reshape(-1) for x in stored))
    lower, diagonal, upper = (_merge(x, w, d) for x in stored)
    padding = np.flatnonzero(pattern.order.array.reshape(-1, w * d)[-1] < 0)
    if padding.size:
        diagonal = diagonal.at[-1, padding, padding].set(1.0)
    return Tridiagonal(lower, diagonal, upper)
