"""Benchmark A: double pendulum with a light inner mass, t in [0, 4], 32 000 steps for every method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

from .support import orders, there_and_back, whip

# first steps for which t = 4 is reached in 32 000 steps
FIRST_STEP = {"U1": 2.1221e-4, "U2": 3.1396e-4}


def worst(method, dt):
    problem = whip()
    end = {"t1": 4.0} if method.adaptive else {"steps": 32_000}
    sol = hx.simulate(problem, method, dt=dt, **end)
    return sol, float(np.max(np.abs(sol.energy_error())))


@pytest.fixture(scope="module")
def measured():
    return {
        "RATTLE": worst(hx.RATTLE(), 4.0 / 32_000),
        "U1": worst(hx.VRATTLE(hx.monitors.ForceMonitor(1.0)), FIRST_STEP["U1"]),
        "U2": worst(hx.VRATTLE(hx.MultiplierMonitor(floor=0.5)), FIRST_STEP["U2"]),
    }


def test_energy_errors_have_the_known_values(measured):
    assert measured["RATTLE"][1] == pytest.approx(3.9e-3, rel=0.02)
    assert measured["U1"][1] == pytest.approx(1.45e-5, rel=0.02)
    assert measured["U2"][1] == pytest.approx(4.0e-7, rel=0.05)


def test_monitors_win_by_orders_of_magnitude_with_as_many_steps(measured):
    for sol, _ in measured.values():
        assert abs(sol.stats["steps"] - 32_000) < 100
        assert np.max(sol.constraint_error()) < 1e-14
        assert sol.t[-1] >= 4.0
    assert measured["RATTLE"][1] / measured["U1"][1] > 100
    assert measured["U1"][1] / measured["U2"][1] > 10
    assert measured["U2"][1] < 1e-6


def test_newton_needs_two_sweeps_a_step(measured):
    assert measured["U2"][0].stats["mean_iterations"] < 2.3


def test_time_is_the_sum_of_steps_that_shrink_at_the_whip(measured):
    sol = measured["U2"][0]
    steps = np.diff(sol.t)
    assert np.all(steps > 0)
    assert np.max(steps) / np.min(steps) > 1e3  # the paper's figure 4.4: several orders of magnitude
    # the smallest steps are where the multipliers are largest
    size = np.linalg.norm(sol.multipliers, axis=1)
    assert abs(int(np.argmin(steps)) - int(np.argmax(size))) < 20


@pytest.mark.parametrize(
    "method",
    [hx.VRATTLE(), hx.VRATTLE(hx.monitors.ForceMonitor(1.0)), hx.VRATTLE(update="explicit")],
    ids=["U2", "U1", "explicit"],
)
def test_order_two_through_the_first_whip(method):
    found, t = orders(whip(), method, 2e-3, 2000, doublings=2)
    assert t > 1.2  # the whip is at t = 1.21
    assert all(1.95 < order < 2.05 for order in found), found


def test_naive_start_is_of_order_one():
    found, _ = orders(whip(), hx.VRATTLE(start="naive"), 2e-3, 2000, doublings=2)
    assert all(0.9 < order < 1.1 for order in found), found
    assert hx.VRATTLE(start="naive").order == 1


@pytest.mark.parametrize(
    "method",
    [
        hx.VRATTLE(),
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in (hx.VRATTLE(hx.monitors.ForceMonitor(1.0)), hx.VRATTLE(update="explicit"))
        ),
        pytest.param(hx.VSHAKE(), marks=pytest.mark.slow),
    ],
    ids=["U2", "U1", "explicit", "VSHAKE"],
)
def test_three_thousand_steps_forward_and_back(method):
    apart, moved = there_and_back(whip(), method, 1e-3, 3000)
    assert apart < 1e-9
    assert moved > 0.5


@pytest.mark.slow
def test_a_solver_that_stops_early_does_not_come_back():
    method = hx.VRATTLE(solver=hx.Newton(tol=1e-5))
    assert there_and_back(whip(), method, 1e-3, 3000)[0] > 1e-9


@pytest.mark.slow
def test_vshake_has_the_positions_of_vrattle():
    problem = whip()
    ends = [
        hx.integrate(problem, method, dt=1e-3, steps=500, adjoint="forward")
        for method in (hx.VRATTLE(), hx.VSHAKE(), hx.VSHAKE(solver=hx.SymmetricNewton()))
    ]
    for q, p in ends[1:]:
        np.testing.assert_allclose(q, ends[0][0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(p, ends[0][1], rtol=0, atol=1e-12)


def test_the_momentum_shown_is_tangent():
    problem = whip()
    for method in (hx.VRATTLE(), hx.VSHAKE()):
        sol = hx.simulate(problem, method, dt=1e-3, steps=300)
        assert np.max(sol.hidden_constraint_error()) < 1e-12


def test_step_multipliers_approximate_lambda_to_second_order():
    problem = hx.models.double_pendulum(angles=(1.0, 0.3))

    def error(dt):
        sol = hx.simulate(problem, hx.VRATTLE(), dt=dt, steps=round(2 / dt))
        # row n holds the lambda of the step that left row n - 1
        return np.max(np.abs(sol.step_multipliers["lambda"][1:] - sol.multipliers[:-1]))

    coarse, fine = error(0.01), error(0.005)
    assert 3.6 < coarse / fine < 4.4


@pytest.mark.slow
def test_derivatives_are_those_of_the_map():
    def end(theta):
        start = hx.models.double_pendulum(angles=jnp.stack([theta, 0.3]))
        q, _ = hx.integrate(start, hx.VRATTLE(), dt=0.05, steps=10, adjoint="direct")
        return q[1, 0]

    reverse = float(jax.jit(jax.grad(end))(1.0))
    forward, value = jax.jit(lambda x: jax.jvp(end, (x,), (1.0,))[::-1]), jax.jit(end)
    forward = float(forward(1.0)[0])
    difference = float((value(1.0 + 1e-5) - value(1.0 - 1e-5)) / 2e-5)
    assert reverse == pytest.approx(forward, rel=1e-10)
    assert reverse == pytest.approx(difference, rel=1e-7)
