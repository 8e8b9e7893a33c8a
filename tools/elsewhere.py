"""Draw the pictures of docs/elsewhere.md: ten ways in which common treatments of constraints go wrong, beside ours.

    python tools/elsewhere.py            # all, into docs/img/elsewhere
    python tools/elsewhere.py circle     # one

Every function runs the other treatment as its own documentation recommends for a first try, with the defaults of the
package, and ours on the same problem; it returns what is drawn and prints the numbers that the page quotes.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from scipy.integrate import solve_ivp

import holonomix as hx

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parents[1] / "docs" / "img" / "elsewhere"
THEIRS, OURS = "#c2410c", "#1d4ed8"
Curves = dict[str, Any]  # label -> (x, y), with the axes under "axes"

PENDULUM = hx.models.planar_pendulum(angle=1.5, angular_velocity=0.0)


def pendulum_rate(alpha: float = 0.0, beta: float = 0.0) -> Callable[[float, np.ndarray], np.ndarray]:
    """The pendulum with its constraint differentiated twice, with Baumgarte's terms: for any ODE solver."""

    def rate(t: float, z: np.ndarray) -> np.ndarray:
        x, v = z[:2], z[2:]
        force = np.array([0.0, -1.0])
        pull = (v @ v + x @ force + 2 * alpha * (x @ v) + beta**2 / 2 * (x @ x - 1.0)) / (x @ x)
        return np.concatenate([v, force - pull * x])

    return rate


def start() -> np.ndarray:
    return np.concatenate([np.asarray(PENDULUM.q0), np.asarray(PENDULUM.p0)])


def energy(z: np.ndarray) -> np.ndarray:
    return 0.5 * (z[2] ** 2 + z[3] ** 2) + z[1]


def ours(dt: float, t1: float, method: Any = None, problem: Any = PENDULUM) -> Any:
    return hx.simulate(problem, method or hx.RATTLE(), dt=dt, t1=t1)


def circle() -> Curves:
    """solve_ivp with its defaults leaves the circle."""
    run = solve_ivp(pendulum_rate(), (0, 60), start(), max_step=0.5)
    sol = ours(0.05, 60.0)
    length = np.hypot(*run.y[:2])
    print(f"circle: solve_ivp ends at a length of {length[-1]:.3f}, RATTLE at 1 + {sol.constraint_error().max():.0e}")
    return {
        "solve_ivp, defaults": (run.y[0], run.y[1]),
        "RATTLE, dt = 0.05": (sol.q[:, 0], sol.q[:, 1]),
        "axes": {"xlabel": "x", "ylabel": "y", "title": "a pendulum of length 1", "aspect": "equal"},
    }


def loop() -> Curves:
    """MuJoCo closes a loop by a soft constraint."""
    mujoco: Any = importlib.import_module("mujoco")
    model = mujoco.MjModel.from_xml_string(
        """<mujoco><option timestep="0.002" gravity="0 0 -9.81"/><worldbody>
        <body name="crank"><joint type="hinge" axis="0 1 0" damping="0"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.8" size="0.02" mass="1" contype="0" conaffinity="0"/>
        <body name="coupler" pos="0 0 0.8"><joint type="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 2 0 0.8" size="0.02" mass="1" contype="0" conaffinity="0"/>
        <site name="end" pos="2 0 0.8"/></body></body>
        <body name="rocker" pos="2 0 0"><joint type="hinge" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 1.6" size="0.02" mass="1" contype="0" conaffinity="0"/>
        <site name="top" pos="0 0 1.6"/></body></worldbody>
        <equality><connect site1="end" site2="top"/></equality></mujoco>"""
    )
    data = mujoco.MjData(model)
    gaps = []
    for _ in range(5000):
        mujoco.mj_step(model, data)
        gaps.append(np.linalg.norm(data.site("end").xpos - data.site("top").xpos))
    m = hx.Mechanism((0.0, -9.81), dimensions=2)
    rod = lambda name, a, b: m.body(
        name,
        mass=1.0,
        inertia=float(np.sum((np.array(b) - a) ** 2) / 12),
        position=(np.array(a) + b) / 2.0,
    )
    crank, coupler, rocker = (
        rod("crank", (0, 0), (0, 0.8)),
        rod("coupler", (0, 0.8), (2, 1.6)),
        rod("rocker", (2, 0), (2, 1.6)),
    )
    m.revolute("a", m.ground, crank, at=(0.0, 0.0))
    m.revolute("b", crank, coupler, at=(0.0, 0.8))
    m.revolute("c", coupler, rocker, at=(2.0, 1.6))
    m.revolute("d", m.ground, rocker, at=(2.0, 0.0))
    sol = hx.simulate(m.problem(dt=0.002, t1=10.0), hx.RATTLE())
    error = sol.constraint_error()
    print(f"loop: MuJoCo opens by up to {1000 * max(gaps):.1f} mm, ours by {error.max():.0e} m")
    return {
        "MuJoCo, connect": (0.002 * np.arange(1, 5001), np.maximum(gaps, 1e-17)),
        "RATTLE": (sol.t, np.maximum(error, 1e-17)),
        "axes": {"xlabel": "t (s)", "ylabel": "gap of the loop (m)", "yscale": "log", "title": "a four-bar linkage"},
    }


