"""Several slides and hinges between the same two bodies, each a joint of its own name and position."""

from __future__ import annotations

import dataclasses

import numpy as np

from ...core.errors import InputError
from .bodies import Body
from .forms import Coordinate, PhaseRow, ProductRow, Row, Vector
from .joints import Joint, Rows, across, place_joint, vector

MIN_VOLUME = 1e-3  # of the directions of three hinges, which must not be parallel to a plane
Part = tuple[str, np.ndarray, np.ndarray]  # "slide" or "hinge", point and axis in the world as placed


def make_stack(names: list[str], a: Body, b: Body, parts: list[Part]) -> list[Joint]:
    """Slides and hinges in series from a to b, as `("slide" or "hinge", point, axis)` in the world as placed.

    Each moves all that come after it. The first joint has the rows, every joint has its own position. Slides come
    before the hinges or after them; hinges meet in a point, and three of them are normal to each other. Two or three
    hinges alone need neither.
    """
    why = f"joint {names[0]!r}"
    turns = [k for k, part in enumerate(parts) if part[0] == "hinge"]
    slides = [k for k, part in enumerate(parts) if part[0] == "slide"]
    axes = [part[2] / np.linalg.norm(part[2]) for part in parts]
    along = np.stack([axes[k] for k in slides], axis=1) if slides else np.zeros((3, 0))
    commute = len(turns) == 1 and np.allclose(np.cross(along.T, axes[turns[0]]), 0, atol=1e-9)
    before = commute or not turns or all(k < turns[0] for k in slides)
    point = _meeting_point([parts[k][1:] for k in turns]) if turns else parts[0][1]
    if point is None and len(parts) == 2:
        return _two_lines(names, a, b, parts, axes)
    normal = all(abs(axes[j] @ axes[k]) < 1e-9 for j in turns for k in turns if j < k)
    spatial = len(parts) == 3 and abs(np.linalg.det(axes)) > MIN_VOLUME
    if len(turns) == 3 and spatial and not (normal and point is not None):
        return _three_lines(names, a, b, parts, axes)
    possible = before or all(k > turns[-1] for k in slides)
    possible &= len(turns) < 3 or (len(turns) == 3 and normal)
    if point is None or not possible or np.linalg.matrix_rank(along, 1e-6) < len(slides):
        raise InputError(
            f"{why}: {' + '.join(part[0] for part in parts)} between {a.name!r} and {b.name!r} make no joint that is "
            "known here; put a light body between them"
        )
    places = [place_joint(why, a, b, {"at": point, "axis": w}, True) for w in axes]
    place = places[turns[0] if turns else 0]
    ends = [vector(body, p, why, point=True) for body, p in ((a, place.point_a), (b, place.point_b))]
    builder = Rows(why, a, b, place, ends[1] - ends[0])
    side = builder.in_a if before else builder.in_b
    rows, angles = builder.turns([axes[k] for k in turns])
    if slides:
        rows = [*(ProductRow(side(n), builder.apart) for n in _normals(along)), *rows]
    else:
        rows = [*builder.same_point(), *rows]
    distances = [Coordinate("distance", (side(w), builder.apart)) for w in np.linalg.pinv(along)]
    found = dict(zip([*slides, *turns], [*distances, *angles], strict=True))
    joints = []
    for k, (name, part) in enumerate(zip(names, parts, strict=True)):
        kind = "prismatic" if part[0] == "slide" else "revolute"
        joint = Joint(name, kind, a, b, [] if k else rows, places[k], builder.in_a(axes[k]))
        # positions are in the frame of the first joint
        axis = places[0].frame_a.T @ a.attitude.T @ axes[k]
        joint.coordinates = [dataclasses.replace(found[k], axis=axis)]
        joints.append(joint)
    for joint in joints:
        joint.stack = tuple(joints)
    return joints


