"""Tabs of the page: phase portraits, Poincare sections, spectra, and a table of errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from holonomix.core.columns import entry_name

from .recording import Recording, Table

MAX_COORDINATES = 4
MAX_ROWS = 1 << 21  # rows that are read for sections and spectra
PHASE_ROWS = 2500
CROSSINGS = 800
BINS = 600
MAX_GAP = 0.08

Encode = Callable[[np.ndarray], str]


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """Some entries of q and p over the rows of a run."""

    names: list[tuple[str, str]]  # of the entry of q, and of its momentum
    t: np.ndarray
    q: np.ndarray
    p: np.ndarray


def portraits(recording: Recording, tracked: list[int], encode: Encode, doubles: Encode) -> dict[str, Any] | None:
    """The data of the tabs: rows for phase portraits, Poincare sections of every coordinate, and spectra."""
    total = min(len(recording.t), MAX_ROWS)
    if recording.p is None or total < 3:
        return None
    found = _coordinates(recording, tracked, total)
    if found is None:
        return None
    rows = np.arange(total)
    if total > PHASE_ROWS:  # random rows, because equally spaced rows of a periodic motion show spurious patterns
        rows = np.sort(np.random.default_rng(0).choice(total, PHASE_ROWS, replace=False))
    joined = len(rows) == total and _near(found.q) and _near(found.p)
    times = "" if len(rows) == len(recording.t) else doubles(found.t[rows])  # else the times of the frames
    phase: dict[str, Any] = {"t": times, "joined": joined}
    for key, x in (("q", found.q), ("p", found.p)):
        phase[key] = [encode(x[rows, k]) for k in range(len(found.names))]
    out: dict[str, Any] = {"names": found.names, "phase": phase, "sections": [], "spectrum": None}
    if _near(found.q):  # crossings cannot be located between rows that are far apart
        out["sections"] = [_section(found, k, encode) for k in range(len(found.names))]
    out["spectrum"] = _spectrum(found, encode)
    return out


def _coordinates(recording: Recording, tracked: list[int], total: int) -> Coordinates | None:
    first = recording.q(slice(0, 1))
    shape, size = first.shape[1:], first[0].size
    if size == 0:
        return None
    scene, chosen = recording.scene, list(range(min(size, MAX_COORDINATES)))
    if scene is not None and scene.layout == "rotation":
        chosen = [2, 5, 8]  # the axis of the body
    elif scene is not None and len(shape) == 2:
        chosen = [k * shape[1] + c for k in tracked[-2:] for c in range(scene.dimension)][-MAX_COORDINATES:]
    chosen = chosen or [0]
    parts: dict[str, list[np.ndarray]] = {"q": [], "p": []}
    for k in range(0, total, 1 << 16):
        part = slice(k, min(k + (1 << 16), total))
        for key, read in (("q", recording.q), ("p", recording.p)):
            rows = read(part)  # type: ignore[misc]
            parts[key].append(rows.reshape(len(rows), -1)[:, chosen])
    names = [
        (entry_name("q", k, recording.coordinates, shape), entry_name("p", k, recording.coordinates, shape))
        for k in chosen
    ]
    return Coordinates(names, recording.t[:total], np.concatenate(parts["q"]), np.concatenate(parts["p"]))


def _near(values: np.ndarray) -> bool:
    if np.isnan(values).all(axis=0).any():  # an ensemble before its first trajectory
        return True
    with np.errstate(invalid="ignore"):
        extent = np.maximum(np.nanmax(values, axis=0) - np.nanmin(values, axis=0), 1e-300)
        return bool(np.nanmedian(np.max(np.abs(np.diff(values, axis=0)) / extent, axis=1)) <= MAX_GAP)


def _section(found: Coordinates, k: int, encode: Encode) -> dict[str, Any]:
    """`(q, p)` of all coordinates where coordinate k rises through zero, or through the middle of its range."""
    cut = found.q[:, k]
    cut = np.zeros(len(cut)) if np.isnan(cut).all() else cut
    low, high = float(np.nanmin(cut)), float(np.nanmax(cut))
    level = 0.0 if low < 0 < high else (low + high) / 2
    rises = np.flatnonzero((cut[:-1] < level) & (cut[1:] >= level))
    if len(rises) > CROSSINGS:
        rises = rises[np.unique(np.linspace(0, len(rises) - 1, CROSSINGS).astype(int))]
    part = ((level - cut[rises]) / (cut[rises + 1] - cut[rises]))[:, None]
    at = [x[rises] + part * (x[rises + 1] - x[rises]) for x in (found.q, found.p)]
    columns = [[encode(x[:, j]) for j in range(x.shape[1])] for x in at]
    return {"level": level, "count": len(rises), "q": columns[0], "p": columns[1]}


def _spectrum(found: Coordinates, encode: Encode) -> dict[str, Any] | None:
    """Amplitude over angular frequency; None if rows are not equally spaced in time."""
    gaps = np.diff(found.t)
    if len(gaps) < 16 or np.ptp(gaps) > 1e-6 * np.abs(gaps).max() or not np.isfinite(found.q).all():
        return None
    window = np.hanning(len(found.t))[:, None]
    sizes = 2 * np.abs(np.fft.rfft((found.q - found.q.mean(axis=0)) * window, axis=0)) / window.sum()
    frequency = 2 * np.pi * np.fft.rfftfreq(len(found.t), abs(float(gaps.mean())))
    loud = np.flatnonzero((sizes > 1e-6 * max(float(sizes.max()), 1e-300)).any(axis=1))
    stop = min(len(frequency), int(1.2 * (loud[-1] if len(loud) else 0)) + 8)
    edges = np.unique(np.linspace(0, stop, min(BINS, stop) + 1).astype(int))[:-1]
    high = np.maximum.reduceat(sizes[:stop], edges, axis=0)
    return {"w": encode(frequency[edges]), "a": [encode(high[:, k]) for k in range(high.shape[1])]}


def kept_table(
    envelopes: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]], conserved: str | None = None
) -> Table | None:
    """A table of the largest recorded errors of a run, and the drift of the curve that should stay zero."""
    rows = []
    for name, (t, low, high) in envelopes.items():
        worst = float(np.nanmax(np.maximum(np.abs(low), np.abs(high)), initial=0.0))
        rows.append((name, f"{worst:.3g}"))
        if name == conserved and len(t) > 2:
            middle, span = (low + high) / 2, float(t[-1] - t[0])
            good = np.isfinite(middle)
            slope = np.polyfit(t[good], middle[good], 1)[0] if good.sum() > 2 else np.nan
            rows.append(("its linear drift over the run", f"{slope * span:.3g}"))
    return Table("This run", ("", "largest"), tuple(rows)) if rows else None


def certificate_table(certificate: Any) -> Table:
    """A table of the findings of a `Certificate`, or of the result of its `to_dict`."""
    data = certificate if isinstance(certificate, Mapping) else certificate.to_dict()
    words = {True: "confirmed", False: "FAILED"}
    rows = []
    for finding in data.get("findings", ()):
        if isinstance(finding, Mapping):
            measured, declared = finding.get("measured"), finding.get("declared")
            number = f"{measured:.3g}" if isinstance(measured, int | float) else str(measured)
            kept = finding.get("kept")
            verdict = words[kept] if isinstance(kept, bool) else ""
            rows.append((str(finding.get("name")), number, "" if declared is None else str(declared), verdict))
    title = f"Certificate: {data.get('method')} on {data.get('problem')}, dt = {data.get('dt')}"
    return Table(title, ("property", "measured", "declared", ""), tuple(rows))
