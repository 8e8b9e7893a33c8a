"""Machines built from bodies and joints: Jansen's leg, a Strandbeest, a Stewart platform, Bennett's linkage, and more.

Each function returns a `Problem`; `mechanism=True` returns the `Mechanism` instead, which has angles and reactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.checks import whole_number
from ...core.errors import InputError
from ...core.types import ArrayLike, Numbers, Real
from ...mechanics.problem import Problem
from ..mechanisms import Box, Cylinder, Mechanism, Ring, Sphere
from ..mechanisms.bodies import Body
from .iftomm import finished, iftomm_a04

ARM = Path(__file__).parent / "data" / "seven_axis_arm.urdf"

# Theo Jansen's "holy numbers", in centimeters
HOLY_NUMBERS = {
    "a": 38.0,
    "b": 41.5,
    "c": 39.3,
    "d": 40.1,
    "e": 55.8,
    "f": 39.4,
    "g": 36.7,
    "h": 65.7,
    "i": 49.0,
    "j": 50.0,
    "k": 61.9,
    "l": 7.8,
    "m": 15.0,
}
JANSEN = {name: length / 100 for name, length in HOLY_NUMBERS.items()}


def _meet(p: np.ndarray, r: float, q: np.ndarray, s: float, side: float) -> np.ndarray:
    """The point at distance r from p and s from q, on the given side of the line from p to q."""
    gap = q - p
    d = np.linalg.norm(gap)
    x = (d**2 + r**2 - s**2) / (2 * d)
    along = gap / d
    return p + x * along + side * np.sqrt(r**2 - x**2) * np.array([-along[1], along[0]])


def jansen_points(pin: np.ndarray, mirror: float = 1.0) -> dict[str, np.ndarray]:
    """The knots of a leg for a crank pin; the leg stands to the left of the crank, or to the right with mirror = -1."""
    n = JANSEN
    pin = pin * [mirror, 1.0]
    pivot = np.array([-n["a"], -n["l"]])
    knee = _meet(pin, n["j"], pivot, n["b"], -1.0)
    hip = _meet(pin, n["k"], pivot, n["c"], 1.0)
    back = _meet(knee, n["e"], pivot, n["d"], -1.0)
    heel = _meet(back, n["f"], hip, n["g"], -1.0)
    foot = _meet(heel, n["h"], hip, n["i"], -1.0)
    points = {"pivot": pivot, "knee": knee, "hip": hip, "back": back, "heel": heel, "foot": foot}
    return {name: x * [mirror, 1.0] for name, x in points.items()}


BARS = (
    ("crank", "knee", "j"),
    ("crank", "hip", "k"),
    ("pivot", "knee", "b"),
    ("pivot", "hip", "c"),
    ("knee", "back", "e"),
    ("pivot", "back", "d"),
    ("back", "heel", "f"),
    ("hip", "heel", "g"),
    ("heel", "foot", "h"),
    ("hip", "foot", "i"),
)


def _leg(
    m: Mechanism, label: str, crank: Body, pin: np.ndarray, in_crank: np.ndarray, mirror: float, mass: float
) -> None:
    """Knots as point masses, bars as distances; the pin is a point of the crank."""
    points = jansen_points(pin, mirror)
    knots = {
        name: m.point_mass(f"{name}{label}", mass=mass, position=points[name])
        for name in ("knee", "hip", "back", "heel", "foot")
    }
    for a, b, length in BARS:
        body = crank if a == "crank" else m.ground if a == "pivot" else knots[a]
        at = in_crank if a == "crank" else points["pivot"] if a == "pivot" else (0.0, 0.0)
        m.distance(f"{length}{label}", body, knots[b], point_a=at, point_b=(0.0, 0.0), length=JANSEN[length])


def _beast(name: str, phases: list[tuple[float, float]], rate: float, gravity: float, mass: float) -> Mechanism:
    m = Mechanism((0.0, -gravity), dimensions=2, name=name)
    radius = JANSEN["m"]
    crank = m.body("crank", mass=4 * mass, inertia=4 * mass * radius**2)
    m.start_rate(m.revolute("axle", m.ground, crank, at=(0.0, 0.0)), float(rate))
    for k, (phase, mirror) in enumerate(phases):
        pin = radius * np.array([np.cos(phase), np.sin(phase)])
        _leg(m, f" {k + 1}" if len(phases) > 1 else "", crank, pin, pin, mirror, mass)
    return m


def jansen_leg(
    angle: float = 0.0, rate: float = 2.0, gravity: float = 0.0, mass: float = 1.0, mechanism: bool = False
) -> Problem | Mechanism:
    """One leg of Theo Jansen's walking mechanism on a fixed chassis; the crank turns with `rate` at the start."""
    m = _beast("Jansen's leg", [(float(angle), 1.0)], rate, gravity, mass)
    return finished(m, mechanism, 1e-3, 10.0)


