"""The compiler checks itself: wrong shapes, types and orders, options it does not know, and indices of every width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import evaluate, in_child, program_of
from jax import lax

from holonomix import compiler as kernels
from holonomix.compiler import trace
from holonomix.compiler.graph import Loop
from holonomix.compiler.verify import verify
from holonomix.trace.primitives import TABLE

X = np.random.default_rng(5).normal(size=6)
LONG = np.arange(270.0) ** 1.5


def hypotenuse(a, b):
    return jnp.sqrt(a * a + b * b)


# On the code before, the first of these ended the process, others read foreign memory; so a regression stays outside.
# JAX itself clamps with limits of the index's own type in dynamic_update_slice: it is asked with 64-bit indices.
CHILD = """
import jax, numpy as np, test_verification as t
from evaluate import evaluate
got, want = evaluate(t.cases, t.X, t.LONG, *t.PLACES), t.cases(t.X, t.LONG, *(i.astype(int) for i in t.PLACES))
for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-14)
print("done")
"""
PLACES = (np.array([100, 3], np.int8), np.array([120, 7], np.uint8), np.array([2**62 + 5, 7], np.uint64))


def larger(x, y):
    """The larger number with its place."""
    wins = y[0] > x[0]
    return jnp.where(wins, y[0], x[0]), jnp.where(wins, y[1], x[1])


def cases(q, a, *places):
    q, a = jnp.asarray(q), jnp.asarray(a)
    out = [
        lax.reduce(q, 0.0, hypotenuse, (0,)),
        lax.reduce(q.reshape(2, 3), 0.0, hypotenuse, (1,)),
        lax.reduce((q, jnp.arange(6)), (-jnp.inf, 0), larger, (0,)),
        lax.reduce(q[:0].reshape(0, 6), 2.5, hypotenuse, (0,)),
        q.at[1].apply(jnp.sin),
        q.at[jnp.argmax(q)].apply(lambda x: x * x + 1),
        q.at[jnp.array([1, 1, 4])].apply(lambda x: 2 * x),
    ]
    for i in places:
        for mode in ("clip", "fill"):
            out.append(a.at[i].get(mode=mode, wrap_negative_indices=False))
        out.append(lax.dynamic_slice(a, (i[0],), (2,)))
    for i in places[:1]:
        out.append(a.at[i].add(1.0, mode="clip", wrap_negative_indices=False))
        out.append(a.at[i].set(-1.0, wrap_negative_indices=False))
        out.append(lax.dynamic_update_slice(a, a[:2], (i[0],)))
    return out


def test_custom_reductions_updates_and_narrow_indices():
    in_child(CHILD)


def test_a_reduction_over_windows_is_refused_by_name():
    fn = lambda q: lax.reduce_window(q, 0.0, hypotenuse, (2,), (1,), "valid")
    with pytest.raises(kernels.Unsupported) as error:
        program_of(fn, X)
    assert error.value.operation == "reduce_window"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda t, p, a: [a[:2]], "shape"),
        (lambda t, p, a: [t.each(lambda n: t.algebra.convert(n, "f4"), a)], "type f4 instead of f8"),
        (lambda t, p, a: [a, a], "2 results"),
        (lambda t, p, a: [a * 0 - 1], "no nodes"),
        (lambda t, p, a: [t.each(lambda n: t.graph.node("sin", (n,), "f8", None, 7), a)], "vector of 7"),
    ],
)
def test_what_a_rule_returns_is_compared_with_what_jax_says(monkeypatch, wrong, words):
    program_of(jnp.sin, X)
    monkeypatch.setattr(TABLE["sin"], "kernel", wrong)
    with pytest.raises(kernels.Defect, match=words):
        program_of(jnp.sin, X)


def test_a_parameter_that_a_rule_does_not_know_is_refused(monkeypatch):
    fn = lambda q: lax.cumsum(q, reverse=True)
    program_of(fn, X)
    monkeypatch.setattr(TABLE["cumsum"], "honors", frozenset({"axis"}))
    with pytest.raises(kernels.Unsupported, match="cumsum.*reverse=True"):
        program_of(fn, X)
    program_of(jnp.cumsum, X)  # False is what it was without


def test_calls_are_inlined_by_name(monkeypatch):
    fn = lambda q: jax.jit(jnp.sin)(q)
    program_of(fn, X)
    name = next(e.primitive.name for e in jax.make_jaxpr(fn)(X).eqns)
    monkeypatch.delitem(trace.CALLS, name)
    with pytest.raises(kernels.Unsupported) as error:
        program_of(fn, X)
    assert error.value.operation == name


def broken(program, how):
    """A program with one mistake."""
    g = program.graph
    loop = next(g.attr[n] for n in program.live if isinstance(g.attr[n], Loop))
    block = program.blocks[loop.scope]
    load = next(n for n in block.nodes if g.op[n] == "load")
    if how == "order":
        block.nodes.reverse()
    elif how == "index":
        g.args[load] = (g.args[load][0], g.constant(0, "i4"))
    elif how == "type":
        g.kind[load] = "f4"
    elif how == "scope":
        program.blocks[program.read_scope].nodes.append(g.append("neg", (load,), "f8", None, program.read_scope))
    elif how == "leaf":
        row = program.rows[0]
        program.rows[0] = type(row)((9,), row.kind, row.nodes)
    elif how == "carried":
        loop.results[1:] = [g.constant(1, "u2")] * len(loop.results[1:])
    elif how == "missing":
        block.nodes.remove(load)
    return program


@pytest.mark.parametrize("how", ["nothing", "order", "index", "type", "scope", "leaf", "carried", "missing"])
def test_mistakes_in_a_finished_program_are_found(how):
    table = jnp.sin(jnp.arange(50.0) ** 2)
    fn = lambda x: lax.fori_loop(0, 50, lambda k, s: jnp.sin(s) * table[k] + x[0], x)
    program = broken(program_of(fn, X), how)
    if how == "nothing":
        verify(program)
    else:
        with pytest.raises(kernels.Defect):
            verify(program)


def test_custom_batching_is_a_call():
    @jax.custom_batching.custom_vmap
    def twice(x):
        return 2 * x

    twice.def_vmap(lambda size, batched, x: (2 * x, batched[0]))
    np.testing.assert_array_equal(evaluate(twice, X), 2 * X)
