"""Start and resume runs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from holonomix.core.errors import DifferentBitsWarning, HolonomixError, MethodError, SimulationError
from holonomix.run.io import (
    EnsembleStore,
    Store,
    StoreDamagedError,
    StoreError,
    current_environment,
    environment_changes,
    is_store,
)
from holonomix.run.io.directory import discard
from holonomix.run.io.text import parse_json

from .exits import CommandError, check_signals
from .methodspec import parse_method
from .problems import file_digest, load_problem, time_value
from .runfile import RunSpec, parse_run_file, validate
from .suggest import kebab
from .trust import SEAL, is_own_seal, make_seal, trusted_file

if TYPE_CHECKING:
    from holonomix.mechanics.abstract import AbstractSystem
    from holonomix.mechanics.problem import Problem
    from holonomix.methods.base import AbstractMethod
    from holonomix.run.solution import Solution

DEFAULT_METHODS = {"constrained": "rattle", "free": "stormer-verlet", "stiff": "zhang-skeel"}
_ROWS_AT_ONCE = 1 << 16


@dataclasses.dataclass(frozen=True)
class Job:
    """A run with its problem, its method and its options, ready to start."""

    spec: RunSpec
    problem: Any
    method: Any
    dt: float
    t0: float
    steps: int | None
    t1: float | None
    observe: dict[str, Any]

    def simulate(self, store: Store, progress: Console | bool, allow_different_bits: bool = False) -> Any:
        """Run into `store` (or continue there), with progress on the console; returns the solution."""
        import jax

        import holonomix as hx

        return hx.simulate(
            self.problem,
            self.method,
            dt=self.dt,
            steps=self.steps,
            t1=self.t1,
            t0=self.t0,
            save_every=self.spec.save_every,
            observe=self.observe,
            progress=progress,
            store=store,
            key=jax.random.key(self.spec.seed) if self.method.stochastic else None,
            backend=self.spec.backend,
            allow_different_bits=allow_different_bits,
        )

    @property
    def total(self) -> int | None:
        """The number of steps; None if it is not known in advance."""
        if self.steps is not None or self.t1 is None or self.method.adaptive:
            return self.steps
        from holonomix.run.arguments import Options

        return Options(dt=self.dt, t1=self.t1, t0=self.t0).count(self.method)


def job_from(spec: RunSpec) -> Job:
    """Build the problem and the method of a run file, with the model's defaults for missing entries."""
    problem = load_problem(spec)
    name = spec.method or DEFAULT_METHODS[problem.system.kind]
    method = parse_method(name)
    dt = problem.dt if spec.dt is None else time_value(spec.dt, spec, "dt")
    _check_method(method, problem.system, dt)
    t0 = time_value(spec.t0, spec, "t0")
    t1 = None if spec.t1 is None else time_value(spec.t1, spec, "t1")
    if spec.steps is None and t1 is None:
        t1 = t0 + float(np.copysign(problem.t1, dt))
    if t1 is not None and not (t1 - t0) * dt > 0:
        raise CommandError(f"t1 = {t1:g} cannot be reached from t0 = {t0:g} with dt = {dt:g}")
    spec = dataclasses.replace(spec, method=name, dt=float(dt), t0=t0, t1=t1)
    check_signals()  # nothing is on disk yet
    return Job(spec, problem, method, float(dt), t0, spec.steps, t1, _observables(problem, spec.observe))


def _check_method(method: AbstractMethod, system: AbstractSystem, dt: float) -> None:
    try:
        method.check(system)
    except MethodError as error:
        if not system.has_constraints or "stiff" not in method.traits:
            raise
        raise CommandError(f"{error} On the command line, use --omega, such as --omega {2 / abs(dt):g}") from error


def _observables(problem: Problem, names: tuple[str, ...]) -> dict[str, Any]:
    from holonomix.mechanics import invariants

    system = problem.system
    known = {
        "energy": lambda q, p: invariants.energy(system, q, p),
        "constraint_error": lambda q, p, t: invariants.constraint_error(system, q, t),
        "hidden_constraint_error": lambda q, p, t: invariants.hidden_constraint_error(system, q, p, t),
        "linear_momentum": lambda q, p: invariants.linear_momentum(q, p),
        "angular_momentum": lambda q, p: invariants.angular_momentum(q, p),
    }
    chosen = {name: known[name] for name in names if name in known}
    if not system.has_constraints:
        chosen = {name: fn for name, fn in chosen.items() if "constraint" not in name}
    if "invariants" in names:
        chosen |= {kebab(name.replace(" ", "_")).replace("-", "_"): fn for name, fn in problem.invariants.items()}
    return chosen


# ---- run


def free_directory(spec: RunSpec) -> Path:
    """An unused directory name for a run without `--out`: double-pendulum-rattle, ..-2, ..-3."""
    method = "".join(c if c.isalnum() or c in "-." else "-" for c in kebab(spec.method or "run"))
    base = f"{kebab(spec.subject)}-{method.strip('-')}"
    candidates = (base if n == 1 else f"{base}-{n}" for n in range(1, 100_000))
    return next(Path(name) for name in candidates if not os.path.lexists(name))


