"""Every exception that holonomix raises on purpose derives from `HolonomixError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checks import flag as flag
    from .checks import number as number
    from .checks import number_list as number_list
    from .checks import one_of as one_of
    from .checks import real_array as real_array
    from .checks import report_input_errors as refusing  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from .checks import runtime_number as runtime_number
    from .checks import short_repr as shown  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from .checks import whole_number as whole_number


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

    def __init__(
        self, message: str, *, solution: object = None, status: object = None, step: int = -1, time: float = 0.0
    ):
        super().__init__(message)
        self.solution = solution
        self.status = status
        self.step = step
        self.time = time


class ConvergenceError(SimulationError):
    """An iteration inside a step did not converge."""


def __getattr__(name: str) -> Any:
    """The checks of `core.checks` under the names that they had in this module."""
    from . import checks

    new = {"shown": "short_repr", "refusing": "report_input_errors"}.get(name, name)
    if name.startswith("_") or not hasattr(checks, new):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(checks, new)
