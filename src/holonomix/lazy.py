"""Names of a package that are loaded when they are first used: its stub is the one list of them."""

from __future__ import annotations

import ast
from pathlib import Path


def stub_names(file: str) -> dict[str, str]:
    """Name -> module, from the relative imports of the `.pyi` beside an `__init__.py`, which type checkers read too."""
    tree = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1]
    return {a.name: f".{x.module or a.name}" for x in imports for a in x.names}
