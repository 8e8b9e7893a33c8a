"""A Strandbeest: twelve of Theo Jansen's legs on one crankshaft, and the path of a foot.

python examples/strandbeest.py
"""

import argparse

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import holonomix as hx
from holonomix.build.models.machines import BARS, JANSEN, jansen_points

matplotlib.use("Agg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="strandbeest.png")
    given = parser.parse_args()
    leg = hx.models.jansen_leg(mechanism=True)
    problem = leg.problem()
    sol = hx.simulate(problem, hx.RATTLE(), dt=2e-3, steps=2000, save_every=10)
    error = max(values.max() for values in leg.joint_error(sol).values())
    angle = leg["axle"].angle(sol)
    print(f"one leg: {angle[-1] / (2 * np.pi):.2f} turns, joints open by at most {error:.1e}")
    print(f"energy error {np.abs(sol.energy_error() / sol.energy()[0]).max():.1e} (relative, bounded)")

    figure, (one, many) = plt.subplots(1, 2, figsize=(11, 4.6))
    for name in ("foot", "heel", "back", "knee", "hip"):
        one.plot(*leg[name].position(sol).T, linewidth=1.5 if name == "foot" else 0.7, label=name)
    draw(one, jansen_points(JANSEN["m"] * np.array([1.0, 0.0])), np.array([JANSEN["m"], 0.0]))
    one.legend(fontsize=7, loc="lower left")
    one.set_title("one leg, paths of its knots", fontsize=9)

    beast = hx.models.strandbeest(mechanism=True)
    points = {body.name: body.origin for body in beast.bodies}
    for k in range(1, 13):
        pin = beast[f"j {k}"].place.point_a
        knots = {name: points[f"{name} {k}"] for name in ("knee", "hip", "back", "heel", "foot")}
        draw(many, knots | {"pivot": beast[f"b {k}"].place.point_a}, pin, plt.cm.viridis(k / 12))
    many.set_title(f"{beast.name}: {len(beast.joints)} joints, one degree of freedom", fontsize=9)
    for ax in (one, many):
        ax.set_aspect("equal")
        ax.tick_params(labelsize=7)
    figure.tight_layout()
    figure.savefig(given.out, dpi=90)


def draw(ax, points, pin, color="black"):
    """The bars of a leg."""
    at = points | {"crank": pin}
    for a, b, _ in BARS:
        ax.plot(*np.stack([at[a], at[b]]).T, "-", color=color, linewidth=1.2)
    ax.plot(*np.stack([np.zeros(2), pin]).T, "-", color=color, linewidth=2.0)


if __name__ == "__main__":
    main()
