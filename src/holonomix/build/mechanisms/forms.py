"""The parts of rows and positions of joints: products of vectors that are linear in the frames of bodies.

Every row of a joint is `A . B - c` with vectors `A`, `B` such as a point of a body, the difference of two points, or a
direction fixed in a body; the position of a joint (an angle or a distance) is made of such products too. Rows are data
here; `terms` has the functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ...core.types import Numbers
from .bodies import KINDS, Body, expand, pull
from .host import values, values_and_slopes


@dataclasses.dataclass(frozen=True)
class Vector:
    """`sum_b c_b . frame_b + constant`."""

    parts: tuple[tuple[Body, np.ndarray], ...]
    constant: np.ndarray

    def __sub__(self, other: Vector) -> Vector:
        total: dict[int, tuple[Body, np.ndarray]] = {}
        for sign, vector in ((1.0, self), (-1.0, other)):
            for body, c in vector.parts:
                before = total.get(body.number, (body, 0.0))[1]
                total[body.number] = (body, before + sign * c)
        return Vector(tuple(total.values()), self.constant - other.constant)

    def coefficients(self, bodies: tuple[Body, ...]) -> np.ndarray:
        """The coefficients over the frames of these bodies, one after the other."""
        found = {body.number: c for body, c in self.parts}
        empty = np.zeros(len(self.constant) + 1)
        return np.concatenate([found.get(body.number, empty) for body in bodies])


@dataclasses.dataclass(frozen=True)
class ProductRow:
    """`A . B - c`."""

    a: Vector
    b: Vector
    c: float = 0.0

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return self.a, self.b


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """The position of a joint: `angle = atan2(V_a . U_b, U_a . U_b)`, or `distance = W_a . (P_b - P_a)`.

    With a fourth vector `W_a` normal to `U_a` and `V_a` it is the angle of `U_b` above their plane. With a `part` it is
    one number of `hinge_chain`.
    """

    kind: str
    vectors: tuple[Vector, ...]  # (U_a, V_a, U_b), (U_a, V_a, U_b, W_a), (W_a, P_b - P_a), or those of `hinge_chain`
    axis: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(3)[2])  # in the joint's frame in a
    point: np.ndarray | None = None  # of the axis there, where it does not pass through the joint's point
    part: int | None = None

    @property
    def bodies(self) -> tuple[Body, ...]:
        found = {body.number: body for vector in self.vectors for body, _ in vector.parts}
        return tuple(found.values())

    def value(self, q: np.ndarray) -> np.ndarray:
        """The angle in (-pi, pi], or the distance, for q `(..., particles, dim)`."""
        x, data = self._given(self._frames(q))
        return values(CoordinateRow(self.kind, self.part), x, **data).reshape(np.shape(q)[:-2])

    def value_and_slopes(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Its value and its derivatives, these in the shape of q."""
        q = np.asarray(q)
        value, slopes = self.over_frames(self._frames(q))
        out = np.zeros(q.shape)
        for body in self.bodies:
            x = q[..., list(body.particles), :]
            slope = slopes[body.number].reshape(*x.shape[:-2], -1, x.shape[-1])
            out[..., list(body.particles), :] = pull(body.kind, x, slope)
        return value.reshape(q.shape[:-2]), out

    def over_frames(self, frames: Mapping[int, np.ndarray]) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Its values for frames of bodies by their numbers, `(times, dim + 1, dim)`, and derivatives by these."""
        x, data = self._given(frames)
        value, slopes = values_and_slopes(CoordinateRow(self.kind, self.part), x, **data)
        parts = np.split(slopes, 2, axis=1)
        return value, {body.number: part for body, part in zip(self.bodies, parts, strict=False)}

    def _frames(self, q: np.ndarray) -> dict[int, np.ndarray]:
        found = {
            body.number: expand(body.kind, np.asarray(q)[..., list(body.particles), :], np) for body in self.bodies
        }
        return {k: frame.reshape(-1, *frame.shape[-2:]) for k, frame in found.items()}

    def _given(self, frames: Mapping[int, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Frames and data for `CoordinateRow`."""
        bodies = (self.bodies * 2)[:2]  # so that one program serves joints to the ground too
        x = np.concatenate([frames[body.number] for body in bodies], axis=1)
        own = np.stack([v.coefficients(self.bodies) for v in self.vectors])
        own = np.pad(own, ((0, 0), (0, x.shape[1] - own.shape[1])))
        given = {"vectors": own, "constants": np.stack([v.constant for v in self.vectors])}
        return x, {name: np.broadcast_to(value, (len(x), *value.shape)) for name, value in given.items()}


