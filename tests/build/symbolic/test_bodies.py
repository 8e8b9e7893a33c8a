"""Objects of `sympy.physics.mechanics` against the same systems written by hand, and against SymPy's own equations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics import Capability

sympy = pytest.importorskip("sympy")
from sympy.physics import mechanics as me  # noqa: E402
from sympy.physics.mechanics import dynamicsymbols  # noqa: E402

t = dynamicsymbols._t
m, l, g = sympy.symbols("m l g", positive=True)
VALUES = {"m": 1.3, "l": 0.7, "g": 9.81}


def bar(name, frame, center):
    """A uniform bar of mass m and length l."""
    return me.RigidBody(name, center, frame, m, (me.inertia(frame, 0, 0, m * l**2 / 12), center))


def arms(angles, speeds):
    """Bars end to end from a fixed point: the inertial frame, that point, the bars, and the last end."""
    frame, here, bars = me.ReferenceFrame("N"), me.Point("O"), []
    here.set_vel(frame, 0)
    first = here
    for k, (angle, speed) in enumerate(zip(angles, speeds)):
        own = frame.orientnew(f"A{k}", "Axis", [angle, frame.z])
        own.set_ang_vel(frame, speed * frame.z)
        center, end = here.locatenew(f"C{k}", l / 2 * own.x), here.locatenew(f"E{k}", l * own.x)
        for point in (center, end):
            point.v2pt_theory(here, frame, own)
        bars.append(bar(f"bar {k}", own, center))
        here = end
    return frame, first, bars, here


def written(n, closed=None):
    """The same with angles from the x axis: mass, potential, constraint as functions of JAX."""

    def ends(q):
        steps = VALUES["l"] * jnp.stack([jnp.cos(q), jnp.sin(q)], axis=1)
        return jnp.cumsum(steps, axis=0), steps

    def mass(q):
        slopes = jax.jacfwd(lambda q: ends(q)[0] - ends(q)[1] / 2)(q)
        return VALUES["m"] * (jnp.einsum("kci,kcj->ij", slopes, slopes) + VALUES["l"] ** 2 / 12 * jnp.eye(n))

    def potential(q):
        return VALUES["m"] * VALUES["g"] * jnp.sum((ends(q)[0] - ends(q)[1] / 2)[:, 1])

    constraint = None if closed is None else lambda q: ends(q)[0][-1] - jnp.asarray(closed)
    return hx.System(potential, constraint, mass=mass)


def chain(kind, n, closed=None):
    """The chain as a `KanesMethod` or `System`, with gravity along -y."""
    q, u = dynamicsymbols(f"q:{n}"), dynamicsymbols(f"u:{n}")
    frame, origin, bars, end = arms(q, u)
    loads = [(body.masscenter, -m * g * frame.y) for body in bars]
    rates = [a.diff(t) - b for a, b in zip(q, u)]
    loop = [] if closed is None else [end.pos_from(origin).dot(axis) - c for axis, c in zip((frame.x, frame.y), closed)]
    if kind == "kane":
        free = n - len(loop)
        options = {} if not loop else {
            "q_dependent": q[free:], "u_dependent": u[free:], "configuration_constraints": loop,
            "velocity_constraints": [x.diff(t).xreplace({a.diff(t): b for a, b in zip(q, u)}) for x in loop],
        }  # fmt: skip
        return me.KanesMethod(frame, q[:free], u[:free], rates, bodies=bars, forcelist=loads, **options)
    system = me.System(frame, origin)
    system.add_coordinates(*q)
    system.add_speeds(*u)
    system.add_kdes(*rates)
    system.add_bodies(*bars)
    system.add_loads(*(me.Force(*load) for load in loads))
    if loop:
        system.add_holonomic_constraints(*loop)
    return system


@pytest.mark.parametrize("kind", ["kane", "system"])
@pytest.mark.parametrize(
    "n, closed, start",
    [(2, None, [0.3, -1.0]), pytest.param(3, (0.9, 0.2), [1.2, 0.2, -0.9], marks=pytest.mark.slow)],
    ids=["double pendulum", "four-bar"],
)
def test_a_chain_of_bars_moves_as_the_one_written_by_hand(kind, n, closed, start):
    problem = hx.from_sympy(chain(kind, n, closed), parameters=VALUES, q0=start, v0=[0.5] + [0.0] * (n - 1))
    assert problem.system.needs == {Capability.MASS}
    system = written(n, closed)
    sol = hx.simulate(problem, hx.RATTLE(), dt=0.002, steps=200)
    same = hx.simulate(system, hx.RATTLE(), problem.q0, problem.p0, dt=0.002, steps=200)
    np.testing.assert_allclose(sol.q, same.q, rtol=0, atol=1e-13 * np.abs(same.q).max())
    np.testing.assert_allclose(sol.p, same.p, rtol=0, atol=1e-13 * np.abs(same.p).max())
    np.testing.assert_allclose(sol.energy(), same.energy(), rtol=1e-13, atol=1e-13)
    assert sol.constraint_error().max() < 1e-15 and np.ptp(sol["q0"]) > 0.1


@pytest.mark.slow
def test_a_slider_crank_of_joints_moves_as_the_one_written_by_hand():
    theta, phi, place, w1, w2, v = dynamicsymbols("theta phi place w1 w2 v")
    wall, slider = me.RigidBody("wall"), me.Particle("slider", mass=m)
    frame, crank = wall.frame, me.ReferenceFrame("crank")
    rod = me.ReferenceFrame("rod")
    bodies = [bar("crank", crank, me.Point("C")), bar("rod", rod, me.Point("D"))]
    rail = me.PrismaticJoint("rail", wall, slider, place, v, joint_axis=wall.x)
    pins = [
        me.PinJoint("pin", wall, bodies[0], theta, w1, child_point=-l / 2 * crank.x, joint_axis=wall.z),
        me.PinJoint("knee", bodies[0], bodies[1], phi, w2, l / 2 * crank.x, -l * rod.x / 2, joint_axis=crank.z),
    ]
    system = me.System.from_newtonian(wall)
    system.add_joints(*pins, rail)
    system.apply_uniform_gravity(-g * wall.y)
    gap = bodies[1].masscenter.locatenew("end", l / 2 * rod.x).pos_from(slider.masscenter)
    system.add_holonomic_constraints(*(gap.dot(axis).simplify() for axis in (frame.x, frame.y)))
    values = {key: VALUES[key] for key in "mlg"}
    start = {theta: 0.6, phi: -1.2, place: 1.4 * np.cos(0.6)}
    problem = hx.from_sympy(system, parameters=values, q0=start, v0={theta: 1.0, phi: -2.0, place: -1.4 * np.sin(0.6)})

    mass, length, gravity = (VALUES[key] for key in "mlg")

    def centers(q):
        first = length * jnp.stack([jnp.cos(q[0]), jnp.sin(q[0])])
        second = length * jnp.stack([jnp.cos(q[0] + q[1]), jnp.sin(q[0] + q[1])])
        return first / 2, first + second / 2, first + second, jnp.stack([q[2], 0.0 * q[2]])

    def inertia(q):
        slopes = [jax.jacfwd(lambda q, k=k: centers(q)[k])(q) for k in (0, 1, 3)]
        turns = jnp.array([[1.0, 0, 0], [1.0, 1.0, 0]])
        return mass * sum(s.T @ s for s in slopes) + mass * length**2 / 12 * turns.T @ turns

    hand = hx.System(
        lambda q: mass * gravity * (centers(q)[0][1] + centers(q)[1][1]),
        lambda q: centers(q)[2] - centers(q)[3],
        mass=inertia,
    )
    places = [problem.coordinates.index(name) for name in ("theta", "phi", "place")]
    sol = hx.simulate(problem, hx.RATTLE(), dt=0.002, steps=200)
    q0, p0 = (np.asarray(x)[places] for x in (problem.q0, problem.p0))
    same = hx.simulate(hand, hx.RATTLE(), q0, p0, dt=0.002, steps=200)
    found = np.stack([sol[name] for name in ("theta", "phi", "place")], axis=1)
    np.testing.assert_allclose(found, same.q, rtol=0, atol=1e-13 * np.abs(same.q).max())
    assert sol.constraint_error().max() < 1e-15 and np.ptp(sol["place"]) > 0.05


def double_pendulum(quasi):
    """A double pendulum whose second speed is relative to the first one, with friction, as a `KanesMethod`."""
    q, u = dynamicsymbols("q:2"), dynamicsymbols("u:2")
    speeds = [u[0], u[1] + u[0] * sympy.cos(q[0])] if quasi else u
    frame, _, bars, end = arms(q, speeds)
    loads = [(body.masscenter, -m * g * frame.y) for body in bars]
    loads += [(bars[0].frame, -u[0] * frame.z / 5), (end, -end.vel(frame) / 10 + sympy.sin(t) * bars[1].frame.y)]
    rates = [a.diff(t) - b for a, b in zip(q, speeds)]
    return me.KanesMethod(frame, q, u, rates, bodies=bars, forcelist=loads)


@pytest.mark.parametrize("quasi", [False, True])
def test_accelerations_are_those_of_kanes_method(quasi):
    method = double_pendulum(quasi)
    problem = hx.from_sympy(method, parameters=VALUES)
    assert problem.system.needs == {Capability.MASS, Capability.FORCE}
    method.kanes_equations()
    rates = list(method.kindiffdict().values())
    arguments = [method.q, method.u, t, [m, l, g]]
    evaluate = sympy.lambdify(arguments, [method.mass_matrix_full, method.forcing_full, sympy.Matrix(rates)])
    slope = sympy.lambdify(arguments, sympy.Matrix(rates).jacobian([*method.q, *method.u]))
    system, draws = problem.system, np.random.default_rng(0)
    for _ in range(3):
        state = draws.normal(size=2), draws.normal(size=2), draws.uniform(), list(VALUES.values())
        matrix, forcing, rate = evaluate(*state)
        motion = np.linalg.solve(matrix, np.ravel(forcing))
        expected = slope(*state) @ motion  # d(q')/dt
        q, v = jnp.asarray(state[0]), jnp.asarray(np.ravel(rate))
        p = system.momentum(q, v)
        found = jax.jvp(system.velocity, (q, p), (v, system.force(q, p, jnp.asarray(state[2]))))[1]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_what_is_not_a_lagrangian_system_is_refused():
    q, u, spare = dynamicsymbols("q:2"), dynamicsymbols("u:2"), dynamicsymbols("spare")
    frame, _, bars, _ = arms(q, u)
    rates = [a.diff(t) - b for a, b in zip(q, u)]
    none = me.KanesMethod(frame, q, u, rates)
    with pytest.raises(hx.InputError, match="KanesMethod has no bodies"):
        hx.from_sympy(none, parameters=VALUES)
    skate = me.KanesMethod(
        frame, q, u[:1], rates, u_dependent=u[1:], velocity_constraints=[u[1] - sympy.sin(q[0]) * u[0]], bodies=bars
    )
    with pytest.raises(hx.InputError, match="not the derivative of its configuration constraints.*nonholonomic"):
        hx.from_sympy(skate, parameters=VALUES)
    extra = me.KanesMethod(frame, q, u, rates, bodies=bars, u_auxiliary=[spare])
    with pytest.raises(hx.InputError, match=r"auxiliary speeds \(spare\(t\)\)"):
        hx.from_sympy(extra, parameters=VALUES)
    with pytest.raises(hx.InputError, match="KanesMethod has forces of its own"):
        hx.from_sympy(none, forces=[0, 0], parameters=VALUES)
    with pytest.raises(hx.InputError, match="no value for g, l, m"):
        hx.from_sympy(chain("kane", 2))
