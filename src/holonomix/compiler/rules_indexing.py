"""Rules for gather, scatter and dynamic slices; places may be constants or depend on data.

A place that depends on data becomes a load from a table that holds every element it can reach, or, for writing, a
select for each position that could be written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from jax.extend import core as jex_core
from jax.lax import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers

from ..trace import moves
from ..trace.jaxprs import Params
from .algebra import Algebra
from .graph import BOOL, Unsupported, type_of
from .trace import Array, Tracer, rule

MAX_CHOICES = 1_000_000  # elements in all windows that a slice at a data-dependent place may return


def index_node(t: Tracer, n: int) -> int:
    """An index as a 64-bit integer, in which every limit and every place can be written.

    Of unsigned 64-bit integers those beyond the signed ones become the largest of these.
    """
    if t.graph.kind[n] == "u8":
        n = t.algebra.extremum("min", n, t.algebra.const(np.iinfo(np.int64).max, "u8"))
    return t.algebra.convert(n, "i8")


def clamped(t: Tracer, n: int, limit: int) -> int:
    """Index `n` clamped to 0 .. limit."""
    alg = t.algebra
    if limit == 0:
        return t.graph.zero["i8"]
    return alg.extremum("min", alg.extremum("max", index_node(t, n), t.graph.zero["i8"]), alg.const(limit, "i8"))


def _combined(t: Tracer, starts: list[tuple[int, int]]) -> int:
    """One index from several `(start node, number of positions)`, row by row."""
    alg = t.algebra
    total = t.graph.zero["i8"]
    for n, count in starts:
        total = alg.add(alg.mul(total, alg.const(count, "i8")), n)
    return total


@rule("dynamic_slice", honors="slice_sizes")
def _dynamic_slice(t: Tracer, p: Params, a: Array, *starts: Array):
    return [_window(t, a, [int(s) for s in starts[: a.ndim]], p.slice_sizes)]


def _window(t: Tracer, a: Array, starts: list[int], sizes: Sequence[int]) -> Array:
    starts = [clamped(t, s, n - k) for s, n, k in zip(starts, a.shape, sizes, strict=True)]
    value = t.graph.value
    fixed = tuple(
        slice(int(value[s]), int(value[s]) + k) if s in value else slice(None)
        for s, k in zip(starts, sizes, strict=True)
    )
    a = a[fixed]
    moving = [d for d, s in enumerate(starts) if s not in value]
    if not moving:
        return a
    index = _combined(t, [(starts[d], a.shape[d] - sizes[d] + 1) for d in moving])
    windows = np.lib.stride_tricks.sliding_window_view(a, sizes)
    if windows.size > MAX_CHOICES:
        raise Unsupported("a slice at a place that depends on data", f"{windows.size} elements to choose from")
    choices = windows.reshape(int(np.prod(windows.shape[: a.ndim])), -1)
    picked = [t.algebra.pick(choices[:, j].tolist(), index) for j in range(choices.shape[1])]
    return np.array(picked, np.int64).reshape(sizes)


@rule("dynamic_update_slice")
def _dynamic_update_slice(t: Tracer, p: Params, a: Array, update: Array, *starts: Array):
    nodes = [clamped(t, int(s), n - k) for s, n, k in zip(starts, a.shape, update.shape, strict=True)]
    return [write(t, np.array(a), update, nodes, lambda old, new: new)]


def write(t: Tracer, out: Array, update: Array, starts: list[int], combine: Callable[[int, int], int]) -> Array:
    """Combine the window of `out` that begins at `starts` with `update`, in place."""
    alg, value = t.algebra, t.graph.value
    ranges = [
        [int(value[s])] if s in value else list(range(n - k + 1))
        for s, n, k in zip(starts, out.shape, update.shape, strict=True)
    ]
    for place in itertools.product(*ranges):
        if any(o < 0 or o + k > n for o, k, n in zip(place, update.shape, out.shape, strict=True)):
            continue
        here = t.graph.one[BOOL]
        for s, o in zip(starts, place, strict=True):
            if s not in value:
                here = alg.bits("and", here, alg.compare("eq", s, alg.const(o, "i8")))
        cut = tuple(slice(o, o + k) for o, k in zip(place, update.shape, strict=True))
        out[cut] = t.each(lambda old, new, c=here: alg.select(c, combine(old, new), old), out[cut], update)
    return out


def window_start(
    t: Tracer, ndim: int, place: tuple[int, ...], indices: Array, d: GatherDimensionNumbers | ScatterDimensionNumbers
) -> list[int]:
    """Where the window of one index begins; `d` are the dimension numbers of a gather or scatter."""
    if isinstance(d, GatherDimensionNumbers):
        index_map, index_batching = d.start_index_map, d.start_indices_batching_dims
    else:
        index_map, index_batching = d.scatter_dims_to_operand_dims, d.scatter_indices_batching_dims
    nodes = [t.graph.zero["i8"]] * ndim
    for axis, k in zip(d.operand_batching_dims, index_batching, strict=True):
        nodes[axis] = t.algebra.const(place[k], "i8")
    for j, k in enumerate(index_map):
        nodes[k] = index_node(t, int(indices[(*place, j)]))
    return nodes


@rule("gather", honors="dimension_numbers slice_sizes mode fill_value")
def _gather(t: Tracer, p: Params, a: Array, indices: Array):
    d, sizes = p.dimension_numbers, p.slice_sizes
    check_mode(p)
    fill = p.mode == GatherScatterMode.FILL_OR_DROP
    batch_shape = indices.shape[:-1]
    offset_axes = [k for k in range(a.ndim) if k not in d.collapsed_slice_dims and k not in d.operand_batching_dims]
    offset_shape = tuple(sizes[k] for k in offset_axes)
    numbers = t.values(indices)
    missing = t.algebra.const(moves.fill_value(p), type_of(p.outs[0].dtype)) if fill and a.size else -1
    if numbers is not None:
        return [moves.gather(p.override(fill_value=missing), a, numbers)]
    flat_out = []
    for place in np.ndindex(*batch_shape):
        nodes = window_start(t, a.ndim, place, indices, d)
        window = _window(t, a, nodes, sizes)
        if fill:
            inside = t.graph.one[BOOL]
            for k in d.start_index_map:
                inside = t.algebra.bits("and", inside, within(t, nodes[k], a.shape[k] - sizes[k]))
            window = t.each(lambda n, c=inside: t.algebra.select(c, n, missing), window)
        flat_out.append(window.ravel())
    out = np.stack(flat_out) if flat_out else np.zeros((0, int(np.prod(offset_shape))), np.int64)
    return [moves.order_gathered_axes(d, out.reshape((*batch_shape, *offset_shape)), len(batch_shape))]


def check_mode(p: Params) -> None:
    if p.mode not in (GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS):
        raise Unsupported(p.name, f"with mode {p.mode}")


def within(t: Tracer, n: int, limit: int) -> int:
    alg = t.algebra
    low = alg.compare("ge", n, t.graph.zero["i8"])
    return alg.bits("and", low, alg.compare("le", n, alg.const(limit, "i8")))


_COMBINE: dict[str, Callable[[Algebra, int, int], int]] = {
    "add": lambda alg, old, new: alg.add(old, new),
    "sub": lambda alg, old, new: alg.sub(old, new),
    "mul": lambda alg, old, new: alg.mul(old, new),
    "min": lambda alg, old, new: alg.extremum("min", old, new),
    "max": lambda alg, old, new: alg.extremum("max", old, new),
}
# Versions of JAX differ in how they spell the names.
COMBINE = {f"scatter{dash}{name}": fn for name, fn in _COMBINE.items() for dash in "-_"}
COMBINE["scatter"] = lambda alg, old, new: new


def combiner(t: Tracer, p: Params, name: str) -> Callable[[int, int], int]:
    """What a scatter makes of an old element and its update."""
    if name == "scatter" and p.update_jaxpr is not None:
        update = jex_core.ClosedJaxpr(p.update_jaxpr, p.update_consts)
        return lambda old, new: int(t.run(update, [np.array(old), np.array(new)])[0])
    return lambda old, new: COMBINE[name](t.algebra, old, new)


def _scatter(name: str):
    """Register the rule of a scatter primitive, which writes one window after the other into a copy of the array."""

    def scatter(t: Tracer, p: Params, a: Array, indices: Array, updates: Array):
        d = p.dimension_numbers
        check_mode(p)
        out = np.array(a)
        window_axes = list(d.update_window_dims)
        batch_axes = [k for k in range(updates.ndim) if k not in window_axes]
        inserted = [*d.inserted_window_dims, *d.operand_batching_dims]
        arranged = np.transpose(updates, [*batch_axes, *window_axes])
        for place in np.ndindex(*indices.shape[:-1]):
            window = arranged[place]
            window = np.expand_dims(window, sorted(inserted)) if inserted else window
            starts = window_start(t, a.ndim, place, indices, d)
            if p.mode == GatherScatterMode.CLIP:
                starts = [clamped(t, s, n - k) for s, n, k in zip(starts, a.shape, window.shape, strict=True)]
            write(t, out, window, starts, combiner(t, p, name))
        return [out]

    # but for `scatter`, the name says what the update is
    rule(name, honors="dimension_numbers mode update_jaxpr update_consts")(scatter)


for _name in COMBINE:
    _scatter(_name)