def description_files(spec: RunSpec, bonds: Iterable[tuple[int, int]] = ()) -> dict[str, str | bytes]:
    """The files in a store that allow its run to be repeated and resumed."""
    saved: dict[str, str | bytes] = {}
    if spec.system is not None:
        path = Path(spec.system).absolute()
        spec = dataclasses.replace(spec, system=str(path), system_sha256=file_digest(path))
        saved[f"system{path.suffix}"] = path.read_bytes()
    text = spec.to_toml()
    facts = {"versions": current_environment(), "command": sys.argv[1:], "bonds": [list(pair) for pair in bonds]}
    return {**saved, "run.toml": text, SEAL: make_seal(text), "run.json": json.dumps(facts, indent=1)}


def start(job: Job, out: Path, *, quiet: bool = False) -> dict[str, Any]:
    """Create a store, run into it and return the summary."""
    store = Store(out, "create", files=description_files(job.spec, job.problem.bonds))
    try:
        solution = _simulate(job, store, quiet)
    except HolonomixError as error:
        # remove the store of a run that never began, so that the same command can be repeated
        if store.rows == 0 and not isinstance(error, SimulationError | StoreError):
            store.release()
            discard(out)
        raise
    return summarize(job, out, solution)


def _simulate(job: Job, store: Store, quiet: bool, allow_different_bits: bool = False) -> Any:
    return job.simulate(store, False if quiet else Console(stderr=True), allow_different_bits)


# ---- resume


def resume(
    path: Path,
    *,
    steps: int | None = None,
    from_start: bool = False,
    allow_different_bits: bool = False,
    quiet: bool = False,
    system: Path | None = None,
) -> dict[str, Any]:
    """Continue a run from its last checkpoint; `system` names the Python file of a run that another user started."""
    if not is_store(path):
        Store(path, "resume")  # says what is missing
    store = Store(path, "resume", from_start=from_start)
    try:
        spec, then = saved_run(store, system)
        if steps is not None:
            spec = dataclasses.replace(spec, steps=steps, t1=None)
        job = job_from(spec)
        if steps is not None:
            text = job.spec.to_toml()
            store.save_file("run.toml", text.encode())
            store.save_file(SEAL, make_seal(text).encode())
        if not quiet:
            warn_of_changes(then)

        if job.steps is not None and (saved := store.restart()) is not None:  # a longer run is shown as it is
            job = dataclasses.replace(job, steps=max(job.steps, int(saved[1]["n"])))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DifferentBitsWarning)  # said above
            solution = _simulate(job, store, quiet, allow_different_bits)
    finally:
        store.release()
    return summarize(job, path, solution)


def warn_of_changes(then: dict[str, Any]) -> None:
    if changed := environment_changes(then):
        text = f"warning: since the run began, {', '.join(changed)}: the last bits of further rows may differ"
        Console(stderr=True, highlight=False, soft_wrap=True).print(text, style="yellow")


def saved_run(store: Store | EnsembleStore, system: Path | None) -> tuple[RunSpec, dict[str, Any]]:
    """The run file of a store with the Python file that may be executed, and the environment of the run."""
    spec, then, own = _read_description(store)
    if spec.system is not None or system is not None:
        spec = dataclasses.replace(spec, system=str(trusted_file(store.path, spec, system, own)))
    return spec, then


def _read_description(store: Store | EnsembleStore) -> tuple[RunSpec, dict[str, Any], bool]:
    """The run file, the environment of the run, and whether this user wrote the run file."""
    call = "simulate" if isinstance(store, Store) else "simulate_ensemble"
    file = store.path / "run.toml"
    if not os.path.lexists(file):
        raise StoreError(
            f"{store.path} has no run.toml: it was written from Python. Continue it there, by calling {call}(..., "
            f"store={str(store.path)!r}) again"
        )
    data = store.file("run.toml")
    try:
        spec = validate(parse_run_file(data, str(file)), str(file))
    except CommandError as error:
        raise StoreDamagedError(f"{error}. The rows are safe; restore the file and try again") from error
    try:
        then = parse_json(store.file("run.json"))["versions"]
    except (StoreError, OSError, ValueError, KeyError, TypeError):
        then = {}
    try:
        own = is_own_seal(data, store.file(SEAL))
    except (StoreError, OSError):
        own = False
    return spec, then if isinstance(then, dict) else {}, own


# ---- the end


def summarize(job: Job, path: Path, solution: Solution) -> dict[str, Any]:
    """The results of a run as plain numbers; errors are maxima over all rows, which are read in blocks."""
    energy, constraint = _largest(path, "energy", relative_to_first=True), _largest(path, "constraint_error")
    stats = solution.stats
    return {
        "out": str(path),
        "model": job.spec.subject,
        "method": job.method.name,
        "status": solution.status.name,
        "steps": int(stats["steps"]),
        "t": float(solution.final_t),
        "dt": job.dt,
        "rows": Store(path, "read").rows,
        "energy_error": energy,
        "energy_title": solution.energy_title,
        "constraint_error": constraint,
        "backend": stats["backend"],
        "steps_per_second": stats.get("steps_per_second"),
        "wall_time": stats.get("wall_time"),
    }


def _largest(path: Path, name: str, relative_to_first: bool = False) -> float | None:
    with Store(path, "read").dataset() as data:
        if name not in data or not data.sizes["t"]:
            return None
        column, largest = data[name], 0.0
        first = float(column[0]) if relative_to_first else 0.0
        for k in range(0, column.size, _ROWS_AT_ONCE):
            largest = max(largest, float(np.max(np.abs(column[k : k + _ROWS_AT_ONCE].values - first))))
    return largest
