"""SHAKE and RATTLE: the same positions, the orders of their multipliers, the wedge product off the tangent space."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.study.certificates.measure import wedge_defect
from holonomix.study.certificates.runs import follow

PROBLEM = hx.models.double_pendulum(masses=(1.3, 0.7))


def run(method, problem=PROBLEM, dt=0.02, steps=500, **options):
    return hx.simulate(problem, method, dt=dt, steps=steps, **options)


@pytest.mark.parametrize("form", ["leapfrog", "velocity"])
def test_shake_and_rattle_give_the_same_positions(form):
    rattle, shake = run(hx.RATTLE()), run(hx.SHAKE(form))
    assert np.max(np.abs(rattle.q - shake.q)) < 1e-11
    assert np.max(np.abs(rattle.p - shake.p)) < 1e-11
    # the control: another symmetric method of order two goes elsewhere
    assert np.max(np.abs(rattle.q - run(hx.ImplicitMidpoint(), backend="array").q)) > 1e-5


def test_solvers_do_not_change_the_trajectory():
    newton = run(hx.RATTLE(), steps=200)
    for solver in (hx.SymmetricNewton(), hx.SymmetricNewton(frozen=True), hx.SOR(1.2)):
        np.testing.assert_allclose(
            run(hx.RATTLE(solver=solver), steps=200, backend="array").q, newton.q, rtol=0, atol=1e-11
        )


def test_velocity_shake_keeps_the_wedge_product_off_the_tangent_space():
    lively = hx.models.double_pendulum(masses=(1.3, 0.7), angles=(1.5, 1.0))
    system = lively.system.prepare(lively.q0)
    shake = hx.SHAKE("velocity")
    start = follow(system, hx.RATTLE(), lively.q0, lively.p0, 0.0, 0.1, 9).state
    there = follow(system, shake, start.q, start.p, 0.0, 0.1, 5).state
    hidden = np.max(np.abs(system.hidden_constraint(there.q, there.p)))
    assert hidden > 1e-3  # the momentum it works with is not tangent
    assert wedge_defect(system, shake, start.q, start.p, 0.0, 0.1) < 1e-14
    assert wedge_defect(system, hx.RK4(), start.q, start.p, 0.0, 0.1) > 1e-8


def test_orders_of_the_step_multipliers():
    """`lr` and `lv` are of order one, their mean `(lv_n + lr_n)/2`, SHAKE's lambda_n, of order two."""
    fine = run(hx.Composition(hx.RATTLE(), order=8), dt=0.01, steps=101)
    n, exact = 100, fine.multipliers[100]  # at t = 1
    errors = {"lr": [], "lv": [], "mean": [], "shake": []}
    for k in (1, 2, 4):
        sol = run(hx.RATTLE(), dt=0.01 / k, steps=101 * k)
        lr, lv = sol.step_multipliers["lr"], sol.step_multipliers["lv"]
        shake = run(hx.SHAKE(), dt=0.01 / k, steps=101 * k).step_multipliers["lambda"]
        # row n holds what step n - 1 solved for: its lv belongs to t_n, the next row's lr too
        found = {
            "lr": lr[n * k + 1],
            "lv": lv[n * k],
            "mean": (lr[n * k + 1] + lv[n * k]) / 2,
            "shake": shake[n * k + 1],
        }
        for name, value in found.items():
            errors[name].append(np.max(np.abs(value - exact)))
    slopes = {name: np.log2(e[0] / e[2]) / 2 for name, e in errors.items()}
    assert slopes["lr"] == pytest.approx(1.0, abs=0.1) and slopes["lv"] == pytest.approx(1.0, abs=0.1)
    assert slopes["mean"] == pytest.approx(2.0, abs=0.1) and slopes["shake"] == pytest.approx(2.0, abs=0.1)
    np.testing.assert_allclose(errors["mean"], errors["shake"], rtol=1e-3)


def test_rattle_without_constraints_is_verlet():
    problem = hx.models.henon_heiles()
    rattle, verlet = (run(m, problem, 0.1, 200, backend="array") for m in (hx.RATTLE(), hx.StormerVerlet()))
    np.testing.assert_allclose(rattle.q, verlet.q, rtol=0, atol=1e-14)
    leapfrog = run(hx.Leapfrog(), problem, 0.1, 200, backend="array")
    np.testing.assert_allclose(leapfrog.q, verlet.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(leapfrog.p, verlet.p, rtol=0, atol=1e-13)


def test_momentum_of_a_free_body_is_kept():
    """A rigid rod in free space: linear and angular momentum to round-off, also with Gauss-Seidel multipliers."""

    def bond(q):
        return jnp.array([jnp.sum((q[0] - q[1]) ** 2) - 1.0])

    q = jnp.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    p = jnp.array([[0.3, 1.0, 0.2], [0.3, -0.4, 0.7]])
    system = hx.System(lambda q: 0.0 * q[0, 0], bond, mass=jnp.array([[1.0], [2.5]]))
    q, p = hx.project(system, q, p)
    for solver in (hx.Newton(), hx.GaussSeidel()):
        sol = hx.simulate(system, hx.RATTLE(solver=solver), q, p, dt=0.1, steps=300, backend="array")
        for momentum in (hx.invariants.linear_momentum, hx.invariants.angular_momentum):
            assert hx.invariants.drift(hx.invariants.along({"m": momentum}, sol.q, sol.p)["m"]) < 1e-13
