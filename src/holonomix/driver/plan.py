"""A `Plan` is a run that has been converted, checked, prepared, validated and partitioned, once for every entry point.

It holds one trajectory or many. `compiled` functions of a plan work on all its trajectories at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..compiled import compiled
from ..errors import InputError, whole_number
from ..methods.base import AbstractMethod
from ..projection import accepts_redundant, as_array, as_state_arrays, check_functions, check_start
from ..scene import Scene
from ..systems.abstract import AbstractSystem
from ..systems.frozen import freeze
from ..systems.scenes import scene_of
from ..systems.system import System
from ..types import Problem, State
from .backends import Choice, choose, choose_batch, flat_axes
from .checks import check_clock, check_concrete, check_length, check_method, check_run
from .dense import check_output, check_times
from .events import Watch, as_events, check_events
from .interrupts import Interrupts
from .loop import Consts, LoopCarry, Stepper, make_stepper
from .observe import as_observables, check_observables

__all__ = [
    "MAX_STEPS",
    "Given",
    "Plan",
    "end_time",
    "frozen_functions",
    "make_plan",
    "plan_pure",
    "plan_shapes",
    "prepared_for",
    "step_count",
]

MAX_STEPS = 10_000_000


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything a run needs; nothing in it changes during the run.

    `axes` says which leaves of `consts` have an axis over trajectories; it is None for one trajectory. `every` is the
    number of steps from row to row, and `saves` whether rows are kept at all or only the end. `t1` is the time to run
    to, None where the number of steps was given; `wanted` are the times of `save_at`.
    """

    system: AbstractSystem
    method: AbstractMethod
    q0: Any
    p0: Any
    stepper: Stepper
    consts: Consts
    steps: int
    every: int
    saves: bool = True
    t1: float | None = None
    wanted: np.ndarray | None = None
    watch: Watch = Watch(())
    reducers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    backend: str = "auto"
    axes: Consts | None = None
    scene: Scene | None = None
    name: str = ""  # of the problem

    @property
    def many(self) -> bool:
        return self.axes is not None

    @property
    def count(self) -> int:
        """The number of trajectories."""
        return len(self.q0) if self.many else 1

    @property
    def adaptive_end(self) -> bool:
        """Whether the method's own time decides when the run ends."""
        return self.method.adaptive and self.t1 is not None

    @property
    def flags(self) -> tuple[int | None, ...] | None:
        """0 or None for each leaf of `consts`."""
        return None if self.axes is None else flat_axes(self.axes, self.consts)

    def lane(self, k: int) -> Consts:
        """The constants of one trajectory."""
        if self.axes is None:
            return self.consts
        leaves, treedef = jax.tree.flatten(self.consts)
        picked = [x[k] if a == 0 else x for x, a in zip(leaves, self.flags or (), strict=True)]
        return jax.tree.unflatten(treedef, picked)

    def lane_system(self, k: int) -> Any:
        """The system of one trajectory."""
        return self.stepper.parts(self.lane(k))[0]

    def part(self, lanes: np.ndarray) -> Plan:
        """The same run with some of its trajectories."""
        leaves, treedef = jax.tree.flatten(self.consts)
        picked = [x[lanes] if a == 0 else x for x, a in zip(leaves, self.flags or (), strict=True)]
        consts = jax.tree.unflatten(treedef, picked)
        return dataclasses.replace(self, q0=self.q0[lanes], p0=self.p0[lanes], consts=consts)

    def compiled(self, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn(stepper, consts, *args)` for all trajectories; where there are many, `args` have an axis over them."""
        return _over_lanes(fn, self.stepper, self.consts, self.flags, *args)

    def start(self) -> LoopCarry:
        """The memory of the run before its first step."""
        return self.compiled(_start, self.q0, self.p0)

    def read(self, carry: LoopCarry) -> dict[str, np.ndarray]:
        """What is shown of a carry, by column."""
        shown = self.compiled(_read, carry)
        if self.saves:
            return jax.device_get(shown)
        # of ends alone, the multipliers of the last step are brought from the device when somebody asks for them
        return shown | jax.device_get({key: x for key, x in shown.items() if not key.startswith("step/")})

    def row_bytes(self, carry: LoopCarry) -> int:
        """Bytes of one row of all trajectories."""
        lane = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], x.dtype), carry) if self.many else carry
        row = jax.eval_shape(self.stepper.read, lane, self.lane(0))
        return self.count * sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(row))

    def choose(self, carry: Any, capacity: int = 1) -> Choice:
        """The runner; `capacity` is the number of rows that one call asks for at most."""
        if not self.many:
            return choose(self.backend, self.stepper, carry, self.consts, capacity)
        lane = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], x.dtype), carry)
        return choose_batch(self.backend, self.stepper, lane, self.lane(0), capacity)


# ---- compiled over one trajectory or many


@compiled
def _over_lanes(fn: Any, stepper: Stepper, consts: Consts, flags: Any, *args: Any) -> Any:
    if flags is None:
        return fn(stepper, consts, *args)
    leaves, treedef = jax.tree.flatten(consts)

    def one(leaves, *args):
        return fn(stepper, jax.tree.unflatten(treedef, leaves), *args)

    return jax.vmap(one, in_axes=(list(flags), *(0 for _ in args)))(leaves, *args)


def _start(stepper: Stepper, consts: Consts, q: Any, p: Any) -> LoopCarry:
    return stepper.start(consts, q, p)


def _read(stepper: Stepper, consts: Consts, carry: LoopCarry) -> dict[str, Any]:
    return stepper.read(carry, consts)


# ---- building one


class Given:
    """The arguments that a `Problem` stands for: system, start, step and end."""

    def __init__(self, system: Any, q0: Any, p0: Any, dt: Any, steps: Any, t1: Any, t0: Any = 0.0, *, end: bool = True):
        self.problem: Problem | None = system if isinstance(system, Problem) else None
        if isinstance(system, Problem):
            problem, system = system, system.system
            q0, p0 = problem.q0 if q0 is None else q0, problem.p0 if p0 is None else p0
            dt = problem.dt if dt is None else dt
            if end and steps is None and t1 is None:
                check_clock(t0, dt)
                t1 = t0 + float(np.copysign(problem.t1, np.ravel(dt)[0]))
        elif q0 is None or p0 is None:
            missing = " and ".join(name for name, x in (("q0", q0), ("p0", p0)) if x is None)
            raise InputError(f"{missing} must be given: the start, beside the system; or give a Problem, which has one")
        elif dt is None:
            raise InputError("dt must be given: the step; or give a Problem, which has one")
        self.system, self.q0, self.p0, self.dt, self.steps, self.t1 = system, q0, p0, dt, steps, t1


def prepared_for(system: AbstractSystem, method: Any, q: Any) -> tuple[Any, bool]:
    """The system in the form that steps use, and whether constraints may depend on each other."""
    redundant = accepts_redundant(method)
    if redundant and isinstance(system, System) and system.has_constraints:
        system = system.accepting_redundant()
    return system.prepare(q), redundant


def frozen_functions(
    system: AbstractSystem,
    method: Any,
    q: Any,
    p: Any,
    t0: Any,
    dt: Any,
    key: Any,
    *,
    observe: Any,
    events: Any,
    reduce: Any,
) -> tuple[Any, dict[str, Any], Watch, dict[str, Any]]:
    """Method, observables, events and reductions with the user's functions in them as they are now."""
    t = jnp.asarray(t0, q.dtype)

    def step(method: Any) -> None:
        state, h = State(q, p, t, jnp.asarray(0)), jnp.asarray(dt, q.dtype)
        draw = jax.random.key(0) if key is None and method.stochastic else key
        method.step(system, state, h, method.init(system, state, h), draw)

    def shown(functions: dict[str, Any]) -> None:
        for fn in functions.values():
            fn(q, p, t)

    def reduced(reducers: dict[str, Any]) -> None:
        for reducer in reducers.values():
            reducer.result(reducer.update(reducer.init(q, p, t), q, p, t))

    return (
        freeze(method, step, q, system),
        freeze(as_observables(observe), shown, q),
        freeze(Watch(as_events(events)), lambda watch: watch.init(q, p, t), q),
        freeze(reduce, reduced, q),
    )


def step_count(method: Any, steps: Any, t1: Any, t0: Any, dt: Any, max_steps: int) -> Any:
    if t1 is None:
        return steps
    return max_steps if method.adaptive else int(np.ceil((t1 - t0) / dt - 1e-9))


def end_time(t1: float | None, dt: Any) -> Any:
    return np.copysign(np.inf, dt) if t1 is None else t1


def make_plan(
    system: Any,
    method: Any,
    q0: Any = None,
    p0: Any = None,
    *,
    dt: Any = None,
    steps: Any = None,
    t1: Any = None,
    t0: Any = 0.0,
    max_steps: int = MAX_STEPS,
    save_every: Any = 1,
    save_at: Any = None,
    observe: Any = None,
    events: Any = (),
    dense: bool = False,
    store: Any = None,
    key: Any = None,
    backend: str = "auto",
) -> Plan:
    """The plan of one trajectory, with every number known."""
    check_concrete("simulate", system, method, q0, p0, dt, t0, t1)
    given = Given(system, q0, p0, dt, steps, t1, t0, end=save_at is None)
    system, dt, steps, t1 = given.system, given.dt, given.steps, given.t1
    q0, p0 = as_state_arrays(given.q0, given.p0)
    check_run(method, system, dt, 0, key)
    wanted = None if save_at is None else check_times(save_at, dt, t0)
    if wanted is not None and save_every != 1:
        raise InputError("give either save_every or save_at, not both")
    if wanted is not None and steps is None and t1 is None:
        t1 = float(wanted[-1]) if wanted[-1] != t0 else t0 + dt
    check_length(steps, t1, t0, dt, save_every)
    steps = check_run(method, system, dt, step_count(method, steps, t1, t0, dt, max_steps), key)
    check_output(method, wanted, dense, store, t0 + dt * steps if t1 is None else t1, dt)
    prepared, redundant = prepared_for(system, method, q0)
    Interrupts.poll()
    check_start(prepared, q0, p0, t0, redundant=redundant)
    Interrupts.poll()
    method, observables, watch, _ = frozen_functions(
        prepared, method, q0, p0, t0, dt, key, observe=observe, events=events, reduce={}
    )
    method.validate(prepared, State(q0, p0, jnp.asarray(t0, q0.dtype), jnp.asarray(0)), dt)
    check_observables(observables, q0, p0, t0)
    check_events(watch.events, method, q0, p0, t0)
    stepper, consts = make_stepper(
        prepared,
        method,
        dt=dt,
        t0=t0,
        t_end=end_time(t1, dt),
        key=key,
        observe=observables,
        reducers={"events": watch} if watch.events else None,
        dtype=q0.dtype,
        dense=dense or wanted is not None,
    )
    Interrupts.poll()
    end = None if t1 is None else float(t1)
    scene = scene_of(system, q0.shape, given.problem)
    return Plan(
        prepared,
        method,
        q0,
        p0,
        stepper,
        consts,
        steps,
        int(save_every),
        True,
        end,
        wanted,
        watch,
        {},
        backend,
        scene=scene,
        name="" if given.problem is None else given.problem.name,
    )


def plan_pure(
    system: Any, method: Any, q0: Any, p0: Any, *, dt: Any, steps: Any, t0: Any, save_every: Any, key: Any
) -> Plan:
    """The plan of a run inside `jit`, `vmap` or `grad`: only what needs no values is checked."""
    given = Given(system, q0, p0, dt, steps, None, 0.0 if isinstance(t0, Tracer) else t0)
    system, dt, steps = given.system, given.dt, given.steps
    if steps is None and given.t1 is None:
        raise InputError("steps must be given")
    if steps is None:
        check_concrete("the number of steps of a Problem", dt, t0)
        check_length(None, given.t1, t0, dt, 1)
        steps = step_count(method, None, given.t1, t0, dt, MAX_STEPS)
    q0, p0 = as_state_arrays(given.q0, given.p0)
    steps = check_run(method, system, dt, steps, key)
    every = max(steps, 1) if save_every is None else whole_number("save_every", save_every)
    if not isinstance(t0, Tracer):
        check_clock(t0, dt)
    prepared, _ = prepared_for(system, method, q0)
    method, *_ = frozen_functions(prepared, method, q0, p0, t0, dt, key, observe=None, events=(), reduce={})
    stepper, consts = make_stepper(prepared, method, dt=dt, t0=t0, key=key, dtype=q0.dtype)
    return Plan(prepared, method, q0, p0, stepper, consts, steps, every, save_every is not None)


def plan_shapes(system: Any, method: Any, q0: Any = None, p0: Any = None, *, backend: str = "auto") -> Plan:
    """The plan of a run of which only the shapes matter: `q0` may be missing where the system knows its shape."""
    if isinstance(system, Problem):
        q0, p0 = system.q0 if q0 is None else q0, system.p0 if p0 is None else p0
        system = system.system
    check_method(method, system)
    q0 = None if q0 is None else as_array("q0", q0)
    shape = q0.shape if q0 is not None else system.shape
    if shape is None:
        raise InputError("explain needs the shape of q: pass q0 as well, explain(system, method, q0)")
    q = jnp.ones(shape) if q0 is None else q0
    p = jnp.zeros_like(q) if p0 is None else as_array("p0", p0)
    check_functions(system, q, p, 0.0)
    key = jax.random.key(0) if method.stochastic else None
    plan = plan_pure(system, method, q, p, dt=0.01, steps=1, t0=0.0, save_every=None, key=key)
    return dataclasses.replace(plan, backend=backend)
