"""Constraints that depend on each other: named in the error, and solved on request."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.linalg.fronts import FrontFactor
from holonomix.mechanics.projection import check_rank

TETRAHEDRON = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(8)
EDGES = np.array(list(itertools.combinations(range(4), 2)))


def tetrahedron(seventh=True):
    extra = [lambda q: jnp.stack([jnp.sum((q[0] - q[1]) ** 2) + jnp.sum((q[2] - q[3]) ** 2) - 2.0])]
    pull = lambda q: 0.5 * jnp.sum((q[0] - 2.0) ** 2) + jnp.sum(q[:, 2])
    return hx.System(
        pull, [hx.Distance(EDGES, 1.0), *extra[: int(seventh)]], mass=np.array([[1.0], [2.0], [3.0], [4.0]])
    )


def all_distances(points):
    """Every distance of a set of points, more than its motion as a rigid body needs."""
    pairs = np.array(list(itertools.combinations(range(len(points)), 2)))
    lengths = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1)
    pull = lambda q: jnp.sum(jnp.cos(q[:, 0]) + 0.3 * q[:, 1] ** 2)
    return hx.System(pull, hx.Distance(pairs, lengths)), points


def methane():
    return all_distances(np.concatenate([np.zeros((1, 3)), 1.09 * np.sqrt(8 / 3) * TETRAHEDRON]))


def planar_ring(n=5):
    angle = 2 * np.pi * np.arange(n) / n
    return all_distances(np.stack([np.cos(angle), np.sin(angle)], 1))


def moving(system, q):
    p = np.random.default_rng(0).normal(size=q.shape)
    return hx.project(system, q, p, redundant="min-norm")


def test_error_names_the_rows():
    with pytest.raises(hx.ConstraintRankError, match=r"rank 6.*rows \[0, 5, 6\].*condition number.*min-norm"):
        check_rank(tetrahedron(), jnp.asarray(TETRAHEDRON))
    with pytest.raises(hx.InputError, match="redundant must be"):
        hx.Newton(redundant="yes")


@pytest.mark.slow
def test_every_way_in_refuses_redundant_rows():
    for run in (hx.project, lambda *a: hx.simulate(a[0], hx.RATTLE(), *a[1:], dt=0.01, steps=2)):
        with pytest.raises(hx.ConstraintRankError, match="rank 6"):
            run(tetrahedron(), TETRAHEDRON, np.zeros((4, 3)))


def test_a_plane_triangle_with_a_row_too_many():
    """The short form of the tetrahedron below: the same row twice."""
    q = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    rows = hx.Distance([(0, 1), (1, 2), (2, 0), (1, 0)], 1.0)
    triangle = hx.System(lambda q: 0.5 * jnp.sum((q[0] - 2.0) ** 2), rows)
    with pytest.raises(hx.ConstraintRankError, match=r"rows \[0, 3\]"):
        check_rank(triangle, jnp.asarray(q))
    spin = 0.3 * np.stack([-q[:, 1], q[:, 0]], 1)
    method = hx.RATTLE(hx.Newton(redundant="min-norm"))
    sol = hx.simulate(triangle, method, q, spin, dt=0.01, steps=20_000, save_every=500)
    assert sol.constraint_error().max() < 1e-14
    assert np.abs(sol.energy_error()).max() < 1e-3
    np.testing.assert_allclose(
        sol.multipliers[:, 0], sol.multipliers[:, 3], rtol=0, atol=1e-10
    )  # of least norm: shared


@pytest.mark.slow
@pytest.mark.parametrize("solver", [hx.Newton, hx.SymmetricNewton])
def test_tetrahedron_at_round_off(solver):
    system = tetrahedron()
    q, p = moving(system, TETRAHEDRON)
    sol = hx.simulate(system, hx.RATTLE(solver(redundant="min-norm")), q, p, dt=0.01, steps=100_000, save_every=500)
    assert sol.constraint_error().max() < 1e-14
    assert sol.hidden_constraint_error().max() < 1e-13
    assert np.abs(sol.energy_error()).max() < 1e-3
    plain = hx.simulate(tetrahedron(False), hx.RATTLE(), q, p, dt=0.01, steps=500, save_every=500)
    np.testing.assert_allclose(sol.q[1], plain.q[1], rtol=0, atol=1e-11)


@pytest.mark.slow
def test_multipliers_have_least_norm():
    system = tetrahedron()
    q, p = moving(system, TETRAHEDRON)
    sol = hx.simulate(system, hx.RATTLE(hx.Newton(redundant="min-norm")), q, p, dt=0.01, steps=3)
    step, exact = sol.step_multipliers["lr"][-1], sol.multipliers[-1]
    jac = np.asarray(system.linearize(sol.q[-1]).todense())
    null = np.linalg.svd(jac.T)[2][-1]
    assert abs(null @ exact) < 1e-12 and np.abs(null).min() < 0.9
    before = np.linalg.svd(np.asarray(system.linearize(sol.q[-2]).todense()).T)[2][-1]
    assert abs(before @ step) < 1e-10
    same = tetrahedron(False)
    np.testing.assert_allclose(
        system.linearize(q).transpose(sol.multipliers[0]),
        same.linearize(q).transpose(same.multipliers(q, p)),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.slow
@pytest.mark.parametrize("make", [methane, planar_ring])
def test_over_constrained_bodies(make):
    system, q = make()
    with pytest.raises(hx.ConstraintRankError):
        hx.project(system, q, np.zeros_like(q))
    q, p = moving(system, q)
    sol = hx.simulate(system, hx.RATTLE(hx.Newton(redundant="min-norm")), q, p, dt=0.004, steps=3000, save_every=100)
    assert sol.constraint_error().max() < 2e-14
    assert np.abs(sol.energy_error()).max() < 2e-3


def test_a_rod_stays_sparse_when_redundant_rows_are_allowed():
    rod = hx.models.cosserat_rod(9)
    gram = jax.jit(lambda q: rod.system.gram(q, rod.system.linearize(q), rod.system.linearize(q)))(rod.q0)
    found = gram.factor_redundant(symmetric=True)
    assert isinstance(found.factor, FrontFactor)
    b = jnp.sin(jnp.arange(54.0))
    np.testing.assert_allclose(found.solve(b), gram.factor(symmetric=True).solve(b), rtol=1e-9)


@pytest.mark.slow
def test_many_redundant_molecules_stay_independent():
    system, q = methane()
    pairs = np.asarray(system.constraint_terms[0].indices.array)
    many = np.concatenate([pairs + 5 * k for k in range(6)])
    lengths = np.tile(system.constraint_terms[0].lengths, 6)
    cluster = hx.System(lambda x: jnp.sum(jnp.cos(x[:, 0]) + 0.3 * x[:, 1] ** 2), hx.Distance(many, lengths))
    start = np.concatenate([q] * 6)
    assert "6 independent blocks of 10 rows" in cluster.structure(jnp.asarray(start))
    a = moving(system, q)
    b = (jnp.concatenate([x] * 6) for x in a)
    method = hx.RATTLE(hx.Newton(redundant="min-norm"))
    one = hx.simulate(system, method, *a, dt=0.01, steps=200, save_every=200)
    all_of_them = hx.simulate(cluster, method, *b, dt=0.01, steps=200, save_every=200)
    assert all_of_them.constraint_error().max() < 1e-14
    np.testing.assert_allclose(all_of_them.q[-1][10:15], one.q[-1], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_projection_is_differentiable_with_redundant_rows():
    system = tetrahedron()
    away = jnp.asarray(TETRAHEDRON) + 0.05 * np.random.default_rng(3).normal(size=(4, 3))
    target = lambda s: hx.project(system, away + s, jnp.ones((4, 3)), redundant="min-norm")[0][1, 2]
    slope = jax.grad(lambda s: target(s * jnp.ones((4, 3)) * jnp.arange(3)))(0.0)
    h = 1e-5
    difference = (target(h * jnp.ones((4, 3)) * jnp.arange(3)) - target(-h * jnp.ones((4, 3)) * jnp.arange(3))) / (
        2 * h
    )
    np.testing.assert_allclose(slope, difference, rtol=1e-6)
