"""Ensembles over parameters: `params=` with an axis over trajectories in front."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

SYSTEM = hx.System(
    lambda q, params: params["k"] * q[1] + jnp.sum(params["pull"] * q),
    lambda q, params: jnp.array([q @ q - params["length"] ** 2]),
    params={"k": 1.0, "pull": np.zeros(2), "length": 1.0},
)
Q, P = np.array([1.0, 0.0]), np.array([0.0, 0.3])
RUN = {"dt": 0.05, "steps": 40}


def test_each_trajectory_has_its_own_values_and_the_rest_is_shared():
    k = np.linspace(0.5, 2.0, 5)
    ens = hx.simulate_ensemble(SYSTEM, hx.RATTLE(), Q, P, params={"k": k}, **RUN)
    assert len(ens) == 5
    for i in (0, 4):
        alone = hx.simulate(SYSTEM.with_params(SYSTEM.params | {"k": k[i]}), hx.RATTLE(), Q, P, **RUN)
        np.testing.assert_allclose(ens.final_q[i], alone.final_q, rtol=1e-12)
    by_axes = hx.simulate_ensemble(
        SYSTEM.with_params(SYSTEM.params | {"k": jnp.asarray(k)}), hx.RATTLE(), Q, P,
        in_axes={"q0": None, "p0": None, "params": {"k": 0, "pull": None, "length": None}}, **RUN,
    )  # fmt: skip
    np.testing.assert_array_equal(ens.final_q, by_axes.final_q)


def test_arrays_starts_and_shared_values():
    pull = np.random.default_rng(0).normal(size=(3, 2))
    q0 = np.stack([[np.cos(a), np.sin(a)] for a in (0.0, 1.0, 2.0)])
    ens = hx.simulate_ensemble(SYSTEM, hx.RATTLE(), q0, 0 * q0, params={"pull": pull, "k": 2.0}, **RUN)
    assert ens.q.shape == (3, 2)
    alone = hx.simulate(
        SYSTEM.with_params({"k": 2.0, "pull": pull[2], "length": 1.0}), hx.RATTLE(), q0[2], 0 * Q, **RUN
    )
    np.testing.assert_allclose(ens.final_q[2], alone.final_q, rtol=1e-12)


def test_a_problem_shares_its_start():
    problem = hx.models.double_pendulum()
    gravity = np.linspace(0.5, 1.5, 2)  # as many as q has rows
    ens = hx.simulate_ensemble(problem, hx.RATTLE(), params={"gravity": gravity}, steps=20)
    again = hx.simulate_ensemble(problem, hx.RATTLE(), problem.q0, problem.p0, params={"gravity": gravity}, steps=20)
    assert len(ens) == 2 and np.max(np.abs(ens.final_q[0] - ens.final_q[1])) > 1e-3
    np.testing.assert_array_equal(ens.final_q, again.final_q)


SPRINGS = hx.System(lambda q, k: 0.5 * k * jnp.sum(q**2), params=1.0)  # of any number of coordinates


@pytest.mark.parametrize("start", [[1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]])
def test_a_start_with_two_readings_is_refused_unless_in_axes_says_which(start):
    q0, run = np.array(start), {"params": np.array([1.0, 4.0]), "dt": 0.01, "steps": 5}
    simulate = lambda **axes: hx.simulate_ensemble(SPRINGS, hx.Leapfrog(), q0, 0 * q0, **run, **axes)
    with pytest.raises(hx.InputError, match=r"q0 of shape \(2,.*'q0': None, 'p0': None.*'q0': 0, 'p0': 0"):
        simulate()
    assert simulate(in_axes={"q0": None, "p0": None}).final_q.shape == (2, *q0.shape)
    assert simulate(in_axes={"q0": 0}).final_q.shape == q0.shape


def test_a_start_with_one_possible_reading_needs_no_in_axes():
    q0, run = np.array([1.0, 2.0]), {"dt": 0.01, "steps": 5}
    three = hx.simulate_ensemble(SPRINGS, hx.Leapfrog(), q0, 0 * q0, params=np.ones(3), **run)
    assert three.final_q.shape == (3, 2)
    both = hx.simulate_ensemble(SPRINGS, hx.Leapfrog(), q0, np.zeros((2, 2)), params=np.ones(2), **run)
    assert both.final_q.shape == (2, 2)
    two = hx.simulate_ensemble(SYSTEM, hx.RATTLE(), Q, P, params={"k": np.ones(2)}, **RUN)
    assert two.final_q.shape == (2, 2)  # a pendulum has no configuration that is one number
    weights = hx.System(lambda q, k: 0.5 * k * jnp.sum(q**2), mass=np.array([1.0, 2.0]), params=1.0)
    two = hx.simulate_ensemble(weights, hx.Leapfrog(), q0, 0 * q0, params=np.ones(2), **run)
    assert two.final_q.shape == (2, 2)  # two masses


def test_a_store_resumes_them(tmp_path):
    k = np.linspace(0.5, 2.0, 6)
    make = lambda place: hx.simulate_ensemble(
        SYSTEM, hx.RATTLE(), Q, P, params={"k": k}, store=place, block=2, save_every=10, **RUN
    )
    first, again = make(tmp_path / "runs"), make(tmp_path / "runs")
    np.testing.assert_array_equal(first.q, again.q)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"g": np.ones(3)}, "not g"),
        ({"pull": np.ones((3, 4))}, r"params\['pull'\] has shape \(3, 4\).*\(n, 2\)"),
        ({"k": np.ones(3), "pull": np.ones((4, 2))}, "the leading axes differ"),
        (np.ones(3), "has the entries k"),
        ({"k": 2.0}, "nothing differs"),
    ],
)
def test_values_that_do_not_fit_are_named(params, words):
    with pytest.raises(hx.errors.HolonomixError, match=words):
        hx.simulate_ensemble(SYSTEM, hx.RATTLE(), Q, P, in_axes={"q0": None, "p0": None}, params=params, **RUN)


def test_a_system_without_params_says_so():
    system = hx.System(lambda q: q[1], lambda q: jnp.array([q @ q - 1.0]))
    with pytest.raises(hx.errors.InputError, match="the system has none"):
        hx.simulate_ensemble(system, hx.RATTLE(), Q, P, params={"k": np.ones(3)}, **RUN)
    with pytest.raises(hx.errors.InputError, match="not both"):
        hx.simulate_ensemble(SYSTEM, hx.RATTLE(), Q, P, params={"k": np.ones(3)}, in_axes={"params": None}, **RUN)
