"""Packages that draw results, for the results themselves: `pictures.plotting.plot_solution(sol)`.

`plotting` and `viewer` know the results that they show, so a result cannot import them. `holonomix/__init__.py`, above
all of them, names them in `SOURCES`; each is loaded when a picture is first asked for. The stub beside this file tells
type checkers what they hold.
"""

from __future__ import annotations

import importlib
from types import ModuleType

SOURCES: dict[str, str] = {}


def __getattr__(name: str) -> ModuleType:
    if name not in SOURCES:
        raise AttributeError(f"nothing called {name!r} draws pictures")
    return importlib.import_module(SOURCES[name])
