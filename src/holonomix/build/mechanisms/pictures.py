"""The scene of a mechanism: shapes in the coordinates of the directors, joints, springs and the ground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.scene import Bond, Frame, Guide, JointMark, Particles, Scene, ShapeMark, ground_links
from ...core.types import ArrayLike

if TYPE_CHECKING:
    from .bodies import Body
    from .joints import Joint
    from .mechanism import Mechanism


SLIDES = ("prismatic", "cylindrical", "screw", "point_on_line")
MIN_DISK_RATIO = 1.3  # a disk is drawn if its radius is larger than this fraction of the distance of the joints
MAX_DISK_OFFSET = 0.25  # ... and the nearest joint is closer to its center than this fraction of its radius


def make_scene(mechanism: Mechanism) -> Scene:
    """The scene of a mechanism; bodies without a shape are drawn as lines from joint to joint."""
    frames, points = [], []
    for body in (x for x in mechanism.bodies if not x.rotor):
        if body.kind in ("point", "planar point"):
            points.append(Particles((body.first,), species=body.name, color=body.color))
        else:
            frames.append(Frame(body.name, body.first, body.particles[1:], _shapes(mechanism, body), body.color))
    joints = []
    for joint in mechanism.joints:
        if joint.place is None or joint.kind == "drive":
            continue
        body, point, axis = joint.b, joint.place.point_b, joint.place.frame_b[:, -1]
        if body.fixed:
            body, point, axis = joint.a, joint.place.point_a, joint.place.frame_a[:, -1]
        turn = body.axes.T
        at = _tuple(turn @ (point - body.center))
        joints.append(JointMark(joint.name, joint.kind, body.name, at, _tuple(turn @ axis) if len(axis) == 3 else ()))
    bonds, anchors = _bonds(mechanism)
    down = np.flatnonzero(mechanism.gravity)
    up = int(down[0]) if down.size == 1 else -1
    return Scene(
        mechanism.dimensions,
        mechanism.length_unit,
        tuple(points),
        bonds,
        tuple(frames),
        tuple(joints),
        anchors=anchors,
        up=up,
        guides=_rails(mechanism, anchors),
    )


def _rails(mechanism: Mechanism, anchors: tuple[tuple[float, ...], ...]) -> tuple[Guide, ...]:
    """The lines along which slides move, on the ground and on bodies without a shape."""
    rails = []
    for joint in mechanism.joints:
        if joint.place is None or joint.kind not in SLIDES or joint.a.shapes:
            continue
        body = joint.a
        ends = body.axes.T @ (np.stack(_rail(mechanism, joint, anchors), axis=1) - body.center[:, None])
        rails.append(Guide((_tuple(ends.T),), "rail", "" if body.fixed else body.name))
    return tuple(rails)


def _rail(
    mechanism: Mechanism, joint: Joint, anchors: tuple[tuple[float, ...], ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the rail of a slide on its first body, in coordinates of that body."""
    places = [body.origin for body in mechanism.bodies] + [np.asarray(a) for a in anchors]
    size = float(np.max(np.ptp(places, axis=0))) if places else 0.0
    body, place = joint.a, joint.place
    assert place is not None
    along = place.frame_a[:, 2 if mechanism.dimensions == 3 else 0]
    middle = joint.b.attitude @ place.point_b + joint.b.origin - body.origin  # where the slide starts
    middle = place.point_a + along * (along @ (body.attitude.T @ middle - place.point_a))
    half = 0.5 * (size or 1.0) * along
    return middle - half, middle + half


def _tuple(x: ArrayLike) -> tuple[float, ...]:
    return tuple(float(v) for v in np.asarray(x).reshape(-1))


def _shapes(mechanism: Mechanism, body: Body) -> tuple[ShapeMark, ...]:
    """The shapes of a body in a picture; without any, lines between its joints, or a disk."""
    turn = body.axes.T
    if body.shapes:
        marks = []
        for shape, position, rotation in body.shapes:
            turned = turn @ np.asarray(rotation)[: len(turn), : len(turn)]
            marks.append(ShapeMark(shape.kind, shape.size, _tuple(turn @ (position - body.center)), _tuple(turned)))
        return tuple(marks)
    ends = []
    pairs = [((j.a, j.b), (j.place.point_a, j.place.point_b)) for j in mechanism.joints if j.place is not None]
    pairs += [(spring[5], spring[6]) for spring in mechanism._springs]
    for bodies, points in pairs:
        for other, point in zip(bodies, points, strict=True):
            arm = turn @ (np.asarray(point, float) - body.center)
            if other is body and not any(np.allclose(arm, x, rtol=1e-9, atol=1e-12) for x in ends):
                ends.append(arm)
    if _slides(mechanism, body) and not any(np.any(x) for x in ends):
        return _block(mechanism, body)
    disk = None if _slides(mechanism, body) else _disk(body, [float(np.linalg.norm(x)) for x in ends])
    if len(ends) == 1:
        ends.append(np.zeros(mechanism.dimensions))
    ends = ends + ends[:1] if len(ends) > 2 else ends
    if disk is not None and ends and not np.any(ends[0] - ends[-1]):
        ends = [np.zeros(mechanism.dimensions), disk.size[0] * np.eye(mechanism.dimensions)[0]]  # shows the rotation
    line = (ShapeMark("line", _tuple(np.concatenate(ends)), color="" if disk is None else DARK),) if ends else ()
    return line if disk is None else (disk, *line)


