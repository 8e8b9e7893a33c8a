"""One enumeration of all reasons why a run can end, each with a message and advice."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """How a step, a trajectory or a run ended. Zero is success. Compiled loops carry it as an int."""

    OK = 0
    NOT_CONVERGED = 1
    SINGULAR = 2
    NONFINITE = 3
    INDEFINITE = 4
    MONITOR = 5
    STEP_UNDERFLOW = 6
    UNREACHED = 7
    TERMINATED = 8  # a terminal event: an end, not a failure
    OTHER_ROOT = 9

    @property
    def failed(self) -> bool:
        return self not in (Status.OK, Status.TERMINATED)

    @property
    def message(self) -> str:
        return _TEXT[self][0]

    @property
    def advice(self) -> str:
        return _TEXT[self][1]


_TEXT = {
    Status.OK: ("finished", ""),
    Status.NOT_CONVERGED: (
        "the nonlinear iteration of a step did not converge",
        "try a smaller dt, or a larger max_iterations",
    ),
    Status.SINGULAR: (
        "the constraint matrix G M^-1 G^T became singular",
        "constraints are redundant or the configuration is singular there; remove a constraint, or choose "
        'redundant="min-norm"',
    ),
    Status.NONFINITE: (
        "the state is no longer finite",
        "try a smaller dt; check that the potential, its gradient and the constraint are finite there",
    ),
    Status.INDEFINITE: (
        "the matrix M + beta h^2 V'' is no longer positive definite",
        "try a smaller dt or a smaller stiffness omega: the method needs omega h^2 to stay small",
    ),
    Status.MONITOR: (
        "the step-size monitor, or the step density that follows it, is not positive and finite",
        "give a monitor U(q, p) that is bounded away from zero, for instance sqrt(U^2 + floor^2), or a smaller dt",
    ),
    Status.STEP_UNDERFLOW: (
        "the adaptive step became too small to advance time",
        "bound the monitor from above (StepBounds), or start with a larger dt",
    ),
    Status.UNREACHED: ("the target time was not reached", "allow more steps (max_steps) or take a larger dt"),
    Status.TERMINATED: ("a terminal event ended the run", ""),
    Status.OTHER_ROOT: (
        "the step reached another solution of g(q) = 0: it turned a constraint gradient by more than 90 degrees",
        "take a smaller dt",
    ),
}
