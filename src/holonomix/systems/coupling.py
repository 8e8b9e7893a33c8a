"""Which rows of the constraint meet in `G M^-1 G^T`, and the Jacobian and Gram matrix in the form that this allows.

Two blocks of rows are coupled when they touch a common particle (the mass being diagonal, or a matrix a particle). The
analysis runs once, on the host, when a function is traced; it is cached by the index lists.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..linalg.blocks import BlockDiagonal
from ..linalg.graph import Structure, analyse, unique_edges
from ..linalg.indexing import Indices, add_at, take
from ..linalg.small import UNROLL, Dense
from ..linalg.sparse import SparseMatrix, symbolic
from ..linalg.tridiagonal import Tridiagonal
from .structured import AbstractLocal

__all__ = ["Coupling", "Structured", "StructuredGram", "StructuredJacobian", "coupling_of", "find_structure"]

# Beyond this many meetings of rows the matrix is as good as dense, and the index lists would not fit either.
MAX_MEETINGS = 20_000_000


@dataclasses.dataclass(frozen=True, eq=False)
class Unit:
    """Equal blocks of one term: all its rows, or one of them where the terms differ in rows a block."""

    term: int
    first_row: int
    indices: np.ndarray
    nodes: int  # number of its first node


@dataclasses.dataclass(frozen=True, eq=False)
class Meeting:
    """Blocks `left[k]` of one unit and `right[k]` of another that share a particle at the given slots."""

    left: tuple[int, int, np.ndarray]
    right: tuple[int, int, np.ndarray]
    targets: tuple[np.ndarray, ...]  # where the products go, one list for each part of the matrix


@dataclasses.dataclass(frozen=True, eq=False)
class Coupling:
    """The result of the analysis; compared by identity, which the cache makes safe."""

    indices: tuple[Indices, ...]
    particles: int
    rows: int  # rows a node
    units: tuple[Unit, ...]
    structure: Structure
    meetings: tuple[Meeting, ...]
    parts: tuple[int, ...]  # entries of each part of the matrix
    order: Indices  # natural row of every row of the solver, -1 for padding
    inverse: Indices
    symbolic: Any = None

    @property
    def text(self) -> str:
        return self.structure.text


@functools.lru_cache(maxsize=64)
def coupling_of(terms: tuple[tuple[Indices, int], ...], particles: int) -> Coupling:
    """The coupling of terms given by their index lists and rows a block."""
    uniform = len({r for _, r in terms}) == 1
    r = terms[0][1] if uniform else 1
    units: list[Unit] = []
    natural: list[np.ndarray] = []
    nodes = start = 0
    for t, (indices, rows) in enumerate(terms):
        k = indices.array.shape[0]
        for a in range(1 if uniform else rows):
            units.append(Unit(t, a, indices.array, nodes))
            natural.append(start + rows * np.arange(k)[:, None] + a + np.arange(r))
            nodes += k
        start += rows * k
    natural_rows = np.concatenate(natural)

    columns = [(u, s) for u, unit in enumerate(units) for s in range(unit.indices.shape[1])]
    met = [(a, b, *_join(units[a[0]].indices[:, a[1]], units[b[0]].indices[:, b[1]])) for a in columns for b in columns]
    met = [m for m in met if m[2].size]
    i = np.concatenate([units[a[0]].nodes + left for a, _, left, _ in met])
    j = np.concatenate([units[b[0]].nodes + right for _, b, _, right in met])
    if i.size > MAX_MEETINGS:
        structure = Structure("dense", np.arange(nodes), text=f"{nodes * r} rows, nearly all coupled: dense LU")
        edges = (i[:0], j[:0])
    else:
        edges = unique_edges(i, j, nodes)
        structure = analyse(*edges, nodes, r)
    plan = symbolic(*edges, nodes, r) if structure.kind == "sparse" else None
    if plan is not None:
        structure = dataclasses.replace(structure, kind=plan.kind, text=plan.text)

    slot, parts = _storage(structure, plan, nodes)
    meetings = tuple(
        Meeting((*a, left), (*b, right), slot(units[a[0]].nodes + left, units[b[0]].nodes + right))
        for a, b, left, right in met
        if structure.kind != "dense"
    )
    padded = np.where(structure.order[:, None] < 0, -1, natural_rows[structure.order]).reshape(-1)
    inverse = np.empty(nodes * r, dtype=np.int64)
    inverse[padded[padded >= 0]] = np.flatnonzero(padded >= 0)
    return Coupling(
        tuple(x for x, _ in terms), particles, r, tuple(units), structure, meetings, parts,
        Indices(padded), Indices(inverse), plan,
    )  # fmt: skip


def _join(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (k, l) with `a[k] == b[l] >= 0`, ordered by k."""
    order = np.argsort(b, kind="stable")
    lo, hi = np.searchsorted(b[order], a, "left"), np.searchsorted(b[order], a, "right")
    count = np.where(a < 0, 0, hi - lo)
    if count.sum() > MAX_MEETINGS:
        return np.zeros(MAX_MEETINGS + 1, np.int64), np.zeros(MAX_MEETINGS + 1, np.int64)
    left = np.repeat(np.arange(a.size), count)
    first = np.repeat(np.cumsum(count) - count, count)
    return left, order[np.repeat(lo, count) + np.arange(left.size) - first]


