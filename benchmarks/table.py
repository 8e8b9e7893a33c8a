"""The table of goals: large systems, every family of methods, first steps. Prints each figure with its goal.

    python benchmarks/table.py [part ...]        (parts: see PARTS; all by default, a few minutes on a quiet machine)

Times are processor seconds, the least of several runs, and ratios are taken within one run; every row is measured by
one function of the script that it belongs to. A part that takes longer than `LIMIT` seconds, or fails, is a miss.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # waiting threads of BLAS would count as CPU time

import numpy as np
from rows import Row, print_rows

COUNT = 2_000  # steps, in the unit of `families`
CHAINS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
LIMIT = 150  # seconds


def of_family(name: str) -> Callable[[], Iterator[Row]]:
    def measure() -> Iterator[Row]:
        import families

        return getattr(families, name)(COUNT)

    return measure


def chains() -> Iterator[Row]:
    """RATTLE on chains against hand-written C with the same rule."""
    import chain

    for n in CHAINS:
        system, q = chain.chain(n)
        steps, dt = max(20, 300_000 // n), 0.3 / np.sqrt(n)
        ours, solution = chain.seconds_a_step(system, q, np.zeros_like(q), dt, steps)
        theirs, sweeps = chain.by_hand(n, steps, dt)
        mine = solution.stats["mean_iterations"]
        note = f"{ours * 1e6:.1f} us, C {theirs * 1e6:.1f} us; {mine:.2f} sweeps, C {sweeps:.2f}"
        yield Row(f"chain of {n} links over C", ours / theirs, 2.0, f"{note}; {solution.stats['backend']}")


def small_steps() -> Iterator[Row]:
    """The DNA chain over one unit of time: velocity Verlet at h = 0.2 over Z&S at h = 1.2."""
    import families

    import holonomix as hx

    problem, costs = hx.models.dna_chain(), []
    for method, h in ((hx.StormerVerlet(), 0.2), (hx.ZhangSkeel(0.3), 1.2)):
        costs.append(families.seconds_per_step(problem, method, round(40_000 / h), dt=h, repeats=8, least=0.0) / h)
    note = f"{costs[0] * 1e6:.2f} us, {costs[1] * 1e6:.2f} us per unit of time"
    yield Row("DNA chain, Verlet over Z&S", costs[0] / costs[1], 3.0, note, least=True)


def batch() -> Iterator[Row]:
    """1 024 double pendula on one core against C with SIMD types."""
    import kernels

    import holonomix as hx

    method = hx.RATTLE(solver=hx.Newton(tol=kernels.TOL), compensated=False)
    times = kernels.batch(kernels.c_library(), hx.models.double_pendulum(), method, 1024, 4.0)
    note = f"{times['ours'] * 1e9:.1f} ns, C {times['C'] * 1e9:.1f} ns"
    yield Row("double pendulum, batch of 1 024, over SIMD C", times["ours"] / times["C"], 1.3, note)


def first_steps() -> Iterator[Row]:
    """New processes, with an empty cache of compiled programs and with the one that the first has filled."""
    import first_step

    for case, wanted in (("five_bar", 2), ("net_30", 1), ("gradient", 2)):
        with tempfile.TemporaryDirectory() as cache:
            for which in ("cold", "second process")[:wanted]:
                goal = first_step.GOALS[case][which != "cold"]
                yield Row(f"first step, {case}, {which}, s", first_step.seconds(case, "auto", cache), goal)


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    **{name: of_family(name) for name in ("ratios", "exponents", "rod", "redundant", "plain_function", "cloth")},
    "chains": chains,
    "small_steps": small_steps,
    "batch": batch,
    "first_steps": first_steps,
}


def main(names: list[str]) -> int:
    """Each part in a process of its own, so that none is disturbed by the others and none runs on for ever."""
    if names[:1] == ["--part"]:
        return print_rows([PARTS[names[1]]()])
    missed = 0
    for name in names or PARTS:
        command = [sys.executable, str(Path(__file__)), "--part", name]
        with subprocess.Popen(command, start_new_session=True) as process:
            try:
                missed += process.wait(LIMIT) != 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started
                print(f"{name}: more than {LIMIT} s   MISS", flush=True)
                missed += 1
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
