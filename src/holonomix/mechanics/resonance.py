"""Limits of the theory of fast oscillations: frequencies that coincide, or nearly satisfy a second-order resonance."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.errors import InputError, ResonanceWarning
from ..core.types import Numbers
from ..trace.compiled import compiled

if TYPE_CHECKING:
    from .abstract import AbstractSystem
    from .stiff import StiffSystem

MAX_ROWS = 256


@compiled
def _frequency_rows(stiff: StiffSystem, rows: Numbers) -> Any:
    return jax.lax.map(stiff.frequencies, rows)


def _conditions(omega: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """`|omega_j - omega_k|` and `|omega_k + omega_l - omega_j|`, one row each, and a description of each."""
    m = omega.shape[1]
    pairs = [(j, k) for j in range(m) for k in range(j)]
    sums = [(j, k, l) for j in range(m) for k in range(m) for l in range(k + 1) if j not in (k, l)]
    gaps = [np.abs(omega[:, j] - omega[:, k]) for j, k in pairs]
    gaps += [np.abs(omega[:, k] + omega[:, l] - omega[:, j]) for j, k, l in sums]
    names = [f"frequencies {k} and {j} meet" for j, k in pairs]
    return np.stack(gaps), names + [f"frequency {j} is the sum of {l} and {k}" for j, k, l in sums]


def resonances(
    stiff: Any, rows: Numbers, *, margin: float = 0.02, times: np.ndarray | None = None, stacklevel: int = 2
) -> np.ndarray:
    """The distance of the frequencies from coincidence or resonance at each position of `rows` (such as `sol.q`).

    The distance is the smallest of `|omega_j - omega_k|` (j != k) and `|omega_j +- omega_k +- omega_l|`, over the
    largest frequency (Lubich & Weiss (11), (12)). Below `margin` a `ResonanceWarning` names the row (or its time, where
    `times` are given) and the numbers.
    """
    if getattr(stiff, "kind", "") != "stiff":
        raise InputError("frequencies belong to a stiff system: give system.penalized(omega) or a StiffSystem")
    rows = jnp.asarray(rows, jnp.result_type(float))
    omega = np.asarray(_frequency_rows(stiff.prepare(rows[0]), rows))
    if omega.shape[1] < 2:
        return np.full(len(omega), np.inf)
    gaps, names = _conditions(omega)
    distance = gaps / np.max(omega, axis=1)
    least = np.min(distance, axis=0)
    row = int(np.argmin(np.where(np.isnan(least), np.inf, least)))
    if least[row] < margin:
        which = names[int(np.argmin(distance[:, row]))]
        place = f"row {row}" if times is None else f"t = {times[row]:.4g}"
        warnings.warn(
            f"{which} within {least[row]:.2g} of the largest at {place}, omega = {np.round(omega[row], 4)}: "
            "actions need not be conserved there, and the effective system may be invalid",
            ResonanceWarning,
            stacklevel=stacklevel,
        )
    return least


class ResonanceWatch:
    """At most `MAX_ROWS` rows, spread evenly over a run, to be tested for resonances at its end.

    `energy` is that of the oscillations.
    """

    def __init__(self, stiff: AbstractSystem, energy: float):
        self.stiff, self.energy, self.stride, self.seen = stiff, energy, 1, 0
        self.kept: list[tuple[float, np.ndarray, np.ndarray]] = []

    def add(self, t: np.ndarray, q: np.ndarray, p: np.ndarray) -> None:
        """Sample the next rows; if there are too many samples, drop every other one."""
        first = -self.seen % self.stride
        self.seen += len(t)
        self.kept += [(float(t[k]), np.array(q[k]), np.array(p[k])) for k in range(first, len(t), self.stride)]
        while len(self.kept) > MAX_ROWS:
            self.kept, self.stride = self.kept[::2], 2 * self.stride

    def judge(self, stacklevel: int = 4) -> None:
        """Warn of a resonance if the oscillations carry more than a thousandth of the kinetic energy."""
        if not self.kept:
            return
        t, q, p = (np.stack(x) for x in zip(*self.kept))
        kinetic = np.asarray(jax.vmap(self.stiff.kinetic)(jnp.asarray(q), jnp.asarray(p)))
        if self.energy > 1e-3 * np.nanmax(kinetic):
            resonances(self.stiff, jnp.asarray(q), times=t, stacklevel=stacklevel)
