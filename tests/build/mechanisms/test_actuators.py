"""Armature, motors with commands, stops and dry friction of joints."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

from .robots import joint, link

GOOD = (0.02, 0.03, 0.04, 0.001, 0.0, 0.002)
ZERO = (0.0,) * 3

ARM = """<mujoco><option timestep="0.001"/><worldbody><body name="trunk" pos="0 0 1">
  <joint name="slide" type="slide" axis="1 0 0" armature="0.3" range="-1 0.5" limited="true"
    actuatorfrcrange="-1.5 1.5"/>
  <geom type="box" size=".1 .2 .1" mass="2"/>
  <body name="upper" pos="0 0 -.1">
    <joint name="hip" axis="0 1 0" armature="0.05" ref="20" damping="0.1"/>
    <geom type="capsule" fromto="0 0 0 0.1 0.05 -.5" size=".04" mass="1"/>
    <body name="lower" pos="0.1 0.05 -.5">
      <joint name="knee" axis="0 1 0.2" armature="0.01" frictionloss="0.3"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".03" mass=".5"/>
</body></body></body></worldbody><actuator>
  <motor name="m1" joint="slide" gear="3"/>
  <position name="m2" joint="hip" kp="5" kv="0.7" ctrlrange="-1 1" ctrllimited="true" gear="2"/>
  <velocity name="m3" joint="knee" kv="0.4" forcerange="-0.1 0.1" forcelimited="true"/>
  <general name="m4" joint="knee" dyntype="filter" dynprm="1"/>
