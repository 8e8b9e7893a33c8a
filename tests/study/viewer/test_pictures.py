"""The picture of every model: its parts are in the scene, and the first frame shows them inside the canvas."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import holonomix as hx
from holonomix.core.scene import Guide, Scene
from holonomix.mechanics.scenes import scene_of
from holonomix.study.viewer import write_page
from tests.browser import Browser, needs_chromium

CURVES_ONLY = {"harmonic_oscillator", "dna_chain"}  # coordinates that are not places
BARS = {
    "planar_pendulum": 1, "spherical_pendulum": 1, "conical_pendulum": 1, "double_pendulum": 2, "chain": 10,
    "tethered_satellites": 3, "double_pendulum_angles": 2, "slider_crank": 2, "four_bar": 3, "watt": 3,
    "planar_ring": 6, "mobile": 15, "jansen_leg": 10, "strandbeest": 120, "iftomm_a01": 1,
}  # fmt: skip
SPRINGS = {
    "stiff_spring_double_pendulum": 2,
    "penalized_double_pendulum": 2,
    "penalized_chain": 10,
    "iftomm_a03": 1,
    "iftomm_a05": 2,
    "stewart_platform": 6,
}
GROUND = {"four_bar": 1, "watt": 1, "bennett_linkage": 1, "bricard_linkage": 1, "iftomm_a02": 2, "stewart_platform": 5}
GUIDES = {"bead_on_surface": "surface", "modified_pendulum": "surface", "slider_crank": "rail", "henon_heiles": "curve"}


def start_scene(name):
    problem = hx.models.registry()[name]()
    return scene_of(problem.system, np.shape(problem.q0), problem, np.asarray(problem.q0))


@pytest.mark.parametrize("name", list(hx.models.registry()))
def test_what_a_model_has_is_in_its_scene(name):
    scene = start_scene(name)
    if name in CURVES_ONLY:
        assert scene is None
        return
    assert scene is not None
    kinds = [bond.kind for bond in scene.bonds]
    for wanted, kind in ((BARS, "bar"), (SPRINGS, "spring"), (GROUND, "ground")):
        if name in wanted:
            assert kinds.count(kind) == wanted[name], kind
    assert [guide.kind for guide in scene.guides] == ([GUIDES[name]] if name in GUIDES else [])
    for frame in scene.frames:
        assert frame.shapes, frame.name
    assert Scene.from_dict(json.loads(json.dumps(scene.as_dict()))) == scene


def guide_of(constraint, q):
    system = hx.System(lambda q: q[-1], constraint)
    scene = scene_of(system, np.shape(q), None, np.asarray(q, float))
    assert scene is not None
    (guide,) = scene.guides
    return guide.kind, np.concatenate([np.reshape(line, (-1, len(q))) for line in guide.lines])


def test_guides_lie_on_the_constraint():
    kind, x = guide_of(lambda q: jnp.array([q[1] - q[0] ** 2]), [1.0, 1.0])
    assert kind == "curve" and np.ptp(x[:, 0]) > 2.0
    np.testing.assert_allclose(x[:, 1], x[:, 0] ** 2, rtol=0, atol=2e-3)
    kind, x = guide_of(lambda q: jnp.array([q @ q - 4.0]), [2.0, 0.0])
    assert kind == "curve" and np.ptp(x, axis=0) == pytest.approx([4.0, 4.0], abs=0.02)
    kind, x = guide_of(lambda q: jnp.array([q[2] - 0.3 * q[0]]), [1.0, 0.0, 0.3])
    assert kind == "surface"
    np.testing.assert_allclose(x[:, 2], 0.3 * x[:, 0], rtol=0, atol=1e-4)
    kind, x = guide_of(lambda q: jnp.array([q @ q - 1.0, q[2] - 0.5 * q[0]]), [0.0, 1.0, 0.0])
    assert kind == "curve" and np.linalg.norm(x[0] - x[-1]) < 1e-4  # closed
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, rtol=1e-4)
    kind, x = guide_of(lambda q: jnp.array([q[1] - 2.0 * q[0], q[2]]), [0.5, 1.0, 0.0])
    assert kind == "rail" and len(x) == 2


def test_a_slide_of_a_mechanism_has_a_rail_and_a_wheel_is_round():
    m = hx.Mechanism(dimensions=2)
    wheel = m.body("wheel", mass=2.0, inertia=1.0)
    cart = m.body("cart", mass=1.0, inertia=0.1, position=(2.0, 0.0))
    m.revolute("axle", m.ground, wheel, at=(0.0, 0.0))
    m.prismatic("slide", m.ground, cart, at=(2.0, 0.0), axis=(1.0, 0.0))
    m.spring(wheel, (0.3, 0.0), cart, (0.0, 0.0), stiffness=1.0)
    scene = m.problem(dt=0.01).scene
    assert scene is not None
    assert scene.guides == (Guide(((1.0, 0.0, 3.0, 0.0),), "rail"),)
    assert [shape.kind for shape in scene.frames[0].shapes] == ["cylinder", "line"]
    assert scene.frames[0].shapes[0].size[0] == pytest.approx(1.0)  # m r^2 / 2


def test_the_spring_of_a_slide_is_drawn_from_the_end_of_its_rail():
    m = hx.Mechanism(dimensions=2)
    cart = m.body("cart", mass=1.0, inertia=0.1, position=(2.0, 0.0))
    post = m.body("post", mass=1.0, inertia=0.1, position=(2.0, 1.0))
    slide = m.prismatic("slide", m.ground, cart, at=(2.0, 0.0), axis=(1.0, 0.0))
    m.revolute("pin", cart, post, at=(2.0, 0.5))
    m.torsion_spring(slide, stiffness=3.0)
    scene = m.problem(dt=0.01).scene
    assert scene is not None
    (spring,) = [bond for bond in scene.bonds if bond.kind == "spring"]
    assert scene.anchors[-1 - spring.a] == (1.5, 0.0) and scene.guides[0].lines[0][:2] == (1.5, 0.0)
    assert spring.b == scene.frames[0].center and spring.at_b == ()  # on the axis, below the pin


def test_a_crank_of_large_inertia_is_a_bar_and_a_slider_is_a_block():
    m = hx.Mechanism(dimensions=2)
    crank = m.body("crank", mass=1.2, inertia=0.01, position=(0.1, 0.0))
    rod = m.body("rod", mass=1.0, inertia=0.01, position=(0.5, 0.0))
    slider = m.body("slider", mass=0.9, inertia=0.9 * 0.2**2 * 1.25 / 12, position=(0.8, 0.0))
    m.revolute("axle", m.ground, crank, at=(0.0, 0.0))
    m.revolute("pin", crank, rod, at=(0.2, 0.0))
    m.revolute("wrist", rod, slider, at=(0.8, 0.0))
    m.prismatic("rail", m.ground, slider, at=(0.8, 0.0), axis=(0.0, 1.0))
    frames = m.problem(dt=0.01).scene.frames
    assert [[shape.kind for shape in frame.shapes] for frame in frames] == [["line"], ["line"], ["box"]]
    assert frames[2].shapes[0].size == pytest.approx((0.2, 0.1))
    np.testing.assert_allclose(np.reshape(frames[2].shapes[0].rotation, (2, 2))[:, 0], [0.0, 1.0], rtol=0, atol=1e-12)


def test_a_ring_has_the_moments_of_a_torus():
    ring, rng = hx.mechanisms.Ring(1.0, 0.4), np.random.default_rng(0)
    x = rng.uniform(-1.2, 1.2, (400_000, 3))
    x = x[(np.hypot(x[:, 0], x[:, 1]) - 1.0) ** 2 + x[:, 2] ** 2 < 0.2**2]
    assert ring.volume == pytest.approx(len(x) / 400_000 * 2.4**3, rel=0.02)
    squares = np.mean(x**2, axis=0)
    np.testing.assert_allclose(ring.moments, squares.sum() - squares, rtol=0.02)


def drawn(shot, box):
    """Whether anything is drawn, and whether it touches the border; the triad in the corner is no part of it."""
    with Image.open(shot) as whole:
        x = np.asarray(whole.convert("RGB").crop(box), int)[2:-2, 2:-2]
    mark = np.abs(x - x[5, 5]).max(axis=2) > 24
    mark[-80:, :80] = False
    border = np.concatenate([mark[0], mark[-1], mark[:, 0], mark[:, -1]])
    return float(mark.mean()), bool(border.any())


@needs_chromium
@pytest.mark.slow
def test_the_first_frame_shows_every_model_inside_the_canvas(tmp_path):
    with Browser() as browser:
        browser.size(900, 560)
        for name in sorted(set(hx.models.registry()) - CURVES_ONLY):
            page = write_page(hx.models.registry()[name](), tmp_path / f"{name}.html")
            browser.open(page)
            browser.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
            place = "document.getElementById('stage').getBoundingClientRect()"
            box = browser.ask(f"(() => {{ const r = {place}; return [r.left, r.top, r.right, r.bottom]; }})()")
            share, cut = drawn(browser.picture(tmp_path / "shot.png"), [round(v) for v in box])
            assert share > 5e-4, name
            assert cut == (name == "cosserat_rod"), name  # the walls of its box fill the picture
            assert not browser.messages
            page.unlink()