def strandbeest(
    legs: int = 12, rate: float = 2.0, gravity: float = 0.0, mass: float = 1.0, mechanism: bool = False
) -> Problem | Mechanism:
    """Jansen's legs on one crankshaft, in pairs left and right, a third of a turn apart from pair to pair."""
    count = whole_number("legs", legs)
    phases = [(2 * np.pi * (k // 2) / 3 + 0.1 * (k // 6), 1.0 if k % 2 == 0 else -1.0) for k in range(count)]
    m = _beast(f"Strandbeest of {count} legs", phases, rate, gravity, mass)
    return finished(m, mechanism, 1e-3, 10.0)


def bricard_linkage(mechanism: bool = False) -> Problem | Mechanism:
    """Bricard's linkage: six hinges and rods in a ring; over-constrained by one row, one degree of freedom."""
    return iftomm_a04(mechanism)


def bennett_linkage(
    a: float = 1.0, b: float = 1.5, twist: float = 0.6, angle: float = 1.0, rate: float = 1.0, mechanism: bool = False
) -> Problem | Mechanism:
    """Bennett's linkage: four hinges in space that move only because `sin(alpha)/a = sin(beta)/b`.

    Three of its rows are redundant. `twist` is alpha; `angle` is that of the first hinge. The tangents of half the
    angles of neighboring hinges keep their product
    `sin((beta + alpha)/2) / sin((beta - alpha)/2)`.
    """
    sine = b * np.sin(twist) / a
    if not (a > 0 and b > 0 and abs(sine) < 1 and abs(sine) > 0):
        raise InputError(
            f"no Bennett linkage has a = {a:g}, b = {b:g}, twist = {twist:g}: |b sin(twist)/a| must be < 1"
        )
    other = float(np.arcsin(sine))
    if abs(other - twist) < 1e-6:
        raise InputError("a and b must differ; equal sides make a kite that moves otherwise")
    next_angle = 2 * np.arctan(bennett_ratio(twist, other) / np.tan(angle / 2))
    points, axes = _bennett_frames(a, b, twist, other, float(angle), float(next_angle))
    m = Mechanism(name="Bennett's linkage")
    bodies = [m.ground]
    for k in range(1, 4):
        along = points[(k + 1) % 4] - points[k]
        frame = np.stack([along, axes[k], np.cross(along, axes[k])], axis=1)
        frame = np.linalg.qr(frame)[0] * np.sign(np.linalg.det(frame))
        frame[:, 2] *= np.sign(np.linalg.det(frame))
        shape = Box(float(np.linalg.norm(along)), 0.1, 0.1)
        bodies.append(
            m.body(f"bar {k}", shape=shape, mass=1.0, position=(points[k] + points[(k + 1) % 4]) / 2, rotation=frame)
        )
    for k in range(4):
        m.revolute(f"hinge {k}", bodies[k - 1], bodies[k], at=points[k], axis=axes[k])
    m.start_rate(m["hinge 1"], float(rate))
    return finished(m, mechanism, 1e-3, 10.0)


def bennett_ratio(alpha: float, beta: float) -> float:
    """`tan(theta_1/2) tan(theta_2/2)` of Bennett's linkage."""
    return float(np.sin((beta + alpha) / 2) / np.sin((beta - alpha) / 2))


def _bennett_frames(a: float, b: float, alpha: float, beta: float, first: float, second: float) -> Any:
    """Points and axes of the four hinges from Denavit-Hartenberg transforms, lengths a, b, a, b."""
    place, points, axes = np.eye(4), [], []
    for angle, length, twist in ((first, a, alpha), (second, b, beta), (-first, a, alpha), (-second, b, beta)):
        points.append(place[:3, 3].copy())
        axes.append(place[:3, 2].copy())
        c, s, ct, st = np.cos(angle), np.sin(angle), np.cos(twist), np.sin(twist)
        step = [[c, -s * ct, s * st, length * c], [s, c * ct, -c * st, length * s], [0, st, ct, 0], [0, 0, 0, 1]]
        place = place @ np.array(step)
    return np.array(points), np.array(axes)


def hoberman_ring(sectors: int = 8, rate: float = 0.5, mechanism: bool = False) -> Problem | Mechanism:
    """Hoberman's ring: pairs of bent bars that turn against each other at `rate`, so that the ring folds or opens.

    Free in the plane, of 2 * `sectors` bars with arms of 1 m and 0.5 kg. Four of the 6 * `sectors` rows of its pins
    are redundant. With the middle pins at the radius R, the others are at `R cos(a) +- sqrt(1 - R^2 sin(a)^2)`,
    `a = pi / sectors`.
    """
    count, half = whole_number("sectors", sectors, 3), np.pi / sectors
    m = Mechanism(dimensions=2, name="Hoberman's ring")
    radius = 0.9 / np.sin(half)
    inner, outer = (radius * np.cos(half) + side * np.sqrt(1 - 0.9**2) for side in (-1, 1))
    ray = lambda k, r: r * np.array([np.cos(2 * half * k), np.sin(2 * half * k)])
    pairs = []
    for k in range(count):
        middle, pair = ray(k + 0.5, radius), []
        for name, first, last, turn in (("closing", outer, inner, rate), ("opening", inner, outer, -rate)):
            arms = ray(k, first) - middle, ray(k + 1, last) - middle
            inertia = 1 / 12 + np.sum((arms[0] - arms[1]) ** 2) / 16
            pair.append(
                m.body(f"{name} {k}", mass=1.0, inertia=inertia, position=middle, center=(arms[0] + arms[1]) / 4)
            )
            if k == 0:
                m.start_velocity(pair[-1], angular_velocity=float(turn))
        m.revolute(f"middle {k}", *pair, at=middle)
        pairs.append(pair)
    for k in range(count):
        m.revolute(f"outer {k}", pairs[k - 1][1], pairs[k][0], at=ray(k, outer))
        m.revolute(f"inner {k}", pairs[k - 1][0], pairs[k][1], at=ray(k, inner))
    return finished(m, mechanism, 1e-3, 2.0)


def stewart_platform(
    stiffness: float = 2000.0,
    damping: float = 0.0,
    push: ArrayLike = (0.3, 0.2, 0.0),
    mechanism: bool = False,
) -> Problem | Mechanism:
    """A hexapod: a platform on six legs, each a slide between a universal joint below and a ball joint above.

    The slides carry springs (`stiffness`, `damping`) that are at rest at the start; the platform starts with the
    velocity `push` and moves in all six degrees of freedom.
    """
    m = Mechanism((0.0, 0.0, 0.0), name="Stewart platform")
    top = m.body("platform", shape=Cylinder(0.5, 0.1), mass=10.0, position=(0, 0, 1.0), velocity=push)
    for k in range(6):
        low, high = 2 * np.pi * (k // 2) / 3, 2 * np.pi * ((k + 1) // 2) / 3 - np.pi / 3
        side = 0.2 if k % 2 else -0.2
        foot = np.array([np.cos(low + side), np.sin(low + side), 0.0])
        head = np.array([0.5 * np.cos(high - side), 0.5 * np.sin(high - side), 1.0])
        way = (head - foot) / np.linalg.norm(head - foot)
        across = np.cross(way, [0.0, 0.0, 1.0])
        across /= np.linalg.norm(across)
        frame = np.stack([across, np.cross(way, across), way], axis=1)
        length = float(np.linalg.norm(head - foot))
        barrel = m.body(
            f"barrel {k}",
            shape=Cylinder(0.03, 0.6 * length),
            mass=0.5,
            position=foot + 0.3 * length * way,
            rotation=frame,
        )
        piston = m.body(
            f"piston {k}",
            shape=Cylinder(0.02, 0.6 * length),
            mass=0.3,
            position=head - 0.3 * length * way,
            rotation=frame,
        )
        m.universal(f"foot {k}", m.ground, barrel, at=foot, axis=across, axis2=np.cross(way, across))
        slide = m.prismatic(f"leg {k}", barrel, piston, at=foot, axis=way)
        m.spherical(f"head {k}", piston, top, at=head)
        m.torsion_spring(slide, stiffness=stiffness, damping=damping)
    return finished(m, mechanism, 1e-3, 2.0)


def gyroscope(
    spin: float = 50.0, tilt: float = 0.5, weight: float = 0.2, gravity: float = 9.81, mechanism: bool = False
) -> Problem | Mechanism:
    """A rotor in two gimbals with a small weight at the end of its axle, which makes it precess.

    Outer ring about z, inner ring about the line of nodes, rotor about its axle, tilted by `tilt` from the vertical.
    """
    m = Mechanism((0.0, 0.0, -gravity), name="gyroscope in gimbals")
    c, s = np.cos(tilt), np.sin(tilt)
    lean = np.array([[1.0, 0, 0], [0, c, -s], [0, s, c]])
    axle = lean[:, 2]
    ring = (0.02, 0.02, 0.03)
    outer = m.body("outer ring", mass=0.5, inertia=ring)
    inner = m.body("inner ring", mass=0.4, inertia=(0.01, 0.01, 0.015), rotation=lean)
    rotor = m.body("rotor", shape=Cylinder(0.1, 0.03), mass=2.0, rotation=lean, angular_velocity=spin * axle)
    m.revolute("vertical", m.ground, outer, at=(0, 0, 0), axis=(0, 0, 1))
    m.revolute("nodes", outer, inner, at=(0, 0, 0), axis=(1, 0, 0))
    m.revolute("axle", inner, rotor, at=(0, 0, 0), axis=axle)
    m.force(inner, (0.0, 0.0, -weight * gravity), at=(0.0, 0.0, 0.2))
    upright = np.array([[1.0, 0, 0], [0, 0, -1.0], [0, 1.0, 0]])  # rings contain both of their axes
    outer.shapes.append((Ring(0.19, 0.012), np.zeros(3), upright))
    inner.shapes.append((Ring(0.16, 0.012), np.zeros(3), upright))
    inner.shapes.append((Sphere(0.02), np.array([0.0, 0.0, 0.2]), np.eye(3)))
    rotor.shapes.append((Cylinder(0.006, 0.32), np.zeros(3), np.eye(3)))
    return finished(m, mechanism, 2e-4, 5.0)


def seven_axis_arm(
    positions: Sequence[Real] | Numbers | np.ndarray | None = None,
    velocities: Sequence[Real] | Numbers | np.ndarray | None = None,
    mechanism: bool = False,
) -> Problem | Mechanism:
    """An arm of seven axes, read from the URDF file beside this module; `positions` and `velocities` hold 7 numbers."""
    names = [f"axis {k}" for k in range(1, 8)]
    x = (0.3, 0.8, -0.4, -1.2, 0.5, 0.9, 0.0) if positions is None else positions
    v = np.zeros(7) if velocities is None else velocities
    if np.asarray(x).shape != (7,) or np.asarray(v).shape != (7,):
        raise InputError("positions and velocities of the arm are seven numbers each")
    m = Mechanism.from_urdf(
        ARM, positions=dict(zip(names, x, strict=True)), velocities=dict(zip(names, v, strict=True))
    )
    return finished(m, mechanism, 1e-3, 5.0)
