"""Integration methods, one file per family, and their registry."""

from __future__ import annotations

import importlib
from typing import Any

from .base import AbstractMethod as AbstractMethod
from .base import Traits as Traits
from .registry import FAMILIES as FAMILIES
from .registry import Entry as Entry
from .registry import registry as registry

_HOME = {name: module for module, names in FAMILIES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
