"""Pictures in one call."""

from __future__ import annotations

import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import holonomix as hx
from holonomix.core.errors import InputError
from holonomix.run.events import EventRecord
from holonomix.study.plotting import invariants, multipliers, poincare, spectrum
from holonomix.study.plotting.outlines import outlines
from holonomix.study.plotting.ticks import label_log_axis


@pytest.fixture(scope="module")
def solution():
    return hx.simulate(hx.models.four_bar(), hx.RATTLE(), steps=60)


def drawn(figure, tmp_path):
    figure.savefig(tmp_path / "x.png", dpi=40)
    return matplotlib.image.imread(tmp_path / "x.png")


def test_figures_are_shown_by_notebooks(solution):
    assert solution.plot()._repr_png_().startswith(b"\x89PNG")
    shown = solution._repr_html_()
    assert "data:image/png" in shown and "largest constraint error" in shown
    assert "data:image/png" in hx.models.four_bar()._repr_html_()


def test_the_anchors_of_a_linkage_are_drawn(solution):
    axes = solution.plot().axes[0]
    corners = [line.get_xydata() for line in axes.lines if line.get_marker() == "s"]
    assert len(corners) == 1 and len(corners[0]) == 2


def test_an_animation_has_frames_equally_spaced_in_time(solution, tmp_path):
    path = solution.animate(tmp_path / "x.gif", frames=4, dpi=30)
    with Image.open(path) as movie:
        assert movie.n_frames == 4
    with pytest.raises(InputError, match="cannot write x.bmp"):
        solution.animate(tmp_path / "x.bmp")


def test_phase_section_and_spectrum(solution, tmp_path):
    for figure in (solution.phase(), solution.phase(0, 1), poincare(solution), spectrum(solution, 2)):
        assert np.ptp(drawn(figure, tmp_path)) > 0.5
    for figure in (multipliers(solution), invariants(solution), invariants(solution, {"x": lambda q, p: q[0, 0]})):
        assert np.ptp(drawn(figure, tmp_path)) > 0.5
    labels = [line.get_label() for line in multipliers(solution).axes[0].lines]
    assert len(labels) == 3 and len(set(labels)) == 3
    with pytest.raises(InputError, match="4 entries"):
        solution.phase(9)


def test_sections_by_the_names_of_coordinates():
    system = hx.System(lambda q: 0.5 * jnp.sum(jnp.array([1.0, 2.0]) * q**2))
    problem = hx.Problem(system, np.array([1.0, 0.5]), np.zeros(2), dt=0.05, t1=50.0, coordinates=("x", "theta"))
    sol = hx.simulate(problem, hx.StormerVerlet())
    by_name, by_number = (hx.plotting.poincare(sol, *which).axes[0] for which in (("x", 0.0, "theta"), (0, 0.0, 1)))
    np.testing.assert_array_equal(by_name.lines[0].get_xydata(), by_number.lines[0].get_xydata())
    assert "where x rises through 0" in by_name.get_title() and by_name.get_xlabel() == "theta"
    assert hx.plotting.poincare(sol, "x").axes[0].get_xlabel() == "theta"
    with pytest.raises(hx.InputError, match="no angle 'y'; there are x, theta"):
        hx.plotting.poincare(sol, "y", 0.0, "theta")
    with pytest.raises(hx.InputError, match="both angles or both entries of q"):
        hx.plotting.poincare(sol, "angle 1")


def test_figures_contain_what_they_draw(tmp_path):
    problem = hx.models.bead_on_surface("torus")
    sol = hx.simulate(problem, hx.RATTLE(), steps=5)
    space = sol.plot().axes[0]
    grid = np.concatenate([np.reshape(line, (-1, 3)) for line in sol.scene.guides[0].lines])
    for k, name in enumerate("xyz"):
        low, high = getattr(space, f"get_{name}lim")()
        assert low < np.nanmin(grid[:, k]) and np.nanmax(grid[:, k]) < high
    flat = hx.Problem(hx.System(lambda q: q[0, 1], hx.Distance([(-1, 0)], 1.0)), [[1, 0]], [[0, 0]], dt=0.1, t1=1.0)
    low, high = hx.plotting.plot_problem(flat).axes[0].get_ylim()
    assert high - low > 0.4
    axes = Figure().add_subplot()
    axes.loglog([2e-3, 2e-2], [1e-5, 1e-3])
    label_log_axis(axes)
    assert [text.get_text() for text in axes.get_xticklabels() if 1.9e-3 < text.get_position()[0] < 2.1e-2] == [
        "2e-3", "5e-3", "1e-2", "2e-2",
    ]  # fmt: skip


