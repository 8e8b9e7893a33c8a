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
    began = time.process_time()
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
        assert time.process_time() - began < 1.0
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


FORMS = """
import os, select, signal, sys, time, warnings
import numpy as np
import holonomix as hx
import jax, jax.numpy as jnp

warnings.simplefilter("ignore")
jnp.ones(2) + 1.0
if "late" not in sys.argv:
    problem = hx.models.planar_pendulum()
    system, q, p = problem.system, problem.q0, problem.p0
    sol = hx.simulate(problem, hx.RATTLE(), steps=2)
    many = hx.simulate_ensemble(system, hx.RATTLE(), np.stack([q] * 2), np.stack([p] * 2), dt=0.01, steps=2)
    product = jax.jit(lambda x: x @ x)
    large = jnp.ones((2000, 2000))
    product(large).block_until_ready()
forms = {
    "energy": lambda: sol.energy(),
    "constraint error": lambda: sol.constraint_error(),
    "xarray": lambda: sol.to_xarray(),
    "ensemble xarray": lambda: many.to_xarray(),
    "certify": lambda: hx.certify(problem, hx.RATTLE()),
    "stability": lambda: hx.certificates.linear_stability(hx.RATTLE()),
    "multipliers": lambda: system.multipliers(q, p),
    "potential": lambda: system.prepare(q).potential(q),
    "model": lambda: hx.models.four_bar(),
    "compiled before": lambda: product(large).block_until_ready(),
    "lower": lambda: jax.jit(lambda x: x + 1.0).lower(large).compile(),
    "read": lambda: print(float(sol.q[0, 0]), float(np.asarray(large)[0, 0])),
    "late": lambda: hx.System(lambda q: q[0]).prepare(jnp.ones(2)),
}
for name in sys.argv[1:]:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        began = time.process_time()
        try:
            forms[name]()
            text = "ran"
        except hx.HolonomixError as error:
            text = str(error) if time.process_time() - began < 1.0 else "late"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    ended = select.select([read], [], [], 60)[0]
    print(name, "|", os.read(read, 10_000).decode() if ended else "hangs")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
FORKED = ["energy", "constraint error", "xarray", "ensemble xarray", "certify", "stability", "multipliers", "potential"]
FORKED += ["model", "compiled before", "lower"]


@pytest.mark.parametrize(
    "names", [pytest.param([*FORKED, "read"], id="many", marks=pytest.mark.slow), pytest.param(["late"], id="late")]
)
def test_every_computation_in_a_forked_process_is_refused_at_once(names):
    done = subprocess.run([sys.executable, "-c", FORMS, *names], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = dict(line.split(" | ") for line in done.stdout.splitlines() if " | " in line)
    assert list(found) == names
    assert found.pop("read", "ran") == "ran"  # values from before the fork need no threads
    assert all("spawn" in text for text in found.values()), found


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
