"""Clusters of TIP3P water, rigid or with stiff springs, with relaxed starts.

Atoms are ordered O, H, H molecule by molecule; q has the shape (3 n, 3). Lengths are Angstrom and masses amu; energies
are kcal/mol or eV, and the unit of time follows (48.89 fs or 10.18 fs). Charges and Lennard-Jones constants are those
of Jorgensen et al. (1983), as in Tao & Owhadi (2015, section 4.3).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.checks import whole_number
from ...core.errors import InputError
from ...core.scene import Bond, Particles, Scene
from ...core.types import ArrayLike, Index, Numbers, Real
from ...mechanics import Distance, Pairs, System
from ...mechanics.invariants import angular_momentum, linear_momentum
from ...mechanics.problem import Problem
from ...trace.compiled import compiled

CHARGES = (-0.834, 0.417, 0.417)
MASSES = (15.9994, 1.00794, 1.00794)
BOND, ANGLE = 0.9572, 104.52
LENNARD_JONES = (582_000.0, 595.0)  # A in kcal A^12/mol, C in kcal A^6/mol
COULOMB = 332.0637  # kcal A/mol per squared electron charge
OMEGA = 96.0  # (kcal/mol)^1/2 A^-2: the stiffness of the paper's figures
STEP_FS = 0.509
SPACING = 3.0  # nearest neighbors of the lattice a start is made from


class Units(NamedTuple):
    """What one unit of energy is in kcal/mol, one unit of time in femtoseconds, and Boltzmann's constant per kelvin."""

    kcal: float
    femtoseconds: float
    boltzmann: float


_AMU, _AVOGADRO, _EV = 1.66053906660e-27, 6.02214076e23, 1.602176634e-19
_KCAL = 4184.0 / _AVOGADRO
UNITS = {
    name: Units(joule / _KCAL, float(np.sqrt(_AMU * 1e-20 / joule)) * 1e15, 1.380649e-23 / joule)
    for name, joule in (("kcal/mol", _KCAL), ("eV", _EV))
}


def water_cluster(
    n: int = 7,
    units: str = "kcal/mol",
    rigid: bool = True,
    omega: ArrayLike | None = None,
    temperature: Real = 232.0,
    seed: int = 0,
) -> Problem:
    """`n` TIP3P waters in vacuum, without cutoff, from a relaxed start with momenta drawn at `temperature` kelvin.

    `rigid=False` replaces the triangles by the penalty `omega^2/2 |g|^2` (omega is in the units chosen; by default
    96 (kcal/mol)^1/2 A^-2, which is 20 eV^1/2 A^-2). The step is 0.509 fs. The charges and
    constants are the system's params: change them without recompiling.
    """
    n = whole_number("n, the number of molecules,", n)
    if units not in UNITS:
        raise InputError(f"units must be one of {', '.join(map(repr, UNITS))}, not {units!r}")
    if not temperature >= 0:
        raise InputError(f"temperature must not be negative, but it is {temperature}")
    unit = UNITS[units]
    system = _rigid(int(n), unit.kcal)
    q = jnp.asarray(_relaxed(int(n), int(seed)))
    p = jnp.asarray(_thermal(np.asarray(q), unit.boltzmann * temperature, int(seed)))
    if not rigid:
        system = system.penalized(OMEGA / np.sqrt(unit.kcal) if omega is None else omega)
    dt = STEP_FS / unit.femtoseconds
    invariants = {"linear momentum": linear_momentum, "angular momentum": angular_momentum}
    bonds = tuple((3 * k, 3 * k + i) for k in range(n) for i in (1, 2))
    kind = "rigid" if rigid else "stiff"
    scene = Scene(
        3,
        "A",
        (
            Particles(tuple(range(0, 3 * n, 3)), 0.35, "O", "#d62728"),
            Particles(tuple(k for k in range(3 * n) if k % 3), 0.22, "H", "#c7ccd6"),
        ),
        tuple(Bond(a, b) for a, b in bonds),
    )
    return Problem(system, q, p, dt, 2000 * dt, None, f"{n} {kind} waters", invariants, bonds, scene=scene)


