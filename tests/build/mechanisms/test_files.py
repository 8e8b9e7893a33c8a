"""URDF and MJCF files: what is read, what is warned about, and errors that name file and element."""

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import holonomix as hx
from holonomix.build.mechanisms.xml_files import UnsupportedWarning, turn_about

from .robots import joint, link, random_tree

GOOD = (0.02, 0.03, 0.04, 0.001, 0.0, 0.002)


def write(tmp_path, text, name="robot.urdf"):
    path = tmp_path / name
    path.write_text(text)
    return path


def robot(*parts):
    return f'<robot name="r"><link name="base"/>{"".join(parts)}</robot>'


def test_a_tree_is_closed_and_moves_at_any_positions(tmp_path):
    path = write(tmp_path, random_tree(6, 3))
    rng = np.random.default_rng(0)
    names = [f"joint{k}" for k in range(6)]
    x, v = (dict(zip(names, rng.normal(size=6), strict=True)) for _ in range(2))
    with pytest.warns(UnsupportedWarning, match="limits of joints"):
        m = hx.Mechanism.from_urdf(path, positions=x, velocities=v)
    q, u, _ = m._start()
    assert np.abs(m.equations.values(q)).max() < 1e-13
    assert np.abs(m.equations.jacobian(q) @ u.reshape(-1)).max() < 1e-12
    for name in names:
        assert m[name].coordinates[0].value(q) == pytest.approx(x[name], abs=1e-12)
    assert len(m._start()[0]) == 24


def test_fixed_joints_lump_links_and_damping_is_read(tmp_path):
    text = robot(
        link("arm", 2.0, (0.1, 0, 0), GOOD),
        link("tool", 1.0, (0, 0, 0), GOOD),
        joint("turn", "continuous", "base", "arm", (0, 0, 1), (0, 0, 0), (0, 1, 0), '<dynamics damping="0.3"/>'),
        joint("weld", "fixed", "arm", "tool", (1, 0, 0), (0, 0, 0), (1, 0, 0)),
    )
    m = hx.Mechanism.from_urdf(write(tmp_path, text))
    assert [body.name for body in m.bodies] == ["arm"]
    assert m["arm"].mass == 3.0
    np.testing.assert_allclose(m["arm"].center, (0.4, 0, 0), rtol=1e-13)
    assert m.problem().system.force_fn is not None


def test_mimic_and_loop_joints_close_loops(tmp_path):
    text = robot(
        link("a", 1.0, (0, 0, 0.5), GOOD),
        link("b", 1.0, (0.5, 0, 0), GOOD),
        link("c", 1.0, (0, 0, 0.5), GOOD),
        link("gear", 1.0, (0, 0, 0), GOOD),
        joint("A", "continuous", "base", "a", (0, 0, 0), (0, 0, 0), (0, 1, 0)),
        joint("B", "continuous", "a", "b", (0, 0, 1), (0, 0, 0), (0, 1, 0)),
        joint("D", "continuous", "base", "c", (1, 0, 0), (0, 0, 0), (0, 1, 0)),
        joint("G", "continuous", "base", "gear", (5, 0, 0), (0, 0, 0), (0, 1, 0), '<mimic joint="A" multiplier="-2"/>'),
        '<loop_joint name="C" type="revolute"><link1 link="b" xyz="1 0 0"/><link2 link="c" xyz="0 0 1"/>'
        '<axis xyz="0 1 0"/></loop_joint>',
    )
    start = {"positions": {"A": 0.1, "D": 0.12, "B": -0.1, "G": -0.2}, "velocities": {"A": 2.0}}
    m = hx.Mechanism.from_urdf(write(tmp_path, text), **start)
    problem = m.problem()
    row = SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])
    np.testing.assert_allclose([m[x].rate(row)[0] for x in "ABDG"], [2.0, -2.0, 2.0, -4.0], rtol=1e-13)
    exact = hx.Mechanism.from_urdf(write(tmp_path, text), positions={"A": 0.3})  # kept, and the others follow
    q = np.asarray(exact.problem().q0)
    found = [exact[x].coordinates[0].value(q) for x in "ABDG"]
    np.testing.assert_allclose(found, [0.3, -0.3, 0.3, -0.6], rtol=0, atol=1e-14)
    assert m.redundancy.degrees_of_freedom == 1
    assert len(m.redundancy.dropped) == 3  # a plane loop in space


