"""Ensembles in blocks: through a store, after a kill, and on the workers of an executor, to the same bits."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

import holonomix as hx
from holonomix.run import executors, run
from holonomix.run.io import EnsembleStore

PROBLEM = hx.models.double_pendulum()
ANGLES = np.linspace(-1.0, 1.2, 11)
Q0 = np.stack([[[np.sin(a), -np.cos(a)], [np.sin(a) + 1.0, -np.cos(a) - 1.0]] for a in ANGLES])
P0 = np.zeros_like(Q0)
FULL = {
    "steps": 60,
    "save_every": 7,
    "observe": {"height": lambda q, p: q[1, 1]},
    "reduce": {"top": hx.reductions.Maximum(lambda q, p: q[1, 1])},
    "events": [hx.Event(lambda q, p: q[1, 1] + 1.8), hx.Event(lambda q, p: q[1, 1] + 2.15, terminal=True)],
}


def many(method=None, **options):
    return hx.simulate_ensemble(PROBLEM.system, method or hx.RATTLE(), Q0, P0, **({"dt": 0.02} | options))


def same(a, b):
    """Everything that two ensembles show, to the last bit."""
    assert a.rows.keys() <= b.rows.keys()
    for key in a.rows:
        np.testing.assert_array_equal(b.rows[key], a.rows[key], err_msg=key)
    for name in ("status", "steps", "final_q", "final_p", "final_t"):
        np.testing.assert_array_equal(getattr(b, name), getattr(a, name), err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, b.reduced, a.reduced)
    assert len(a.events) == len(b.events)
    for x, y in zip((e for lane in a.events for e in lane), (e for lane in b.events for e in lane), strict=True):
        np.testing.assert_array_equal(y.t, x.t)
        np.testing.assert_array_equal(y.q, x.q)


def close(a, b):
    """On the array path XLA compiles a program for each number of trajectories: every step may round differently."""
    for key in ("q", "p"):
        size = max(np.abs(a.rows["q"]).max(), np.abs(a.rows["p"]).max())
        bound = 4 * a.steps.max() * np.finfo(float).eps * size
        np.testing.assert_allclose(b.rows[key], a.rows[key], rtol=0, atol=bound, err_msg=key)
    np.testing.assert_array_equal(b.status, a.status)
    np.testing.assert_array_equal(b.steps, a.steps)


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file() and f.name != "lock"
    }  # fmt: skip


@pytest.mark.parametrize("options", [FULL, {"steps": 20}, {"steps": 20, "save_every": 5, "backend": "array"}])
def test_the_cut_into_blocks_does_not_matter(tmp_path, options):
    plain = many(**options)
    compare = close if "backend" in options else same
    compare(plain, many(**options, block=4, store=tmp_path / "run"))
    if "events" in options:
        assert sum(len(e.t) for lane in plain.events for e in lane) >= 8
        assert hx.Status.TERMINATED in plain.status


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "array"])
def test_blocks_of_one_trajectory(tmp_path, backend):
    problem = hx.models.chain(10)
    q0 = np.repeat(np.asarray(problem.q0)[None], 3, 0)
    p0 = np.random.default_rng(0).normal(size=q0.shape)
    p0 = np.stack([np.asarray(hx.project(problem.system, q, p)[1]) for q, p in zip(q0, p0)])
    run = lambda **more: hx.simulate_ensemble(
        problem.system, hx.RATTLE(), q0, p0, dt=0.01, steps=100, save_every=20, backend=backend, **more
    )
    whole, stored = run(), run(block=1, store=tmp_path / "run")
    (same if backend == "native" else close)(whole, stored)
    with ThreadPoolExecutor(2) as pool:
        same(run(block=1, executor=pool), stored)


def test_keys_belong_to_trajectories_not_to_blocks(tmp_path):
    options = {"method": hx.GeodesicBAOAB(), "steps": 12, "key": jax.random.key(3)}
    same(many(**options), many(**options, block=3, store=tmp_path / "run"))


def test_a_killed_ensemble_goes_on_with_the_blocks_that_are_missing(tmp_path, monkeypatch):
    whole = many(**FULL, block=3, store=tmp_path / "whole")
    write, wrote = EnsembleStore.stream_block, []

    def dying(self, block, rows, end):
        if len(wrote) == 2:
            raise KeyboardInterrupt
        wrote.append(block)
        return write(self, block, rows, end)

    monkeypatch.setattr(EnsembleStore, "stream_block", dying)
    with pytest.raises(KeyboardInterrupt):
        many(**FULL, block=3, store=tmp_path / "run")
    assert EnsembleStore(tmp_path / "run").missing_blocks() == [2, 3]
    wrote[:] = wrote[:1]
    monkeypatch.setattr(EnsembleStore, "stream_block", lambda *a: (wrote.append(a[1]), write(*a))[1])
    same(whole, many(**FULL, store=tmp_path / "run"))
    assert wrote[1:] == [2, 3]
    same(whole, many(**FULL, store=tmp_path / "run"))  # finished: nothing runs
    assert len(wrote) == 3
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_another_ensemble_is_refused_and_the_dataset_is_lazy(tmp_path):
    path, options = tmp_path / "run", {"steps": 20, "save_every": 5, "block": 4}
    ensemble = many(**options, store=path, coordinates={"angle": ANGLES})
    data = ensemble.to_xarray()
    assert "rows" not in ensemble.__dict__  # nothing was loaded
    assert data.q.dims == ("trajectory", "t", "q_0", "q_1")
    np.testing.assert_array_equal(data.q.isel(trajectory=7), ensemble.q[7])
    np.testing.assert_array_equal(data.angle, ANGLES)
    np.testing.assert_allclose(data.t, 0.1 * np.arange(5), rtol=1e-13)
    assert list(data.status.values) == ["OK"] * 11
    for other in ({"dt": 0.01}, {"steps": 25}, {"observe": {"x": lambda q, p: q[0, 0]}}, {"method": hx.SHAKE()}):
        with pytest.raises(hx.InputError, match="the store holds a run"):
            many(**(options | other), store=path)
    with pytest.raises(hx.InputError, match="another q0"):
        hx.simulate_ensemble(PROBLEM.system, hx.RATTLE(), Q0[::-1], P0, dt=0.02, **options, store=path)
    with pytest.raises(hx.InputError, match="backend"):
        many(**options, store=path, backend="array")
    with pytest.raises(hx.HolonomixError, match="angle"):
        many(**options, coordinates={"angle": ANGLES[:3]})


def test_an_executor_gives_the_same_bits(tmp_path):
    plain = many(**FULL)
    with ThreadPoolExecutor(2) as pool:
        same(plain, many(**FULL, executor=pool, block=4))
        same(plain, many(**FULL, executor=pool, block=4, store=tmp_path / "run"))
    same(plain, many(**FULL, executor=lambda: ThreadPoolExecutor(1)))
    with pytest.raises(hx.InputError, match="submit"):
        many(**FULL, executor=2)


def test_nothing_depends_on_where_chunks_end(tmp_path, monkeypatch):
    """Nor do the step numbers of rows that a trajectory does not have, or the order of passages in a store."""
    monkeypatch.setattr(run, "FIRST_CHUNK", {True: 1000})
    whole = many(**FULL, block=3, store=tmp_path / "whole")
    monkeypatch.setattr(run, "FIRST_CHUNK", {True: 7})
    monkeypatch.setattr(run, "CHUNK_SECONDS", 0.0)
    same(whole, many(**FULL, block=3, store=tmp_path / "chunks"))
    assert contents(tmp_path / "chunks") == contents(tmp_path / "whole")


def test_parameters_and_steps_travel_with_their_trajectories():
    def potential(q, params):
        return 0.5 * params["k"] * params["m"] * q @ q

    system = hx.System(potential, params={"k": np.linspace(1.0, 2.0, 7), "m": 2.0})
    options = {"dt": np.linspace(0.01, 0.02, 7), "steps": 10, "in_axes": {"params": {"k": 0, "m": None}}}
    run = lambda **more: hx.simulate_ensemble(
        system, hx.StormerVerlet(), np.ones((7, 2)), np.zeros((7, 2)), **options, **more
    )
    with ThreadPoolExecutor(1) as pool:
        same(run(), run(executor=pool, block=2))


def test_errors_of_workers_arrive_and_losses_are_bounded():
    class Dying(ThreadPoolExecutor):
        def submit(self, fn, /, *args):
            def lost():
                raise EOFError("the worker is gone")

            return super().submit(lost)

    with Dying(1) as pool, pytest.raises(hx.HolonomixError, match="died 3 times"):
        many(steps=3, executor=pool)


def _die_once(path: str) -> None:
    """An initializer of workers: the second block that this process gets kills it, once for all processes."""
    run = executors.run_block
    count = [0]

    def dying(*args):
        count[0] += 1
        if count[0] == 2 and not os.path.exists(path):
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run(*args)

    executors.run_block = dying


@pytest.mark.slow
def test_a_killed_worker_of_a_process_pool(tmp_path):
    whole = many(**FULL, block=2, store=tmp_path / "whole")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, context, _die_once, (str(tmp_path / "died"),)) as pool:
        same(whole, many(**FULL, block=2, store=tmp_path / "run", executor=pool))
    assert (tmp_path / "died").exists()
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    with ProcessPoolExecutor(1, context) as pool:
        same(many(**FULL, block=6, executor=pool), whole)


@pytest.mark.slow
def test_a_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            whole = many(**FULL, block=2, store=tmp_path / "whole")
            client.run(_die_once, str(tmp_path / "died"))
            same(whole, many(**FULL, block=2, store=tmp_path / "run", executor=client.get_executor()))
    assert (tmp_path / "died").exists()
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_without_cloudpickle(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with ThreadPoolExecutor(1) as pool, pytest.raises(hx.InputError, match="cloudpickle"):
        many(steps=3, executor=pool)
