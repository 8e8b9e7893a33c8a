"""Bodies as particles: the center of mass and directors along the principal axes, with constant masses.

`T = m/2 |x'|^2 + 1/2 sum_i E_i |d_i'|^2` with the Euler moments `E_i = (I_j + I_k - I_i)/2` (Betsch & Steinmann 2001).
A body whose `E_i` vanish keeps fewer directors: a plate two, a rod one, a point mass none; a planar body has one.

Joints and forces are written for the *frame* of a body, `(x, d_1, ..., d_dim)`, whatever it is made of; `expand`
computes the frame from the particles, and `pull` the force on the particles from a force on the frame.
"""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ...core.errors import InputError
from ...core.types import Array, ArrayLike, Numbers
from .host import values_and_slopes
from .results import BodyResults
from .shapes import AbstractShape

# kind -> particles
KINDS = {"rigid": 4, "plate": 3, "rod": 2, "point": 1, "planar": 2, "planar point": 1}
VANISHING = 1e-11  # Euler moments below this share of the largest count as zero


def expand(kind: str, x: np.ndarray | Array, xp: ModuleType) -> Any:
    """The frame `(..., dim + 1, dim)` of a body from its particles; `xp` is numpy or jax.numpy."""
    if kind == "rigid":
        return x
    if kind == "plate":
        missing = xp.cross(x[..., 1, :], x[..., 2, :])[..., None, :]
    elif kind == "planar":
        missing = xp.stack([-x[..., 1, 1], x[..., 1, 0]], axis=-1)[..., None, :]
    else:
        missing = xp.zeros((*x.shape[:-2], x.shape[-1] + 1 - x.shape[-2], x.shape[-1]), x.dtype)
    return xp.concatenate([x, missing], axis=-2)


class FrameProduct(eqx.Module):
    """The product of a frame with a force on it, as a function of points and data."""

    kind: str = eqx.field(static=True)

    def __call__(self, x: Numbers, data: dict[str, Any]) -> Any:
        return jnp.sum(expand(self.kind, x, jnp) * data["force"])


def pull(kind: str, x: np.ndarray, f: np.ndarray) -> np.ndarray:
    """A force (or gradient) on the frame, `(..., dim + 1, dim)`, as one on the particles: the transposed derivative."""
    if kind not in ("plate", "planar"):
        return f[..., : KINDS[kind], :]  # the rest of the frame is zero
    shape = np.broadcast_shapes(x.shape[:-2], f.shape[:-2])
    x, f = (np.broadcast_to(y, (*shape, *y.shape[-2:])).reshape(-1, *y.shape[-2:]) for y in (x, f))
    return values_and_slopes(FrameProduct(kind), x, force=f)[1].reshape(*shape, *x.shape[-2:])


