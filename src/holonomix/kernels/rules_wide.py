"""Rules for arrays with a long axis (`wide`)."""

from __future__ import annotations

import jax
import numpy as np
from jax.lax import GatherScatterMode

from .graph import BOOL, Unsupported, type_of
from .trace import CONTROL, ELEMENTWISE, RULES, WIDE_RULES, Array, Tracer, wide_rule
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

MOVING = {
    "reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "split", "concatenate", "stack",
    "unstack", "tile", "rev", "pad", "gather", "dynamic_slice", "dynamic_update_slice", "scatter", "empty",
    "zeros_like", "empty2",
}  # fmt: skip
SMALL = 64  # elements of a long axis that may be taken apart where there is no rule
CONTROL.add("custom_linear_solve")


@wide_rule("any")
def _any(t: Tracer, p, *ins: Array):
    """Any primitive with a long array among its arguments or results."""
    known = [_known(t, a) for a in ins]
    if all(k is not None for k in known) and p.name not in ("random_bits", "threefry2x32", "iota_2x32_shape"):
        with jax.ensure_compile_time_eval():
            out = p.primitive.bind(*known, **p.params)
        return [t.literal(np.asarray(x)) for x in (out if p.primitive.multiple_results else [out])]
    if ins and not any(isinstance(a, Wide) for a in ins) and p.name != "random_bits":  # from scalars, or from nothing
        outs = [explode(t, np.asarray(x)) for x in RULES[p.name](t, p, *ins)]
        return [assemble(t, x, type_of(v.dtype)) for x, v in zip(outs, p.outs, strict=True)]
    if p.name in WIDE_RULES:
        return WIDE_RULES[p.name](t, p, *ins)
    if p.name in ELEMENTWISE:
        return _elementwise(t, p, *ins)
    ins = tuple(settled(t, a) for a in ins)
    if p.name in MOVING:
        return _moved(t, p, *ins)
    raise Unsupported(p.name, "on a long axis")


def _known(t: Tracer, a: Array) -> np.ndarray | None:
    if isinstance(a, Wide):
        return a.constant
    if a.size and t.graph.kind[int(a.flat[0])] == "key":
        return None
    return t.values(a) if a.size else None


def _moved(t: Tracer, p, *ins: Array):
    if p.name in ("gather", "scatter"):
        index = _known(t, ins[1])
        if index is None:
            raise Unsupported(p.name, "on a long axis, at places that depend on data")
        if p.name == "scatter" and p.update_jaxpr is not None:
            raise Unsupported(p.name, "on a long axis, with a function of its own")
        ins = (ins[0], np.vectorize(lambda x: t.graph.constant(x, "i8"), otypes=[np.int64])(index), *ins[2:])
    first = {"dynamic_slice": 1, "dynamic_update_slice": 2}.get(p.name, len(ins))
    if t.values(np.array([int(a) for a in ins[first:]], np.int64)) is None:
        raise Unsupported(p.name, "on a long axis, at places that depend on data")
    places = 1 if p.name in ("gather", "scatter") else -1

    def moved(through: bool) -> list[np.ndarray]:
        codes = [a if j == places or j >= first else explode(t, a, through) for j, a in enumerate(ins)]
        return [np.asarray(c) for c in RULES[p.name](t, p, *codes)]

    outs = moved(False)
    if any(int(n) in t.pieced for a in ins if isinstance(a, Wide) for n in a.ids.ravel()):
        deeper = moved(True)
        if sum(cost(t, c) for c in deeper) < sum(cost(t, c) for c in outs):
            outs = deeper
    return [assemble(t, c, type_of(v.dtype)) for c, v in zip(outs, p.outs, strict=True)]


def _repeated(t: Tracer, a: Wide) -> bool:
    """Is it made of scalars alone?"""
    return not any(t.graph.length[int(n)] for n in a.ids.ravel())


def _elementwise(t: Tracer, p, *ins: Array):
    wides = [a for a in ins if isinstance(a, Wide)]
    whole = next((a for a in wides if a.whole), None)
    if whole is not None:
        flat = [
            a.ids if isinstance(a, Wide) and a.whole == whole.whole
            else a.ids.ravel()[:1] if isinstance(a, Wide) and _repeated(t, a) and len(set(a.ids.ravel().tolist())) == 1
            else a if not isinstance(a, Wide) and a.ndim == 0 else None
            for a in ins
        ]  # fmt: skip
        if all(f is not None for f in flat) and all(v.shape == whole.whole for v in p.outs):
            outs = RULES[p.name](t, p, *flat)
            return [Wide(np.asarray(o).reshape(1), 0, whole.n, None, whole.whole) for o in outs]
        ins = tuple(settled(t, a) for a in ins)
        wides = [a for a in ins if isinstance(a, Wide)]
    lead = next((a for a in wides if not _repeated(t, a)), wides[0])
    ways = lead.ids.shape[lead.axis]
    if any(a.axis != lead.axis for a in wides):
        raise Unsupported(p.name, "on different long axes")
    ids = [dealt(t, a, ways).ids if isinstance(a, Wide) else a for a in ins]
    outs = RULES[p.name](t, p, *ids)
    return [Wide(np.asarray(o), lead.axis, lead.n) for o in outs]


