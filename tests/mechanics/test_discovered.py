"""The structure of constraints that are written as one plain function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.discovered import discover
from holonomix.trace.functions import as_callable
from holonomix.trace.sparsity import dependence

N = 40
PAIRS = np.stack([np.arange(N - 1), np.arange(1, N)], axis=1)


def sliced(q):
    links = jnp.concatenate([q[:1], q[1:] - q[:-1]])
    return jnp.sum(links**2, axis=1) - 5.0


def difference(q):
    return jnp.sum(jnp.diff(q, axis=0, prepend=jnp.zeros((1, 2))) ** 2, axis=1) - 5.0


def gathered(q):
    first = jnp.sum(q[0] ** 2)[None]
    return jnp.concatenate([first, jnp.sum((q[PAIRS[:, 0]] - q[PAIRS[:, 1]]) ** 2, axis=-1)]) - 5.0


def product(q):
    return jnp.sum((jnp.asarray(np.eye(N) - np.eye(N, k=-1)) @ q) ** 2, axis=1) - 5.0


def mapped(q):
    inner = jax.vmap(lambda i, j: jnp.sum((q[i] - q[j]) ** 2))(*PAIRS.T)
    return jnp.concatenate([jnp.sum(q[:1] ** 2, axis=1), inner]) - 5.0


def stacked(q):
    return jnp.stack([jnp.sum((q[i] - (q[i - 1] if i else 0.0)) ** 2) - 5.0 for i in range(N)])


WAYS = [sliced, difference, gathered, product, mapped, stacked]


@pytest.mark.parametrize("fn", WAYS)
def test_a_chain_is_found_however_it_is_written(fn):
    pattern = discover(as_callable(fn), jnp.zeros((N, 2)), ())
    assert pattern is not None
    assert pattern.sweeps == 2
    np.testing.assert_array_equal(pattern.indices.array, np.stack([np.arange(-1, N - 1), np.arange(N)], axis=1))


@pytest.mark.parametrize("fn", [sliced, gathered, product, mapped])
def test_the_jacobian_is_the_dense_one(fn):
    problem = hx.models.chain(N)
    q = problem.q0 + 0.1 * np.random.default_rng(1).normal(size=(N, 2))
    system = hx.System(lambda q: jnp.sum(q[:, 1]), fn, mass=2.0)
    jac = system.linearize(q)
    assert not hasattr(jac, "matrix")
    np.testing.assert_allclose(jac.todense(), jax.jacrev(fn)(q).reshape(N, -1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("fn", [sliced, difference, gathered, mapped])
def test_equal_rows_share_one_program(fn):
    """The first link hangs from the origin and has a program of its own."""
    pattern = discover(as_callable(fn), jnp.zeros((N, 2)), ())
    assert pattern is not None
    assert pattern.groups is not None
    assert len(pattern.groups) == 2


@pytest.mark.parametrize("fn", [product, stacked])
def test_rows_with_too_many_programs_are_differentiated_by_sweeps(fn):
    pattern = discover(as_callable(fn), jnp.zeros((N, 2)), ())
    assert pattern is not None
    assert pattern.groups is None


def test_row_programs_have_the_derivatives_of_the_function():
    """Products of small matrices, powers, choices, constants per row, parameters, and rows in a mixed order."""
    rng = np.random.default_rng(2)
    q, frames = jnp.asarray(rng.normal(size=(N, 3))), jnp.asarray(rng.normal(size=(N - 1, 3, 3)))

    def fn(q, params):
        lengths = jnp.sqrt(params["scale"]) * jnp.arange(1.0, N)
        apart = q[1:] - q[:-1]
        turned = jnp.einsum("eij,ej->ei", frames, apart)
        bent = jnp.where(turned[:, 0] > 0, jnp.sin(turned[:, 1]), jnp.prod(apart, axis=1))
        rows = jnp.stack([jnp.sum(apart**2, axis=1) - lengths**2, bent / lengths], axis=1).reshape(-1)
        ends = jnp.pad(jax.vmap(jnp.dot)(q[:4], q[:4]), (1, 0), constant_values=2.0) * params["weights"]
        return jnp.concatenate([rows[::-1], ends])

    params = {"scale": jnp.asarray(1.3), "weights": jnp.asarray(rng.normal(size=5))}
    pattern = discover(as_callable(fn), q, (params,))
    assert pattern is not None
    assert pattern.groups is not None
    system = hx.System(lambda q, params: jnp.sum(q[:, 1]), fn, params=params)
    found, expected = jax.jit(lambda q: (system.linearize(q).todense(), jax.jacrev(fn)(q, params)))(q)
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=0, atol=1e-13)


def test_a_derivative_rule_of_the_user_is_followed():
    @jax.custom_jvp
    def length(x):
        return jnp.sqrt(x)

    length.defjvp(lambda x, dx: (length(x[0]), 7.0 * dx[0]))
    fn = lambda q: length(jnp.sum((q[1:] - q[:-1]) ** 2, axis=1)) - 1.0
    q = jnp.asarray(np.random.default_rng(3).normal(size=(N, 2)))
    system = hx.System(lambda q: jnp.sum(q[:, 1]), fn)
    found, expected = jax.jit(lambda q: (system.linearize(q).todense(), jax.jacrev(fn)(q)))(q)
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=0, atol=1e-13)


@pytest.mark.slow
def test_a_plain_function_takes_hardly_more_operations_than_distances():
    problem = hx.models.chain(100)
    links = hx.Distance([(i - 1, i) for i in range(100)], 5.0**0.5)
    plain, declared = (
        hx.simulate(system, hx.RATTLE(), problem.q0, problem.p0, dt=0.01, steps=2).stats["operations"]
        for system in (hx.System(lambda q: jnp.sum(q[:, 1]), fn) for fn in (sliced, links))
    )
    assert plain <= 1.1 * declared


def test_dependence_covers_the_jacobian():
    """Never less than what derivatives show, for operations with and without a rule of their own."""
    q = np.random.default_rng(1).normal(size=(20, 3))
    weights = jnp.asarray(np.random.default_rng(0).integers(0, 2, (30, 20)) * 1.0)

    def fn(q):
        sums = jnp.cumsum(q, axis=0)[:, 0]  # no rule: everything
        pairs = jnp.einsum("id,jd->ij", q[:4], q[5:9]).reshape(-1)
        turned = jnp.where(q[::-1, 1] > 0, jnp.sin(q[:, 2]), jnp.flip(q[:, 0]))
        placed = jnp.zeros(25).at[2:22].set(q[:, 1])
        padded = jnp.pad(q[:, 0] * q[:, 1], (2, 1))
        return jnp.concatenate([sums, pairs, turned, placed, padded, weights @ q[:, 0], jnp.prod(q, axis=1)])

    found = dependence(jax.make_jaxpr(fn)(q), 0).toarray()
    truth = np.abs(np.asarray(jax.jit(jax.jacfwd(fn))(q))).sum(axis=2) > 0
    assert not np.any(truth & ~found)
    np.testing.assert_array_equal(found[-50:-20], np.asarray(weights) > 0)


def test_explain_says_what_was_found():
    problem = hx.models.chain(N)
    system = hx.System(lambda q: jnp.sum(q[:, 1]), sliced)
    text = str(hx.explain(system, hx.RATTLE(), problem.q0, backend="array"))
    assert "tridiagonal" in text
    assert "at most 2 particles found in a plain function, their derivatives row by row" in text


def test_rows_that_touch_everything_stay_dense():
    def fn(q):
        return jnp.sin(jnp.cumsum(q[:, 0] * q[:, 1]))[:20]

    system = hx.System(lambda q: jnp.sum(q[:, 1]), fn)
    assert "dense LU" in system.structure(jnp.ones((N, 2)))


def test_a_run_is_that_of_distances():
    problem = hx.models.chain(N)
    plain = hx.System(problem.system.potential_fn, lambda q, params: sliced(q), params=problem.system.params)
    one, other = (
        hx.simulate(system, hx.RATTLE(), problem.q0, problem.p0, dt=0.01, steps=20, backend="array")
        for system in (plain, problem.system)
    )
    np.testing.assert_allclose(one.q[-1], other.q[-1], rtol=0, atol=1e-11)
