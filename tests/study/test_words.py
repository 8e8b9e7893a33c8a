"""What a new user reads: problems, sweeps, errors, legends and recommendations in words that fit."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.study.certificates.comparison import Comparison, Curve, Level
from holonomix.study.certificates.table import winners
from holonomix.study.cli.sweep import axes_of, grid_of, points_of
from holonomix.study.viewer.ensembles import from_ensemble
from holonomix.study.viewer.recording import from_solution


def test_a_problem_prints_as_three_lines():
    lines = str(hx.models.double_pendulum()).splitlines()
    assert lines[0] == "Problem double pendulum" and len(lines) == 3
    assert "(2, 2), 2 constraints" in lines[1] and "dt = 0.05, t1 = 50" in lines[2]


def test_the_axes_of_a_sweep_multiply_to_its_runs():
    axes, draws, seed = axes_of({"a": [1.0, 2.0, 3.0], "b": {"normal": [0.0, 1.0]}, "c": [5.0, 5.0], "draws": 10})
    grid = grid_of(axes, draws)
    assert grid == {"a": 3, "c": 2, "draws of b": 10}
    assert math.prod(grid.values()) == len(points_of(axes, draws, seed)["b"])


def test_the_error_of_hbvm_names_hbvm():
    moving = hx.System(lambda q: q[1], hx.Rheonomic(lambda q, t: q[:1] - t))
    for method, name in (
        (hx.HBVM(2, 2), r"HBVM\(2, 2\) = Gauss\(2\) needs"),
        (hx.HBVM(4, 2), r"^HBVM\(4, 2\) n"),
    ):
        with pytest.raises(hx.MethodError, match=name):
            hx.simulate(moving, method, [0.0, 0.0], [1.0, 0.0], dt=0.1, steps=1)
    springs = hx.System(lambda q: 1e6 * jnp.sum(q**2))
    with pytest.raises(hx.MethodError, match=r"Give the stiff springs apart.*hx.StiffSystem\(slow, stiff"):
        hx.simulate(springs, hx.ProjectedImpulse(), [0.0, 0.0], [1.0, 0.0], dt=0.1, steps=1)
    with pytest.raises(hx.InconsistentStateError, match=r"G v \+ dg/dt.* is -1 instead of 0"):
        hx.simulate(moving, hx.RATTLE(), [0.0, 0.0], [0.0, 0.0], dt=0.1, steps=1)


@pytest.mark.slow
def test_a_step_of_hbvm_that_fails_names_hbvm():
    with pytest.raises(hx.ConvergenceError, match=r"^HBVM\(2, 2\) = Gauss\(2\): the nonlinear"):
        hx.simulate(hx.models.double_pendulum(), hx.HBVM(2, 2), dt=3.0, steps=1)


def curve(name, seconds, drift):
    levels = tuple(Level(h, 1, seconds / h, h**2, 0.0, 0.0, "") for h in (0.1, 0.01))
    return Curve(name, "as it is", levels, None, drift, 5.0)


def test_a_method_that_drifts_is_not_recommended():
    fast, slow = curve("fast", 1.0, 1.9), curve("slow", 2.0, 1e-9)
    found = Comparison("p", 0.1, 1.0, "closed form", 1e-16, 1.0, (fast, slow), 50.0)
    assert set(found.cheapest.values()) == {"slow"} and "fast (1.9e+00)" in winners(found)
    assert "q error" in str(found) and str(found).endswith(winners(found))
    driven = Comparison("p", 0.1, 1.0, "closed form", 1e-16, 1.0, (fast, slow), 50.0, keeps_energy=False)
    assert set(driven.cheapest.values()) == {"fast"}  # there the energy changes by work
    assert (
        curve("x", 1.0, math.nan).name
        in Comparison("p", 0.1, 1.0, "", 1e-16, 1.0, (curve("x", 1.0, math.nan), slow)).drifting
    )


def test_legends_name_constraints():
    rod = hx.Distance([(-1, 0)], 1.0, name="rod")
    system = hx.System(lambda q: q[0, 1], [rod, lambda q: q[0, 2:3]])
    sol = hx.simulate(system, hx.RATTLE(), [[1.0, 0.0, 0.0]], np.zeros((1, 3)), dt=0.01, steps=2)
    assert from_solution(sol).names["multipliers"] == ("rod", "constraint 1")
    shown = [text.get_text() for text in hx.plotting.multipliers(sol).axes[0].get_legend().get_texts()]
    assert shown == ["rod", "constraint 1"]


@pytest.mark.parametrize("ending", ["xyz", "extxyz"])
def test_save_takes_a_list_of_species_and_a_cell(ending, tmp_path):
    io = pytest.importorskip("ase.io")
    sol = hx.simulate(hx.models.double_pendulum(), hx.RATTLE(), steps=4)
    path = sol.save(tmp_path / f"run.{ending}", every=2, species=["O", "H"], cell=[4.0, 5.0, 6.0])
    frames = io.read(path, ":", format="extxyz")
    assert len(frames) == 3 and frames[0].get_chemical_symbols() == ["O", "H"]
    np.testing.assert_array_equal(frames[2].positions[:, :2], sol.q[4])
    np.testing.assert_array_equal(frames[0].cell.lengths(), [4.0, 5.0, 6.0])
    with pytest.raises(hx.HolonomixError, match="3 species for 2 particles"):
        sol.save(path, species="O, H,H")


TURNING = hx.System(
    lambda q: 9.81 * q[2],
    [
        lambda q: jnp.array([q @ q - 1.0]),
        hx.Rheonomic(lambda q, t: jnp.array([jnp.cos(4.0 * t) * q[1] - jnp.sin(4.0 * t) * q[0]])),
    ],
)


def test_the_projection_that_an_error_suggests_makes_the_start_consistent():
    q, p = hx.project(TURNING, jnp.array([0.6, 0.0, -0.8]), jnp.zeros(3))  # consistent at t = 0, not at t = 0.3
    with pytest.raises(hx.errors.InconsistentStateError, match=r"hx.project\(system, q, p, t=0.3\)"):
        hx.simulate(TURNING, hx.RATTLE(), q, p, t0=0.3, dt=0.01, steps=1)
    q, p = hx.project(TURNING, q, p, t=0.3)
    assert hx.simulate(TURNING, hx.RATTLE(), q, p, t0=0.3, dt=0.01, steps=1).constraint_error().max() < 1e-12
    with pytest.raises(hx.errors.InconsistentStateError, match=r"hx.project\(system, q, p\)`"):
        hx.simulate(TURNING, hx.RATTLE(), q, p, dt=0.01, steps=1)


SWUNG = hx.System(
    lambda q, params: params["g"] * q[1],
    lambda q, params: jnp.array([q @ q - params["length"] ** 2]),
    params={"g": 9.81, "length": 1.0},
)


def test_another_number_of_starts_than_of_parameters_is_named():
    starts = np.tile([1.0, 0.0], (7, 1))
    with pytest.raises(hx.errors.ShapeError, match=r"q0 has 7, p0 has 7, params\['g'\] has 5"):
        hx.simulate_ensemble(SWUNG, hx.RATTLE(), starts, 0 * starts, params={"g": np.ones(5)}, dt=0.01, steps=1)


def test_a_start_off_the_manifold_of_its_own_parameters_says_which_system():
    lengths = {"length": np.array([1.0, 2.0])}
    with pytest.raises(hx.errors.InconsistentStateError, match=r"trajectory 1 .*system.with_params\(...\)"):
        hx.simulate_ensemble(SWUNG, hx.RATTLE(), [1.0, 0.0], [0.0, 0.0], params=lengths, dt=0.01, steps=1)


def test_errors_about_parameters_say_what_functions_receive():
    start = hx.RATTLE(), jnp.array([1.0, 0.0]), jnp.zeros(2)
    whole = hx.System(lambda q, k: k * q[1], params={"k": 2.0})
    with pytest.raises(hx.errors.InputError, match=r"\(q, params\) .*params\['k'\]; its names are 'k'"):
        hx.simulate(whole, *start, dt=0.01, steps=1)
    pushed = hx.System(lambda q: q[1], force=lambda q, v, t, params: -params["drag"] * v, params={"friction": 0.1})
    with pytest.raises(hx.errors.InputError, match=r"KeyError: 'drag'.*\(q, v, t, params\).*names are 'friction'"):
        hx.simulate(pushed, *start, dt=0.01, steps=1)
    with pytest.raises(hx.errors.InputError, match=r"has no params.*hx.System\(..., params=...\)"):
        hx.System(lambda q: q[1]).with_params({"k": 1.0})


def test_a_method_in_quotes_is_answered_with_its_class():
    problem = hx.models.planar_pendulum()
    with pytest.raises(hx.errors.MethodError, match=r"not 'geodesic-baoab'; write hx.GeodesicBAOAB\(\)"):
        hx.simulate(problem, "geodesic-baoab")  # type: ignore[arg-type]
    with pytest.raises(hx.errors.MethodError, match="not 'verlet'$"):
        hx.simulate(problem, "verlet")  # type: ignore[arg-type]


def test_methods_print_their_numbers():
    thermostat = hx.GLA(hx.RATTLE(hx.SOR(1.7)), friction=0.3, temperature=2.0)
    assert "friction=0.3, temperature=2," in repr(thermostat) and "omega=1.7" in repr(thermostat)
    assert repr(hx.RATTLE()) == "RATTLE()" and repr(hx.ZhangSkeel(0.4)) == "ZhangSkeel(beta=0.4)"


def test_results_say_how_to_get_a_row_and_a_quantity():
    sol = hx.simulate(hx.models.double_pendulum(), hx.RATTLE(), steps=4)
    with pytest.raises(TypeError, match=r"row 1 \(of an ensemble, trajectory 1\) is .q\[1\]"):
        sol[1]
    with pytest.raises(hx.errors.InputError, match="angle 1, angle 2, the entries 0 to 3 of q"):
        hx.plotting.spectrum(sol, "height")


def test_the_legend_of_an_ensemble_names_its_coordinates():
    k = np.array([1.0, 2.0, 4.0])
    run = {"params": {"g": k}, "dt": 0.01, "steps": 4, "save_every": 2}
    named = hx.simulate_ensemble(SWUNG, hx.RATTLE(), [1.0, 0.0], [0.0, 0.0], coordinates={"g": k}, **run)
    assert from_ensemble(named).names["last entry of q"] == ("g 1", "g 2", "g 4")
    same = hx.simulate_ensemble(SWUNG, hx.RATTLE(), [1.0, 0.0], [0.0, 0.0], coordinates={"g": 1 + 1e-9 * k}, **run)
    assert from_ensemble(same).names["last entry of q"] == ("trajectory 0", "trajectory 1", "trajectory 2")
