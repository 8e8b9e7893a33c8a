"""Tao & Owhadi (2015), section 4.3: figures 4 to 7, water clusters rigid and stiff.

The paper prints no units; the set that fits its figures is eV, Angstrom and amu, where the unit of time is 10.18 fs.
Then omega = 20, h = 0.05 (0.509 fs), gamma = 0.01 (0.98/ps, taken as a rate) and beta = 50 (232 K) are as printed.
Newmark's parameter, which the text leaves out, is 0.4.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

import holonomix as hx
from holonomix.models.water import UNITS, oxygen_distances
from holonomix.projection import penalty_multipliers

__all__ = ["ITEMS", "Cluster", "nve", "sample_distances", "total_variation"]

EV = UNITS["eV"]
KT = EV.boltzmann * 232.0
FRICTION, BETA = 0.01, 0.4
BINS, RANGE = 100, (2.4, 7.4)


class Cluster:
    """One of the two ways to treat a cluster: its problem and its method."""

    def __init__(self, n: int, rigid: bool, omega: float | None = None):
        self.problem = hx.models.water_cluster(n, units="eV", rigid=rigid, omega=omega)
        self.name = "RATTLE" if rigid else "stiff Z&Ss"
        self.method = hx.RATTLE(hx.SymmetricNewton()) if rigid else hx.StiffZhangSkeel(beta=BETA)


def _distances(q: Any, p: Any) -> Any:
    return oxygen_distances(q)


# -- figures 4 and 7: oxygen-oxygen distances at constant temperature --------------------------------------------------


def sample_distances(
    cluster: Cluster,
    steps: int,
    *,
    replicas: int = 1,
    seed: int = 0,
    discard: float = 0.1,
    heat: bool = False,
    backend: str = "native",
) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of the distances and `2 K/(dof kT)`, one a replica, without the first share `discard`.

    A relaxed start is cold: `heat` runs as long before, with a hundred times the friction.
    """
    every = 50
    problem, start = cluster.problem, (cluster.problem.q0, cluster.problem.p0)
    bath = hx.GLA(cluster.method, friction=FRICTION, temperature=KT)
    options: dict[str, Any] = {
        "dt": problem.dt,
        "steps": steps,
        "save_every": every,
        "key": jax.random.key(seed),
        "observe": {"distance": _distances, "heat": Partial(hx.invariants.kinetic_temperature, problem.system)},
        "backend": backend,
        "throw": True,
    }
    if replicas == 1:  # one long path compiles sooner than an ensemble of one
        if heat:
            hot = hx.GLA(cluster.method, friction=100 * FRICTION, temperature=KT)
            ended = hx.simulate(problem.system, hot, *start, **options)
            start = (ended.final_q, ended.final_p)
        seen = {name: x[None] for name, x in hx.simulate(problem.system, bath, *start, **options).observables.items()}
    else:
        starts = (jnp.broadcast_to(x, (replicas, *x.shape)) for x in start)
        seen = hx.simulate_ensemble(problem.system, bath, *starts, **options).observables
    skip = 1 + int(discard * (steps // every))
    distance, warmth = (seen[name][:, skip:] for name in ("distance", "heat"))
    shares = np.stack([_histogram(x) for x in distance])
    return shares, warmth.mean(axis=1) / KT


def _histogram(distance: np.ndarray) -> np.ndarray:
    count = np.histogram(distance, BINS, RANGE)[0]
    return count / count.sum()


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """Half the sum of differences of two histograms: the largest difference of probability of any event."""
    return 0.5 * float(np.sum(np.abs(a - b)))


def compare_distances(n: int, steps: int, replicas: int, seed: int = 0, **options: Any) -> dict[str, Any]:
    """Both methods on one cluster: total-variation distances between replicas of one and of two methods."""
    found = {
        cluster.name: sample_distances(cluster, steps, replicas=replicas, seed=seed + k, **options)
        for k, cluster in enumerate((Cluster(n, rigid=True), Cluster(n, rigid=False)))
    }
    (rigid, rigid_heat), (stiff, stiff_heat) = found.values()
    pairs = [(i, j) for i in range(replicas) for j in range(i)]
    within = [total_variation(x[i], x[j]) for x in (rigid, stiff) for i, j in pairs]
    return {
        "rigid": rigid,
        "stiff": stiff,
        "within": float(np.mean(within)) if within else float("nan"),
        "across": float(np.mean([total_variation(a, b) for a in rigid for b in stiff])),
        "pooled": total_variation(rigid.mean(axis=0), stiff.mean(axis=0)),
        "temperature": {"RATTLE": rigid_heat, "stiff Z&Ss": stiff_heat},
    }


def _draw_distances(found: dict[str, Any], title: str, path: Path, console: Any) -> None:
    from matplotlib.figure import Figure

    center = RANGE[0] + (np.arange(BINS) + 0.5) * (RANGE[1] - RANGE[0]) / BINS
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, key, style in (("RATTLE", "rigid", "-"), ("stiff Z&Ss", "stiff", "--")):
        axes.plot(center, found[key].mean(axis=0), style, label=name)
    axes.set(xlabel="oxygen-oxygen distance / Angstrom", ylabel="share", title=title)
    axes.legend()
    _save(figure, path, console)


def figure4(quick: bool, out: Path, console: Any) -> None:
    """Oxygen-oxygen distances of 7 waters at 232 K: stiff Z&Ss + GLA against RATTLE + GLA."""
    steps, replicas = (40_000, 4) if quick else (240_000, 8)
    found = compare_distances(7, steps, replicas)
    heat = ", ".join(f"{name} {x.mean():.3f} +- {x.std():.3f}" for name, x in found["temperature"].items())
    length = steps * 0.05 * EV.femtoseconds / 1000
    console.print(
        f"Figure 4: {replicas} replicas of {length:.0f} ps; total variation between replicas of one method "
        f"{found['within']:.3f}, of the two {found['across']:.3f} (ratio {found['across'] / found['within']:.2f}), "
        f"pooled {found['pooled']:.3f}; 2K/(dof kT): {heat}"
    )
    _draw_distances(found, "7 waters, 232 K", out / "figure4.png", console)


def figure7(quick: bool, out: Path, console: Any) -> None:
    """The same for 100 waters, at reduced length (the paper: T = 1000, which is 20 000 steps)."""
    steps = 500 if quick else 6_000
    found = compare_distances(100, steps, 1, heat=True, backend="auto")
    heat = ", ".join(f"{name} {x.mean():.3f}" for name, x in found["temperature"].items())
    console.print(
        f"Figure 7: 100 waters, {steps} steps ({steps * 0.05:.0f} units of time); total variation between the methods "
        f"{found['pooled']:.3f}; 2K/(dof kT): {heat}"
    )
    _draw_distances(found, "100 waters, 232 K", out / "figure7.png", console)


# -- figure 5: multipliers -------------------------------------------------------------------------------------------


def multipliers(t1: float, omega: float = 500.0, window: float = 0.2) -> dict[str, np.ndarray]:
    """Lagrange multipliers of the first molecule: RATTLE's, and the window means of `omega^2 g` of the stiff motion.

    The step resolves the springs: where it does not, Z&Ss holds `omega^2 g` at `lambda + beta h^2 omega^2 g''(v, v)`.
    """
    rigid, stiff = Cluster(7, rigid=True), Cluster(7, rigid=False, omega=omega)
    start, h = warm(rigid), 0.1 / omega
    options = {"dt": h, "steps": round(t1 / h), "save_every": 4, "backend": "native"}
    exact = hx.simulate(rigid.problem.system, rigid.method, *start, **options)
    sol = hx.simulate(stiff.problem.system, stiff.method, *start, **options)
    t, mean = penalty_multipliers(sol, window)
    values = np.stack([np.interp(t, exact.t, exact.multipliers[:, k]) for k in range(3)], axis=1)
    _, raw = penalty_multipliers(sol, 0.0)
    return {"t": t, "rigid": values, "stiff": mean[:, :3], "raw": raw[:, :3], "raw_t": np.asarray(sol.t)}


def figure5(quick: bool, out: Path, console: Any) -> None:
    """Multipliers of the first molecule, omega = 500: the averaged penalty force is the constraint force."""
    from matplotlib.figure import Figure

    found = multipliers(2.0 if quick else 8.0)
    figure = Figure(figsize=(7, 6), layout="constrained")
    for k, axes in enumerate(figure.subplots(3, sharex=True)):
        axes.plot(found["t"], found["stiff"][:, k], color="tab:orange", label="stiff Z&Ss, mean over 0.2", linewidth=2)
        axes.plot(found["t"], found["rigid"][:, k], "k--", label="RATTLE", linewidth=1)
        axes.set(ylabel=f"lambda {k + 1} / eV A$^{{-2}}$")
    axes.set(xlabel="t / 10.18 fs")
    axes.legend()
    size = np.sqrt(np.mean(found["rigid"] ** 2))
    error = np.sqrt(np.mean((found["stiff"] - found["rigid"]) ** 2))
    spread = np.std(
        found["raw"] - np.stack([np.interp(found["raw_t"], found["t"], x) for x in found["stiff"].T], axis=1)
    )
    console.print(
        f"Figure 5: rms multiplier {size:.3f} eV/A^2, rms difference of the window means {error:.3f}, "
        f"of the raw values {spread:.3f}"
    )
    _save(figure, out / "figure5.png", console)


# -- figure 6: energy and momenta without noise -----------------------------------------------------------------------


def warm(cluster: Cluster, steps: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """A state of the cluster after some ten picoseconds in the heat bath."""
    problem, bath = cluster.problem, hx.GLA(cluster.method, friction=0.1, temperature=KT)
    options = {"dt": problem.dt, "steps": steps, "save_every": steps, "key": jax.random.key(0), "backend": "native"}
    sol = hx.simulate(problem.system, bath, problem.q0, problem.p0, **options)
    return sol.q[-1], sol.p[-1]


def nve(steps: int, every: int = 20, newmark_steps: int | None = None) -> dict[str, dict[str, np.ndarray]]:
    """Energy, linear and angular momentum along deterministic runs of three methods from one warm start."""
    rigid, stiff = Cluster(7, rigid=True), Cluster(7, rigid=False)
    q, p = warm(rigid)
    newmark = hx.LinearlyImplicitNewmark(beta=BETA)
    runs = {
        "RATTLE": (rigid.problem, rigid.method, steps, "native"),
        "stiff Z&Ss": (stiff.problem, stiff.method, steps, "native"),
        "one-iteration Newmark": (stiff.problem, newmark, newmark_steps or steps, "auto"),
    }
    found = {}
    for name, (problem, method, count, backend) in runs.items():
        sol = hx.simulate(problem.system, method, q, p, dt=problem.dt, steps=count, save_every=every, backend=backend)
        series = {"t": np.asarray(sol.t), "energy": sol.energy_error()}
        push, spin = sol.p.sum(axis=1), np.cross(sol.q, sol.p).sum(axis=1)
        for label, value in {"linear momentum": push, "angular momentum": spin}.items():
            series[label] = np.max(np.abs(value - value[0]), axis=1)
        found[name] = series
    return found


def figure6(quick: bool, out: Path, console: Any) -> None:
    """Conservation of energy, linear and angular momentum by RATTLE, stiff Z&Ss and Newmark with one iteration."""
    from matplotlib.figure import Figure

    found = nve(4000 if quick else 20_000, newmark_steps=2000 if quick else None)
    figure = Figure(figsize=(7, 7), layout="constrained")
    panels = ("energy", "linear momentum", "angular momentum")
    for axes, panel in zip(figure.subplots(3, sharex=True), panels):
        for name, series in found.items():
            axes.plot(series["t"], series[panel], label=name, linewidth=0.8)
        axes.set(ylabel=f"change of {panel}")
        if panel != "energy":
            axes.set_yscale("symlog", linthresh=1e-15)
    axes.set(xlabel="t / 10.18 fs")
    axes.legend()
    for name, series in found.items():
        half = len(series["t"]) // 2
        drift = np.mean(series["energy"][half:]) - np.mean(series["energy"][:half])
        console.print(
            f"Figure 6: {name}: energy range {np.ptp(series['energy']):.1e} eV (second half minus first {drift:+.1e}), "
            f"linear momentum {np.max(series['linear momentum']):.1e}, angular {np.max(series['angular momentum']):.1e}"
        )
    _save(figure, out / "figure6.png", console)


def _save(figure: Any, path: Path, console: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    console.print(f"  drawn in {path}")


ITEMS: dict[str, Callable[[bool, Path, Any], None]] = {
    "figure4": figure4,
    "figure5": figure5,
    "figure6": figure6,
    "figure7": figure7,
}
