"""Joints: the rows of each kind, and the positions (angles, distances) that it leaves free.

Frames: `(u, v, w)` is fixed in body a with w along the joint's axis. `(u, v, w)` in body b coincides with it at the
positions of the bodies when the joint is created, so every angle is zero there. P is the joint's point in each body.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ...core.checks import number
from ...core.errors import InputError
from ...core.types import ArrayLike
from .bodies import Body
from .forms import Coordinate, PhaseRow, ProductRow, Row, Vector
from .results import JointResults

AXIS = ("revolute", "prismatic", "cylindrical", "planar", "screw", "universal", "point_on_line", "point_on_plane")
KINDS = {
    3: (*AXIS, "spherical", "fixed", "distance"),
    2: ("revolute", "prismatic", "fixed", "distance", "point_on_line"),
}
OPTIONS = ("at", "axis", "point_a", "point_b", "axis_a", "axis_b", "axis2", "pitch", "length", "frame_a", "frame_b")
MAX_TEETH = 64


class Joint(JointResults):
    """A joint of a mechanism, as `m.revolute(...)` and the methods of other kinds return it."""

    def __init__(
        self,
        name: str,
        kind: str,
        a: Body,
        b: Body,
        rows: list[Row],
        place: Place | None,
        axis: Vector | None = None,
    ):
        self.name, self.kind, self.a, self.b, self.rows = name, kind, a, b, rows
        self.place, self.axis = place, axis
        self.coordinates: list[Coordinate] = []
        self.stack: tuple[Joint, ...] = (self,)  # between the same bodies; the first has all rows
        self.relation: tuple[Joint, Joint, float, float] | None = None  # second = factor * first + offset, of a gear
        self.guides: list[Row] = []  # rows that follow from the others and have no solution half a turn away
        self.dropped: set[int] = set()  # rows that depend on others all along the motion

    def __repr__(self) -> str:
        return f"Joint({self.name!r}, {self.kind}, {self.a.name!r} - {self.b.name!r})"


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a joint: its point in each body, and the frames, all in coordinates of the bodies."""

    point_a: np.ndarray
    point_b: np.ndarray
    frame_a: np.ndarray  # columns u, v, w in a
    frame_b: np.ndarray
    axis2: np.ndarray | None = None  # the second axis of a universal joint, in b


def vector(body: Body, what: np.ndarray, why: str, *, point: bool) -> Vector:
    """A point or direction fixed in a body (the ground: fixed in the world)."""
    what = np.asarray(what, float)
    if body.fixed:
        return Vector((), what)
    c = body.point_coefficients(what, why) if point else body.direction_coefficients(what, why)
    return Vector(((body, c),), np.zeros(body.dimension))


def _unit(why: str, name: str, value: ArrayLike | None, dimension: int) -> np.ndarray:
    v = numbers(why, name, value, dimension)
    size = np.linalg.norm(v)
    if not size > 0:
        raise InputError(f"{why}: {name} must not be zero")
    return v / size


def numbers(why: str, name: str, value: Any, dimension: int) -> np.ndarray:
    """`value` as a vector of the dimension of the mechanism."""
    try:
        v = np.asarray(value, float)
    except (TypeError, ValueError):
        raise InputError(f"{why}: {name} must be {dimension} numbers, not {value!r}") from None
    if v.shape != (dimension,) or not np.all(np.isfinite(v)):
        raise InputError(f"{why}: {name} must be {dimension} numbers, not {value!r}")
    return v


def across(w: np.ndarray) -> np.ndarray:
    """A unit vector normal to w, along a coordinate axis where that is possible."""
    k = int(np.argmin(np.abs(w)))
    u = np.eye(3)[k] - w[k] * w
    return u / np.linalg.norm(u)


