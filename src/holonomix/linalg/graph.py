"""Coupling graphs, on the host: which unknowns meet, in which order to eliminate them, and what that costs.

A graph is given by its edges `(i, j)`, i != j, both directions present, no duplicates.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from .small import UNROLL


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """How to solve with a matrix of a given graph.

    `kind` is `blocks` (independent small blocks), `tridiagonal` (numbers or blocks in a row; `width` graph nodes make
    one block), `cyclic` (the same closed to a ring, in natural order), `sparse` or `dense`. `order` lists the nodes in
    the order of the solver, -1 for padding. For `blocks`, `groups` gives (nodes a block, number of blocks) in the order
    of the nodes.
    """

    kind: str
    order: np.ndarray
    width: int = 1
    groups: tuple[tuple[int, int], ...] = ()
    text: str = ""


def unique_edges(i: np.ndarray, j: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The edges without duplicates and loops, sorted by row."""
    keep = i != j
    key = np.unique(i[keep] * n + j[keep])
    return key // n, key % n


def adjacency(i: np.ndarray, j: np.ndarray, n: int) -> list[list[int]]:
    """Neighbors of every node, sorted."""
    starts = np.searchsorted(i, np.arange(n + 1))
    flat = j.tolist()
    return [flat[starts[k] : starts[k + 1]] for k in range(n)]


def components(i: np.ndarray, j: np.ndarray, n: int) -> np.ndarray:
    """A label for each node; labels count up in the order of first appearance."""
    from scipy.sparse import csr_array  # takes a third of a second to import, and small systems do not ask
    from scipy.sparse.csgraph import connected_components

    return connected_components(csr_array((np.ones(i.size), (i, j)), (n, n)), directed=False)[1]


def cuthill_mckee(neighbors: list[list[int]], label: np.ndarray) -> np.ndarray:
    """An order with a small bandwidth: breadth first from an end of each component, low degrees first.

    SciPy's `reverse_cuthill_mckee` starts at any node of the least degree. In a chain with side branches that is the
    tip of any branch, which doubles the bandwidth.
    """
    degree = [len(x) for x in neighbors]
    by_degree = np.argsort(degree, kind="stable")
    order: list[int] = []
    for start in by_degree[np.unique(label[by_degree], return_index=True)[1]].tolist():
        found = [start]
        for _ in range(3):  # the last node of a search is far from its start: begin there
            found = _search(neighbors, degree, found[-1])
        order += found
    return np.asarray(order, dtype=np.int64)


def _search(neighbors: list[list[int]], degree: list[int], start: int) -> list[int]:
    queue, seen = [start], {start}
    for node in queue:
        new = sorted((k for k in neighbors[node] if k not in seen), key=degree.__getitem__)
        seen.update(new)
        queue += new
    return queue


def bandwidth(order: np.ndarray, i: np.ndarray, j: np.ndarray) -> int:
    """The largest distance of two coupled nodes in the given order."""
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    return int(np.abs(place[i] - place[j]).max(initial=0))


def analyze(i: np.ndarray, j: np.ndarray, n: int, r: int) -> Structure:
    """The structure for a symmetric pattern on n nodes of r unknowns each."""
    natural = np.arange(n)
    width = bandwidth(natural, i, j)
    if width <= 1:
        if i.size == 0:
            return Structure("blocks", natural, groups=((1, n),), text=f"{n} independent {_size(r)}")
        return Structure("tridiagonal", natural, text=_chain(n, r, 1))
    if n > 4 and r <= UNROLL and np.isin((i - j) % n, (1, n - 1)).all():
        kind = "tridiagonal" if r == 1 else "block tridiagonal"
        return Structure("cyclic", natural, text=f"{n * r} rows in a ring: a {kind} matrix with corners")
    label = components(i, j, n)
    sizes = np.bincount(label)
    if sizes.max() * r <= UNROLL:
        # equal blocks side by side, each in natural order
        order = np.lexsort((natural, label, sizes[label]))
        values, counts = np.unique(sizes, return_counts=True)
        groups = tuple((int(c), int(k)) for c, k in zip(values, counts, strict=True))
        text = "; ".join(f"{k} independent blocks of {c * r} rows" for c, k in groups)
        return Structure("blocks", order, groups=groups, text=text)
    order = cuthill_mckee(adjacency(i, j, n), label)
    narrow = bandwidth(order, i, j)
    if width <= narrow:
        order, narrow = natural, width
    if narrow * r <= UNROLL and n > 4 * narrow:
        padded = np.concatenate([order, np.full(-n % narrow, -1)])
        return Structure("tridiagonal", padded, width=narrow, text=_chain(n, r, narrow))
    return Structure("sparse", natural, text="")


def _size(b: int) -> str:
    return "equations" if b == 1 else f"blocks of {b} rows"


def _chain(n: int, r: int, width: int) -> str:
    b = r * width
    if b == 1:
        return f"{n} rows in a chain: a tridiagonal matrix"
    kind = "block tridiagonal" if width == 1 else f"banded, half bandwidth {b}, held as block tridiagonal"
    return f"{n * r} rows in a chain of {b} x {b} blocks: {kind}"
