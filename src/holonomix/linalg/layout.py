"""Where a matrix over a coupling graph is stored, and how it is assembled.

A structure of matrices is one file: a matrix class with its factors, a layout, and a planner. The planner returns the
layout for a graph, or None where the structure does not fit; `structures.PLANNERS` lists all planners.

The entry of nodes (i, j) is an r x r block. Every entry of a small block or of a band has its own array over the blocks
(lanes), so that regular systems are assembled without moving anything.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import jax.numpy as jnp
import numpy as np

from ..core.types import Array, Factor, Numbers
from ..trace.indexing import Indices, add_at

Piece = tuple[Array, np.ndarray]


if TYPE_CHECKING:

    class DefiniteFactor(Factor, Protocol):
        """Factors that also tell whether a symmetric matrix is positive definite."""

        @property
        def signed_pivot(self) -> Numbers:
            """Positive exactly when the factored symmetric matrix is positive definite; negative or NaN otherwise.

            Elimination in any order leaves the pivots (here: small blocks) of a definite matrix definite, and so are
            their inverses, which most factors hold.
            """
            ...

    class RedundantFactor(Factor, Protocol):
        """Factors of a matrix that may have dependent rows."""

        def shortest(self, x: Numbers, /) -> Array:
            """The solution of least norm with the same product."""
            ...

    class Matrix(Protocol):
        """A square matrix in the order of its solver."""

        def factor(self, symmetric: bool = False) -> DefiniteFactor: ...

        def factor_redundant(self, symmetric: bool = False) -> RedundantFactor | None:
            """Factors that accept dependent rows; None where the structure has none, and a dense matrix must serve."""
            ...

        def todense(self) -> Array: ...
else:
    DefiniteFactor = RedundantFactor = Matrix = object  # for run-time checks


@dataclasses.dataclass(frozen=True, eq=False)
class AbstractLayout(abc.ABC):
    """Storage of a matrix with r x r entries; compared by identity."""

    rows: int  # r
    sizes: tuple[int, ...]  # length of each stored part
    order: Indices  # natural row of every row of the solver, -1 for padding
    inverse: Indices
    text: str  # what `system.structure(q)` says

    @abc.abstractmethod
    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Where (i, j) is stored, counted through all parts; the nodes must be coupled (or equal)."""

    @abc.abstractmethod
    def assemble(self, pieces: Sequence[Piece]) -> Matrix:
        """The matrix with `values (r, r, k)` added at the entries `(k,)`; negative entries are dropped.

        Where nodes are single rows, a piece may also be a block of rows: `values (a, b, k)` at entries `(a, b, k)`.
        """


def sum_parts(pieces: Sequence[Piece], sizes: tuple[int, ...], r: int) -> list[Array]:
    """The stored parts, `(r, r, size)` each, with all pieces added."""
    pieces = [single for values, entries in pieces for single in _single_rows(values, entries)]
    bounds = np.cumsum([0, *sizes])
    homes = [np.unique(np.searchsorted(bounds, flat[flat >= 0], "right") - 1) for _, flat in pieces]
    dtype = pieces[0][0].dtype
    if any(home.size > 1 for home in homes):
        total = add_at(pieces, int(bounds[-1]))
        return [total[..., a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    held: list[list[Piece]] = [[] for _ in sizes]
    for (values, flat), home in zip(pieces, homes, strict=True):
        for k in home:
            held[k].append((values, np.where(flat < 0, -1, flat - bounds[k])))
    return [add_at(held[k], size) if held[k] else jnp.zeros((r, r, size), dtype) for k, size in enumerate(sizes)]


def _single_rows(values: Array, entries: np.ndarray) -> list[Piece]:
    if entries.ndim == 1:
        return [(values, entries)]
    return [(values[a : a + 1, b : b + 1], entries[a, b]) for a, b in np.ndindex(*entries.shape[:2])]


def merge_blocks(parts: list[Array], c: int, r: int) -> Array:
    """c x c tables of r x r entries as (c r) x (c r) matrices."""
    if c == 1:
        return parts[0]
    table = jnp.stack(parts).reshape(c, c, r, r, -1)
    return table.transpose(0, 2, 1, 3, 4).reshape(c * r, c * r, -1)
