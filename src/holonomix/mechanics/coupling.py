"""Which rows of the constraint are coupled in `G M^-1 G^T`, and the matrix structure that fits.

Two blocks of rows are coupled if they touch a common particle (the mass is diagonal, or one matrix per particle). The
analysis runs once, on the host, when a function is traced; it is cached by the index lists.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..core.types import Numbers
from ..linalg.blocks import BlockLayout
from ..linalg.fronts import FrontLayout
from ..linalg.layout import AbstractLayout
from ..linalg.small import UNROLL
from ..linalg.structures import dense_text, plan_layout
from ..trace.indexing import Indices
from .discovered import Discovered, Pattern, discover
from .islands import Islands, islands_of
from .mass import AbstractMass, AbstractParticleMass
from .names import row_count
from .structured import AbstractLocal

# With more coupled pairs than this the matrix is nearly dense, and the index lists would not fit into memory.
MAX_JUNCTIONS = 20_000_000


@dataclasses.dataclass(frozen=True, eq=False)
class ConstraintGroup:
    """Equal blocks of one term, every `period`-th of them: their particles and rows per block."""

    term: int
    indices: np.ndarray
    rows: int


@dataclasses.dataclass(frozen=True, eq=False)
class JunctionRows:
    """Blocks `left[k]` of one part and `right[k]` of another that share a particle at the given slots.

    `entries` are the places of the products of their rows in the stored matrix: `(k,)` if a block is a node of the
    graph, `(rows, rows, k)` if each of its rows is a node. `mirrored` are the places of the transposed products if both
    Jacobians are the same. It is None if the junction in the other order comes first, or if both sides are the same.
    """

    left: tuple[int, int, np.ndarray]
    right: tuple[int, int, np.ndarray]
    entries: np.ndarray
    mirrored: np.ndarray | None

    @property
    def first(self) -> bool:
        """Whether this order is the one that is computed if both Jacobians are the same."""
        return self.left[:2] <= self.right[:2]


@dataclasses.dataclass(frozen=True, eq=False)
class Coupling:
    """The result of the analysis; compared by identity, which the cache makes safe."""

    parts: tuple[ConstraintGroup, ...]
    periods: tuple[int, ...]  # parts of each term
    junctions: tuple[JunctionRows, ...]
    layout: AbstractLayout | None  # None: dense
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
            if count > MAX_JUNCTIONS:
                return _dense(parts, terms, f"{start} rows, nearly all coupled: dense LU")
            if left.size:
                met.append((a, b, left, right))
    ends = [_ends(numbers[a[0]], left, numbers[b[0]], right) for a, b, left, right in met]
    none = np.zeros(0, np.int64)
    i, j = (np.concatenate([none, *(x[side].reshape(-1) for x in ends)]) for side in (0, 1))
    rows_of = np.concatenate(natural)
    number = np.arange(nodes)
    if len(natural) > len(terms):
        # number the nodes by their rows, to keep the natural order
        i, j, rows_of, number = _renumber(i, j, rows_of)
    layout = plan_layout(i, j, rows_of)
    if layout is None:
        return _dense(parts, terms, dense_text(start))
    if isinstance(layout, FrontLayout) and not uniform:
        layout = layout.in_segments([(number[x], number[y]) for x, y in ends])
    junctions = tuple(
        JunctionRows(
            (*a, left),
            (*b, right),
            _entries(layout, number[x], number[y], uniform),
            _entries(layout, number[y], number[x], uniform) if a < b else None,
        )
        for (a, b, left, right), (x, y) in zip(met, ends, strict=True)
    )
    periods = tuple(period for _, period, _ in terms)
    islands = islands_of(parts) if isinstance(layout, BlockLayout) else None
    return Coupling(tuple(parts), periods, junctions, layout, layout.text, islands)


def _ends(a: np.ndarray, left: np.ndarray, b: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coupled nodes of blocks `left` and `right`, `(nodes per block, nodes per block, k)` each."""
    shape = (a.shape[0], b.shape[0], left.size)
    return np.broadcast_to(a[:, None, left], shape), np.broadcast_to(b[None, :, right], shape)


def _entries(layout: AbstractLayout, i: np.ndarray, j: np.ndarray, uniform: bool) -> np.ndarray:
    found = layout.entry(i.reshape(-1), j.reshape(-1)).reshape(i.shape)
    return found[0, 0] if uniform else found


def _dense(parts: list[ConstraintGroup], terms: PyTree, text: str) -> Coupling:
    return Coupling(tuple(parts), tuple(period for _, period, _ in terms), (), None, text)


def _renumber(i: np.ndarray, j: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    order = np.argsort(rows[:, 0], kind="stable")
    number = np.empty(order.size, dtype=np.int64)
    number[order] = np.arange(order.size)
    return number[i], number[j], rows[order], number


def _join(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (k, l) with `a[k] == b[l] >= 0`, ordered by k."""
    order = np.argsort(b, kind="stable")
    lo, hi = np.searchsorted(b[order], a, "left"), np.searchsorted(b[order], a, "right")
    count = np.where(a < 0, 0, hi - lo)
    if count.sum() > MAX_JUNCTIONS:
        too_many = np.zeros(MAX_JUNCTIONS + 1, np.int64)
        return too_many, too_many
    left = np.repeat(np.arange(a.size), count)
    first = np.repeat(np.cumsum(count) - count, count)
    return left, order[np.repeat(lo, count) + np.arange(left.size) - first]


@dataclasses.dataclass(frozen=True, eq=False)
class Structured:
    """The coupling of a system's structured terms, and the places of their rows among those of plain functions."""

    coupling: Coupling
    layout: Indices  # natural positions of the structured rows, then of the plain ones
    local: tuple[int, ...]  # which terms are structured
    plain: tuple[int, ...]
    patterns: tuple[tuple[int, Pattern], ...] = ()  # of the structured ones that are plain functions


def find_structure(
    terms: tuple[tuple[Any, Any], ...], mass: AbstractMass, q: Numbers, sets: int = 1
) -> tuple[Structured | None, str]:
    """The structure of a list of (term, further arguments), or None for a dense matrix; and the reason.

    `sets` is the number of sets of multipliers that a step solves for together.
    """
    local = tuple(k for k, (term, _) in enumerate(terms) if isinstance(term, AbstractLocal))
    rows = [row_count(term, q, extra) for term, extra in terms]
    m = sum(rows)
    if sets * m <= UNROLL:
        return None, f"{m} constraint rows: unrolled dense elimination" if m else "no constraints"
    if not isinstance(mass, AbstractParticleMass):
        return None, f"{m} rows with a mass matrix that couples particles: dense LU"
    plain = tuple(k for k in range(len(terms)) if k not in local)
    patterns: dict[int, Pattern] = {}
    # among many rows, a few plain ones are treated as a border
    if sum(rows[k] for k in plain) > (UNROLL if m > UNROLL else UNROLL // sets):
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
