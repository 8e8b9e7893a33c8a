"""Runs with structured constraints: the motion of plain functions, molecules one by one, long chains to round-off."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics import potentials


def links(n):
    return np.stack([np.arange(-1, n - 1), np.arange(n)], 1)


def hanging(n, constraint):
    i = np.arange(1, n + 1)
    q = np.stack([i * np.sqrt(0.2), -i * np.sqrt(0.8)], 1)
    return hx.System(lambda x: jnp.sum(x[:, 1]), constraint), q, np.zeros_like(q)


FORMS = {
    "plain": lambda n: lambda x: hx.Distance(links(n), 1.0)(x),
    "two lists": lambda n: [hx.Distance(links(n)[: n - 1], 1.0), hx.Distance(links(n)[n - 1 :], 1.0)],
}


@pytest.mark.parametrize("form", ["plain", pytest.param("two lists", marks=pytest.mark.slow)])
def test_distances_and_a_plain_function_give_one_trajectory(form):
    n = 18
    ends = []
    for constraint in (hx.Distance(links(n), 1.0), FORMS[form](n)):
        system, q, p = hanging(n, constraint)
        ends.append(hx.integrate(system, hx.RATTLE(), q, p, dt=0.02, steps=100))
    (q, p), (other_q, other_p) = ends
    np.testing.assert_allclose(other_q, q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(other_p, p, rtol=0, atol=1e-10)


def test_plain_rows_border_structured_ones():
    n = 24
    closed = lambda x: jnp.stack([jnp.sum((x[-1] - jnp.asarray([6.0, -8.0])) ** 2) - 4.0, x[n // 2, 0] - 3.0])
    term = hx.Distance(links(n), 1.0)
    mixed = hx.System(lambda x: jnp.sum(x[:, 1]), [closed, term], mass=1.0 + np.arange(2.0 * n).reshape(n, 2) / n)
    # a sum over everything hides the structure, which would be found in the plain function
    rows = lambda x: jnp.concatenate([closed(x), term(x)]) + 0.0 * jnp.sum(x)
    plain = hx.System(mixed.potential_fn, rows, mass=mixed.mass)
    q = jnp.asarray(np.random.default_rng(0).normal(size=(n, 2)))
    assert "bordered by 2 rows" in mixed.structure(q) and "dense" in plain.structure(q)
    p = jnp.asarray(np.random.default_rng(1).normal(size=(n, 2)))

    @eqx.filter_jit
    def everything(system):
        jac = system.linearize(q)
        gram = system.gram(q, jac, jac)
        return jac(p), jac.row_sizes(p), jac.transpose(jac(p)), gram.todense(), system.multipliers(q, p)

    for a, b in zip(everything(mixed), everything(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_a_molecule_in_a_cluster_moves_as_if_alone():
    cluster = hx.models.rigid_molecules(8, seed=3)
    assert "8 independent blocks of 3 rows" in cluster.system.structure(cluster.q0)
    part = slice(6, 9)
    lengths, masses = cluster.system.params["lengths"][part], cluster.system.params["masses"][part]
    params = {**cluster.system.params, "lengths": lengths, "masses": masses}
    alone = hx.System(
        cluster.system.potential_fn,
        hx.Distance([(0, 1), (0, 2), (1, 2)], lambda p: p["lengths"]),
        mass=jnp.broadcast_to(masses[:, None], (3, 3)),
        params=params,
    )
    many = hx.integrate(cluster, hx.RATTLE(), dt=0.02, steps=50)
    one = hx.integrate(alone, hx.RATTLE(), cluster.q0[part], cluster.p0[part], dt=0.02, steps=50)
    np.testing.assert_allclose(many[0][part], one[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(many[1][part], one[1], rtol=0, atol=1e-11)


@pytest.mark.slow
def test_a_hundred_thousand_links_to_round_off():
    n = 100_000
    system, q, p = hanging(n, hx.Distance(links(n), 1.0))
    sol = hx.simulate(system, hx.RATTLE(), q, p, dt=0.3 / np.sqrt(n), steps=20, save_every=20)
    end = jnp.asarray(sol.q[-1])
    squares = jax.tree.map(jnp.square, system.linearize(end)).row_sizes(jnp.ones_like(end))
    error = jnp.abs(system.constraint(end)) / jnp.sqrt(squares)
    assert float(jnp.max(error)) < 8 * np.finfo(float).eps * float(jnp.max(jnp.abs(end)))


def test_potentials_add_up():
    q = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    bonds = hx.LocalPotential(
        lambda x, k: k * jnp.sum((x[0] - x[1]) ** 2), [[0, 1], [2, 3]], data=jnp.asarray([2.0, 3])
    )
    apart = np.sum((np.asarray(q[0::2]) - np.asarray(q[1::2])) ** 2, axis=1)
    wanted = 2 * apart[0] + 3 * apart[1] + float(jnp.sum(q[:, 2]))
    np.testing.assert_allclose(hx.System([bonds, lambda x: jnp.sum(x[:, 2])]).potential(q), wanted, rtol=1e-14)


@pytest.mark.slow
def test_pairs_and_local_potentials():
    rng = np.random.default_rng(0)
    q = jnp.asarray(rng.normal(size=(12, 3)))
    energy = lambda a, b: jnp.sum(1.0 / (1.0 + jnp.sum((a[:, None] - b[None]) ** 2, -1)))
    groups = np.arange(12).reshape(4, 3)
    expected = sum(energy(q[groups[a]], q[groups[b]]) for a in range(4) for b in range(a + 1, 4))
    pairs = hx.Pairs(energy, groups)
    np.testing.assert_allclose(pairs(q), expected, rtol=1e-14)
    before, potentials.UNROLLED_PAIRS = potentials.UNROLLED_PAIRS, 0
    try:
        looped = jax.value_and_grad(lambda x: hx.Pairs(energy, groups)(x))(q)
    finally:
        potentials.UNROLLED_PAIRS = before
    np.testing.assert_allclose(looped[0], expected, rtol=1e-14)
    np.testing.assert_allclose(looped[1], jax.grad(pairs)(q), rtol=0, atol=1e-13)
    bonds = hx.LocalPotential(
        lambda x, k: k * jnp.sum((x[0] - x[1]) ** 2), [[0, 5], [3, 7]], data=jnp.asarray([2.0, 3.0])
    )
    wanted = 2 * jnp.sum((q[0] - q[5]) ** 2) + 3 * jnp.sum((q[3] - q[7]) ** 2)
    np.testing.assert_allclose(bonds(q), wanted, rtol=1e-14)
    system = hx.System([pairs, bonds, lambda x: jnp.sum(x[:, 2])])
    np.testing.assert_allclose(system.potential(q), expected + wanted + jnp.sum(q[:, 2]), rtol=1e-14)
    np.testing.assert_allclose((pairs + bonds)(q), expected + wanted, rtol=1e-14)


def test_bad_structures_are_refused():
    with pytest.raises(hx.InputError, match="itself"):
        hx.Distance([[1, 1]])
    with pytest.raises(hx.InputError, match="positive"):
        hx.Distance([[0, 1]], -1.0)
    with pytest.raises(hx.InputError, match="fixed point -2"):
        hx.Distance([[-2, 0]])
    with pytest.raises(hx.ShapeError, match="pairs"):
        hx.Distance([[0, 1, 2]])
    with pytest.raises(hx.InputError, match="refers to particle 30"):
        hx.System(lambda q: 0.0, hx.Distance(links(31))).structure(jnp.zeros((30, 2)))
