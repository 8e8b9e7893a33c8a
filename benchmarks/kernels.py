"""Compiled kernels against hand-written C, in one run: speed of a step, compile times.

    python benchmarks/kernels.py

Both sides do the same Newton sweeps to the same tolerance; the table gives the ratio of times with the target of each
row. Times are the least CPU time of many short runs, so other work on the machine disturbs them little.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix import compiler as kernels
from holonomix.run.stepper import make_stepper

HERE = Path(__file__).parent
TOL = 1e-12  # of max|d^2 - L^2|; the C code halves its constraints


def c_library() -> ctypes.CDLL:
    out = Path(tempfile.mkdtemp()) / "rattle.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-O3", "-march=native", "-shared", "-fPIC", HERE / "c" / "rattle.c", "-o", out, "-lm"], check=True
    )
    library = ctypes.CDLL(str(out))
    for name in ("pendulum", "chain", "pendula"):
        fn = getattr(library, name)
        fn.restype = ctypes.c_long
        fn.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_double] * 3 + [ctypes.c_long] * (2 if name == "pendula" else 1)
    return library


def least(fns: dict, seconds: float = 2.0, target: float = 2e-3) -> dict[str, float]:
    """The least time of one call of each, taken in turns; `fns` maps names to `fn(steps)`; result in seconds a step."""
    steps = {}
    for name, fn in fns.items():
        n = 1
        while True:
            start = time.thread_time()
            fn(n)
            if time.thread_time() - start > target / 2:
                break
            n *= 2
        steps[name] = n
    best = dict.fromkeys(fns, np.inf)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, fn in fns.items():
            start = time.thread_time()
            fn(steps[name])
            best[name] = min(best[name], (time.thread_time() - start) / steps[name])
    return best


def to_the_end(carry, steps: int):
    """The carry of a run whose trajectories all took `steps` steps: one that stops early is fast."""
    if not np.all(np.asarray(carry.state.n) == steps):
        reason = hx.Status(int(np.max(np.asarray(carry.status)))).message
        raise RuntimeError(f"a run of {steps} steps stopped after {int(np.min(np.asarray(carry.state.n)))}: {reason}")
    return carry


def prepare(problem, method):
    """The loop of a run, with an example carry and constants."""
    stepper, consts = make_stepper(problem.system, method, dt=problem.dt)
    carry = stepper.start(consts, jnp.asarray(problem.q0), jnp.asarray(problem.p0))
    return stepper, *jax.tree.map(np.asarray, (carry, consts))


def compile_time(problem, method) -> tuple[float, kernels.Program]:
    """Seconds from the user's functions to machine code for one trajectory, without any cache."""
    loop, carry, consts = prepare(problem, method)
    jax.clear_caches()
    start = time.thread_time()
    program = kernels.lower(loop, carry, consts)
    kernels.build(program).compile(1)
    return time.thread_time() - start, program


def chain_arguments(problem):
    q, p = np.array(problem.q0, float).reshape(-1), np.array(problem.p0, float).reshape(-1)
    bobs = q.reshape(-1, 2)
    rods = np.diff(bobs, axis=0, prepend=np.zeros((1, 2)))
    return q, p, np.ones(len(bobs)), (rods**2).sum(1)


def single(library, name: str, problem, method, seconds: float):
    loop, carry, consts = prepare(problem, method)
    runner = kernels.build(kernels.lower(loop, carry, consts))
    q, p, im, l2 = chain_arguments(problem)

    def c(steps: int):
        a, b = q.copy(), p.copy()
        fn = getattr(library, name)
        return a, b, fn(a.ctypes.data, b.ctypes.data, im.ctypes.data, l2.ctypes.data, problem.dt, 1.0, TOL / 2, steps)

    def ours(steps: int):
        return to_the_end(runner.run_one(carry, consts, rows=1, every=steps)[0], steps)

    check, got = c(200), ours(200)
    np.testing.assert_allclose(np.ravel(got.state.q), check[0], atol=1e-9)
    sweeps = (int(got.iterations), check[2])
    return least({"C": c, "ours": ours}, seconds), sweeps


