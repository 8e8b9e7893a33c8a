"""Arrays of constants that are read at places that depend on data: they stay where they are."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import Functions, bits
from interpreter import Interpreter
from jax import lax

import holonomix as hx
from holonomix import compiler as kernels
from holonomix.compiler import rules_wide_places


def _loop(read):
    return Functions(lambda c, k: c, lambda c, k: read(c[0], k), lambda c, k: False)


READS = {
    "interpolation": lambda q, k: jnp.interp(q, k[0], k[1]),
    "rows": lambda q, k: k[2][(q[0] * 3).astype(int) + 4] + k[2][2],
    "columns": lambda q, k: k[2][:, (q[0] * 2).astype(jnp.int8)],
    "rows of a permuted table": lambda q, k: k[0][jnp.array([3, 1, 4, 1, 5, 9])][jnp.abs(q[0] * 4).astype(int)],
    "slices": lambda q, k: lax.dynamic_slice(k[2], ((q[0] * 5).astype(int), 1), (2, 2)),
    "scan over rows": lambda q, k: lax.scan(lambda s, row: (0.9 * s + jnp.sin(row[0] * q[0]), s), 0.0, k[2]),
    "truth values and integers": lambda q, k: (k[3][(q[1] * 9).astype(int)], k[4][jnp.abs(q[1] * 9).astype(int)]),
}


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    x = np.linspace(-1.5, 1.5, 50)
    return x, np.sin(x), rng.normal(size=(60, 3)), rng.random(40) > 0.5, rng.integers(0, 9, 40)


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_reads(tables, own):
    """Nine trajectories, with one table for all or one for each: what JAX computes, and one lane is eight."""
    fn = lambda q, k: {name: read(q, k) for name, read in READS.items()}
    program = kernels.lower(_loop(fn), (np.zeros(2),), tables)
    assert any(program.graph.op[n] == "fetch" for n in program.live)
    q = np.random.default_rng(1).uniform(-1.4, 1.4, (9, 2))
    scales = np.linspace(1.0, 2.0, 9)
    given = tuple(np.stack([a if a.dtype.kind == "b" else (a * s).astype(a.dtype) for s in scales]) for a in tables)
    given, axes = (given, (0,) * 5) if own else (tables, None)
    rows = [
        kernels.build(program, lanes=lanes, threads=1).run((q,), given, axes, rows=1, every=0)[1] for lanes in (1, 8)
    ]
    assert bits(rows[0]) == bits(rows[1])
    for k in range(9):
        expected = fn(jnp.asarray(q[k]), tuple(map(jnp.asarray, [a[k] for a in given] if own else given)))
        for name, value in expected.items():
            for x, y in zip(value if isinstance(value, tuple) else (value,), _tuple(rows[1][name]), strict=True):
                np.testing.assert_allclose(np.asarray(y)[k, 0], x, 1e-12, 1e-12, err_msg=name)
    assert bits(Interpreter(program).run_one((q[0],), tables, rows=1, every=0)[1])


def _tuple(x):
    return x if isinstance(x, tuple) else (x,)


@pytest.mark.parametrize("constant", [False, True], ids=["parameters", "closed over"])
def test_interpolation_does_not_grow_with_its_table(constant):
    """The number of points is in the table alone."""
    sizes = []
    for n in (100, 10_000):
        x = np.linspace(-1.0, 1.0, n)
        read = (lambda q, k, x=x: jnp.interp(q, x, x * x)) if constant else (lambda q, k: jnp.interp(q, k[0], k[1]))
        program = kernels.lower(_loop(read), (np.zeros(3),), () if constant else (x, x))
        g = program.graph
        sizes.append(sum(1 + len(g.args[n]) for n in program.live if g.op[n] not in ("table", "const")))
    assert sizes[1] <= sizes[0] + 10


def test_an_ensemble_with_a_tabulated_potential():
    """Through the driver: each trajectory has its own place in the table, and its own table where it is swept."""
    x = jnp.linspace(-3.0, 3.0, 10_000)
    square = x * x
    system = hx.System(lambda q, k: k * jnp.sum(jnp.interp(q, x, square)), params=jnp.ones(()))
    table = hx.System(lambda q, k: jnp.sum(jnp.interp(q, k[0], k[1])), params=(x, square))
    q = np.random.default_rng(2).uniform(-1, 1, (9, 2))
    run = lambda s, backend: hx.simulate_ensemble(s, hx.StormerVerlet(), q, 0 * q, dt=0.05, steps=20, backend=backend)
    expected = run(system, "array").q
    for s in (system, table):
        found = run(s, "auto")
        assert found.stats["backend"] == "native"
        np.testing.assert_allclose(found.q, expected, 1e-10, 1e-10)


STACK = """
import threading, types, numpy as np, jax.numpy as jnp, holonomix as hx
from holonomix import compiler as kernels
table = np.random.default_rng(0).normal(size=(300, 20))
read = lambda c, k: {"given": k[(c[0] * 9).astype(int)]}
loop = types.SimpleNamespace(step=lambda c, k: c, read=read, halted=lambda c, k: False)
program = kernels.lower(loop, (np.array(0.5),), table, limit=40_000)
runner = kernels.build(program, lanes=8, threads=1)
runner.compile(8)
out = []
threading.stack_size(512 * 1024)
thread = threading.Thread(target=lambda: out.append(runner.run((np.full(9, 0.5),), table, rows=1, every=0)))
thread.start(); thread.join()
np.testing.assert_allclose(out[0][1]["given"][8, 0], table[4])
"""


@pytest.mark.slow
def test_tables_need_no_stack(tmp_path):
    """A table of 300 x 20 numbers under a thread stack of 512 kB, in a process of its own: it may crash."""
    done = subprocess.run([sys.executable, "-c", STACK], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def test_sums_over_places_are_linear():
    """`_rounds` walks through its targets once, whatever the number of elements."""

    class Counted(list):
        walks = 0

        def __iter__(self):
            Counted.walks += 1
            return super().__iter__()

    n = 200
    lists = [
        [(7 + 1 << rules_wide_places.SHIFT) + (k + 1) % n, (7 + 1 << rules_wide_places.SHIFT) + k] for k in range(n)
    ]
    table = rules_wide_places._rounds(Counted(range(n)), lists)[7]
    assert Counted.walks <= 3
    np.testing.assert_array_equal(table, [(np.arange(n) + 1) % n, np.arange(n)])


def test_a_large_matrix_is_refused_at_once(monkeypatch):
    """A closed-over matrix does not become one node for each of its numbers before it is refused."""
    made = []
    constant = kernels.graph.Graph.constant
    monkeypatch.setattr(kernels.graph.Graph, "constant", lambda g, *args: made.append(1) or constant(g, *args))
    matrix = np.random.default_rng(0).normal(size=(500, 500))
    with pytest.raises(kernels.Unsupported, match="too many numbers"):
        kernels.lower(_loop(lambda q, k: matrix @ q), (np.zeros(500),), ())
    assert len(made) < 10_000