def test_a_section_of_events_shows_every_passage():
    rng = np.random.default_rng(0)
    records = [EventRecord(np.arange(n), rng.normal(size=(n, 2)), rng.normal(size=(n, 2))) for n in (3, 5)]
    lines = poincare(records, show=1).axes[0].lines
    for line, record in zip(lines, records, strict=True):
        assert np.array_equal(line.get_xydata(), np.stack([record.q[:, 1], record.p[:, 1]], axis=1))
    assert len(poincare(records[0]).axes[0].lines) == 1


def test_an_ensemble_is_shown():
    problem = hx.models.planar_pendulum()
    q = np.repeat(np.asarray(problem.q0)[None], 3, axis=0)
    p = np.repeat(np.asarray(problem.p0)[None], 3, axis=0)
    for every in (None, 5):
        ensemble = hx.simulate_ensemble(problem.system, hx.RATTLE(), q, p, dt=0.01, steps=20, save_every=every)
        assert "data:image/png" in ensemble._repr_html_()


def test_outlines_of_a_body_turn_with_it():
    scene = hx.models.heavy_top().scene
    (axle, *_) = outlines(scene, np.eye(3), scene.frames[0])
    np.testing.assert_allclose(axle[1], [0, 0, 1.4], rtol=1e-13)
    turned = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])  # directors as points
    (axle, *_) = outlines(scene, turned, scene.frames[0])
    np.testing.assert_allclose(axle[1], [1.4, 0, 0], rtol=1e-13)


def test_rows_are_saved_in_the_format_of_the_name(solution, tmp_path):
    saved = np.load(solution.save(tmp_path / "run.npz", every=2))
    np.testing.assert_array_equal(saved["q"], solution.q[::2])
    assert "q[1,0]" in solution.save(tmp_path / "run.csv").read_text().splitlines()[0]
    assert solution.save(tmp_path / "run.xyz", species="C,O").read_text().splitlines()[2].startswith("C ")
    with pytest.raises(InputError, match="not .xyz, .extxyz, .npz or .csv"):
        solution.save(tmp_path / "run.pdf")


def test_a_mechanism_is_shown_also_while_it_is_not_finished():
    m = hx.Mechanism(gravity=(0, 0, -9.81))
    assert "no picture yet" in m._repr_html_()
    crank = m.body("crank", mass=1.0, inertia=[0.01, 0.09, 0.09], position=(0.5, 0, 0))
    m.revolute("shoulder", m.ground, crank, at=(0, 0, 0), axis=(0, 1, 0))
    assert "data:image/png" in m._repr_html_() and "1 bodies" in m._repr_html_()


def test_sections_and_spectra_in_angles_are_the_same_in_both_coordinates():
    run = {"dt": 0.01, "t1": 60.0}
    flat = hx.simulate(hx.models.double_pendulum(), hx.RATTLE(), **run)
    angles = hx.simulate(hx.models.double_pendulum_angles(), hx.ImplicitMidpoint(), **run)
    found = [poincare(x, "angle 1", 0.0, "angle 2").axes[0].lines[0].get_xydata() for x in (flat, angles)]
    assert len(found[0]) == len(found[1]) > 5
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=0.02)
    one, two = (spectrum(x, "angle 2").axes[0].lines[0].get_xydata() for x in (flat, angles))
    np.testing.assert_allclose(one[:40], two[:40], rtol=0, atol=5e-3)
    with pytest.raises(hx.errors.InputError, match="angle 1, angle 2"):
        poincare(flat, "angle 3", 0.0, "angle 1")
    watched = hx.simulate(
        hx.models.double_pendulum(), hx.RATTLE(), dt=0.05, steps=64, observe={"tip": lambda q, p: q[1, 1]}
    )
    assert "tip" in spectrum(watched, "tip").axes[0].get_ylabel()
