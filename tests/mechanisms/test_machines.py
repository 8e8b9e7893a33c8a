"""The gallery: freedom and redundancy by count, and motion against solutions that are made here independently."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline

import holonomix as hx
from holonomix.models.machines import JANSEN, bennett_ratio, jansen_points

# name -> (arguments, degrees of freedom, redundant rows)
COUNTS = {
    "jansen_leg": ({}, 1, 0),
    "strandbeest": ({"legs": 2}, 1, 0),
    "bennett_linkage": ({}, 1, 3),
    "bricard_linkage": ({}, 1, 1),
    "gyroscope": ({}, 3, 0),
    "seven_axis_arm": ({}, 7, 0),
    "iftomm_a01": ({}, 1, 0),
    "iftomm_a02": ({}, 1, 0),
    "iftomm_a03": ({}, 1, 0),
    "iftomm_a05": ({}, 4, 0),
}


@pytest.mark.parametrize("name", COUNTS)
def test_freedom_and_redundant_rows(name):
    arguments, freedom, redundant = COUNTS[name]
    m = getattr(hx.models, name)(mechanism=True, **arguments)
    problem = m.problem()
    assert np.abs(m.equations.values(np.asarray(problem.q0))).max() < 1e-13
    assert m.redundancy.degrees_of_freedom == freedom
    assert len(m.redundant_rows()) == redundant


@pytest.mark.slow
def test_a_stewart_platform_has_six_freedoms_and_its_legs_follow():
    m = hx.models.stewart_platform(mechanism=True)
    problem = m.problem()
    assert m.redundancy.degrees_of_freedom == 6
    sol = run(problem, 50)
    for k in range(6):
        foot, head = m[f"foot {k}"].place.point_a, m[f"head {k}"].place.point_b
        reach = np.linalg.norm(m["platform"].point(sol, head) - foot, axis=1)
        np.testing.assert_allclose(m[f"leg {k}"].distance(sol), reach - reach[0], atol=1e-13)
    assert np.ptp(m["leg 0"].distance(sol)) > 1e-3


def run(problem, steps, dt=None, every=1):
    return hx.simulate(
        problem.system, hx.RATTLE(), problem.q0, problem.p0, dt=dt or problem.dt, steps=steps, save_every=every
    )


def limit(problem, read, t, dt):
    """What `read(sol)` tends to at time t: two steps of the second-order method, extrapolated."""
    n = round(t / dt)
    coarse, fine = (read(run(problem, n * k, dt / k, n * k)) for k in (1, 2))
    return (4 * fine - coarse) / 3


@pytest.mark.slow
def test_a01_against_scipy():
    m = hx.models.iftomm_a01(mechanism=True)
    problem = m.problem()
    swing = solve_ivp(
        lambda t, y: [y[1], -9.81 * np.sin(y[0])], (0, 10), [-np.pi / 2, 0.0], rtol=1e-12, atol=1e-13, method="DOP853"
    ).y[0, -1]
    at = limit(problem, lambda sol: m["ball"].position(sol)[-1], 10.0, 1e-3)
    np.testing.assert_allclose(at, [np.sin(swing), -np.cos(swing)], atol=1e-6)


@pytest.mark.slow
def test_a02_against_scipy_through_singular_positions():
    """Two windows pass the horizontal, where all rods lie in one line, and keep to the parallelogram."""
    m = hx.models.iftomm_a02(mechanism=True)
    problem = m.problem()
    inertia, weight = 3 / 3 + 2, (3 / 2 + 2) * 9.81
    lean = solve_ivp(
        lambda t, y: [y[1], weight * np.sin(y[0]) / inertia],
        (0, 3),
        [0.0, 1.0],
        rtol=1e-12,
        atol=1e-13,
        method="DOP853",
    ).y[0, -1]
    assert lean > np.pi / 2  # it has passed the horizontal
    top = limit(problem, lambda sol: m["bar 0"].point(sol, (-0.5, 0.0))[-1], 3.0, 1e-3)
    np.testing.assert_allclose(top, [np.sin(lean), np.cos(lean)], atol=1e-6)


@pytest.mark.slow
def test_a03_against_the_published_solution():
    """Andrews' squeezer at t = 0.03 s (Test Set for IVP Solvers): crank angle 15.81077119629904."""
    m = hx.models.iftomm_a03(mechanism=True)
    problem = m.problem()

    def read(sol):
        tilt = np.unwrap(np.arctan2(*m["crank"].rotation(sol)[:, ::-1, 0].T))
        rocker = np.arctan2(*m["rocker"].rotation(sol)[-1, ::-1, 0])
        return np.array([tilt[-1], rocker])

    n = 6000
    coarse, fine = (read(run(problem, n * k, 0.03 / (n * k), 4 * k)) for k in (1, 2))
    np.testing.assert_allclose((4 * fine - coarse) / 3, [15.81077119629904, 0.04082224013073101], atol=1e-6)


