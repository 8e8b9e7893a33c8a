"""One plan and one loop for every entry point: problems in place of arguments, one trajectory beside many."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.mass import DiagonalMass
from holonomix.run.arguments import Arguments, Options
from holonomix.run.interrupts import Interrupts
from holonomix.run.io import Store
from holonomix.run.loop import make_loop
from holonomix.run.record import check_memory

PROBLEM = hx.models.double_pendulum()
ANGLES = np.linspace(-1.0, 1.0, 4)
Q0 = np.stack([[[np.sin(a), -np.cos(a)], [np.sin(a) + 1.0, -np.cos(a) - 1.0]] for a in ANGLES])
P0 = np.zeros_like(Q0)
PASSAGE = hx.Event(lambda q, p: q[1, 0])


def one(k=0, **options):
    return hx.simulate(PROBLEM.system, hx.RATTLE(), Q0[k], P0[k], **({"dt": 0.02} | options))


def many(**options):
    return hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0, P0, **({"dt": 0.02} | options))


def test_a_problem_stands_for_its_parts():
    long = hx.simulate(PROBLEM.system, hx.RATTLE(), PROBLEM.q0, PROBLEM.p0, dt=PROBLEM.dt, t1=PROBLEM.t1)
    short = hx.simulate(PROBLEM, hx.RATTLE())
    np.testing.assert_array_equal(short.q, long.q)
    np.testing.assert_array_equal(hx.simulate(PROBLEM, hx.RATTLE(), steps=9, dt=0.01).final_t, 0.09)
    q, _ = hx.integrate(PROBLEM, hx.RATTLE(), steps=10)
    np.testing.assert_allclose(q, long.q[10], rtol=0, atol=1e-13)
    swept = hx.simulate_ensemble(PROBLEM, hx.RATTLE(), dt=np.array([0.01, PROBLEM.dt]), steps=10)
    np.testing.assert_array_equal(swept.q[1], long.q[10])
    assert hx.explain(PROBLEM, hx.RATTLE()).backend == "native"


def test_a_warm_call_goes_through_few_functions():
    """What is prepared is not walked through again: `benchmarks/call_path.py` lists the way."""
    for run, files, functions in ((one, 14, 70), (many, 14, 70)):
        run(steps=100)
        entered = calls_of_the_package(lambda run=run: run(steps=100))
        assert len({file for file, _ in entered}) <= files
        assert len(entered) <= functions


def calls_of_the_package(call):
    """The functions of the package that `call` enters: file and name with line."""
    package, entered = os.path.dirname(hx.__file__), set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and not code.co_name.startswith("<"):
            entered.add((code.co_filename, f"{code.co_name}:{code.co_firstlineno}"))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def test_a_constant_mass_is_checked_once_for_all_starts(monkeypatch):
    one(steps=3)
    monkeypatch.setattr(DiagonalMass, "check", lambda *_: pytest.fail("checked again"))
    assert one(1, steps=3).status == hx.Status.OK
    monkeypatch.undo()
    heavy = hx.System(lambda q: q[1], lambda q: q @ q - 1, mass=-2.5)
    with pytest.raises(hx.InputError, match=r"-2\.5"):
        jax.jit(lambda q: hx.integrate(heavy, hx.RATTLE(), q, 0 * q, dt=0.1, steps=2))(jnp.array([1.0, 0.0]))


def test_what_was_prepared_is_found_again(monkeypatch):
    scale = 1.0
    options = {"steps": 3, "observe": {"height": lambda q, p: scale * q[1, 1]}}
    one(**options), many(**options)

    def prepared_again(*_):
        raise AssertionError("prepared again")

    monkeypatch.setattr("holonomix.run.loop.parts_of", prepared_again)
    first, together = one(**options | {"steps": 5, "dt": 0.01}), many(**options | {"steps": 5})
    np.testing.assert_array_equal(first.observables["height"], first.q[:, 1, 1])
    assert together.ok.all()
    scale = 2.0  # what the observable computes has changed
    with pytest.raises(AssertionError, match="prepared again"):
        one(**options)


def test_what_is_missing_is_named():
    for arguments, words in (
        ((PROBLEM.system, hx.RATTLE()), "q0 and p0"),
        ((PROBLEM.system, hx.RATTLE(), PROBLEM.q0, PROBLEM.p0), "dt must be given"),
    ):
        with pytest.raises(hx.InputError, match=words):
            hx.simulate(*arguments, steps=5)
    with pytest.raises(hx.InputError, match="steps must be given"):
        hx.integrate(PROBLEM.system, hx.RATTLE(), PROBLEM.q0, PROBLEM.p0, dt=0.1)


def test_events_of_an_ensemble_are_those_of_its_trajectories():
    options = {"t1": 4.0, "save_every": 7, "events": [PASSAGE, hx.Event(lambda q, p: q[0, 0] - 0.7, terminal=True)]}
    ensemble = many(**options)
    for k in range(4):
        alone = one(k, **options)
        assert ensemble.status[k] == alone.status
        for mine, theirs in zip(ensemble.events[k], alone.events, strict=True):
            np.testing.assert_array_equal(mine.t, theirs.t)
            np.testing.assert_array_equal(mine.q, theirs.q)
        rows = np.isfinite(ensemble.t[k]).sum()
        np.testing.assert_array_equal(ensemble.q[k, :rows], alone.q[:rows])
        np.testing.assert_array_equal(ensemble.final_q[k], alone.final_q)
    assert any(len(found[0].t) for found in ensemble.events)
    assert {hx.Status(int(x)).name for x in ensemble.status} == {"OK", "TERMINATED"}


def test_energies_and_multipliers_of_an_ensemble():
    ensemble, alone = many(steps=40, save_every=10), one(2, steps=40, save_every=10)
    np.testing.assert_allclose(ensemble.energy_error()[2], alone.energy_error(), rtol=0, atol=1e-15)
    np.testing.assert_allclose(ensemble.multipliers[2], alone.multipliers, rtol=0, atol=1e-13)
    assert ensemble.constraint_error().max() < 1e-13 and ensemble.hidden_constraint_error().max() < 1e-13
    last = many(steps=40)
    np.testing.assert_allclose(last.energy_error(), ensemble.energy_error()[:, -1], rtol=0, atol=1e-15)


def test_axes_are_labelled_alike_in_memory_and_in_a_store(tmp_path):
    observe = {"height": lambda q, p: q[1, 1], "ends": lambda q, p: q[:, 1]}
    for name, run in (("one", one), ("many", many)):
        options = {"steps": 30, "save_every": 10, "observe": observe}
        memory, stored = run(**options), run(**options, store=tmp_path / name)
        np.testing.assert_array_equal(memory.observables["ends"], stored.observables["ends"])
        assert set(memory.step_multipliers) == set(stored.step_multipliers) == {"lr", "lv"}
        shown, kept = memory.to_xarray(), stored.to_xarray()
        for variable in shown.variables:
            assert set(shown[variable].dims) == set(kept[variable].dims), variable
        assert shown["ends"].dims[-1] == "ends_0" and shown["q"].dims[-2:] == ("q_0", "q_1")
    assert shown["q"].dims == ("trajectory", "t", "q_0", "q_1") and shown.sizes["trajectory"] == 4
    assert kept["t"].shape == (4,) and list(shown["status"].values) == ["OK"] * 4


def test_events_and_ends_are_in_checkpoints(tmp_path):
    stop = hx.Event(lambda q, p: q[0, 0] - 0.7, terminal=True)
    whole = one(t1=4.0, events=[PASSAGE, stop])
    one(t1=1.0, events=[PASSAGE, stop], store=tmp_path / "run")
    for _ in range(2):  # the second call reopens a run that has ended
        again = one(t1=4.0, events=[PASSAGE, stop], store=tmp_path / "run")
        assert again.status == whole.status == hx.Status.TERMINATED and again.final_t == whole.final_t
        for a, b in zip(again.events, whole.events, strict=True):
            np.testing.assert_array_equal(a.t, b.t)
        np.testing.assert_array_equal(again.q, whole.q)


def test_failed_trajectories_are_counted():
    dt = np.array([0.02, 0.02, 2.0, 2.0])
    with pytest.warns(hx.errors.FailedTrajectoriesWarning, match=r"2 of 4.*first is 2.*step 1.*NOT_CONVERGED"):
        ensemble = many(dt=dt, steps=20, save_every=5)
    assert str(ensemble.status).startswith("[OK, OK, NOT_CONVERGED")
    assert np.isnan(ensemble.q[2, 1:]).all() and np.isfinite(ensemble.q[:2]).all()


def test_an_ensemble_is_validated_like_one_trajectory():
    method = hx.VRATTLE(monitor=lambda q, p: -jnp.sum(q**2))
    with pytest.raises(hx.InputError) as alone:
        hx.simulate(PROBLEM.system, method, Q0[0], P0[0], dt=0.01, steps=5)
    with pytest.raises(hx.InputError) as together:
        hx.simulate_ensemble(PROBLEM.system, method, Q0, P0, dt=0.01, steps=5)
    assert str(alone.value) in str(together.value) and "trajectory 0" in str(together.value)


@pytest.mark.parametrize("bad", [{"in_axes": 3}, {"reduce": 5}, {"t0": None}, {"in_axes": {"q0": True}}, {"q0": 1.0}])
def test_bad_arguments_of_ensembles(bad):
    options = {"dt": 0.02, "steps": 3, "save_every": None} | bad
    with pytest.raises(hx.InputError):
        given = Arguments.of(PROBLEM.system, hx.RATTLE(), options.pop("q0", Q0), P0, Options(**options))
        make_loop(given.spread({"q0": 0, "p0": 0}))


def test_rows_that_do_not_fit_are_refused_before_the_run():
    with pytest.raises(hx.InputError, match=r"10,000,000,001 rows.*GiB.*save_every=\d+.*store="):
        one(steps=10**10)
    with pytest.raises(hx.InputError, match="GiB"):
        many(steps=10**10, save_every=1)


def test_memory_near_the_limit_is_a_warning(monkeypatch):
    monkeypatch.setattr("holonomix.run.record.free_memory", lambda: 1 << 30)
    with pytest.warns(ResourceWarning, match="save_every"):
        check_memory(6, 100 << 20, save_every=1)
    check_memory(4, 100 << 20, save_every=1)


def test_a_clock_that_stands_still_is_refused():
    with pytest.raises(hx.InputError, match=r"rounds to t0.*16"):
        one(steps=3, t0=1e17)
    one(steps=3, t0=1e9)


def test_a_signal_waits_for_the_end_of_a_chunk():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
            assert heard == []
            interrupts.check()
            assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is not before
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_inside_of_a_garbage_collection_is_not_lost():
    """While a run is compiled, JAX runs Python that swallows whatever is raised in it."""
    strength, sent = 1.0, []

    def potential(q):
        def collected(phase, info):
            if not sent:
                sent.append(phase)
                signal.raise_signal(signal.SIGINT)

        gc.callbacks.append(collected)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(collected)
        return 0.5 * strength * jnp.sum(q**2)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt):
            hx.simulate(hx.System(potential), hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=5)
        assert sent and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        sol = hx.simulate(hx.System(potential), hx.StormerVerlet(), [1.0], [0.0], dt=0.01, steps=5)
        assert sol.status == hx.Status.OK  # the next run is not disturbed
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_run_at_a_checkpoint(tmp_path):
    def rows():
        try:
            return Store(tmp_path / "run", "read").rows
        except hx.HolonomixError:  # not yet there
            return 0

    def interrupt():
        while not ended.wait(0.05) and not rows():  # a slow machine is still compiling
            pass
        signal.raise_signal(signal.SIGINT)

    ended, timer = threading.Event(), threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores Ctrl-C
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            try:
                one(steps=10**9, save_every=10**5, store=tmp_path / "run")
            finally:
                ended.set()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert Store(tmp_path / "run", "read").status["state"] == "closed"
    assert Store(tmp_path / "run", "read").rows > 0
