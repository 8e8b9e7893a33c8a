"""A `Plan` is a run that has been converted, checked, prepared, validated and partitioned, once for every entry point.

It holds one trajectory or many. `compiled` functions of a plan work on all its trajectories at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import InputError, whole_number
from ..core.scene import Scene
from ..core.types import Array, ArrayLike, Numbers, State
from ..mechanics.abstract import AbstractSystem
from ..mechanics.problem import Problem
from ..mechanics.projection import as_array, as_state_arrays, check_functions, check_start
from ..mechanics.scenes import scene_of
from ..trace.compiled import compiled, compiled_for_one_run, rarely_collecting
from .backends import Choice, choose
from .interrupts import Interrupts
from .loop import Consts, LoopCarry, Stepper, key_data
from .options import (
    Given,
    MethodLike,
    Options,
    SystemLike,
    check_concrete,
    check_method,
    check_output,
    check_step,
    check_times,
)
from .prepared import Prepared, picked, prepare

__all__ = ["Plan", "make_plan", "plan_pure", "plan_shapes", "to_host"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Plan(Prepared):
    """A prepared loop with its start and length; nothing in it changes during the run.

    `axes` says which leaves of `consts` have an axis over trajectories; it is None for one trajectory. `every` is the
    number of steps from row to row, and `saves` whether rows are kept at all or only the end. `t1` is the time to run
    to, None where the number of steps was given; `wanted` are the times of `save_at`.
    """

    q0: Array
    p0: Array
    steps: int
    every: int
    saves: bool = True
    t1: float | None = None
    wanted: np.ndarray | None = None
    backend: str = "auto"
    axes: Consts | None = None
    problem: Problem | None = None

    @staticmethod
    def of(
        parts: Prepared, q0: Array, p0: Array, options: Options, steps: int, keys: Array | None, **rest: Any
    ) -> Plan:
        """The plan of `parts` with the numbers of a run; of many trajectories where `rest` has `axes`."""
        like, every, t1 = parts.consts, options.save_every, None if options.t1 is None else float(options.t1)
        dt, t0, t_end = (_number(x, q0.dtype) for x in (options.dt, options.t0, np.inf if t1 is None else t1))
        n_end = jnp.broadcast_to(like.n_end, len(q0)) if "axes" in rest else like.n_end
        saving = {"every": max(steps, 1) if every is None else int(every), "saves": every is not None}
        consts = Consts(like.arrays, dt, t0, t_end, n_end, keys)
        own = {**vars(parts), "consts": consts, "q0": q0, "p0": p0, "steps": steps, "t1": t1}
        return Plan(**own, **saving, backend=options.backend, **rest)

    many: bool = dataclasses.field(init=False)
    count: int = dataclasses.field(init=False)  # of trajectories
    row_count: int = dataclasses.field(init=False)  # of a run that gets to its last step
    shared_system: bool = dataclasses.field(init=False)  # whether all trajectories have the same
    adaptive_end: bool = dataclasses.field(init=False)  # whether the method's own time decides when the run ends

    def __post_init__(self) -> None:
        many = self.axes is not None
        derived = {
            "many": many,
            "count": len(self.q0) if many else 1,
            "row_count": self.steps // self.every + 1 if self.saves else 1,
            "shared_system": self.axes is None or not jax.tree.leaves(self.axes.arrays),
            "adaptive_end": self.method.adaptive and self.t1 is not None,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)  # the class is frozen

    @functools.cached_property
    def scene(self) -> Scene | None:
        """What pictures of the run show."""
        return scene_of(self.system, self.q0.shape[1:] if self.many else self.q0.shape, self.problem)

    @property
    def name(self) -> str:
        """The name of the problem."""
        return "" if self.problem is None else self.problem.name

    def lane(self, k: int) -> Consts:
        """The constants of one trajectory."""
        return self.consts if self.axes is None else picked(self.consts, self.axes, k)

    def lane_system(self, k: int) -> AbstractSystem:
        """The system of one trajectory."""
        return self.system if self.shared_system else self.stepper.parts(self.lane(k))[0]

    def part(self, lanes: np.ndarray) -> Plan:
        """The same run with some of its trajectories."""
        consts = picked(self.consts, self.axes, lanes)
        return dataclasses.replace(self, q0=self.q0[lanes], p0=self.p0[lanes], consts=consts)

    def compiled(self, fn: Callable[..., Any], *args: PyTree) -> Any:
        """`fn(stepper, consts, *args)` for all trajectories; where there are many, `args` have an axis over them."""
        if self.axes is None:
            return _for_one(fn, self.stepper, self.consts, *args)
        return _over_lanes(fn, self.stepper, self.consts, self.axes, *args)

    @rarely_collecting()
    def start(self) -> tuple[LoopCarry, dict[str, jax.Array]]:
        """The memory of the run before its first step, and what is shown of it by column, where it was computed."""
        return self.compiled(_start, self.q0, self.p0)

    def read(self, carry: LoopCarry) -> dict[str, np.ndarray]:
        """What is shown of a carry, by column, on the host."""
        shown = self.compiled(_read, carry)
        if self.saves:
            return to_host(shown)
        # of ends alone, the multipliers of the last step are brought from the device when somebody asks for them
        return shown | to_host({key: x for key, x in shown.items() if not key.startswith("step/")})

    @rarely_collecting()
    def choose(self, carry: LoopCarry, capacity: int = 1) -> Choice:
        """The runner; `capacity` is the number of rows that one call asks for at most."""
        key = (self.backend, self.many, self.consts.key is None, jax.default_backend())
        found = self.choices.get(key) if isinstance(self.backend, str) else None
        if found is None:
            if self.many:
                carry = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], x.dtype), carry)
            found = choose(self.backend, self.stepper, carry, self.lane(0), capacity, batch=self.many)
            if found.name != "array":
                self.choices[key] = found
        return found


# ---- compiled over one trajectory or many


@compiled_for_one_run
def _for_one(fn: Callable[..., Any], stepper: Stepper, consts: Consts, *args: PyTree) -> Any:
    return fn(stepper, consts, *args)


@compiled
def _over_lanes(fn: Callable[..., Any], stepper: Stepper, consts: Consts, axes: Consts, *args: PyTree) -> Any:
    return jax.vmap(functools.partial(fn, stepper), in_axes=(axes, *(0 for _ in args)))(consts, *args)


def _start(stepper: Stepper, consts: Consts, q: Numbers, p: Numbers) -> tuple[LoopCarry, dict[str, Any]]:
    carry = stepper.start(consts, q, p)
    return carry, stepper.read(carry, consts)


def _read(stepper: Stepper, consts: Consts, carry: LoopCarry) -> dict[str, Any]:
    return stepper.read(carry, consts)


def _number(x: ArrayLike, dtype: np.dtype) -> Any:
    """Of one number that is known, an array of NumPy, which is made in no time."""
    return jnp.asarray(x, dtype) if isinstance(x, jax.Array) or np.ndim(x) else np.asarray(x, dtype)


def to_host(tree: PyTree) -> Any:
    """`jax.device_get`, faster for arrays of a GPU."""
    if jax.default_backend() == "gpu":
        with contextlib.suppress(ImportError):  # kernels are not available
            from ..compiler.cuda import fetched

            tree = jax.tree.map(lambda x: fetched(x) if isinstance(x, jax.Array) and len(x.devices()) == 1 else x, tree)
    return jax.device_get(tree)


# ---- building one


@rarely_collecting()
def make_plan(
    system: SystemLike,
    method: MethodLike,
    q0: ArrayLike | None,
    p0: ArrayLike | None,
    options: Options,
    *,
    stored: bool = False,
) -> Plan:
    """The plan of one trajectory, with every number known; `stored` where its rows go to a store."""
    check_concrete("simulate", system, method, q0, p0, options.dt, options.t0, options.t1)
    system, q0, p0, options, problem = Given.of(system, q0, p0, options)
    q0, p0 = as_state_arrays(q0, p0)
    parts = prepare(system, method, q0.shape, q0.dtype, options)
    method, dt, t0 = parts.method, options.dt, options.t0
    check_step(method, dt, options.key)
    whole_number("save_every", options.save_every)
    wanted = None if options.save_at is None else check_times(options.save_at, dt, t0)
    if wanted is not None:
        if options.save_every != 1:
            raise InputError("give either save_every or save_at, not both")
        if options.steps is None and options.t1 is None:
            options = dataclasses.replace(options, t1=float(wanted[-1]) if wanted[-1] != t0 else t0 + dt)
    steps = options.count(method)
    check_output(method, wanted, options.dense, stored, t0 + dt * steps if options.t1 is None else options.t1, dt)
    Interrupts.poll()
    check_start(parts.system, q0, p0, t0, dt=dt, redundant=parts.redundant)
    method.validate(parts.system, State(q0, p0, np.asarray(t0, q0.dtype), np.asarray(0)), dt)
    Interrupts.poll()
    key = None if options.key is None else key_data(options.key)
    return Plan.of(parts, q0, p0, options, steps, key, wanted=wanted, problem=problem)


def plan_pure(
    system: SystemLike, method: MethodLike, q0: ArrayLike | None, p0: ArrayLike | None, options: Options
) -> Plan:
    """The plan of a run inside `jit`, `vmap` or `grad`: only what needs no values is checked."""
    system, q0, p0, options, problem = Given.of(system, q0, p0, options)
    if options.steps is None and options.t1 is None:
        raise InputError("steps must be given")
    q0, p0 = as_state_arrays(q0, p0)
    parts = prepare(system, method, q0.shape, q0.dtype, options)
    check_step(method, options.dt, options.key)
    steps = options.count(method)
    key = None if options.key is None else key_data(options.key)
    return Plan.of(parts, q0, p0, dataclasses.replace(options, t1=None), steps, key, problem=problem)


def plan_shapes(
    system: SystemLike,
    method: MethodLike,
    q0: ArrayLike | None = None,
    p0: ArrayLike | None = None,
    *,
    backend: str = "auto",
) -> Plan:
    """The plan of a run of which only the shapes matter: `q0` may be missing where the system knows its shape."""
    if isinstance(system, Problem):
        q0, p0 = system.q0 if q0 is None else q0, system.p0 if p0 is None else p0
        system = cast(AbstractSystem, system.system)
    check_method(method, system)
    q0 = None if q0 is None else as_array("q0", q0)
    shape = q0.shape if q0 is not None else system.shape
    if shape is None:
        raise InputError("explain needs the shape of q: pass q0 as well, explain(system, method, q0)")
    q = jnp.ones(shape) if q0 is None else q0
    p = jnp.zeros_like(q) if p0 is None else as_array("p0", p0)
    check_functions(system, q, p, 0.0)
    key = jax.random.key(0) if method.stochastic else None
    options = Options(dt=0.01, steps=1, save_every=None, key=key, backend=backend)
    return plan_pure(system, method, q, p, options)
