"""Names of a package that are imported on first use; the stub of the package lists them."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any


def stub_names(file: str) -> dict[str, tuple[str, str]]:
    """Name -> module and name there, from the relative imports of the `.pyi` beside an `__init__.py`."""
    tree = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1]
    return {a.asname or a.name: (x.module or "", a.name) for x in imports for a in x.names}


def load_name(package: str, module: str, name: str) -> Any:
    """The result of `from package.module import name`, where `name` may be a submodule."""
    parent = importlib.import_module(f".{module}", package) if module else None
    if parent is not None and hasattr(parent, name):
        return getattr(parent, name)
    return importlib.import_module(f".{module}.{name}" if module else f".{name}", package)
