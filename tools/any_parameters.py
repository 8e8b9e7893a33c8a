"""How many parameters of functions in `src/` are annotated as `Any` or `object`, or not at all.

usage: python tools/any_parameters.py [--names]
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"


def parameters(path: Path) -> list[tuple[str, str]]:
    """(name, annotation) of every parameter except `self` and `cls`, lambdas left out; no annotation is ''."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            every += [a for a in (node.args.vararg, node.args.kwarg) if a is not None]
            for a in every:
                if a.arg not in ("self", "cls"):
                    found.append((a.arg, ast.unparse(a.annotation) if a.annotation else ""))
    return found


def main() -> None:
    every = [x for path in sorted(SOURCE.rglob("*.py")) for x in parameters(path)]
    vague = [name for name, kind in every if kind in ("Any", "object")]
    bare = [name for name, kind in every if not kind]
    print(
        f"{len(every)} parameters, {len(vague)} of them Any or object ({100 * len(vague) / len(every):.1f} %), "
        f"{len(bare)} without a type ({100 * len(bare) / len(every):.1f} %)"
    )
    if "--names" in sys.argv:
        for name, count in Counter(vague).most_common(40):
            print(f"{count:5d} {name}")


if __name__ == "__main__":
    main()
