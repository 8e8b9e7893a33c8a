"""Lazy access to the packages that draw or convert results: `pictures.plotting.plot_solution(sol)`.

`plotting`, `viewer` and `atoms` import the results that they process, so a result cannot import them.
`holonomix/__init__.py`, in the layer above, registers them in `SOURCES`. Each is imported on first use. The stub beside
this file declares their contents to type checkers.
"""

from __future__ import annotations

import importlib
from types import ModuleType

SOURCES: dict[str, str] = {}


def __getattr__(name: str) -> ModuleType:
    if name not in SOURCES:
        raise AttributeError(f"nothing called {name!r} is registered")
    return importlib.import_module(SOURCES[name])
