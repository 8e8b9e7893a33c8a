"""A rope of a thousand links falls from the horizontal, with air drag: constraints in linear time.

    python examples/rope.py [--links 1000] [--out rope.png]

The links are `Distance` constraints, so the multipliers come from a tridiagonal solve, and the error of every length is
round-off. Drag is an applied force f(q, v, t).
"""

from __future__ import annotations

import argparse

import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import holonomix as hx


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--links", type=int, default=1000)
    parser.add_argument("--drag", type=float, default=0.2)
    parser.add_argument("--out", default="rope.png")
    arguments = parser.parse_args()

    n = arguments.links
    link, mass = 10.0 / n, 1.0 / n
    pairs = np.stack([np.arange(-1, n - 1), np.arange(n)], 1)
    rope = hx.System(
        lambda q: 9.81 * mass * jnp.sum(q[:, 1]),
        hx.Distance(pairs, link),
        mass=mass,
        force=lambda q, v, t: -arguments.drag * mass * v,
    )
    q0 = np.stack([link * np.arange(1, n + 1), np.zeros(n)], 1)
    print(hx.explain(rope, hx.RATTLE(), q0))

    # waves run along the rope, at most about half a link per step; after 1.5 s it cracks like a whip
    dt = 0.5 * link / np.sqrt(9.81 * 10.0)
    steps = int(1.4 / dt)
    solution = hx.simulate(rope, hx.RATTLE(), q0, np.zeros_like(q0), dt=dt, steps=steps, save_every=max(1, steps // 12))
    print(f"{steps} steps; largest relative error of |r|^2: {solution.constraint_error().max() / link**2:.1e}")

    figure, panel = plt.subplots(figsize=(6.6, 5.6), layout="constrained")
    shades = plt.cm.ScalarMappable(plt.Normalize(0.0, solution.t[-1]), "viridis")
    for row, t in zip(solution.q, solution.t, strict=True):
        shape = np.concatenate([np.zeros((1, 2)), row])
        panel.plot(shape[:, 0], shape[:, 1], color=shades.to_rgba(t), lw=1.2)
    panel.set(aspect="equal", xlabel="x (m)", ylabel="y (m)", title=f"a rope of {n} links, let go")
    figure.colorbar(shades, ax=panel, label="time (s)", shrink=0.8)
    figure.savefig(arguments.out, dpi=130)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
