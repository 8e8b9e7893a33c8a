"""Dampers and motors along joints are solved for implicitly, however strong they are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.rigid import RigidFactor


def light_pendulum(law, inertia=(1e-4, 1e-4, 1e-5)):
    m = hx.Mechanism(gravity=(0, 0, -9.81))
    body = m.body("arm", mass=0.1, inertia=inertia, position=(0, 0, -0.1))
    hinge = m.revolute("hinge", m.ground, body, at=(0, 0, 0), axis=(0, 1, 0))
    m.motor(hinge, law)
    return m, hinge


@pytest.mark.parametrize("kd", [0.5, 50.0])
def test_strong_gains_on_a_light_body_converge_without_care(kd):
    dt, kp, steps = 1e-2, 2.0, 30
    m, hinge = light_pendulum(lambda t, x, rate: kp * (0.5 - x) - kd * rate)
    sol = hx.simulate(m.problem(dt=dt), hx.RATTLE(), steps=steps)
    assert sol.stats["retries"] == 0
    assert sol.stats["mean_iterations"] < 8
    # the same method in the angle: a half kick that is implicit in the rate, a drift, a half kick with its result
    inertia, x, v = 1e-4 + 0.1 * 0.1**2, 0.0, 0.0
    torque = lambda x: kp * (0.5 - x) - 0.1 * 9.81 * 0.1 * np.sin(x)
    for _ in range(steps):
        half = (v + dt / 2 * torque(x) / inertia) / (1 + dt / 2 * kd / inertia)
        x = x + dt * half
        v = half + dt / 2 * (torque(x) - kd * half) / inertia
    assert abs(hinge.angle(sol)[-1] - x) < 0.02 * abs(x)  # RATTLE's chord is not the arc
    assert np.abs(sol.constraint_error()).max() < 1e-14


def test_order_two_with_dampers():
    m, hinge = light_pendulum(
        lambda t, x, rate: 0.02 * jnp.sin(5 * t) - 4e-3 * rate - 1e-3 * rate**3, (1e-3, 1e-3, 1e-3)
    )
    ends = []
    for k in (1, 2, 4, 8, 64):
        sol = hx.simulate(m.problem(dt=0.01 / k), hx.RATTLE(), steps=50 * k)
        ends.append(np.asarray(sol.q[-1]))
    errors = [np.abs(x - ends[-1]).max() for x in ends[:-1]]
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(slopes - 2) < 0.2)


def damped_pair(damping):
    """Two bodies with a damper between points, a damped joint and a drag that depends on the velocity."""
    m = hx.Mechanism(gravity=(0, 0, -9.81))
    a = m.body("a", mass=1.0, inertia=[0.02, 0.03, 0.04], position=(0.3, 0, 0))
    b = m.body("b", mass=0.5, inertia=[0.02, 0.03, 0.04], position=(0.9, 0, 0))
    hip = m.revolute("hip", m.ground, a, at=(0, 0, 0), axis=(0, 1, 0))
    m.spherical("knee", a, b, at=(0.6, 0, 0))
    m.damper(m.ground, (0, 0, 1), b, (0.1, 0.05, 0), damping=damping)
    m.torsion_spring(hip, damping=damping, stiffness=0.3)
    m.force(b, lambda t, x, v: -damping * v * jnp.sqrt(1.0 + jnp.sum(v**2)), at=(0.3, 0, 0))
    m.torque(a, lambda t, rotation, spin: -damping * spin)
    return m


def test_rates_and_loads_are_the_applied_force():
    system = damped_pair(0.7).problem().system
    assert system.rate_count == 1 + 1 + 3 + 3
    rng = np.random.default_rng(0)
    q, v = (jnp.asarray(rng.normal(size=(8, 3))) for _ in range(2))
    slopes, rest = system.rate_slopes(q, 0.3)
    loads, derivative = system.rate_loads(q, jnp.sum(slopes * v, axis=(1, 2)), 0.3)
    total = system.applied_force(q, v, 0.3) - system.gradient(q, 0.3)
    np.testing.assert_allclose(rest + jnp.einsum("k,kpd->pd", loads, slopes), total, rtol=1e-12, atol=1e-12)
    dense = jax.jacfwd(lambda v: system.applied_force(q, v, 0.3).reshape(-1))(v).reshape(24, 24)
    rows = slopes.reshape(-1, 24)
    np.testing.assert_allclose(rows.T @ derivative @ rows, dense, rtol=1e-10, atol=1e-12)


def damped_chain(links):
    m, before = hx.Mechanism(gravity=(0, 0, -9.81)), None
    for k in range(links):
        link = m.body(f"link {k}", mass=1.0, inertia=(0.02, 0.03, 0.04), position=(0.3 * k + 0.15, 0, 0))
        at, axis = (0.3 * k, 0, 0), (0, 1, 0) if k % 2 else (0, 0, 1)
        hinge = m.revolute(f"hinge {k}", before or m.ground, link, at=at, axis=axis)
        m.torsion_spring(hinge, damping=0.05, stiffness=0.1)
        before = link
    return m.problem(dt=1e-3)


def test_the_code_has_one_solve_for_all_rates_and_one_in_a_sweep(monkeypatch):
    problem, solves = damped_chain(6), []
    solve = RigidFactor.solve
    monkeypatch.setattr(RigidFactor, "solve", lambda self, b: solves.append(b) or solve(self, b))
    system, method = problem.system.prepare(problem.q0), hx.RATTLE()
    assert system.rate_count == 6
    state = hx.State(problem.q0, problem.p0, 0.0, 0)
    carry = method.init(system, state, problem.dt)
    solves.clear()
    jax.make_jaxpr(lambda q: method.step(system, eqx.tree_at(lambda x: x.q, state, q), 1e-3, carry)[0].q)(problem.q0)
    assert len(solves) == 3  # the third projects the momentum


@pytest.mark.slow
def test_weak_dampers_agree_with_the_sweeps():
    problem = damped_pair(0.05).problem(dt=2e-3)
    assert problem.system.rate_count
    found = hx.integrate(problem, hx.RATTLE(), steps=20)
    other = hx.integrate(
        problem.system._with(rate_count=0), hx.RATTLE(), problem.q0, problem.p0, dt=problem.dt, steps=20
    )
    for x, y in zip(found, other, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-12)


def test_forces_that_do_not_depend_on_rates_keep_the_plain_solve():
    m, _ = light_pendulum(lambda t, x, rate: 0.1 * jnp.sin(t) - x)
    m.force(m["arm"], lambda t, x, v: -x)
    m.torque(m["arm"], (0, 0.1, 0))
    assert m.problem().system.rate_count == 0


@pytest.mark.slow
def test_gradient_through_a_strong_damper():
    m, _ = light_pendulum(lambda t, x, rate: 2.0 * (0.5 - x) - 0.5 * rate)
    problem = m.problem(dt=1e-2)
    end = lambda p0: hx.integrate(problem.system, hx.RATTLE(), problem.q0, p0, dt=1e-2, steps=5)[0][0, 0]
    push = np.asarray(hx.project(problem.system, problem.q0, 0.1 * jnp.ones_like(problem.p0))[1])
    slope = jax.grad(lambda s: end(problem.p0 + s * push))(0.0)
    difference = (end(problem.p0 + 1e-4 * push) - end(problem.p0 - 1e-4 * push)) / 2e-4
    assert abs(slope - difference) < 1e-7 * abs(difference)
