"""Numbers of a mechanism as parameters: masses, inertias, lengths, places of joints, gains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.trace import compiled

OTHER = {
    "arm.mass": 2.0,
    "arm.inertia": [0.03, 0.1, 0.11],
    "elbow.point_a": [0.3, 0.02, 0.01],
    "elbow.stiffness": 25.0,
    "elbow.rest": -0.2,
    "elbow.damping": 0.7,
    "elbow.armature": 0.05,
    "rod.length": 0.85,
    "spring 1.stiffness": 20.0,
    "spring 1.length": 0.2,
    "spring 1.damping": 0.3,
}


def two_links(values=()):
    """An arm, a forearm with a ball on a rod, springs, dampers and a rotor."""
    x = {
        "arm.mass": 1.3,
        "arm.inertia": [0.02, 0.09, 0.08],
        "elbow.point_a": [0.35, 0, 0],
        "elbow.stiffness": 10.0,
        "elbow.rest": 0.1,
        "elbow.damping": 0.3,
        "elbow.armature": 0.02,
        "rod.length": 0.9,
        "spring 1.stiffness": 10.0,
        "spring 1.length": 0.3,
        "spring 1.damping": 0.1,
    } | dict(values)
    m = hx.Mechanism(gravity=(0, 0, -9.81))
    arm = m.body("arm", mass=x["arm.mass"], inertia=x["arm.inertia"], position=(0.35, 0, 0))
    m.revolute("shoulder", m.ground, arm, at=(0, 0, 0), axis=(0, 1, 0))
    fore = m.body("fore", mass=0.5, inertia=[0.005, 0.05, 0.05], position=(1.0, 0, 0))
    elbow = m.revolute("elbow", arm, fore, point_a=x["elbow.point_a"], point_b=(-0.3, 0, 0), axis=(0, 1, 0))
    ball = m.point_mass("ball", mass=0.2, position=(1.3, 0, -0.9))
    m.distance("rod", fore, ball, point_a=(0.3, 0, 0), point_b=(0, 0, 0), length=x["rod.length"])
    m.torsion_spring(elbow, stiffness=x["elbow.stiffness"], rest=x["elbow.rest"], damping=x["elbow.damping"])
    m.armature(elbow, x["elbow.armature"])
    spring = {name: x[f"spring 1.{name}"] for name in ("stiffness", "length", "damping")}
    m.spring(arm, (0, 0, 0), m.ground, (1, 0, 1), **spring)
    return m


def planar():
    """A slider and a crank with a gear and a drive between them, and a rod without thickness."""
    m = hx.Mechanism(gravity=(0, -9.81), dimensions=2)
    crank = m.body("crank", mass=1.0, inertia=0.1, position=(0.2, 0))
    first = m.revolute("first", m.ground, crank, at=(0, 0))
    wheel = m.body("wheel", mass=0.7, inertia=0.05, position=(2, 0))
    second = m.revolute("second", m.ground, wheel, at=(2, 0))
    m.gear("gear", first, second, ratio=2)
    slide = m.body("slide", mass=0.4, inertia=0.02, position=(0, 1))
    rail = m.prismatic("rail", m.ground, slide, at=(0, 1), axis=(1, 0))
    m.drive(rail, distance=lambda t: 0.1 * jnp.sin(3 * t))
    return m


@pytest.fixture(scope="module")
def problem():
    m = two_links()
    return m.problem(dt=1e-3, params=list(m.parameters()))


def test_the_same_motion_as_of_a_mechanism_without_parameters(problem):
    plain = two_links().problem(dt=1e-3)
    runs = [hx.simulate(x, hx.RATTLE(), steps=300) for x in (problem, plain)]
    assert np.abs(runs[0].q - runs[1].q).max() < 1e-13
    assert np.array_equal(problem.q0, plain.q0)


@pytest.mark.parametrize("name", OTHER)
def test_a_changed_number_is_that_of_a_mechanism_made_with_it(problem, name):
    changed = problem.with_params({name: OTHER[name]})
    made = two_links({name: OTHER[name]}).problem(dt=1e-3)
    assert np.abs(problem.system.params[name] - np.asarray(OTHER[name])).max() > 0.01
    start = changed.q0, changed.p0
    own, other = (hx.simulate(x, hx.RATTLE(), *start, dt=1e-3, steps=200) for x in (changed.system, made.system))
    assert np.abs(own.q - other.q).max() < 1e-12
    unchanged = hx.simulate(problem.system, hx.RATTLE(), problem.q0, problem.p0, dt=1e-3, steps=200)
    assert np.abs(own.q - unchanged.q).max() > 1e-6
    if "point" not in name and "length" not in name:
        assert np.abs(changed.q0 - made.q0).max() < 1e-14
        assert np.abs(changed.p0 - made.p0).max() < 1e-14


def test_the_mechanism_keeps_its_own_numbers(problem):
    m = two_links()
    before = m.problem(dt=1e-3)
    m.problem(params=OTHER)
    again = m.problem(dt=1e-3)
    for a, b in zip(jax.tree.leaves(before.system), jax.tree.leaves(again.system), strict=True):
        assert np.array_equal(a, b)


def test_results_are_read_with_the_numbers_of_the_run(problem):
    changed, m = problem.with_params({k: OTHER[k] for k in ("arm.mass", "arm.inertia")}), problem.source
    made = two_links({k: OTHER[k] for k in ("arm.mass", "arm.inertia")})
    sol, other = (hx.simulate(x, hx.RATTLE(), steps=100) for x in (changed, made.problem(dt=1e-3)))
    for joint in ("shoulder", "elbow"):
        assert np.abs(m[joint].force(sol) - made[joint].force(other)).max() < 1e-10
        assert np.abs(sol.joint(joint).rate - other.joint(joint).rate).max() < 1e-12
    assert np.abs(m.momentum(sol)[1] - made.momentum(other)[1]).max() < 1e-12
    assert np.abs(m.center_of_mass(sol) - made.center_of_mass(other)).max() < 1e-13
    shorter = hx.simulate(problem.with_params({"rod.length": 0.7}), hx.RATTLE(), steps=100)
    assert max(x.max() for x in m.joint_error(shorter).values()) < 1e-14


def test_gears_drives_and_bodies_in_the_plane_follow():
    m = planar()
    problem = m.problem(dt=1e-3, params={"crank.mass": 2.0, "crank.inertia": 0.3, "first.point_b": [-0.3, 0.0]})
    sol = hx.simulate(problem, hx.RATTLE(), steps=300)
    assert max(x.max() for x in m.joint_error(sol).values()) < 1e-13
    assert np.abs(m["second"].angle(sol) - 2 * m["first"].angle(sol)).max() < 1e-12
    swing = 2.0 * 0.3**2 + 0.3 + 4 * 0.05  # the wheel turns twice as fast
    assert m["first"].rate(sol)[50] / sol.t[50] == pytest.approx(-2.0 * 9.81 * 0.3 / swing, rel=2e-3)


def test_joint_positions_that_were_asked_for_stay():
    m = two_links()
    m.configure({"shoulder": 0.4, "elbow": -0.7})
    problem = m.problem(params={"elbow.point_a": [0.45, 0, 0], "rod.length": 1.1})
    for name, value in (("shoulder", 0.4), ("elbow", -0.7)):
        assert float(m[name].coordinates[0].value(np.asarray(problem.q0))) == pytest.approx(value, abs=1e-13)


def test_an_ensemble_of_lengths_and_masses(problem):
    masses, lengths = np.linspace(1.0, 2.0, 4), np.linspace(0.8, 1.0, 4)
    found = hx.simulate_ensemble(
        problem, hx.RATTLE(), steps=100, params={"arm.mass": masses, "rod.length": lengths}, save_every=100
    )
    assert found.ok.all()
    for k in range(4):
        own = problem.with_params({"arm.mass": masses[k], "rod.length": lengths[k]})
        assert np.abs(found.final_q[k] - hx.simulate(own, hx.RATTLE(), steps=100).final_q).max() < 1e-13


def test_other_values_compile_nothing(problem):
    def run(x):
        changed = problem.with_params({"arm.mass": x, "rod.length": 0.9 + x / 100})
        return hx.simulate(changed, hx.RATTLE(), steps=10, backend="array").final_q[0, 2]

    first, before = run(1.0), compiled.statistics["compiled"]
    assert first != run(1.5)
    assert compiled.statistics["compiled"] == before > 0


def test_derivatives_by_mass_length_and_gain():
    m = hx.Mechanism(gravity=(0, -9.81), dimensions=2)
    arm = m.body("arm", mass=1.3, inertia=0.08, position=(0.35, 0))
    shoulder = m.revolute("shoulder", m.ground, arm, at=(0, 0))
    ball = m.point_mass("ball", mass=0.2, position=(0.7, -0.9))
    m.distance("rod", arm, ball, point_a=(0.35, 0), point_b=(0, 0))
    m.torsion_spring(shoulder, damping=0.3)
    m.parameter("gain", 3.0)
    m.motor(shoulder, lambda t, angle, rate, params: params["gain"] * (0.3 - angle) - 0.5 * rate)
    names = ("arm.mass", "rod.length", "shoulder.damping", "gain")
    problem = m.problem(dt=5e-3, params=names[:3])

    @jax.jit
    def end(x):
        changed = problem.with_params(dict(zip(names, x, strict=True)))
        return hx.integrate(changed, hx.RATTLE(), steps=60)[0][-1, 1]

    x, h = jnp.array([1.3, 0.9, 0.3, 3.0]), 1e-3
    found = jax.grad(end)(x)
    for k in range(4):
        e = h * jnp.eye(4)[k]
        differences = (45 * (end(x + e) - end(x - e)) - 9 * (end(x + 2 * e) - end(x - 2 * e))) / (60 * h)
        differences += (end(x + 3 * e) - end(x - 3 * e)) / (60 * h)
        assert float(found[k]) == pytest.approx(float(differences), rel=1e-8, abs=1e-10)
    assert np.abs(found).min() > 1e-3


def test_traced_values_make_a_problem():
    def energy(mass):
        made = two_links().problem(params={"ball.mass": mass})
        return made.system.hamiltonian(made.q0, made.p0)

    assert float(jax.grad(energy)(0.2)) == pytest.approx(-0.9 * 9.81, rel=1e-12)


def test_functions_of_forces_get_own_parameters():
    m = hx.Mechanism()
    ball = m.point_mass("ball", mass=2.0)
    m.parameter("push", [0.0, 0.0, 3.0])
    m.force(ball, lambda t, x, v, params: params["push"] - 0.1 * v)
    problem = m.problem(dt=1e-2).with_params({"push": [0.0, 4.0, 0.0]})
    assert m.acceleration(np.zeros((1, 3)), np.ones((1, 3)))[0] == pytest.approx([-0.05, -0.05, 1.45])
    sol = hx.simulate(problem, hx.RATTLE(), steps=100)
    assert ball.velocity(sol)[-1] == pytest.approx([0, 40 * (1 - np.exp(-0.05)), 0], abs=1e-5)


def test_names_and_values_that_do_not_fit(problem):
    m = two_links()
    with pytest.raises(hx.errors.InputError, match=r"no parameter 'arm.maas'; there are arm.mass"):
        m.problem(params=["arm.maas"])
    with pytest.raises(hx.errors.InputError, match="'rod.length' must be positive, not -1"):
        problem.with_params({"rod.length": -1.0})
    with pytest.raises(hx.errors.InputError, match=r"'arm.inertia' has shape \(3,\), not \(2,\)"):
        problem.with_params({"arm.inertia": [1.0, 2.0]})
    with pytest.raises(hx.errors.InputError, match="no command has"):
        m.parameter("", 1.0)
