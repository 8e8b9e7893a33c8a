"""One self-contained HTML page of a run: trajectories, errors over time, and an animation of particles."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

import numpy as np

from holonomix.io import Store, StoreError, disk
from holonomix.io.text import parse_json

__all__ = ["write_page"]

_FRAMES = 400
_MARGIN = 0.08


def write_page(source: str | os.PathLike[str], target: str | os.PathLike[str], *, rows: int = 2000) -> Path:
    """Write the page of a store; of long runs, about `rows` rows are shown."""
    import plotly.io

    store = Store(source, "read")
    data = store.dataset()
    total = data.sizes.get("t", 0)
    if total == 0 or "q" not in data:
        raise StoreError(f"{store.path} holds no rows yet")
    data = data.isel(t=np.unique(np.linspace(0, total - 1, min(rows, total)).astype(int))).load()
    bonds = _bonds(store, int(np.prod(data["q"].shape[1:-1])) if data["q"].ndim > 1 else 0)
    figures = [f for f in (_trajectories(data, bonds), _errors(data), _observables(data)) if f is not None]
    # the first carries the library itself, so that the page works without a network
    for figure in figures:
        figure.update_layout(template="plotly_white")
    bodies = [
        plotly.io.to_html(figure, full_html=False, include_plotlyjs=i == 0, auto_play=False)
        for i, figure in enumerate(figures)
    ]
    target = Path(target)
    disk.make_directory(target.absolute().parent)
    disk.write_atomic(target, _document(store, data, total, bodies).encode(), durable=False)
    return target


def _document(store: Store, data: Any, total: int, bodies: list[str]) -> str:
    shown = {k: v for k, v in data.attrs.items() if not str(k).startswith("holonomix")}
    facts = "".join(f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>" for k, v in shown.items())
    note = f"{total:,} rows" + ("" if total == data.sizes["t"] else f", {data.sizes['t']:,} of them shown")
    name = html.escape(store.path.absolute().name)
    method = html.escape(f", {shown['method']}" if "method" in shown else "")
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{name}</title><style>"
        "body{font-family:system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
        "th{text-align:left;padding-right:1.5rem;font-weight:500}table{font-size:.85rem}</style></head><body>"
        f"<h1>{name}{method}</h1><p>{note}, t = {float(data.t[0]):g} .. {float(data.t[-1]):g}</p>"
        f"{''.join(bodies)}<h2>Run</h2><table>{facts}</table></body></html>"
    )


def _bonds(store: Store, count: int) -> list[tuple[int, int]]:
    """The pairs that a picture joins, where the run recorded them; -1 is the origin."""
    try:
        pairs = parse_json(store.file("run.json"))["bonds"]
        return [(int(a), int(b)) for a, b in pairs if -1 <= int(a) < count and -1 <= int(b) < count]
    except (StoreError, ValueError, KeyError, TypeError):
        return []


def particles(q: np.ndarray) -> np.ndarray | None:
    """Positions as (rows, particles, 2 or 3), or None where q is not made of particles."""
    if q.ndim == 3 and q.shape[2] in (2, 3) and q.shape[1:] != (3, 3):
        return q
    if q.ndim == 2 and q.shape[1] in (2, 3):
        return q[:, None, :]
    return None


def _trajectories(data: Any, bonds: list[tuple[int, int]]) -> Any:
    import plotly.graph_objects as go

    q = data["q"].values
    x = particles(q)
    if x is None:
        flat = q.reshape(len(q), -1)
        lines = [go.Scatter(x=data.t.values, y=flat[:, i], name=f"q[{i}]") for i in range(min(flat.shape[1], 30))]
        return go.Figure(lines, {"title": "coordinates", "xaxis": {"title": "t"}})
    paths = (
        [_line(x[:, i], f"particle {i}", width=1, opacity=0.5) for i in range(x.shape[1])] if x.shape[1] <= 30 else []
    )
    figure, still = go.Figure(paths), len(paths)
    frames = np.unique(np.linspace(0, len(x) - 1, min(_FRAMES, len(x))).astype(int))
    figure.add_trace(_moment(x[0], bonds))
    figure.frames = [go.Frame(data=[_moment(x[k], bonds)], traces=[still], name=str(k)) for k in frames]
    figure.update_layout(title="trajectories", height=620, **_space(x), **_player(frames, data.t.values))
    return figure


def _line(points: np.ndarray, name: str, *, width: int, opacity: float) -> Any:
    import plotly.graph_objects as go

    kind = go.Scatter if points.shape[1] == 2 else go.Scatter3d
    axes = dict(zip("xyz", points.T))
    return kind(**axes, mode="lines", name=name, line={"width": width}, opacity=opacity)


def _moment(points: np.ndarray, bonds: list[tuple[int, int]]) -> Any:
    """The particles at one time, joined by their bonds; -1 is the origin."""
    import plotly.graph_objects as go

    gap = np.full(points.shape[1], np.nan)
    path = [part for a, b in bonds for part in (_at(points, a), _at(points, b), gap)] or [
        part for point in points for part in (point, gap)
    ]
    kind = go.Scatter if points.shape[1] == 2 else go.Scatter3d
    axes = dict(zip("xyz", np.array(path).T))
    size = 9 if points.shape[1] == 2 else 5
    marker = {"size": size, "color": "#222"}
    return kind(**axes, mode="lines+markers", name="now", marker=marker, line={"width": 3, "color": "#222"})


def _at(points: np.ndarray, index: int) -> np.ndarray:
    return np.zeros(points.shape[1]) if index < 0 else points[index]


def _space(x: np.ndarray) -> dict[str, Any]:
    """Axes that hold everything, with one scale."""
    low, high = np.nanmin(x, axis=(0, 1)), np.nanmax(x, axis=(0, 1))
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    pad = _MARGIN * max(float(np.max(high - low)), 1e-9)
    ranges = [[float(a - pad), float(b + pad)] for a, b in zip(low, high)]
    if x.shape[2] == 2:
        return {"xaxis": {"range": ranges[0]}, "yaxis": {"range": ranges[1], "scaleanchor": "x"}}
    return {"scene": {"aspectmode": "data", **{f"{n}axis": {"range": r} for n, r in zip("xyz", ranges)}}}


def _player(frames: np.ndarray, t: np.ndarray) -> dict[str, Any]:
    smooth = {"frame": {"duration": 33, "redraw": True}, "transition": {"duration": 0}, "fromcurrent": True}
    jump = {"frame": {"duration": 0, "redraw": True}, "mode": "immediate"}
    buttons = [
        {"label": "play", "method": "animate", "args": [None, smooth]},
        {"label": "pause", "method": "animate", "args": [[None], jump]},
    ]
    steps = [{"label": f"{t[k]:.4g}", "method": "animate", "args": [[str(k)], jump]} for k in frames]
    return {
        "updatemenus": [{"type": "buttons", "direction": "left", "x": 0, "y": -0.12, "buttons": buttons}],
        "sliders": [
            {"active": 0, "steps": steps, "x": 0.15, "len": 0.85, "y": -0.05, "currentvalue": {"prefix": "t = "}}
        ],
    }


def _errors(data: Any) -> Any:
    """Energy and constraint errors, where the run recorded them."""
    import plotly.graph_objects as go

    curves = {}
    if "energy" in data:
        curves["energy error"] = data["energy"].values - float(data["energy"][0])
    for name in ("constraint_error", "hidden_constraint_error"):
        if name in data:
            curves[name.replace("_", " ")] = data[name].values
    if not curves:
        return None
    figure = go.Figure()
    for name, values in curves.items():
        size = np.abs(values)
        shown = np.where(size > 0, size, np.nan)  # a logarithm has no place for what is exactly zero
        figure.add_trace(go.Scatter(x=data.t.values, y=shown, name=name, connectgaps=True, line={"width": 1.2}))
    figure.update_layout(title="errors", xaxis={"title": "t"}, yaxis={"type": "log", "exponentformat": "power"})
    return figure


def _observables(data: Any) -> Any:
    """Multipliers and the other recorded quantities."""
    import plotly.graph_objects as go

    skip = {"q", "p", "n", "energy", "constraint_error", "hidden_constraint_error"}
    figure = go.Figure()
    for name, values in data.data_vars.items():
        flat = values.values.reshape(len(values), -1)
        if name not in skip and not str(name).startswith("step_") and flat.dtype.kind in "biuf":
            for i in range(min(flat.shape[1], 12)):
                label = str(name) if flat.shape[1] == 1 else f"{name}[{i}]"
                figure.add_trace(go.Scatter(x=data.t.values, y=flat[:, i], name=label))
    if not figure.data:
        return None
    figure.update_layout(title="multipliers and observables", xaxis={"title": "t"})
    return figure