def _two_lines(names: list[str], a: Body, b: Body, parts: list[Part], axes: list[np.ndarray]) -> list[Joint]:
    """Two hinges whose lines do not meet: four rows of the shortest segment D between the lines.

    `D . D = d^2`, `D . w_1 = D . w_2 = 0` and `w_1 . w_2` constant; of parallel lines `D . w_1 = 0` and `w_1 x w_2 = 0`
    (two rows), where the angles are those of D in each body.
    """
    why, (w1, w2), (p1, p2) = f"joint {names[0]!r}", axes, (parts[0][1], parts[1][1])
    parallel = bool(np.linalg.norm(np.cross(w1, w2)) < 1e-9)
    if parallel:
        foot, tip = p1, p2 - ((p2 - p1) @ w1) * w1
    else:
        lean = w1 @ w2
        s1, s2 = np.linalg.solve([[1.0, -lean], [lean, -1.0]], [(p2 - p1) @ w1, (p2 - p1) @ w2])
        foot, tip = p1 + s1 * w1, p2 + s2 * w2
    first, second = (place_joint(why, a, b, {"at": x, "axis": w}, True) for x, w in ((foot, w1), (tip, w2)))
    ends = [vector(body, p, why, point=True) for body, p in ((a, first.point_a), (b, second.point_b))]
    builder = Rows(why, a, b, first, ends[1] - ends[0])
    segment, gap = builder.apart, tip - foot
    rows: list[Row] = [ProductRow(segment, segment, float(gap @ gap)), ProductRow(builder.in_a(w1), segment)]
    if parallel:
        u = gap / np.linalg.norm(gap)
        rows += [ProductRow(builder.at_a(k), builder.in_b(w2)) for k in (0, 1)]
        angles = [
            Coordinate("angle", (builder.in_a(u), builder.in_a(np.cross(w1, u)), segment)),
            Coordinate("angle", (builder.in_b(u), builder.in_b(-np.cross(w2, u)), segment)),
        ]
    else:
        own, angles = builder.turns([w1, w2])
        rows += [ProductRow(builder.in_b(w2), segment), *own]
    seen = lambda x: first.frame_a.T @ a.attitude.T @ x  # in the frame of the first joint
    joints = []
    for name, place, angle, w, offset in zip(names, (first, second), angles, axes, (0 * gap, gap), strict=True):
        joint = Joint(name, "revolute", a, b, [] if joints else rows, place, builder.in_a(w))
        joint.coordinates = [dataclasses.replace(angle, axis=seen(w), point=seen(offset))]
        joints.append(joint)
    for joint in joints:
        joint.stack = tuple(joints)
    return joints


def _three_lines(names: list[str], a: Body, b: Body, parts: list[Part], axes: list[np.ndarray]) -> list[Joint]:
    """Three hinges in any places: three rows, the gap of `hinge_chain`."""
    why, points = f"joint {names[0]!r}", [part[1] for part in parts]
    places = [place_joint(why, a, b, {"at": p, "axis": w}, True) for p, w in zip(points, axes, strict=True)]
    ends = [vector(a, places[0].point_a, why, point=True), vector(b, places[2].point_b, why, point=True)]
    builder = Rows(why, a, b, places[0], ends[1] - ends[0])
    seen = lambda x: places[0].frame_a.T @ a.attitude.T @ x  # in the frame of the first joint
    known = [Vector((), seen(x)) for x in (*axes, points[1] - points[0], points[2] - points[1])]
    sides = [side(k) for side in (builder.at_a, builder.at_b) for k in range(3)]
    number = lambda kind, k: Coordinate(kind, (*sides, builder.apart, *known), part=k)
    rows: list[Row] = [PhaseRow(((1.0, number("distance", k)),)) for k in range(3)]
    joints = []
    for k, (name, place, w) in enumerate(zip(names, places, axes, strict=True)):
        joint = Joint(name, "revolute", a, b, [] if k else rows, place, builder.in_a(w))
        joint.coordinates = [dataclasses.replace(number("angle", k), axis=seen(w), point=seen(points[k] - points[0]))]
        joints.append(joint)
    for joint in joints:
        joint.stack = tuple(joints)
    return joints


def _meeting_point(lines: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray | None:
    """The point that lines, given by a point and a direction, have in common."""
    last = lines[-1][0]
    planes = [np.eye(3) - np.outer(w, w) / (w @ w) for _, w in lines]
    gaps = [plane @ (p - last) for plane, (p, _) in zip(planes, lines, strict=True)]
    point = last + np.linalg.lstsq(np.concatenate(planes), np.concatenate(gaps), rcond=1e-9)[0]
    size = max(float(np.linalg.norm(p - last)) for p, _ in lines)
    missed = max(float(np.linalg.norm(plane @ (point - p))) for plane, (p, _) in zip(planes, lines, strict=True))
    return None if missed > 1e-9 * size else point if size > 0 else last


def _normals(along: np.ndarray) -> list[np.ndarray]:
    """Unit vectors that complete the columns of `along` to a basis, normal to them."""
    if along.shape[1] == 3:
        return []
    if along.shape[1] == 2:
        n = np.cross(along[:, 0], along[:, 1])
        return [n / np.linalg.norm(n)]
    u = across(along[:, 0])
    return [u, np.cross(along[:, 0], u)]
