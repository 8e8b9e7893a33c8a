"""Bodies, shapes, joints and assembly on the host: closed forms, counts of freedom, and errors that name things."""

import numpy as np
import pytest

import holonomix as hx
from holonomix.build.mechanisms.assembly import find_redundant

RNG = np.random.default_rng(0)


def cloud(inside, box, n=400_000):
    """Mass and moments of a solid by sampling, for unit density."""
    points = RNG.uniform(-1, 1, size=(n, 3)) * box
    points = points[inside(points)]
    share = len(points) / n * 8 * np.prod(box)
    x, y, z = (points**2).mean(axis=0)
    return share, np.array([y + z, x + z, x + y])


@pytest.mark.parametrize(
    ("shape", "inside", "box"),
    [
        (hx.mechanisms.Box(1.0, 2.0, 3.0), lambda p: np.ones(len(p), bool), (0.5, 1.0, 1.5)),
        (hx.mechanisms.Cylinder(1.0, 2.0), lambda p: p[:, 0] ** 2 + p[:, 1] ** 2 < 1, (1.0, 1.0, 1.0)),
        (hx.mechanisms.Sphere(1.0), lambda p: (p**2).sum(axis=1) < 1, (1.0, 1.0, 1.0)),
        (hx.mechanisms.Rod(2.0, 0.4), lambda p: np.ones(len(p), bool), (1.0, 0.2, 0.2)),
        (hx.mechanisms.Plate(2.0, 1.0, 0.2), lambda p: np.ones(len(p), bool), (1.0, 0.5, 0.1)),
    ],
)
def test_volumes_and_moments_of_shapes(shape, inside, box):
    volume, moments = cloud(inside, np.asarray(box))
    assert shape.volume == pytest.approx(volume, rel=5e-3)
    np.testing.assert_allclose(shape.moments, moments, rtol=8e-3)


def test_ideal_shapes_take_fewer_coordinates():
    m = hx.Mechanism()
    kinds = [
        m.body(shape=hx.mechanisms.Rod(2.0), mass=3.0).kind,
        m.body(shape=hx.mechanisms.Plate(2.0, 1.0), mass=3.0).kind,
        m.body(shape=hx.mechanisms.Box(1.0, 1.0, 1.0), density=2.0).kind,
        m.point_mass(mass=1.0).kind,
        hx.Mechanism(dimensions=2).body(shape=hx.mechanisms.Rod(2.0), mass=3.0).kind,
    ]
    assert kinds == ["rod", "plate", "rigid", "point", "planar"]
    rod = m.bodies[0]
    assert rod.inertia.directors == pytest.approx((1.0,))  # m l^2 / 12


def test_kinetic_energy_of_a_turning_body():
    """T from directors equals `omega . I omega / 2 + m v^2 / 2` for a full inertia matrix off the origin."""
    a = RNG.normal(size=(3, 3))
    inertia = np.trace(a @ a.T) * np.eye(3) - a @ a.T
    rotation = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    m = hx.Mechanism()
    spin, center = np.array([0.3, -1.0, 2.0]), np.array([0.1, 0.2, -0.3])
    body = m.body(
        mass=2.0, inertia=inertia, center=center, rotation=rotation, velocity=(1.0, 0.5, 0.0), angular_velocity=spin
    )
    _, v, masses = body.start()
    at_center = np.array([1.0, 0.5, 0.0]) + np.cross(spin, rotation @ center)
    world = rotation @ inertia @ rotation.T
    expected = 0.5 * spin @ world @ spin + 0.5 * 2.0 * at_center @ at_center
    assert 0.5 * np.sum(masses[:, None] * v**2) == pytest.approx(expected, rel=1e-13)


FREEDOM = {
    "revolute": 1,
    "prismatic": 1,
    "spherical": 3,
    "cylindrical": 2,
    "planar": 3,
    "fixed": 0,
    "screw": 1,
    "point_on_line": 4,
    "point_on_plane": 5,
    "distance": 5,
    "universal": 2,
}


