"""Applied forces that depend strongly on the velocity: steps converge at any rate of damping."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

LINEAR = lambda q, v, t, k: -k * v
CUBIC = lambda q, v, t, k: -k * v * (1.0 + v @ v)
ONE_WAY = lambda q, v, t, k: -k * jnp.array([v[0], 0.0])


def light_pendulum(force, rate, mass=0.1):
    potential, constraint = lambda q, k: 0.981 * q[1], lambda q, k: jnp.array([q @ q - 1.0])
    return hx.System(potential, constraint, mass=mass, force=force, params=rate)


@pytest.mark.parametrize("mass", [0.1, np.array([0.1, 0.001])], ids=["equal", "light"])
@pytest.mark.parametrize("force", [LINEAR, CUBIC, ONE_WAY], ids=["linear", "cubic", "one way"])
def test_strong_damping(force, mass):
    """dt 0.05; sweeps that only refresh the force contract up to a rate of 2/dt = 40, that is k = 4 for a mass 0.1."""
    for rate in (1.0, 10.0, 1e2, 1e4):
        system = light_pendulum(force, rate, mass)
        q, p = hx.project(system, [0.6, -0.8], [0.08, 0.06])
        sol = hx.simulate(system, hx.RATTLE(), q, p, dt=0.05, steps=100)
        assert sol.stats["retries"] == 0 and sol.stats["max_iterations"] < 80
        assert sol.constraint_error().max() < 1e-14 and sol.hidden_constraint_error().max() < 1e-12
        assert sol.energy()[-1] < sol.energy()[0]


def test_it_is_the_same_solution():
    """A rate that the plain sweeps still treat, and one that they do not: the step solves its equations."""
    for rate in (3.0, 30.0):
        system = light_pendulum(LINEAR, rate)
        q, p = hx.project(system, [0.6, -0.8], [0.08, 0.06])
        dt, sol = 0.05, hx.simulate(system, hx.RATTLE(), q, p, dt=0.05, steps=1)
        lr = sol.step_multipliers["lr"][1]
        # p+ of the equations in `methods.implicit_drift`, with H_q = grad V and f = -rate p+ / m
        pull = jax.jacfwd(system.constraint)(q).T @ lr
        half = (p - dt / 2 * (np.array([0.0, 0.981]) + pull)) / (1 + dt / 2 * rate / 0.1)
        np.testing.assert_allclose(sol.q[1], q + dt * half / 0.1, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_many_coordinates():
    """A chain of twelve light links with dampers: steps that do not converge are repeated with care."""
    pairs = [[k - 1, k] for k in range(12)]
    chain = lambda k: hx.System(
        lambda q, k: jnp.sum(q[:, 1]), hx.Distance(pairs, 0.1), mass=0.01, force=lambda q, v, t, k: -k * v, params=k
    )
    q = 0.1 * np.stack([np.arange(1, 13), np.zeros(12)], 1)
    sol = hx.simulate(chain(3.0), hx.RATTLE(), q, np.zeros_like(q), dt=0.02, steps=20)
    assert sol.stats["retries"] > 0
    assert sol.constraint_error().max() < 1e-15
    fine = hx.simulate(chain(3.0), hx.RATTLE(), q, np.zeros_like(q), dt=0.001, steps=400)
    assert np.abs(sol.q[-1] - fine.q[-1]).max() < 2e-3


def test_a_gradient_through_strong_damping():
    system = light_pendulum(LINEAR, 10.0)
    q, p = hx.project(system, [0.6, -0.8], [0.08, 0.06])
    end = lambda k: hx.integrate(light_pendulum(LINEAR, k), hx.RATTLE(), q, p, dt=0.05, steps=20)[0][0]
    value, slope = jax.jvp(end, (10.0,), (1.0,))
    h = 1e-3
    assert float(slope) == pytest.approx(float(end(10 + h) - end(10 - h)) / (2 * h), rel=1e-6)


@pytest.mark.slow
def test_a_gradient_through_many_coordinates():
    """More than 256 equations: their Jacobian is not formed."""
    pairs, count = [[k - 1, k] for k in range(120)], 120
    q = jnp.stack([jnp.arange(1.0, count + 1), jnp.zeros(count)], 1)

    def end(k):
        drag = lambda q, v, t, k: -k * v * (1 + jnp.sum(v**2))
        system = hx.System(lambda q, k: jnp.sum(q[:, 1]), hx.Distance(pairs, 1.0), force=drag, params=k)
        return hx.integrate(system, hx.RATTLE(), q, 0 * q, dt=0.05, steps=20)[0][-1, 1]

    h = 1e-4
    assert float(jax.grad(end)(0.3)) == pytest.approx(float(end(0.3 + h) - end(0.3 - h)) / (2 * h), rel=1e-6)
