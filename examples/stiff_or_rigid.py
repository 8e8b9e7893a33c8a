"""A comparison of all treatments of the stiff rods of a double pendulum.

    python examples/stiff_or_rigid.py [--out out/stiff]

The two rods are constraints (RATTLE), a penalty with long steps (Zhang-Skeel), springs with micro-steps
between kicks (mollified impulse), or the limit of infinitely stiff springs with energy (effective system).
Prints the errors and writes a figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np

import holonomix as hx

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def rods(axes: plt.Axes) -> None:
    """Rods that start at rest: the rigid system is the correct limit, and a penalty approximates it."""
    problem = hx.models.double_pendulum()
    exact = hx.simulate(problem.system, hx.Composition(hx.RATTLE(), 8), problem.q0, problem.p0, dt=0.1, t1=20.0)
    stiff = problem.system.penalized(20.0)
    print("Rods at rest to t = 20, h = 0.1: error of the second pendulum")
    for name, system, method in (
        ("constraint, RATTLE", problem.system, hx.RATTLE()),
        ("penalty, Zhang-Skeel", stiff, hx.ZhangSkeel(0.4)),
        ("penalty, Newmark", stiff, hx.Newmark(0.4)),
    ):
        sol = hx.simulate(system, method, problem.q0, problem.p0, dt=0.1, t1=20.0)
        error = np.max(np.abs(sol.q - exact.q), axis=(1, 2))
        axes.semilogy(sol.t[1:], error[1:], label=name)
        print(f"  {name:24} {error.max():.3g}")
    axes.set(title="rods at rest: the constraint is the right model", xlabel="t", ylabel="error of the positions")
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)


def springs(axes: plt.Axes) -> None:
    """Springs that oscillate: the rigid system is the wrong limit for any step."""
    problem = hx.models.stiff_spring_double_pendulum(1e-3)
    stiff = problem.system
    truth = hx.simulate(stiff, hx.StormerVerlet(), problem.q0, problem.p0, dt=1e-5, t1=4.0, save_every=10_000)
    q, p = stiff.project(problem.q0, problem.p0)
    limit = hx.effective(stiff, problem.q0, problem.p0)
    print("Springs that swing, eps = 1e-3, to t = 4: error of the positions")
    for name, sol in (
        ("rigid", hx.simulate(stiff.constrained(), hx.RATTLE(), q, p, dt=0.01, t1=4.0, save_every=10)),
        ("effective system", hx.simulate(limit, hx.RATTLE(), q, p, dt=0.01, t1=4.0, save_every=10)),
        ("impulse, h = 0.1", hx.simulate(stiff, hx.Impulse(substeps=5000), problem.q0, problem.p0, dt=0.1, t1=4.0)),
        (
            "mollified, h = 0.1",
            hx.simulate(stiff, hx.MollifiedImpulse(substeps=5000), problem.q0, problem.p0, dt=0.1, t1=4.0),
        ),
    ):
        error = np.max(np.abs(sol.q - truth.q), axis=(1, 2))
        axes.semilogy(sol.t[1:], error[1:], label=name)
        print(f"  {name:24} {error.max():.3g}")
    distance = hx.mechanics.resonances(stiff, truth.q)
    print(f"  frequencies stay {distance.min():.2f} of the largest away from a resonance")
    axes.set(title="springs that swing: rigid rods are the wrong limit", xlabel="t")
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/stiff"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    rods(left)
    springs(right)
    figure.savefig(out / "stiff_or_rigid.png", dpi=110)
    print(f"wrote {out / 'stiff_or_rigid.png'}")


if __name__ == "__main__":
    main()
