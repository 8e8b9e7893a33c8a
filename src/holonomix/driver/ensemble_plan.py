"""The plan of an ensemble: what differs between its trajectories, and which starts are checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError, ShapeError, whole_number
from ..linalg.scales import relative
from ..projection import as_array, check_start, constraint_sizes, speed_sizes
from ..scene import Scene
from ..systems.abstract import AbstractSystem
from ..systems.scenes import scene_of
from ..types import Problem, State
from .checks import check_concrete, check_length, check_run
from .events import check_events
from .interrupts import Interrupts
from .loop import Consts, Stepper, key_data, make_stepper
from .observe import as_reducer, check_observables, check_reducers
from .plan import MAX_STEPS, Given, Plan, end_time, frozen_functions, prepared_for, step_count

__all__ = ["Request", "plan_ensemble", "request_ensemble"]

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
    dt: Any
    steps: int
    t1: float | None
    t0: float
    axes: dict[str, Any]
    keys: np.ndarray | None
    observe: Any
    events: Any
    reduce: dict[str, Any]
    save_every: int | None
    backend: str
    scene: Scene | None = None

    def take(self, lanes: np.ndarray) -> Request:
        """The request for some of the trajectories, in arrays of NumPy.

        The first of `lanes` should be 0: systems are prepared at the first start, and the results of a trajectory must
        not depend on which others come with it.
        """
        system, axes = self.system, self.axes
        if axes["params"] is not None:
            system = system.with_params(_picked(system.params, axes["params"], lanes))
        dt = np.asarray(self.dt)[lanes] if axes["dt"] == 0 else self.dt
        keys = None if self.keys is None else self.keys[lanes]
        q0, p0 = np.asarray(self.q0)[lanes], np.asarray(self.p0)[lanes]
        return dataclasses.replace(self, system=system, q0=q0, p0=p0, dt=dt, keys=keys)

    def plan(self) -> Plan:
        """The plan of all its trajectories."""
        system, method, t0, axes = self.system, self.method, self.t0, self.axes
        q0, p0 = as_array("q0", self.q0), as_array("p0", self.p0)
        count, each = len(q0), np.ravel(np.asarray(self.dt))
        every = max(self.steps, 1) if self.save_every is None else self.save_every
        lane = system if axes["params"] is None else system.with_params(_picked(system.params, axes["params"], 0))
        prepared, redundant = prepared_for(lane, method, q0[0])
        key = None if self.keys is None else jax.random.key(0)
        method, observables, watch, reducers = frozen_functions(
            prepared, method, q0[0], p0[0], t0, each[0], key,
            observe=self.observe, events=self.events, reduce=self.reduce,
        )  # fmt: skip
        if axes["params"] is not None:
            prepared = prepared.with_params(system.params)
        stepper, consts = make_stepper(
            prepared,
            method,
            dt=self.dt,
            t0=t0,
            t_end=end_time(self.t1, each[0]),
            observe=observables,
            reducers=reducers | ({"events": watch} if watch.events else {}),
            dtype=q0.dtype,
        )
        keys = None if self.keys is None else jnp.asarray(self.keys)
        n_end = jnp.broadcast_to(consts.n_end, (count,))
        consts = eqx.tree_at(lambda c: (c.key, c.n_end), consts, (keys, n_end), is_leaf=lambda x: x is None)
        plan = Plan(
            prepared, method, q0, p0, stepper, consts, self.steps, every, self.save_every is not None, self.t1, None,
            watch, reducers, self.backend, _axes_of(consts, axes), self.scene,
        )  # fmt: skip
        Interrupts.poll()
        _check_starts(plan, t0, redundant)
        Interrupts.poll()
        check_observables(observables, q0[0], p0[0], t0)
        check_events(watch.events, method, q0[0], p0[0], t0)
        check_reducers(reducers, q0[0], p0[0], t0)
        return plan


def plan_ensemble(*args: Any, **options: Any) -> Plan:
    """The plan of many trajectories; takes what `request_ensemble` takes."""
    return request_ensemble(*args, **options).plan()


def request_ensemble(
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
    in_axes: Any = None,
    key: Any = None,
    observe: Any = None,
    events: Any = (),
    reduce: Any = None,
    save_every: Any = None,
    backend: str = "auto",
) -> Request:
    """Check the arguments of an ensemble against each other."""
    check_concrete("simulate_ensemble", system, method, q0, p0, dt)
    problem = isinstance(system, Problem)
    shared = {"q0": 0 if q0 is not None or not problem else None, "p0": 0 if p0 is not None or not problem else None}
    given = Given(system, q0, p0, dt, steps, t1, t0)
    system, dt, steps, t1 = given.system, given.dt, given.steps, given.t1
    check_run(method, system, dt, 0, key, several=True)
    axes = _checked_axes({**shared, "params": None, "dt": 0 if np.ndim(dt) else None}, in_axes)
    q0, p0, count = _starts(system, given.q0, given.p0, dt, axes)
    each = np.ravel(np.asarray(dt))
    for h in {float(each.min()), float(each.max())}:
        check_length(steps, t1, t0, h, 1)
    counts = {step_count(method, steps, t1, t0, float(h), max_steps) for h in np.unique(each)}
    if len(counts) > 1:
        raise InputError(
            f"trajectories with different dt reach t1 = {t1:g} after different numbers of steps ({min(counts)} to "
            f"{max(counts)}): give steps instead, or an adaptive method"
        )
    steps = check_run(method, system, dt, counts.pop(), key, several=True)
    every = None if save_every is None else whole_number("save_every", save_every)
    fold = jax.vmap(lambda i: key_data(jax.random.fold_in(_typed(key), i)))
    keys = None if key is None else np.asarray(fold(jnp.arange(count)))
    end = None if t1 is None else float(t1)
    return Request(
        system, method, q0, p0, dt, steps, end, t0, axes, keys, observe, events, _as_reducers(reduce), every, backend,
        scene_of(system, q0.shape[1:], given.problem),
    )  # fmt: skip


def _picked(params: Any, axes: Any, lanes: Any) -> Any:
    """The parameters of one or several trajectories."""

    def pick(axis: Any, part: Any) -> Any:
        return jax.tree.map(lambda x: jnp.asarray(x)[lanes], part) if axis == 0 else part

    return jax.tree.map(pick, axes, params, is_leaf=lambda x: x is None)


def _checked_axes(default: dict[str, Any], given: Any) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"in_axes must be a mapping such as {{'q0': 0, 'params': None}}, not {given!r}")
    axes = default | dict(given or {})
    if unknown := set(axes) - set(BATCHED):
        raise InputError(f"in_axes knows {', '.join(BATCHED)}; not {', '.join(sorted(map(str, unknown)))}")
    for name, axis in axes.items():
        if any(isinstance(a, bool) or not isinstance(a, int) or a != 0 for a in jax.tree.leaves(axis)):
            raise InputError(f"in_axes[{name!r}] must be 0 (the leading axis) or None (shared), not {axis!r}")
    return axes


def _as_reducers(reduce: Any) -> dict[str, Any]:
    if reduce is not None and not isinstance(reduce, Mapping):
        raise InputError(f"reduce must map names to reductions, such as {{'mean': hx.Mean(fn)}}, not {reduce!r}")
    if "events" in (reduce or {}):
        raise InputError("a reduction cannot be called 'events', which names what `events=` watches")
    return {name: as_reducer(reducer) for name, reducer in (reduce or {}).items()}


def _typed(key: Any) -> Any:
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _starts(system: AbstractSystem, q0: Any, p0: Any, dt: Any, axes: dict[str, Any]) -> tuple[Any, Any, int]:
    """The starts with one leading axis, and its length."""
    q0, p0 = as_array("q0", q0), as_array("p0", p0)
    sizes: dict[str, int] = {}
    for name, x in (("q0", q0), ("p0", p0), ("dt", np.asarray(dt))):
        if axes[name] == 0:
            if not np.ndim(x):
                raise ShapeError(f"{name} is one number: it has no leading axis over trajectories")
            sizes[name] = len(x)
    for k, n in enumerate(_param_lengths(system, axes["params"])):
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


def _param_lengths(system: AbstractSystem, axes: Any) -> list[int]:
    if axes is None:
        return []
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


def _axes_of(consts: Consts, axes: dict[str, Any]) -> Any:
    """0 or None for every leaf of the constants."""
    where = jax.tree.map(lambda _: None, consts)

    def leaves(get, value):
        nonlocal where
        tree = get(consts)
        if value is None or not jax.tree.leaves(tree):
            return
        spread = jax.tree.map(lambda a, sub: jax.tree.map(lambda _: a, sub), value, tree, is_leaf=lambda x: x is None)
        where = eqx.tree_at(get, where, spread, is_leaf=lambda x: x is None)

    leaves(lambda c: c.arrays[0].params, axes["params"])
    leaves(lambda c: c.dt, axes["dt"])
    leaves(lambda c: c.n_end, 0)
    leaves(lambda c: c.key, 0)
    return where


def _check_starts(plan: Plan, t0: float, redundant: bool) -> None:
    """Fully check the first start and the worst one; one that is not finite gets its status in the run."""

    def check(k: int) -> None:
        q, p = plan.q0[k], plan.p0[k]
        try:
            system = plan.lane_system(k)
            check_start(system, q, p, t0, redundant=redundant)
            plan.method.validate(system, State(q, p, jnp.asarray(t0, q.dtype), jnp.asarray(0)), plan.lane(k).dt)
        except InputError as error:
            what = f"trajectory {k} (the first axis counts trajectories: q0 has shape {plan.q0.shape}): "
            raise type(error)(what + str(error)) from error

    check(0)
    if plan.system.has_constraints:
        off = np.nan_to_num(np.asarray(plan.compiled(_off_manifold, plan.q0, plan.p0)), nan=0.0, posinf=0.0)
        if worst := int(np.argmax(off)):
            check(worst)


def _off_manifold(stepper: Stepper, consts: Consts, q: Any, p: Any) -> Any:
    """By how much a start violates `g = 0` and `G M^-1 p = 0`."""
    system = stepper.parts(consts)[0]
    g, hidden = system.constraint(q, consts.t0), system.hidden_constraint(q, p, consts.t0)
    sizes = constraint_sizes(system, q, consts.t0), speed_sizes(system, q, p, consts.t0)
    return relative(g, sizes[0]) + relative(hidden, sizes[1])
