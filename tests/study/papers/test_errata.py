"""Misprints that no other test shows, each beside its correction. docs/papers/errata.md lists all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.study.papers.farrell2009_constrained import andersen

PENDULUM = lambda z: np.array([z[1], -np.sin(z[0])])
SLOPE = lambda z: np.array([[0.0, 1.0], [-np.cos(z[0]), 0.0]])


def order(step, start=(1.0, 0.2), t1=1.0, local=False):
    """Order of a one-step method `step(z, dt)` on the pendulum, by a reference with RK4."""
    reference = lambda dt, n: advance(runge_kutta, np.array(start), dt / 50, 50 * n)
    counts = (20, 40, 80)
    errors = []
    for n in counts:
        steps = 1 if local else n
        errors.append(np.max(np.abs(advance(step, np.array(start), t1 / n, steps) - reference(t1 / n, steps))))
    return np.log2(errors[0] / errors[2]) / 2


def advance(step, z, dt, n):
    for _ in range(n):
        z = step(z, dt)
    return z


def runge_kutta(z, dt):
    a = PENDULUM(z)
    b = PENDULUM(z + dt / 2 * a)
    c = PENDULUM(z + dt / 2 * b)
    return z + dt / 6 * (a + 2 * b + 2 * c + PENDULUM(z + dt * c))


def verlet(z, dt):
    half = z[1] - dt / 2 * np.sin(z[0])
    q = z[0] + dt * half
    return np.array([q, half - dt / 2 * np.sin(q)])


# -- Farrell 2009 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage, expected", [(lambda dt: dt / 2, 2), (lambda dt: 1.0, 0)])
def test_explicit_midpoint_goes_half_a_step(stage, expected):
    """The printed stage `z + f(z)` does not depend on dt, so that the method does not converge."""
    step = lambda z, dt: z + dt * PENDULUM(z + stage(dt) * PENDULUM(z))
    assert order(step) == pytest.approx(expected, abs=0.2)


@pytest.mark.parametrize("last, expected", [(1 / 6, 3), (1 / 2, 2)])
def test_last_coefficient_of_the_taylor_method(last, expected):
    """`dt^{p-1}/p!`; with the printed `dt^{p-1}/(p-1)!` order three is lost."""

    def step(z, dt):
        f, a = PENDULUM(z), SLOPE(z)
        third = np.array([0.0, np.sin(z[0]) * f[0] ** 2]) + a @ a @ f
        return z + dt * f + dt**2 / 2 * a @ f + last * dt**3 * third

    assert order(step) == pytest.approx(expected, abs=0.25)


def test_velocity_at_whole_steps_is_a_mean():
    """`v_n = (v_{n-1/2} + v_{n+1/2})/2`; the printed `v_{n+1/2}/2 + v_{n-1/2}` is half as large again."""
    dt, z = 0.01, np.array([1.0, 0.2])
    after, before = z[1] - dt / 2 * np.sin(z[0]), z[1] + dt / 2 * np.sin(z[0])
    assert (before + after) / 2 == pytest.approx(z[1], abs=1e-15)
    assert after / 2 + before == pytest.approx(1.5 * z[1], abs=0.01)


def test_multistep_formula_needs_its_oldest_value():
    """`z_{n+1} = z_{n-1} + 2 dt f_n` is the two-step midpoint rule; without `a_0 z_{n-1}` it does not converge."""
    z, dt = np.array([1.0, 0.2]), 0.01
    before = advance(runge_kutta, z, -dt, 1)
    exact = advance(runge_kutta, z, dt, 1)
    assert np.max(np.abs(before + 2 * dt * PENDULUM(z) - exact)) < 1e-5
    assert np.max(np.abs(2 * dt * PENDULUM(z) - exact)) > 0.1


def test_a_symmetric_step_is_undone_by_the_negative_one():
    z = np.array([1.0, 0.2])
    assert np.max(np.abs(verlet(verlet(z, 0.1), -0.1) - z)) < 1e-15
    assert np.max(np.abs(verlet(verlet(z, 0.1), 0.1) - z)) > 0.01


def test_sign_of_the_multiplier_is_one_convention():
    """Equations (2) and (6) have opposite signs: at rest only one of them is in equilibrium."""
    problem = hx.models.planar_pendulum()
    q, p = jnp.asarray([0.0, -1.0]), jnp.zeros(2)
    lam = problem.system.multipliers(q, p)
    pull = problem.system.linearize(q).todense().T @ lam
    force = -problem.system.gradient(q)
    assert float(jnp.max(jnp.abs(force - pull))) < 1e-14
    assert float(jnp.max(jnp.abs(force + pull))) > 1.0


def test_tolerances_need_absolute_values():
    """A distance that is too short satisfies `|s|^2 - d^2 < tol`."""
    assert 0.5**2 - 1.0**2 < 1e-10 and abs(0.5**2 - 1.0**2) > 0.1


def test_sign_of_the_momentum_update():
    """`p_i = p_{i-1} - dt d_i V_q`; the printed plus moves in the potential -V."""
    kick = lambda sign: lambda z, dt: np.array([z[0] + dt * z[1], z[1] + sign * dt * np.sin(z[0] + dt * z[1])])
    exact = advance(runge_kutta, np.array([1.0, 0.2]), 0.001, 1000)
    away = {s: np.max(np.abs(advance(kick(s), np.array([1.0, 0.2]), 0.001, 1000) - exact)) for s in (-1, 1)}
    assert away[-1] < 1e-3 and away[1] > 0.5


def test_force_of_the_second_half_kick_enters_with_plus():
    """`v_{n+1} = v_{n+1/2} + dt/(2m) F_{n+1}`, as F = -V_q; the printed minus loses all order."""

    def printed(z, dt):
        half = z[1] - dt / 2 * np.sin(z[0])
        q = z[0] + dt * half
        return np.array([q, half + dt / 2 * np.sin(q)])

    assert order(verlet) == pytest.approx(2, abs=0.1) and order(printed) < 0.5


def test_augmented_hamiltonian_has_the_inverse_mass_and_constrains_q():
    problem = hx.models.double_pendulum(masses=(1.3, 0.7))
    q, p = problem.q0, jnp.asarray([[0.4, 0.0], [0.1, 0.3]])
    mass = jnp.asarray([[1.3], [0.7]])
    velocity = problem.system.velocity(q, p)
    assert float(jnp.max(jnp.abs(jax.grad(lambda x: jnp.sum(x**2 / mass) / 2)(p) - velocity))) < 1e-15
    assert float(jnp.max(jnp.abs(jax.grad(lambda x: jnp.sum(x**2 * mass) / 2)(p) - velocity))) > 0.01
    assert float(jnp.max(jnp.abs(problem.system.constraint(q)))) < 1e-12
    assert float(jnp.max(jnp.abs(problem.system.constraint(p)))) > 0.01  # (7) as printed


def test_lemma_1_needs_x_at_least_minus_one():
    x = np.linspace(-1, 3, 41)
    assert all(np.all((0 <= (1 + x) ** m) & ((1 + x) ** m <= np.exp(m * x) + 1e-12)) for m in (1, 2, 3, 8))
    assert (1 - 3.0) ** 3 < 0  # the printed range, x <= -1


def test_a_local_error_of_order_p_plus_one_gives_order_p():
    euler = lambda z, dt: z + dt * PENDULUM(z)
    assert order(euler) == pytest.approx(1, abs=0.1) and order(euler, local=True) == pytest.approx(2, abs=0.1)


def test_remainder_of_a_triple_jump():
    """One step of `S_4` errs by O(dt^5), which is O(dt^{2p+3}) with p = 1."""
    x1 = 1 / (2 - 2 ** (1 / 3))
    jump = lambda z, dt: verlet(verlet(verlet(z, x1 * dt), (1 - 2 * x1) * dt), x1 * dt)
    assert order(jump, local=True, t1=4.0) == pytest.approx(5, abs=0.3) and order(jump, t1=4.0) == pytest.approx(
        4, abs=0.3
    )


def test_andersens_corrections_add_up():
    problem = hx.models.chain(4)
    exact = hx.integrate(problem, hx.RATTLE(), dt=0.05, steps=21)
    q, v, cycles = andersen()
    assert np.max(np.abs(q - exact[0])) < 1e-10 and np.max(np.abs(v - exact[1])) < 1e-10 and cycles < 300
    assert andersen(reset=True)[2] == 500  # as printed it does not end


# -- Tao & Owhadi 2015 -------------------------------------------------------------------------------------------------


def test_printed_sign_of_gravity_inverts_the_pendula():
    start = hx.models.double_pendulum()
    rise = {}
    for gravity in (1.0, -1.0):  # V = +sum y, and as printed
        problem = hx.models.double_pendulum(gravity=gravity)
        sol = hx.simulate(problem.system, hx.RATTLE(), start.q0, start.p0, dt=0.02, steps=1000)
        rise[gravity] = float(sol.q[:, 1, 1].max())
    assert rise[1.0] < -1.5 and rise[-1.0] > 0.5


@pytest.mark.parametrize("scaled, low, high", [(False, 1e-3, 10), (True, 0, 1e-14)])
def test_lemma_2_13_needs_a_mass_that_is_a_multiple_of_one(scaled, low, high):
    """(2.10) with a symmetric f' is symplectic for M = I; in general `M f'` must be symmetric."""
    mass, h = np.diag([1.0, 3.0]), 0.3
    symmetric = -np.array([[1.0, 0.4], [0.4, 2.0]])
    slope = np.linalg.solve(mass, symmetric) if scaled else symmetric
    one, zero = np.eye(2), np.zeros((2, 2))
    kick, drift = (
        np.block([[one, zero], [h / 2 * mass @ slope, one]]),
        np.block([[one, h * np.linalg.inv(mass)], [zero, one]]),
    )
    step = kick @ drift @ kick
    form = np.block([[zero, one], [-one, zero]])
    assert low <= np.max(np.abs(step.T @ form @ step - form)) < high


def test_lemma_a_1_energy_has_a_half():
    """`v^T M v/2 + V + omega^2 |g|^2/2` is constant; with `omega^2 |g|^2` it is not (section 3, closed form)."""
    omega, t = 20.0, np.linspace(0, 3, 2001)
    matrix = np.array([[1 + omega**2, -1.0], [-1.0, 1.0]])
    values, basis = np.linalg.eigh(matrix)
    modes = basis.T @ np.array([0.0, 1.0])
    q = basis @ (modes[:, None] * np.cos(np.sqrt(values)[:, None] * t))
    v = -basis @ (modes[:, None] * np.sqrt(values)[:, None] * np.sin(np.sqrt(values)[:, None] * t))
    energy = lambda half: np.sum(v**2, axis=0) / 2 + (q[1] - q[0]) ** 2 / 2 + half * omega**2 * q[0] ** 2
    assert np.ptp(energy(0.5)) < 1e-12 and np.ptp(energy(1.0)) > 1e-4


# -- Barth, Leimkuhler & Reich 1998 ------------------------------------------------------------------------------------


def test_constraint_forces_of_a_rod_add_up_to_zero():
    """`u2' = -(x2 - x1) lambda2`: the printed plus pulls both ends of the second rod the same way."""
    x1, x2, lam = 0.3, 1.1, 0.7
    inner = -(x1 - x2) * lam
    assert inner - (x2 - x1) * lam == 0.0 and abs(inner + (x2 - x1) * lam) > 1.0


