"""Mechanisms of bars and joints: slider-crank, four-bar, Watt's linkage, rings, rigid molecules, a mobile.

Joints are point masses in Cartesian coordinates, bars are distances; gravity is the potential `gravity * sum m_i y_i`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.checks import whole_number
from ...core.errors import InputError
from ...core.types import ArrayLike, Function, Numbers
from ...mechanics import Distance, Local, System
from ...mechanics.problem import Problem
from .checks import finite, positive, vector


def falling(q: Numbers, params: PyTree) -> Any:
    """`gravity * sum m_i y_i`, the last coordinate up."""
    return params["gravity"] * jnp.sum(params["masses"] * q[:, -1])


def bar_lengths(params: PyTree) -> Any:
    return params["lengths"]


def on_the_line(x: Numbers, params: PyTree) -> Any:
    """The slider's height."""
    return x[0, 1]


def midpoint(x: Numbers, params: PyTree) -> Any:
    """The middle of a bar: `x_2 = (x_0 + x_1)/2`."""
    return x[2] - 0.5 * (x[0] + x[1])


def _linkage(
    q: np.ndarray,
    terms: Sequence[Function],
    masses: ArrayLike,
    lengths: ArrayLike,
    gravity: ArrayLike,
    v: np.ndarray,
    **rest: Any,
) -> Problem:
    """A problem from positions and velocities that are nearly tangent: the velocity is projected."""
    each = vector("masses", positive("masses", masses), q.shape[0])
    params = {
        "lengths": jnp.asarray(lengths, jnp.result_type(float)),
        "masses": each,
        "gravity": finite("gravity", gravity),
    }
    mass = jnp.broadcast_to(each[:, None], q.shape)
    system = System(falling, terms, mass=mass, params=params)
    start = jnp.asarray(q)
    return Problem(system, start, _tangent(system, start, jnp.asarray(mass * v)), bonds=_bonds(terms), **rest)


def _tangent(system: System, q: Numbers, p: Numbers) -> Any:
    """p projected by least squares in the mass metric, which allows redundant bars."""
    rows = np.asarray(system.linearize(q).todense())
    root = np.sqrt(np.broadcast_to(np.asarray(system.mass), q.shape).reshape(-1))
    normal = (rows / root).T
    scaled = np.asarray(p).reshape(-1) / root
    for _ in range(2):
        scaled = scaled - normal @ np.linalg.lstsq(normal, scaled, rcond=1e-10)[0]
    return jnp.asarray((scaled * root).reshape(q.shape))


def _bonds(terms: Sequence[Function]) -> tuple[tuple[int, int], ...]:
    pairs = [term.indices.array for term in terms if isinstance(term, Distance)]
    return tuple((int(a), int(b)) for table in pairs for a, b in table)


def slider_crank(
    crank: float = 1.0,
    rod: float = 3.0,
    angle: float = 1.0,
    rate: float = 1.0,
    masses: ArrayLike = 1.0,
    gravity: ArrayLike = 1.0,
) -> Problem:
    """A crank about the origin drives a slider on the x-axis through a rod; q = (pin, slider), shape (2, 2)."""
    crank, rod = float(positive("crank", crank)), float(positive("rod", rod))
    if rod <= crank:
        raise InputError(f"the rod ({rod:g}) must be longer than the crank ({crank:g}) for the crank to go round")
    pin = crank * np.array([np.cos(angle), np.sin(angle)])
    slider = np.array([pin[0] + np.sqrt(rod**2 - pin[1] ** 2), 0.0])
    turning = rate * np.array([-pin[1], pin[0]])
    pushed = np.array([turning[0] - pin[1] * turning[1] / (slider[0] - pin[0]), 0.0])
    terms = [Distance([(-1, 0), (0, 1)], bar_lengths), Local(on_the_line, [[1]])]
    v = np.stack([turning, pushed])
    return _linkage(
        np.stack([pin, slider]), terms, masses, (crank, rod), gravity, v, dt=0.02, t1=20.0, name="slider-crank"
    )


