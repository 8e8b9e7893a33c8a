"""Sampling on curved surfaces: three methods, with the correct measure and with wrong ones.

    python examples/sampling.py [--out out/sampling]

Without forces, a bead on a torus samples its surface uniformly, so the angle of the tube has the density 1 + cos/2.
On a sphere with unequal masses the area is that of the mass metric, not the Euclidean one. Prints effective sample
sizes and chi-square statistics, and writes a figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import holonomix as hx

matplotlib.use("Agg")
import matplotlib.pyplot as plt

METHODS = {
    "GLA(RATTLE)": (hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0), 0.07, 36),
    "GeodesicBAOAB": (hx.GeodesicBAOAB(friction=1.0, temperature=1.0, geodesic_steps=2), 0.07, 36),
    "ConstrainedHMC": (hx.ConstrainedHMC(5, temperature=1.0), 0.15, 4),
}


def sample(system: hx.System, name: str, starts: np.ndarray, draws: int = 50) -> np.ndarray:
    """Positions (chain, draw, 3) after a warm-up of ten draws."""
    method, dt, thin = METHODS[name]
    steps = (draws + 10) * thin
    chains = hx.simulate_ensemble(
        system, method, starts, 0 * starts, dt=dt, steps=steps, save_every=thin, key=jax.random.key(0), throw=True
    )
    return chains.q[:, 11:]


def chi(values: np.ndarray, edges: np.ndarray, density: np.ndarray) -> float:
    """Chi-square per degree of freedom against a density on a fine grid; about one if the density is correct."""
    shares = density.reshape(len(edges) - 1, -1).sum(axis=1)
    count = np.histogram(values, edges)[0]
    expected = count.sum() * shares / shares.sum()
    return float(np.sum((count - expected) ** 2 / expected) / (len(shares) - 1))


def draw(axes: plt.Axes, label: str, system: hx.System, starts: np.ndarray, coordinate, edges, laws) -> None:
    """Plot histograms of one coordinate for each method, with the candidate densities."""
    grid = edges[0] + (edges[-1] - edges[0]) * (np.arange(20 * (len(edges) - 1)) + 0.5) / (20 * (len(edges) - 1))
    print(f"{label}: effective sample size, then chi-square a degree of freedom for {' and '.join(laws)}")
    for name in METHODS:
        values = coordinate(sample(system, name, starts))
        size = hx.invariants.effective_sample_size(np.cos(values))
        fits = ", ".join(f"{chi(values, edges, law(grid)):8.2f}" for law in laws.values())
        print(f"  {name:16} {size:9.0f}   {fits}")
        axes.stairs(np.histogram(values, edges, density=True)[0], edges, label=name)
    for style, (name, law) in zip(("k-", "k:"), laws.items()):
        axes.plot(grid, law(grid) / (law(grid).mean() * (edges[-1] - edges[0])), style, lw=1, label=name)
    axes.set(title=label, ylabel="density")
    axes.legend(fontsize=7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/sampling"))
    parser.add_argument("--chains", type=int, default=1000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")

    turn = np.linspace(0, 2 * np.pi, args.chains, endpoint=False)
    torus = hx.models.bead_on_surface("torus", (1.0, 0.5)).system
    tube = lambda q: np.arctan2(q[..., 2], np.hypot(q[..., 0], q[..., 1]) - 1)
    starts = np.stack([1 + 0.5 * np.cos(turn), 0 * turn, 0.5 * np.sin(turn)], axis=-1)
    laws = {"surface": lambda x: 1 + 0.5 * np.cos(x), "even": lambda x: 1 + 0 * x}
    draw(left, "torus: angle of the tube", torus, starts, tube, np.linspace(-np.pi, np.pi, 31), laws)

    mass = np.array([2.0, 1.0, 0.5])
    sphere = hx.System(lambda q: 1.5 * q[2], lambda q: jnp.sum(q**2, keepdims=True) - 1.0, mass=mass)
    starts = np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=-1)

    def mass_area(z):
        flat, angle = np.sqrt(1 - z[:, None] ** 2), np.linspace(0, 2 * np.pi, 361)[:-1]
        square = (
            (flat * np.cos(angle)) ** 2 / mass[0] + (flat * np.sin(angle)) ** 2 / mass[1] + z[:, None] ** 2 / mass[2]
        )
        return np.exp(-1.5 * z) * np.sqrt(square).mean(axis=1)

    laws = {"area of the mass metric": mass_area, "plain area": lambda z: np.exp(-1.5 * z)}
    draw(right, "sphere, masses 2, 1, 1/2: height", sphere, starts, lambda q: q[..., 2], np.linspace(-1, 1, 31), laws)
    figure.savefig(args.out / "sampling.png", dpi=110)
    print(f"wrote {args.out / 'sampling.png'}")


if __name__ == "__main__":
    main()
