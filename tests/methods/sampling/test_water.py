"""TIP3P clusters: parameters, units, starts, and the paper's comparison of rigid and stiff molecules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.build.models.water import UNITS, oxygen_distances, radial_histogram
from holonomix.study.papers.tao_owhadi2015_water import ITEMS, compare_distances, multipliers, nve, total_variation


def energy_by_hand(q):
    """The TIP3P energy in kcal/mol, pair by pair."""
    charge, total = (-0.834, 0.417, 0.417), 0.0
    molecules = np.asarray(q).reshape(-1, 3, 3)
    for a in range(len(molecules)):
        for b in range(a):
            for i in range(3):
                for j in range(3):
                    total += 332.0637 * charge[i] * charge[j] / np.linalg.norm(molecules[a, i] - molecules[b, j])
            r = np.linalg.norm(molecules[a, 0] - molecules[b, 0])
            total += 582_000.0 / r**12 - 595.0 / r**6
    return total


def energy(water):
    return float(potential_energy(water.system, water.q0))


@eqx.filter_jit
def potential_energy(system, q):
    return system.potential(q)


def test_energy_and_units():
    kcal, ev = (hx.models.water_cluster(7, units=units) for units in ("kcal/mol", "eV"))
    np.testing.assert_array_equal(kcal.q0, ev.q0)
    assert energy(kcal) == pytest.approx(energy_by_hand(kcal.q0), rel=1e-13)
    assert energy(ev) * 23.0605478 == pytest.approx(energy_by_hand(kcal.q0), rel=1e-8)
    assert UNITS["eV"].femtoseconds == pytest.approx(10.1805, abs=1e-4)
    assert ev.dt == pytest.approx(0.05, rel=1e-4)
    assert UNITS["eV"].boltzmann * 232 == pytest.approx(1 / 50, rel=1e-3)
    stiff = hx.models.water_cluster(2, units="eV", rigid=False)
    assert 1 / float(stiff.system.epsilon) == pytest.approx(20.0, rel=1e-3)


@pytest.mark.parametrize("n", [1, 2, 7, pytest.param(27, marks=pytest.mark.slow)])
def test_starts_are_consistent_relaxed_and_repeatable(n):
    water = hx.models.water_cluster(n)
    assert float(jnp.max(jnp.abs(water.system.constraint(water.q0)))) < 1e-14
    assert float(jnp.max(jnp.abs(water.system.hidden_constraint(water.q0, water.p0)))) < 1e-14
    np.testing.assert_allclose(jnp.sum(water.p0, axis=0), 0.0, rtol=0, atol=1e-12)
    if n > 1:
        assert float(jnp.min(oxygen_distances(water.q0))) > 2.5
        atoms = np.asarray(water.q0)
        apart = np.linalg.norm(atoms[:, None] - atoms[None], axis=-1)
        other = np.arange(3 * n)[:, None] // 3 != np.arange(3 * n)[None] // 3
        assert apart[other].min() > 1.5
        # bound by several kcal/mol a molecule, as clusters of this size are
        assert energy(water) / n < (-3.0 if n == 2 else -6.0)
    if n == 2:  # the TIP3P dimer has its minimum at -6.5 kcal/mol (Jorgensen et al. 1983)
        assert energy(water) == pytest.approx(-6.5, abs=0.15)
    np.testing.assert_array_equal(water.q0, hx.models.water_cluster(n).q0)
    assert n == 1 or np.max(np.abs(water.q0 - hx.models.water_cluster(n, seed=5).q0)) > 0.1


def test_what_is_not_a_cluster_is_refused():
    for bad in ({"n": 0}, {"units": "joule"}, {"temperature": -3.0}):
        with pytest.raises(hx.InputError):
            hx.models.water_cluster(**bad)


def test_multipliers_are_solved_molecule_by_molecule():
    water = hx.models.water_cluster(7)
    assert water.system.structure(water.q0) == "7 independent blocks of 3 rows"


@pytest.mark.slow
def test_native_and_array_agree():
    water = hx.models.water_cluster(2)
    bath, options = hx.GLA(hx.RATTLE(), 1.0, 0.4), {"dt": water.dt, "steps": 50, "key": jax.random.key(0)}
    start = water.system, bath, water.q0, water.p0
    runs = [hx.simulate(*start, backend=backend, **options) for backend in ("array", "native")]
    np.testing.assert_allclose(runs[0].q, runs[1].q, rtol=0, atol=1e-10)


def test_histogram():
    center, share = radial_histogram(np.zeros((1, 6, 3)) + np.array([[0, 0, 0]] * 3 + [[3.02, 0, 0]] * 3))
    assert share.sum() == 1.0 and center[np.argmax(share)] == pytest.approx(3.025)
    assert total_variation(share, np.roll(share, 1)) == 1.0


@pytest.mark.slow
def test_energy_and_momenta_without_noise():
    found = nve(20_000)
    size = {name: np.ptp(series["energy"]) for name, series in found.items()}
    assert size["RATTLE"] < 5e-4 and size["stiff Z&Ss"] < 6e-3
    # the energy error follows the configuration: over eight starts the means of the two halves differ by up to 1.8e-4
    # eV for Z&Ss, with either sign
    drift = {name: np.mean(s["energy"][500:]) - np.mean(s["energy"][:500]) for name, s in found.items()}
    assert abs(drift["RATTLE"]) < 5e-5 and abs(drift["stiff Z&Ss"]) < 3e-4
    # the control drifts
    assert drift["one-iteration Newmark"] > 0.05
    for name, series in found.items():
        assert np.max(series["linear momentum"]) < 1e-13
        assert np.max(series["angular momentum"]) < (1e-12 if name == "RATTLE" else 0.1)
    assert np.max(found["stiff Z&Ss"]["angular momentum"]) > 1e-4


@pytest.mark.slow
def test_rigid_and_stiff_clusters_have_one_distribution():
    found = compare_distances(7, 240_000, 8)  # 122 ps each
    assert found["across"] < 1.5 * found["within"] and found["within"] < 0.06
    for heat in found["temperature"].values():
        assert abs(heat.mean() - 1) < 0.03


@pytest.mark.slow
def test_multipliers_of_stiff_water():
    found = multipliers(2.0)
    size, error = (np.sqrt(np.mean(x**2)) for x in (found["rigid"], found["stiff"] - found["rigid"]))
    assert error < 0.02 * size
    assert np.std(found["raw"]) > 10 * error


def test_items():
    assert [item.name for item in ITEMS] == ["figure4", "figure5", "figure6", "figure7"]