@pytest.mark.parametrize("kind", FREEDOM)
def test_joints_leave_the_right_freedom(kind):
    m = hx.Mechanism()
    a = m.body("a", mass=1.0, inertia=[1.0, 1.1, 1.2], position=(0.1, 0.2, 0.3), rotation=(0.9, 0.1, -0.3, 0.2))
    m.fixed("base", m.ground, a)
    b = m.body("b", mass=1.0, inertia=[1.0, 1.1, 1.2], position=(1.0, 0.0, 0.0), rotation=(0.5, 0.7, 0.3, -0.2))
    options = {"at": (0.5, 0.4, 0.1), "axis": (1.0, 2.0, 3.0)}
    if kind == "distance":
        options = {"point_a": (0.1, 0.0, 0.0), "point_b": (0.0, 0.2, 0.0)}
    elif kind == "screw":
        options["pitch"] = 0.2
    elif kind == "universal":
        options["axis2"] = (3.0, 0.0, -1.0)
    joint = m.joint(kind, "j", a, b, **options)
    q = m._start()[0]
    assert np.abs(m.equations.values(q)).max() < 1e-14  # closed where it is made
    assert find_redundant(m.equations, q, 0.0).degrees_of_freedom == FREEDOM[kind]
    assert all(abs(c.value(q)) < 1e-14 for c in joint.coordinates)


def test_rows_and_slopes_agree():
    """The host's Jacobian is the derivative of the host's rows, for all kinds of bodies and rows."""
    m = hx.Mechanism()
    bodies = [
        m.body(mass=1.0, inertia=[1.0, 1.1, 1.2], position=(0.1, 0.2, 0.3)),
        m.body(shape=hx.mechanisms.Plate(1.0, 2.0), mass=1.0, rotation=(0.5, 0.7, 0.3, -0.2)),
        m.body(shape=hx.mechanisms.Rod(1.0), mass=1.0, rotation=(0.9, 0.1, 0.3, -0.2)),
        m.point_mass(mass=1.0, position=(1.0, 1.0, 1.0)),
    ]
    hinge = m.revolute(None, bodies[0], bodies[1], at=(0.3, 0.2, 0.1), axis=(1.0, 2.0, 0.5))
    screw = m.screw(None, bodies[0], bodies[1], at=(0.0, 0.1, 0.0), axis=(0.0, 1.0, 0.2), pitch=0.3)
    m.distance(None, bodies[1], bodies[2], point_a=(0.1, 0.2, 0.3), point_b=(0.5, 0.0, 0.0), length=1.0)
    m.distance(None, bodies[2], bodies[3], point_a=(-0.5, 0.0, 0.0), point_b=(0.0, 0.0, 0.0), length=1.0)
    m.gear(None, hinge, screw, ratio=1.5)
    q = m._start()[0] + 0.1 * RNG.normal(size=m._start()[0].shape)
    way = RNG.normal(size=q.shape)
    change = (m.equations.values(q + 1e-6 * way) - m.equations.values(q - 1e-6 * way)) / 2e-6
    np.testing.assert_allclose(m.equations.jacobian(q) @ way.reshape(-1), change, rtol=0, atol=2e-8)


def four_bar(lengths=(1.0, 3.0, 2.5), spread=3.0, rough=0.0):
    m = hx.Mechanism(dimensions=2, gravity=(0.0, -9.81))
    crank, coupler, rocker = lengths
    a = m.body("crank", shape=hx.mechanisms.Rod(crank), mass=1.0, position=(0.0, 0.5 + rough), rotation=np.pi / 2)
    b = m.body("coupler", shape=hx.mechanisms.Rod(coupler), mass=1.0, position=(1.5, 1.0 + rough))
    c = m.body("rocker", shape=hx.mechanisms.Rod(rocker), mass=1.0, position=(3.0, 1.0), rotation=np.pi / 2)
    ends = lambda l: ((-l / 2, 0.0), (l / 2, 0.0))
    m.revolute("A", m.ground, a, point_a=(0.0, 0.0), point_b=ends(crank)[0])
    m.revolute("B", a, b, point_a=ends(crank)[1], point_b=ends(coupler)[0])
    m.revolute("C", b, c, point_a=ends(coupler)[1], point_b=ends(rocker)[1])
    m.revolute("D", m.ground, c, point_a=(spread, 0.0), point_b=ends(rocker)[0])
    return m


