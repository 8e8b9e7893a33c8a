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
        0: "core",
        1: "trace",
        2: "linalg",
        2.5: "compiler",
        3: "mechanics",
        3.2: "mechanics.invariants",
        3.4: "mechanics.projection",
        4: "methods",
        5: "run.io",
        5.5: "run",
        6: "build.mechanisms",
        6.5: "build.models",  # some models are mechanisms
        6.95: "study.export",
        7: "study.certificates study.plotting study.viewer",
        8: "study.papers study.cli",
    }.items()
    for name in names.split()
}
LAYERS |= {"build": 6.9, "study": 8.9, "__main__": 9}  # `python -m holonomix` is the command line


def package_of(module: tuple[str, ...]) -> str:
    """The layer's name for a module below holonomix: that of an inner package where it has its own layer."""
    inner = ".".join(module[:2])
    return inner if inner in LAYERS else module[0]


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
            targets = [(*module, alias.name) for alias in node.names]
        found |= {package_of(t[1:]) for t in targets if t[:1] == ("holonomix",) and len(t) > 1}
    return found


def violations(source: str, path: pathlib.Path) -> list[str]:
    package = package_of(tuple(path.relative_to(ROOT).with_suffix("").parts))
    own = LAYERS[package]
    return [
        f"{path.relative_to(ROOT)} (layer {own}) imports {target} (layer {LAYERS[target]})"
        for target in imported_packages(source, path) & LAYERS.keys() - {package}
        if LAYERS[target] >= own
    ]


FILES = [p for p in sorted(ROOT.rglob("*.py")) if p.name != "__init__.py" or p.parent != ROOT]


def test_imports_go_strictly_downward():
    assert len(FILES) > 50
    wrong = [line for path in FILES for line in violations(path.read_text(), path)]
    assert wrong == []


def test_every_package_has_its_layer():
    assert {package_of(p.relative_to(ROOT).with_suffix("").parts) for p in FILES} <= set(LAYERS)


def test_there_are_nine_packages():
    packages = {p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()}
    assert packages == set("core trace linalg compiler mechanics methods run build study".split())
    assert {p.stem for p in ROOT.glob("*.py")} <= {"__init__", "__main__"}


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from ...methods import registry", "mechanics/projection/made_up.py"),
        ("def f():\n    from ..run.loop import Stepper", "methods/made_up.py"),
        ("from holonomix.study.certificates import certify", "run/made_up.py"),
        ("import holonomix.study.cli", "study/certificates/made_up.py"),
        ("from .. import methods", "core/types.py"),
        ("def f():\n    from ..study.plotting import plot_solution", "run/made_up.py"),
        ("from ...build.models import kepler", "mechanics/invariants/made_up.py"),
        ("from ..simulate import simulate", "run/io/made_up.py"),
    ],
)
def test_an_upward_import_is_noticed(source, module):
    assert violations(source, ROOT / module)
