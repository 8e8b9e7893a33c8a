"""The contents of a picture of a problem: particles, bonds, bodies with shapes, lines and planes, as plain data.

A `Scene` belongs to a `Problem`; plots and the viewer read it together with the rows of q. Particles are the entries of
the first axis of q, with their position in its first two or three columns; an index -k denotes the fixed point
`anchors[k - 1]`, as in `Distance`. All fields are numbers, strings and tuples, so that `as_dict` can be written as
JSON.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .types import ArrayLike

Numbers = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Particles:
    """Points drawn as spheres (circles in the plane): their indices, radius, species and color."""

    indices: tuple[int, ...]
    radius: float = 0.0  # 0: the picture chooses
    species: str = ""
    color: str = ""  # "#rrggbb", or empty for the picture's own choice


@dataclasses.dataclass(frozen=True)
class Bond:
    """A straight line between two points; `kind` is "bar", "spring", "damper" or "ground" (between fixed points).

    `at_a` and `at_b` place an end in the coordinates of the frame whose center is that point (empty: the point itself).
    `row` is the multiplier of the `Distance` that holds its length (-1: none), which gives the force along it.
    """

    a: int
    b: int
    kind: str = "bar"
    color: str = ""
    row: int = -1
    at_a: Numbers = ()
    at_b: Numbers = ()


MAX_GROUND_POINTS = 60  # more fixed points than this are drawn without links between them


def ground_links(anchors: tuple[Numbers, ...]) -> tuple[Bond, ...]:
    """The ground between fixed points: the shortest tree that joins them (Prim's algorithm)."""
    places = np.asarray(anchors, float)
    if not 2 <= len(places) <= MAX_GROUND_POINTS:
        return ()
    inside, links = [0], []
    while len(inside) < len(places):
        apart = np.linalg.norm(places[inside][:, None] - places, axis=2)
        apart[:, inside] = np.inf
        k, new = np.unravel_index(int(np.argmin(apart)), apart.shape)
        if apart[k, new] > 0:
            links.append(Bond(-1 - inside[k], -1 - int(new), "ground"))
        inside.append(int(new))
    return tuple(links)


@dataclasses.dataclass(frozen=True)
class ShapeMark:
    """A shape of the given `kind` and `size`, placed in the coordinates of its body by `position` and `rotation`.

    Kinds and sizes: "box" (full lengths along the axes), "cylinder" and "capsule" (radius, length along z), "sphere"
    (radius,), "rod" (length along x, thickness), "plate" (full lengths along x and y, thickness), "ring" (radius about
    z, thickness), "line" (the coordinates of its points one after the other). `rotation` holds the rows of a rotation
    matrix; in the plane it has four numbers.
    """

    kind: str
    size: Numbers
    position: Numbers = (0.0, 0.0, 0.0)
    rotation: Numbers = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    color: str = ""


@dataclasses.dataclass(frozen=True)
class Frame:
    """A rigid body: the particle of its center and those of its directors, with shapes in body coordinates.

    A point r of the body lies at `x + r_1 d_1 + r_2 d_2 + r_3 d_3`. Missing directors follow from the others: with two
    of them `d_3 = d_1 x d_2`, with one in the plane `d_2` is d_1 turned by 90 degrees, with one in space the body is a
    rod and has points on its axis only. Without a center (-1 and no anchors) the body is fixed: the ground.
    """

    name: str
    center: int
    directors: tuple[int, ...]
    shapes: tuple[ShapeMark, ...] = ()
    color: str = ""


@dataclasses.dataclass(frozen=True)
class JointMark:
    """A joint in the coordinates of a frame of the scene (None: of the world), with its axis where it has one."""

    name: str
    kind: str
    frame: str | None
    position: Numbers
    axis: Numbers = ()


@dataclasses.dataclass(frozen=True)
class Polyline:
    """A line through points in this order; `closed` joins the last to the first."""

    indices: tuple[int, ...]
    closed: bool = False
    color: str = ""


@dataclasses.dataclass(frozen=True)
class Plane:
    """A wall or floor: a point on it and its normal, which points to the side of the motion."""

    point: Numbers
    normal: Numbers
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Guide:
    """Where a constraint keeps a point: a "rail", a "curve", or lines on a "surface".

    Each line holds the coordinates of its points one after the other, in those of a frame (empty: of the world).
    """

    lines: tuple[Numbers, ...]
    kind: str = "curve"
    frame: str = ""


@dataclasses.dataclass(frozen=True)
class Scene:
    """Everything that a picture needs besides q; `up` is the axis against gravity (-1: the last one).

    `layout` defines the points of the picture. "particles": the rows of q. "rotation": q is a rotation matrix, whose
    columns are the points (the directors of a body about a fixed point). "angles": q holds the angles from the downward
    vertical of rods in a row, of the lengths `arms`, and the points are their lower ends. `cell` holds the vectors of a
    periodic cell one after the other.
    """

    dimension: int = 3
    length_unit: str = ""
    particles: tuple[Particles, ...] = ()
    bonds: tuple[Bond, ...] = ()
    frames: tuple[Frame, ...] = ()
    joints: tuple[JointMark, ...] = ()
    polylines: tuple[Polyline, ...] = ()
    planes: tuple[Plane, ...] = ()
    anchors: tuple[Numbers, ...] = ()
    up: int = -1
    layout: str = "particles"
    guides: tuple[Guide, ...] = ()
    arms: Numbers = ()
    cell: Numbers = ()

    def points(self, q: ArrayLike) -> np.ndarray:
        """The points of the picture, shape (rows, points, dimension), from rows of q."""
        rows = np.asarray(q)
        if self.layout == "rotation":
            return np.swapaxes(rows, 1, 2)
        if self.layout == "angles":
            return np.cumsum(np.stack([np.sin(rows), -np.cos(rows)], axis=-1) * np.asarray(self.arms)[:, None], axis=1)
        return rows.reshape(len(rows), -1, rows.shape[-1])[:, :, : self.dimension]

    def place(self, points: np.ndarray, index: int) -> np.ndarray:
        """The position of a point in `points` of one or many rows; negative indices are anchors."""
        if index >= 0:
            return points[..., index, :]
        fixed = np.asarray(self.anchors[-index - 1]) if -index <= len(self.anchors) else np.zeros(self.dimension)
        return np.broadcast_to(fixed, (*points.shape[:-2], self.dimension))

    def as_dict(self) -> dict[str, Any]:
        """Nested dicts, lists and numbers, for JSON."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Scene:
        """The inverse of `as_dict`, also after a round trip through JSON."""
        kinds: dict[str, type] = {
            "particles": Particles,
            "bonds": Bond,
            "joints": JointMark,
            "polylines": Polyline,
            "planes": Plane,
        }
        guides = []
        for guide in data.get("guides", ()):
            guides.append(_record(Guide, guide | {"lines": tuple(tuple(line) for line in guide.get("lines", ()))}))
        parts: dict[str, Any] = {k: tuple(_record(kind, x) for x in data.get(k, ())) for k, kind in kinds.items()}
        frames = []
        for frame in data.get("frames", ()):
            shapes = tuple(_record(ShapeMark, x) for x in frame.get("shapes", ()))
            frames.append(_record(Frame, frame | {"shapes": shapes}))
        anchors = tuple(tuple(x) for x in data.get("anchors", ()))
        plain = {k: data[k] for k in ("dimension", "length_unit", "up", "layout") if k in data}
        lists = {name: tuple(data.get(name, ())) for name in ("arms", "cell")}
        return Scene(**parts, frames=tuple(frames), anchors=anchors, guides=tuple(guides), **lists, **plain)


def _record(kind: type, data: dict[str, Any]) -> Any:
    """A dataclass from a dict, with lists as tuples; unknown keys are ignored, so that newer files can be read."""
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known})
