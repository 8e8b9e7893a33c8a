"""Errors and warnings. Every exception that holonomix raises on purpose derives from `HolonomixError`."""

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
    """The base class of all errors of this package."""


class InputError(HolonomixError, ValueError):
    """An invalid argument; the message names it and shows its value."""


class ShapeError(InputError):
    """Arrays of incompatible shapes."""


class NonFiniteError(InputError):
    """NaN or infinity in the initial state or from a user's function."""


class InconsistentStateError(InputError):
    """An initial state that violates `g(q) = 0` or `G M^-1 p = 0`."""


class ConstraintRankError(InputError):
    """Constraints that are redundant or singular at the point of evaluation."""


class MethodError(HolonomixError, TypeError):
    """A method that cannot treat the given system."""


class SimulationError(HolonomixError, RuntimeError):
    """A run that stopped early.

    `solution` holds everything computed before the failure; `status`, `step` and `time` describe the failure.
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


class DifferentBitsWarning(UserWarning):
    """A run is resumed in another environment: its last bits may differ from those of an uninterrupted run."""


class FailedTrajectoriesWarning(UserWarning):
    """Some trajectories of an ensemble stopped before their end; their later rows are NaN."""


class ResonanceWarning(UserWarning):
    """Fast frequencies coincide or nearly satisfy a second-order resonance: the effective system may be invalid."""


def __getattr__(name: str) -> Any:
    """The checks of `core.checks` under the names that they had in this module."""
    from . import checks

    new = {"shown": "short_repr", "refusing": "report_input_errors"}.get(name, name)
    if name.startswith("_") or not hasattr(checks, new):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(checks, new)
