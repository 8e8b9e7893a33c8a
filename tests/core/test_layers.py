"""The layers of the design, read from the import statements: a package may import only from layers below its own."""

from __future__ import annotations

import ast
import pathlib

import pytest

import holonomix

ROOT = pathlib.Path(holonomix.__file__).parent
LAYERS = {
    name: level
    for level, names in {
        0: "types status scene errors lazy private names columns compiled pictures jaxprs stepwise forks",
        0.5: "multifrontal",
        1: "linalg taylor kernels",
        2: "systems",
        3: "projection invariants mechanisms",
        3.5: "models",  # some models are mechanisms
        4: "methods",
        5: "io",
        6: "driver",
        7: "certificates plotting viewer",
        8: "papers cli",
    }.items()
    for name in names.split()
}
ENTRY = {"__main__": 9}  # `python -m holonomix` is the command line


def package_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_packages(source: str, path: pathlib.Path) -> set[str]:
    """The packages of holonomix that a module imports, at its top or inside a function."""
    found = set()
    depth = len(path.relative_to(ROOT).parts)  # one dot is the package the module is in
    here = ("holonomix", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(source)):
        targets: list[tuple[str, ...]] = []
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: depth - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            targets = [(*module, alias.name) for alias in node.names] if len(module) <= 1 else [module]
        found |= {t[1] for t in targets if t[:1] == ("holonomix",) and len(t) > 1}
    return found


def violations(source: str, path: pathlib.Path) -> list[str]:
    package = package_of(path)
    own = (LAYERS | ENTRY)[package]
    return [
        f"{path.relative_to(ROOT)} (layer {own}) imports {target} (layer {LAYERS[target]})"
        for target in imported_packages(source, path) & LAYERS.keys() - {package}
        if LAYERS[target] >= max(own, 0.5)  # the modules of layer 0 are one small group
    ]


FILES = [p for p in sorted(ROOT.rglob("*.py")) if p.name != "__init__.py" or p.parent != ROOT]


def test_imports_go_strictly_downward():
    assert len(FILES) > 50
    wrong = [line for path in FILES for line in violations(path.read_text(), path)]
    assert wrong == []


def test_every_package_has_its_layer():
    assert {package_of(p) for p in FILES} <= set(LAYERS) | set(ENTRY)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from ..methods import registry", "models/made_up.py"),
        ("def f():\n    from ..driver.loop import Stepper", "methods/made_up.py"),
        ("from holonomix.certificates import certify", "driver/made_up.py"),
        ("import holonomix.cli", "papers/made_up.py"),
        ("from . import methods", "types.py"),
        ("def f():\n    from ..plotting import plot_solution", "driver/made_up.py"),
        ("from ..models import kepler", "invariants/made_up.py"),
    ],
)
def test_an_upward_import_is_noticed(source, module):
    assert violations(source, ROOT / module)
