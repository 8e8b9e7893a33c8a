"""Time to the first flip of a double pendulum, over a grid of starts at rest.

    python examples/flip_map.py [--size 400] [--steps 10000] [--out flip_map.png]

Every pixel is one trajectory: 400 x 400 of them, 10 000 RATTLE steps each, in one ensemble. A flip is a sign change:
the outer rod passes its upright position. No rows are saved; the time of the first flip is computed inside the loop.
White pixels do not flip: inside the lens they have too little energy.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm

import holonomix as hx


class FirstFlip(eqx.Module):
    """The time when a rod first passes through upright; a reduction is any object with init, update and result."""

    def init(self, q, p, t):
        return (q[1] - q[0])[0], jnp.asarray(jnp.inf)

    def update(self, acc, q, p, t):
        before, first = acc
        across, up = q[1] - q[0]
        flipped = jnp.isinf(first) & (before * across < 0) & (up > 0)
        return across, jnp.where(flipped, t, first)

    def result(self, acc):
        return acc[1]


def starts(size: int) -> np.ndarray:
    """Positions of both bobs for a grid of angles, measured from hanging straight down."""
    angle = (np.arange(size) + 0.5) / size * 2 * np.pi - np.pi
    inner, outer = np.meshgrid(angle, angle)
    first = np.stack([np.sin(inner), -np.cos(inner)], axis=-1)
    second = first + np.stack([np.sin(outer), -np.cos(outer)], axis=-1)
    return np.stack([first, second], axis=-2).reshape(-1, 2, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--dt", type=float, default=0.01)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--out", type=Path, default=Path("flip_map.png"))
    arguments = parser.parse_args()

    system = hx.models.double_pendulum(lengths=(1.0, 1.0)).system
    q0 = starts(arguments.size)
    began = time.perf_counter()
    ensemble = hx.simulate_ensemble(
        system,
        hx.RATTLE(),
        q0,
        np.zeros_like(q0),
        dt=arguments.dt,
        steps=arguments.steps,
        reduce={"flip": FirstFlip()},
        backend=arguments.backend,
        progress=True,
    )
    elapsed = time.perf_counter() - began
    work = len(ensemble) * arguments.steps
    print(f"{len(ensemble):,} trajectories, {int(ensemble.ok.sum()):,} finished, back end {ensemble.stats['backend']}")
    print(f"{work:.2e} steps in {elapsed:.1f} s: {elapsed / work * 1e9:.1f} ns for a step of one trajectory")

    flips = ensemble.reduced["flip"].reshape(arguments.size, arguments.size)
    figure, axes = plt.subplots(figsize=(7, 6), constrained_layout=True)
    shown = np.ma.masked_invalid(flips)
    limits = LogNorm(max(float(shown.min()), arguments.dt), float(shown.max()))
    image = axes.imshow(shown, origin="lower", extent=(-180, 180, -180, 180), cmap="magma_r", norm=limits)
    axes.set(xlabel="angle of the inner rod (degrees)", ylabel="angle of the outer rod (degrees)")
    axes.set_title("Time to the first flip of a double pendulum released at rest")
    figure.colorbar(image, label="time (units of sqrt(length / gravity))")
    figure.savefig(arguments.out, dpi=150)
    print(f"picture: {arguments.out}")


if __name__ == "__main__":
    main()
