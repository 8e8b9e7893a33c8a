"""The notebooks of docs/howto: in step with their scripts, valid, small, and they run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "docs" / "howto").glob("*.py"))
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
assert spec is not None and spec.loader is not None
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)


def test_there_are_eleven():
    assert len(SCRIPTS) == 11
    assert [p.stem for p in SCRIPTS] == [p.stem for p in sorted((ROOT / "docs" / "howto").glob("*.ipynb"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_notebook_is_its_script_executed(script):
    text = script.with_suffix(".ipynb").read_text()
    book = json.loads(text)
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5) and len(text) < 200_000
    made = [(cell["cell_type"], "".join(cell["source"])) for cell in book["cells"]]
    assert made == notebooks.cells_of(script.read_text()), "run python tools/notebooks.py"
    counts = [cell["execution_count"] for cell in book["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert any(cell.get("outputs") for cell in book["cells"])
    assert "/tmp" not in text and "Traceback" not in text


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_notebook_runs(script):
    matplotlib.use("Agg")
    assert notebooks.notebook_of(script)["cells"]
