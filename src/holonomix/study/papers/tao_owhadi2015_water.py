"""Tao & Owhadi (2015), section 4.3: figures 4 to 7, water clusters rigid and stiff.

The paper prints no units. Its figures agree with eV, Angstrom and amu, for which the unit of time is 10.18 fs.
Then omega = 20, h = 0.05 (0.509 fs), gamma = 0.01 (0.98/ps, taken as a rate) and beta = 50 (232 K) are as printed.
Newmark's parameter, which the text leaves out, is 0.4.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

import holonomix as hx
from holonomix.build.models.water import UNITS, oxygen_distances
from holonomix.core.types import Numbers
from holonomix.mechanics.projection import penalty_multipliers

from .items import Findings, item, legend

EV = UNITS["eV"]
KT = EV.boltzmann * 232.0
FRICTION, BETA = 0.01, 0.4
BINS, RANGE = 100, (2.4, 7.4)
WATER = "7 TIP3P waters, omega 20, h 0.05, gamma 0.01, 1/kT = 50 (232 K), Newmark's beta 0.4 (not printed)"


class Cluster:
    """One of the two ways to treat a cluster: its problem and its method."""

    def __init__(self, n: int, rigid: bool, omega: float | None = None):
        self.problem = hx.models.water_cluster(n, units="eV", rigid=rigid, omega=omega)
        self.name = "RATTLE" if rigid else "stiff Z&Ss"
        self.method = hx.RATTLE(hx.SymmetricNewton()) if rigid else hx.StiffZhangSkeel(beta=BETA)


def _distances(q: Numbers, p: Numbers) -> Any:
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
    """Histograms of the distances and `2 K/(dof kT)`, one per replica, without the first share `discard`.

    Relaxed initial states are cold. With `heat`, a run of the same length with a hundred times the friction precedes.
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
    if replicas == 1:  # a single trajectory compiles faster than an ensemble of one
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


def _draw_distances(found: Findings, name: str, seen: dict[str, Any]) -> None:
    center = RANGE[0] + (np.arange(BINS) + 0.5) * (RANGE[1] - RANGE[0]) / BINS
    axes = found.panels(name)
    for label, key in (("RATTLE", "rigid"), ("stiff Z&Ss", "stiff")):
        axes.plot(center, seen[key].mean(axis=0), label=label)
    axes.set(xlabel="O-O distance / Å", ylabel="share per bin of 0.05 Å")
    legend(axes, 2)


@item(
    "figure4",
    "O-O distances of 7 waters",
    "section 4.3, Figure 4",
    f"{WATER}; 8 replicas of T = 12 000",
    quick="4 replicas of T = 2 000",
    seconds=(8, 20),
)
def figure4(found: Findings, quick: bool) -> None:
    """SHAKE and simplified Z&Ss, both with GLA, sample the same distribution of O-O distances."""
    steps, replicas = (40_000, 4) if quick else (240_000, 8)
    seen = compare_distances(7, steps, replicas)
    length = steps * 0.05 * EV.femtoseconds / 1000
    table = found.table(
        f"{replicas} replicas of {length:.0f} ps: total variation of the distributions", "between", "distance"
    )
    table.add("replicas of one method", seen["within"])
    table.add("replicas of the two methods", seen["across"])
    table.add("the two methods, all replicas together", seen["pooled"])
    ratio = seen["across"] / seen["within"]
    found.compare(
        "distributions of SHAKE and simplified Z&Ss",
        "agree",
        f"they differ {ratio:.2f} times as much as two runs of one method",
        ratio < 1.5,
        why="the runs are too short, or the stiff springs change the distribution",
    )
    heat = {name: float(x.mean()) for name, x in seen["temperature"].items()}
    found.compare(
        "kinetic temperature over 232 K",
        "1",
        ", ".join(f"{k} {x:.3f}" for k, x in heat.items()),
        all(abs(x - 1) < 0.06 for x in heat.values()),
    )
    found.note(
        "The paper prints no units; eV, Angstrom and amu fit its figures (unit of time 10.18 fs). The friction is "
        "taken as a rate."
    )
    _draw_distances(found, "figure4", seen)


