"""Discrete Lagrangians and bodies on SO(3)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.linalg.rotations import hat
from holonomix.methods.so3 import cayley
from holonomix.methods.variational import (
    EulerLagrangian,
    MidpointLagrangian,
    NewmarkLagrangian,
    VariationalIntegrator,
    ZhangSkeelLagrangian,
)
from holonomix.methods.zhang_skeel import modified_force
from tests.tools import slope, symplectic_defect

STIFF = hx.models.penalized_double_pendulum()
BODY = hx.models.magnetized_body()


@pytest.mark.parametrize(
    ("lagrangian", "direct"),
    [
        pytest.param(NewmarkLagrangian(0.4), hx.PushforwardNewmark(0.4), marks=pytest.mark.slow),
        (ZhangSkeelLagrangian(0.4), hx.ZhangSkeel(0.4)),
        (MidpointLagrangian(), hx.ImplicitMidpoint()),
        (None, hx.StormerVerlet()),
    ],
    ids=["newmark", "zhang-skeel", "midpoint", "trapezoidal"],
)
def test_lagrangians_give_the_direct_methods(lagrangian, direct):
    h = 0.02 if isinstance(direct, hx.StormerVerlet) else 0.1
    run = lambda m: hx.simulate(STIFF.system, m, STIFF.q0, STIFF.p0 + 0.2, dt=h, steps=3)
    a, b = run(VariationalIntegrator(lagrangian)), run(direct)
    assert np.max(np.abs(a.q - b.q)) < 1e-12 and np.max(np.abs(a.p - b.p)) < 1e-12


def test_a_lagrangian_of_ones_own_keeps_its_noether_momentum():
    def lagrangian(q0, q1, h):
        v, middle = (q1 - q0) / h, (q0 + q1) / 2
        return h * (0.5 * jnp.sum(v**2) + 1 / jnp.sqrt(jnp.sum(middle**2)))

    kepler = hx.System(lambda q: -1 / jnp.sqrt(jnp.sum(q**2)))
    turn = lambda q: jnp.stack([-q[1], q[0]])
    method = VariationalIntegrator(lagrangian, symmetries=(turn,))
    sol = hx.simulate(kepler, method, [1.0, 0.0], [0.0, 1.2], dt=0.1, steps=100)
    momentum = sol.step_multipliers["noether"][1:, 0]
    assert np.max(np.abs(momentum - 1.2)) < 1e-12
    squeezed = hx.simulate(
        kepler, VariationalIntegrator(lagrangian, symmetries=(lambda q: q,)), [1.0, 0.0], [0.0, 1.2], dt=0.1, steps=100
    )
    assert np.ptp(squeezed.step_multipliers["noether"][1:, 0]) > 0.1  # not a symmetry


def test_variational_euler_in_generalised_coordinates_is_symplectic():
    angles = hx.models.double_pendulum_angles()
    q, p = angles.q0 + 0.1, angles.p0 + 0.2
    assert symplectic_defect(angles.system, VariationalIntegrator(EulerLagrangian()), q, p, 0.1) < 1e-12


def test_generalised_coordinates_of_the_double_pendulum():
    angles, rods = hx.models.double_pendulum_angles(), hx.models.double_pendulum()
    exact = hx.simulate(rods, hx.RATTLE(), dt=0.001, steps=2000, save_every=2000).final_q
    places = []
    for steps in (200, 400):
        euler = VariationalIntegrator(EulerLagrangian())
        end = hx.simulate(angles, euler, dt=2 / steps, steps=steps).final_q
        arms = np.array([1.0, np.sqrt(2)])[:, None] * np.stack([np.sin(end), -np.cos(end)], axis=1)
        places.append(np.max(np.abs(np.cumsum(arms, axis=0) - exact)))
    assert places[0] < 0.05 and 1.7 < places[0] / places[1] < 2.3  # order one


def test_cayley_map_is_a_rotation():
    x = jnp.array([0.3, -1.2, 0.7])
    skew = np.asarray(hat(x / 2))
    exact = np.linalg.solve(np.eye(3) - skew, np.eye(3) + skew)
    assert np.allclose(cayley(x), exact, rtol=0, atol=1e-15)


@pytest.mark.parametrize("inertia", [1.0, (1.0, 1.5, 2.0)])
def test_cayley_satisfies_its_discrete_variational_principle(inertia):
    # stationarity of L_d(R0, R1) + L_d(R1, R2) under R1 -> R1 exp(eta), with L_d = h (W.J W/2 - V(R0))
    problem = hx.models.magnetized_body(inertia=inertia, angular_velocity=(0.7, -0.4, 0.5))
    system, h = problem.system, 0.1
    second = jnp.diag(jnp.broadcast_to(problem.system.mass, (3, 3))[0])
    j = jnp.trace(second) * jnp.eye(3) - second

    def velocity(r):  # W with r = cay(h W)
        s = 2 * jnp.linalg.solve((r + jnp.eye(3)).T, (r - jnp.eye(3)).T).T / h
        return jnp.stack([s[2, 1] - s[1, 2], s[0, 2] - s[2, 0], s[1, 0] - s[0, 1]]) / 2

    def action(a, b):
        w = velocity(a.T @ b)
        return h * (0.5 * w @ j @ w - system.potential(a))

    r0 = cayley(jnp.array([0.4, 0.3, -0.2]))
    p0 = r0 @ hat(jnp.array([0.7, -0.4, 0.5])) @ second
    states = [jnp.asarray(x) for x in hx.simulate(system, hx.CayleyEulerSO3(), r0, p0, dt=h, steps=2).q]
    vary = lambda eta: action(states[0], states[1] @ cayley(eta)) + action(states[1] @ cayley(eta), states[2])
    assert float(jnp.max(jnp.abs(jax.jit(jax.grad(vary))(jnp.zeros(3))))) < 1e-13


def test_closed_form_of_the_penalised_force():
    omega, beta, h = 10.0, 0.4, 0.1
    stiff, b = BODY.system.penalized(omega), beta * h**2
    r = jnp.eye(3) + 0.05 * jax.random.normal(jax.random.key(0), (3, 3))
    e33 = jnp.zeros((3, 3)).at[2, 2].set(1.0)
    force = jax.jit(lambda x, c: modified_force(stiff, x, h, beta, 2 * c)[0])

    @jax.jit
    def closed(c):
        def equation(a):
            bend = a @ r.T @ r + r @ a.T @ r + r @ r.T @ a - a
            return c * a + e33 + 2 * omega**2 * (r @ r.T @ r - r + b * bend)

        matrix = jax.jacfwd(equation)(jnp.zeros((3, 3))).reshape(9, 9)
        a = -jnp.linalg.solve(matrix, equation(jnp.zeros((3, 3))).reshape(9)).reshape(3, 3)
        return c * a - 2 * omega**2 * b**2 * (a @ r.T @ a + a @ a.T @ r + r @ a.T @ a)

    for c in (0.5, 1.0):
        assert float(jnp.max(jnp.abs(force(r, c) - closed(c)))) < 1e-12


@pytest.mark.parametrize(
    ("one_sided", "c"), [(True, 1.0), pytest.param(False, 0.5, marks=pytest.mark.slow)], ids=["first", "trapezoidal"]
)
def test_schemes_on_so3_make_their_discrete_lagrangians_stationary(one_sided, c):
    stiff, h = BODY.system.penalized(10.0), 0.1
    method = hx.ZhangSkeelSO3(0.4, "first" if one_sided else "trapezoidal", c)
    rows = hx.simulate(stiff, method, BODY.q0, BODY.p0, dt=h, steps=2)
    lagrangian = ZhangSkeelLagrangian(0.4, 2 * c, one_sided).bind(stiff.prepare(BODY.q0))
    count = 1 if one_sided else 2

    @jax.jit
    def momenta(q0, q1):
        inner = lambda a: jax.grad(lagrangian, argnums=3)(q0, q1, h, a.reshape(count, 3, 3)).reshape(-1)
        zero = jnp.zeros(9 * count)
        a = -jnp.linalg.solve(jax.jacfwd(inner)(zero), inner(zero))  # it is linear in the auxiliary accelerations
        first, last = jax.grad(lagrangian, argnums=(0, 1))(q0, q1, h, a.reshape(count, 3, 3))
        return -first, last

    before, after = momenta(jnp.asarray(rows.q[1]), jnp.asarray(rows.q[2]))
    assert np.max(np.abs(before - rows.p[1])) < 1e-12 and np.max(np.abs(after - rows.p[2])) < 1e-12
    assert np.max(np.abs(rows.p[2] - rows.p[1])) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("one_sided", "c"), [(True, 1.0), (False, 0.5)], ids=["first", "trapezoidal"])
def test_schemes_on_so3_come_from_discrete_lagrangians(one_sided, c):
    stiff = BODY.system.penalized(10.0)
    method = VariationalIntegrator(ZhangSkeelLagrangian(0.4, 2 * c, one_sided))
    form = "first" if one_sided else "trapezoidal"
    run = lambda m: hx.simulate(stiff, m, BODY.q0, BODY.p0, dt=0.1, steps=2)
    a, b = run(method), run(hx.ZhangSkeelSO3(0.4, form, c))
    assert np.max(np.abs(a.q - b.q)) < 1e-12 and np.max(np.abs(a.p - b.p)) < 1e-12


@pytest.mark.parametrize(
    ("method", "order"),
    [(hx.CayleyEulerSO3(), 1), (hx.ZhangSkeelSO3(form="first"), 1), (hx.ZhangSkeelSO3(), 2)],
    ids=["cayley", "first", "trapezoidal"],
)
def test_orders_from_a_generic_start(method, order):
    r0 = cayley(jnp.array([0.8, 0.3, -0.2]))
    problem = hx.models.magnetized_body(inertia=(1.0, 1.3, 1.6), rotation=r0)
    steps = (0.04, 0.02, 0.01)
    rigid = isinstance(method, hx.CayleyEulerSO3)
    system, base = (problem.system, hx.RATTLE()) if rigid else (problem.system.penalized(2.0), hx.StormerVerlet())
    run = lambda m, h: hx.simulate(system, m, problem.q0, problem.p0, dt=h, t1=0.8).final_q
    exact = run(hx.Composition(base, 4), 0.005)
    assert abs(slope(steps, [np.max(np.abs(run(method, h) - exact)) for h in steps]) - order) < 0.2


def test_figure_ten():
    exact = hx.simulate(BODY, hx.RATTLE(), dt=0.001, t1=5.0, save_every=100).q
    far = lambda sol: np.max(np.sqrt(np.sum((sol.q - exact) ** 2, axis=(1, 2))))
    stiff = BODY.system.penalized(10.0)
    run = lambda s, m, p=BODY.p0: hx.simulate(s, m, BODY.q0, p, dt=0.1, t1=5.0)
    assert abs(far(run(stiff, hx.ZhangSkeelSO3(0.4, "first", 1.0))) - 0.092) < 0.002
    assert abs(far(run(stiff, hx.ZhangSkeelSO3(0.4, "first", 0.5))) - 0.16) < 0.005
    cayley_run = run(BODY.system, hx.CayleyEulerSO3(), BODY.p0 * (1 + 0.01 * 1.05 / 4))  # the printed start
    assert abs(far(cayley_run) - 0.060) < 0.002
    assert np.max(cayley_run.constraint_error()) < 1e-13


@pytest.mark.parametrize("omega", [20.0, 40.0])
def test_penalty_holds_the_rotation(omega):
    sol = hx.simulate(BODY.system.penalized(omega), hx.StormerVerlet(), BODY.q0, BODY.p0, dt=0.05 / omega, t1=5.0)
    gram = np.swapaxes(sol.q, 1, 2) @ sol.q - np.eye(3)
    assert 1.8 < omega**2 * np.max(np.abs(gram)) < 2.1


@pytest.mark.parametrize("method", [hx.CayleyEulerSO3(), hx.RATTLE()], ids=lambda m: m.name)
def test_heavy_top_keeps_its_vertical_momentum(method):
    top = hx.models.heavy_top()
    vertical = top.invariants["vertical angular momentum"]
    sol = hx.simulate(top, method, dt=0.02, steps=200)
    assert np.ptp(np.asarray(jax.jit(jax.vmap(vertical))(jnp.asarray(sol.q), jnp.asarray(sol.p)))) < 1e-12
    assert np.max(sol.constraint_error()) < 1e-12


def test_a_body_that_cannot_be_is_refused():
    with pytest.raises(hx.InputError, match="triangle inequality"):
        hx.models.rigid_body(inertia=(1.0, 1.0, 3.0))