def frame_rate(kind: str, x: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The derivative of a frame in time from the particles and their velocities."""
    if kind != "plate":
        return expand(kind, v, np)  # linear
    basis = np.eye(12).reshape(4, 3, 4, 3)
    return np.sum(pull(kind, x[..., None, None, :, :], basis) * v[..., None, None, :, :], axis=(-2, -1))


@dataclasses.dataclass(frozen=True)
class Inertia:
    """The inertia of a body: kind, mass, principal axes in body coordinates (columns), masses of its directors."""

    kind: str
    mass: float
    axes: np.ndarray
    directors: tuple[float, ...]


def make_inertia(
    name: str, dimension: int, mass: Any, inertia: ArrayLike | None, shape: Any, density: ArrayLike | None
) -> Inertia:
    """Mass and inertia from numbers, or from a shape with a density or a mass; errors name the body."""
    what = f"body {name!r}"
    if shape is not None:
        if not isinstance(shape, AbstractShape):
            raise InputError(f"{what}: shape must be one of Box, Cylinder, Sphere, Rod, Plate, not {shape!r}")
        if density is not None:
            if mass is not None:
                raise InputError(f"{what}: give density or mass with a shape, not both")
            if not shape.volume > 0:
                raise InputError(f"{what}: an ideal {shape.kind} has no volume; give its mass instead of a density")
            mass = shape.volume * _positive(what, "density", density)
    elif density is not None:
        raise InputError(f"{what}: a density needs a shape")
    if mass is None:
        raise InputError(f"{what}: its mass is missing; give mass=..., or shape=... with density=...")
    mass = _positive(what, "mass", mass)
    if shape is not None and inertia is None:
        inertia = mass * (shape.moments if dimension == 3 else shape.moments[2])
    if inertia is None:
        raise InputError(f"{what}: its inertia is missing; give inertia=... or shape=..., or use m.point_mass")
    return _planar(what, mass, inertia) if dimension == 2 else _spatial(what, mass, inertia)


def _positive(what: str, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{what}: {name} must be a positive number, not {value!r}") from None
    if not (np.isfinite(number) and number > 0):
        raise InputError(f"{what}: {name} must be a positive number, not {number:g}")
    return number


def _planar(what: str, mass: float, inertia: ArrayLike) -> Inertia:
    value = np.asarray(inertia, float)
    if value.shape not in ((), (1,)):
        raise InputError(f"{what}: the inertia of a planar body is one number, not {inertia!r}")
    return Inertia("planar", mass, np.eye(2), (_positive(what, "inertia", value.reshape(())),))


def _spatial(what: str, mass: float, inertia: ArrayLike) -> Inertia:
    try:
        matrix = np.asarray(inertia, float)
    except (TypeError, ValueError):
        raise InputError(f"{what}: inertia must be three principal moments or a 3 x 3 matrix") from None
    if matrix.shape == (3,):
        moments, axes = matrix, np.eye(3)
    elif matrix.shape == (3, 3):
        if not np.allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12 * np.abs(matrix).max()):
            raise InputError(f"{what}: the inertia matrix is not symmetric")
        off = matrix - np.diag(np.diag(matrix))
        if np.abs(off).max() <= 1e-14 * np.abs(matrix).max():
            moments, axes = np.diag(matrix).copy(), np.eye(3)
        else:
            moments, axes = np.linalg.eigh(0.5 * (matrix + matrix.T))
            axes[:, 2] *= np.sign(np.linalg.det(axes))
    else:
        raise InputError(f"{what}: inertia must be three principal moments or a 3 x 3 matrix, not {matrix.shape}")
    if not np.all(np.isfinite(moments)):
        raise InputError(f"{what}: its inertia is not finite")
    euler = 0.5 * moments.sum() - moments
    if moments.min() < -VANISHING * moments.max() or euler.min() < -VANISHING * max(moments.max(), 1e-300):
        raise InputError(
            f"{what}: the principal moments {', '.join(f'{x:.6g}' for x in moments)} violate the triangle inequality "
            "(each is at most the sum of the other two), so no body has them"
        )
    if not euler.max() > 0:
        raise InputError(f"{what}: its inertia is zero; use m.point_mass for a point")
    order = np.argsort(-euler, kind="stable") if euler.min() <= VANISHING * euler.max() else np.arange(3)
    axes = axes[:, order]
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    kept = tuple(float(e) for e in euler[order] if e > VANISHING * euler.max())
    return Inertia({3: "rigid", 2: "plate", 1: "rod"}[len(kept)], mass, axes, kept)


def rotation_matrix(what: str, rotation: ArrayLike | None, dimension: int) -> np.ndarray:
    """A rotation given as a matrix, a quaternion (w, x, y, z), or in the plane an angle."""
    if rotation is None:
        return np.eye(dimension)
    try:
        value = np.asarray(rotation, float)
    except (TypeError, ValueError):
        raise InputError(f"{what}: rotation must be numbers, not {rotation!r}") from None
    if dimension == 2 and value.shape in ((), (1,)):
        c, s = np.cos(value.reshape(())), np.sin(value.reshape(()))
        return np.array([[c, -s], [s, c]])
    if dimension == 3 and value.shape == (4,) and np.linalg.norm(value) > 0:
        w, x, y, z = value / np.linalg.norm(value)
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
    if value.shape == (dimension, dimension):
        error = np.abs(value.T @ value - np.eye(dimension)).max()
        if error > 1e-6 or np.linalg.det(value) < 0:
            raise InputError(f"{what}: rotation is not a rotation matrix (|R^T R - 1| = {error:.2g})")
        u, _, vt = np.linalg.svd(value)
        return value if error < 1e-14 else u @ vt
    form = "an angle or a 2 x 2 matrix" if dimension == 2 else "a 3 x 3 matrix or a quaternion (w, x, y, z)"
    raise InputError(f"{what}: rotation must be {form}, not an array of shape {value.shape}")


def repair_inertia(mass: float, matrix: np.ndarray) -> tuple[np.ndarray, str]:
    """The nearest inertia that a body of this mass can have, and a text about the change ("" if none).

    Negative Euler moments are set to zero. A body without extent in two or three directions gets a thickness: of a rod
    1 % of its length, of a point that of a ball of water (1000 per unit of volume).
    """
    moments, axes = np.linalg.eigh(0.5 * (matrix + matrix.T))
    euler = 0.5 * moments.sum() - moments
    largest = euler.max()
    if not largest > VANISHING * max(np.abs(moments).max(), 1e-300):
        radius = (mass / 1000 * 3 / (4 * np.pi)) ** (1 / 3)
        new = np.full(3, 0.2 * mass * radius**2)
    else:
        new = np.where(euler < -VANISHING * largest, 0.0, euler)
        if np.sum(new > VANISHING * largest) < 2:
            new = np.maximum(new, 1e-4 * largest)
    if np.array_equal(new, euler):
        return matrix, ""
    shown = [", ".join(f"{x:.6g}" for x in y) for y in (moments, new.sum() - new)]
    return axes @ np.diag(new.sum() - new) @ axes.T, f"principal moments {shown[0]} to {shown[1]}"


class Body(BodyResults):
    """A body of a mechanism (or the ground), as `m.body(...)` returns it.

    `origin` and `attitude` place the body's own frame at the start; `center` is its center of mass in that frame.
    Coordinates "in the body" are those of its own frame.
    """

    def __init__(
        self, name: str, dimension: int, inertia: Inertia | None, center: ArrayLike | None = None, number: int = -1
    ):
        self.name, self.dimension, self.inertia, self.number = name, dimension, inertia, number
        self.center = np.zeros(dimension) if center is None else np.asarray(center, float)
        self.origin, self.attitude = np.zeros(dimension), np.eye(dimension)
        self.velocity0, self.spin0 = np.zeros(dimension), np.zeros(3 if dimension == 3 else ())
        self.given: set[str] = set()  # which of "velocity" and "angular velocity" the user prescribed
        self.first = -1  # its first particle
        self.shapes: list[tuple[AbstractShape, np.ndarray, np.ndarray]] = []
        self.color = ""
        self.rotor: Any = None  # of an armature: position and radius; without weight or momentum, not drawn

    @property
    def fixed(self) -> bool:
        """Whether it is the ground."""
        return self.inertia is None

    @property
    def kind(self) -> str:
        return "ground" if self.inertia is None else self.inertia.kind

    @property
    def mass(self) -> float:
        return 0.0 if self.inertia is None else self.inertia.mass

    @property
    def axes(self) -> np.ndarray:
        """The principal axes in body coordinates, one per column."""
        return np.eye(self.dimension) if self.inertia is None else self.inertia.axes

    @property
    def particles(self) -> tuple[int, ...]:
        count = 0 if self.inertia is None else KINDS[self.kind]
        return tuple(range(self.first, self.first + count))

    # -- from world and body coordinates to coefficients of the frame (x, d_1, ...) --------------------------------

    def point_coefficients(self, point: np.ndarray, why: str) -> np.ndarray:
        """A point in body coordinates as `x + sum r_i d_i`: `(1, r_1, ...)`."""
        size = max(float(np.abs(point).max()), float(np.abs(self.center).max()))
        arm = self.axes.T @ (point - self.center)
        return np.concatenate([[1.0], self._checked(arm, size, "a point off its axis", why)])

    def direction_coefficients(self, direction: np.ndarray, why: str) -> np.ndarray:
        c = self._checked(self.axes.T @ direction, 1.0, "a direction across its axis", why)
        return np.concatenate([[0.0], c])

    def _checked(self, c: np.ndarray, size: float, what: str, why: str) -> np.ndarray:
        """Coefficients of directors without rounding noise; an error where the body has no such director."""
        c = np.where(np.abs(c) <= 1e-13 * size, 0.0, c)
        known = {"rod": 1, "point": 0, "planar point": 0}.get(self.kind)
        if known is not None and np.abs(c[known:]).max() > 1e-10 * size:
            hint = "use m.body with an inertia" if "point" in self.kind else "give it a thickness or an inertia"
            what = "a point or direction" if "point" in self.kind else what
            raise InputError(f"{why}: body {self.name!r} is a {self.kind} and has no {what[2:]}; {hint}")
        return c

    def start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions, velocities and masses of its particles at the start."""
        assert self.inertia is not None
        arm = self.attitude @ self.center
        frame = (self.attitude @ self.axes).T
        if self.dimension == 3:
            turn = lambda r: np.cross(self.spin0, r)
        else:
            turn = lambda r: self.spin0 * np.array([-r[1], r[0]])
        count = KINDS[self.kind] - 1
        x = np.stack([self.origin + arm, *frame[:count]])
        # if only the angular velocity is given, the center of mass rests if the joints allow it
        velocity = 0 * arm if self.given == {"angular velocity"} else self.velocity0 + turn(arm)
        v = np.stack([velocity, *(turn(d) for d in frame[:count])])
        return x, v, np.array([self.mass, *self.inertia.directors])

    def __repr__(self) -> str:
        return f"Body({self.name!r}, {self.kind}, mass {self.mass:g})"
