"""The Jacobian of structured constraints and `G M^-1 G^T`, in the structure of the coupling of their rows."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..core.types import Numbers
from ..linalg.scales import particle_sizes, row_sizes
from ..linalg.small import Dense
from ..linalg.tridiagonal import lane_products
from ..trace.indexing import Indices, add_at, take
from .constraints import AbstractJacobian
from .coupling import Coupling, Structured
from .discovered import Discovered
from .islands import sum_of
from .mass import AbstractMass, AbstractParticleMass, DiagonalMass
from .rigid import Orthonormal, RigidGram, RigidPlan, rigid_plan
from .structured import interleave_terms


def structured_jacobian(found: Structured, terms: tuple[tuple[Any, Any], ...], q: Numbers) -> StructuredJacobian:
    """The Jacobian of each structured term, and dense rows for plain functions."""
    patterns = dict(found.patterns)
    views = {k: Discovered(terms[k][0], patterns[k]) if k in patterns else terms[k][0] for k in found.local}
    slopes = tuple(part for k, view in views.items() for part in view.jacobians(q, *terms[k][1]))
    full = None
    if found.plain:
        full = jax.jacrev(lambda x: jnp.concatenate([terms[k][0](x, *terms[k][1]) for k in found.plain]))(q)
        full = full.reshape(full.shape[0], -1)
    rigid = None
    if not (found.plain or found.patterns):
        bodies = tuple(n for n, k in enumerate(found.local) if isinstance(terms[k][0], Orthonormal))
        rigid = rigid_plan(found.coupling, bodies, q.shape) if bodies else None
    return StructuredJacobian(slopes, full, found.coupling, found.layout, q.shape, rigid)


class StructuredJacobian(AbstractJacobian):
    """`G(q)`: `(rows, coordinates, blocks)` for each particle of each part, and full rows for plain functions."""

    slopes: tuple[tuple[Any, ...], ...]
    full: Any  # (rows, coordinates of q) or None
    coupling: Coupling = eqx.field(static=True)
    layout: Indices = eqx.field(static=True)  # natural positions of the structured rows, then of the full ones
    shape: tuple[int, ...] = eqx.field(static=True)
    rigid: RigidPlan | None = eqx.field(static=True, default=None)

    def _natural(self, parts: list[Any], full: Numbers | None) -> Any:
        """Rows `(rows, blocks)` of every part, and those of plain functions, in the order of the constraint."""
        out = interleave_terms(parts, self.coupling.periods) + ([] if full is None else [full])
        return _unsort(jnp.concatenate(out) if len(out) > 1 else out[0], self.layout)

    def _split(self, multipliers: Numbers) -> list[Any]:
        """Multipliers of the structured rows as `(rows, blocks)` for every part."""
        out, k, start = [], 0, 0
        for period in self.coupling.periods:
            part = self.coupling.parts[k]
            size = period * part.rows * part.indices.shape[0]
            table = multipliers[start : start + size].reshape(-1, period, part.rows)
            out += [table[:, a].T for a in range(period)]
            k, start = k + period, start + size
        return out

    def _slots(self) -> Any:
        """The slopes of each part with the particles they belong to, -1 for fixed points."""
        for slopes, part in zip(self.slopes, self.coupling.parts, strict=True):
            yield [(x, np.where(index < 0, -1, index)) for x, index in zip(slopes, part.indices.T, strict=True)]

    def structured(self, v: Numbers) -> list[Any]:
        """`G v` without the full rows, `(rows, blocks)` for every part."""
        lanes = v.reshape(self.shape[0], -1).T
        return [sum_of(jnp.sum(x * take(lanes, at)[None], axis=1) for x, at in slots) for slots in self._slots()]

    def __call__(self, v: Numbers) -> Any:
        return self._natural(self.structured(v), None if self.full is None else self.full @ v.reshape(-1))

    def transpose(self, multipliers: Numbers) -> Any:
        multipliers = take(multipliers, self.layout)
        pieces = []
        for slots, lam in zip(self._slots(), self._split(multipliers), strict=True):
            pieces += [(jnp.sum(x * lam[:, None], axis=0), at) for x, at in slots]
        total = add_at(pieces, self.shape[0]).T.reshape(self.shape)
        if self.full is None:
            return total
        return total + (multipliers[-self.full.shape[0] :] @ self.full).reshape(self.shape)

    def row_sizes(self, q: Numbers, weights: Numbers | None = None) -> Any:
        q = particle_sizes(q, weights)
        lanes = q.reshape(self.shape[0], -1).T
        parts = [
            sum_of(jnp.sum(jnp.abs(x * take(lanes, at)[None]), axis=1) for x, at in slots) for slots in self._slots()
        ]
        return self._natural(parts, None if self.full is None else row_sizes(self.full, q.reshape(-1)))

    def row_products(self, mass: AbstractMass, q: Numbers, other: StructuredJacobian) -> Any:
        parts = [
            sum_of(jnp.sum(x * y, axis=1) for x, y in zip(mine, theirs, strict=True))
            for mine, theirs in zip(self.weighted(mass).slopes, other.slopes, strict=True)
        ]
        return self._natural(parts, None if self.full is None else jnp.sum(mass.right(q, self.full) * other.full, 1))

    def reach(self, mass: AbstractMass, q: Numbers, multipliers: Numbers) -> Any:
        full = None if self.full is None else mass.right(q, self.full)
        weighted = StructuredJacobian(self.weighted(mass).slopes, full, self.coupling, self.layout, self.shape)
        return jax.tree.map(jnp.abs, weighted).transpose(jnp.abs(multipliers)).reshape(-1)

    def todense(self) -> Any:
        m = self.layout.array.size
        return jax.vmap(self.transpose)(jnp.eye(m)).reshape(m, -1)

    def gram(self, mass: AbstractMass, q: Numbers, other: StructuredJacobian) -> StructuredGram:
        """Products of the rows that share a particle, each added where the structure stores it."""
        layout, weighted = self.coupling.layout, other.weighted(mass)
        assert layout is not None  # else the Jacobian is dense
        pieces = []
        for junction in self.coupling.junctions:
            if self is other and not junction.first:
                continue
            x, y = (_rows(jac, *side) for jac, side in ((self, junction.left), (weighted, junction.right)))
            product = lane_products(x, y)
            pieces.append((product, junction.entries))
            if self is other and junction.mirrored is not None:
                turned = junction.mirrored if junction.mirrored.ndim == 1 else junction.mirrored.transpose(1, 0, 2)
                pieces.append((product.transpose(1, 0, 2), turned))
        return StructuredGram(layout.assemble(pieces), _border(mass, self, other, weighted), self.coupling, self.layout)

    def on_manifold(self, mass: AbstractMass, q: Numbers) -> StructuredGram | RigidGram:
        """The Gram matrix at the point q of the manifold, without the rows of rigid bodies where there are any."""
        if self.rigid is None or not isinstance(mass, DiagonalMass):
            return self.gram(mass, q, self)
        return RigidGram.of(self, self.rigid, mass, q)

    def weighted(self, mass: AbstractMass) -> StructuredJacobian:
        """`G M^-1` (without the full rows)."""
        assert isinstance(mass, AbstractParticleMass)  # `find_structure` accepts no other
        slopes = tuple(tuple(mass.right_local(x, at, self.shape) for x, at in slots) for slots in self._slots())
        return StructuredJacobian(slopes, None, self.coupling, self.layout, self.shape)


def _unsort(rows: Numbers, layout: Indices) -> Any:
    place = np.empty(layout.array.size, dtype=np.int64)
    place[layout.array] = np.arange(place.size)
    return take(rows, place)


class StructuredFactor(eqx.Module):
    """Factors in the order of the solver, with the Schur complement of the full rows, if any."""

    factor: Any
    border: Any  # None, or (A^-1 B, C, factor of the Schur complement)
    pivot: Any
    coupling: Coupling = eqx.field(static=True)
    layout: Indices = eqx.field(static=True)

    def _solve(self, b: Numbers) -> Any:
        layout: Any = self.coupling.layout
        return take(self.factor.solve(take(b, layout.order)), layout.inverse)

    def solve(self, b: Numbers) -> Any:
        b = take(b, self.layout)
        if self.border is None:
            x = self._solve(b)
        else:
            solved, lower, schur = self.border
            m = lower.shape[1]
            x = self._solve(b[:m])
            y = schur.solve(b[m:] - lower @ x)
            x = jnp.concatenate([x - solved @ y, y])
        return _unsort(x, self.layout)

    def shortest(self, x: Numbers) -> Any:
        """The solution of least norm with the same product, for factors that accept redundant rows."""
        layout: Any = self.coupling.layout
        x = take(self.factor.shortest(take(take(x, self.layout), layout.order)), layout.inverse)
        return _unsort(x, self.layout)


class StructuredGram(eqx.Module):
    """`G_left M^-1 G_right^T` in the structure of the coupling, bordered by the rows of plain functions."""

    matrix: Any
    border: Any  # None, or (upper, lower, corner)
    coupling: Coupling = eqx.field(static=True)
    layout: Indices = eqx.field(static=True)

    def factor(self, symmetric: bool = False) -> StructuredFactor:
        inner = self.matrix.factor(symmetric)
        plain = StructuredFactor(inner, None, inner.pivot, self.coupling, self.layout)
        if self.border is None:
            return plain
        upper, lower, corner = self.border
        solved = jax.vmap(plain._solve, in_axes=1, out_axes=1)(upper)
        schur = Dense(corner - lower @ solved).factor(symmetric)
        scale = jnp.abs(jnp.diagonal(corner))
        left = jnp.min(jnp.abs(jnp.diagonal(corner - lower @ solved)) / jnp.where(scale > 0, scale, 1.0))
        pivot = jnp.minimum(inner.pivot, jnp.minimum(schur.pivot, left))
        return StructuredFactor(inner, (solved, lower, schur), pivot, self.coupling, self.layout)

    def factor_redundant(self, symmetric: bool = False) -> Any:
        """Factors that accept redundant rows; of the dense matrix if the structure has none or there is a border."""
        inner = self.matrix.factor_redundant(symmetric) if self.border is None else None
        if inner is None:
            return Dense(self.todense()).factor_redundant(symmetric)
        return StructuredFactor(inner, None, inner.pivot, self.coupling, self.layout)

    def todense(self) -> Any:
        inverse = jnp.asarray(self.coupling.layout.inverse.array)  # pyright: ignore[reportOptionalMemberAccess]
        a = self.matrix.todense()[inverse][:, inverse]
        if self.border is not None:
            upper, lower, corner = self.border
            a = jnp.block([[a, upper], [lower, corner]])
        place = np.argsort(self.layout.array)
        return a[place][:, place]


def _rows(jac: StructuredJacobian, part: int, slot: int, chosen: np.ndarray) -> Any:
    return take(jac.slopes[part][slot], chosen)


def _border(
    mass: AbstractMass, left: StructuredJacobian, right: StructuredJacobian, weighted: StructuredJacobian
) -> Any:
    if left.full is None:
        return None

    def inner(
        jac: StructuredJacobian, full: Numbers
    ):  # the structured rows times those of `full`, in the order of the layout
        sorted_rows = lambda v: jnp.concatenate(interleave_terms(jac.structured(v), jac.coupling.periods))
        return jax.vmap(sorted_rows, out_axes=1)(full)

    velocity = mass.right(jnp.zeros(left.shape, left.full.dtype), right.full)
    return inner(left, velocity), inner(weighted, left.full).T, left.full @ velocity.T
