"""Which particles each result of a program depends on, read from its equations.

A particle is an entry of the first axis of q. The dependence of an array is a boolean matrix, its entries by the
particles, held sparse. It is carried through the program from equation to equation: moves of entries (slices, gathers,
reshapes) move its rows, sums unite them, products with a constant matrix follow that matrix's zeros. An operation
without a rule of its own makes every result depend on all that went in, which is safe and finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import scipy
from jax.core import Tracer
from jax.extend import core as jex_core
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jaxtyping import PyTree

from .jaxprs import called

# Results of a number each: every entry of the result belongs to the entries of the arguments at the same place.
ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy cos cosh
    div eq erf erfc exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max min mul ne neg
    nextafter not or pow real reduce_precision rem round rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan
    tanh xor""".split()
)
REDUCTIONS = frozenset("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or".split())

Known = np.ndarray | None


class Value:
    """An array of a program: its dependence (None: on nothing) and its value, where that is known.

    `argument` is the number of the program's argument that it is; `made` the equation that it comes from, the
    arguments of that, and which of its results it is.
    """

    def __init__(
        self,
        shape: Sequence[int],
        rows: Any = None,
        known: Known = None,
        argument: int | None = None,
    ):
        self.shape, self.rows, self.known, self.argument = tuple(shape), rows, known, argument
        self.made: tuple[Any, list[Value], int] | None = None

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def dependence(closed: ClosedJaxpr, which: int) -> Any:
    """The dependence of a program's first result on its argument number `which`, a SciPy CSR matrix."""
    return traced_result(closed, which).rows