def place_joint(why: str, a: Body, b: Body, options: dict[str, Any], needs_axis: bool) -> Place:
    """From `at`, `axis` in world coordinates, or `point_a`, `point_b`, `axis_a`, `axis_b` in those of the bodies."""
    dim = a.dimension
    at, axis = options.get("at"), options.get("axis")
    points = []
    for body, key in ((a, "point_a"), (b, "point_b")):
        if options.get(key) is not None:
            points.append(numbers(why, key, options[key], dim))
        elif at is not None:
            points.append(body.attitude.T @ (numbers(why, "at", at, dim) - body.origin))
        else:
            raise InputError(f"{why}: give its point as at=... (in the world), or point_a=... and point_b=... (bodies)")
    if options.get("frame_a") is not None:
        return Place(points[0], points[1], options["frame_a"], options["frame_b"])
    if dim == 2:
        return Place(points[0], points[1], *_planar_frames(why, a, b, options))
    if not needs_axis and axis is None and options.get("axis_a") is None:
        axis = (0.0, 0.0, 1.0)
    directions = []
    for body, key in ((a, "axis_a"), (b, "axis_b")):
        if options.get(key) is not None:
            directions.append(_unit(why, key, options[key], dim))
        elif axis is not None:
            directions.append(body.attitude.T @ _unit(why, "axis", axis, dim))
        else:
            raise InputError(f"{why}: give its axis as axis=... (in the world), or axis_a=... and axis_b=... (bodies)")
    wa, wb = directions
    ua = a.attitude.T @ across(a.attitude @ wa)
    ub = b.attitude.T @ a.attitude @ ua
    ub = ub - (ub @ wb) * wb
    if np.linalg.norm(ub) < 1e-6:
        ub = across(wb)
    ub = ub / np.linalg.norm(ub)
    frames = [np.stack([u, np.cross(w, u), w], axis=1) for u, w in ((ua, wa), (ub, wb))]
    first, second = (np.where(np.abs(f) < 1e-15, 0.0, f) for f in frames)
    axis2 = None if options.get("axis2") is None else b.attitude.T @ _unit(why, "axis2", options["axis2"], dim)
    return Place(points[0], points[1], first, second, axis2)


