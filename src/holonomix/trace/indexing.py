"""Fixed index lists: hashable, so that they may be static, and applied without a gather where they are regular.

Index lists of mechanical systems are mostly regular (a chain's links, the atoms of many equal molecules).
`take` detects that once, at trace time, and reads strided slices, which XLA vectorizes and fuses; only irregular lists
become a gather. The indexed axis is always the last one: equal blocks lie side by side, like SIMD lanes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core.types import Numbers

MAX_RUNS = 16


class Indices:
    """An integer array that can be a static field: equal contents are equal, and the hash is computed once."""

    def __init__(self, array: np.ndarray | Numbers):
        self.array = np.ascontiguousarray(np.asarray(array), dtype=np.int64)
        self.array.setflags(write=False)
        self._key = (self.array.shape, hashlib.blake2b(self.array.tobytes(), digest_size=16).digest())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Indices) and self._key == other._key

    def __repr__(self) -> str:
        return f"Indices(shape={self.array.shape})"


class Run(NamedTuple):
    """An arithmetic progression with gaps (entries -1) at its ends only."""

    before: int
    start: int
    step: int
    length: int
    after: int


def run_of(index: np.ndarray) -> Run | None:
    """The index list as one `Run`, if it is one."""
    n = index.shape[0]
    valid = np.flatnonzero(index >= 0)
    if valid.size == 0:
        return Run(n, 0, 1, 0, 0)
    first, last = int(valid[0]), int(valid[-1])
    body = index[first : last + 1]
    step = int(body[1] - body[0]) if body.size > 1 else 1
    if step < 1 or not np.array_equal(body, body[0] + step * np.arange(body.size)):
        return None
    return Run(first, int(body[0]), step, int(body.size), n - 1 - last)


def take(x: Numbers, index: np.ndarray | Indices) -> Any:
    """`x[..., index]`; the entries -1 read zero."""
    index = index if isinstance(index, Indices) else Indices(index)
    kind, plan = _plan(index, x.shape[-1])
    if kind == "identity":
        return x
    if kind == "runs":
        parts = [_read(x, run) for run in plan]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)
    if kind == "woven":
        parts = [_read(x, run) for run in plan]
        return jnp.stack(parts, axis=-1).reshape(x.shape[:-1] + (index.array.shape[0],))
    clipped, missing = plan
    rows = x.at[..., clipped].get(mode="promise_in_bounds")
    return rows if missing is None else jnp.where(missing, 0.0, rows)


def _read(x: Numbers, run: Run) -> Any:
    if run.length == 0:
        return jnp.zeros(x.shape[:-1] + (run.before,), x.dtype)
    part = jax.lax.slice_in_dim(x, run.start, run.start + (run.length - 1) * run.step + 1, run.step, axis=x.ndim - 1)
    if run.before or run.after:
        part = jnp.pad(part, ((0, 0),) * (x.ndim - 1) + ((run.before, run.after),))
    return part


@functools.lru_cache(maxsize=4096)
def _plan(indices: Indices, size: int) -> tuple[str, Any]:
    """How `take` reads an index list: "identity", "runs", interleaved runs ("woven"), or "gather"; with the runs."""
    index = indices.array
    n = index.shape[0]
    if index.size and (index.max() >= size or index.min() < -1):
        raise IndexError(f"an index list refers to entry {int(index.max())} of an array of {size}")
    if n == size and np.array_equal(index, np.arange(n)):
        return "identity", None
    whole = run_of(index)
    if whole is not None:
        return "runs", (whole,)
    for r in range(2, MAX_RUNS + 1):
        if n % r == 0 and n // r > 1:
            runs = tuple(run_of(index[a::r]) for a in range(r))
            if None not in runs:
                return "woven", runs
    step = np.diff(index)
    pieces = np.split(index, np.flatnonzero(step[1:] != step[:-1]) + 2) if n > 2 else []
    if 0 < len(pieces) <= MAX_RUNS and (index >= 0).all():
        runs = tuple(run_of(piece) for piece in pieces)
        if None not in runs:
            return "runs", runs
    missing = index < 0
    return "gather", (np.where(missing, 0, index), missing if missing.any() else None)


def add_at(pieces: Sequence[tuple[Any, np.ndarray]], n: int) -> Any:
    """The transpose of `take`: an array of length n with each `x[..., k]` added at `index[k]` (negative: dropped).

    Written as reads where that is possible; XLA's scatter runs one element after the other.
    """
    runs = [(x, run_of(np.where(index < 0, -1, index))) for x, index in pieces]
    steps = {run.step for _, run in runs if run is not None and run.length > 1}
    if all(run is not None for _, run in runs) and len(steps) <= 1:
        step = steps.pop() if steps else 1
        if n % step == 0:
            return _weave(runs, n, step)
    x = pieces[0][0] if len(pieces) == 1 else jnp.concatenate([x for x, _ in pieces], axis=-1)
    index = np.concatenate([index for _, index in pieces])
    columns = incoming(index, n)
    if len(columns) <= 8:
        return sum((take(x, column) for column in columns[1:]), take(x, columns[0]))
    target = np.where(index < 0, n, index)
    return jnp.zeros(x.shape[:-1] + (n + 1,), x.dtype).at[..., target].add(x)[..., :n]


def _weave(runs: list[tuple[Any, Any]], n: int, step: int) -> Any:
    """Pieces that all advance by `step`: those of equal remainder are added, and the remainders interleaved."""
    like = runs[0][0]
    woven: list[Any] = [None] * step
    for x, run in runs:
        if run.length:
            kept = x[..., run.before : run.before + run.length]
            ahead, remainder = divmod(run.start, step)
            padded = jnp.pad(kept, ((0, 0),) * (x.ndim - 1) + ((ahead, n // step - ahead - run.length),))
            woven[remainder] = padded if woven[remainder] is None else woven[remainder] + padded
    zero = jnp.zeros(like.shape[:-1] + (n // step,), like.dtype)
    parts = [zero if x is None else x for x in woven]
    return parts[0] if step == 1 else jnp.stack(parts, axis=-1).reshape(like.shape[:-1] + (n,))


def incoming(index: np.ndarray, n: int) -> list[np.ndarray]:
    """Columns `c` such that the sources of target i are `c[0][i], c[1][i], ...` (-1 where there are fewer)."""
    source = np.flatnonzero(index >= 0)
    order = source[np.argsort(index[source], kind="stable")]
    target = index[order]
    counts = np.bincount(target, minlength=n)
    rank = np.arange(order.size) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.full((max(1, int(counts.max(initial=0))), n), -1)
    columns[rank, target] = order
    return list(columns)
