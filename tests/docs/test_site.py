"""The documentation site: every page in the navigation, every public name in the reference, no network."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from pathlib import Path
from types import SimpleNamespace

import holonomix as hx

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
assert spec is not None and spec.loader is not None
hooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hooks)


def test_every_public_name_is_in_the_reference():
    listed = {label.removeprefix("hx.") for label, _, _ in hooks._public_names()}
    methods = {name for group in hx.methods.FAMILIES.values() for name in group}
    public = {name for name in dir(hx) if name[0] != "_" and not inspect.ismodule(getattr(hx, name))}
    assert public == {label for label in listed if "." not in label}
    assert methods <= listed
    assert {f"models.{name}" for name in hx.models.MODELS} <= listed
    moved = {f"{hx._NEW_HOME[name]}.{name}" for name in hx._NEW_HOME.keys() - {"papers", "projection"}}
    assert moved <= listed


def test_a_new_page_comes_into_the_navigation_by_itself(tmp_path):
    for name in ("index.md", "extra.md", "methods/a.md", "methods/b.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# page")
    config = SimpleNamespace(docs_dir=str(tmp_path), nav=["index.md", {"Methods": ["methods/b.md", "methods/"]}])
    nav = hooks.on_config(config).nav
    assert nav[1] == {"Methods": ["methods/b.md", "methods/a.md"]}
    assert nav[2] == {"More": ["extra.md"]}


def test_the_site_asks_for_nothing_from_a_network():
    assert not re.search(r"https?://", (ROOT / "mkdocs.yml").read_text())
    for path in (ROOT / "docs" / "assets").rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?https?:", path.read_text())


def test_the_pages_of_families_say_what_is_declared_and_what_was_measured():
    pages = {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert set(hooks.FAMILY_PAGES) <= pages
    shown = {module for modules in hooks.FAMILY_PAGES.values() for module in modules}
    assert shown <= set(hx.methods.FAMILIES) and not shown & {"langevin", "hmc"}  # stochastic: no order to measure
    table = hooks._traits(ROOT / "docs", ("rattle",))
    assert "| `RATTLE` | constrained (double pendulum) | 2 (" in table


def test_no_measurement_contradicts_what_is_declared():
    """What tools/measured_traits.py found; run it again after a method has changed."""
    known = json.loads((ROOT / "docs" / "assets" / "measured_traits.json").read_text())
    declared = {name for name, entry in hx.methods.registry().items() if not entry.default.stochastic}
    assert {"RATTLE", "RK4"} <= set(known) <= declared
    wrong = [
        (name, kind, finding)
        for name, kinds in known.items()
        for kind, found in kinds.items()
        for finding, (_, kept) in found.get("findings", {}).items()
        if kept is False
    ]
    assert not wrong


def test_the_search_splits_names_at_dots_and_brackets():
    separator = re.search(r"separator: '(.*)'", (ROOT / "mkdocs.yml").read_text())
    assert separator is not None
    words = lambda text: [word for word in re.split(separator[1], text) if word]
    assert words("`hx.Rheonomic(lambda q, t: q[0] - 0.5)`") == ["hx", "Rheonomic", "lambda", "q", "t", "q", "0", "0.5"]
    assert words("print(run.constraint_forces().keys())") == ["print", "run", "constraint_forces", "keys"]
    assert words("hx.Rheonomic(") == ["hx", "Rheonomic"]


def test_pictures_of_what_goes_wrong_are_small_and_shown():
    page = (ROOT / "docs" / "elsewhere.md").read_text()
    pictures = sorted((ROOT / "docs" / "img" / "elsewhere").glob("*.png"))
    assert len(pictures) == 10
    for picture in pictures:
        assert f"img/elsewhere/{picture.name}" in page and picture.stat().st_size < 60_000


def test_every_example_ends_with_its_picture():
    for script in (ROOT / "examples").glob("*.py"):
        assert re.search(r"\.(savefig|save|view|animate)\(", script.read_text()), script.name
