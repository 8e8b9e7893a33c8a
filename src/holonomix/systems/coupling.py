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

from ..linalg.assembly import Layout, layout_of
from ..linalg.blocks import BlockDiagonal
from ..linalg.fronts import FrontMatrix
from ..linalg.indexing import Indices, add_at, take
from ..linalg.scales import particle_sizes, row_sizes
from ..linalg.small import UNROLL, Dense
from ..linalg.tridiagonal import Tridiagonal, lane_products
from ..types import Numbers
from .discovered import Discovered, Pattern, discover
from .islands import Islands, islands_of, sum_of
from .structured import AbstractLocal, weave

# Beyond this many meetings of rows the matrix is as good as dense, and the index lists would not fit either.
MAX_MEETINGS = 20_000_000


@dataclasses.dataclass(frozen=True, eq=False)
class ConstraintGroup:
    """Equal blocks of one term, every `period`-th of them: their particles and rows per block."""

    term: int
    indices: np.ndarray
    rows: int


@dataclasses.dataclass(frozen=True, eq=False)
class JunctionRows:
    """Blocks `left[k]` of one part and `right[k]` of another that share a particle at the given slots.

    `entries` tells where the products of their rows go in the stored matrix: `(k,)` where a block is a node of the
    graph, `(rows, rows, k)` where each of its rows is one; `mirrored` where they go again when both Jacobians are the
    same, None where the other order is another junction that then need not be computed, or where both are one.
    """

    left: tuple[int, int, np.ndarray]
    right: tuple[int, int, np.ndarray]
    entries: np.ndarray
    mirrored: np.ndarray | None

    @property
    def first(self) -> bool:
        """Whether this is the order that is computed when both Jacobians are the same."""
        return self.left[:2] <= self.right[:2]


@dataclasses.dataclass(frozen=True, eq=False)
class Coupling:
    """The result of the analysis; compared by identity, which the cache makes safe."""

    parts: tuple[ConstraintGroup, ...]
    periods: tuple[int, ...]  # parts of each term
    meetings: tuple[JunctionRows, ...]
    layout: Layout | None  # None: as good as dense
    text: str
    islands: Islands | None = None


@functools.lru_cache(maxsize=64)
def coupling_of(terms: tuple[tuple[Indices, int, int], ...]) -> Coupling:
    """The coupling of terms given by their index lists, the number of interleaved parts, and rows per block."""
    uniform = len({rows for _, _, rows in terms}) == 1
    r = terms[0][2] if uniform else 1
    parts: list[ConstraintGroup] = []
    numbers: list[np.ndarray] = []  # the nodes of a part, (nodes per block, blocks)
    natural: list[np.ndarray] = []
    nodes = start = 0
    for t, (indices, period, rows) in enumerate(terms):
        blocks = np.arange(indices.array.shape[0])
        for part in (slice(a, None, period) for a in range(period)):
            parts.append(ConstraintGroup(t, indices.array[part], rows))
            count, size = 1 if uniform else rows, blocks[part].size
            numbers.append(nodes + np.arange(count * size).reshape(count, size))
            for a in range(count):
                natural.append(start + rows * blocks[part][:, None] + a + np.arange(r))
            nodes += count * size
        start += rows * blocks.size

    columns = [(p, s) for p, part in enumerate(parts) for s in range(part.indices.shape[1])]
    met, count = [], 0
    for a in columns:
        for b in columns:
            left, right = _join(parts[a[0]].indices[:, a[1]], parts[b[0]].indices[:, b[1]])
            count += left.size * numbers[a[0]].shape[0] * numbers[b[0]].shape[0]
            if count > MAX_MEETINGS:
                return _dense(parts, terms, f"{start} rows, nearly all coupled: dense LU")
            if left.size:
                met.append((a, b, left, right))
    ends = [_ends(numbers[a[0]], left, numbers[b[0]], right) for a, b, left, right in met]
    none = np.zeros(0, np.int64)
    i, j = (np.concatenate([none, *(x[side].reshape(-1) for x in ends)]) for side in (0, 1))
    rows_of = np.concatenate(natural)
    number = np.arange(nodes)
    if len(natural) > len(terms):
        # number the nodes by their rows, so that what is in order stays in order
        i, j, rows_of, number = _renumbered(i, j, rows_of)
    layout = layout_of(i, j, rows_of)
    if layout.structure.kind == "dense":
        return _dense(parts, terms, layout.structure.text)
    if layout.structure.kind == "fronts" and not uniform:
        layout = layout.in_segments([(number[x], number[y]) for x, y in ends], rows_of)
    meetings = tuple(
        JunctionRows(
            (*a, left),
            (*b, right),
            _entries(layout, number[x], number[y], uniform),
            _entries(layout, number[y], number[x], uniform) if a < b else None,
        )
        for (a, b, left, right), (x, y) in zip(met, ends, strict=True)
    )
    periods = tuple(period for _, period, _ in terms)
    islands = islands_of(parts) if layout.structure.kind == "blocks" else None
    return Coupling(tuple(parts), periods, meetings, layout, layout.structure.text, islands)