@pytest.mark.slow
def test_whip_needs_a_light_inner_mass():
    largest = []
    for masses in ((1e-3, 1.0), (1.0, 1e-3)):  # and as printed, m1/m2 = 1000
        problem = hx.models.double_pendulum((1.0, 1.0), masses=masses, angles=(np.pi / 2, 0.0))
        sol = hx.simulate(problem, hx.RATTLE(), dt=2.5e-4, steps=16_000)
        largest.append(np.max(np.abs(sol.multipliers)) / np.median(np.max(np.abs(sol.multipliers), axis=1)))
    assert largest[0] > 20 * largest[1]


@pytest.mark.parametrize("power", [2, 4])
def test_multiplier_as_a_function_of_the_state(power):
    """`(G M^-1 G^T)^-1 [g''(v, v) - G M^-1 V_q]`: printed with a plus; `G(v) v` is g''(v, v) for quadratic g only."""
    g = lambda q: jnp.sum(q**2) ** (power // 2) - 1.0
    system = hx.System(lambda q: q[1], lambda q: g(q)[None])
    q, v = jnp.asarray([0.6, -0.8]), jnp.asarray([1.6, 1.2])
    rows, second = jax.grad(g)(q), v @ jax.hessian(g)(q) @ v
    lam = float(system.multipliers(q, v)[0])
    pull = rows @ jnp.asarray([0.0, 1.0])
    assert lam == pytest.approx(float((second - pull) / (rows @ rows)), abs=1e-13)
    assert abs(lam - float((second + pull) / (rows @ rows))) > 0.1
    shortcut = float((jax.grad(g)(v) @ v - pull) / (rows @ rows))
    assert (abs(lam - shortcut) < 1e-13) == (power == 2)


def test_averaged_momenta_leave_the_kinetic_energy_singular():
    """With `p(s_i) = (p_{i-1/2} + p_{i+1/2})/2` alternating momenta have no kinetic energy, with lumped masses some."""
    n = 6
    mean = (np.eye(n, n + 1) + np.eye(n, n + 1, 1)) / 2
    alternating = (-1.0) ** np.arange(n + 1)
    assert np.max(np.abs(mean @ alternating)) == 0 and np.linalg.matrix_rank(mean.T @ mean) == n
    assert alternating @ alternating > 0


# -- Lubich & Weiss ----------------------------------------------------------------------------------------------------


def test_slow_energy_has_the_inverse_mass():
    """(29): the velocity `M^-1 p` is the derivative of `p^T M^-1 p/2`, not of the printed `p^T M p/2`."""
    problem = hx.models.double_pendulum_angles()
    q, p = problem.q0, jnp.asarray([0.3, -0.2])
    mass = jax.jacfwd(lambda v: problem.system.momentum(q, v))(jnp.zeros(2))
    velocity = problem.system.velocity(q, p)
    assert float(jnp.max(jnp.abs(jnp.linalg.solve(mass, p) - velocity))) < 1e-14
    assert float(jnp.max(jnp.abs(mass @ p - velocity))) > 0.1


def test_bounded_energy_bounds_the_fast_variables_only():
    """(19): along motions of bounded energy g is O(eps), while the rods turn by angles of order one."""
    moved, stretched = [], []
    for eps in (1e-2, 1e-3):
        problem = hx.models.stiff_spring_double_pendulum(eps)
        stretched.append(float(jnp.max(jnp.abs(problem.system.manifold(problem.q0)))) / eps)
        moved.append(float(jnp.max(jnp.abs(problem.q0))))
    assert stretched[0] == pytest.approx(stretched[1], rel=0.1) and min(moved) > 0.5