BAD = {
    "negative mass": (
        robot(
            link("arm", -2.0, (0, 0, 0), GOOD),
            joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1)),
        ),
        "link 'arm' has the negative mass -2",
    ),
    "no inertia matrix": (
        robot(
            '<link name="arm"><inertial><mass value="1"/></inertial></link>',
            joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1)),
        ),
        "<inertial> of link 'arm' has no <inertia>",
    ),
    "impossible inertia": (
        robot(
            link("arm", 1.0, (0, 0, 0), (1.0, 1.0, 5.0, 0, 0, 0)),
            joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1)),
        ),
        "body 'arm'.*triangle inequality",
    ),
    "unknown joint": (
        robot(link("arm", 1.0, (0, 0, 0), GOOD), joint("j", "hinge", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1))),
        "joint 'j' has the unknown type 'hinge'",
    ),
    "unknown link": (
        robot(joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1))),
        "joint 'j' refers to link 'arm', which does not exist",
    ),
    "two parents": (
        robot(
            link("arm", 1.0, (0, 0, 0), GOOD),
            joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1)),
            joint("k", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1)),
        ),
        "link 'arm' has two parents",
    ),
    "not numbers": (
        robot(
            link("arm", 1.0, (0, 0, 0), GOOD),
            '<joint name="j" type="continuous"><origin xyz="a b c"/><parent link="base"/><child link="arm"/></joint>',
        ),
        "xyz='a b c' should be 3 numbers",
    ),
    "entity bomb": (
        '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><robot name="r"><link name="&b;"/></robot>',
        "declares a document type or entities",
    ),
    "ring apart": (
        robot(link("arm", 1.0, (0, 0, 0), GOOD), joint("j", "continuous", "arm", "arm", (0,) * 3, (0,) * 3, (0, 0, 1))),
        r"links \['arm'\] form a ring that is not connected to the root link 'base'",
    ),
    "own mimic": (
        robot(
            link("arm", 1.0, (0, 0, 0), GOOD),
            joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1), '<mimic joint="j"/>'),
        ),
        "joint 'j' mimics itself",
    ),
    "not XML": ("robot = 3", "is not an XML file"),
    "another root": ("<mujoco/>", "its root element is <mujoco>, not <robot>"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_urdf_files_are_named(tmp_path, case):
    text, message = BAD[case]
    with pytest.raises(hx.InputError, match=f"robot.urdf.*{message}"):
        hx.Mechanism.from_urdf(write(tmp_path, text))


def test_a_joint_that_moves_no_mass_stays_at_zero(tmp_path):
    hinge = joint("j", "continuous", "base", "arm", (0, 0, 1), (0,) * 3, (0, 0, 1))
    path = write(tmp_path, robot('<link name="arm"/>', hinge))
    with pytest.warns(UserWarning, match=r"joints that move no mass \(1\)"):
        m = hx.Mechanism.from_urdf(path)
    assert m["arm"].body is m.ground
    np.testing.assert_array_equal(m["arm"].at, (0, 0, 1))
    with pytest.raises(hx.InputError, match="the mechanism has no bodies"):
        m.problem()


@pytest.mark.parametrize("given", ["x", float("nan"), [1.0, 2.0]])
def test_positions_that_are_no_numbers_are_named(tmp_path, given):
    text = robot(
        link("arm", 1.0, (0, 0, 0), GOOD), joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1))
    )
    with pytest.raises(hx.InputError, match="joint 'j' has 1 position, so .* is no value of it"):
        hx.Mechanism.from_urdf(write(tmp_path, text), positions={"j": given})


def test_states_that_are_no_dictionaries_of_joints_are_named(tmp_path):
    text = robot(
        link("arm", 1.0, (0, 0, 0), GOOD), joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1))
    )
    path = write(tmp_path, text)
    with pytest.raises(hx.InputError, match="'base' is not a joint with a position"):
        hx.Mechanism.from_urdf(path, positions={"base": 0.1})
    with pytest.raises(hx.InputError, match="closed_loop must be a list"):
        hx.Mechanism.from_urdf(path, loops={"closed_loop": 3})
    m = hx.Mechanism.from_urdf(path)
    with pytest.raises(hx.InputError, match="positions must be a dictionary of joint names"):
        m.configure([0.1])
    with pytest.raises(hx.InputError, match="velocities must be a dictionary of joint names"):
        m.configure({}, 0.1)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(hx.InputError, match="nothing.urdf cannot be read"):
        hx.Mechanism.from_urdf(tmp_path / "nothing.urdf")


def quadruped():
    """A trunk with two legs of two joints each."""
    parts = [link("trunk", 5.0, (0, 0, 0), GOOD)]
    for side, y in (("left", 0.2), ("right", -0.2)):
        parts += [link(f"{side} {x}", 1.0, (0, 0, -0.1), GOOD) for x in ("thigh", "shank")]
        place = (0.1, y, 0), (0, 0, 0), (0, 1, 0)
        parts.append(joint(f"{side} hip", "continuous", "trunk", f"{side} thigh", *place))
        parts.append(joint(f"{side} knee", "continuous", f"{side} thigh", f"{side} shank", (0, 0, -0.2), *place[1:]))
    return f'<robot name="r">{"".join(parts)}</robot>'


