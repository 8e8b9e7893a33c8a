"""From products of small blocks to a matrix in the form its graph allows.

A `Layout` says where the entry of nodes (i, j) of a coupling graph is stored: every entry of a small block or of a band
has its own array over the blocks (lanes), so that regular systems are assembled without moving anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..trace.indexing import Indices, add_at
from .blocks import BlockDiagonal
from .cyclic import CyclicTridiagonal
from .fronts import FrontMatrix, fronts_available, pair_keys
from .graph import Structure, analyze, unique_edges
from .multifrontal import Plan, plan_of
from .sparse import SparseMatrix, symbolic
from .tridiagonal import SHORT, Tridiagonal

# Blocks of at least so many rows are eliminated in fronts, and sparse graphs that take so many operations: shorter
# eliminations are written out by the kernel compiler. So is the recurrence along a chain, up to larger blocks.
FRONT_BLOCK, FRONT_OPERATIONS, WRITTEN_BLOCK = 4, 1_500, 6
MOST_PADDING = 2  # times as long as without padding that entries in segments may be


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """Storage of a matrix with r x r entries; compared by identity."""

    structure: Structure
    rows: int  # r
    sizes: tuple[int, ...]  # length of each part
    place: np.ndarray  # position of every node in the solver's order
    order: Indices  # natural row of every row of the solver, -1 for padding
    inverse: Indices
    plan: Any = None
    keys: Any = None  # of the stored pairs, for fronts
    stored: np.ndarray | None = None  # where the pairs are stored, for fronts in segments of equal length
    segment: int = 0
    redundant_plan: Plan | None = None  # where redundant rows are eliminated in fronts and others are not

    @property
    def offsets(self) -> np.ndarray:
        return np.cumsum([0, *self.sizes])

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Where (i, j) is stored, counted through all parts; the nodes must be coupled (or equal)."""
        kind, a, b = self.structure.kind, self.place[i], self.place[j]
        if kind == "cyclic":
            count = self.structure.order.size
            return (b - a + 1) % count * count + a
        if kind == "tridiagonal":
            w = self.structure.width
            count = self.structure.order.size // w
            (block_a, a), (block_b, b) = divmod(a, w), divmod(b, w)
            return (((block_b - block_a + 1) * w + a) * w + b) * count + block_a
        if kind == "blocks":
            out, start, offset = np.zeros_like(a), 0, 0
            for c, k in self.structure.groups:
                here = (a >= start) & (a < start + c * k)
                (block, row), column = divmod(a - start, c), (b - start) % c
                out = np.where(here, offset + (row * c + column) * k + block, out)
                start, offset = start + c * k, offset + c * c * k
            return out
        if kind == "fronts":
            found = np.searchsorted(self.keys, np.asarray(i) * self.place.size + j)
            return found if self.stored is None else self.stored[found]
        return self.plan.entry(np.asarray(i), np.asarray(j))

    def in_segments(self, blocks: list[tuple[np.ndarray, np.ndarray]], rows: np.ndarray) -> Layout:
        """The same with the nodes `(a, b, k)` of each block stored as `a b` segments: no gather is needed.

        Equal blocks are added. Where blocks overlap otherwise, or most of the segments would be empty, nothing changes.
        """
        n = self.place.size
        keys = [i * n + j for i, j in blocks] + [(j * n + i).transpose(1, 0, 2) for i, j in blocks]
        groups = list({(x.shape, x.tobytes()): x for x in keys}.values())
        if not np.array_equal(np.sort(np.concatenate([x.reshape(-1) for x in groups])), self.keys):
            return self
        segment = max(x.shape[2] for x in groups)
        size = segment * sum(x.shape[0] * x.shape[1] for x in groups)
        if size > MOST_PADDING * self.keys.size:
            return self
        stored, start = np.zeros_like(self.keys), 0
        for x in groups:
            segments = x.reshape(-1, x.shape[2])
            places = start + segment * np.arange(len(segments))[:, None] + np.arange(x.shape[2])
            stored[np.searchsorted(self.keys, segments)] = places
            start += segment * len(segments)
        plan = plan_of(*np.divmod(self.keys, n), rows, stored[None, None], size)
        return dataclasses.replace(self, plan=plan, sizes=(size,), stored=stored, segment=segment)

    def _segments(self, pieces: Sequence[tuple[Any, np.ndarray]]) -> FrontMatrix:
        sums: dict[int, Any] = {}
        for values, flat in pieces:
            first = int(flat[0])
            sums[first] = sums[first] + values if first in sums else values
        lanes = [values.reshape(-1, values.shape[2]) for _, values in sorted(sums.items())]
        flat = [jnp.pad(x, ((0, 0), (0, self.segment - x.shape[1]))).reshape(-1) for x in lanes]
        return FrontMatrix(jnp.concatenate(flat).astype(jnp.float64), self.plan)

    def assemble(self, pieces: Sequence[tuple[Any, np.ndarray]]) -> Any:
        """The matrix with `values (r, r, k)` added at the entries `(k,)`; negative entries are dropped."""
        bounds, r = self.offsets, self.rows
        if self.segment:
            return self._segments(pieces)
        homes = [np.unique(np.searchsorted(bounds, flat[flat >= 0], "right") - 1) for _, flat in pieces]
        dtype = pieces[0][0].dtype
        if all(home.size <= 1 for home in homes):
            held: list[list[tuple[Any, np.ndarray]]] = [[] for _ in self.sizes]
            for (values, flat), home in zip(pieces, homes, strict=True):
                for k in home:
                    held[k].append((values, np.where(flat < 0, -1, flat - bounds[k])))
            parts = [
                add_at(held[k], size) if held[k] else jnp.zeros((r, r, size), dtype)
                for k, size in enumerate(self.sizes)
            ]
        else:
            total = add_at(pieces, int(bounds[-1]))
            parts = [total[..., a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
        return self._matrix(parts)

    def fronts(self, matrix: Tridiagonal) -> FrontMatrix | None:
        """The same matrix for elimination in fronts, where that is planned."""
        if self.redundant_plan is None:
            return None
        flat = jnp.concatenate([x.reshape(-1) for x in (matrix.lower, matrix.diagonal, matrix.upper)])
        return FrontMatrix(flat.astype(jnp.float64), self.redundant_plan)

    def _matrix(self, parts: list[Any]) -> Any:
        kind, r = self.structure.kind, self.rows
        if isinstance(self.plan, Plan):
            flat = jnp.concatenate([part.reshape(-1) for part in parts])
            return FrontMatrix(flat.astype(jnp.float64), self.plan)
        if kind == "sparse":
            return SparseMatrix(parts[0][0, 0] if r == 1 else parts[0], self.plan)
        if kind == "blocks":
            stacks, start = [], 0
            for c, _ in self.structure.groups:
                stacks.append(_merge(parts[start : start + c * c], c, r))
                start += c * c
            return BlockDiagonal(tuple(stacks))
        if kind == "cyclic":
            return CyclicTridiagonal(*(x[0, 0] if r == 1 else x for x in parts))
        w = self.structure.width
        lower, diagonal, upper = (_merge(parts[k * w * w : (k + 1) * w * w], w, r) for k in range(3))
        if w * r == 1:
            return Tridiagonal(lower[0, 0], diagonal[0, 0], upper[0, 0])
        padding = np.flatnonzero(self.order.array.reshape(-1, w * r)[-1] < 0)
        if padding.size:
            diagonal = diagonal.at[padding, padding, -1].set(1.0)
        return Tridiagonal(lower, diagonal, upper)


def _merge(parts: list[Any], c: int, r: int) -> Any:
    """c x c tables of r x r entries as (c r) x (c r) matrices."""
    if c == 1:
        return parts[0]
    table = jnp.stack(parts).reshape(c, c, r, r, -1)
    return table.transpose(0, 2, 1, 3, 4).reshape(c * r, c * r, -1)


def layout_of(i: np.ndarray, j: np.ndarray, rows: np.ndarray) -> Layout:
    """The layout for the couplings (i, j); `rows[k]` are the natural rows of node k."""
    n, r = rows.shape
    edges = unique_edges(i, j, n)
    structure, plan = analyze(*edges, n, r), None
    if structure.kind == "sparse" and fronts_available():
        keys, same = pair_keys(*edges, n), Indices(np.arange(n * r))
        plan = plan_of(*np.divmod(keys, n), rows)
        if plan.operations > FRONT_OPERATIONS:
            structure = Structure("fronts", np.arange(n), text=plan.text)
            return Layout(structure, r, (keys.size,), np.arange(n), same, same, plan, keys)
    if structure.kind == "sparse":
        plan = symbolic(*edges, n, r)
        structure = dataclasses.replace(structure, kind=plan.kind, text=plan.text)
    held = structure.order >= 0
    place = np.empty(n, dtype=np.int64)
    place[structure.order[held]] = np.flatnonzero(held)
    if structure.kind == "tridiagonal":
        w = structure.width
        sizes = (structure.order.size // w,) * (3 * w * w)
    elif structure.kind == "cyclic":
        sizes = (n, n, n)
    elif structure.kind == "blocks":
        sizes = tuple(k for c, k in structure.groups for _ in range(c * c))
    else:
        sizes = () if plan is None else (plan.entries,)
    padded = np.where(held[:, None], rows[structure.order], -1).reshape(-1)
    inverse = np.empty(n * r, dtype=np.int64)
    inverse[padded[padded >= 0]] = np.flatnonzero(padded >= 0)
    layout = Layout(structure, r, sizes, place, Indices(padded), Indices(inverse), plan)
    return _in_fronts(layout, edges, rows)


def _in_fronts(layout: Layout, edges: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> Layout:
    """A chain or ring of blocks, stored as ever, that is eliminated in fronts where these are available."""
    structure, (n, r) = layout.structure, rows.shape
    if structure.kind not in ("tridiagonal", "cyclic") or structure.width * r < FRONT_BLOCK or not fronts_available():
        return layout
    keys, same = pair_keys(*edges, n), Indices(np.arange(n * r))
    i, j = np.divmod(keys, n)
    if r == 1 and structure.width > 1:  # a band of single entries: one array for each place in a block would be many
        plan, w = plan_of(i, j, rows), structure.width
        structure = Structure("fronts", np.arange(n), text=f"{n} rows in a chain of {w} x {w} blocks; {plan.text}")
        return Layout(structure, r, (keys.size,), np.arange(n), same, same, plan, keys)
    part, place = np.divmod(layout.entry(i, j), layout.sizes[0])
    block = np.arange(r * r).reshape(r, r, 1)
    source = (part * r * r + block) * layout.sizes[0] + place
    size = r * r * int(layout.offsets[-1])
    if structure.kind == "tridiagonal" and structure.width == 1 and r <= WRITTEN_BLOCK and n > SHORT:
        return dataclasses.replace(layout, redundant_plan=plan_of(i, j, layout.inverse.array[rows], source, size))
    plan = plan_of(i, j, rows, source, size)
    structure = dataclasses.replace(structure, text=f"{structure.text}; {plan.text}")
    return dataclasses.replace(layout, structure=structure, order=same, inverse=same, plan=plan)
