"""Verdicts are computed, items say what the paper says, reports hold everything, the errata name real tests."""

import ast
import io
import json
import re
from pathlib import Path

import jax.numpy as jnp
import pytest
from rich.console import Console

import holonomix as hx
from holonomix.study.cli.papers import PAPERS, _papers
from holonomix.study.papers.items import Findings, Item, Paper, Verdict, form_defect, worst
from holonomix.study.papers.items import item as paper_item
from holonomix.study.papers.report import run_item, write_report

ROOT = Path(__file__).parents[3]


def compared(*checks):
    found = Findings()
    for holds, correction in checks:
        found.compare("statement", "1.00", 1.0, holds, correction=correction, why="a reason")
    return found


@pytest.mark.parametrize(
    "checks, verdict, words",
    [
        ([(True, "")], Verdict.AGREES, ""),
        ([(True, ""), (True, "the sign")], Verdict.CORRECTED, "the sign"),
        ([(True, "the sign"), (False, "")], Verdict.DIFFERS, "a reason"),
        ([(False, "the sign")], Verdict.DIFFERS, "a reason"),
    ],
)
def test_the_verdict_follows_from_the_comparisons(checks, verdict, words):
    found = compared(*checks)
    assert found.verdict is verdict and words in found.reason


def test_an_item_without_comparison_has_no_verdict():
    with pytest.raises(ValueError, match="without a comparison"):
        Findings().verdict  # noqa: B018
    with pytest.raises(ValueError, match="2 columns"):
        Findings().table("t", "a", "b").add(1)


def test_an_item_whose_run_stops_does_not_agree():
    @paper_item("figure9", "a pendulum", "page 1", "one run")
    def figure9(found, quick):
        """The pendulum swings."""
        found.compare("first", "yes", "yes", True)
        broken = lambda q: q[1] + jnp.where(q[0] < 0.5, jnp.nan, 0.0) * q[0]
        system = hx.System(broken, lambda q: jnp.array([q @ q - 1.0]))
        sol = hx.simulate(system, hx.RATTLE(), [1.0, 0.0], [0.0, 0.0], dt=0.05, steps=100)
        found.compare("energy", "kept", worst(sol), worst(sol) < 1)

    found = figure9.run(True)
    assert found.verdict is Verdict.DIFFERS and "no longer finite" in found.reason and len(found.comparisons) == 2


def test_runs_that_may_stop_are_looked_at():
    """A function of a paper or a benchmark that allows a run to stop (throw=False) looks at how it ended."""
    for file in (*ROOT.glob("src/holonomix/study/papers/*.py"), *ROOT.glob("benchmarks/*.py")):
        tree = ast.parse(file.read_text())
        for function in (x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)):
            allowed = [
                k
                for k in ast.walk(function)
                if isinstance(k, ast.keyword) and k.arg == "throw" and ast.unparse(k.value) == "False"
            ]
            looks = {x.attr for x in ast.walk(function) if isinstance(x, ast.Attribute)} & {"status", "ok"}
            assert not allowed or looks, f"{file.name}: {function.name}"


def draw(quick):
    found = compared((True, ""), (not quick, "a sign"))
    found.table("numbers | more", "n", "error").add(3, 0.25)
    axes = found.panels("line")
    axes.plot([0, 1], [0, 1])
    return found


def test_a_report_has_pages_pictures_and_data(tmp_path):
    item = Item("figure1", "a line", "page 3, Figure 1", "The line is straight.", draw, "two points", "one point")
    paper = Paper("made_up", "Nobody, Nothing (2000)", (item, Item("figure2", "b", "c", "d", draw, "e")))
    console = Console(width=100, record=True, file=io.StringIO())
    run_item(paper, item, True, tmp_path, console, ("png", "pdf", "svg"))
    text = console.export_text()
    for words in (
        "The line is straight.",
        "page 3, Figure 1",
        "one point",
        "0.25",
        "Verdict: differs (statement: a reason)",
    ):
        assert words in text
    write_report([paper], tmp_path)
    for page in ("made_up.md", "made_up.html", "index.md", "index.html"):
        assert "differs" in (tmp_path / page).read_text()
    index = (tmp_path / "index.md").read_text()
    assert "1 differ, 1 not run" in index
    assert "The line is straight." in (tmp_path / "made_up.md").read_text().split("![made_up-line]")[1]  # the caption
    assert {p.name for p in (tmp_path / "img").iterdir()} == {f"made_up-line.{x}" for x in ("png", "pdf", "svg")}
    assert (tmp_path / "data/made_up/figure1.csv").read_text() == "n,error\n3,0.25\n"
    assert json.loads((tmp_path / "data/made_up/figure1.json").read_text())["verdict"] == "differs"


def test_every_item_says_what_the_paper_says():
    for paper in _papers("all"):
        names = [item.name for item in paper.items]
        assert len(set(names)) == len(names) > 5
        for item in paper.items:
            assert item.claim.endswith((".", ")")) and item.source and item.title and item.full and item.quick
            assert 0 < item.seconds[0] <= 60 and item.seconds[0] <= item.seconds[1]
    assert [paper.name for paper in _papers("all")] == list(PAPERS)
    assert sum(item.seconds[0] for paper in _papers("all") for item in paper.items) < 600


def test_the_pages_hold_every_item_in_full_form_with_a_verdict():
    papers = _papers("all")
    index = (ROOT / "docs/papers/index.md").read_text()
    heads, total = (re.findall(rf"^\| {word} \|.*$", index, re.MULTILINE)[0] for word in ("paper", "all"))
    counts = dict(zip((x.strip() for x in heads.split("|")), (x.strip() for x in total.split("|"))))
    items = str(sum(len(paper.items) for paper in papers))
    assert counts["items"] == counts["full form"] == items
    assert counts["not run"] == "0"
    for paper in papers:
        page = (ROOT / f"docs/papers/{paper.name}.md").read_text()
        assert page.count("**Verdict: ") == page.count("(full form)") == len(paper.items)
        assert all(f"{item.name}: {item.title}" in page and item.claim in page for item in paper.items)


def test_the_form_is_kept_by_a_rotation_and_not_by_a_stretch():
    c, s = 0.6, 0.8
    assert form_defect([[c, s], [-s, c]]) < 1e-15
    assert form_defect([[2.0, 0.0], [0.0, 1.0]]) == 1.0


def test_the_errata_name_tests_that_exist():
    text = (ROOT / "docs/papers/errata.md").read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text))
    assert len(named) > 20
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (file, name)