def _planar_frames(why: str, a: Body, b: Body, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Frames (w, u): w along the axis of a slide, u normal to it."""
    axis = _unit(why, "axis", options.get("axis", (1.0, 0.0)), 2)
    frames = []
    for body, key in ((a, "axis_a"), (b, "axis_b")):
        given = options.get(key)
        w = body.attitude.T @ axis if given is None else _unit(why, key, given, 2)
        frames.append(np.stack([w, [-w[1], w[0]]], axis=1))
    return frames[0], frames[1]


def make_joint(name: str, kind: str, a: Body, b: Body, options: dict[str, Any]) -> Joint:
    """The joint with its rows; `options` are the keyword arguments of the builder's method."""
    why = f"joint {name!r}"
    if kind not in KINDS[a.dimension]:
        known = ", ".join(KINDS[a.dimension])
        raise InputError(f"{why}: unknown kind {kind!r} in {a.dimension} dimensions; there are {known}")
    if a is b or (a.fixed and b.fixed):
        raise InputError(f"{why} needs two different bodies, not {a.name!r} and {b.name!r}")
    for key in options:
        if key not in OPTIONS:
            raise InputError(f"{why}: unknown option {key!r}; there are {', '.join(OPTIONS)}")
    place = place_joint(why, a, b, options, kind in AXIS)
    pa, pb = (vector(body, p, why, point=True) for body, p in ((a, place.point_a), (b, place.point_b)))
    apart = pb - pa
    if kind == "distance":
        return _distance(name, a, b, place, apart, options)
    builder = Rows(why, a, b, place, apart)
    rows = builder.planar(kind) if a.dimension == 2 else builder.spatial(kind, options)
    joint = Joint(name, kind, a, b, rows, place, builder.axis)
    joint.coordinates = builder.coordinates
    if options.get("frame_a") is not None and kind in ("fixed", "revolute", "prismatic", "cylindrical", "planar"):
        axes = (2,) if kind in ("revolute", "cylindrical", "planar") else (0, 1, 2)
        gaps = [builder.at_b(k) - builder.at_a(k) for k in axes]
        joint.guides = [ProductRow(Vector((), e), gap) for gap in gaps for e in np.eye(3)]
    return joint


def _distance(name: str, a: Body, b: Body, place: Place, apart: Vector, options: dict[str, Any]) -> Joint:
    length = options.get("length")
    if length is None:
        gap = (b.origin + b.attitude @ place.point_b) - (a.origin + a.attitude @ place.point_a)
        length = float(np.linalg.norm(gap))
    length = number(f"joint {name!r}: length", length)
    if not length > 0:
        raise InputError(f"joint {name!r}: length must be positive, not {length:g}; use a spherical joint for zero")
    return Joint(name, "distance", a, b, [ProductRow(apart, apart, length**2)], place)


class Rows:
    """Rows and positions of a joint, out of the vectors of its two frames."""

    def __init__(self, why: str, a: Body, b: Body, place: Place, apart: Vector):
        self.why, self.a, self.b, self.place, self.apart = why, a, b, place, apart
        self.coordinates: list[Coordinate] = []
        self.axis: Vector | None = None

    def at_a(self, k: int) -> Vector:
        return vector(self.a, self.place.frame_a[:, k], self.why, point=False)

    def at_b(self, k: int) -> Vector:
        return vector(self.b, self.place.frame_b[:, k], self.why, point=False)

    def same_point(self) -> list[Row]:
        dim = self.a.dimension
        return [ProductRow(Vector((), np.eye(dim)[i]), self.apart) for i in range(dim)]

    def angle(self, u: int, v: int) -> Coordinate:
        return Coordinate("angle", (self.at_a(u), self.at_a(v), self.at_b(u)), np.eye(self.a.dimension)[-1])

    def along(self, k: int) -> Coordinate:
        return Coordinate("distance", (self.at_a(k), self.apart), np.eye(self.a.dimension)[k])

    def planar(self, kind: str) -> list[Row]:
        """Frame (w, u): a slide moves along w."""
        if kind == "revolute":
            self.coordinates = self._if_possible(lambda: [self.angle(0, 1)])
            return self.same_point()
        self.axis = self.at_a(0)
        if kind == "point_on_line":
            self.coordinates = [self.along(0)]
            return [ProductRow(self.at_a(1), self.apart)]
        straight: Row = ProductRow(self.at_a(1), self.at_b(0))
        if kind == "fixed":
            return [*self.same_point(), straight]
        self.coordinates = [self.along(0)]
        return [ProductRow(self.at_a(1), self.apart), straight]

    def _if_possible(self, make: Callable[[], list[Coordinate]]) -> list[Coordinate]:
        """The positions that `make` returns; none if they need directions that point masses and rods do not have."""
        try:
            return make()
        except InputError:
            return []

    def spatial(self, kind: str, options: dict[str, Any]) -> list[Row]:
        u, v, w = 0, 1, 2
        if kind == "spherical":
            return self.same_point()
        if kind == "universal":
            return self._universal()
        self.axis = self.at_a(w)
        sideways: list[Row] = []
        if kind in ("prismatic", "cylindrical", "screw", "point_on_line"):
            sideways = [ProductRow(self.at_a(k), self.apart) for k in (u, v)]
        if kind == "point_on_line":
            self.coordinates = [self.along(w)]
            return sideways
        if kind == "point_on_plane":
            self.coordinates = [self.along(u), self.along(v)]
            return [ProductRow(self.at_a(w), self.apart)]
        parallel: list[Row] = [ProductRow(self.at_a(k), self.at_b(w)) for k in (u, v)]
        twist: list[Row] = [ProductRow(self.at_a(v), self.at_b(u))]
        if kind == "revolute":
            self.coordinates = [self.angle(u, v)]
            return [*self.same_point(), *parallel]
        if kind == "prismatic":
            self.coordinates = [self.along(w)]
            return [*sideways, *parallel, *twist]
        if kind == "fixed":
            return [*self.same_point(), *parallel, *twist]
        if kind == "planar":
            self.coordinates = [self.along(u), self.along(v), self.angle(u, v)]
            return [ProductRow(self.at_a(w), self.apart), *parallel]
        self.coordinates = [self.angle(u, v), self.along(w)]
        if kind == "cylindrical":
            return [*sideways, *parallel]
        pitch = number(f"{self.why}: the pitch of a screw (distance per turn)", options.get("pitch"))
        if pitch == 0:
            raise InputError(f"{self.why}: a screw needs its pitch (distance per turn), not 0")
        screw = PhaseRow(((1.0, self.coordinates[0]), (-2 * np.pi / pitch, self.coordinates[1])))
        return [*sideways, *parallel, screw]

    def in_a(self, direction: np.ndarray) -> Vector:
        """A direction fixed in a, from its world coordinates as placed."""
        return vector(self.a, self.a.attitude.T @ direction, self.why, point=False)

    def in_b(self, direction: np.ndarray) -> Vector:
        return vector(self.b, self.b.attitude.T @ direction, self.why, point=False)

    def _universal(self) -> list[Row]:
        """Two axes, `axis` fixed in a and `axis2` fixed in b, that keep their angle (usually 90 degrees)."""
        if self.place.axis2 is None:
            raise InputError(f"{self.why}: a universal joint needs axis (fixed in a) and axis2 (fixed in b)")
        first = self.a.attitude @ self.place.frame_a[:, 2]
        self.axis = self.in_a(first)
        rows, angles = self._two_turns(first, self.b.attitude @ self.place.axis2)
        second = self.place.frame_b.T @ self.place.axis2
        self.coordinates = [dataclasses.replace(x, axis=w) for x, w in zip(angles, (np.eye(3)[2], second), strict=True)]
        return [*self.same_point(), *rows]

    def turns(self, axes: list[np.ndarray]) -> tuple[list[Row], list[Coordinate]]:
        """Rows and angles of up to three hinges in series; the first turns about w of the frame of a."""
        if len(axes) == 3:
            return [], self._three_turns(*axes)
        if len(axes) == 2:
            return self._two_turns(*axes)
        parallel: list[Row] = [ProductRow(self.at_a(k), self.at_b(2)) for k in (0, 1)]
        return (parallel, [self.angle(0, 1)]) if axes else ([*parallel, ProductRow(self.at_a(1), self.at_b(0))], [])

    def _two_turns(self, w1: np.ndarray, w2: np.ndarray) -> tuple[list[Row], list[Coordinate]]:
        lean = float(w1 @ w2)
        if abs(lean) > 0.99:
            raise InputError(f"{self.why}: its two axes are nearly parallel")
        lean = 0.0 if abs(lean) < 1e-12 else lean
        u1 = w2 - lean * w1
        u1 /= np.linalg.norm(u1)
        u2 = w1 - lean * w2
        u2 /= np.linalg.norm(u2)
        first = Coordinate("angle", (self.in_a(u1), self.in_a(np.cross(w1, u1)), self.in_b(w2)))
        second = Coordinate("angle", (self.in_b(u2), self.in_b(-np.cross(w2, u2)), self.in_a(w1)))
        return [ProductRow(self.in_a(w1), self.in_b(w2), lean)], [first, second]

    def _three_turns(self, w1: np.ndarray, w2: np.ndarray, w3: np.ndarray) -> list[Coordinate]:
        """Euler angles about axes normal to each other; the second one must stay within a quarter turn."""
        v = np.cross(w1, w3)
        up = float(w1 @ np.cross(w2, w3)) * w1
        return [
            Coordinate("angle", (self.in_a(w3), self.in_a(v), self.in_b(w3))),
            Coordinate("angle", (self.in_a(w3), self.in_a(v), self.in_b(w3), self.in_a(up))),
            Coordinate("angle", (self.in_b(w1), self.in_b(-np.cross(w3, w1)), self.in_a(w1))),
        ]


def coupling_row(terms: list[tuple[float, Coordinate]], offset: float) -> tuple[PhaseRow, bool]:
    """`sum_j n_j x_j = offset` with whole numbers as factors of angles, and whether such factors were found.

    A single angle gets the factor 1 (a rack and pinion). If the ratios of several are quotients of whole numbers up to
    64 (teeth of gears), denominators are cleared.
    """
    angles = [n for n, coordinate in terms if coordinate.kind == "angle" and n != 0]
    if not angles:
        return PhaseRow(tuple(terms), offset), True
    ratios = [Fraction(n / angles[0]).limit_denominator(MAX_TEETH) for n in angles]
    common = int(np.lcm.reduce([ratio.denominator for ratio in ratios]))
    exact = all(abs(float(ratio) * angles[0] - n) <= 1e-12 * abs(n) for ratio, n in zip(ratios, angles, strict=True))
    if not exact or max(abs(ratio * common) for ratio in ratios) > 4 * MAX_TEETH:
        return PhaseRow(tuple(terms), offset), False
    factor = common / angles[0]
    whole = tuple((float(round(n * factor)) if c.kind == "angle" else n * factor, c) for n, c in terms)
    return PhaseRow(whole, offset * factor), True
