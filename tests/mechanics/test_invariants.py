"""Energies, momenta and trends against their definitions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics import invariants


def test_momenta_in_every_dimension():
    rng = np.random.default_rng(1)
    q, p = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    np.testing.assert_allclose(invariants.angular_momentum(q, p), np.cross(q, p).sum(0), rtol=1e-14)
    np.testing.assert_allclose(invariants.linear_momentum(q, p), p.sum(0), rtol=1e-14)
    np.testing.assert_allclose(invariants.angular_momentum(q[0], p[0]), np.cross(q[0], p[0]), rtol=1e-14)
    plane = invariants.angular_momentum(q[:, :2], p[:, :2])
    np.testing.assert_allclose(plane, [(q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0]).sum()], rtol=1e-14)
    four = invariants.angular_momentum(jnp.eye(4)[0], jnp.eye(4)[2])
    np.testing.assert_array_equal(four, [0, 1, 0, 0, 0, 0])  # the plane (0, 2) among (01, 02, 03, 12, 13, 23)


def test_angular_momentum_about_another_center():
    q, p, c = jnp.array([[1.0, 2.0, 3.0]]), jnp.array([[0.5, -1.0, 2.0]]), jnp.array([1.0, 1.0, 1.0])
    shift = invariants.angular_momentum(q, p) - invariants.angular_momentum(q, p, center=c)
    np.testing.assert_allclose(shift, jnp.cross(c, p[0]), rtol=1e-14)


def test_momenta_refuse_what_has_none():
    with pytest.raises(hx.ShapeError, match="two dimensions"):
        invariants.angular_momentum(jnp.ones((3, 1)), jnp.ones((3, 1)))
    with pytest.raises(hx.ShapeError, match=r"\(2, 2, 2\)"):
        invariants.linear_momentum(jnp.ones((2, 2, 2)), jnp.ones((2, 2, 2)))


def test_constraint_errors_of_a_state():
    problem = hx.models.planar_pendulum()
    q, p = 1.1 * problem.q0, problem.p0 + 0.2 * problem.q0
    assert float(invariants.constraint_error(problem.system, q)) == pytest.approx(0.21, rel=1e-14)
    assert float(invariants.hidden_constraint_error(problem.system, q, p)) == pytest.approx(0.44, rel=1e-14)
    free = hx.models.kepler()
    assert float(invariants.constraint_error(free.system, free.q0)) == 0.0
    assert float(invariants.energy(free.system, free.q0, free.p0)) == pytest.approx(-0.5, rel=1e-14)


def test_a_trend_tells_drift_from_oscillation():
    t = np.linspace(0.0, 100.0, 1001)
    still, climbing = invariants.trend(t, np.sin(t)), invariants.trend(t, np.sin(t) + 0.1 * t)
    assert not still.grows and climbing.grows
    assert climbing.slope == pytest.approx(0.1, rel=0.02)
    assert still.spread == pytest.approx(2.0, rel=0.1)


def test_user_invariants_along_a_run():
    problem = hx.models.tethered_satellites()
    sol = hx.simulate(problem, hx.RATTLE(), dt=0.1, steps=200, backend="native")
    kept = invariants.along({**problem.invariants, "x": lambda q, p: q[2, 0]}, sol.q, sol.p)
    assert kept["angular momentum"].shape == (201, 3)
    assert invariants.drift(kept["angular momentum"]) < 1e-12
    assert invariants.drift(kept["x"]) > 0.1


def test_kinetic_temperature_counts_the_directions_that_are_left():
    system = hx.System(lambda q: 0.0, lambda q: jnp.sum(q**2, keepdims=True) - 1.0, mass=2.0)
    q, p = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 3.0])
    assert float(invariants.kinetic_temperature(system, q, p)) == 2.5  # K = 10/4, two directions
    assert float(invariants.kinetic_temperature(system.penalized(10.0), q, p)) == pytest.approx(5 / 3, rel=1e-14)
    assert float(invariants.kinetic_temperature(system, q, p, freedom=5)) == 1.0
