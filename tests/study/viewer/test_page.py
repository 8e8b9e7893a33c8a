"""The page of a run: what is drawn, what it weighs, and that names from a run are text."""

from __future__ import annotations

import base64
import html
import json
import re
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.core.scene import Bond, Scene
from holonomix.mechanics.scenes import particle_scene, scene_of
from holonomix.run.io import EnsembleStore, verify
from holonomix.run.io.stores import unfinished
from holonomix.study.viewer import follow, page_of, write_page
from holonomix.study.viewer.page import _near, _windows
from holonomix.study.viewer.recording import Recording, _fits, from_solution

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&"


def content(page: str) -> dict:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def recording(rows: int = 50, count: int = 2, name: str = "run", **options) -> Recording:
    t = np.linspace(0.0, 1.0, rows)
    angle = 3 * t[:, None] + np.arange(count)
    q = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    scene = options.pop("scene", particle_scene((count, 2), [(-1, 0), (0, 1)]))
    charts = {name: (False, lambda part: q[part, 0])}
    return Recording(name, {name: name}, scene, t, lambda part: q[part], charts, {name: (name, "y")}, **options)


def test_a_page_needs_no_network_and_keeps_the_licenses():
    page = page_of(recording())
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", page)
    assert "default-src 'none'" in page
    assert page.count("Permission is hereby granted") == 2 and "three.js authors" in page and "Leon Sorokin" in page


def test_names_from_a_run_are_text():
    page = page_of(recording(name=HOSTILE))
    assert page.count("<script") == 9 and page.count("</script>") == 9
    assert "<img" not in page
    assert content(page)["charts"][0]["title"] == HOSTILE


def test_coordinates_are_those_of_the_rows():
    run = recording(50)
    data = content(page_of(run))
    x = np.frombuffer(base64.b64decode(data["windows"][0]["x"]), "<f4").reshape(50, 2, 2)
    np.testing.assert_array_equal(x, np.asarray(run.q(slice(None)), np.float32))
    t = np.frombuffer(base64.b64decode(data["windows"][0]["t"]), "<f8")
    np.testing.assert_array_equal(t, run.t)


def test_a_long_run_is_shown_as_stretches_of_consecutive_rows_and_envelopes():
    run = recording(100_000)
    data = content(page_of(run))
    assert len(data["windows"]) == 4 and sum(w["count"] for w in data["windows"]) == 2000
    for w in data["windows"]:
        t = np.frombuffer(base64.b64decode(w["t"]), "<f8")
        np.testing.assert_allclose(np.diff(t), 1e-5, rtol=1e-3)
    series, whole = data["charts"][0]["series"][0], np.asarray(run.q(slice(None)))[:, 0, 0]
    low, high = (np.frombuffer(base64.b64decode(series[k]), "<f4") for k in ("low", "high"))
    assert low.min() == np.float32(whole.min()) and high.max() == np.float32(whole.max()) and np.all(low <= high)
    window = np.frombuffer(base64.b64decode(series["window"]), "<f4")
    assert np.isnan(window[500]) and np.isnan(window).sum() == 4, "curves of different windows are not joined"


def test_rows_far_apart_are_not_joined():
    angle = np.arange(100.0)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None]
    assert not _near(circle)
    slow = np.stack([np.cos(angle / 50), np.sin(angle / 50)], axis=1)[:, None]
    assert _near(slow)


@pytest.mark.parametrize(("total", "frames"), [(10, 2000), (5000, 2000), (2001, 100)])
def test_windows_are_inside_the_run(total, frames):
    parts = _windows(total, frames)
    assert parts[0].start == 0 and parts[-1].stop == total


@pytest.mark.parametrize("count", [2, 21, 400])
def test_a_page_weighs_less_than_two_megabytes(count):
    assert len(page_of(recording(2000, count)).encode()) < 2_000_000


def test_distances_become_bonds_with_their_anchors():
    system = hx.System(
        lambda q: jnp.sum(q[:, 1]),
        [hx.Distance([[-1, 0], [0, 1]], anchors=[[5.0, 0.0]]), hx.Distance([[-1, 1]], anchors=[[0.0, 7.0]])],
    )
    scene = scene_of(system, (2, 2))
    assert scene is not None and scene.anchors == ((5.0, 0.0), (0.0, 7.0))
    assert [(b.a, b.b, b.kind) for b in scene.bonds] == [
        (-1, 0, "bar"),
        (0, 1, "bar"),
        (-2, 1, "bar"),
        (-1, -2, "ground"),
    ]


