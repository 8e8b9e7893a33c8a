"""How much of the library a warm call goes through: files and functions of the package that run, as Python sees them.

python benchmarks/call_path.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import holonomix as hx

PACKAGE = str(Path(hx.__file__).parent)


def path_of(call) -> tuple[int, int]:
    """Files and functions of the package that the second call of `call` enters."""
    call()
    seen: set[tuple[str, str, int]] = set()

    def note(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            seen.add((code.co_filename, code.co_name, code.co_firstlineno))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    if "--list" in sys.argv:
        for file, name, line in sorted(seen):
            print(f"    {file.removeprefix(PACKAGE)}:{line} {name}")
    return len({file for file, _, _ in seen}), len(seen)


def main() -> None:
    problem = hx.models.double_pendulum()
    options = {"dt": 0.01, "steps": 100}
    starts = np.repeat(np.asarray(problem.q0)[None], 4, axis=0)
    calls = {
        "simulate": lambda: hx.simulate(problem.system, hx.RATTLE(), problem.q0, problem.p0, **options),
        "simulate_ensemble": lambda: hx.simulate_ensemble(
            problem.system, hx.RATTLE(), starts, 0 * starts, **options, throw=True
        ),
    }
    for name, call in calls.items():
        files, functions = path_of(call)
        print(f"{name:18} {files:3} files {functions:4} functions")


if __name__ == "__main__":
    main()
