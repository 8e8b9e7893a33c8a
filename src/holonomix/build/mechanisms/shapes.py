"""Shapes of uniform density, with their volume and principal moments of inertia in closed form."""

from __future__ import annotations

import abc
import dataclasses
import math

import numpy as np

from ...core.errors import InputError


@dataclasses.dataclass(frozen=True)
class AbstractShape(abc.ABC):
    """A solid about its center of mass, its axes along x, y and z; in the plane only the moment about z counts."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = "not negative" if field.name == "thickness" else "positive"
            if not (isinstance(value, (int, float)) and math.isfinite(value)):
                raise InputError(f"{type(self).__name__}: {field.name} must be a number, not {value!r}")
            if value < 0 or (value == 0 and field.name != "thickness"):
                raise InputError(f"{type(self).__name__}: {field.name} must be {least}, not {value:g}")

    @property
    @abc.abstractmethod
    def volume(self) -> float: ...

    @property
    @abc.abstractmethod
    def moments(self) -> np.ndarray:
        """The three principal moments for unit mass."""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()

    @property
    def size(self) -> tuple[float, ...]:
        return tuple(float(getattr(self, field.name)) for field in dataclasses.fields(self))


@dataclasses.dataclass(frozen=True)
class Box(AbstractShape):
    """A box with full lengths along x, y, z."""

    x: float
    y: float
    z: float

    @property
    def volume(self) -> float:
        return self.x * self.y * self.z

    @property
    def moments(self) -> np.ndarray:
        a, b, c = self.x**2, self.y**2, self.z**2
        return np.array([b + c, a + c, a + b]) / 12


@dataclasses.dataclass(frozen=True)
class Cylinder(AbstractShape):
    """A solid cylinder about z."""

    radius: float
    length: float

    @property
    def volume(self) -> float:
        return math.pi * self.radius**2 * self.length

    @property
    def moments(self) -> np.ndarray:
        across = (3 * self.radius**2 + self.length**2) / 12
        return np.array([across, across, self.radius**2 / 2])


@dataclasses.dataclass(frozen=True)
class Sphere(AbstractShape):
    """A solid ball."""

    radius: float

    @property
    def volume(self) -> float:
        return 4 / 3 * math.pi * self.radius**3

    @property
    def moments(self) -> np.ndarray:
        return np.full(3, 0.4 * self.radius**2)


@dataclasses.dataclass(frozen=True)
class Rod(AbstractShape):
    """A bar along x of square section; with thickness 0 an ideal line, which has no inertia about its axis."""

    length: float
    thickness: float = 0.0

    @property
    def volume(self) -> float:
        return self.length * self.thickness**2

    @property
    def moments(self) -> np.ndarray:
        a, b = self.length**2, self.thickness**2
        return np.array([2 * b, a + b, a + b]) / 12


@dataclasses.dataclass(frozen=True)
class Plate(AbstractShape):
    """A plate in the xy plane; with thickness 0 an ideal one, whose moments satisfy `I_3 = I_1 + I_2`."""

    x: float
    y: float
    thickness: float = 0.0

    @property
    def volume(self) -> float:
        return self.x * self.y * self.thickness

    @property
    def moments(self) -> np.ndarray:
        a, b, c = self.x**2, self.y**2, self.thickness**2
        return np.array([b + c, a + c, a + b]) / 12


@dataclasses.dataclass(frozen=True)
class Ring(AbstractShape):
    """A ring about z of round section: the radius of its middle line, and its thickness."""

    radius: float
    thickness: float

    @property
    def volume(self) -> float:
        return math.pi**2 / 2 * self.radius * self.thickness**2

    @property
    def moments(self) -> np.ndarray:
        a, b = self.radius**2, self.thickness**2 / 4
        return np.array([a / 2 + 5 / 8 * b, a / 2 + 5 / 8 * b, a + 3 / 4 * b])
