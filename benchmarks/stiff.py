"""Linearly implicit steps: what they cost beside RATTLE, along long chains, and against small explicit steps.

    python benchmarks/stiff.py

1. Z&S on the penalized chain of ten against RATTLE with Newton on the rigid one, both compiled (goal: no dearer).
2. A Z&S step on penalized chains of 100 to 10 000 links (goal: linear in the length).
3. The DNA chain over the same simulated time, velocity Verlet at h = 0.2 against Z&S at h = 1.2 (goal: 3 times faster).

Times are the least CPU time of several runs; compilation is not counted.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import holonomix as hx


def least(system: Any, method: Any, problem: Any, h: float, steps: int, backend: str = "auto", repeats: int = 5) -> Any:
    """Seconds of CPU time a step, and the solution of the last run."""
    best, sol = np.inf, None
    for k in range(repeats + 1):
        began = time.process_time()
        sol = hx.simulate(system, method, problem.q0, problem.p0, dt=h, steps=steps, save_every=steps, backend=backend)
        if k:
            best = min(best, time.process_time() - began)
    assert sol is not None
    return best / steps, sol


def against_rattle() -> bool:
    rigid, stiff = hx.models.chain(10), hx.models.penalized_chain(10, 20.0)
    costs = {}
    for name, system, method in (
        ("RATTLE(Newton)", rigid.system, hx.RATTLE()),
        ("ZhangSkeel", stiff.system, hx.ZhangSkeel(0.4)),
        ("ZhangSkeelSimplified", stiff.system, hx.ZhangSkeelSimplified(0.4)),
    ):
        costs[name], sol = least(system, method, rigid, 0.05, 40_000)
        print(f"  {name:22} {1e9 * costs[name]:8.0f} ns, {sol.stats['operations']} operations, {sol.stats['backend']}")
    ratio = costs["ZhangSkeel"] / costs["RATTLE(Newton)"]
    print(f"  Z&S / RATTLE = {ratio:.2f} (goal: at most 1)")
    return ratio <= 1


def along_chains() -> bool:
    found = []
    for links in (100, 1000, 10_000):
        problem = hx.models.penalized_chain(links, 20.0)
        seconds, _ = least(problem.system, hx.ZhangSkeel(0.4), problem, 0.01, max(20, 100_000 // links), "array", 3)
        found.append(seconds)
        print(f"  {links:6d} links: {1e6 * seconds:9.1f} us per step, {1e9 * seconds / links:6.1f} ns per link")
    power = np.log(found[-1] / found[-2]) / np.log(10)
    print(f"  cost grows as length^{power:.2f} from 1000 to 10 000 (goal: 1)")
    return power < 1.3


def against_small_steps() -> bool:
    problem = hx.models.dna_chain()
    costs = {}
    for name, method, h in (("StormerVerlet", hx.StormerVerlet(), 0.2), ("ZhangSkeel", hx.ZhangSkeel(0.3), 1.2)):
        for backend in ("array", "native", "auto"):
            steps = round(24_000 / h)
            seconds, sol = least(problem.system, method, problem, h, steps, backend)
            costs[name, backend] = seconds / h
            print(
                f"  {name:14} h {h:g}, {backend:6}: {1e6 * seconds:7.2f} us, {1e6 * seconds / h:7.2f} a time unit "
                f"({sol.stats['backend']})"
            )
    ratio = {b: costs["StormerVerlet", b] / costs["ZhangSkeel", b] for b in ("native", "auto")}
    print(f"  Verlet / Z&S = {ratio['auto']:.2f} by default, {ratio['native']:.2f} native (goal: at least 3)")
    return ratio["auto"] >= 3


def main() -> int:
    outcomes = []
    for title, run in (
        ("Z&S on the penalized chain of ten against RATTLE", against_rattle),
        ("Z&S along chains", along_chains),
        ("DNA chain: large linearly implicit steps against small explicit ones", against_small_steps),
    ):
        print(title)
        outcomes.append(run())
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
