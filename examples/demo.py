"""A long run of a chaotic double pendulum, with a certificate and a picture.

    python examples/demo.py --out out/demo

Runs an eighth-order composition of RATTLE over a million steps with a progress bar, measures the declared properties of
the method, and plots the trajectory, the energy error and the constraint error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console

import holonomix as hx


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument("--steps", type=int, default=1_000_000)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console()

    problem = hx.models.double_pendulum(lengths=(1.0, 1.0), angles=(2.0, 2.5))  # high enough to tumble
    method = hx.Composition(hx.RATTLE(), order=8)
    console.print(hx.explain(problem, method), highlight=False)

    solution = hx.simulate(
        problem.system,
        method,
        problem.q0,
        problem.p0,
        dt=0.02,
        steps=arguments.steps,
        save_every=5,
        progress=console,
    )
    console.print(
        f"\n{solution.stats['steps']:,} steps to t = {solution.final_t:,.0f}: "
        f"energy error {np.abs(solution.energy_error()).max():.1e}, "
        f"constraint error {solution.constraint_error().max():.1e}, "
        f"{solution.stats['steps_per_second']:,.0f} steps/s ({solution.stats['backend']})\n"
    )

    console.print(hx.certify(problem, method, dt=0.02))

    picture = arguments.out / "double_pendulum.png"
    solution.plot(problem=problem).savefig(picture, dpi=150)
    console.print(f"picture: {picture}")


if __name__ == "__main__":
    main()
