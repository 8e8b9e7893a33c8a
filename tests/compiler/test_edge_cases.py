"""Programs at the edges: empty arrays, loops under vmap, infinite exponents, long chains, no home, forked processes."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import bits, evaluate, evaluate_batch, in_child, program_of
from jax import lax

import holonomix as hx
from holonomix import compiler as kernels
from holonomix.compiler import native
from holonomix.compiler.trace import Tracer

X = np.random.default_rng(0).normal(size=(5, 6))
ODD = jnp.array([-jnp.inf, jnp.inf, -0.0, 0.0, -1.0, jnp.nan])


def vmapped_loop(q):
    """Every element runs as long as it needs, with a state of its own."""
    grow = lambda s: (s[0] * 1.3 + 0.1, s[1] + 1, s[2] * jnp.array([0.5, 2.0]))
    start = lambda x: (jnp.abs(x), 0, jnp.array([x, 1.0]))
    return jax.vmap(lambda x: lax.while_loop(lambda s: (s[0] < 3.0) & (s[1] < 20), grow, start(x)))(q)


def odd(q):
    """Special values that the compiler does not know beforehand."""
    return jnp.where(q > 9, q, ODD)


def half_powers(k):
    return lambda q: (jnp.power(q, k), jnp.power(odd(q), k), jnp.power(ODD, k))


def quotients(q):
    """Comparisons of a quotient: with values of both signs, zeros, infinities and NaN below."""
    sides = [3.0 / f(x) for x in (q + 1.3, odd(q)) for f in (jnp.abs, jnp.square, lambda x: x, lambda x: -jnp.abs(x))]
    return [op(side, k) for side in sides for k in (0.7, -0.7) for op in (jnp.greater, jnp.less, jnp.greater_equal)]


single = lambda q: q.astype(jnp.float32)
FUNCTIONS = {
    "vmap of while": vmapped_loop,
    "vmap of vmap of while": lambda q: jax.vmap(vmapped_loop)(q.reshape(2, 3)),
    "sort": lambda q: jnp.sort(q[:0]), "argsort": lambda q: jnp.argsort(q[:0].reshape(0, 3), 1),
    "sort of pairs": lambda q: lax.sort((q[:0], q[:0]), num_keys=2),
    "norms": lambda q: jnp.linalg.norm(q[:0].reshape(0, 3), axis=1),
    "norm": lambda q: jnp.linalg.norm(q[:0].reshape(0, 3)),
    "gradient": jax.grad(lambda q: jnp.sum(jnp.linalg.norm(q[:0].reshape(0, 3), axis=1))),
    "sums": lambda q: (q[:0].reshape(0, 3).sum(1), q[:0].reshape(0, 3).max(1), q[:0].reshape(2, 0).prod(1)),
    "argmax": lambda q: jnp.argmax(q[:0].reshape(0, 3), 1),
    "power inf": lambda q: jnp.power(q, jnp.inf), "power -inf": lambda q: jnp.power(q, -jnp.inf),
    "power nan": lambda q: jnp.power(q, jnp.nan), "power of 1": lambda q: jnp.power(q / q, jnp.inf),
    "power 0.5": half_powers(0.5), "power 1.5": half_powers(1.5), "power 2.5": half_powers(2.5),
    "quotients": quotients,
    "next up": lambda q: jnp.nextafter(single(q), jnp.float32(3)),
    "next down": lambda q: jnp.nextafter(single(q), jnp.float32(-3)),
    "next to 0": lambda q: (jnp.nextafter(single(q) * 0, jnp.float32(-3)), jnp.nextafter(single(q), single(q))),
    "next odd": lambda q: jnp.nextafter(single(odd(q)), single(q)),
}  # fmt: skip


@functools.cache
def found(lanes):
    return evaluate_batch(lambda q: {name: fn(q) for name, fn in FUNCTIONS.items()}, [X], lanes=lanes)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_edge_cases(name):
    got = found(1)[name]
    for k, expected in enumerate(FUNCTIONS[name](jnp.asarray(x)) for x in X[:2]):
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            assert a[k].shape == b.shape and a.dtype == b.dtype
            if name.startswith("next"):
                assert bits(a[k]) == bits(b)
            np.testing.assert_allclose(a[k], b, rtol=1e-14)
            assert not name.startswith("power") or (np.signbit(a[k])[a[k] == 0] == np.signbit(b)[b == 0]).all()
    assert bits(found(4)[name]) == bits(got)


def test_a_square_needs_no_special_power():
    count = lambda fn: program_of(fn, X[0]).graph.op.count("select")
    assert count(lambda q: jnp.sum(q * q) ** 1.5 + jnp.sqrt(2 * jnp.sum(q**2)) ** 0.5) == 0
    assert count(lambda q: q[0] ** 1.5) == 3


def maxima(q):
    largest = jnp.abs(q[0])
    for k in range(600):
        largest = jnp.maximum(largest, jnp.abs(q[k % 2] * (1 + k)))
    return largest


def test_long_chains_are_no_deep_recursion():
    got = evaluate_batch(maxima, [X[:, :2]], lanes=4)
    np.testing.assert_array_equal(got, (np.abs(X[:, :2]) * [599, 600]).max(1))


@pytest.mark.slow
def test_long_chains_in_an_ensemble():
    q0 = np.stack([[0.1, 0.2]] * 3)
    options = {"dt": 0.1, "steps": 2, "save_every": 1, "observe": {"largest": lambda q, p: maxima(q)}}
    system = hx.System(lambda q: jnp.sum(q**2) / 2)
    runs = hx.simulate_ensemble(system, hx.StormerVerlet(), q0, 0 * q0, **options)
    assert runs.stats["backend"] == "native"


@pytest.mark.parametrize("name", ["rbg", "unsafe_rbg"])
def test_keys_of_another_generator_are_refused_by_name(name):
    with pytest.raises(kernels.Unsupported, match="rbg"):
        program_of(lambda q: jax.random.normal(jax.random.key(3, impl=name), (2,)) + q[:2], X[0])
    with pytest.raises(kernels.Unsupported, match="rbg"):
        program_of(lambda k: jax.random.normal(k), jax.random.key(3, impl=name))


def test_no_home_directory(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HOLONOMIX_CACHE")
    monkeypatch.setattr(pathlib.Path, "home", nowhere)
    native._loaded.clear()
    np.testing.assert_allclose(evaluate(jnp.sin, X[0]), np.sin(X[0]), rtol=1e-15)


FORK = """
import os, signal, numpy as np, jax.numpy as jnp
from holonomix import compiler as kernels
from evaluate import program_of