def baumgarte() -> Curves:
    """Baumgarte's terms pull back to the circle, with a rhythm and an energy of their own."""
    curves: Curves = {}
    for a in (1.0, 10.0):
        run = solve_ivp(pendulum_rate(a, a), (0, 60), start(), max_step=0.5, t_eval=np.linspace(0, 60, 1200))
        curves[f"Baumgarte, alpha = beta = {a:g}"] = (run.t, energy(run.y) - energy(run.y)[0])
        off = np.abs(np.hypot(*run.y[:2]) - 1).max()
        print(
            f"baumgarte {a:g}: length off by {off:.1e}, energy by {np.abs(energy(run.y) - energy(run.y)[0]).max():.1e}"
        )
    sol = ours(0.02, 60.0)
    print(f"  RATTLE: length off by {sol.constraint_error().max():.0e}, energy by {abs(sol.energy_error()).max():.0e}")
    return curves | {
        "RATTLE, dt = 0.02": (sol.t, sol.energy_error()),
        "axes": {"xlabel": "t", "ylabel": "energy error", "title": "stabilized pendulum"},
    }


def drift() -> Curves:
    """RK4 with a projection after every step: on the circle, but the energy leaks."""
    z, h, rate, kept = start(), 0.2, pendulum_rate(), []
    for k in range(20_000):
        a = rate(0, z)
        b = rate(0, z + h / 2 * a)
        c = rate(0, z + h / 2 * b)
        z = z + h / 6 * (a + 2 * b + 2 * c + rate(0, z + h * c))
        x = z[:2] / np.linalg.norm(z[:2])
        z = np.concatenate([x, z[2:] - (z[2:] @ x) * x])
        if k % 20 == 0:
            kept.append((h * (k + 1), energy(z)))
    t, found = np.array(kept).T
    sol = hx.simulate(PENDULUM, hx.RATTLE(), dt=0.2, t1=4000.0, save_every=7)
    error = found - energy(start())
    print(f"drift: projected RK4 {error[-1]:.3f}, RATTLE at most {abs(sol.energy_error()).max():.3f}")
    return {
        "projected RK4, dt = 0.2": (t, error),
        "RATTLE, dt = 0.2": (sol.t, sol.energy_error()),
        "axes": {"xlabel": "t", "ylabel": "energy error", "title": "pendulum, 20 000 steps"},
    }


def damping() -> Curves:
    """An implicit solver for stiff equations takes the energy out."""
    run = solve_ivp(pendulum_rate(), (0, 300), start(), method="BDF", t_eval=np.linspace(0, 300, 3000))
    sol = ours(0.1, 300.0)
    print(f"damping: BDF ends with the energy {energy(run.y)[-1]:.3f}, of {energy(run.y)[0]:.3f}; the lowest is -1")
    return {
        "solve_ivp, BDF, defaults": (run.t, energy(run.y)),
        "RATTLE, dt = 0.1": (sol.t, sol.energy()),
        "axes": {"xlabel": "t", "ylabel": "energy", "title": "pendulum from the horizontal"},
    }


def penalty() -> Curves:
    """Rods as stiff springs: the step must follow the springs, or the run ends."""
    problem = hx.models.double_pendulum()
    curves: Curves = {}
    for omega in (20.0, 60.0):
        stiff = hx.models.penalized_double_pendulum(omega=omega)
        run = hx.simulate(stiff, hx.StormerVerlet(), dt=0.02, t1=5.0, throw=False)
        curves[f"springs, omega = {omega:g}"] = (run.t, np.hypot(*run.q[:, 0].T))
        print(f"penalty: omega = {omega:g} {run.status.name} at t = {run.final_t:g}")
    sol = hx.simulate(problem, hx.RATTLE(), dt=0.02, t1=5.0)
    print(f"  rods: {sol.constraint_error().max():.0e}")
    axes = {
        "xlabel": "t",
        "ylabel": "length of the first rod",
        "title": "double pendulum, dt = 0.02",
        "ylim": (0.98, 1.02),
    }
    return curves | {"rods, RATTLE": (sol.t, np.hypot(*sol.q[:, 0].T)), "axes": axes}


def angles() -> Curves:
    """Angles have poles: a spherical pendulum that passes the bottom closely."""

    def rate(t: float, z: np.ndarray) -> list[float]:
        theta, phi, u, w = z
        s, c = np.sin(theta), np.cos(theta)
        return [u, w, s * c * w**2 - s, -2 * c / s * u * w]

    spin = 1e-4
    z = [1.0, 0.0, 0.0, spin]
    run = solve_ivp(rate, (0, 60), z, t_eval=np.linspace(0, 60, 1500))
    flat = 0.5 * (run.y[2] ** 2 + (np.sin(run.y[0]) * run.y[3]) ** 2) - np.cos(run.y[0])
    problem = hx.models.spherical_pendulum(angle=1.0, velocity=(0.0, spin * np.sin(1.0)))
    sol = ours(0.02, 60.0, problem=problem)
    error = flat - flat[0]
    print(
        f"angles: energy error {np.nanmax(np.abs(error)):.2g} in angles, {abs(sol.energy_error()).max():.0e} by RATTLE"
    )
    return {
        "solve_ivp in angles, defaults": (run.t, np.maximum(np.abs(error), 1e-17)),
        "RATTLE in x, y, z": (sol.t, np.maximum(np.abs(sol.energy_error()), 1e-17)),
        "axes": {"xlabel": "t", "ylabel": "energy error", "yscale": "log", "title": "past the pole of the angles"},
    }


