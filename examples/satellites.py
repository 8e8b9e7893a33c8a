"""Three tethered satellites over 10^4 steps: energy, tether lengths and tether velocities stay at round-off.

    python examples/satellites.py [--steps 10000]

The same step size with RATTLE (symplectic, order 2) and with HBVM (energy exact) for comparison; then the turns of the
third satellite about the tether of the other two, found as events.
"""

from __future__ import annotations

import argparse

import numpy as np

import holonomix as hx


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--out", default="satellites.png", help="the picture")
    given = parser.parse_args()
    steps = given.steps
    problem = hx.models.tethered_satellites()

    print(f"{'method':<18} {'energy':>9} {'tethers':>9} {'velocity':>9}   largest errors over {steps} steps of 0.1")
    for method in (hx.RATTLE(), hx.HBVM(6, 2), hx.LineIntegral(4)):
        sol = hx.simulate(problem.system, method, problem.q0, problem.p0, dt=0.1, steps=steps, save_every=10)
        errors = (np.abs(sol.energy_error()), sol.constraint_error(), sol.hidden_constraint_error())
        print(f"{method.name:<18} " + " ".join(f"{np.max(e):9.1e}" for e in errors))

    # the third satellite turns about the tether of the first two: it passes their x coordinate, rising, once per turn
    passing = hx.Event(lambda q, p: q[2, 0] - q[0, 0], direction=1)
    sol = hx.simulate(problem.system, hx.LineIntegral(4), problem.q0, problem.p0, dt=0.1, t1=100.0, events=passing)
    turns = np.diff(sol.events[0].t)
    print(f"turns of the third satellite take {turns.min():.6f} to {turns.max():.6f}")
    sol.plot(problem=problem).savefig(given.out, dpi=90)
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
