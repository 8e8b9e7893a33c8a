"""Numbers of a mechanism as parameters: masses, inertias, lengths, places of joints, gains."""

import pickle

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


def test_all_numbers_at_once(problem):
    changed, made = problem.with_params(OTHER), two_links(OTHER).problem(dt=1e-3)
    start = changed.q0, changed.p0
    own, other = (hx.simulate(x, hx.RATTLE(), *start, dt=1e-3, steps=200) for x in (changed.system, made.system))
    assert np.abs(own.q - other.q).max() < 1e-12


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


def test_ensembles_are_read_with_the_numbers_of_each_trajectory(problem):
    m, masses = problem.source, [1.0, 2.0, 3.0]
    observe = m.observables(problem)
    options = {"steps": 20, "save_every": 10, "observe": {x: observe[x] for x in ("elbow.rate", "elbow.force")}}
    found = hx.simulate_ensemble(problem, hx.RATTLE(), params={"arm.mass": masses}, **options)
    for k, mass in enumerate(masses):
        sol = hx.simulate(problem.with_params({"arm.mass": mass}), hx.RATTLE(), **options)
        for read in (m["elbow"].rate, m["elbow"].force, m["arm"].velocity, m.center_of_mass):
            assert np.abs(read(found)[k] - read(sol)).max() < 1e-12
        for one in (sol, {name: x[k] for name, x in found.observables.items()}):
            assert np.abs(one["elbow.rate"] - sol.joint("elbow").rate).max() < 1e-12
            assert np.abs(one["elbow.force"] - sol.joint("elbow").force).max() < 1e-12


def test_observed_distances_follow_the_places_of_joints():
    m = planar()
    problem = m.problem(dt=1e-3, params=["rail.point_b"]).with_params({"rail.point_b": [0.3, 0.0]})
    sol = hx.simulate(problem, hx.RATTLE(), steps=5, observe=m.observables(problem))
    assert np.abs(sol["rail.distance"] - sol.joint("rail").distance).max() < 1e-14
    assert sol["rail.distance"][0] == pytest.approx(0.0, abs=1e-14)


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


def test_numbers_of_very_different_sizes_are_parameters():
    """An inertia in kg m^2 of a body of a few micrometers is small beside its mass."""
    m = hx.Mechanism(gravity=(0, -9.81), dimensions=2)
    arm = m.body("arm", mass=1e-9, inertia=1e-24, position=(1e-6, 0))
    m.revolute("pivot", m.ground, arm, at=(0, 0))
    problem = m.problem(params=["arm.inertia"])
    for changed, inertia in ((problem, 1e-24), (problem.with_params({"arm.inertia": 3e-24}), 3e-24)):
        mass = np.asarray(changed.system.momentum(changed.q0, jnp.ones_like(changed.q0)))
        assert mass[:, 0] / [1e-9, inertia] == pytest.approx(1.0, rel=1e-12)


def test_every_spring_of_a_joint_has_its_own_names():
    m = hx.Mechanism()
    arm = m.body("arm", mass=1.0, inertia=[1, 1, 1])
    joint = m.cylindrical("joint", m.ground, arm, at=(0, 0, 0), axis=(0, 0, 1))
    m.armature(joint, 0.1, 1)
    for k in (1.0, 2.0):
        m.torsion_spring(joint, stiffness=k, rest=k / 10, damping=3 * k, which=1)
    ball = m.point_mass("ball", mass=1.0, position=(1, 0, 0))
    m.distance("spring 1", arm, ball, point_a=(0, 0, 0), point_b=(0, 0, 0))
    m.spring(arm, (0, 0, 0), ball, (0, 0, 0), stiffness=4.0, length=0.5)
    found = m.parameters()
    assert found["joint.armature[1]"] == pytest.approx(0.1)
    for name, value in (("stiffness[1]", 1.0), ("rest[1]", 0.1), ("damping[1]", 3.0)):
        assert (found[f"joint.{name}"], found[f"joint.{name} 2"]) == (value, 2 * value)
    assert (found["spring 1.length"], found["spring 1.length 2"]) == (1.0, 0.5)
    assert "spring 1.point_b" not in found  # a point mass has no other point
    problem = m.problem(params=["joint.stiffness[1]", "joint.stiffness[1] 2"])
    changed = problem.with_params({"joint.stiffness[1]": 0.0, "joint.stiffness[1] 2": 0.0})
    assert changed.system.potential(problem.q0) == pytest.approx(0.5 * 4 * 0.5**2)
    with pytest.raises(hx.errors.InputError, match="must be zero or more, not -1"):
        problem.with_params({"joint.stiffness[1]": -1.0})


def test_commands_do_not_change_numbers_of_the_same_name():
    m = planar()
    m.motor(m["first"], "wheel.mass")
    with pytest.raises(hx.errors.InputError, match="a command or parameter of your own is called 'wheel.mass' too"):
        m.problem(params=["wheel.mass"])
    sol = hx.simulate(m.problem(params=["crank.mass"]), hx.RATTLE(), steps=2)
    assert np.isfinite(m["second"].force(sol)).all()
    assert m.center_of_mass(sol)[0] == pytest.approx([1.6 / 2.1, 0.4 / 2.1])


def test_a_problem_can_be_pickled_after_it_was_differentiated(problem):
    jax.grad(lambda x: problem.with_params({"rod.length": x}).q0.sum())(0.95)
    changed = pickle.loads(pickle.dumps(problem)).with_params({"rod.length": 0.8})
    assert np.array_equal(changed.q0, problem.with_params({"rod.length": 0.8}).q0)
