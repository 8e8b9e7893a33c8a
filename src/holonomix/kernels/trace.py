"""Evaluates a jaxpr on arrays of scalar nodes.

An array of the jaxpr is a NumPy array of node numbers, so reshaping, slicing, gathering and concatenating are NumPy
calls that create no node, and structural zeros are found by comparing numbers. `rules_*` modules hold one function
for each primitive; here are the evaluation, the calls and the three kinds of control flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex_core

from .algebra import Algebra
from .carried import carry_over, rebuild, remember
from .graph import Branches, Graph, Loop, Unsupported, type_of

Array = Any  # a NumPy array of node numbers, or a single one
Rule = Callable[..., Sequence[Array]]
RULES: dict[str, Rule] = {}

UNROLL = 400  # a scan is unrolled when its whole work is below this many operations
SELECT = 24  # a cond becomes selects when all its branches together are below this
LARGEST_ARRAY = 4_000_000


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function `(tracer, params, *arrays) -> arrays` for primitives."""

    def register(fn: Rule) -> Rule:
        for name in names:
            RULES[name] = fn
        return fn

    return register


def is_key(aval) -> bool:
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


class Tracer:
    """Holds the graph, its algebra, and the evaluation of jaxprs over them."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.algebra = Algebra(graph)

    # -- values ------------------------------------------------------------------------------------
    def literal(self, value) -> Array:
        """Constants of the jaxpr as nodes."""
        if isinstance(value, jax.Array) and is_key(value):
            words = self.literal(jax.random.key_data(value))
            return self.pack_keys(words)
        array = np.asarray(value)
        if array.size > LARGEST_ARRAY:
            raise Unsupported(f"array of {array.size} elements")
        kind = type_of(array.dtype)
        constant = self.graph.constant
        if array.size > 16:
            unique, inverse = np.unique(array.view(f"u{array.itemsize}"), return_inverse=True)
            nodes = np.array([constant(v, kind) for v in unique.view(array.dtype)], np.int64)
            return nodes[inverse].reshape(array.shape)
        return np.array([constant(v, kind) for v in array.ravel()], np.int64).reshape(array.shape)

    def pack_keys(self, words: Array) -> Array:
        flat = words.reshape(-1, 2)
        return np.array([self.algebra.key(int(a), int(b)) for a, b in flat], np.int64).reshape(words.shape[:-1])

    def unpack_keys(self, keys: Array) -> Array:
        args = self.graph.args
        words = [args[int(k)] for k in keys.ravel()]
        return np.array(words, np.int64).reshape((*keys.shape, 2))

    def new_params(self, aval) -> Array:
        """An array of fresh parameters of the innermost scope."""
        count = int(np.prod(aval.shape, dtype=np.int64))
        if is_key(aval):
            words = np.array([self.graph.param("u4") for _ in range(2 * count)], np.int64)
            return self.pack_keys(words.reshape((*aval.shape, 2)))
        kind = type_of(aval.dtype)
        return np.array([self.graph.param(kind) for _ in range(count)], np.int64).reshape(aval.shape)

    def scalars(self, arrays: Sequence[Array]) -> list[int]:
        """All elements in order, keys taken apart."""
        out: list[int] = []
        for a in arrays:
            flat = a.ravel().tolist()
            if flat and self.graph.kind[flat[0]] == "key":
                flat = self.unpack_keys(a).ravel().tolist()
            out += flat
        return out

    def unscalars(self, nodes: Sequence[int], like: Sequence[Array]) -> list[Array]:
        """The inverse of `scalars`, for arrays shaped and typed as `like`."""
        out, at = [], 0
        for a in like:
            key = a.size > 0 and self.graph.kind[int(a.flat[0])] == "key"
            count = a.size * (2 if key else 1)
            piece = np.array(nodes[at : at + count], np.int64)
            out.append(self.pack_keys(piece.reshape((*a.shape, 2))) if key else piece.reshape(a.shape))
            at += count
        return out

    def each(self, fn: Callable[..., int], *arrays: Array) -> Array:
        """Apply `fn` to the elements, once for each distinct tuple."""
        if all(a.ndim == 0 for a in arrays):
            return np.array(fn(*(int(a) for a in arrays)), np.int64)
        arrays = tuple(np.broadcast_arrays(*arrays))
        memo: dict = {}
        out = []
        for t in zip(*(a.ravel().tolist() for a in arrays), strict=True):
            r = memo.get(t)
            if r is None:
                r = memo[t] = fn(*t)
            out.append(r)
        return np.array(out, np.int64).reshape(arrays[0].shape)

    def each_where(self, mask, default: Array, fn: Callable[..., int], *arrays: Array) -> Array:
        """`fn` where the mask holds, `default` elsewhere; the way to leave structural zeros alone."""
        mask = np.asarray(mask)
        out = np.array(np.broadcast_to(default, mask.shape))
        if mask.any():
            out[mask] = self.each(fn, *(np.broadcast_to(a, mask.shape)[mask] for a in arrays))
        return out

    def values(self, nodes: Array) -> Array | None:
        """The numbers, if all nodes are constants."""
        value = self.graph.value
        flat = nodes.ravel().tolist()
        if all(n in value for n in flat):
            return np.array([value[n] for n in flat]).reshape(nodes.shape)
        return None

    # -- evaluation --------------------------------------------------------------------------------
    def run(self, closed, args: Sequence[Array]) -> list[Array]:
        jaxpr = closed.jaxpr if isinstance(closed, jex_core.ClosedJaxpr) else closed
        consts = closed.consts if isinstance(closed, jex_core.ClosedJaxpr) else ()
        env: dict = {}

        def read(atom) -> Array:
            return self.literal(atom.val) if isinstance(atom, jex_core.Literal) else env[atom]

        env.update(zip(jaxpr.constvars, (self.literal(c) for c in consts), strict=True))
        env.update(zip(jaxpr.invars, map(np.asarray, args), strict=True))
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            for v in eqn.outvars:
                if v.aval.size > LARGEST_ARRAY:
                    raise Unsupported(f"array of {v.aval.size} elements", f"in {name}")
            fn = RULES.get(name)
            ins = [read(a) for a in eqn.invars]
            if fn is not None:
                outs = fn(self, _Params(eqn), *ins)
            else:
                inner = _callee(eqn.params)
                if inner is None:
                    raise Unsupported(name)
                outs = self.run(inner, ins)
            env.update(zip(eqn.outvars, map(np.asarray, outs), strict=True))
        return [read(a) for a in jaxpr.outvars]


class _Params:
    """The parameters of an equation by attribute, with its input and output types."""

    __slots__ = ("ins", "outs", "params")

    def __init__(self, eqn):
        self.params = eqn.params
        self.ins = [v.aval for v in eqn.invars]
        self.outs = [v.aval for v in eqn.outvars]

    def __getattr__(self, name):
        try:
            return self.params[name]
        except KeyError:
            raise AttributeError(name) from None


_CALLS = {"jaxpr", "call_jaxpr", "fun_jaxpr"}


def _callee(params):
    """The jaxpr of a plain call (jit, remat, custom derivative, ...), which is inlined."""
    found = [v for k, v in params.items() if k in _CALLS]
    return found[0] if len(found) == 1 and isinstance(found[0], jex_core.ClosedJaxpr | jex_core.Jaxpr) else None


# -- control flow ----------------------------------------------------------------------------------


def _invariants(params: list[int], results: list[int], starts: list[int]) -> dict[int, int]:
    """Carried values that never change, with their start."""
    return {
        j: s for j, (p, r, s) in enumerate(zip(params, results, starts, strict=True)) if p != s and r in (p, s)
    }  # fmt: skip


@rule("while")
def _while(t: Tracer, p, *args: Array):
    nc, nb = p.cond_nconsts, p.body_nconsts
    cond_consts, body_consts, init = args[:nc], args[nc : nc + nb], list(args[nc + nb :])
    starts = t.scalars(init)
    fixed: dict[int, int] = {}
    inner, outer = p.body_jaxpr.jaxpr.invars[nb:], p.body_jaxpr.jaxpr.outvars
    at = 0
    for array, i, o in zip(init, inner, outer, strict=True):  # what the body hands through unchanged
        count = len(t.scalars([array]))
        if i is o:
            fixed.update((j, starts[j]) for j in range(at, at + count))
        at += count
    while True:
        first = len(t.graph.op)
        scope = t.graph.enter()
        params = [fixed.get(j, -1) for j in range(len(starts))]
        params = [t.graph.param(t.graph.kind[s]) if q < 0 else q for q, s in zip(params, starts, strict=True)]
        carry = t.unscalars(params, init)
        (go,) = t.run(p.cond_jaxpr, [*cond_consts, *carry])
        results = t.scalars(t.run(p.body_jaxpr, [*body_consts, *carry]))
        t.graph.leave()
        go = int(go)
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
    out = [g.node("proj", (node,), g.kind[p], k) for k, p in enumerate(loop.params)]
    after = dict(zip(loop.params, out, strict=True))
    for n, (p, _) in extra.items():  # the same expression after the loop is the carried value
        after[n] = after[p]
        remember(g, n, [after.get(a, a) for a in before[n]], after[p])
    return node, out[:count]


@rule("scan")
def _scan(t: Tracer, p, *args: Array):
    g, a = t.graph, t.algebra
    length, nc, nk = p.length, p.num_consts, p.num_carry
    consts, init, xs = args[:nc], list(args[nc : nc + nk]), args[nc + nk :]
    body = p.jaxpr
    order = range(length - 1, -1, -1) if p.reverse else range(length)

    def unrolled():
        carry, rows = init, [None] * length
        for k in order:
            out = t.run(body, [*consts, *carry, *(x[k] for x in xs)])
            carry, rows[k] = out[:nk], out[nk:]
        ys = [np.stack(c) for c in zip(*rows, strict=True)] if length else [_empty(v) for v in p.outs[nk:]]
        return [*carry, *ys]

    if length <= 1:
        return unrolled()
    starts = t.scalars(init)
    fixed: dict[int, int] = {}
    while True:
        before, first = g.made, len(g.op)
        scope = g.enter()
        counter = g.param("i8")
        index = a.sub(a.const(length - 1, "i8"), counter) if p.reverse else counter
        params = [fixed.get(j, -1) for j in range(len(starts))]
        params = [g.param(g.kind[s]) if q < 0 else q for q, s in zip(params, starts, strict=True)]
        rows = [_row(t, x, index) for x in xs]
        out = t.run(body, [*consts, *t.unscalars(params, init), *rows])
        results, ys = t.scalars(out[:nk]), out[nk:]
        go = a.compare("lt", counter, a.const(length, "i8"))
        following = a.add(counter, g.one["i8"])
        g.leave()
        if (g.made - before) * length <= UNROLL:
            return unrolled()
        found = _invariants(params, results, starts)
        if not found:
            break
        fixed.update(found)
    moving = [j for j in range(len(starts)) if j not in fixed]
    flat = t.scalars(ys)
    inside = list(dict.fromkeys(y for y in flat if g.scope[y] is scope))
    loop = Loop(scope, [counter, *(params[j] for j in moving)], go, [following, *(results[j] for j in moving)], length)
    loop.collect = [index, *inside]
    node, projections = close_loop(t, loop, [g.zero["i8"], *(starts[j] for j in moving)], first)
    out = list(starts)
    for j, n in zip(moving, projections[1:], strict=True):
        out[j] = n
    tables = {y: g.node("collected", (node,), g.kind[y], k) for k, y in enumerate(inside)}
    steps = []
    for k in range(length):
        position = a.const(k, "i8")
        steps.append([g.node("load", (tables[y], position), g.kind[y]) if y in tables else y for y in flat])
    stacked = [t.unscalars(s, ys) for s in steps]
    return [*t.unscalars(out, init), *(np.stack(c) for c in zip(*stacked, strict=True))]


def _empty(aval) -> Array:
    return np.zeros(aval.shape, np.int64)


def _row(t: Tracer, table: Array, index: int) -> Array:
    """`table[index]` along the first axis."""
    columns = table.reshape(table.shape[0], -1)
    picked = [t.algebra.pick(columns[:, j].tolist(), index) for j in range(columns.shape[1])]
    return np.array(picked, np.int64).reshape(table.shape[1:])


@rule("cond")
def _cond(t: Tracer, p, index: Array, *operands: Array):
    g, a = t.graph, t.algebra
    branches = p.branches
    which = int(index)
    if which in g.value:
        return t.run(branches[int(np.clip(int(g.value[which]), 0, len(branches) - 1))], operands)
    before = g.made
    scopes, outs = [], []
    for branch in branches:
        scopes.append(g.enter(barrier=True))
        outs.append(t.run(branch, operands))
        g.leave()
    flat = [t.scalars(o) for o in outs]
    if len(branches) == 2:  # bool where that is what it is
        which = g.args[which][0] if g.op[which] == "convert" and g.kind[g.args[which][0]] == "b1" else which
        which = which if g.kind[which] == "b1" else a.compare("gt", which, g.zero[g.kind[which]])
    if g.made - before <= SELECT:
        flat = [t.scalars(t.run(branch, operands)) for branch in branches]
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
        out[j] = g.node("proj", (node,), g.kind[flat[0][j]], k)
    return t.unscalars(out, outs[0])
