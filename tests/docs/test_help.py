"""Troubleshooting knows every error, warning and status; what users read keeps to the words of the project."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import holonomix as hx
from holonomix.core.errors import HolonomixError

ROOT = Path(__file__).parents[2]
HELP = (ROOT / "docs" / "troubleshooting.md").read_text()


def kinds(root: type) -> set[type]:
    return {root} | {c for kind in root.__subclasses__() for c in kinds(kind)}


def test_troubleshooting_has_an_entry_for_each_error_warning_and_status():
    homes = "study.cli.exits run.io.errors build.mechanisms.xml_files trace.taylor.series mechanics.resonance run"
    for name in homes.split():
        importlib.import_module(f"holonomix.{name}")
    ours = {c for root in (HolonomixError, Warning, NotImplementedError) for c in kinds(root)}
    names = {c.__name__ for c in ours if c.__module__.startswith("holonomix")}
    assert {"ShapeError", "StoreFullError", "UnsupportedWarning", "SeriesError"} <= names
    missing = {name for name in names if name not in HELP} | {s.name for s in hx.Status if f"`{s.name}`" not in HELP}
    assert not missing


@pytest.mark.parametrize("constraint", [lambda q: q >= 0, lambda q, v: q])
def test_errors_about_what_is_not_done_point_to_the_scope(constraint):
    with pytest.raises(hx.InputError, match="docs/scope.md"):
        hx.simulate(hx.System(lambda q: q[1], constraint), hx.RATTLE(), [0.0, 1.0], [0.0, 0.0], dt=0.1, steps=1)


# what was written before, and what to write instead
WORDS = {
    r"borne out": "confirmed",
    r"a promise is not": "a declared property failed",
    r"survives a kill": "resumable",
    r"the same bits as if": "bitwise identical to an uninterrupted run",
    r"awkward": "structured, redundant and moving",
    r"start that fits": "consistent initial conditions",
    r"\b(sweeps|iterations|solves|evaluations|operations) a step\b": "per step",
    r"\b(one|two|six|ten|\d+) (rows|value|values|us|ns|ms) a (step|row|node|block|molecule|pair)\b": "per",
    r"\ba trajectory a thread\b|\brows a block\b|\bone value a row\b|\bseconds a step\b|\bsteps a second\b": "per",
    r"\band leave\b": "and exit",
    r"\bof the random numbers\b": "random seed",
    r"what one step says of itself": "diagnostics of one step",
    r"\b(colour|behaviour|neighbour|centre|optimis|initialis|normalis|minimis|discretis|organis|penalis)": "American",
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "docs" / "howto").glob("*.py"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_words_of_a_page(page):
    check(page.read_text())


def test_the_words_of_docstrings_and_messages():
    """The strings of the package, which are its help, its docstrings and its messages."""
    for found in pkgutil.walk_packages(hx.__path__, "holonomix."):
        path = importlib.util.find_spec(found.name).origin  # type: ignore[union-attr]
        if path is not None:
            text = Path(path).read_text()
            strings = re.findall(r'"""(.*?)"""|"((?:[^"\\\n]|\\.)*)"', text, re.S)
            check("\n".join(a or b for a, b in strings), found.name)


def check(text: str, where: str = "") -> None:
    for pattern, better in WORDS.items():
        found = re.search(pattern, text, re.I)
        assert found is None, f"{where}: {text[max(0, found.start() - 40) : found.end() + 20]!r}: write {better!r}"  # type: ignore[union-attr]
