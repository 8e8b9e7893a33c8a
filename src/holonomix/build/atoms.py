"""A problem from an `ase.Atoms`, and `ase.Atoms` from its runs.

Units are those of ASE: lengths in Angstrom, energies in eV, masses in atomic mass units, and so times in
`Angstrom sqrt(amu/eV)` (`ase.units.fs` is a femtosecond) and momenta in `sqrt(eV amu)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import InputError, ShapeError
from ..core.scene import Bond, Guide, Particles, Scene
from ..core.types import Function, Numbers
from ..mechanics import Distance, Local, System
from ..mechanics.problem import Problem
from ..mechanics.projection import project

if TYPE_CHECKING:
    from ..run.solution import Solution

MAX_BONDED = 2000  # atoms; bonds of larger systems are not drawn
FEMTOSECOND = 0.09822694788464063  # in Angstrom sqrt(amu/eV)


def from_ase(
    atoms: Any,
    potential: Function | None = None,
    *,
    constraints: Any = (),
    params: PyTree = None,
    dt: float = FEMTOSECOND,
    t1: float = 1000 * FEMTOSECOND,
    name: str = "",
) -> Problem:
    """The problem of `atoms` with `potential(q)` or `potential(q, params)` in eV, q of shape (atoms, 3).

    Positions, momenta and masses are those of the atoms. `FixBondLengths`, `FixBondLength`, `FixInternals` and
    `FixAtoms` become constraints; `constraints` adds more. If a bond crosses the border of a periodic cell, atoms are
    moved by cell vectors so that it does not. Momenta are projected onto the manifold, and so are positions close to
    it. Without a potential the atoms are free. ASE's calculators are not JAX functions, so write the potential with
    `jax.numpy`. The scene holds species, bonds and cell; pictures, `sol.save("x.extxyz")` and `sol.to_ase()` use them.
    """
    for attribute in ("get_positions", "get_masses", "constraints", "cell"):
        if not hasattr(atoms, attribute):
            raise InputError(f"from_ase needs an ase.Atoms, not {type(atoms).__name__}")
    if potential is None and getattr(atoms, "calc", None) is not None:
        raise InputError(
            f"JAX cannot differentiate the calculator {type(atoms.calc).__name__} of the atoms: give potential, a "
            "function of q written with jax.numpy"
        )
    if not len(atoms):
        raise InputError("the ase.Atoms object has no atoms")
    masses = np.asarray(atoms.get_masses(), float)
    if not np.all(masses > 0):
        raise InputError(f"atom {int(np.argmin(masses))} has mass {masses.min():g}; masses must be positive")
    fixed = [_read_constraint(constraint, atoms) for constraint in atoms.constraints]
    pairs = np.array([pair for part in fixed for pair in part[1]], int).reshape(-1, 2)
    q = _close_bonds(atoms, pairs)
    terms = [term for part in fixed for term in part[0](q)] + list(constraints)
    free = (lambda q: jnp.zeros((), q.dtype)) if params is None else (lambda q, params: jnp.zeros((), q.dtype))
    system = System(free if potential is None else potential, terms or None, mass=masses, params=params)
    p = np.asarray(atoms.get_momenta(), float)
    if terms:
        q, p = (np.asarray(x) for x in project(system, jnp.asarray(q), jnp.asarray(p)))
    scene = _scene(atoms, pairs)
    return Problem(system, jnp.asarray(q), jnp.asarray(p), dt, t1, name=name or str(atoms.symbols), scene=scene)


Made = tuple[Callable[[np.ndarray], list[Any]], list[tuple[int, int]]]


def _read_constraint(constraint: Any, atoms: Any) -> Made:
    """A function from positions to our terms, and the pairs of atoms that it bonds."""
    kind, symbols = type(constraint).__name__, atoms.get_chemical_symbols()
    if kind == "FixBondLengths":
        pairs, given = np.asarray(constraint.pairs, int).reshape(-1, 2), constraint.bondlengths

        def bonds(q: np.ndarray) -> list[Any]:
            lengths = np.linalg.norm(q[pairs[:, 0]] - q[pairs[:, 1]], axis=1)
            if given is not None:
                lengths = np.broadcast_to(np.asarray(given, float), len(pairs))
            return [Distance(pairs, lengths, name=[_atoms_name(symbols, pair) for pair in pairs.tolist()])]

        return bonds, [(int(a), int(b)) for a, b in pairs]
    if kind == "FixInternals":
        return _internals(constraint, symbols)
    if kind == "FixAtoms":
        held = np.asarray(constraint.get_indices(), int)
        names = [f"fixed {_atoms_name(symbols, [k])}" for k in held.tolist()]
        return lambda q: [Local(_at, held[:, None], data=q[held], name=names)], []
    raise InputError(
        f"the ASE constraint {kind} is not supported; FixBondLengths, FixInternals and FixAtoms are. Remove it from "
        "the atoms, and give an equivalent as constraints=[...]"
    )


def _atoms_name(symbols: list[str], index: Iterable[int]) -> str:
    """`C0-C1`: element and number of each atom."""
    return "-".join(f"{symbols[k]}{k}" for k in index)


def _internals(constraint: Any, symbols: list[str]) -> Made:
    found: list[tuple[Function, list[Any], Any]] = []  # function of the atoms, indices, and target or None
    pairs: list[tuple[int, int]] = []
    for value, index in constraint.bonds:
        found.append((_bond, list(index), value))
        pairs.append((int(index[0]), int(index[1])))
    for rows, fn in ((constraint.angles, _angle), (constraint.dihedrals, _dihedral)):
        for value, index in rows:
            found.append((fn, list(index), None if value is None else np.deg2rad(value)))
            pairs += [(int(a), int(b)) for a, b in zip(index, list(index)[1:])]
    for value, parts in constraint.bondcombos:
        weights = np.array([part[2] for part in parts], float)
        found.append((_Combination(weights), [int(k) for part in parts for k in part[:2]], value))

    def terms(q: np.ndarray) -> list[Any]:
        made = []
        for fn, index, value in found:
            target = float(np.asarray(fn(jnp.asarray(q[index])))) if value is None else float(value)
            angular = fn is _angle or fn is _dihedral
            name = ("combination " if isinstance(fn, _Combination) else "") + _atoms_name(symbols, map(int, index))
            made.append(Local(_Internal(fn, angular), [index], data=np.array([target]), name=name))
        return made

    return terms, pairs


def _at(x: Numbers, place: Any) -> Any:
    return x[0] - place


def _bond(x: Numbers) -> Any:
    return jnp.sqrt(jnp.sum((x[0] - x[1]) ** 2))


def _angle(x: Numbers) -> Any:
    """The angle at x_1; by the arc tangent, which has a derivative near 180 degrees too."""
    a, b = x[0] - x[1], x[2] - x[1]
    normal = jnp.cross(a, b)
    return jnp.arctan2(jnp.sqrt(jnp.sum(normal**2)), jnp.sum(a * b))


def _dihedral(x: Numbers) -> Any:
    """The dihedral angle with the sign that ASE gives it."""
    a, b, c = x[1] - x[0], x[2] - x[1], x[3] - x[2]
    first, second = jnp.cross(a, b), jnp.cross(b, c)
    return jnp.arctan2(-jnp.sqrt(jnp.sum(b**2)) * jnp.sum(a * second), jnp.sum(first * second))


class _Combination:
    """A weighted sum of bond lengths."""

    def __init__(self, weights: np.ndarray):
        self.weights = tuple(float(w) for w in weights)

    def __call__(self, x: Numbers) -> Any:
        return sum(w * _bond(x[2 * k : 2 * k + 2]) for k, w in enumerate(self.weights))


class _Internal:
    """The difference between an internal coordinate and its target; for angles, between -pi and pi."""

    def __init__(self, fn: Function, angular: bool):
        self.fn, self.angular = fn, angular

    def __call__(self, x: Numbers, target: Numbers) -> Any:
        off = self.fn(x) - target
        return jnp.arctan2(jnp.sin(off), jnp.cos(off)) if self.angular else off


def _close_bonds(atoms: Any, pairs: np.ndarray) -> np.ndarray:
    """Positions in which both atoms of every pair are in the same copy of the cell."""
    q, periodic = np.array(atoms.get_positions(), float), np.asarray(atoms.pbc, bool)
    if not periodic.any() or not len(pairs):
        return q
    cell = np.asarray(atoms.cell.complete(), float)
    near: dict[int, list[int]] = {}
    for a, b in pairs.tolist():
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    seen: set[int] = set()
    for start in near:
        waiting = [] if start in seen else [start]
        seen.add(start)
        while waiting:
            a = waiting.pop()
            for b in near[a]:
                if b not in seen:
                    turns = np.round(np.linalg.solve(cell.T, q[b] - q[a])) * periodic
                    q[b] -= turns @ cell
                    seen.add(b)
                    waiting.append(b)
    return q


def _scene(atoms: Any, pairs: np.ndarray) -> Scene:
    from ase.data import covalent_radii
    from ase.data.colors import jmol_colors
    from ase.neighborlist import natural_cutoffs, neighbor_list

    numbers, symbols = np.asarray(atoms.numbers), atoms.get_chemical_symbols()
    groups = []
    for number in sorted(set(numbers.tolist())):
        index = tuple(int(k) for k in np.flatnonzero(numbers == number))
        color = "#" + "".join(f"{round(255 * float(x)):02x}" for x in jmol_colors[number])
        groups.append(Particles(index, 0.4 * float(covalent_radii[number]), symbols[index[0]], color))
    bonds = [Bond(int(a), int(b)) for a, b in pairs]
    if len(atoms) <= MAX_BONDED:
        first, second, shifts = neighbor_list("ijS", atoms, 1.1 * np.array(natural_cutoffs(atoms)))
        inside = (first < second) & ~np.any(shifts, axis=1)
        known = {frozenset(pair) for pair in pairs.tolist()}
        more = zip(first[inside].tolist(), second[inside].tolist(), strict=True)
        bonds += [Bond(a, b) for a, b in more if frozenset((a, b)) not in known]
    cell = np.asarray(atoms.cell, float)
    full = bool(np.any(atoms.pbc)) and abs(np.linalg.det(cell)) > 0
    guides = (Guide(_edges(cell), "rail"),) if full else ()
    own = tuple(float(x) for x in cell.reshape(-1)) if full else ()
    return Scene(3, "Angstrom", particles=tuple(groups), bonds=tuple(bonds), guides=guides, cell=own)


def _edges(cell: np.ndarray) -> tuple[tuple[float, ...], ...]:
    lines = []
    for k in range(3):
        i, j = (x for x in range(3) if x != k)
        for a in (0, 1):
            for b in (0, 1):
                corner = a * cell[i] + b * cell[j]
                lines.append(tuple(float(x) for x in (*corner, *(corner + cell[k]))))
    return tuple(lines)


def species_of(scene: Scene | None, count: int) -> list[str] | None:
    """The element of every particle, if the scene names them all."""
    names = [""] * count
    for group in scene.particles if scene is not None else ():
        for k in group.indices:
            if k < count and re.fullmatch("[A-Z][a-z]?", group.species):
                names[k] = group.species
    return names if names and all(names) else None


def to_ase(solution: Solution, every: int = 1) -> list[Any]:
    """The saved rows as a list of `ase.Atoms` with momenta, masses, the cell and the time (`atoms.info["time"]`)."""
    try:
        from ase import Atoms
    except ImportError as error:
        raise InputError("to_ase needs ASE: pip install ase") from error

    shape, scene = solution.q.shape[1:], solution.scene
    if len(shape) != 2 or shape[1] > 3:
        raise ShapeError(f"to_ase needs rows of q of shape (atoms, 3), not {shape}")
    names = species_of(scene, shape[0]) or ["X"] * shape[0]
    spatial = lambda x: np.concatenate([x, np.zeros((len(x), 3 - shape[1]))], axis=1)
    cell = None if scene is None or not scene.cell else np.reshape(scene.cell, (3, 3))
    masses = np.asarray(getattr(solution.system.mass, "value", 1.0), float)  # of a diagonal mass; else those of ASE
    each = masses[:, 0] if masses.shape == shape else None
    frames = []
    for k in range(0, len(solution.t), every):
        one = Atoms(names, spatial(solution.q[k]), cell=cell, pbc=cell is not None, masses=each)
        one.set_momenta(spatial(solution.p[k]), apply_constraint=False)
        one.info["time"] = float(solution.t[k])
        frames.append(one)
    return frames