@wide_rule("add", "add_any")
def _add(t: Tracer, p, *ins: Array):
    """Padded pieces of one vector that are added again make one sum over places."""
    (out,) = _elementwise(t, p, *ins)
    g = t.graph

    def one(n: int) -> int:
        if g.op[n] != "add":
            return n
        a, b = g.args[n]
        if not all(g.op[m] in ("take", "gsum") for m in (a, b)) or g.args[a] != g.args[b]:
            return n
        parts = [np.atleast_2d(g.attr[m].array) for m in (a, b)]
        return n if min(q.min() for q in parts) >= 0 else placed(t, g.args[a][0], np.concatenate(parts))

    out.ids = t.each(one, out.ids)
    return [out]


def placed(t: Tracer, v: int, places: np.ndarray) -> int:
    """The sum of `take(v, row)` over the rows of places; negative places count nothing."""
    rows = np.take_along_axis(places, np.argsort(places < 0, axis=0, kind="stable"), 0)
    rows = rows[: max(1, int((rows >= 0).sum(axis=0).max()))]
    if len(rows) == 1:
        return take(t.graph, v, rows[0])
    return t.graph.node("gsum", (v,), t.graph.kind[v], Numbers(rows.astype(np.int32)), rows.shape[1])


# -- sums and products -----------------------------------------------------------------------------

_TOTALS = {
    "reduce_sum": ("rsum", "add"), "reduce_prod": ("rprod", "mul"), "reduce_max": ("rmax", "extremum", "max"),
    "reduce_min": ("rmin", "extremum", "min"), "reduce_and": ("rand", "bits", "and"),
    "reduce_or": ("ror", "bits", "or"),
}  # fmt: skip


def _total(t: Tracer, op: str, v: int, n: int) -> int:
    """What all elements of a vector, or n equal scalars, make together."""
    g = t.graph
    if g.length[v]:
        if g.kind[v] == BOOL:
            op = {"rmax": "ror", "rmin": "rand"}.get(op, op)
        return g.node(op, (v,), g.kind[v], None, 0)
    if op == "rsum":
        return t.algebra.mul(g.constant(n, g.kind[v]), v)
    return t.algebra.power(v, n) if op == "rprod" else v


def _reduction(name: str):
    op, method, *prefix = _TOTALS[name]

    def fn(t: Tracer, p, a: Array):
        a = settled(t, a)
        if a.axis not in p.axes:
            (out,) = RULES[name](t, p, a.ids)
            return [Wide(out, a.axis - sum(1 for d in p.axes if d < a.axis), a.n)]
        keep = [d for d in range(a.ndim) if d not in p.axes]
        shape = tuple(a.ids.shape[d] for d in keep)
        rows = np.transpose(a.ids, [*keep, *p.axes]).reshape(int(np.prod(shape, dtype=int)), -1)
        g, call = t.graph, getattr(t.algebra, method)
        zero = g.zero[type_of(p.outs[0].dtype)]
        out = []
        for row in rows.tolist():
            row = [n for n in row if n != zero] if name == "reduce_sum" else row
            parts = [[n for n in row if g.length[n]], [n for n in row if not g.length[n]]]
            totals = [
                _total(t, op, t.algebra.fold_tree(lambda x, y: call(*prefix, x, y), part), a.n)
                for part in parts
                if part
            ]
            out.append(t.algebra.fold_tree(lambda x, y: call(*prefix, x, y), totals) if totals else zero)
        return [np.array(out, np.int64).reshape(shape)]

    wide_rule(name)(fn)


for _name in _TOTALS:
    _reduction(_name)


def _along(name: str, axes_of):
    """Primitives along one of the short axes."""

    def fn(t: Tracer, p, *ins: Array):
        ins = tuple(settled(t, a) for a in ins)
        lead = next(a for a in ins if isinstance(a, Wide))
        axes = axes_of(p)
        if lead.axis in axes or not all(isinstance(a, Wide) for a in ins):
            raise Unsupported(name, "along a long axis")
        ids = [dealt(t, a, lead.ids.shape[lead.axis]).ids for a in ins]
        gone = sum(1 for d in axes if d < lead.axis) if name in ("argmax", "argmin") else 0
        return [Wide(np.asarray(o), lead.axis - gone, lead.n) for o in RULES[name](t, p, *ids)]

    wide_rule(name)(fn)


