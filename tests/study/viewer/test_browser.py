"""The page in a real browser: it plays, follows the time, shows the store's numbers, and runs no name as code."""

from __future__ import annotations

import time

import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.scenes import particle_scene
from holonomix.run.io import Store
from holonomix.study.viewer import page_of, write_page
from holonomix.study.viewer.recording import Recording
from tests.browser import Browser, needs_chromium

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>&"

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    place, n = tmp_path_factory.mktemp("browser") / "run", 121
    t = np.linspace(0.0, 9.0, n)
    angle = 1.5 * t[:, None] + np.arange(2)
    q = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    scene = particle_scene((2, 2), [(-1, 0), (0, 1)], rows=[0, 1])
    with Store(place) as store:
        store.restart()
        store.begin({"steps": n - 1, "shape": [2, 2], "scene": scene.as_dict()})
        p, waves = np.roll(q, 1, axis=2) * [-1.0, 1.0], np.sin(angle)
        rows = {"t": t, "n": np.arange(n), "q": q, "p": p, "multipliers": waves + 2, HOSTILE: waves, "energy": t}
        store.append(rows)
        store.checkpoint({}, {})
    page = write_page(place, place / "view.html")
    return place, page


def points(browser):
    return np.array(browser.ask("Array.from(drawing.points)")).reshape(-1, 3)[:, :2]


def test_coordinates_are_those_of_the_store_and_names_are_text(browser, store):
    place, page = store
    browser.size(1200, 900)
    browser.open(page)
    rows = Store(place, "read").load()
    for k in (0, 57, 120):
        browser.ask(f"seek({float(rows['t'][k])!r})")
        np.testing.assert_allclose(points(browser), rows["q"][k], rtol=0, atol=1e-6)
        assert browser.ask("state.t") == rows["t"][k]
    assert browser.ask("document.images.length") == 0 and browser.ask("document.scripts.length") == 9
    assert HOSTILE.replace("/", "_") in browser.ask("[...document.querySelectorAll('h2')].map((h) => h.textContent)")
    assert not browser.messages


def test_it_plays_and_the_slider_the_keys_and_the_charts_move_it(browser, store):
    browser.open(store[1], "autoplay")
    for _ in range(200):
        if browser.ask("Number(document.documentElement.dataset.frames || 0)") >= 3:
            break
        time.sleep(0.02)
    assert browser.ask("Number(document.documentElement.dataset.frames)") >= 3 and browser.ask("state.t") > 0
    browser.ask("play(false)")
    browser.ask("by('time').value = 500; by('time').oninput({ target: by('time') })")
    end = browser.ask("data.t1")
    assert browser.ask("state.t") == pytest.approx(end / 2)
    browser.ask("dispatchEvent(new KeyboardEvent('keydown', { key: 'End' }))")
    assert browser.ask("state.t") == end
    where = "source.charts[0].plot.over.getBoundingClientRect()"
    at = f"{where}.left + source.charts[0].plot.valToPos({end / 4}, 'x')"
    event = f"new PointerEvent('pointerdown', {{ buttons: 1, clientX: {at}, clientY: {where}.top + 5 }})"
    browser.ask(f"source.charts[0].plot.over.dispatchEvent({event})")
    assert browser.ask("state.t") == pytest.approx(end / 4, abs=end / 100)
    assert not browser.messages


@pytest.mark.parametrize("width", [1200, 390])
def test_every_tab_fits_and_draws(browser, store, width):
    browser.size(width, 800)
    browser.open(store[1])
    tabs = "[...document.querySelectorAll('#tabs button')]"
    assert browser.ask(f"{tabs}.map((b) => b.textContent)") == ["Time", "Phase", "Section", "Spectrum", "Kept"]
    for k in range(5):
        browser.ask(f"{tabs}[{k}].click()")
        assert browser.ask("document.documentElement.scrollWidth") <= width
        if 1 <= k <= 3:  # more than a background
            colors = (
                "new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
            )
            assert browser.ask(f"(() => {{ const c = document.querySelector('.plane'); return {colors}; }})()") > 20
    assert not browser.messages


