"""SymPy, imported when it is used."""

from __future__ import annotations

import importlib
from typing import Any

from ...core.errors import InputError


def sympy_module(name: str = "sympy") -> Any:
    """SymPy or one of its modules; raises `InputError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError("from_sympy needs SymPy: pip install 'holonomix[sympy]'") from None
