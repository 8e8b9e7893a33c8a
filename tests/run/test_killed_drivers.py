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

# Workers hold after HELD blocks until there is a file "go", so that the first driver is killed in the middle however
# fast the machine is.
HELD = 6
HANG = 1200  # seconds after which something hangs, on any machine
DRIVER = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import holonomix as hx

kind, folder = sys.argv[1], Path(sys.argv[2])


def prepare(folder, held):
    from holonomix.run import executors
    from test_ensemble_blocks import _die_once

    _die_once(str(folder / "died"))
    run = executors.run_block

    def holding(*args):
        while len(list((folder / "run/holonomix/blocks").glob("*.json"))) >= held and not (folder / "go").exists():
            time.sleep(0.01)
        return run(*args)

    executors.run_block = holding


def run(executor=None):
    problem = hx.models.double_pendulum()
    q0 = np.broadcast_to(problem.q0, (12, 2, 2))
    _, p = hx.project(problem.system, problem.q0, np.ones((2, 2)))
    p0 = np.linspace(0.1, 0.2, 12)[:, None, None] * np.asarray(p)
    path = folder / ("whole" if kind == "alone" else "run")
    hx.simulate_ensemble(problem.system, hx.RATTLE(), q0, p0, dt=0.01, steps=600, save_every=60, block=1,
                         observe={"height": lambda q, p: q[1, 1]}, store=path, executor=executor)


if __name__ == "__main__":
    given = folder, int(sys.argv[3])
    if kind == "alone":
        run()
    elif kind == "processes":
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), prepare, given) as pool:
            run(pool)
    else:
        import distributed

        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            with distributed.Client(cluster) as client:
                client.run(prepare, *given)
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
    command = [sys.executable, str(tmp_path / "driver.py"), kind, str(tmp_path), str(HELD)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [Path(__file__).parent, *sys.path]))}
    subprocess.run([*command[:2], "alone", *command[3:]], check=True, timeout=HANG, env=environment)
    first = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + HANG
        while not ((tmp_path / "died").exists() and finished(tmp_path) >= 4):
            assert first.poll() is None and time.monotonic() < deadline, f"{finished(tmp_path)} blocks were finished"
            time.sleep(0.002)
        first.send_signal(signal.SIGKILL)
        assert first.wait(HANG) == -signal.SIGKILL
        before = finished(tmp_path)
        (tmp_path / "go").touch()
        subprocess.run(command, check=True, timeout=HANG, env=environment)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)  # workers that the first driver left behind
    assert before < 12 == finished(tmp_path)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
