"""Placement of bodies from joint positions, from the ground outward along the joints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.errors import InputError
from ...core.types import ArrayLike
from .bodies import Body, rotation_matrix
from .joints import Joint
from .results import cross
from .xml_files import turn_about

if TYPE_CHECKING:
    from .mechanism import Mechanism


def configure(mechanism: Mechanism, positions: Mapping[str, Any], velocities: Mapping[str, Any] | None) -> None:
    """Move bodies so that joints have the given positions and rates (zero if none is given).

    Joints are followed from the ground in the order of their creation. A joint between two bodies that are already
    placed closes a loop and is left to `assemble`. In a part that no joint connects to the ground, the first body keeps
    its pose and velocity. Without `velocities`, the velocities given to bodies and joints do not change.
    """
    rates = None if velocities is None else {_joint(mechanism, name, True).name: x for name, x in velocities.items()}
    positions = {_joint(mechanism, name, False).name: x for name, x in positions.items()}
    mechanism._named = {
        name: _numbers(mechanism[name], x) for name, x in positions.items() if mechanism[name].coordinates
    }
    positions = _follow(mechanism, positions)
    if rates is not None:
        mechanism._configured = {name: _numbers(mechanism[name], given) for name, given in rates.items()}
    placed = {-1}
    for branch in spanning_tree(mechanism):
        joint, forward = branch.joint, branch.forward
        if joint.kind == "spherical":
            _turn(joint, positions.get(joint.name), forward)
        x, rate = (
            np.concatenate([_padded(part, given.get(part.name)) for part in joint.stack])
            for given in (positions, mechanism._configured)
        )
        if velocities is not None:
            branch.far.given.clear()
        _place(joint, x, rate, forward, placed)


class Branch(NamedTuple):
    """A joint of the tree along which bodies are placed; `forward` means from a to b."""

    joint: Joint
    forward: bool

    @property
    def near(self) -> Body:
        return self.joint.a if self.forward else self.joint.b

    @property
    def far(self) -> Body:
        return self.joint.b if self.forward else self.joint.a


def spanning_tree(mechanism: Mechanism) -> list[Branch]:
    """Joints that lead from the ground, or from the first body of a part without ground, to every other body."""
    placed, out = {-1}, []
    skipped = ("drive", "distance", "point_on_line", "point_on_plane")
    waiting = [j for j in mechanism.joints if j.place is not None and j.kind not in skipped and j is j.stack[0]]
    while waiting:
        waiting = [j for j in waiting if not {j.a.number, j.b.number} <= placed]
        ready = [j for j in waiting if {j.a.number, j.b.number} & placed]
        if not ready:
            placed.add(min([min(j.a.number, j.b.number) for j in waiting], default=-1))
            continue
        out.append(Branch(ready[0], ready[0].a.number in placed))
        placed.add(out[-1].far.number)
    return out


def move_rotors(bodies: list[Body], q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities of all particles, with rotors where their joints are."""
    for body in bodies:
        if body.rotor:
            coordinate, radius = body.rotor
            x, slope = coordinate.value_and_slopes(q)
            x, rate = float(x), float(np.sum(slope * v))
            if coordinate.kind == "distance":
                place, way = [x], [1.0]
            else:
                place, way = radius * np.array([[np.cos(x), np.sin(x)], [-np.sin(x), np.cos(x)]])
            q[body.first], v[body.first] = 0.0, 0.0
            q[body.first, : len(place)], v[body.first, : len(way)] = place, rate * np.asarray(way)
    return q, v


def _joint(mechanism: Mechanism, name: str, rate: bool) -> Joint:
    """The joint NAME, or "joint NAME" if a body has that name; raises unless it has a position (or a rate)."""
    joint: Any = mechanism._names.get(name)
    if not isinstance(joint, Joint):
        joint = mechanism._names.get(f"joint {name}") or mechanism[name]
    ball = isinstance(joint, Joint) and joint.kind == "spherical"
    if not getattr(joint, "coordinates", None) and not (ball and not rate):
        hint = "; use m.start_velocity for the body behind a ball joint" if ball else ""
        raise InputError(f"{name!r} is not a joint with a {'rate' if ball else 'position'}{hint}")
    return joint


def _follow(mechanism: Mechanism, positions: Mapping[str, Any]) -> dict[str, Any]:
    """The given positions, and those of further joints that follow from gears."""
    known = dict(positions)
    waiting = [joint.relation for joint in mechanism.joints if joint.relation is not None]
    while waiting:
        ready = [r for r in waiting if {r[0].name, r[1].name} & set(known)] or waiting[:1]
        first, second, factor, offset = ready[0]
        waiting.remove(ready[0])
        if first.name not in known and second.name in known and factor != 0:
            known[first.name] = (_numbers(second, known[second.name])[0] - offset) / factor
        leader = _numbers(first, known.setdefault(first.name, 0.0))[0]
        known.setdefault(second.name, factor * leader + offset)
    return known


