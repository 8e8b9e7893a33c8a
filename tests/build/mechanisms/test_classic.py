"""Classic mechanisms against their closed formulas: velocities at the start at once, motion in the slow tests."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import holonomix as hx

from .test_velocities import start_of

BEND = 0.5


def hooke_pair(angle, second=0.0):
    """Two parallel shafts, a shaft between them at BEND, universal joints; `second` turns the second joint's yoke."""
    m = hx.Mechanism(name="two universal joints")
    x, way = np.array([1.0, 0, 0]), np.array([np.cos(BEND), np.sin(BEND), 0.0])
    near, far = x, x + 2 * way
    lean = np.stack([way, [-np.sin(BEND), np.cos(BEND), 0], [0, 0, 1.0]], axis=1)
    first = m.body("in", mass=1.0, inertia=[0.2, 0.3, 0.3], position=x / 2)
    shaft = m.body("shaft", mass=1.0, inertia=[0.01, 0.1, 0.1], position=(near + far) / 2, rotation=lean)
    last = m.body("out", mass=1.0, inertia=[0.3, 0.3, 0.3], position=far + x / 2)
    m.start_rate(m.revolute("in axle", m.ground, first, at=(0, 0, 0), axis=x), 3.0)
    yoke = np.array([0, -np.sin(angle), np.cos(angle)])  # from the normal of the plane of the shafts
    cross = np.cross(way, yoke) / np.linalg.norm(np.cross(way, yoke))
    m.universal("first", first, shaft, at=near, axis=yoke, axis2=cross)
    arm = np.cos(second) * cross + np.sin(second) * np.cross(way, cross)
    m.universal("second", shaft, last, at=far, axis=arm, axis2=np.cross(x, arm))
    m.revolute("out axle", m.ground, last, at=far + x, axis=x)
    return m, way


def ripple(angle):
    """`w_2 / w_1 = cos(b) / (1 - sin(b)^2 sin(a)^2)` of one universal joint."""
    return np.cos(BEND) / (1 - np.sin(BEND) ** 2 * np.sin(angle) ** 2)


@pytest.mark.parametrize("angle", [0.0, 0.7, 2.5])
def test_two_universal_joints_undo_each_others_ripple(angle):
    """One row is redundant, as in every such pair."""
    m, way = hooke_pair(angle)
    row = start_of(m)
    assert m.redundancy.degrees_of_freedom == 1 and len(m.redundant_rows()) == 1
    assert m["shaft"].angular_velocity(row)[0] @ way == pytest.approx(3.0 * ripple(angle), rel=1e-13)
    assert m["out axle"].rate(row)[0] == pytest.approx(3.0, rel=1e-13)


@pytest.mark.slow
def test_ripple_along_a_turn():
    """In phase the ripple cancels; with the second yoke turned by 90 degrees it doubles."""
    for second in (0.0, np.pi / 2):
        m, way = hooke_pair(0.0, second)
        sol = hx.simulate(m.problem(dt=1e-3), hx.RATTLE(), steps=2500, save_every=10)
        angle, rate, out = m["in axle"].angle(sol), m["in axle"].rate(sol), m["out axle"].rate(sol)
        assert angle[-1] > 2 * np.pi
        np.testing.assert_allclose(m["shaft"].angular_velocity(sol) @ way, rate * ripple(angle), rtol=1e-12)
        if second == 0:
            np.testing.assert_allclose(out, rate, rtol=1e-12)
        else:
            np.testing.assert_allclose(
                [(out / rate).min(), (out / rate).max()], np.cos(BEND) ** np.array([2, -2]), rtol=1e-3
            )