for _name in ("cumsum", "cumprod", "cummax", "cummin"):
    _along(_name, lambda p: (p.axis,))
for _name in ("argmax", "argmin"):
    _along(_name, lambda p: tuple(p.axes))
_along("sort", lambda p: (p.dimension,))


@wide_rule("dot_general")
def _dot_general(t: Tracer, p, a: Array, b: Array):
    """The long axis may be a batch axis, a free axis of one side, or summed over."""
    (ca, cb), (ba, bb) = p.dimension_numbers
    a, b = settled(t, a), settled(t, b)
    if isinstance(a, Wide) and isinstance(b, Wide):
        pairs = [*zip(ca, cb, strict=True), *zip(ba, bb, strict=True)]
        if (a.axis, b.axis) not in pairs:
            raise Unsupported("dot_general", "with two long axes")
        ways = (b if _repeated(t, a) else a).ids.shape[(b if _repeated(t, a) else a).axis]
        a, b = dealt(t, a, ways), dealt(t, b, ways)
    lead = a if isinstance(a, Wide) else b
    (out,) = RULES["dot_general"](t, p, *(x.ids if isinstance(x, Wide) else x for x in (a, b)))
    axis = t.axes.find(p.outs[0].shape)
    if isinstance(a, Wide) and a.axis in ca:
        return [t.each(lambda n: _total(t, "rsum", n, lead.n), out)]
    assert axis is not None
    return [Wide(out, axis, lead.n)]


def _window(t: Tracer, v: int, start: int, length: int) -> int:
    """`v[start], v[start + 1], ...`, zero outside of v."""
    g = t.graph
    return g.node("window", (v, start), g.kind[v], length, length) if g.length[v] else v


def _moving(t: Tracer, p, a: Array, starts: tuple[Array, ...], sizes) -> int | None:
    """The runtime start along the long axis, clamped; None where all starts are known."""
    alg, value = t.algebra, t.graph.value
    moving = [k for k, s in enumerate(starts) if int(s) not in value]
    if not moving:
        return None
    if not isinstance(a, Wide) or moving != [a.axis]:
        raise Unsupported(p.name, "on a long axis, at places that depend on data")
    start = alg.convert(int(starts[a.axis]), "i8")
    start = alg.extremum("max", start, t.graph.zero["i8"])
    return alg.extremum("min", start, alg.const(a.shape[a.axis] - sizes[a.axis], "i8"))


@wide_rule("dynamic_slice")
def _dynamic_slice(t: Tracer, p, a: Array, *starts: Array):
    a = settled(t, a)
    start = _moving(t, p, a, starts, p.slice_sizes)
    if start is None:
        return _moved(t, p, a, *starts)
    if t.axes.find(p.outs[0].shape) != a.axis:
        raise Unsupported(p.name, "of a long axis to a short one")
    a = dealt(t, a, 1)
    known = [0 if k == a.axis else int(t.graph.value[int(s)]) for k, s in enumerate(starts)]
    sizes = [1 if k == a.axis else n for k, n in enumerate(p.slice_sizes)]
    known = [min(max(s, 0), m - n) for s, m, n in zip(known, a.ids.shape, sizes, strict=True)]
    ids = a.ids[tuple(slice(s, s + n) for s, n in zip(known, sizes, strict=True))]
    n = p.slice_sizes[a.axis]
    return [Wide(t.each(lambda v: _window(t, v, start, n), ids), a.axis, n)]


@wide_rule("dynamic_update_slice")
def _dynamic_update_slice(t: Tracer, p, a: Array, update: Array, *starts: Array):
    a, update, alg = settled(t, a), settled(t, update), t.algebra
    start = _moving(t, p, a, starts, update.shape)
    if start is None:
        return _moved(t, p, a, update, *starts)
    n, m = a.shape[a.axis], update.shape[a.axis]
    if not isinstance(update, Wide) or update.axis != a.axis or update.size // m != a.size // n:
        raise Unsupported(p.name, "of a part of a long axis")
    place = constant_vector(t.graph, np.arange(n), "i8")
    low = alg.compare("ge", place, start)
    inside = alg.bits("and", low, alg.compare("lt", place, alg.add(start, alg.const(m, "i8"))))
    before = alg.neg(start)
    old, new = dealt(t, a, 1), dealt(t, update, 1)
    ids = t.each(lambda v, u: alg.select(inside, _window(t, u, before, n), v), old.ids, new.ids)
    return [Wide(ids, a.axis, n)]