</actuator></mujoco>"""


@pytest.fixture
def arm(tmp_path):
    path = tmp_path / "arm.xml"
    path.write_text(ARM)
    return path


def read(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hx.Mechanism.from_mjcf(path, **options)


def test_armature_and_motors_as_in_mujoco(arm):
    mujoco = pytest.importorskip("mujoco")
    m = read(arm)
    assert list(m.motors) == ["m1", "m2", "m3"]
    assert "<actuator> with internal dynamics, muscles (1)" in m.unsupported
    commands = {"m1": 0.7, "m2": 1.4, "m3": 0.3}
    m.command("m1", 0.7)
    m.command("m2", lambda t, x, rate: 1.4)
    m.command("m3", np.full(5, 0.3), dt=0.1)
    model = mujoco.MjModel.from_xml_path(str(arm))
    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= int(bits.mjDSBL_LIMIT) | int(bits.mjDSBL_FRICTIONLOSS) | int(bits.mjDSBL_CONTACT)
    data, rng, names = mujoco.MjData(model), np.random.default_rng(0), ["slide", "hip", "knee"]
    for name, value in commands.items():
        data.ctrl[model.actuator(name).id] = value
    for _ in range(3):
        x, v = rng.uniform(-0.5, 0.5, 3), rng.normal(size=3)
        data.qpos[:], data.qvel[:] = model.qpos0 + x, v
        mujoco.mj_forward(model, data)
        found = m.acceleration(dict(zip(names, x, strict=True)), dict(zip(names, v, strict=True)))
        np.testing.assert_allclose([found[n] for n in names], data.qacc_smooth, rtol=1e-11, atol=1e-11)
    m.command("m1", 0.0)
    changed = m.acceleration(dict(zip(names, x, strict=True)), dict(zip(names, v, strict=True)))
    assert abs(changed["slide"] - found["slide"]) > 0.1


@pytest.mark.slow
def test_armature_moves_with_its_joint():
    """A rotor doubles the inertia of a pendulum without weight: half the acceleration; of slides too."""
    plain, heavy = hx.Mechanism(), hx.Mechanism()
    ends = []
    for m, rotors in ((plain, False), (heavy, True)):
        a = m.body("a", mass=2.0, inertia=[0.1, 0.2, 0.3])
        b = m.body("b", mass=1.0, inertia=[0.1, 0.2, 0.3])
        slide = m.prismatic("slide", m.ground, a, at=(0, 0, 0), axis=(1, 0, 0))
        hinge = m.revolute("hinge", m.ground, b, at=(0, 0, 0), axis=(0, 1, 0))
        if rotors:
            m.armature(slide, 2.0)
            m.armature(hinge, 0.2)
        m.motor(slide, 1.0)
        m.motor(hinge, 1.0)
        sol = hx.simulate(m.problem(dt=1e-3), hx.RATTLE(), steps=100)
        ends.append((slide.distance(sol)[-1], hinge.angle(sol)[-1]))
        assert np.abs(sol.constraint_error()).max() < 1e-14
    np.testing.assert_allclose(ends[1], np.array(ends[0]) / 2, rtol=1e-5)
    linear, _ = heavy.momentum(sol)
    np.testing.assert_allclose(linear[-1], [2.0 * slide.rate(sol)[-1], 0, 0], rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_stops_throw_a_joint_back(arm):
    m = read(arm, limits="spring", friction=True, gravity=(0, 0, 0), velocities={"slide": 2.0})
    assert not any("range" in text or "friction" in text for text in m.unsupported)
    sol = hx.simulate(m.problem(dt=5e-4), hx.RATTLE(), steps=1000)
    x = m["slide"].distance(sol)
    assert 0.5 < x.max() < 0.6
    assert m["slide"].rate(sol)[-1] < -0.5
    with pytest.raises(hx.InputError, match="limits must be one of 'ignore', 'spring', 'bounce', not 'hard'"):
        read(arm, limits="hard")


def spinning(lower=-0.5, upper=1.0):
    """A body that turns about a fixed axis with the rate 1, without forces, between bouncing stops."""
    m = hx.Mechanism()
    body = m.body("b", mass=1.0, inertia=[0.1, 0.2, 0.3], angular_velocity=(0, 1.0, 0))
    hinge = m.revolute("hinge", m.ground, body, at=(0, 0, 0), axis=(0, 1, 0))
    m.stop(hinge, lower, upper)
    return m, hinge


@pytest.mark.slow
def test_a_joint_bounces_between_its_stops():
    m, hinge = spinning()
    problem = m.problem(dt=0.01)
    sol = hx.simulate(problem, hx.LineIntegral(4), steps=390, save_every=10)
    phase = (sol.t + 0.5) % 3.0  # a triangle wave between -0.5 and 1
    np.testing.assert_allclose(hinge.angle(sol), 1.0 - np.abs(phase - 1.5), rtol=0, atol=1e-9)
    np.testing.assert_allclose(sol.events[0].t, [1.0, 2.5], rtol=0, atol=1e-9)
    assert np.abs(sol.energy_error()).max() < 1e-15 and sol.constraint_error().max() < 1e-15


def test_studies_and_exports_refuse_bouncing_stops(tmp_path):
    m, hinge = spinning()
    problem = m.problem(dt=0.01)
    for study in (hx.certify, hx.lyapunov, lambda problem, method: hx.compare(problem, [method])):
        with pytest.raises(hx.InputError, match=r"measures smooth motion, and this problem has bouncing stops \(1\)"):
            study(problem, hx.RATTLE())
    with pytest.raises(hx.InputError, match=r"this problem has bouncing stops \(1\), which only simulate"):
        hx.integrate(problem, hx.RATTLE(), steps=3)
    with pytest.raises(hx.InputError, match="an exported step cannot bounce"):
        hx.export(problem, hx.RATTLE(), tmp_path / "m", form="wasm")
    with pytest.raises(hx.InputError, match="an exported step cannot bounce"):
        hx.live(problem, hx.RATTLE(), tmp_path / "m.html")
    with pytest.raises(hx.InputError, match="which leaves no room to bounce"):
        m.stop(hinge, 0.5, 0.5)


def test_limits_of_files_bounce(arm):
    m = read(arm, limits="bounce", gravity=(0, 0, 0))
    assert not any("range" in text for text in m.unsupported)
    assert len(m.problem(dt=1e-3).events) == len(read(arm, limits="spring", gravity=(0, 0, 0))._stops) > 0


@pytest.mark.slow
def test_dry_friction_stops_a_joint():
    m = hx.Mechanism()
    body = m.body("b", mass=1.0, inertia=[0.1, 0.2, 0.3], angular_velocity=(0, 1.0, 0))
    hinge = m.revolute("hinge", m.ground, body, at=(0, 0, 0), axis=(0, 1, 0))
    m.friction(hinge, 0.5)
    sol = hx.simulate(m.problem(dt=1e-3), hx.RATTLE(), steps=600)
    assert abs(hinge.rate(sol)[300] - 0.25) < 1e-3  # 1 - 0.5 / 0.2 * 0.3
    assert abs(hinge.rate(sol)[-1]) < 1e-6


def test_transmissions_are_motors(tmp_path):
    parts = ['<link name="base"/>', link("arm", 1.0, ZERO, GOOD)]
    parts.append(joint("hip", "revolute", "base", "arm", ZERO, ZERO, (0, 1, 0), '<limit lower="-0.2" upper="0.3"/>'))
    parts.append(
        '<transmission name="t"><type>x</type><joint name="hip"/><actuator name="drive">'
        "<mechanicalReduction>50</mechanicalReduction></actuator></transmission>"
    )
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="r">{"".join(parts)}</robot>')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = hx.Mechanism.from_urdf(path, gravity=None, limits="spring")
    before = m.acceleration({}, {})["hip"]
    m.command("drive", 0.01)
    assert before == 0
    np.testing.assert_allclose(m.acceleration({}, {})["hip"], 0.5 / 0.03, rtol=1e-12)
    m.parameter("gain", 0.02)
    for command in (lambda t, x, rate, params: params["gain"] * jnp.ones(1), lambda t, x, rate: 0.02):
        m.command("drive", command)
        np.testing.assert_allclose(m.acceleration({}, {})["hip"], 1.0 / 0.03, rtol=1e-12)
    m.command("drive", "current")
    assert m.commands()["current"] == 0 and m.acceleration({}, {})["hip"] == 0
    with pytest.raises(hx.InputError, match="there is no motor 'x'; there are drive"):
        m.command("x", 1.0)
    with pytest.raises(hx.InputError, match="is an array and needs dt="):
        m.command("drive", [1.0, 2.0])
    with pytest.raises(hx.InputError, match="command of motor 'drive' must be an array of numbers"):
        m.command("drive", ["a", "b"], dt=1e-3)
    m.command("drive", lambda t: 1.0)
    with pytest.raises(hx.InputError, match=r"motor 'drive': the function is called with 3 arguments.*takes \(t\)"):
        m.acceleration({}, {})


def test_sweeps_that_diverge_end_while_numbers_are_finite():
    """A step far too long for light links between heavy ones ends without convergence and says so."""
    m = hx.Mechanism(gravity=(0, 0, -9.81))
    last = m.ground
    for k, mass in enumerate((1.0, 1e-3, 1.0, 1e-3)):
        link = m.body(f"link {k}", mass=mass, inertia=[0.01 * mass, 0.08 * mass, 0.08 * mass], position=(k + 0.5, 0, 0))
        joint = m.revolute(f"joint {k}", last, link, at=(k, 0, 0), axis=(0, 1, 0))
        m.torsion_spring(joint, damping=100.0)
        last = link
    sol = hx.simulate(m.problem(dt=0.1), hx.RATTLE(), steps=3, throw=False, backend="array")
    assert sol.status == hx.Status.NOT_CONVERGED
