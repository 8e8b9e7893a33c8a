"""Live pages: the kernel in the page has the library's motion, keeps its constraints, and says what goes wrong."""

from __future__ import annotations

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.run.io import StoreWriteError
from holonomix.study.viewer import live as live_module
from tests.browser import Browser, needs_chromium

ROUND_OFF = 2e-14


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    problem = hx.models.planar_pendulum()
    place = tmp_path_factory.mktemp("live") / "pendulum.html"
    sliders = {"gravity": (0.0, 20.0), "length": (0.2, 3.0), "dt": (0.01, 50.0)}
    more = {"observe": {"H": problem.system.hamiltonian}, "compare": hx.RK4(), "ensemble": 5, "spread": 0.1}
    return problem, hx.live(problem, hx.RATTLE(), place, sliders=sliders, **more)


def opened(browser, page, fragment="still"):
    """Open a page and wait until its kernel is there; it does not play unless asked."""
    browser.messages.clear()
    browser.open(page, fragment)
    for _ in range(400):
        if browser.ask(
            "source !== null && source.live === true || document.querySelector('.message')?.textContent || ''"
        ):
            break
        time.sleep(0.02)
    assert not browser.messages, browser.messages


def slide(browser, label, value):
    browser.ask(
        f"(() => {{ const x = document.querySelector('input[name=\"{label}\"]'); x.value = {value}; x.oninput(); }})()"
    )


def arrays(browser, kernel="source.lead.kernel"):
    return (np.array(browser.ask(f"Array.from({kernel}.{name})")) for name in ("q", "p"))


def test_a_page_is_one_small_file_that_needs_no_network(pendulum):
    page = pendulum[1].read_text()
    assert len(page) < 1_500_000
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", page) and "default-src 'none'" in page


