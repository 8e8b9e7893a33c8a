"""The two analyses of finished programs: what is the same in all lanes, and which vectors may be overwritten."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import Functions, bits, evaluate_batch, program_of
from interpreter import Interpreter
from jax import lax

import holonomix as hx
from holonomix import compiler as kernels
from holonomix.compiler.uniform import uniform_nodes
from holonomix.compiler.wide import Axes

X = np.random.default_rng(3).normal(size=(13, 4)) + 2.5
TABLE = np.sin(np.arange(40.0) ** 2)


def searched(x):
    """A counted loop that starts alike in all lanes and goes its own way in each."""
    halves = lambda _, s: (jnp.where(x[0] * 10 > (s[0] + s[1]) // 2, (s[0] + s[1]) // 2, s[0]), s[1] - 1)
    low, _ = lax.fori_loop(0, 100, halves, (0, 39))
    return jnp.asarray(TABLE)[low]


def counted_by_data(x):
    """The test of the loop differs, its start and its body do not."""
    k, y = lax.while_loop(lambda s: s[0] < (x[0] * 8).astype(int), lambda s: (s[0] + 1, s[1] * 0.99), (0, 1.0))
    return jnp.asarray(TABLE)[k] + y


def branched(x):
    """Branches with results that are alike, chosen by data."""
    slow = lambda y: lax.fori_loop(0, 30, lambda k, s: jnp.sin(s + k), y)
    place, y = lax.cond(x[0] > 2.5, lambda y: (7, slow(y)), lambda y: (31, slow(-y)), x[1])
    return jnp.asarray(TABLE)[place] * y


def inside_a_loop(x):
    """An inner loop that is alike in all lanes, in an outer one that lanes leave one by one."""

    def outer(s):
        k, y, n = s
        k, _ = lax.while_loop(lambda u: u[0] < n + 3, lambda u: (u[0] + 1, u[1] * 0.5), (0, 1.0))
        return k, y + jnp.asarray(TABLE)[k] ** 2 + 0.1, n + 1

    return lax.while_loop(lambda s: (s[1] < x[0] * 3) & (s[2] < 30), outer, (0, x[1], 0))


def alike(x):
    """Here the index is the same in all lanes: one load serves them all."""
    return lax.fori_loop(0, 40, lambda k, s: jnp.sin(s) * jnp.asarray(TABLE)[(3 * k) % 40] + x[0], x[1])


CASES = [searched, counted_by_data, branched, inside_a_loop, alike]


@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
def test_every_lane_reads_its_own_place(fn):
    want = jax.tree.map(lambda *a: np.stack(a), *(fn(jnp.asarray(x)) for x in X))
    got = evaluate_batch(fn, [X], lanes=8)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    assert bits(got) == bits(evaluate_batch(fn, [X], lanes=1))


@pytest.mark.parametrize(("fn", "same"), [(f, f is alike) for f in CASES], ids=[f.__name__ for f in CASES])
def test_indices_that_are_the_same_in_all_lanes(fn, same):
    program = program_of(fn, X[0])
    g = program.graph
    indices = [g.args[n][1] for n in program.live if g.op[n] == "load"]
    assert indices and {n in uniform_nodes(program) for n in indices} == {same}


def test_a_tabulated_potential_in_an_ensemble():
    places = jnp.linspace(-3.0, 3.0, 400)
    values = jnp.cos(2 * places)
    system = hx.System(lambda q: jnp.sum(jnp.interp(q, places, values)) + jnp.sum(q**2) / 2)
    q0 = np.linspace(-2.0, 2.0, 18).reshape(9, 2)
    options = {"dt": 0.05, "steps": 40}
    runs = hx.simulate_ensemble(system, hx.StormerVerlet(), q0, 0 * q0, **options, backend="native")
    slow = hx.simulate_ensemble(system, hx.StormerVerlet(), q0, 0 * q0, **options, backend="array")
    np.testing.assert_allclose(runs.q, slow.q, rtol=1e-10, atol=1e-12)


# -- vectors that are overwritten ------------------------------------------------------------------

N = 40


def exchanged(a, b):
    """Each vector becomes a multiple of the other."""
    return lax.while_loop(lambda s: s[2] < 5, lambda s: (s[1] * 1.1, s[0] * 0.9, s[2] + 1), (a, b, 0))


def shifted(a, b):
    """The new first vector is ready before the old one is read at other places."""
    return lax.while_loop(
        lambda s: s[2] < 5, lambda s: (s[1] + 1.0, jnp.roll(s[0], 1) + s[0] * 0.5, s[2] + 1), (a, b, 0)
    )


def read_by_an_inner_loop(a, b):
    """An inner loop reads a value that is cheap enough to be computed again from the old vector."""

    def body(s):
        x, y, k = s
        double = x * 2.0
        new = jnp.sin(x) + y
        inner = lax.while_loop(lambda u: u[1] < 3, lambda u: (u[0] * 0.5 + double, u[1] + 1), (y + new.sum(), 0))[0]
        return new, inner, k + 1

    return lax.while_loop(lambda s: s[2] < 4, body, (a, b, 0))


@pytest.mark.parametrize("fn", [exchanged, shifted, read_by_an_inner_loop], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["native", "oracle"])
def test_a_vector_is_not_overwritten_before_its_last_use(fn, backend):
    random = np.random.default_rng(0)
    args = (random.normal(size=N), random.normal(size=N))
    loop = Functions(lambda c, k: c, lambda c, k: fn(*c), lambda c, k: False)
    program = kernels.lower(loop, args, (), wide=Axes({N}))
    runner = kernels.build(program) if backend == "native" else Interpreter(program)
    _, rows = runner.run_one(args, (), rows=1, every=0)
    with jax.disable_jit():
        want = fn(*map(jnp.asarray, args))
    for a, b in zip(jax.tree.leaves(rows), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-12, atol=1e-12)
