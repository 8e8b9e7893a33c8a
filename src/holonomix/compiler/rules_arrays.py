"""Rules for whole arrays: shapes, sums, products, searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..trace.jaxprs import Params
from ..trace.moves import product_factors, reduction_groups
from ..trace.primitives import TABLE, Dependence
from .graph import BOOL, FLOATS, Unsupported, dtype_of, type_of
from .trace import Array, Tracer, rule


def _rearrange(name: str, move: Callable[..., Any]):
    def fn(t: Tracer, p: Params, *arrays: Array):
        out = move(p, *arrays)
        return out if isinstance(out, list) else [out]

    rule(name, honors=TABLE[name].reads)(fn)


for _row in list(TABLE.values()):
    if _row.dependence is Dependence.MOVE and _row.reads and _row.evaluate is not None:
        _rearrange(_row.name, _row.evaluate)


@rule("empty", "zeros_like", "empty2", honors="shape dtype")
def _zeros(t: Tracer, p: Params, *like: Array):
    out = p.outs[0]
    return [np.full(out.shape, t.graph.zero[type_of(out.dtype)], np.int64)]


@rule("iota", honors="dtype shape dimension")
def _iota(t: Tracer, p: Params, *dynamic: Array):
    shape = [1] * len(p.shape)
    shape[p.dimension] = -1
    numbers = np.arange(p.shape[p.dimension]).astype(p.dtype).reshape(shape)
    return [np.broadcast_to(t.literal(numbers), p.shape)]


# -- products --------------------------------------------------------------------------------------


@rule("dot_general", honors="dimension_numbers")
def _dot_general(t: Tracer, p: Params, a: Array, b: Array):
    """Sums of products; only products of two structural non-zeros are formed."""
    kind = type_of(p.outs[0].dtype)
    if type_of(p.ins[0].dtype) != kind:
        a = t.each(lambda n: t.algebra.convert(n, kind), a)
    if type_of(p.ins[1].dtype) != kind:
        b = t.each(lambda n: t.algebra.convert(n, kind), b)
    left, right, shape = product_factors(p, a, b)
    zero = t.graph.zero[kind]
    out = np.full((*left.shape[:2], right.shape[1]), zero, np.int64)
    mul, total = t.algebra.mul, t.algebra.fold_tree
    for s in range(left.shape[0]):
        by_inner: list[list[tuple[int, int]]] = [[] for _ in range(right.shape[2])]
        for j, k in np.argwhere(right[s] != zero).tolist():
            by_inner[k].append((j, int(right[s, j, k])))
        for i in range(left.shape[1]):
            row = left[s, i]
            terms: dict[int, list[int]] = {}
            for k in np.flatnonzero(row != zero).tolist():
                x = int(row[k])
                for j, y in by_inner[k]:
                    terms.setdefault(j, []).append(mul(x, y))
            for j, items in terms.items():
                out[s, i, j] = total(t.algebra.add, items)
    return [out.reshape(shape)]


@rule("triangular_solve", honors="left_side lower transpose_a conjugate_a unit_diagonal")
def _triangular_solve(t: Tracer, p: Params, a: Array, b: Array):
    if a.ndim != 2 or p.conjugate_a:
        raise Unsupported("triangular_solve")
    alg, n = t.algebra, a.shape[0]
    if not p.left_side:  # x a = b  is  a^T x^T = b^T
        a, b = a.T, b.T
    lower = p.lower == p.left_side
    if p.transpose_a:
        a, lower = a.T, not lower
    x = np.array(b)
    for i in range(n) if lower else range(n - 1, -1, -1):
        for j in range(i) if lower else range(i + 1, n):
            if a[i, j] != t.graph.zero[t.graph.kind[int(a[i, j])]]:
                x[i] = t.each(lambda r, c, s: alg.sub(r, alg.mul(c, s)), x[i], a[i, j], x[j])
        if not p.unit_diagonal:
            x[i] = t.each(alg.div, x[i], a[i, i])
    return [x if p.left_side else x.T]


@rule("custom_linear_solve", honors="const_lengths jaxprs")
def _custom_linear_solve(t: Tracer, p: Params, *args: Array):
    counts = list(p.const_lengths)
    starts = np.cumsum([0, *counts])
    solve = list(p.const_lengths._fields).index("solve")
    consts = args[starts[solve] : starts[solve + 1]]
    return t.run(p.jaxprs.solve, [*consts, *args[starts[-1] :]])


# -- reductions ------------------------------------------------------------------------------------


@rule("reduce_sum", honors="axes")
def _reduce_sum(t: Tracer, p: Params, a: Array):
    zero = t.graph.zero[type_of(p.outs[0].dtype)]
    rows, shape = reduction_groups(a, p.axes)
    out = np.full(len(rows), zero, np.int64)
    mask = rows != zero
    for i in np.flatnonzero(mask.any(axis=1)).tolist():
        out[i] = t.algebra.fold_tree(t.algebra.add, rows[i][mask[i]].tolist())
    return [out.reshape(shape)]


def _reducer(name: str, start: Callable[[str], Any], method: str, *prefix: str):
    def fn(t: Tracer, p: Params, a: Array):
        kind = type_of(p.outs[0].dtype)
        call = getattr(t.algebra, method)
        rows, shape = reduction_groups(a, p.axes)
        if rows.shape[1] == 0:
            return [np.full(shape, t.algebra.const(start(kind), kind), np.int64)]
        out = [t.algebra.fold_tree(lambda x, y: call(*prefix, x, y), row.tolist()) for row in rows]
        return [np.array(out, np.int64).reshape(shape)]

    rule(name, honors="axes")(fn)


def _lowest(kind: str):
    return False if kind == BOOL else -np.inf if kind in FLOATS else np.iinfo(dtype_of(kind)).min


def _highest(kind: str):
    return True if kind == BOOL else np.inf if kind in FLOATS else np.iinfo(dtype_of(kind)).max


_reducer("reduce_prod", lambda k: 1, "mul")
_reducer("reduce_max", _lowest, "extremum", "max")
_reducer("reduce_min", _highest, "extremum", "min")
_reducer("reduce_and", lambda k: True if k == BOOL else -1, "bits", "and")
_reducer("reduce_or", lambda k: 0, "bits", "or")
_reducer("reduce_xor", lambda k: 0, "bits", "xor")


def _search(name: str, better: str):
    def fn(t: Tracer, p: Params, a: Array):
        """The first place of the extreme value; a NaN counts as extreme."""
        alg, kind = t.algebra, type_of(p.index_dtype)
        rows, shape = reduction_groups(a, p.axes)
        out = []
        for row in rows:
            best, where = int(row[0]), alg.const(0, kind)
            for k, n in enumerate(row.tolist()[1:], 1):
                wins = alg.compare(better, n, best)
                if t.graph.kind[n] in FLOATS:
                    fresh_nan = alg.bits("and", alg.compare("ne", n, n), alg.compare("eq", best, best))
                    wins = alg.bits("or", wins, fresh_nan)
                best, where = alg.select(wins, n, best), alg.select(wins, alg.const(k, kind), where)
            out.append(where)
        return [np.array(out, np.int64).reshape(shape)]

    rule(name, honors="axes index_dtype")(fn)


_search("argmax", "gt")
_search("argmin", "lt")


@rule("reduce", honors="computation jaxpr dimensions")
def _reduce(t: Tracer, p: Params, *arrays: Array):
    """A reduction by any function of scalars, element after element, beginning with the initial values."""
    count = len(arrays) // 2
    groups = [reduction_groups(a, p.dimensions)[0] for a in arrays[:count]]
    out = []
    for row in range(len(groups[0])):
        state = list(arrays[count:])
        for k in range(groups[0].shape[1]):
            state = t.run(p.jaxpr, [*state, *(rows[row, k] for rows in groups)])
        out.append([int(x) for x in state])
    return [np.array([r[j] for r in out], np.int64).reshape(p.outs[j].shape) for j in range(count)]


def _cumulative(name: str, method: str, *prefix: str):
    def fn(t: Tracer, p: Params, a: Array):
        call = getattr(t.algebra, method)
        rows = np.moveaxis(np.array(a), p.axis, 0)
        rows = rows[::-1] if p.reverse else rows
        for k in range(1, len(rows)):
            rows[k] = t.each(lambda x, y: call(*prefix, x, y), rows[k - 1], rows[k])
        return [np.moveaxis(rows[::-1] if p.reverse else rows, 0, p.axis)]

    rule(name, honors="axis reverse")(fn)


_cumulative("cumsum", "add")
_cumulative("cumprod", "mul")
_cumulative("cummax", "extremum", "max")
_cumulative("cummin", "extremum", "min")


@rule("sort", honors="dimension num_keys")
def _sort(t: Tracer, p: Params, *arrays: Array):
    """Insertion by neighbors: stable, n^2/2 comparisons, for short arrays."""
    alg = t.algebra
    length = arrays[0].shape[p.dimension]
    if length > 32:
        raise Unsupported("sort", f"of {length} elements")
    if not arrays[0].size:
        return list(arrays)
    moved = [np.moveaxis(np.array(a), p.dimension, -1) for a in arrays]
    columns = [m.reshape(-1, length) for m in moved]

    def before(x: list[int], y: list[int]) -> int:
        result = alg.const(False, BOOL)
        for a, b in reversed(list(zip(x[: p.num_keys], y[: p.num_keys], strict=True))):
            less, equal = alg.compare("lt", a, b), alg.compare("eq", a, b)
            if t.graph.kind[a] in FLOATS:  # NaNs come last
                nan_a, nan_b = alg.compare("ne", a, a), alg.compare("ne", b, b)
                less = alg.bits("or", less, alg.bits("and", nan_b, alg.invert(nan_a)))
                equal = alg.bits("or", equal, alg.bits("and", nan_a, nan_b))
            result = alg.bits("or", less, alg.bits("and", equal, result))
        return result

    for r in range(columns[0].shape[0]):
        for end in range(1, length):
            for k in range(end, 0, -1):
                x, y = [int(c[r, k - 1]) for c in columns], [int(c[r, k]) for c in columns]
                swap = before(y, x)
                for c, a, b in zip(columns, x, y, strict=True):
                    c[r, k - 1], c[r, k] = alg.select(swap, b, a), alg.select(swap, a, b)
    return [np.moveaxis(c.reshape(m.shape), -1, p.dimension) for c, m in zip(columns, moved, strict=True)]
