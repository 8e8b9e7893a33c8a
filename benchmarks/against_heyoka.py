"""Time at equal accuracy against heyoka's Taylor method on hand-reduced equations. One run, one core.

    python benchmarks/against_heyoka.py

Double pendulum (rods 1 and sqrt 2, unit masses, start (0,-1), (1,-2) at rest) to T = 50. heyoka integrates the two
angles of equations that were reduced by hand; we integrate four Cartesian coordinates with two constraints, as the user
wrote them. For each method time and position error at T are measured over step sizes (tolerances for heyoka), and the
time at an error of 1e-10 is interpolated on the curve. Compilation is excluded on both sides. Times are the least CPU
time of many runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import jax
import numpy as np

import holonomix as hx
from holonomix.driver.backends import choose
from holonomix.driver.loop import make_stepper

T, GOAL, TARGET = 50.0, 1e-10, 2.0


def least(run: Callable[[], object], repeats: int = 25) -> float:
    run()
    best = np.inf
    for _ in range(repeats):
        began = time.thread_time()
        run()
        best = min(best, time.thread_time() - began)
    return best


def positions(angles: np.ndarray) -> np.ndarray:
    first = np.array([np.sin(angles[0]), -np.cos(angles[0])])
    return np.array([first, first + np.sqrt(2) * np.array([np.sin(angles[1]), -np.cos(angles[1])])])


def heyoka_integrator(tol: float):
    import heyoka as hy

    a, b, u, v = hy.make_vars("a", "b", "u", "v")
    length = float(np.sqrt(2))
    s, c = hy.sin(a - b), hy.cos(a - b)
    divisor = 1.0 + s * s
    du = (hy.sin(b) * c - u**2 * s * c - length * v**2 * s - 2.0 * hy.sin(a)) / divisor
    dv = (2.0 * (u**2 * s - hy.sin(b) + hy.sin(a) * c) + length * v**2 * s * c) / (length * divisor)
    return hy.taylor_adaptive([(a, u), (b, v), (u, du), (v, dv)], [0.0, np.pi / 4, 0.0, 0.0], tol=tol)


def heyoka_curve(reference: np.ndarray) -> list[tuple[float, float]]:
    points = []
    for tol in 10.0 ** np.arange(-7, -15, -1.0):
        integrator = heyoka_integrator(tol)

        def run(integrator=integrator):
            integrator.time = 0.0
            integrator.state[:] = [0.0, np.pi / 4, 0.0, 0.0]
            integrator.propagate_until(T)

        elapsed = least(run)
        points.append((elapsed, np.abs(positions(integrator.state) - reference).max()))
    return points


def our_curve(method, reference: np.ndarray, steps: tuple[int, ...]) -> tuple[list[tuple[float, float]], float]:
    problem = hx.models.double_pendulum()
    points, worst = [], 0.0
    for count in steps:
        stepper, consts = make_stepper(problem.system.prepare(problem.q0), method, dt=T / count)
        carry = stepper.start(consts, problem.q0, problem.p0)
        runner = choose("native", stepper, carry, consts).runner
        carry, consts = (jax.tree.map(np.asarray, x) for x in (carry, consts))
        final = runner.run(carry, consts, rows=1, every=count)[0]
        if int(final.status):
            continue
        elapsed = least(lambda runner=runner, c=carry, k=consts, n=count: runner.run(c, k, rows=1, every=n))
        points.append((elapsed, np.abs(np.asarray(final.state.q) - reference).max()))
        worst = max(worst, float(np.abs(problem.system.constraint(final.state.q)).max()))
    return points, worst


def time_at_goal(points: list[tuple[float, float]]) -> float:
    """Where the curve of log time over log error passes the goal; infinity when it does not."""
    for (t0, e0), (t1, e1) in zip(points, points[1:], strict=False):
        if e0 >= GOAL >= e1:
            return float(np.exp(np.interp(-np.log(GOAL), [-np.log(e0), -np.log(e1)], [np.log(t0), np.log(t1)])))
    return np.inf


def main() -> None:
    try:
        tight = heyoka_integrator(1e-18)
    except ImportError:
        sys.exit("heyoka is not installed: pip install heyoka")
    tight.propagate_until(T)
    reference = positions(tight.state)
    theirs = time_at_goal(heyoka_curve(reference))
    print(f"time for an error of {GOAL:g} at T = {T:g}")
    print(f"{'heyoka, angles':<40}{theirs * 1e3:8.3f} ms")
    best = np.inf
    cases = [(hx.LobattoIIIAB(s), (125, 160, 200, 250, 320, 400)) for s in (5, 6, 7, 8)]
    cases += [(hx.Composition(hx.RATTLE(), order=k), (160, 200, 250, 320, 400, 500, 640)) for k in (8, 10)]
    for method, steps in cases:
        points, constraint = our_curve(method, reference, steps)
        ours = time_at_goal(points)
        best = min(best, ours)
        print(f"{method.name:<40}{ours * 1e3:8.3f} ms  {ours / theirs:5.2f}x  constraint error {constraint:.0e}")
    print(f"best ratio {best / theirs:.2f}, target {TARGET:g}: {'pass' if best <= TARGET * theirs else 'MISS'}")


if __name__ == "__main__":
    main()