def bricard_reference(t):
    """P3 of Bricard's linkage at time t from joint angles: product of exponentials, closed by Newton, one freedom."""
    points = np.array([(0, 0, 0), (0, 0, 1), (1, 0, 1), (1, -1, 1), (1, -1, 0), (0, -1, 0)], float)
    axes = [np.cross(points[k] - points[k - 1], points[(k + 1) % 6] - points[k]) for k in range(6)]

    def turn(axis, point, angle):
        x, y, z = axis
        k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        rotation = np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k
        out = np.eye(4)
        out[:3, :3], out[:3, 3] = rotation, point - rotation @ point
        return out

    def poses(angles):
        out, total = [], np.eye(4)
        for axis, point, angle in zip(axes, points, angles, strict=True):
            total = total @ turn(axis, point, angle)
            out.append(total)
        return out

    def gap(rest, s):  # the second angle leads: the first one turns back at 30 degrees
        end = poses(np.array([rest[0], s, *rest[1:]]))[-1]
        r = end[:3, :3]
        return np.array([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1], *(2 * end[:3, 3])])

    found = {0.0: np.zeros(6)}
    for step in (1e-3, -1e-3):
        rest, before = np.zeros(5), np.zeros(5)
        for k in range(1, 1201):
            s, guess = k * step, 2 * rest - before
            for _ in range(12):
                g = gap(guess, s)
                ends = [[gap(guess + h * e, s) for e in np.eye(5)] for h in (1e-6, -1e-6)]
                guess = guess - np.linalg.lstsq(np.subtract(*ends).T / 2e-6, g, rcond=None)[0]
                if np.abs(g).max() < 1e-13:
                    break
            if np.abs(gap(guess, s)).max() > 1e-11:
                break
            before, rest = rest, guess
            found[s] = np.array([guess[0], s, *guess[1:]])
    grid = np.array(sorted(found))
    angles = np.array([found[s] for s in grid])
    placed = np.array([poses(a)[:5] for a in angles])
    middle = np.array([(points[k] + points[k + 1]) / 2 for k in range(5)])
    centers = np.einsum("skij,kj->ski", placed[:, :, :3, :3], middle) + placed[:, :, :3, 3]
    along = np.array([points[k + 1] - points[k] for k in range(5)])
    moments = np.array([np.eye(3) * (1 + 0.01) / 12 - np.outer(d, d) * (1 - 0.01) / 12 for d in along])
    velocity = CubicSpline(grid, centers)(grid, 1)
    turning = CubicSpline(grid, placed[:, :, :3, :3])(grid, 1)
    skew = np.einsum("skij,sklj->skil", turning, placed[:, :, :3, :3])
    spin = np.stack([skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]], -1)
    local = np.einsum("skji,skj->ski", placed[:, :, :3, :3], spin)
    inertia = (velocity**2).sum((1, 2)) + np.einsum("ski,kij,skj->s", local, moments, local)
    mass, height = CubicSpline(grid, inertia), CubicSpline(grid, 9.81 * centers[:, :, 1].sum(1))
    slope = lambda _, y: [y[1], -(height(y[0], 1) + 0.5 * mass(y[0], 1) * y[1] ** 2) / mass(y[0])]
    s = solve_ivp(slope, (0, t), [0.0, 0.0], rtol=1e-11, atol=1e-12).y[0, -1]
    at = np.einsum("skij,j->ski", placed[:, 2:3, :3, :3], points[3])[:, 0] + placed[:, 2, :3, 3]
    return CubicSpline(grid, at)(s), s


@pytest.mark.slow
def test_a04_against_joint_angles():
    m = hx.models.iftomm_a04(mechanism=True)
    problem = m.problem()
    expected, s = bricard_reference(0.4)
    assert 0.1 < abs(s) < 1.1
    at = limit(problem, lambda sol: m["rod 3"].point(sol, (0.5, 0, 0))[-1], 0.4, 1e-3)
    np.testing.assert_allclose(at, expected, atol=1e-6)
    sol = run(problem, 200)
    assert max(v.max() for v in m.joint_error(sol).values()) < 1e-13  # the row left out as well


