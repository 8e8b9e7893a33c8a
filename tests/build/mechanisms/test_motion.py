"""Mechanisms in motion: against closed forms and an independent solution in minimal coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import holonomix as hx


def run(problem, steps, method=None):
    return hx.simulate(problem.system, method or hx.RATTLE(), problem.q0, problem.p0, dt=problem.dt, steps=steps)


def test_a_hinged_body_and_its_reactions():
    """A physical pendulum in space: angle against SciPy, reactions against Newton's and Euler's equations."""
    m = hx.Mechanism(gravity=(0, 0, -9.81))
    body = m.body("bar", mass=2.0, inertia=[0.1, 0.2, 0.25], position=(0.5, 0, 0))
    hinge = m.revolute("hinge", m.ground, body, at=(0, 0, 0), axis=(0, 1, 0))
    problem = m.problem(dt=1e-3)
    sol = run(problem, 400)
    half = hx.simulate(problem.system, hx.RATTLE(), problem.q0, problem.p0, dt=5e-4, steps=800)
    about = 0.2 + 2.0 * 0.25
    exact = solve_ivp(
        lambda t, y: [y[1], 2.0 * 9.81 * 0.5 * np.cos(y[0]) / about], (0, 0.4), [0.0, 0.0], rtol=1e-11, atol=1e-12
    ).y[:, -1]
    # second order, so two steps give the limit
    for measure, value in ((hinge.angle, exact[0]), (hinge.rate, exact[1])):
        assert (4 * measure(half)[-1] - measure(sol)[-1]) / 3 == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(body.angular_velocity(sol)[:, 1], hinge.rate(sol), rtol=1e-7, atol=1e-12)
    x = body.position(sol)
    acceleration = (x[2:] - 2 * x[1:-1] + x[:-2]) / 1e-6
    force = hinge.force(sol)[1:-1]
    np.testing.assert_allclose(force, 2.0 * (acceleration + [0, 0, 9.81]), rtol=1e-7, atol=2e-3)
    assert np.abs(hinge.torque(sol)[:, 1]).max() < 1e-12  # a hinge gives no torque about its axis
    assert max(v.max() for v in m.joint_error(sol).values()) < 1e-14
    np.testing.assert_allclose(m.energy(sol), m.energy(sol)[0], rtol=1e-7, atol=5e-5)


def test_reactions_of_a_static_truss_and_a_named_force():
    """Two bars at a point mass under a load: closed form to round-off."""
    m = hx.Mechanism(dimensions=2, gravity=(0.0, -10.0))
    knot = m.point_mass("knot", mass=3.0, position=(0.0, 0.0))
    left = m.distance("left", m.ground, knot, point_a=(-3.0, 4.0), point_b=(0.0, 0.0))
    m.distance("right", m.ground, knot, point_a=(4.0, 3.0), point_b=(0.0, 0.0))
    m.force(knot, (5.0, 0.0))
    problem = m.problem()
    assert m.redundancy.degrees_of_freedom == 0
    forces = problem.system.constraint_forces(problem.q0, problem.p0)
    # unit vectors (-0.6, 0.8) and (0.8, 0.6): pulls T1 = 30 * 0.8 + 5 * 0.6, T2 = 30 * 0.6 - 5 * 0.8
    np.testing.assert_allclose(forces["left"], [27.0 * np.array([-0.6, 0.8])], rtol=0, atol=1e-12)
    np.testing.assert_allclose(forces["right"], [14.0 * np.array([0.8, 0.6])], rtol=0, atol=1e-12)
    assert left.kind == "distance"


def slider_crank(drive):
    """Crank r, rod l, slider in the plane; the crank turns at a constant rate when driven."""
    r, l, mass = 1.0, 3.0, (1.0, 2.0, 4.0)
    m = hx.Mechanism(dimensions=2)
    start = 0.7
    pin = r * np.array([np.cos(start), np.sin(start)])
    end = np.array([pin[0] + np.sqrt(l**2 - pin[1] ** 2), 0.0])
    tilt = np.arctan2(end[1] - pin[1], end[0] - pin[0])
    crank = m.body(
        "crank", shape=hx.mechanisms.Rod(r), mass=mass[0], position=pin / 2, rotation=start, angular_velocity=2.0
    )
    rod = m.body("rod", shape=hx.mechanisms.Rod(l), mass=mass[1], position=(pin + end) / 2, rotation=tilt)
    slider = m.body("slider", mass=mass[2], inertia=1.0, position=end)
    base = m.revolute("base", m.ground, crank, at=(0, 0))
    m.revolute("pin", crank, rod, at=pin)
    m.revolute("wrist", rod, slider, at=end)
    guide = m.prismatic("guide", m.ground, slider, at=end, axis=(1, 0))
    motor = m.drive(base, angle=lambda t: 2.0 * t) if drive else None
    return m, base, guide, motor


@jax.jit
def crank_state(angle, rate, curve, r=1.0, l=3.0, mass=(1.0, 2.0, 4.0)):
    """Generalized inertia force on the crank for an imposed motion, by d'Alembert, and the force on the slider."""

    def places(a):
        pin = r * jnp.array([jnp.cos(a), jnp.sin(a)])
        end = pin[0] + jnp.sqrt(l**2 - pin[1] ** 2)
        middle = (pin + jnp.stack([end, 0.0])) / 2
        return jnp.stack([pin[0] / 2, pin[1] / 2, a, middle[0], middle[1], jnp.arctan2(-pin[1], end - pin[0]), end])

    weights = np.array([mass[0], mass[0], mass[0] / 12, mass[1], mass[1], mass[1] * l**2 / 12, mass[2]])
    slope = jax.jacfwd(places)
    first, second = slope(angle), jax.jacfwd(slope)(angle)
    acceleration = first * curve + second * rate**2
    return weights * acceleration @ first, mass[2] * acceleration[6]


