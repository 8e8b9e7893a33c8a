"""Rules for arrays with a long axis (`wide`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..trace.jaxprs import Params
from ..trace.primitives import TABLE, Dependence
from .graph import BOOL, Unsupported, type_of
from .rules_wide_places import placed
from .trace import Array, Tracer, kernel_rule, wide_rule
from .wide import Wide, assemble, constant_vector, dealt, explode, settled


def _repeated(t: Tracer, a: Wide) -> bool:
    """Whether all elements are scalars, repeated along the axis."""
    return not any(t.graph.length[int(n)] for n in a.ids.ravel())


def _elementwise(t: Tracer, p: Params, *ins: Array):
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
            outs = kernel_rule(p.name)(t, p, *flat)
            return [Wide(np.asarray(o).reshape(1), 0, whole.n, None, whole.whole) for o in outs]
        ins = tuple(settled(t, a) for a in ins)
        wides = [a for a in ins if isinstance(a, Wide)]
    lead = next((a for a in wides if not _repeated(t, a)), wides[0])
    ways = lead.ids.shape[lead.axis]
    if any(a.axis != lead.axis for a in wides):
        raise Unsupported(p.name, "on different long axes")
    ids = [dealt(t, a, ways).ids if isinstance(a, Wide) else a for a in ins]
    outs = kernel_rule(p.name)(t, p, *ids)
    return [Wide(np.asarray(o), lead.axis, lead.n) for o in outs]


@wide_rule("add", "add_any")
def _add(t: Tracer, p: Params, *ins: Array):
    """A sum of padded slices of one vector becomes one sum over places."""
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


# -- sums and products -----------------------------------------------------------------------------

_TOTALS = {
    "reduce_sum": ("rsum", "add"), "reduce_prod": ("rprod", "mul"), "reduce_max": ("rmax", "extremum", "max"),
    "reduce_min": ("rmin", "extremum", "min"), "reduce_and": ("rand", "bits", "and"),
    "reduce_or": ("ror", "bits", "or"),
}  # fmt: skip


def _total(t: Tracer, op: str, v: int, n: int) -> int:
    """The reduction of all elements of a vector, or of n equal scalars."""
    g = t.graph
    if g.length[v]:
        if g.kind[v] == BOOL:
            op = {"rmax": "ror", "rmin": "rand"}.get(op, op)
        return g.node(op, (v,), g.kind[v], None, 0)
    if op == "rsum":
        return t.algebra.mul(g.constant(n, g.kind[v]), v)
    return t.algebra.power(v, n) if op == "rprod" else v


def _reduction(name: str):
    """Register the rule of a reduction: the elements of each vector first, then the vectors of the axis."""
    op, method, *prefix = _TOTALS[name]

    def fn(t: Tracer, p: Params, a: Array):
        a = settled(t, a)
        if a.axis not in p.axes:
            (out,) = kernel_rule(name)(t, p, a.ids)
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


_STEPS = {"cumsum": jnp.add, "cumprod": jnp.multiply, "cummax": jnp.maximum, "cummin": jnp.minimum}
_STEPS |= {"argmax": jnp.greater, "argmin": jnp.less}


def _one_by_one(name: str, x: jax.Array, axis: int, p: Params) -> jax.Array:
    """cumsum, cumprod, cummax, cummin, argmax or argmin along the long axis, as a scan over its elements."""
    rows, step = jnp.moveaxis(x, axis, 0), _STEPS[name]
    if name not in ("argmax", "argmin"):
        first = rows[-1 if p.reverse else 0]
        start = jnp.zeros_like(first) if name == "cumsum" else jnp.ones_like(first) if name == "cumprod" else first

        def total(so_far: jax.Array, row: jax.Array):
            so_far = step(so_far, row)
            return so_far, so_far

        return jnp.moveaxis(jax.lax.scan(total, start, rows, reverse=p.reverse)[1], 0, axis)

    def better(best: tuple[Any, ...], numbered: tuple[Any, ...]):
        where, row = numbered
        wins = step(row, best[0]) | (jnp.isnan(row) & ~jnp.isnan(best[0]))
        return (jnp.where(wins, row, best[0]), jnp.where(wins, where, best[1])), None

    numbers = jnp.arange(len(rows)).astype(p.index_dtype)
    best = (rows[0], jnp.zeros(rows.shape[1:], p.index_dtype))
    return jax.lax.scan(better, best, (numbers, rows))[0][1]


def _along(name: str, axes_of: Callable[[Params], Sequence[int]]):
    """Primitives along one of the short axes, and some along the long one."""

    def fn(t: Tracer, p: Params, *ins: Array):
        ins = tuple(settled(t, a) for a in ins)
        lead = next(a for a in ins if isinstance(a, Wide))
        axes = axes_of(p)
        if lead.axis in axes and name in _STEPS and len(ins) == 1:
            closed = jax.make_jaxpr(lambda x: _one_by_one(name, x, lead.axis, p))(
                jax.ShapeDtypeStruct(lead.shape, p.ins[0].dtype)
            )
            return t.run(closed, [lead])
        if lead.axis in axes or not all(isinstance(a, Wide) for a in ins):
            raise Unsupported(name, "along a long axis")
        ids = [dealt(t, a, lead.ids.shape[lead.axis]).ids for a in ins]
        gone = sum(1 for d in axes if d < lead.axis) if name in ("argmax", "argmin") else 0
        return [Wide(np.asarray(o), lead.axis - gone, lead.n) for o in kernel_rule(name)(t, p, *ids)]

    wide_rule(name)(fn)


for _name in ("cumsum", "cumprod", "cummax", "cummin"):
    _along(_name, lambda p: (p.axis,))
for _name in ("argmax", "argmin"):
    _along(_name, lambda p: tuple(p.axes))
_along("sort", lambda p: (p.dimension,))


@wide_rule("dot_general")
def _dot_general(t: Tracer, p: Params, a: Array, b: Array):
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
    (out,) = kernel_rule("dot_general")(t, p, *(x.ids if isinstance(x, Wide) else x for x in (a, b)))
    axis = t.axes.find(p.outs[0].shape)
    if isinstance(a, Wide) and a.axis in ca:
        return [t.each(lambda n: _total(t, "rsum", n, lead.n), out)]
    assert axis is not None
    return [Wide(out, axis, lead.n)]


# -- numbers ---------------------------------------------------------------------------------------


@wide_rule("iota")
def _iota(t: Tracer, p: Params, *dynamic: Array):
    shape = [1] * len(p.shape)
    shape[p.dimension] = -1
    numbers = np.arange(p.shape[p.dimension]).astype(p.dtype).reshape(shape)
    return [t.literal(np.broadcast_to(numbers, p.shape))]


@wide_rule("iota_2x32_shape")
def _iota_2x32(t: Tracer, p: Params):
    count = np.arange(int(np.prod(p.shape)), dtype=np.uint64)
    out = []
    for words in ((count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)):
        n = constant_vector(t.graph, words, "u4")
        out.append(Wide(np.array([n], np.int64), 0, len(words), None, tuple(p.shape)))
    return out


@wide_rule("random_bits")
def _random_bits(t: Tracer, p: Params, keys: Array):
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


for _row in list(TABLE.values()):
    if _row.dependence is Dependence.ELEMENTWISE and _row.wide is None:
        wide_rule(_row.name)(_elementwise)