def peaucellier(unit, weight, angle=0.6):
    """Peaucellier's and Lipkin's cell on a crank whose pin passes the fixed point: its end runs on a line."""
    long, side, r = 3.0 * unit, 1.2 * unit, 1.3 * unit
    m = hx.Mechanism(dimensions=2, name="Peaucellier and Lipkin's linkage")
    base, pin = np.array([r, 0]), r * np.array([1 + np.cos(angle), np.sin(angle)])
    reach = np.linalg.norm(pin)
    along, across = pin / reach, np.array([-pin[1], pin[0]]) / reach
    x = (long**2 - side**2 + reach**2) / (2 * reach)
    up, down = (x * along + s * np.sqrt(long**2 - x**2) * across for s in (1, -1))
    tip, fixed = 2 * x * along - pin, np.zeros(2)
    bars = {}
    for name, a, b in (
        ("upper", fixed, up), ("lower", fixed, down), ("crank", base, pin),
        ("1", up, pin), ("2", pin, down), ("3", up, tip), ("4", down, tip),
    ):  # fmt: skip
        gap, middle = b - a, (a + b) / 2
        length = float(np.hypot(*gap))
        bars[name] = m.body(
            name, shape=hx.mechanisms.Rod(length), mass=weight, position=middle, rotation=np.arctan2(*gap[::-1])
        )
    for name, at, a, b in (
        ("O", fixed, "", "upper"), ("O'", fixed, "", "lower"), ("Q", base, "", "crank"), ("B", up, "upper", "1"),
        ("B'", up, "upper", "3"), ("D", down, "lower", "2"), ("D'", down, "lower", "4"), ("C", pin, "crank", "1"),
        ("C'", pin, "crank", "2"), ("P", tip, "3", "4"),
    ):  # fmt: skip
        m.revolute(name, bars.get(a, m.ground), bars[b], at=at)
    return (
        m,
        (long**2 - side**2) / (2 * r),
        lambda sol: m["3"].point(sol, (side / 2, 0)),
        lambda sol: m["3"].velocity(sol, (side / 2, 0)),
    )


