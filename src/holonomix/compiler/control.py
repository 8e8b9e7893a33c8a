"""Rules for `while`, `scan` and `cond`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..trace.jaxprs import Params, scan_counts
from .carry_reuse import carry_over, rebuild, remember
from .graph import Branches, Loop, Unsupported, type_of
from .trace import Array, Tracer, Typed, rule
from .wide import Wide, assemble, dealt, explode, matched, settled

UNROLL = 400  # a scan of at most so many operations in all is unrolled
SELECT = 24  # a cond with at most so many operations in all branches becomes selects


def _invariants(params: list[int], results: list[int], starts: list[int]) -> dict[int, int]:
    """Carried values that never change, with their start."""
    return {
        j: s for j, (p, r, s) in enumerate(zip(params, results, starts, strict=True)) if p != s and r in (p, s)
    }  # fmt: skip


def _fresh(t: Tracer, starts: list[int], lengths: list[int], fixed: dict[int, int]) -> list[int]:
    """New parameters, but for those that are known not to change."""
    kind = t.graph.kind
    return [
        fixed[j] if j in fixed else t.graph.param(kind[s], n)
        for j, (s, n) in enumerate(zip(starts, lengths, strict=True))
    ]


@rule("while", honors="cond_nconsts cond_jaxpr body_nconsts body_jaxpr")
def _while(t: Tracer, p: Params, *args: Array):
    nc, nb = p.cond_nconsts, p.body_nconsts
    cond_consts, body_consts, init = args[:nc], args[nc : nc + nb], [settled(t, a) for a in args[nc + nb :]]
    starts, lengths = t.scalars(init), t.lengths(init)
    fixed: dict[int, int] = {}
    inner, outer = p.body_jaxpr.jaxpr.invars[nb:], p.body_jaxpr.jaxpr.outvars
    at = 0
    for array, i, o in zip(init, inner, outer, strict=True):  # carried values that the body returns unchanged
        count = len(t.scalars([array]))
        if i is o:
            fixed.update((j, starts[j]) for j in range(at, at + count))
        at += count
    while True:
        first = len(t.graph.op)
        scope = t.graph.enter()
        params = _fresh(t, starts, lengths, fixed)
        carry = t.unscalars(params, init)
        (test,) = t.run(p.cond_jaxpr, [*cond_consts, *carry])
        after = t.run(p.body_jaxpr, [*body_consts, *carry])
        go, after = _one_test(t, test, carry, after) if test.ndim else (int(test), after)
        results = t.scalars(matched(t, after, init))
        t.graph.leave()
        if go in t.graph.value and not t.graph.value[go]:
            return init
        found = _invariants(params, results, starts)
        if not found:
            break
        fixed.update(found)
    moving = [j for j in range(len(starts)) if j not in fixed]
    loop = Loop(scope, [params[j] for j in moving], go, [results[j] for j in moving])
    node, projections = close_loop(t, loop, [starts[j] for j in moving], first)
    out = list(starts)
    for j, n in zip(moving, projections, strict=True):
        out[j] = n
    return t.unscalars(out, init)


def _one_test(t: Tracer, tests: Array, before: list[Array], after: list[Array]) -> tuple[int, list[Array]]:
    """A loop under `vmap` has a test for each element. It runs while any holds, and only those elements change."""
    if any(isinstance(x, Wide) for x in (tests, *before, *after)):
        raise Unsupported("while", "with a test for each element, on a long axis")
    chosen = []
    for old, new in zip(before, after, strict=True):
        mask = np.broadcast_to(tests.reshape(tests.shape + (1,) * (old.ndim - tests.ndim)), old.shape)
        chosen.append(t.each(t.algebra.select, mask, new, old))
    tests = list(dict.fromkeys(tests.ravel().tolist()))
    return t.algebra.fold_tree(lambda x, y: t.algebra.bits("or", x, y), tests), chosen


def close_loop(t: Tracer, loop: Loop, starts: list[int], first: int) -> tuple[int, list[int]]:
    """Add what the loop should carry over to its parameters, and make its node and its results."""
    g = t.graph
    count = len(starts)
    before = {n: g.args[n] for n in range(first, len(g.op))}
    extra = carry_over(t, loop, first)
    begin = dict(zip(loop.params, starts, strict=True))
    for n, (p, end) in extra.items():
        begin[n] = rebuild(t, n, begin, before[n])
        loop.params.append(p)
        loop.results.append(end)
    node = g.structured("while", (*starts, *(begin[n] for n in extra)), loop)
    out = [g.node("proj", (node,), g.kind[p], k, g.length[p]) for k, p in enumerate(loop.params)]
    after = dict(zip(loop.params, out, strict=True))
    for n, (p, _) in extra.items():  # the same expression after the loop is the carried value
        after[n] = after[p]
        remember(g, n, [after.get(a, a) for a in before[n]], after[p])
    return node, out[:count]


@rule("scan", honors="length jaxpr reverse num_consts num_carry unroll linear _split_transpose ft_in ft_out")
def _scan(t: Tracer, p: Params, *args: Array):
    g, a = t.graph, t.algebra
    length, body = p.length, p.jaxpr
    nc, nk = scan_counts(body, p.ins, p.outs)
    consts, init, xs = args[:nc], [settled(t, x) for x in args[nc : nc + nk]], [settled(t, x) for x in args[nc + nk :]]
    order = range(length - 1, -1, -1) if p.reverse else range(length)
    long = length in t.axes.long

    def unrolled():
        carry, rows = init, [None] * length
        for k in order:
            out = t.run(body, [*consts, *carry, *(_row(t, x, a.const(k, "i8")) for x in xs)])
            carry, rows[k] = out[:nk], out[nk:]
        ys = [_stack(t, c) for c in zip(*rows, strict=True)] if length else [_empty(v) for v in p.outs[nk:]]
        return [*carry, *ys]

    if length <= 1 or any(isinstance(x, Wide) and x.axis > 0 for x in xs):
        return unrolled()
    starts, lengths = t.scalars(init), t.lengths(init)
    fixed: dict[int, int] = {}
    while True:
        before, first = g.made, len(g.op)
        scope = g.enter()
        counter = g.param("i8")
        index = a.sub(a.const(length - 1, "i8"), counter) if p.reverse else counter
        params = _fresh(t, starts, lengths, fixed)
        rows = [_row(t, x, index) for x in xs]
        out = t.run(body, [*consts, *t.unscalars(params, init), *rows])
        results, ys = t.scalars(matched(t, out[:nk], init)), out[nk:]
        go = a.compare("lt", counter, a.const(length, "i8"))
        following = a.add(counter, g.one["i8"])
        g.leave()
        if not long and ((g.made - before) * length <= UNROLL or any(isinstance(y, Wide) for y in ys)):
            return unrolled()
        found = _invariants(params, results, starts)
        if not found:
            break
        fixed.update(found)
    if long and any(isinstance(y, Wide) for y in ys):
        raise Unsupported("scan", "over a long axis, with long rows")
    moving = [j for j in range(len(starts)) if j not in fixed]
    flat = t.scalars(ys)
    inside = list(dict.fromkeys(y for y in flat if g.scope[y] is scope))
    loop = Loop(scope, [counter, *(params[j] for j in moving)], go, [following, *(results[j] for j in moving)], length)
    loop.collect = [index, *inside]
    node, projections = close_loop(t, loop, [g.zero["i8"], *(starts[j] for j in moving)], first)
    out = list(starts)
    for j, n in zip(moving, projections[1:], strict=True):
        out[j] = n
    tables = {y: g.node("collected", (node,), g.kind[y], k, length if long else 0) for k, y in enumerate(inside)}
    if long:
        stacked = t.unscalars([tables.get(y, y) for y in flat], ys)
        rows = (Wide(y[None], 0, length) if y.size else np.zeros((length, *y.shape), np.int64) for y in stacked)
        return [*t.unscalars(out, init), *rows]
    if not ys:  # nothing to stack
        return t.unscalars(out, init)
    steps = []
    for k in range(length):
        position = a.const(k, "i8")
        steps.append([g.node("load", (tables[y], position), g.kind[y], None, 0) if y in tables else y for y in flat])
    each = [t.unscalars(s, ys) for s in steps]
    return [*t.unscalars(out, init), *(np.stack(c) for c in zip(*each, strict=True))]


def _empty(aval: Typed) -> Array:
    return np.zeros(aval.shape, np.int64)


def _stack(t: Tracer, rows: Sequence[Array]) -> Array:
    """Rows along a new first axis."""
    codes = [explode(t, r) if isinstance(r, Wide) else r for r in rows]
    if t.axes.find((len(codes), *codes[0].shape)) is None:
        return np.stack(codes)
    kind = t.graph.kind[int((rows[0].ids if isinstance(rows[0], Wide) else rows[0]).flat[0])]
    return assemble(t, np.stack(codes), kind)


def _row(t: Tracer, table: Array, index: int) -> Array:
    """`table[index]` along the first axis."""
    g = t.graph
    if isinstance(table, Wide):
        kind = g.kind[int(table.ids.flat[0])]
        if index in g.value:
            return assemble(t, explode(t, table)[int(g.value[index])], kind)
        table = dealt(t, table, 1)
        return t.each(lambda v: g.node("load", (v, index), kind, None, 0) if g.length[v] else v, table.ids[0])
    columns = table.reshape(table.shape[0], -1)
    picked = [t.algebra.pick(columns[:, j].tolist(), index) for j in range(columns.shape[1])]
    return np.array(picked, np.int64).reshape(table.shape[1:])


@rule("platform_index", honors="platforms")
def _platform_index(t: Tracer, p: Params):
    """The branch of a `platform_dependent` to take. All compute the same, and the one for a CPU has no custom calls."""
    which = next((k for k, names in enumerate(p.platforms) if names is None or "cpu" in names), None)
    if which is None:
        raise Unsupported("platform_index", f"without a branch for a CPU: {p.platforms}")
    return [np.array(t.graph.constant(which, type_of(p.outs[0].dtype)))]


@rule("cond", honors="branches branches_platforms")
def _cond(t: Tracer, p: Params, index: Array, *operands: Array):
    """Both branches and a select if they are short, else branches in the program; one branch if the index is known."""
    g, a = t.graph, t.algebra
    branches = p.branches
    which = int(index)
    if which in g.value:
        return t.run(branches[int(np.clip(int(g.value[which]), 0, len(branches) - 1))], operands)
    before = g.made
    scopes, outs = [], []
    for branch in branches:
        scopes.append(g.enter(barrier=True))
        results = [settled(t, x) for x in t.run(branch, operands)]
        outs.append(matched(t, results, outs[0]) if outs else results)
        g.leave()
    flat, lengths = [t.scalars(o) for o in outs], t.lengths(outs[0])
    if len(branches) == 2:  # bool where that is what it is
        which = g.args[which][0] if g.op[which] == "convert" and g.kind[g.args[which][0]] == "b1" else which
        which = which if g.kind[which] == "b1" else a.compare("gt", which, g.zero[g.kind[which]])
    if g.made - before <= SELECT:
        flat = [t.scalars(matched(t, t.run(branch, operands), outs[0])) for branch in branches]
        chosen = flat[0]
        for k, values in enumerate(flat[1:], 1):
            last = k == len(flat) - 1
            here = which if len(flat) == 2 else a.compare("ge" if last else "eq", which, a.const(k, g.kind[which]))
            chosen = [a.select(here, v, c) for v, c in zip(values, chosen, strict=True)]
        return t.unscalars(chosen, outs[0])
    depth = g.stack[-1].depth
    same = [len(set(c)) == 1 and g.scope[c[0]].depth <= depth for c in zip(*flat, strict=True)]
    moving = [j for j, s in enumerate(same) if not s]
    branched = Branches(scopes, [[f[j] for j in moving] for f in flat])
    node = g.structured("cond", (which,), branched)
    out = list(flat[0])
    for k, j in enumerate(moving):
        out[j] = g.node("proj", (node,), g.kind[flat[0][j]], k, lengths[j])
    return t.unscalars(out, outs[0])