def test_a_logarithmic_chart_shows_the_smallest_numbers(browser, tmp_path):
    """uPlot's own powers of ten have no end below 1e-23: the chart stayed empty."""
    t, tiny = np.linspace(0.0, 1.0, 50), 10.0 ** np.linspace(-24.5, -14.5, 50)
    columns = {"constraints": (True, lambda part: tiny[part][:, None])}
    run = Recording("tiny", {}, None, t, lambda part: t[part][:, None], columns, {"constraints": ("|g|",)})
    (tmp_path / "tiny.html").write_text(page_of(run))
    browser.open(tmp_path / "tiny.html")
    assert browser.ask("powersOfTen(1e-25, 1e-14).map((x) => Math.round(Math.log10(x)))") == [
        -24,
        -22,
        -20,
        -18,
        -16,
        -14,
    ]
    assert browser.ask("powersOfTen(1e-3, 1e2)") == pytest.approx([1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0])
    drawn = "(c) => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
    assert browser.ask(f"({drawn})(document.querySelector('.chart canvas'))") > 20
    assert not browser.messages


@pytest.mark.parametrize("kind", ["grid", "scattered"])
def test_a_map_covers_its_plane(browser, tmp_path, kind):
    problem, rng = hx.models.planar_pendulum(), np.random.default_rng(0)
    x, y = (z.ravel() for z in np.meshgrid(np.geomspace(1.0, 100.0, 20), np.linspace(0.2, 1.0, 20)))
    if kind == "scattered":
        x, y = rng.uniform(1.0, 100.0, 400), rng.uniform(0.2, 1.0, 400)
    q = np.stack([np.sin(y), -np.cos(y)], axis=1).reshape(400, *np.shape(problem.q0))
    ens = hx.simulate_ensemble(problem, hx.RATTLE(), q, 0 * q, dt=0.1, steps=2, coordinates={"x": x, "y": y})
    ens.view(tmp_path / "map.html")
    browser.size(1200, 800)
    browser.open(tmp_path / "map.html")
    colored = (
        "(() => { const c = document.querySelector('.plane'), x = c.getContext('2d').getImageData(80, 20, "
        "c.width - 120, c.height - 80).data; let n = 0; for (let k = 0; k < x.length; k += 4) n += x[k + 3] === 255 "
        "&& Math.max(x[k], x[k + 1], x[k + 2]) - Math.min(x[k], x[k + 1], x[k + 2]) > 40; return 4 * n / x.length; })()"
    )
    assert browser.ask(colored) > (0.95 if kind == "grid" else 0.3)
    assert not browser.messages


def test_arrows_dark_colors_and_a_picture(browser, store):
    browser.open(store[1])
    picture = "(show(), drawing.renderer.domElement.toDataURL('image/png'))"
    plain = browser.ask(picture)
    assert plain.startswith("data:image/png") and len(plain) > 2000
    browser.ask("by('forces').click()")
    arrows = browser.ask(picture)
    assert arrows != plain and browser.ask("drawing.arrows.shaft.visible")
    browser.ask("by('dark').click()")
    assert browser.ask("document.documentElement.classList.contains('dark')") and browser.ask(picture) != arrows
    assert not browser.messages


def test_one_pass_is_saved_as_a_movie(browser, store):
    browser.size(500, 500)
    browser.open(store[1])
    browser.ask("URL.createObjectURL = (blob) => { window.saved = [blob.size, blob.type]; return 'blob:none'; }")
    browser.ask("window.named = null; download = (name) => { window.named = name; }; state.speed = 40; record()")
    for _ in range(200):
        if browser.ask("window.named"):
            break
        time.sleep(0.05)
    assert browser.ask("window.named") == "run.webm"
    size, kind = browser.ask("window.saved")
    assert kind == "video/webm" and size > 500
