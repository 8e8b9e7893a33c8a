"""Tao & Owhadi (2015), section 4.4: figure 8, transitions of a DNA model."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.core.types import Numbers

from .items import Findings, item, legend

CLOSED = float(np.arccos(0.7))  # the two closed configurations are this angle and 2 pi minus it


def _mean_angle(q: Numbers, p: Numbers) -> Any:
    return jnp.stack([jnp.mean(q), jnp.mean(p)])


def transitions(mean: np.ndarray) -> np.ndarray:
    """The rows at which the mean angle reaches the other closed configuration."""
    near = np.where(mean < CLOSED + 0.5, 0, np.where(mean > 2 * np.pi - CLOSED - 0.5, 1, -1))
    rows, state = [], 0
    for k in np.flatnonzero(near >= 0):
        if near[k] != state:
            rows.append(k)
            state = near[k]
    return np.asarray(rows, int)


def run(method: hx.AbstractMethod, h: float, t1: float, seed: int = 0, throw: bool = True) -> Any:
    problem = hx.models.dna_chain(seed=seed)
    return hx.simulate(
        problem,
        method,
        dt=h,
        t1=t1,
        save_every=max(1, round(2.0 / h)),
        observe={"mean": _mean_angle},
        backend="native",
        throw=throw,
    )


@item(
    "figure8",
    "transitions of a DNA model",
    "section 4.4, Figure 8",
    "200 base pairs, a = 7, x0 = 0.3, eps = 1/1400, t to 4000",
    quick="t to 2000",
    seconds=(2, 2),
)
def figure8(found: Findings, quick: bool) -> None:
    """The chain passes between its two closed configurations; Z&S with h = 2 shows the same transitions as Verlet with
    h = 0.2 at a lower energy; both steps are near the limits of stability.
    """
    t1 = 2000.0 if quick else 4000.0
    runs = {
        "Verlet, $h = 0.2$": run(hx.StormerVerlet(), 0.2, t1),
        "Z&S, $h = 2$": run(hx.ZhangSkeel(0.3), 2.0, t1),
    }
    axes = found.panels("figure8", 2, 2, (7.0, 4.6))
    columns = ("method", "transitions", "first at t", "mean energy", "energy at the start", "ended at t")
    table = found.table(f"Chain of 200 base pairs, t to {t1:g}", *columns)
    energy, counts = {}, {}
    for (name, sol), panel, color in zip(runs.items(), axes[0], ("C0", "C1")):
        mean = sol.observables["mean"]
        rows = transitions(mean[:, 0])
        panel.plot(mean[:, 0], mean[:, 1], lw=0.4, ls="-", color=color)
        panel.set(title=name, xlabel=r"$\bar\theta$", ylabel=r"$d\bar\theta/dt$")
        h = sol.energy()
        energy[name], counts[name] = float(np.mean(h[len(h) // 4 :])), len(rows)
        first = f"{sol.t[rows[0]]:.0f}" if len(rows) else "none"
        table.add(name.replace("$", ""), len(rows), first, energy[name], float(h[0]), f"{sol.final_t:.0f}")
        axes[1, 0].plot(sol.t, mean[:, 0], lw=0.7, color=color, label=name)
        axes[1, 1].plot(sol.t, h, lw=0.7, color=color, label=name)
    axes[1, 0].set(xlabel="$t$", ylabel=r"$\bar\theta$")
    axes[1, 1].set(xlabel="$t$", ylabel="energy $H$")
    legend(axes[1, 0], 2)
    verlet, coarse = counts.values()
    found.compare(
        "transitions between the closed configurations 0.795 and 5.49",
        "several, with both methods",
        f"{verlet} with Verlet, {coarse} with Z&S",
        min(verlet, coarse) >= 2,
    )
    low, high = energy.values()
    found.compare(
        "the energy along Z&S is lower than along Verlet",
        "yes: large steps damp the fast oscillations",
        f"mean {high:.4g} against {low:.4g}",
        high < low,
        why="Z&S conserves a modified energy; H itself along its trajectory is higher with this start",
    )
    limit = verlet_limit()
    found.compare(
        "h = 0.2 is near Verlet's limit of stability",
        "yes",
        f"the limit is h = {limit:.2f}",
        limit < 0.3,
        why="the linear chain alone, with frequencies up to 2, allows h = 1, and the Morse wells take little of it",
    )
    if not quick:
        late = run(hx.ZhangSkeel(0.3), 2.0, 10_000.0, throw=False)
        wild = np.flatnonzero(~(np.abs(late.energy_error()) < 1e3))
        ended = late.t[wild[0]] if wild.size else late.final_t
        if wild.size or late.status.failed:
            found.note(f"Z&S with h = 2 goes on to t = {ended:.0f} and then blows up.")


def verlet_limit() -> float:
    """The largest step of a scan for which Verlet conserves the energy over 400 units of time."""
    steps, best = (0.2, 0.5, 0.8, 0.9, 0.94, 0.96, 0.98, 1.0), 0.0
    for h in steps:
        sol = run(hx.StormerVerlet(), h, 400.0, throw=False)
        if sol.status.failed or not np.all(np.abs(sol.energy_error()) < 1.0):
            break
        best = h
    return best


ITEMS = (figure8,)
