"""Atoms of ASE: constraints, a run against ASE's own dynamics, and frames with species and cell."""

from __future__ import annotations

from typing import Any

import ase.io
import ase.units
import jax.numpy as jnp
import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.calculators.calculator import Calculator
from ase.constraints import FixAtoms, FixBondLengths, FixInternals, FixScaled
from ase.md.verlet import VelocityVerlet

import holonomix as hx

STIFFNESS = 2.0


def springs(q, params):
    """Every atom is tied to where it was."""
    return 0.5 * params["k"] * jnp.sum((q - params["home"]) ** 2)


class Springs(Calculator):
    implemented_properties = ("energy", "forces")  # type: ignore[assignment]

    def __init__(self, home):
        super().__init__()
        self.home = home

    def calculate(self, atoms=None, properties=("energy",), system_changes=()):
        assert atoms is not None
        apart = atoms.positions - self.home
        self.results = {"energy": 0.5 * STIFFNESS * np.sum(apart**2), "forces": -STIFFNESS * apart}


def ethanol(constraint=None):
    atoms = molecule("CH3CH2OH")
    if constraint is not None:
        atoms.set_constraint(constraint)
    rng = np.random.default_rng(0)
    atoms.set_momenta(0.1 * np.sqrt(atoms.get_masses())[:, None] * rng.normal(size=(len(atoms), 3)))
    return atoms


PAIRS = [(0, 1), (1, 2), (2, 3)]


def test_fixed_bonds_move_as_in_ase():
    atoms = ethanol(FixBondLengths(PAIRS))
    home = atoms.positions.copy()
    dt = 0.5 * ase.units.fs
    problem = hx.Problem.from_ase(atoms, springs, params={"k": STIFFNESS, "home": home}, dt=dt, t1=40 * dt)
    assert problem.q0.shape == (9, 3) and problem.name == "C2OH6"
    assert problem.system.constraint_count(problem.q0) == 3
    sol = hx.simulate(problem, hx.RATTLE())
    assert list(sol.constraint_forces()) == ["C0-C1", "C1-O2", "O2-H3"]
    atoms.set_momenta(np.asarray(problem.p0), apply_constraint=False)
    atoms.calc = Springs(home)
    VelocityVerlet(atoms, timestep=dt).run(40)
    np.testing.assert_allclose(sol.q[-1], atoms.positions, rtol=0, atol=1e-9)
    np.testing.assert_allclose(sol.p[-1], atoms.get_momenta(), rtol=0, atol=1e-9)
    assert np.max(np.abs(sol.q[-1] - home)) > 0.01


def test_internal_coordinates_have_ase_values_and_stay():
    atoms = ethanol()
    fixed = FixInternals(
        bonds=[[None, [0, 1]]],
        angles_deg=[[atoms.get_angle(0, 1, 2), [0, 1, 2]]],
        dihedrals_deg=[[atoms.get_dihedral(0, 1, 2, 3), [0, 1, 2, 3]]],
        bondcombos=[[None, [[0, 4, 1.0], [1, 5, -0.5]]]],
    )
    combination = atoms.get_distance(0, 4) - 0.5 * atoms.get_distance(1, 5)
    atoms = ethanol(fixed)
    problem = hx.Problem.from_ase(atoms, t1=50 * ase.units.fs)
    assert problem.system.constraint_count(problem.q0) == 4
    names = [str(row) for row in problem.system.constraint_rows(problem.q0)]
    assert [name.split("'")[1] for name in names] == [
        "C0-C1", "C0-C1-O2", "C0-C1-O2-H3", "combination C0-H4-C1-H5"
    ]  # fmt: skip
    np.testing.assert_allclose(problem.q0, atoms.positions, rtol=0, atol=1e-10)
    end = hx.simulate(problem, hx.RATTLE(), save_every=50).to_ase()[-1]
    wanted = [atoms.get_distance(0, 1), atoms.get_angle(0, 1, 2), atoms.get_dihedral(0, 1, 2, 3), combination]
    found = [end.get_distance(0, 1), end.get_angle(0, 1, 2), end.get_dihedral(0, 1, 2, 3)]
    found.append(end.get_distance(0, 4) - 0.5 * end.get_distance(1, 5))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert abs(end.get_angle(4, 0, 1) - atoms.get_angle(4, 0, 1)) > 0.1  # the rest moves


def test_fixed_atoms_and_targets():
    atoms = ethanol([FixAtoms([2]), FixBondLengths([(0, 1)], bondlengths=[1.55])])
    problem = hx.Problem.from_ase(atoms)
    assert np.linalg.norm(problem.q0[0] - problem.q0[1]) == pytest.approx(1.55, abs=1e-12)
    sol = hx.simulate(problem, hx.RATTLE(), steps=20)
    np.testing.assert_allclose(sol.q[-1, 2], atoms.positions[2], rtol=0, atol=1e-12)


def test_frames_go_back_with_species_cell_and_time(tmp_path):
    water = Atoms("OH2", [[0.2, 0, 0], [9.3, 0.2, 0.3], [0.8, 9.4, 0]], cell=[10.0, 10.0, 10.0], pbc=True)
    water.set_constraint(FixBondLengths([(0, 1), (0, 2)]))  # across the border of the cell
    problem = hx.Problem.from_ase(water)
    near = water.get_distances(0, [1, 2], mic=True)
    np.testing.assert_allclose(np.linalg.norm(problem.q0[1:] - problem.q0[0], axis=1), near, rtol=1e-12)
    sol = hx.simulate(problem, hx.RATTLE(), steps=10)
    frames = sol.to_ase(every=5)
    assert [frame.info["time"] for frame in frames] == pytest.approx([0.0, 5 * ase.units.fs, 10 * ase.units.fs])
    sol.save(tmp_path / "water.extxyz", every=5)
    read: Any = ase.io.read(tmp_path / "water.extxyz", ":")
    for one, frame in zip(frames, read, strict=True):
        for atoms in (one, frame):
            assert atoms.get_chemical_formula() == "H2O" and atoms.pbc.all()
            np.testing.assert_allclose(atoms.cell, water.cell, rtol=1e-12)
        np.testing.assert_allclose(one.positions, frame.positions, rtol=1e-12)
        np.testing.assert_allclose(one.get_momenta(), frame.get_momenta(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(frames[0].get_masses(), water.get_masses(), rtol=1e-15)
    assert (
        problem.scene is not None
        and len(problem.scene.guides[0].lines) == 12
        and {g.species for g in problem.scene.particles} == {"O", "H"}
    )


def test_what_has_no_counterpart_is_named():
    with pytest.raises(hx.errors.InputError, match="FixScaled"):
        atoms = Atoms("H2", [[0, 0, 0], [0, 0, 0.7]], cell=[5, 5, 5], pbc=True, constraint=FixScaled([0], (1, 0, 0)))
        hx.Problem.from_ase(atoms)
    with pytest.raises(hx.errors.InputError, match="calculator Springs"):
        atoms = ethanol()
        atoms.calc = Springs(atoms.positions)
        hx.Problem.from_ase(atoms)
    with pytest.raises(hx.errors.InputError, match=r"needs an ase\.Atoms, not str"):
        hx.Problem.from_ase("CH4")
    with pytest.raises(hx.errors.ShapeError, match="to_ase needs"):
        hx.simulate(hx.models.planar_pendulum(), hx.RATTLE(), steps=2).to_ase()
