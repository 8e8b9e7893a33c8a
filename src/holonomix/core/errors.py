"""Errors and warnings. Every exception that holonomix raises on purpose derives from `HolonomixError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .status import Status


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
        self, message: str, *, solution: object = None, status: Status | None = None, step: int = -1, time: float = 0.0
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
    """Trajectories of an ensemble, or a run of `integrate`, stopped before their end; their later rows are NaN."""


class ResonanceWarning(UserWarning):
    """Fast frequencies coincide or nearly satisfy a second-order resonance: the effective system may be invalid."""
