"""Pendula: points on rigid, massless rods, in Cartesian coordinates.

A rod of length L is the constraint `|r|^2 - L^2 = 0`; gravity is the potential `gravity * sum m_i y_i` (the last
coordinate points up). Brugnano, Gurioli, Iavernaro & Weinmueller (5.1-5.3); Tao & Owhadi (4.1, 4.2).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy  # its parts are imported when they are used
from jaxtyping import PyTree

from ...core.checks import whole_number
from ...core.errors import InputError
from ...core.types import ArrayLike, Numbers, known_array
from ...linalg import UNROLL
from ...mechanics import Distance, System
from ...mechanics.problem import Problem
from ...mechanics.scenes import particle_scene
from .checks import array_module, finite, is_traced, positive, vector

SQRT2, SQRT5 = float(np.sqrt(2.0)), float(np.sqrt(5.0))


def weight(q: Numbers, params: PyTree) -> Any:
    """`gravity * m * height` of one particle."""
    return params["gravity"] * params["mass"] * q[-1]


def rod(q: Numbers, params: PyTree) -> Any:
    """One rod from the origin."""
    return jnp.reshape(jnp.sum(q**2) - params["length"] ** 2, (1,))


def weights(q: Numbers, params: PyTree) -> Any:
    """`gravity * sum m_i y_i`."""
    return params["gravity"] * jnp.sum(params["masses"] * q[:, -1])


def rods(q: Numbers, params: PyTree) -> Any:
    """A rod from the origin to particle 0, and from each particle to the next."""
    before = jnp.concatenate([jnp.zeros_like(q[:1]), q[:-1]])
    return jnp.sum((q - before) ** 2, axis=1) - params["lengths"] ** 2


def _single(length: ArrayLike, gravity: ArrayLike, mass: ArrayLike) -> tuple[Any, Any]:
    params = {
        "length": positive("length", length),
        "gravity": finite("gravity", gravity),
        "mass": positive("mass", mass),
    }
    return System(weight, rod, mass=params["mass"], params=params), params


def planar_pendulum(
    angle: ArrayLike = 0.0,
    angular_velocity: ArrayLike = 1.0,
    length: ArrayLike = 1.0,
    gravity: ArrayLike = 1.0,
    mass: ArrayLike = 1.0,
) -> Problem:
    """The pendulum in the plane, q = (x, y), from the given angle (0 hangs down) and angular velocity.

    The default starts at the bottom with speed one: `sin(theta/2) = sn(t, m=1/4)/2`. `reference` is the closed form for
    swinging, rotating and separatrix motion.
    """
    system, params = _single(length, gravity, mass)
    angle, rate = finite("angle", angle), finite("angular_velocity", angular_velocity)
    q = params["length"] * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
    p = params["mass"] * params["length"] * rate * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    known = not is_traced(params, angle, rate) and float(params["gravity"]) > 0
    reference = _pendulum_reference(float(angle), float(rate), params) if known else None
    scene = particle_scene(q.shape, [(-1, 0)], rows=[0])
    return Problem(system, q, p, 0.1, 10.0, reference, "planar pendulum", bonds=((-1, 0),), scene=scene)


def _pendulum_reference(angle: float, rate: float, params: PyTree) -> Any:
    length, mass = float(params["length"]), float(params["mass"])
    w = float(np.sqrt(params["gravity"] / params["length"]))
    angle = (angle + np.pi) % (2 * np.pi) - np.pi
    # theta'^2 = 4 w^2 (k^2 - sin^2(theta/2)): swinging for k < 1, rotating for k > 1. (The elliptic functions of SciPy
    # lose digits for |k^2 - 1| below 1e-10, after several quarter periods.)
    k2 = float(rate**2 / (4 * w**2) + np.sin(angle / 2) ** 2)
    k, sign = np.sqrt(k2), -1.0 if rate < 0 else 1.0

    def motion(t: ArrayLike):
        t = np.asarray(t, float)
        if k2 == 0:
            return np.zeros_like(t), np.zeros_like(t)
        if k2 <= 1:
            start = np.clip(np.sin(angle / 2) / k, -1.0, 1.0)
            shift = np.arctanh(start) if k2 == 1 else scipy.special.ellipkinc(np.arcsin(start), k2)
            # the branch of falling theta is the mirror image; on the separatrix time itself runs backwards
            if sign < 0:
                shift = -shift if k2 == 1 else 2 * scipy.special.ellipk(k2) - shift
            sn, cn, _, _ = scipy.special.ellipj(w * t + shift, k2)
            mirror = sign if k2 == 1 else 1.0
            return 2 * np.arcsin(np.clip(mirror * k * sn, -1.0, 1.0)), mirror * 2 * w * k * cn
        _, _, dn, am = scipy.special.ellipj(k * w * t + sign * scipy.special.ellipkinc(angle / 2, 1 / k2), 1 / k2)
        return sign * 2 * am, sign * 2 * k * w * dn

    def reference(t: Numbers):
        theta, omega = motion(t)
        q = length * np.stack([np.sin(theta), -np.cos(theta)], axis=-1)
        p = mass * length * np.stack([omega * np.cos(theta), omega * np.sin(theta)], axis=-1)
        return q, p

    return reference


def spherical_pendulum(
    angle: ArrayLike = np.pi / 3,
    velocity: ArrayLike = (0.3, 0.8),
    length: ArrayLike = 1.0,
    gravity: ArrayLike = 1.0,
    mass: ArrayLike = 1.0,
) -> Problem:
    """The pendulum in space, q = (x, y, z), from the angle with the vertical.

    `velocity` is the speed along the meridian (outward) and along the circle of latitude. The angular momentum about
    the vertical is conserved.
    """
    system, params = _single(length, gravity, mass)
    angle, velocity = finite("angle", angle), vector("velocity", finite("velocity", velocity), 2)
    s, c, zero = jnp.sin(angle), jnp.cos(angle), jnp.zeros_like(angle)
    q = params["length"] * jnp.stack([s, zero, -c])
    p = params["mass"] * (velocity[0] * jnp.stack([c, zero, s]) + velocity[1] * jnp.asarray([0.0, 1.0, 0.0]))
    return Problem(
        system, q, p, 0.05, 20.0, None, "spherical pendulum", {"angular momentum z": vertical_momentum}, ((-1, 0),)
    )


def vertical_momentum(q: Numbers, p: Numbers) -> Any:
    """The angular momentum about the z axis of one particle."""
    return q[0] * p[1] - q[1] * p[0]


def conical_pendulum(
    angle: ArrayLike | None = None, length: ArrayLike = 1.0, gravity: ArrayLike = 1.0, mass: ArrayLike = 1.0
) -> Problem:
    """The spherical pendulum on a horizontal circle; at 45 degrees the period is `2^(3/4) pi`, lambda `2^(-1/2)`."""
    system, params = _single(length, positive("gravity", gravity), mass)
    if angle is None:
        s = c = jnp.sqrt(jnp.asarray(0.5))
    else:
        angle = positive("angle", angle)
        if not is_traced(angle) and float(angle) >= np.pi / 2:
            raise InputError(f"angle must be below pi/2 = 1.5708 for a conical motion, not {float(angle):g}")
        s, c = jnp.sin(angle), jnp.cos(angle)
    radius, height = params["length"] * s, -params["length"] * c
    rate = jnp.sqrt(params["gravity"] / (params["length"] * c))
    q = jnp.stack([radius, jnp.zeros_like(radius), height])
    p = jnp.stack([jnp.zeros_like(radius), params["mass"] * radius * rate, jnp.zeros_like(radius)])
    reference, period = None, 5.0
    if not is_traced(q, p):
        reference, period = (
            _circle(float(radius), float(height), float(rate), float(params["mass"])),
            2 * np.pi / float(rate),
        )
    invariants = {"angular momentum z": vertical_momentum}
    return Problem(system, q, p, period / 100, 10 * period, reference, "conical pendulum", invariants, ((-1, 0),))


def _circle(radius: float, height: float, rate: float, mass: float) -> Any:
    def reference(t: Numbers):
        s, c = np.sin(rate * np.asarray(t, float)), np.cos(rate * np.asarray(t, float))
        zero = np.zeros_like(s)
        q = np.stack([radius * c, radius * s, zero + height], axis=-1)
        return q, mass * radius * rate * np.stack([-s, c, zero], axis=-1)

    return reference


def quartic_height(q: Numbers, params: PyTree) -> Any:
    return params["strength"] * q[2] ** 4


def sextic_surface(q: Numbers, params: PyTree) -> Any:
    return jnp.reshape(q[0] ** 6 + q[1] ** 4 + q[2] ** 2 - params["level"], (1,))


def modified_pendulum(strength: ArrayLike = 1.0, level: ArrayLike = 0.625) -> Problem:
    """`V = z^4` on the surface `x^6 + y^4 + z^2 = 0.625`, from the start of the conical pendulum."""
    params = {"strength": finite("strength", strength), "level": positive("level", level)}
    if not is_traced(level) and float(params["level"]) <= 0.5:
        raise InputError(f"level must be above 1/2 for a start at z = -1/sqrt 2, not {float(params['level']):g}")
    # x^6 = level - z^2, written so that the paper's level gives x = sqrt(1/2) to the last bit
    x = jnp.sqrt(jnp.asarray(0.5)) * (8 * (params["level"] - 0.5)) ** (1 / 6)
    q = jnp.stack([x, jnp.zeros_like(x), -jnp.sqrt(jnp.asarray(0.5))])
    p = jnp.asarray([0.0, 2.0**-0.25, 0.0])
    system = System(quartic_height, sextic_surface, params=params)
    return Problem(system, q, p, 0.1, 10.0, None, "modified pendulum")


def double_pendulum(
    lengths: ArrayLike = (1.0, SQRT2),
    masses: ArrayLike = 1.0,
    gravity: ArrayLike = 1.0,
    angles: ArrayLike | None = None,
    velocities: ArrayLike = 0.0,
) -> Problem:
    """Two rods in the plane, q of shape (2, 2), from (0, -1), (1, -2) at rest unless angles are given.

    `angles` are measured from the downward vertical, `velocities` are their rates. Benchmark A of the variable steps is
    `double_pendulum((1, 1), masses=(1e-3, 1), angles=(pi/2, 0))`.
    """
    lengths = vector("lengths", positive("lengths", lengths), 2)
    if angles is None:
        xp = array_module(lengths)
        arms = np.array([[0.0, -1.0], [1.0, -1.0]]) * (xp.asarray(lengths) / np.array([1.0, SQRT2]))[:, None]
    else:
        angles = vector("angles", finite("angles", angles), 2)
        xp = array_module(lengths, angles)
        arms = xp.asarray(lengths)[:, None] * xp.stack([xp.sin(angles), -xp.cos(angles)], axis=1)
    return _linked(lengths, masses, gravity, arms, velocities, "double pendulum", 0.05, 50.0)


def chain(n: int = 10, length: ArrayLike = SQRT5, masses: ArrayLike = 1.0, gravity: ArrayLike = 1.0) -> Problem:
    """n pendula in a row, q of shape (n, 2), straight at rest: `x_i = i`, `y_i = -2 i` with rods of sqrt 5."""
    n = whole_number("the number of pendula", n)
    lengths = vector("length", positive("length", length), n)
    arms = np.array([1.0, -2.0]) * (array_module(lengths).asarray(lengths) / SQRT5)[:, None]
    return _linked(lengths, masses, gravity, arms, 0.0, f"chain of {n}", 0.05, 50.0)


def _linked(
    lengths: Numbers,
    masses: ArrayLike,
    gravity: ArrayLike,
    arms: Numbers,
    velocities: ArrayLike,
    name: str,
    dt: float,
    t1: float,
) -> Problem:
    n = arms.shape[0]
    masses = positive("masses", masses)
    each = vector("masses", masses, n)
    params = {"lengths": lengths, "masses": each, "gravity": finite("gravity", gravity)}
    rates = vector("velocities", finite("velocities", velocities), n)
    # an arm turned by a right angle is its derivative with respect to its angle
    xp = array_module(arms, each, rates)
    column, speeds = (xp.asarray(x)[:, None] for x in (each, rates))
    turned = xp.stack([-arms[:, 1], arms[:, 0]], axis=1)
    q = xp.cumsum(arms, axis=0)
    p = column * xp.cumsum(speeds * turned, axis=0)
    mass = masses if masses.ndim == 0 else known_array(xp.broadcast_to(column, q.shape))
    q, p = known_array(q), known_array(p)
    bonds = tuple((i - 1, i) for i in range(n))
    # a long chain is given by its links, so that its multipliers are found in linear time
    constraint = rods if n <= UNROLL else Distance(np.asarray(bonds), link_lengths)
    scene = particle_scene(q.shape, bonds, rows=range(n))
    system = System(weights, constraint, mass=mass, params=params)
    return Problem(system, q, p, dt, t1, None, name, {}, bonds, scene=scene)


def link_lengths(params: PyTree) -> Any:
    return params["lengths"]
