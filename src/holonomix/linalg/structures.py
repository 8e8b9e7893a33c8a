"""The list of matrix structures: which one fits the coupling graph of a matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .blocks import plan_blocks
from .cyclic import plan_ring
from .fronts import plan_fronts
from .graph import Graph
from .layout import AbstractLayout
from .sparse import plan_sparse
from .tridiagonal import plan_band, plan_chain

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
