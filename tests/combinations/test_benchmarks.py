"""Problems of the IVP test set (Mazzia & Magherini 2008): the car axis, Pleiades and Fekete's points."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import holonomix as hx

pytestmark = pytest.mark.slow

# -- the car axis: two wheels, one on a bumpy road, with two constraints that depend on time --------------------------

LENGTH, SPRING, EPSILON, MASS, BUMP, FREQUENCY = 1.0, 0.5, 1e-2, 10.0, 0.1, 10.0
INERTIA = EPSILON**2 * MASS / 2
END = 3.0
# xl, yl, xr, yr at t = 3 as the test set prints them
PRINTED = np.array(
    [0.493455784275402809122e-1, 0.496989460230171153861, 0.104174252488542151681e1, 0.373911027265361256927]
)
START = np.array([[0.0, 0.5], [1.0, 0.5]])
SPEED = np.array([[-0.5, 0.0], [-0.5, 0.0]])


def road(t):
    y = BUMP * jnp.sin(FREQUENCY * t)
    return jnp.stack([jnp.sqrt(LENGTH**2 - y**2), y])


def springs(q, t):
    """The left wheel hangs from the origin, the right one from the road; gravity acts on both."""
    energy = INERTIA * (q[0, 1] + q[1, 1])
    for stretched in (q[0], q[1] - road(t)):
        energy = energy + 0.5 * (jnp.sqrt(jnp.sum(stretched**2)) - SPRING) ** 2
    return energy


def axle(q, t):
    return jnp.stack([q[0] @ road(t), jnp.sum((q[0] - q[1]) ** 2) - LENGTH**2])


def reduced(t, z):
    """Index-reduced equations by automatic differentiation of the two functions above."""
    q, v = z[:4].reshape(2, 2), z[4:].reshape(2, 2)
    jac = jax.jacfwd(axle)(q, t).reshape(2, 4)
    rate = lambda q, t: jax.jvp(axle, (q, t), (v, jnp.ones_like(t)))[1]
    bend = jax.jvp(rate, (q, t), (v, jnp.ones_like(t)))[1]
    free = -jax.grad(springs)(q, t).reshape(-1) / INERTIA
    pull = jnp.linalg.solve(jac @ jac.T, jac @ free + bend)
    return jnp.concatenate([z[4:], free - jac.T @ pull])


@pytest.fixture(scope="module")
def exact():
    start = np.concatenate([START.reshape(-1), SPEED.reshape(-1)])
    slope = jax.jit(reduced)
    done = solve_ivp(lambda t, z: np.asarray(slope(t, z)), (0, END), start, method="DOP853", rtol=1e-12, atol=1e-13)
    return done.y[:4, -1]


def test_the_reference_is_that_of_the_test_set(exact):
    np.testing.assert_allclose(exact, PRINTED, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("method", "steps", "bound"),
    [
        (hx.RATTLE(), 12_000, 1e-5),
        (hx.SHAKE(), 12_000, 1e-5),
        (hx.Composition(hx.RATTLE(), order=4), 3_000, 1e-5),
        (hx.Composition(hx.RATTLE(), order=8), 1_500, 1e-7),
        (hx.LobattoIIIAB(3), 3_000, 1e-6),
        (hx.Taylor(), 3_000, 1e-5),
        (hx.RK4(), 3_000, 1e-5),
    ],
    ids=lambda x: x.name if hasattr(x, "name") else str(x),
)
def test_car_axis(exact, method, steps, bound):
    system = hx.System(springs, hx.Rheonomic(axle), mass=INERTIA)
    sol = hx.simulate(system, method, START, INERTIA * SPEED, dt=END / steps, steps=steps, save_every=steps // 4)
    assert sol.status == hx.Status.OK
    assert np.max(np.abs(sol.q[-1].reshape(-1) - exact)) < bound
    if method.traits["constrained"].constraint_exact:
        assert sol.constraint_error().max() < 1e-14
        assert sol.hidden_constraint_error().max() < 1e-12


def test_car_axis_to_round_off(exact):
    system = hx.System(springs, hx.Rheonomic(axle), mass=INERTIA)
    sol = hx.simulate(system, hx.TaylorAdaptive(), START, INERTIA * SPEED, dt=1e-3, save_at=[END])
    assert np.max(np.abs(sol.q[-1].reshape(-1) - exact)) < 1e-8


# -- Pleiades: seven stars in a plane ---------------------------------------------------------------------------------

STARS = np.array([[3.0, 3.0], [3.0, -3.0], [-1.0, 2.0], [-3.0, 0.0], [2.0, 0.0], [-2.0, -4.0], [2.0, 4.0]])
STAR_SPEEDS = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, -1.25], [0.0, 1.0], [1.75, 0.0], [-1.5, 0.0]])
STAR_MASSES = np.arange(1.0, 8.0)


def gravity(q):
    apart = jnp.sum((q[:, None] - q[None]) ** 2, axis=-1)
    i, j = np.triu_indices(7, 1)
    return -jnp.sum(STAR_MASSES[i] * STAR_MASSES[j] / jnp.sqrt(apart[i, j]))


@pytest.mark.parametrize(
    "method", [hx.TaylorAdaptive(), hx.Composition(hx.StormerVerlet(), order=8)], ids=lambda m: m.name
)
def test_pleiades(method):
    system = hx.System(gravity, mass=STAR_MASSES)
    force = jax.jit(lambda q: -jax.grad(gravity)(q) / STAR_MASSES[:, None])
    slope = lambda t, z: np.concatenate([z[14:], np.asarray(force(z[:14].reshape(7, 2))).reshape(-1)])
    start = np.concatenate([STARS.reshape(-1), STAR_SPEEDS.reshape(-1)])
    exact = solve_ivp(slope, (0, END), start, method="DOP853", rtol=1e-12, atol=1e-12).y[:14, -1].reshape(7, 2)
    adaptive = method.adaptive
    options = {"dt": 1e-3, "save_at": [END]} if adaptive else {"dt": END / 6000, "steps": 6000, "save_every": 6000}
    sol = hx.simulate(system, method, STARS, STAR_MASSES[:, None] * STAR_SPEEDS, **options)
    assert np.max(np.abs(sol.q[-1] - exact)) < (1e-6 if adaptive else 1e-4)  # close encounters: errors grow by 1e5


# -- Fekete: repelling points on the unit sphere come to rest ---------------------------------------------------------

POINTS = 20


def repulsion(q):
    i, j = np.triu_indices(POINTS, 1)
    return -jnp.sum(jnp.log(jnp.sqrt(jnp.sum((q[i] - q[j]) ** 2, axis=-1))))


def fekete_start():
    """The start of the test set: three circles of latitude and two points."""
    angles = [
        *((2 * np.pi * k / 3 + np.pi / 13, 3 * np.pi / 8) for k in range(3)),
        *((2 * np.pi * k / 7 + np.pi / 29, np.pi / 8) for k in range(7)),
        *((2 * np.pi * k / 6 + np.pi / 7, -2 * np.pi / 15) for k in range(6)),
        *((2 * np.pi * k / 4 + np.pi / 17, -3 * np.pi / 10) for k in range(4)),
    ]
    a, b = np.array(angles).T
    return np.stack([np.cos(a) * np.cos(b), np.sin(a) * np.cos(b), np.sin(b)], axis=1)


@pytest.mark.parametrize("method", [hx.RATTLE(), hx.SHAKE()], ids=lambda m: m.name)
def test_fekete(method):
    """Damped by half the velocity, the points reach a minimum of the energy; t = 1000 of the test set."""
    on_sphere = hx.Local(lambda x: jnp.sum(x[0] ** 2) - 1.0, np.arange(POINTS)[:, None])
    system = hx.System(repulsion, on_sphere, force=lambda q, v, t: -0.5 * v)
    start = fekete_start()
    q, p = hx.project(system, start, np.zeros_like(start))
    sol = hx.simulate(system, method, q, p, dt=0.05, t1=1000.0, save_every=5000)
    assert sol.status == hx.Status.OK and sol.constraint_error().max() < 1e-14
    end = np.asarray(sol.q[-1])
    pull = np.asarray(jax.grad(repulsion)(end))
    tangent = pull - np.sum(pull * end, axis=1)[:, None] * end
    assert np.max(np.abs(tangent)) < 1e-10 and np.max(np.abs(sol.p[-1])) < 1e-10
    assert float(repulsion(end)) < float(repulsion(start))
