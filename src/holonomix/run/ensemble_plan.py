"""The plan of an ensemble: what differs between its trajectories, and which starts are checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.errors import InputError, ShapeError, whole_number
from ..core.types import ArrayLike, Key, Numbers, State
from ..linalg.scales import relative
from ..mechanics.abstract import AbstractSystem
from ..mechanics.problem import Problem
from ..mechanics.projection import as_array, check_start, constraint_sizes, speed_sizes
from .interrupts import Interrupts
from .loop import Consts, Stepper, key_data
from .options import Given, MethodLike, Options, SystemLike, check_concrete, check_kinds, check_step
from .plan import Plan
from .prepared import picked, prepare

__all__ = ["Request", "plan_ensemble"]

BATCHED = ("q0", "p0", "params", "dt")


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of an ensemble, resolved: `q0`, `p0` and `keys` have an axis over trajectories.

    It can be pickled and cut, so that another process can plan some of its trajectories.
    """

    system: AbstractSystem
    method: Any
    q0: Any
    p0: Any
    options: Options
    steps: int
    axes: dict[str, Any]
    keys: np.ndarray | None

    @staticmethod
    def of(
        system: SystemLike, method: MethodLike, q0: ArrayLike | None, p0: ArrayLike | None, options: Options
    ) -> tuple[Request, Problem | None]:
        """Check the arguments of an ensemble against each other; the second result is the problem, if one was given."""
        check_concrete("simulate_ensemble", system, method, q0, p0, options.dt)
        own = {name: None if isinstance(system, Problem) and x is None else 0 for name, x in (("q0", q0), ("p0", p0))}
        system, q0, p0, options, problem = Given.of(system, q0, p0, options)
        check_kinds(method, system)
        dt, key = options.dt, options.key
        check_step(method, dt, key, several=True)
        if options.save_every is not None:
            whole_number("save_every", options.save_every)
        axes = _checked_axes({**own, "params": None, "dt": 0 if np.ndim(dt) else None}, options.in_axes)
        q0, p0, count = _starts(system, q0, p0, dt, axes)
        counts = {options.count(method, float(h)) for h in {np.min(dt), np.max(dt)}}
        if len(counts) > 1:
            raise InputError(
                f"trajectories with different dt reach t1 = {options.t1:g} after different numbers of steps "
                f"({min(counts)} to {max(counts)}): give steps instead, or an adaptive method"
            )
        fold = jax.vmap(lambda i: key_data(jax.random.fold_in(_typed(key), i)))
        keys = None if key is None else np.asarray(fold(jnp.arange(count)))
        return Request(system, method, q0, p0, options, counts.pop(), axes, keys), problem

    def take(self, lanes: np.ndarray) -> Request:
        """The request for some of the trajectories, in arrays of NumPy."""
        system, axes, options = self.system, self.axes, self.options
        if axes["params"] is not None:
            system = system.with_params(picked(system.params, axes["params"], lanes))
        if axes["dt"] == 0:
            options = dataclasses.replace(options, dt=np.asarray(options.dt)[lanes])
        keys = None if self.keys is None else self.keys[lanes]
        q0, p0 = np.asarray(self.q0)[lanes], np.asarray(self.p0)[lanes]
        return dataclasses.replace(self, system=system, q0=q0, p0=p0, options=options, keys=keys)

    def plan(self, problem: Problem | None = None) -> Plan:
        """The plan of all its trajectories."""
        q0, p0, options = jnp.asarray(self.q0), jnp.asarray(self.p0), self.options
        parts = prepare(self.system, self.method, q0.shape[1:], q0.dtype, options, self.axes["params"])
        keys = None if self.keys is None else jnp.asarray(self.keys)
        axes = _axes_of(parts.consts, self.axes, keys is not None)
        plan = Plan.of(parts, q0, p0, options, self.steps, keys, axes=axes, problem=problem)
        Interrupts.poll()
        _check_starts(plan, options.t0)
        Interrupts.poll()
        return plan


def plan_ensemble(
    system: SystemLike, method: MethodLike, q0: ArrayLike | None, p0: ArrayLike | None, options: Options
) -> Plan:
    """The plan of many trajectories."""
    request, problem = Request.of(system, method, q0, p0, options)
    return request.plan(problem)


