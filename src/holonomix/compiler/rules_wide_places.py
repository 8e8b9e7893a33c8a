"""Rules for gather, scatter and slices of arrays with a long axis (`wide`).

At known places, these primitives only move codes. At places that depend on data, they read single elements, and write
by comparing with the places of a whole vector; so only a few such places are allowed. A long array of places is read in
a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from ..trace import moves
from ..trace.jaxprs import Params
from ..trace.primitives import TABLE, Dependence
from .graph import BOOL, Unsupported, type_of
from .rules_indexing import COMBINE, check_mode, clamped, combiner, window_start, within, write
from .trace import Array, Tracer, kernel_rule, wide_rule
from .wide import (
    PLACE,
    SHIFT,
    Numbers,
    Wide,
    assemble,
    constant_vector,
    cost,
    dealt,
    element_of,
    explode,
    settled,
    take,
)

MAX_READS = 400  # elements read one by one at places that depend on data
MAX_WRITES = 64  # elements written one by one


def moved(t: Tracer, p: Params, *ins: Array):
    """A primitive that moves elements to known places."""
    if p.name == "gather":
        return _gathered(t, p, ins[0], ins[1])
    if p.name == "scatter":
        index = t.known_numbers(ins[1])
        assert index is not None
        ins = (ins[0], np.vectorize(lambda x: t.graph.constant(x, "i8"), otypes=[np.int64])(index), *ins[2:])
    first = {"dynamic_slice": 1, "dynamic_update_slice": 2}.get(p.name, len(ins))
    if t.values(np.array([int(a) for a in ins[first:]], np.int64)) is None:
        raise Unsupported(p.name, "on a long axis, at places that depend on data")
    places = 1 if p.name == "scatter" else -1

    def moved(through: bool) -> list[np.ndarray]:
        codes = [a if j == places or j >= first else explode(t, a, through) for j, a in enumerate(ins)]
        return [np.asarray(c) for c in kernel_rule(p.name)(t, p, *codes)]

    return _cheaper(t, p, ins, moved)


def _gathered(t: Tracer, p: Params, a: Array, indices: Array):
    """A gather at known places."""
    check_mode(p)
    index = t.known_numbers(indices)
    assert index is not None
    kind = type_of(p.outs[0].dtype)
    fill = p.mode == GatherScatterMode.FILL_OR_DROP and a.size
    filled = p.override(fill_value=t.algebra.const(moves.fill_value(p), kind) if fill else -1)
    return _cheaper(t, p, (a,), lambda through: [moves.gather(filled, explode(t, a, through), index)])


def _cheaper(t: Tracer, p: Params, ins: Sequence[Array], moved: Callable[[bool], list[np.ndarray]]) -> list[Array]:
    """Elements of the argument vectors, or of those that these were assembled from, whichever costs less."""
    outs = moved(False)
    if any(int(n) in t.pieced for a in ins if isinstance(a, Wide) for n in a.ids.ravel()):
        deeper = moved(True)
        if sum(cost(t, c) for c in deeper) < sum(cost(t, c) for c in outs):
            outs = deeper
    return [assemble(t, c, type_of(v.dtype)) for c, v in zip(outs, p.outs, strict=True)]


def placed(t: Tracer, v: int, places: np.ndarray) -> int:
    """The sum of `take(v, row)` over the rows of places; negative places contribute zero."""
    rows = np.take_along_axis(places, np.argsort(places < 0, axis=0, kind="stable"), 0)
    rows = rows[: max(1, int((rows >= 0).sum(axis=0).max()))]
    if len(rows) == 1:
        return take(t.graph, v, rows[0])
    return t.graph.node("gsum", (v,), t.graph.kind[v], Numbers(rows.astype(np.int32)), rows.shape[1])


# -- places that depend on data ------------------------------------------------------------------


def _long_window(t: Tracer, v: int, start: int, length: int) -> int:
    """`v[start], v[start + 1], ...`, zero outside of v."""
    g = t.graph
    return g.node("window", (v, start), g.kind[v], length, length) if g.length[v] else v


def _window(t: Tracer, a: Wide, starts: list[int], sizes: Sequence[int]) -> Array:
    """The part of an array that begins at the clamped `starts`, which depend on data or are known."""
    g, alg = t.graph, t.algebra
    starts = [clamped(t, s, n - k) for s, n, k in zip(starts, a.shape, sizes, strict=True)]
    a = dealt(t, a, 1)
    n, start = sizes[a.axis], starts[a.axis]
    whole, stays = n == a.n, t.axes.find(sizes) == a.axis
    if not stays and a.ids.size * n > MAX_READS:
        raise Unsupported("a long axis cut to a short one", f"{a.ids.size * n} elements at places that depend on data")
    if stays:
        ids = a.ids if whole else t.each(lambda v: _long_window(t, v, start, n), a.ids)
    else:
        places = [alg.add(start, alg.const(j, "i8")) for j in range(n)]
        read = lambda v, at: g.node("load", (v, at), g.kind[v], None, 0) if g.length[v] else v
        ids = np.concatenate([t.each(lambda v, at=at: read(v, at), a.ids) for at in places], a.axis)
    own = [g.zero["i8"] if k == a.axis else s for k, s in enumerate(starts)]
    ids = _short_window(t, ids, own, [1 if stays and k == a.axis else m for k, m in enumerate(sizes)])
    return Wide(ids, a.axis, n) if stays else ids


def _short_window(t: Tracer, ids: np.ndarray, starts: list[int], sizes: Sequence[int]) -> np.ndarray:
    """The same along short axes, whose elements may be vectors: a select for each possible start of the window."""
    alg, value = t.algebra, t.graph.value
    for axis, (s, k) in enumerate(zip(starts, sizes, strict=True)):
        cuts = [np.take(ids, range(o, o + k), axis) for o in range(ids.shape[axis] - k + 1)]
        if s in value:
            ids = cuts[int(value[s])]
            continue
        ids = cuts[0]
        for o, cut in enumerate(cuts[1:], 1):
            here = alg.compare("eq", s, alg.const(o, "i8"))
            ids = t.each(lambda new, old, c=here: alg.select(c, new, old), cut, ids)
    return ids


def _update(t: Tracer, a: Wide, update: Array, starts: list[int], combine: Callable[[int, int], int]) -> Wide:
    """`a` with `update` combined into it at `starts`.

    Unchanged if an update shorter than the long axis does not fit there.
    """
    alg, axis, n = t.algebra, a.axis, a.n
    own = [t.graph.zero["i8"] if k == axis else s for k, s in enumerate(starts)]
    ids, start, m = np.array(a.ids), starts[axis], update.shape[axis]
    if m == n:
        cut = dealt(t, update, 1).ids if isinstance(update, Wide) else update
        return Wide(write(t, ids, cut, own, combine), axis, n)
    place = constant_vector(t.graph, np.arange(n), "i8")
    if isinstance(update, Wide):
        low = alg.compare("ge", place, start)
        inside = alg.bits("and", low, alg.compare("lt", place, alg.add(start, alg.const(m, "i8"))))
        before = alg.neg(start)
        cut = t.each(lambda u: _long_window(t, u, before, n), dealt(t, update, 1).ids)
        pieces = [(cut, inside)]
    else:
        if m * ids.size > MAX_WRITES:
            raise Unsupported("writing to a long axis", f"{m} elements at places that depend on data")
        cuts = [np.take(update, [j], axis) for j in range(m)]
        pieces = [(c, alg.compare("eq", place, alg.add(start, alg.const(j, "i8")))) for j, c in enumerate(cuts)]
    fits = within(t, start, n - m)
    for cut, inside in pieces:
        here = alg.bits("and", inside, fits)
        ids = write(t, ids, cut, own, lambda old, new, c=here: alg.select(c, combine(old, new), old))
    return Wide(ids, axis, n)


@wide_rule("dynamic_slice")
def _dynamic_slice(t: Tracer, p: Params, a: Array, *starts: Array):
    a = settled(t, a)
    if not isinstance(a, Wide) or all(int(s) in t.graph.value for s in starts):
        return moved(t, p, a, *starts)
    return [_window(t, a, [int(s) for s in starts], p.slice_sizes)]


@wide_rule("dynamic_update_slice")
def _dynamic_update_slice(t: Tracer, p: Params, a: Array, update: Array, *starts: Array):
    a, update = settled(t, a), settled(t, update)
    if not isinstance(a, Wide) or all(int(s) in t.graph.value for s in starts):
        return moved(t, p, a, update, *starts)
    nodes = [clamped(t, int(s), n - k) for s, n, k in zip(starts, a.shape, update.shape, strict=True)]
    return [_update(t, dealt(t, a, 1), update, nodes, lambda old, new: new)]


@wide_rule("gather")
def _gather(t: Tracer, p: Params, a: Array, indices: Array):
    """Gather at known places, at a few places that depend on data, or at many in a loop."""
    a, indices, d = settled(t, a), settled(t, indices), p.dimension_numbers
    if t.known_numbers(indices) is not None:
        return moved(t, p, a, indices)
    check_mode(p)
    if isinstance(indices, Wide):
        return _gather_in_loop(t, p, a, indices)
    if not isinstance(a, Wide):
        raise Unsupported("gather", "to a long axis, at places that depend on data")
    fill = p.mode == GatherScatterMode.FILL_OR_DROP
    missing = t.algebra.const(moves.fill_value(p), type_of(p.outs[0].dtype)) if fill else -1
    parts = []
    for place in np.ndindex(*indices.shape[:-1]):
        nodes = window_start(t, a.ndim, place, indices, d)
        part = _window(t, a, nodes, p.slice_sizes)
        if fill:
            good = t.graph.one[BOOL]
            for k in d.start_index_map:
                good = t.algebra.bits("and", good, within(t, nodes[k], a.shape[k] - p.slice_sizes[k]))
            chosen = t.each(
                lambda n, c=good: t.algebra.select(c, n, missing), part.ids if isinstance(part, Wide) else part
            )
            part = Wide(chosen, part.axis, part.n) if isinstance(part, Wide) else chosen
        parts.append(explode(t, part).ravel())
    gone = (*d.collapsed_slice_dims, *d.operand_batching_dims)
    shape = (*indices.shape[:-1], *(n for k, n in enumerate(p.slice_sizes) if k not in gone))
    codes = np.stack(parts).reshape(shape)
    return [assemble(t, moves.order_gathered_axes(d, codes, indices.ndim - 1), type_of(p.outs[0].dtype))]


def _gather_in_loop(t: Tracer, p: Params, a: Array, indices: Wide):
    """Gather one index after the other, along the long axis of the indices."""
    d, along = p.dimension_numbers, indices.axis
    if along == indices.ndim - 1:
        raise Unsupported("gather", "along a long axis of indices of one place")
    where = [k for k in range(len(p.outs[0].shape)) if k not in d.offset_dims][along]
    batches = dict(zip(d.start_indices_batching_dims, d.operand_batching_dims, strict=True))
    other = batches.get(along)  # the axis of `a` that is indexed in parallel with the indices

    def run(a: jax.Array, indices: jax.Array):
        def one(_: None, given: tuple[Any, ...]):
            index, part = given
            part = a if other is None else jnp.expand_dims(part, other)
            return None, jnp.squeeze(p.primitive.bind(part, jnp.expand_dims(index, along), **p.params), where)

        parts = None if other is None else jnp.moveaxis(a, other, 0)
        return jnp.moveaxis(jax.lax.scan(one, None, (jnp.moveaxis(indices, along, 0), parts))[1], 0, where)

    return t.run(jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in p.ins)), [a, indices])


def _scattered(t: Tracer, p: Params, a: Array, indices: Array, updates: Array) -> Sequence[Array]:
    """Apply a few updates, one after the other, at places that are known or depend on data."""
    a, indices, updates, d = settled(t, a), settled(t, indices), settled(t, updates), p.dimension_numbers
    count = int(np.prod(indices.shape[:-1], dtype=np.int64))
    if not isinstance(a, Wide) or isinstance(indices, Wide) or count > MAX_WRITES:
        raise Unsupported(p.name, f"on a long axis, {count} updates one by one")
    check_mode(p)
    batch = [k for k in range(updates.ndim) if k not in d.update_window_dims]
    inserted = sorted([*d.inserted_window_dims, *d.operand_batching_dims])
    kind = type_of(p.outs[0].dtype)
    codes = np.transpose(explode(t, updates), [*batch, *d.update_window_dims])
    out = dealt(t, a, 1)
    for place in np.ndindex(*indices.shape[:-1]):
        window = np.expand_dims(codes[place], inserted) if inserted else codes[place]
        nodes = window_start(t, a.ndim, place, indices, d)
        if p.mode == GatherScatterMode.CLIP:
            nodes = [clamped(t, s, n - k) for s, n, k in zip(nodes, a.shape, window.shape, strict=True)]
        update, combine = assemble(t, window, kind), combiner(t, p, p.name)
        if p.name == "scatter" and p.update_jaxpr is not None:  # a function of scalars
            if isinstance(update, Wide):
                raise Unsupported("scatter", "on a long axis, with a function of its own")
            update, combine = t.each(combine, _window(t, out, nodes, window.shape), update), lambda old, new: new
        out = _update(t, out, update, nodes, combine)
    return [out]


for _name in set(COMBINE) - {"scatter", "scatter-add", "scatter_add"}:
    wide_rule(_name)(_scattered)


@wide_rule("scatter")
def _scatter(t: Tracer, p: Params, a: Array, indices: Array, updates: Array):
    if t.known_numbers(indices) is None or p.update_jaxpr is not None:
        return _scattered(t, p, a, indices, updates)
    return moved(t, p, settled(t, a), indices, settled(t, updates))


@wide_rule("scatter-add", "scatter_add")
def _scatter_add(t: Tracer, p: Params, a: Array, indices: Array, updates: Array):
    """Add at constant places; each element adds its updates in their order."""
    index = t.known_numbers(indices)
    if index is None:
        return _scattered(t, p, a, indices, updates)
    d, g, kind = p.dimension_numbers, t.graph, type_of(p.outs[0].dtype)
    a, updates = settled(t, a), settled(t, updates)
    order = [*(k for k in range(updates.ndim) if k not in d.update_window_dims), *d.update_window_dims]
    targets = moves.scatter_targets(p, a.shape, index, updates.shape)
    lists: list[list[int]] = [[] for _ in range(a.size)]
    for target, code in zip(
        *(x.transpose(order).ravel().tolist() for x in (targets, explode(t, updates))), strict=True
    ):
        if target >= 0 and code != g.zero[kind]:
            lists[target].append(code)
    axis = t.axes.find(a.shape)
    if axis is None:
        if sum(map(len, lists)) > MAX_WRITES:
            raise Unsupported("scatter-add", "of a long axis to a short one")
        old = t.each(lambda n: n, a).ravel().tolist()
        out = [t.algebra.fold_tree(t.algebra.add, [n, *(element_of(g, c) for c in more)])
               for n, more in zip(old, lists, strict=True)]  # fmt: skip
        return [np.array(out, np.int64).reshape(a.shape)]
    rows = np.moveaxis(np.arange(a.size).reshape(a.shape), axis, -1)
    size = rows.shape[-1]
    trials = []
    for k in t.axes.ways[size]:
        split = rows.reshape(-1, size // k, k)
        tables = [_rounds(split[r, :, j].tolist(), lists) for r in range(len(split)) for j in range(k)]
        trials.append((sum(_effort(g.length[v], places) for x in tables for v, places in x.items()), k, tables))
    _, k, tables = min(trials, key=lambda x: x[0])
    base = assemble(t, explode(t, a), kind, k)
    ids = np.moveaxis(base.ids, axis, -1).reshape(-1).copy()
    for j, table in enumerate(tables):
        for source, places in table.items():
            term = placed(t, source, places) if g.length[source] else t.algebra.mul(source, _counted(t, places, kind))
            ids[j] = t.algebra.add(int(ids[j]), term)
    return [Wide(np.moveaxis(ids.reshape(*rows.shape[:-1], k), -1, axis), axis, base.n)]


def _counted(t: Tracer, places: np.ndarray, kind: str) -> int:
    return constant_vector(t.graph, (places >= 0).sum(axis=0), kind)


def _effort(length: int, places: np.ndarray) -> int:
    """The number of rows of places to add; zero if the vector is used unchanged."""
    rows, n = places.shape
    return 0 if rows == 1 and n == length and (places[0] == np.arange(n)).all() else rows


def _rounds(targets: list[int], lists: list[list[int]]) -> dict[int, np.ndarray]:
    """For each source, the places that each target adds, one per row; -1 if a target has no more."""
    found: dict[int, tuple[list[int], list[int], list[int]]] = {}  # rows, targets and places of a source
    seen: dict[tuple[int, int], int] = {}  # number of places that a target has of a source so far
    for i, target in enumerate(targets):
        for code in lists[target]:
            source, place = ((code >> SHIFT) - 1, code & PLACE) if code > PLACE else (code, 0)
            row = seen.get((source, i), 0)
            seen[source, i] = row + 1
            rows, columns, places = found.setdefault(source, ([], [], []))
            rows.append(row)
            columns.append(i)
            places.append(place)
    out = {}
    for source, (rows, columns, places) in found.items():
        out[source] = np.full((max(rows) + 1, len(targets)), -1, np.int64)
        out[source][rows, columns] = places
    return out


_OF_NOTHING = ("empty", "empty2", "zeros_like")
for _name, _row in list(TABLE.items()):
    if _row.wide is None and (_row.dependence is Dependence.MOVE or _name in _OF_NOTHING):
        wide_rule(_name)(lambda t, p, *ins: moved(t, p, *(settled(t, a) for a in ins)))
