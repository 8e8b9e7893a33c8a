"""Named places in bodies: merged links of URDF files, welded bodies and sites of MJCF files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.errors import InputError
from ...core.types import ArrayLike, HasRows
from .bodies import Body
from .joints import across, numbers


class Frame:
    """A point and axes fixed in a body (or the ground), such as `m["tool0"]`; joints accept it instead of a body."""

    def __init__(self, owner: Any, name: str, body: Body, point: np.ndarray, turn: np.ndarray):
        self.owner, self.name, self.body, self.at, self.turn = owner, name, body, point, turn

    @property
    def fixed(self) -> bool:
        return self.body.fixed

    def _constant(self, sol: HasRows, value: np.ndarray) -> np.ndarray:
        return np.broadcast_to(value, (*np.shape(sol.q)[:-2], *value.shape)).copy()

    def position(self, sol: HasRows) -> np.ndarray:
        """Where its origin is, `(rows, dim)`."""
        return self._constant(sol, self.at) if self.fixed else self.body.point(sol, self.at)

    def rotation(self, sol: HasRows) -> np.ndarray:
        """Its axes as columns, `(rows, dim, dim)`."""
        return self._constant(sol, self.turn) if self.fixed else self.body.rotation(sol) @ self.turn

    def velocity(self, sol: HasRows) -> np.ndarray:
        """The velocity of its origin, `(rows, dim)`."""
        return self._constant(sol, 0 * self.at) if self.fixed else self.body.velocity(sol, self.at)

    def angular_velocity(self, sol: HasRows) -> np.ndarray:
        """In world coordinates, `(rows, 3)`, in the plane `(rows,)`."""
        if self.fixed:
            return self._constant(sol, np.zeros(3 if len(self.at) == 3 else ()))
        return self.body.angular_velocity(sol)

    def jacobian(self, q: ArrayLike | Mapping[str, float]) -> Any:
        """Velocity and angular velocity per rate: see `Mechanism.jacobian`."""
        return self.owner.jacobian(self, q)

    def __repr__(self) -> str:
        return f"Frame({self.name!r}, in {self.body.name!r})"


def ends_of_joint(
    why: str, kind: str, a: Body | Frame, b: Body | Frame, options: dict[str, Any]
) -> tuple[Body, Body, dict[str, Any]]:
    """Bodies and options of a joint between frames; a body paired with a frame stands for its own frame.

    If no point of the world is given, the frames coincide at position zero, and points and axes are in coordinates of
    the frames (the default axis is z, in the plane x).
    """
    bodies = [x.body if isinstance(x, Frame) else x for x in (a, b)]
    if not (isinstance(a, Frame) or isinstance(b, Frame)) or options.get("at") is not None:
        return bodies[0], bodies[1], options
    if kind == "universal":
        raise InputError(f"{why}: a universal joint between frames needs at=, axis= and axis2= in the world")
    options = {key: x for key, x in options.items() if x is not None}
    dim = bodies[0].dimension
    axis = options.pop("axis", np.eye(dim)[-1] if dim == 3 else np.eye(dim)[0])
    for end, key in ((a, "a"), (b, "b")):
        point, turn = (end.at, end.turn) if isinstance(end, Frame) else (np.zeros(dim), np.eye(dim))
        given = numbers(why, f"point_{key}", options.get(f"point_{key}", np.zeros(dim)), dim)
        options[f"point_{key}"] = point + turn @ given
        w = numbers(why, f"axis_{key}", options.pop(f"axis_{key}", axis), dim)
        if not np.linalg.norm(w) > 0:
            raise InputError(f"{why}: its axis must not be zero")
        w = w / np.linalg.norm(w)
        if dim == 2:
            options[f"axis_{key}"] = turn @ w
        elif kind != "distance":
            u = across(w)
            options[f"frame_{key}"] = turn @ np.stack([u, np.cross(w, u), w], axis=1)
        else:
            options[f"axis_{key}"] = turn @ w
    return bodies[0], bodies[1], options
