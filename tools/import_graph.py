"""Draw the import graph of the packages in CONTRIBUTING.md, or check that the drawing there is up to date.

    python tools/import_graph.py           # writes the drawing between the markers in CONTRIBUTING.md
    python tools/import_graph.py --check   # exit code 1 where it differs, or where an import goes upward

An edge from A to B means that a module of A imports one of B. Only edges that are not implied by others are drawn.
Results and problems draw themselves without importing what draws them: see `holonomix/core/pictures.py`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "holonomix"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- import graph: begin -->", "<!-- import graph: end -->"
ENTRY = {"__init__", "__main__"}  # the public names, loaded lazily from everywhere


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """The packages of holonomix that a module imports at any depth, type-checking blocks left out."""
    parts = ("holonomix", *path.relative_to(SOURCE).parts[:-1])
    found = set()
    tree = ast.parse(path.read_text())
    skipped = {id(n) for block in ast.walk(tree) if _type_checking(block) for n in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            names = [(*module, alias.name) for alias in node.names] if len(module) == 1 else [module]
        else:
            continue
        found |= {n[1] for n in names if n[0] == "holonomix" and len(n) > 1}
    return {name for name in found if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()}


def _type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def edges() -> set[tuple[str, str]]:
    """(package, imported package) for all pairs of packages."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        package = package_of(path)
        if package not in ENTRY:
            found |= {(package, other) for other in imports_of(path) if other != package and other not in ENTRY}
    return found


def cycle(graph: set[tuple[str, str]]) -> list[str]:
    """A cycle of packages, or an empty list."""
    after: dict[str, list[str]] = {}
    for a, b in sorted(graph):
        after.setdefault(a, []).append(b)
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in after.get(node, ()):
            if found := visit(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(after) if (found := visit(node, []))), [])


def reduced(graph: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that no longer path implies."""
    after: dict[str, set[str]] = {}
    for a, b in graph:
        after.setdefault(a, set()).add(b)

    def below(node: str) -> set[str]:
        found: set[str] = set()
        work = list(after.get(node, ()))
        while work:
            other = work.pop()
            if other not in found:
                found.add(other)
                work += after.get(other, ())
        return found

    return {(a, b) for a, b in graph if not any(b in below(c) for c in after[a] - {b})}


def drawing(graph: set[tuple[str, str]]) -> str:
    lines = ["```mermaid", "graph TD"]
    lines += [f"    {a} --> {b}" for a, b in sorted(reduced(graph))]
    return "\n".join([BEGIN, *lines, "```", END])


def main() -> int:
    graph = edges()
    if loop := cycle(graph):
        print(f"packages import each other in a circle: {' -> '.join(loop)}")
        return 1
    text = PAGE.read_text()
    start, end = text.index(BEGIN), text.index(END) + len(END)
    new = text[:start] + drawing(graph) + text[end:]
    if "--check" in sys.argv[1:]:
        if new != text:
            print("the import graph in CONTRIBUTING.md is out of date: run python tools/import_graph.py")
        return int(new != text)
    PAGE.write_text(new)
    print(f"{len(graph)} imports between packages, {len(reduced(graph))} drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
