"""`run` with a [sweep] table: many runs of one model as an ensemble whose coordinates are the swept values."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import track

from holonomix.run.io import EnsembleStore, StorePlace, is_store

from .execute import Job, description_files, job_from, saved_run, warn_of_changes
from .exits import CommandError
from .problems import USER_MODULE, load_problem, time_value
from .runfile import RunSpec
from .suggest import kebab

if TYPE_CHECKING:
    from holonomix.core.types import ArrayLike, Numbers
    from holonomix.mechanics.abstract import AbstractSystem
    from holonomix.run.ensemble import Ensemble

MAX_POINTS = 10_000_000
MANY_POINTS, SAMPLES = (
    256,
    16,
)  # sweeps with more points than this call the model once for all of them, and compare this many with single calls
KINDS = (
    "a list of numbers, { from = 0.0, to = 1.0, count = 11 }, { from = 1.0, to = 100.0, count = 11, scale = 'log' }, "
    "{ uniform = [0.0, 1.0] } or { normal = [0.0, 1.0] }"
)


@dataclasses.dataclass(frozen=True)
class Axis:
    """One swept entry: fixed `values`, or a distribution with two numbers to draw from."""

    path: tuple[str, ...]
    values: np.ndarray | None = None
    drawn: tuple[str, float, float] | None = None

    @property
    def name(self) -> str:
        """The name of the coordinate in the result."""
        return "_".join(self.path)


def axes_of(table: Mapping[str, Any]) -> tuple[list[Axis], int, int]:
    """The axes of a [sweep] table, the number of random draws per grid point, and the seed."""
    entries = dict(table)
    draws, seed = entries.pop("draws", None), entries.pop("seed", 0)
    axes = list(_axes(entries, ()))
    if not axes:
        raise CommandError(
            "[sweep] is empty: name an argument of the model, dt, or an entry such as angles.0 (and only sweeps take "
            "--executor)"
        )
    for name, value in (("draws", draws), ("seed", seed)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise CommandError(f"sweep.{name} = {value!r}: must be a whole number that is not negative")
    random = [axis.name for axis in axes if axis.drawn is not None]
    if random and not draws:
        raise CommandError(f"sweep.{random[0]} is random: give the number of draws, such as draws = 100 in [sweep]")
    if draws and not random:
        raise CommandError("sweep.draws: nothing in [sweep] is random")
    return axes, draws or 1, seed


def _axes(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Axis]:
    for key, value in table.items():
        here = (*path, *(part.replace("-", "_") for part in key.split(".")))
        if isinstance(value, Mapping) and not value.keys() & {"from", "to", "count", "uniform", "normal"}:
            yield from _axes(value, here)
        else:
            yield _axis(here, value)


def _axis(path: tuple[str, ...], value: Any) -> Axis:
    name = ".".join(path)
    try:
        if isinstance(value, list) and value:
            return Axis(path, _finite(value))
        if isinstance(value, Mapping) and value.keys() <= {"from", "to", "count", "scale"}:
            count = value["count"]
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_POINTS:
                raise ValueError
            first, last = _finite([value["from"], value["to"]])
            scale = value.get("scale", "linear")
            if scale not in ("linear", "log") or (scale == "log" and min(first, last) <= 0):
                raise ValueError
            return Axis(path, np.geomspace(first, last, count) if scale == "log" else np.linspace(first, last, count))
        if isinstance(value, Mapping) and len(value) == 1 and (kind := next(iter(value))) in ("uniform", "normal"):
            a, b = _finite(value[kind])
            return Axis(path, None, (kind, float(a), float(b)))
    except (KeyError, TypeError, ValueError):
        pass
    raise CommandError(f"sweep.{name} = {str(value)[:60]}: must be {KINDS}")


def _finite(values: ArrayLike) -> np.ndarray:
    numbers = np.asarray(values, float)
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise ValueError
    return numbers


def grid_of(axes: list[Axis], draws: int) -> dict[str, int]:
    """The numbers whose product is the number of points: values per fixed axis, and draws of the random ones."""
    fixed = {axis.name: len(axis.values) for axis in axes if axis.values is not None}
    random = [axis.name for axis in axes if axis.drawn is not None]
    return fixed | ({f"draws of {', '.join(random)}": draws} if random else {})


def points_of(axes: list[Axis], draws: int, seed: int) -> dict[str, np.ndarray]:
    """The value of each axis at each point: all combinations of the fixed values, repeated `draws` times."""
    fixed = [axis for axis in axes if axis.values is not None]
    count = draws * int(np.prod([len(axis.values) for axis in fixed if axis.values is not None], dtype=float))
    if count > MAX_POINTS:
        raise CommandError(f"the sweep has {count:,} points; at most {MAX_POINTS:,} are allowed")
    grid = np.array(list(itertools.product(*(axis.values for axis in fixed if axis.values is not None))))
    found = {axis.name: np.repeat(grid[:, k], draws) for k, axis in enumerate(fixed)}
    for k, axis in enumerate(axes):
        if axis.drawn is not None:
            kind, a, b = axis.drawn
            random = np.random.default_rng([seed, k])
            found[axis.name] = random.uniform(a, b, count) if kind == "uniform" else random.normal(a, b, count)
    return {axis.name: found[axis.name] for axis in axes}


# ---- from points to an ensemble


def _at(spec: RunSpec, axes: list[Axis], values: list[Any]) -> RunSpec:
    """The run at one point."""
    for axis, value in zip(axes, values, strict=True):
        head, *rest = axis.path
        if head in ("dt", "omega") and not rest:
            spec = dataclasses.replace(spec, **{head: value})
        elif head == "start":
            spec = dataclasses.replace(spec, start=_put(spec.start, rest, value, axis))
        else:
            spec = dataclasses.replace(spec, arguments=_put(spec.arguments, list(axis.path), value, axis))
    return spec


def _put(tree: Any, path: list[str], value: Any, axis: Axis) -> Any:
    if not path:
        return value
    head, *rest = path
    if isinstance(tree, list) and head.isdigit() and int(head) < len(tree):
        return [_put(x, rest, value, axis) if k == int(head) else x for k, x in enumerate(tree)]
    if isinstance(tree, Mapping) and (head in tree or not rest):
        return {**tree, head: _put(tree.get(head), rest, value, axis)}
    whole = ".".join(axis.path)
    raise CommandError(f"sweep.{whole}: give the other entries of {axis.path[0]} first, in [arguments] or [start]")


@dataclasses.dataclass(frozen=True)
class _Points:
    """All points of a sweep: one job as an example, the common system, and the start and step of each point."""

    job: Job
    system: Any
    in_axes: dict[str, Any]
    q: np.ndarray
    p: np.ndarray
    dt: np.ndarray


def _build(base: RunSpec, axes: list[Axis], table: np.ndarray, quiet: bool) -> _Points:
    """Build all points; a long sweep traces the model once and compares some points with single calls."""
    build = lambda row: job_from(_at(base, axes, [float(x) for x in row]))
    if len(table) > MANY_POINTS:
        extremes = [f(column) for column in table.T for f in (np.argmin, np.argmax)]
        some = np.unique([*np.linspace(0, len(table) - 1, SAMPLES).astype(int), *extremes])
        sample = _stack([build(row) for row in table[some]])
        if (found := _trace_points(base, axes, table, sample, some)) is not None:
            return found
    shown = Console(stderr=True, quiet=quiet or len(table) <= MANY_POINTS)
    return _stack([build(row) for row in track(table, "making the starts", console=shown, transient=True)])


def _trace_points(
    base: RunSpec, axes: list[Axis], table: np.ndarray, sample: _Points, some: np.ndarray
) -> _Points | None:
    """Build all points by one traced call of the model; None if it needs concrete numbers or results differ."""
    import jax
    from jax.core import Tracer

    timed = [axis.path == ("dt",) for axis in axes]
    moving = [axis for axis, is_dt in zip(axes, timed) if not is_dt]

    def values(row: Numbers) -> Any:
        problem = load_problem(_at(base, moving, list(row)))
        if any(isinstance(x, Tracer) for x in jax.tree.leaves(_without_params(problem.system))):
            raise TypeError("the sweep changes more of the system than its params")
        return problem.q0, problem.p0, problem.system.params, problem.dt

    try:
        q, p, params, dt = jax.device_get(jax.jit(jax.vmap(values))(table[:, [not x for x in timed]]))
    except Exception:  # fall back to single calls, whose errors name the point
        return None
    if any(timed):
        dt = np.array([time_value(float(x), base, "dt") for x in table[:, timed.index(True)]], float)
    elif base.dt is not None:
        dt = np.full(len(table), sample.dt[0])
    system, in_axes = _stack_params(sample.job.problem.system, [np.asarray(x) for x in jax.tree.leaves(params)])
    found = _Points(sample.job, system, in_axes, q, p, dt)
    one_by_one = [sample.q, sample.p, sample.dt, *jax.tree.leaves(sample.system.params)]
    together = [q[some], p[some], dt[some], *_rows(system, in_axes, some, sample.in_axes)]
    same = all(
        np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-13, atol=1e-14 * np.max(np.abs(a), initial=0.0))
        for a, b in zip(one_by_one, together, strict=True)
    )
    return found if same and all(np.isfinite(x).all() for x in (q, p, dt)) else None


def _rows(system: AbstractSystem, in_axes: dict[str, Any], some: np.ndarray, wanted: dict[str, Any]) -> list[Any]:
    """The params of some points, stacked where those of `wanted` are."""
    import jax

    leaves = jax.tree.leaves(system.params)
    flags = [jax.tree.leaves(x.get("params"), is_leaf=lambda x: x is None) or [None] for x in (in_axes, wanted)]
    mine, theirs = (x if len(x) == len(leaves) else [None] * len(leaves) for x in flags)
    return [x if a is None else x[some] if b is not None else x[0] for x, a, b in zip(leaves, mine, theirs)]


def _stack(jobs: list[Job]) -> _Points:
    """Combine jobs into points: one system, with an axis over trajectories in the params that differ."""
    import equinox as eqx
    import jax

    first = jobs[0].problem.system
    shapes = {(jax.tree.structure(job.problem.system), job.problem.q0.shape) for job in jobs}
    rest = [jax.tree.leaves(eqx.filter(_without_params(job.problem.system), eqx.is_array)) for job in jobs]
    alike = all(len(r) == len(rest[0]) and all(map(np.array_equal, r, rest[0])) for r in rest)
    if len({shape for _, shape in shapes}) > 1 or not alike:
        raise CommandError(
            "the sweep changes more of the system than its params (a mass or the number of coordinates, for instance): "
            "sweep arguments that are in the system's params, or the start; or make one run for each"
        )
    leaves = [jax.tree.leaves(job.problem.system.params) for job in jobs]
    system, in_axes = _stack_params(
        first, [np.stack([np.asarray(x) for x in column]) for column in zip(*leaves, strict=True)]
    )
    q, p = (np.stack([np.asarray(getattr(job.problem, name)) for job in jobs]) for name in ("q0", "p0"))
    return _Points(jobs[0], system, in_axes, q, p, np.array([job.dt for job in jobs]))


def _stack_params(first: AbstractSystem, columns: list[np.ndarray]) -> tuple[Any, dict[str, Any]]:
    """The system with params that differ between points stacked, and their axes."""
    import jax

    leaves, treedef = jax.tree.flatten(first.params)
    differs = [bool((column != column[0]).any()) for column in columns]
    if not any(differs):
        return first, {}
    params = jax.tree.unflatten(treedef, [c if d else x for c, d, x in zip(columns, differs, leaves)])
    return first.with_params(params), {"params": jax.tree.unflatten(treedef, [0 if d else None for d in differs])}


def _without_params(system: AbstractSystem) -> Any:
    import equinox as eqx

    return eqx.tree_at(lambda s: s.params, system, None, is_leaf=lambda x: x is None)


def resume_sweep(
    path: Path,
    *,
    executor: str | None = None,
    allow_different_bits: bool = False,
    quiet: bool = False,
    system: Path | None = None,
) -> dict[str, Any]:
    """Run the missing blocks of the store of a sweep."""
    spec, then = saved_run(EnsembleStore(path), system)
    if not quiet:
        warn_of_changes(then)
    return run_sweep(spec, path, executor=executor, quiet=quiet, allow_different_bits=allow_different_bits)


def run_sweep(
    spec: RunSpec, out: Path, *, executor: str | None = None, quiet: bool = False, allow_different_bits: bool = False
) -> dict[str, Any]:
    """Run all points of a sweep that are missing in the store, and return the summary."""
    import jax

    import holonomix as hx

    if "method" in spec.sweep:
        options = {"executor": executor, "quiet": quiet, "allow_different_bits": allow_different_bits}
        return _by_method(spec, out, **options)
    axes, draws, seed = axes_of(spec.sweep)
    points = points_of(axes, draws, seed)
    base = dataclasses.replace(spec, sweep={})
    table = np.stack([points[axis.name] for axis in axes], axis=1)
    made = _build(base, axes, table, quiet)
    job, in_axes, dts = made.job, made.in_axes, made.dt
    shared = (dts == dts[0]).all()
    with executor_from(executor) as pool:
        ensemble = hx.simulate_ensemble(
            dataclasses.replace(job.problem, system=made.system),  # with the scene of the model
            job.method,
            made.q,
            made.p,
            dt=job.dt if shared else dts,
            steps=job.steps,
            t1=job.t1,
            t0=job.t0,
            in_axes=in_axes,
            save_every=spec.save_every,
            observe=None if in_axes else job.observe,  # observables see one system, but here each point has its own
            key=jax.random.key(spec.seed) if job.method.stochastic else None,
            backend=spec.backend,
            store=StorePlace(out, {} if is_store(out) else description_files(spec, job.problem.bonds)),
            coordinates=points,
            executor=pool,
            progress=False if quiet else Console(stderr=True),
            allow_different_bits=allow_different_bits,
        )
    return {
        "out": str(out),
        "model": spec.subject,
        "method": job.method.name,
        "trajectories": len(ensemble),
        "failed": int(np.sum(~ensemble.ok)),
        "axes": grid_of(axes, draws),
        "rows": ensemble.store.rows if ensemble.store else 0,
        "energy_error": _energy_error(ensemble),
        "backend": ensemble.stats["backend"],
        "wall_time": ensemble.stats["wall_time"],
    }


def _by_method(spec: RunSpec, out: Path, **options: Any) -> dict[str, Any]:
    """Run a sweep over a list of methods, with one store per method in the directory `out`."""
    methods, rest = spec.sweep["method"], {key: x for key, x in spec.sweep.items() if key != "method"}
    if not isinstance(methods, list) or not methods or not all(isinstance(m, str) for m in methods):
        raise CommandError(f'sweep.method = {str(methods)[:60]}: must be a list such as ["rattle", "shake"]')
    if not rest:
        raise CommandError("[sweep] has only methods: add something to sweep, or use `holonomix compare`")
    names = ["".join(c if c.isalnum() or c in "-." else "-" for c in kebab(m)).strip("-") for m in methods]
    if len(set(names)) < len(names):
        raise CommandError(f"sweep.method contains a method twice: {', '.join(methods)}")
    parts = [
        run_sweep(dataclasses.replace(spec, method=method, sweep=rest), out / name, **options)
        for method, name in zip(methods, names, strict=True)
    ]
    return parts[0] | {
        "out": str(out),
        "method": ", ".join(part["method"] for part in parts),
        "axes": {"method": len(parts), **parts[0]["axes"]},
        "stores": [part["out"] for part in parts],
        **{key: sum(part[key] for part in parts) for key in ("trajectories", "failed", "wall_time")},
        "energy_error": max(part["energy_error"] for part in parts),
    }


def _energy_error(ensemble: Ensemble) -> float:
    """The largest `|H(t) - H(0)|`, computed block by block."""
    from holonomix.run.solution import energy_of, map_lanes

    store, largest = ensemble.store, 0.0
    assert store is not None
    known = {column.key: column for column in store.columns}
    rows = np.arange(store.rows)
    for number in range(store.blocks):
        lanes = np.arange(*store.bounds(number))
        q, p = (store.read(known[key], lanes, rows) for key in ("q", "p"))
        if "time" in known:
            t = store.read(known["time"], lanes, rows)
        else:
            t = np.broadcast_to(store.coordinate("t"), (len(lanes), len(rows)))
        energy = map_lanes(energy_of, ensemble.loop.part(lanes), q, p, t)
        error = np.abs(energy - energy[:, :1])
        largest = max(largest, float(np.max(error, initial=0.0, where=np.isfinite(error))))
    return largest


@contextlib.contextmanager
def executor_from(text: str | None) -> Iterator[Any]:
    """The executor for `--executor processes:N` or `--executor dask:ADDRESS`."""
    if text is None:
        yield None
        return
    kind, _, rest = text.partition(":")
    _carry_user_module()
    if kind == "processes" and rest.isdigit() and int(rest) > 0:
        context = multiprocessing.get_context("spawn")
        yield lambda: ProcessPoolExecutor(int(rest), context)
    elif kind == "dask" and rest:
        try:
            import distributed  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise CommandError("--executor dask needs Dask: pip install 'holonomix[dask]'") from None
        with distributed.Client(rest) as client:
            yield client.get_executor()
    else:
        raise CommandError(f"--executor {text}: write processes:N (how many) or dask:ADDRESS (of its scheduler)")


def _carry_user_module() -> None:
    """Pickle functions of the user's file by value, because workers cannot import its module."""
    with contextlib.suppress(ImportError):
        import cloudpickle

        if USER_MODULE in sys.modules:
            cloudpickle.register_pickle_by_value(sys.modules[USER_MODULE])
