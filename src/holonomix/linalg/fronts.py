"""Sparse matrices that are solved by compiled multifrontal elimination, on a CPU (`multifrontal`)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ..core.types import Numbers
from ..trace.indexing import Indices
from .graph import Graph
from .layout import AbstractLayout, Piece, sum_parts
from .multifrontal import Plan, available, factor, plan_of, shortest, solution
from .multifrontal.plan import BLOCK

# Chains and rings of blocks are eliminated in fronts from this many rows per block, and sparse graphs from this many
# operations: the kernel compiler writes shorter eliminations out.
MIN_FRONT_BLOCK, MIN_FRONT_OPERATIONS = 4, 1_500
MAX_PADDING = 2  # the largest ratio of the length of padded segments to that of the entries in them


def fronts_available(dtype: DTypeLike | None = None) -> bool:
    """Whether this process computes on a CPU, in double precision, and can compile machine code."""
    double = jnp.result_type(float) == jnp.float64 if dtype is None else dtype == jnp.float64
    return double and jax.default_backend() == "cpu" and available()


class FrontFactor(eqx.Module):
    """Factors of a `FrontMatrix`."""

    entries: Any
    factors: Any
    plan: Plan = eqx.field(static=True)
    redundant: bool = eqx.field(static=True)

    @property
    def pivot(self) -> Any:
        """The smallest pivot relative to its diagonal entry; one where dependent rows are accepted."""
        return jnp.ones((), self.factors.dtype) if self.redundant else self.factors[0]

    @property
    def signed_pivot(self) -> Any:
        """The smallest inverse of a pivot."""
        return jnp.min(self.factors[BLOCK : BLOCK + self.plan.n])

    def solve(self, b: Numbers) -> Any:
        one = lambda b: solution(self.plan, self.entries, self.factors, b.astype(self.factors.dtype)).astype(b.dtype)
        return one(b) if b.ndim == 1 else jax.vmap(one, in_axes=1, out_axes=1)(b)

    def shortest(self, x: Numbers) -> Any:
        """The solution of least norm with the same product."""
        return shortest(self.plan, self.entries, self.factors, x)


class FrontMatrix(eqx.Module):
    """A matrix as the vector of entries that its plan describes."""

    entries: Any
    plan: Plan = eqx.field(static=True)

    def factor(self, symmetric: bool = False) -> FrontFactor:
        return FrontFactor(self.entries, factor(self.plan, self.entries, symmetric), self.plan, False)

    def factor_redundant(self, symmetric: bool = False) -> FrontFactor:
        """Factors that skip rows which depend on others."""
        from .redundant import dependent

        factors = factor(self.plan, self.entries, symmetric, dependent(self.entries.dtype))
        return FrontFactor(self.entries, factors, self.plan, True)

    def todense(self) -> Any:
        row, column, source = self.plan.places
        return jnp.zeros((self.plan.n,) * 2, self.entries.dtype).at[row, column].set(self.entries[source])


def dense_fronts(matrix: Numbers) -> FrontMatrix:
    """A full matrix as one front."""
    return FrontMatrix(matrix.reshape(-1), _full_plan(matrix.shape[0]))


@functools.lru_cache(maxsize=64)
def _full_plan(n: int) -> Plan:
    i, j = np.divmod(np.arange(n * n), n)
    return plan_of(i, j, np.arange(n)[:, None])


def _join(parts: Sequence[Numbers], plan: Plan) -> FrontMatrix:
    flat = jnp.concatenate([part.reshape(-1) for part in parts])
    return FrontMatrix(flat.astype(jnp.float64), plan)


@dataclasses.dataclass(frozen=True, eq=False)
class FrontLayout(AbstractLayout):
    """One array `(r, r, pairs)` over the coupled nodes, in the order of `graph.keys`."""

    graph: Graph
    plan: Plan

    @classmethod
    def of(cls, graph: Graph, prefix: str = "", plan: Plan | None = None) -> FrontLayout:
        plan = plan_of(*graph.pairs, graph.rows) if plan is None else plan
        same = Indices(np.arange(graph.rows.size))
        return cls(graph.r, (graph.keys.size,), same, same, prefix + plan.text, graph, plan)

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.graph.keys, np.asarray(i) * self.graph.n + j)

    def assemble(self, pieces: Sequence[Piece]) -> FrontMatrix:
        flat = [(x, at) if at.ndim == 1 else (x.reshape(1, 1, -1), at.reshape(-1)) for x, at in pieces]
        return _join(sum_parts(flat, self.sizes, self.rows), self.plan)

    def in_segments(self, blocks: list[tuple[np.ndarray, np.ndarray]]) -> AbstractLayout:
        """The same with the nodes `(a, b, k)` of each block stored as `a b` segments, so that no gather is needed.

        Equal blocks are added. Where blocks overlap otherwise, or most of the segments would be empty, nothing changes.
        """
        n, keys = self.graph.n, self.graph.keys
        found = [i * n + j for i, j in blocks] + [(j * n + i).transpose(1, 0, 2) for i, j in blocks]
        groups = list({(x.shape, x.tobytes()): x for x in found}.values())
        if not np.array_equal(np.sort(np.concatenate([x.reshape(-1) for x in groups])), keys):
            return self
        segment = max(x.shape[2] for x in groups)
        size = segment * sum(x.shape[0] * x.shape[1] for x in groups)
        if size > MAX_PADDING * keys.size:
            return self
        stored, start = np.zeros_like(keys), 0
        for x in groups:
            segments = x.reshape(-1, x.shape[2])
            places = start + segment * np.arange(len(segments))[:, None] + np.arange(x.shape[2])
            stored[np.searchsorted(keys, segments)] = places
            start += segment * len(segments)
        plan = plan_of(*self.graph.pairs, self.graph.rows, stored[None, None], size)
        return SegmentLayout(self.rows, (size,), self.order, self.inverse, self.text, self, plan, stored, segment)


@dataclasses.dataclass(frozen=True, eq=False)
class SegmentLayout(AbstractLayout):
    """The entries of blocks of single rows, in padded segments of equal length."""

    base: FrontLayout
    plan: Plan
    stored: np.ndarray  # where the pairs of `base` are stored
    segment: int

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return self.stored[self.base.entry(i, j)]

    def assemble(self, pieces: Sequence[Piece]) -> FrontMatrix:
        sums: dict[int, Any] = {}
        for values, entries in pieces:
            first = int(entries.flat[0])
            sums[first] = sums[first] + values if first in sums else values
        lanes = [values.reshape(-1, values.shape[2]) for _, values in sorted(sums.items())]
        return _join([jnp.pad(x, ((0, 0), (0, self.segment - x.shape[1]))) for x in lanes], self.plan)


@dataclasses.dataclass(frozen=True, eq=False)
class StoredFrontLayout(AbstractLayout):
    """A matrix that is stored as another layout describes, and eliminated in fronts."""

    storage: AbstractLayout
    plan: Plan

    @classmethod
    def of(cls, storage: AbstractLayout, graph: Graph) -> StoredFrontLayout:
        plan, same = cls.plan_stored(storage, graph, graph.rows), Indices(np.arange(graph.rows.size))
        return cls(storage.rows, storage.sizes, same, same, f"{storage.text}; {plan.text}", storage, plan)

    @staticmethod
    def plan_stored(storage: AbstractLayout, graph: Graph, rows: np.ndarray) -> Plan:
        """The plan for parts of one length; `rows` are the matrix rows of each node."""
        r, length = storage.rows, storage.sizes[0]
        part, place = np.divmod(storage.entry(*graph.pairs), length)
        block = np.arange(r * r).reshape(r, r, 1)
        source = (part * r * r + block) * length + place
        return plan_of(*graph.pairs, rows, source, r * r * sum(storage.sizes))

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return self.storage.entry(i, j)

    def assemble(self, pieces: Sequence[Piece]) -> FrontMatrix:
        return _join(sum_parts(pieces, self.sizes, self.rows), self.plan)


def plan_fronts(graph: Graph) -> FrontLayout | None:
    """Sparse graphs whose elimination is too long to be written out."""
    if not fronts_available():
        return None
    plan = plan_of(*graph.pairs, graph.rows)
    return FrontLayout.of(graph, plan=plan) if plan.operations > MIN_FRONT_OPERATIONS else None