@item(
    "figure7",
    "O-O distances of 100 waters",
    "section 4.3, Figure 7",
    "100 waters, T = 1000 (20 000 steps), as long before to heat up",
    quick="T = 100 (2 000 steps), as long before: not yet in equilibrium, but at the same time with both methods",
    seconds=(7, 18),
)
def figure7(found: Findings, quick: bool) -> None:
    """With 100 waters the distributions of SHAKE and simplified Z&Ss agree too."""
    steps = 2_000 if quick else 20_000
    seen = compare_distances(100, steps, 1, heat=True, backend="auto")
    table = found.table(f"100 waters, {steps} steps (T = {steps // 20})", "method", "2K/(dof kT)")
    for name, x in seen["temperature"].items():
        table.add(name, float(x.mean()))
    found.compare(
        "distributions of SHAKE and simplified Z&Ss, total variation",
        "agree",
        f"{seen['pooled']:.3f}",
        seen["pooled"] < 0.1,
        why="one run of each method, which wander apart",
    )
    _draw_distances(found, "figure7", seen)


# -- figure 5: multipliers -------------------------------------------------------------------------------------------


def multipliers(t1: float, omega: float = 500.0, window: float = 0.2, h: float | None = None) -> dict[str, np.ndarray]:
    """Multipliers of the first molecule: those of RATTLE, and window means of `omega^2 g` of the stiff motion.

    By default the step resolves the springs. If it does not, `omega^2 g` of Z&Ss is
    `lambda + beta h^2 omega^2 g''(v, v)`.
    """
    rigid, stiff = Cluster(7, rigid=True), Cluster(7, rigid=False, omega=omega)
    start = warm(rigid)
    fine = 0.1 / omega
    every = 4 if h is None else 1
    step = fine if h is None else h
    options = {"dt": step, "steps": round(t1 / step), "save_every": every, "backend": "native", "throw": h is None}
    exact = hx.simulate(
        rigid.problem.system, rigid.method, *start, dt=fine, steps=round(t1 / fine), save_every=4, backend="native"
    )
    sol = hx.simulate(stiff.problem.system, stiff.method, *start, **options)
    t, mean = penalty_multipliers(sol, window)
    values = np.stack([np.interp(t, exact.t, exact.multipliers[:, k]) for k in range(3)], axis=1)
    _, raw = penalty_multipliers(sol, 0.0)
    return {"t": t, "rigid": values, "stiff": mean[:, :3], "raw": raw[:, :3], "raw_t": np.asarray(sol.t)}


@item(
    "figure5",
    "multipliers of a water molecule",
    "section 4.3, Figure 5",
    "7 waters, omega 500, window 0.2, t to 8; step 0.0002, and 0.05 as printed",
    quick="t to 2",
    seconds=(5, 8),
)
def figure5(found: Findings, quick: bool) -> None:
    """Window means of the penalty force at omega = 500 agree with SHAKE's multipliers."""
    t1 = 2.0 if quick else 8.0
    seen = multipliers(t1)
    axes = found.panels("figure5", 3, 1, (3.4, 4.4), sharex=True)
    for k, panel in enumerate(axes):
        panel.plot(seen["t"], seen["stiff"][:, k], color="C1", ls="-", label="stiff Z&Ss, mean over 0.2", lw=0.4)
        panel.plot(seen["t"], seen["rigid"][:, k], "k--", label="RATTLE", lw=0.8)
        panel.set(ylabel=rf"$\lambda_{k + 1}$ / eV Å$^{{-2}}$")
    axes[-1].set(xlabel="$t$ / 10.18 fs")
    legend(axes[0], 2)
    rms = lambda x: float(np.sqrt(np.mean(x**2)))
    size, error = rms(seen["rigid"]), rms(seen["stiff"] - seen["rigid"])
    spread = float(
        np.std(seen["raw"] - np.stack([np.interp(seen["raw_t"], seen["t"], x) for x in seen["stiff"].T], axis=1))
    )
    table = found.table(f"omega 500, t to {t1:g}, eV/Å^2", "quantity", "root mean square")
    table.add("lambda", size)
    table.add("window mean of omega^2 g - lambda, h = 0.0002", error)
    table.add("omega^2 g around its mean, h = 0.0002", spread)
    found.compare(
        "window means and SHAKE's multipliers, resolved step",
        "agree",
        f"rms difference {error / size:.1%}",
        error < 0.02 * size,
    )
    coarse = multipliers(t1, h=0.05)
    away = rms(coarse["stiff"] - coarse["rigid"]) if len(coarse["t"]) else np.inf
    table.add("window mean of omega^2 g - lambda, h = 0.05", away)
    found.compare(
        "the same with the printed h = 0.05",
        "agree",
        f"rms difference {away / size:.0%} of lambda",
        away < 0.2 * size,
        why="the step does not resolve the springs (h omega = 25), and Z&Ss then holds omega^2 g at lambda + beta h^2 "
        "omega^2 g''(v, v); the paper's picture needs a smaller step",
    )


