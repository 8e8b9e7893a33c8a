"""Extended XYZ, read back with ASE."""

from __future__ import annotations

import numpy as np
import pytest
from ase.io import read

from holonomix.run.io import Store, StoreError, export_xyz


def make(path, shape, rows=7):
    dice = np.random.default_rng(3)
    values = {"t": 0.1 * np.arange(rows), "q": dice.normal(size=(rows, *shape)), "p": dice.normal(size=(rows, *shape))}
    values["obs/energy"] = dice.normal(size=rows)
    store = Store(path)
    store.begin({})
    store.append(values)
    store.close()
    return values


def test_ase_reads_every_bit(tmp_path):
    values = make(tmp_path / "run", (4, 3))
    assert export_xyz(tmp_path / "run", tmp_path / "run.xyz", species=["O", "H", "H", "C"]) == 7
    frames = read(tmp_path / "run.xyz", index=":")
    assert len(frames) == 7
    for n, frame in enumerate(frames):
        assert frame.get_chemical_symbols() == ["O", "H", "H", "C"]
        assert np.array_equal(frame.positions, values["q"][n])
        assert np.array_equal(frame.arrays["momenta"], values["p"][n])
        assert frame.info["Time"] == values["t"][n]
        assert frame.get_potential_energy() == values["obs/energy"][n]


@pytest.mark.parametrize(
    ("shape", "dimension", "particles"), [((2, 2), None, 2), ((4,), None, 2), ((6,), 2, 3), ((6,), None, 2)]
)
def test_planar_and_flat_positions(tmp_path, shape, dimension, particles):
    values = make(tmp_path / "run", shape)
    export_xyz(Store(tmp_path / "run", "read"), tmp_path / "run.xyz", dimension=dimension, every=3)
    frames = read(tmp_path / "run.xyz", index=":")
    assert len(frames) == 3 and len(frames[0]) == particles
    flat = frames[1].positions[:, : values["q"][3].size // particles]
    assert np.array_equal(flat.ravel(), values["q"][3].ravel())


def test_shapes_that_are_not_particles(tmp_path):
    make(tmp_path / "run", (5,))
    with pytest.raises(StoreError, match="dimension"):
        export_xyz(tmp_path / "run", tmp_path / "run.xyz")
    with pytest.raises(StoreError, match="2 species for 5"):
        export_xyz(tmp_path / "run", tmp_path / "run.xyz", species=["H", "O"], dimension=1)
    assert not (tmp_path / "run.xyz").exists()
