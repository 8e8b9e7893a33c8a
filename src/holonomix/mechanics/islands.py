"""Islands: constraints that consist of many small equal groups, such as those of rigid molecules.

Every part of a structured constraint touches its particles through columns of its index list. If any two columns are
either the same or have no particle in common, each distinct column (a class, such as the oxygens) is stored as an array
of its own with the blocks along the last axis, and particles are scattered back only after an iteration. Sums over
coordinates are unrolled, so that every loop runs along the blocks.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.types import Numbers
from ..linalg.scales import loose
from ..linalg.small import UnrolledFactor, factor_unrolled
from ..trace.indexing import Indices, add_at, take
from .mass import AbstractMass, AbstractParticleMass
from .structured import interleave_terms

MAX_ISLAND_ROWS = 6  # the elimination of larger islands is not unrolled
MAX_PARTS = 256  # with more parts the program would take long to compile


@dataclasses.dataclass(frozen=True, eq=False)
class Islands:
    """Classes of particles and groups of parts; compared by identity, which the cache makes safe."""

    classes: tuple[Indices, ...]  # the particles of each class
    slots: tuple[tuple[int, ...], ...]  # for every part, the class of each of its slots
    groups: tuple[tuple[int, ...], ...]  # parts whose rows are coupled


def islands_of(parts: PyTree) -> Islands | None:
    """The islands of parts given by (indices, rows per block), or None where columns overlap."""
    return _islands(tuple((Indices(part.indices), part.rows) for part in parts))


@functools.lru_cache(maxsize=64)
def _islands(parts: tuple[tuple[Indices, int], ...]) -> Islands | None:
    columns: dict[Indices, int] = {}
    slots = []
    for indices, _ in parts:
        found = [Indices(indices.array[:, s]) for s in range(indices.array.shape[1])]
        if len(set(found)) < len(found):
            return None
        slots.append(tuple(columns.setdefault(column, len(columns)) for column in found))
    every = np.concatenate([column.array for column in columns])
    if every.min() < 0 or np.unique(every).size < every.size:
        return None
    group = list(range(len(parts)))
    for a in range(len(parts)):
        for b in range(a):
            if set(slots[a]) & set(slots[b]):
                group = [group[a] if g == group[b] else g for g in group]
    groups = tuple(tuple(k for k, g in enumerate(group) if g == label) for label in sorted(set(group)))
    if max(sum(parts[k][1] for k in members) for members in groups) > MAX_ISLAND_ROWS or len(parts) > MAX_PARTS:
        return None
    return Islands(tuple(columns), tuple(slots), groups)


class IslandJacobian(eqx.Module):
    """`G` at a position: `(rows, coordinates, blocks)` for every slot of every part. Rows are a list over parts."""

    slopes: tuple[tuple[Any, ...], ...]
    islands: Islands = eqx.field(static=True)

    def __call__(self, v: list[Any]) -> list[Any]:
        """`G v` for velocities of the classes, `(coordinates, blocks)` each."""
        return [
            sum_of(_dot(slope, v[c][None], 1) for slope, c in zip(slopes, slots, strict=True))
            for slopes, slots in zip(self.slopes, self.islands.slots, strict=True)
        ]

    def transpose(self, multipliers: list[Any]) -> list[Any]:
        """`G^T lambda` for every class."""
        out: list[Any] = [None] * len(self.islands.classes)
        for slopes, slots, lam in zip(self.slopes, self.islands.slots, multipliers, strict=True):
            for slope, c in zip(slopes, slots, strict=True):
                pull = _dot(slope, lam[:, None], 0)
                out[c] = pull if out[c] is None else out[c] + pull
        return out

    def row_sizes(self, x: list[Any]) -> list[Any]:
        """`sum_j |G_ij| |q_j|` for positions of the classes, `(coordinates, blocks)` each.

        A particle, one block of a class, has one size in all its coordinates, as in `linalg.scales.particle_sizes`.
        """
        own = [jnp.max(jnp.abs(c), axis=0, keepdims=True) for c in x]
        least = loose(own[0].dtype) * functools.reduce(jnp.maximum, [jnp.max(c) for c in own])
        sizes = [jnp.broadcast_to(jnp.maximum(c, least), like.shape) for c, like in zip(own, x, strict=True)]
        return [
            sum_of(_dot(jnp.abs(slope), sizes[c][None], 1) for slope, c in zip(slopes, slots, strict=True))
            for slopes, slots in zip(self.slopes, self.islands.slots, strict=True)
        ]

    def row_products(self, other: IslandJacobian) -> list[Any]:
        """`G_i H_i^T` for each row, with the rows H_i of another Jacobian."""
        return [
            sum_of(_dot(x, y, 1) for x, y in zip(mine, theirs, strict=True))
            for mine, theirs in zip(self.slopes, other.slopes, strict=True)
        ]

    def weighted(self, mass: AbstractMass, shape: tuple[int, ...]) -> IslandJacobian:
        """`G M^-1`."""
        assert isinstance(mass, AbstractParticleMass)  # `find_structure` accepts no other
        classes = self.islands.classes
        slopes = tuple(
            tuple(mass.right_local(slope, classes[c].array, shape) for slope, c in zip(part, slots, strict=True))
            for part, slots in zip(self.slopes, self.islands.slots, strict=True)
        )
        return IslandJacobian(slopes, self.islands)

    def factor(self, weighted: IslandJacobian, symmetric: bool = False) -> IslandFactor:
        """The factors of `G (G M^-1)^T`, island by island; `weighted` may belong to another position."""
        factors, pivots = [], []
        for members in self.islands.groups:
            rows = [(part, r) for part in members for r in range(self.slopes[part][0].shape[0])]
            table = {(i, j): self._entry(weighted, a, b) for i, a in enumerate(rows) for j, b in enumerate(rows)}
            factors.append(factor_unrolled(table, len(rows), symmetric))
            pivots.append(jnp.min(factors[-1].pivot))
        return IslandFactor(tuple(factors), jnp.min(jnp.stack(pivots)), self.islands)

    def _entry(self, weighted: IslandJacobian, a: tuple[int, int], b: tuple[int, int]) -> Any:
        mine, theirs = self.islands.slots[a[0]], self.islands.slots[b[0]]
        products = [
            _dot(self.slopes[a[0]][mine.index(c)][a[1]], weighted.slopes[b[0]][theirs.index(c)][b[1]], 0)
            for c in mine
            if c in theirs
        ]
        return sum_of(products) if products else jnp.zeros_like(self.slopes[a[0]][0][0, 0])


class IslandFactor(eqx.Module):
    factors: tuple[UnrolledFactor, ...]
    pivot: Any
    islands: Islands = eqx.field(static=True)

    def solve(self, values: list[Any]) -> list[Any]:
        out = list(values)
        for factor, members in zip(self.factors, self.islands.groups, strict=True):
            # XLA computes a quotient once, but recomputes a product in every use of the solution
            x = factor.unknowns(
                [values[part][r] for part in members for r in range(values[part].shape[0])], divide=True
            )
            for part in members:
                rows = values[part].shape[0]
                out[part], x = jnp.stack(x[:rows]), x[rows:]
        return out


class IslandConstraint(eqx.Module):
    """The structured terms of a system, with their further arguments, as islands."""

    terms: tuple[Any, ...]
    extra: tuple[Any, ...]
    islands: Islands = eqx.field(static=True)

    def gather(self, q: Numbers) -> list[Any]:
        """The particles of each class, `(..., blocks)`."""
        lanes = jnp.moveaxis(q, 0, -1)
        return [take(lanes, column) for column in self.islands.classes]

    def scatter(self, classes: list[Any], shape: tuple[int, ...]) -> Any:
        """An array like q from its classes, `(coordinates, blocks)` each; zero for particles in no class."""
        pieces = [(x, column.array) for x, column in zip(classes, self.islands.classes, strict=True)]
        return add_at(pieces, shape[0]).T.reshape(shape)

    def _parts(self, x: list[Any]) -> Any:
        k = 0
        for term, extra in zip(self.terms, self.extra, strict=True):
            for part in term.parts:
                yield term, [x[c] for c in self.islands.slots[k]], term.lane_data(part, extra), extra
                k += 1

    def values(self, x: list[Any]) -> list[Any]:
        return [term.lane_values(here, data, extra) for term, here, data, extra in self._parts(x)]

    def linearize(self, x: list[Any]) -> IslandJacobian:
        slopes = tuple(
            tuple(s.reshape(s.shape[0], -1, s.shape[-1]) for s in term.lane_slopes(here, data, extra))
            for term, here, data, extra in self._parts(x)
        )
        return IslandJacobian(slopes, self.islands)

    def natural(self, rows: list[Any]) -> Any:
        """The rows of all parts in the order of the constraint."""
        out = interleave_terms(rows, (term.period for term in self.terms))
        return out[0] if len(out) == 1 else jnp.concatenate(out)


def flatten_classes(classes: list[Any]) -> list[Any]:
    """`(coordinates, blocks)` for each class."""
    return [x.reshape(-1, x.shape[-1]) for x in classes]


def sum_of(terms: Iterable[Any]) -> Any:
    first, *rest = terms
    return sum(rest, first)


def _dot(a: Numbers, b: Numbers, axis: int) -> Any:
    """`sum(a * b, axis)`, unrolled."""
    n = max(a.shape[axis], b.shape[axis])
    pick = lambda x, k: jnp.take(x, 0, axis) if x.shape[axis] == 1 else x[(slice(None),) * axis + (k,)]
    return sum_of(pick(a, k) * pick(b, k) for k in range(n))
