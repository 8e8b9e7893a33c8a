"""Frames: merged links keep their names, joints hold frames together, sidecars name loops."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import holonomix as hx

from .robots import joint, link

GOOD = (0.02, 0.03, 0.04, 0.001, 0.0, 0.002)
ZERO = (0.0,) * 3


def robot(tmp_path, loops=None, **options):
    """A parallelogram in the plane of x and z whose last pin is missing, with a tool on the coupler."""
    parts = ['<link name="base"/>', *(link(n, 1.0, (0, 0, 0.5), GOOD) for n in "ac"), link("b", 1.0, (0.5, 0, 0), GOOD)]
    parts += [f'<link name="{name}"/>' for name in ("tool", "end", "foot")]
    for name, above, below, at in (("A", "base", "a", ZERO), ("B", "a", "b", (0, 0, 1)), ("D", "base", "c", (1, 0, 0))):
        parts.append(joint(name, "continuous", above, below, at, ZERO, (0, 1, 0)))
    parts.append(joint("weld 1", "fixed", "b", "tool", (0.5, 0, 0.2), (0, 0.3, 0), (1, 0, 0)))
    parts.append(joint("weld 2", "fixed", "b", "end", (1, 0, 0), ZERO, (1, 0, 0)))
    parts.append(joint("weld 3", "fixed", "base", "foot", (1.5, 0, 0.5), ZERO, (1, 0, 0)))
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="r">{"".join(parts)}</robot>')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hx.Mechanism.from_urdf(path, loops=loops, **options)


def start(m):
    problem = m.problem()
    return SimpleNamespace(q=np.asarray(problem.q0)[None], p=np.asarray(problem.p0)[None])


def test_a_merged_link_is_a_frame(tmp_path):
    x, v = {"A": 0.4, "B": -0.7}, {"A": 1.0, "B": 0.5}
    m = robot(tmp_path, positions=x, velocities=v)
    row, tool = start(m), m["tool"]
    turn = lambda s: np.array([[np.cos(s), 0, np.sin(s)], [0, 1, 0], [-np.sin(s), 0, np.cos(s)]])
    elbow = turn(0.4) @ [0, 0, 1]
    place = elbow + turn(-0.3) @ [0.5, 0, 0.2]
    np.testing.assert_allclose(tool.position(row)[0], place, rtol=0, atol=1e-14)
    np.testing.assert_allclose(tool.rotation(row)[0], turn(0.0), rtol=0, atol=1e-14)
    spin = np.array([0, 1.5, 0])
    speed = np.cross([0, 1.0, 0], elbow) + np.cross(spin, place - elbow)
    np.testing.assert_allclose(tool.velocity(row)[0], speed, rtol=0, atol=1e-13)
    np.testing.assert_allclose(tool.angular_velocity(row)[0], spin, rtol=0, atol=1e-13)
    columns = tool.jacobian(x)
    np.testing.assert_allclose(columns["A"], [*np.cross([0, 1, 0], place), 0, 1, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(columns["D"], np.zeros(6), rtol=0, atol=1e-12)
    total = sum(columns[name] * v[name] for name in v)
    np.testing.assert_allclose(total, [*speed, *spin], rtol=0, atol=1e-12)
    u = row.p[0] / m._start()[2][:, None]
    np.testing.assert_allclose(np.einsum("kpd,pd->k", tool.jacobian(row.q[0]), u), total, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(m["foot"].position(row)[0], (1.5, 0, 0.5))
    np.testing.assert_array_equal(m["foot"].velocity(row)[0], ZERO)


def test_a_joint_holds_frames_together(tmp_path):
    m = robot(tmp_path, positions={"A": 0.3})
    tip = m.add_frame("tip", m["c"], position=(0, 0, 1))
    m.revolute("C", m["end"], tip, axis=(0, 1, 0))
    row = start(m)
    assert m.redundancy.degrees_of_freedom == 1
    np.testing.assert_allclose(m["end"].position(row), tip.position(row), rtol=0, atol=1e-13)
    with pytest.raises(hx.InputError, match="do not move alone"):
        tip.jacobian({"A": 0.3})


@pytest.mark.parametrize("given", [{"type": ["7d"]}, {"closed_loop": [["end"]]}, {"joint_name": ["A"]}])
def test_bad_sidecars_are_named(tmp_path, given):
    with pytest.raises(hx.InputError, match="loops: "):
        robot(tmp_path, {"closed_loop": [["end", "c"]], **given})


def test_a_sidecar_closes_a_loop(tmp_path):
    m = robot(tmp_path, {"closed_loop": [["end", "foot"]], "type": ["3d"]})
    row = start(m)
    np.testing.assert_allclose(m["end"].position(row)[0], (1.5, 0, 0.5), rtol=0, atol=1e-13)
    with pytest.raises(hx.InputError, match="refers to 'nothing', which does not exist"):
        robot(tmp_path, {"closed_loop": [["end", "nothing"]]})


def test_loops_far_from_closed_are_closed_by_joint_positions(tmp_path):
    """Two chains of heavy and light links whose ends are further apart than any link is long."""
    parts = ['<link name="base"/>', '<link name="left"/>', '<link name="right"/>']
    for side, x in (("l", -0.4), ("r", 0.4)):
        above = "base"
        for k, mass in enumerate((1.0, 0.1, 1e4)):
            parts.append(link(f"{side}{k}", mass, (0, 0, 0.25), tuple(mass * y for y in GOOD)))
            at = (x, 0, 0) if k == 0 else (0, 0, 0.5)
            parts.append(joint(f"{side}{k} hinge", "continuous", above, f"{side}{k}", at, ZERO, (0, 1, 0)))
            above = f"{side}{k}"
        name = {"l": "left", "r": "right"}[side]
        parts.append(joint(f"weld {side}", "fixed", above, name, (0, 0, 0.1), (0, 0.9 * np.sign(x), 0), (1, 0, 0)))
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="r">{"".join(parts)}</robot>')
    m = hx.Mechanism.from_urdf(path, loops={"closed_loop": [["left", "right"]]})
    row = start(m)
    np.testing.assert_allclose(m["left"].position(row), m["right"].position(row), rtol=0, atol=1e-12)
    np.testing.assert_allclose(m["left"].rotation(row), m["right"].rotation(row), rtol=0, atol=1e-12)
    assert m.redundancy.degrees_of_freedom == 3
