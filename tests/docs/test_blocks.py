"""What the documentation shows can be typed in: every name exists, every block runs, every link leads somewhere."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import matplotlib
import pytest

import holonomix as hx

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.S)


@pytest.mark.slow
def test_the_code_of_other_packages_runs_beside_ours(tmp_path, monkeypatch):
    """The blocks marked `py` of the migration page, in order with the others; each where its package is installed."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    ran = []
    for kind, code in re.findall(r"```(py|python)\n(.*?)```", (ROOT / "docs" / "migration.md").read_text(), re.S):
        other = re.match(r"import (\w+)", code)
        if kind == "py" and (other is None or importlib.util.find_spec(other[1]) is None):
            continue
        exec(compile(code, f"migration.md, {other}", "exec"), names)
        ran.append(kind)
    assert "python" in ran


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_name_of_the_library_exists(page):
    for code in blocks(page):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hx":
                assert hasattr(hx, node.attr), f"hx.{node.attr}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_to_a_file(page):
    for target in re.findall(r"\]\(([^)#:\s]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    names: dict[str, object] = {}
    for k, code in enumerate(blocks(page)):
        exec(compile(code, f"{page.name}, block {k}", "exec"), names)