@needs_chromium
def test_nothing_is_loaded_and_the_motion_is_that_of_the_library(browser, pendulum):
    problem, page = pendulum
    browser.size(1200, 800)
    opened(browser, page)
    assert browser.ask("performance.getEntriesByType('resource').length") == 0
    browser.ask("source.lead.kernel.step(200)")
    q, p = arrays(browser)
    sol = hx.simulate(problem, hx.RATTLE(), steps=200)
    np.testing.assert_allclose(q, np.ravel(sol.q[-1]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(p, np.ravel(sol.p[-1]), rtol=0, atol=1e-12)
    assert browser.ask("source.lead.kernel.t") == sol.t[-1]


@needs_chromium
def test_constraints_stay_at_round_off_and_the_other_method_drifts(browser, pendulum):
    opened(browser, pendulum[1])
    browser.ask("(() => { for (let i = 0; i < 3000; i++) source.advance(0.1); show(); })()")
    assert browser.ask("source.lead.kernel.n") > 20_000
    assert browser.ask("source.lead.observe('live constraint')") < ROUND_OFF
    assert browser.ask("source.lead.observe('live hidden constraint')") < ROUND_OFF
    assert browser.ask("source.machines[1].observe('live constraint')") > 1e-6
    ghosts = np.array(browser.ask("source.lead.ghosts.map((g) => [...g.q, g.observables['live constraint'][0], g.t])"))
    assert np.all(ghosts[:, 2] < ROUND_OFF) and len(np.unique(ghosts[:, 0])) == 5
    assert browser.ask("source.histories[0].history.t.length") <= 1000


@needs_chromium
def test_sliders_change_the_physics(browser, pendulum):
    problem, page = pendulum
    opened(browser, page)
    slide(browser, "gravity", 9.81)
    slide(browser, "length", 2.5)
    q, p = arrays(browser)
    assert np.hypot(*q) == pytest.approx(2.5, abs=1e-14) and abs(q @ p) < 1e-13
    params = {**problem.system.params, "gravity": 9.81, "length": 2.5}
    system = hx.models.planar_pendulum(length=2.5, gravity=9.81).system
    assert set(params) == set(system.params)
    expected = hx.integrate(system, hx.RATTLE(), q, p, dt=problem.dt, steps=100)
    browser.ask("source.lead.kernel.step(100)")
    np.testing.assert_allclose(list(arrays(browser)), expected, rtol=0, atol=1e-11)
    energy = float(system.hamiltonian(*expected))
    assert browser.ask("source.lead.kernel.observables.H[0]") == pytest.approx(energy, abs=1e-10)
    browser.ask("source.reset.click()")
    assert browser.ask("source.lead.kernel.params.gravity[0]") == 9.81  # a reset keeps the sliders
    assert browser.ask("source.lead.kernel.t") == 0


@needs_chromium
def test_dragging_moves_the_system_along_its_constraints(browser, pendulum):
    opened(browser, pendulum[1])
    x, y = browser.ask("(() => { show(); return source.drag.toScreen(drawing.figure.at(0)).slice(0, 2); })()")
    a, b = browser.ask("source.drag.toScreen(new THREE.Vector3(-1.2, 0.3, 0)).slice(0, 2)")
    before, _ = arrays(browser)
    mouse = lambda kind, u, v: browser.send(
        "Input.dispatchMouseEvent", type=kind, x=u, y=v, button="left", buttons=1, clickCount=1
    )
    mouse("mousePressed", x, y)
    assert browser.ask("source.drag.held !== null")
    for s in np.linspace(0, 1, 12):
        mouse("mouseMoved", x + s * (a - x), y + s * (b - y))
        browser.ask("(() => { for (let i = 0; i < 6; i++) source.drag.pull(); })()")
        assert browser.ask("source.lead.observe('live constraint')") < ROUND_OFF
    mouse("mouseReleased", a, b)
    q, p = arrays(browser)
    direction = np.array([-1.2, 0.3]) / np.hypot(1.2, 0.3)
    assert q @ direction > 0.9999
    assert np.linalg.norm(q - before) > 0.5 and np.all(p == 0)
    np.testing.assert_array_equal(next(arrays(browser, "source.machines[1].kernel")), q)
    assert browser.ask("source.drag.held === null")
    mouse("mousePressed", x, y + 150)  # nothing is there: the camera's
    assert browser.ask("source.drag.held === null")
    mouse("mouseReleased", x, y + 150)


@needs_chromium
def test_a_finger_drags_on_a_phone(browser, pendulum):
    browser.size(390, 844)
    browser.send("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        opened(browser, pendulum[1])
        x, y = browser.ask("(() => { show(); return source.drag.toScreen(drawing.figure.at(0)).slice(0, 2); })()")
        touch = lambda kind, *points: browser.send(
            "Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": u, "y": v} for u, v in points]
        )
        touch("touchStart", (x + 12, y - 12))  # fingers are less exact
        assert browser.ask("source.drag.held !== null")
        touch("touchMove", (x + 40, y - 40))
        browser.ask("(() => { for (let i = 0; i < 30; i++) source.drag.pull(); })()")
        q, _ = arrays(browser)
        assert q[0] > 0.3 and abs(np.hypot(*q) - 1) < ROUND_OFF
        touch("touchEnd")
        assert browser.ask("source.drag.held === null")
    finally:
        browser.send("Emulation.setTouchEmulationEnabled", enabled=False)
        browser.size(1200, 800)


@needs_chromium
def test_a_body_is_dragged_at_any_of_its_points(browser, tmp_path):
    page = hx.live(hx.models.heavy_top(), hx.RATTLE(), tmp_path / "top.html")
    opened(browser, page)
    place = browser.ask(
        "(() => { show(); const d = source.drag; window.tip = d.handles().find((h) => h.r && h.r[2] === 1.4);"
        "return d.place(tip).toArray(); })()"
    )
    assert np.linalg.norm(place) == pytest.approx(1.4, abs=1e-6)
    aim = "source.drag.held = tip; source.drag.pointer.set(1.4, 0, 0)"
    browser.ask(f"(() => {{ {aim}; for (let i = 0; i < 60; i++) source.drag.pull(); source.drag.release(); }})()")
    rotation = next(arrays(browser)).reshape(3, 3)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), rtol=0, atol=ROUND_OFF)
    assert rotation[0, 2] > 0.9999  # the axle points to the pointer
    browser.ask("(() => { for (let i = 0; i < 100; i++) source.advance(0.1); })()")
    assert browser.ask("source.lead.observe('live constraint')") < ROUND_OFF


@needs_chromium
def test_a_failure_is_said_in_words(browser, pendulum):
    opened(browser, pendulum[1])
    slide(browser, "dt", 40.0)
    browser.ask("(() => { for (let i = 0; i < 400; i++) source.advance(10); })()")
    message = browser.ask("document.querySelector('.message').textContent")
    assert "stopped at t =" in message and "dt" in message
    assert np.all(np.isfinite(list(arrays(browser))))
    browser.ask("source.reset.click()")
    assert browser.ask("document.querySelector('.message').hidden")


