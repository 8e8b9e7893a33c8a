"""`bench`: run the scripts in benchmarks/ of the source tree."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import holonomix

from .exits import CommandError
from .suggest import unknown

if TYPE_CHECKING:
    from rich.console import Console


def scripts() -> dict[str, Path]:
    """Name -> script, from the source tree that this package runs from, or from the current directory."""
    source = Path(holonomix.__file__).parents[2] / "benchmarks"
    for folder in (source, Path.cwd() / "benchmarks"):
        found = {p.stem: p for p in sorted(folder.glob("*.py")) if not p.stem.startswith("_") and _is_script(p)}
        if found:
            return found
    raise CommandError("no benchmarks found: they are part of the source tree; run `make bench` there")


def _is_script(path: Path) -> bool:
    return '__name__ == "__main__"' in path.read_text(encoding="utf-8")


def run_scripts(names: list[str], console: Console) -> list[str]:
    """Run the scripts one after another and return the names of those that failed."""
    known = scripts()
    for name in names:
        if name not in known:
            raise CommandError(unknown("benchmark", name, known))
    failed = []
    for name in names or list(known):
        console.rule(name, align="left")
        began = time.perf_counter()
        code = subprocess.run([sys.executable, str(known[name])], check=False).returncode
        console.print(f"{name}: {'ok' if code == 0 else f'FAILED ({code})'}, {time.perf_counter() - began:.1f} s")
        if code:
            failed.append(name)
    return failed
