"""SymPy, imported when it is used."""

from __future__ import annotations

import importlib
from typing import Any

from ...core.checks import short_repr
from ...core.errors import InputError


def sympy_module(name: str = "sympy") -> Any:
    """SymPy or one of its modules; raises `InputError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError("from_sympy needs SymPy: pip install 'holonomix[sympy]'") from None


def as_expression(what: str, value: Any) -> Any:
    """An object of SymPy, or a number, as an object of SymPy. Text is refused: SymPy would execute it as Python."""
    sympy = sympy_module()
    try:
        return sympy.sympify(value, strict=True)
    except (sympy.SympifyError, TypeError) as error:
        text = "; text is not evaluated" if isinstance(value, str) else ""
        raise InputError(f"{what} must be an expression of SymPy, not {short_repr(value)}{text}") from error
