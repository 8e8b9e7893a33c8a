"""Coupling graphs, on the host: which unknowns are coupled, and orders to eliminate them in."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from ..trace.indexing import Indices


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """The nodes of a matrix with a symmetric pattern; each node stands for r rows.

    Edges are `(i, j)` with i != j, in both directions, sorted by row and without duplicates.
    """

    i: np.ndarray
    j: np.ndarray
    rows: np.ndarray  # (n, r): the matrix rows of each node

    @classmethod
    def of(cls, i: np.ndarray, j: np.ndarray, rows: np.ndarray) -> Graph:
        """The graph of couplings that may be given repeatedly, loops included."""
        n, keep = len(rows), i != j
        key = np.unique(i[keep] * n + j[keep])
        return cls(key // n, key % n, rows)

    @property
    def n(self) -> int:
        return self.rows.shape[0]

    @property
    def r(self) -> int:
        return self.rows.shape[1]

    @property
    def natural(self) -> np.ndarray:
        """The nodes in the order in which they were given."""
        return np.arange(self.n)

    @functools.cached_property
    def keys(self) -> np.ndarray:
        """`i n + j` of all edges and loops, sorted."""
        return np.unique(np.concatenate([self.i * self.n + self.j, self.natural * (self.n + 1)]))

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The nodes of all edges and loops, in the order of `keys`."""
        return self.keys // self.n, self.keys % self.n

    def neighbors(self) -> list[list[int]]:
        """Neighbors of every node, sorted."""
        starts = np.searchsorted(self.i, np.arange(self.n + 1))
        flat = self.j.tolist()
        return [flat[starts[k] : starts[k + 1]] for k in range(self.n)]

    @functools.cached_property
    def components(self) -> np.ndarray:
        """A label for each node; labels count up in the order of first appearance."""
        if not self.i.size:
            return self.natural
        from scipy.sparse import csr_array  # takes a third of a second to import, and small systems do not need it
        from scipy.sparse.csgraph import connected_components

        edges = csr_array((np.ones(self.i.size), (self.i, self.j)), (self.n, self.n))
        return connected_components(edges, directed=False)[1]

    def bandwidth(self, order: np.ndarray) -> int:
        """The largest distance of two coupled nodes in the given order."""
        place = np.empty(order.size, dtype=np.int64)
        place[order] = np.arange(order.size)
        return int(np.abs(place[self.i] - place[self.j]).max(initial=0))

    def cuthill_mckee(self) -> np.ndarray:
        """An order with a small bandwidth: breadth first from an end of each component, low degrees first.

        SciPy's `reverse_cuthill_mckee` starts at any node of the least degree. In a chain with side branches that is
        the tip of any branch, which doubles the bandwidth.
        """
        neighbors = self.neighbors()
        degree = [len(x) for x in neighbors]
        by_degree = np.argsort(degree, kind="stable")
        order: list[int] = []
        for start in by_degree[np.unique(self.components[by_degree], return_index=True)[1]].tolist():
            found = [start]
            for _ in range(3):  # the last node of a search is far from its start: begin there
                found = _breadth_first(neighbors, degree, found[-1])
            order += found
        return np.asarray(order, dtype=np.int64)

    def row_order(self, nodes: np.ndarray) -> tuple[Indices, Indices]:
        """The matrix rows of `nodes`, which lists every node once and -1 for padding; and the inverse of this list."""
        rows = np.where(nodes[:, None] >= 0, self.rows[nodes], -1).reshape(-1)
        inverse = np.empty(self.rows.size, dtype=np.int64)
        inverse[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        return Indices(rows), Indices(inverse)


def positions(nodes: np.ndarray, n: int) -> np.ndarray:
    """The position of each of n nodes in a list that may be padded with -1."""
    place = np.empty(n, dtype=np.int64)
    place[nodes[nodes >= 0]] = np.flatnonzero(nodes >= 0)
    return place


def _breadth_first(neighbors: list[list[int]], degree: list[int], start: int) -> list[int]:
    queue, seen = [start], {start}
    for node in queue:
        new = sorted((k for k in neighbors[node] if k not in seen), key=degree.__getitem__)
        seen.update(new)
        queue += new
    return queue
