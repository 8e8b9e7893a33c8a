"""The high-order family: orders, the three invariants together, rest, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.trace.degrees import polynomial_degree

from .common import exactness, one_step, orders, run


@pytest.mark.parametrize(("order", "meshes"), [(6, (10, 20, 40)), (8, (8, 12, 16))])
def test_order(order, meshes):
    rates, errors = orders(hx.LineIntegral(order), meshes=meshes)
    assert np.all(np.abs(rates - order) < 0.2), (rates, errors)


def test_published_errors_at_small_steps():
    _, errors = orders(hx.LineIntegral(4, degree=3), meshes=(40,))
    assert errors[0] < 4.4e-8
    _, errors = orders(hx.LineIntegral(6), meshes=(40,))
    assert errors[0] < 6.4e-12


@pytest.mark.parametrize("order", [4, 6, pytest.param(8, marks=pytest.mark.slow)])
def test_all_three_over_many_steps(order):
    problem = hx.models.modified_pendulum()
    sol = run(problem, hx.LineIntegral(order), 0.1, 100_000, save_every=100)
    assert max(exactness(sol)) < 1e-13
    assert sol.stats["mean_iterations"] < 7


def test_controls_lose_one_of_the_three():
    problem = hx.models.modified_pendulum()
    assert exactness(run(problem, hx.RATTLE(), 0.1, 100))[0] > 1e-4
    assert exactness(run(problem, hx.HBVM(6, 2), 0.1, 100))[2] > 1e-3
    assert exactness(run(problem, hx.RK4(), 0.1, 100))[1] > 1e-7


def test_satellites():
    problem = hx.models.tethered_satellites()
    sol = run(problem, hx.LineIntegral(4), 0.1, 1000)
    energy, constraint, hidden = exactness(sol)
    # g = |d|^2 - 1 with d the difference of two positions of size 20, each rounded by half an ulp in three coordinates
    ulp = np.sqrt(3) * np.spacing(np.max(np.abs(sol.q)))
    speed = np.max(np.linalg.norm(sol.p - np.roll(sol.p, -1, axis=1), axis=-1))
    tension = np.sum(np.max(np.abs(sol.multipliers), axis=0))
    # the tethers do work on what is left of g
    assert constraint < 2 * ulp and hidden < 2 * speed * ulp and energy < tension * 2 * ulp < 1e-14


def test_from_rest_and_at_rest():
    problem = hx.models.double_pendulum()  # starts at rest
    assert max(exactness(run(problem, hx.LineIntegral(4), 0.05, 400))) < 1e-14
    hanging = hx.models.planar_pendulum(angular_velocity=0.0)  # in equilibrium
    sol = run(hanging, hx.LineIntegral(4), 0.1, 100)
    assert np.all(np.isfinite(sol.q)) and np.array_equal(sol.q[-1], np.asarray(hanging.q0))
    tiny = hx.models.planar_pendulum(angular_velocity=1e-9)
    sol = run(tiny, hx.LineIntegral(4), 0.1, 1000)
    assert np.max(np.abs(sol.q[:, 0] - 1e-9 * np.sin(sol.t))) < 2e-14  # the phase error of order 4


def test_large_steps_from_rest():
    # Newton's fallback from uniform motion would stay at rest, where beta has no derivative
    system = hx.models.double_pendulum().system
    angles = np.array([[3.0, 3.0], [3.5, 5.0], [0.0, 4.5], [0.0, 5.0]])
    rods = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * np.array([1.0, np.sqrt(2)])[:, None]
    q = np.cumsum(rods, axis=1)
    ens = hx.simulate_ensemble(system, hx.LineIntegral(4), q, np.zeros_like(q), dt=1.5, steps=1)
    assert ens.ok.all() and ens.stats["retries"] > 0
    assert np.max(np.abs(ens.energy_error())) < 1e-13


@pytest.mark.parametrize("iteration", ["fixed-point", "newton"])
def test_iterations_agree(iteration):
    problem = hx.models.modified_pendulum()
    chord, other = (run(problem, hx.LineIntegral(4, iteration=i), 0.1, 30) for i in ("chord", iteration))
    assert np.max(np.abs(chord.q - other.q)) < 1e-13 and np.max(np.abs(chord.p - other.p)) < 1e-13


def test_few_iterations_per_step():
    # a chain of 20 has structured rows, whose matrix is not solved exactly, and a large tension
    for problem, order in ((hx.models.double_pendulum(), 6), (hx.models.chain(20), 4)):
        sol = run(problem, hx.LineIntegral(order), 0.05, 100, save_every=100)
        assert sol.stats["mean_iterations"] < 2.2


def test_large_steps_take_new_matrices():
    sol = run(hx.models.planar_pendulum(), hx.LineIntegral(6), 1.0, 200)
    assert max(exactness(sol)) < 1e-14 and sol.stats["mean_iterations"] > 8


def test_nodes_follow_the_degrees_of_the_functions():
    method, problem = hx.LineIntegral(6), hx.models.double_pendulum()
    assert method.nodes(problem.system, problem.q0) == 4
    few, many = (run(problem, m, 0.05, 100) for m in (method, hx.LineIntegral(6, 9)))
    assert np.max(np.abs(few.q - many.q)) < 1e-12 and np.max(np.abs(few.p - many.p)) < 1e-12
    satellites = hx.models.tethered_satellites()
    assert method.nodes(satellites.system, satellites.q0) == 9  # 1/r
    pushed = hx.System(lambda q: q[0], lambda q: q @ q - 1, force=lambda q, v, t: -v)
    assert method.nodes(pushed, jnp.ones(2)) == 9


@pytest.mark.parametrize(
    ("fn", "degree"),
    [
        (lambda q: 3.0, 0),
        (lambda q: q[1:] - q[:-1], 1),
        (lambda q: (q @ q) ** 2 / 4 + jnp.sum(q), 4),
        (lambda q: jnp.where(jnp.arange(3) > 0, q**3, q[::-1]), 3),
        (lambda q: jax.jit(jnp.square)(jnp.exp(2.0) * q[jnp.asarray([0, 2])]), 2),
        (lambda q: 1 / q[0], np.inf),
        (lambda q: jnp.where(q > 0, q, -q), np.inf),
        (lambda q: q[q.astype(int)], np.inf),
        (lambda q: jnp.sqrt(q @ q), np.inf),
    ],
)
def test_degrees_of_functions(fn, degree):
    assert polynomial_degree(fn, jnp.ones(3)) == degree


def test_without_constraints_it_is_hbvm():
    problem = hx.models.henon_heiles()
    ours, theirs = (run(problem, m, 0.25, 100) for m in (hx.LineIntegral(4), hx.HBVM(6, 2)))
    assert np.max(np.abs(ours.q - theirs.q)) < 1e-13
    assert np.max(np.abs(ours.energy_error())) < 1e-15


def test_mass_matrix_and_several_constraints():
    problem = hx.models.double_pendulum(masses=(0.3, 2.0))
    assert max(exactness(run(problem, hx.LineIntegral(4), 0.05, 400))) < 1e-13
    matrix = np.asarray([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 1.5]])
    system = hx.System(lambda q: q[2], lambda q: jnp.stack([q @ q - 1]), mass=matrix)
    q, p = hx.project(system, [0.6, 0.0, -0.8], [0.1, 0.5, 0.2])
    assert max(exactness(hx.simulate(system, hx.LineIntegral(4), q, p, dt=0.05, steps=400))) < 5e-15


def test_derivative_is_that_of_the_map():
    problem = hx.models.planar_pendulum()
    flow = jax.jit(one_step(problem, hx.LineIntegral(4), 0.1))
    z = jnp.concatenate([problem.q0, problem.p0])
    J, h = np.asarray(jax.jacfwd(flow)(z)), 1e-5
    differences = np.stack([(flow(z + h * e) - flow(z - h * e)) / (2 * h) for e in jnp.eye(z.size)], axis=1)
    assert np.max(np.abs(J - differences)) < 1e-7


def test_refusals():
    with pytest.raises(hx.InputError, match="order"):
        hx.LineIntegral(5)
    with pytest.raises(hx.InputError, match="at least 6 quadrature nodes"):
        hx.LineIntegral(6, quadrature=4)
    with pytest.raises(hx.InputError, match="degree"):
        hx.LineIntegral(6, degree=2)
    curved = hx.System(lambda q: q[0], mass=lambda q: jnp.eye(2) * (1 + q @ q))
    with pytest.raises(hx.MethodError, match=r"LineIntegral\(4\) needs a constant mass"):
        hx.LineIntegral(4).check(curved)