@pytest.mark.slow
def test_a05_against_a_symmetric_model():
    """Shaft, both arms and the slider with three coordinates: spin by conserved momentum, arm angle, slider height."""
    m = hx.models.iftomm_a05(mechanism=True)
    problem = m.problem()
    rod, ball, center = 0.3, 5.0, (0.3 * 0.5 + 5.0) / 5.3
    cross, own = rod * (1 + 1e-4) / 12 + rod / 4 + ball, rod * 2e-4 / 12
    about = rod * 2e-4 / 12 + 3.0 * 0.02 / 12  # shaft and slider

    def turning(a):
        return about + 2 * (cross * np.sin(a) ** 2 + own * np.cos(a) ** 2)

    momentum = turning(np.pi / 6) * 2 * np.pi

    def slope(_, z):
        a, y, da, dy = z
        arm = np.array([0.5 * np.sin(a), 1 - 0.5 * np.cos(a) - y])
        rate = np.array([0.5 * np.cos(a) * da, 0.5 * np.sin(a) * da - dy])
        size = np.linalg.norm(arm)
        pull = 8e5 * (size - 0.5) + 4e4 * (arm @ rate) / size
        spin = momentum / turning(a)
        swing = (cross - own) * np.sin(2 * a) * spin**2 / 2 - 5.3 * 9.81 * center * np.sin(a)
        swing -= pull * (arm @ [0.5 * np.cos(a), 0.5 * np.sin(a)]) / size
        lift = 2 * pull * arm[1] / size - 3.0 * 9.81
        return [da, dy, swing / cross, lift / 3.0]

    t = 0.005
    exact = solve_ivp(
        slope, (0, t), [np.pi / 6, 1 - np.cos(np.pi / 6), 0, 0], rtol=1e-10, atol=1e-12, method="Radau"
    ).y[:, -1]
    read = lambda sol: np.array([m["right hinge"].angle(sol)[-1], m["slide"].distance(sol)[-1]])
    found = limit(problem, read, t, 2e-5)
    np.testing.assert_allclose(found, [exact[0] - np.pi / 6, exact[1] - (1 - np.cos(np.pi / 6))], atol=1e-6)


@pytest.mark.slow
def test_a_bennett_linkage_keeps_its_relation_of_angles():
    m = hx.models.bennett_linkage(mechanism=True)
    sol = run(m.problem(), 1500, 2e-3, 10)
    twist = 0.6
    other = np.arcsin(1.5 * np.sin(twist))
    # angles between neighboring bars: `second` at hinge 1, `-first` at hinge 2
    first = 1.0 - m["hinge 2"].angle(sol)
    second = 2 * np.arctan(bennett_ratio(twist, other) / np.tan(0.5)) + m["hinge 1"].angle(sol)
    assert np.ptp(second) > 1.0
    left = np.sin((other - twist) / 2) * np.sin(first / 2) * np.sin(second / 2)
    np.testing.assert_allclose(left, np.sin((other + twist) / 2) * np.cos(first / 2) * np.cos(second / 2), atol=1e-10)
    assert max(v.max() for v in m.joint_error(sol).values()) < 1e-12
    np.testing.assert_allclose(m.energy(sol), m.energy(sol)[0], rtol=1e-4)


@pytest.mark.slow
def test_a_gyroscope_in_gimbals_keeps_its_momenta():
    """The rotor's momentum along its axle is constant, and so is that of everything about the vertical."""
    m = hx.models.gyroscope(mechanism=True)
    sol = run(m.problem(), 2000)
    axle = m["rotor"].rotation(sol)[:, :, 2]
    along = np.sum(m["rotor"].angular_momentum(sol) * axle, axis=1)
    vertical = sum(m[name].angular_momentum(sol)[:, 2] for name in ("outer ring", "inner ring", "rotor"))
    np.testing.assert_allclose(along, along[0], rtol=1e-12)
    np.testing.assert_allclose(vertical, vertical[0], rtol=1e-12)
    # slow precession: weight torque over spin momentum, for a fast top
    precession = np.polyfit(sol.t, m["vertical"].angle(sol), 1)[0]
    assert precession == pytest.approx(0.2 * 9.81 * 0.2 / along[0], rel=0.1)


@pytest.mark.slow
def test_jansens_leg_against_circles_and_one_freedom():
    """Every knot is where circles about the others meet, and the crank turns as its reduced energy says."""
    m = hx.models.jansen_leg(mechanism=True)
    problem = m.problem()
    sol = run(problem, 5000, 1e-3, 100)
    angle = m["axle"].angle(sol)
    assert angle[-1] > 2 * np.pi
    pins = JANSEN["m"] * np.stack([np.cos(angle), np.sin(angle)], 1)
    for pin, foot, heel in zip(pins, m["foot"].position(sol), m["heel"].position(sol), strict=True):
        points = jansen_points(pin)
        np.testing.assert_allclose(foot, points["foot"], atol=1e-12)
        np.testing.assert_allclose(heel, points["heel"], atol=1e-12)

    def inertia(a):
        h = 1e-5
        pins = [JANSEN["m"] * np.array([np.cos(b), np.sin(b)]) for b in (a - h, a + h)]
        knots = [np.stack(list(jansen_points(pin).values())) for pin in pins]
        return 4 * JANSEN["m"] ** 2 + np.sum(((knots[1] - knots[0]) / (2 * h)) ** 2)

    reduced = np.array([inertia(a) for a in angle])
    rate = m["axle"].rate(sol)
    np.testing.assert_allclose(rate, np.sqrt(2 * m.energy(sol)[0] / reduced), rtol=2e-3)