@pytest.mark.parametrize("shape", [(5,), (2, 3, 3), (3, 4), ()])
def test_coordinates_that_are_no_positions_have_no_scene(shape):
    assert particle_scene(shape, ()) is None


def test_three_particles_in_space_are_no_rotation_but_a_body_is():
    assert hx.models.tethered_satellites().scene is None  # three particles, from the shape of q
    top = hx.models.heavy_top().scene
    assert top is not None and top.layout == "rotation"
    turn = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(top.points(turn[None])[0], turn.T)


@pytest.mark.parametrize("name", ["cosserat_rod", "heavy_top", "rigid_body", "water_cluster"])
def test_scenes_of_models_fit_their_coordinates(name):
    problem = getattr(hx.models, name)()
    assert _fits(problem.scene, problem.q0.shape)
    assert Scene.from_dict(json.loads(json.dumps(problem.scene.as_dict()))) == problem.scene


def test_a_scene_that_does_not_fit_is_refused():
    assert not _fits(Scene(2, bonds=(Bond(0, 9),)), (2, 2))
    assert not _fits(Scene(2, anchors=((float("nan"), 0.0),)), (2, 2))
    assert not _fits(Scene(3), (2, 2))


def test_a_store_and_a_solution_give_the_same_picture(tmp_path):
    problem = hx.models.four_bar()
    sol = hx.simulate(problem, hx.RATTLE(), steps=20, store=tmp_path / "run")
    stored = content(write_page(tmp_path / "run", tmp_path / "run" / "view.html").read_text())
    kept = content(sol.view(tmp_path / "kept.html").read_text())
    assert stored["scene"] == kept["scene"] and len(stored["scene"]["anchors"]) == 2
    assert stored["windows"] == kept["windows"]


def test_a_run_in_progress_is_followed_until_it_ends(tmp_path, monkeypatch):
    problem, path = hx.models.planar_pendulum(), tmp_path / "run"
    hx.simulate(problem, hx.RATTLE(), steps=10, store=path)
    states = iter(["running", "running", "closed"])
    monkeypatch.setattr("holonomix.study.viewer.page.Store.status", property(lambda self: {"state": next(states)}))
    written = []
    page = tmp_path / "view.html"
    monkeypatch.setattr(
        "time.sleep", lambda seconds: written.append(page.exists() and content(page.read_text())["reload"])
    )
    follow(path, page, seconds=2.0)
    assert written == [False, 2.0], "a page that loads itself again"
    assert content(page.read_text())["reload"] == 0.0, "the last page stays as it is"


def test_forces_of_the_constraints_come_from_the_run_or_from_its_multipliers(tmp_path):
    problem = hx.models.double_pendulum()
    sol = hx.simulate(problem, hx.RATTLE(), steps=30, store=tmp_path / "run")
    want = sum(sol.constraint_forces().values())
    for source in (sol, tmp_path / "run"):
        data = content(write_page(source, tmp_path / "page.html").read_text())
        codes = np.frombuffer(base64.b64decode(data["windows"][0]["f"]), "<i2").reshape(31, 2, 2)
        np.testing.assert_allclose(codes / 32767 * data["largestForce"], want, rtol=0, atol=1e-4 * np.abs(want).max())


def test_a_spectrum_and_a_section_find_the_frequency():
    t = np.arange(0, 400.0, 0.1)
    q, p = np.cos(2 * t)[:, None], -2 * np.sin(2 * t)[:, None]
    run = Recording("oscillator", {}, None, t, lambda part: q[part], {}, {}, p=lambda part: p[part])
    found = content(page_of(run))["portraits"]
    floats = lambda text: np.frombuffer(base64.b64decode(text), "<f4")
    w, a = floats(found["spectrum"]["w"]), floats(found["spectrum"]["a"][0])
    assert abs(w[np.argmax(a)] - 2) < 0.05 and abs(a.max() - 1) < 0.1
    section = found["sections"][0]
    assert section["count"] == 127 and section["level"] == 0.0  # 400 * 2 / (2 pi) periods
    np.testing.assert_allclose(floats(section["p"][0]), 2.0, rtol=0, atol=0.03)


