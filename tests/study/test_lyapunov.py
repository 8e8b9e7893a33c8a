"""Lyapunov exponents: against SciPy with variational equations by hand, and zero where the motion is regular."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import holonomix as hx


def henon_heiles_reference(q, p, t1, gap=1.0):
    """Mean growth rate of one tangent vector from t1/10 on: DOP853, and the Hessian of the potential by hand."""

    def rate(t, z):
        x, y, px, py, a, b, c, d = z
        return [
            px,
            py,
            -x - 2 * x * y,
            -y - x * x + y * y,
            c,
            d,
            -(1 + 2 * y) * a - 2 * x * b,
            -2 * x * a - (1 - 2 * y) * b,
        ]

    z, growth = np.array([*q, *p, 1.0, 0.3, -0.2, 0.5]), []
    for _ in range(int(t1 / gap)):
        z = solve_ivp(rate, (0, gap), z, method="DOP853", rtol=1e-9, atol=1e-11).y[:, -1]
        size = np.linalg.norm(z[4:])
        growth.append(np.log(size))
        z[4:] /= size
    return np.mean(growth[len(growth) // 10 :]) / gap


def angle_reference(angles, lengths, t1):
    """The same for the double pendulum in two angles: two runs a distance of 1e-8 apart, brought together again."""
    (a, b), g = lengths, 1.0

    def rate(t, z):
        x, y, u, v = z
        c, s = np.cos(x - y), np.sin(x - y)
        mass = np.array([[2 * a * a, a * b * c], [a * b * c, b * b]])
        force = [-a * b * s * v * v - 2 * g * a * np.sin(x), a * b * s * u * u - g * b * np.sin(y)]
        return [u, v, *np.linalg.solve(mass, force)]

    z, growth, near = np.array([*angles, 0.0, 0.0]), [], 1e-8
    w = z + near * np.array([0.5, 0.5, 0.5, 0.5])
    for _ in range(int(t1)):
        z, w = (solve_ivp(rate, (0, 1.0), x, method="DOP853", rtol=1e-11, atol=1e-13).y[:, -1] for x in (z, w))
        size = np.linalg.norm(w - z)
        growth.append(np.log(size / near))
        w = z + (w - z) * (near / size)
    return np.mean(growth[len(growth) // 10 :])


@pytest.mark.slow
def test_redundant_rows_do_not_change_the_exponents():
    found = []
    for copies, method in ((1, hx.RATTLE()), (3, hx.RATTLE(hx.Newton(redundant="min-norm")))):
        rows = lambda q, n=copies: (q[2] - q[0] * q[1]) * jnp.array([1.0, 3.0, 2.0][:n])
        system = hx.System(lambda q: 9.81 * q[2] + q[0] ** 2 + 2 * q[1] ** 2, rows)
        problem = hx.Problem(system, np.zeros(3), np.array([0.2, 0.1, 0.0]), dt=0.02, t1=20.0)
        found.append(hx.lyapunov(problem, method, count=2, t1=20.0).values)
        with pytest.raises(hx.InputError, match="the phase space has dimension 4"):
            hx.lyapunov(problem, method, count=5)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-6)


def test_regular_motion_has_exponents_zero_within_their_errors():
    found = hx.lyapunov(hx.models.harmonic_oscillator((1.0, 1.7)), hx.StormerVerlet(), count=4, t1=400.0)
    assert np.all(np.abs(found.values) < 2 * found.errors) and not found.chaotic
    assert found.errors[0] < 0.01


def test_exponents_come_in_pairs_and_the_repr_says_them():
    found = hx.lyapunov(
        hx.models.henon_heiles(energy=1 / 8, y=-0.25, py=0.0), hx.StormerVerlet(), count=4, dt=0.05, t1=1500.0
    )
    np.testing.assert_allclose(found.values, -found.values[::-1], rtol=0, atol=1e-3)
    assert found.chaotic and abs(found.values[1]) < 2 * found.errors[1]
    assert "henon-heiles: 0.05" in repr(found) and "+-" in repr(found)
    assert found.running[-1] == pytest.approx(found.values)


@pytest.mark.slow
def test_henon_heiles_agrees_with_variational_equations_by_hand():
    problem = hx.models.henon_heiles(energy=1 / 6 - 1e-3, y=-0.1, py=0.0)
    found = hx.lyapunov(problem, hx.StormerVerlet(), dt=0.02, t1=6000.0)
    wanted = henon_heiles_reference(np.asarray(problem.q0), np.asarray(problem.p0), 3000.0)
    assert found.chaotic and 0.08 < wanted < 0.15
    assert abs(found.values[0] - wanted) < 3 * np.hypot(1.4, 1) * found.errors[0]


@pytest.mark.slow
def test_a_double_pendulum_on_its_manifold_agrees_with_one_in_angles():
    angles, lengths = (2.0, 2.5), (1.0, 1.0)
    problem = hx.models.double_pendulum(lengths=lengths, angles=angles)
    found = hx.lyapunov(problem, hx.RATTLE(), dt=0.02, t1=1000.0)
    wanted = angle_reference(angles, lengths, 400.0)
    assert found.chaotic and wanted > 0.1
    assert abs(found.values[0] - wanted) < 3 * np.hypot(1.6, 1) * found.errors[0]


@pytest.mark.slow
def test_integrable_systems_and_regular_islands():
    assert not hx.lyapunov(hx.models.henon_heiles(energy=0.02), hx.StormerVerlet(), t1=600.0).chaotic
    found = hx.lyapunov(hx.models.spherical_pendulum(), hx.RATTLE(), count=4, t1=1000.0)
    assert np.all(np.abs(found.values) < 2 * found.errors) and found.errors[0] < 0.01
    assert found.values.sum() == pytest.approx(0.0, abs=1e-3)


def test_what_cannot_be_measured_is_refused():
    problem = hx.models.spherical_pendulum()
    with pytest.raises(hx.errors.MethodError, match="one-step method"):
        hx.lyapunov(problem, hx.VRATTLE())
    with pytest.raises(hx.errors.InputError, match="dimension 4"):
        hx.lyapunov(problem, hx.RATTLE(), count=5)
    with pytest.raises(hx.errors.InputError, match="at least 800 steps"):
        hx.lyapunov(problem, hx.RATTLE(), t1=1.0)
    with pytest.raises(hx.errors.InputError, match="system without a start"):
        hx.lyapunov(problem.system, hx.RATTLE())


@pytest.mark.parametrize("study", [hx.lyapunov, hx.certify, hx.compare])
def test_a_start_beside_the_problem_is_refused(study):
    problem, method = hx.models.planar_pendulum(), hx.RATTLE()
    with pytest.raises(hx.InputError, match=r"takes the start from the problem.*hx\.Problem\(system, q0, p0, dt, t1\)"):
        study(problem, {"RATTLE": method} if study is hx.compare else method, problem.q0, problem.p0)


def test_a_system_with_a_start_is_no_problem():
    problem = hx.models.planar_pendulum()
    with pytest.raises(hx.InputError, match=r"system without a start.*hx\.Problem\(system, q0, p0, dt, t1\)"):
        hx.lyapunov(problem.system, hx.RATTLE(), problem.q0, problem.p0, dt=0.01)


@pytest.mark.parametrize("mass", [1e-26, 1e26])
def test_exponents_at_a_saddle(mass):
    """Nothing moves there that could give momenta a unit beside positions."""
    saddle = hx.System(lambda q: mass * (q[0] ** 2 - q[1] ** 2) / 2, mass=mass)
    found = hx.lyapunov(hx.Problem(saddle, [0.0, 0.0], [0.0, 0.0], dt=0.02, t1=60.0), hx.StormerVerlet(), count=2)
    np.testing.assert_allclose(found.values, [1.0, 0.0], rtol=0, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("height", "mass", "count"), [(1.0, 1.0, 1), (-1.0, 1.0, 2), (1.0, 1e-26, 2)])
def test_exponents_of_a_pendulum_at_rest(height, mass, count):
    """Upright `sqrt(g)` and its negative, hanging zero: what moves there is round-off, and gives no units."""
    system = hx.System(lambda q: 9.81 * mass * q[1], lambda q: jnp.array([q @ q - 1.0]), mass=mass)
    problem = hx.Problem(system, [0.0, height], [0.0, 0.0], dt=0.02, t1=50.0)
    found = hx.lyapunov(problem, hx.RATTLE(), count=count)
    wanted = np.sqrt(9.81) * np.array([1.0, -1.0])[:count] if height > 0 else np.zeros(count)
    np.testing.assert_allclose(found.values, wanted, rtol=0, atol=0.01)
