"""Defaults, orientations and geoms of MuJoCo XML files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.errors import InputError
from .bodies import rotation_matrix
from .shapes import AbstractShape, Box, Cylinder, Sphere
from .xml_files import numbers, one_number, turn_about

WATER = 1000.0  # MuJoCo's density of geoms
MASSLESS = ("plane", "hfield", "mesh", "sdf")


class Given:
    """An element with the attributes of its default classes filled in."""

    def __init__(self, tag: str, attributes: dict[str, str]):
        self.tag, self.attributes = tag, attributes

    def get(self, key: str, default: Any = None) -> Any:
        return self.attributes.get(key, default)


class Defaults:
    """The `<default>` classes of a file."""

    def __init__(self, root: Any):
        self.classes: dict[str, dict[str, dict[str, str]]] = {"": {}}
        for element in root.findall("default"):
            self._read(element, self.classes[""], "")

    def _read(self, element: Any, above: dict[str, dict[str, str]], parent: str) -> None:
        own = {tag: dict(values) for tag, values in above.items()}
        for child in element:
            if child.tag != "default":
                own[child.tag] = own.get(child.tag, {}) | child.attrib
        name = element.get("class", "") if parent or element.get("class") not in (None, "main") else ""
        self.classes[name] = own
        for child in element.findall("default"):
            self._read(child, own, name or "main")

    def of(self, element: Any, inherited: str) -> Given:
        name = element.get("class", inherited)
        if name == "main":
            name = ""
        if name not in self.classes:
            raise InputError(f"there is no default class {name!r}")
        return Given(element.tag, self.classes[name].get(element.tag, {}) | element.attrib)


def orientation(element: Any, degrees: bool, sequence: str) -> np.ndarray:
    """The rotation of an element given by quat, axisangle, euler, xyaxes or zaxis."""
    unit = np.pi / 180 if degrees else 1.0
    if element.get("quat") is not None:
        return rotation_matrix(f"<{element.tag}>", numbers(element, "quat", 4), 3)
    if element.get("axisangle") is not None:
        *axis, angle = numbers(element, "axisangle", 4)
        return turn_about(np.asarray(axis) / np.linalg.norm(axis), angle * unit)
    if element.get("euler") is not None:
        out = np.eye(3)
        for letter, angle in zip(sequence, numbers(element, "euler", 3), strict=True):
            turn = turn_about(np.eye(3)["xyz".index(letter.lower())], angle * unit)
            out = out @ turn if letter.islower() else turn @ out
        return out
    if element.get("xyaxes") is not None:
        values = numbers(element, "xyaxes", 6)
        x = values[:3] / np.linalg.norm(values[:3])
        y = values[3:] - (values[3:] @ x) * x
        y /= np.linalg.norm(y)
        return np.stack([x, y, np.cross(x, y)], axis=1)
    if element.get("zaxis") is not None:
        return _z_to(numbers(element, "zaxis", 3))
    return np.eye(3)


def _z_to(direction: np.ndarray) -> np.ndarray:
    """The least rotation that takes z to a direction."""
    w = direction / np.linalg.norm(direction)
    axis = np.cross([0.0, 0.0, 1.0], w)
    size = np.linalg.norm(axis)
    if size < 1e-12:
        return np.eye(3) if w[2] > 0 else np.diag([1.0, -1.0, -1.0])
    return turn_about(axis / size, math.atan2(float(size), float(w[2])))


def geom_pose(geom: Given, degrees: bool, sequence: str) -> tuple[np.ndarray, np.ndarray]:
    """Position and rotation of a geom in its body."""
    if geom.get("fromto") is not None:
        ends = numbers(geom, "fromto", 6)
        return 0.5 * (ends[:3] + ends[3:]), _z_to(ends[:3] - ends[3:])
    return numbers(geom, "pos", 3, (0, 0, 0)), orientation(geom, degrees, sequence)


def _size(geom: Given, count: int) -> list[float]:
    """Half sizes; the length of a geom given by its ends is half their distance."""
    values = [float(x) for x in numbers(geom, "size", None)]
    if geom.get("fromto") is not None:
        ends = numbers(geom, "fromto", 6)
        half = float(np.linalg.norm(ends[:3] - ends[3:])) / 2
        values = [values[0], half] if count == 2 else [values[0], values[0], half]
    if len(values) < count or min(values[:count]) <= 0:
        raise InputError(f"geom {geom.get('name')!r} needs {count} positive sizes, not {geom.get('size')!r}")
    return values[:count]


def geom_shape(geom: Given) -> AbstractShape | None:
    """The shape for pictures; capsules are drawn as cylinders."""
    kind = geom.get("type", "sphere")
    if kind == "sphere":
        return Sphere(_size(geom, 1)[0])
    if kind == "box":
        return Box(*(2 * x for x in _size(geom, 3)))
    if kind in ("cylinder", "capsule"):
        radius, half = _size(geom, 2)
        return Cylinder(radius, 2 * half)
    return None


def geom_inertia(geom: Given, degrees: bool, sequence: str) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Mass, center and inertia of a geom in the coordinates of its body."""
    kind = geom.get("type", "sphere")
    if kind in MASSLESS:
        if kind != "plane" and geom.get("mass") != "0":
            raise InputError(f"the inertia of {kind} geoms is not computed; give their body an <inertial>")
        return None
    if geom.get("shellinertia") == "true":
        raise InputError("the inertia of shells (shellinertia) is not computed; give their body an <inertial>")
    volume, moments = _solid(kind, geom)
    mass = volume * one_number(geom, "density", WATER)
    if geom.get("mass") is not None:
        mass = one_number(geom, "mass")
    if mass < 0:
        raise InputError(f"geom {geom.get('name')!r} has a negative mass")
    if mass == 0:
        return None
    center, turn = geom_pose(geom, degrees, sequence)
    return mass, center, turn @ np.diag(mass * moments) @ turn.T


def _solid(kind: str, geom: Given) -> tuple[float, np.ndarray]:
    """Volume and moments for unit mass."""
    if kind == "capsule":
        radius, half = _size(geom, 2)
        barrel, ball = 2 * math.pi * radius**2 * half, 4 / 3 * math.pi * radius**3
        total = barrel + ball
        along = (barrel * radius**2 / 2 + ball * 0.4 * radius**2) / total
        across = barrel * (3 * radius**2 + 4 * half**2) / 12 + ball * (0.4 * radius**2 + half**2 + 0.75 * half * radius)
        return total, np.array([across / total, across / total, along])
    if kind == "ellipsoid":
        a, b, c = (x**2 for x in _size(geom, 3))
        return 4 / 3 * math.pi * math.sqrt(a * b * c), np.array([b + c, a + c, a + b]) / 5
    shape = geom_shape(geom)
    if shape is None:
        raise InputError(f"geom {geom.get('name')!r} has the unknown type {kind!r}")
    return shape.volume, shape.moments