def _storage(structure: Structure, plan: Any, nodes: int) -> tuple[Any, tuple[int, ...]]:
    """A function (node, node) -> entry in each part of the stored matrix (-1: not there), and the parts' lengths."""
    place = np.empty(nodes, dtype=np.int64)
    held = structure.order >= 0
    place[structure.order[held]] = np.flatnonzero(held)
    total = structure.order.size
    if structure.kind == "tridiagonal":
        w = structure.width

        def slot(i, j):
            (block_i, a), (block_j, b) = divmod(place[i], w), divmod(place[j], w)
            entry = (block_i * w + a) * w + b
            return tuple(np.where(block_j - block_i == d, entry, -1) for d in (-1, 0, 1))

        return slot, (total * w,) * 3
    if structure.kind == "blocks":
        bounds = np.cumsum([0] + [c * k for c, k in structure.groups])

        def slot(i, j):
            out = []
            for (c, _), start, stop in zip(structure.groups, bounds[:-1], bounds[1:], strict=True):
                a, b = place[i] - start, place[j] - start
                out.append(np.where((a >= 0) & (place[i] < stop), a * c + b % c, -1))
            return tuple(out)

        return slot, tuple(c * c * k for c, k in structure.groups)
    if structure.kind == "sparse":
        return lambda i, j: (plan.entry(i, j),), (plan.entries,)
    return lambda i, j: (), ()


@dataclasses.dataclass(frozen=True, eq=False)
class Structured:
    """The coupling of a system's structured terms, and where their rows stand among those of plain callables."""

    coupling: Coupling
    layout: Indices  # natural positions of the structured rows, then of the plain ones
    local: tuple[int, ...]  # which terms are structured
    plain: tuple[int, ...]