def test_a_free_base_keeps_its_pose_and_velocity(tmp_path):
    """Once the leg stayed where it was and the trunk turned, with `velocities` too."""
    start = {"positions": {"left hip": 0.8, "left knee": -0.4}, "velocities": {"left hip": 2.0}}
    m = hx.Mechanism.from_urdf(write(tmp_path, quadruped()), base="free", **start)
    problem = m.problem()
    row = SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])
    np.testing.assert_allclose(m["trunk"].rotation(row)[0], np.eye(3), rtol=0, atol=1e-15)
    np.testing.assert_allclose(m["trunk"].position(row)[0], np.zeros(3), rtol=0, atol=1e-15)
    np.testing.assert_allclose(m["trunk"].velocity(row)[0], np.zeros(3), rtol=0, atol=1e-15)
    np.testing.assert_allclose(m["trunk"].angular_velocity(row)[0], np.zeros(3), rtol=0, atol=1e-15)
    np.testing.assert_allclose(m["left thigh"].rotation(row)[0], turn_about(np.eye(3)[1], 0.8), rtol=0, atol=1e-15)
    np.testing.assert_allclose(m["left thigh"].angular_velocity(row)[0], (0, 2.0, 0), rtol=0, atol=1e-14)
    m.start_velocity(m["trunk"], velocity=(1.0, 0, 0), angular_velocity=(0, 0, 0.5))
    m.configure(**start)  # what the base is told stays
    problem = m.problem()
    row = SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])
    np.testing.assert_allclose(m["trunk"].velocity(row)[0], (1.0, 0, 0), rtol=0, atol=1e-14)
    np.testing.assert_allclose(m["trunk"].angular_velocity(row)[0], (0, 0, 0.5), rtol=0, atol=1e-14)


def test_a_link_and_a_joint_of_the_same_name(tmp_path):
    """The link has the name, the joint is "joint NAME"; positions are those of joints. In either order in the file."""
    here = (0,) * 3, (0,) * 3, (0, 0, 1)
    for parent, first, second in (("base", "jaw", "hand"), ("jaw", "jaw", "hand")):
        text = robot(
            link("jaw", 1.0, (0.1, 0, 0), GOOD),
            link("hand", 1.0, (0.1, 0, 0), GOOD),
            joint("hand", "continuous", "base", first, *here),
            joint("wrist", "continuous", parent, second, *here),
        )
        m = hx.Mechanism.from_urdf(write(tmp_path, text), positions={"hand": 0.7}, velocities={"hand": 1.0})
        assert m["hand"] is m.bodies[1] and m["joint hand"].b is m["jaw"]
        np.testing.assert_allclose(m["jaw"].attitude, turn_about(np.eye(3)[2], 0.7), rtol=0, atol=1e-15)
        assert list(m.inverse_dynamics({"hand": 0.7}, {}, {"hand": 0.1})) == ["hand"]


def test_a_mimic_on_a_fixed_joint_is_left_out(tmp_path):
    """It follows nobody, and its leader is not to blame."""
    here = (0,) * 3, (0,) * 3, (0, 0, 1)
    text = robot(
        link("arm", 1.0, (0, 0, 0), GOOD),
        link("tool", 1.0, (0, 0, 0), GOOD),
        joint("j", "continuous", "base", "arm", *here),
        joint("k", "fixed", "arm", "tool", *here, '<mimic joint="j"/>'),
    )
    with pytest.warns(UnsupportedWarning, match=r"<mimic> of joints that do not move \(1\)"):
        m = hx.Mechanism.from_urdf(write(tmp_path, text))
    assert [x.name for x in m.joints] == ["j"]


def test_a_shape_without_extent_is_left_out(tmp_path):
    ball = '<visual><geometry><sphere radius="{}"/></geometry></visual></link>'
    arm = link("arm", 1.0, (0, 0, 0), GOOD)
    both = arm.replace("</link>", ball.format(0).replace("</link>", "") + ball.format(0.2))
    text = robot(both, joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1)))
    with pytest.warns(UnsupportedWarning, match=r"shapes without extent \(1\)"):
        m = hx.Mechanism.from_urdf(write(tmp_path, text))
    assert [shape.radius for shape, *_ in m["arm"].shapes] == [0.2]


def test_one_link_needs_a_free_base(tmp_path):
    path = write(tmp_path, f'<robot name="r">{link("ball", 1.0, (0, 0, 0), GOOD)}</robot>')
    with pytest.raises(hx.InputError, match="link 'ball' .* base=\"free\""):
        hx.Mechanism.from_urdf(path).problem()
    assert hx.Mechanism.from_urdf(path, base="free").problem().q0.shape == (4, 3)


MJCF = """
<mujoco model="loop">
  <compiler angle="radian"/>
  <option gravity="0 0 -1"/>
  <default><geom type="capsule" density="500"/><default class="thick"><geom size="0.1"/></default></default>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="a" childclass="thick">
      <joint name="A" type="hinge" axis="0 1 0" damping="0.5" stiffness="2" springref="0.1"/>
      <geom fromto="0 0 0 0 0 1"/>
      <body name="b" pos="0 0 1">
        <joint name="B" type="hinge" axis="0 1 0"/>
        <geom fromto="0 0 0 1 0 0"/>
      </body>
    </body>
    <body name="c" pos="1 0 0" childclass="thick">
      <joint name="D" type="hinge" axis="0 1 0"/>
      <geom fromto="0 0 0 0 0 1"/>
    </body>
    <body name="ball" pos="5 0 0"><freejoint/><geom type="sphere" size="0.2"/></body>
  </worldbody>
  <equality><connect name="C" body1="b" body2="c" anchor="1 0 0"/></equality>
  <actuator><motor joint="A"/></actuator>
</mujoco>
"""