def test_peaucelliers_linkage_starts_along_its_line():
    """In mm, g, ms: P = (d, d tan(a/2)) with the crank's angle a."""
    m, line, place, velocity = peaucellier(1e3, 1e3)
    m.start_velocity(m["crank"], angular_velocity=-2e-3)
    row = start_of(m)
    np.testing.assert_allclose(place(row)[0], [line, line * np.tan(0.3)], rtol=1e-14)
    np.testing.assert_allclose(velocity(row)[0], [0, -1e-3 * line / np.cos(0.3) ** 2], rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_peaucelliers_linkage_draws_a_line():
    m, line, place, _ = peaucellier(1e3, 1e3)
    m.start_velocity(m["crank"], angular_velocity=-2e-3)
    sol = hx.simulate(m.problem(dt=1.0), hx.RATTLE(), steps=600, save_every=10)
    angle = 0.6 + m["Q"].angle(sol)
    assert angle[-1] < -0.5
    np.testing.assert_allclose(place(sol)[:, 0], line, rtol=1e-14)
    np.testing.assert_allclose(place(sol)[:, 1], line * np.tan(angle / 2), rtol=1e-7, atol=1e-14 * line)


def differential(teeth=1.5):
    m = hx.Mechanism(name="differential")
    x = (1.0, 0, 0)
    carrier = m.body("carrier", mass=3.0, inertia=[0.5, 0.4, 0.4], angular_velocity=(10.0, 0, 0))
    left = m.body("left", mass=2.0, inertia=[0.9, 0.6, 0.6], position=(-3, 0, 0), angular_velocity=(4.0, 0, 0))
    right = m.body("right", mass=2.0, inertia=[0.3, 0.6, 0.6], position=(3, 0, 0))
    spider = m.body("spider", mass=0.5, inertia=[0.05, 0.08, 0.05], position=(0, 2, 0))
    axle = m.revolute("axle", m.ground, carrier, at=(0, 0, 0), axis=x)
    sides = [m.revolute(f"{b.name} axle", carrier, b, at=b.origin, axis=x) for b in (left, right)]
    pin = m.revolute("pin", carrier, spider, at=(0, 2, 0), axis=(0, 1, 0))
    for side, ratio in zip(sides, (-teeth, teeth), strict=True):
        m.gear(f"{side.name} teeth", side, pin, ratio=ratio)
    m.motor(axle, 2.0)
    return m


def test_a_differential_shares_its_speed():
    m = differential()
    row = start_of(m)
    spins = [m[name].angular_velocity(row)[0, 0] for name in ("carrier", "left", "right")]
    np.testing.assert_allclose([*spins, m["pin"].rate(row)[0]], [10.0, 4.0, 16.0, 9.0], rtol=1e-13)
    assert m.redundancy.degrees_of_freedom == 2


@pytest.mark.slow
def test_a_differential_shares_its_torque():
    """Lagrange's equations in the rates of the carrier and of the left shaft against it: constant accelerations."""
    m = differential()
    sol = hx.simulate(m.problem(dt=2e-3), hx.RATTLE(), steps=1000, save_every=50)
    carrier = 0.5 + 0.05 + 0.5 * 2.0**2
    inertia = [[carrier + 0.9 + 0.3, 0.9 - 0.3], [0.9 - 0.3, 0.9 + 0.3 + 0.08 * 1.5**2]]
    rise = np.linalg.solve(inertia, [2.0, 0.0])
    rates = np.stack([m["axle"].rate(sol), m["left axle"].rate(sol)], axis=1)
    np.testing.assert_allclose(rates, [10.0, -6.0] + sol.t[:, None] * rise, rtol=1e-12)


CART = """<mujoco model="cart"><compiler angle="radian"/><option gravity="0 0 -981"/><worldbody>
<body name="cart"><joint name="rail" type="slide" axis="0 0 1"/><geom type="box" size="5 5 5" density="1" contype="0"/>
<body name="bob" pos="1 2 3"><joint name="bearing" type="ball" pos="1 0 0"/>
<inertial pos="1 0 25" mass="100" diaginertia="30 30 10"/></body></body></worldbody></mujoco>"""
TILT = 0.3


def shaken(tmp_path):
    """A top upright on a ball joint, in cm, g, s; its foot is shaken up and down."""
    path = tmp_path / "cart.xml"
    path.write_text(CART)
    m = hx.Mechanism.from_mjcf(path, positions={"bearing": (np.cos(TILT / 2), 0, np.sin(TILT / 2), 0)})
    m.drive(m["rail"], distance=lambda t: 2.0 * jnp.cos(300.0 * t) - 2.0)
    m.start_velocity(m["bob"], angular_velocity=(0, 0, 1.0))
    return m


def test_a_ball_joint_is_placed_by_a_rotation(tmp_path):
    m = shaken(tmp_path)
    row = start_of(m)
    np.testing.assert_allclose(m["bob"].rotation(row)[0, :, 2], [np.sin(TILT), 0, np.cos(TILT)], rtol=0, atol=1e-15)
    np.testing.assert_allclose(m["bob"].point(row, (1, 0, 0))[0], (2, 2, 3), rtol=0, atol=1e-14)
    np.testing.assert_allclose(m["bob"].angular_velocity(row)[0], (0, 0, 1.0), rtol=0, atol=1e-14)
    with pytest.raises(hx.InputError, match="'bearing' is not a joint with a rate; use m.start_velocity"):
        m.configure({}, {"bearing": 1.0})


@pytest.mark.slow
def test_a_shaken_top_stands_upright(tmp_path):
    """Kapitza's pendulum as a symmetric top, against its equations in Euler angles."""
    m = shaken(tmp_path)
    arm, mass, spin = 25.0, 100.0, 10.0 * np.cos(TILT)  # the momentum about its axis
    about = 30.0 + mass * arm**2
    swirl = about * np.sin(TILT) ** 2 + spin * np.cos(TILT)

    def slope(t, y):
        turn = (swirl - spin * np.cos(y[0])) / (about * np.sin(y[0]) ** 2)
        fall = mass * arm * (981.0 - 2.0 * 300.0**2 * np.cos(300.0 * t)) * np.sin(y[0])
        return [y[1], (about * np.sin(y[0]) * np.cos(y[0]) * turn**2 - spin * turn * np.sin(y[0]) + fall) / about, turn]

    exact = solve_ivp(slope, (0, 0.3), [TILT, 0, 0], rtol=1e-11, atol=1e-13)
    assert exact.y[0].max() <= TILT and exact.y[0].min() < 0.1
    tilt, _, turn = exact.y[:, -1]
    runs = (hx.simulate(m.problem(), hx.RATTLE(), dt=1e-4 / k, steps=3000 * k, save_every=3000 * k) for k in (1, 2))
    coarse, fine = (m["bob"].rotation(sol)[-1, :, 2] for sol in runs)
    axis = [np.sin(tilt) * np.cos(turn), np.sin(tilt) * np.sin(turn), np.cos(tilt)]
    np.testing.assert_allclose((4 * fine - coarse) / 3, axis, rtol=1e-7, atol=1e-6)
