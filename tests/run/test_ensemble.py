"""Ensembles: one status a trajectory, reductions in the loop, lanes that do not know their neighbors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

PROBLEM = hx.models.double_pendulum()
ANGLES = np.linspace(-1.0, 1.0, 13)
Q0 = np.stack([[[np.sin(a), -np.cos(a)], [np.sin(a) + 1.0, -np.cos(a) - 1.0]] for a in ANGLES])
P0 = np.zeros_like(Q0)


@pytest.mark.parametrize("backend", ["array", "native"])
def test_an_ensemble_equals_its_trajectories(backend):
    ensemble = hx.simulate_ensemble(
        PROBLEM.system, hx.RATTLE(), Q0, P0, dt=0.02, steps=60, save_every=20, backend=backend
    )
    assert ensemble.q.shape == (13, 4, 2, 2) and ensemble.ok.all()
    for k in (0, 7, 12):
        one = hx.simulate(PROBLEM.system, hx.RATTLE(), Q0[k], P0[k], dt=0.02, steps=60, save_every=20, backend=backend)
        if backend == "native":
            np.testing.assert_array_equal(ensemble.q[k], one.q)
        else:
            np.testing.assert_allclose(ensemble.q[k], one.q, rtol=0, atol=1e-13)


@pytest.mark.parametrize("backend", ["array", "native"])
def test_one_failure_does_not_spoil_the_rest(backend):
    dt = np.full(13, 0.02)
    dt[4] = 2.0
    ensemble = hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0, dt=dt, steps=40, backend=backend)
    assert (~ensemble.ok).tolist() == [k == 4 for k in range(13)]
    assert ensemble.steps[4] < 40 and (np.delete(ensemble.steps, 4) == 40).all()
    calm = hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0, dt=np.full(13, 0.02), steps=40, backend=backend)
    np.testing.assert_array_equal(np.delete(calm.q, 4, 0), np.delete(ensemble.q, 4, 0))
    with pytest.raises(hx.SimulationError, match="1 of 13"):
        hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0, dt=dt, steps=40, throw=True, backend=backend)


def test_parameters_may_differ():
    gravity = np.linspace(0.5, 2.0, 5)
    params = {
        **{k: jnp.broadcast_to(v, (5, *v.shape)) for k, v in PROBLEM.system.params.items()},
        "gravity": jnp.asarray(gravity),
    }
    axes = {"q0": None, "p0": None, "params": 0}
    ensemble = hx.simulate_ensemble(
        PROBLEM.system.with_params(params), hx.RATTLE(), PROBLEM.q0, PROBLEM.p0, dt=0.02, steps=30, in_axes=axes
    )
    single = hx.models.double_pendulum(gravity=gravity[3])
    one = hx.simulate(single, hx.RATTLE(), dt=0.02, steps=30)
    np.testing.assert_allclose(ensemble.q[3], one.final_q, rtol=0, atol=1e-13)


@pytest.mark.parametrize("backend", ["array", "native"])
def test_reductions_equal_what_saved_rows_say(backend):
    def x(q, p):
        return q[1, 0]

    reduce = {
        "mean": hx.reductions.Mean(x),
        "low": hx.reductions.Minimum(x),
        "high": hx.reductions.Maximum(x),
        "first": hx.reductions.FirstPassage(x),
    }
    ensemble = hx.simulate_ensemble(
        PROBLEM.system, hx.RATTLE(), Q0, P0, dt=0.02, steps=200, save_every=1, reduce=reduce, backend=backend
    )
    path = ensemble.q[:, :, 1, 0]
    np.testing.assert_allclose(ensemble.reduced["mean"], path[:, 1:].mean(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(ensemble.reduced["low"], path.min(axis=1))
    np.testing.assert_array_equal(ensemble.reduced["high"], path.max(axis=1))
    crossed = path[:, 1:] * path[:, :-1] < 0
    first = np.where(crossed.any(axis=1), 0.02 * (crossed.argmax(axis=1) + 1), np.inf)
    np.testing.assert_allclose(ensemble.reduced["first"], first, rtol=1e-13)
    assert np.isfinite(first).any()


def test_the_steps_after_the_last_row_count():
    counted = {"steps": hx.reductions.Mean(lambda q, p, t: t)}
    options = {"dt": 0.02, "reduce": counted, "backend": "array"}
    ensemble = hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0[:2], P0[:2], steps=10, save_every=4, **options)
    assert ensemble.t.shape == (2, 3) and ensemble.steps.tolist() == [10, 10]
    np.testing.assert_allclose(ensemble.reduced["steps"], 0.02 * 5.5, rtol=1e-14)
    none = hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0[:2], P0[:2], steps=0, **options)
    np.testing.assert_array_equal(none.q, Q0[:2])


@pytest.mark.parametrize("backend", ["array", "native"])
def test_adaptive_trajectories_run_both_ways_in_one_ensemble(backend):
    q0, p0 = np.stack([Q0[3]] * 2), np.stack([P0[3]] * 2)
    dt = np.array([0.02, -0.02])
    ensemble = hx.simulate_ensemble(PROBLEM.system, hx.VRATTLE(), q0, p0, dt=dt, steps=20, backend=backend)
    assert ensemble.steps.tolist() == [20, 20]
    np.testing.assert_allclose(ensemble.t[1], -ensemble.t[0], rtol=1e-12)  # from rest the motion is even in time
    np.testing.assert_allclose(ensemble.q[1], ensemble.q[0], rtol=0, atol=1e-12)


def test_bad_axes_are_named():
    with pytest.raises(hx.ShapeError, match="13"):
        hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0[:5], dt=0.02, steps=3)
    with pytest.raises(hx.InputError, match="q0.*1"):
        hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0, dt=0.02, steps=3, in_axes={"q0": 1})
    with pytest.raises(hx.ShapeError, match=r"params\[.gravity.\] has 0"):  # gravity is a number, without an axis
        hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0, dt=0.02, steps=3, in_axes={"params": 0})
    with pytest.raises(hx.InputError, match="color"):
        hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0, dt=0.02, steps=3, in_axes={"color": 0})


def test_reductions_that_are_none_are_named():
    for wrong, number in (
        (lambda q, p: q[0, 0], "'a'.*Mean"),
        (hx.reductions.Mean(lambda q, p: q[7, 7, 7]), r"'a'.*\(q, p\)"),
    ):
        with pytest.raises(hx.InputError, match=number):
            hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0, dt=0.02, steps=3, reduce={"a": wrong})


def test_keys_differ_between_trajectories():
    method = hx.GLA(hx.RATTLE(), friction=1.0, temperature=0.1)
    q0 = np.repeat(np.asarray(PROBLEM.q0)[None], 4, axis=0)
    ensemble = hx.simulate_ensemble(PROBLEM.system, method, q0, 0 * q0, dt=0.02, steps=20, key=jax.random.key(3))
    assert ensemble.ok.all() and len({float(x) for x in ensemble.q[:, 1, 0]}) == 4
