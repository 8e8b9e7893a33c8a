"""`integrate` is pure and differentiable; rows, failures and times are as documented."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

PROBLEM = hx.models.double_pendulum()
SMALL = hx.models.planar_pendulum(angle=1.0)  # what does not depend on the system is tested with one that compiles fast


def run(problem=PROBLEM, **changes):
    options = {"dt": 0.02, "steps": 40} | changes
    return hx.integrate(problem, hx.RATTLE(), **options)


def test_rows_are_the_multiples_of_save_every():
    q, p, info = run(SMALL, save_every=7, info=True)
    assert q.shape == (6, 2) and p.shape == q.shape
    np.testing.assert_allclose(info.t, 0.02 * 7 * np.arange(6), rtol=1e-15)
    for k in (1, 5):
        alone = run(SMALL, steps=7 * k)
        np.testing.assert_allclose(q[k], alone[0], rtol=0, atol=1e-15)


def test_agrees_with_simulate_and_runs_backwards():
    q, p = run()
    sol = hx.simulate(PROBLEM, hx.RATTLE(), dt=0.02, steps=40, backend="array")
    np.testing.assert_allclose(sol.final_q, q, rtol=0, atol=1e-14)
    back, _ = hx.integrate(PROBLEM.system, hx.RATTLE(), q, p, dt=-0.02, steps=40, t0=0.8)
    np.testing.assert_allclose(back, PROBLEM.q0, rtol=0, atol=1e-12)


def test_an_adaptive_method_runs_backwards():
    q, _, info = hx.integrate(PROBLEM, hx.VRATTLE(), dt=-0.02, steps=20, info=True)
    ahead = hx.integrate(PROBLEM, hx.VRATTLE(), dt=0.02, steps=20)
    assert int(info.stats["steps"]) == 20 and float(info.t) < -0.1
    np.testing.assert_allclose(q, ahead[0], rtol=0, atol=1e-12)  # from rest the motion is even in time


def test_vmap_and_jit_give_the_same_numbers():
    scale = jnp.array([0.9, 1.0, 1.1])

    def final(factor):
        return hx.integrate(PROBLEM, hx.RATTLE(), dt=0.02 * factor, steps=20)[0]

    together = jax.jit(jax.vmap(final))(scale)
    np.testing.assert_allclose(together[1], run(steps=20)[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("adjoint", ["checkpoint", "direct"])
def test_reverse_mode_agrees_with_forward_mode(adjoint):
    def final(dt):
        return run(SMALL, dt=dt, steps=23, adjoint=adjoint)[0][0]

    forward = jax.jvp(final, (0.02,), (1.0,))[1]
    np.testing.assert_allclose(jax.grad(final)(0.02), forward, rtol=1e-11)


def test_a_failure_gives_nan_and_a_status_without_raising():
    q, _, info = run(dt=1.0, steps=30, save_every=1, info=True)
    assert hx.Status(int(info.status)) is hx.Status.NOT_CONVERGED
    assert int(info.stats["steps"]) < 30
    good = int(info.stats["steps"])
    assert bool(jnp.isfinite(q[: good + 1]).all()) and bool(jnp.isnan(q[good + 1 :]).all())
    assert bool(jnp.isnan(run(dt=1.0, steps=30)[0]).all())


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"dt": 0.0}, "0"),
        ({"dt": float("nan")}, "nan"),
        ({"steps": -3}, "-3"),
        ({"steps": 2.5}, "2.5"),
        ({"save_every": 0}, "0"),
    ],
)
def test_bad_arguments_are_named(changes, number):
    with pytest.raises(hx.InputError, match=number):
        run(**changes)


def test_time_is_not_a_running_sum():
    *_, info = run(SMALL, dt=0.1, steps=1000, save_every=1000, info=True, t0=3.0)
    assert float(info.t[-1]) == 3.0 + 1000 * 0.1


def test_the_end_may_be_given_in_place_of_the_number_of_steps():
    by_steps, by_end = run(SMALL, steps=50, info=True), run(SMALL, steps=None, t1=1.0, info=True)
    assert float(by_end[2].t) == float(by_steps[2].t)
    np.testing.assert_array_equal(by_end[0], by_steps[0])
    later = run(SMALL, steps=None, t0=2.0, t1=2.99, save_every=10, info=True)  # the last step may go beyond t1
    assert later[0].shape == (6, 2) and int(later[2].stats["steps"]) == 50
    inside = jax.jit(lambda q: hx.integrate(SMALL.system, hx.RATTLE(), q, SMALL.p0, dt=0.02, t1=1.0)[0])(SMALL.q0)
    np.testing.assert_allclose(inside, by_steps[0], rtol=0, atol=1e-14)


def test_an_end_that_does_not_give_a_number_of_steps_is_refused():
    with pytest.raises(hx.InputError, match="either steps or t1, not both"):
        run(SMALL, t1=1.0)
    with pytest.raises(hx.InputError, match="t1 = -1 cannot be reached"):
        run(SMALL, steps=None, t1=-1.0)
    with pytest.raises(hx.InputError, match="must be concrete; give steps"):
        jax.jit(lambda dt: run(SMALL, dt=dt, steps=None, t1=1.0))(0.02)
    with pytest.raises(hx.InputError, match="VRATTLE chooses its own steps: give"):
        hx.integrate(SMALL, hx.VRATTLE(), t1=1.0)
