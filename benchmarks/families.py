"""Every family of methods on long chains, beside RATTLE in the same run.

    python benchmarks/families.py [--quick]

Times are processor seconds of this process. Claims: on a chain of 80 links a step of HBVM(4, 2), LineIntegral(4),
LobattoIIIAB(3) and Gauss(2) costs at most 30 steps of RATTLE; from 100 to 1 000 links a step grows with an exponent of
at most 1.1; 100 links written as one plain function cost at most 1.3 times what they cost as `hx.Distance`.
"""

from __future__ import annotations

import math
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax.numpy as jnp

import holonomix as hx

FAMILIES = {"HBVM(4, 2)": hx.HBVM(4, 2), "LineIntegral(4)": hx.LineIntegral(4), "LobattoIIIAB(3)": hx.LobattoIIIAB(3)}
FAMILIES["Gauss(2)"] = hx.Gauss(2)
RATIO, EXPONENT, PLAIN = 30.0, 1.1, 1.3


def links(q):
    """A chain hung from the origin as one plain function, rods of sqrt 5."""
    rods = jnp.concatenate([q[:1], q[1:] - q[:-1]])
    return jnp.sum(rods**2, axis=1) - 5.0


def seconds_per_step(problem: hx.Problem, method, steps: int, system: hx.System | None = None) -> float:
    """The difference of a long and a short run, the best of each, so that compiling and checking do not count."""
    run = lambda k: hx.simulate(
        system or problem.system, method, problem.q0, problem.p0, dt=0.01, steps=k, save_every=k
    )
    short = max(1, steps // 5)
    run(short)
    best = {short: math.inf, steps: math.inf}
    for _ in range(3):
        for k in best:
            began = time.process_time()
            run(k)
            best[k] = min(best[k], time.process_time() - began)
    return (best[steps] - best[short]) / (steps - short)


def row(what: str, value: float, goal: float, note: str) -> bool:
    good = value <= goal
    print(f"{what:<48} {value:8.2f}   goal <= {goal:<5g} {'pass' if good else 'MISS'}   {note}", flush=True)
    return good


def main() -> int:
    quick = "--quick" in sys.argv
    count = 2_000 if quick else 20_000
    good = True
    chain = hx.models.chain(80)
    unit = seconds_per_step(chain, hx.RATTLE(), 5 * count)
    for name, method in FAMILIES.items():
        spent = seconds_per_step(chain, method, count)
        good &= row(f"chain(80), {name} over RATTLE", spent / unit, RATIO, f"{spent * 1e6:.1f} us, {unit * 1e6:.1f} us")
    sizes = (100, 1000)
    for name, method in {"RATTLE": hx.RATTLE(), **FAMILIES}.items():
        times = [seconds_per_step(hx.models.chain(n), method, 300 * count // n) for n in sizes]
        exponent = math.log(times[1] / times[0]) / math.log(sizes[1] / sizes[0])
        good &= row(f"chain(1000) over chain(100), {name}, exponent", exponent, EXPONENT, f"{times[1] * 1e6:.0f} us")
    chain = hx.models.chain(100)
    plain = hx.System(lambda q: jnp.sum(q[:, 1]), links)
    pairs = [(i - 1, i) for i in range(100)]
    declared = hx.System(lambda q: jnp.sum(q[:, 1]), hx.Distance(pairs, 5.0**0.5))
    times = [seconds_per_step(chain, hx.RATTLE(), 2 * count, system) for system in (declared, plain)]
    good &= row("chain(100), a plain function over Distance", times[1] / times[0], PLAIN, f"{times[1] * 1e6:.1f} us")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
