"""A heavy weight straightens two light links: a passage far shorter than a step, which the error says and measures."""

from __future__ import annotations

import re

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import holonomix as hx
from holonomix.run.advice import advice

BEND, HALF, INERTIA, GRAVITY = 0.26, 0.25, 0.03, 9.81
X, Y = HALF * np.sin(BEND), HALF * np.cos(BEND)
END = 0.09  # the links are in line at about 0.083


def mechanism(weight):
    m = hx.Mechanism(gravity=(0, -GRAVITY), dimensions=2)
    upper = m.body("upper", mass=1.0, inertia=INERTIA, position=(X, -Y), rotation=BEND)
    lower = m.body("lower", mass=1.0, inertia=INERTIA, position=(X, -3 * Y), rotation=-BEND)
    load = m.body("load", mass=weight, inertia=1.0, position=(0, -4 * Y))
    m.revolute("shoulder", m.ground, upper, at=(0, 0))
    elbow = m.revolute("elbow", upper, lower, at=(2 * X, -2 * Y))
    m.revolute("wrist", lower, load, at=(0, -4 * Y))
    masses = [(1.0, (HALF, 0)), (1.0, (2 * HALF, HALF)), (weight, (2 * HALF, 2 * HALF))]
    return m.problem(dt=1e-3), lambda sol: elbow.angle(sol)[-1], masses, INERTIA


def points(weight):
    masses = np.array([[1.0], [weight]])

    def bend(sol):
        upper, lower = sol.q[-1, 0], sol.q[-1, 1] - sol.q[-1, 0]
        return np.arctan2(upper[0] * lower[1] - upper[1] * lower[0], upper @ lower) + 2 * BEND

    rods = lambda q: jnp.array([q[0] @ q[0], (q[1] - q[0]) @ (q[1] - q[0])]) - 4 * HALF**2
    system = hx.System(lambda q: GRAVITY * jnp.sum(masses[:, 0] * q[:, 1]), rods, mass=masses)
    problem = hx.Problem(system, np.array([[2 * X, -2 * Y], [0, -4 * Y]]), np.zeros((2, 2)), 1e-3, END)
    return problem, bend, [(1.0, (2 * HALF, 0)), (weight, (2 * HALF, 2 * HALF))], 0.0


def reference(masses, inertia):
    """The change of the angle between the links up to `END`, from two angles without constraints."""

    def rates(t, z):
        a, w = z[:2], z[2:]
        matrix, load = inertia * np.eye(2), np.zeros(2)
        for m, arms in masses:
            rows = np.array([arms * np.cos(a), arms * np.sin(a)])
            matrix += m * rows.T @ rows
            load -= m * (rows.T @ np.array([-(arms * np.sin(a)) @ w**2, (arms * np.cos(a)) @ w**2 + GRAVITY]))
        return np.concatenate([w, np.linalg.solve(matrix, load)])

    end = solve_ivp(rates, (0, END), [BEND, -BEND, 0, 0], method="DOP853", rtol=1e-10, atol=1e-10).y[:, -1]
    return end[1] - end[0] + 2 * BEND


def advised(text):
    found = re.search(r"singular position, for example with two links in line,.* Take dt below ([\d.e-]+),", text)
    assert found is not None, text
    return float(found[1])


def test_the_advice_gives_a_step_that_passes():
    problem, *_ = points(1e4)
    sol = hx.simulate(problem, hx.RATTLE(), t1=END, dt=1.5e-5)  # passes
    for k in (-670, -600):  # 3 and 2 ms before the links are in line
        state = sol.q[k], sol.t[k], sol.p[k]
        text = advice(hx.Status.NONFINITE, hx.RATTLE(), problem.system, *state, 4e-3)
        assert 1e-5 <= advised(text) <= 4e-5
    assert "singular" not in advice(hx.Status.NONFINITE, hx.RATTLE(), problem.system, *state, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [points, mechanism])
@pytest.mark.parametrize(("weight", "longest"), [(3e3, 7e-5), (1e4, 2e-5)])
def test_it_passes_along_the_exact_motion(make, weight, longest):
    problem, bend, masses, inertia = make(weight)
    with pytest.raises(hx.SimulationError) as caught:
        hx.simulate(problem, hx.RATTLE(), t1=END)
    dt = advised(str(caught.value))
    assert longest / 2.1 <= dt <= longest * 2.1
    exact, errors = reference(masses, inertia), []
    for part in (8, 16):
        sol = hx.simulate(problem, hx.RATTLE(), t1=END, dt=dt / part)
        errors.append(abs(bend(sol) - exact))
    assert errors[1] < 1e-3 and errors[1] < errors[0] / 3


def test_a_blow_up_of_a_potential_is_not_called_a_singular_position():
    system = hx.System(lambda q: -1.0 / (q[1] + 0.9) ** 2, lambda q: jnp.array([q @ q - 1.0]))
    with pytest.raises(hx.SimulationError) as caught:
        hx.simulate(system, hx.RATTLE(), np.array([1.0, 0.0]), np.array([0.0, -1.0]), dt=0.3, steps=400)
    assert "singular position" not in str(caught.value)


SLIDER = hx.System(
    lambda q: GRAVITY * jnp.sum(q[:, 1]),
    lambda q: jnp.array([q[0] @ q[0] - 1, (q[1] - q[0]) @ (q[1] - q[0]) - 1, q[1, 1]]),
)


@pytest.mark.slow
def test_a_stalled_iteration_beside_a_singular_position_has_not_converged():
    """Two links one on the other: a sweep of Newton's method stalls at residuals of 1e-6 to 1e-4 and moves away."""
    for angle, dt, method in ((1e-3, 0.015, hx.SHAKE()), (2.2e-4, 0.01, hx.RATTLE())):
        q = np.array([[np.sin(angle), np.cos(angle)], [2 * np.sin(angle), 0.0]])
        sol = hx.simulate(SLIDER, method, q, 0 * q, dt=dt, steps=60)
        assert np.max(sol.constraint_error()) < 1e-14, (angle, method.name)


@pytest.mark.slow
def test_a_relaxation_too_slow_for_the_momenta_is_replaced_by_a_factor():
    q = np.array([[np.sin(1e-3), np.cos(1e-3)], [2 * np.sin(1e-3), 0.0]])
    sol = hx.simulate(SLIDER, hx.RATTLE(hx.SOR(1.2)), q, 0 * q, dt=0.015, steps=3)
    exact = hx.simulate(SLIDER, hx.RATTLE(), q, 0 * q, dt=0.015, steps=3)
    np.testing.assert_allclose(sol.q, exact.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sol.p, exact.p, rtol=0, atol=1e-10)
