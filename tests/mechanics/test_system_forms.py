"""What a System may be: potentials in time, params in mass and force, magnetic fields, one mass for each particle."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics import Capability
from tests.tools import symplectic_defect

Q, P = jnp.asarray([0.5, -0.4]), jnp.asarray([0.3, 0.6])


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_potential_of_q_and_t_is_told_by_its_arguments():
    drive = lambda q, t: 0.5 * q @ q - jnp.cos(2 * t) * q[0]
    system = hx.System(drive)
    assert system.time_dependent and not system.conservative and system.needs == {Capability.TIME}
    assert float(system.potential(Q, 0.3)) == float(drive(Q, 0.3))
    np.testing.assert_allclose(system.gradient(Q, 0.3), Q - jnp.asarray([np.cos(0.6), 0.0]), rtol=1e-15)
    with_params = hx.System(lambda q, t, k: 0.5 * k * q @ q + t, params=2.0)
    assert float(with_params.hamiltonian(Q, P, 3.0)) == pytest.approx(float(Q @ Q + 3 + P @ P / 2), rel=1e-15)
    # neither params nor arguments with defaults are taken for a time
    assert not hx.System(lambda q, k: 0.5 * k * q @ q, params=2.0).time_dependent
    assert not hx.System(lambda q, k=2.0: 0.5 * k * q @ q).time_dependent
    # sums and callable objects
    both = hx.System([lambda q: 0.5 * q @ q, lambda q, t: t * q[0]])
    assert float(both.potential(Q, 2.0)) == pytest.approx(float(0.5 * Q @ Q + 2 * Q[0]), rel=1e-15)
    assert hx.System(hx.mechanics.TimeDependent(lambda *args: args[1] * args[0][0])).time_dependent


def test_a_parameter_without_params_is_not_taken_for_the_time():
    with pytest.raises(hx.InputError, match=r"takes \(q, k\).*no params.*params=k.*call it t or time"):
        hx.System(lambda q, k: k * q[1], lambda q: q @ q - 1)
    with pytest.raises(hx.InputError, match=r"takes \(q, k, t\).*\(q, t, params\)"):
        hx.System(lambda q, k, t: k * q[1] + t, params=2.0)
    with pytest.raises(hx.InputError, match=r"\(q, w\)"):
        hx.System([lambda q: q[0], lambda q, w: w * q[1]])
    with pytest.raises(hx.InputError, match="needs hx.System.*params="):
        hx.simulate(hx.System(lambda q: q[1], lambda q, r: jnp.array([q @ q - r])), hx.RATTLE(), Q, P, dt=0.1, steps=1)
    for fn in (lambda q, time: time * q[0], lambda q, _t: q[0], hx.mechanics.TimeDependent(lambda q, s: s * q[0])):
        assert hx.System(fn).time_dependent


def test_functions_that_cannot_take_params_are_called_without_them():
    rod, turn = (lambda q: jnp.array([q @ q - 4.0])), (lambda q, t: jnp.array([q[0] - t]))
    system = hx.System(
        [lambda q: q[0], lambda q, t: t * q[1], lambda q, k: k["a"] * q[2], lambda q, t, k: t * k["a"]],
        {"rod": rod, "turn": hx.Rheonomic(turn)},
        vector_potential=lambda q: 2.0 * q,
        params={"a": 5.0},
    )
    q, t = jnp.array([1.0, 10.0, 100.0]), 3.0
    assert system.potential(q, t) == 1.0 + 30.0 + 500.0 + 15.0
    assert system.time_dependent and system.rheonomic
    np.testing.assert_array_equal(system.constraint(q, t), [q @ q - 4.0, -2.0])
    np.testing.assert_array_equal(system.vector_potential(q), 2.0 * q)
    assert [row.label for row in system.constraint_rows(q)] == ["rod", "turn"]
    assert hx.System(lambda q, k=2.0: k * q[0], params=3.0).potential(q) == 3.0  # it can take them
    assert hx.System(hx.mechanics.TimeDependent(lambda q, s: s * q[0]), params=3.0).potential(q, t) == 3.0
    assert "mass with parameters needs hx.System(..., params=" in message_of(
        lambda: hx.simulate(hx.System(lambda q: q[0], mass=lambda q, m: m), hx.RATTLE(), [0.0], [0.0], dt=0.1, steps=1)
    )


def test_a_system_is_represented_by_its_parts():
    def bowl(q):
        return q @ q

    assert repr(hx.System(bowl)) == "System(potential: bowl; mass: 1)"
    system = hx.System(
        bowl, {"a": lambda q: q, "b": hx.Distance([(0, 1)], 1.0)}, jnp.ones(2), lambda q, v, t: -v, {"k": 1.0}
    )
    assert repr(system) == (
        "System(potential: bowl; constraint: a, b; mass: of shape (2,); force: <lambda>; params: k)"
    )
    assert "mass: of shape ()" in repr(jax.eval_shape(lambda: hx.System(bowl)))
    assert repr(system.penalized(10.0)).startswith("StiffSystem(potential: TotalPotential")


def message_of(call):
    with pytest.raises(hx.InputError) as found:
        call()
    return str(found.value)


def test_a_problem_takes_lists():
    problem = hx.Problem(
        hx.System(lambda q: q[1, 1], hx.Distance([(0, 1)], 1.0)), [[0, 0], [1, 0]], [[0, 1], [0, 0]], dt=0.1, t1=1.0
    )
    assert "q of shape (2, 2), 1 constraint" in repr(problem)
    assert problem.q0.dtype == problem.p0.dtype == float


def test_driven_oscillator_against_its_closed_form():
    # q'' = -q + cos(2 t): q = (q0 + 1/3) cos t + p0 sin t - cos(2 t)/3
    system = hx.System(lambda q, t: 0.5 * q @ q - jnp.cos(2 * t) * q[0])
    q, p = jnp.asarray([0.5]), jnp.asarray([0.2])
    exact = (0.5 + 1 / 3) * np.cos(3) + 0.2 * np.sin(3) - np.cos(6) / 3
    for method, bound in ((hx.RATTLE(), 2e-3), (hx.Gauss(3), 1e-10)):
        sol = hx.simulate(system, method, q, p, dt=0.05, steps=60)
        assert abs(sol.q[-1, 0] - exact) < bound, method.name
    # started elsewhere in time the motion is another one
    later = hx.simulate(system, hx.RATTLE(), q, p, dt=0.05, steps=60, t0=1.0)
    assert abs(later.q[-1, 0] - exact) > 0.1


# -- params ----------------------------------------------------------------------------------------------------------


def heavy(q, params):
    return jnp.diag(params["m"] * (1 + q**2))


def dragged(q, v, t, params):
    return -params["c"] * v + t


PARAMS = {"m": 1.4, "c": 0.3}


def parametrized(params):
    return hx.System(lambda q, params: 0.5 * q @ q, mass=heavy, force=dragged, params=params)


def test_params_reach_mass_and_force_and_can_be_differentiated():
    def end(params):
        return hx.integrate(parametrized(params), hx.RATTLE(), Q, P, dt=0.1, steps=5)[0][0]

    slope = jax.grad(end)(PARAMS)
    for name in PARAMS:
        step = {k: (1e-5 if k == name else 0.0) for k in PARAMS}
        up, down = ({k: PARAMS[k] + sign * step[k] for k in PARAMS} for sign in (1, -1))
        assert float(slope[name]) == pytest.approx(float(end(up) - end(down)) / 2e-5, rel=1e-6), name


def test_params_of_mass_and_force_are_swept():
    masses = np.asarray([0.8, 1.4, 2.5])
    swept = parametrized({"m": masses, "c": 0.3})
    axes = {"q0": None, "p0": None, "params": {"m": 0, "c": None}}
    ens = hx.simulate_ensemble(swept, hx.RATTLE(), Q, P, dt=0.1, steps=10, in_axes=axes)
    for k, m in enumerate(masses):
        alone = hx.simulate(parametrized({"m": m, "c": 0.3}), hx.RATTLE(), Q, P, dt=0.1, steps=10)
        np.testing.assert_allclose(ens.q[k].reshape(-1, 2)[-1], alone.q[-1], rtol=0, atol=1e-14)


def test_masses_and_forces_without_params_stay_as_they_were():
    params = {"k": 2.0}
    system = hx.System(lambda q, p: p["k"] * q @ q, mass=lambda q: jnp.eye(2), force=lambda q, v, t: -v, params=params)
    np.testing.assert_array_equal(system.velocity(Q, P), P)
    np.testing.assert_allclose(system.force(Q, P), -4 * Q - P, rtol=1e-15)


@pytest.mark.parametrize("where", ["force", "mass", "constraint", "default", "inner"])
def test_a_function_may_close_over_a_traced_value(where):
    def end(k):
        inner = lambda x: k * x
        parts = {
            "force": {"force": lambda q, v, t: -k * v},
            "mass": {"mass": lambda q: jnp.diag(k + q**2)},
            "constraint": {"constraint": lambda q: jnp.stack([q @ q - k**2])},
            "default": {"force": lambda q, v, t, k=k: -k * v},
            "inner": {"force": lambda q, v, t: -inner(v)},
        }[where]
        q, p = jnp.asarray([0.6, 0.8]) * (k if where == "constraint" else 1.0), jnp.asarray([0.8, -0.6])
        return hx.integrate(hx.System(lambda q: q[1], **parts), hx.RATTLE(), q, p, dt=0.1, steps=3)[0][0]

    slope = jax.grad(end)(1.2)
    assert float(slope) == pytest.approx(float(end(1.2 + 1e-5) - end(1.2 - 1e-5)) / 2e-5, rel=1e-6)


# -- masses ----------------------------------------------------------------------------------------------------------


def test_one_mass_for_each_particle():
    q = jnp.arange(6.0).reshape(3, 2)
    masses = np.asarray([1.0, 2.0, 5.0])
    each = hx.System(lambda q: jnp.sum(q**2), mass=masses).prepare(q)
    written = hx.System(lambda q: jnp.sum(q**2), mass=np.tile(masses[:, None], (1, 2))).prepare(q)
    np.testing.assert_array_equal(each.velocity(q, q), written.velocity(q, q))
    with pytest.raises(hx.ShapeError, match=r"one number for each particle \(shape \(3,\)\)"):
        hx.System(lambda q: jnp.sum(q**2), mass=np.ones(2)).prepare(q)


# -- a charge in a magnetic field --------------------------------------------------------------------------------------

FIELD = 2.5


def charge():
    """A particle of mass 1.5 in a uniform field along z: it moves on circles with the frequency B/m."""
    uniform = lambda q: 0.5 * FIELD * jnp.stack([-q[1], q[0], 0.0 * q[2]])
    system = hx.System(lambda q: 0.0 * q[0], mass=1.5, vector_potential=uniform)
    q, v = jnp.asarray([0.4, -0.1, 0.2]), jnp.asarray([0.3, 0.8, 0.5])
    return system, q, v


def circle(q, v, t):
    w = FIELD / 1.5
    turn = np.asarray([[np.sin(w * t), 1 - np.cos(w * t), 0], [np.cos(w * t) - 1, np.sin(w * t), 0], [0, 0, w * t]]) / w
    return q + turn @ v


@pytest.mark.parametrize(
    ("method", "order"), [(hx.RATTLE(), 2), (hx.StormerVerlet(), 2), (hx.ImplicitMidpoint(), 2), (hx.Gauss(2), 4)]
)
def test_cyclotron_motion(method, order):
    system, q, v = charge()
    p = system.momentum(q, v)
    np.testing.assert_allclose(system.velocity(q, p), v, rtol=1e-15)
    sols = [hx.simulate(system, method, q, p, dt=2.0 / n, steps=n) for n in (40, 80)]
    errors = [np.max(np.abs(sol.q[-1] - circle(np.asarray(q), np.asarray(v), 2.0))) for sol in sols]
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.05, errors
    # H is quadratic here: it is kept by each of them, as the speed on a circle is
    assert np.max(np.abs(sols[0].energy_error())) < (1e-14 if order == 4 or method.name == "ImplicitMidpoint" else 1e-2)


def bead():
    """A charge on a surface in a field that is not uniform."""
    field = lambda q: 0.7 * jnp.stack([-q[1] * (1 + q[2]), q[0], q[0] * q[1]])
    surface = lambda q: jnp.stack([q[0] ** 2 + q[1] ** 2 + 1.5 * q[2] ** 2 - 1])
    system = hx.System(lambda q: q[2] + 0.3 * q[0] ** 2, surface, mass=1.3, vector_potential=field)
    q = jnp.asarray([0.5, -0.4, 0.7])
    return system, *hx.project(system, q, system.momentum(q, jnp.asarray([0.6, 0.5, -0.3])))


def test_hidden_constraint_and_multipliers_with_a_field():
    system, q, p = bead()
    v = system.velocity(q, p)
    assert float(jnp.max(jnp.abs(system.hidden_constraint(q, p)))) < 1e-15
    assert float(system.kinetic(q, p)) == pytest.approx(float(0.65 * v @ v), rel=1e-14)
    # Newton's equations with Lorentz' force: m v' = (curl A) x-like terms - grad V - G^T lambda
    bend = jax.jacfwd(system.vector_potential)(q)
    force = (bend.T - bend) @ v - system.gradient(q)
    lam, jac = system.multipliers(q, p), system.linearize(q)
    acceleration = (force - jac.transpose(lam)) / 1.3
    along = jax.jvp(lambda x: jax.jvp(system.constraint, (x,), (v,))[1], (q,), (v,))[1] + jac(acceleration)
    assert float(jnp.max(jnp.abs(along))) < 1e-14


@pytest.mark.parametrize("method", [hx.StormerVerlet(), hx.ImplicitMidpoint(), hx.Gauss(2)])
def test_symplectic_in_a_field(method):
    system, q, p = bead()
    free = hx.System(system.potential_fn, mass=1.3, vector_potential=system.vector_fn)
    assert symplectic_defect(free, method, q, p, 0.05) < 1e-13
    # the control: the same field as a force that depends on the velocity is no Hamiltonian system for these steps
    assert symplectic_defect(free, hx.RK4(), q, p, 0.2) > 1e-8


@pytest.mark.slow
def test_rattle_is_symplectic_on_the_manifold_in_a_field():
    system, q, p = bead()
    assert symplectic_defect(system, hx.RATTLE(), q, p, 0.05) < 1e-13
    assert symplectic_defect(system, hx.RK4(), q, p, 0.2) > 1e-8


def test_line_integrals_keep_a_polynomial_energy_in_a_field():
    system, q, p = bead()  # A is quadratic, so that H has the degree four
    errors = {}
    for method in (hx.HBVM(6, 2), hx.Gauss(2)):
        sol = hx.simulate(system, method, q, p, dt=0.1, steps=200)
        errors[method.name] = np.max(np.abs(sol.energy_error()))
        assert sol.constraint_error().max() < (1e-14 if method.name == "HBVM(6, 2)" else 1e-6)
    assert errors["HBVM(6, 2)"] < 2e-14 < 1e-8 < errors["Gauss(2)"]


def test_the_energy_balance_counts_the_work_that_the_energy_error_does_not():
    driven = hx.System(lambda q, t: 0.5 * q @ q - jnp.cos(2 * t) * q[0], force=lambda q, v, t: -0.3 * v)
    center = lambda t: jnp.stack([0.3 * jnp.sin(2 * t), 0.0])
    moving = hx.System(lambda q: q[1], hx.Rheonomic(lambda q, t: jnp.sum((q - center(t)) ** 2)[None] - 1))
    for system, q, p in ((driven, Q, P), (moving, jnp.asarray([0.0, -1.0]), jnp.asarray([0.6, 0.0]))):
        runs = [hx.simulate(system, hx.RATTLE(), q, p, dt=dt, t1=4.0) for dt in (0.04, 0.02)]
        change, error = (
            [float(np.max(np.abs(f(r)))) for r in runs]
            for f in (lambda r: r.energy_error(), lambda r: r.energy_balance_error())
        )
        assert min(change) > 0.3 and change[0] == pytest.approx(change[1], rel=1e-2)  # work: no error of the method
        assert error[0] < 1e-3 and 3.6 < error[0] / error[1] < 4.4  # order two
        assert runs[0].energy_title == "energy change"
    kept = hx.simulate(hx.System(lambda q: 0.5 * q @ q), hx.RATTLE(), Q, P, dt=0.04, t1=1.0)
    assert kept.energy_title == "energy error"
    np.testing.assert_array_equal(kept.energy_balance_error(), kept.energy_error())


def test_a_start_on_a_moving_constraint_names_the_rate_that_is_off():
    belt = hx.System(lambda q: q[1], hx.Rheonomic(lambda q, t: jnp.stack([q[0] - 1.9 * t])))
    with pytest.raises(hx.InconsistentStateError, match=r"G v \+ dg/dt.* is -1\.9 instead of 0"):
        hx.simulate(belt, hx.RATTLE(), jnp.zeros(2), jnp.zeros(2), dt=0.1, steps=2)