@wide_rule("scatter-add", "scatter_add")
def _scatter_add(t: Tracer, p, a: Array, indices: Array, updates: Array):
    """Sums over constant places; each element adds its updates in their order."""
    index = _known(t, indices)
    if index is None:
        raise Unsupported("scatter-add", "on a long axis, at places that depend on data")
    d, g, kind = p.dimension_numbers, t.graph, type_of(p.outs[0].dtype)
    a, updates = settled(t, a), settled(t, updates)
    window_axes = list(d.update_window_dims)
    codes = explode(t, updates)
    codes = np.transpose(codes, [*(k for k in range(codes.ndim) if k not in window_axes), *window_axes])
    inserted = sorted([*d.inserted_window_dims, *d.operand_batching_dims])
    everywhere = np.arange(a.size).reshape(a.shape)
    lists: list[list[int]] = [[] for _ in range(a.size)]
    for place in np.ndindex(*index.shape[:-1]):
        window = np.expand_dims(codes[place], inserted) if inserted else codes[place]
        start = [0] * a.ndim
        for axis, k in zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True):
            start[axis] = place[k]
        for j, k in enumerate(d.scatter_dims_to_operand_dims):
            start[k] = int(index[(*place, j)])
        if p.mode == GatherScatterMode.CLIP:
            start = [min(max(s, 0), m - w) for s, m, w in zip(start, a.shape, window.shape, strict=True)]
        elif any(s < 0 or s + w > m for s, m, w in zip(start, a.shape, window.shape, strict=True)):
            continue
        targets = everywhere[tuple(slice(s, s + w) for s, w in zip(start, window.shape, strict=True))]
        for target, code in zip(targets.ravel().tolist(), window.ravel().tolist(), strict=True):
            if code != g.zero[kind]:
                lists[target].append(code)
    axis = t.axes.find(a.shape)
    if axis is None:
        if sum(map(len, lists)) > SMALL:
            raise Unsupported("scatter-add", "of a long axis to a short one")
        old = t.each(lambda n: n, a).ravel().tolist()
        out = [t.algebra.fold_tree(t.algebra.add, [n, *(element_of(g, c) for c in more)])
               for n, more in zip(old, lists, strict=True)]  # fmt: skip
        return [np.array(out, np.int64).reshape(a.shape)]
    rows = np.moveaxis(everywhere, axis, -1)
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
    """How many rows of places there are to add; none where a vector stays as it is."""
    rows, n = places.shape
    return 0 if rows == 1 and n == length and (places[0] == np.arange(n)).all() else rows


def _rounds(targets: list[int], lists: list[list[int]]) -> dict[int, np.ndarray]:
    """For each source, the places that each target adds, as rows that are -1 where there are no more."""
    found: dict[int, tuple[list[int], list[int], list[int]]] = {}  # rows, targets and places of a source
    seen: dict[tuple[int, int], int] = {}  # places that a target has of a source so far
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


# -- numbers ---------------------------------------------------------------------------------------


@wide_rule("iota")
def _iota(t: Tracer, p, *dynamic):
    shape = [1] * len(p.shape)
    shape[p.dimension] = -1
    numbers = np.arange(p.shape[p.dimension]).astype(p.dtype).reshape(shape)
    return [t.literal(np.broadcast_to(numbers, p.shape))]


@wide_rule("iota_2x32_shape")
def _iota_2x32(t: Tracer, p):
    count = np.arange(int(np.prod(p.shape)), dtype=np.uint64)
    out = []
    for words in ((count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)):
        n = constant_vector(t.graph, words, "u4")
        out.append(Wide(np.array([n], np.int64), 0, len(words), None, tuple(p.shape)))
    return out


@wide_rule("random_bits")
def _random_bits(t: Tracer, p, keys: Array):
    impl = p.ins[0].dtype._impl
    if impl.key_shape != (2,) or keys.size != 1:
        raise Unsupported("random_bits", "on a long axis")
    closed = jax.make_jaxpr(lambda k: impl.random_bits(k, p.bit_width, p.shape))(jax.ShapeDtypeStruct((2,), np.uint32))
    (out,) = t.run(closed, [np.array(t.graph.args[int(keys.ravel()[0])], np.int64)])
    return (
        [out]
        if not keys.shape
        else [assemble(t, explode(t, out).reshape((*keys.shape, *p.shape)), f"u{p.bit_width // 8}")]
    )