def test_a_mujoco_file_with_a_loop(tmp_path):
    with pytest.warns(UnsupportedWarning, match="left out: contacts of geoms"):
        m = hx.Mechanism.from_mjcf(write(tmp_path, MJCF, "loop.xml"))
    assert [motor.joint.name for motor in m.motors.values()] == ["A"]
    assert [body.name for body in m.bodies] == ["a", "b", "c", "ball"]
    problem = m.problem()
    assert m.redundancy.degrees_of_freedom == 1 + 6
    np.testing.assert_allclose(m.gravity, (0, 0, -1), rtol=1e-13)
    radius, half = 0.1, 0.5
    assert m["a"].mass == pytest.approx(500 * np.pi * radius**2 * (2 * half + 4 / 3 * radius))
    assert m["ball"].mass == pytest.approx(500 * 4 / 3 * np.pi * 0.2**3)
    assert problem.system.force_fn is not None
    np.testing.assert_allclose(m["A"].coordinates[0].value(m._start()[0]), 0.0, rtol=0, atol=1e-15)


BOX = '<geom type="box" size="0.1 0.2 0.3" pos="0.3 0 0"/>'
TIP = '<geom type="box" size="0.1 0.2 0.3" pos="0.1 0.2 0" group="4"/>'
HINGE = '<joint name="A" axis="0 1 0"/>'
HEAVY = '<inertial mass="9" pos="0 0 0" diaginertia="1 1 1"/>'


def body(content, name="a"):
    return f'<worldbody><body name="{name}">{content}</body></worldbody>'


# two ways to say the same, of which the second is the plain one
SAME = {
    "frame around a body": (
        f'<worldbody><frame pos="0 0 1" euler="0 0 90"><body name="a" pos="1 0 0">{HINGE}{BOX}</body></frame>'
        "</worldbody>",
        f'<worldbody><body name="a" pos="0 1 1" euler="0 0 90">{HINGE}{BOX}</body></worldbody>',
    ),
    "frame in a body": (
        body(f'<frame pos="0.3 0 0" euler="0 90 0">{HINGE}<geom type="box" size="0.3 0.2 0.1"/></frame>'),
        body(f'<joint name="A" axis="0 1 0" pos="0.3 0 0"/>{BOX}'),
    ),
    "class of a frame": (
        '<default><default class="k"><geom density="200"/></default></default>'
        f'<worldbody><frame childclass="k"><body name="a">{HINGE}{BOX}</body></frame></worldbody>',
        body(HINGE + BOX.replace("/>", ' density="200"/>')),
    ),
    "sections in parts": (
        '<compiler angle="radian"/><compiler eulerseq="zyx"/><option gravity="0 0 1"/><option timestep="1"/>'
        + body(HINGE + BOX).replace("<body", '<body euler="0.1 0.2 0.3"')
        + body(HINGE.replace("A", "B") + BOX, "b"),
        '<compiler angle="radian" eulerseq="zyx"/><option gravity="0 0 1"/>'
        + (
            body(HINGE + BOX).replace("<body", '<body euler="0.1 0.2 0.3"') + body(HINGE.replace("A", "B") + BOX, "b")
        ).replace("</worldbody><worldbody>", ""),
    ),
    "part without joint": (
        body(f'{HINGE}{BOX}<body name="p" pos="0.1 0 0" euler="0 0 90"><geom type="box" size="0.2 0.1 0.3"/></body>'),
        body(f'{HINGE}{BOX}<geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0"/>'),
    ),
    "part without mass": (
        body(f'{HINGE}{BOX}<body name="p" pos="1 0 0"><body name="b">{HINGE.replace("A", "B")}{BOX}</body></body>'),
        body(f'{HINGE}{BOX}<body name="b" pos="1 0 0">{HINGE.replace("A", "B")}{BOX}</body>'),
    ),
    "mesh that stands still": (
        '<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
        '<worldbody><body name="w"><geom type="mesh" mesh="m"/></body></worldbody>' + body(HINGE + BOX),
        body(HINGE + BOX),
    ),
    "inertia from geoms": ('<compiler inertiafromgeom="true"/>' + body(HINGE + HEAVY + BOX), body(HINGE + BOX)),
    "groups of geoms": ('<compiler inertiagrouprange="0 3"/>' + body(HINGE + BOX + TIP), body(HINGE + BOX)),
    "gravity off": (
        '<option><flag gravity="disable"/></option>' + body(HINGE + BOX),
        '<option gravity="0 0 0"/>' + body(HINGE + BOX),
    ),
    "position of reference": (
        body(f'<joint name="A" axis="0 1 0" ref="30" stiffness="3" springref="50"/>{BOX}'),
        body(f'<joint name="A" axis="0 1 0" stiffness="3" springref="20"/>{BOX}'),
    ),
    "slide against its hinge": (
        body(f'<joint name="A"/><joint name="B" type="slide" axis="0 0 -1" stiffness="3" springref="-2"/>{BOX}'),
        body(f'<joint name="A"/><joint name="B" type="slide" axis="0 0 1" stiffness="3" springref="2"/>{BOX}'),
    ),
}