def find_structure(terms: tuple[tuple[Any, Any], ...], mass: Any, q: Any) -> tuple[Structured | None, str]:
    """The structure of a list of (term, further arguments), or None where a dense matrix serves; and the reason."""
    local = tuple(k for k, (term, _) in enumerate(terms) if isinstance(term, AbstractLocal))
    rows = [_row_count(term, q, extra) for term, extra in terms]
    m = sum(rows)
    if m <= UNROLL:
        return None, f"{m} constraint rows: unrolled dense elimination" if m else "no constraints"
    plain = tuple(k for k in range(len(terms)) if k not in local)
    extra_rows = sum(rows[k] for k in plain)
    if not local:
        return None, f"{m} rows of plain functions: dense LU; give them as Distance or Local to use their structure"
    if not mass.particlewise:
        return None, f"{m} rows with a mass matrix that couples particles: dense LU"
    if extra_rows > UNROLL:
        return None, f"{extra_rows} rows of plain functions beside {m - extra_rows} structured ones: dense LU"
    signature = []
    for k in local:
        term, extra = terms[k]
        term.check(q)
        signature.append((term.indices, rows[k] // term.indices.array.shape[0]))
    coupling = coupling_of(tuple(signature), q.shape[0])
    if coupling.structure.kind == "dense":
        return None, coupling.text
    starts = np.cumsum([0, *rows])
    layout = Indices(np.concatenate([np.arange(starts[k], starts[k + 1]) for k in (*local, *plain)]))
    text = coupling.text + (f"; bordered by {extra_rows} rows of plain functions" if extra_rows else "")
    return Structured(coupling, layout, local, plain), text


def _row_count(term: Any, q: Any, extra: Any) -> int:
    return jax.eval_shape(lambda x: jnp.asarray(term(x, *extra)), q).shape[0]


def structured_jacobian(found: Structured, terms: tuple[tuple[Any, Any], ...], q: Any) -> StructuredJacobian:
    """Each structured term's own Jacobian, and dense rows for the plain callables."""
    blocks = tuple(terms[k][0].jacobian(q, *terms[k][1]) for k in found.local)
    full = None
    if found.plain:
        full = jax.jacrev(lambda x: jnp.concatenate([terms[k][0](x, *terms[k][1]) for k in found.plain]))(q)
        full = full.reshape(full.shape[0], -1)
    return StructuredJacobian(blocks, full, found.coupling, found.layout, q.shape)


class StructuredJacobian(eqx.Module):
    """`G(q)` as the blocks `(blocks, rows, particles, coordinates)` of each term, and full rows for plain callables."""

    blocks: tuple[Any, ...]
    full: Any  # (rows, coordinates of q) or None; these come after the structured rows in `order`
    coupling: Coupling = eqx.field(static=True)
    layout: Indices = eqx.field(static=True)  # natural position of structured rows, then of full rows
    shape: tuple[int, ...] = eqx.field(static=True)

    def _natural(self, parts: list[Any]) -> Any:
        rows = jnp.concatenate(parts) if len(parts) > 1 else parts[0]
        place = np.empty(self.layout.array.size, dtype=np.int64)
        place[self.layout.array] = np.arange(place.size)
        return take(rows, place)

    def structured(self, v: Any) -> list[Any]:
        v = v.reshape(self.shape[0], -1)
        out = []
        for block, indices in zip(self.blocks, self.coupling.indices, strict=True):
            there = _read(v, indices.array)
            out.append(jnp.sum(block * there[:, None], axis=(2, 3)).reshape(-1))
        return out

    def __call__(self, v: Any) -> Any:
        """`G v`."""
        parts = self.structured(v)
        return self._natural(parts if self.full is None else [*parts, self.full @ v.reshape(-1)])

    def transpose(self, multipliers: Any) -> Any:
        """`G^T lambda` in the shape of q."""
        multipliers = take(multipliers, self.layout)
        total, start = jnp.zeros((), multipliers.dtype), 0
        for block, indices in zip(self.blocks, self.coupling.indices, strict=True):
            k, r, _, d = block.shape
            lam = multipliers[start : start + k * r].reshape(k, r, 1, 1)
            start += k * r
            total = total + add_at(
                jnp.sum(block * lam, axis=1).reshape(-1, d), indices.array.reshape(-1), self.shape[0]
            )
        total = total.reshape(self.shape)
        return total if self.full is None else total + (multipliers[start:] @ self.full).reshape(self.shape)

    def row_norms(self) -> Any:
        """Sums of absolute values, row by row: what turns an error of q into an error of g."""
        parts = []
        for block, indices in zip(self.blocks, self.coupling.indices, strict=True):
            moving = (indices.array >= 0).astype(block.dtype)[:, None, :]
            parts.append(jnp.sum(jnp.sum(jnp.abs(block), axis=3) * moving, axis=2).reshape(-1))
        return self._natural(parts if self.full is None else [*parts, jnp.sum(jnp.abs(self.full), axis=1)])

    def todense(self) -> Any:
        return jax.vmap(self.transpose)(jnp.eye(self.layout.array.size)).reshape(self.layout.array.size, -1)

    def weighted(self, mass: Any) -> tuple[Any, ...]:
        """The blocks times M^-1."""
        return tuple(
            mass.right_local(block, indices.array, self.shape)
            for block, indices in zip(self.blocks, self.coupling.indices, strict=True)
        )


def _read(v: Any, index: np.ndarray) -> Any:
    """`v[index]` for a table of particles, fixed points read as zero."""
    clean = np.where(index < 0, -1, index)
    return jnp.stack([take(v, clean[:, s]) for s in range(index.shape[1])], axis=1)


class StructuredFactor(eqx.Module):
    """Factors in the solver's order, with the Schur complement of the full rows where there are any."""

    factor: Any
    border: Any  # None, or (A^-1 B, C, factor of the Schur complement)
    pivot: Any
    coupling: Coupling = eqx.field(static=True)
    layout: Indices = eqx.field(static=True)

    def _solve(self, b: Any) -> Any:
        return take(self.factor.solve(take(b, self.coupling.order)), self.coupling.inverse)

    def solve(self, b: Any) -> Any:
        b = take(b, self.layout)
        if self.border is None:
            x = self._solve(b)
        else:
            solved, lower, schur = self.border
            m = lower.shape[1]
            x = self._solve(b[:m])
            y = schur.solve(b[m:] - lower @ x)
            x = jnp.concatenate([x - solved @ y, y])
        place = np.empty(self.layout.array.size, dtype=np.int64)
        place[self.layout.array] = np.arange(place.size)
        return take(x, place)


class StructuredGram(eqx.Module):
    """`G_left M^-1 G_right^T` in the form that the coupling allows, bordered by the rows of plain callables."""

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

    def todense(self) -> Any:
        c = self.coupling
        a = self.matrix.todense()[jnp.asarray(c.inverse.array)][:, jnp.asarray(c.inverse.array)]
        if self.border is not None:
            upper, lower, corner = self.border
            a = jnp.block([[a, upper], [lower, corner]])
        place = np.argsort(self.layout.array)
        return a[place][:, place]


def structured_gram(mass: Any, left: StructuredJacobian, right: StructuredJacobian) -> StructuredGram:
    """Products of the blocks that meet, each put where the structure wants it."""
    coupling, r = left.coupling, left.coupling.rows
    weighted = right.weighted(mass)
    parts: list[Any] = [None] * len(coupling.parts)
    for meeting in coupling.meetings:
        (u, s, k), (w, z, l) = meeting.left, meeting.right
        x = _rows(left.blocks, coupling.units[u], s, k, r)
        y = _rows(weighted, coupling.units[w], z, l, r)
        product = jnp.sum(x[:, :, None, :] * y[:, None, :, :], axis=3)
        for part, (target, size) in enumerate(zip(meeting.targets, coupling.parts, strict=True)):
            if (target >= 0).any():
                value = add_at(product, target, size)
                parts[part] = value if parts[part] is None else parts[part] + value
    dtype = left.blocks[0].dtype
    filled = [jnp.zeros((size, r, r), dtype) if x is None else x for x, size in zip(parts, coupling.parts, strict=True)]
    return StructuredGram(_matrix(coupling, filled), _border(mass, left, right, weighted), coupling, left.layout)


def _rows(blocks: tuple[Any, ...], unit: Unit, slot: int, chosen: np.ndarray, r: int) -> Any:
    return take(blocks[unit.term][:, unit.first_row : unit.first_row + r, slot, :], chosen)


def _matrix(coupling: Coupling, parts: list[Any]) -> Any:
    structure, r = coupling.structure, coupling.rows
    if structure.kind == "tridiagonal":
        w = structure.width
        if w * r == 1:
            return Tridiagonal(*(x.reshape(-1) for x in parts))
        lower, diagonal, upper = (_merge(x, w, r) for x in parts)
        padding = np.flatnonzero(coupling.order.array.reshape(-1, w * r)[-1] < 0)
        if padding.size:
            diagonal = diagonal.at[-1, padding, padding].set(1.0)
        return Tridiagonal(lower, diagonal, upper)
    if structure.kind == "blocks":
        return BlockDiagonal(tuple(_merge(x, c, r) for x, (c, _) in zip(parts, structure.groups, strict=True)))
    return SparseMatrix(parts[0], coupling.symbolic)


def _merge(x: Any, c: int, r: int) -> Any:
    """A stack of r x r entries in c x c tables as a stack of (c r) x (c r) matrices."""
    return x.reshape(-1, c, c, r, r).transpose(0, 1, 3, 2, 4).reshape(-1, c * r, c * r)


def _border(mass: Any, left: StructuredJacobian, right: StructuredJacobian, weighted: tuple[Any, ...]) -> Any:
    if left.full is None:
        return None

    def inner(blocks, jac, full):  # blocks times the rows of `full`, (structured rows, full rows)
        view = StructuredJacobian(blocks, None, jac.coupling, jac.layout, jac.shape)
        return jax.vmap(lambda v: jnp.concatenate(view.structured(v)), out_axes=1)(full)

    q = jnp.zeros(left.shape, left.full.dtype)
    velocity = mass.right(q, right.full)
    upper = inner(left.blocks, left, velocity)
    lower = inner(weighted, right, left.full).T
    return upper, lower, left.full @ velocity.T
