"""Fixed index lists: hashable, so that they may be static, and applied without a gather where they are regular.

Index lists of mechanical systems are regular most of the time (a chain's links, the atoms of many equal molecules).
`take` finds that out once, at trace time, and reads strided slices, which XLA vectorises and fuses; a gather is left for
the irregular rest.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Indices", "add_at", "incoming", "take"]

MAX_PERIOD = 64


class Indices:
    """An integer array that can be a static field: equal contents are equal, and the hash is computed once."""

    def __init__(self, array: Any):
        self.array = np.ascontiguousarray(np.asarray(array), dtype=np.int64)
        self.array.setflags(write=False)
        self._key = (self.array.shape, hashlib.blake2b(self.array.tobytes(), digest_size=16).digest())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indices) and self._key == other._key

    def __repr__(self) -> str:
        return f"Indices(shape={self.array.shape})"


def take(x: Any, index: np.ndarray | Indices) -> Any:
    """`x[index]` along the first axis; the entries -1 read zero."""
    index = index if isinstance(index, Indices) else Indices(index)
    kind, plan = _plan(index, x.shape[0])
    if kind == "identity":
        return x
    if kind == "slices":
        return _slices(x, plan, index.array.shape[0])
    clipped, missing = plan
    rows = x.at[clipped].get(mode="promise_in_bounds")
    if missing is None:
        return rows
    return jnp.where(missing.reshape(missing.shape + (1,) * (x.ndim - 1)), 0.0, rows)


def add_at(x: Any, index: np.ndarray, n: int) -> Any:
    """The transpose of `take`: an array of length n with `x[k]` added at `index[k]` (negative entries are dropped).

    Written as reads where no target has many sources; XLA's scatter runs one element after the other.
    """
    lists = incoming(index, n)
    if len(lists) <= 8:
        return sum((take(x, column) for column in lists[1:]), take(x, lists[0]))
    target = np.where(np.asarray(index) < 0, n, index)
    return jnp.zeros((n + 1,) + x.shape[1:], x.dtype).at[target].add(x)[:n]


def incoming(index: np.ndarray, n: int) -> list[np.ndarray]:
    """Columns `c` such that the sources of target i are `c[0][i], c[1][i], ...` (-1 where there are fewer)."""
    index = np.asarray(index)
    source = np.flatnonzero(index >= 0)
    order = source[np.argsort(index[source], kind="stable")]
    target = index[order]
    counts = np.bincount(target, minlength=n)
    rank = np.arange(order.size) - np.repeat(np.cumsum(counts) - counts, counts)
    width = max(1, int(counts.max(initial=0)))
    columns = np.full((width, n), -1)
    columns[rank, target] = order
    return list(columns)


# -- how an index list is read -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _plan(indices: Indices, size: int) -> tuple[str, Any]:
    index = indices.array
    n = index.shape[0]
    if index.size and (index.max() >= size or index.min() < -1):
        raise IndexError(f"an index list refers to entry {int(index.max())} of an array of {size}")
    if n == size and np.array_equal(index, np.arange(n)):
        return "identity", None
    period = _period(index)
    if period is not None:
        columns = index.reshape(-1, period)
        return "slices", tuple(_run(columns[:, a]) for a in range(period))
    missing = index < 0
    return "gather", (np.where(missing, 0, index), missing if missing.any() else None)


def _period(index: np.ndarray) -> int | None:
    """The smallest r for which every r-th entry, from any of the first r, is an arithmetic progression."""
    n = index.shape[0]
    for r in range(1, min(MAX_PERIOD, n) + 1):
        if (
            n % r == 0
            and n // r >= (1 if r == 1 else min(4, n))
            and all(_run(index[a::r]) is not None for a in range(r))
        ):
            return r
    return None


def _run(column: np.ndarray) -> tuple[int, int, int, int, int] | None:
    """`(zeros before, start, step, count, zeros after)` of an arithmetic progression with gaps at its ends only."""
    n = column.shape[0]
    valid = np.flatnonzero(column >= 0)
    if valid.size == 0:
        return (n, 0, 1, 0, 0)
    first, last = int(valid[0]), int(valid[-1])
    body = column[first : last + 1]
    step = int(body[1] - body[0]) if body.size > 1 else 1
    if step < 1 or (body < 0).any() or not np.array_equal(body, body[0] + step * np.arange(body.size)):
        return None
    return (first, int(body[0]), step, int(body.size), n - 1 - last)


def _slices(x: Any, runs: tuple[tuple[int, int, int, int, int], ...], n: int) -> Any:
    parts = []
    for before, start, step, count, after in runs:
        if count == 0:
            parts.append(jnp.zeros((before,) + x.shape[1:], x.dtype))
            continue
        part = jax.lax.slice_in_dim(x, start, start + (count - 1) * step + 1, step)
        if before or after:
            part = jnp.pad(part, ((before, after),) + ((0, 0),) * (x.ndim - 1))
        parts.append(part)
    if len(parts) == 1:
        return parts[0]
    return jnp.stack(parts, axis=1).reshape((n,) + x.shape[1:])