def contents(path, text):
    """Numbers that say what a file means."""
    path.write_text(f"<mujoco>{text}</mujoco>")
    m = hx.Mechanism.from_mjcf(path)
    numbers = [m.gravity]
    for b in m.bodies:
        numbers += [b.mass, b.center, b.origin, b.attitude, b.axes @ np.diag(b.inertia.directors) @ b.axes.T]
    for j in m.joints:
        numbers += [j.place.point_a, j.place.point_b, np.outer(*2 * [j.place.frame_a[:, 2]])]
    for j, _, k, rest in m._joint_springs:  # where the spring rests, whichever way the axis of its joint goes
        numbers += [k, rest * j.place.frame_a[:, 2]]
    shapes = [x for b in m.bodies for _, at, turn in b.shapes for x in (at, turn @ turn.T)]
    return [b.name for b in m.bodies], [j.kind for j in m.joints], numbers, len(shapes)


@pytest.mark.filterwarnings("ignore::holonomix.build.mechanisms.xml_files.UnsupportedWarning")
@pytest.mark.parametrize("case", SAME)
def test_two_ways_to_say_the_same_in_mujoco_files(tmp_path, case):
    one, other = (contents(tmp_path / "a.xml", text) for text in SAME[case])
    assert one[:2] == other[:2]
    for x, y in zip(one[2], other[2], strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-14)


@pytest.mark.filterwarnings("ignore::holonomix.build.mechanisms.xml_files.UnsupportedWarning")
def test_two_hinges_of_a_body_are_placed_by_their_names(tmp_path):
    """The first turns the second: `R = R_0 R(a, x) R(b, y)`, `w = x' a + y' R(a, x) b`; axes need not be normal."""
    hinges = '<joint name="A" axis="1 0 0"/><joint name="B" axis="0.3 1 0"/>'
    text = f'<mujoco><worldbody><body name="a" euler="20 30 40" pos="0 0 1">{hinges}{BOX}</body></worldbody></mujoco>'
    path, b = write(tmp_path, text, "a.xml"), np.array([0.3, 1.0, 0.0]) / np.hypot(0.3, 1.0)
    still = hx.Mechanism.from_mjcf(path)["a"].attitude
    m = hx.Mechanism.from_mjcf(path, positions={"A": 0.7, "B": -1.1}, velocities={"A": 0.5, "B": 2.0})
    first, second = turn_about(np.array([1.0, 0, 0]), 0.7), turn_about(b, -1.1)
    np.testing.assert_allclose(m["a"].attitude, still @ first @ second, rtol=0, atol=1e-15)
    problem = m.problem()
    row = SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])
    np.testing.assert_allclose(
        m["a"].angular_velocity(row)[0], still @ ([0.5, 0, 0] + first @ b * 2.0), rtol=0, atol=1e-14
    )
    np.testing.assert_allclose([m[x].angle(row)[0] for x in "AB"], [0.7, -1.1], rtol=0, atol=1e-14)
    np.testing.assert_allclose([m[x].rate(row)[0] for x in "AB"], [0.5, 2.0], rtol=0, atol=1e-14)
    path.write_text(text.replace(hinges, hinges + '<joint name="C" axis="1 1 0"/>'))
    with pytest.raises(hx.InputError, match="joint 'A': hinge . hinge . hinge .* light body between"):
        hx.Mechanism.from_mjcf(path, positions={"B": 1.0})


# joints of one body, the positions given to them, and where that puts the body
STACKS = {
    "walker": ("sx rootx|sz rootz|hy rooty", {"rootz": 0.3, "rooty": 0.5}, (0, 0, 0.3), ("y", 0.5)),
    "turning first": ("hy a|sx b", {"a": 0.5, "b": 0.3}, (0.3 * np.cos(0.5), 0, -0.3 * np.sin(0.5)), ("y", 0.5)),
    "table": ("sx b|sy a", {"a": 0.2, "b": -0.4}, (-0.4, 0.2, 0), ("x", 0.0)),
    "hip": ("hx a|hy b|hz c", {"b": 0.6}, (0, 0, 0), ("y", 0.6)),
    "gantry": ("sx a|sy b|sz c|hx d|hy e|hz f", {"a": 1.0, "c": 2.0, "f": 0.4}, (1, 0, 2), ("z", 0.4)),
}


def stacked(text):
    axes = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}
    words = {"s": "slide", "h": "hinge"}
    parts = [(*kind, name) for kind, name in (part.split() for part in text.split("|"))]
    return "".join(f'<joint name="{name}" type="{words[k]}" axis="{axes[x]}"/>' for k, x, name in parts)


