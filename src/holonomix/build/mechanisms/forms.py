"""Rows of joints on the host: products of vectors that are linear in the frames of bodies.

Every row of a joint is `A . B - c` with vectors `A`, `B` such as a point of a body, the difference of two points, or a
direction fixed in a body; the position of a joint (an angle or a distance) is made of such products too. Here they are
evaluated with NumPy, for one configuration or along a whole solution (further axes in front).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .bodies import Body

Frames = Sequence[Any]  # the frame of every body by its number, (..., dim + 1, dim)


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

    def value(self, frames: Frames) -> Any:
        return sum((np.einsum("k,...kd->...d", c, frames[b.number]) for b, c in self.parts), self.constant)

    def coefficients(self, bodies: tuple[Body, ...]) -> np.ndarray:
        """The coefficients over the frames of these bodies, one after the other."""
        found = {body.number: c for body, c in self.parts}
        empty = np.zeros(len(self.constant) + 1)
        return np.concatenate([found.get(body.number, empty) for body in bodies])


def _slopes(weights: list[tuple[Vector, Any]]) -> dict[int, np.ndarray]:
    """The gradient `sum_k w_k . dV_k` over the frame of each body, `(..., dim + 1, dim)`."""
    out: dict[int, Any] = {}
    for vector, weight in weights:
        for body, c in vector.parts:
            out[body.number] = out.get(body.number, 0.0) + c[:, None] * np.asarray(weight)[..., None, :]
    return out


@dataclasses.dataclass(frozen=True)
class ProductRow:
    """`A . B - c`."""

    a: Vector
    b: Vector
    c: float = 0.0

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return self.a, self.b

    def value(self, frames: Frames, t: Any = 0.0) -> Any:
        return np.sum(self.a.value(frames) * self.b.value(frames), axis=-1) - self.c

    def slopes(self, frames: Frames, t: Any = 0.0) -> dict[int, np.ndarray]:
        return _slopes([(self.a, self.b.value(frames)), (self.b, self.a.value(frames))])


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """The position of a joint: `angle = atan2(V_a . U_b, U_a . U_b)`, or `distance = W_a . (P_b - P_a)`.

    With a fourth vector `W_a` normal to `U_a` and `V_a` it is the angle of `U_b` above their plane.
    """

    kind: str
    vectors: tuple[Vector, ...]  # (U_a, V_a, U_b), (U_a, V_a, U_b, W_a) or (W_a, P_b - P_a)
    axis: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(3)[2])  # in the joint's frame in a

    @property
    def bodies(self) -> tuple[Body, ...]:
        found = {body.number: body for vector in self.vectors for body, _ in vector.parts}
        return tuple(found.values())

    def value(self, frames: Frames) -> Any:
        """The angle in (-pi, pi], or the distance."""
        v = [vector.value(frames) for vector in self.vectors]
        dot = lambda i, j: np.sum(v[i] * v[j], axis=-1)
        if self.kind == "distance":
            return dot(0, 1)
        if len(v) == 4:
            return np.arctan2(dot(3, 2), np.hypot(dot(0, 2), dot(1, 2)))
        return np.arctan2(dot(1, 2), dot(0, 2))

    def slopes(self, frames: Frames) -> dict[int, np.ndarray]:
        v = [vector.value(frames) for vector in self.vectors]
        if self.kind == "distance":
            return _slopes([(self.vectors[0], v[1]), (self.vectors[1], v[0])])
        s, c = np.sum(v[1] * v[2], axis=-1)[..., None], np.sum(v[0] * v[2], axis=-1)[..., None]
        if len(v) == 4:
            up, flat = np.sum(v[3] * v[2], axis=-1)[..., None], np.hypot(s, c)
            size = up**2 + flat**2
            a, b, w = -up * c / flat / size, -up * s / flat / size, flat / size
            weights = [a * v[2], b * v[2], a * v[0] + b * v[1] + w * v[3], w * v[2]]
            return _slopes(list(zip(self.vectors, weights, strict=True)))
        size = s**2 + c**2
        weights = [-s / size * v[2], c / size * v[2], (c * v[1] - s * v[0]) / size]
        return _slopes(list(zip(self.vectors, weights, strict=True)))

    def rate(self, frames: Frames, moving: Frames) -> Any:
        """Its derivative in time, from the frames and their derivatives."""
        return sum(np.sum(g * moving[k], axis=(-2, -1)) for k, g in self.slopes(frames).items())


@dataclasses.dataclass(frozen=True)
class PhaseRow:
    """`sum_j n_j theta_j - phase(t) = 0` for joint positions, up to full turns where angles count turns.

    With whole numbers `n_j` before the angles the sum jumps by full turns when an angle passes one, so gears and
    screws may turn for ever; with other numbers the angles must stay within (-pi, pi). A step solves for the sine of
    the sum, which is smooth and has the same value and slope at the zeros; but it vanishes half a turn away as well, so
    here, where rough positions are brought together, it is the sum itself.
    """

    terms: tuple[tuple[float, Coordinate], ...]
    phase: float = 0.0
    drive: Any = None  # a function of time added to the phase

    @property
    def vectors(self) -> tuple[Vector, ...]:
        return tuple(v for _, coordinate in self.terms for v in coordinate.vectors)

    @property
    def winding(self) -> bool:
        """Whether full turns are left out: there are angles, all with whole numbers."""
        angles = [n for n, coordinate in self.terms if coordinate.kind == "angle"]
        return bool(angles) and all(float(n).is_integer() for n in angles)

    @property
    def scale(self) -> float:
        return max(abs(n) for n, _ in self.terms)

    def _sum(self, frames: Frames, t: Any) -> Any:
        moved = 0.0 if self.drive is None else np.vectorize(lambda x: float(self.drive(x)))(t)
        return sum(n * coordinate.value(frames) for n, coordinate in self.terms) - self.phase - moved

    def value(self, frames: Frames, t: Any = 0.0) -> Any:
        total = self._sum(frames, t)
        return (total - 2 * np.pi * np.round(total / (2 * np.pi)) if self.winding else total) / self.scale

    def slopes(self, frames: Frames, t: Any = 0.0) -> dict[int, np.ndarray]:
        out: dict[int, Any] = {}
        for n, coordinate in self.terms:
            for k, g in coordinate.slopes(frames).items():
                out[k] = out.get(k, 0.0) + n / self.scale * g
        return out


Row = ProductRow | PhaseRow