def four_bar(
    ground: float = 2.0,
    crank: float = 0.8,
    coupler: float = 2.2,
    rocker: float = 1.6,
    angle: float = 0.8,
    rate: float = 1.0,
    masses: ArrayLike = 1.0,
    gravity: ArrayLike = 1.0,
) -> Problem:
    """Crank, coupler and rocker between two fixed pivots a distance `ground` apart; q of shape (2, 2).

    With the default lengths the crank makes full turns (Grashof: shortest + longest < sum of the others).
    """
    sizes = [
        float(positive(n, x))
        for n, x in zip(("ground", "crank", "coupler", "rocker"), (ground, crank, coupler, rocker))
    ]
    ground, crank, coupler, rocker = sizes
    a = crank * np.array([np.cos(angle), np.sin(angle)])
    b = _meet(a, coupler, np.array([ground, 0.0]), rocker)
    lengths = (crank, coupler, rocker)
    terms = [Distance([(-1, 0), (0, 1), (1, -2)], bar_lengths, anchors=[[0.0, 0.0], [ground, 0.0]])]
    v = np.array([[-a[1], a[0]], [0.0, 0.0]]) * rate
    return _linkage(np.stack([a, b]), terms, masses, lengths, gravity, v, dt=0.02, t1=20.0, name="four-bar linkage")


def _meet(a: np.ndarray, r: float, c: np.ndarray, s: float) -> np.ndarray:
    """The upper point at distance r from a and s from c."""
    d = np.linalg.norm(c - a)
    x = (d**2 + r**2 - s**2) / (2 * d)
    if abs(x) > r:
        raise InputError(f"the linkage cannot be closed: bars {r:g} and {s:g} do not meet over a gap of {d:g}")
    along = (c - a) / d
    return a + x * along + np.sqrt(r**2 - x**2) * np.array([-along[1], along[0]])


def watt(
    arm: float = 2.0, coupler: float = 1.0, rate: float = 0.5, masses: ArrayLike = 1.0, gravity: ArrayLike = 1.0
) -> Problem:
    """Watt's linkage: the middle of the coupler moves nearly on a straight line; q = (A, B, middle), shape (3, 2)."""
    arm, coupler = float(positive("arm", arm)), float(positive("coupler", coupler))
    q = np.array([[0.0, coupler / 2], [0.0, -coupler / 2], [0.0, 0.0]])
    anchors = [[-arm, coupler / 2], [arm, -coupler / 2]]
    terms = [
        Distance([(-1, 0), (0, 1), (1, -2)], bar_lengths, anchors=anchors),
        Local(midpoint, [[0, 1, 2]]),
    ]
    v = np.tile([0.0, rate], (3, 1))
    return _linkage(q, terms, masses, (arm, coupler, arm), gravity, v, dt=0.02, t1=20.0, name="Watt's linkage")


def planar_ring(
    n: int = 6, rigid: bool = False, radius: float = 1.0, rate: float = 1.0, masses: ArrayLike = 1.0
) -> Problem:
    """n equal bars closed to a ring in the plane, free to move, from the regular polygon; q of shape (n, 2).

    `rigid=True` adds the braces between second neighbors: 2 n bars of which only 2 n - 3 are independent, so it
    needs `redundant="min-norm"` (n >= 5).
    """
    whole_number("n", n, 4)  # three bars do not move
    angle = 2 * np.pi * np.arange(n) / n
    q = float(positive("radius", radius)) * np.stack([np.cos(angle), np.sin(angle)], 1)
    pairs = [(k, (k + 1) % n) for k in range(n)]
    if rigid:
        pairs += [(k, (k + 2) % n) for k in range(n)]
    lengths = [np.linalg.norm(q[a] - q[b]) for a, b in pairs]
    # a rotation, and a deformation if the bars allow it
    v = rate * np.stack([-q[:, 1], q[:, 0]], 1) + 0.5 * rate * q * np.cos(2 * angle)[:, None]
    terms = [Distance(pairs, bar_lengths)]
    name = f"planar ring of {n} bars" + (", braced" if rigid else "")
    return _linkage(q, terms, masses, lengths, 0.0, v, dt=0.02, t1=20.0, name=name)