def traced_result(closed: ClosedJaxpr, which: int) -> Value:
    """A program's first result with its dependence on argument number `which`, and all that it is made from."""
    jaxpr = closed.jaxpr
    shape = jaxpr.invars[which].aval.shape
    count = shape[0] if shape else 1
    per = int(np.prod(shape[1:], dtype=np.int64))
    size = count * per
    unit = scipy.sparse.csr_array((np.ones(size, bool), (np.arange(size), np.arange(size) // per)), shape=(size, count))
    values = [Value(v.aval.shape, unit if k == which else None, None, k) for k, v in enumerate(jaxpr.invars)]
    with jax.ensure_compile_time_eval():
        result = _run(jaxpr, [_constant(c) for c in closed.consts], values, count)[0]
    result.rows = _rows(result, count)
    return result


def _constant(value: PyTree) -> Value:
    known = None if isinstance(value, Tracer) or not hasattr(value, "shape") else np.asarray(value)
    return Value(np.shape(value), None, known)


def _rows(value: Value, count: int) -> Any:
    return scipy.sparse.csr_array((value.size, count), dtype=bool) if value.rows is None else value.rows


def _run(jaxpr: Jaxpr, consts: list[Value], values: list[Value], count: int) -> list[Value]:
    held: dict[Any, Value] = {}

    def read(x: Var | Literal) -> Value:
        return Value(np.shape(x.val), None, np.asarray(x.val)) if isinstance(x, jex_core.Literal) else held[x]

    for var, value in zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values), strict=True):
        held[var] = value
    for eqn in jaxpr.eqns:
        for var, value in zip(eqn.outvars, _apply(eqn, [read(x) for x in eqn.invars], count), strict=True):
            held[var] = value
    return [read(x) for x in jaxpr.outvars]


def _apply(eqn: JaxprEqn, ins: list[Value], count: int) -> list[Value]:
    name = eqn.primitive.name
    shapes = [v.aval.shape for v in eqn.outvars]  # pyright: ignore[reportAttributeAccessIssue]
    inner = called(eqn)
    if inner is not None:
        return _run(inner.jaxpr, [_constant(c) for c in inner.consts], ins, count)
    outs = _results(eqn, name, ins, shapes, count)
    for k, value in enumerate(outs):
        value.made = (eqn, ins, k)
    return outs


def _results(eqn: JaxprEqn, name: str, ins: list[Value], shapes: list[Any], count: int) -> list[Value]:
    if all(x.rows is None for x in ins):
        return _evaluated(eqn, ins, shapes)
    if name in ELEMENTWISE:
        return [Value(shapes[0], _union([_spread(x, shapes[0]) for x in ins if x.rows is not None]))]
    if name in MOVES and all(x.known is not None for x in ins[1:]) and ins[0].rows is not None:
        return [Value(shapes[0], _picked(ins[0].rows, moved(eqn, ins)))]
    if name in JOINS:
        rows = scipy.sparse.vstack([_rows(x, count) for x in ins], format="csr")
        return [Value(shapes[0], _picked(rows, joined(eqn, ins)[0]))]
    if name in REDUCTIONS:
        places = _reduced(ins[0].shape, [int(k) for k in eqn.params["axes"]])
        return [Value(shapes[0], _gathered(places, int(np.prod(shapes[0], dtype=np.int64)), ins[0].rows))]
    if name == "dot_general":
        return [Value(shapes[0], _product(eqn, ins[0], ins[1]))]
    every = _union([x.rows.max(axis=0).tocsr().reshape(1, count) for x in ins if x.rows is not None])
    return [Value(s, scipy.sparse.csr_array(every)[np.zeros(int(np.prod(s, dtype=np.int64)), int)]) for s in shapes]


def moved(eqn: JaxprEqn, ins: list[Value]) -> np.ndarray:
    """For every entry of the result the place in the first argument that it comes from; -1: from outside."""
    places = np.arange(ins[0].size).reshape(ins[0].shape)
    return MOVES[eqn.primitive.name](eqn.params, places, *(x.known for x in ins[1:]))


def joined(eqn: JaxprEqn, ins: list[Value]) -> tuple[np.ndarray, np.ndarray]:
    """For every entry of the result its place in the concatenated arguments, and where each of these starts."""
    starts = np.cumsum([0, *(x.size for x in ins)])[:-1]
    places = [np.asarray(a + np.arange(x.size).reshape(x.shape)) for a, x in zip(starts, ins, strict=True)]
    return JOINS[eqn.primitive.name](eqn.params, *places), starts


def _evaluated(eqn: JaxprEqn, ins: list[Value], shapes: list[Any]) -> list[Value]:
    """What depends on no particle: its value, where all arguments are known."""
    if any(x.known is None for x in ins):
        return [Value(s) for s in shapes]
    if eqn.primitive.name in CONSTANTS:
        out = CONSTANTS[eqn.primitive.name](eqn.params, *(x.known for x in ins))
    else:
        out = eqn.primitive.bind(*(x.known for x in ins), **eqn.params)
    return [Value(np.shape(x), None, np.asarray(x)) for x in (out if eqn.primitive.multiple_results else [out])]


def _union(rows: list[Any]) -> Any:
    total = rows[0]
    for other in rows[1:]:
        total = total + other
    return total.astype(bool)


def _spread(x: Value, shape: tuple[int, ...]) -> Any:
    """The rows of a value as those of an array of the given shape; numbers serve every entry."""
    if x.shape == tuple(shape):
        return x.rows
    return x.rows[np.broadcast_to(np.arange(x.size).reshape(x.shape), shape).reshape(-1)]


def _picked(rows: scipy.sparse.csr_array, source: np.ndarray) -> Any:
    """The rows in another order; -1 stands for an entry from outside, which depends on nothing."""
    source = source.reshape(-1)
    picked = rows[np.maximum(source, 0)]
    if (source >= 0).all():
        return picked
    return (scipy.sparse.diags_array((source >= 0).astype(np.int8)).tocsr() @ picked).astype(bool)


def _broadcast(p: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    shape = [1] * len(p["shape"])
    for k, d in enumerate(p["broadcast_dimensions"]):
        shape[d] = x.shape[k]
    return np.broadcast_to(x.reshape(shape), p["shape"])


def _slice(p: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    steps = p["strides"] or (1,) * x.ndim
    return x[tuple(slice(*a) for a in zip(p["start_indices"], p["limit_indices"], steps, strict=True))]


def _dynamic_slice(p: Mapping[str, Any], x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    sizes = p["slice_sizes"]
    first = [min(max(int(a), 0), n - size) for a, n, size in zip(starts, x.shape, sizes, strict=True)]
    return x[tuple(slice(a, a + size) for a, size in zip(first, sizes, strict=True))]


def _gather(p: Mapping[str, Any], x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """`lax.gather` of NumPy arrays; places outside give -1, or are moved inside where the mode says so."""
    dims, sizes = p["dimension_numbers"], p["slice_sizes"]
    batch = starts.shape[:-1]
    shape = (*batch, *sizes)
    axis = lambda k: np.arange(sizes[k]).reshape([-1 if d == len(batch) + k else 1 for d in range(len(shape))])
    places, outside = [axis(k) for k in range(x.ndim)], np.zeros(shape, bool)
    for column, k in enumerate(dims.start_index_map):
        start, most = starts[..., column].astype(np.int64).reshape((*batch, *(1,) * x.ndim)), x.shape[k] - sizes[k]
        outside = outside | (start < 0) | (start > most)
        places[k] = places[k] + np.clip(start, 0, most)
    for k, b in zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True):
        places[k] = places[k] + np.arange(batch[b]).reshape([-1 if d == b else 1 for d in range(len(shape))])
    found = np.broadcast_to(x[tuple(places)], shape)
    found = found if "CLIP" in str(p["mode"]) else np.where(outside, -1, found)
    dropped = tuple(len(batch) + k for k in (*dims.collapsed_slice_dims, *dims.operand_batching_dims))
    found = found.reshape([n for d, n in enumerate(shape) if d not in dropped])
    kept = list(range(len(batch), found.ndim))
    first, rest = list(range(len(batch))), list(kept)
    order = [rest.pop(0) if d in dims.offset_dims else first.pop(0) for d in range(found.ndim)]
    return found.transpose(order)


def _pad(p: Mapping[str, Any], x: np.ndarray, fill: np.ndarray) -> np.ndarray:
    out = x
    for k, (low, high, inner) in enumerate(p["padding_config"]):
        spread = np.full([n if d != k else max(n + (n - 1) * inner, 0) for d, n in enumerate(out.shape)], fill)
        spread[tuple(slice(None, None, inner + 1) if d == k else slice(None) for d in range(out.ndim))] = out
        width = [(max(low, 0), max(high, 0)) if d == k else (0, 0) for d in range(out.ndim)]
        spread = np.pad(spread, width, constant_values=fill)
        cut = slice(max(-low, 0), spread.shape[k] - max(-high, 0))
        out = spread[tuple(cut if d == k else slice(None) for d in range(out.ndim))]
    return out


# Entries are moved, none are computed: the places of the entries are moved instead, and tell where each came from.
MOVES: dict[str, Callable[..., np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "dynamic_slice": _dynamic_slice,
    "expand_dims": lambda p, x: np.expand_dims(x, tuple(p["dimensions"])),
    "gather": _gather,
    "reshape": lambda p, x: x.reshape(p["new_sizes"]),
    "rev": lambda p, x: np.flip(x, p["dimensions"]),
    "slice": _slice,
    "squeeze": lambda p, x: np.squeeze(x, tuple(p["dimensions"])),
    "transpose": lambda p, x: x.transpose(p["permutation"]),
}
JOINS: dict[str, Callable[..., np.ndarray]] = {
    "concatenate": lambda p, *x: np.concatenate(x, axis=p["dimension"]),
    "stack": lambda p, *x: np.stack(x, axis=p["axis"]),
    "pad": _pad,
}
# Constants are computed without JAX where that is easy: it would compile a program for each operation.
CONSTANTS: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda p, a, b: a + b,
    "sub": lambda p, a, b: a - b,
    "mul": lambda p, a, b: a * b,
    "lt": lambda p, a, b: a < b,
    "ge": lambda p, a, b: a >= b,
    "eq": lambda p, a, b: a == b,
    "select_n": lambda p, c, *x: np.where(c, x[1], x[0]) if len(x) == 2 else np.choose(c, x),
    "convert_element_type": lambda p, x: x.astype(p["new_dtype"]),
    "iota": lambda p: _broadcast(
        {"shape": p["shape"], "broadcast_dimensions": (p["dimension"],)},
        np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]),
    ),
    **{name: MOVES[name] for name in MOVES if name not in ("gather", "dynamic_slice")},
    "concatenate": JOINS["concatenate"],
}


def _reduced(shape: tuple[int, ...], axes: Sequence[int]) -> np.ndarray:
    """For every entry the result that it goes to."""
    kept = [n for k, n in enumerate(shape) if k not in axes]
    result = np.arange(int(np.prod(kept, dtype=np.int64))).reshape(kept)
    for axis in sorted(axes):
        result = np.expand_dims(result, axis)
    return np.broadcast_to(result, shape).reshape(-1)


def members(shape: tuple[int, ...], axes: Sequence[int]) -> np.ndarray:
    """The entries that go to each result of a reduction, `(results, entries)`."""
    places = _reduced(shape, axes)
    return np.argsort(places, kind="stable").reshape(int(places.max(initial=-1)) + 1, -1)


def _gathered(places: np.ndarray, size: int, rows: scipy.sparse.csr_array) -> Any:
    add = scipy.sparse.csr_array(
        (np.ones(places.size, bool), (places, np.arange(places.size))), shape=(size, places.size)
    )
    return (add @ rows).astype(bool)


def factors(eqn: JaxprEqn, a: Value, b: Value) -> tuple[np.ndarray, np.ndarray]:
    """The entries that a product multiplies: `(batch, rows, inner)` of one side and `(batch, columns, inner)`."""
    (ca, cb), (ba, bb) = eqn.params["dimension_numbers"]
    free_a = [k for k in range(len(a.shape)) if k not in (*ca, *ba)]
    free_b = [k for k in range(len(b.shape)) if k not in (*cb, *bb)]
    size = lambda x, axes: int(np.prod([x.shape[k] for k in axes], dtype=np.int64))
    batch, rows, columns, inner = size(a, ba), size(a, free_a), size(b, free_b), size(a, ca)
    order = lambda x, axes: np.arange(x.size).reshape(x.shape).transpose(axes).reshape(-1)
    left = order(a, [*ba, *free_a, *ca]).reshape(batch, rows, inner)
    return left, order(b, [*bb, *free_b, *cb]).reshape(batch, columns, inner)


def _product(eqn: JaxprEqn, a: Value, b: Value) -> Any:
    """Each result depends on a row of one side and a column of the other, less what a known zero cancels."""
    left, right = factors(eqn, a, b)
    (batch, rows, inner), columns = left.shape, right.shape[1]
    result = np.arange(batch * rows * columns).reshape(batch, rows, columns)
    parts: list[Any] = []
    for one, mine, other, theirs, flip in ((a, left, b, right, False), (b, right, a, left, True)):
        if one.rows is None:
            continue
        if other.known is None:
            lines = np.arange(mine.shape[0] * mine.shape[1]).reshape(mine.shape[:2])
            united = _gathered(np.repeat(lines.reshape(-1), inner), lines.size, one.rows[mine.reshape(-1)])
            lines = lines[:, None, :] if flip else lines[:, :, None]
            parts.append(united[np.broadcast_to(lines, result.shape).reshape(-1)])
            continue
        bt, line, k = np.nonzero(other.known.reshape(-1)[theirs])
        place = (result[bt, line] if flip else result[bt, :, line]).reshape(-1)
        source = mine[bt, :, k].reshape(-1)
        add = scipy.sparse.csr_array((np.ones(place.size, bool), (place, source)), shape=(result.size, one.size))
        parts.append((add @ one.rows).astype(bool))
    return _union(parts)
