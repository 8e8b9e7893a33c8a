"""`Loop`: a loop of steps over trajectories, checked and prepared once for every entry point."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ..core.errors import InconsistentStateError, InputError
from ..core.scene import Scene
from ..core.types import ArrayLike, Numbers, State
from ..linalg.scales import relative
from ..mechanics.abstract import AbstractSystem
from ..mechanics.problem import Problem
from ..mechanics.projection import as_array, check_functions, check_start, constraint_sizes, speed_sizes
from ..mechanics.scenes import scene_of
from ..methods.base import AbstractMethod
from ..trace.compiled import Recent, compiled, compiled_for_one_run, rarely_collecting
from ..trace.frozen import identity
from .arguments import Arguments, MethodLike, Options, SystemLike, check_method, select
from .backends import Choice, choose
from .events import Watch
from .interrupts import Interrupts
from .preparation import parts_of
from .stepper import Consts, LoopCarry, Stepper, over_trajectories

__all__ = ["Loop", "make_loop", "prepare", "shape_loop"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Loop:
    """A system and a method with frozen user functions, and the loop of steps that was traced from them.

    There is always an axis over trajectories: `q0` and `p0` have it, and those constants that `axes` marks by 0.
    `axes` is None for a single trajectory (`alone`), which is compiled without the axis. `stepper` holds the traced
    `start`, `step`, `read` and `halted` of one trajectory.

    `every` is the number of steps between rows; `saves` is False if only final states are kept. `t1` is the end time,
    or None if the number of steps was given; `wanted` are the times of `save_at`. `constrained` says whether there are
    constraints, `redundant` whether they may depend on each other, `resonant` whether there are fast oscillations that
    may resonate. `choices` caches the runners; nothing else changes during a run.
    """

    system: AbstractSystem
    method: AbstractMethod
    watch: Watch
    reducers: dict[str, Any]
    constrained: bool
    redundant: bool
    resonant: bool
    stepper: Stepper
    consts: Consts
    q0: Numbers
    p0: Numbers
    axes: Consts | None = None
    steps: int = 0
    every: int = 1
    saves: bool = True
    t1: float | None = None
    wanted: np.ndarray | None = None
    backend: str = "auto"
    problem: Problem | None = None
    choices: dict[Any, Choice] = dataclasses.field(default_factory=dict)

    alone: bool = dataclasses.field(init=False)
    count: int = dataclasses.field(init=False)  # of trajectories
    row_count: int = dataclasses.field(init=False)  # of a run that reaches its last step
    shared_system: bool = dataclasses.field(init=False)  # whether all trajectories have the same
    adaptive_end: bool = dataclasses.field(init=False)  # whether the method's own time decides when the run ends

    def __post_init__(self) -> None:
        derived = {
            "alone": self.axes is None,
            "count": len(self.q0),
            "row_count": self.steps // self.every + 1 if self.saves else 1,
            "shared_system": self.axes is None or not jax.tree.leaves(self.axes.arrays),
            "adaptive_end": self.method.adaptive and self.t1 is not None,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)  # the class is frozen

    @functools.cached_property
    def scene(self) -> Scene | None:
        """The scene for pictures of the run."""
        return scene_of(self.system, self.q0.shape[1:], self.problem, self.q0[0])

    @property
    def name(self) -> str:
        """The name of the problem."""
        return "" if self.problem is None else self.problem.name

    def constants(self, options: Options, dtype: DTypeLike, keys: Numbers | None, t1: float | None = None) -> Consts:
        """The constants with the step size, times, step counts and keys of a run."""
        # a concrete scalar stays in NumPy
        make = lambda x: (jnp if isinstance(x, jax.Array) or np.ndim(x) else np).asarray(x, dtype)
        dt, t0, t_end = map(make, (options.dt, options.t0, np.inf if t1 is None else t1))
        return Consts(self.consts.arrays, dt, t0, t_end, self.consts.n_end, keys)

    def lane(self, k: int) -> Consts:
        """The constants of one trajectory."""
        return select(self.consts, self.axes, k)

    def lane_system(self, k: int) -> AbstractSystem:
        """The system of one trajectory."""
        return self.stepper.parts(self.lane(k))[0]

    def part(self, lanes: np.ndarray) -> Loop:
        """The same run restricted to some of its trajectories."""
        consts = select(self.consts, self.axes, lanes)
        return dataclasses.replace(self, q0=self.q0[lanes], p0=self.p0[lanes], consts=consts)

    def compiled(self, fn: Callable[..., Any], *args: PyTree) -> Any:
        """`fn(stepper, consts, *args)` for all trajectories; `args` have an axis over them."""
        mapped = _mapped_once if self.alone else _mapped
        return mapped(fn, self.stepper, self.consts, self.axes, *args)

    @rarely_collecting()
    def start(self) -> tuple[LoopCarry, dict[str, jax.Array]]:
        """The memory of the run before its first step, and its columns, both on the device."""
        return self.compiled(_start, self.q0, self.p0)

    def read(self, carry: LoopCarry) -> dict[str, jax.Array]:
        """The columns of a carry, on the device."""
        return self.compiled(_read, carry)

    @rarely_collecting()
    def choose(self, carry: LoopCarry) -> Choice:
        """The runner of the requested back end; for `auto`, of the fastest one that supports the loop."""
        key = (self.backend, self.alone, self.consts.key is None, jax.default_backend())
        found = self.choices.get(key) if isinstance(self.backend, str) else None
        if found is None:
            one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], x.dtype), carry)
            found = choose(self.backend, self.stepper, one, self.lane(0), alone=self.alone)
            if not found.refused:
                self.choices[key] = found
        return found


def _over(fn: Callable[..., Any], stepper: Stepper, consts: Consts, axes: Consts | None, *args: PyTree) -> Any:
    return over_trajectories(functools.partial(fn, stepper), consts, axes, *args)


_mapped, _mapped_once = compiled(_over), compiled_for_one_run(_over)


def _start(stepper: Stepper, consts: Consts, q: Numbers, p: Numbers) -> tuple[LoopCarry, dict[str, Any]]:
    carry = stepper.start(consts, q, p)
    return carry, stepper.read(carry, consts)


def _read(stepper: Stepper, consts: Consts, carry: LoopCarry) -> dict[str, Any]:
    return stepper.read(carry, consts)


# ---- construction

_known: Recent[Loop] = Recent(16)


def prepare(arguments: Arguments, shape: tuple[int, ...], dtype: DTypeLike) -> Loop:
    """The loop of these arguments without their numbers; `shape` is that of q of one trajectory.

    Prepared loops are cached. A cached loop is reused if arrays, settings and computations of the functions are equal.
    """
    options, axes = arguments.options, arguments.axes
    params_axes = None if axes is None else axes["params"]
    given = (arguments.system, arguments.method, options.observe, options.events, options.reduce, params_axes)
    mark = identity(given)
    key = None if mark is None else (mark, shape, dtype, options.dense is True or options.save_at is not None)
    found = None if key is None else _known.get(key)
    if found is None:
        found = Loop(**parts_of(arguments, params_axes, shape, dtype))
        if key is not None and not any(isinstance(x, Tracer) for x in jax.tree.leaves(found.consts)):
            _known.put(key, found)
    return found


@rarely_collecting()
def make_loop(arguments: Arguments) -> Loop:
    """The loop of one trajectory or many, with all numbers set and the starts checked."""
    options, q0, p0, keys = arguments.options, arguments.q0, arguments.p0, arguments.keys
    if arguments.axes is not None:
        q0, p0, keys = jax.device_put((q0, p0, keys))
    known = prepare(arguments, q0.shape[1:], q0.dtype)
    t1 = None if options.t1 is None else float(options.t1)
    loop = dataclasses.replace(
        known,
        consts=known.constants(options, q0.dtype, keys, t1),
        q0=q0,
        p0=p0,
        axes=None if arguments.axes is None else _axes_of(known.consts, arguments.axes, keys is not None),
        steps=arguments.steps,
        every=max(arguments.steps, 1) if options.save_every is None else int(options.save_every),
        saves=options.save_every is not None,
        t1=t1,
        wanted=options.save_at,
        backend=options.backend,
        problem=arguments.problem,
    )
    Interrupts.poll()
    _check_starts(loop, options.t0)
    Interrupts.poll()
    return loop


def shape_loop(
    system: SystemLike, method: MethodLike, q0: ArrayLike | None = None, p0: ArrayLike | None = None
) -> Loop:
    """The loop of a run of which only shapes matter; `q0` may be missing if the system knows its shape."""
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
    given = Arguments.of(system, method, q, p, Options(dt=0.01, steps=1, save_every=None, key=key)).pure()
    known = prepare(given, q.shape, q.dtype)
    consts = known.constants(given.options, q.dtype, given.keys)
    return dataclasses.replace(known, consts=consts, q0=q[None], p0=p[None])


def _axes_of(consts: Consts, axes: dict[str, Any], keys: bool) -> Consts:
    """0 or None for every leaf of the constants, or for all leaves below a place."""
    arrays, params = None, consts.arrays[0].params
    if axes["params"] is not None and jax.tree.leaves(params):
        spread = lambda axis, part: jax.tree.map(lambda _: axis, part)
        chosen = jax.tree.map(spread, axes["params"], params, is_leaf=lambda x: x is None)
        nowhere = jax.tree.map(lambda _: None, consts.arrays)
        arrays = eqx.tree_at(lambda a: a[0].params, nowhere, chosen, is_leaf=lambda x: x is None)
    return Consts(arrays, axes["dt"], None, None, None, 0 if keys else None)


OWN_PARAMS = "; each trajectory has its own params, so its system is system.with_params(...)"


def _check_starts(loop: Loop, t0: float) -> None:
    """Fully check the first start and the worst one; a start that is not finite fails in the run, with a status."""
    lanes = [0]
    for k in lanes:
        q, p, system = loop.q0[k, ...], loop.p0[k, ...], loop.system if loop.shared_system else loop.lane_system(k)
        dt = np.broadcast_to(loop.consts.dt, loop.count)[k]
        try:
            check_start(system, q, p, t0, dt=dt, redundant=loop.redundant)
            loop.method.validate(system, State(q, p, np.asarray(t0, q.dtype), np.asarray(0)), dt)
        except InputError as error:
            if loop.alone:
                raise
            what = f"trajectory {k} (the first axis counts trajectories: q0 has shape {loop.q0.shape}): "
            own = "" if loop.shared_system or not isinstance(error, InconsistentStateError) else OWN_PARAMS
            raise type(error)(what + str(error) + own) from error
        if k == 0 and loop.constrained and not loop.alone:  # the first start is valid, so the others can be evaluated
            off = np.nan_to_num(np.asarray(loop.compiled(_off_manifold, loop.q0, loop.p0)), nan=0.0, posinf=0.0)
            lanes += [worst] if (worst := int(np.argmax(off))) else []


def _off_manifold(stepper: Stepper, consts: Consts, q: Numbers, p: Numbers) -> Any:
    """The violation of `g = 0` and `G M^-1 p = 0` by a start."""
    system = stepper.parts(consts)[0]
    g, hidden = system.constraint(q, consts.t0), system.hidden_constraint(q, p, consts.t0)
    sizes = constraint_sizes(system, q, consts.t0), speed_sizes(system, q, p, consts.t0)
    return relative(g, sizes[0]) + relative(hidden, sizes[1])