@pytest.mark.slow
def test_torque_of_a_driven_slider_crank():
    """The drive's torque equals the generalized inertia force, and the slider's force its mass times acceleration."""
    m, base, guide, motor = slider_crank(True)
    problem = m.problem(dt=2e-3)
    system = problem.system
    lam = np.asarray(system.multipliers(problem.q0, problem.p0, 0.0))[None]

    class Row:  # one row of a solution
        t, q, p, multipliers = np.zeros(1), np.asarray(problem.q0)[None], np.asarray(problem.p0)[None], lam

    torque, push = map(float, crank_state(0.7, 2.0, 0.0))
    assert motor.torque(Row)[0] == pytest.approx(torque, abs=1e-8)
    wrist = m["wrist"].force(Row)[0]
    assert wrist[0] == pytest.approx(push, abs=1e-8)
    assert base.rate(Row)[0] == pytest.approx(2.0, abs=1e-13)
    assert guide.rate(Row)[0] == pytest.approx(-2.0 * np.sin(0.7) * (1 + np.cos(0.7) / np.sqrt(9 - np.sin(0.7) ** 2)))


@pytest.mark.slow
def test_springs_dampers_and_motors_in_the_plane():
    """A hinge with a torsion spring, a damper and a motor against SciPy."""
    m = hx.Mechanism(dimensions=2)
    bar = m.body("bar", mass=1.0, inertia=0.5, position=(0.0, 0.0), angular_velocity=0.3)
    hinge = m.revolute("hinge", m.ground, bar, at=(0, 0))
    m.torsion_spring(hinge, stiffness=2.0, rest=0.4, damping=0.1)
    m.motor(hinge, lambda t, angle, rate: 0.3 * jnp.sin(3.0 * t) - 0.05 * rate)
    sol = run(m.problem(dt=1e-3), 1000)
    slope = lambda t, y: [y[1], (-2.0 * (y[0] - 0.4) - 0.15 * y[1] + 0.3 * np.sin(3 * t)) / 0.5]
    exact = solve_ivp(slope, (0, 1), [0.0, 0.3], rtol=1e-10, atol=1e-12).y[:, -1]
    assert hinge.angle(sol)[-1] == pytest.approx(exact[0], abs=3e-6)
    assert hinge.rate(sol)[-1] == pytest.approx(exact[1], abs=1e-5)


@pytest.mark.slow
def test_a_planar_loop_against_minimal_coordinates():
    m, base, guide, _ = slider_crank(False)
    m.start_rate(base, 2.0)
    sol = run(m.problem(dt=1e-3), 1500)

    def slope(t, y):
        unit = crank_state(y[0], 0.0, 1.0)[0]
        return [y[1], -crank_state(y[0], y[1], 0.0)[0] / unit]

    exact = solve_ivp(slope, (0, 1.5), [0.7, 2.0], rtol=1e-9, atol=1e-10).y[:, -1]
    assert base.angle(sol)[-1] + 0.7 == pytest.approx(exact[0], abs=2e-5)
    assert sol.constraint_error().max() < 1e-13


