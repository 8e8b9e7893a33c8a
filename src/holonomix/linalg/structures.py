"""The list of matrix structures: which one fits the coupling graph of a matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from .blocks import plan_blocks
from .cyclic import CyclicTridiagonal
from .fronts import MIN_FRONT_BLOCK, StoredFrontLayout, fronts_available, plan_fronts
from .graph import Graph
from .layout import AbstractLayout, Piece, sum_parts
from .small import UNROLL
from .sparse import plan_sparse
from .tridiagonal import plan_band, plan_chain


@dataclasses.dataclass(frozen=True, eq=False)
class RingLayout(AbstractLayout):
    """The lower, diagonal and upper entries of a ring in natural order."""

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        count = self.sizes[0]
        return (j - i + 1) % count * count + i

    def assemble(self, pieces: Sequence[Piece]) -> CyclicTridiagonal:
        parts = sum_parts(pieces, self.sizes, self.rows)
        return CyclicTridiagonal(*(x[0, 0] if self.rows == 1 else x for x in parts))


def plan_ring(graph: Graph) -> AbstractLayout | None:
    """A ring in natural order; blocks of `MIN_FRONT_BLOCK` rows or more are eliminated in fronts where possible."""
    n, r = graph.rows.shape
    if not (graph.i.size and n > 4 and r <= UNROLL and np.isin((graph.i - graph.j) % n, (1, n - 1)).all()):
        return None
    kind = "tridiagonal" if r == 1 else "block tridiagonal"
    text = f"{n * r} rows in a ring: a {kind} matrix with corners"
    layout = RingLayout(r, (n, n, n), *graph.row_order(graph.natural), text)
    in_fronts = r >= MIN_FRONT_BLOCK and fronts_available()
    return StoredFrontLayout.of(layout, graph) if in_fronts else layout


# The first one that fits is taken.
PLANNERS: list[Callable[[Graph], AbstractLayout | None]] = [
    plan_chain,
    plan_ring,
    plan_blocks,
    plan_band,
    plan_fronts,
    plan_sparse,
]


def plan_layout(i: np.ndarray, j: np.ndarray, rows: np.ndarray) -> AbstractLayout | None:
    """The layout for the couplings (i, j), or None for a dense matrix; `rows[k]` are the matrix rows of node k."""
    graph = Graph.of(i, j, rows)
    return next((layout for plan in PLANNERS if (layout := plan(graph)) is not None), None)


def dense_text(rows: int) -> str:
    """What to say where no structure fits."""
    return f"{rows} rows that fill in when eliminated: dense LU"
