"""An elastic rod, clamped at one end, hits a wall; VRATTLE takes small steps during contact.

    python examples/rod_wall.py [--nodes 10] [--t1 1.5] [--out rod.gif]

Writes an animation (a GIF, or a page with controls when the name ends in .html) of the rod and of the step sizes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter

import holonomix as hx
from holonomix.build.models.rod import backbone, wall_distances

parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
parser.add_argument("--nodes", type=int, default=10)
parser.add_argument("--t1", type=float, default=1.5)
parser.add_argument("--frames", type=int, default=90)
parser.add_argument("--out", type=Path, default=Path("rod.gif"))
args = parser.parse_args()

rod = hx.models.cosserat_rod(args.nodes)
method = hx.VRATTLE(hx.monitors.WallMonitor(wall_distances, power=3.0), start="forward")
sol = hx.simulate(rod.system, method, rod.q0, rod.p0, dt=0.01, t1=args.t1)
steps = np.diff(sol.t)
print(sol)
print(f"steps from {steps.min():.2g} to {steps.max():.2g}, largest energy error {np.abs(sol.energy_error()).max():.2g}")

# frames at equal times, by linear interpolation between rows
times = np.linspace(0.0, sol.t[-1], args.frames)
lines = backbone(sol.q)
frames = np.stack([[np.interp(times, sol.t, x) for x in node.T] for node in lines.transpose(1, 0, 2)]).transpose(
    2, 0, 1
)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
left.axvspan(0.25, 0.5, color="0.93", label="the wall pushes")
left.axvspan(0.5, 0.6, color="0.6", label="the wall")
left.legend(loc="lower left", fontsize=8, frameon=False)
(curve,) = left.plot([], [], "o-", lw=2, ms=4)
(trace,) = left.plot([], [], color="C1", lw=0.8)
left.set(xlim=(-1.0, 0.6), ylim=(-0.6, 1.15), aspect="equal", xlabel="x", ylabel="z", title="rod and wall")
right.semilogy(sol.t[1:], steps, lw=1)
now = right.axvline(0.0, color="C3")
right.set(xlabel="t", ylabel="step", title="step size, chosen by VRATTLE")


def draw(k: int):
    curve.set_data(frames[k, :, 0], frames[k, :, 2])
    trace.set_data(frames[: k + 1, -1, 0], frames[: k + 1, -1, 2])
    now.set_xdata([times[k], times[k]])
    return curve, trace, now


animation = FuncAnimation(figure, draw, frames=len(times), interval=40)
if args.out.suffix == ".html":
    args.out.write_text(animation.to_jshtml(fps=25))
else:
    animation.save(args.out, writer=PillowWriter(fps=25))
print(f"wrote {args.out}")
