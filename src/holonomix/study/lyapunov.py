"""Lyapunov exponents from the derivative of the steps on the manifold, with error bars."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import number, whole_number
from ..core.errors import InputError, MethodError, SimulationError
from ..core.types import ArrayLike, Numbers, Real
from ..linalg.scales import loose
from ..mechanics.abstract import AbstractSystem
from ..mechanics.problem import Problem
from ..mechanics.projection import accepts_redundant, as_state_arrays, check_start, project
from ..methods.base import AbstractMethod
from ..run.arguments import SystemLike, check_method
from ..run.integrate import integrate
from .certificates.arguments import check_problem

BATCHES = 20  # batches of growth rates, whose scatter gives the statistical error
TRANSIENT = 0.1  # fraction of the run in which the tangent vectors find their directions
MAX_STEPS = 100_000_000


@dataclasses.dataclass(frozen=True)
class Lyapunov:
    """Lyapunov exponents, the largest first, with their errors (one standard deviation, and the resolution).

    `t` and `running` show the convergence: the mean growth rates from the end of the transient to each time.
    `resolution` is `log(T/T0)/T` for a run of length T that is measured from T0 on. A regular motion, whose tangent
    vectors grow like t, shows this rate. It is part of `errors`.
    """

    values: np.ndarray
    errors: np.ndarray
    resolution: float
    t: np.ndarray
    running: np.ndarray
    problem: str = ""
    method: str = ""

    @property
    def chaotic(self) -> bool:
        """Whether the largest exponent is above zero by more than three times its error."""
        return bool(self.values[0] > 3 * self.errors[0])

    def plot(self) -> Any:
        """A figure of the running means over time."""
        from .plotting.notebook import Picture

        figure = Picture(figsize=(6, 3.5), layout="constrained")
        axes = figure.add_subplot()
        for k, value in enumerate(self.values):
            (line,) = axes.plot(self.t, self.running[:, k], linewidth=0.9, label=f"{value:.4g} ± {self.errors[k]:.1g}")
            axes.axhspan(value - self.errors[k], value + self.errors[k], color=line.get_color(), alpha=0.15)
        axes.set(xlabel="t", ylabel="Lyapunov exponents", title=self.problem)
        axes.legend(fontsize="small")
        return figure

    def __repr__(self) -> str:
        found = ", ".join(f"{x:.4g} +- {e:.1g}" for x, e in zip(self.values, self.errors, strict=True))
        return f"Lyapunov exponents of {self.problem or 'the problem'}: {found} (t = {self.t[-1]:g}, {self.method})"


def lyapunov(
    problem: SystemLike,
    method: AbstractMethod,
    *start: ArrayLike,
    count: int = 1,
    dt: float | None = None,
    t1: float | None = None,
    every: int = 10,
    seed: int = 0,
) -> Lyapunov:
    """The `count` largest Lyapunov exponents of the motion from the problem's start, each with its error bar.

    The derivative of the method's steps (forward mode) transports tangent vectors of the phase space `{g = 0, G M^-1 p
    = 0}` along the trajectory. They are orthonormalized every `every` steps (Benettin et al. 1980). The exponents are
    their mean growth rates, without the first tenth of the run. Errors combine the scatter of 20 batches with the
    resolution of the run, so an exponent of regular motion is zero within its error. Errors shrink with `t1`; the
    default is that of the problem or 5000 steps, whichever is longer.

    Methods with memory, random numbers or adaptive steps raise an error.
    """
    check_problem("lyapunov(problem, method)", problem, *start)
    assert isinstance(problem, Problem)
    dt = number("dt", problem.dt if dt is None else dt)
    every = whole_number("every", every)
    if not np.isfinite(dt) or dt <= 0:
        raise InputError(f"dt must be positive and finite, not {dt:g}")
    length = max(problem.t1, 5000 * dt) if t1 is None else number("t1", t1)
    chunks = math.ceil(length / (dt * every) - 1e-9)
    if not 4 * BATCHES <= chunks <= MAX_STEPS / every:
        raise InputError(
            f"t1 = {length:g} is {chunks * every} steps of dt = {dt:g}: give at least {4 * BATCHES * every} steps, at "
            f"most {MAX_STEPS}"
        )
    q, p = as_state_arrays(problem.q0, problem.p0)
    system = problem.system
    check_method(method, system)
    if method.adaptive or method.stochastic or not method.one_step:
        raise MethodError(f"{method.name}: exponents need a one-step method with fixed dt and no random numbers")
    check_start(system, q, p, dt=dt, redundant=accepts_redundant(method))
    free = 2 * (q.size - (_rank(system, q) if system.has_constraints else 0))
    if whole_number("count", count) > free:
        raise InputError(f"count = {count}, but the phase space has dimension {free}")
    rates = _growth(system.prepare(q), method, q, p, dt, every, chunks, count, seed)
    if not np.all(np.isfinite(rates)):
        first = int(np.argmin(np.all(np.isfinite(rates), axis=1)))
        raise SimulationError(
            f"the run or its derivative is not finite from t = {first * every * dt:g} on: try a smaller dt, or "
            "call hx.simulate, whose error gives the cause"
        )
    return _summary(rates, dt * every, problem.name, method.name)


def _rank(system: AbstractSystem, q: Numbers) -> int:
    """The number of independent constraints."""
    rows = np.asarray(jax.jacobian(lambda x: system.constraint(x, jnp.zeros((), q.dtype)))(q)).reshape(-1, q.size)
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    return int(np.linalg.matrix_rank(rows / np.where(sizes > 0, sizes, 1.0), tol=loose(q.dtype)))


def _growth(
    system: AbstractSystem,
    method: AbstractMethod,
    q: Numbers,
    p: Numbers,
    dt: float,
    every: int,
    chunks: int,
    count: int,
    seed: int,
) -> np.ndarray:
    """Logarithms of the growth of each tangent vector, one row per chunk of `every` steps."""

    def step(q: Numbers, p: Numbers, t: Real) -> Any:
        return integrate(system, method, q, p, dt=dt, steps=every, t0=t, adjoint="forward")

    identity = lambda dq, dp: (dq, dp)
    # the derivative of the projection maps onto the tangent space
    redundant = "min-norm" if accepts_redundant(method) else None
    nearest = lambda q, p: project(system, q, p, redundant=redundant)
    onto = jax.linearize(nearest, q, p)[1] if system.has_constraints else identity
    unit = _units(system, method, q, p, dt, every, seed, onto)

    def orthonormal(tangents: PyTree) -> tuple[Any, Any]:
        flat = [jnp.reshape(x, (count, -1)) / u for x, u in zip(tangents, unit, strict=True)]
        basis, upper = jnp.linalg.qr(jnp.concatenate(flat, axis=1).T)
        parts = jnp.split(basis.T, 2, axis=1)
        return tuple(u * x.reshape(count, *q.shape) for x, u in zip(parts, unit, strict=True)), jnp.abs(jnp.diag(upper))

    @eqx.filter_jit
    def run(q: Numbers, p: Numbers, tangents: PyTree) -> Any:
        def chunk(carry: PyTree, k: Numbers) -> Any:
            q, p, tangents = carry
            flow = lambda q, p: step(q, p, k * (every * dt))
            (q, p), push = jax.linearize(flow, q, p)
            tangents, growth = orthonormal(jax.vmap(push)(*tangents))
            return (q, p, tangents), jnp.log(growth)

        return jax.lax.scan(chunk, (q, p, tangents), jnp.arange(chunks))[1]

    tangents = tuple(u * x for u, x in zip(unit, _directions(q, count, seed), strict=True))
    tangents = jax.vmap(onto)(*tangents)
    return np.asarray(run(q, p, orthonormal(tangents)[0]))


def _units(
    system: AbstractSystem,
    method: AbstractMethod,
    q: Numbers,
    p: Numbers,
    dt: float,
    every: int,
    seed: int,
    onto: Callable[..., Any],
) -> list[Any]:
    """Scales of q and p, whose units differ, for the norm of tangent vectors; taken from the motion after the start.

    If the start is at rest, its changes are round-off and give no scale. Then only the ratio of momenta to positions
    matters. It is taken from two tangent vectors, transported from a change of q and from a change of p, which bound it
    from both sides.
    """

    def rows(q: Numbers, p: Numbers) -> Any:
        steps, gap = max(every, 200), max(1, every // 2)
        return integrate(system, method, q, p, dt=dt, steps=steps, save_every=gap, adjoint="forward")

    pilot = [np.asarray(x) for x in rows(q, p)]
    scales = [float(np.nanmax(np.abs(x - np.mean(x, axis=0)))) for x in pilot]
    force = dt * float(jnp.max(jnp.abs(system.force(q, p, jnp.zeros((), q.dtype)))))
    sizes = [float(np.nanmax(np.abs(x))) for x in pilot]
    if scales[0] <= loose(q.dtype) * sizes[0] or scales[1] <= loose(q.dtype) * max(sizes[1], force):
        dq, dp = (x[0] for x in _directions(q, 1, seed))
        push = jax.jit(lambda dq, dp: jax.jvp(rows, (q, p), onto(dq, dp))[1])
        moved = [float(jnp.max(jnp.abs(x))) for way in ((dq, 0 * dp), (0 * dq, dp)) for x in push(*way)]
        by_position, by_momentum = (b / a if a else 0.0 for a, b in (moved[:2], moved[2:]))
        scales = [1.0, math.sqrt(by_position * by_momentum) or by_position or by_momentum]
    return [jnp.asarray(x if np.isfinite(x) and x > 0 else 1.0, q.dtype) for x in scales]


def _directions(q: Numbers, count: int, seed: int) -> list[Any]:
    """Random changes of q and of p."""
    return [jax.random.normal(k, (count, *q.shape), q.dtype) for k in jax.random.split(jax.random.key(seed), 2)]


def _summary(rates: np.ndarray, gap: float, problem: str, method: str) -> Lyapunov:
    """Means, batch errors and running means of the growth in chunks of length `gap`."""
    first = int(TRANSIENT * len(rates))
    kept = rates[first:] / gap
    t = gap * (first + 1 + np.arange(len(kept)))
    running = np.cumsum(kept, axis=0) / (1 + np.arange(len(kept)))[:, None]
    batches = np.stack([part.mean(axis=0) for part in np.array_split(kept, BATCHES)])
    scatter = batches.std(axis=0, ddof=1) / math.sqrt(BATCHES)
    resolution = math.log(1 / TRANSIENT) / (gap * len(kept))
    return Lyapunov(kept.mean(axis=0), np.hypot(scatter, resolution), resolution, t, running, problem, method)