@pytest.mark.slow
def test_gears_and_screws_count_turns():
    """Two wheels geared 3 : 2 and a nut on a screw make many turns."""
    m = hx.Mechanism()
    inertia = [0.5, 0.5, 0.5]
    a = m.body("a", mass=1.0, inertia=inertia, angular_velocity=(0, 0, 6.0))
    b = m.body("b", mass=1.0, inertia=inertia, position=(2.0, 0, 0), angular_velocity=(0, 0, -4.0))
    first = m.revolute("first", m.ground, a, at=(0, 0, 0), axis=(0, 0, 1))
    second = m.screw("second", m.ground, b, at=(2.0, 0, 0), axis=(0, 0, 1), pitch=0.5)
    m.gear("teeth", first, second, ratio=-2.0 / 3.0)
    sol = run(m.problem(dt=5e-3), 2000)
    angle = first.angle(sol)
    assert abs(angle[-1]) > 50
    np.testing.assert_allclose(second.angle(sol), -2.0 / 3.0 * angle, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(second.distance(sol), -2.0 / 3.0 * angle * 0.5 / (2 * np.pi), rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(first.rate(sol), first.rate(sol)[0], rtol=1e-7, atol=1e-10)


def rack_and_pinion(radius):
    m = hx.Mechanism(dimensions=2)
    wheel = m.body("wheel", mass=1.0, inertia=0.5 * radius**2, angular_velocity=10.0)
    rack = m.body("rack", mass=2.0, inertia=radius**2, position=(0, -radius))
    axle, slide = (
        m.revolute("axle", m.ground, wheel, at=(0, 0)),
        m.prismatic("slide", m.ground, rack, at=(0, 0), axis=(1, 0)),
    )
    m.gear("teeth", axle, slide, ratio=radius)
    return m


@pytest.mark.parametrize("radius", [0.0127, 12.7, np.pi])
def test_the_angle_of_a_pinion_has_the_number_one_for_any_radius(radius):
    """So that it may turn for ever, and costs as little as any."""
    row = rack_and_pinion(radius)["teeth"].rows[0]
    assert row.winding and row.terms[0][0] == 1.0
    assert row.terms[1][0] == pytest.approx(-1 / radius)


@pytest.mark.slow
def test_a_rack_and_pinion_in_meters_makes_turns():
    m = rack_and_pinion(0.0127)
    sol = run(m.problem(dt=1e-3), 1000)
    assert m["axle"].angle(sol)[-1] > 3 * np.pi
    np.testing.assert_allclose(m["slide"].distance(sol), 0.0127 * m["axle"].angle(sol), rtol=1e-7, atol=1e-15)
    np.testing.assert_allclose(m["slide"].rate(sol), 0.127, rtol=1e-12)


def test_angles_of_an_ensemble_are_not_unwrapped_across_its_members():
    """Ends at 3.0 and -3.0 are that, not 3.0 and 3.283; along rows turns still count."""
    m = hx.Mechanism(gravity=(0, -1.0), dimensions=2)
    bob = m.body("bob", mass=1.0, inertia=0.1, position=(1.0, 0))
    pin = m.revolute("pin", m.ground, bob, at=(0, 0))
    problem = m.problem(dt=1e-3)
    starts = []
    for angle in (3.0, -3.0):
        m.configure({"pin": angle}, {"pin": 1.0 if angle > 0 else 0.0})
        starts.append(m.problem(dt=1e-3))
    q0, p0 = (jnp.stack([getattr(x, key) for x in starts]) for key in ("q0", "p0"))
    ends = hx.simulate_ensemble(problem.system, hx.RATTLE(), q0, p0, dt=1e-3, steps=1)
    np.testing.assert_allclose(pin.angle(ends), [3.001, -3.0], rtol=0, atol=1e-5)
    rows = hx.simulate_ensemble(problem.system, hx.RATTLE(), q0, p0, dt=1e-3, steps=300, save_every=100)
    assert pin.angle(rows).shape == (2, 4) and bob.position(rows).shape == (2, 4, 2)
    assert np.all(np.diff(pin.angle(rows)[0]) > 0) and pin.angle(rows)[0, -1] > np.pi
    np.testing.assert_allclose(pin.rate(ends), [1.0, 0.0], rtol=0, atol=2e-3)
