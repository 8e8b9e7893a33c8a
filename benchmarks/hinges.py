"""Chains of bars with hinges: time per step against the number of links.

python benchmarks/hinges.py [--links 25 50 100 200]

Times are processor seconds of this process, the difference of a long and a short run, so that compiling does not count.
An exponent is the slope of the logarithm of the time per step; 1 is linear. Kernels of short chains are
unrolled, those of long ones have loops over the links.
"""

import argparse
import time

import numpy as np

import holonomix as hx


def chain(links: int) -> hx.Problem:
    """Planar bars of 1 m and 1 kg hung from each other, straight out to the side."""
    m = hx.Mechanism((0.0, -9.81), dimensions=2)
    before = m.ground
    for k in range(links):
        bar = m.body(shape=hx.mechanisms.Rod(1.0), mass=1.0, position=(k + 0.5, 0.0))
        m.revolute(f"pin {k}", before, bar, at=(float(k), 0.0))
        before = bar
    return m.problem()


def seconds_per_step(problem: hx.Problem, steps: int = 2000) -> tuple[float, hx.Solution]:
    run = lambda n: hx.simulate(problem, hx.RATTLE(), dt=1e-3, steps=n, save_every=n)
    run(10)
    taken = []
    for n in (10, steps, 10, steps):
        began = time.process_time()
        sol = run(n)
        taken.append(time.process_time() - began)
    return (min(taken[1], taken[3]) - min(taken[0], taken[2])) / (steps - 10), sol


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--links", type=int, nargs="+", default=[25, 50, 100, 200])
    links = parser.parse_args().links
    times = []
    for n in links:
        per_step, sol = seconds_per_step(chain(n))
        times.append(per_step)
        told = f"joints {sol.constraint_error().max():.1e}, backend {sol.stats['backend']}"
        print(
            f"{n:5d} links: {1e6 * per_step:8.1f} us per step, {1e6 * per_step / n:.2f} us per link, {told}", flush=True
        )
    slopes = np.diff(np.log(times)) / np.diff(np.log(links))
    print(f"exponents from size to size: {', '.join(f'{x:.2f}' for x in slopes)}")


if __name__ == "__main__":
    main()
