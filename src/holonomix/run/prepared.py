"""What a run needs of its system, method and functions: checked and prepared in the first call, kept for the next."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ..core.types import Index, State, known_array
from ..mechanics.abstract import AbstractSystem
from ..mechanics.projection import accepts_redundant, check_constant_mass, check_functions
from ..mechanics.system import System
from ..methods.base import AbstractMethod
from ..trace.compiled import Recent
from ..trace.frozen import freeze, identity
from .events import Watch, as_events, check_events
from .loop import Consts, Stepper, make_stepper
from .observe import as_observables, as_reducers, check_observables, check_reducers
from .options import MethodLike, Options, PlainSystem, check_method

__all__ = ["Prepared", "picked", "prepare"]


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """System and method with the user's functions in them as they were, and the loop made of them.

    `constrained` says whether there are constraints, `redundant` whether they may depend on each other. `choices` are
    the runners found so far.
    """

    system: AbstractSystem
    method: AbstractMethod
    watch: Watch
    reducers: dict[str, Any]
    constrained: bool
    redundant: bool
    stepper: Stepper
    consts: Consts
    choices: dict[Any, Any] = dataclasses.field(default_factory=dict)


_known: Recent[Prepared] = Recent(16)


def prepare(
    system: PlainSystem,
    method: MethodLike,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    options: Options,
    params_axes: PyTree = None,
) -> Prepared:
    """The loop of a run of `method` on `system`, whose q has this shape.

    What was prepared before is found again, as long as arrays, settings and what the functions compute are the same.
    Where parameters differ between trajectories, `params_axes` says which.
    """
    given = (system, method, options.observe, options.events, options.reduce, params_axes)
    mark = identity(given)
    key = None if mark is None else (mark, shape, dtype, options.dense is True or options.save_at is not None)
    found = None if key is None else _known.get(key)
    if found is None:
        found = _prepared(system, method, known_array(np.zeros(shape), dtype), options, params_axes)
        if key is not None and not any(isinstance(x, Tracer) for x in jax.tree.leaves(found.consts)):
            _known.put(key, found)
    return found


def _prepared(system: PlainSystem, method: MethodLike, q: jax.Array, options: Options, params_axes: PyTree) -> Prepared:
    check_method(method, system)
    params, redundant, p = system.params, accepts_redundant(method), q  # of arrays only the shapes matter here
    if params_axes is not None:
        system = system.with_params(picked(params, params_axes, 0))
    if redundant and isinstance(system, System) and system.has_constraints:
        system = system.accepting_redundant()
    check_constant_mass(system, q)
    system, t, one = system.prepare(q), known_array(0.0, q.dtype), known_array(1.0, q.dtype)

    def step(method: AbstractMethod) -> None:
        key = jax.random.key(0) if method.stochastic else None
        state = State(q, p, t, known_array(0, jnp.result_type(int)))
        method.step(system, state, one, method.init(system, state, one), key)

    def shown(functions: dict[str, Any]) -> None:
        for fn in functions.values():
            fn(q, p, t)

    def reduced(reducers: dict[str, Any]) -> None:
        for reducer in reducers.values():
            reducer.result(reducer.update(reducer.init(q, p, t), q, p, t))

    method = freeze(method, step, q, system)
    observables = freeze(as_observables(options.observe), shown, q)
    watch = freeze(Watch(as_events(options.events)), lambda watch: watch.init(q, p, t), q)
    reducers = freeze(as_reducers(options.reduce), reduced, q)
    if observables or watch.events or reducers:
        check_functions(system, q, p, t)  # they may call the functions of the system, which are named first
    check_observables(observables, q, p, t)
    check_events(watch.events, method, q, p, t)
    check_reducers(reducers, q, p, t)
    if params_axes is not None:
        system = system.with_params(params)
    stepper, consts = make_stepper(
        system,
        method,
        dt=one,
        observe=observables,
        reducers=reducers | ({"events": watch} if watch.events else {}),
        dtype=q.dtype,
        dense=options.dense is True or options.save_at is not None,
    )
    return Prepared(system, method, watch, reducers, system.has_constraints, redundant, stepper, consts)


def picked(tree: PyTree, axes: PyTree, lanes: Index | np.ndarray) -> Any:
    """What belongs to one or several trajectories; `axes` is 0 where there is an axis over them and None elsewhere."""

    on_host = isinstance(lanes, (int, np.ndarray)) and jax.default_backend() == "cpu"

    def at(x: Any) -> Any:
        if on_host and not isinstance(x, Tracer) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return np.asarray(x)[lanes]  # nothing has to be compiled
        return jnp.asarray(x)[lanes]

    def pick(axis: int | None, part: PyTree) -> Any:
        return jax.tree.map(at, part) if axis == 0 else part

    return jax.tree.map(pick, axes, tree, is_leaf=lambda x: x is None)
