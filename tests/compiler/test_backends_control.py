"""Loops, branches and tables: the same results as jax, in scalar and lane form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import bits, evaluate, evaluate_batch, program_of
from jax import lax

from holonomix import compiler as kernels

X = np.random.default_rng(3).normal(size=(13, 4)) + 2.5
BACKENDS = ["native", "oracle"]


def newton_root(x):
    """A data-dependent number of sweeps, with a count."""

    def body(s):
        y, k, _ = s
        new = y - (y**3 - x[0]) / (3 * y * y)
        return new, k + 1, jnp.abs(new - y)

    return lax.while_loop(lambda s: (s[2] > 1e-13) & (s[1] < 50), body, (x[1], 0, jnp.inf))


def carried_matrix(x):
    """Structural zeros and unchanged values inside a carry."""

    def body(s):
        k, a, fixed, diagonal = s
        return k + 1, a + fixed @ a * 1e-3, fixed, diagonal * 1.5

    return lax.while_loop(lambda s: s[0] < x[0].astype(int) + 3, body, (0, x, jnp.diag(x), jnp.eye(4) * x[0]))


def nested_loops(x):
    def outer(k, y):
        def inner(s):
            return s[0] * 0.7 + 0.005 * k, s[1] + 1

        return y + lax.while_loop(lambda s: s[0] > 1.0, inner, (y[0], 0))[0]

    return lax.fori_loop(0, 40, outer, x)


def scan_tables(x):
    """Scanned-over coefficients and collected rows, large enough not to be unrolled."""
    coefficients = jnp.sin(jnp.arange(50.0)).reshape(25, 2)

    def body(s, c):
        s = jnp.cos(s * c[0]) + c[1] * x[:2]
        s = jnp.sin(s) * jnp.exp(-s * s) + c[0] * x[2:]
        return s, (s[0] * s[1], s.sum() > 0, 7.0)

    return lax.scan(body, x[:2], coefficients)


def scan_reverse(x):
    table = jnp.outer(jnp.arange(60.0), x)
    return lax.scan(lambda s, r: (s * 0.5 + 0.1 * jnp.tanh(r).sum() * jnp.cos(s), s), x[0], table, reverse=True)


def branches(x):
    def heavy(y):
        for _ in range(12):
            y = (jnp.sin(y) + jnp.cos(y) * x[3]) / 3
        return y

    return lax.cond(x[0] > 2.5, heavy, lambda y: -heavy(y * 2), x[1])


def switches(x):
    def make(k):
        def branch(y):
            for _ in range(6):
                y = jnp.sin(y * k) + jnp.exp(-y * y)
            return y, k

        return branch

    return lax.switch(x[0].astype(int) - 1, [make(k) for k in range(4)], x)


def small_branch(x):
    return lax.cond(x[0] > 2.5, lambda y: y + 1, lambda y: y * 2, x)


def loop_in_branch(x):
    def slow(y):
        return lax.while_loop(lambda s: s < 100.0, lambda s: s * s + 1.5 + jnp.sin(s), y)

    return lax.cond(x[0] > 2.5, slow, lambda y: y, x[1])


def updates(x):
    def body(k, a):
        return a.at[k % 4].set(a[(k + 1) % 4] * 0.5 + jnp.sin(a[k % 4]) + x[0])

    return lax.fori_loop(0, 30, body, x)


def invariant_hoisting(x):
    def body(k, s):
        return s * jnp.exp(-x[0]) + jnp.sin(x[1]) * jnp.cos(x[2])

    return lax.fori_loop(0, 300, body, x[3])


def bounded_by_data(x):
    return lax.fori_loop(0, (x[0] * 3).astype(int), lambda k, s: s + jnp.sin(s + k), x[1])


CASES = [newton_root, carried_matrix, nested_loops, scan_tables, scan_reverse, branches, switches, small_branch,
         loop_in_branch, updates, invariant_hoisting, bounded_by_data]  # fmt: skip


@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_control_flow(fn, backend):
    got, want = evaluate_batch(fn, [X], backend=backend), jax.vmap(fn)(jnp.asarray(X))
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-12)


@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
def test_lane_is_the_scalar(fn):
    alone = evaluate_batch(fn, [X], lanes=1)
    single = evaluate(fn, X[4])
    assert bits(jax.tree.map(lambda a: a[4], alone)) == bits(single)
    for lanes in (2, 4, 8):
        assert bits(evaluate_batch(fn, [X], lanes=lanes)) == bits(alone)


def test_scan_stays_a_loop_unless_short():
    def times(n):
        return program_of(lambda x: lax.fori_loop(0, n, lambda k, s: jnp.sin(s) * x + s, x), np.float64(1.0))

    assert "while" not in {times(5).graph.op[n] for n in times(5).live}
    long = times(1000)
    assert "while" in {long.graph.op[n] for n in long.live}
    assert len(long.live) < 40


def test_loop_invariants_leave_the_loop():
    program = program_of(invariant_hoisting, X[0])
    loops = [program.graph.attr[n] for n in program.live if program.graph.op[n] == "while"]
    inside = [program.graph.op[n] for loop in loops for n in program.blocks[loop.scope].nodes]
    assert inside
    assert not {"exp", "sin", "cos"} & set(inside)


def test_zero_structure_is_found():
    """A tridiagonal solve written densely costs a tridiagonal solve."""

    def dense(d, b):
        a = jnp.diag(d) + jnp.diag(d[1:] * 0.1, 1) + jnp.diag(d[1:] * 0.2, -1)
        rows = [[a[i, j] for j in range(12)] for i in range(12)]
        x = [b[i] for i in range(12)]
        for k in range(12):
            for i in range(k + 1, 12):
                f = rows[i][k] / rows[k][k]
                rows[i] = [rows[i][j] - f * rows[k][j] for j in range(12)]
                x[i] = x[i] - f * x[k]
        for i in reversed(range(12)):
            x[i] = (x[i] - sum(rows[i][j] * x[j] for j in range(i + 1, 12))) / rows[i][i]
        return jnp.stack(x)

    d = np.linspace(1, 2, 12)
    program = program_of(dense, d, d)
    arithmetic = [n for n in program.live if program.graph.op[n] in ("mul", "add", "sub", "div", "fma", "fms", "fnma")]
    assert len(arithmetic) < 12 * 12
    a = np.diag(d) + np.diag(d[1:] * 0.1, 1) + np.diag(d[1:] * 0.2, -1)
    np.testing.assert_allclose(evaluate(dense, d, d), np.linalg.solve(a, d), rtol=1e-14)


@pytest.mark.parametrize(
    ("fn", "name"),
    [(jnp.linalg.inv, "lu"), (jnp.linalg.cholesky, "cholesky"), (jnp.linalg.eigh, "eigh"),
     (lambda a: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((3, 3), float), a), "pure_callback"),
     (lambda a: jnp.fft.rfft(a[0]).real, "fft")],
)  # fmt: skip
def test_an_unknown_operation_is_named(fn, name):
    with pytest.raises(kernels.Unsupported) as error:
        program_of(fn, np.eye(3))
    assert error.value.operation == name
    assert name in str(error.value)


def test_too_many_operations_are_refused_early():
    with pytest.raises(kernels.Unsupported, match="too many operations"):
        program_of(lambda x: jnp.sin(x[:, None] * x[None]).sum(), np.ones(100), limit=1000)
    program_of(lambda x: jnp.sin(x).sum(), np.ones(40), limit=100)
    with pytest.raises(kernels.Unsupported, match="too many operations: 1[0-9][0-9]"):
        program_of(lambda x: jnp.sin(x).sum(), np.arange(60.0), limit=100)


def test_lowering_does_not_grow_with_the_length_of_a_loop():
    def powers(count):
        return lambda x: lax.fori_loop(0, count, lambda _, y: jnp.sin(y) * x[0] + jnp.cos(y) * x[2], x[1])

    short, long = (len(program_of(powers(n), X[0]).graph.op) for n in (1_000, 30_000))
    assert short == long
