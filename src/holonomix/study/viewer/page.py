"""One self-contained HTML page of a run: the motion, and charts that share its time."""

from __future__ import annotations

import base64
import dataclasses
import html
import importlib.resources
import json
import os
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holonomix.core.scene import Scene
from holonomix.run.io import EnsembleStore, Store, disk
from holonomix.run.io.directory import is_ensemble

from .ensembles import as_page_map, from_ensemble, from_ensemble_store
from .portraits import certificate_table, kept_table, portraits
from .recording import Reader, Recording, from_solution, from_store

if TYPE_CHECKING:
    from holonomix.run.ensemble import Ensemble
    from holonomix.run.solution import Solution

FRAMES = 2000
MOST_NUMBERS = 160_000  # coordinates in all frames of a page: about 0.9 MB
WINDOWS = 4  # of a run that is too long to be shown whole
BINS = 600  # of the envelope of a long run
CLOUD = 6000  # points of a long run that are drawn unconnected
BLOCK = 1 << 16  # rows that are read at once
FAR = 0.08  # neighboring rows further apart than this share of the picture are not joined
MOST_TRACKED = 8
MOST_FORCES = 140_000  # numbers, of two bytes each


def write_page(
    source: str | os.PathLike[str] | Solution | Ensemble,
    target: str | os.PathLike[str],
    *,
    rows: int = FRAMES,
    reload: float = 0.0,
    certificate: Any = None,
) -> Path:
    """Write the page of a store, a solution or an ensemble; of long runs, about `rows` rows are shown as frames.

    A page with `reload` seconds loads itself again after that time and shows the last rows: it follows a run. A
    `certificate` (or what its `to_dict` gave) becomes a tab.
    """
    target, recording = Path(target), _recording(source)
    disk.make_directory(target.absolute().parent)
    page = page_of(recording, rows=rows, reload=reload, certificate=certificate)
    disk.write_atomic(target, page.encode(), durable=False)
    return target


def _recording(source: str | os.PathLike[str] | Solution | Ensemble) -> Recording:
    from holonomix.run.ensemble import Ensemble

    if isinstance(source, str | os.PathLike):
        if is_ensemble(source):
            return from_ensemble_store(EnsembleStore(source))
        return from_store(Store(source, "read"))
    return from_ensemble(source) if isinstance(source, Ensemble) else from_solution(source)


def show_page(
    source: Solution | Ensemble,
    path: str | os.PathLike[str] | None = None,
    *,
    open: bool | None = None,
    certificate: Any = None,
) -> Path:
    """Write the page and, unless it was given a path or told not to, open it in a browser."""
    target = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="holonomix-")) / "view.html"
    page = write_page(source, target, certificate=certificate)
    if path is None if open is None else open:
        webbrowser.open(page.absolute().as_uri())
    return page


def follow(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, rows: int = FRAMES, seconds: float = 5.0
) -> None:
    """Write the page of a run in progress again and again, until the run has ended."""
    ensemble = is_ensemble(source)  # written block by block, by any number of processes
    while (
        EnsembleStore(source).missing_blocks() if ensemble else Store(source, "read").status.get("state") == "running"
    ):
        time.sleep(seconds)
        write_page(source, target, rows=rows, reload=seconds)
    write_page(source, target, rows=rows)


