"""HBVM and Gauss: orders by variable, exactness and where it ends, iterations, derivatives, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

from .common import exactness, generic, one_step, orders, run


def free_orders(method, meshes=(10, 20, 40)):
    problem = hx.models.henon_heiles()
    exact = run(problem, hx.Gauss(6), 2 / 80, 80, save_every=80)
    errors = [np.max(np.abs(run(problem, method, 2 / n, n, save_every=n).q[-1] - exact.q[-1])) for n in meshes]
    return np.log2(np.asarray(errors[:-1]) / np.asarray(errors[1:]))


@pytest.mark.parametrize(("method", "order"), [(hx.Gauss(1), 2), (hx.Gauss(3), 6), (hx.HBVM(4, 2), 4)])
def test_order_without_constraints(method, order):
    assert np.all(np.abs(free_orders(method) - order) < 0.2)


def test_energy_of_a_cubic_potential():
    problem = hx.models.henon_heiles()
    exact = run(problem, hx.HBVM(3, 2), 0.5, 2000)  # degree 3 = 2k/s
    assert np.max(np.abs(exact.energy_error())) < 1e-14
    control = run(problem, hx.Gauss(2), 0.5, 2000)
    assert np.max(np.abs(control.energy_error())) > 1e-6


def test_step_multiplier_has_order_one():
    problem, q, p = generic()
    errors = []
    for n in (50, 100, 200):
        sol = run(problem, hx.HBVM(6, 2, momentum="projected"), 1 / n, n, q, p)
        errors.append(np.max(np.abs(sol.step_multipliers["lambda"][1:] - sol.multipliers[:-1])))
    assert np.all(np.abs(np.log2(np.asarray(errors[:-1]) / errors[1:]) - 1) < 0.2)


@pytest.mark.parametrize("variable", ["q", "p", "multipliers"])
def test_projected_output_has_order_four(variable):
    rates, _ = orders(hx.HBVM(6, 2, momentum="projected"), meshes=(20, 40, 80), variable=variable)
    assert np.all(np.abs(rates - 4) < 0.2)


def test_projection_is_for_output_only():
    problem, q, p = generic()
    raw, shown = (run(problem, hx.HBVM(6, 2, momentum=m), 0.1, 50, q, p) for m in ("raw", "projected"))
    assert np.array_equal(raw.q, shown.q)
    assert exactness(shown)[2] < 1e-14 < 1e-4 < exactness(raw)[2]


def test_start_correction_removes_the_alternation():
    problem, q, p = generic()

    def alternation(start):
        sol = run(problem, hx.HBVM(6, 2, start=start), 0.01, 40, q, p, observe={"hc": problem.system.hidden_constraint})
        hidden = sol.observables["hc"][1:, 0]
        return np.max(np.abs(hidden[1:-1] - (hidden[:-2] + hidden[2:]) / 2)), np.max(np.abs(sol.energy_error()))

    plain, corrected = alternation("plain"), alternation("corrected")
    assert corrected[0] < 0.02 * plain[0]
    assert plain[1] < 1e-15 < corrected[1] < 1e-8  # the price: the energy moves by O(h^4) at the start


@pytest.mark.parametrize(
    ("name", "k", "published"),
    [
        ("planar_pendulum", 2, 5.0),
        ("conical_pendulum", 2, 5.0),
        ("modified_pendulum", 6, 5.9),
        ("tethered_satellites", 6, 5.0),
    ],
)
def test_iterations_of_the_chord(name, k, published):
    problem = getattr(hx.models, name)()
    sol = run(problem, hx.HBVM(k, 2), 0.1, 100)
    assert sol.stats["mean_iterations"] < published + 1.1  # counts evaluations, one more than corrections
    assert exactness(sol)[0] < 1e-15 and exactness(sol)[1] < 1e-14


@pytest.mark.parametrize("iteration", ["fixed-point", "newton"])
def test_iterations_agree(iteration):
    problem = hx.models.modified_pendulum()
    chord, other = (run(problem, hx.HBVM(6, 2, iteration=i), 0.1, 30) for i in ("chord", iteration))
    assert np.max(np.abs(chord.q - other.q)) < 1e-13 and np.max(np.abs(chord.p - other.p)) < 1e-12
    slower = other.stats["mean_iterations"] > 1.5 * chord.stats["mean_iterations"]
    assert slower == (iteration == "fixed-point")


def test_theorem_8():
    problem = hx.models.modified_pendulum()  # the constraint has degree 6, the potential 4
    errors = np.asarray([exactness(run(problem, hx.HBVM(2, 1), h, round(2 / h)))[:2] for h in (0.1, 0.05, 0.025)])
    assert np.all(np.abs(np.log2(errors[:-1, 1] / errors[1:, 1]) - 4) < 0.2)  # h^{2k}
    assert np.all(errors[:, 0] < 1e-15)  # 2k/s = 4 is enough for the energy
    assert max(exactness(run(problem, hx.HBVM(3, 1), 0.1, 20))[:2]) < 1e-15
    satellites = hx.models.tethered_satellites()
    energy = [exactness(run(satellites, hx.HBVM(1, 1), h, round(2 / h)))[0] for h in (0.4, 0.2, 0.1)]
    assert np.all(np.abs(np.log2(np.asarray(energy[:-1]) / energy[1:]) - 2) < 0.2)


def test_dense_mass_matrix():
    matrix = np.asarray([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 1.5]])
    system = hx.System(lambda q: q[2], lambda q: jnp.stack([q @ q - 1]), mass=matrix)
    q, p = hx.project(system, [0.6, 0.0, -0.8], [0.1, 0.5, 0.2])
    sol = hx.simulate(system, hx.Gauss(2), q, p, dt=0.05, steps=400)
    assert exactness(sol)[0] < 2e-15 and exactness(sol)[1] < 2e-15


def test_damped_oscillator_with_an_applied_force():
    system = hx.System(lambda q: 0.5 * jnp.sum(q**2), force=lambda q, v, t: -0.2 * v)
    sol = hx.simulate(system, hx.Gauss(3), [1.0], [0.0], dt=0.1, steps=100)
    w = np.sqrt(1 - 0.01)
    exact = np.exp(-0.1 * sol.t) * (np.cos(w * sol.t) + 0.1 / w * np.sin(w * sol.t))
    assert np.max(np.abs(sol.q[:, 0] - exact)) < 1e-9


def test_derivative_is_that_of_the_map():
    problem = hx.models.planar_pendulum()
    flow = jax.jit(one_step(problem, hx.HBVM(3, 2), 0.1))
    z = jnp.concatenate([problem.q0, problem.p0])
    J, h = np.asarray(jax.jacfwd(flow)(z)), 1e-5
    differences = np.stack([(flow(z + h * e) - flow(z - h * e)) / (2 * h) for e in jnp.eye(z.size)], axis=1)
    assert np.max(np.abs(J - differences)) < 1e-7
    w = jnp.arange(1.0, z.size + 1)
    reverse = jax.grad(lambda z: flow(z) @ w)(z)
    assert np.allclose(reverse, w @ J, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", [hx.HBVM(4, 2), pytest.param(hx.LobattoIIIAB(3), marks=pytest.mark.slow)])
def test_the_tension_of_a_long_chain_costs_no_iterations(method):
    """Without the change of the constraint forces along the step: six for HBVM, five for Lobatto."""
    sol = run(hx.models.chain(20), method, 0.01, 50, save_every=50)
    assert sol.stats["mean_iterations"] < 2.2


def test_failure_has_a_status():
    """Every step leads to where the potential has no value."""
    start = jnp.array([1.0, 0.0])
    system = hx.System(lambda q: jnp.log(1e-9 - jnp.sum((q - start) ** 2)), lambda q: jnp.array([q @ q - 1.0]))
    with pytest.raises(hx.SimulationError, match="step 1"):
        hx.simulate(system, hx.HBVM(6, 2), start, jnp.array([0.0, 1.0]), dt=0.1, steps=3)


def test_refusals():
    moving = hx.System(lambda q: q[0], hx.Rheonomic(lambda q, t: jnp.stack([q @ q - 1 - 0.1 * t])))
    with pytest.raises(hx.MethodError, match="RATTLE"):
        hx.HBVM(2, 2).check(moving)
    curved = hx.System(lambda q: q[0], mass=lambda q: jnp.eye(2) * (1 + q @ q))
    with pytest.raises(hx.MethodError, match="constant mass"):
        hx.LobattoIIIAB(2).check(curved)
    with pytest.raises(hx.InputError, match="iteration"):
        hx.HBVM(2, 2, iteration="picard")