def _numbers(joint: Joint, given: ArrayLike) -> np.ndarray:
    """Numbers for the first positions of a joint."""
    count = max(len(joint.coordinates), 1)
    try:
        values = np.atleast_1d(np.asarray(given, float))
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if values.ndim != 1 or len(values) > count or not np.all(np.isfinite(values)):
        raise InputError(
            f"joint {joint.name!r} has {count} position{'s' * (count > 1)}, so {given!r} is no value of it"
        )
    return values


def _padded(joint: Joint, given: ArrayLike | None) -> np.ndarray:
    """A number for each position of a joint, zero where none is given."""
    if not joint.coordinates:
        return np.zeros(0)
    values = _numbers(joint, 0.0 if given is None else given)
    return np.pad(values, (0, len(joint.coordinates) - len(values)))


def _turn(joint: Joint, rotation: ArrayLike | None, forward: bool) -> None:
    """Turn the body at the far end of a ball joint; `rotation` is that of b relative to a since its creation."""
    if rotation is not None:
        place: Any = joint.place
        turn = rotation_matrix(f"joint {joint.name!r}", rotation, 3) @ place.frame_a @ place.frame_b.T
        if forward:
            joint.b.attitude = joint.a.attitude @ turn
        else:
            joint.a.attitude = joint.b.attitude @ turn.T


def _place(joint: Joint, x: np.ndarray, rate: np.ndarray, forward: bool, placed: set[int]) -> None:
    """Place the body at the far end of a joint by the positions of the joint."""
    place: Any = joint.place
    near, far = (joint.a, joint.b) if forward else (joint.b, joint.a)
    fa, fb = place.frame_a, place.frame_b
    dim = len(fa)
    # pose and velocity of the frame in b relative to that in a; each position moves all later ones
    turn, spin, shift, glide = np.eye(dim), np.zeros(3 if dim == 3 else ()), np.zeros(dim), np.zeros(dim)
    coordinates = [coordinate for part in joint.stack for coordinate in part.coordinates]
    for coordinate, value, speed in zip(coordinates, x, rate, strict=True):
        if coordinate.kind == "distance":
            way = turn @ coordinate.axis
            shift, glide = shift + way * value, glide + way * speed + _turning(spin, way * value)
        else:
            turned = turn @ _rotation(coordinate.axis, value)
            own = speed * (turn @ coordinate.axis if dim == 3 else 1.0)
            if coordinate.point is not None:  # the frame moves about a point of the axis
                arm = turn @ coordinate.point
                way = arm - turned @ coordinate.point
                shift, glide = shift + way, glide + _turning(spin, way) + _turning(own, way - arm)
            turn, spin = turned, spin + own
    relative = fa @ turn @ fb.T if joint.kind != "spherical" else joint.a.attitude.T @ joint.b.attitude
    origin_near, spin_near = near.origin, near.spin0
    velocity_near = near.velocity0 if not near.fixed else np.zeros(dim)
    far.attitude = near.attitude @ (relative if forward else relative.T)
    frame = joint.a.attitude @ fa
    push, slide = frame @ shift, frame @ glide
    swing = frame @ spin if dim == 3 else spin
    sign = 1.0 if forward else -1.0
    near_point, far_point = (place.point_a, place.point_b) if forward else (place.point_b, place.point_a)
    far.origin = origin_near + near.attitude @ near_point + sign * push - far.attitude @ far_point
    if "angular velocity" not in far.given:
        far.spin0 = spin_near + sign * swing
    joint_velocity = velocity_near + _turning(spin_near, near.attitude @ near_point)
    # the point of a that touches b moves with a also along the slide
    carried = _turning(spin_near if forward else far.spin0, push)
    if "velocity" not in far.given:
        far.velocity0 = joint_velocity + sign * (slide + carried) - _turning(far.spin0, far.attitude @ far_point)
    placed.add(far.number)


def _rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    """The rotation by an angle about a unit vector, or in the plane."""
    c, s = np.cos(angle), np.sin(angle)
    if len(axis) == 2 or axis[2] == 1.0:
        out = np.eye(len(axis))
        out[:2, :2] = [[c, -s], [s, c]]
        return out
    return turn_about(axis, angle)


def _turning(spin: Any, arm: np.ndarray) -> np.ndarray:
    if len(arm) == 3:
        return cross(spin, arm)
    return spin * np.array([-arm[1], arm[0]])
