"""The arguments of a run: their names and defaults, and what can be wrong with them before any number is computed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..core import forks
from ..core.errors import InputError, MethodError, shown, whole_number
from ..core.types import ArrayLike, Function, Real, Sink
from ..mechanics.abstract import AbstractSystem
from ..mechanics.problem import Problem
from ..mechanics.projection import check_system
from ..methods.base import AbstractMethod

if TYPE_CHECKING:
    # what users give; our own errors judge it
    SystemLike: TypeAlias = AbstractSystem | Problem
    PlainSystem: TypeAlias = AbstractSystem
    MethodLike: TypeAlias = AbstractMethod
    StoreLike: TypeAlias = str | os.PathLike[str] | Sink
    Observe: TypeAlias = Function | Mapping[str, Function]
else:
    SystemLike = PlainSystem = MethodLike = StoreLike = Observe = object

MOST_STEPS = 1 << 53  # up to here `n dt` knows n exactly


@dataclasses.dataclass(frozen=True)
class Options:
    """How long a run is, what is saved and computed on the way, and by which back end.

    `simulate` and `simulate_ensemble` say what each one means; `in_axes` and `reduce` are for ensembles, `save_at` and
    `dense` for one trajectory.
    """

    dt: Any = None
    steps: Any = None
    t1: Any = None
    t0: Any = 0.0
    max_steps: int = 10_000_000
    save_every: Any = 1
    save_at: Any = None
    observe: Any = None
    events: Any = ()
    reduce: Any = None
    dense: bool = False
    key: Any = None
    in_axes: Any = None
    backend: str = "auto"

    def count(self, method: AbstractMethod, at: Real | None = None) -> int:
        """The number of steps, or for an adaptive method that ends at `t1` the most there may be."""
        dt = self.dt if at is None else at
        if (self.steps is None) == (self.t1 is None):
            raise InputError(f"give either steps or t1, not {'both' if self.steps is not None else 'neither'}")
        if self.save_every is not None:
            whole_number("save_every", self.save_every)
        check_clock(self.t0, dt)
        if self.t1 is None:
            steps = whole_number("steps", self.steps, 0)
        else:
            if not _is_number("t1", self.t1):
                raise InputError(f"t1 must be a number, not {shown(self.t1)}")
            if not (np.isfinite(self.t1) and (self.t1 - self.t0) * dt > 0):
                raise InputError(f"t1 = {self.t1:g} cannot be reached from t0 = {self.t0:g} with dt = {dt:g}")
            steps = self.max_steps if method.adaptive else int(np.ceil((self.t1 - self.t0) / dt - 1e-9))
        if steps > MOST_STEPS:
            raise InputError(f"{steps:.3g} steps are more than can be counted; take a larger dt or an earlier t1")
        return steps


class Given(NamedTuple):
    """System, start and options, with what a `Problem` in place of the system stands for."""

    system: AbstractSystem
    q0: ArrayLike
    p0: ArrayLike
    options: Options
    problem: Problem | None

    @staticmethod
    def of(system: SystemLike, q0: ArrayLike | None, p0: ArrayLike | None, options: Options) -> Given:
        if forks.forked:
            raise forks.fork_error()
        if not isinstance(system, Problem):
            if q0 is None or p0 is None:
                missing = " and ".join(name for name, x in (("q0", q0), ("p0", p0)) if x is None)
                raise InputError(
                    f"{missing} must be given: the start, beside the system; or give a Problem, which has one"
                )
            if options.dt is None:
                raise InputError("dt must be given: the step; or give a Problem, which has one")
            return Given(system, q0, p0, options, None)
        problem, dt, t1 = system, system.dt if options.dt is None else options.dt, options.t1
        if options.steps is None and t1 is None and options.save_at is None:
            check_concrete("the number of steps of a Problem", dt, options.t0)
            check_clock(options.t0, dt)
            t1 = options.t0 + float(np.copysign(problem.t1, np.ravel(dt)[0]))
        start = problem.q0 if q0 is None else q0, problem.p0 if p0 is None else p0
        return Given(problem.system, *start, dataclasses.replace(options, dt=dt, t1=t1), problem)


def check_kinds(method: MethodLike, system: object) -> None:
    """`method` is a method and `system` a system."""
    if not isinstance(method, AbstractMethod):
        hint = f"; write {method.__name__}()" if isinstance(method, type) else ""
        raise MethodError(f"method must be an instance of a method, not {method!r}{hint}")
    check_system(system)


def check_method(method: MethodLike, system: PlainSystem) -> None:
    """`method` is a method, `system` a system, and the one can treat the other."""
    check_kinds(method, system)
    method.check(system)


def check_concrete(name: str, *values: object) -> None:
    """A run that leaves compiled code between its chunks cannot be traced."""
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(values)):
        raise InputError(f"{name} cannot run inside jit, vmap or grad; hx.integrate does")


def check_step(method: AbstractMethod, dt: object, key: object, *, several: bool = False) -> None:
    """Step and key; `several` allows an array of dt."""
    if not isinstance(dt, Tracer):
        step = _as_numbers("dt", dt)
        if step.dtype.kind not in "fiu" or not np.all(np.isfinite(step)) or np.any(step == 0):
            raise InputError(f"dt must be a finite number and not zero (negative runs backwards), not {dt!r}")
        if step.ndim and not several:
            raise InputError(f"dt must be one number, not an array of shape {step.shape}; simulate_ensemble takes many")
        if np.any(step < 0) and (reason := method.one_way()):
            worst = float(np.min(step))
            raise InputError(
                f"{method.name} cannot run backwards, with dt = {worst:g}: {reason}. Take dt = {-worst:g}: what it "
                "samples does not depend on the direction; or friction=0, which leaves the heat bath out"
            )
    if method.stochastic and not _is_key(key):
        instead = "" if key is None else f", not {key!r}"
        raise InputError(f"{method.name} draws random numbers: give a key, for instance key=jax.random.key(0){instead}")
    if key is not None and not _is_key(key):
        raise InputError(f"key must come from jax.random, for instance jax.random.key(0), not {key!r}")


def _is_key(key: object) -> bool:
    """A typed key of `jax.random`, or the raw numbers of one."""
    dtype = getattr(key, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == np.uint32)


def _as_numbers(name: str, value: object) -> np.ndarray:
    """`value` as a NumPy array of whatever it holds."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number or an array of numbers, not {shown(value)}") from error


