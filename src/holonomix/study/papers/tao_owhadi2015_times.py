"""Tao & Owhadi (2015), sections 4.1 to 4.5: computing times, as ratios within one run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax

import holonomix as hx
from holonomix.mechanics.abstract import AbstractSystem

from .items import Findings, item
from .tao_owhadi2015_pendula import BETA, OMEGA, pendulum_methods
from .tao_owhadi2015_water import FRICTION, KT, Cluster


def time_of(
    system: AbstractSystem,
    method: hx.AbstractMethod,
    problem: hx.Problem,
    h: float,
    steps: int = 100_000,
    backend: str = "auto",
) -> float:
    """Microseconds of CPU time per unit of t, without compilation and output: best of five, minus that of one step."""

    def best(count: int) -> tuple[float, int]:
        start, key, seconds, done = (problem.q0, problem.p0), jax.random.key(0), [], 0
        options: dict[str, Any] = {"save_every": count, "key": key, "backend": backend, "throw": False}
        for _ in range(6):
            began = time.process_time()
            sol = hx.simulate(system, method, *start, dt=h, steps=count, **options)
            seconds.append(time.process_time() - began)
            done = sol.stats["steps"]
        return min(seconds[1:]), done  # the first one compiles

    (long, done), (short, _) = best(steps), best(1)
    return 1e6 * (long - short) / (h * max(done - 1, 1))


def rows(quick: bool) -> Iterator[tuple[str, str, float, float]]:
    """Section, method, printed seconds and measured time; the last method of each section is the proposed one."""
    pendulum, chain, stiff = hx.models.double_pendulum(), hx.models.chain(10), hx.models.penalized_chain(10, OMEGA)
    dna, body, kinds = hx.models.dna_chain(), hx.models.magnetized_body(), pendulum_methods(pendulum)
    free = body.system.penalized(10.0)
    for (name, (system, method, parts)), seconds in zip(kinds.items(), (3.8, 1.0, 5.3, 0.2, 0.4)):
        # one iteration diverges soon with h = 0.1; a step of another size has the same cost
        slow = 20 if name == "one-iteration Newmark" else 1
        yield "4.1, double pendulum", name, seconds, time_of(system, method, pendulum, 0.1 / parts / slow) / slow
    for section, name, problem, system, method, h, steps, seconds in (
        ("4.2, chain of ten", "SHAKE, h = 0.025", chain, chain.system, hx.SHAKE(), 0.025, 20_000, 16.5),
        ("4.2, chain of ten", "SHAKE, h = 0.05", chain, chain.system, hx.SHAKE(), 0.05, 20_000, 8.1),
        ("4.2, chain of ten", "Z&S, h = 0.05", chain, stiff.system, hx.ZhangSkeel(BETA), 0.05, 20_000, 1.1),
        ("4.4, DNA", "Verlet", dna, dna.system, hx.StormerVerlet(), 0.2, 1_500, 23.26),
        ("4.4, DNA", "Z&S", dna, dna.system, hx.ZhangSkeel(0.3), 2.0, 1_500, 3.24),
        ("4.5, SO(3)", "variational Euler", body, body.system, hx.CayleyEulerSO3(), 0.1, 20_000, 1.45),
        ("4.5, SO(3)", "Z&S", body, free, hx.ZhangSkeelSO3(BETA, "first", 1.0), 0.1, 20_000, 0.03),
    ):
        yield section, name, seconds, time_of(system, method, problem, h, steps)
    for n, *printed in () if quick else ((7, 13472, 1549), (100, 42234, 30059)):
        for rigid, seconds in zip((True, False), printed):
            cluster = Cluster(n, rigid)
            bath = hx.GLA(cluster.method, friction=FRICTION, temperature=KT)
            problem, backend = cluster.problem, "native" if n == 7 else "auto"
            measured = time_of(problem.system, bath, problem, problem.dt, 2_000 if n == 7 else 100, backend)
            yield f"4.3, {n} waters", "SHAKE" if rigid else "simplified Z&Ss", seconds, measured


@item(
    "times",
    "computing times",
    "sections 4.1 to 4.5, text",
    "compiled code, CPU time, the best of five runs",
    quick="without the waters",
    seconds=(5, 10),
)
def times(found: Findings, quick: bool) -> None:
    """Seconds in Matlab: double pendulum 3.8 (SHAKE), 1.0 (variational Euler), 5.3 (Newmark), 0.2 (one iteration of
    it), 0.4 (Z&S); chain 16.5 and 8.1 (SHAKE), 1.1 (Z&S); 7 waters 13472 (SHAKE), 1549 (Z&Ss); 100 waters 42234, 30059;
    DNA 23.26 (Verlet), 3.24 (Z&S); SO(3) 1.45 (variational Euler), 0.03 (Z&S).
    """
    sections: dict[str, list[tuple[str, float, float]]] = {}
    for section, name, printed, measured in rows(quick):
        sections.setdefault(section, []).append((name, printed, measured))
    columns = ("section", "method", "us per unit of t", "ratio", "ratio printed")
    table = found.table("Times over that of the last method of each section", *columns, keys=2)
    pairs, reversed_, near = 0, [], 0
    for section, methods in sorted(sections.items()):
        last, seconds, least = methods[-1]
        for name, printed, measured in methods:
            ratio, theirs = measured / least, printed / seconds
            table.add(section, name, measured, ratio, theirs)
            if name != last:
                pairs, near = pairs + 1, near + (theirs / 2 < ratio < theirs * 2)
                reversed_ += [f"{name} ({section})"] if (ratio > 1) != (theirs > 1) else []
    found.compare(
        "which of two methods is the faster one (the paper calls its times a qualitative illustration)",
        f"{pairs} pairs",
        f"the other way round for {', '.join(reversed_) or 'none'}",
        not reversed_,
        why="the paper times Matlab with fsolve; compiled, a nonlinear solve costs two to four small linear ones",
    )
    found.compare(
        "ratios of times within a factor of two of the printed ones",
        f"{pairs} of {pairs}",
        f"{near} of {pairs}",
        near == pairs,
        why="another machine, language and solver; the table has every ratio",
    )
    found.note(
        "Left out: the benchmark's 91.3 s in section 4.1, whose step is not printed, and the shares of the solves in "
        "section 4.3, which a compiled step does not tell apart."
    )


ITEMS = (times,)
