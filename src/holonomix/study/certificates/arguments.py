"""Check of the first argument of every study, which is the problem."""

from __future__ import annotations

from ...core.checks import short_repr
from ...core.errors import InputError
from ...mechanics.abstract import AbstractSystem
from ...mechanics.problem import Problem
from ...methods.base import AbstractMethod

PROBLEM = "hx.Problem(system, q0, p0, dt, t1)"


def check_problem(call: str, problem: object, *start: object) -> None:
    """Raise an `InputError` unless `problem` is a `Problem`; `call` shows correct usage, `certify(problem, method)`.

    `start` are further positional arguments; they raise an error because a problem has its own start.
    """
    if isinstance(problem, Problem):
        if start:
            raise InputError(
                f"{call} takes the start from the problem, not {short_repr(start)}: give {PROBLEM}, and options by name"
            )
        if problem.events:
            raise InputError(
                f"{call} measures smooth motion, and this problem has bouncing stops ({len(problem.events)}): "
                "take elastic ones (limits='spring') or none"
            )
        return
    if isinstance(problem, AbstractMethod) or isinstance(problem, type) and issubclass(problem, AbstractMethod):
        name = problem.__name__ if isinstance(problem, type) else type(problem).__name__
        right = call.replace("methods", f"[{name}(...)]").replace("method", f"{name}(...)")
        raise InputError(f"{call}: the first argument is a method; write {right}")
    if isinstance(problem, AbstractSystem):
        right = call.replace("problem", PROBLEM)
        raise InputError(f"{call}: the first argument is a system without a start; write {right}")
    raise InputError(
        f"{call}: the first argument must be a Problem, not {short_repr(problem)}; take one from hx.models, or make "
        f"one with {PROBLEM}"
    )
