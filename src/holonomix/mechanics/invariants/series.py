"""Invariants along a trajectory: their values row by row, and whether they drift or only oscillate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ...core.types import ArrayLike


def along(invariants: Mapping[str, Callable[[Any, Any], Any]], q: ArrayLike, p: ArrayLike) -> dict[str, np.ndarray]:
    """Each invariant, a function of (q, p), on every row of a trajectory."""
    return {name: np.asarray(jax.vmap(fn)(q, p)) for name, fn in invariants.items()}


def drift(values: ArrayLike) -> float:
    """The largest departure from the first row, over all components."""
    values = np.asarray(values, float)
    return float(np.max(np.abs(values - values[:1]))) if len(values) else 0.0


class Trend(NamedTuple):
    """A straight line through a series: `slope` per unit time, `change` over the whole, `spread` around the line."""

    slope: float
    change: float
    spread: float

    @property
    def grows(self) -> bool:
        """Whether the change along the line exceeds the oscillation around it."""
        return self.change > self.spread


def trend(t: ArrayLike, values: ArrayLike) -> Trend:
    """The least-squares line through `values(t)`."""
    t, values = np.asarray(t, float), np.asarray(values, float)
    middle = t - t.mean()
    weight = float(np.sum(middle**2))
    slope = float(np.sum(middle * values)) / weight if weight > 0 else 0.0
    rest = values - values.mean() - slope * middle
    return Trend(slope, abs(slope) * float(t[-1] - t[0]), float(rest.max() - rest.min()))
