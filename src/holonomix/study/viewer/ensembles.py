"""Pages of ensembles: some trajectories drawn together, and a map of the reductions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from holonomix.core.scene import Frame, Particles, Polyline, Scene
from holonomix.run.io import EnsembleStore, StoreError

from .recording import Reader, Recording, Table, stored_scene

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

    from holonomix.run.ensemble import Ensemble

MAX_GHOSTS = 40
MAX_POINTS = 40_000  # points of a map
COLORS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#65a30d")


def from_ensemble_store(store: EnsembleStore) -> Recording:
    """The recording of an ensemble in a directory."""
    data = store.to_xarray()
    if "q" not in data:
        raise StoreError(f"{store.path} has no rows yet")
    shape = tuple(data["q"].shape[2 if "t" in data["q"].dims else 1 :])
    return _recording(data, stored_scene(store, shape), store.path.absolute().name)


def from_ensemble(ensemble: Ensemble) -> Recording:
    """The recording of an ensemble in memory."""
    return _recording(ensemble.to_xarray(), ensemble.loop.scene, ensemble.loop.name or "Ensemble")


def ghosts(scene: Scene, count: int, points: int) -> Scene:
    """A scene with `count` copies of every particle, bond and body, each copy in its own color."""
    move = lambda k, i: k + i * points if k >= 0 else k
    copies: dict[str, list[Any]] = {"particles": [], "bonds": [], "frames": [], "polylines": []}
    for i in range(count):
        color = COLORS[i % len(COLORS)]
        for b in scene.bonds:
            if b.kind != "ground" or i == 0:
                own = "" if b.kind == "ground" else color
                copies["bonds"].append(dataclasses.replace(b, a=move(b.a, i), b=move(b.b, i), color=own, row=-1))
        for f in scene.frames:
            if f.center >= 0 or f.directors or i == 0:
                directors = tuple(move(k, i) for k in f.directors)
                shapes = tuple(dataclasses.replace(s, color=color) for s in f.shapes)
                copies["frames"].append(Frame(f.name, move(f.center, i), directors, shapes, color))
        for line in scene.polylines:
            copies["polylines"].append(Polyline(tuple(move(k, i) for k in line.indices), line.closed, color))
    for first, color in enumerate(COLORS[:count]):  # copies of one color are drawn together
        for g in scene.particles:
            indices = tuple(move(k, i) for i in range(first, count, len(COLORS)) for k in g.indices)
            copies["particles"].append(Particles(indices, g.radius, g.species, color))
    parts = {name: tuple(found) for name, found in copies.items()}
    return dataclasses.replace(scene, **parts, joints=(), layout="particles")


def _recording(data: Dataset, scene: Scene | None, title: str) -> Recording:
    total = data.sizes["trajectory"]
    facts: dict[str, object] = {k: v for k, v in data.attrs.items() if not str(k).startswith("holonomix")}
    status, counts = np.unique(np.asarray(data["status"].values).astype(str), return_counts=True)
    facts |= {"trajectories": total} | {f"status {name}": int(n) for name, n in zip(status, counts)}
    found = map_of(data)
    if "t" not in data["q"].dims:  # only final states were kept
        still = np.zeros(1)
        none: Reader = lambda part: np.zeros((len(still[part]), 0))
        return Recording(title, facts, None, still, none, {}, {}, map=found, tables=(_ends(data, status, counts),))
    there = np.flatnonzero(data["finished"].values) if "finished" in data else np.arange(total)
    there = there if len(there) else np.arange(total)
    chosen = there[np.unique(np.linspace(0, len(there) - 1, min(len(there), MAX_GHOSTS)).astype(int))]
    if "time" in data:  # adaptive steps: interpolate at common times
        times = np.asarray(data["time"][chosen].values, float)
        good = np.isfinite(times)
        t = np.linspace(times[good].min(), times[good].max(), times.shape[1])
        rows = {k: _common(t, times, np.asarray(data[k][chosen].values)) for k in ("q", "p")}
    else:
        t = np.asarray(data["t"].values, float)
        rows = {k: np.asarray(data[k][chosen].values) for k in ("q", "p")}
    if scene is None:
        points = np.moveaxis(rows["q"].reshape(len(chosen), len(t), -1), 0, 1)
        momenta, shown = np.moveaxis(rows["p"].reshape(len(chosen), len(t), -1), 0, 1), None
    else:
        points, momenta = (_points(scene, rows[k]) for k in ("q", "p"))
        shown = ghosts(scene, len(chosen), points.shape[1] // len(chosen))
    curves = rows["q"].reshape(len(chosen), len(t), -1)[:10, :, -1].T
    names = _labels(data, chosen[:10])
    facts["trajectories shown"] = len(chosen)
    return Recording(
        title,
        facts,
        shown,
        t,
        lambda part: points[part],
        {"last entry of q": (False, lambda part: curves[part])},
        {"last entry of q": names},
        p=None if scene is not None and scene.layout == "angles" else lambda part: momenta[part],
        map=found,
    )


def _points(scene: Scene, q: np.ndarray) -> np.ndarray:
    """Reshape (trajectory, row, ...) to (row, trajectory * points, dimension)."""
    each = np.stack([scene.points(rows) for rows in q], axis=1)
    return each.reshape(each.shape[0], -1, each.shape[-1])


def _common(t: np.ndarray, times: np.ndarray, values: np.ndarray) -> np.ndarray:
    flat = values.reshape(*values.shape[:2], -1)
    out = np.full((len(flat), len(t), flat.shape[2]), np.nan)
    for k, (own, rows) in enumerate(zip(times, flat)):
        good = np.isfinite(own)
        for c in range(rows.shape[1]):
            out[k, :, c] = np.interp(t, own[good], rows[good, c], right=np.nan)
    return out.reshape(len(flat), len(t), *values.shape[2:])


def _axes(data: Dataset) -> dict[str, np.ndarray]:
    """The numerical coordinates of the ensemble in which its trajectories differ."""
    given = {str(k): np.asarray(v.values, float) for k, v in data.coords.items() if _numbers(v) and k != "trajectory"}
    return {k: v for k, v in given.items() if len(np.unique(v)) > 1}


def _labels(data: Dataset, chosen: np.ndarray) -> tuple[str, ...]:
    """Trajectories by their first two coordinates, or by their numbers if those do not tell them apart."""
    axes = list(_axes(data).items())[:2]
    names = tuple(", ".join(f"{name} {values[k]:.3g}" for name, values in axes) for k in chosen)
    return names if len(set(names)) == len(names) else tuple(f"trajectory {k}" for k in chosen)


def map_of(data: Dataset) -> dict[str, Any] | None:
    """One number per trajectory over the two coordinates in which the trajectories differ, or None.

    The coordinates are those of the ensemble (for a sweep, the swept values). The numbers are its reductions, or the
    final value of the last entry of q.
    """
    total, axes = data.sizes["trajectory"], _axes(data)
    if not axes or total > MAX_POINTS:
        return None
    names = list(axes)[:2]
    reduced = {str(k): v for k, v in data.data_vars.items() if str(k).startswith("reduced") and _numbers(v)}
    values = {k: np.asarray(v.values, float) for k, v in reduced.items()}
    if not values:
        end = data["q"][:, -1] if "t" in data["q"].dims else data["q"]
        values = {"last entry of q at the end": np.asarray(end.values, float).reshape(total, -1)[:, -1]}
    y = axes[names[1]] if len(names) > 1 else None
    return {"x": (names[0], axes[names[0]]), "y": None if y is None else (names[1], y), "values": values}


def _numbers(variable: DataArray) -> bool:
    return variable.dims == ("trajectory",) and variable.dtype.kind in "fiub"


def _ends(data: Dataset, status: np.ndarray, counts: np.ndarray) -> Table:
    q = np.asarray(data["q"].values, float).reshape(data.sizes["trajectory"], -1)
    rows = [(str(name), str(int(n))) for name, n in zip(status, counts)]
    rows += [(f"entry {k} of q at the end", f"{np.nanmean(q[:, k]):.6g}") for k in range(min(q.shape[1], 8))]
    return Table("Trajectories", ("", "count, or mean"), tuple(rows))


def as_page_map(found: Mapping[str, Any], encode: Callable[[np.ndarray], str]) -> dict[str, Any]:
    """A map in the form that the script of the page reads."""
    axis = lambda pair: None if pair is None else {"name": pair[0], "values": encode(pair[1])}
    values = [{"name": name, "values": encode(v)} for name, v in found["values"].items()]
    return {"x": axis(found["x"]), "y": axis(found["y"]), "values": values}