def rigid_molecules(n: int = 27, temperature: float = 0.1, stiffness: ArrayLike = 1.0, seed: int = 0) -> Problem:
    """n rigid triatomic molecules (the shape and masses of water) in a harmonic trap; q of shape (3 n, 3).

    They do not interact. Each keeps three distances, and the solver treats them block by block.
    """
    if n < 1:
        raise InputError(f"at least one molecule is needed, not {n}")
    rng = np.random.default_rng(seed)
    half = np.deg2rad(104.52 / 2)
    shape = 0.9572 * np.array([[0, 0, 0], [np.sin(half), np.cos(half), 0], [-np.sin(half), np.cos(half), 0]])
    side = int(np.ceil(n ** (1 / 3)))
    sites = 3.0 * np.stack(np.unravel_index(np.arange(n), (side,) * 3), 1) - 1.5 * (side - 1)
    turns = np.linalg.qr(rng.normal(size=(n, 3, 3)))[0]
    q = (sites[:, None] + np.einsum("nij,aj->nai", turns, shape)).reshape(-1, 3)
    pairs = (np.array([[0, 1], [0, 2], [1, 2]]) + 3 * np.arange(n)[:, None, None]).reshape(-1, 2)
    lengths = np.linalg.norm(q[pairs[:, 0]] - q[pairs[:, 1]], axis=1)
    masses = np.tile([15.9994, 1.00794, 1.00794], n)
    params = {
        "lengths": jnp.asarray(lengths),
        "masses": jnp.asarray(masses),
        "stiffness": positive("stiffness", stiffness),
    }
    mass = jnp.broadcast_to(jnp.asarray(masses)[:, None], q.shape)
    system = System(trapped, [Distance(pairs, bar_lengths)], mass=mass, params=params)
    p = np.sqrt(temperature * masses)[:, None] * rng.normal(size=q.shape)
    p = np.concatenate([_rigid_part(q[k : k + 3], p[k : k + 3], masses[k : k + 3]) for k in range(0, 3 * n, 3)])
    bonds = tuple((int(a), int(b)) for a, b in pairs)
    return Problem(system, jnp.asarray(q), jnp.asarray(p), 0.02, 20.0, None, f"{n} rigid molecules", bonds=bonds)


def trapped(q: Numbers, params: PyTree) -> Any:
    """`stiffness/2 sum m_i |q_i|^2`."""
    return (
        0.5 * params["stiffness"] * jnp.sum(params["masses"] * (q[:, 0] ** 2 + 1.3 * q[:, 1] ** 2 + 1.7 * q[:, 2] ** 2))
    )


def _rigid_part(q: np.ndarray, p: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """The momentum of the rigid motion with the same linear and angular momentum."""
    center = masses @ q / masses.sum()
    arm = q - center
    spin = np.sum(np.cross(arm, p), axis=0)
    inertia = np.einsum(
        "a,aij->ij", masses, np.sum(arm**2, axis=1)[:, None, None] * np.eye(3) - arm[:, :, None] * arm[:, None]
    )
    omega = np.linalg.solve(inertia, spin)
    return masses[:, None] * (p.sum(axis=0) / masses.sum() + np.cross(omega, arm))


def mobile(
    levels: int = 4, length: float = 1.0, spread: float = 0.5, masses: ArrayLike = 1.0, gravity: ArrayLike = 1.0
) -> Problem:
    """A mobile: a tree of rods in the plane, two below each joint, hung from the origin; q of shape (2^levels - 1, 2).

    The rods' equations couple along the tree and are eliminated from the leaves up, without fill.
    """
    if whole_number("levels", levels) > 16:
        raise InputError(f"a mobile of {levels} levels has 2^{levels} - 1 rods; 16 levels are the most")
    n = 2**levels - 1
    length = float(positive("length", length))
    q = np.zeros((n, 2))
    sizes = np.array([length * 0.8 ** np.floor(np.log2(k + 1)) for k in range(n)])
    for k in range(n):
        swing = 0.3 if k == 0 else spread * (1 if k % 2 else -1) + 0.1 * np.sin(k)
        above = np.zeros(2) if k == 0 else q[(k - 1) // 2]
        q[k] = above + sizes[k] * np.array([np.sin(swing), -np.cos(swing)])
    pairs = [(-1, 0)] + [((k - 1) // 2, k) for k in range(1, n)]
    terms = [Distance(pairs, bar_lengths)]
    name = f"mobile of {n} rods"
    return _linkage(q, terms, masses, sizes, gravity, np.zeros_like(q), dt=0.01, t1=10.0, name=name)
