"""Phase portraits, Poincare sections and spectra of a run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.columns import entry_name
from ...core.errors import InputError
from ...core.scene import Bond
from ...core.types import Numbers, Real
from ...mechanics.abstract import AbstractSystem
from ...run.events import EventRecord
from ...run.solution import map_rows
from .notebook import Picture

if TYPE_CHECKING:
    from ...run.solution import Solution


def _entry(solution: Solution | EventRecord, which: str, k: int | str) -> tuple[np.ndarray, str]:
    values = solution.q if which == "q" else solution.p
    shape, flat = values.shape[1:], values.reshape(len(values), -1)
    names: tuple[str, ...] = getattr(solution, "coordinate_names", ())
    if isinstance(k, str):
        if k not in names:
            own = f"; phase({k[2:]!r}) draws {k[2:]} against its momentum" if k[:2] == "p_" and k[2:] in names else ""
            raise InputError(f"there is no coordinate {k!r}; there are {', '.join(names) or 'no names'}{own}")
        k = names.index(k)
    if not -flat.shape[1] <= k < flat.shape[1]:
        raise InputError(f"{which} has {flat.shape[1]} entries; there is no entry {k}")
    return flat[:, k], entry_name(which, k % flat.shape[1], names, shape)


def _named(solution: Solution, name: str) -> np.ndarray:
    """An observable of the run, or "angle k": the angle of the k-th bar of the picture from the downward vertical."""
    if name in solution.observables:
        values = np.asarray(solution.observables[name])
        if values.ndim != 1:
            raise InputError(f"observable {name!r} has shape {values.shape[1:]} per row; a number is needed")
        return values
    bars = _bars(solution)
    known = [f"angle {k + 1}" for k in range(len(bars))]
    if name not in known:
        entries = f"the entries 0 to {np.size(solution.q[0]) - 1} of q"
        raise InputError(
            f"there is no quantity {name!r}; there are {', '.join([*solution.observables, *known, entries])}"
        )
    return _arm_angles(solution, bars[known.index(name)])[0]


def _bars(solution: Solution) -> list[Bond]:
    scene = solution.scene
    if scene is None or scene.dimension != 2:
        return []
    return [bond for bond in scene.bonds if bond.kind in ("bar", "spring") and not bond.at_a and not bond.at_b]


def _arm_angles(solution: Solution, bond: Bond) -> tuple[np.ndarray, np.ndarray]:
    """The angle of a bar, within (-pi, pi], and its rate."""
    scene = solution.scene
    assert scene is not None
    velocity = map_rows(_velocity, solution.system, solution.q, solution.p, solution.t)
    if scene.layout == "angles":
        return _wrapped(solution.q[:, bond.b]), velocity[:, bond.b]
    still = dataclasses.replace(scene, anchors=tuple((0.0, 0.0) for _ in scene.anchors))
    (x, y), (u, v) = (
        np.moveaxis(where.place(rows, bond.b) - where.place(rows, bond.a), -1, 0)
        for where, rows in ((scene, scene.points(solution.q)), (still, scene.points(velocity)))
    )
    return np.arctan2(x, -y), (x * v - y * u) / (x * x + y * y)


def _velocity(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
    return system.velocity(q, p)


def _wrapped(angle: np.ndarray) -> np.ndarray:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _section_in_angles(source: Solution, section: str, level: float, show: str) -> Picture:
    """The section where the angle `section` ("angle 1", ...) rises through `level`: the angle `show` and its rate."""
    bars = {f"angle {k + 1}": bond for k, bond in enumerate(_bars(source))}
    for name in (section, show):
        if name not in bars:
            known = ", ".join([*source.coordinate_names, *bars])
            raise InputError(f"there is no angle {name!r}; there are {known or 'none: the picture has no bars'}")
    cut = _wrapped(_arm_angles(source, bars[section])[0] - level)
    angle, rate = _arm_angles(source, bars[show])
    rises = np.flatnonzero((cut[:-1] < 0) & (cut[1:] >= 0) & (cut[1:] - cut[:-1] < np.pi))
    part = cut[rises] / (cut[rises] - cut[rises + 1])
    x = _wrapped(angle[rises] + part * _wrapped(angle[rises + 1] - angle[rises]))
    y = rate[rises] + part * (rate[rises + 1] - rate[rises])
    figure = Picture(figsize=(5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(x, y, ".", markersize=2)
    axes.set(
        xlabel=show, ylabel=f"rate of {show}", title=f"where {section} rises through {level:g}: {len(rises)} points"
    )
    return figure


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
    source: Solution | EventRecord | list[EventRecord],
    section: int | str = 0,
    level: float = 0.0,
    show: int | str = 1,
) -> Picture:
    """`(q_i, p_i)` of entry `show` on a Poincare section.

    Entries may be given by the names of coordinates, such as those of `hx.from_sympy`. `section` and `show` may both be
    angles: "angle 1" is the angle of the first bar of the picture from the downward vertical. The points are then
    angles and their rates.

    `source` is an event record such as `sol.events[0]`, or a list of them, each in its own color; event states are
    accurate to the order of the method. For a solution, the points are linear interpolations between the rows where
    entry `section` of q rises through `level`.
    """
    coordinates: tuple[str, ...] = getattr(source, "coordinate_names", ())
    if not all(isinstance(k, int) or k in coordinates for k in (section, show)):
        if isinstance(source, (EventRecord, list)):
            raise InputError("names need a Solution; of events, give the numbers of entries")
        if not (isinstance(section, str) and isinstance(show, str)):
            raise InputError(f"section and show are both angles or both entries of q, not {section!r} and {show!r}")
        return _section_in_angles(source, section, level, show)
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
    """The amplitude spectrum over angular frequency of an entry of q, of an observable or of "angle 1".

    Named coordinates, such as those of `hx.from_sympy`, may be given by name. Rows must be equally spaced in time.
    """
    t = np.asarray(solution.t)
    known = isinstance(entry, int) or entry in getattr(solution, "coordinate_names", ())
    x, name = _entry(solution, "q", entry) if known else (_named(solution, str(entry)), str(entry))
    x = np.unwrap(x) if name.startswith("angle ") and name not in solution.observables else x
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