def _ends(a: np.ndarray, left: np.ndarray, b: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coupled nodes of blocks `left` and `right`, `(nodes per block, nodes per block, k)` each."""
    shape = (a.shape[0], b.shape[0], left.size)
    return np.broadcast_to(a[:, None, left], shape), np.broadcast_to(b[None, :, right], shape)


def _entries(layout: Layout, i: np.ndarray, j: np.ndarray, uniform: bool) -> np.ndarray:
    found = layout.entry(i.reshape(-1), j.reshape(-1)).reshape(i.shape)
    return found[0, 0] if uniform else found


def _dense(parts: list[ConstraintGroup], terms: Any, text: str) -> Coupling:
    return Coupling(tuple(parts), tuple(period for _, period, _ in terms), (), None, text)


def _renumbered(
    i: np.ndarray, j: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    order = np.argsort(rows[:, 0], kind="stable")
    number = np.empty(order.size, dtype=np.int64)
    number[order] = np.arange(order.size)
    return number[i], number[j], rows[order], number


def _join(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (k, l) with `a[k] == b[l] >= 0`, ordered by k."""
    order = np.argsort(b, kind="stable")
    lo, hi = np.searchsorted(b[order], a, "left"), np.searchsorted(b[order], a, "right")
    count = np.where(a < 0, 0, hi - lo)
    if count.sum() > MAX_MEETINGS:
        too_many = np.zeros(MAX_MEETINGS + 1, np.int64)
        return too_many, too_many
    left = np.repeat(np.arange(a.size), count)
    first = np.repeat(np.cumsum(count) - count, count)
    return left, order[np.repeat(lo, count) + np.arange(left.size) - first]


@dataclasses.dataclass(frozen=True, eq=False)
class Structured:
    """The coupling of a system's structured terms, and where their rows stand among those of plain callables."""

    coupling: Coupling
    layout: Indices  # natural positions of the structured rows, then of the plain ones
    local: tuple[int, ...]  # which terms are structured
    plain: tuple[int, ...]
    patterns: tuple[tuple[int, Pattern], ...] = ()  # of the structured ones that are plain functions


def find_structure(terms: tuple[tuple[Any, Any], ...], mass: Any, q: Numbers) -> tuple[Structured | None, str]:
    """The structure of a list of (term, further arguments), or None where a dense matrix serves; and the reason."""
    local = tuple(k for k, (term, _) in enumerate(terms) if isinstance(term, AbstractLocal))
    rows = [_row_count(term, q, extra) for term, extra in terms]
    m = sum(rows)
    if m <= UNROLL:
        return None, f"{m} constraint rows: unrolled dense elimination" if m else "no constraints"
    if not mass.particlewise:
        return None, f"{m} rows with a mass matrix that couples particles: dense LU"
    plain = tuple(k for k in range(len(terms)) if k not in local)
    patterns: dict[int, Pattern] = {}
    if sum(rows[k] for k in plain) > UNROLL:
        found = {k: discover(terms[k][0], q, terms[k][1]) for k in plain}
        patterns = {k: pattern for k, pattern in found.items() if pattern is not None}
        local = tuple(k for k in range(len(terms)) if k in local or k in patterns)
        plain = tuple(k for k in plain if k not in patterns)
    extra_rows = sum(rows[k] for k in plain)
    if not local or extra_rows > UNROLL:
        beside = f" beside {m - extra_rows} structured ones" if local else ""
        advice = "their program shows no structure; give them as Distance or Local if they have any"
        return None, f"{extra_rows} rows of plain functions{beside}: dense LU; {advice}"
    signature = []
    for k in local:
        view = Discovered(terms[k][0], patterns[k]) if k in patterns else terms[k][0]
        if isinstance(view, AbstractLocal):
            view.check(q)
        signature.append((view.indices, view.period, rows[k] // view.indices.array.shape[0]))
    coupling = coupling_of(tuple(signature))
    if coupling.layout is None:
        return None, coupling.text
    starts = np.cumsum([0, *rows])
    layout = Indices(np.concatenate([np.arange(starts[k], starts[k + 1]) for k in (*local, *plain)]))
    border = [f"bordered by {extra_rows} rows of plain functions"] if plain else []
    text = "; ".join([coupling.text, *border, *(pattern.text for pattern in patterns.values())])
    return Structured(coupling, layout, local, plain, tuple(patterns.items())), text


def _row_count(term: Any, q: Numbers, extra: Any) -> int:
    return jax.eval_shape(lambda x: jnp.asarray(term(x, *extra)), q).shape[0]


def structured_jacobian(found: Structured, terms: tuple[tuple[Any, Any], ...], q: Numbers) -> StructuredJacobian:
    """Each structured term's own Jacobian, and dense rows for the plain callables."""
    patterns = dict(found.patterns)
    views = {k: Discovered(terms[k][0], patterns[k]) if k in patterns else terms[k][0] for k in found.local}
    slopes = tuple(part for k, view in views.items() for part in view.jacobians(q, *terms[k][1]))
    full = None
    if found.plain:
        full = jax.jacrev(lambda x: jnp.concatenate([terms[k][0](x, *terms[k][1]) for k in found.plain]))(q)
        full = full.reshape(full.shape[0], -1)
    return StructuredJacobian(slopes, full, found.coupling, found.layout, q.shape)


class StructuredJacobian(eqx.Module):
    """`G(q)`: `(rows, coordinates, blocks)` for each particle of each part, and full rows for plain callables."""

    slopes: tuple[tuple[Any, ...], ...]
    full: Any  # (rows, coordinates of q) or None
    coupling: Coupling = eqx.field(static=True)
    layout: Indices = eqx.field(static=True)  # natural positions of the structured rows, then of the full ones
    shape: tuple[int, ...] = eqx.field(static=True)

    def _natural(self, parts: list[Any], full: Any) -> Any:
        """Rows `(rows, blocks)` of every part, and those of plain callables, in the order of the constraint."""
        out = _by_term(self, parts) + ([] if full is None else [full])
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
        """Each part's slopes with the particles they belong to, -1 at fixed points."""
        for slopes, part in zip(self.slopes, self.coupling.parts, strict=True):
            yield [(x, np.where(index < 0, -1, index)) for x, index in zip(slopes, part.indices.T, strict=True)]

    def structured(self, v: Numbers) -> list[Any]:
        """`G v` without the full rows, `(rows, blocks)` for every part."""
        lanes = v.reshape(self.shape[0], -1).T
        return [sum_of(jnp.sum(x * take(lanes, at)[None], axis=1) for x, at in slots) for slots in self._slots()]

    def __call__(self, v: Numbers) -> Any:
        """`G v`."""
        return self._natural(self.structured(v), None if self.full is None else self.full @ v.reshape(-1))

    def transpose(self, multipliers: Numbers) -> Any:
        """`G^T lambda` in the shape of q."""
        multipliers = take(multipliers, self.layout)
        pieces = []
        for slots, lam in zip(self._slots(), self._split(multipliers), strict=True):
            pieces += [(jnp.sum(x * lam[:, None], axis=0), at) for x, at in slots]
        total = add_at(pieces, self.shape[0]).T.reshape(self.shape)
        if self.full is None:
            return total
        return total + (multipliers[-self.full.shape[0] :] @ self.full).reshape(self.shape)

    def row_sizes(self, q: Any) -> Any:
        """`sum_j |G_ij| |q_j|`: the natural scale of each row of g (`linalg.scales`)."""
        q = particle_sizes(q)
        lanes = q.reshape(self.shape[0], -1).T
        parts = [
            sum_of(jnp.sum(jnp.abs(x * take(lanes, at)[None]), axis=1) for x, at in slots) for slots in self._slots()
        ]
        return self._natural(parts, None if self.full is None else row_sizes(self.full, q.reshape(-1)))

    def reach(self, mass: Any, q: Numbers, multipliers: Numbers) -> Any:
        """`|G M^-1|^T |lambda|`, flat: the size of a constraint force whose parts may cancel, as accelerations."""
        full = None if self.full is None else mass.right(q, self.full)
        weighted = StructuredJacobian(self.weighted(mass).slopes, full, self.coupling, self.layout, self.shape)
        return jax.tree.map(jnp.abs, weighted).transpose(jnp.abs(multipliers)).reshape(-1)

    def todense(self) -> Any:
        m = self.layout.array.size
        return jax.vmap(self.transpose)(jnp.eye(m)).reshape(m, -1)

    def weighted(self, mass: Any) -> StructuredJacobian:
        """`G M^-1` (without the full rows)."""
        slopes = tuple(tuple(mass.right_local(x, at, self.shape) for x, at in slots) for slots in self._slots())
        return StructuredJacobian(slopes, None, self.coupling, self.layout, self.shape)


def _unsort(rows: Any, layout: Indices) -> Any:
    place = np.empty(layout.array.size, dtype=np.int64)
    place[layout.array] = np.arange(place.size)
    return take(rows, place)


class StructuredFactor(eqx.Module):
    """Factors in the solver's order, with the Schur complement of the full rows where there are any."""

    factor: Any
    border: Any  # None, or (A^-1 B, C, factor of the Schur complement)
    pivot: Any
    coupling: Coupling = eqx.field(static=True)
    layout: Indices = eqx.field(static=True)

    def _solve(self, b: Any) -> Any:
        layout: Any = self.coupling.layout
        return take(self.factor.solve(take(b, layout.order)), layout.inverse)

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
        return _unsort(x, self.layout)

    def shortest(self, x: Any) -> Any:
        """The least-norm form of a solution, for factors that accept redundant rows."""
        layout: Any = self.coupling.layout
        x = take(self.factor.shortest(take(take(x, self.layout), layout.order)), layout.inverse)
        return _unsort(x, self.layout)


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

    def factor_redundant(self, symmetric: bool = False) -> Any:
        """Factors that accept redundant rows: by the structure for molecules and fronts, of the whole matrix else."""
        layout, matrix = self.coupling.layout, self.matrix
        if isinstance(matrix, Tridiagonal) and layout is not None:
            matrix = layout.fronts(matrix)
        if self.border is None and isinstance(matrix, BlockDiagonal | FrontMatrix):
            inner = matrix.factor_redundant(symmetric)
            return StructuredFactor(inner, None, inner.pivot, self.coupling, self.layout)
        return Dense(self.todense()).factor_redundant(symmetric)

    def todense(self) -> Any:
        inverse = jnp.asarray(self.coupling.layout.inverse.array)  # pyright: ignore[reportOptionalMemberAccess]
        a = self.matrix.todense()[inverse][:, inverse]
        if self.border is not None:
            upper, lower, corner = self.border
            a = jnp.block([[a, upper], [lower, corner]])
        place = np.argsort(self.layout.array)
        return a[place][:, place]


def structured_gram(mass: Any, left: StructuredJacobian, right: StructuredJacobian) -> StructuredGram:
    """Products of the rows that meet, each put where the structure wants it."""
    coupling = left.coupling
    weighted = right.weighted(mass)
    layout: Any = coupling.layout
    pieces = []
    for meeting in coupling.meetings:
        if left is right and not meeting.first:
            continue
        x, y = (_rows(jac, *side) for jac, side in ((left, meeting.left), (weighted, meeting.right)))
        product = lane_products(x, y)
        places = [(product, meeting.entries)]
        if left is right and meeting.mirrored is not None:
            turned = meeting.mirrored if meeting.mirrored.ndim == 1 else meeting.mirrored.transpose(1, 0, 2)
            places.append((product.transpose(1, 0, 2), turned))
        for values, entries in places:
            if entries.ndim == 1:
                pieces.append((values, entries))
            elif layout.structure.kind == "fronts":
                pieces.append((values if layout.segment else values.reshape(1, 1, -1), entries.reshape(-1)))
            else:
                pairs = np.ndindex(*entries.shape[:2])
                pieces += [(values[a : a + 1, b : b + 1], entries[a, b]) for a, b in pairs]
    return StructuredGram(layout.assemble(pieces), _border(mass, left, right, weighted), coupling, left.layout)


def _rows(jac: StructuredJacobian, part: int, slot: int, chosen: np.ndarray) -> Any:
    return take(jac.slopes[part][slot], chosen)


def _border(mass: Any, left: StructuredJacobian, right: StructuredJacobian, weighted: StructuredJacobian) -> Any:
    if left.full is None:
        return None

    def inner(jac, full):  # the structured rows times those of `full`, in the order of the layout
        sorted_rows = lambda v: jnp.concatenate(_by_term(jac, jac.structured(v)))
        return jax.vmap(sorted_rows, out_axes=1)(full)

    velocity = mass.right(jnp.zeros(left.shape, left.full.dtype), right.full)
    return inner(left, velocity), inner(weighted, left.full).T, left.full @ velocity.T


def _by_term(jac: StructuredJacobian, parts: list[Any]) -> list[Any]:
    out, k = [], 0
    for period in jac.coupling.periods:
        out.append(weave(parts[k : k + period]))
        k += period
    return out
