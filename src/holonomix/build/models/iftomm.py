"""The benchmark problems A01 to A05 of the IFToMM library for multibody dynamics, as mechanisms.

Each function returns a `Problem`; `mechanism=True` returns the `Mechanism` instead, which has angles and reactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.checks import whole_number
from ...mechanics.problem import Problem
from ..mechanisms import Box, Mechanism, Rod, Sphere
from ..mechanisms.xml_files import composite

GRAVITY = 9.81


def finished(m: Mechanism, mechanism: bool, dt: float, t1: float) -> Any:
    return m if mechanism else m.problem(dt, t1)


def iftomm_a01(mechanism: bool = False) -> Problem | Mechanism:
    """A01, the simple pendulum: 1 kg at 1 m, from the horizontal, 10 s; q of shape (1, 2)."""
    m = Mechanism((0.0, -GRAVITY), dimensions=2, name="simple pendulum (A01)")
    ball = m.point_mass("ball", mass=1.0, position=(-1.0, 0.0))
    m.distance("rod", m.ground, ball, point_a=(0.0, 0.0), point_b=(0.0, 0.0))
    return finished(m, mechanism, 0.005, 10.0)


def iftomm_a02(windows: int = 2, mechanism: bool = False) -> Problem | Mechanism:
    """A02, N four-bar windows: rods of 1 m and 1 kg, upright, pushed to the right with 1 m/s at the top left, 10 s.

    If all rods lie in one line, the mechanism is singular; the motion passes through such positions.
    """
    count = whole_number("windows", windows)
    m = Mechanism((0.0, -GRAVITY), dimensions=2, name=f"{count} four-bar windows (A02)")
    rod = Rod(1.0)
    up = np.pi / 2
    posts = [
        m.body(
            f"post {k}", shape=rod, mass=1.0, position=(k, 0.5), rotation=up, velocity=(0.5, 0), angular_velocity=-1.0
        )
        for k in range(count + 1)
    ]
    bars = [m.body(f"bar {k}", shape=rod, mass=1.0, position=(k + 0.5, 1.0), velocity=(1.0, 0.0)) for k in range(count)]
    for k, post in enumerate(posts):
        m.revolute(f"foot {k}", m.ground, post, at=(k, 0.0))
    for k, bar in enumerate(bars):
        m.revolute(f"left of bar {k}", posts[k], bar, at=(k, 1.0))
        m.revolute(f"right of bar {k}", posts[k + 1], bar, at=(k + 1.0, 1.0))
    return finished(m, mechanism, 0.001, 10.0)


def iftomm_a03(mechanism: bool = False) -> Problem | Mechanism:
    """A03, Andrews' squeezer: seven bodies in the plane, a spring, driven by a constant torque for 0.05 s."""
    m = Mechanism(dimensions=2, name="Andrews' squeezer (A03)")
    a, b, c = np.array([-0.06934, -0.00227]), np.array([-0.03635, 0.03273]), np.array([0.014, 0.072])
    beta, theta, gamma = -0.0617138900142764496, 0.0, 0.455279819163070380
    phi, delta, omega, epsilon = 0.222668390165885884, 0.487364979543842550, -0.222668390165885884, 1.23054744454982119
    turn = lambda x: np.array([[np.cos(x), -np.sin(x)], [np.sin(x), np.cos(x)]])

    def link(
        name: str,
        mass: float,
        inertia: float,
        place: Sequence[float] | np.ndarray,
        angle: float,
        center: Sequence[float] | np.ndarray,
    ) -> Any:
        return m.body(name, mass=mass, inertia=inertia, position=place, rotation=angle, center=center)

    crank = link("crank", 0.04325, 2.194e-6, (0.0, 0.0), beta, (0.00092, 0.0))
    f = turn(beta) @ [0.007, 0.0]
    rod = link("rod", 0.00365, 4.410e-7, f, beta + theta, (-0.0115, 0.0))
    e = f + turn(beta + theta) @ [-0.028, 0.0]
    rocker = link("rocker", 0.02373, 5.255e-6, b, gamma, (0.01043, -0.01874))
    upper = link("upper", 0.07050, 1.169e-5, a, delta, (0.02308, 0.00916))
    g = a + turn(delta) @ [0.04, 0.0]
    upper_rod = link("upper rod", 0.00706, 5.667e-7, g, phi + delta, (0.0, -(0.02 - 0.01421)))
    lower = link("lower", 0.05498, 1.912e-5, a, epsilon, (0.01228, 0.00449))
    h = a + turn(epsilon) @ [0.0, -0.04]
    lower_rod = link("lower rod", 0.00706, 5.667e-7, h, omega + epsilon, (0.02 - 0.01421, 0.0))
    origin = m.revolute("O", m.ground, crank, point_a=(0.0, 0.0), point_b=(0.0, 0.0))
    m.revolute("F", crank, rod, point_a=(0.007, 0.0), point_b=(0.0, 0.0))
    m.revolute("B", m.ground, rocker, point_a=b, point_b=(0.0, 0.0))
    m.revolute("A upper", m.ground, upper, point_a=a, point_b=(0.0, 0.0))
    m.revolute("A lower", m.ground, lower, point_a=a, point_b=(0.0, 0.0))
    m.revolute("G", upper, upper_rod, point_a=(0.04, 0.0), point_b=(0.0, 0.0))
    m.revolute("H", lower, lower_rod, point_a=(0.0, -0.04), point_b=(0.0, 0.0))
    for name, body, end in (
        ("E rocker", rocker, (0.0, -0.035)),
        ("E upper", upper_rod, (0.0, -0.02)),
        ("E lower", lower_rod, (0.02, 0.0)),
    ):
        m.revolute(name, rod, body, point_a=(-0.028, 0.0), point_b=end)
    m.spring(rocker, (0.02, -0.018), m.ground, c, stiffness=4530.0, length=0.07785)
    m.motor(origin, 0.033)
    del e
    return finished(m, mechanism, 1e-5, 0.05)


