"""Accelerations of robots from URDF: against Newton-Euler recursion written here, and against Pinocchio where it is."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

from .robots import random_tree

GRAVITY = np.array([0.0, 0.0, -9.81])


def acceleration(mechanism, names):
    """`(q, p) -> second derivatives of the joint positions`, from the library's multipliers, compiled once."""
    from holonomix.build.mechanisms.forms import coordinate_of

    problem = mechanism.problem()
    system = problem.system.prepare(problem.q0)
    places = [(name, 0) if isinstance(name, str) else name for name in names]
    coordinates = [coordinate_of(mechanism[name].coordinates[which]) for name, which in places]

    def second(coordinate, q, v, a):
        rate = lambda x: jax.jvp(coordinate, (x,), (v,))[1]
        return jax.jvp(rate, (q,), (v,))[1] + jax.jvp(coordinate, (q,), (a,))[1]

    @jax.jit
    def made(q, p):
        force = system.force(q, p) - system.linearize(q).transpose(system.multipliers(q, p))
        a, v = system.velocity(q, force), system.velocity(q, p)
        return jnp.stack([second(c, q, v, a) for c in coordinates])

    return made


def state(mechanism, names, x, v):
    mechanism.configure(dict(zip(names, x, strict=True)), dict(zip(names, v, strict=True)))
    q, u, masses = mechanism._start()
    return q, masses[:, None] * u


def recursion(mechanism, names, x, v, a):
    """Joint torques by recursive Newton-Euler on the bodies as placed; independent of particles and multipliers."""
    state(mechanism, names, x, v)
    spins = {-1: (np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3))}  # omega, alpha, acceleration of origin, origin
    loads = {}
    for name, rate, change in zip(names, v, a, strict=True):
        joint = mechanism[name]
        omega, alpha, push, origin = spins[joint.a.number]
        w = joint.a.attitude @ joint.place.frame_a[:, 2]
        body = joint.b
        arm = body.origin - origin
        if joint.kind == "revolute":
            at = joint.a.origin + joint.a.attitude @ joint.place.point_a
            spin, turn = omega + rate * w, alpha + change * w + np.cross(omega, rate * w)
            hinge = push + np.cross(alpha, at - origin) + np.cross(omega, np.cross(omega, at - origin))
            here = hinge + np.cross(turn, body.origin - at) + np.cross(spin, np.cross(spin, body.origin - at))
        else:
            spin, turn = omega, alpha
            here = push + np.cross(alpha, arm) + np.cross(omega, np.cross(omega, arm))
            here = here + 2 * np.cross(omega, rate * w) + change * w
        spins[body.number] = (spin, turn, here, body.origin)
        c = body.attitude @ body.center
        force = body.mass * (here + np.cross(turn, c) + np.cross(spin, np.cross(spin, c)) - GRAVITY)
        euler = np.asarray(body.inertia.directors)
        axes = body.attitude @ body.axes
        inertia = axes @ np.diag(euler.sum() - euler) @ axes.T
        torque = inertia @ turn + np.cross(spin, inertia @ spin)
        loads[body.number] = (force, torque + np.cross(body.origin + c, force))
    out = np.zeros(len(names))
    for k in reversed(range(len(names))):
        joint = mechanism[names[k]]
        force, moment = loads[joint.b.number]  # moment about the origin of the world
        w = joint.a.attitude @ joint.place.frame_a[:, 2]
        at = joint.a.origin + joint.a.attitude @ joint.place.point_a
        out[k] = w @ force if joint.kind == "prismatic" else w @ (moment - np.cross(at, force))
        if not joint.a.fixed:
            before = loads[joint.a.number]
            loads[joint.a.number] = (before[0] + force, before[1] + moment)
    return out


