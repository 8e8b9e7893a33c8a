"""The arguments of a run: names, defaults, and the checks that need no computation."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from ..core import forks
from ..core.checks import flag, number, short_repr, whole_number
from ..core.errors import InputError, MethodError, ShapeError
from ..core.types import Array, ArrayLike, Function, Index, Key, Numbers, Real, Sink
from ..mechanics.abstract import AbstractSystem
from ..mechanics.problem import Problem
from ..mechanics.projection import as_array, as_state_arrays, check_system
from ..methods.base import AbstractMethod
from ..methods.registry import registry
from .parameters import axes_of_start, merge_params

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from rich.console import Console

    from .events import Event
    from .io import EnsembleStore, StorePlace

    # user input, checked with our own errors
    SystemLike: TypeAlias = AbstractSystem | Problem
    PlainSystem: TypeAlias = AbstractSystem
    MethodLike: TypeAlias = AbstractMethod
    StoreLike: TypeAlias = str | os.PathLike[str] | Sink
    EnsembleStoreLike: TypeAlias = str | os.PathLike[str] | EnsembleStore | StorePlace
    Observe: TypeAlias = Function | Mapping[str, Function]
    Events: TypeAlias = Event | Function | Sequence[Event | Function]
    ExecutorLike: TypeAlias = Executor | Callable[[], Executor]
    ProgressLike: TypeAlias = bool | Console | None
else:
    SystemLike = PlainSystem = MethodLike = StoreLike = EnsembleStoreLike = Observe = object
    Events = ExecutorLike = ProgressLike = object

MAX_STEPS = 1 << 53  # step counts up to this one are exact as floats
BATCHED = ("q0", "p0", "params", "dt")  # inputs that may differ between trajectories


@dataclasses.dataclass(frozen=True)
class Options:
    """The length of a run, its output, and its back end.

    `simulate` and `simulate_ensemble` document each field; `in_axes` and `reduce` are for ensembles, `save_at` and
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
        """The number of steps; for an adaptive method that ends at `t1`, its maximum."""
        dt = self.dt if at is None else at
        if (self.steps is None) == (self.t1 is None):
            raise InputError(f"give either steps or t1, not {'both' if self.steps is not None else 'neither'}")
        if self.save_every is not None:
            whole_number("save_every", self.save_every)
        check_clock(self.t0, dt)
        if self.t1 is None:
            steps = whole_number("steps", self.steps, 0)
        else:
            if (number("t1", self.t1) - self.t0) * dt <= 0:
                raise InputError(f"t1 = {self.t1:g} cannot be reached from t0 = {self.t0:g} with dt = {dt:g}")
            steps = self.max_steps if method.adaptive else int(np.ceil((self.t1 - self.t0) / dt - 1e-9))
        if steps > MAX_STEPS:
            raise InputError(f"{steps:.3g} steps are more than can be counted; take a larger dt or an earlier t1")
        return steps


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments of a run; the parts of a `Problem` are separate.

    After `alone` or `spread`, `q0`, `p0` and `keys` have an axis over trajectories, and `steps` is the number of steps.
    `axes` says what else has one, like `in_axes` of `simulate_ensemble`; it is None for one trajectory. Arguments can
    be pickled and restricted, so that another process can run some of the trajectories.
    """

    system: PlainSystem
    method: MethodLike
    q0: Any
    p0: Any
    options: Options
    problem: Problem | None = None
    steps: int = 0
    axes: dict[str, Any] | None = None
    keys: Any = None

    @staticmethod
    def of(
        system: SystemLike, method: MethodLike, q0: ArrayLike | None, p0: ArrayLike | None, options: Options
    ) -> Arguments:
        """Explicit arguments override those of a problem."""
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
            return Arguments(system, method, q0, p0, options)
        problem, dt, t1 = system, system.dt if options.dt is None else options.dt, options.t1
        if options.steps is None and t1 is None and options.save_at is None:
            check_concrete("the number of steps of a Problem", dt, options.t0)
            check_clock(options.t0, dt)
            t1 = options.t0 + float(np.copysign(problem.t1, np.ravel(dt)[0]))
        start = problem.q0 if q0 is None else q0, problem.p0 if p0 is None else p0
        events = options.events
        if problem.events:
            events = (*(events if isinstance(events, (list, tuple)) else (events,)), *problem.events)
        options = dataclasses.replace(options, dt=dt, t1=t1, events=events)
        return Arguments(problem.system, method, *start, options, problem)

    def alone(self, stored: bool) -> Arguments:
        """The arguments of one trajectory; `stored` says whether its rows go to a store."""
        method, options, dt, t0 = self.method, self.options, self.options.dt, self.options.t0
        check_kinds(method, self.system)
        q0, p0 = _as_start("q", self.q0), _as_start("p", self.p0)
        if q0.shape != p0.shape:
            raise ShapeError(f"q has shape {q0.shape} and p has shape {p0.shape}; they must be the same")
        check_step(method, dt, options.key)
        whole_number("save_every", options.save_every)
        if (times := options.save_at) is not None:
            times = check_times(times, dt, t0)
            if options.save_every != 1:
                raise InputError("give either save_every or save_at, not both")
            t1 = options.t1
            if options.steps is None and t1 is None:
                t1 = float(times[-1]) if times[-1] != t0 else t0 + dt
            options = dataclasses.replace(options, t1=t1, save_at=times)
        steps = options.count(method)
        if times is not None or options.dense is not False:
            last = t0 + dt * steps if options.t1 is None else options.t1
            check_output(method, times, options.dense, stored, last, dt)
        key = None if options.key is None else key_data(options.key)
        q0, p0 = np.asarray(q0)[None], np.asarray(p0)[None]
        return dataclasses.replace(self, q0=q0, p0=p0, options=options, steps=steps, keys=key)

    def pure(self) -> Arguments:
        """One trajectory inside of `jit`, `vmap` or `grad`, without an axis; checks that need values are left out."""
        if self.options.steps is None and self.options.t1 is None:
            raise InputError("steps must be given")
        if self.options.events:
            raise InputError(
                f"this problem has bouncing stops ({len(self.options.events)}), which only simulate and "
                "simulate_ensemble treat; elastic ones (limits='spring') act in every run"
            )
        check_kinds(self.method, self.system)
        q0, p0 = as_state_arrays(self.q0, self.p0)
        check_step(self.method, self.options.dt, self.options.key)
        key = None if self.options.key is None else key_data(self.options.key)
        return dataclasses.replace(self, q0=q0, p0=p0, steps=self.options.count(self.method), keys=key)

    def with_params(self, params: PyTree, own: dict[str, Any]) -> tuple[Arguments, dict[str, Any]]:
        """The arguments with these parameter values, some of which have an axis over trajectories, and all axes.

        The axes of q0 and p0 in `own` follow: see `axes_of_start`.
        """
        system: Any = self.system
        if system.params is None:
            raise InputError("params were given, but the system has none: System(..., params=...)")
        whole, axes, count = merge_params(system.params, params)
        given = self.options.in_axes if isinstance(self.options.in_axes, Mapping) else {}
        if count is not None:
            own = own | axes_of_start(system, self.q0, self.p0, count, given)
        if "params" in given:
            raise InputError("give params= or in_axes['params'], not both: params= finds its axes by itself")
        new = dataclasses.replace(self, system=system.with_params(whole))
        start = None if self.problem is None else self.problem.start
        if start is not None and own["q0"] is None and own["p0"] is None:
            q0, p0 = start(whole) if count is None else jax.vmap(start, in_axes=(axes,))(whole)
            new = dataclasses.replace(new, q0=q0, p0=p0)
            own = own | ({} if count is None else {"q0": 0, "p0": 0})
        return new, own | ({} if count is None else {"params": axes})

    def spread(self, own: dict[str, Any]) -> Arguments:
        """Many trajectories; `own` says whether q0 and p0 have an axis over them, unless `in_axes` does."""
        method, options, dt, key = self.method, self.options, self.options.dt, self.options.key
        check_kinds(method, self.system)
        check_step(method, dt, key, several=True)
        if options.save_every is not None:
            whole_number("save_every", options.save_every)
        axes = {"params": None, **own, "dt": 0 if np.ndim(dt) else None}
        if options.in_axes is not None:
            axes = _check_axes(axes, options.in_axes)
        q0, p0, count = _starts(self.system, self.q0, self.p0, dt, axes)
        counts = {options.count(method, float(h)) for h in {np.min(dt), np.max(dt)}}
        if len(counts) > 1:
            raise InputError(
                f"trajectories with different dt reach t1 = {options.t1:g} after different numbers of steps "
                f"({min(counts)} to {max(counts)}): give steps instead, or an adaptive method"
            )
        fold = jax.vmap(lambda i: key_data(jax.random.fold_in(_typed(key), i)))
        keys = None if key is None else np.asarray(fold(jnp.arange(count)))
        return dataclasses.replace(self, q0=q0, p0=p0, steps=counts.pop(), axes=axes, keys=keys)

    def take(self, lanes: np.ndarray) -> Arguments:
        """The arguments of some of the trajectories, as NumPy arrays."""
        assert self.axes is not None
        system, options = self.system, self.options
        if self.axes["params"] is not None:
            system = system.with_params(select(system.params, self.axes["params"], lanes))
        if self.axes["dt"] == 0:
            options = dataclasses.replace(options, dt=np.asarray(options.dt)[lanes])
        keys = None if self.keys is None else self.keys[lanes]
        q0, p0 = np.asarray(self.q0)[lanes], np.asarray(self.p0)[lanes]
        return dataclasses.replace(self, system=system, q0=q0, p0=p0, options=options, keys=keys, problem=None)


def place(tree: PyTree, lanes: np.ndarray, part: PyTree) -> Any:
    """The tree with the entries of some trajectories replaced."""

    def put(x: Numbers | np.ndarray, y: Numbers) -> Any:
        if jax.default_backend() != "cpu" or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jnp.asarray(x).at[lanes].set(y)
        x = np.array(x)
        x[lanes] = y
        return x

    return jax.tree.map(put, tree, part)


def select(tree: PyTree, axes: PyTree, lanes: Index | np.ndarray) -> Any:
    """The entries of one or several trajectories; `axes` is 0 for leaves with an axis over them, else None."""
    on_host = isinstance(lanes, (int, np.ndarray)) and jax.default_backend() == "cpu"

    def at(x: Numbers) -> Any:
        if on_host and not isinstance(x, Tracer) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return np.asarray(x)[lanes]  # nothing has to be compiled
        return jnp.asarray(x)[lanes]

    def pick(axis: int | None, part: PyTree) -> Any:
        return jax.tree.map(at, part) if axis == 0 else part

    return jax.tree.map(pick, axes, tree, is_leaf=lambda x: x is None)


def check_kinds(method: MethodLike, system: object) -> None:
    """Raise unless `method` is a method and `system` a system."""
    if not isinstance(method, AbstractMethod):
        hint = f"; write {method.__name__}()" if isinstance(method, type) else ""
        if isinstance(method, str):
            plain = method.lower().replace("-", "").replace("_", "")
            hint = next((f"; write hx.{name}()" for name in registry() if name.lower() == plain), "")
        raise MethodError(f"method must be an instance of a method, not {short_repr(method)}{hint}")
    if not isinstance(system, AbstractSystem):
        check_system(system)


def _as_start(name: str, x: ArrayLike) -> Array | np.ndarray:
    """`as_array`, but a NumPy array stays one, without a transfer to a device and back."""
    if isinstance(x, np.ndarray | jax.Array) and x.size and x.dtype == jnp.result_type(float):
        return x.copy() if isinstance(x, np.ndarray) else x
    return as_array(name, x)


def check_method(method: MethodLike, system: PlainSystem) -> None:
    """Raise unless `method` is a method that supports `system`."""
    check_kinds(method, system)
    method.check(system)


def check_concrete(name: str, *values: object) -> None:
    """Raise if a value is traced: a run that leaves compiled code between its chunks cannot be traced."""
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(values)):
        raise InputError(f"{name} cannot run inside jit, vmap or grad; hx.integrate does")


def check_step(method: AbstractMethod, dt: object, key: object, *, several: bool = False) -> None:
    """Raise unless the step and the key are valid; `several` allows an array of dt."""
    if not isinstance(dt, Tracer):
        try:
            step = np.asarray(dt)
        except (TypeError, ValueError) as error:
            raise InputError(f"dt must be a number or an array of numbers, not {short_repr(dt)}") from error
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


def check_clock(t0: ArrayLike, dt: ArrayLike) -> None:
    """Raise unless `t0` is finite and `t0 + dt` differs from `t0`."""
    if isinstance(t0, Tracer):
        return
    ulp = float(np.spacing(abs(number("t0", t0))))
    if isinstance(dt, Tracer):
        return
    step = float(np.min(np.abs(np.asarray(dt))))
    if ulp >= step:
        raise InputError(
            f"t0 + dt rounds to t0: the number after t0 = {t0:g} is {ulp:g} away, further than dt = {step:g}; count "
            "time from a smaller t0"
        )


def check_times(save_at: object, dt: float, t0: float) -> np.ndarray:
    """The requested times as an array; raises unless they are in the order of the simulation."""
    try:
        times = np.atleast_1d(np.asarray(save_at, float))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"save_at must be a list of times, not {short_repr(save_at)}") from error
    way = np.sign(dt)
    if times.ndim != 1 or not len(times) or not np.all(np.isfinite(times)) or np.any(way * np.diff(times) <= 0):
        order = "increasing" if way > 0 else "decreasing"
        raise InputError(f"save_at must be a strictly {order} list of finite times")
    if way * (times[0] - t0) < 0:
        raise InputError(f"save_at begins at {times[0]:g}, before the start at t0 = {t0:g}")
    return times


def slack(t: float, dt: float) -> float:
    """The tolerance for equal times: the rounding error of `t0 + n dt`, or a tiny fraction of a step."""
    return 1e-9 * abs(dt) + 8 * float(np.spacing(abs(t)))


def check_output(
    method: MethodLike, wanted: np.ndarray | None, dense: bool, stored: bool, t_last: float, dt: float
) -> None:
    """Raise if a requested output cannot be computed."""
    if wanted is None and not flag("dense", dense):
        return
    if method.stochastic:
        raise MethodError(f"{method.name} draws random numbers in every step: it has no state between two steps")
    if dense and (stored or wanted is not None):
        other = "a store" if stored else "save_at"
        raise InputError(f"dense=True keeps the memory of every row, which {other} does not hold; use one of them")
    if wanted is not None and (wanted[-1] - t_last) * np.sign(dt) > slack(t_last, dt):
        raise InputError(f"save_at ends at {wanted[-1]:g}, after the end of the run at {t_last:g}")


def key_data(key: Key) -> Any:
    """Raw key data from a key of either kind."""
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jnp.asarray(key)


# ---- inputs that differ between the trajectories of an ensemble


def _check_axes(default: dict[str, Any], given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"in_axes must be a mapping such as {{'q0': 0, 'params': None}}, not {given!r}")
    axes = default | dict(given)
    if unknown := set(axes) - set(BATCHED):
        raise InputError(f"in_axes knows {', '.join(BATCHED)}; not {', '.join(sorted(map(str, unknown)))}")
    for name, axis in axes.items():
        if any(isinstance(a, bool) or not isinstance(a, int) or a != 0 for a in jax.tree.leaves(axis)):
            raise InputError(f"in_axes[{name!r}] must be 0 (the leading axis) or None (shared), not {axis!r}")
    return axes


def _typed(key: Key) -> Any:
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _starts(
    system: AbstractSystem, q0: ArrayLike, p0: ArrayLike, dt: ArrayLike, axes: dict[str, Any]
) -> tuple[Array | np.ndarray, Array | np.ndarray, int]:
    """`q0` and `p0` with a leading axis over trajectories, and its length, on which all batched inputs must agree."""
    q0, p0 = _as_start("q0", q0), _as_start("p0", p0)
    sizes: dict[str, int] = {}
    for name, x in (("q0", q0), ("p0", p0), ("dt", np.asarray(dt))):
        if axes[name] == 0:
            if not np.ndim(x):
                raise ShapeError(f"{name} is one number: it has no leading axis over trajectories")
            sizes[name] = len(x)
    if axes["params"] is not None:
        sizes |= _param_lengths(system, axes["params"])
    if not sizes:
        raise InputError("nothing differs between the trajectories: give q0, p0, dt or params a leading axis (in_axes)")
    if len(set(sizes.values())) > 1:
        raise ShapeError(f"the leading axes differ: {', '.join(f'{k} has {v}' for k, v in sizes.items())}")
    count = next(iter(sizes.values()))
    q0, p0 = (x if axes[name] == 0 else jnp.broadcast_to(x, (count, *x.shape)) for name, x in (("q0", q0), ("p0", p0)))
    if q0.shape != p0.shape:
        raise ShapeError(f"q0 has shape {q0.shape} and p0 has shape {p0.shape}; they must be the same")
    return q0, p0, count


def _param_lengths(system: AbstractSystem, axes: PyTree) -> dict[str, int]:
    """The length of the leading axis of every parameter that has one, by name."""
    if system.params is None:
        raise InputError("in_axes names params, but the system has none: System(..., params=...)")
    try:
        length = lambda x: np.shape(x)[0] if np.ndim(x) else 0
        spread = lambda axis, part: jax.tree.map(length, part) if axis == 0 else None
        lengths = jax.tree.map(spread, axes, system.params, is_leaf=lambda x: x is None)
    except (ValueError, TypeError) as error:
        raise InputError(f"in_axes['params'] does not fit the params: {' '.join(str(error).split())}") from error
    return {f"params{jax.tree_util.keystr(path)}": n for path, n in jax.tree_util.tree_leaves_with_path(lengths)}
