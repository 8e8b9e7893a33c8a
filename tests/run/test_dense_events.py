"""States between the steps, wanted times, events."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.special import ellipk

import holonomix as hx

PENDULUM = hx.models.planar_pendulum()
PERIOD = 4 * ellipk(0.25)


def run(method, problem=PENDULUM, **options):
    return hx.simulate(problem, method, **options)


def between(method, dt, **options):
    """Largest errors of q and p at times that are no steps."""
    sol = run(method, dt=dt, t1=4.0, dense=True, **options)
    times = np.linspace(0.0, 3.9, 157)
    q, p = sol.at(times)
    exact_q, exact_p = PENDULUM.reference(times)
    return np.asarray([np.max(np.abs(q - exact_q)), np.max(np.abs(p - exact_p))])


@pytest.mark.parametrize(
    ("method", "orders"),
    [
        (hx.RATTLE(), (2, 2)),
        (hx.HBVM(2, 2, momentum="projected"), (3, 3)),
        (hx.LineIntegral(4), (4, 4)),
        (hx.Composition(hx.RATTLE(), order=4), (4, 4)),
    ],
)
def test_order_between_the_steps(method, orders):
    rates = np.log2(between(method, 0.1) / between(method, 0.05))
    assert np.all(rates > np.asarray(orders) - 0.35), rates


def test_ends_of_a_step_are_the_steps():
    sol = run(hx.LineIntegral(4), dt=0.1, steps=20, dense=True)
    q, p = sol.at(sol.t)
    assert np.max(np.abs(q - sol.q)) < 1e-15 and np.max(np.abs(p - sol.p)) < 1e-15
    assert sol.at(0.55)[0].shape == (2,)


def test_invariants_between_the_steps():
    sol = run(hx.LineIntegral(4), dt=0.1, save_at=np.linspace(0.0, 3.0, 41))
    errors = np.max(np.abs(sol.energy_error())), np.max(sol.constraint_error()), np.max(sol.hidden_constraint_error())
    assert max(errors) < 1e-15
    control = run(hx.RATTLE(), dt=0.1, save_at=np.linspace(0.0, 3.0, 41))
    assert np.max(np.abs(control.energy_error())) > 1e-7  # RATTLE keeps the energy only nearly


def test_rows_may_be_sparse():
    fine, sparse = (run(hx.RATTLE(), dt=0.1, steps=40, dense=True, save_every=k) for k in (1, 7))
    times = np.linspace(0, 3.5, 50)
    assert np.max(np.abs(fine.at(times)[0] - sparse.at(times)[0])) < 1e-14


def test_interpolant_is_symmetric():
    forward = run(hx.RATTLE(), dt=0.1, steps=10, dense=True)
    backward = hx.simulate(PENDULUM.system, hx.RATTLE(), forward.q[-1], -forward.p[-1], dt=0.1, steps=10, dense=True)
    times = np.linspace(0, 1, 23)
    q, p = forward.at(times)
    q_back, p_back = backward.at(1.0 - times)
    assert np.max(np.abs(q - q_back)) < 1e-14 and np.max(np.abs(p + p_back)) < 1e-14


@pytest.mark.parametrize("dt", [0.02, -0.02])
def test_wanted_times(dt):
    times = np.sign(dt) * np.asarray([0.0, 0.01, 1.23, 2.0, 4.567])
    sol = run(hx.LineIntegral(4), dt=dt, save_at=times, observe={"x": lambda q, p: q[0]})
    assert np.array_equal(sol.t, times)
    q, p = PENDULUM.reference(times)
    assert np.max(np.abs(sol.q - q)) < 2e-8 and np.max(np.abs(sol.p - p)) < 2e-8
    assert np.array_equal(sol.observables["x"], sol.q[:, 0])


def test_wanted_times_do_not_depend_on_chunks(monkeypatch):
    import sys

    times = np.linspace(0, 5, 41)
    whole = run(hx.RATTLE(), dt=0.03, save_at=times)
    monkeypatch.setattr(sys.modules["holonomix.run.run"], "CHUNK_BYTES", 1)
    pieces = run(hx.RATTLE(), dt=0.03, save_at=times)
    assert np.array_equal(whole.q, pieces.q) and whole.q.shape == (41, 2)


def test_events_at_the_quarter_periods():
    events = [hx.Event(lambda q, p: q[0], direction=1), lambda q, p, t: p[0]]
    sol = run(hx.LineIntegral(4), dt=0.02, t1=20.0, events=events, save_every=7)
    passages, turns = sol.events
    assert np.max(np.abs(passages.t - PERIOD * np.arange(1, 3))) < 2e-8
    assert np.max(np.abs(turns.t - PERIOD * (0.25 + 0.5 * np.arange(6)))) < 2e-8
    # the zero itself is found to round-off of the interpolant
    assert np.max(np.abs(turns.p[:, 0])) < 1e-15 and np.max(np.abs(passages.q[:, 0])) < 1e-15
    assert sol.status == hx.Status.OK and sol.t[-1] == 999 // 7 * 7 * 0.02 and len(sol.t) == 143


def test_events_do_not_change_the_run():
    plain = run(hx.RATTLE(), dt=0.05, steps=200)
    watched = run(hx.RATTLE(), dt=0.05, steps=200, events=lambda q, p: q[0])
    assert len(watched.events[0].t) == 2 and np.max(np.abs(plain.q - watched.q)) < 1e-14


def test_terminal_event():
    stop = hx.Event(lambda q, p: p[0], terminal=True)
    later = hx.Event(lambda q, p: q[0])
    sol = run(hx.LineIntegral(4), dt=0.02, t1=20.0, events=[later, stop], save_every=10, dense=True)
    assert sol.status == hx.Status.TERMINATED
    assert abs(sol.final_t - PERIOD / 4) < 2e-8 and sol.t[-1] == sol.final_t
    assert np.array_equal(sol.q[-1], sol.final_q) and abs(sol.p[-1, 0]) < 1e-15
    assert len(sol.events[0].t) == 0 and len(sol.events[1].t) == 1
    assert np.max(np.abs(sol.at(sol.final_t)[0] - sol.final_q)) < 1e-15
    brief = run(hx.RATTLE(), dt=0.02, t1=20.0, events=hx.Event(lambda q, p: p[0], terminal=True), save_every=10)
    assert brief.status == hx.Status.TERMINATED and len(brief.t) == 10 and abs(brief.p[-1, 0]) < 1e-13


def test_direction_and_start_on_the_zero():
    rising, falling, both = (
        run(hx.RATTLE(), dt=0.05, t1=10.0, events=hx.Event(lambda q, p: q[0], direction=d)).events[0].t
        for d in (1, -1, 0)
    )
    assert len(rising) == 1 and len(falling) == 1  # the start, where q[0] = 0, is none
    assert np.array_equal(np.sort(np.concatenate([rising, falling])), both)


def test_events_of_an_adaptive_method():
    problem = hx.models.double_pendulum()
    method = hx.VRATTLE()
    sol = run(method, problem, dt=0.01, t1=3.0, events=lambda q, p: q[0, 0], dense=True)
    record = sol.events[0]
    assert len(record.t) > 0 and np.max(np.abs(record.q[:, 0, 0])) < 1e-14
    assert np.max(np.abs(sol.at(record.t)[0] - record.q)) < 1e-12


def test_refusals():
    with pytest.raises(hx.InputError, match="dense=True"):
        run(hx.RATTLE(), dt=0.1, steps=5).at(0.2)
    with pytest.raises(hx.InputError, match="outside of the run"):
        run(hx.RATTLE(), dt=0.1, steps=5, dense=True).at(0.6)
    with pytest.raises(hx.InputError, match="strictly increasing"):
        run(hx.RATTLE(), dt=0.1, save_at=[0.0, 1.0, 0.5])
    with pytest.raises(hx.InputError, match="after the end"):
        run(hx.RATTLE(), dt=0.1, steps=5, save_at=[0.0, 1.0])
    with pytest.raises(hx.InputError, match="save_every or save_at"):
        run(hx.RATTLE(), dt=0.1, save_at=[0.0, 1.0], save_every=2)
    with pytest.raises(hx.InputError, match="direction"):
        hx.Event(lambda q, p: q[0], direction=2)
    with pytest.raises(hx.MethodError, match="random numbers"):
        run(hx.GLA(hx.RATTLE(), friction=1.0, temperature=0.1), dt=0.1, steps=5, dense=True, key=jax.random.key(0))


def test_random_methods_have_no_states_at_which_an_event_could_be_located():
    problem = hx.models.planar_pendulum()
    options = {"dt": 0.1, "steps": 20, "key": jax.random.key(0), "events": lambda q, p: q[0]}
    with pytest.raises(hx.MethodError, match="FirstPassage"):
        hx.simulate(problem, hx.GLA(), **options)
    with pytest.raises(hx.MethodError, match="FirstPassage"):
        hx.simulate_ensemble(problem.system, hx.GLA(), problem.q0[None], problem.p0[None], **options)