def test_a_rough_guess_is_assembled():
    m = four_bar(rough=0.3).assemble()
    assert np.abs(m.equations.values(m._start()[0])).max() < 1e-13


@pytest.mark.parametrize(("unit", "weight"), [(1e-9, 1e-24), (1e-6, 1e-9), (1e3, 1e3), (1e6, 1e12)])
def test_units_do_not_matter(unit, weight):
    """Four bars of points and a bar, in nanometers up to megameters: closed, rank and motion as in meters."""
    m = hx.Mechanism(dimensions=2)
    crank = m.body("crank", shape=hx.mechanisms.Rod(unit), mass=weight, position=(0.5 * unit, 0.0))
    assert crank.inertia.directors[0] == pytest.approx(weight * unit**2 / 12, rel=1e-14)
    ends = [m.point_mass(mass=weight, position=unit * np.array(x)) for x in ((2.1, 2.2), (3.0, 0.1))]
    axle = m.revolute("axle", m.ground, crank, point_a=(0.0, 0.0), point_b=(-0.5 * unit, 0.0))
    m.distance("first", crank, ends[0], point_a=(0.5 * unit, 0.0), point_b=(0.0, 0.0), length=2.5 * unit)
    m.distance("second", m.ground, ends[0], point_a=(3.0 * unit, 0.0), point_b=(0.0, 0.0), length=2.5 * unit)
    m.distance("third", ends[0], ends[1], point_a=(0.0, 0.0), point_b=(0.0, 0.0), length=2.0 * unit)
    m.start_rate(axle, 2.0)
    problem = m.problem()
    q, p = np.asarray(problem.q0), np.asarray(problem.p0)
    corner, knot, tip = q[0] + 0.5 * unit * q[1], q[2], q[3]
    gaps = [q[0] - 0.5 * unit * q[1], np.linalg.norm(knot - corner) - 2.5 * unit, np.linalg.norm(tip - knot) - 2 * unit]
    assert max(np.abs(gap).max() for gap in gaps) < 1e-14 * unit
    assert m.redundancy.degrees_of_freedom == 2 and not m.redundant_rows()
    assert (q[1, 0] * p[1, 1] - q[1, 1] * p[1, 0]) / crank.inertia.directors[0] == pytest.approx(2.0, rel=1e-12)


def test_a_loop_that_cannot_close_is_named():
    with pytest.raises(hx.ConvergenceError, match=r"cannot be assembled.*joint '[ABCD]' by [0-9.]+"):
        four_bar(spread=9.0).assemble()


def spatial_loop(axes, points):
    """Bars between points, a hinge at each point, the first bar being the ground."""
    m = hx.Mechanism()
    bodies = [m.ground]
    for a, b in zip(points[1:], [*points[2:], points[0]], strict=True):
        along = np.subtract(b, a)
        frame = np.linalg.qr(np.column_stack([along, RNG.normal(size=(3, 2))]))[0]
        frame[:, 0] *= np.sign(frame[:, 0] @ along)
        frame[:, 2] *= np.sign(np.linalg.det(frame))
        bodies.append(
            m.body(
                shape=hx.mechanisms.Box(float(np.linalg.norm(along)), 0.1, 0.1),
                mass=1.0,
                position=np.add(a, b) / 2,
                rotation=frame,
            )
        )
    for k, (axis, point) in enumerate(zip(axes, points, strict=True)):
        m.revolute(f"hinge {k}", bodies[k - 1], bodies[k], at=point, axis=axis)
    return m


def test_an_over_constrained_plane_loop_in_space_is_recognized():
    points = [(0.0, 0, 0), (0.0, 0, 1.0), (3.0, 0, 2.5), (3.0, 0, 0)]
    m = spatial_loop([(0.0, 1, 0)] * 4, points)
    m.problem()
    assert (m.redundancy.degrees_of_freedom, len(m.redundant_rows())) == (1, 3)
    assert all("hinge" in text and "row" in text for text in m.redundant_rows())