@pytest.mark.filterwarnings("ignore::holonomix.build.mechanisms.xml_files.UnsupportedWarning")
@pytest.mark.parametrize("case", STACKS)
def test_joints_of_one_body_are_placed_by_their_names(tmp_path, case):
    joints, positions, origin, (axis, angle) = STACKS[case]
    path = write(tmp_path, f"<mujoco>{body(stacked(joints) + BOX)}</mujoco>", "a.xml")
    m = hx.Mechanism.from_mjcf(path, positions=positions)
    np.testing.assert_allclose(m["a" if case == "walker" else m.bodies[0].name].origin, origin, rtol=0, atol=1e-15)
    turn = turn_about(np.eye(3)["xyz".index(axis)], angle)
    np.testing.assert_allclose(m.bodies[0].attitude, turn, rtol=0, atol=1e-15)
    names = [part.split()[1] for part in joints.split("|")]
    m = hx.Mechanism.from_mjcf(path, positions=positions, velocities={name: 0.1 * k for k, name in enumerate(names)})
    problem = m.problem()
    assert m.redundancy.degrees_of_freedom == len(names)
    row = SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])
    joints = [m._names.get(f"joint {name}") or m[name] for name in names]  # the body is called a, too
    found = [(j.distance if j.kind == "prismatic" else j.angle)(row)[0] for j in joints]
    np.testing.assert_allclose(found, [positions.get(name, 0.0) for name in names], rtol=0, atol=1e-14)
    np.testing.assert_allclose([j.rate(row)[0] for j in joints], 0.1 * np.arange(len(names)), rtol=0, atol=1e-14)


@pytest.mark.filterwarnings("ignore::holonomix.build.mechanisms.xml_files.UnsupportedWarning")
def test_equalities_of_one_joint_and_of_sites(tmp_path):
    """A joint locked at an angle, and a bar that hangs from a site of a part without mass."""
    text = (
        f'<worldbody><body name="A">{HINGE}{BOX}<body pos="1 0 0"><site name="s" pos="0.1 0 0"/></body></body>'
        f'<body name="b" pos="1.1 0 0.2"><freejoint/>{BOX}<site name="t" pos="0 0 -0.1"/></body></worldbody>'
        '<equality><joint joint1="A" polycoef="0.3 0 0 0 0"/><connect site1="s" site2="t"/></equality>'
    )
    m = hx.Mechanism.from_mjcf(write(tmp_path, f"<mujoco>{text}</mujoco>", "a.xml"))
    q = np.asarray(m.problem().q0)
    assert m["joint A"].coordinates[0].value(q) == pytest.approx(0.3, abs=1e-14)  # the body has that name too
    expected = [1.1 * np.cos(0.3), 0.0, -1.1 * np.sin(0.3)]
    hook = m["b"].point_coefficients(np.array([0, 0, -0.1]), "") @ m.frame(q, m["b"])
    np.testing.assert_allclose(hook, expected, rtol=0, atol=1e-13)
    assert m.redundancy.degrees_of_freedom == 3


@pytest.mark.filterwarnings("ignore::holonomix.build.mechanisms.xml_files.UnsupportedWarning")
def test_limits_wider_than_a_turn_are_left_out(tmp_path):
    """Angles do not count turns; other limits of the file become stops."""
    here = (0,) * 3, (0,) * 3, (0, 0, 1)
    wide, narrow = (f'<limit lower="-{x}" upper="{x}" effort="9" velocity="9"/>' for x in (6.3, 1.0))
    text = robot(
        link("arm", 1.0, (0.1, 0, 0), GOOD),
        link("hand", 1.0, (0.1, 0, 0), GOOD),
        joint("a", "revolute", "base", "arm", *here, wide),
        joint("b", "revolute", "arm", "hand", *here, narrow),
    )
    other = (
        f'<mujoco><compiler angle="radian"/><worldbody><body><joint name="a" range="-6.3 6.3"/>{BOX}<body>'
        f'<joint name="b" range="-1 1"/>{BOX}</body></body></worldbody></mujoco>'
    )
    for m, what in (
        (hx.Mechanism.from_urdf(write(tmp_path, text), limits="spring"), "limits of joints (1)"),
        (hx.Mechanism.from_mjcf(write(tmp_path, other, "a.xml"), limits="spring"), "range of joints (1)"),
    ):
        assert [x[0].name for x in m._stops] == ["b"] and what in m.unsupported


