"""Phase portraits, Poincare sections and spectra of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.columns import entry_name
from ...core.errors import InputError
from ...run.events import EventRecord
from .notebook import Picture

if TYPE_CHECKING:
    from ...run.solution import Solution


def _entry(solution: Solution | EventRecord, which: str, k: int | str) -> tuple[np.ndarray, str]:
    values = solution.q if which == "q" else solution.p
    shape, flat = values.shape[1:], values.reshape(len(values), -1)
    names: tuple[str, ...] = getattr(solution, "coordinate_names", ())
    if isinstance(k, str):
        if k not in names:
            raise InputError(f"there is no coordinate {k!r}; there are {', '.join(names) or 'no names'}")
        k = names.index(k)
    if not -flat.shape[1] <= k < flat.shape[1]:
        raise InputError(f"{which} has {flat.shape[1]} entries; there is no entry {k}")
    return flat[:, k], entry_name(which, k % flat.shape[1], names, shape)


def plot_phase(solution: Solution, first: int | str = 0, second: int | str | None = None) -> Picture:
    """Plot `(q_i, p_i)`, or `(q_i, q_j)` if a second entry is given; rows that are far apart become dots."""
    x, x_name = _entry(solution, "q", first)
    y, y_name = _entry(solution, "p", first) if second is None else _entry(solution, "q", second)
    figure = Picture(figsize=(5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    path = np.stack([x, y], axis=1)
    extent = np.maximum(np.ptp(path, axis=0), 1e-300)
    far = len(path) > 2 and np.median(np.linalg.norm(np.diff(path, axis=0) / extent, axis=1)) > 0.08
    if far:
        axes.plot(x, y, linestyle="", marker=".", markersize=1.5)
    else:
        axes.plot(x, y, linewidth=0.8)
    axes.set(xlabel=x_name, ylabel=y_name, title=f"{solution.name} {solution.method.name}".strip())
    return figure


def poincare(
    source: Solution | EventRecord | list[EventRecord], section: int = 0, level: float = 0.0, show: int = 1
) -> Picture:
    """`(q_i, p_i)` of entry `show` on a Poincare section.

    `source` is an event record such as `sol.events[0]`, or a list of them, each in its own color; event states are
    accurate to the order of the method. For a solution, the points are linear interpolations between the rows where
    entry `section` of q rises through `level`.
    """
    figure = Picture(figsize=(5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(source, (EventRecord, list)):
        records = [source] if isinstance(source, EventRecord) else source
        for record in records:
            (x, x_name), (y, y_name) = _entry(record, "q", show), _entry(record, "p", show)
            axes.plot(x, y, ".", markersize=2 if len(x) < 2000 else 0.7, markeredgewidth=0, rasterized=True)
            axes.set(xlabel=x_name, ylabel=y_name)
        axes.set_title(f"{sum(len(r.t) for r in records)} passages of {len(records)} orbit{'s' * (len(records) != 1)}")
        return figure
    cut, cut_name = _entry(source, "q", section)
    x, x_name = _entry(source, "q", show)
    y, y_name = _entry(source, "p", show)
    rises = np.flatnonzero((cut[:-1] < level) & (cut[1:] >= level))
    part = (level - cut[rises]) / (cut[rises + 1] - cut[rises])
    axes.plot(*(v[rises] + part * (v[rises + 1] - v[rises]) for v in (x, y)), ".", markersize=2)
    axes.set(xlabel=x_name, ylabel=y_name, title=f"where {cut_name} rises through {level:g}: {len(rises)} points")
    return figure


def spectrum(solution: Solution, entry: int | str = 0) -> Picture:
    """The amplitude spectrum of an entry of q over angular frequency; rows must be equally spaced in time."""
    t, (x, name) = np.asarray(solution.t), _entry(solution, "q", entry)
    gaps = np.diff(t)
    if len(t) < 8 or np.ptp(gaps) > 1e-6 * abs(gaps).max():
        raise InputError("a spectrum needs at least 8 rows equally spaced in time: use a fixed step, or save_at")
    window = np.hanning(len(x))
    size = 2 * np.abs(np.fft.rfft((x - x.mean()) * window)) / window.sum()
    figure = Picture(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.semilogy(2 * np.pi * np.fft.rfftfreq(len(x), abs(gaps[0])), np.maximum(size, 1e-17), linewidth=0.8)
    axes.set(xlabel="angular frequency", ylabel=f"amplitude of {name}")
    return figure
