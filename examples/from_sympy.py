"""Five links between two pins, written in SymPy with generalized angles: the loop stays closed to round-off.

    python examples/from_sympy.py [--seconds 100] [--out from_sympy.png]

The angles are those of an open chain; two equations pin its end. Index-reduced solvers of differential-algebraic
equations drift off such loops or stop at them. The script prints the time per step and the errors of loop and energy.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import sympy
from matplotlib.figure import Figure
from sympy.physics.mechanics import dynamicsymbols

import holonomix as hx

LINKS, LENGTH, SPAN = 5, 0.3, 0.9


def five_links(seconds: float) -> hx.Problem:
    """Uniform bars, the first from the origin, the last to a pin at (SPAN, 0)."""
    m, l, g, t = *sympy.symbols("m l g", positive=True), dynamicsymbols._t
    angles = dynamicsymbols(f"q1:{LINKS + 1}")
    x, y, lagrangian = sympy.Integer(0), sympy.Integer(0), sympy.Integer(0)
    for q in angles:
        center = x + l / 2 * sympy.cos(q), y + l / 2 * sympy.sin(q)
        speed = center[0].diff(t) ** 2 + center[1].diff(t) ** 2
        lagrangian += m / 2 * speed + m * l**2 / 24 * q.diff(t) ** 2 - m * g * center[1]
        x, y = x + l * sympy.cos(q), y + l * sympy.sin(q)
    return hx.from_sympy(
        lagrangian,
        angles,
        constraints={"pin x": x - SPAN, "pin y": y},
        parameters={m: 1.0, l: LENGTH, g: 9.81},
        q0=[-1.3, -0.5, 0.1, 0.7, 1.2],
        dt=1e-3,
        t1=seconds,
        name="five links",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--out", default="from_sympy.png")
    given = parser.parse_args()
    problem = five_links(given.seconds)
    sol = hx.simulate(problem, hx.RATTLE(), save_every=20)
    began = time.process_time()
    steps = hx.simulate(problem, hx.RATTLE(), save_every=1000).stats["steps"]
    print(f"{steps} steps, {1e6 * (time.process_time() - began) / steps:.1f} us per step")
    print(f"loop closed to {sol.constraint_error().max():.1e}, energy error {np.abs(sol.energy_error()).max():.1e} J")

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    shape, curves = figure.subplots(1, 2)
    links = LENGTH * np.stack([np.cos(sol.q), np.sin(sol.q)], axis=2)
    joints = np.concatenate([np.zeros_like(links[:, :1]), np.cumsum(links, axis=1)], axis=1)
    shape.plot(*joints[: 5 * 50, LINKS // 2].T, color="0.8", linewidth=0.6)
    for k in range(0, 60, 12):
        shape.plot(*joints[k].T, "o-", markersize=4, alpha=1 - k / 80, label=f"t = {sol.t[k]:.2f} s")
    shape.set_aspect("equal")
    shape.legend(fontsize="small")
    for name in problem.coordinates:
        curves.plot(sol.t[:250], sol[name][:250], linewidth=0.9, label=name)
    curves.set(xlabel="t", ylabel="angle")
    curves.legend(fontsize="small", ncols=LINKS)
    figure.savefig(given.out, dpi=120)


if __name__ == "__main__":
    main()