def test_a_singular_position_is_told_from_redundant_rows():
    """A parallelogram with all bars in one line has two ways to go on."""
    m = hx.Mechanism(dimensions=2)
    bodies = [m.body(name, shape=hx.mechanisms.Rod(1.0), mass=1.0) for name in ("crank", "coupler", "rocker")]
    for body, x in zip(bodies, (0.5, 1.5, 1.5), strict=True):
        body.origin = np.array([x, 0.0])
    crank, coupler, rocker = bodies
    m.revolute("A", m.ground, crank, at=(0.0, 0.0))
    m.revolute("B", crank, coupler, at=(1.0, 0.0))
    m.revolute("C", coupler, rocker, at=(2.0, 0.0))
    m.revolute("D", m.ground, rocker, at=(1.0, 0.0))
    with pytest.raises(hx.ConstraintRankError, match="singular position: the rank of its 11 rows is 10 here and 11"):
        m.problem()


def hinge(m, **options):
    return m.revolute("j", m.ground, m["a"], at=(0, 0, 0), axis=(0, 0, 1), **options)


def started(m, *rates):
    joint = hinge(m)
    for rate in rates:
        m.start_rate(joint, rate)
    return m


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda m: m.body("b", mass=-1.0, inertia=[1, 1, 1]), "body 'b': mass must be a positive number, not -1"),
        (lambda m: m.body("b", mass=1.0), "body 'b': its inertia is missing"),
        (lambda m: m.body("b", inertia=[1, 1, 1]), "body 'b': its mass is missing"),
        (lambda m: m.body("b", mass=1.0, inertia=[1, 1, 3]), "body 'b'.*violate the triangle inequality"),
        (lambda m: m.body("b", shape=hx.mechanisms.Rod(1.0), density=1.0), "body 'b': an ideal rod has no volume"),
        (lambda m: m.body("a", mass=1.0, inertia=[1, 1, 1]), "already a body or joint called 'a'"),
        (lambda m: m.revolute("j", m.ground, m["a"], at=(0, 0, 0)), "joint 'j': give its axis"),
        (lambda m: m.revolute("j", m.ground, m["a"], at=(0, 0), axis=(0, 0, 1)), "joint 'j': at must be 3 numbers"),
        (
            lambda m: m.revolute("j", m["a"], m["a"], at=(0, 0, 0), axis=(0, 0, 1)),
            "joint 'j' needs two different bodies",
        ),
        (lambda m: m.joint("welded", "j", m.ground, m["a"], at=(0, 0, 0)), "joint 'j': unknown kind 'welded'"),
        (
            lambda m: m.screw("j", m.ground, m["a"], at=(0, 0, 0), axis=(0, 0, 1), pitch=0),
            "joint 'j': a screw needs its",
        ),
        (lambda m: m["nobody"], "no body, joint or frame 'nobody'"),
        (
            lambda m: m.revolute("j", m.ground, m["line"], at=(0, 0, 0), axis=(0, 0, 1)),
            "joint 'j': body 'line' is a rod",
        ),
        (lambda m: hx.Mechanism().problem(), "has no bodies"),
        (lambda m: m.body("b", mass=1.0, inertia=[1, 1, 1], angular_velocity="fast"), "angular_velocity must be 3 num"),
        (lambda m: hinge(m, axes=(1, 0, 0)), "joint 'j': unknown option 'axes'"),
        (lambda m: m.torsion_spring(hinge(m), stiffness=1.0, rest=np.nan), "rest must be a finite number"),
        (lambda m: m.motor(hinge(m), np.inf), "a motor: torque must be a finite number"),
        (lambda m: m.motor(hinge(m), 1.0, which=-1), "which must be a whole number"),
        (lambda m: m.gear("g", hinge(m), m["j"], ratio=2.0), "joint 'g' needs two different joints"),
        (lambda m: m.torque(m["a"], (1, 2)), "torque must be 3 numbers"),
        (lambda m: m.force(m.ground, (1, 2, 3)), "a force cannot act on the ground"),
        (
            lambda m: started(m, 1.0, 2.0).problem(),
            r"the rate 1 of joint 'j' by 0\.5, the rate 2 of joint 'j' by 0\.5\. L",
        ),
    ],
)
def test_bad_descriptions_are_named(make, text):
    m = hx.Mechanism()
    m.body("a", mass=1.0, inertia=[1, 1, 1])
    m.body("line", mass=1.0, shape=hx.mechanisms.Rod(1.0))
    with pytest.raises(hx.InputError, match=text):
        make(m)


