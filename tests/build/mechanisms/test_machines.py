"""The gallery: freedom and redundancy by count, and motion against solutions that are made here independently."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

import holonomix as hx
from holonomix.build.models.machines import JANSEN, bennett_ratio, jansen_points

# name -> (arguments, degrees of freedom, redundant rows)
COUNTS = {
    "jansen_leg": ({}, 1, 0),
    "strandbeest": ({"legs": 2}, 1, 0),
    "bennett_linkage": ({}, 1, 3),
    "bricard_linkage": ({}, 1, 1),
    "gyroscope": ({}, 3, 0),
    "hoberman_ring": ({"sectors": 5}, 4, 4),
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
        np.testing.assert_allclose(m[f"leg {k}"].distance(sol), reach - reach[0], rtol=1e-7, atol=1e-13)
    assert np.ptp(m["leg 0"].distance(sol)) > 1e-3


def run(problem, steps, dt=None, every=1):
    return hx.simulate(
        problem.system, hx.RATTLE(), problem.q0, problem.p0, dt=dt or problem.dt, steps=steps, save_every=every
    )


def limit(problem, read, t, dt):
    """What `read(sol)` tends to at time t: two steps of the second-order method, extrapolated."""
    n = round(t / dt)
    coarse, fine = (np.asarray(read(run(problem, n * k, dt / k, n * k))) for k in (1, 2))
    return (4 * fine - coarse) / 3


@pytest.mark.slow
def test_a01_against_scipy():
    m = hx.models.iftomm_a01(mechanism=True)
    problem = m.problem()
    swing = solve_ivp(
        lambda t, y: [y[1], -9.81 * np.sin(y[0])], (0, 10), [-np.pi / 2, 0.0], rtol=1e-12, atol=1e-13, method="DOP853"
    ).y[0, -1]
    at = limit(problem, lambda sol: [*m["ball"].position(sol)[-1], m.energy(sol)[-1]], 10.0, 1e-3)
    np.testing.assert_allclose(at, [np.sin(swing), -np.cos(swing), 0.0], rtol=1e-7, atol=1e-6)


@pytest.mark.slow
def test_a02_against_scipy_through_singular_positions():
    """Ten seconds: two windows pass the horizontal, where all rods lie in one line, ten times, as parallelograms."""
    m = hx.models.iftomm_a02(mechanism=True)
    problem = m.problem()
    inertia, weight = 3 / 3 + 2, (3 / 2 + 2) * 9.81
    lean = solve_ivp(
        lambda t, y: [y[1], weight * np.sin(y[0]) / inertia],
        (0, 10),
        [0.0, 1.0],
        rtol=1e-12,
        atol=1e-13,
        method="DOP853",
    ).y[0, -1]
    assert lean > 10 * np.pi
    found = limit(problem, lambda sol: [*m["bar 0"].point(sol, (-0.5, 0.0))[-1], m.energy(sol)[-1]], 10.0, 1e-3)
    np.testing.assert_allclose(found, [np.sin(lean), np.cos(lean), inertia / 2 + weight], rtol=1e-7, atol=1e-6)


@pytest.mark.slow
def test_a03_against_the_published_solution():
    """Andrews' squeezer at t = 0.03 s (Test Set for IVP Solvers), all seven angles; its energy is the motor's work."""
    beta, theta, gamma, phi, delta, omega, epsilon = (
        15.81077119629904,
        -15.75637105984298,
        0.04082224013073101,
        -0.5347301163226948,
        0.5244099658805304,
        0.5347301163226948,
        1.048080741042263,
    )
    tilts = {
        "crank": beta,
        "rod": beta + theta,
        "rocker": gamma,
        "upper": delta,
        "upper rod": phi + delta,
        "lower": epsilon,
        "lower rod": omega + epsilon,
    }
    m = hx.models.iftomm_a03(mechanism=True)
    problem = m.problem()
    start = 0.455279819163070380  # gamma: the spring starts at D = B + turn(gamma) (sd, -sc)
    d = [np.cos(start) * 0.02 + np.sin(start) * 0.018, np.sin(start) * 0.02 - np.cos(start) * 0.018]
    stretch = np.linalg.norm(np.add([-0.03635, 0.03273], d) - [0.014, 0.072]) - 0.07785
    energy = 0.5 * 4530.0 * stretch**2 + 0.033 * (beta + 0.0617138900142764496)

    def read(sol):
        angles = [np.unwrap(np.arctan2(*m[name].rotation(sol)[:, ::-1, 0].T))[-1] for name in tilts]
        return np.array([*angles, m.energy(sol)[-1]])

    n = 6000
    coarse, fine = (read(run(problem, n * k, 0.03 / (n * k), 4 * k)) for k in (1, 2))
    np.testing.assert_allclose((4 * fine - coarse) / 3, [*tilts.values(), energy], rtol=1e-7, atol=1e-6)


POINTS = np.array([(0, 0, 0), (0, 0, 1), (1, 0, 1), (1, -1, 1), (1, -1, 0), (0, -1, 0)], float)


def bricard_reduced(angles):
    """Bricard's linkage at six joint angles, from the screws of its hinges; independent of bodies and multipliers.

    The direction n in which the angles can go (a combination of screws that vanishes), the inertia for that motion,
    the slope of the potential, and P3.
    """
    screws, poses, r, x = [], [], np.eye(3), np.zeros(3)
    for k, angle in enumerate(angles):
        axis = np.cross(POINTS[k] - POINTS[k - 1], POINTS[(k + 1) % 6] - POINTS[k])
        point = r @ POINTS[k] + x
        screws.append([*(r @ axis), *np.cross(point, r @ axis)])
        r = r @ Rotation.from_rotvec(angle * axis).as_matrix()
        x = point - r @ POINTS[k]
        poses.append((r, x))
    n = np.linalg.svd(np.transpose(screws))[2][-1]
    n = n * np.sign(n[1])
    twists, inertia, slope = np.cumsum(n[:, None] * screws, axis=0), 0.0, 0.0
    for k, (r, x) in enumerate(poses[:5]):
        turn, along = twists[k, :3], r @ (POINTS[k + 1] - POINTS[k])
        velocity = twists[k, 3:] + np.cross(turn, r @ (POINTS[k] + POINTS[k + 1]) / 2 + x)
        inertia += velocity @ velocity + (turn @ turn) * (1 + 0.01) / 12 - (turn @ along) ** 2 * (1 - 0.01) / 12
        slope += 9.81 * velocity[1]
    return n, inertia, slope, poses[2][0] @ POINTS[3] + poses[2][1]


@pytest.mark.slow
def test_a04_against_joint_angles():
    """Ten seconds of Bricard's linkage against one equation, `(I(s) s'^2 / 2)' = -V'(s)`, along its curve of angles."""

    def slope(_, z):
        n, inertia, pull, _ = bricard_reduced(z[:6])
        near = lambda h: bricard_reduced(z[:6] + h * n)[1]
        h = 2e-3
        change = (8 * (near(h) - near(-h)) - (near(2 * h) - near(-2 * h))) / (12 * h)
        return np.append(z[6] * n, -(pull + 0.5 * change * z[6] ** 2) / inertia)

    last = solve_ivp(slope, (0, 10), np.zeros(7), rtol=1e-9, atol=1e-11, method="DOP853").y[:6, -1]
    m = hx.models.iftomm_a04(mechanism=True)
    problem = m.problem()
    assert m.redundant_rows() == ["joint 'hinge 4', row 3"] and m.redundancy.degrees_of_freedom == 1
    sol = hx.simulate(problem, hx.Composition(hx.RATTLE(), order=6), dt=4e-3, t1=10.0, save_every=100)
    np.testing.assert_allclose(m["rod 3"].point(sol, (0.5, 0, 0))[-1], bricard_reduced(last)[3], rtol=1e-7, atol=1e-6)
    np.testing.assert_allclose(m.energy(sol), -2.5 * 9.81, rtol=1e-7, atol=1e-6)
    assert max(v.max() for v in m.joint_error(sol).values()) < 1e-13  # the row left out as well


@pytest.mark.slow
def test_a05_against_a_symmetric_model():
    """Two seconds, in three coordinates: spin by conserved momentum, arm angle, slider height."""
    m = hx.models.iftomm_a05(mechanism=True)
    problem = m.problem()
    rod, ball, center = 0.3, 5.0, (0.3 * 0.5 + 5.0) / 5.3
    cross, own = rod * (1 + 1e-4) / 12 + rod / 4 + ball, rod * 2e-4 / 12
    about = rod * 2e-4 / 12 + 3.0 * 0.02 / 12  # shaft and slider

    def turning(a):
        return about + 2 * (cross * np.sin(a) ** 2 + own * np.cos(a) ** 2)

    def spring(a, y):
        return np.array([0.5 * np.sin(a), 1 - 0.5 * np.cos(a) - y])

    momentum = turning(np.pi / 6) * 2 * np.pi

    def slope(_, z):
        _, a, y, da, dy = z
        arm, rate = spring(a, y), np.array([0.5 * np.cos(a) * da, 0.5 * np.sin(a) * da - dy])
        size = np.linalg.norm(arm)
        pull = 8e5 * (size - 0.5) + 4e4 * (arm @ rate) / size
        spin = momentum / turning(a)
        swing = (cross - own) * np.sin(2 * a) * spin**2 / 2 - 5.3 * 9.81 * center * np.sin(a)
        swing -= pull * (arm @ [0.5 * np.cos(a), 0.5 * np.sin(a)]) / size
        lift = 2 * pull * arm[1] / size - 3.0 * 9.81
        return [spin, da, dy, swing / cross, lift / 3.0]

    def energy(a, y, da, dy):
        kinetic = momentum**2 / turning(a) / 2 + cross * da**2 + 1.5 * dy**2
        height = 0.3 * 0.5 + 3.0 * y + 2 * 5.3 * (1 - center * np.cos(a))
        return kinetic + 9.81 * height + 8e5 * (np.linalg.norm(spring(a, y)) - 0.5) ** 2

    start = [0.0, np.pi / 6, 1 - np.cos(np.pi / 6), 0.0, 0.0]
    exact = solve_ivp(slope, (0, 2), start, rtol=1e-12, atol=1e-14, method="LSODA").y[:, -1]
    sol = run(problem, 80_000, 2.5e-5, 1000)
    joints = m["axle"].angle, m["right hinge"].angle, m["left hinge"].angle, m["slide"].distance
    spin, arm, height = exact[:3] - start[:3]
    np.testing.assert_allclose([read(sol)[-1] for read in joints], [spin, arm, -arm, height], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(m.energy(sol)[-1], energy(*exact[1:]), rtol=1e-7, atol=1e-6)


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
    np.testing.assert_allclose(
        left, np.sin((other + twist) / 2) * np.cos(first / 2) * np.cos(second / 2), rtol=1e-7, atol=1e-10
    )
    assert max(v.max() for v in m.joint_error(sol).values()) < 1e-12
    np.testing.assert_allclose(m.energy(sol), m.energy(sol)[0], rtol=1e-4)


@pytest.mark.slow
def test_a_hoberman_ring_stays_round():
    """All pins where the radius of the middle ones says, in a ring that folds until its inner pins meet."""
    m = hx.models.hoberman_ring(mechanism=True)
    sol = run(m.problem(), 2000, 1e-3, 20)
    rings = [
        [m[f"{ring} {k}"].b.point(sol, m[f"{ring} {k}"].place.point_b) for k in range(8)]
        for ring in ("middle", "outer", "inner")
    ]
    middle, outer, inner = np.linalg.norm(rings, axis=-1)
    assert np.ptp(middle[0]) > 0.8 and inner.min() < 0.3
    across = np.sqrt(1 - (middle * np.sin(np.pi / 8)) ** 2)
    np.testing.assert_allclose(middle - middle[0], 0.0, rtol=1e-7, atol=1e-13)
    np.testing.assert_allclose(outer, middle * np.cos(np.pi / 8) + across, rtol=1e-7, atol=1e-13)
    np.testing.assert_allclose(inner, np.abs(middle * np.cos(np.pi / 8) - across), rtol=1e-7, atol=1e-13)
    # the bars turn against each other at the start as given
    assert m["closing 0"].angular_velocity(sol)[0] == pytest.approx(0.5, rel=1e-13)
    np.testing.assert_allclose(m.energy(sol), m.energy(sol)[0], rtol=1e-6)


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
        np.testing.assert_allclose(foot, points["foot"], rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(heel, points["heel"], rtol=1e-7, atol=1e-12)

    def inertia(a):
        h = 1e-5
        pins = [JANSEN["m"] * np.array([np.cos(b), np.sin(b)]) for b in (a - h, a + h)]
        knots = [np.stack(list(jansen_points(pin).values())) for pin in pins]
        return 4 * JANSEN["m"] ** 2 + np.sum(((knots[1] - knots[0]) / (2 * h)) ** 2)

    reduced = np.array([inertia(a) for a in angle])
    rate = m["axle"].rate(sol)
    np.testing.assert_allclose(rate, np.sqrt(2 * m.energy(sol)[0] / reduced), rtol=2e-3)


@pytest.mark.parametrize("name", ["jansen_leg", "strandbeest"])
def test_every_distance_joint_is_a_bar_of_the_scene(name):
    """Once the page of a Strandbeest showed balls without bars."""
    m = getattr(hx.models, name)(mechanism=True)
    rods = [joint for joint in m.joints if joint.kind == "distance"]
    scene = m.problem().scene
    bars = [bond for bond in scene.bonds if bond.kind == "bar"]
    assert len(bars) == len(rods) > 0
    for joint, bar in zip(rods, bars, strict=True):
        for body, point, end in ((joint.a, joint.place.point_a, bar.a), (joint.b, joint.place.point_b, bar.b)):
            assert scene.anchors[-end - 1] == tuple(point) if body.fixed else end == body.first
