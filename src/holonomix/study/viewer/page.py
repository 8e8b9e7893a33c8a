"""A self-contained HTML page of a run: an animation, and charts with the same time axis."""

from __future__ import annotations

import base64
import dataclasses
import html
import importlib.resources
import json
import os
import sys
import tempfile
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holonomix.core.scene import Scene
from holonomix.mechanics.problem import Problem
from holonomix.run.io import EnsembleStore, Store, StoreWriteError, disk
from holonomix.run.io.directory import is_ensemble
from holonomix.study.export.export import template

from .ensembles import as_page_map, from_ensemble, from_ensemble_store
from .portraits import certificate_table, kept_table, portraits
from .recording import BALANCE, Reader, Recording, from_problem, from_solution, from_store

if TYPE_CHECKING:
    from holonomix.run.ensemble import Ensemble
    from holonomix.run.solution import Solution

FRAMES = 2000
MAX_NUMBERS = 160_000  # coordinates in all frames of a page: about 0.9 MB
WINDOWS = 4  # of a run that is too long to be shown whole
BINS = 600  # of the envelope of a long run
CLOUD = 6000  # points of a long run that are drawn unconnected
BLOCK = 1 << 16  # rows that are read at once
MAX_GAP = 0.08  # neighboring rows further apart than this share of the picture are not joined
MAX_TRACKED = 8
MAX_FORCES = 140_000  # numbers, of two bytes each


def write_page(
    source: str | os.PathLike[str] | Solution | Ensemble | Problem,
    target: str | os.PathLike[str],
    *,
    rows: int = FRAMES,
    reload: float = 0.0,
    certificate: Any = None,
    live: Mapping[str, Any] | None = None,
) -> Path:
    """Write the page of a store, a solution, an ensemble or the start of a problem.

    About `rows` rows of a long run become frames.
    With `reload`, the page reloads itself after that many seconds and shows the last rows, to follow a run. A
    `certificate` (or the result of its `to_dict`) becomes a tab.
    """
    target, recording = Path(target), _recording(source)
    return save_page(page_of(recording, rows=rows, reload=reload, certificate=certificate, live=live), target)


def save_page(page: str, target: Path) -> Path:
    """Write the text of a page; an error names the file and does not speak of a run and its checkpoints."""
    try:
        disk.make_directory(target.absolute().parent)
        disk.write_atomic(target, page.encode(), durable=False)
    except StoreWriteError as error:
        raise type(error)(f"cannot write {target}: {getattr(error.__cause__, 'strerror', None) or error}") from error
    return target


def _recording(source: str | os.PathLike[str] | Solution | Ensemble | Problem) -> Recording:
    from holonomix.run.ensemble import Ensemble

    if isinstance(source, str | os.PathLike):
        if is_ensemble(source):
            return from_ensemble_store(EnsembleStore(source))
        return from_store(Store(source, "read"))
    if isinstance(source, Problem):
        return from_problem(source)
    return from_ensemble(source) if isinstance(source, Ensemble) else from_solution(source)


def show_page(
    source: Solution | Ensemble,
    path: str | os.PathLike[str] | None = None,
    *,
    open: bool | None = None,
    certificate: Any = None,
    live: bool = False,
) -> Path:
    """Write the page, and open it in a browser, or show it in a notebook, unless a path was given.

    `open` decides instead where it is given.
    """
    target = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="holonomix-")) / "view.html"
    kernels = None
    if live:
        from .live import live_options  # imported here because it imports this module

        kernels = live_options(source)
    page = write_page(source, target, certificate=certificate, live=kernels)
    if path is None if open is None else open:
        if in_notebook():
            _show_in_notebook(page)
        else:
            webbrowser.open(page.absolute().as_uri())
    return page


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, whose browser may run on another machine."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _show_in_notebook(page: Path) -> None:
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    content = html.escape(page.read_text())
    # in a div: IPython warns of HTML that is an iframe
    display(HTML(f'<div><iframe style="width: 100%; height: 700px; border: 0" srcdoc="{content}"></iframe></div>'))


