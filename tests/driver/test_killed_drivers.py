"""The process that hands out the blocks of an ensemble is killed, beside one of its workers, and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .test_ensemble_blocks import contents

DRIVER = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import holonomix as hx

kind, folder = sys.argv[1], Path(sys.argv[2])


def slowly(q, p):
    return q[1, 1]


def run(executor=None):
    problem = hx.models.double_pendulum()
    q0 = np.broadcast_to(problem.q0, (12, 2, 2))
    _, p = hx.project(problem.system, problem.q0, np.ones((2, 2)))
    p0 = np.linspace(0.1, 0.2, 12)[:, None, None] * np.asarray(p)
    hx.simulate_ensemble(problem.system, hx.RATTLE(), q0, p0, dt=0.01, steps=60_000, save_every=6000, block=1,
                         observe={"height": slowly}, store=folder / ("whole" if kind == "alone" else "run"),
                         executor=executor)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[3])
    from test_ensemble_blocks import _die_once

    died = str(folder / "died")
    if kind == "alone":
        run()
    elif kind == "processes":
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), _die_once, (died,)) as pool:
            run(pool)
    else:
        import distributed

        with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster:
            with distributed.Client(cluster) as client:
                client.run(_die_once, died)
                run(client.get_executor())
"""


def finished(folder: Path) -> int:
    return len(list((folder / "run/holonomix/blocks").glob("*.json")))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_a_driver_and_a_worker_are_killed(tmp_path, kind):
    if kind == "dask":
        pytest.importorskip("distributed")
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "driver.py"), kind, str(tmp_path), str(Path(__file__).parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [Path(__file__).parent, *sys.path]))}
    subprocess.run([*command[:2], "alone", *command[3:]], check=True, timeout=300, env=environment)
    first = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while not ((tmp_path / "died").exists() and finished(tmp_path) >= 4):
            assert first.poll() is None and time.monotonic() < deadline, f"{finished(tmp_path)} blocks were finished"
            time.sleep(0.002)
        first.send_signal(signal.SIGKILL)
        assert first.wait(30) == -signal.SIGKILL
        before = finished(tmp_path)
        subprocess.run(command, check=True, timeout=300, env=environment)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)  # workers that the first driver left behind
    assert before < 12 == finished(tmp_path)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