def batch(library, problem, method, count: int, seconds: float):
    loop, carry, consts = prepare(problem, method)
    runner = kernels.build(kernels.lower(loop, carry, consts), threads=1)
    q, p, im, l2 = chain_arguments(problem)
    rng = np.random.default_rng(0)
    # starts on the manifold: both rods turned by random angles
    angles = rng.uniform(-1, 1, (count, 2))
    rods = np.sqrt(l2)[:, None] * np.stack([np.sin(angles), -np.cos(angles)], -1)
    starts = np.cumsum(rods, 1).reshape(count, 4)
    spread = jax.tree.map(lambda a: np.broadcast_to(a, (count, *a.shape)).copy(), carry)
    import equinox as eqx

    spread = eqx.tree_at(lambda c: c.state.q, spread, starts.reshape(count, *np.shape(carry.state.q)))

    def aligned(x):
        raw = np.empty(x.size + 8)
        shift = (-raw.ctypes.data // 8) % 8
        out = raw[shift : shift + x.size].reshape(x.shape)
        out[:] = x
        return out

    lanes = lambda x: x.reshape(count // 8, 8, 4).transpose(0, 2, 1)
    c_q, c_p = aligned(lanes(starts)), aligned(np.zeros((count // 8, 4, 8)))

    def c(steps: int):
        a, b = aligned(c_q), aligned(c_p)
        args = (
            a.ctypes.data,
            b.ctypes.data,
            im.ctypes.data,
            l2.ctypes.data,
            problem.dt,
            1.0,
            TOL / 2,
            steps,
            count // 8,
        )
        return a, b, library.pendula(*args)

    def ours(steps: int):
        return to_the_end(runner.run(spread, consts, None, rows=1, every=steps)[0], steps)

    check, got = c(50), ours(50)
    np.testing.assert_allclose(got.state.q.reshape(count, 4), check[0].transpose(0, 2, 1).reshape(count, 4), atol=1e-9)
    best = least({"C": c, "ours": ours}, seconds, 2e-2)
    return {k: v / count for k, v in best.items()}


def main(seconds: float = 3.0) -> None:
    os.environ["HOLONOMIX_CACHE"] = ""
    library = c_library()
    method = hx.RATTLE(solver=hx.Newton(tol=TOL), compensated=False)
    pendulum, chain = hx.models.double_pendulum(), hx.models.chain(10)
    rows = []
    for name, problem, target in (("pendulum", pendulum, 1.5), ("chain", chain, 2.0)):
        times, (ours, theirs) = single(library, name, problem, method, seconds)
        ratio = times["ours"] / times["C"]
        what = "double pendulum" if name == "pendulum" else "chain of 10"
        rows.append(
            (f"{what}, one trajectory", f"{times['ours'] * 1e9:.0f} ns", f"{times['C'] * 1e9:.0f} ns", ratio, target)
        )
        print(f"{what}: {ours} Newton sweeps in 200 steps, C {theirs}")
    times = batch(library, pendulum, method, 1024, seconds)
    both = (f"{times[side] * 1e9:.1f} ns" for side in ("ours", "C"))
    rows.append(("double pendulum, batch of 1024, one core", *both, times["ours"] / times["C"], 1.3))
    print(f"{'':42}{'kernel':>10}{'C':>10}{'ratio':>8}{'target':>8}")
    for what, ours, theirs, ratio, target in rows:
        print(f"{what:42}{ours:>10}{theirs:>10}{ratio:8.2f}{target:8.1f}  {'pass' if ratio <= target else 'MISS'}")
    for what, problem, target in (("double pendulum", pendulum, 0.5), ("chain of 10", chain, 2.0)):
        taken, program = min((compile_time(problem, hx.RATTLE()) for _ in range(3)), key=lambda x: x[0])
        line = f"compile {what}, {program.operations} operations"
        print(f"{line:42}{taken:9.2f}s{'':>10}{'':8}{target:7.1f}s  {'pass' if taken <= target else 'MISS'}")


if __name__ == "__main__":
    main()
