"""Time to the first step: a new process, with an empty cache of compiled programs and then with the one it filled.

    python benchmarks/first_step.py [case ...] [--profile case]

Times are processor seconds of a whole process (import, checks, tracing, compiling, two steps), so that other programs
on the machine count little. Claims: five-bar of four rigid bodies <= 10 s cold and <= 3 s in a second process; a net of
30 x 30 nodes <= 15 s; double pendulum <= 4 s. For a permutation of 10 000 coordinates, a table of 10 000 points and a
Python sum of 1 000 terms, `backend="auto"` starts within twice the time of `backend="array"`.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable

import numpy as np

GOALS = {  # seconds cold, and in a second process
    "double_pendulum": (4.0, 3.0),
    "five_bar": (10.0, 3.0),
    "butane": (10.0, 5.0),
    "net_15": (15.0, 15.0),
    "net_30": (15.0, 15.0),
    "gradient": (20.0, 10.0),
    "terms": (15.0, 15.0),
}
RATIO = {"permutation": 2.0, "table": 2.0, "terms": 2.0}  # `auto` over `array`
LIMIT = 900  # seconds after which a case counts as never starting


def run(problem, method, backend: str) -> None:
    import holonomix as hx

    hx.simulate(problem, method, dt=problem.dt, steps=2, backend=backend)


def double_pendulum(backend: str) -> None:
    import holonomix as hx

    run(hx.models.double_pendulum(), hx.RATTLE(), backend)


def five_bar(backend: str) -> None:
    """Four links and the ground: the crank at 0, the rocker at 2.2, closed at the tip of the second link."""
    import holonomix as hx

    m = hx.Mechanism(gravity=(0, -9.81), dimensions=2)
    lengths, angles = (0.8, 1.5, 1.5, 0.8), (1.9, 0.35, 2.79, 1.24)
    points = [np.zeros(2)]
    for length, angle in zip(lengths[:2], angles[:2], strict=True):
        points.append(points[-1] + length * np.array([np.cos(angle), np.sin(angle)]))
    other = [np.array([2.2, 0.0])]
    other.append(other[0] + lengths[3] * np.array([np.cos(angles[3]), np.sin(angles[3])]))
    chain = [points[0], points[1], points[2], other[1], other[0]]
    bodies = []
    for a, b in zip(chain[:-1], chain[1:], strict=True):
        length = float(np.linalg.norm(b - a))
        turn = float(np.arctan2(*(b - a)[::-1]))
        bodies.append(m.body(mass=1.0, inertia=length**2 / 12, position=(a + b) / 2, rotation=turn))
    m.revolute(None, m.ground, bodies[0], at=chain[0])
    for k in range(3):
        m.revolute(None, bodies[k], bodies[k + 1], at=chain[k + 1])
    m.revolute(None, bodies[3], m.ground, at=chain[4])
    run(m.problem(dt=1e-3), hx.RATTLE(), backend)


def butane(backend: str) -> None:
    import holonomix as hx

    run(hx.models.butane(), hx.RATTLE(), backend)


def net(count: int, backend: str) -> None:
    """A square net of rigid edges in zigzag folds, hung from two corners."""
    import holonomix as hx

    fold = 0.3
    side = np.sqrt(1 - fold**2)
    places = np.array([(side * x, side * y, fold * ((x + y) % 2)) for y in range(count) for x in range(count)])
    corners = {0: -1, count - 1: -2}
    free = [k for k in range(count * count) if k not in corners]
    number = {**corners, **{k: j for j, k in enumerate(free)}}
    edges = [(k, k + 1) for k in range(count * count) if (k + 1) % count]
    edges += [(k, k + count) for k in range(count * (count - 1))]
    pairs = [(number[a], number[b]) for a, b in edges]
    rods = hx.Distance(pairs, 1.0, anchors=places[list(corners)])
    system = hx.System(lambda q: 9.81 * q[:, 2].sum(), rods)
    q = places[free]
    hx.simulate(system, hx.RATTLE(), q, np.zeros_like(q), dt=1e-3, steps=2, backend=backend)


def gradient(backend: str) -> None:
    """Of the end of a double pendulum's run with respect to its start and its lengths."""
    import jax

    import holonomix as hx

    problem = hx.models.double_pendulum()

    def end(q, p):
        q, p = hx.integrate(problem.system, hx.RATTLE(), q, p, dt=0.01, steps=100)
        return q[1, 0] + p[0, 1]

    slopes = jax.block_until_ready(jax.grad(end, argnums=(0, 1))(problem.q0, problem.p0))
    assert all(np.isfinite(x).all() for x in slopes)


def unconstrained(potential: Callable, size: int, backend: str, params: object = None) -> None:
    import holonomix as hx

    q = np.random.default_rng(0).uniform(-1, 1, size)
    system = hx.System(potential, params=params)
    hx.simulate(system, hx.StormerVerlet(), q, 0 * q, dt=1e-3, steps=2, backend=backend)


def permutation(backend: str) -> None:
    order = np.random.default_rng(1).permutation(10_000)
    unconstrained(lambda q: (q[order] * q).sum(), 10_000, backend)


def table(backend: str) -> None:
    import jax.numpy as jnp

    x = jnp.linspace(-2, 2, 10_000)
    given = {"x": x, "y": jnp.sin(3 * x)}
    unconstrained(lambda q, k: jnp.interp(q, k["x"], k["y"]).sum(), 3, backend, given)


def terms(backend: str) -> None:
    import jax.numpy as jnp

    unconstrained(lambda q: sum(jnp.cos(q[k % 6] * (1 + k * 1e-3)) for k in range(1000)), 6, backend)


CASES: dict[str, Callable[[str], None]] = {
    "double_pendulum": double_pendulum,
    "five_bar": five_bar,
    "butane": butane,
    "net_15": lambda backend: net(15, backend),
    "net_30": lambda backend: net(30, backend),
    "gradient": gradient,
    "permutation": permutation,
    "table": table,
    "terms": terms,
}


def seconds(case: str, backend: str, cache: str) -> float:
    """Processor seconds of a new process that takes the first steps; infinite where it does not come back."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, __file__, "--case", case, backend]
    environment = {**os.environ, "HOLONOMIX_CACHE": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    try:
        subprocess.run(command, env=environment, timeout=LIMIT, check=True)
    except subprocess.TimeoutExpired:
        return np.inf
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(what: str, value: float, goal: float, unit: str = "s") -> bool:
    good = value <= goal
    print(f"{what:<44} {value:8.1f} {unit}   goal <= {goal:<4g} {'pass' if good else 'MISS'}", flush=True)
    return good


def main(names: list[str]) -> int:
    good = True
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as cache:
            cold = seconds(name, "auto", cache)
            again = seconds(name, "auto", cache) if np.isfinite(cold) else np.inf
        if name in GOALS:
            good &= row(f"{name}, cold", cold, GOALS[name][0])
            good &= row(f"{name}, second process", again, GOALS[name][1])
        if name in RATIO:
            with tempfile.TemporaryDirectory() as cache:
                array = seconds(name, "array", cache)
            good &= row(f"{name}, auto over array ({cold:.1f} / {array:.1f} s)", cold / array, RATIO[name], "x")
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        CASES[sys.argv[2]](sys.argv[3])
    elif sys.argv[1:2] == ["--profile"]:
        profile = cProfile.Profile()
        profile.runcall(CASES[sys.argv[2]], "auto")
        pstats.Stats(profile).sort_stats("cumulative").print_stats(150)
    else:
        sys.exit(main(sys.argv[1:]))