def test_portraits_have_the_names_of_coordinates():
    system = hx.System(lambda q: 0.5 * jnp.sum(jnp.array([1.0, 2.0]) * q**2))
    problem = hx.Problem(system, [1.0, 0.5], [0.0, 0.0], dt=0.05, t1=5.0, coordinates=("x", "theta"))
    sol = hx.simulate(problem, hx.StormerVerlet())
    assert content(page_of(from_solution(sol)))["portraits"]["names"] == [["x", "p_x"], ["theta", "p_theta"]]
    plain = hx.simulate(system, hx.StormerVerlet(), [1.0, 0.5], [0.0, 0.0], dt=0.05, steps=50)
    assert content(page_of(from_solution(plain)))["portraits"]["names"] == [["q[0]", "p[0]"], ["q[1]", "p[1]"]]


def test_an_ensemble_is_shown_as_ghosts_and_as_a_map(tmp_path):
    problem, angles = hx.models.planar_pendulum(), np.linspace(0.2, 1.0, 60)
    q = np.stack([np.sin(angles), -np.cos(angles)], axis=1).reshape(60, *problem.q0.shape)
    top = {"top": hx.reductions.Maximum(lambda q, p: jnp.ravel(q)[1])}
    options = {"dt": 0.1, "steps": 20, "coordinates": {"angle": angles}, "reduce": top}
    moving = hx.simulate_ensemble(problem, hx.RATTLE(), q, 0 * q, save_every=1, **options)
    data = content(moving.view(tmp_path / "a.html").read_text())
    assert data["points"] == 40 and len(data["scene"]["bonds"]) == 40 and data["windows"][0]["count"] == 21
    drawn = [k for group in data["scene"]["particles"] for k in group["indices"]]
    assert sorted(drawn) == list(range(40)) and len(data["scene"]["particles"]) == 8
    hx.simulate_ensemble(problem, hx.RATTLE(), q, 0 * q, store=tmp_path / "store", **options)
    ends = content(write_page(tmp_path / "store", tmp_path / "b.html").read_text())
    for page in (data, ends):
        value = np.frombuffer(base64.b64decode(page["map"]["values"][0]["values"]), "<f4")
        np.testing.assert_allclose(value, -np.cos(angles), rtol=0, atol=1e-4)  # released at rest: never higher
        assert page["map"]["x"]["name"] == "angle" and page["map"]["y"] is None


@pytest.mark.parametrize("blocks", [0, 2])
@pytest.mark.filterwarnings("error:All-NaN")
def test_the_page_of_an_unfinished_ensemble_shows_what_is_there(tmp_path, blocks):
    q = np.arange(80.0).reshape(80, 1, 1, 1) + 0.001 * np.arange(5.0)[:, None, None] * np.ones(2)
    store = EnsembleStore.create(
        tmp_path / "s", trajectories=80, rows={"q": q[0], "p": q[0]}, t=0.1 * np.arange(5), block=10
    )
    for block in range(blocks):
        part = slice(*store.bounds(block))
        store.write_block(block, {"q": q[part], "p": q[part]}, {}, np.zeros(10))
    page = write_page(tmp_path / "s", tmp_path / "s.html").read_text()
    assert f"{20 if blocks else 40} of 80 trajectories" in page
    assert verify(tmp_path / "s") == [] and unfinished(tmp_path / "s").startswith(f"; {80 - 10 * blocks} of 80 ")


def test_a_certificate_becomes_a_table():
    given = {
        "method": "M",
        "problem": HOSTILE,
        "dt": 0.1,
        "findings": [{"name": "order", "measured": 1.0, "kept": False}],
    }
    page = page_of(recording(), certificate=given)
    table = content(page)["tables"][-1]
    assert table["rows"] == [["order", "1", "", "FAILED"]] and page.count("<script") == 9


def test_a_notebook_shows_the_page_below_the_cell(monkeypatch):
    shown, opened = [], []
    display = types.SimpleNamespace(HTML=lambda text: text, display=shown.append)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr("webbrowser.open", opened.append)
    sol = hx.simulate(hx.models.planar_pendulum(), hx.RATTLE(), steps=3)
    page = sol.view()
    assert not opened and len(shown) == 1
    source = re.search('srcdoc="([^"]*)"', shown[0])
    assert source is not None and html.unescape(source[1]) == page.read_text()
    sol.view(page)
    assert len(shown) == 1
    monkeypatch.delitem(sys.modules, "IPython")
    sol.view()
    assert len(shown) == 1 and len(opened) == 1
