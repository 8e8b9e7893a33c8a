"""XML files of robots: read without entities or document types, with errors that name file, element and attribute."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from ...core.errors import InputError
from ...core.types import ArrayLike

MAX_FILE_BYTES = 64 << 20

Pose = tuple[np.ndarray, np.ndarray]
HERE: Pose = (np.zeros(3), np.eye(3))
for _array in HERE:
    _array.setflags(write=False)


def after(first: Pose, second: Pose) -> Pose:
    """The composition of two poses: `second`, given in the frame of `first`, in the coordinates of `first`."""
    return first[0] + first[1] @ second[0], first[1] @ second[1]


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Errors name the file."""
    if not isinstance(path, (str, Path)):
        raise InputError(f"path must be the name of a file, not {path!r}")
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(str(path)) else f"{path}: {text}") from None


class UnsupportedWarning(UserWarning):
    """A feature of a file is not supported by mechanisms and was left out."""


class RepairedWarning(UserWarning):
    """Impossible inertias of a file were changed because of `inertia="repair"`."""


def read_xml(path: str | Path, root: str) -> Any:
    """The root element of a file, which must be called `root`.

    Document types and entities are refused: they serve no purpose in a robot, and may read other files or expand to
    gigabytes.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path} has {path.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read")
        data = path.read_bytes()
        if data.lstrip().startswith(b"<?xml"):  # after blank lines, which other readers accept
            data = data.lstrip()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None

    def refuse(*_: Any) -> None:
        raise InputError(f"{path} declares a document type or entities, which are not read; remove the DOCTYPE")

    scan = expat.ParserCreate()
    scan.StartDoctypeDeclHandler = refuse
    scan.EntityDeclHandler = refuse
    try:
        scan.Parse(data, True)
        element = ElementTree.fromstring(data)
    except (expat.ExpatError, ElementTree.ParseError) as error:
        raise InputError(f"{path} is not an XML file: {error}") from None
    if element.tag != root:
        raise InputError(f"{path}: its root element is <{element.tag}>, not <{root}>")
    return element


def required(element: ElementTree.Element, key: str) -> str:
    """The text of a required attribute."""
    value = element.get(key)
    if value is None:
        raise InputError(f"<{element.tag}{_who(element)}> has no attribute {key!r}")
    return value


def numbers(
    element: ElementTree.Element | None, key: str, count: int | None, default: ArrayLike | None = None
) -> np.ndarray:
    """The numbers in an attribute; if it (or the element) is missing, `default`, or an error if that is None."""
    if element is None:
        return np.asarray(default, float)
    text = element.get(key)
    if text is None:
        if default is None:
            raise InputError(f"<{element.tag}{_who(element)}> has no attribute {key!r}")
        return np.asarray(default, float)
    try:
        values = np.asarray([float(x) for x in text.split()])
    except ValueError:
        values = np.zeros(0)
    if (count is not None and len(values) != count) or not len(values) or not np.all(np.isfinite(values)):
        many = "numbers" if count is None else f"{count} number{'s' if count > 1 else ''}"
        raise InputError(f"<{element.tag}{_who(element)}> {key}={text!r} should be {many}")
    return values


def one_number(element: ElementTree.Element | None, key: str, default: float | None = None) -> float:
    """The number in an attribute, as in `numbers`."""
    return float(numbers(element, key, 1, default).reshape(()))


def _who(element: ElementTree.Element) -> str:
    name = element.get("name")
    return "" if name is None else f" name={name!r}"


def roll_pitch_yaw(angles: np.ndarray) -> np.ndarray:
    """The rotation `Rz(yaw) Ry(pitch) Rx(roll)`."""
    out = np.eye(3)
    for axis, angle in zip((2, 1, 0), reversed(angles), strict=True):
        out = out @ turn_about(np.eye(3)[axis], angle)
    return out


def turn_about(axis: np.ndarray, angle: float) -> np.ndarray:
    """The rotation by an angle about a unit vector."""
    x, y, z = axis
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * (k @ k)


def moved(pose: Pose, lump: tuple[float, np.ndarray, np.ndarray]) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, center and inertia, given in the frame of a pose, in the coordinates of the pose."""
    mass, center, inertia = lump
    return mass, pose[0] + pose[1] @ center, pose[1] @ inertia @ pose[1].T


def composite(parts: list[tuple[float, np.ndarray, np.ndarray]]) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, center and inertia about that center of parts `(mass, center, inertia about its center)`."""
    mass = sum(m for m, _, _ in parts)
    center = sum((m * c for m, c, _ in parts), np.zeros(3)) / mass
    inertia = np.zeros((3, 3))
    for m, c, own in parts:
        d = c - center
        inertia += own + m * ((d @ d) * np.eye(3) - np.outer(d, d))
    return mass, center, inertia


def warn_about(path: str | Path, left_out: Counter[str]) -> list[str]:
    """Warn once with a list of left-out features, by kind and count."""
    told = [f"{what} ({count})" for what, count in left_out.items() if count]
    if told:
        warnings.warn(f"{path}: not supported and left out: {', '.join(told)}", UnsupportedWarning, stacklevel=4)
    return told


def warn_repaired(path: str | Path, changes: list[str]) -> None:
    """Warn once with a list of the changed inertias."""
    if changes:
        more = f" and {len(changes) - 8} more (m.repaired)" if len(changes) > 8 else ""
        text = f"{path}: inertias repaired: {'; '.join(changes[:8])}{more}"
        warnings.warn(text, RepairedWarning, stacklevel=4)


LIMITS = ("ignore", "spring", "bounce")
STOP_TIME = 0.02  # seconds; a joint at its stop has the angular frequency 1/STOP_TIME


def check_options(limits: str, friction: bool) -> None:
    if limits not in LIMITS:
        raise InputError(f"limits must be one of {', '.join(map(repr, LIMITS))}, not {limits!r}")
    if not isinstance(friction, bool):
        raise InputError(f"friction must be True or False, not {friction!r}")
