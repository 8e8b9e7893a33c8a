"""Rules for multifrontal elimination: its arrays stay in memory, and its functions become part of the kernel."""

from __future__ import annotations

import numpy as np

from ..trace.jaxprs import Params
from ..trace.primitives import add_rows
from .graph import FRONTS, Unsupported
from .trace import Array, Tracer, rule, wide_rule
from .wide import Wide, dealt, settled

add_rows("multifrontal_factor multifrontal_solve multifrontal_shorten")


def _in_memory(t: Tracer, array: Array) -> int:
    """The node whose memory holds the elements of a 1D array: the one they were loaded from, or a new table."""
    g = t.graph
    if isinstance(array, Wide):
        v = int(dealt(t, settled(t, array), 1).ids.ravel()[0])
        if not g.length[v]:
            raise Unsupported("multifrontal elimination", "of equal numbers")
        return v
    flat = array.ravel().tolist()
    if g.op[flat[0]] == "load":
        source = g.args[flat[0]][0]
        places = [g.args[m][1] if g.op[m] == "load" and g.args[m][0] == source else -1 for m in flat]
        size = g.length[source] or (g.attr[source][0] if g.op[source] in FRONTS else len(g.args[source]))
        if size == len(flat) and [g.value.get(m, -1) for m in places] == list(range(size)):
            return source
    return g.node("table", tuple(flat), "f8", None, 0)


def _made(t: Tracer, op: str, args: tuple[int, ...], size: int, *attr: object) -> Array:
    """A node of an operation whose result is in memory, and the array of its elements."""
    g = t.graph
    long = t.axes.find((size,)) is not None
    n = g.node(op, args, "f8", (size, *attr), size if long else 0)
    if long:
        return Wide(np.array([n], np.int64), 0, size)
    places = (g.constant(k, "i8") for k in range(size))
    loads = (g.append("load", (n, k), "f8", None, g.scope[n]) for k in places)
    return np.fromiter(loads, np.int64, size)


@wide_rule("multifrontal_factor")
@rule("multifrontal_factor", honors="plan symmetric threshold")
def _factor(t: Tracer, p: Params, entries: Array):
    return [_made(t, "ffactor", (_in_memory(t, entries),), p.plan.factor, p.plan, p.symmetric, p.threshold)]


@wide_rule("multifrontal_solve")
@rule("multifrontal_solve", honors="plan transposed")
def _solve(t: Tracer, p: Params, factors: Array, b: Array):
    return [_made(t, "fsolve", (_in_memory(t, factors), _in_memory(t, b)), p.plan.n, p.plan, p.transposed)]


@wide_rule("multifrontal_shorten")
@rule("multifrontal_shorten", honors="plan")
def _shorten(t: Tracer, p: Params, entries: Array, factors: Array, x: Array):
    args = tuple(_in_memory(t, a) for a in (entries, factors, x))
    return [_made(t, "fshorten", args, p.plan.n, p.plan)]
