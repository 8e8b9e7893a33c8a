"""Planar linkages: the paths of their joints over one run each.

python examples/linkages.py
"""

import argparse

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import holonomix as hx

matplotlib.use("Agg")

MECHANISMS = {
    "slider_crank": ({"gravity": 0.0}, 10.0),
    "four_bar": ({"gravity": 0.0}, 12.0),
    "watt": ({"gravity": 0.0}, 2.0),
    "planar_ring": ({}, 6.0),
    "mobile": ({"levels": 3}, 8.0),
}


def ends(problem, q, bond):
    """The two ends of a bar; a negative index is a fixed point of the first list of distances."""
    term = next(t for t in problem.system.constraint_terms if isinstance(t, hx.Distance))
    fixed = np.zeros((1, q.shape[-1])) if term.anchors is None else np.asarray(term.anchors)
    return np.stack([q[k] if k >= 0 else fixed[-k - 1] for k in bond])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="linkages.png")
    given = parser.parse_args()
    figure, axes = plt.subplots(1, len(MECHANISMS), figsize=(16, 3.6))
    for (name, (options, t1)), ax in zip(MECHANISMS.items(), axes, strict=True):
        problem = hx.models.registry()[name](**options)
        sol = hx.simulate(problem.system, hx.RATTLE(), problem.q0, problem.p0, dt=problem.dt, t1=t1)
        energy, length = np.abs(sol.energy_error()).max(), sol.constraint_error().max()
        print(f"{problem.name:28s} energy error {energy:.1e}, constraint error {length:.1e}")
        for joint in range(sol.q.shape[1]):
            ax.plot(*sol.q[:, joint].T, linewidth=0.7, alpha=0.8)
        for bond in problem.bonds:
            ax.plot(*ends(problem, sol.q[0], bond).T, "k-o", linewidth=1.5, markersize=3)
        ax.set_aspect("equal")
        ax.set_title(problem.name, fontsize=9)
        ax.tick_params(labelsize=7)
    figure.tight_layout()
    figure.savefig(given.out, dpi=90)


if __name__ == "__main__":
    main()
