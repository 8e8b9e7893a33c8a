"""Primitives that rearrange entries, on NumPy arrays of any content.

Applied to numbers, they compute the result. Applied to numbered places, they give the source of each entry. Applied to
node numbers, they are the rules of the kernel compiler. `p` are the parameters of the equation (`jaxprs.Params`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import GatherDimensionNumbers, GatherScatterMode

from .jaxprs import Index, Params, Values


def broadcast_in_dim(p: Params, x: Values) -> Values:
    shape = [1] * len(p.shape)
    for axis, n in zip(p.broadcast_dimensions, x.shape, strict=True):
        shape[axis] = n
    return np.broadcast_to(x.reshape(shape), p.shape)


def reshape(p: Params, x: Values) -> Values:
    return (x if p.dimensions is None else np.transpose(x, p.dimensions)).reshape(p.new_sizes)


def slice_(p: Params, x: Values) -> Values:
    return x[tuple(map(slice, p.start_indices, p.limit_indices, p.strides or (1,) * x.ndim))]


def dynamic_slice(p: Params, x: Values, *starts: Values) -> Values:
    return x[_window(starts, x.shape, p.slice_sizes)]


def dynamic_update_slice(p: Params, x: Values, update: Values, *starts: Values) -> Values:
    out = np.array(x)
    out[_window(starts, x.shape, update.shape)] = update
    return out


def _window(starts: Sequence[Values], shape: Sequence[Index], sizes: Sequence[Index]) -> tuple[slice, ...]:
    """The window of the given sizes, moved inside of the array."""
    first = [min(max(int(a), 0), n - size) for a, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(a, a + size) for a, size in zip(first, sizes, strict=True))


def pad(p: Params, x: Values, fill: Values) -> Values:
    for axis, (low, high, inner) in enumerate(p.padding_config):
        along = lambda cut, axis=axis: (slice(None),) * axis + (cut,)
        if inner and x.shape[axis] > 1:
            n = x.shape[axis]
            wide = np.full((*x.shape[:axis], n + inner * (n - 1), *x.shape[axis + 1 :]), fill)
            wide[along(slice(None, None, inner + 1))] = x
            x = wide
        x = x[along(slice(max(-low, 0), x.shape[axis] - max(-high, 0)))]
        width = [(max(low, 0), max(high, 0)) if d == axis else (0, 0) for d in range(x.ndim)]
        x = np.pad(x, width, constant_values=fill)
    return x


def iota(p: Params) -> Values:
    shape = [-1 if axis == p.dimension else 1 for axis in range(len(p.shape))]
    return np.broadcast_to(np.arange(p.shape[p.dimension]).astype(p.dtype).reshape(shape), p.shape)


def gather(p: Params, x: Values, indices: Values) -> Values:
    """`lax.gather`; windows outside of x are filled or moved inside, as the mode says."""
    d, sizes, batch_shape = p.dimension_numbers, p.slice_sizes, indices.shape[:-1]
    starts = np.zeros((*batch_shape, x.ndim), np.int64)
    for operand_axis, index_axis in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True):
        shape = [-1 if k == index_axis else 1 for k in range(len(batch_shape))]
        starts[..., operand_axis] = np.arange(batch_shape[index_axis]).reshape(shape)
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    for j, k in enumerate(d.start_index_map):
        starts[..., k] = indices[..., j]
    room = np.array(x.shape, np.int64) - np.array(sizes, np.int64)
    outside = ((starts < 0) | (starts > room)).any(axis=-1)
    starts = np.clip(starts, 0, room)
    window = [len(batch_shape) + k for k in range(x.ndim)]
    places = []
    for k, size in enumerate(sizes):
        along = np.arange(size).reshape([-1 if j == window[k] else 1 for j in range(len(batch_shape) + x.ndim)])
        places.append(starts[..., k].reshape(*batch_shape, *(1,) * x.ndim) + along)
    out = x[tuple(places)] if x.ndim else np.broadcast_to(x, batch_shape)
    if p.mode == GatherScatterMode.FILL_OR_DROP and outside.any():
        out = np.where(outside.reshape(*batch_shape, *(1,) * x.ndim), fill_value(p), out)
    collapsed = tuple(window[k] for k in (*d.collapsed_slice_dims, *d.operand_batching_dims))
    return order_gathered_axes(d, np.squeeze(out, collapsed), len(batch_shape))


def order_gathered_axes(dimension_numbers: GatherDimensionNumbers, x: Values, batches: int) -> Values:
    """Batch axes followed by window axes, in the order that a gather gives them."""
    batch_axes, window_axes = iter(range(batches)), iter(range(batches, x.ndim))
    offsets = dimension_numbers.offset_dims
    return np.transpose(x, [next(window_axes) if k in offsets else next(batch_axes) for k in range(x.ndim)])


def fill_value(p: Params) -> Any:
    """What a gather returns for a window outside of its array."""
    dtype = np.dtype(p.outs[0].dtype)
    if p.fill_value is not None:
        return p.fill_value
    if dtype.kind not in "iub":
        return np.nan
    return True if dtype.kind == "b" else np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def scatter_targets(p: Params, shape: tuple[Index, ...], indices: Values, updates: tuple[Index, ...]) -> Values:
    """The place in an array of the given shape that each update of a scatter goes to; -1 for those it drops."""
    d = p.dimension_numbers
    numbers = GatherDimensionNumbers(
        d.update_window_dims,
        d.inserted_window_dims,
        d.scatter_dims_to_operand_dims,
        d.operand_batching_dims,
        d.scatter_indices_batching_dims,
    )
    window = iter([updates[k] for k in d.update_window_dims])
    one = (*d.inserted_window_dims, *d.operand_batching_dims)
    sizes = [1 if k in one else next(window) for k in range(len(shape))]
    mode = p.mode if p.mode == GatherScatterMode.CLIP else GatherScatterMode.FILL_OR_DROP
    read = p.override(dimension_numbers=numbers, slice_sizes=sizes, mode=mode, fill_value=-1)
    return gather(read, np.arange(np.prod(shape, dtype=np.int64)).reshape(shape), indices)


def scatter(combine: np.ufunc | None) -> Callable[..., Values | None]:
    """A scatter that combines old entries with updates; None: the updates replace them."""

    def evaluate(p: Params, x: Values, indices: Values, updates: Values) -> Values | None:
        if combine is None and p.update_jaxpr is not None:
            return None
        targets = scatter_targets(p, x.shape, indices, updates.shape).reshape(-1)
        inside, out = targets >= 0, np.array(x).reshape(-1)
        if combine is None:
            out[targets[inside]] = updates.reshape(-1)[inside]
        else:
            combine.at(out, targets[inside], updates.reshape(-1)[inside])
        return out.reshape(x.shape)

    return evaluate


def reduction_groups(x: Values, axes: Sequence[Index]) -> tuple[Values, tuple[Index, ...]]:
    """The entries that go to each result of a reduction over `axes`, `(results, entries)`, and the results' shape."""
    keep = [d for d in range(x.ndim) if d not in axes]
    shape = tuple(x.shape[d] for d in keep)
    return np.transpose(x, [*keep, *axes]).reshape(math.prod(shape), math.prod(x.shape[d] for d in axes)), shape


def product_factors(p: Params, a: Values, b: Values) -> tuple[Values, Values, tuple[Index, ...]]:
    """The entries that a `dot_general` multiplies, and the shape of its result.

    They are arranged as `(batch, rows, inner)` of one side and `(batch, columns, inner)` of the other.
    """
    (ca, cb), (ba, bb) = p.dimension_numbers
    (left, batch, rows), (right, _, columns) = _factor(a, ba, ca), _factor(b, bb, cb)
    return left, right, (*batch, *rows, *columns)


def _factor(x: Values, batch: Sequence[Index], inner: Sequence[Index]) -> tuple[Values, list[Index], list[Index]]:
    free = [d for d in range(x.ndim) if d not in inner and d not in batch]
    sizes = [[x.shape[d] for d in axes] for axes in (batch, free, inner)]
    return np.transpose(x, [*batch, *free, *inner]).reshape([math.prod(n) for n in sizes]), sizes[0], sizes[1]