def _is_number(name: str, value: object) -> bool:
    found = _as_numbers(name, value)
    return found.ndim == 0 and found.dtype.kind in "fiu"


def check_clock(t0: Any, dt: Real) -> None:
    """Time moves: `t0` is a finite number, small enough that adding `dt` to it changes it."""
    if isinstance(t0, Tracer):
        return
    if not _is_number("t0", t0):
        raise InputError(f"t0 must be a number, not {shown(t0)}")
    if not np.isfinite(t0):
        raise InputError(f"t0 must be finite, not {t0}")
    if isinstance(dt, Tracer):
        return
    step = float(np.min(np.abs(np.asarray(dt))))
    if float(np.spacing(abs(float(t0)))) >= step:
        raise InputError(
            f"time stands still: at t0 = {t0:g} the next number is {float(np.spacing(abs(float(t0)))):g} away, further "
            f"than dt = {step:g}; count time from a smaller t0"
        )


def check_times(save_at: object, dt: float, t0: float) -> np.ndarray:
    """The times asked for, which must run the way of the simulation."""
    try:
        times = np.atleast_1d(np.asarray(save_at, float))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"save_at must be a list of times, not {shown(save_at)}") from error
    way = np.sign(dt)
    if times.ndim != 1 or not len(times) or not np.all(np.isfinite(times)) or np.any(way * np.diff(times) <= 0):
        order = "increasing" if way > 0 else "decreasing"
        raise InputError(f"save_at must be a strictly {order} list of finite times")
    if way * (times[0] - t0) < 0:
        raise InputError(f"save_at begins at {times[0]:g}, before the start at t0 = {t0:g}")
    return times


def slack(t: float, dt: float) -> float:
    """How far beyond t a time may lie and still mean t: a rounding of `t0 + n dt`, or a trifle of a step."""
    return 1e-9 * abs(dt) + 8 * float(np.spacing(abs(t)))


def check_output(
    method: MethodLike, wanted: np.ndarray | None, dense: bool, stored: bool, t_last: float, dt: float
) -> None:
    """What was asked to be shown must be there to show."""
    if not isinstance(dense, (bool, np.bool_)):
        raise InputError(f"dense must be True or False, not {dense!r}")
    if wanted is None and not dense:
        return
    if method.stochastic:
        raise MethodError(f"{method.name} draws random numbers in every step: it has no state between two steps")
    if dense and (stored or wanted is not None):
        other = "a store" if stored else "save_at"
        raise InputError(f"dense=True keeps the memory of every row, which {other} does not hold; use one of them")
    if wanted is not None and (wanted[-1] - t_last) * np.sign(dt) > slack(t_last, dt):
        raise InputError(f"save_at ends at {wanted[-1]:g}, after the end of the run at {t_last:g}")
