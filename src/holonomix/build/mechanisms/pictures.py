"""The scene of a mechanism: shapes in the coordinates of the directors, joints, springs and the ground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.scene import Bond, Frame, JointMark, Particles, Scene, ShapeMark, ground_links

if TYPE_CHECKING:
    from .bodies import Body
    from .mechanism import Mechanism


def make_scene(mechanism: Mechanism) -> Scene:
    """What a picture of the mechanism shows; bodies without a shape are drawn as lines from joint to joint."""
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
    )


def _tuple(x: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in np.asarray(x).reshape(-1))


def _shapes(mechanism: Mechanism, body: Body) -> tuple[ShapeMark, ...]:
    turn = body.axes.T
    if body.shapes:
        marks = []
        for shape, position, rotation in body.shapes:
            turned = turn @ np.asarray(rotation)[: len(turn), : len(turn)]
            marks.append(ShapeMark(shape.kind, shape.size, _tuple(turn @ (position - body.center)), _tuple(turned)))
        return tuple(marks)
    ends = []
    for joint in mechanism.joints:
        if joint.place is not None and body in (joint.a, joint.b):
            point = joint.place.point_a if body is joint.a else joint.place.point_b
            ends.append(turn @ (point - body.center))
    if len(ends) == 1:
        ends.append(np.zeros(mechanism.dimensions))
    ends = ends + ends[:1] if len(ends) > 2 else ends
    return (ShapeMark("line", _tuple(np.concatenate(ends))),) if ends else ()


def _bonds(mechanism: Mechanism) -> tuple[tuple[Bond, ...], tuple[tuple[float, ...], ...]]:
    """Springs and distance joints between points of bodies and fixed points, and the links of the ground."""
    lines = [("spring" if s[2] else "damper", *zip(s[5], s[6], strict=True)) for s in mechanism._springs]
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


def _anchor(anchors: list[tuple[float, ...]], point: Any) -> int:
    """The place of a fixed point in the list, to which it is added if it is new."""
    at = _tuple(point)
    for k, known in enumerate(anchors):
        if np.allclose(known, at, rtol=1e-12, atol=1e-12):
            return k
    anchors.append(at)
    return len(anchors) - 1
