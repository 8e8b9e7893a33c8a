"""`Recording`: the data that a page shows of a run, from a store or from a solution."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from holonomix.core.scene import Scene
from holonomix.core.types import Numbers, Real
from holonomix.mechanics.abstract import AbstractSystem
from holonomix.mechanics.problem import Problem
from holonomix.mechanics.scenes import particle_scene, scene_of
from holonomix.run.io import EnsembleStore, Store, StoreError
from holonomix.run.io.text import parse_json

if TYPE_CHECKING:
    from xarray import DataArray

    from holonomix.run.solution import Solution

ERRORS = ("constraint_error", "hidden_constraint_error")
BALANCE = "H(t) - H(0) - work"  # a curve that is zero for the exact motion
MAX_COMPONENTS = 10  # curves per chart
MAX_CHARTS = 8
LAYOUTS = ("particles", "rotation", "angles")

Reader = Callable[[slice], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of words and numbers on a page."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class Recording:
    """A run that is read in slices: `columns` maps a variable to a function from a slice to its rows."""

    title: str
    facts: Mapping[str, object]
    scene: Scene | None
    t: np.ndarray
    q: Reader
    columns: Mapping[str, tuple[bool, Reader]]  # title of a chart -> whether its axis is logarithmic, and its rows
    names: Mapping[str, tuple[str, ...]]  # title of a chart -> names of its curves
    p: Reader | None = None
    forces: Reader | None = None  # constraint forces on the points of the scene: rows (points, dimension)
    tables: tuple[Table, ...] = ()
    coordinates: tuple[str, ...] = ()  # names of the entries of q, if they have any
    map: Mapping[str, Any] | None = None  # for an ensemble: values over two coordinates


def from_store(store: Store) -> Recording:
    """The recording of a run in a directory."""
    data = store.dataset()
    if data.sizes.get("t", 0) == 0 or "q" not in data:
        raise StoreError(f"{store.path} has no rows yet")
    read = {str(name): _column(data[name]) for name in data.data_vars}
    scene = stored_scene(store, tuple(data["q"].shape[1:]))
    charts: dict[str, tuple[bool, Reader]] = {}
    names: dict[str, tuple[str, ...]] = {}
    if "energy" in read:
        first = float(np.asarray(data["energy"][0]))
        heading = "energy change" if store.meta.get("keeps_energy") is False else "energy error"
        charts[heading] = (False, lambda part: read["energy"](part) - first)
        names[heading] = ("H(t) - H(0)",)
    errors = [name for name in ERRORS if name in read]
    if errors:
        charts["constraints"] = (True, lambda part: np.concatenate([read[name](part) for name in errors], axis=1))
        names["constraints"] = tuple(name.replace("_", " ") for name in errors)
    shown = {"q", "p", "n", "t", "energy", *ERRORS}
    for name in read:
        if name not in shown and not name.startswith("step_") and data[name].dtype.kind in "biuf":
            _add(charts, names, name, data[name].shape[1:], read[name])
    if scene is None:
        _add(charts, names, "q", data["q"].shape[1:], read["q"], "coordinates")
    facts = {str(k): v for k, v in data.attrs.items() if not str(k).startswith("holonomix")}
    q, p, pulls = data["q"], data.get("p"), data.get("multipliers")
    return Recording(
        store.path.absolute().name,
        facts,
        scene,
        np.asarray(data["t"].values, np.float64),
        lambda part: np.asarray(q[part].values),
        charts,
        names,
        p=None if p is None else lambda part: np.asarray(p[part].values),
        forces=None if scene is None or pulls is None else _bond_forces(scene, q, pulls),
    )


def from_solution(solution: Solution, title: str | None = None) -> Recording:
    """The recording of a run in memory."""
    charts: dict[str, tuple[bool, Reader]] = {}
    names: dict[str, tuple[str, ...]] = {}
    heading = solution.energy_title
    curves = {"H(t) - H(0)": solution.energy_error()}
    if not solution.system.keeps_energy and not solution.method.stochastic:
        curves[BALANCE] = solution.energy_balance_error()
    charts[heading], names[heading] = (False, _slice_of(np.stack(list(curves.values()), axis=1))), tuple(curves)
    if solution.system.has_constraints:
        errors = np.stack([solution.constraint_error(), solution.hidden_constraint_error()], axis=1)
        charts["constraints"] = (True, _slice_of(errors))
        names["constraints"] = ("|g|", "|G M^-1 p|")
        _add(charts, names, "multipliers", solution.multipliers.shape[1:], _slice_of(solution.multipliers))
        rows = solution.system.constraint_rows(solution.q[0])[:MAX_COMPONENTS]
        if "multipliers" in charts:
            names["multipliers"] = tuple(row.label for row in rows)
    for name, values in solution.observables.items():
        if values.dtype.kind in "biuf":
            _add(charts, names, name, values.shape[1:], _slice_of(values))
    scene = solution.scene
    if scene is None:
        _add(charts, names, "q", solution.q.shape[1:], _slice_of(solution.q), "coordinates")
        if solution.coordinate_names and "coordinates" in names:
            names["coordinates"] = solution.coordinate_names[:MAX_COMPONENTS]
    facts = {"method": solution.method.name, "status": solution.status.name, **solution.stats}
    name = title or solution.name or "Run"
    return Recording(
        name,
        facts,
        scene,
        np.asarray(solution.t, np.float64),
        lambda part: solution.q[part],
        charts,
        names,
        p=lambda part: solution.p[part],
        forces=_system_forces(solution) if scene is not None and solution.system.has_constraints else None,
        coordinates=solution.coordinate_names,
    )


def from_problem(problem: Problem) -> Recording:
    """The initial configuration of a problem as a recording of one row."""
    q = np.asarray(problem.q0)[None]
    scene = scene_of(problem.system, q.shape[1:], problem, q[0])
    facts = {"dt": problem.dt, "t1": problem.t1, "coordinates": int(q[0].size)}
    return Recording(problem.name or "Problem", facts, scene, np.zeros(1), lambda part: q[part], {}, {})


def _system_forces(solution: Solution) -> Reader:
    """`-G^T lambda`, summed over all constraints, for any system."""
    from holonomix.run.solution import map_rows

    def total(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
        return sum(system.constraint_forces(q, p, t).values())

    def read(part: slice) -> np.ndarray:
        forces = map_rows(total, solution.system, solution.q[part], solution.p[part], np.asarray(solution.t)[part])
        return solution.scene.points(forces)  # type: ignore[union-attr]

    return read


def _bond_forces(scene: Scene, q: DataArray, multipliers: DataArray) -> Reader | None:
    """`-G^T lambda` of the distance constraints in the scene; a store has no functions to compute the others."""
    bonds = [bond for bond in scene.bonds if 0 <= bond.row < multipliers.shape[1]]
    if not bonds or len(bonds) < multipliers.shape[1]:
        return None

    def read(part: slice) -> np.ndarray:
        points, pulls = scene.points(np.asarray(q[part].values)), np.asarray(multipliers[part].values)
        forces = np.zeros_like(points)
        for bond in bonds:
            pull = 2.0 * pulls[:, bond.row, None] * (scene.place(points, bond.a) - scene.place(points, bond.b))
            for k, sign in ((bond.a, -1.0), (bond.b, 1.0)):
                if k >= 0:
                    forces[:, k] += sign * pull
        return forces

    return read


def _column(variable: DataArray) -> Reader:
    return lambda part: np.asarray(variable[part].values).reshape(len(variable[part]), -1)[:, :MAX_COMPONENTS]


def _slice_of(values: np.ndarray) -> Reader:
    flat = np.asarray(values).reshape(len(values), -1)[:, :MAX_COMPONENTS]
    return lambda part: flat[part]


def _add(
    charts: dict[str, tuple[bool, Reader]],
    names: dict[str, tuple[str, ...]],
    name: str,
    shape: tuple[int, ...],
    read: Reader,
    title: str = "",
) -> None:
    if len(charts) >= MAX_CHARTS or 0 in shape:
        return
    places = list(np.ndindex(*shape))[:MAX_COMPONENTS]
    charts[title or name] = (False, read)
    names[title or name] = tuple(name + (f"[{', '.join(map(str, place))}]" if place else "") for place in places)


def stored_scene(store: Store | EnsembleStore, shape: tuple[int, ...]) -> Scene | None:
    """The recorded scene if it is consistent with q; otherwise particles with the recorded bonds."""
    found = store.meta.get("scene")
    if found is None:
        try:
            found = parse_json(store.file("run.json"))
        except (StoreError, ValueError):
            found = {}
        found = found if isinstance(found, dict) else {}
        if found.get("scene") is None:
            return particle_scene(shape, _pairs(found.get("bonds")))
        found = found["scene"]
    try:
        scene = Scene.from_dict(found)
        if _fits(scene, shape):
            return scene
    except (TypeError, ValueError, KeyError, AttributeError):
        pass
    return particle_scene(shape, ())


def _pairs(found: object) -> list[tuple[int, int]]:
    try:
        return [(int(a), int(b)) for a, b in found]  # type: ignore[union-attr]
    except (TypeError, ValueError):
        return []


def _fits(scene: Scene, shape: tuple[int, ...]) -> bool:
    """Whether all indices of the scene are valid and all its numbers are finite."""
    if scene.dimension not in (2, 3) or scene.layout not in LAYOUTS or len(shape) not in (1, 2):
        return False
    if scene.layout == "angles" and (scene.dimension != 2 or shape != (len(scene.arms),)):
        return False
    if (scene.layout != "angles" and shape[-1] < scene.dimension) or (scene.layout == "rotation" and shape != (3, 3)):
        return False
    count = 1 if len(shape) == 1 and scene.layout != "angles" else shape[0]
    used = [k for group in scene.particles for k in group.indices] + [k for b in scene.bonds for k in (b.a, b.b)]
    used += [k for line in scene.polylines for k in line.indices]
    used += [k for frame in scene.frames for k in (frame.center, *frame.directors)]
    numbers = [x for anchor in scene.anchors for x in anchor]
    numbers += [x for plane in scene.planes for x in (*plane.point, *plane.normal)]
    numbers += [x for f in scene.frames for s in f.shapes for x in (*s.size, *s.position, *s.rotation)]
    lines = [line for guide in scene.guides for line in guide.lines]
    if any(len(line) % scene.dimension for line in lines):
        return False
    numbers += [x for line in lines for x in line] + [*scene.arms, *scene.cell]
    numbers += [x for joint in scene.joints for x in joint.position]
    fixed = max(1, len(scene.anchors))
    return all(type(k) is int and -fixed <= k < count for k in used) and bool(
        np.all(np.isfinite(np.asarray(numbers, float)))
    )