def oxygen_distances(q: Numbers) -> Any:
    """The distances between oxygens, one for each pair of molecules."""
    i, j = np.triu_indices(q.shape[-2] // 3, 1)
    oxygen = q[..., ::3, :]
    return jnp.sqrt(jnp.sum((oxygen[..., i, :] - oxygen[..., j, :]) ** 2, axis=-1))


def radial_histogram(
    rows: ArrayLike, bins: int = 100, low: float = 2.4, high: float = 7.4
) -> tuple[np.ndarray, np.ndarray]:
    """Bin centers and the fraction of oxygen-oxygen distances in each bin, over all rows of positions."""
    distances = np.asarray(oxygen_distances(jnp.asarray(rows)))
    count, edges = np.histogram(distances, bins, (low, high))
    return (edges[1:] + edges[:-1]) / 2, count / max(count.sum(), 1)


# -- the model ------------------------------------------------------------------------------------------------------


def _pair(a: Numbers, b: Numbers, params: PyTree) -> Any:
    """Two molecules, each with rows O, H, H: Coulomb forces between all atoms, Lennard-Jones between oxygens."""
    inverse = _inverse_root(jnp.sum((a[:, None] - b[None]) ** 2, axis=-1))
    charge = params["charges"]
    electric = params["coulomb"] * jnp.sum(charge[:, None] * charge[None] * inverse)
    sixth = inverse[0, 0] ** 6
    return electric + params["repulsion"] * sixth**2 - params["attraction"] * sixth


@jax.custom_jvp
def _inverse_root(x: Numbers) -> Any:
    """`x^(-1/2)` with the derivative `-y^3/2`: one root and one division for value and slope."""
    return 1.0 / jnp.sqrt(x)


@_inverse_root.defjvp
def _(primals: tuple[Numbers, ...], tangents: tuple[Numbers, ...]) -> Any:
    y = _inverse_root(primals[0])
    return y, -0.5 * y * y * y * tangents[0]


def _rigid(n: int, kcal: float) -> System:
    a, c = LENNARD_JONES
    lengths = np.tile([BOND, BOND, 2 * BOND * np.sin(np.deg2rad(ANGLE) / 2)], n)
    sides = (3 * np.arange(n)[:, None, None] + np.array([(0, 1), (0, 2), (1, 2)])).reshape(-1, 2)
    values = {"charges": CHARGES, "coulomb": COULOMB, "repulsion": a, "attraction": c}
    params = {name: jnp.asarray(x) / (1.0 if name == "charges" else kcal) for name, x in values.items()}
    mass = np.tile(np.asarray(MASSES)[:, None], (n, 1))
    potential = Pairs(_pair, np.arange(3 * n).reshape(n, 3))
    return System(potential, Distance(sides, lengths), mass, params=params)


# -- starts ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=32)
def _relaxed(n: int, seed: int, sweeps: int = 600) -> np.ndarray:
    """A cluster cut from a close-packed lattice, with random orientations, relaxed by rigid steepest descent."""
    rng = np.random.default_rng(seed)
    system = _rigid(n, 1.0)
    frames = rng.standard_normal((n, 2, 3))
    start = _molecules(_lattice(n), frames)
    molecules = np.asarray(_descend(system, jnp.asarray(start), sweeps))
    # the sides are exact again: rebuilt from one bond and the plane of each molecule
    return _molecules(molecules[:, 0], molecules[:, 1:] - molecules[:, :1]).reshape(-1, 3)


@compiled
def _descend(system: System, start: Numbers, sweeps: int) -> Any:
    """Rigid steepest descent with a step that grows while the energy falls; another seed compiles nothing."""
    slope = jax.value_and_grad(system.potential)

    def sweep(_: Index, loop: PyTree):
        molecules, step = loop
        value, gradient = slope(molecules.reshape(-1, 3))
        force, arm = -gradient.reshape(-1, 3, 3), molecules - molecules[:, :1]
        shift = _capped(step * jnp.sum(force, axis=1))
        turn = _capped(step * jnp.sum(jnp.cross(arm, force), axis=1))
        moved = molecules[:, :1] + shift[:, None] + _rotated(arm, turn[:, None])
        better = system.potential(moved.reshape(-1, 3)) < value
        return jnp.where(better, moved, molecules), step * jnp.where(better, 1.2, 0.5)

    return jax.lax.fori_loop(0, sweeps, sweep, (start, jnp.asarray(1e-3)))[0]


def _molecules(oxygens: np.ndarray, arms: np.ndarray) -> np.ndarray:
    """Rigid molecules with the first bond along `arms[:, 0]`, the second in the plane of both arms."""
    first = arms[:, 0] / np.linalg.norm(arms[:, 0], axis=-1, keepdims=True)
    second = arms[:, 1] - np.sum(arms[:, 1] * first, axis=-1, keepdims=True) * first
    second /= np.linalg.norm(second, axis=-1, keepdims=True)
    angle = np.deg2rad(ANGLE)
    bonds = np.stack([first, np.cos(angle) * first + np.sin(angle) * second], axis=1)
    return np.concatenate([oxygens[:, None], oxygens[:, None] + BOND * bonds], axis=1)


def _lattice(n: int) -> np.ndarray:
    """The `n` points of a face-centered cubic lattice that are nearest to a point a little off its center."""
    size = int(np.ceil(n ** (1 / 3))) + 2
    grid = np.stack(np.meshgrid(*[np.arange(-size, size + 1)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    grid = grid[grid.sum(axis=1) % 2 == 0] * (SPACING / np.sqrt(2))
    distance = np.linalg.norm(grid - np.array([0.11, 0.07, 0.05]), axis=1)
    return grid[np.argsort(distance, kind="stable")[:n]].astype(float)


def _capped(x: Numbers, limit: float = 0.2) -> Any:
    size = jnp.linalg.norm(x, axis=-1, keepdims=True)
    return x * jnp.minimum(1.0, limit / jnp.maximum(size, 1e-12))


def _rotated(x: Numbers, turn: Numbers) -> Any:
    """Rodrigues' formula: x turned by the angle `|turn|` about the axis `turn`."""
    square = jnp.sum(turn**2, axis=-1, keepdims=True)
    angle = jnp.sqrt(jnp.maximum(square, 1e-24))
    s, c = jnp.sin(angle) / angle, (1 - jnp.cos(angle)) / angle**2
    once = jnp.cross(turn, x)
    return x + s * once + c * jnp.cross(turn, once)


def _thermal(q: np.ndarray, kt: Real, seed: int) -> np.ndarray:
    """Momenta from the Gaussian on the tangent space, molecule by molecule; the total is taken off."""
    rng = np.random.default_rng(seed + 1)
    mass = np.asarray(MASSES)[:, None]
    molecules, one = jnp.asarray(q.reshape(-1, 3, 3)), _rigid(1, 1.0)

    def tangent(x: Numbers, p: Numbers):
        jac = one.linearize(x)
        mu = one.gram(x, jac, jac).factor(symmetric=True).solve(jac(p / mass))
        return p - jac.transpose(mu)

    noise = np.sqrt(kt * mass) * rng.standard_normal(molecules.shape)
    p = np.asarray(jax.jit(jax.vmap(tangent))(molecules, jnp.asarray(noise))).reshape(-1, 3)
    weights = np.tile(mass, (len(molecules), 1))
    return p - weights * p.sum(axis=0) / weights.sum()
