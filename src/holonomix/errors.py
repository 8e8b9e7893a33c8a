"""Every exception that holonomix raises on purpose derives from `HolonomixError`."""

from __future__ import annotations

import operator
from typing import Any

__all__ = [
    "ConstraintRankError",
    "ConvergenceError",
    "HolonomixError",
    "InconsistentStateError",
    "InputError",
    "MethodError",
    "NonFiniteError",
    "ShapeError",
    "SimulationError",
    "whole_number",
]


class HolonomixError(Exception):
    """The root of all errors of this package."""


class InputError(HolonomixError, ValueError):
    """An argument has a value that cannot be used; the message names it and gives the number."""


class ShapeError(InputError):
    """Arrays whose shapes do not fit together."""


class NonFiniteError(InputError):
    """NaN or infinity in the start or from a user's function."""


class InconsistentStateError(InputError):
    """A start that violates `g(q) = 0` or `G M^-1 p = 0`."""


class ConstraintRankError(InputError):
    """Constraints that are redundant or singular where they are evaluated."""


class MethodError(HolonomixError, TypeError):
    """A method that cannot treat the system it was given."""


class SimulationError(HolonomixError, RuntimeError):
    """A run that stopped before its end.

    `solution` holds everything computed before the failure, `status` says what happened, `step` and `time` where.
    """

    def __init__(self, message: str, *, solution: Any = None, status: Any = None, step: int = -1, time: float = 0.0):
        super().__init__(message)
        self.solution = solution
        self.status = status
        self.step = step
        self.time = time


class ConvergenceError(SimulationError):
    """An iteration inside a step did not converge."""


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int of at least `least`; `InputError` for anything else, 2.0 and True included."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        kinds = {0: "a whole number that is not negative", 1: "a positive whole number"}
        raise InputError(f"{name} must be {kinds.get(least, f'a whole number of at least {least}')}, not {value!r}")
    return number
