"""Physical systems with their starts, ready to run: `hx.models.double_pendulum()` is a `Problem`.

The defaults are those of the papers. Numbers go into the system's `params` (and `mass`), so that other lengths or other
strengths of gravity do not recompile and may be differentiated.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from ...core.checks import report_input_errors
from ...core.lazy import stub_names
from ...mechanics.problem import Problem

MODELS = {name: module for name, (module, _) in stub_names(__file__).items()}


def registry() -> dict[str, Callable[..., Problem]]:
    """Name -> the function that makes the problem."""
    return {name: _model(name) for name in MODELS}


@functools.cache
def _model(name: str) -> Callable[..., Problem]:
    return report_input_errors(getattr(importlib.import_module(f".{MODELS[name]}", __name__), name))


# older spellings that still work
ALIASES = {"magnetised_body": "magnetized_body"}


def __getattr__(name: str) -> Any:
    name = ALIASES.get(name, name)
    if name in MODELS:
        return _model(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; models are {', '.join(MODELS)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *MODELS])
