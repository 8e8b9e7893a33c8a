"""URDF and MJCF files: what is read, what is warned about, and errors that name file and element."""

import warnings

import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanisms.xml_files import UnsupportedWarning

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
    frames = m.equations.frames(q)
    for name in names:
        assert m[name].coordinates[0].value(frames) == pytest.approx(x[name], abs=1e-12)
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
    np.testing.assert_allclose(m["arm"].center, (0.4, 0, 0))
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
    m = hx.Mechanism.from_urdf(write(tmp_path, text), positions={"A": 0.1, "D": 0.12, "B": -0.1, "G": -0.2})
    m.problem()
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
    "no inertia": (
        robot('<link name="arm"/>', joint("j", "continuous", "base", "arm", (0,) * 3, (0,) * 3, (0, 0, 1))),
        "link 'arm' moves but has no mass",
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
    "not XML": ("robot = 3", "is not an XML file"),
    "another root": ("<mujoco/>", "its root element is <mujoco>, not <robot>"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_urdf_files_are_named(tmp_path, case):
    text, message = BAD[case]
    with pytest.raises(hx.InputError, match=f"robot.urdf.*{message}"):
        hx.Mechanism.from_urdf(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(hx.InputError, match="nothing.urdf cannot be read"):
        hx.Mechanism.from_urdf(tmp_path / "nothing.urdf")


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
    with pytest.warns(UnsupportedWarning, match="<actuator>.*contacts"):
        m = hx.Mechanism.from_mjcf(write(tmp_path, MJCF, "loop.xml"))
    assert [body.name for body in m.bodies] == ["a", "b", "c", "ball"]
    problem = m.problem()
    assert m.redundancy.degrees_of_freedom == 1 + 6
    np.testing.assert_allclose(m.gravity, (0, 0, -1))
    radius, half = 0.1, 0.5
    assert m["a"].mass == pytest.approx(500 * np.pi * radius**2 * (2 * half + 4 / 3 * radius))
    assert m["ball"].mass == pytest.approx(500 * 4 / 3 * np.pi * 0.2**3)
    assert problem.system.force_fn is not None
    np.testing.assert_allclose(m["A"].coordinates[0].value(m.equations.frames(m._start()[0])), 0.0, atol=1e-15)


def test_bad_mujoco_files_are_named(tmp_path):
    cases = {
        'type="hinge" axis="0 1 0" damping': ('type="gimbal" axis="0 1 0" damping', "unknown type 'gimbal'"),
        'body2="c"': ('body2="nobody"', "refers to body 'nobody'"),
        '<geom fromto="0 0 0 1 0 0"/>': ("", "body 'b' moves but has no mass"),
    }
    for old, (new, message) in cases.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(hx.InputError, match=f"loop.xml.*{message}"):
                hx.Mechanism.from_mjcf(write(tmp_path, MJCF.replace(old, new), "loop.xml"))


def test_the_command_line_takes_robot_files(tmp_path):
    from holonomix.cli.exits import CommandError
    from holonomix.cli.problems import load_problem
    from holonomix.cli.request import spec_from

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
