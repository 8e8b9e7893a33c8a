"""The array path (plain XLA, no kernel) against hand-written C, in one run: a RATTLE step of the double pendulum.

    python benchmarks/array_path.py

Both sides do the same Newton sweeps; the C program is benchmarks/c/rattle.c at -O3. Times are least CPU times.
"""

from __future__ import annotations

import time

import numpy as np
from kernels import TOL, c_library, chain_arguments, least

import holonomix as hx

STEPS, TARGET, COMPILE = 1_000_000, 8.0, 3.0


def main() -> None:
    problem = hx.models.double_pendulum()
    method = hx.RATTLE(solver=hx.Newton(tol=TOL))
    library = c_library()
    q, p, im, l2 = chain_arguments(problem)

    def c(steps: int) -> None:
        a, b = q.copy(), p.copy()
        library.pendulum(a.ctypes.data, b.ctypes.data, im.ctypes.data, l2.ctypes.data, problem.dt, 1.0, TOL / 2, steps)

    def ours() -> hx.Solution:
        return hx.simulate(
            problem.system,
            method,
            problem.q0,
            problem.p0,
            dt=problem.dt,
            steps=STEPS,
            save_every=10_000,
            backend="array",
        )

    began = time.process_time()
    hx.simulate(
        problem.system, method, problem.q0, problem.p0, dt=problem.dt, steps=10_000, save_every=10_000, backend="array"
    )
    first = time.process_time() - began
    times = []
    for _ in range(3):
        began = time.process_time()
        ours()
        times.append((time.process_time() - began) / STEPS)
    theirs = least({"C": c}, 2.0)["C"]
    ratio = min(times) / theirs
    print(f"array path {min(times) * 1e9:.0f} ns, C {theirs * 1e9:.0f} ns per step over {STEPS:,} steps")
    print(f"ratio {ratio:.1f}, target {TARGET:g}: {'pass' if ratio <= TARGET else 'MISS'}")
    print(f"compile {first:.2f} s, target {COMPILE:g} s: {'pass' if first <= COMPILE else 'MISS'}")
    assert np.isfinite(times).all()


if __name__ == "__main__":
    main()