def iftomm_a04(mechanism: bool = False) -> Problem | Mechanism:
    """A04, Bricard's linkage: five rods (1 m, 1 kg, section 0.1 m), six hinges, one row redundant, 10 s."""
    m = Mechanism((0.0, -GRAVITY, 0.0), name="Bricard's linkage (A04)")
    points = np.array([(0, 0, 0), (0, 0, 1), (1, 0, 1), (1, -1, 1), (1, -1, 0), (0, -1, 0)], float)
    rods = []
    for k in range(5):
        along = points[k + 1] - points[k]
        u = np.eye(3)[int(np.argmin(np.abs(along)))]
        frame = np.stack([along, u, np.cross(along, u)], axis=1)
        middle = (points[k] + points[k + 1]) / 2
        rods.append(m.body(f"rod {k + 1}", shape=Box(1.0, 0.1, 0.1), mass=1.0, position=middle, rotation=frame))
    ring = [m.ground, *rods]
    for k in range(6):
        before, after = points[k] - points[k - 1], points[(k + 1) % 6] - points[k]
        m.revolute(f"hinge {k}", ring[k], ring[(k + 1) % 6], at=points[k], axis=np.cross(before, after))
    return finished(m, mechanism, 1e-3, 10.0)


def iftomm_a05(rate: float = 2 * np.pi, mechanism: bool = False) -> Problem | Mechanism:
    """A05, the flyball governor: a shaft, two arms with balls of 5 kg, a slider on stiff springs and dampers, 10 s.

    Shaft and arms are 1 x 0.01 x 0.01 m, the slider is a cube of 0.1 m, all of density 3000; springs of 8e5 N/m and
    4e4 N s/m join the slider to the arms 0.5 m below the top; the arms start at 30 degrees to the shaft.
    """
    m = Mechanism((0.0, -GRAVITY, 0.0), name="flyball governor (A05)")
    density, spin = 3000.0, (0.0, rate, 0.0)
    shaft = m.body("shaft", shape=Box(0.01, 1.0, 0.01), density=density, position=(0, 0.5, 0), angular_velocity=spin)
    m.revolute("axle", m.ground, shaft, at=(0, 0, 0), axis=(0, 1, 0))
    top, tilt = np.array([0.0, 1.0, 0.0]), np.deg2rad(30)
    rod = Box(0.01, 1.0, 0.01)
    mass, center, inertia = composite(
        [
            (density * rod.volume, np.array([0, -0.5, 0.0]), density * rod.volume * np.diag(rod.moments)),
            (5.0, np.array([0, -1.0, 0.0]), np.zeros((3, 3))),
        ]
    )
    # springs are at rest where they reach from the slider to the arms: an isosceles triangle with sides 0.5
    height = 1.0 - 2 * 0.5 * np.cos(tilt)
    slider = m.body("slider", shape=Box(0.1, 0.1, 0.1), density=density, position=(0, height, 0), angular_velocity=spin)
    m.prismatic("slide", shaft, slider, at=(0, height, 0), axis=(0, 1, 0))
    for name, sign in (("right", 1.0), ("left", -1.0)):
        c, s = np.cos(sign * tilt), np.sin(sign * tilt)
        attitude = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])
        arm = m.body(
            f"{name} arm",
            mass=mass,
            inertia=inertia,
            center=center,
            position=top,
            rotation=attitude,
            angular_velocity=spin,
        )
        arm.shapes.append((rod, np.array([0, -0.5, 0.0]), np.eye(3)))
        ball = Sphere((5.0 / density / (4 / 3 * np.pi)) ** (1 / 3))  # drawn as a solid; a point in the equations
        arm.shapes.append((ball, np.array([0, -1.0, 0.0]), np.eye(3)))
        m.revolute(f"{name} hinge", shaft, arm, at=top, axis=(0, 0, 1))
        m.spring(slider, (0, 0, 0), arm, (0, -0.5, 0), stiffness=8e5, length=0.5, damping=4e4)
    return finished(m, mechanism, 1e-5, 10.0)