runner = kernels.build(program_of(lambda q: jnp.sin(q) * 2, np.ones(2)), threads=2)
many = (np.arange(200.0).reshape(100, 2),)
want = runner.run(many, (), rows=1, every=0)[1]
child = os.fork()
if child == 0:
    signal.alarm(30)  # ends a process that hangs
    kernels.build(runner.program, lanes=2, threads=2).run(many, (), rows=1, every=0)
    same = (runner.run(many, (), rows=1, every=0)[1] == want).all()
    os._exit(0 if same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("done")
"""


def test_a_forked_process_has_threads_of_its_own():
    in_child(FORK, HOLONOMIX_CACHE="", PYTHONWARNINGS="ignore")


def test_the_diagonal_of_a_matrix():
    """`jnp.diagonal` asks for the platform; the branch for a CPU is taken."""
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(evaluate(lambda a: jnp.diagonal(a * 2), x), 2 * np.diagonal(x))


def test_an_unknown_primitive_is_found_before_any_work(monkeypatch):
    """A step that ends in LAPACK is refused at once, not after its other equations were lowered."""
    monkeypatch.setattr(Tracer, "equation", lambda *_: pytest.fail("an equation was lowered"))
    with pytest.raises(kernels.Unsupported, match="cholesky"):
        program_of(lambda a: jnp.linalg.cholesky(jnp.sin(a)), np.eye(20))


def test_exact_factors_are_not_combined_beyond_the_largest_number():
    """`(2 x) c` is not `(2 c) x` where `2 c` is infinite: zero times it would be NaN."""
    largest = np.finfo(float).max
    fn = lambda x: jnp.stack([(2.0 * x) * largest, (x * largest) * 4.0])
    for x in (0.0, 0.25):
        np.testing.assert_array_equal(evaluate(fn, np.float64(x)), np.asarray(fn(jnp.asarray(x))))
