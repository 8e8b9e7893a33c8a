"""RATTLE and SHAKE with a mass M(q), constraints that depend on time, applied forces: order two, structure kept."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

GROUND, CRANK, ROCKER, COUPLER = 2.0, 0.8, 1.6, 2.2


def pins(angles):
    """Crank pin, rocker pin and the middle of the coupler of a four-bar linkage, from crank and rocker angle."""
    a = CRANK * jnp.stack([jnp.cos(angles[0]), jnp.sin(angles[0])])
    b = jnp.stack([GROUND + ROCKER * jnp.cos(angles[1]), ROCKER * jnp.sin(angles[1])])
    return jnp.stack([a, b, 0.5 * (a + b)])


MASSES = jnp.asarray([1.0, 0.7, 2.0])


def mass(angles):
    """`sum m_a J_a^T J_a`, written out: two pins on circles and the middle between them."""
    m = MASSES + MASSES[2] / 4
    cross = MASSES[2] / 4 * CRANK * ROCKER * jnp.cos(angles[0] - angles[1])
    return jnp.array([[m[0] * CRANK**2, cross], [cross, m[1] * ROCKER**2]])


def gap(angles):
    a, b, _ = pins(angles)
    return jnp.stack([jnp.sum((a - b) ** 2) - COUPLER**2])


def four_bar_in_angles():
    """The four-bar linkage in two angles with the coupler's distance as constraint: M(q) is full and varies."""
    system = hx.System(lambda q: jnp.sum(MASSES * pins(q)[:, 1]), gap, mass=mass)
    return system, *hx.project(system, jnp.asarray([0.8, 1.9]), jnp.asarray([1.5, 0.3]))


def driven():
    """A double pendulum whose pivot is shaken."""
    pivot = lambda t: jnp.stack([0.3 * jnp.sin(2 * t), 0.1 * jnp.cos(3 * t) - 0.1])
    rods = lambda q, t: jnp.stack([jnp.sum((q[0] - pivot(t)) ** 2) - 1, jnp.sum((q[1] - q[0]) ** 2) - 1])
    system = hx.System(lambda q: jnp.sum(q[:, 1]), hx.Rheonomic(rods), mass=np.array([[1.0], [1.5]]))
    return system, *hx.project(system, jnp.asarray([[0.6, -0.8], [1.6, -0.8]]), jnp.zeros((2, 2)))


def damped():
    """A double pendulum with drag and a periodic push."""
    push = lambda q, v, t: -0.4 * v - 0.1 * v * jnp.abs(v) + jnp.cos(3 * t)
    system = hx.System(lambda q: jnp.sum(q[:, 1]), hx.Distance([[-1, 0], [0, 1]]), force=push)
    return system, *hx.project(system, jnp.asarray([[0.6, -0.8], [1.6, -0.8]]), jnp.zeros((2, 2)))


CASES = {"M(q)": four_bar_in_angles, "driven": driven, "force": damped}


@pytest.mark.parametrize("name", [pytest.param("M(q)", marks=pytest.mark.slow), "driven", "force"])
def test_order_two(name):
    system, q, p = CASES[name]()

    def end(steps):  # one program for every number of steps
        sol = hx.simulate(system, hx.RATTLE(), q, p, dt=1.0 / steps, steps=steps, save_every=steps)
        a, b = jnp.asarray(sol.q[-1]), jnp.asarray(sol.p[-1])
        assert float(jnp.max(jnp.abs(system.constraint(a, 1.0)))) < 1e-14
        assert sol.hidden_constraint_error().max() < 1e-13
        return np.stack([a, b])

    reference = (4 * end(1600) - end(800)) / 3  # extrapolated: of order four
    errors = [np.abs(end(n) - reference).max() for n in (40, 160)]
    assert abs(np.log(errors[0] / errors[1]) / np.log(4) - 2) < 0.05, errors


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_compositions_converge_to_the_same_end(name):
    system, q, p = CASES[name]()
    fine = hx.integrate(system, hx.RATTLE(), q, p, dt=1 / 1600, steps=1600)
    composed = hx.integrate(system, hx.Composition(hx.RATTLE(), order=6), q, p, dt=1 / 160, steps=160)
    for a, b in zip(fine, composed, strict=True):
        assert 1e-9 < float(jnp.max(jnp.abs(a - b))) < 1e-5