def page_of(
    recording: Recording,
    *,
    rows: int = FRAMES,
    reload: float = 0.0,
    certificate: Any = None,
) -> str:
    """The page as text. It needs a browser and nothing else; names from the run appear as text only."""
    data: dict[str, Any] = {**_data(recording, rows), "reload": float(reload)}
    if certificate is not None:
        data["tables"].append(dataclasses.asdict(certificate_table(certificate)))
    total, t = len(recording.t), recording.t
    method = f", {recording.facts['method']}" if "method" in recording.facts else ""
    shown = sum(w["count"] for w in data["windows"])
    note = f"{total:,} rows, t = {t[0]:g} .. {t[-1]:g}"
    if "trajectories shown" in recording.facts:
        note = f"{recording.facts['trajectories shown']} of {recording.facts['trajectories']} trajectories, {note}"
    elif recording.map is not None and total == 1:
        note = f"{recording.facts['trajectories']} trajectories, of which the ends are kept"
    if shown < total:
        note += f"; {shown:,} of them as frames, in {len(data['windows'])} stretches of consecutive rows"
    facts = "".join(
        f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>" for k, v in recording.facts.items()
    )
    # inside a script element "<" could end it; as an escape of JSON it is the same character
    text = json.dumps(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    fill = {
        "TITLE": html.escape(recording.title),
        "METHOD": html.escape(method),
        "NOTE": html.escape(note),
        "FACTS": facts,
        "STYLE": _static("uplot.min.css") + _static("viewer.css"),
        "DATA": text,
        "SCRIPTS": "".join(f"<script>{part}</script>" for part in _scripts()),
    }
    pieces = _static("page.html").split("@@")  # text, name, text, name, ...
    return "".join(fill[piece] if k % 2 else piece for k, piece in enumerate(pieces))


def _static(name: str) -> str:
    return importlib.resources.files("holonomix.study.viewer").joinpath("static", name).read_text(encoding="utf-8")


def _scripts() -> list[str]:
    """The libraries, with their licenses, and the parts of the viewer."""
    libraries = [f"/*\n{_static(f'{name}.LICENSE')}*/\n{_static(f'{name}.min.js')}" for name in ("three", "uplot")]
    return [*libraries, *(_static(f"{name}.js") for name in ("drawing", "charts", "portraits", "player"))]


def _data(recording: Recording, rows: int) -> dict[str, Any]:
    """What the page's script reads: numbers as base64 of little-endian floats."""
    total, scene = len(recording.t), recording.scene
    width = 1 if scene is None else max(1, int(np.prod(scene.points(recording.q(slice(0, 1))).shape[1:])))
    frames = max(2, min(rows, MOST_NUMBERS // width))
    frames = total if total <= 1.1 * frames else frames
    parts = _windows(total, frames)
    times = [np.append(recording.t[part], recording.t[part][-1]) for part in parts]
    windows, tracked, joined, cloud, count, dimension, push = [], [], True, None, 0, 0, 0.0
    if scene is None:
        windows = [{"count": len(recording.t[part]), "t": _doubles(recording.t[part]), "x": ""} for part in parts]
    else:
        points = [scene.points(recording.q(part)) for part in parts]
        count, dimension = points[0].shape[1], points[0].shape[2]
        tracked = _tracked(scene, count)
        joined = all(_near(x[:, tracked]) for x in points)
        for part, x in zip(parts, points, strict=True):
            windows.append({"count": len(x), "t": _doubles(recording.t[part]), "x": _floats(x)})
        if frames < total and tracked:
            cloud = _floats(_scattered(recording, scene, tracked))
        if recording.forces is not None and sum(x.size for x in points) <= MOST_FORCES:
            push = _add_forces(windows, [recording.forces(part) for part in parts], scene)
    charts = [_chart(recording, title, log, read, parts, times) for title, (log, read) in recording.columns.items()]
    return {
        "t0": float(recording.t[0]),
        "t1": float(recording.t[-1]),
        "scene": None if scene is None else _finite(scene.as_dict()),
        "points": count,
        "dimension": dimension,
        "windows": windows,
        "tracked": tracked,
        "joined": joined,
        "overview": cloud,
        "charts": [chart for chart in charts if chart["series"]],
        "largestForce": push,
        "portraits": portraits(recording, tracked, _floats, _doubles),
        "tables": [dataclasses.asdict(table) for table in (*recording.tables, *_kept(recording))],
        "map": None if recording.map is None else as_page_map(recording.map, _floats),
    }


def _add_forces(windows: list[dict[str, Any]], forces: list[np.ndarray], scene: Scene) -> float:
    """Forces as numbers of two bytes beside the positions; those on directors are no forces on a point."""
    directors = [k for frame in scene.frames for k in frame.directors]
    for x in forces:
        x[:, directors] = 0.0
    largest = float(np.nanmax([np.nanmax(np.abs(x), initial=0.0) for x in forces]))
    if not (np.isfinite(largest) and largest > 0):
        return 0.0
    for window, x in zip(windows, forces, strict=True):
        window["f"] = _base64(np.round(np.nan_to_num(x / largest) * 32767).astype("<i2"))
    return largest


def _kept(recording: Recording) -> list[Any]:
    """Envelopes of the errors of energy and constraints over the whole run, as a table of their largest values."""
    found = {}
    for title in ("energy error", "constraints"):
        if title in recording.columns:
            t, low, high = _envelope(recording.t, recording.columns[title][1])
            found |= {name: (t, low[:, i], high[:, i]) for i, name in enumerate(recording.names[title])}
    table = kept_table(found)
    return [] if table is None else [table]


def _windows(total: int, frames: int) -> list[slice]:
    """Stretches of consecutive rows with `frames` rows in all; a run that fits is one stretch."""
    if frames >= total:
        return [slice(0, total)]
    size = max(2, frames // WINDOWS)
    starts = np.unique(np.linspace(0, total - size, WINDOWS).astype(int))
    return [slice(int(k), int(k) + size) for k in starts]


def _tracked(scene: Scene, count: int) -> list[int]:
    """The points whose paths are drawn: all of a few, the last one of many; directors have no path."""
    bodies = [f.center for f in scene.frames if 0 <= f.center < count]
    loose = [k for group in scene.particles for k in group.indices if 0 <= k < count]
    ends = [line.indices[-1] for line in scene.polylines if line.indices]
    if scene.layout == "rotation":
        return [count - 1]  # the tip of the body's own axis
    found = bodies + loose or ends
    return sorted(set(found)) if len(found) <= MOST_TRACKED else [max(found)]


def _near(paths: np.ndarray) -> bool:
    """Whether neighboring rows are close enough for a line between them to mean something."""
    if len(paths) < 3 or paths.shape[1] == 0:
        return True
    jumps = np.linalg.norm(np.diff(paths, axis=0), axis=2).max(axis=1)
    return float(np.nanmedian(jumps)) <= FAR * float(np.nanmax(np.ptp(paths, axis=0)))


def _scattered(recording: Recording, scene: Scene, tracked: list[int]) -> np.ndarray:
    """Tracked points at rows from the whole run."""
    total, found = len(recording.t), []
    some = min(total, max(2, CLOUD // len(tracked)))
    wanted = np.sort(np.random.default_rng(0).choice(total, some, replace=False))
    for first in range(0, total, BLOCK):
        inside = wanted[(wanted >= first) & (wanted < first + BLOCK)] - first
        found.append(scene.points(recording.q(slice(first, min(first + BLOCK, total)))[inside])[:, tracked])
    return np.concatenate(found)


def _chart(
    recording: Recording, title: str, log: bool, read: Reader, parts: list[slice], times: list[np.ndarray]
) -> dict[str, Any]:
    """The curves of one chart: all rows of a short run; envelopes of a long one beside the rows of its windows."""
    total, names = len(recording.t), recording.names[title]
    entry: dict[str, Any] = {"title": title, "log": log, "enveloped": len(parts) > 1}
    if not entry["enveloped"]:
        values = read(slice(0, total))
        series = [{"name": name, "values": _floats(values[:, i])} for i, name in enumerate(names)]
        return {**entry, "t": "", "series": series}  # the times of the frames
    t, low, high = _envelope(recording.t, read)
    rows = [read(part) for part in parts]
    gap = np.full((1, rows[0].shape[1]), np.nan)  # windows are not joined to each other
    inside = np.concatenate([x for values in rows for x in (values, gap)])
    series = []
    for i, name in enumerate(names):
        curves = {"low": low[:, i], "high": high[:, i], "window": inside[:, i]}
        series.append({"name": name, **{key: _floats(x) for key, x in curves.items()}})
    return {**entry, "t": _doubles(t), "windowT": _doubles(np.concatenate(times)), "series": series}


def _envelope(t: np.ndarray, read: Reader) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, smallest and largest values of `BINS` stretches of rows, read some stretches at a time."""
    edges = np.unique(np.linspace(0, len(t), BINS + 1).astype(int))
    lows, highs = [], []
    for k in range(0, len(edges) - 1, 50):
        some = edges[k : k + 51]
        values, starts = read(slice(int(some[0]), int(some[-1]))), some[:-1] - some[0]
        lows.append(np.fmin.reduceat(values, starts, axis=0))
        highs.append(np.fmax.reduceat(values, starts, axis=0))
    return t[edges[:-1]], np.concatenate(lows), np.concatenate(highs)


def _finite(value: Any) -> Any:
    """JSON has no infinities: they are of no use in a picture either."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return 0.0 if isinstance(value, float) and not np.isfinite(value) else value


def _floats(x: np.ndarray) -> str:
    return _base64(np.ascontiguousarray(x, "<f4"))


def _doubles(x: np.ndarray) -> str:
    return _base64(np.ascontiguousarray(x, "<f8"))


def _base64(x: np.ndarray) -> str:
    return base64.b64encode(x.tobytes()).decode()
