"""Build the notebooks of docs/howto: run each script, cell by cell, and write it with what it printed and drew.

    python tools/notebooks.py [NAME ...]

A script is in the percent format: `# %% [markdown]` begins a cell of text (its lines are comments), `# %%` one of
code. The value of the last expression of a cell is shown as in Jupyter: as a picture, as a table, or as text.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HOWTO = Path(__file__).parents[1] / "docs" / "howto"


def cells_of(script: str) -> list[tuple[str, str]]:
    """The kind ("markdown" or "code") and the text of each cell."""
    found = []
    for part in re.split(r"^# %%", script, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        kind = "markdown" if "markdown" in head else "code"
        text = body.strip("\n")
        found.append((kind, re.sub(r"^# ?", "", text, flags=re.M) if kind == "markdown" else text))
    return found


def run_cell(code: str, names: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Run one cell and return its outputs in the form of a notebook."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)  # type: ignore[attr-defined]
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": [_short(repr(value))]}
        if hasattr(value, "savefig"):
            picture = io.BytesIO()
            value.savefig(picture, format="png", dpi=55)
            data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}
        elif hasattr(value, "_repr_html_"):
            data["text/html"] = [value._repr_html_()]
        outputs.append({"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data})
    return outputs


def _short(text: str) -> str:
    return text if len(text) < 400 else text[:400] + " ..."


def notebook_of(script: Path) -> dict[str, Any]:
    """The notebook of a script, executed in an empty folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for k, (kind, text) in enumerate(cells_of(script.read_text())):
                cell: dict[str, Any] = {"cell_type": kind, "id": f"c{k}", "metadata": {}}
                cell["source"] = text.splitlines(True)
                if kind == "code":
                    cell |= {"execution_count": None, "outputs": run_cell(text, names, f"{script.name}, cell {k}")}
                cells.append(cell)
        finally:
            os.chdir(before)
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    about |= {"language_info": {"name": "python"}}
    return {"cells": numbered(cells), "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def numbered(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells with their code numbered in order, as a notebook that was run from top to bottom."""
    for count, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), 1):
        for part in (cell, *cell["outputs"]):
            if "execution_count" in part:
                part["execution_count"] = count
    return cells


def main(wanted: list[str]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    for script in sorted(HOWTO.glob("*.py")):
        if not wanted or script.stem in wanted:
            text = json.dumps(notebook_of(script), indent=1, ensure_ascii=False)
            target = script.with_suffix(".ipynb")
            target.write_text(text + "\n")
            print(f"{target.name}: {len(text) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
