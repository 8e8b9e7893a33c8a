"""A figure of an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .notebook import Picture

if TYPE_CHECKING:
    from ...run.ensemble import Ensemble

MAX_TRAJECTORIES = 200


def plot_ensemble(ensemble: Ensemble, entry: int = 0) -> Picture:
    """Plot an entry of q over time for some trajectories, or its histogram if only final states were kept."""
    q, t = np.asarray(ensemble.q), np.asarray(ensemble.t)
    figure = Picture(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    flat = q.reshape(*t.shape, -1)[..., entry]
    name = ensemble.coordinate_names[entry] if ensemble.coordinate_names else f"entry {entry} of q"
    if flat.ndim == 1 or flat.shape[1] == 1:
        axes.hist(flat.reshape(-1)[np.isfinite(flat.reshape(-1))], bins=60)
        axes.set(xlabel=f"{name} at the end", ylabel="trajectories")
        return figure
    chosen = np.unique(np.linspace(0, len(flat) - 1, min(MAX_TRAJECTORIES, len(flat))).astype(int))
    thin = max(1, flat.shape[1] // 2000)
    axes.plot(
        t[chosen, ::thin].T, flat[chosen, ::thin].T, color="tab:blue", linewidth=0.5, alpha=min(1, 8 / len(chosen))
    )
    axes.set(xlabel="t", ylabel=name, title=f"{len(chosen)} of {len(flat)} trajectories")
    return figure