def test_keyframes_are_named_starts(tmp_path):
    """Positions, poses and velocities of a free base, a hinge with a reference, and a ball, as MuJoCo places them."""
    mujoco = pytest.importorskip("mujoco")
    text = (
        '<compiler angle="radian"/><worldbody><body name="a" pos="0 0 1"><freejoint name="root"/>'
        f'{BOX}<body name="b" pos="0 0 .3"><joint name="h" axis="0 1 .2" ref=".2" armature="0.1"/>{BOX}'
        f'<body name="c" pos="0 0 .5" euler="0.3 0 0"><joint name="ball" type="ball"/>{BOX}</body></body></body>'
        '</worldbody><keyframe><key name="rest"/><key name="home" qpos="0 0 2 1 0.2 0 0 .5 .8 0.3 0.1 0" '
        'qvel="1 2 3 4 5 6 7 8 9 10"/></keyframe>'
    )
    path = write(tmp_path, f"<mujoco>{text}</mujoco>", "a.xml")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = hx.Mechanism.from_mjcf(path, keyframe="home")
    problem = m.problem()
    row = SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])
    model = mujoco.MjModel.from_xml_path(str(path))
    data, twist = mujoco.MjData(model), np.zeros(6)
    mujoco.mj_resetDataKeyframe(model, data, 1)
    mujoco.mj_forward(model, data)
    for name in "abc":
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, model.body(name).id, twist, 0)
        np.testing.assert_allclose(m[name].position(row)[0], data.body(name).xpos, rtol=0, atol=1e-13)
        np.testing.assert_allclose(m[name].rotation(row)[0], data.body(name).xmat.reshape(3, 3), rtol=0, atol=1e-13)
        np.testing.assert_allclose(m[name].velocity(row)[0], twist[3:], rtol=0, atol=1e-11)
        np.testing.assert_allclose(m[name].angular_velocity(row)[0], twist[:3], rtol=0, atol=1e-11)
    assert m["h"].angle(row)[0] == pytest.approx(0.3, abs=1e-14) and m["h"].rate(row)[0] == pytest.approx(7.0)
    assert list(m.keyframes) == ["rest", "home"] and m.keyframe("rest")["a"].origin[2] == 1.0
    with pytest.raises(hx.InputError, match="there is no keyframe 'up'; there are rest, home"):
        m.keyframe("up")
    with pytest.raises(hx.InputError, match="give a keyframe, or positions"):
        hx.Mechanism.from_mjcf(path, keyframe="home", positions={"h": 0.1})


WELDS = {  # where body b is then, of which body a is at (1, 0, 0), turned by 90 degrees about z
    'body1="a" body2="b" relpose="0.5 0 0 0 1 0 0"': ((1, 0.5, 0), np.array([[0, 1, 0], [1, 0, 0], [0, 0, -1]])),
    'body1="a" body2="b" anchor="0 0.2 0" relpose="0.5 0 0 1 0 0 0"': (
        (1.2, 0.5, 0),
        [[0, -1, 0], [1, 0, 0], [0, 0, 1]],
    ),
    'site1="s" site2="t"': ((1.1, 0.3, 0), np.diag([-1, -1, 1])),
}


@pytest.mark.filterwarnings("ignore::holonomix.build.mechanisms.xml_files.UnsupportedWarning")
@pytest.mark.parametrize("weld", WELDS)
def test_welds_hold_the_pose_of_the_file(tmp_path, weld):
    text = (
        f'<worldbody><body name="a" pos="1 0 0" euler="0 0 90"><joint axis="0 0 1"/>{BOX}<site name="s" pos="0.3 0 0"/>'
        f'</body><body name="b" pos="1.1 0.4 0.1" euler="0 0 90"><freejoint/>{BOX}'
        f'<site name="t" pos="0.1 0 0" euler="0 0 -90"/></body></worldbody><equality><weld {weld}/></equality>'
    )
    mujoco = pytest.importorskip("mujoco")
    path = write(tmp_path, f"<mujoco>{text}</mujoco>", "a.xml")
    m = hx.Mechanism.from_mjcf(path, positions={"a joint": 0.0}).assemble()
    at, axes = WELDS[weld]
    np.testing.assert_allclose(m["b"].origin, at, rtol=0, atol=1e-12)
    np.testing.assert_allclose(m["b"].attitude, axes, rtol=0, atol=1e-12)
    data = mujoco.MjData(mujoco.MjModel.from_xml_path(str(path)))  # whose weld is then closed
    data.qpos[1:4] = at
    mujoco.mju_mat2Quat(data.qpos[4:8], np.ravel(axes).astype(float))
    mujoco.mj_forward(data.model, data)
    assert np.abs(data.efc_pos[:6]).max() < 1e-9


def test_enumerations_of_other_versions_are_compared_as_numbers(tmp_path, monkeypatch):
    """The members of MuJoCo 4 do not equal numbers of NumPy."""
    mujoco = pytest.importorskip("mujoco")

    class Member:
        def __init__(self, value):
            self.value = int(value)

        def __int__(self):
            return self.value

    for name in ("mjtJoint", "mjtGeom", "mjtTrn", "mjtGain", "mjtBias", "mjtDyn", "mjtEq", "mjtObj"):
        known = getattr(mujoco, name)
        members = {x: Member(getattr(known, x)) for x in dir(known) if x.startswith("mj")}
        monkeypatch.setattr(mujoco, name, SimpleNamespace(**members))
    text = (
        f'<worldbody><body name="a"><joint name="x" type="slide"/>{BOX}</body></worldbody>'
        '<actuator><motor name="push" joint="x"/></actuator>'
    )
    m = hx.Mechanism.from_mjcf(write(tmp_path, f"<mujoco>{text}</mujoco>", "a.xml"))
    assert m["x"].kind == "prismatic" and list(m.motors) == ["push"] and len(m["a"].shapes) == 1


