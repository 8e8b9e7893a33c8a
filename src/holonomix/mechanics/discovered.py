"""The structure of plain constraint functions of many rows, found from the traced program.

Rows that are instances of a few functions of their particles are differentiated row by row (`trace.rowwise`). Otherwise
rows are colored: rows of one color share no particle, so one sweep of reverse mode with the rows of a color as seed
yields all their derivatives. The number of sweeps depends on the number of rows per particle, not on the total number.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jaxtyping import PyTree

from ..core.types import Function, Numbers
from ..trace.compiled import Recent
from ..trace.frozen import has_rules, has_user_functions, program_digest
from ..trace.indexing import Indices, take
from ..trace.rowwise import RowGroup, row_groups, row_slopes
from ..trace.sparsity import traced_result

# Rows that touch more particles than this, or need more sweeps, are treated as dense.
MAX_PARTICLES, MAX_SWEEPS = 12, 24


class Pattern:
    """The particles of every row (padded with -1), its color, and its program if it has one."""

    def __init__(self, indices: np.ndarray, colors: np.ndarray, groups: tuple[RowGroup, ...] | None):
        self.indices, self.colors, self.sweeps = Indices(indices), colors, int(colors.max(initial=-1)) + 1
        self.groups = groups

    @property
    def text(self) -> str:
        m, most = self.indices.array.shape
        way = f"by {self.sweeps} sweeps" if self.groups is None else "row by row"
        return f"{m} rows of at most {most} particles found in a plain function, their derivatives {way}"


class Discovered(eqx.Module):
    """A plain function whose rows touch a few particles each, evaluated like a `Local` with one row per block."""

    fn: Any
    pattern: Pattern = eqx.field(static=True)
    period = 1

    @property
    def indices(self) -> Indices:
        return self.pattern.indices

    def jacobians(self, q: Numbers, *extra: PyTree) -> list[tuple[Any, ...]]:
        """For each particle of a row `(1, coordinates, rows)`."""
        if self.pattern.groups is not None:
            inputs = jax.tree.leaves(eqx.filter((self.fn, extra), eqx.is_array_like))
            return [row_slopes(self.pattern.groups, self.pattern.indices.array, q, inputs)]
        index, colors, sweeps = self.pattern.indices.array, self.pattern.colors, self.pattern.sweeps
        value, pull = jax.vjp(lambda x: jnp.asarray(self.fn(x, *extra)), q)
        lanes = [pull(jnp.asarray(colors == c, value.dtype))[0].reshape(q.shape[0], -1).T for c in range(sweeps)]
        side = jnp.concatenate(lanes, axis=1)
        places = np.where(index < 0, -1, colors[:, None] * q.shape[0] + index)
        return [tuple(take(side, column)[None] for column in places.T)]


_patterns: Recent[tuple[Pattern | None]] = Recent(64)


def discover(term: Function, q: Numbers, extra: tuple[Any, ...]) -> Pattern | None:
    """The pattern of a term's rows, or None if they touch too many particles."""
    known = None
    if not has_user_functions(term):  # a frozen program identifies itself, and need not be traced again
        leaves, structure = jax.tree.flatten((term, extra))
        known = (structure, *((np.shape(x), str(jnp.result_type(x))) for x in leaves), q.shape, str(q.dtype))
    if known is not None and (found := _patterns.get(known)) is not None:
        return found[0]
    numbers, rest = eqx.partition((term, extra), eqx.is_array_like)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jnp.result_type(x)), numbers)

    def call(q: PyTree, numbers: PyTree):
        fn, extra = eqx.combine(numbers, rest)
        return jnp.asarray(fn(q, *extra))

    closed = jax.make_jaxpr(call)(jax.ShapeDtypeStruct(q.shape, q.dtype), shapes)
    key = known or (program_digest(closed), q.shape)
    return (_patterns.get(key) or _patterns.put(key, (_pattern(closed),)))[0]


def _pattern(closed: ClosedJaxpr) -> Pattern | None:
    result = traced_result(closed, 0)
    rows: Any = result.rows
    counts = np.diff(rows.indptr)
    most = int(counts.max(initial=0))
    if most == 0 or most > MAX_PARTICLES:
        return None
    rows.sort_indices()
    colors = _color_rows(rows.indptr, rows.indices, rows.shape[1])
    if colors is None:
        return None
    table, shape = _table(rows.indptr, rows.indices, most), closed.jaxpr.invars[0].aval.shape
    ruled = has_rules(closed.jaxpr)  # custom derivative rules apply only if the whole function is differentiated
    return Pattern(table, colors, None if ruled else row_groups(result, table, int(np.prod(shape[1:], dtype=np.int64))))


def _table(starts: np.ndarray, particles: np.ndarray, width: int) -> np.ndarray:
    """The particles as a table with one line per row; a shorter line is aligned with its neighbors."""
    table = np.full((starts.size - 1, width), -1)
    counts = np.diff(starts)
    for k in range(width):
        table[counts > k, k] = particles[starts[:-1][counts > k] + k]
    short = np.flatnonzero((counts < width) & (counts > 0))
    for e in short[: 4 * width]:  # many short lines are not regular anyway
        near = [(table[e + d] - d) for d in (-1, 1) if 0 <= e + d < counts.size and counts[e + d] == width]
        table[e] = _align(table[e, : counts[e]], near, width)
    return table


def _align(line: np.ndarray, near: list[np.ndarray], width: int) -> np.ndarray:
    """Pad a short line so that it agrees best with the lines predicted by its neighbors."""
    fits = [max((int(np.sum(x[a : a + line.size] == line)) for x in near), default=0) for a in range(width)]
    first = int(np.argmax(fits[: width - line.size + 1]))
    return np.concatenate([np.full(first, -1), line, np.full(width - line.size - first, -1)])


def _color_rows(starts: np.ndarray, particles: np.ndarray, count: int) -> np.ndarray | None:
    """A greedy coloring of the rows, such that rows of one color share no particle."""
    used = [0] * count
    colors = np.zeros(starts.size - 1, dtype=np.int64)
    flat, bounds = particles.tolist(), starts.tolist()
    for e in range(starts.size - 1):
        mine = flat[bounds[e] : bounds[e + 1]]
        taken = functools.reduce(lambda x, i: x | used[i], mine, 0)
        color = (~taken & (taken + 1)).bit_length() - 1
        if color >= MAX_SWEEPS:
            return None
        colors[e] = color
        for i in mine:
            used[i] |= 1 << color
    return colors
