"""Chains of pendula and sets of rigid molecules: time a step against size, and against hand-written C.

    python benchmarks/chain.py [--quick]

Times are processor seconds of this process, pinned to one core. Claims: time a step grows with an exponent of at most
1.1 from 1 000 to 100 000 links; at 1 000 links a step costs at most four times the C program (`c_structure/chain.c`,
same Newton rule); the constraint error at 100 000 links is at most 8 ulp of the coordinates times the row norm; a
molecule among 1 000 costs at most twice what one molecule costs by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import holonomix as hx  # noqa: E402

HERE = Path(__file__).parent


def chain(n: int) -> tuple[hx.System, np.ndarray]:
    """n links of unit length, straight at rest under gravity, as the C program starts."""
    i = np.arange(1, n + 1)
    pairs = np.stack([i - 2, i - 1], 1)
    return hx.System(lambda q: jnp.sum(q[:, 1]), hx.Distance(pairs, 1.0)), np.stack(
        [i * np.sqrt(0.2), -i * np.sqrt(0.8)], 1
    )


def seconds_a_step(system: hx.System, q: np.ndarray, p: np.ndarray, dt: float, steps: int) -> tuple[float, hx.Solution]:
    """The difference of a long and a short run, the best of each, so that compiling and checking do not count."""
    run = lambda k: hx.simulate(system, hx.RATTLE(), q, p, dt=dt, steps=k, save_every=k)
    run(1)
    began = time.process_time()
    run(steps)
    steps = max(steps, int(steps * 0.2 / (time.process_time() - began)))  # what a call costs varies by a millisecond
    short = max(1, steps // 10)
    best = {short: np.inf, steps: np.inf}
    for _ in range(4):
        for k in best:
            began = time.process_time()
            solution = run(k)
            best[k] = min(best[k], time.process_time() - began)
    return (best[steps] - best[short]) / (steps - short), solution


def by_hand(n: int, steps: int, dt: float) -> tuple[float, float]:
    """Seconds a step of the C program and its mean number of Newton sweeps."""
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "chain"
        flags = ["-O3", "-march=native", "-o", str(binary), str(HERE / "c_structure" / "chain.c"), "-lm"]
        subprocess.run(["gcc", *flags], check=True)
        out = [
            subprocess.run([str(binary), str(n), str(steps), str(dt)], check=True, capture_output=True)
            for _ in range(3)
        ]
    rows = [list(map(float, x.stdout.split())) for x in out]
    return min(row[0] for row in rows), rows[0][1]


def ulps(solution: hx.Solution) -> float:
    """The constraint error at the end in ulp of the largest coordinate times the row norm."""
    q = jnp.asarray(solution.q[-1])
    squares = jax.tree.map(jnp.square, solution.system.linearize(q)).row_sizes(jnp.ones_like(q))
    error = jnp.abs(solution.system.constraint(q)) / jnp.sqrt(squares)
    return float(jnp.max(error) / (jnp.max(jnp.abs(q)) * np.finfo(float).eps))


def main(quick: bool = False) -> None:
    sizes = (1_000, 10_000) if quick else (1_000, 3_000, 10_000, 30_000, 100_000)
    times = []
    print(f"{'links':>8} {'ours, us/step':>14} {'C, us/step':>12} {'ratio':>7} {'sweeps':>7} {'ulp':>6}")
    for n in sizes:
        system, q = chain(n)
        steps, dt = max(20, 1_000_000 // n), 0.3 / np.sqrt(n)
        ours, solution = seconds_a_step(system, q, np.zeros_like(q), dt, steps)
        theirs, _ = by_hand(n, steps, dt)
        sweeps = solution.stats["mean_iterations"]
        print(
            f"{n:8d} {ours * 1e6:14.1f} {theirs * 1e6:12.1f} {ours / theirs:7.2f} {sweeps:7.2f} {ulps(solution):6.2f}"
        )
        times.append(ours)
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    print(f"exponent of the time a step: {slope:.3f}")
    for n in (1, 1000):
        problem = hx.models.rigid_molecules(n, temperature=1.0)
        steps = 100_000 if n == 1 else 1_000
        cost, solution = seconds_a_step(problem.system, problem.q0, problem.p0, problem.dt, steps)
        backend, sweeps = solution.stats["backend"], solution.stats["mean_iterations"]
        print(f"{n:5d} molecules ({backend}): {cost / n * 1e9:8.1f} ns a molecule and step, {sweeps:.2f} sweeps")


if __name__ == "__main__":
    main("--quick" in sys.argv)
