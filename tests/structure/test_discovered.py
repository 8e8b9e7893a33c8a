"""The structure of constraints that are written as one plain function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.systems.discovered import discover
from holonomix.systems.functions import as_callable
from holonomix.systems.sparsity import dependence

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
    np.testing.assert_allclose(jac.todense(), jax.jacrev(fn)(q).reshape(N, -1), atol=1e-14)


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
    assert "at most 2 particles found in a plain function" in text


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
    np.testing.assert_allclose(one.q[-1], other.q[-1], atol=1e-11)
