"""Accelerations, inverse dynamics, center of mass and momentum against the formulas of a double pendulum."""

from types import SimpleNamespace

import numpy as np
import pytest

import holonomix as hx

G, M1, M2, L1, C1, C2, I1, I2 = 9.81, 2.0, 1.5, 0.8, 0.3, 0.5, 0.1, 0.05
# inertias of the second body with the same moment about the hinges; a plate has I_2 = I_1 + I_3 here
KINDS = {"rigid": [0.04, I2, 0.03], "plate": [0.02, I2, 0.03], "planar": I2}


def double_pendulum(kind="rigid", gravity=G):
    """Two bodies that hang in the plane of x and z and turn about y; in the plane, about the normal."""
    planar = kind == "planar"
    dim = 2 if planar else 3
    down = lambda x: (0.0, -x) if planar else (0.0, 0.0, -x)
    m = hx.Mechanism(gravity=down(gravity), dimensions=dim)
    upper = m.body("upper", mass=M1, inertia=I1 if planar else [0.09, I1, 0.02], position=down(C1))
    lower = m.body("lower", mass=M2, inertia=KINDS[kind], position=down(L1 + C2))
    axis = {} if planar else {"axis": (0, 1, 0)}
    m.revolute("shoulder", m.ground, upper, at=down(0), **axis)
    m.revolute("elbow", upper, lower, at=down(L1), **axis)
    return m


def mass_matrix(second):
    c = M2 * L1 * C2 * np.cos(second)
    far = I2 + M2 * C2**2
    return np.array([[I1 + M1 * C1**2 + far + M2 * L1**2 + 2 * c, far + c], [far + c, far]])


def rest_forces(x, v, coriolis=1.0):
    """Torques at zero acceleration: Coriolis and centrifugal forces, and the weight."""
    s = M2 * L1 * C2 * np.sin(x[1]) * coriolis
    low = G * M2 * C2 * np.sin(x[0] + x[1])
    high = G * (M1 * C1 + M2 * L1) * np.sin(x[0])
    return np.array([-s * v[1] * (2 * v[0] + v[1]) + high + low, s * v[0] ** 2 + low])


X, V = np.array([0.7, -1.2]), np.array([1.3, 2.1])
STATE = [dict(zip(("shoulder", "elbow"), x.tolist(), strict=True)) for x in (X, V)]


@pytest.mark.parametrize("kind", KINDS)
def test_accelerations_of_a_double_pendulum(kind):
    m = double_pendulum(kind)
    found = m.acceleration(*STATE)
    expected = np.linalg.solve(mass_matrix(X[1]), -rest_forces(X, V))
    np.testing.assert_allclose([found["shoulder"], found["elbow"]], expected, rtol=1e-12)
    wrong = np.linalg.solve(mass_matrix(X[1]), -rest_forces(X, V, coriolis=0.9))
    assert np.abs(wrong - expected).max() > 1e-2  # the bound sees a tenth of the Coriolis forces


def test_dampers_and_motors_are_part_of_accelerations_and_of_inverse_dynamics():
    m = double_pendulum()
    m.torsion_spring(m["shoulder"], damping=0.4)
    m.motor(m["elbow"], 0.7)
    loads = np.array([-0.4 * V[0], 0.7])
    found = m.acceleration(*STATE)
    expected = np.linalg.solve(mass_matrix(X[1]), loads - rest_forces(X, V))
    np.testing.assert_allclose([found["shoulder"], found["elbow"]], expected, rtol=1e-12)
    given = {"shoulder": 0.3, "elbow": -0.8}
    torques = m.inverse_dynamics(*STATE, given)
    expected = mass_matrix(X[1]) @ [0.3, -0.8] + rest_forces(X, V) - loads
    np.testing.assert_allclose([torques["shoulder"], torques["elbow"]], expected, rtol=1e-11)


