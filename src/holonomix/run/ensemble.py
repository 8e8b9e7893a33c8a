"""Runs of many trajectories with their own starts, parameters, step sizes, keys and statuses."""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..core import columns, pictures
from ..core.checks import short_repr
from ..core.errors import FailedTrajectoriesWarning, InputError, ShapeError, SimulationError
from ..core.status import Status
from ..core.types import ArrayLike
from ..mechanics.problem import Problem
from .arguments import (
    Arguments,
    EnsembleStoreLike,
    Events,
    ExecutorLike,
    MethodLike,
    Observe,
    Options,
    ProgressLike,
    SystemLike,
    check_concrete,
)
from .blocks import ended, load_rows, shares_time
from .cut import Cut
from .events import EventRecord, records_of
from .interrupts import interruptible
from .io import EnsembleStore
from .loop import Loop, make_loop
from .progress import Progress
from .rows import AbstractRows
from .run import Run
from .solution import as_dataset, constraint_of, energy_of, hidden_of, map_lanes, multipliers_of

__all__ = ["Ensemble", "simulate_ensemble"]


class Statuses(np.ndarray):
    """An array of `Status` values that prints their names."""

    def __repr__(self) -> str:
        return f"Statuses([{self._names()}])"

    def __str__(self) -> str:
        return f"[{self._names()}]"

    def _names(self) -> str:
        names = [Status(int(x)).name for x in np.ravel(np.asarray(self))]
        return ", ".join(names if len(names) <= 12 else [*names[:6], "...", *names[-6:]])


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Ensemble(AbstractRows):
    """Results of an ensemble; the trajectory is the first axis everywhere.

    `q`, `p`, `t` are the final states, or with `save_every` all rows (trajectory, row, ...); rows after a failure are
    NaN. `status` holds one `Status` per trajectory, `steps` how many steps it took, `final_q`, `final_p`, `final_t` its
    last good state (or where a terminal event ended it). `reduced` are the reductions by name, `observables` the
    observables at saved rows (or at the end), `events` one list of `EventRecord`s per trajectory.
    """

    loop: Loop
    load: Callable[[], dict[str, np.ndarray]]
    status: np.ndarray
    steps: np.ndarray
    final_q: np.ndarray
    final_p: np.ndarray
    final_t: np.ndarray
    reduced: dict[str, Any]
    stats: dict[str, Any]
    events: list[list[EventRecord]]
    store: EnsembleStore | None
    coordinates: dict[str, np.ndarray]

    @property
    def ok(self) -> np.ndarray:
        """Mask of the trajectories that reached their end."""
        status = np.asarray(self.status)
        return (status == Status.OK) | (status == Status.TERMINATED)

    def __len__(self) -> int:
        return len(self.status)

    # -- quantities of the rows ---------------------------------------------------------------------------------

    @functools.cached_property
    def multipliers(self) -> np.ndarray:
        """`Lambda(q, p)` at the saved times."""
        return self.rows["multipliers"] if "multipliers" in self.rows else self._mapped(multipliers_of)

    def energy(self) -> np.ndarray:
        """H at the saved times."""
        return self._mapped(energy_of)

    def energy_error(self) -> np.ndarray:
        """`H(t) - H(0)` at the saved times, or at the end."""
        now = self.energy()
        t0 = np.full((len(self), 1), float(self.loop.consts.t0))
        first = self._mapped(energy_of, (np.asarray(self.loop.q0)[:, None], np.asarray(self.loop.p0)[:, None], t0))
        return now - (first if now.ndim > 1 else first[:, 0])

    def constraint_error(self) -> np.ndarray:
        """`max|g(q)|` at the saved times (zeros for an unconstrained system)."""
        return self._mapped(constraint_of)

    def hidden_constraint_error(self) -> np.ndarray:
        """`max|G M^-1 p|` at the saved times (zeros for an unconstrained system)."""
        return self._mapped(hidden_of)

    def _mapped(
        self, fn: Callable[..., Any], rows: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    ) -> np.ndarray:
        """`fn(system, q, p, t)` on every row, each trajectory with its own parameters."""
        loop, single = self.loop, rows is None and not self.loop.saves
        q, p, t = (self.q, self.p, self.t) if rows is None else rows
        if single:
            q, p, t = (x[:, None] for x in (q, p, t))
        values = map_lanes(fn, loop, q, p, t)
        return values[:, 0] if single else values

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` over `trajectory` and `t`, with the names that a store has.

        Where trajectories have times of their own (several dt, adaptive steps), those are in `time`. Rows that are in a
        store are read from there when they are used.
        """
        loop = self.loop
        if self.store is not None:
            return self._from_store(self.store)
        lead = (columns.TRAJECTORY, columns.TIME) if loop.saves else (columns.TRAJECTORY,)
        rows = columns.visible(self.rows) | {"multipliers": self.multipliers}
        rows["time"] = rows.pop("t")
        if loop.saves and shares_time(loop):
            del rows["time"]
            n = np.arange(self.q.shape[1]) * loop.every
            rows["t"] = float(loop.consts.t0) + n * float(loop.consts.dt)
        data = as_dataset(rows, lead, {"method": loop.method.name, **self.stats})
        data = data.assign_coords(trajectory=np.arange(len(self)))
        data = data.assign_coords(self._named_axis())
        names = _names(np.asarray(self.status))
        data["status"], data["steps"] = ("trajectory", names), ("trajectory", self.steps)
        for name, x in self.reduced.items():
            key = f"reduced/{name}"
            data[columns.name_of(key)] = (columns.row_dims(key, x.shape, columns.TRAJECTORY), x)
        return data.assign_coords({name: ("trajectory", x) for name, x in self.coordinates.items()})

    def _from_store(self, store: EnsembleStore) -> Any:
        data = store.to_xarray()
        names = _names(np.asarray(self.status))
        data = data.rename(end_steps="steps").assign_coords({"trajectory": np.arange(len(self)), **self._named_axis()})
        data["status"] = ("trajectory", names)
        data.attrs |= {k: v for k, v in self.stats.items() if isinstance(v, (int, float, str))}
        return data if self.loop.saves else data.isel(t=0)

    def plot(self, entry: int = 0) -> Any:
        """A figure of one entry of q: over time for some trajectories, or a histogram where only ends are kept."""
        return pictures.plotting.plot_ensemble(self, entry)

    def view(self, path: str | PathLike[str] | None = None, *, open: bool | None = None) -> Any:
        """Write the ensemble as a page for the browser and return its path; without `path` it is opened, too.

        With `save_every`, up to forty trajectories move together; with `coordinates`, reductions are shown as a map.
        """
        return pictures.viewer.show_page(self, path, open=open)

    def _repr_html_(self) -> str:
        counts = {str(Status(int(k)).name): int(n) for k, n in zip(*np.unique(self.status, return_counts=True))}
        facts = {"trajectories": len(self), **counts, "backend": self.stats["backend"]}
        return pictures.plotting.facts_html(facts, self.plot())

    def __repr__(self) -> str:
        return f"Ensemble({len(self)} trajectories, {int(self.ok.sum())} finished, backend {self.stats['backend']})"


@interruptible
def simulate_ensemble(
    system: SystemLike,
    method: MethodLike,
    q0: ArrayLike | None = None,
    p0: ArrayLike | None = None,
    *,
    dt: ArrayLike | None = None,
    steps: int | None = None,
    t1: float | None = None,
    t0: float = 0.0,
    max_steps: int = Options.max_steps,
    params: PyTree = None,
    in_axes: Mapping[str, Any] | None = None,
    key: ArrayLike | None = None,
    observe: Observe | None = None,
    events: Events = (),
    reduce: Mapping[str, Any] | None = None,
    save_every: int | None = None,
    store: EnsembleStoreLike | None = None,
    block: int | None = None,
    executor: ExecutorLike | None = None,
    coordinates: Mapping[str, Any] | None = None,
    backend: str = "auto",
    throw: bool = False,
    progress: ProgressLike = False,
    allow_different_bits: bool = False,
) -> Ensemble:
    """Run many trajectories of one method.

    `params` holds parameter values: arrays with a leading axis over trajectories, or values shared by all. Entries that
    are left out keep the values of the system. With `params`, q0 and p0 have an axis over trajectories if their first
    axis is as long as that of the parameters; otherwise they are shared. If the system accepts both readings, `in_axes`
    must say which.
    `in_axes` states which inputs differ between trajectories: a mapping with the keys `q0`, `p0`, `params`, `dt` and
    the values 0 (leading axis) or None (shared). By default q0 and p0 differ, and `dt` if it is an array. `params` may
    be a PyTree prefix of 0 and None. A `Problem` in place of the system provides the arguments that are left out,
    shared by all. Give
    `steps` or `t1`, as for `simulate`. `reduce` maps names to `Mean`, `Minimum`, `Maximum` or `FirstPassage` of a
    function of (q, p): they are computed in the loop, without saving rows. `events` are found in each trajectory; a
    terminal one ends only its own. Each trajectory gets its own key. `coordinates` are values per trajectory that
    label the result of `to_xarray()`.

    With `store`, the name of a directory, the ensemble runs in blocks of trajectories: rows go to disk as they come,
    and after a kill the same call runs the missing blocks; the result is bitwise identical to an uninterrupted run.
    `executor` runs blocks on other processes or machines: anything with `submit` of `concurrent.futures.Executor` (a
    process pool with the context "spawn", Dask's `client.get_executor()`, `mpi4py.futures`, loky), or a function that
    makes one. Workers write into the same store, or send rows back if there is none. If a worker dies, its block runs
    again. `block` is the number of trajectories per block. Results do not depend on these, except for the last bits on
    the array path, because XLA compiles another program for each number of trajectories.

    A trajectory that fails keeps its last good state and its status and does not affect the others. A
    `FailedTrajectoriesWarning` gives the number of failed trajectories; `throw=True` raises instead.
    """
    options = Options(
        dt, steps, t1, t0, max_steps, save_every, None, observe, events, reduce, False, key, in_axes, backend
    )
    check_concrete("simulate_ensemble", system, method, q0, p0, dt, params)
    own = {name: None if isinstance(system, Problem) and x is None else 0 for name, x in (("q0", q0), ("p0", p0))}
    arguments = Arguments.of(system, method, q0, p0, options)
    if params is not None:
        arguments, own = arguments.with_params(params, own)
    arguments = arguments.spread(own)
    loop = make_loop(arguments)
    labels = _labels(coordinates, loop.count) if coordinates else {}
    cut = None
    if store is not None or executor is not None or block is not None:
        cut = Cut(arguments, loop, store, block, executor, labels, allow_different_bits)
    bar = None
    if progress is not None and progress is not False:
        bar = Progress(progress, loop.steps, 0.0, f"{method.name} x {loop.count}", cut.begun() if cut else 0)
    began = time.perf_counter()
    try:
        if cut is not None:
            whole, taken = cut.run(bar)
        else:
            run = Run(loop)
            run.go(bar)
            whole = ended(run, loop.count)
            taken = int(np.sum(whole.values["end/steps"]))
    finally:
        if bar is not None:
            bar.close()
    seconds, values, rows, kinds = time.perf_counter() - began, whole.values, whole.rows or {}, len(loop.watch.events)
    stored, rate = cut.store if cut else None, taken / seconds if seconds else 0.0
    ensemble = Ensemble(
        loop=loop,
        load=lambda: {key: np.asarray(x) for key, x in rows.items()} if stored is None else load_rows(loop, stored),
        status=values["status"].view(Statuses),
        steps=values["end/steps"],
        final_q=values["end/q"],
        final_p=values["end/p"],
        final_t=values["end/t"],
        reduced={name: values[f"reduced/{name}"] for name in loop.reducers},
        stats=whole.stats
        | {"iterations": values["end/iterations"], "wall_time": seconds, "trajectory_steps_per_second": rate},
        events=records_of(whole.found, kinds, loop.count, loop.q0.shape[1:]) if kinds else [],
        store=stored,
        coordinates=labels,
    )
    if values["status"].any():
        _report_failures(ensemble, throw)
    return ensemble


def _names(status: np.ndarray) -> np.ndarray:
    """The names of statuses, also for millions of them."""
    codes, where = np.unique(status, return_inverse=True)
    return np.array([Status(int(code)).name for code in codes])[where]


def _labels(coordinates: Mapping[str, Any], count: int) -> dict[str, np.ndarray]:
    if not isinstance(coordinates, Mapping):
        raise InputError(f"coordinates must be a dictionary of values per trajectory, not {short_repr(coordinates)}")
    labels = {name: np.asarray(x) for name, x in coordinates.items()}
    for name, x in labels.items():
        if x.shape != (count,):
            raise ShapeError(f"coordinates[{name!r}] has shape {x.shape}: {count} trajectories need ({count},)")
        if name in columns.RESERVED:
            raise InputError(f"a coordinate cannot be called {name!r}, which names something else in the result")
    return labels


def _report_failures(ensemble: Ensemble, throw: bool) -> None:
    """Raise (or with `throw=False` warn) if trajectories failed: how many, and where and why the first one did."""
    status = np.asarray(ensemble.status)
    failed = np.flatnonzero(~ensemble.ok)
    if not failed.size:
        return
    first = int(failed[0])
    cause, step = Status(int(status[first])), int(ensemble.steps[first]) + 1
    message = (
        f"{len(failed)} of {len(ensemble)} trajectories failed; the first is {first}: {cause.message} in step {step} "
        f"({cause.name}). {cause.advice[:1].upper()}{cause.advice[1:]}."
    )
    if throw:
        everything = " All results are in `error.solution`."
        raise SimulationError(message + everything, solution=ensemble, status=cause, step=step)
    kinds = {Status(int(k)).name: int(np.sum(status == k)) for k in np.unique(status[failed])}
    if len(kinds) > 1:
        message += " In all: " + ", ".join(f"{n} {name}" for name, n in kinds.items()) + "."
    warnings.warn(message, FailedTrajectoriesWarning, stacklevel=3)
