"""What is raised when a run fails: where, with which numbers, and what to try."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from ..errors import ConvergenceError, SimulationError
from ..methods.base import AbstractMethod
from ..projection import AbstractSolver, Newton, constraint_sizes
from ..status import Status
from ..systems.abstract import AbstractSystem
from ..types import Numbers, Real
from .run import Run
from .solution import Solution

OFF = 1e-3  # relative violation of a constraint from which a state counts as having left the manifold


def failure(run: Run, solution: Solution) -> SimulationError:
    """The error of one trajectory that failed; `solution` is what there is of it."""
    carry, status, n = run.carry, solution.status, int(run.carry.state.n)
    t, plan = float(carry.state.t), run.plan
    numbers = f"residual {float(carry.residual):.3g}, {int(carry.most_iterations)} iterations at most"
    rows = "row before it is" if run.record.rows == 1 else f"{run.record.rows} rows before it are"
    message = (
        f"{plan.method.name}: {status.message} in step {n + 1} after t = {t:g} "
        f"({numbers}, dt = {float(plan.consts.dt):g}). "
        f"{advice(status, plan.method, plan.system, carry.state.q, carry.state.t)} "
        f"The {rows} in `error.solution`" + ("." if run.record.sink is None else " and in the store.")
    )
    kind = ConvergenceError if status == Status.NOT_CONVERGED else SimulationError
    return kind(message, solution=solution, status=status, step=n + 1, time=t)


def advice(status: Status, method: AbstractMethod, system: AbstractSystem, q: Numbers, t: Real) -> str:
    """One sentence; `q` and `t` are those of the last good state."""
    text = status.advice
    if status == Status.NOT_CONVERGED:
        text = "try a smaller dt, or a larger max_iterations" + "".join(f", or {x}" for x in _faster_iterations(method))
    if status == Status.NONFINITE and (violation := _violation(method, system, q, t)) is not None:
        text = (
            f"it had left the manifold (max|g| = {violation:.3g}), which {method.name} does not keep: use RATTLE, a "
            "composition of it, or LineIntegral; a smaller dt only delays this"
        )
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _faster_iterations(method: AbstractMethod) -> Iterator[str]:
    """Iterations that converge from further away than the one in use."""
    parts = jax.tree.leaves(method, is_leaf=lambda x: isinstance(x, AbstractSolver))
    if any(isinstance(x, AbstractSolver) and not isinstance(x, Newton) for x in parts):
        yield "solver=Newton()"
    inner = getattr(method, "method", method)
    if getattr(inner, "iteration", "newton") != "newton":
        yield 'iteration="newton"'


def _violation(method: AbstractMethod, system: AbstractSystem, q: Numbers, t: Real) -> float | None:
    """By how much q violates the constraint, where the method lets it drift far; None elsewhere."""
    if not system.has_constraints or method.traits_on(system).constraint_exact:
        return None
    g = np.abs(np.asarray(system.constraint(q, t)))
    return float(np.max(g)) if np.any(g > OFF * np.asarray(constraint_sizes(system, q, t))) else None