@dataclasses.dataclass(frozen=True)
class PhaseRow:
    """`sum_j n_j theta_j - phase(t) = 0` for joint positions, up to full turns where angles count turns.

    If all factors `n_j` of angles are whole numbers, the sum is taken modulo full turns, so gears and screws may turn
    without limit. Otherwise angles must stay within (-pi, pi). A step solves for the sine of the sum, which is smooth
    and has the same value and slope at the zeros. The sine also vanishes half a turn away, so the assembly of rough
    positions uses the sum itself.
    """

    terms: tuple[tuple[float, Coordinate], ...]
    phase: float = 0.0
    drive: Any = None  # a function of time added to the phase

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return tuple(v for _, coordinate in self.terms for v in coordinate.vectors)

    @property
    def winding(self) -> bool:
        """Whether the sum is taken modulo full turns: there are angles, and all their factors are whole numbers."""
        angles = [n for n, coordinate in self.terms if coordinate.kind == "angle"]
        return bool(angles) and all(float(n).is_integer() for n in angles)

    @property
    def scale(self) -> float:
        return max(abs(n) for n, _ in self.terms)

    def over_frames(self, frames: Mapping[int, np.ndarray], t: np.ndarray) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """The sum modulo full turns, and its derivatives, as for a `Coordinate`."""
        total = np.full(np.shape(t), -self.phase)
        if self.drive is not None:
            total = total - np.vectorize(lambda x: float(self.drive(x)))(t)
        slopes: dict[int, Any] = {}
        for n, coordinate in self.terms:
            value, own = coordinate.over_frames(frames)
            total = total + n * value
            for k, slope in own.items():
                slopes[k] = slopes.get(k, 0.0) + n / self.scale * slope
        if self.winding:
            total = total - 2 * np.pi * np.round(total / (2 * np.pi))
        return total / self.scale, slopes


Row = ProductRow | PhaseRow


def frames_of(kinds: tuple[str, ...], x: Numbers) -> Any:
    """The concatenated frames of bodies, `(bodies * (dim + 1), dim)`, from their particles.

    Without `kinds`, x already holds frames.
    """
    if not kinds:
        return x
    out, first = [], 0
    for kind in kinds:
        out.append(expand(kind, x[first : first + KINDS[kind]], jnp))
        first += KINDS[kind]
    return out[0] if len(out) == 1 else jnp.concatenate(out)


class JointCoordinate(eqx.Module):
    """The position of a joint from the particles of its bodies."""

    vectors: Any  # coefficients, (vectors, frames)
    constants: Any  # (vectors, dim)
    kind: str = eqx.field(static=True)
    kinds: tuple[str, ...] = eqx.field(static=True)
    particles: tuple[int, ...] = eqx.field(static=True)
    part: int | None = eqx.field(static=True, default=None)

    def gather(self, q: Numbers) -> Any:
        return q[np.asarray(self.particles)]

    def products(self, x: Numbers) -> tuple[Any, ...]:
        """(cosine, sine) of an angle, or (distance,), from the gathered particles."""
        frames = frames_of(self.kinds, x)
        v = self.vectors @ frames + self.constants
        if self.part is not None:
            return hinge_chain(v, self.kind, self.part)
        if self.kind == "distance":
            return (jnp.sum(v[0] * v[1]),)
        c, s = jnp.sum(v[0] * v[2]), jnp.sum(v[1] * v[2])
        return (c, s) if len(v) == 3 else (jnp.sqrt(c**2 + s**2), jnp.sum(v[3] * v[2]))

    def position(self, x: Numbers) -> Any:
        """The angle in (-pi, pi], or the distance, from the gathered particles."""
        found = self.products(x)
        return found[0] if self.kind == "distance" else jnp.arctan2(found[1], found[0])

    def __call__(self, q: Numbers) -> Any:
        return self.position(self.gather(q))


