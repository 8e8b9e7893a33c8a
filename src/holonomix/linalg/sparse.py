"""General sparse matrices with a fixed pattern: elimination in rounds of independent pivots.

The order is computed once, on the host. Each round eliminates a set of nodes with few neighbors of which no two are
coupled, as a few vectorized operations. Leaves of a tree come first, so a tree (and any graph whose cliques form one,
such as the rods of a mobile) is eliminated without fill; a chain becomes odd-even reduction. If elimination fills in,
nearly all of the last rows are coupled to each other. They form a dense core, which saves most of the rounds. The
elimination is stable without pivoting for positive definite matrices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..core.types import Numbers
from ..trace.indexing import add_at, take
from .graph import Graph
from .layout import AbstractLayout, Piece, sum_parts
from .small import Dense
from .tridiagonal import apply, diagonals, invert, smallest_pivot, times

# With more entries than this fraction of the full matrix, a dense factorization is faster.
DENSE_FILL = 0.25
# Rows of the dense core. Matrices of at most MAX_ROWS_WITHOUT_CORE rows have none: the kernel compiler unrolls them.
CORE_ROWS, MAX_ROWS_WITHOUT_CORE = 96, 128


@dataclasses.dataclass(frozen=True, eq=False)
class Round:
    """Pivots `nodes`, their diagonal entries, and the index lists of the updates and of the two substitutions."""

    nodes: np.ndarray
    diagonal: np.ndarray
    # updates: entry target -= entry left . inverse[pivot] . entry right
    pivot: np.ndarray
    left: np.ndarray
    right: np.ndarray
    target: np.ndarray
    # couplings of the pivots to nodes that are eliminated later: entry (other, pivot) and entry (pivot, other)
    lower: np.ndarray
    upper: np.ndarray
    source: np.ndarray  # position of the pivot within the round
    other: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Symbolic:
    """The pattern with fill, as a sorted list of keys `i n + j`, and the rounds."""

    n: int
    keys: np.ndarray
    rounds: tuple[Round, ...]
    fill: int
    core: np.ndarray  # nodes that no round eliminates

    @property
    def entries(self) -> int:
        return int(self.keys.size)

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.keys, i * self.n + j)


def plan_sparse(pattern: Graph) -> SparseLayout | None:
    """Elimination in rounds; None where it fills in so much that a dense factorization is better."""
    n, r = pattern.rows.shape
    graph = [set(x) for x in pattern.neighbors()]
    alive, plan, fill = set(range(n)), [], 0
    limit = DENSE_FILL * n * n
    while alive and not (fill and n * r > MAX_ROWS_WITHOUT_CORE and len(alive) * r <= CORE_ROWS):
        chosen = _independent(graph, alive)
        steps = []
        for k in chosen:
            others = sorted(graph[k])
            for a in others:
                graph[a].discard(k)
                new = [b for b in others if b != a and b not in graph[a]]
                fill += len(new)
                graph[a].update(new)
            steps.append((k, others))
        alive.difference_update(chosen)
        plan.append(steps)
        if pattern.i.size + fill > limit:
            return None
    core = np.asarray(sorted(alive), dtype=np.int64)
    pairs = [(k, a) for steps in plan for k, others in steps for a in others]
    pairs += [(k, a) for k in alive for a in graph[k]]
    k, a = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    keys = np.unique(np.concatenate([k * n + a, a * n + k, np.arange(n) * (n + 1)]))
    lookup = Symbolic(n, keys, (), fill, core)
    rounds = tuple(_round(steps, lookup) for steps in plan)
    how = "without fill" if fill == 0 else f"with {fill // 2 * r * r} entries of fill"
    size = "rows" if r == 1 else f"blocks of {r} rows"
    text = f"{n} {size} coupled as a sparse graph, eliminated from the leaves in {len(rounds)} rounds {how}"
    text += f", then {core.size * r} rows by dense LU" if core.size else ""
    order = pattern.row_order(pattern.natural)
    return SparseLayout(r, (keys.size,), *order, text, dataclasses.replace(lookup, rounds=rounds))


def _independent(graph: list[set[int]], alive: set[int]) -> list[int]:
    """Nodes of low degree of which no two are coupled; only simplicial ones (no fill) while there are many."""
    degrees = {k: len(graph[k]) for k in alive}
    least = min(degrees.values())
    ranked = sorted((d, k) for k, d in degrees.items() if d <= max(2 * least, 4))
    simplicial = [k for _, k in ranked if _is_clique(graph, graph[k])]
    pool = (
        simplicial if len(simplicial) >= max(1, len(alive) // 10) else [k for d, k in ranked if d <= max(2 * least, 2)]
    )
    blocked: set[int] = set()
    chosen = []
    for k in pool:
        if k not in blocked:
            chosen.append(k)
            blocked.update(graph[k])
            blocked.add(k)
    return chosen


def _is_clique(graph: list[set[int]], nodes: set[int]) -> bool:
    return len(nodes) <= 8 and all(b in graph[a] for a in nodes for b in nodes if a < b)


def _round(steps: list[tuple[int, list[int]]], pattern: Symbolic) -> Round:
    """Index lists for the elimination of independent pivots, given with their neighbors."""
    nodes = np.asarray([k for k, _ in steps])
    place, first, second = [], [], []
    source, other = [], []
    for position, (_, others) in enumerate(steps):
        source += [position] * len(others)
        other += others
        for a in others:
            place += [position] * len(others)
            first += [a] * len(others)
            second += others
    place, first, second, source, other = (np.asarray(x, dtype=np.int64) for x in (place, first, second, source, other))
    return Round(
        nodes,
        pattern.entry(nodes, nodes),
        place,
        pattern.entry(first, nodes[place]),
        pattern.entry(nodes[place], second),
        pattern.entry(first, second),
        pattern.entry(other, nodes[source]),
        pattern.entry(nodes[source], other),
        source,
        other,
    )


class SparseFactor(eqx.Module):
    """The entries after elimination and the inverses of the pivots, round by round."""

    entries: Any
    inverses: tuple[Any, ...]
    core: Any  # None, or the dense core and its factors
    pivot: Any
    plan: Symbolic = eqx.field(static=True)

    @property
    def signed_pivot(self) -> Any:
        smallest = [smallest_pivot(x) for x in self.inverses]
        if self.core is not None:
            lower = jnp.linalg.cholesky(self.core[0], symmetrize_input=False)
            smallest.append(jnp.where(jnp.all(jnp.isfinite(lower)), self.core[1].pivot, -1.0))
        return jnp.min(jnp.stack(smallest))

    def solve(self, b: Numbers) -> Any:
        single = self.entries.ndim == 1
        x = b if single else b.reshape(-1, self.entries.shape[0]).T
        n = x.shape[-1]
        for step, inverse in zip(self.plan.rounds, self.inverses, strict=True):
            if step.other.size:
                scaled = take(apply(inverse, take(x, step.nodes)), step.source)
                x = x - add_at([(apply(take(self.entries, step.lower), scaled), step.other)], n)
        if self.core is not None:
            last = x[..., self.plan.core]
            x = x.at[..., self.plan.core].set(self.core[1].solve(last.T.reshape(-1)).reshape(last.T.shape).T)
        for step, inverse in zip(reversed(self.plan.rounds), reversed(self.inverses), strict=True):
            here = take(x, step.nodes)
            if step.other.size:
                pulled = apply(take(self.entries, step.upper), take(x, step.other))
                here = here - add_at([(pulled, step.source)], step.nodes.size)
            x = x.at[..., step.nodes].set(apply(inverse, here))
        return x if single else x.T.reshape(b.shape)


class SparseMatrix(eqx.Module):
    """Entries at the keys of `plan`: numbers `(entries,)` or square blocks `(b, b, entries)`."""

    entries: Any
    plan: Symbolic = eqx.field(static=True)

    def factor(self, symmetric: bool = False) -> SparseFactor:
        a = self.entries
        inverses, pivot = [], jnp.asarray(jnp.inf, a.dtype)
        for step in self.plan.rounds:
            inverse, smallest = invert(take(a, step.diagonal), diagonals(take(self.entries, step.diagonal)))
            pivot = jnp.minimum(pivot, smallest)
            inverses.append(inverse)
            if step.target.size:
                product = times(times(take(a, step.left), take(inverse, step.pivot)), take(a, step.right))
                targets, where = np.unique(step.target, return_inverse=True)
                change = add_at([(product, where)], targets.size)
                a = a.at[..., targets].add(-change, unique_indices=True, indices_are_sorted=True)
        core = None
        if self.plan.core.size:
            matrix = self._dense(a, self.plan.core)
            core = matrix, Dense(matrix).factor(symmetric)
            pivot = jnp.minimum(pivot, core[1].pivot)
        return SparseFactor(a, tuple(inverses), core, pivot, self.plan)

    def factor_redundant(self, symmetric: bool = False) -> None:
        """A dense matrix must serve."""

    def _dense(self, entries: Numbers, nodes: np.ndarray) -> Any:
        """The matrix of some nodes."""
        place = np.full(self.plan.n, -1)
        place[nodes] = np.arange(nodes.size)
        i, j = place[np.stack(np.divmod(self.plan.keys, self.plan.n))]
        held = np.flatnonzero((i >= 0) & (j >= 0))
        full = jnp.zeros((*entries.shape[:-1], nodes.size, nodes.size), entries.dtype)
        full = full.at[..., i[held], j[held]].set(entries[..., held])
        size = nodes.size * (entries.shape[0] if entries.ndim > 1 else 1)
        return full if entries.ndim == 1 else full.transpose(2, 0, 3, 1).reshape(size, size)

    def todense(self) -> Any:
        return self._dense(self.entries, np.arange(self.plan.n))


@dataclasses.dataclass(frozen=True, eq=False)
class SparseLayout(AbstractLayout):
    """One array over the entries of the pattern with fill."""

    plan: Symbolic

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return self.plan.entry(np.asarray(i), np.asarray(j))

    def assemble(self, pieces: Sequence[Piece]) -> SparseMatrix:
        (part,) = sum_parts(pieces, self.sizes, self.rows)
        return SparseMatrix(part[0, 0] if self.rows == 1 else part, self.plan)