DARK = "#334155"


def _moments(body: Body) -> np.ndarray:
    """The principal moments of inertia; the only one of a planar body."""
    euler = np.zeros(3)
    if body.inertia is not None:
        euler[: len(body.inertia.directors)] = body.inertia.directors
    return euler[:1] if body.kind == "planar" else euler.sum() - euler


def _slides(mechanism: Mechanism, body: Body) -> bool:
    return any(j.kind in SLIDES and j.place is not None and body in (j.a, j.b) for j in mechanism.joints)


def _block(mechanism: Mechanism, body: Body) -> tuple[ShapeMark, ...]:
    """A block with the inertia of a slider, twice as long as wide."""
    joint = next(j for j in mechanism.joints if j.kind in SLIDES and body in (j.a, j.b))
    assert joint.place is not None
    frame = body.axes.T @ (joint.place.frame_b if body is joint.b else joint.place.frame_a)
    length = float(np.sqrt(12 / 1.25 * np.max(_moments(body)) / body.mass))
    if mechanism.dimensions == 3:  # z of the block along the slide
        return (ShapeMark("box", (length / 2, length / 2, length), rotation=_tuple(frame)),)
    return (ShapeMark("box", (length, length / 2), rotation=_tuple(frame)),)


def _disk(body: Body, reaches: list[float]) -> ShapeMark | None:
    """For a body without a shape, the disk of its mass and inertia, if it turns about its center.

    It must be wider than the distance of its joints.
    """
    if body.kind not in ("planar", "rigid", "plate") or body.inertia is None:
        return None
    moments = _moments(body)
    about = int(np.argmax(moments))
    radius = float(np.sqrt(2 * moments[about] / body.mass))
    if not radius > MIN_DISK_RATIO * max(reaches, default=0.0) or min(reaches, default=0.0) > MAX_DISK_OFFSET * radius:
        return None
    if body.kind == "planar":
        return ShapeMark("cylinder", (radius, 0.02 * radius))
    rotation = np.roll(np.eye(3), about - 2, axis=0)  # z of the disk along the axis of the largest moment
    return ShapeMark("cylinder", (radius, 0.1 * radius), rotation=_tuple(rotation))


def _bonds(mechanism: Mechanism) -> tuple[tuple[Bond, ...], tuple[tuple[float, ...], ...]]:
    """Springs and distance joints between points of bodies and fixed points, and the links of the ground."""
    lines = [("spring" if s[2] else "damper", *zip(s[5], s[6], strict=True)) for s in mechanism._springs]
    lines += _slide_springs(mechanism)
    for joint in mechanism.joints:
        if joint.kind == "distance" and joint.place is not None:
            lines.append(("bar", (joint.a, joint.place.point_a), (joint.b, joint.place.point_b)))
    bonds, anchors = [], []
    for kind, *both in lines:
        ends, offsets = [], []
        for body, point in both:
            if body.fixed:
                ends.append(-1 - _anchor(anchors, point))
                offsets.append(())
            else:
                ends.append(body.first)
                offset = body.axes.T @ (np.asarray(point, float) - body.center)
                solid = body.kind not in ("point", "planar point")
                offsets.append(_tuple(offset) if solid and np.any(offset) else ())
        bonds.append(Bond(ends[0], ends[1], kind, at_a=offsets[0], at_b=offsets[1]))
    for joint in mechanism.joints:
        if joint.place is not None and joint.kind != "drive":
            for body, point in ((joint.a, joint.place.point_a), (joint.b, joint.place.point_b)):
                if body.fixed:
                    _anchor(anchors, point)
    return (*bonds, *ground_links(tuple(anchors))), tuple(anchors)


def _slide_springs(mechanism: Mechanism) -> list[tuple[Any, ...]]:
    """Springs of prismatic joints, drawn along the axis from the far end of the first body to that of the second.

    Ends are where other joints are; a body without any begins at the end of the rail, or ends at its center.
    """
    lines, axis = [], 2 if mechanism.dimensions == 3 else 0
    for joint, _, stiffness, _ in mechanism._joint_springs:
        if joint.kind != "prismatic" or joint.place is None or not stiffness:
            continue
        place, ends = joint.place, []
        for body, own, frame in ((joint.a, place.point_a, place.frame_a), (joint.b, place.point_b, place.frame_b)):
            along = frame[:, axis]
            points = [
                own + along * (along @ (point - own))
                for other in mechanism.joints
                if other is not joint and other.place is not None and not body.fixed
                for side, point in ((other.a, other.place.point_a), (other.b, other.place.point_b))
                if side is body
            ]
            if body is joint.b and not points:
                points = [own + along * (along @ (body.center - own))]
            ends.append((body, max(points, key=lambda x: float(np.linalg.norm(x - own)), default=None)))
        if ends[0][1] is None:
            start, _ = _rail(mechanism, joint)
            ends[0] = joint.a, start
        lines.append(("spring", *ends))
    return lines


def _anchor(anchors: list[tuple[float, ...]], point: ArrayLike) -> int:
    """The place of a fixed point in the list, to which it is added if it is new."""
    at = _tuple(point)
    for k, known in enumerate(anchors):
        if np.allclose(known, at, rtol=1e-12, atol=1e-12):
            return k
    anchors.append(at)
    return len(anchors) - 1