# -- figure 6: energy and momenta without noise -----------------------------------------------------------------------


def warm(cluster: Cluster, steps: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """A state of the cluster after some ten picoseconds in the heat bath."""
    problem, bath = cluster.problem, hx.GLA(cluster.method, friction=0.1, temperature=KT)
    options = {"dt": problem.dt, "steps": steps, "save_every": steps, "key": jax.random.key(0), "backend": "native"}
    sol = hx.simulate(problem, bath, **options)
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


@item(
    "figure6",
    "conservation without noise",
    "section 4.3, Figure 6",
    f"{WATER}, without noise and friction, 20 000 steps",
    quick="4 000 steps",
    seconds=(3, 7),
)
def figure6(found: Findings, quick: bool) -> None:
    """Simplified Z&Ss, though not symplectic, preserves energy and momenta better than partially solved Newmark."""
    seen = nve(4000 if quick else 20_000)
    axes = found.panels("figure6", 3, 1, (3.4, 5.8), sharex=True)
    labels = {
        "energy": "$|H - H_0|$ / eV",
        "linear momentum": r"$|P - P_0|$ / amu Å $\tau^{-1}$",
        "angular momentum": r"$|L - L_0|$ / amu Å$^2$ $\tau^{-1}$",
    }
    columns = ("method", "range of the energy / eV", "second half - first", "linear momentum", "angular momentum")
    table = found.table("Largest changes", *columns)
    size, drift, spin = {}, {}, {}
    for name, series in seen.items():
        half = len(series["t"]) // 2
        size[name] = float(np.ptp(series["energy"]))
        drift[name] = float(np.mean(series["energy"][half:]) - np.mean(series["energy"][:half]))
        spin[name] = float(np.max(series["angular momentum"]))
        table.add(name, size[name], drift[name], float(np.max(series["linear momentum"])), spin[name])
        for panel, key in zip(axes, labels):
            panel.semilogy(series["t"][1:], np.abs(series[key][1:]), label=name, lw=0.8)
    for panel, label in zip(axes, labels.values()):
        panel.set(ylabel=label)
        panel.locator_params(axis="y", numticks=5)
        panel.yaxis.set_minor_formatter("")
    axes[-1].set(xlabel=r"$t / \tau$, $\tau = 10.18$ fs")
    legend(axes[0], 2)
    newmark, stiff = "one-iteration Newmark", "stiff Z&Ss"
    found.compare(
        "energy: simplified Z&Ss against partially solved Newmark",
        "better preserved",
        f"range {size[stiff]:.1e} against {size[newmark]:.1e} eV, drift {drift[stiff]:+.1e} against "
        f"{drift[newmark]:+.1e}",
        size[stiff] < 0.5 * size[newmark] and abs(drift[stiff]) < abs(drift[newmark]),
        why="the run is too short for the drift of Newmark to show",
    )
    found.compare("SHAKE's angular momentum", "preserved", f"to {spin['RATTLE']:.0e}", spin["RATTLE"] < 1e-10)
    found.compare(
        "angular momentum of simplified Z&Ss",
        "not exactly (symplecticity is lost)",
        f"changes by {spin[stiff]:.1e}",
        1e-10 < spin[stiff] < 0.5,
    )
    linear = max(float(np.max(series["linear momentum"])) for series in seen.values())
    found.compare("linear momentum", "preserved", f"to {linear:.0e}", linear < 1e-11)


ITEMS = (figure4, figure5, figure6, figure7)
