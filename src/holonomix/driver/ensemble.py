"""Many trajectories at once: over starts, parameters, step sizes and keys, each with its own status."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError, ShapeError, SimulationError, whole_number
from ..projection import accepts_redundant, as_array, check_start
from ..status import Status
from .backends import choose_batch, flat_axes
from .checks import check_concrete, check_run
from .loop import Consts, LoopCarry, Stepper, key_data, make_stepper
from .observe import as_observables, check_observables, check_reducers
from .progress import Progress
from .rows import AbstractRows

__all__ = ["Ensemble", "simulate_ensemble"]

CHUNK_SECONDS = 0.5
CHUNK_BYTES = 2**28  # rows of one call, on the device
BATCHED = ("q0", "p0", "params", "dt")


class Ensemble(AbstractRows):
    """Results of an ensemble; the trajectory is the first axis everywhere.

    `q`, `p` are the final states, or with `save_every` all rows (trajectory, row, ...); `status` holds one `Status` a
    trajectory, `reduced` the reductions by name, `observables` the observables at saved rows (or at the end).
    """

    def __init__(
        self,
        rows: dict[str, np.ndarray],
        status: np.ndarray,
        steps: np.ndarray,
        reduced: dict[str, Any],
        stats: dict[str, Any],
    ):
        self.rows, self.status, self.steps, self.reduced, self.stats = rows, status, steps, reduced, stats

    @property
    def ok(self) -> np.ndarray:
        """Which trajectories ran to their end."""
        return (self.status == Status.OK) | (self.status == Status.TERMINATED)

    def __len__(self) -> int:
        return len(self.status)

    def __repr__(self) -> str:
        return f"Ensemble({len(self)} trajectories, {int(self.ok.sum())} finished, backend {self.stats['backend']})"


def simulate_ensemble(
    system: Any,
    method: Any,
    q0: Any,
    p0: Any,
    *,
    dt: Any,
    steps: int,
    in_axes: Mapping[str, Any] | None = None,
    key: Any = None,
    observe: Any = None,
    reduce: Mapping[str, Any] | None = None,
    save_every: int | None = None,
    store: Any = None,
    backend: str = "auto",
    throw: bool = False,
    t0: float = 0.0,
    progress: Any = False,
) -> Ensemble:
    """Run many trajectories of one method.

    `in_axes` says what differs from trajectory to trajectory: a mapping with the keys `q0`, `p0`, `params`, `dt` and
    the values 0 (leading axis) or None (shared); by default q0 and p0, and `dt` when it is an array. `params` may be
    a PyTree prefix of 0 and None. `reduce` maps names to `Mean`, `Minimum`, `Maximum` or `FirstPassage` of a function
    of (q, p): they are computed in the loop, without saving rows. Each trajectory gets its own key. One that fails
    keeps its last good state and its status and does not disturb the others; `throw=True` raises when any fails.
    """
    axes = {"q0": 0, "p0": 0, "params": None, "dt": 0 if np.ndim(dt) else None} | dict(in_axes or {})
    if unknown := set(axes) - set(BATCHED):
        raise InputError(f"in_axes knows {', '.join(BATCHED)}; not {', '.join(sorted(unknown))}")
    for name, axis in axes.items():
        if any(a != 0 for a in jax.tree.leaves(axis)):
            raise InputError(f"in_axes[{name!r}] must be 0 (the leading axis) or None (shared), not {axis!r}")
    check_concrete("simulate_ensemble", system, method, q0, p0, dt)
    q0, p0 = as_array("q0", q0), as_array("p0", p0)
    count = _count(system, q0, p0, dt, axes)
    q0, p0 = (x if axes[name] == 0 else jnp.broadcast_to(x, (count, *x.shape)) for name, x in (("q0", q0), ("p0", p0)))
    if q0.shape != p0.shape:
        raise ShapeError(f"q0 has shape {q0.shape} and p0 has shape {p0.shape}; they must be the same")
    steps = check_run(method, system, dt, steps, key, several=True)
    every = max(steps, 1) if save_every is None else whole_number("save_every", save_every)

    prepared = system.prepare(q0[0])
    observables, reducers = as_observables(observe), dict(reduce or {})
    keys = None if key is None else jax.vmap(lambda i: key_data(jax.random.fold_in(_typed(key), i)))(jnp.arange(count))
    stepper, consts = make_stepper(
        prepared, method, dt=dt, t0=t0, observe=observables, reducers=reducers, dtype=q0.dtype
    )
    consts = eqx.tree_at(lambda c: c.key, consts, keys, is_leaf=lambda x: x is None)
    where = _axes_of(consts, axes)
    one = _lane(consts, where, 0)
    flags = flat_axes(where, consts)

    def check_lane(k: int) -> None:
        try:
            lane = stepper.parts(_lane(consts, where, k))[0]
            check_start(lane, q0[k], p0[k], t0, redundant=accepts_redundant(method))
        except InputError as error:
            what = f"trajectory {k} (the first axis counts trajectories: q0 has shape {q0.shape}): "
            raise type(error)(what + str(error)) from error

    check_lane(0)
    if prepared.constrained:
        # the trajectory furthest off the manifold speaks for all; one that is not finite gets its status in the run
        off = np.nan_to_num(_off_manifold(stepper, consts, flags, q0, p0), nan=0.0, posinf=0.0)
        if worst := int(np.argmax(off)):
            check_lane(worst)
    check_observables(observables, q0[0], p0[0], t0)
    check_reducers(reducers, q0[0], p0[0], t0)

    began = time.perf_counter()
    carry, rows0 = _start_batch(stepper, consts, flags, q0, p0)
    lane = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), carry)
    choice = choose_batch(backend, stepper, lane, one)
    compile_time = time.perf_counter() - began

    sink = _open(store)
    parts = [] if save_every is None else [{name: np.asarray(x)[:, None] for name, x in rows0.items()}]
    bar = Progress(progress, steps, 0.0, f"{method.name} x {count}")
    began = time.perf_counter()
    done, chunk = 0, 16  # few, long calls
    most = max(1, CHUNK_BYTES // max(1, sum(x.nbytes for x in rows0.values())))
    try:
        while done < steps:
            tick, whole = time.perf_counter(), steps // every - done // every
            saving = save_every is not None and whole > 0  # the steps after the last row are taken too
            rows_now = min(max(chunk // every, 1), most, whole) if saving else 1
            every_now = every if saving else min(chunk, steps - done)
            carry, rows = choice.runner.run_batch(carry, consts, where, rows=rows_now, every=every_now)
            if saving:
                parts.append({name: np.asarray(x) for name, x in rows.items()})
            taken = rows_now * every_now
            done += taken
            elapsed = time.perf_counter() - tick
            chunk = max(1, int(taken * min(64.0, CHUNK_SECONDS / max(elapsed, 1e-6))))
            bar.update(done, 0.0, None, float(np.max(np.asarray(carry.residual))))
    finally:
        bar.close()
    if save_every is None:
        final = _read_batch(stepper, consts, flags, carry)
        rows = {name: np.asarray(x) for name, x in final.items()}
    else:
        rows = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
        _blank(rows, every)
    wall = time.perf_counter() - began
    status, n = np.asarray(carry.status), np.asarray(carry.state.n)
    reduced = {
        name: np.asarray(jax.vmap(r.result)(jax.tree.map(jnp.asarray, carry.reduced[name])))
        for name, r in reducers.items()
    }
    stats = {
        "backend": choice.name,
        "backend_reason": choice.reason,
        "operations": choice.operations,
        "compile_time": compile_time,
        "wall_time": wall,
        "trajectory_steps_per_second": float(n.sum()) / wall if wall else 0.0,
        "iterations": np.asarray(carry.iterations),
    }
    ensemble = Ensemble(rows, status, n, reduced, stats)
    if sink is not None:
        _write(sink, ensemble)
    if throw and not ensemble.ok.all():
        k = int(np.argmin(ensemble.ok))
        failed = Status(int(status[k]))
        raise SimulationError(
            f"{int((~ensemble.ok).sum())} of {count} trajectories failed; the first is {k}: {failed.message} in step "
            f"{n[k] + 1}. {failed.advice[:1].upper()}{failed.advice[1:]}. All results are in `error.solution`.",
            solution=ensemble,
            status=failed,
            step=int(n[k]) + 1,
        )
    return ensemble


def _typed(key: Any) -> Any:
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _count(system: Any, q0: Any, p0: Any, dt: Any, axes: dict[str, Any]) -> int:
    sizes = {name: len(x) for name, x in (("q0", q0), ("p0", p0), ("dt", np.asarray(dt))) if axes[name] == 0}
    if axes["params"] is not None:
        pairs = jax.tree.map(
            lambda a, sub: [np.shape(x)[0] if np.ndim(x) else 0 for x in jax.tree.leaves(sub)] if a == 0 else [],
            axes["params"],
            system.params,
            is_leaf=lambda x: x is None,
        )
        lengths = [n for part in jax.tree.leaves(pairs) for n in ([part] if isinstance(part, int) else part)]
        sizes |= {f"params leaf {k}": n for k, n in enumerate(lengths)}
    if not sizes:
        raise InputError("nothing differs between the trajectories: give q0, p0, dt or params a leading axis (in_axes)")
    if len(set(sizes.values())) > 1:
        raise ShapeError(f"the leading axes differ: {', '.join(f'{k} has {v}' for k, v in sizes.items())}")
    return next(iter(sizes.values()))


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
    leaves(lambda c: c.key, 0)
    return where


def _lane(consts: Consts, where: Any, k: int) -> Consts:
    flags = flat_axes(where, consts)
    leaves, treedef = jax.tree.flatten(consts)
    return jax.tree.unflatten(treedef, [x[k] if a == 0 else x for x, a in zip(leaves, flags, strict=True)])


@eqx.filter_jit
def _start_batch(stepper: Stepper, consts: Consts, flags: tuple, q: Any, p: Any) -> tuple[LoopCarry, Any]:
    leaves, treedef = jax.tree.flatten(consts)

    def one(leaves, q, p):
        consts = jax.tree.unflatten(treedef, leaves)
        carry = stepper.start(consts, q, p)
        return carry, stepper.read(carry, consts)

    return jax.vmap(one, in_axes=(list(flags), 0, 0))(leaves, q, p)


@eqx.filter_jit
def _off_manifold(stepper: Stepper, consts: Consts, flags: tuple, q: Any, p: Any) -> Any:
    """By how much each start violates `g = 0` and `G M^-1 p = 0`."""
    leaves, treedef = jax.tree.flatten(consts)

    def one(leaves, q, p):
        consts = jax.tree.unflatten(treedef, leaves)
        system = stepper.parts(consts)[0]
        g, hidden = system.constraint(q, consts.t0), system.hidden_constraint(q, p, consts.t0)
        return jnp.max(jnp.abs(g)) + jnp.max(jnp.abs(hidden)) / (1.0 + jnp.max(jnp.abs(system.velocity(q, p))))

    return jax.vmap(one, in_axes=(list(flags), 0, 0))(leaves, q, p)


@eqx.filter_jit
def _read_batch(stepper: Stepper, consts: Consts, flags: tuple, carry: Any) -> Any:
    leaves, treedef = jax.tree.flatten(consts)
    return jax.vmap(lambda c, x: stepper.read(c, jax.tree.unflatten(treedef, x)), in_axes=(0, list(flags)))(
        carry, leaves
    )


def _blank(rows: dict[str, np.ndarray], every: int) -> None:
    """Rows after a failure are NaN, as in `integrate`."""
    expected = np.arange(rows["n"].shape[1]) * every
    late = rows["n"] != expected
    if late.any():
        for name, x in rows.items():
            if x.dtype.kind == "f":
                rows[name] = np.where(late.reshape(late.shape + (1,) * (x.ndim - 2)), np.nan, x)


def _open(store: Any) -> Any:
    if store is None or not isinstance(store, (str, os.PathLike)):
        return store
    from ..io import Store

    return Store(store, "create")


def _write(sink: Any, ensemble: Ensemble) -> None:
    """An ensemble goes to a store with the trajectory as its row."""
    sink.begin({"ensemble": len(ensemble), "backend": ensemble.stats["backend"]})
    rows = {name.replace("obs/", "").replace("step/", "step_"): x for name, x in ensemble.rows.items()}
    rows |= {f"reduced_{name}": x for name, x in ensemble.reduced.items()} | {"status": ensemble.status}
    final_time = rows["t"] if rows["t"].ndim == 1 else rows["t"][:, -1]
    if rows["t"].ndim > 1:
        rows["times"] = rows["t"]
    sink.append({**rows, "t": np.asarray(final_time)})
    sink.close({"status": "OK", "trajectories": len(ensemble)})