@needs_chromium
@pytest.mark.parametrize("width", [1200, 390])
def test_it_plays_and_fits(browser, pendulum, width):
    browser.size(width, 844)
    opened(browser, pendulum[1], "")
    for _ in range(200):
        if browser.ask("Number(document.documentElement.dataset.frames || 0)") >= 5:
            break
        time.sleep(0.02)
    assert browser.ask("Number(document.documentElement.dataset.frames)") >= 5 and browser.ask("state.t") > 0
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask("[...document.querySelectorAll('.stored')].every((x) => x.offsetWidth === 0)")
    assert not browser.messages


@needs_chromium
def test_a_section_fills_up_with_the_crossings_of_the_run(browser, tmp_path):
    problem = hx.models.henon_heiles()
    observe = {"x": lambda q, p: q[0], "y": lambda q, p: q[1], "py": lambda q, p: p[1]}
    page = hx.live(problem, hx.StormerVerlet(), tmp_path / "h.html", observe=observe, section=("x", "y", "py"))
    opened(browser, page)
    browser.ask("(() => { for (let i = 0; i < 80; i++) source.advance(0.1); })()")
    n = browser.ask("source.lead.kernel.n")
    sol = hx.simulate(problem, hx.StormerVerlet(), steps=n)
    rises = np.flatnonzero((sol.q[:-1, 0] < 0) & (sol.q[1:, 0] >= 0))
    part = sol.q[rises, 0] / (sol.q[rises, 0] - sol.q[rises + 1, 0])
    y, py = (x[rises, 1] + part * (x[rises + 1, 1] - x[rises, 1]) for x in (sol.q, sol.p))
    assert len(rises) > 10
    np.testing.assert_allclose(browser.ask("[source.section.x, source.section.y]"), [y, py], rtol=0, atol=1e-11)
    assert browser.ask("source.portraits.name") == "Section"


@needs_chromium
def test_observables_may_be_integers_flags_and_empty(browser, tmp_path):
    observe = {
        "place": lambda q, p: jnp.argmax(q),
        "up": lambda q, p: q[1] > 0,
        "none": lambda q, p: jnp.zeros(0),
        "x": lambda q, p: q[0],
    }
    problem, page = hx.models.henon_heiles(), tmp_path / "odd.html"
    hx.live(problem, hx.StormerVerlet(), page, observe=observe, section=("x", "place", "up"))
    opened(browser, page)
    browser.ask("(() => { for (let i = 0; i < 50; i++) source.advance(0.1); show(); })()")
    assert not browser.messages and browser.ask("source.lead.kernel.n") > 100
    assert browser.ask("source.section.y.every((x) => x === 0 || x === 1)")
    hx.live(problem, hx.StormerVerlet(), page, observe=observe)
    opened(browser, page)
    browser.ask("(() => { for (let i = 0; i < 50; i++) source.advance(0.1); show(); })()")
    assert not browser.messages and browser.ask("source.histories.length") == 5


@needs_chromium
def test_coordinates_that_are_no_positions_have_charts_only(browser, tmp_path):
    system = hx.System(lambda q, params: -params["gravity"] * jnp.cos(q[0]), params={"gravity": 2.0})
    problem = hx.Problem(system, jnp.array([1.0]), jnp.zeros(1), dt=0.05, t1=5.0, coordinates=("theta",))
    page = hx.live(problem, hx.StormerVerlet(), tmp_path / "angle.html", sliders={"gravity": (1, 5)}, ensemble=3)
    opened(browser, page)
    assert browser.ask("drawing === null && by('stage') === null && source.histories.length === 2")
    assert browser.ask("document.body.innerText.includes('theta') && !document.body.innerText.includes('q[0]')")
    browser.ask("source.lead.kernel.step(100)")
    sol = hx.simulate(problem, hx.StormerVerlet(), steps=100)
    np.testing.assert_allclose(next(arrays(browser)), sol.q[-1], rtol=0, atol=1e-12)
    browser.ask("source.renew(false); source.advance(0.1); show()")
    assert not browser.messages


@needs_chromium
def test_the_page_of_a_run_has_a_button(browser, tmp_path):
    sol = hx.simulate(hx.models.henon_heiles(), hx.StormerVerlet(), steps=30)
    page = sol.view(tmp_path / "run.html", live=True)
    browser.size(1200, 800)
    browser.open(page)
    for _ in range(200):
        if browser.ask("[...document.querySelectorAll('button')].some((b) => b.textContent === 'Live')"):
            break
        time.sleep(0.02)
    assert browser.ask("source.live === undefined")
    button = "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Live')"
    browser.ask(f"{button}.click()")
    assert browser.ask("source.live") is True and browser.ask("by('time').offsetWidth") == 0
    browser.ask("(() => { play(false); source.lead.kernel.reset(); source.lead.kernel.step(30); })()")
    np.testing.assert_allclose(next(arrays(browser)), sol.q[-1], rtol=0, atol=1e-13)
    browser.ask(f"{button}.click()")
    assert browser.ask("source.live === undefined") and browser.ask("by('time').offsetWidth") > 0
    assert not browser.messages