def test_accelerations_follow_parameters_and_gravity():
    """With the values of the moment, also after a call with others."""
    m = double_pendulum()
    m.parameter("gain", 2.0)
    m.motor(m["elbow"], lambda t, x, rate, params: -params["gain"] * x * params["upper.mass"])
    for gain, gravity in ((2.0, G), (5.0, G), (5.0, 0.0)):
        m.parameter("gain", gain)
        m.gravity = np.array([0.0, 0.0, -gravity])
        found = m.acceleration(*STATE)
        rest = rest_forces(X, V) - (rest_forces(X, 0 * V) if gravity == 0 else 0)
        expected = np.linalg.solve(mass_matrix(X[1]), np.array([0, -gain * X[1] * M1]) - rest)
        np.testing.assert_allclose([found["shoulder"], found["elbow"]], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("add", "text"),
    [
        (lambda m: m.motor(m["elbow"], lambda t, x, rate: np.ones(3)), "a motor: .* one number, not .* shape .3,"),
        (lambda m: m.motor(m["elbow"], lambda t, x, rate: None), "a motor: .* one number, not None"),
        (lambda m: m.motor(m["elbow"], lambda t, x, rate: np.sin(x)), "test_queries.py, line.*write it with jax.numpy"),
        (lambda m: m.force(m["lower"], lambda t, x, v: 1.0), "a force: .* must return 3 numbers"),
        (lambda m: m.torque(m["lower"], lambda t, turn, spin: 1.0), "a torque: .* must return 3 numbers"),
    ],
)
def test_functions_of_forces_return_the_right_numbers(add, text):
    m = double_pendulum()
    add(m)
    with pytest.raises(hx.InputError, match=text):
        m.acceleration(*STATE)


@pytest.mark.parametrize("kind", KINDS)
def test_inverse_dynamics_of_a_double_pendulum(kind):
    m = double_pendulum(kind)
    a = np.array([-0.4, 2.0])
    found = m.inverse_dynamics(*STATE, {"shoulder": a[0], "elbow": a[1]})
    expected = mass_matrix(X[1]) @ a + rest_forces(X, V)
    np.testing.assert_allclose([found["shoulder"], found["elbow"]], expected, rtol=1e-11)
    # with one motor the other joint moves as it must
    matrix, h = mass_matrix(X[1]), rest_forces(X, V)
    free = -(h[0] + matrix[0, 1] * a[1]) / matrix[0, 0]
    alone = m.inverse_dynamics(*STATE, {"elbow": a[1]})
    np.testing.assert_allclose(alone["elbow"], matrix[1] @ [free, a[1]] + h[1], rtol=1e-11)
    # the motors with these torques give these accelerations
    for name, torque in found.items():
        m.motor(m[name], torque)
    back = m.acceleration(*STATE)
    np.testing.assert_allclose([back["shoulder"], back["elbow"]], a, rtol=1e-11)


def test_queries_leave_the_start_as_it_is():
    m = double_pendulum()
    m.configure({"elbow": 0.2}, {"elbow": 0.1})
    before = m.problem()
    m.acceleration(*STATE)
    m.inverse_dynamics(*STATE, {"elbow": 0.0})
    after = m.problem()
    assert np.array_equal(before.q0, after.q0) and np.array_equal(before.p0, after.p0)


@pytest.mark.parametrize("kind", KINDS)
def test_center_of_mass_and_momentum(kind):
    m = double_pendulum(kind).configure(*STATE)
    problem = m.problem()
    row = SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])
    sign = 1.0 if kind == "planar" else -1.0  # turning about y moves what hangs towards -x
    angle = np.array([X[0], X[0] + X[1]])
    spin = np.array([V[0], V[0] + V[1]])
    out, up = np.sin(angle), -np.cos(angle)
    path = np.array([[C1, 0.0], [L1, C2]])
    place = np.stack([path @ out * sign, path @ up], axis=1)
    speed = np.stack([path @ (np.cos(angle) * spin) * sign, path @ (np.sin(angle) * spin)], axis=1)
    masses = np.array([M1, M2])
    keep = [0, 1] if kind == "planar" else [0, 2]
    np.testing.assert_allclose(m.center_of_mass(row)[0][keep], masses @ place / masses.sum(), rtol=1e-13)
    linear, angular = m.momentum(row)
    np.testing.assert_allclose(linear[0][keep], masses @ speed, rtol=1e-12)
    turned = mass_matrix(X[1])[0] @ V  # dT/d(shoulder's rate)
    np.testing.assert_allclose(np.ravel(angular[0])[0 if kind == "planar" else 1], turned, rtol=1e-12)
    about = np.zeros(len(m.gravity))
    about[keep[0]] = 0.4  # L about another point: less (about x P)
    other = np.ravel(m.momentum(row, about)[1][0])[0 if kind == "planar" else 1]
    np.testing.assert_allclose(other, turned - sign * 0.4 * (masses @ speed)[1], rtol=1e-12)


