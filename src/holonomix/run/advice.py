"""Errors of failed runs: the place, the numbers, and advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.errors import ConvergenceError, SimulationError
from ..core.status import Status
from ..core.types import Numbers, Real
from ..mechanics.abstract import AbstractSystem
from ..mechanics.projection import AbstractSolver, Newton, constraint_sizes
from ..methods.base import AbstractMethod
from ..trace.compiled import compiled
from .run import Run
from .solution import Solution

MAX_TURN = 60  # degrees; a step is short enough if it turns no constraint gradient further
MAX_CHANGE = 0.5  # relative; a step is short enough if constraint forces change no more
MIN_SUDDEN_CHANGE = 2.0  # relative; a larger change of constraint forces explains the failure of a step
MIN_VIOLATION = 1e-3  # relative; a state with a larger constraint violation has left the manifold


def failure(run: Run, solution: Solution) -> SimulationError:
    """The error for a trajectory that failed; `solution` holds its rows so far."""
    carry, status, loop = run.lane(0), solution.status, run.loop
    n, t = int(carry.state.n), float(carry.state.t)
    numbers = f"residual {float(carry.residual):.3g}, {int(carry.most_iterations)} iterations at most"
    rows = "row before it is" if run.record.rows == 1 else f"{run.record.rows} rows before it are"
    message = (
        f"{loop.method.title}: {status.message} in step {n + 1} after t = {t:g} "
        f"({numbers}, dt = {float(loop.consts.dt):g}). "
        f"{advice(status, loop.method, loop.system, carry.state.q, carry.state.t, carry.state.p, loop.consts.dt)} "
        f"The {rows} in `error.solution`" + ("." if run.record.sink is None else " and in the store.")
    )
    kind = ConvergenceError if status == Status.NOT_CONVERGED else SimulationError
    return kind(message, solution=solution, status=status, step=n + 1, time=t)


def advice(
    status: Status,
    method: AbstractMethod,
    system: AbstractSystem,
    q: Numbers,
    t: Real,
    p: Numbers | None = None,
    dt: Real | None = None,
) -> str:
    """One sentence of advice; `q`, `p` and `t` are the last good state, `dt` is the step that failed."""
    text = status.advice
    if status == Status.NOT_CONVERGED:
        text = "try a smaller dt, or a larger max_iterations" + "".join(f", or {x}" for x in _faster_iterations(method))
    if status in (Status.NOT_CONVERGED, Status.OTHER_ROOT, Status.NONFINITE) and p is not None and dt is not None:
        shorter = None if status == Status.NONFINITE else _gentle_step(system, q, p, t, dt)
        if shorter is not None:
            text = f"without constraint forces the step would turn a constraint gradient by more than {MAX_TURN} "
            text += f"degrees: take dt below {shorter:.2g}"
        elif status == Status.OTHER_ROOT:
            text = f"take dt below {abs(float(dt)) / 2:.2g}"
        else:
            text = _sudden_forces(system, q, p, t, dt) or text
    if status == Status.NONFINITE and (violation := _violation(method, system, q, t)) is not None:
        text = (
            f"the state had left the manifold (max|g| = {violation:.3g}), because {method.name} does not enforce the "
            "constraint: use RATTLE, a composition of it, or LineIntegral; a smaller dt only delays the failure"
        )
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _gentle_step(system: AbstractSystem, q: Numbers, p: Numbers, t: Real, dt: Real) -> float | None:
    """The largest of `dt / 2^k` with which no constraint gradient turns by more than `MAX_TURN` degrees in a step.

    None if dt itself is one, or if none is found.
    """
    if not system.has_constraints:
        return None
    dts = float(dt) * 0.5 ** np.arange(21)  # negative if the run goes backward
    cosines = np.asarray(_row_cosines(system, *(jnp.asarray(x) for x in (q, p, t, dts))))
    gentle = np.flatnonzero(cosines >= np.cos(np.radians(MAX_TURN)))
    return abs(float(dts[gentle[0]])) if gentle.size and gentle[0] > 0 else None


@compiled
def _row_cosines(system: AbstractSystem, q: Numbers, p: Numbers, t: Real, dts: Numbers) -> Any:
    """For each step size, the smallest cosine between a row of G before and after an unconstrained step."""
    speed, force = system.velocity(q, p), system.inverse_mass(q, system.force(q, p, t))
    mass, before = system.mass_form(q), system.linearize(q, t)

    def smallest(h: Real) -> Any:
        after = system.linearize(q + h * speed + h**2 / 2 * force, t + h)
        both = after.row_products(mass, q, after) * before.row_products(mass, q, before)
        return jnp.min(after.row_products(mass, q, before) / jnp.sqrt(both))

    return jax.lax.map(smallest, dts)


def _sudden_forces(system: AbstractSystem, q: Numbers, p: Numbers, t: Real, dt: Real) -> str | None:
    """Advice for a step in which constraint forces grow far more than other forces; None if they do not.

    This happens near a singular position, where constraints transfer the kinetic energy of heavy bodies to light ones.
    At a time T before it, the light bodies have about `k = P T` of the kinetic energy K; P is the transferred power.
    Their part grows as `1/T` until it equals K, so the passage takes about `T k/K`.
    """
    if not system.has_constraints:
        return None
    dts = float(dt) * 0.5 ** (np.arange(61) / 2)
    held, applied, pace = map(np.asarray, _force_changes(system, *map(jnp.asarray, (q, p, t, dts))))
    fast = np.flatnonzero(~(held <= MAX_CHANGE))
    sudden = np.any(held >= MIN_SUDDEN_CHANGE) and applied[0] <= MAX_CHANGE and fast[-1] + 1 < len(dts)
    if not sudden or not 0 < pace < np.inf:
        return None
    ahead = 4 * abs(float(dts[fast[-1] + 1]))  # forces change by half in about a quarter of the remaining time
    passage = min(float(pace) * ahead, 1.0) * ahead
    if passage > abs(float(dt)) / 8:
        return None
    return (
        f"within a time of {ahead:.1g} constraint forces grow far more than other forces: the motion approaches a "
        "singular position, for example with two links in line, where heavy bodies accelerate light ones; the passage "
        f"takes about {passage:.1g}. Take dt below {2 * passage:.1g}, or start from another position"
    )


@compiled
def _force_changes(system: AbstractSystem, q: Numbers, p: Numbers, t: Real, dts: Numbers) -> tuple[Any, Any, Any]:
    """Changes of the constraint forces, changes of all other forces, and the power that constraints transfer.

    The changes are relative, one per entry of `dts`: from the start to the end of one explicit step of that size with
    constant forces. The power is a scalar, the rate at which constraint forces take energy from some coordinates and
    give it to others, divided by the kinetic energy.
    """

    def forces(q: Numbers, p: Numbers, t: Real) -> tuple[Any, Any]:
        return system.linearize(q, t).transpose(system.multipliers(q, p, t)), system.force(q, p, t)

    held, applied = forces(q, p, t)
    speed, push = system.velocity(q, p), applied - held
    norm = lambda x: jnp.sqrt(jnp.sum(x * system.inverse_mass(q, x)))

    def changes(h: Real) -> tuple[Any, Any]:
        after = forces(q + h * speed + h**2 / 2 * system.inverse_mass(q, push), p + h * push, t + h)
        return norm(after[0] - held) / norm(held), norm(after[1] - applied) / jnp.maximum(norm(held), norm(applied))

    return *jax.lax.map(changes, dts), jnp.sum(jnp.maximum(-speed * held, 0.0)) / system.kinetic(q, p)


def _faster_iterations(method: AbstractMethod) -> Iterator[str]:
    """Options of the method whose iterations converge from a worse initial guess."""
    parts = jax.tree.leaves(method, is_leaf=lambda x: isinstance(x, AbstractSolver))
    if any(isinstance(x, AbstractSolver) and not isinstance(x, Newton) for x in parts):
        yield "solver=Newton()"
    inner = getattr(method, "method", method)
    if getattr(inner, "iteration", "newton") != "newton":
        yield 'iteration="newton"'


def _violation(method: AbstractMethod, system: AbstractSystem, q: Numbers, t: Real) -> float | None:
    """`max|g(q)|` if q is far from the manifold and the method does not enforce the constraint; None otherwise."""
    if not system.has_constraints or method.traits_on(system).constraint_exact:
        return None
    g = np.abs(np.asarray(system.constraint(q, t)))
    return float(np.max(g)) if np.any(g > MIN_VIOLATION * np.asarray(constraint_sizes(system, q, t))) else None