def rotation() -> Curves:
    """A rotation matrix that is integrated as nine numbers is no rotation for long."""
    spin = np.array([1.0, 0.2, 0.1])
    moments = np.array([1.0, 1.5, 2.0])

    def rate(t: float, z: np.ndarray) -> np.ndarray:
        turn, w = z[:9].reshape(3, 3), z[9:]
        cross = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
        return np.concatenate([(turn @ cross).ravel(), -np.cross(w, moments * w) / moments])

    run = solve_ivp(rate, (0, 200), np.concatenate([np.eye(3).ravel(), spin]))
    turns = run.y[:9].T.reshape(-1, 3, 3)
    off = np.abs(np.swapaxes(turns, 1, 2) @ turns - np.eye(3)).max(axis=(1, 2))
    sol = ours(0.05, 200.0, problem=hx.models.rigid_body(inertia=moments, angular_velocity=spin))
    print(f"rotation: |R^T R - 1| grows to {off[-1]:.2g}, RATTLE {sol.constraint_error().max():.0e}")
    return {
        "solve_ivp, defaults": (run.t, np.maximum(off, 1e-17)),
        "RATTLE, dt = 0.05": (sol.t, np.maximum(sol.constraint_error(), 1e-17)),
        "axes": {"xlabel": "t", "ylabel": "|R$^T$R - 1|", "yscale": "log", "title": "a free rigid body"},
    }


def resonance() -> Curves:
    """Impulses in step with a fast vibration pump energy into it."""
    problem = hx.models.stiff_spring_double_pendulum(epsilon=0.02)
    dts = np.linspace(0.02, 0.16, 57)
    curves: Curves = {}
    for label, method in (("impulse method", hx.Impulse()), ("projected impulses", hx.ProjectedImpulse())):
        found = []
        for dt in dts:
            run = hx.simulate(problem, method, dt=float(dt), t1=20.0, throw=False)
            error = abs(run.energy_error())
            found.append(float(np.nanmax(error)) if run.status == hx.Status.OK else np.inf)
        curves[label] = (dts, np.minimum(found, 1e3))
        print(f"resonance: {label} at most {max(found):.2g}")
    return curves | {
        "axes": {"xlabel": "dt", "ylabel": "energy error", "yscale": "log", "title": "stiff springs, t = 20"}
    }


def steps() -> Curves:
    """Step sizes that an error estimate chooses take the symplectic method its property."""
    problem = hx.models.kepler(eccentricity=0.7)
    q, p = np.asarray(problem.q0), np.asarray(problem.p0)
    run = solve_ivp(
        lambda t, z: np.concatenate([z[2:], -z[:2] / np.linalg.norm(z[:2]) ** 3]), (0, 60), np.concatenate([q, p])
    )
    found = 0.5 * (run.y[2] ** 2 + run.y[3] ** 2) - 1 / np.hypot(*run.y[:2])
    sol = hx.simulate(problem, hx.AdaptiveVerlet(), dt=0.02, t1=60.0)
    print(f"steps: solve_ivp {found[-1] - found[0]:.2f}, AdaptiveVerlet at most {abs(sol.energy_error()).max():.0e}")
    return {
        f"solve_ivp, defaults, {run.t.size - 1} steps": (run.t, found - found[0]),
        f"AdaptiveVerlet, {len(sol.t) - 1} steps": (sol.t, sol.energy_error()),
        "axes": {"xlabel": "t", "ylabel": "energy error", "title": "a Kepler ellipse, ten periods"},
    }


PICTURES = (circle, loop, baumgarte, drift, damping, penalty, angles, rotation, resonance, steps)


def draw(curves: Curves, target: Path) -> None:
    figure, axes = plt.subplots(figsize=(4.6, 3.3), layout="constrained")
    labels = [label for label in curves if label != "axes"]
    for k, label in enumerate(labels):
        last = k == len(labels) - 1
        color = OURS if last else (THEIRS, "#a16207")[k]
        axes.plot(*curves[label], color=color, linewidth=1.6 if last else 0.8, label=label, zorder=3 if last else 2)
    axes.set(**curves["axes"])
    axes.legend(fontsize="x-small", loc="best")
    figure.savefig(target, dpi=85)
    plt.close(figure)


def main(wanted: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for make in PICTURES:
        if not wanted or make.__name__ in wanted:
            target = FOLDER / f"{make.__name__}.png"
            draw(make(), target)
            print(f"  {target.name}: {target.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