@pytest.mark.slow
def test_momentum_is_kept_without_weight_and_lost_with_it():
    """A free pair of bodies; the control falls."""
    drift = []
    for gravity in (0.0, G):
        m = hx.Mechanism(gravity=(0, 0, -gravity))
        a = m.body("a", mass=1.0, inertia=[0.1, 0.2, 0.25], angular_velocity=(0.3, 1.0, -0.2))
        b = m.body("b", mass=2.0, inertia=[0.2, 0.1, 0.15], position=(1.0, 0, 0))
        m.revolute("hinge", a, b, at=(0.5, 0, 0), axis=(0, 0.6, 0.8))
        sol = hx.simulate(m.problem(dt=0.01), hx.RATTLE(), steps=20)
        drift.append([np.abs(x - x[0]).max() for x in m.momentum(sol)])
        fall = m.center_of_mass(sol)[-1] - m.center_of_mass(sol)[0]
    assert max(drift[0]) < 1e-13 and min(drift[1]) > 1e-2
    np.testing.assert_allclose(fall[2], -0.5 * G * 0.2**2 + 0.2 * m.momentum(sol)[0][0, 2] / 3, rtol=1e-9)


def test_questions_that_cannot_be_answered_are_named():
    m = double_pendulum()
    problem = m.problem()
    with pytest.raises(hx.InputError, match="both as arrays"):
        m.acceleration(problem.q0, {"elbow": 1.0})
    with pytest.raises(hx.InputError, match=r"shape \(8, 3\)"):
        m.acceleration(np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(hx.InputError, match="no joint position 'wrist'; there are shoulder, elbow"):
        m.inverse_dynamics(*STATE, {"wrist": 1.0})
    with pytest.raises(hx.InputError, match="by joint names"):
        m.inverse_dynamics(*STATE, [1.0, 2.0])


def test_a_solution_knows_joints_and_names():
    m = double_pendulum()
    m.configure(*STATE)
    tip = m.add_frame("tip", m["lower"], position=(0, 0, -C2))
    sol = hx.simulate(m.problem(dt=1e-3), hx.RATTLE(), steps=20)
    elbow = sol.joint("elbow")
    np.testing.assert_array_equal(elbow.angle, m["elbow"].angle(sol))
    np.testing.assert_array_equal(elbow.rate, m["elbow"].rate(sol))
    np.testing.assert_array_equal(elbow.force, m["elbow"].force(sol))
    data = sol.to_xarray(joints=True)
    np.testing.assert_array_equal(data.joint_position.sel(joint="elbow"), elbow.angle)
    np.testing.assert_array_equal(data.joint_rate.sel(joint="shoulder"), m["shoulder"].rate(sol))
    np.testing.assert_array_equal(data.frame_position.sel(frame="tip"), tip.position(sol))
    assert "joint_position" not in sol.to_xarray()
    with pytest.raises(hx.InputError, match="there is no joint 'upper'; there are shoulder, elbow"):
        sol.joint("upper")
    plain = hx.simulate(hx.models.double_pendulum(), hx.RATTLE(), steps=2)
    with pytest.raises(hx.InputError, match="joints need a run of the problem of a mechanism"):
        plain.joint("elbow")
