"""`simulate`: a run in chunks, with progress, checkpoints, partial results and errors for people."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConvergenceError, InputError, SimulationError
from ..projection import accepts_redundant, as_state_arrays, check_start
from ..status import Status
from ..systems import ResonanceWatch, System, oscillating
from ..types import State
from .backends import Choice, choose
from .checkpoint import check_same_run, from_arrays, given_arrays, to_arrays
from .checks import check_concrete, check_length, check_run
from .dense import Interpolant, check_output, check_times, disarmed, slack
from .events import EventRecord, Found, Watch, as_events, check_events, locate
from .loop import Consts, LoopCarry, Stepper, make_stepper
from .observe import as_observables, check_observables
from .progress import Progress
from .solution import Solution, map_rows

__all__ = ["simulate"]

log = logging.getLogger("holonomix")

CHUNK_SECONDS = 0.5  # progress, checkpoints and Ctrl-C happen about this often
CHUNK_BYTES = 32 << 20
UNBOUNDED = 1 << 62
MAX_STEPS = 10_000_000


def simulate(
    system: Any,
    method: Any,
    q0: Any,
    p0: Any,
    *,
    dt: float,
    steps: int | None = None,
    t1: float | None = None,
    t0: float = 0.0,
    max_steps: int = MAX_STEPS,
    save_every: int = 1,
    save_at: Any = None,
    observe: Any = None,
    events: Any = (),
    dense: bool = False,
    progress: Any = False,
    store: Any = None,
    key: Any = None,
    backend: str = "auto",
    throw: bool = True,
    allow_different_bits: bool = False,
) -> Solution:
    """Run a method and return a `Solution` with rows 0, `save_every`, 2 `save_every`, ...

    Give either `steps` or `t1`. A fixed-step method takes the steps needed to reach `t1`; an adaptive one runs until
    its own time passes it, for at most `max_steps`, and its last state is added as a row. `dt` may be negative.
    `observe` is a function of (q, p) or (q, p, t), or a dict of them, evaluated in the loop. `store` is a directory
    (or any `Sink`) that rows and checkpoints are streamed to; a store that holds a checkpoint is continued, bit for
    bit, to more `steps` if so asked; one that was begun with other numbers is refused. `backend` is `"auto"`,
    `"array"`, `"xla"`, `"native"`, or on a GPU `"cuda"` or `"pallas"`.

    `save_at` gives the rows at these times instead, read from the method's own polynomial (or a symmetric interpolant
    of matching order); `dense=True` keeps the memory of the run, so that `sol.at(t)` does the same later. `events` are
    `Event`s (or functions whose zeros are wanted), found on the same polynomials and listed in `sol.events`.

    On a stiff system, or an effective one, whose fast oscillations carry energy, a `ResonanceWarning` says where their
    frequencies met or resonated among the saved rows.

    When a step fails, `SimulationError` is raised with step, time, residual and advice, and with everything computed
    so far in `error.solution`; `throw=False` returns that partial solution instead.
    """
    check_concrete("simulate", system, method, q0, p0, dt, t0, t1)
    q0, p0 = as_state_arrays(q0, p0)
    check_run(method, system, dt, 0, key)
    wanted = None if save_at is None else check_times(save_at, dt, t0)
    if wanted is not None and save_every != 1:
        raise InputError("give either save_every or save_at, not both")
    if wanted is not None and steps is None and t1 is None:
        t1 = float(wanted[-1]) if wanted[-1] != t0 else t0 + dt
    check_length(steps, t1, t0, dt, save_every)
    if t1 is not None:
        steps = max_steps if method.adaptive else int(np.ceil((t1 - t0) / dt - 1e-9))
    steps = check_run(method, system, dt, steps, key)
    check_output(method, wanted, dense, store, t0 + dt * steps if t1 is None else t1, dt)
    redundant = accepts_redundant(method)
    system = system.accepting_redundant() if redundant and isinstance(system, System) else system
    prepared = system.prepare(q0)
    check_start(prepared, q0, p0, t0, redundant=redundant)
    method.validate(prepared, State(q0, p0, jnp.asarray(t0, q0.dtype), jnp.asarray(0)), dt)

    t_end = np.copysign(np.inf, dt) if t1 is None else t1
    observables = as_observables(observe)
    check_observables(observables, q0, p0, t0)
    watch = Watch(as_events(events))
    check_events(watch.events, q0, p0, t0)
    stepper, consts = make_stepper(
        prepared,
        method,
        dt=dt,
        t0=t0,
        t_end=t_end,
        key=key,
        observe=observables,
        reducers={"events": watch} if watch.events else None,
        dtype=q0.dtype,
        dense=dense or wanted is not None,
    )
    began = time.perf_counter()
    carry = _start(stepper, consts, q0, p0)
    choice = choose(backend, stepper, carry, consts)
    run = _Run(system, method, stepper, consts, choice, carry, steps, int(save_every), t1 is not None, wanted, watch)
    if not method.stochastic:  # noise changes the actions anyway
        run.resonance = ResonanceWatch(*oscillating(prepared, q0, p0))
    run.compile_time = time.perf_counter() - began
    if store is None:
        run.keep(run.first_row())
    else:
        run.identity = {"dt": float(dt), "t0": float(t0), "save_every": int(save_every), "method": method.name}
        run.given = given_arrays(system, method, q0, p0)
        run.attach(store, allow_different_bits)
    span = steps * abs(float(dt)) if t1 is None else abs(t1 - t0)
    bar = Progress(progress, None if method.adaptive and t1 is not None else steps, span, method.name, run.first)
    try:
        run.go(bar)
    finally:
        bar.close()
        run.close()
    solution = run.solution()
    run.resonance.judge()
    if solution.status.failed and throw:
        raise run.error(solution)
    return solution


@eqx.filter_jit
def _start(stepper: Stepper, consts: Consts, q: Any, p: Any) -> LoopCarry:
    return stepper.start(consts, q, p)


@eqx.filter_jit
def _read(stepper: Stepper, carry: LoopCarry, consts: Consts) -> dict[str, Any]:
    return stepper.read(carry, consts)


class _Run:
    """A run in progress: the carry, the rows so far, the store they go to."""

    def __init__(
        self,
        system: Any,
        method: Any,
        stepper: Stepper,
        consts: Consts,
        choice: Choice,
        carry: Any,
        steps: int,
        every: int,
        to_time: bool,
        wanted: np.ndarray | None,
        watch: Watch,
    ):
        self.system, self.method, self.stepper, self.consts, self.choice = system, method, stepper, consts, choice
        self.carry, self.steps, self.every, self.to_time = carry, steps, every, to_time
        self.parts: list[dict[str, np.ndarray]] = []
        self.sink: Any = None
        self.identity: dict[str, Any] = {}  # what a store must have been begun with to be continued
        self.given: dict[str, np.ndarray] = {}
        self.rows = 0
        self.first = self.n  # where this call began
        self.last_row = -1
        self.compile_time = self.wall_time = 0.0
        self.energy0: float | None = None
        self.t_end, self.direction = float(consts.t_end), float(np.sign(consts.dt))
        self.wanted, self.watch, self.resonance = wanted, watch, ResonanceWatch(None, 0.0)
        self.interpolant = Interpolant(stepper, consts, carry)
        self.behind: dict[str, np.ndarray] = {}
        self.found: list[Found] = []
        self.end: Found | None = None

    # -- the store ------------------------------------------------------------------------------------------------

    def attach(self, store: Any, allow_different_bits: bool) -> None:
        if isinstance(store, (str, os.PathLike)):
            from ..io import Store

            store = Store(store)
        if not hasattr(store, "restart"):
            raise InputError(f"store must be the name of a directory or a Sink, not {store!r}")
        self.sink = store
        saved = store.restart()
        if saved is None:
            shape = list(self.carry.state.q.shape)
            store.begin({**self.identity, "steps": self.steps, "backend": self.choice.name, "shape": shape})
            self.keep(self.first_row())
            self.checkpoint()
            return
        arrays, found = saved
        check_same_run(arrays, found, self.given, self.identity)
        if found.get("backend") != self.choice.name and not allow_different_bits:
            raise InputError(
                f"the store was written with backend {found.get('backend')!r}, this run would use "
                f"{self.choice.name!r}: the bits would differ. Choose the same backend, or pass "
                "allow_different_bits=True (--allow-different-bits)"
            )
        self.carry = from_arrays(self.carry, {k[6:]: v for k, v in arrays.items() if k.startswith("carry:")})
        if "key" in arrays:
            self.consts = eqx.tree_at(lambda c: c.key, self.consts, jnp.asarray(arrays["key"]))
        self.rows, self.last_row, self.first = int(found["rows"]), int(found["last_row"]), self.n
        self.behind = self.first_row()

    def checkpoint(self) -> None:
        if self.sink is None:
            return
        arrays = self.given | {f"carry:{name}": value for name, value in to_arrays(self.carry).items()}
        if self.consts.key is not None:
            arrays["key"] = np.asarray(self.consts.key)
        meta = self.identity | {
            "backend": self.choice.name,
            "rows": self.rows,
            "last_row": self.last_row,
            "n": self.n,
            "status": int(self.carry.status),
        }
        self.sink.checkpoint(arrays, meta)

    def close(self) -> None:
        if self.sink is not None:
            self.sink.close({"status": Status(int(self.carry.status)).name, "n": self.n, "rows": self.rows})

    # -- rows -----------------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        return int(self.carry.state.n)

    def first_row(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(x)[None] for name, x in _read(self.stepper, self.carry, self.consts).items()}

    def keep(self, rows: dict[str, np.ndarray]) -> None:
        """Keep rows that lie beyond the last one; a halted run repeats its frozen state, which is dropped here."""
        n = np.asarray(rows["n"])
        fresh = np.concatenate([[self.last_row], n[:-1]]) < n
        if not np.all(fresh):
            rows = {name: np.asarray(x)[fresh] for name, x in rows.items()}
        if not len(rows["n"]):
            return
        self.last_row = int(rows["n"][-1])
        if self.wanted is not None:
            last = float(rows["t"][-1])
            rows = self.pick(rows, self.direction * last + slack(last, float(self.consts.dt)))
        self.add(rows)

    def pick(self, rows: dict[str, np.ndarray], until: float) -> dict[str, np.ndarray]:
        """The rows at the wanted times, from rows that hold the memory of each step."""
        if self.behind:
            rows = {name: np.concatenate([self.behind[name], x]) for name, x in rows.items()}
        self.behind = {name: x[-1:] for name, x in rows.items()}
        times = np.asarray(self.wanted)[self.rows :]
        return self.interpolant(rows, times[self.direction * times <= until])

    def add(self, rows: dict[str, np.ndarray]) -> None:
        if not len(rows["t"]):
            return
        self.rows += len(rows["t"])
        self.resonance.add(rows["t"], rows["q"], rows["p"])
        if self.sink is None:
            self.parts.append(rows)
            return
        out = {name.replace("obs/", "").replace("step/", "step_"): x for name, x in rows.items()}
        if self.system.constrained:
            out["multipliers"] = map_rows(_lambda, self.system, rows["q"], rows["p"], rows["t"])
        self.sink.append(out)

    # -- the loop -------------------------------------------------------------------------------------------------

    def go(self, bar: Progress) -> None:
        began = time.perf_counter()
        shapes = jax.eval_shape(self.stepper.read, self.carry, self.consts)
        row_bytes = sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(shapes))
        most_rows = max(1, min(CHUNK_BYTES // max(row_bytes, 1), 16384, -(-self.steps // self.every)))
        if hasattr(self.choice.runner, "capacity"):
            self.choice.runner.capacity = most_rows
        chunk = max(1, min(self.every, 1000))  # steps in the next call; grows or shrinks towards CHUNK_SECONDS
        while not self.finished():
            tick = time.perf_counter()
            taken = self.advance(chunk, most_rows)
            elapsed = time.perf_counter() - tick
            if int(self.carry.status) == Status.TERMINATED:
                self.meet_event()
            if bar.shown:
                bar.update(self.n, abs(float(self.carry.state.t) - float(self.consts.t0)), *self.errors())
            self.checkpoint()
            if elapsed < CHUNK_SECONDS / 2:
                chunk = min(taken * 4, UNBOUNDED)
            elif elapsed > CHUNK_SECONDS * 2 and taken > 1:
                chunk = max(1, int(taken * CHUNK_SECONDS / elapsed))
        if self.n > self.last_row and (self.to_time and self.method.adaptive or Status(int(self.carry.status)).failed):
            self.keep(self.first_row())
            self.checkpoint()
        if self.to_time and self.method.adaptive and int(self.carry.status) == Status.OK and not self.late():
            self.carry = eqx.tree_at(lambda c: c.status, self.carry, jnp.asarray(Status.UNREACHED, jnp.int32))
        self.wall_time += time.perf_counter() - began

    def advance(self, chunk: int, most_rows: int) -> int:
        """Take about `chunk` steps: whole rows, or part of one when a row is long. Returns the number attempted."""
        n = self.n
        into = n % self.every
        left = self.steps - n
        if into or chunk < self.every or left < self.every:
            take = min(self.every - into, chunk, left)
            self.carry, rows = self.choice.runner.run(self.carry, self.consts, rows=1, every=take)
            if (n + take) % self.every == 0 and self.n == n + take:
                self.keep(rows)
            return take
        count = min(chunk // self.every, most_rows, left // self.every)
        self.carry, rows = self.choice.runner.run(self.carry, self.consts, rows=count, every=self.every)
        self.keep(rows if self.n == n + count * self.every else _complete(rows, self.every))
        return count * self.every

    def meet_event(self) -> None:
        """The loop halted before a step that passes an event: find it, then end there or take the step."""
        for found in locate(self.watch, self.stepper, self.carry, self.consts):
            self.found.append(found)
            if self.watch.events[found.event].terminal:
                self.end = found
                if self.wanted is None:
                    self.add(self.interpolant.after(self.carry, found.t))
                else:
                    self.add(self.pick(self.first_row(), self.direction * found.t))
                return
        ok = eqx.tree_at(lambda c: c.status, disarmed(self.carry), jnp.zeros_like(self.carry.status))
        self.carry, rows = self.choice.runner.run(ok, self.consts, rows=1, every=1)
        if self.n % self.every == 0:
            self.keep(rows)

    def late(self) -> bool:
        return self.method.adaptive and (float(self.carry.state.t) - self.t_end) * self.direction >= 0

    def finished(self) -> bool:
        return self.n >= self.steps or int(self.carry.status) != Status.OK or self.late()

    def errors(self) -> tuple[float, float]:
        energy, constraint = _errors(self.stepper, self.carry, self.consts)
        if self.energy0 is None:
            self.energy0 = float(energy)
        return float(energy) - self.energy0, float(constraint)

    # -- the end --------------------------------------------------------------------------------------------------

    def solution(self) -> Solution:
        last = _read(self.stepper, self.carry, self.consts)
        if self.sink is None:
            parts = self.parts or [self.pick(self.first_row(), -np.inf)]
            rows: Any = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        else:
            rows = self.sink.load
        n = self.n
        stats = {
            "backend": self.choice.name,
            "backend_reason": self.choice.reason,
            "operations": self.choice.operations,
            "steps": n,
            "iterations": int(self.carry.iterations),
            "mean_iterations": int(self.carry.iterations) / max(n, 1),
            "max_iterations": int(self.carry.most_iterations),
            "residual": float(self.carry.residual),
            "compile_time": self.compile_time,
            "wall_time": self.wall_time,
            "steps_per_second": (n - self.first) / self.wall_time if self.wall_time else 0.0,
        }
        if hasattr(self.method, "statistics"):
            stats |= {k: float(v) for k, v in self.method.statistics(self.carry.memory).items()}
        final = (np.asarray(last["q"]), np.asarray(last["p"]), float(last["t"]))
        if self.end is not None:
            final = (self.end.q, self.end.p, self.end.t)
        return Solution(
            self.system,
            self.method,
            rows,
            status=Status(int(self.carry.status)),
            stats=stats,
            final=final,
            interpolant=self.interpolant if self.stepper.dense and self.wanted is None else None,
            events=[self.record(k) for k in range(len(self.watch.events))],
        )

    def record(self, k: int) -> EventRecord:
        found, shape = [f for f in self.found if f.event == k], self.carry.state.q.shape
        columns = ([f.t for f in found], [f.q for f in found], [f.p for f in found])
        return EventRecord(*(np.asarray(x, float).reshape(-1, *s) for x, s in zip(columns, ((), shape, shape))))

    def error(self, solution: Solution) -> SimulationError:
        status, n, t = solution.status, self.n, float(self.carry.state.t)
        numbers = f"residual {float(self.carry.residual):.3g}, {int(self.carry.most_iterations)} iterations at most"
        message = (
            f"{self.method.name}: {status.message} in step {n + 1} after t = {t:g} "
            f"({numbers}, dt = {float(self.consts.dt):g}). "
            f"{status.advice[:1].upper()}{status.advice[1:]}. "
            f"The {'row' if self.rows == 1 else f'{self.rows} rows'} before it {'is' if self.rows == 1 else 'are'} in "
            "`error.solution`" + ("." if self.sink is None else " and in the store.")
        )
        kind = ConvergenceError if status == Status.NOT_CONVERGED else SimulationError
        return kind(message, solution=solution, status=status, step=n + 1, time=t)


def _complete(rows: dict[str, np.ndarray], every: int) -> dict[str, np.ndarray]:
    """The rows that stand on a multiple of `every`: those written after a halt in mid-row are left out."""
    whole = np.asarray(rows["n"]) % every == 0
    return {name: np.asarray(x)[whole] for name, x in rows.items()}


def _lambda(system: Any, q: Any, p: Any, t: Any) -> Any:
    return system.multipliers(q, p, t)


@eqx.filter_jit
def _errors(stepper: Stepper, carry: LoopCarry, consts: Consts) -> tuple[Any, Any]:
    system, method = stepper.parts(consts)[:2]
    shown = method.read(system, carry.state, carry.memory)
    violation = jnp.max(jnp.abs(system.constraint(shown.q, shown.t))) if system.constrained else jnp.zeros(())
    return system.hamiltonian(shown.q, shown.p), violation