def imported(tmp_path, joints, seed):
    path = tmp_path / "robot.urdf"
    path.write_text(random_tree(joints, seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return path, hx.Mechanism.from_urdf(path), [f"joint{k}" for k in range(joints)]


@pytest.mark.slow
def test_accelerations_of_a_tree_by_newton_and_euler(tmp_path):
    """The torques that Newton-Euler finds for our accelerations are zero, at 100 random states."""
    _, m, names = imported(tmp_path, 7, 5)
    made, rng = acceleration(m, names), np.random.default_rng(0)
    for _ in range(100):
        x, v = rng.uniform(-3, 3, 7), rng.normal(size=7)
        a = np.asarray(made(*state(m, names, x, v)))
        gravity = recursion(m, names, x, 0 * v, 0 * v)
        assert np.abs(recursion(m, names, x, v, a)).max() < 1e-9 * (1 + np.abs(gravity).max() + np.abs(a).max())


@pytest.mark.slow
@pytest.mark.parametrize(("joints", "seed"), [(7, 0), (30, 1)])
def test_accelerations_equal_pinocchio(tmp_path, joints, seed):
    pin = pytest.importorskip("pinocchio", reason="pip install holonomix[robots]")
    path, m, names = imported(tmp_path, joints, seed)
    _compare(pin, path, m, names)


@pytest.mark.slow
def test_the_seven_axis_arm_equals_pinocchio():
    pin = pytest.importorskip("pinocchio", reason="pip install holonomix[robots]")
    from holonomix.build.models.machines import ARM

    m = hx.models.seven_axis_arm(mechanism=True)
    _compare(pin, ARM, m, [f"axis {k}" for k in range(1, 8)])


@pytest.mark.slow
def test_mimic_joints_equal_pinocchio(tmp_path):
    """A tree of seven joints, two of which mimic others: `y'' = -(Z^T M Z)^-1 Z^T h` on the reduced tree."""
    pin = pytest.importorskip("pinocchio", reason="pip install holonomix[robots]")
    mimics = {"joint3": ("joint1", -1.5, 0.2), "joint4": ("joint0", 0.3, -0.1)}  # a hinge, and a slide like a rack
    text = random_tree(7, 2, chain=True)
    for name, (leader, factor, offset) in mimics.items():
        head, rest = text.split(f'<joint name="{name}"')
        mimic = f'<mimic joint="{leader}" multiplier="{factor}" offset="{offset}"/></joint>'
        text = f'{head}<joint name="{name}"{rest.replace("</joint>", mimic, 1)}'
    path, names = tmp_path / "robot.urdf", [f"joint{k}" for k in range(7)]
    path.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = hx.Mechanism.from_urdf(path)
    made, rng = acceleration(m, names), np.random.default_rng(0)
    assert m.redundancy.degrees_of_freedom == 5
    free = [name for name in names if name not in mimics]
    z, shift = np.zeros((7, 5)), np.zeros(7)
    for k, name in enumerate(names):
        leader, factor, shift[k] = mimics.get(name, (name, 1.0, 0.0))
        z[k, free.index(leader)] = factor
    model = pin.buildModelFromUrdf(str(path))  # without its own mimic joints: the reduction is done here
    data = model.createData()
    for _ in range(50):
        y, rate = rng.uniform(-1.5, 1.5, 5), rng.normal(size=5)
        x, v = z @ y + shift, z @ rate
        ours = np.asarray(made(*state(m, names, x, v)))
        qp, vp, at = pinocchio_state(pin, model, names, x, v)
        h = pin.rnea(model, data, qp, vp, np.zeros(7))[at]
        mass = pin.crba(model, data, qp)
        mass = (np.triu(mass) + np.triu(mass, 1).T)[np.ix_(at, at)]
        theirs = -z @ np.linalg.solve(z.T @ mass @ z, z.T @ h)
        assert np.abs(ours - theirs).max() < 1e-10 * np.abs(theirs).max()


def pinocchio_state(pin, model, names, x, v):
    """Positions and velocities in the order of Pinocchio, and the places of the named joints in the velocities."""
    qp, vp, at = pin.neutral(model), np.zeros(model.nv), []
    for name, position, rate in zip(names, x, v, strict=True):
        joint = model.joints[model.getJointId(name)]
        qp[joint.idx_q : joint.idx_q + joint.nq] = [np.cos(position), np.sin(position)] if joint.nq == 2 else position
        vp[joint.idx_v] = rate
        at.append(joint.idx_v)
    return qp, vp, at


def _compare(pin, path, m, names):
    model = pin.buildModelFromUrdf(str(path))
    data = model.createData()
    made, rng = acceleration(m, names), np.random.default_rng(0)
    for _ in range(100):
        x, v = rng.uniform(-2, 2, len(names)), rng.normal(size=len(names))
        ours = np.asarray(made(*state(m, names, x, v)))
        qp, vp, at = pinocchio_state(pin, model, names, x, v)
        theirs = pin.aba(model, data, qp, vp, np.zeros(model.nv))[at]
        assert np.abs(ours - theirs).max() < 1e-9 * max(1.0, np.abs(theirs).max())


TREE = """
<mujoco>
  <compiler angle="radian" eulerseq="zyx"/>
  <option gravity="0.5 0 -9.81"><flag contact="disable"/></option>
  <default><joint damping="0.3"/><geom density="700"/></default>
  <worldbody>
    <body name="a" pos="0.1 0 1" euler="0.3 -0.2 0.5">
      <joint name="A" axis="0 1 0.2" pos="0 0.1 0" stiffness="4" springref="0.3"/>
      <geom type="capsule" fromto="0 0 0 0.4 0.1 0" size="0.05"/>
      <geom type="sphere" pos="0.4 0 0.1" size="0.08"/>
      <body name="b" pos="0.4 0.1 0" quat="0.9 0.1 -0.3 0.2">
        <joint name="B" type="slide" axis="1 0.3 0" stiffness="20"/>
        <geom type="box" size="0.1 0.05 0.2" pos="0 0 -0.1"/>
        <body name="c" pos="0 0.2 -0.2">
          <joint name="C" axis="0.2 0 1"/>
          <inertial pos="0.1 0 0" mass="0.7" fullinertia="0.02 0.03 0.04 0.001 0.002 0.003"/>
        </body>
      </body>
      <body name="d" pos="0 -0.2 0" axisangle="0 1 0 0.4">
        <joint name="D" axis="1 0 0"/>
        <geom type="cylinder" size="0.06 0.2"/>
        <geom type="ellipsoid" size="0.1 0.05 0.07" pos="0 0 0.3"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.slow
def test_a_mujoco_tree_equals_mujoco(tmp_path):
    """Masses, inertias, springs and dampers of an MJCF file: accelerations equal MuJoCo's own."""
    mujoco = pytest.importorskip("mujoco", reason="pip install holonomix[robots]")
    path, names = tmp_path / "tree.xml", ["A", "B", "C", "D"]
    path.write_text(TREE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = hx.Mechanism.from_mjcf(path)
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    made, rng = acceleration(m, names), np.random.default_rng(0)
    for _ in range(20):
        x, v = rng.uniform(-1, 1, 4), rng.normal(size=4)
        data.qpos[:], data.qvel[:] = x, v
        mujoco.mj_forward(model, data)
        # MuJoCo diagonalizes inertias to about 1e-7: R diag R^T of body c differs from the file's by 7e-9
        np.testing.assert_allclose(made(*state(m, names, x, v)), data.qacc, rtol=1e-6, atol=1e-6)


SHARED = """
<mujoco><compiler angle="radian"/><option gravity="0.3 0 -9.81"><flag contact="disable"/></option><worldbody>
  <body name="a" pos="0.1 0 1" euler="0.3 -0.2 0.5">
    <joint name="A" axis="0 1 0.2" stiffness="4" springref="0.3" damping="0.2"/>
    <joint name="B" axis="1 0.3 0" damping="0.5" stiffness="3"/>
    <geom type="capsule" fromto="0 0 0 0.4 0.1 0" size="0.05"/>
    <body name="b" pos="0.4 0.1 0">
      <joint name="C" axis="0 0 1" damping="0.1"/><joint name="D" type="slide" axis="0 0 -1" stiffness="20"/>
      <geom type="box" size="0.1 0.05 0.2" pos="0.1 0 -0.1"/>
    </body>
    <body name="c" pos="-0.2 0.1 0"><joint name="E" type="ball"/><geom type="box" size="0.1 0.05 0.2"/></body>
  </body>
</worldbody></mujoco>
"""


@pytest.mark.slow
def test_joints_that_share_a_body_equal_mujoco(tmp_path):
    """Two hinges, a hinge with a slide against it, and a ball, by the names, positions and rates of MuJoCo."""
    mujoco = pytest.importorskip("mujoco", reason="pip install holonomix[robots]")
    path, rng = tmp_path / "shared.xml", np.random.default_rng(0)
    path.write_text(SHARED)
    model = mujoco.MjModel.from_xml_path(str(path))
    data, made = mujoco.MjData(model), None
    for _ in range(10):
        data.qpos[:4], data.qpos[4:], data.qvel[:] = rng.uniform(-1, 1, 4), rng.normal(size=4), rng.normal(size=7)
        mujoco.mj_forward(model, data)
        positions = dict(zip("ABCD", data.qpos[:4], strict=True)) | {"E": data.qpos[4:]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m = hx.Mechanism.from_mjcf(
                path, positions=positions, velocities=dict(zip("ABCD", data.qvel[:4], strict=True))
            )
        m.start_velocity(m["c"], angular_velocity=m["a"].spin0 + m["c"].attitude @ data.qvel[4:])  # its own axes there
        for name in "abc":
            np.testing.assert_allclose(m[name].origin, data.body(name).xpos, rtol=1e-7, atol=1e-14)
            np.testing.assert_allclose(m[name].attitude, data.body(name).xmat.reshape(3, 3), rtol=1e-7, atol=1e-14)
        made = made or acceleration(m, ["A", "B", "C", "D"])
        problem = m.problem()
        np.testing.assert_allclose(made(problem.q0, problem.p0), data.qacc[:4], rtol=1e-10, atol=1e-10)


STACKED = """
<mujoco><compiler angle="radian"/><option gravity="0.3 0.2 -9.81"><flag contact="disable"/></option>
<default><joint damping="0.3" stiffness="2" springref="0.2"/></default><worldbody>
  <body name="torso" pos="0.1 0 1">
    <joint name="rootx" type="slide" axis="1 0 0.3"/><joint name="rootz" type="slide" axis="0 0 1"/>
    <joint name="rooty" axis="0 1 0" pos="0 0 0.1"/>
    <geom type="capsule" fromto="0 0 0 0.4 0.1 0" size="0.05"/>
    <body name="leg" pos="0.4 0.1 0" euler="0.1 0.2 0.3">
      <joint name="hip_x" axis="1 0 0"/><joint name="hip_z" axis="0 0 1"/><joint name="hip_y" axis="0 1 0"/>
      <geom type="box" size="0.1 0.05 0.2" pos="0.1 0 -0.1"/>
    </body>
    <body name="tool" pos="-0.2 0.1 0" euler="0.5 0 0">
      <joint name="yaw" axis="0 1 0"/><joint name="reach" type="slide" axis="1 0.2 0"/>
      <geom type="box" size="0.1 0.05 0.2"/>
    </body>
  </body>
</worldbody></mujoco>
"""


@pytest.mark.slow
def test_stacked_joints_equal_mujoco(tmp_path):
    """Slides before a hinge, three hinges, and a slide that turns with its hinge: poses, springs, accelerations."""
    mujoco = pytest.importorskip("mujoco", reason="pip install holonomix[robots]")
    path, rng = tmp_path / "stacked.xml", np.random.default_rng(0)
    path.write_text(STACKED)
    model = mujoco.MjModel.from_xml_path(str(path))
    data, made = mujoco.MjData(model), None
    names = [model.joint(k).name for k in range(model.njnt)]
    for _ in range(10):
        data.qpos[:], data.qvel[:] = rng.uniform(-1, 1, model.nq), rng.normal(size=model.nv)
        mujoco.mj_forward(model, data)
        start = [dict(zip(names, x, strict=True)) for x in (data.qpos, data.qvel)]
        m = hx.Mechanism.from_mjcf(path, positions=start[0], velocities=start[1])
        for name in ("torso", "leg", "tool"):
            np.testing.assert_allclose(m[name].origin, data.body(name).xpos, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(m[name].attitude, data.body(name).xmat.reshape(3, 3), rtol=1e-12, atol=1e-14)
        made = made or acceleration(m, names)
        problem = m.problem()
        np.testing.assert_allclose(made(problem.q0, problem.p0), data.qacc, rtol=1e-9, atol=1e-9)
