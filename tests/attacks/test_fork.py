"""A process that was forked after XLA started is told so at once; it does not hang."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import multiprocessing, os, sys, time, warnings
from concurrent.futures import ProcessPoolExecutor
import numpy as np, jax.numpy as jnp
import holonomix as hx

warnings.simplefilter("ignore")
system = hx.System(lambda q: q[1], lambda q: jnp.array([q @ q - 1.0]))
q = np.array([1.0, 0.0])


def go(kind):
    began = time.monotonic()
    many = np.stack([q, q])
    calls = {
        "native": lambda: hx.simulate(system, hx.RATTLE(), q, 0 * q, dt=0.01, steps=3, backend="native"),
        "array": lambda: hx.simulate(system, hx.RATTLE(), q, 0 * q, dt=0.01, steps=3, backend="array"),
        "ensemble": lambda: hx.simulate_ensemble(system, hx.RATTLE(), many, 0 * many, dt=0.01, steps=3),
        "integrate": lambda: hx.integrate(system, hx.RATTLE(), q, 0 * q, dt=0.01, steps=3),
        "project": lambda: hx.project(system, q, 0 * q),
        "system": lambda: hx.System(lambda q: q[0]),
    }
    try:
        calls[kind]()
        return "ran"
    except hx.HolonomixError as error:
        assert time.monotonic() - began < 1.0
        return str(error)


def forked(kind, way):
    if way == "os.fork":
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, go(kind).encode())
            os._exit(0)
        os.close(write)
        return os.read(read, 10_000).decode()
    context = multiprocessing.get_context("fork")
    if way == "pool":
        with context.Pool(1) as pool:
            return pool.apply(go, (kind,))
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(go, kind).result()


if __name__ == "__main__":
    assert go(sys.argv[1] if sys.argv[3] == "started" else "system") == "ran" or sys.argv[3] != "started"
    print(forked(sys.argv[1], sys.argv[2]))
"""


def run(tmp_path, *words: str) -> str:
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, str(file), *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("way", ["os.fork", "pool", "executor"])
@pytest.mark.parametrize("kind", ["native", "array", "ensemble", "integrate", "project", "system"])
def test_a_forked_process_is_refused_at_once(tmp_path, kind, way):
    assert "spawn" in run(tmp_path, kind, way, "started")


def test_executors_that_fork_are_refused():
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    import numpy as np

    import holonomix as hx

    problem = hx.models.planar_pendulum()
    q, p = (np.stack([np.asarray(x)] * 2) for x in (problem.q0, problem.p0))
    for make in (lambda: ProcessPoolExecutor(1, multiprocessing.get_context("fork")),):
        with make() as pool, pytest.raises(hx.InputError, match="spawn"):
            hx.simulate_ensemble(problem.system, hx.RATTLE(), q, p, dt=0.01, steps=2, executor=pool)
        with pytest.raises(hx.InputError, match="spawn"):
            hx.simulate_ensemble(problem.system, hx.RATTLE(), q, p, dt=0.01, steps=2, executor=make)
