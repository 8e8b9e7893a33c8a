"""Find which particles each result of a program depends on, from its equations.

A particle is an entry of the first axis of q. The dependence of an array is a boolean matrix, its entries by the
particles, held sparse. It is carried through the program from equation to equation: moves of entries (slices, gathers,
reshapes) move its rows, sums unite them, products with a constant matrix follow that matrix's zeros. The table of
primitives tells which of these an operation does. The default is conservative: results depend on all arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import scipy
from jax.core import Tracer
from jax.extend import core as jex_core
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jaxtyping import PyTree

from .jaxprs import Equation, Params, called
from .moves import product_factors, reduction_groups
from .primitives import TABLE, Dependence, evaluate_equation

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

    @property
    def places(self) -> np.ndarray:
        """The number of each entry, in an array of this shape."""
        return np.arange(self.size).reshape(self.shape)


def dependence(closed: ClosedJaxpr, which: int) -> Any:
    """The dependence of a program's first result on its argument number `which`, a SciPy CSR matrix."""
    return traced_result(closed, which).rows


def traced_result(closed: ClosedJaxpr, which: int) -> Value:
    """A program's first result with its dependence on argument number `which` and the values it is computed from."""
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


def _apply(eqn: Equation, ins: list[Value], count: int) -> list[Value]:
    inner = called(eqn)
    if inner is not None:
        return _run(inner.jaxpr, [_constant(c) for c in inner.consts], ins, count)
    p = Params(eqn)
    if all(x.rows is None for x in ins):
        outs = _evaluated(p, ins)
    else:
        outs = [Value(v.shape, rows) for v, rows in zip(p.outs, _dependence(p, ins, count), strict=True)]
    for k, value in enumerate(outs):
        value.made = (eqn, ins, k)
    return outs


def _evaluated(p: Params, ins: list[Value]) -> list[Value]:
    """Results that depend on no particle, with their values where all arguments are known."""
    known = [x.known for x in ins if x.known is not None]
    if len(known) < len(ins):
        return [Value(v.shape) for v in p.outs]
    return [Value(np.shape(x), None, x) for x in evaluate_equation(p, known, exact=True)]


def _dependence(p: Params, ins: list[Value], count: int) -> list[Any]:
    """The dependence of each result."""
    shapes = [v.shape for v in p.outs]
    kind = dependence_kind(p.name)
    if kind is Dependence.ELEMENTWISE:
        return [_union([_spread(x, s) for x in ins if x.rows is not None]) for s in shapes]
    if kind is Dependence.MOVE and (source := moved(p, ins)) is not None:
        values, _, places = source
        rows = [_rows(x, count) for x in values]
        rows = rows[0] if len(rows) == 1 else scipy.sparse.vstack(rows, format="csr")
        return [_picked(rows, x) for x in places]
    if kind is Dependence.REDUCTION:
        return [_added(reduction_groups(ins[0].places, p.axes)[0], ins[0].rows)]
    if kind is Dependence.PRODUCT:
        return [_product(p, ins[0], ins[1])]
    every = _union([x.rows.max(axis=0).tocsr().reshape(1, count) for x in ins if x.rows is not None])
    return [scipy.sparse.csr_array(every)[np.zeros(int(np.prod(s, dtype=np.int64)), int)] for s in shapes]


def dependence_kind(name: str) -> Dependence:
    return TABLE[name].dependence if name in TABLE else Dependence.ALL


def moved(p: Params, ins: list[Value]) -> tuple[list[Value], np.ndarray, list[np.ndarray]] | None:
    """The sources of the entries of each result; None if they are not known before the program runs.

    Returns the arguments that entries are moved from, the offset of each of them in their concatenation, and for each
    result the places of its entries in it; -1 marks a fill value.
    """
    row = TABLE[p.name]
    which = range(len(ins)) if row.values is None else row.values
    values = [ins[k] for k in which]
    starts = np.cumsum([0, *(x.size for x in values)])[:-1]
    numbered = iter([a + x.places for a, x in zip(starts, values, strict=True)])
    arguments = [next(numbered) if k in which else x.known for k, x in enumerate(ins)]
    if row.evaluate is None or any(x is None for x in arguments):
        return None
    found = row.evaluate(p.override(fill_value=-1), *arguments)
    return None if found is None else (values, starts, found if isinstance(found, list) else [found])


def _union(rows: list[Any]) -> Any:
    total = rows[0]
    for other in rows[1:]:
        total = total + other
    return total.astype(bool)


def _spread(x: Value, shape: tuple[int, ...]) -> Any:
    """The rows of a value as those of an array of the given shape; a single number serves every entry."""
    return x.rows if x.shape == tuple(shape) else x.rows[np.broadcast_to(x.places, shape).reshape(-1)]


def _picked(rows: scipy.sparse.csr_array, source: np.ndarray) -> Any:
    """The rows in another order; -1 marks a fill value, which depends on nothing."""
    source = source.reshape(-1)
    picked = rows[np.maximum(source, 0)]
    if (source >= 0).all():
        return picked
    return (scipy.sparse.diags_array(source >= 0, dtype=np.int8).tocsr() @ picked).astype(bool)


def _added(groups: np.ndarray, rows: scipy.sparse.csr_array) -> Any:
    """The union of the rows of each group."""
    count, each = groups.shape
    add = scipy.sparse.csr_array(
        (np.ones(groups.size, bool), groups.reshape(-1), np.arange(count + 1) * each), shape=(count, rows.shape[0])
    )
    return (add @ rows).astype(bool)


def _product(p: Params, a: Value, b: Value) -> Any:
    """Each result depends on a row of one side and a column of the other, except for factors that are known zeros."""
    left, right, _ = product_factors(p, a.places, b.places)
    (batch, rows, inner), columns = left.shape, right.shape[1]
    result = np.arange(batch * rows * columns).reshape(batch, rows, columns)
    parts: list[Any] = []
    for one, mine, other, theirs, flip in ((a, left, b, right, False), (b, right, a, left, True)):
        if one.rows is None:
            continue
        if other.known is None:
            lines = np.arange(mine.shape[0] * mine.shape[1]).reshape(mine.shape[:2])
            united = _added(mine.reshape(-1, inner), one.rows)
            lines = lines[:, None, :] if flip else lines[:, :, None]
            parts.append(united[np.broadcast_to(lines, result.shape).reshape(-1)])
            continue
        bt, line, k = np.nonzero(other.known.reshape(-1)[theirs])
        place = (result[bt, line] if flip else result[bt, :, line]).reshape(-1)
        source = mine[bt, :, k].reshape(-1)
        add = scipy.sparse.csr_array((np.ones(place.size, bool), (place, source)), shape=(result.size, one.size))
        parts.append((add @ one.rows).astype(bool))
    return _union(parts)