def test_what_changes_the_motion_is_warned_about(tmp_path):
    """Each of these was left out without a word, or wrongly, once; corrections of masses are made now."""
    text = (
        '<compiler settotalmass="3" boundmass="0.1"/><option density="1.2" viscosity="0"><flag spring="disable"/>'
        f'</option><worldbody><body name="a" gravcomp="1"><joint type="ball" damping="2"/>{BOX}</body></worldbody>'
    )
    with pytest.warns(UnsupportedWarning) as found:
        m = hx.Mechanism.from_mjcf(write(tmp_path, f"<mujoco>{text}</mujoco>", "a.xml"))
    told = str(next(x.message for x in found if x.category is UnsupportedWarning))
    for part in (
        "<option density> (1)",
        "<flag spring> (1)",
        "gravcomp of bodies (1)",
        "dampers of spherical joints (1)",
    ):
        assert part in told and any(part in x for x in m.unsupported)
    assert "viscosity" not in told
    assert m["a"].mass == pytest.approx(3.0, rel=1e-14)


@pytest.mark.filterwarnings("ignore::holonomix.build.mechanisms.xml_files.UnsupportedWarning")
def test_mujoco_reads_includes_replicates_shells_and_meshes(tmp_path):
    write(tmp_path, f"<mujoco>{body(HINGE + BOX, 'included')}</mujoco>", "part.xml")
    mesh = '<asset><mesh name="cube" vertex="0 0 0 1 0 0 0 1 0 1 1 0 0 0 1 1 0 1 0 1 1 1 1 1"/></asset>'
    shell = '<geom type="sphere" size="0.5" shellinertia="true" mass="3"/>'
    text = (
        f'{mesh}<include file="part.xml"/><worldbody><replicate count="2" offset="1 0 0">'
        f'<body name="copy"><joint axis="0 1 0"/>{BOX}</body></replicate>'
        f'<body name="shell"><joint axis="0 1 0"/>{shell}</body>'
        '<body name="cube"><joint axis="0 1 0"/><geom type="mesh" mesh="cube"/></body></worldbody>'
    )
    m = hx.Mechanism.from_mjcf(write(tmp_path, f"<mujoco>{text}</mujoco>", "a.xml"))
    assert [b.name for b in m.bodies] == ["included", "copy0", "copy1", "shell", "cube"]
    assert m["cube"].mass == pytest.approx(1000.0, rel=1e-9)  # water
    np.testing.assert_allclose(m["shell"].inertia.directors, 3 * 3 * 0.25 / 9, rtol=1e-12)  # I = 2/3 m r^2


def test_without_mujoco_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(hx.InputError, match=r"pip install 'holonomix\[robots\]'"):
        hx.Mechanism.from_mjcf(write(tmp_path, MJCF, "loop.xml"))


def test_bad_mujoco_files_are_named(tmp_path):
    """In the words of MuJoCo, after the name of the file."""
    cases = {
        '<body name="ball" pos="5 0 0">': ('<body name="a" pos="5 0 0">', "repeated name 'a' in body"),
        '<joint name="D"': ('<joint name="A"', "repeated name 'A' in joint"),
        '<geom type="plane" size="1 1 1"/>': ("<pyramid/>", "unrecognized element; Element 'pyramid', line 7"),
        'damping="0.5"': ('damping="0.5 2 3 4"', "attribute 'damping' has too much data; Element 'joint', line 9"),
        "<equality>": ('<equality><joint joint1="Z"/>', "unknown element 'Z' in equality"),
        'type="hinge" axis="0 1 0" damping': ('type="gimbal" axis="0 1 0" damping', "invalid keyword: 'gimbal'"),
        'body2="c"': ('body2="nobody"', "unknown element 'nobody'"),
        '<geom fromto="0 0 0 1 0 0"/>': ("", "mass and inertia of moving bodies must be.*'b'"),
    }
    for old, (new, message) in cases.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(hx.InputError, match=f"loop.xml.*{message}"):
                hx.Mechanism.from_mjcf(write(tmp_path, MJCF.replace(old, new), "loop.xml"))


def test_the_command_line_takes_robot_files(tmp_path):
    from holonomix.study.cli.exits import CommandError
    from holonomix.study.cli.problems import load_problem
    from holonomix.study.cli.request import spec_from

    part = joint("turn", "continuous", "base", "arm", (0, 0, 1), (0, 0, 0), (0, 1, 0))
    path = write(tmp_path, robot(link("arm", 2.0, (0.1, 0, 0), GOOD), part))
    spec = spec_from(str(path), {}, ["positions={turn = 0.5}"], None)
    problem = load_problem(spec)
    assert isinstance(problem, hx.Problem) and problem.q0.shape == (4, 3)
    with pytest.raises(CommandError, match="gravitation"):
        load_problem(spec_from(str(path), {}, ["gravitation=[0, 0, 1]"], None))
    path.write_text(robot(link("arm", -2.0, (0.1, 0, 0), GOOD), part))
    with pytest.raises(CommandError, match="negative mass"):
        load_problem(spec)


def test_a_single_free_link_is_a_problem(tmp_path):
    m = hx.Mechanism.from_urdf(
        write(tmp_path, f'<robot name="r">{link("cube", 1.0, (0, 0, 0), GOOD)}</robot>'), base="free"
    )
    problem = m.problem()
    assert problem.q0.shape == (4, 3)
    assert problem.scene.frames[0].name == "cube"
