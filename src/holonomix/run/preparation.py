"""Preparation of a run: its functions are checked, frozen and traced; `loop.prepare` caches the result."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ..core.errors import InputError
from ..core.types import State, known_array
from ..mechanics.abstract import AbstractSystem
from ..mechanics.projection import accepts_redundant, check_constant_mass, check_functions
from ..mechanics.stiff import StiffSystem
from ..mechanics.system import System
from ..methods.base import AbstractMethod
from ..trace.frozen import freeze
from .arguments import Arguments, check_method, select
from .events import Watch, as_events, check_events
from .observe import as_observables, as_reducers, check_observables, check_reducers
from .stepper import make_stepper

__all__ = ["parts_of", "with_redundancy"]


def with_redundancy(system: AbstractSystem, method: AbstractMethod) -> AbstractSystem:
    """The system with multipliers of least norm, if the method accepts redundant rows."""
    if accepts_redundant(method) and isinstance(system, System) and system.has_constraints:
        return system.accepting_redundant()
    return system


def parts_of(arguments: Arguments, params_axes: PyTree, shape: tuple[int, ...], dtype: DTypeLike) -> dict[str, Any]:
    """Check, freeze and trace the functions of a run; return the fields of a `Loop` whose starts are zeros.

    `params_axes` says which parameters differ between trajectories.
    """
    system, method, options = arguments.system, arguments.method, arguments.options
    q = known_array(np.zeros(shape), dtype)
    check_method(method, system)
    params, redundant, p = system.params, accepts_redundant(method), q  # only the shapes of arrays matter here
    if params_axes is not None:
        system = system.with_params(select(params, params_axes, 0))
    system = with_redundancy(system, method)
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
    dense = options.dense is True or options.save_at is not None
    if dense and watch.bounces:
        raise InputError("dense=True and save_at interpolate a smooth motion, not one with bounces; use save_every")
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
        dense=dense,
    )
    return {
        "system": system,
        "method": method,
        "watch": watch,
        "reducers": reducers,
        "constrained": system.has_constraints,
        "redundant": redundant,
        "resonant": isinstance(system, StiffSystem) or hasattr(system.potential_fn, "stiff"),
        "stepper": stepper,
        "consts": consts,
        "q0": known_array(np.zeros((1, *shape)), dtype),
        "p0": known_array(np.zeros((1, *shape)), dtype),
    }