def test_configure_places_bodies_by_joint_positions():
    m = hx.Mechanism()
    arm = m.body("arm", mass=1.0, inertia=[1, 1, 1], position=(1.0, 0, 0))
    slide = m.body("slide", mass=1.0, inertia=[1, 1, 1], position=(2.0, 0, 0))
    m.revolute("turn", m.ground, arm, at=(0, 0, 0), axis=(0, 0, 1))
    m.prismatic("push", arm, slide, at=(2.0, 0, 0), axis=(1, 0, 0))
    m.configure({"turn": np.pi / 2, "push": 0.5}, {"turn": 2.0, "push": 1.0})
    np.testing.assert_allclose(slide.origin, (0, 2.5, 0), rtol=0, atol=1e-15)
    np.testing.assert_allclose(slide.velocity0, (-5.0, 1.0, 0), rtol=0, atol=1e-14)
    q, v, _ = m._start()
    assert np.abs(m.equations.values(q)).max() < 1e-15
    assert np.abs(m.equations.jacobian(q) @ v.reshape(-1)).max() < 1e-14


def two_wheels(**gear):
    m = hx.Mechanism()
    wheels = [m.body(x, mass=1.0, inertia=[1, 1, 1], position=(k, 0, 0)) for k, x in enumerate("ab")]
    axles = [m.revolute(f"axle {x.name}", m.ground, x, at=x.origin, axis=(0, 0, 1)) for x in wheels]
    if gear:
        m.gear("teeth", *axles, **gear)
    return m


def angles_of(m):
    q = np.asarray(m.problem().q0)
    return [m[f"axle {x}"].coordinates[0].value(q) for x in "ab"]


@pytest.mark.parametrize("start", [0.5, 3.0, np.pi, 4.0])
def test_a_drive_starts_where_it_says_and_not_half_a_turn_away(start):
    m = two_wheels()
    m.drive(m["axle a"], lambda t: start + t)
    assert np.exp(1j * angles_of(m)[0]) == pytest.approx(np.exp(1j * start), abs=1e-14)


def test_gears_are_placed_by_either_joint():
    for given, expected in (({"axle a": 2.5}, (2.5, 3.75)), ({"axle b": 0.6}, (0.4, 0.6)), ({}, (0.0, 0.0))):
        np.testing.assert_allclose(
            np.exp(1j * np.array(angles_of(two_wheels(ratio=1.5).configure(given)))),
            np.exp(1j * np.array(expected)),
            rtol=1e-13,
        )
    first, second = angles_of(two_wheels(ratio=-1.5, offset=1.0))
    assert second == pytest.approx(1.0 - 1.5 * first, abs=1e-14)
    np.testing.assert_allclose(
        angles_of(two_wheels(ratio=-1.5, offset=1.0).configure()), [0.0, 1.0], rtol=0, atol=1e-14
    )


def planar_chain(links):
    """Bars hung from each other, straight out to the side."""
    m = hx.Mechanism(dimensions=2, gravity=(0.0, -9.81))
    before = m.ground
    for k in range(links):
        bar = m.body(shape=hx.mechanisms.Rod(1.0), mass=1.0, position=(k + 0.5, 0.0))
        m.revolute(f"pin {k}", before, bar, at=(float(k), 0.0))
        before = bar
    return m


def test_a_long_chain_is_solved_in_linear_time():
    """300 rows of 100 links are a band as narrow as that of 30 links."""
    texts = []
    for links in (30, 100):
        problem = planar_chain(links).problem()
        texts.append(problem.system.structure(problem.q0))
    assert texts[0].startswith("90 rows in a chain of") and texts[1].startswith("300 rows in a chain of")
    band, fronts = (text.split("chain")[1].split(";")[0] for text in texts), (text.split(" of ")[-1] for text in texts)
    assert len(set(band)) == 1 and len(set(fronts)) == 1
