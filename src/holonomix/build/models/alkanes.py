"""n-Butane as four united atoms with rigid bonds and angles: one internal degree of freedom, the dihedral angle.

The model of Ryckaert & Bellemans (1975). The Fixman potential matters for it: `det(G M^-1 G^T)` depends on the
dihedral angle, so that rigid and stiff butane fold differently unless it is added (`hx.mechanics.fixman`).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.errors import InputError
from ...core.types import ArrayLike, Numbers, Real, known_array
from ...mechanics import System
from ...mechanics.invariants import linear_momentum
from ...mechanics.problem import Problem
from .checks import array_module
from .water import UNITS

BOND, ANGLE = 1.53, 109.467  # Angstrom and degrees
MASSES = (15.035, 14.027, 14.027, 15.035)
TORSION = (1116.0, 1462.0, -1578.0, -368.0, 3156.0, -3788.0)  # kelvin, powers of cos(dihedral), 0 is trans
STEP_FS = 2.0
OMEGA = 60.0  # (kcal/mol)^1/2 A^-2: near the stiffness of real C-C bonds
_BONDS, _ANGLES = ((0, 1), (1, 2), (2, 3)), ((0, 2), (1, 3))


def butane(
    units: str = "kcal/mol",
    rigid: bool = True,
    omega: ArrayLike | None = None,
    torsion: Real = 1.0,
    angle: ArrayLike = 0.6,
) -> Problem:
    """One n-butane in vacuum, at rest with the dihedral `angle` (radians; 0 is trans).

    `rigid=False` replaces the five fixed distances (three bonds, two that hold the angles) by `omega^2/2 |g|^2`.
    `torsion` scales the torsional potential: 0 is a freely turning chain. Lengths are Angstrom, masses amu.
    """
    if units not in UNITS:
        raise InputError(f"units must be one of {', '.join(map(repr, UNITS))}, not {units!r}")
    unit = UNITS[units]
    reach = 2 * BOND * np.sin(np.deg2rad(ANGLE) / 2)
    params = {
        "torsion": known_array(np.asarray(TORSION) * (unit.boltzmann * torsion)),
        "lengths": known_array([BOND] * 3 + [reach] * 2),
    }
    system = System(_torsion, _distances, np.asarray(MASSES)[:, None], params=params)
    q = butane_positions(angle)
    dt = STEP_FS / unit.femtoseconds
    if not rigid:
        system = system.penalized(OMEGA / np.sqrt(unit.kcal) if omega is None else omega)
    invariants = {"linear momentum": linear_momentum}
    return Problem(system, q, known_array(np.zeros(q.shape)), dt, 1000 * dt, None, "n-butane", invariants, _BONDS)


def butane_positions(angle: ArrayLike) -> Any:
    """The four atoms at a dihedral angle (0 is trans), shape (4, 3); works under `vmap`."""
    bend = np.pi - np.deg2rad(ANGLE)
    along, across = BOND * np.cos(bend), BOND * np.sin(bend)
    xp = array_module(angle)
    angle = xp.asarray(angle, jnp.result_type(float))
    zero = xp.zeros_like(angle)
    first = xp.stack([zero - along, zero - across, zero])
    last = xp.stack([zero + BOND + along, across * xp.cos(angle), across * xp.sin(angle)])
    middle = xp.stack([zero + BOND, zero, zero])
    return known_array(xp.stack([first, xp.zeros_like(first), middle, last]))


def dihedral(q: Numbers) -> Any:
    """The angle between the planes of the first and the last three atoms, in (-pi, pi]; 0 is trans."""
    a, b, c = q[1] - q[0], q[2] - q[1], q[3] - q[2]
    m, n = jnp.cross(a, b), jnp.cross(b, c)
    return jnp.arctan2(-jnp.sqrt(jnp.sum(b * b)) * jnp.dot(a, n), -jnp.dot(m, n))


def _torsion(q: Numbers, params: PyTree) -> Any:
    a, b, c = q[1] - q[0], q[2] - q[1], q[3] - q[2]
    m, n = jnp.cross(a, b), jnp.cross(b, c)
    cosine = -jnp.sum(m * n) / jnp.sqrt(jnp.sum(m * m) * jnp.sum(n * n))
    return jnp.polyval(params["torsion"][::-1], cosine)


def _distances(q: Numbers, params: PyTree) -> Any:
    i, j = np.array(_BONDS + _ANGLES).T
    return jnp.sum((q[i] - q[j]) ** 2, axis=-1) - params["lengths"] ** 2