def follow(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, rows: int = FRAMES, seconds: float = 5.0
) -> None:
    """Rewrite the page of a run in progress until the run ends."""
    ensemble = is_ensemble(source)  # ensembles are written block by block, by any number of processes
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
    live: Mapping[str, Any] | None = None,
) -> str:
    """The HTML of the page, which loads nothing else; names from the run are escaped.

    `live` holds the kernels of `live.kernels_of`, a source of frames that replaces the rows or supplements them.
    """
    data: dict[str, Any] = {**_data(recording, rows), "reload": float(reload), "live": live}
    if certificate is not None:
        data["tables"].append(dataclasses.asdict(certificate_table(certificate)))
    total, t = len(recording.t), recording.t
    method = f", {recording.facts['method']}" if "method" in recording.facts else ""
    shown = sum(w["count"] for w in data["windows"])
    note = f"{total:,} rows, t = {t[0]:g} .. {t[-1]:g}"
    if "trajectories shown" in recording.facts:
        note = f"{recording.facts['trajectories shown']} of {recording.facts['trajectories']} trajectories, {note}"
    elif recording.map is not None and total == 1:
        note = f"{recording.facts['trajectories']} trajectories, final states only"
    if shown < total:
        note += f"; {shown:,} of them as frames, in {len(data['windows'])} stretches of consecutive rows"
    if live is not None and not live["beside"]:
        note = "The simulation runs in this page."
    facts = "".join(
        f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>" for k, v in recording.facts.items()
    )
    # "<" could end the script element, so write it as a JSON escape
    text = json.dumps(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    fill = {
        "TITLE": html.escape(recording.title),
        "METHOD": html.escape(method),
        "NOTE": html.escape(note),
        "FACTS": facts,
        "WASM": "" if live is None else " 'wasm-unsafe-eval'",
        "STYLE": _static("uplot.min.css") + _static("viewer.css"),
        "DATA": text,
        "SCRIPTS": "".join(f"<script>{part}</script>" for part in _scripts(live is not None)),
    }
    pieces = _static("page.html").split("@@")  # text, name, text, name, ...
    return "".join(fill[piece] if k % 2 else piece for k, piece in enumerate(pieces))


def _static(name: str) -> str:
    return importlib.resources.files("holonomix.study.viewer").joinpath("static", name).read_text(encoding="utf-8")


def _scripts(live: bool) -> list[str]:
    """The libraries, with their licenses, and the parts of the viewer."""
    libraries = [f"/*\n{_static(f'{name}.LICENSE')}*/\n{_static(f'{name}.min.js')}" for name in ("three", "uplot")]
    parts = ["figure", "drawing", "charts", "portraits", "frames"]
    more = (
        [template("kernel_class.js"), *(_static(f"{name}.js") for name in ("kernels", "drag", "live"))] if live else []
    )
    return [*libraries, *(_static(f"{name}.js") for name in parts), *more, _static("player.js")]


def _data(recording: Recording, rows: int) -> dict[str, Any]:
    """The data for the script of the page; numbers are base64 of little-endian floats."""
    total, scene = len(recording.t), recording.scene
    width = 1 if scene is None else max(1, int(np.prod(scene.points(recording.q(slice(0, 1))).shape[1:])))
    frames = max(2, min(rows, MAX_NUMBERS // width))
    frames = total if total <= 1.1 * frames else frames
    parts = _windows(total, frames)
    times = [np.append(recording.t[part], recording.t[part][-1]) for part in parts]
    windows, tracked, joined, cloud, count, dimension, push = [], [], True, None, 0, 0, 0.0
    if scene is None:
        windows = [{"count": len(recording.t[part]), "t": _doubles(recording.t[part]), "x": ""} for part in parts]
    else:
        points = [scene.points(recording.q(part)) for part in parts]
        count, dimension = points[0].shape[1], points[0].shape[2]
        tracked = _tracked_points(scene, count)
        joined = all(_near(x[:, tracked]) for x in points)
        for part, x in zip(parts, points, strict=True):
            windows.append({"count": len(x), "t": _doubles(recording.t[part]), "x": _floats(x)})
        if frames < total and tracked:
            cloud = _floats(_scatter(recording, scene, tracked))
        if recording.forces is not None and sum(x.size for x in points) <= MAX_FORCES:
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
        "tables": [dataclasses.asdict(table) for table in (*recording.tables, *_error_table(recording))],
        "map": None if recording.map is None else as_page_map(recording.map, _floats),
    }


def _add_forces(windows: list[dict[str, Any]], forces: list[np.ndarray], scene: Scene) -> float:
    """Add forces on points as two-byte numbers; forces on directors are left out."""
    directors = [k for frame in scene.frames for k in frame.directors]
    for x in forces:
        x[:, directors] = 0.0
    largest = float(np.nanmax([np.nanmax(np.abs(x), initial=0.0) for x in forces]))
    if not (np.isfinite(largest) and largest > 0):
        return 0.0
    for window, x in zip(windows, forces, strict=True):
        window["f"] = _base64(np.round(np.nan_to_num(x / largest) * 32767).astype("<i2"))
    return largest


def _error_table(recording: Recording) -> list[Any]:
    """A table of the largest errors of energy and constraints over the whole run."""
    found = {}
    for title in ("energy error", "energy change", "constraints"):
        if title in recording.columns:
            t, low, high = _envelope(recording.t, recording.columns[title][1])
            found |= {name: (t, low[:, i], high[:, i]) for i, name in enumerate(recording.names[title])}
    conserved = BALANCE if BALANCE in found else "H(t) - H(0)" if "energy error" in recording.columns else None
    table = kept_table(found, conserved)
    return [] if table is None else [table]


def _windows(total: int, frames: int) -> list[slice]:
    """Windows of consecutive rows with `frames` rows in total; a short run is one window."""
    if frames >= total:
        return [slice(0, total)]
    size = max(2, frames // WINDOWS)
    starts = np.unique(np.linspace(0, total - size, WINDOWS).astype(int))
    return [slice(int(k), int(k) + size) for k in starts]


def _tracked_points(scene: Scene, count: int) -> list[int]:
    """The points whose paths are drawn: all if there are few, otherwise the last one; never directors."""
    bodies = [f.center for f in scene.frames if 0 <= f.center < count]
    loose = [k for group in scene.particles for k in group.indices if 0 <= k < count]
    ends = [line.indices[-1] for line in scene.polylines if line.indices]
    if scene.layout == "rotation":
        return [count - 1]  # the tip of the body axis
    found = bodies + loose or ends
    return sorted(set(found)) if len(found) <= MAX_TRACKED else [max(found)]


def _near(paths: np.ndarray) -> bool:
    """Whether neighboring rows are close enough to join them by a line."""
    if len(paths) < 3 or paths.shape[1] == 0:
        return True
    jumps = np.linalg.norm(np.diff(paths, axis=0), axis=2).max(axis=1)
    if np.isnan(jumps).all():  # an ensemble before its first trajectory
        return True
    return float(np.nanmedian(jumps)) <= MAX_GAP * float(np.nanmax(np.ptp(paths, axis=0)))


def _scatter(recording: Recording, scene: Scene, tracked: list[int]) -> np.ndarray:
    """Positions of the tracked points at rows from the whole run."""
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
    """The curves of one chart: all rows of a short run; the rows of the windows and envelopes of a long one."""
    total, names = len(recording.t), recording.names[title]
    entry: dict[str, Any] = {"title": title, "log": log, "enveloped": len(parts) > 1}
    if not entry["enveloped"]:
        values = read(slice(0, total))
        series = [{"name": name, "values": _floats(values[:, i])} for i, name in enumerate(names)]
        return {**entry, "t": "", "series": series}  # the times of the frames
    t, low, high = _envelope(recording.t, read)
    rows = [read(part) for part in parts]
    gap = np.full((1, rows[0].shape[1]), np.nan)  # a NaN separates the windows
    inside = np.concatenate([x for values in rows for x in (values, gap)])
    series = []
    for i, name in enumerate(names):
        curves = {"low": low[:, i], "high": high[:, i], "window": inside[:, i]}
        series.append({"name": name, **{key: _floats(x) for key, x in curves.items()}})
    return {**entry, "t": _doubles(t), "windowT": _doubles(np.concatenate(times)), "series": series}


def _envelope(t: np.ndarray, read: Reader) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, smallest and largest values of `BINS` blocks of rows, read a few blocks at a time."""
    edges = np.unique(np.linspace(0, len(t), BINS + 1).astype(int))
    lows, highs = [], []
    for k in range(0, len(edges) - 1, 50):
        some = edges[k : k + 51]
        values, starts = read(slice(int(some[0]), int(some[-1]))), some[:-1] - some[0]
        lows.append(np.fmin.reduceat(values, starts, axis=0))
        highs.append(np.fmax.reduceat(values, starts, axis=0))
    return t[edges[:-1]], np.concatenate(lows), np.concatenate(highs)


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by zero."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return 0.0 if isinstance(value, float) and not np.isfinite(value) else value


def _floats(x: np.ndarray) -> str:
    with np.errstate(over="ignore"):  # a diverged run overflows
        return _base64(np.ascontiguousarray(x, "<f4"))


def _doubles(x: np.ndarray) -> str:
    return _base64(np.ascontiguousarray(x, "<f8"))


def _base64(x: np.ndarray) -> str:
    return base64.b64encode(x.tobytes()).decode()
