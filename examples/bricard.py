"""Bricard's linkage (IFToMM benchmark A04): a ring of six hinges that moves, although it should be rigid by count.

python examples/bricard.py
"""

import argparse

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import holonomix as hx

matplotlib.use("Agg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--t1", type=float, default=3.0, help="seconds of motion")
    parser.add_argument("--out", default="bricard.png")
    given = parser.parse_args()
    m = hx.models.bricard_linkage(mechanism=True)
    problem = m.problem()
    found = m.redundancy
    print(
        f"{found.rows} rows on {found.coordinates} coordinates, rank {found.rank}: {found.degrees_of_freedom} freedom"
    )
    print(f"redundant: {', '.join(m.redundant_rows())}")
    sol = hx.simulate(problem, hx.RATTLE(), dt=2e-3, steps=round(given.t1 / 2e-3), save_every=5)
    error = m.joint_error(sol)
    print(f"joints open by at most {max(v.max() for v in error.values()):.1e}, the redundant row included")
    print(f"energy error {np.abs(sol.energy_error()).max():.1e} J")

    figure = plt.figure(figsize=(10, 4))
    space = figure.add_subplot(1, 2, 1, projection="3d")
    corner = m["rod 3"].point(sol, (0.5, 0, 0))
    space.plot(*corner.T, linewidth=0.8)
    for row in (0, len(sol.t) // 3, 2 * len(sol.t) // 3):
        ends = [[0, 0, 0]] + [m[f"rod {k}"].point(sol, (0.5, 0, 0))[row] for k in range(1, 6)]
        space.plot(*np.array([*ends, ends[0]]).T, "-o", markersize=3, linewidth=1.5)
    space.set_title("the ring at three moments, path of P3", fontsize=9)
    force = figure.add_subplot(1, 2, 2)
    force.plot(sol.t, np.linalg.norm(m["hinge 0"].force(sol), axis=1), label="force at hinge 0 [N]")
    force.plot(sol.t, m["hinge 0"].angle(sol), label="its angle [rad]")
    force.set_xlabel("t [s]")
    force.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(given.out, dpi=90)


if __name__ == "__main__":
    main()
