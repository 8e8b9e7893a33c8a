"""Every family of methods on long chains, beside RATTLE in the same run; nets, rods and an over-constrained linkage.

    python benchmarks/families.py [--quick]

Times are processor seconds of this process. Claims: on a chain of 80 links a step of HBVM(4, 2), LineIntegral(4),
LobattoIIIAB(3) and Gauss(2) costs at most 30 steps of RATTLE; from 100 to 1 000 links a step grows with an exponent of
at most 1.1; 100 links written as one plain function cost at most 1.3 times what they cost as `hx.Distance`; a step of
RATTLE takes at most 60 us for Bricard's linkage with all its 60 rows (rank 59), 2 ms for a net of 30 x 30 nodes with
1 740 rigid edges hung from two corners, and 1.5 us per node of a rod.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax.numpy as jnp
import numpy as np
from rows import Row, print_rows

import holonomix as hx

FAMILIES = {"HBVM(4, 2)": hx.HBVM(4, 2), "LineIntegral(4)": hx.LineIntegral(4), "LobattoIIIAB(3)": hx.LobattoIIIAB(3)}
FAMILIES["Gauss(2)"] = hx.Gauss(2)
LEAST = 0.2  # seconds
RATIO, EXPONENT, PLAIN = 30.0, 1.1, 1.3
LINKAGE, NET, NODE = 60e-6, 2e-3, 1.5e-6


def links(q):
    """A chain hung from the origin as one plain function, rods of sqrt 5."""
    rods = jnp.concatenate([q[:1], q[1:] - q[:-1]])
    return jnp.sum(rods**2, axis=1) - 5.0


def over_constrained() -> hx.Problem:
    """Bricard's linkage with the row that depends on the others."""
    m = hx.models.bricard_linkage(mechanism=True)
    problem = m.problem()
    for joint in m.joints:
        joint.dropped = set()
    mass = problem.system.mass
    system = hx.System(problem.system.potential_fn, m._terms(mass), mass=mass)
    return hx.Problem(system, problem.q0, problem.p0, 2e-3, 1.0)


def net(n: int) -> hx.Problem:
    """A net of rigid edges hung from two corners; it starts curved, because a flat one has dependent rows."""
    at = np.arange(n * n).reshape(n, n)
    ways = ((at[:, :-1], at[:, 1:]), (at[:-1], at[1:]))
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in ways])
    x, y = (u.ravel() / (n - 1) for u in np.meshgrid(np.arange(n), np.arange(n)))
    place = np.stack([x, 0.4 * np.sin(2.2 * x + 1) * np.cos(1.7 * y), y - 1.2 * x * (1 - x)], 1)
    held = [n * (n - 1), n * n - 1]
    free = np.setdiff1d(at, held)
    number = np.zeros(n * n, int)
    number[free], number[held] = np.arange(free.size), (-1, -2)
    lengths = np.linalg.norm(place[edges[:, 0]] - place[edges[:, 1]], axis=1)
    system = hx.System(lambda q: jnp.sum(q[:, 2]), hx.Distance(number[edges], lengths, anchors=place[held]))
    q = jnp.asarray(place[free])
    return hx.Problem(system, q, jnp.zeros_like(q), 1e-3, 1.0)


def seconds_per_step(
    problem: hx.Problem, method, steps: int, system: hx.System | None = None, dt=0.01, repeats: int = 3, least=LEAST
) -> float:
    """The difference of a long and a short run, the best of each, so that compiling and checking do not count.

    The long run has at least `steps` steps and takes at least `least` seconds: what a call costs varies by a
    millisecond.
    """
    run = lambda k: hx.simulate(system or problem.system, method, problem.q0, problem.p0, dt=dt, steps=k, save_every=k)
    run(1)
    began = time.process_time()
    run(steps)
    steps = max(steps, math.ceil(steps * least / (time.process_time() - began)))
    short = max(1, steps // 5)
    best = {short: math.inf, steps: math.inf}
    for _ in range(repeats):
        for k in best:
            began = time.process_time()
            run(k)
            best[k] = min(best[k], time.process_time() - began)
    return (best[steps] - best[short]) / (steps - short)


def ratios(count: int) -> Iterator[Row]:
    """A step of each family over one of RATTLE, chain of 80 links."""
    chain = hx.models.chain(80)
    unit = seconds_per_step(chain, hx.RATTLE(), 5 * count)
    for name, method in FAMILIES.items():
        spent = seconds_per_step(chain, method, count)
        yield Row(f"chain(80), {name} over RATTLE", spent / unit, RATIO, f"{spent * 1e6:.1f} us, {unit * 1e6:.1f} us")


def exponents(count: int) -> Iterator[Row]:
    """How a step grows from 100 to 1 000 links."""
    sizes = (100, 1000)
    for name, method in {"RATTLE": hx.RATTLE(), **FAMILIES}.items():
        times = [seconds_per_step(hx.models.chain(n), method, 300 * count // n) for n in sizes]
        exponent = math.log(times[1] / times[0]) / math.log(sizes[1] / sizes[0])
        yield Row(f"chain(1000) over chain(100), {name}, exponent", exponent, EXPONENT, f"{times[1] * 1e6:.0f} us")


def plain_function(count: int) -> Iterator[Row]:
    """100 links as one plain function over the same links as `hx.Distance`."""
    chain = hx.models.chain(100)
    plain = hx.System(lambda q: jnp.sum(q[:, 1]), links)
    pairs = [(i - 1, i) for i in range(100)]
    declared = hx.System(lambda q: jnp.sum(q[:, 1]), hx.Distance(pairs, 5.0**0.5))
    times = [seconds_per_step(chain, hx.RATTLE(), 2 * count, system) for system in (declared, plain)]
    yield Row("chain(100), a plain function over Distance", times[1] / times[0], PLAIN, f"{times[1] * 1e6:.1f} us")


def redundant(count: int) -> Iterator[Row]:
    """Bricard's linkage with all its rows."""
    linkage = over_constrained()
    method = hx.RATTLE(hx.SymmetricNewton(redundant="min-norm"))
    spent = seconds_per_step(linkage, method, 2 * count, dt=linkage.dt)
    rows = linkage.system.constraint_count(linkage.q0)
    yield Row(f"Bricard, {rows} rows of rank 59, min-norm, us", spent * 1e6, LINKAGE * 1e6)


def cloth(count: int) -> Iterator[Row]:
    """The net of 30 x 30 nodes."""
    problem = net(30)
    spent = seconds_per_step(problem, hx.RATTLE(), max(25, count // 20), dt=problem.dt)
    yield Row("net of 30 x 30 nodes, 1 740 edges, us", spent * 1e6, NET * 1e6)


def rod(count: int) -> Iterator[Row]:
    """The rod of 200 nodes."""
    spent = seconds_per_step(hx.models.cosserat_rod(200), hx.RATTLE(), count // 2, dt=1e-4)
    yield Row("rod of 200 nodes, us per node", spent / 200 * 1e6, NODE * 1e6, f"{spent * 1e6:.0f} us")


ROWS = (ratios, exponents, plain_function, redundant, cloth, rod)


def main() -> int:
    count = 2_000 if "--quick" in sys.argv else 20_000
    return print_rows(measure(count) for measure in ROWS)


if __name__ == "__main__":
    raise SystemExit(main())