class CoordinateRow(eqx.Module):
    """The position of a joint from frames, as a function of points and data."""

    kind: str = eqx.field(static=True)
    part: int | None = eqx.field(static=True, default=None)

    def __call__(self, x: Numbers, data: dict[str, Any]) -> Any:
        return JointCoordinate(data["vectors"], data["constants"], self.kind, (), (), self.part).position(x)


def hinge_chain(v: Numbers, kind: str, part: int) -> tuple[Any, ...]:
    """Angles of three hinges in a row whose links between have no mass, and the gap that they leave.

    The vectors are the axes of a frame in a, those of the same frame in b, D from a point of the first line in a to one
    of the last line in b, and, in that frame where all angles are zero, the directions `w_1`, `w_2`, `w_3` of the lines
    and the steps `s_1`, `s_2` between points of them. `b = a R` with `R = R_1 R_2 R_3`, and `w_1 . R w_3` is a function
    of the second angle alone, which is unique between two positions where all lines are parallel to a plane. The gap
    is `D - R_1 (s_1 + R_2 s_2)` in coordinates of a.
    """
    turn, (w1, w2, w3), apart = v[:3] @ v[3:6].T, v[7:10], v[:3] @ v[6]
    last, first = turn @ w3, turn.T @ w1
    # w_1 . R_2 w_3 = even + far cos + near sin
    even, near = jnp.dot(w1, w2) * jnp.dot(w2, w3), jnp.dot(w1, jnp.cross(w2, w3))
    far = jnp.dot(w1, w3) - even
    rest, size = jnp.dot(w1, last) - even, far**2 + near**2
    root = jnp.sign(near) * jnp.sqrt(size - rest**2)
    second = (far * rest + near * root) / size, (near * rest - far * root) / size
    if kind == "angle" and part == 1:
        return second
    if kind == "angle" and part == 2:
        return _angle(w3, first, _turned(w2, w1, second[0], -second[1]))
    opening = _angle(w1, _turned(w2, w3, *second), last)
    if kind == "angle":
        return opening
    steps = v[10] + _turned(w2, v[11], *second)
    return ((apart - _turned(w1, steps, *opening))[part],)


def _turned(axis: Numbers, x: Numbers, c: Numbers, s: Numbers) -> Any:
    """x turned about a unit vector by an angle with this cosine and sine."""
    return c * x + s * jnp.cross(axis, x) + (1 - c) * jnp.dot(axis, x) * axis


def _angle(axis: Numbers, x: Numbers, y: Numbers) -> tuple[Any, Any]:
    """Cosine and sine of the angle about a unit vector that takes x to y."""
    along = jnp.dot(axis, x)
    size = jnp.dot(x, x) - along**2
    return (jnp.dot(x, y) - along * jnp.dot(axis, y)) / size, jnp.dot(axis, jnp.cross(x, y)) / size


def coordinate_of(coordinate: Coordinate, bodies: tuple[Body, ...] | None = None) -> JointCoordinate:
    """The same position as a function of the particles of the given bodies (its own when None)."""
    bodies = coordinate.bodies if bodies is None else bodies
    return JointCoordinate(
        jnp.asarray(np.stack([v.coefficients(bodies) for v in coordinate.vectors])),
        jnp.asarray(np.stack([np.broadcast_to(v.constant, (bodies[0].dimension,)) for v in coordinate.vectors])),
        coordinate.kind,
        tuple(body.kind for body in bodies),
        tuple(k for body in bodies for k in body.particles),
        coordinate.part,
    )