def _checked_axes(default: dict[str, Any], given: object) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"in_axes must be a mapping such as {{'q0': 0, 'params': None}}, not {given!r}")
    axes = default | dict(given or {})
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
) -> tuple[Any, Any, int]:
    """The starts with one leading axis, and its length."""
    q0, p0 = as_array("q0", q0), as_array("p0", p0)
    sizes: dict[str, int] = {}
    for name, x in (("q0", q0), ("p0", p0), ("dt", np.asarray(dt))):
        if axes[name] == 0:
            if not np.ndim(x):
                raise ShapeError(f"{name} is one number: it has no leading axis over trajectories")
            sizes[name] = len(x)
    for k, n in enumerate([] if axes["params"] is None else _param_lengths(system, axes["params"])):
        sizes[f"params leaf {k}"] = n
    if not sizes:
        raise InputError("nothing differs between the trajectories: give q0, p0, dt or params a leading axis (in_axes)")
    if len(set(sizes.values())) > 1:
        raise ShapeError(f"the leading axes differ: {', '.join(f'{k} has {v}' for k, v in sizes.items())}")
    count = next(iter(sizes.values()))
    q0, p0 = (x if axes[name] == 0 else jnp.broadcast_to(x, (count, *x.shape)) for name, x in (("q0", q0), ("p0", p0)))
    if q0.shape != p0.shape:
        raise ShapeError(f"q0 has shape {q0.shape} and p0 has shape {p0.shape}; they must be the same")
    return q0, p0, count


def _param_lengths(system: AbstractSystem, axes: PyTree) -> list[int]:
    if system.params is None:
        raise InputError("in_axes names params, but the system has none: System(..., params=...)")
    try:
        pairs = jax.tree.map(
            lambda a, sub: [np.shape(x)[0] if np.ndim(x) else 0 for x in jax.tree.leaves(sub)] if a == 0 else [],
            axes,
            system.params,
            is_leaf=lambda x: x is None,
        )
    except (ValueError, TypeError) as error:
        raise InputError(f"in_axes['params'] does not fit the params: {' '.join(str(error).split())}") from error
    return [n for part in jax.tree.leaves(pairs) for n in ([part] if isinstance(part, int) else part)]


def _axes_of(consts: Consts, axes: dict[str, Any], keys: bool) -> Consts:
    """0 or None for every leaf of the constants, or for all leaves below a place."""
    arrays, params = None, consts.arrays[0].params
    if axes["params"] is not None and jax.tree.leaves(params):
        spread = lambda axis, part: jax.tree.map(lambda _: axis, part)
        chosen = jax.tree.map(spread, axes["params"], params, is_leaf=lambda x: x is None)
        nowhere = jax.tree.map(lambda _: None, consts.arrays)
        arrays = eqx.tree_at(lambda a: a[0].params, nowhere, chosen, is_leaf=lambda x: x is None)
    return Consts(arrays, axes["dt"], None, None, 0, 0 if keys else None)


def _check_starts(plan: Plan, t0: float) -> None:
    """Fully check the first start and the worst one; one that is not finite gets its status in the run."""
    for k in _worth_checking(plan):
        q, p, system = plan.q0[k], plan.p0[k], plan.system if plan.shared_system else plan.lane_system(k)
        dt = np.broadcast_to(plan.consts.dt, plan.count)[k]
        try:
            check_start(system, q, p, t0, dt=dt, redundant=plan.redundant)
            plan.method.validate(system, State(q, p, np.asarray(t0, q.dtype), np.asarray(0)), dt)
        except InputError as error:
            what = f"trajectory {k} (the first axis counts trajectories: q0 has shape {plan.q0.shape}): "
            raise type(error)(what + str(error)) from error


def _worth_checking(plan: Plan) -> Iterator[int]:
    yield 0
    if plan.constrained:
        off = np.nan_to_num(np.asarray(plan.compiled(_off_manifold, plan.q0, plan.p0)), nan=0.0, posinf=0.0)
        if worst := int(np.argmax(off)):
            yield worst


def _off_manifold(stepper: Stepper, consts: Consts, q: Numbers, p: Numbers) -> Any:
    """By how much a start violates `g = 0` and `G M^-1 p = 0`."""
    system = stepper.parts(consts)[0]
    g, hidden = system.constraint(q, consts.t0), system.hidden_constraint(q, p, consts.t0)
    sizes = constraint_sizes(system, q, consts.t0), speed_sizes(system, q, p, consts.t0)
    return relative(g, sizes[0]) + relative(hidden, sizes[1])
