"""Seven waters at 232 K: oxygen-oxygen distances from rigid molecules and from stiff springs.

    python examples/water.py [--ps 60] [--out water.png]

The rigid cluster runs with RATTLE, the stiff one with the linearly implicit Z&Ss, both with the same step of 0.509 fs
and the same heat bath. Four replicas of each show the difference between two runs of one method.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import holonomix as hx
from holonomix.build.models.water import UNITS, oxygen_distances

parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
parser.add_argument("--ps", type=float, default=60.0, help="length of each run in picoseconds")
parser.add_argument("--out", default="water.png")
args = parser.parse_args()

unit = UNITS["eV"]
kt = 232.0 * unit.boltzmann
edges = np.linspace(2.4, 7.4, 101)
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
methods = {
    "rigid, RATTLE": (True, hx.RATTLE(hx.SymmetricNewton())),
    "stiff, Z&Ss": (False, hx.StiffZhangSkeel(beta=0.4)),
}
for name, (rigid, method) in methods.items():
    water = hx.models.water_cluster(7, units="eV", rigid=rigid)
    steps = round(args.ps * 1000 / 0.509)
    q0, p0 = (jnp.tile(x, (4, 1, 1)) for x in (water.q0, water.p0))
    runs = hx.simulate_ensemble(
        water.system,
        hx.GLA(method, friction=0.01, temperature=kt),
        q0,
        p0,
        dt=water.dt,
        steps=steps,
        save_every=50,
        key=jax.random.key(0),
        observe={"distance": lambda q, p: oxygen_distances(q)},
        backend="native",
        throw=True,
    )
    distance = runs.observables["distance"][:, steps // 500 :]  # without the first tenth
    shares = np.stack([np.histogram(x, edges)[0] / np.histogram(x, edges)[0].sum() for x in distance])
    apart = [0.5 * np.abs(shares[i] - shares[j]).sum() for i in range(4) for j in range(i)]
    rate = runs.stats["trajectory_steps_per_second"]
    print(f"{name}: {rate:,.0f} steps per second; total variation between replicas {np.mean(apart):.3f}")
    axes.stairs(shares.mean(axis=0), edges, label=name, linewidth=1.5)
axes.set(xlabel="oxygen-oxygen distance / Angstrom", ylabel="share of pairs", title="7 waters at 232 K")
axes.legend()
figure.savefig(args.out, dpi=150)
print(f"drawn in {args.out}")