def step_of(system, method, shape, dt=0.05):
    def step(z):
        state = hx.State(*(x.reshape(shape) for x in jnp.split(z, 2)), jnp.asarray(0.0), 0)
        end = method.step(system, state, dt, method.init(system, state, dt))[0]
        return jnp.concatenate([end.q.reshape(-1), end.p.reshape(-1)])

    return step


@pytest.mark.slow
def test_symplectic_with_position_mass():
    system, q, p = four_bar_in_angles()
    n, z = q.size, jnp.concatenate([q, p])
    form = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    both = lambda z: jnp.concatenate([system.constraint(z[:n]), system.hidden_constraint(z[:n], z[n:])])
    rows = np.asarray(jax.jacfwd(both)(z))
    tangent = np.linalg.svd(rows)[2][rows.shape[0] :].T
    defects = {}
    for name, method in (("RATTLE", hx.RATTLE()), ("RK4", hx.RK4())):
        slope = np.asarray(jax.jit(jax.jacfwd(step_of(system, method, q.shape)))(z))
        defects[name] = np.abs(tangent.T @ (slope.T @ form @ slope - form) @ tangent).max()
    assert defects["RATTLE"] < 1e-11
    assert defects["RK4"] > 1e-9  # the control: accurate, and not symplectic


@pytest.mark.slow
def test_angles_and_coordinates_describe_one_mechanism():
    system, q, p = four_bar_in_angles()
    terms = [
        hx.Distance([(-1, 0), (0, 1), (1, -2)], [CRANK, COUPLER, ROCKER], anchors=[[0.0, 0.0], [GROUND, 0.0]]),
        hx.Local(lambda x: x[2] - 0.5 * (x[0] + x[1]), [[0, 1, 2]]),
    ]
    cartesian = hx.System(lambda x: jnp.sum(MASSES * x[:, 1]), terms, mass=jnp.tile(MASSES[:, None], (1, 2)))
    v = jax.jvp(pins, (q,), (system.velocity(q, p),))[1]
    method = hx.Composition(hx.RATTLE(), order=6)
    angles, _ = hx.integrate(system, method, q, p, dt=0.02, steps=40)
    points, _ = hx.integrate(cartesian, method, pins(q), MASSES[:, None] * v, dt=0.02, steps=40)
    np.testing.assert_allclose(pins(angles), points, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_shake_walks_the_same_points():
    for make in (four_bar_in_angles, damped):
        system, q, p = make()
        shake, rattle = (hx.integrate(system, m, q, p, dt=0.02, steps=50) for m in (hx.SHAKE(), hx.RATTLE()))
        np.testing.assert_allclose(shake[0], rattle[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(shake[1], rattle[1], rtol=0, atol=1e-11)
    with pytest.raises(hx.MethodError, match="constant mass"):
        hx.SHAKE("velocity").check(four_bar_in_angles()[0])


def test_a_force_of_position_alone_acts_like_its_potential():
    free = hx.System(lambda q: 0.5 * jnp.sum(q**4) + q[0] * q[1])
    pushed = hx.System(lambda q: q[0] * q[1], force=lambda q, v, t: -2 * q**3)
    q, p = jnp.asarray([0.5, -0.3]), jnp.asarray([0.1, 0.4])
    a, b = (hx.integrate(s, hx.RATTLE(), q, p, dt=0.05, steps=40) for s in (free, pushed))
    np.testing.assert_allclose(a[0], b[0], rtol=0, atol=1e-14)


@pytest.mark.slow
def test_damped_long_chain_stays_in_linear_form():
    n = 40
    pairs = np.stack([np.arange(-1, n - 1), np.arange(n)], 1)
    system = hx.System(lambda q: jnp.sum(q[:, 1]), hx.Distance(pairs, 1.0), force=lambda q, v, t: -0.5 * v)
    q = np.stack([np.arange(1, n + 1), np.zeros(n)], 1)
    sol = hx.simulate(system, hx.RATTLE(), q, np.zeros_like(q), dt=0.01, steps=100, save_every=50)
    assert sol.constraint_error().max() < 1e-13
    assert system.hamiltonian(sol.q[-1], sol.p[-1]) < system.hamiltonian(q, np.zeros_like(q)) - 1e-3
