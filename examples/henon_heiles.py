"""A Poincare section of the Henon-Heiles system with 100 000 crossings, each exact to round-off.

    python examples/henon_heiles.py [--orbits 20] [--crossings 5000] [--energy 0.125] [--out henon_heiles.png]

Every orbit starts on the section x = 0 with the same energy. `TaylorAdaptive` integrates it at machine precision, and
each passage through x = 0 with px > 0 is found on the Taylor polynomial of its step. The script prints how far the
crossings are from the section and from the energy surface.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import holonomix as hx

SECTION = hx.Event(lambda q, p: q[0], direction=1)
PERIOD = 8.0  # more than the mean time between crossings, so that a run of `crossings` periods has enough of them


def orbit(energy: float, y: float, py: float, crossings: int):
    """The crossings of one orbit."""
    problem = hx.models.henon_heiles(energy, y, py)
    run = hx.simulate(problem, hx.TaylorAdaptive(), t1=PERIOD * crossings, save_every=1_000_000, events=SECTION)
    found = run.events[0]
    return found._replace(t=found.t[:crossings], q=found.q[:crossings], p=found.p[:crossings])


def starts(energy: float, count: int) -> list[tuple[float, float]]:
    """Points `(y, py)` of the section spread over the region that the energy allows: a spiral of equal areas."""
    k = np.arange(count) + 0.5
    radius, angle = 0.93 * np.sqrt(k / count), np.pi * (3 - np.sqrt(5)) * k
    py = np.sqrt(2 * energy) * radius * np.sin(angle)
    room = np.sqrt(2 * energy) * radius * np.cos(angle)  # y of the harmonic oscillator with this energy
    bent = [np.roots([-1 / 3, 0.5, 0, -(r**2) / 2]) for r in room]  # y^2/2 - y^3/3 = room^2/2
    return [
        (float(min((y.real for y in ys if np.sign(y.real) == np.sign(r)), key=abs)), float(v))
        for ys, r, v in zip(bent, room, py, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orbits", type=int, default=20)
    parser.add_argument("--crossings", type=int, default=5000, help="of each orbit")
    parser.add_argument("--energy", type=float, default=0.125)
    parser.add_argument("--out", default="henon_heiles.png")
    given = parser.parse_args()
    began = time.perf_counter()
    records = [orbit(given.energy, y, py, given.crossings) for y, py in starts(given.energy, given.orbits)]
    q, p = (np.concatenate([getattr(r, name) for r in records]) for name in ("q", "p"))
    x, y = q.T
    energies = 0.5 * np.sum(p**2, axis=1) + 0.5 * (x**2 + y**2) + x**2 * y - y**3 / 3
    print(f"{len(q)} crossings in {time.perf_counter() - began:.0f} s")
    print(f"largest |x| {np.max(np.abs(x)):.1e}, largest energy error {np.max(np.abs(energies - given.energy)):.1e}")
    hx.plotting.poincare(records).savefig(given.out, dpi=200)


if __name__ == "__main__":
    main()