@pytest.fixture(scope="module")
def kernels():
    from holonomix.study.viewer.live import _kernel

    observe = {"x": lambda q, p: q[0], "both": lambda q, p: q}
    return [_kernel(hx.models.henon_heiles(), hx.StormerVerlet(), observe, None, None)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sliders": {"gravity": (0, 1)}}, "'gravity' is not a parameter of henon-heiles; there are: coupling, dt"),
        ({"sliders": {"coupling[3]": (0, 1)}}, r"coupling has 1 entries"),
        ({"sliders": {"coupling": (2, 1)}}, "goes from 2 to 1"),
        ({"sliders": {"coupling": 3}}, "lowest and highest"),
        ({"sliders": {5: (0, 1)}}, "5 is not the name"),
        ({"sliders": {"coupling": np.array([2.0, 1.0])}}, "goes from 2 to 1"),
        ({"sliders": {"coupling": (0, np.nan)}}, r"sliders\['coupling'\]"),
        ({"sliders": {"coupling": (5, 6)}}, "current value 1 is outside"),
        ({"sliders": {"dt": (0, 1)}}, "'dt' begins at 0"),
        ({"section": ("x", "y", "z")}, "'y' is not in observe, which has: "),
        ({"section": ("x", "both", "x")}, "'both' has 2 entries"),
        ({"section": "x"}, "three names"),
        ({"ensemble": -1}, "ensemble"),
        ({"ensemble": 1000}, "at most 500"),
        ({"ensemble": (np.zeros((3, 2)), np.zeros((3, 1)))}, r"not \(3, 2\) and \(3, 1\)"),
        ({"ensemble": 3, "spread": -1.0}, "spread"),
        ({"rate": 0.0}, "rate"),
    ],
)
def test_wrong_options_are_named(kernels, options, words):
    from holonomix.study.viewer.live import _options

    with pytest.raises(hx.InputError, match=words):
        _options(kernels, t1=1.0, **options)


def test_refusals_say_why(tmp_path):
    problem = hx.models.henon_heiles()
    page = tmp_path / "no.html"
    with pytest.raises(hx.InputError, match="Problem"):
        hx.live(problem.system, hx.StormerVerlet(), page)
    with pytest.raises(hx.InputError, match="compare must be"):
        hx.live(problem, hx.StormerVerlet(), page, compare="rattle")
    with pytest.raises(hx.ShapeError, match="shape"):
        hx.live(problem, hx.StormerVerlet(), page, compare=(hx.models.double_pendulum(), hx.RATTLE()))
    with pytest.raises(hx.InputError, match=r"sliders must be a dictionary.*not \['gravity'\]"):
        hx.live(problem, hx.StormerVerlet(), page, sliders=["gravity"])
    with pytest.raises(hx.InputError, match="observable of its own called 'live energy'"):
        hx.live(problem, hx.StormerVerlet(), page, observe={"live energy": lambda q, p: q[0]})
    with pytest.raises(hx.InputError, match="path must be"):
        hx.live(problem, hx.StormerVerlet(), None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(hx.InputError, match="dt must be positive"):
        hx.live(problem, hx.StormerVerlet(), page, dt=-0.1)
    with pytest.raises(StoreWriteError, match=r"^cannot write \S+: Is a directory$"):
        hx.live(problem, hx.StormerVerlet(), tmp_path)

    def potential(q):
        return jax.pure_callback(lambda x: np.sum(x**2), jax.ShapeDtypeStruct((), np.float64), q)

    def slope(q):
        return jax.pure_callback(lambda x: 2 * x, jax.ShapeDtypeStruct(q.shape, np.float64), q)

    fn = jax.custom_jvp(potential)
    fn.defjvp(lambda primals, tangents: (potential(*primals), (slope(*primals) * tangents[0]).sum()))
    called = hx.Problem(hx.System(fn), np.ones(2), np.zeros(2), 0.01, 1.0)
    with pytest.raises(hx.InputError, match=re.escape(hx.explain(called, hx.RATTLE()).reason)):
        hx.live(called, hx.RATTLE(), page)
    assert not page.exists() and callable(live_module)
