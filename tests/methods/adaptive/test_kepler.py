"""Adaptive Verlet on a slender Kepler ellipse, and the symplectic alternative."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.core.types import State

from .support import orders, there_and_back

PERIOD = 2 * np.pi


def test_energy_stays_bounded_over_a_thousand_periods_far_below_fixed_steps():
    problem = hx.models.kepler(0.9)
    sol = hx.simulate(problem, hx.AdaptiveVerlet(), dt=5e-4, t1=1000 * PERIOD)
    n = sol.stats["steps"]
    error = np.abs(sol.energy_error())
    fixed = hx.simulate(problem, hx.StormerVerlet(), dt=1000 * PERIOD / n, steps=n)
    assert np.max(error) < 1.001 * np.max(error[: n // 100])  # what ten periods show is all there is
    assert np.max(np.abs(fixed.energy_error())) > 50 * np.max(error)


@pytest.mark.parametrize("update", ["semi-explicit", "explicit"])
def test_order_and_reversal(update):
    problem = hx.models.kepler(0.6)
    method = hx.AdaptiveVerlet(update=update)
    found, _ = orders(problem, method, 0.02, 200, doublings=2)
    assert all(1.9 < order < 2.1 for order in found), found
    assert there_and_back(problem, method, 0.02, 1000)[0] < 1e-11
    naive, _ = orders(problem, hx.AdaptiveVerlet(update=update, start="naive"), 0.02, 200, doublings=2)
    assert naive[-1] < 1.3, naive


def test_negative_steps_run_backwards():
    problem = hx.models.kepler(0.6)
    sol = hx.simulate(problem, hx.AdaptiveVerlet(), dt=-0.01, t1=-3.0)
    assert sol.t[-1] <= -3.0 and np.all(np.diff(sol.t) < 0)
    q, _ = problem.reference(sol.t)
    assert np.max(np.abs(sol.q - q)) < 5e-3


def test_save_at_interpolates_in_physical_time():
    problem = hx.models.kepler(0.6)
    times = np.linspace(0.0, 6.0, 31)
    coarse, fine = (hx.simulate(problem, hx.AdaptiveVerlet(), dt=dt, save_at=times) for dt in (0.01, 0.005))
    q, p = problem.reference(times)
    np.testing.assert_allclose(coarse.t, times, rtol=0, atol=1e-14)
    errors = [np.max(np.abs(sol.q - q)) for sol in (coarse, fine)]
    assert errors[0] < 1e-2 and 3.5 < errors[0] / errors[1] < 4.5
    assert np.max(np.abs(fine.p - p)) < 1e-2


@functools.cache
def generic_pendulum():
    problem = hx.models.double_pendulum(angles=(1.0, 0.3))
    q, p = hx.project(problem.system, problem.q0, jnp.asarray([[0.3, -0.2], [0.1, 0.4]]))
    return hx.Problem(problem.system, q, p, 0.05, 1.0)


def tangents(system, q, p):
    """A basis of the tangent space of the cotangent bundle at (q, p)."""
    n = q.size

    def both(z):
        q1, p1 = z[:n].reshape(q.shape), z[n:].reshape(q.shape)
        return jnp.concatenate([system.constraint(q1), system.hidden_constraint(q1, p1)])

    z = jnp.concatenate([q.ravel(), p.ravel()])
    if not system.has_constraints:
        return z, np.eye(2 * n)
    _, values, rows = np.linalg.svd(np.asarray(jax.jacfwd(both)(z)))
    return z, rows[len(values) :].T


def symplectic_defect(problem, method, dt):
    """`T^T (J^T W J - W) T` of one step, away from the start so that H differs from H_0."""
    system = problem.system.prepare(problem.q0)
    state = State(problem.q0, problem.p0, jnp.asarray(0.0), jnp.asarray(0))
    carry = eqx.filter_jit(method.init)(system, state, dt)
    step = eqx.filter_jit(lambda state, carry: method.step(system, state, dt, carry)[:2])
    for _ in range(4):
        state, carry = step(state, carry)
    n, shape = state.q.size, state.q.shape

    def flow(z):
        new, _ = step(State(z[:n].reshape(shape), z[n:].reshape(shape), state.t, state.n), carry)
        return jnp.concatenate([new.q.ravel(), new.p.ravel()])

    z, basis = tangents(system, state.q, state.p)
    jacobian = np.asarray(jax.jit(jax.jacfwd(flow))(z))
    w = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    return np.max(np.abs(basis.T @ (jacobian.T @ w @ jacobian - w) @ basis))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: hx.models.kepler(0.6), id="free"),
        pytest.param(generic_pendulum, id="constrained", marks=pytest.mark.slow),
    ],
)
def test_poincare_euler_is_symplectic_of_order_one(make):
    problem = make()
    assert symplectic_defect(problem, hx.PoincareEuler(), 0.02) < 1e-13
    found, _ = orders(problem, hx.PoincareEuler(), 0.01, 50, doublings=2)
    assert all(0.9 < order < 1.1 for order in found), found


def test_the_defect_would_show():
    # explicit Euler's kick and drift from the same point is not symplectic
    problem = generic_pendulum()
    assert symplectic_defect(problem, hx.RATTLE(), 0.02) < 1e-13
    assert symplectic_defect(hx.models.kepler(0.6), hx.ExplicitEuler(), 0.02) > 1e-3


def test_poincare_euler_keeps_the_energy_near_and_the_constraints():
    problem = hx.models.kepler(0.6)
    sol = hx.simulate(problem, hx.PoincareEuler(), dt=2e-3, t1=50 * PERIOD)
    first = np.max(np.abs(sol.energy_error()[: len(sol.t) // 25]))
    assert np.max(np.abs(sol.energy_error())) < 1.05 * first
    constrained = generic_pendulum()
    sol = hx.simulate(constrained, hx.PoincareEuler(), dt=0.01, steps=300)
    assert np.max(sol.constraint_error()) < 1e-13
    assert np.max(sol.hidden_constraint_error()) < 1e-13
