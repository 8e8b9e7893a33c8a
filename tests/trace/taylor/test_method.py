"""The Taylor methods on free and constrained systems."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx


def double_pendulum():
    return hx.models.double_pendulum(masses=(1.3, 0.7))


def test_machine_precision_on_the_manifold():
    problem = double_pendulum()
    sol = hx.simulate(problem, hx.TaylorAdaptive(), t1=5.0)
    assert len(sol.t) < 60  # steps of order 20 are long
    assert np.max(sol.constraint_error()) < 1e-14 and np.max(sol.hidden_constraint_error()) < 1e-14
    assert np.max(np.abs(sol.energy_error())) < 1e-14


@pytest.mark.slow
def test_the_tolerance_acts_and_points_between_steps_are_as_good():
    """Against a composition of order eight, over a time in which the motion forgets a few digits only."""
    problem = double_pendulum()
    times = np.linspace(0.0, 10.0, 11)
    best, loose = (hx.simulate(problem, hx.TaylorAdaptive(tol), save_at=times) for tol in (1e-16, 1e-8))
    method = hx.Composition(hx.RATTLE(), order=8)
    reference = hx.simulate(problem, method, dt=0.01, steps=1000, save_every=100)
    assert np.max(np.abs(best.q - reference.q)) < 1e-11
    assert 1e-10 < np.max(np.abs(loose.q - reference.q)) < 1e-4
    for sol in (best, loose):
        assert np.max(sol.constraint_error()) < 1e-14 and np.max(sol.hidden_constraint_error()) < 1e-14


@pytest.mark.slow
def test_steps_follow_the_motion_and_not_dt():
    problem = double_pendulum()
    counts = [hx.simulate(problem, hx.TaylorAdaptive(), dt=dt, t1=5.0).stats["steps"] for dt in (0.1, 0.001)]
    assert abs(counts[0] - counts[1]) <= 3 and counts[0] < 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mass", "force", "moving"])
def test_other_systems_against_rattle_of_order_two(kind):
    """M(q), an applied force and a moving constraint: the series agrees with a convergent second-order method."""
    gravity = lambda q: q[1]
    circle = lambda q: jnp.array([q[0] ** 2 + q[1] ** 2 - 1.0])
    if kind == "mass":
        mass = lambda q: jnp.array([[1.0 + 0.3 * q[1] ** 2, 0.1 * q[0]], [0.1 * q[0], 1.2]])
        system = hx.System(gravity, circle, mass=mass)
    elif kind == "force":
        system = hx.System(gravity, circle, force=lambda q, v, t: -0.2 * v + jnp.array([jnp.sin(t), 0.0]))
    else:
        system = hx.System(gravity, hx.Rheonomic(lambda q, t: jnp.array([q[0] ** 2 + q[1] ** 2 - (1 + 0.1 * t) ** 2])))
    q0, p0 = hx.project(system, jnp.array([0.6, -0.8]), jnp.array([0.4, 0.3]))
    exact = hx.simulate(system, hx.TaylorAdaptive(1e-14), q0, p0, dt=0.05, save_at=[0.0, 1.0]).q[-1]
    errors = []
    for steps in (100, 200):
        q, _ = hx.integrate(system, hx.RATTLE(), q0, p0, dt=1.0 / steps, steps=steps)
        errors.append(np.max(np.abs(q - exact)))
    assert 3.5 < errors[0] / errors[1] < 4.5


@pytest.mark.slow
def test_a_chain_with_structured_constraints():
    """The series goes through gathers and scatters; one structured factorization serves all orders."""
    problem = hx.models.chain(20)
    sol = hx.simulate(problem, hx.Taylor(8), dt=0.02, steps=20, backend="array")
    assert np.max(np.abs(sol.energy_error())) < 1e-9 * 20 and np.max(sol.constraint_error()) < 1e-12


def test_fixed_and_adaptive_form_share_the_series():
    """The drifting form leaves the manifold, the default does not."""
    problem = hx.models.planar_pendulum(angle=1.0)
    drift, kept = (
        np.max(hx.simulate(problem, hx.Taylor(3, project=project), dt=0.1, steps=200).constraint_error())
        for project in (False, True)
    )
    assert drift > 1e-6 and kept < 1e-14


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 2.0**-33])
def test_units_of_length_and_time_do_not_matter(scale):
    """A pendulum at molecular size: the same steps, the same digits, no overflow in high coefficients."""
    length, clock = scale, scale**1.5
    system = hx.System(lambda q: length / clock**2 * q[1], lambda q: jnp.array([q @ q - length**2]))
    q0 = length * jnp.array([0.6, -0.8])
    sol = hx.simulate(system, hx.TaylorAdaptive(), q0, jnp.zeros(2), dt=0.01 * clock, t1=3.0 * clock)
    plain = hx.System(lambda q: q[1], lambda q: jnp.array([q @ q - 1.0]))
    same = hx.simulate(plain, hx.TaylorAdaptive(), q0 / length, jnp.zeros(2), dt=0.01, t1=3.0)
    assert len(sol.t) == len(same.t)
    assert np.max(np.abs(sol.q[-1] / length - same.q[-1])) < 1e-13


@pytest.mark.slow
def test_derivatives_solve_the_variational_equations():
    """A tangent carried through fixed steps on a constrained system, against central differences of tight runs."""
    problem = hx.models.planar_pendulum(angle=1.0)

    def end(speed):
        p0 = speed * jnp.array([jnp.cos(1.0), jnp.sin(1.0)])
        return hx.integrate(problem.system, hx.Taylor(10), problem.q0, p0, dt=0.1, steps=10)[0]

    value, tangent = jax.jvp(end, (0.5,), (1.0,))
    h = 1e-4
    difference = (end(0.5 + h) - end(0.5 - h)) / (2 * h)
    assert np.max(np.abs(tangent - difference)) < 1e-8
    assert abs(float(value @ tangent)) < 1e-13  # tangent to the circle
    gradient = jax.grad(lambda speed: end(speed)[0])(0.5)
    assert abs(float(gradient - tangent[0])) < 1e-12


def test_bad_settings():
    for bad in (0.0, -1e-3, 1.0, float("nan")):
        with pytest.raises(hx.InputError, match="tol"):
            hx.TaylorAdaptive(bad)
    with pytest.raises(hx.InputError, match="order"):
        hx.Taylor(100)


def test_a_function_without_series_is_a_method_error():
    system = hx.System(lambda q: jnp.sum(jnp.sort(q) ** 2))
    with pytest.raises(hx.MethodError, match="sort"):
        hx.simulate(system, hx.TaylorAdaptive(), jnp.ones(3), jnp.zeros(3), dt=0.1, steps=2)


@pytest.mark.slow
def test_the_energy_error_grows_like_the_root_of_time():
    """10^7 steps of the double pendulum: Brouwer's law, exponent at most 0.6."""
    problem = hx.models.double_pendulum()
    energies, counts = [], []
    q, p = problem.q0, problem.p0
    observe = {"energy": lambda q, p: problem.system.hamiltonian(q, p)}
    sol = hx.simulate(
        problem.system, hx.TaylorAdaptive(), q, p, dt=0.01, steps=10_000_000, save_every=1000, observe=observe
    )
    error = np.abs(np.asarray(sol.observables["energy"]) - float(problem.system.hamiltonian(q, p)))
    for k in range(4, 14):
        counts.append(1000 * 2**k)
        energies.append(np.sqrt(np.mean(error[: 2**k] ** 2)))
    slope = np.polyfit(np.log(counts[-6:]), np.log(energies[-6:]), 1)[0]
    assert slope < 0.6 and energies[-1] < 1e-11
