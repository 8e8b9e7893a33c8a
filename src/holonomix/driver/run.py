"""A run in progress: chunks of compiled steps, and between them rows, checkpoints, events and progress."""

from __future__ import annotations

import os
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConvergenceError, InputError, SimulationError
from ..status import Status
from ..systems import ResonanceWatch
from .backends import Choice
from .checkpoint import check_same_run, from_arrays, to_arrays
from .dense import Interpolant, disarmed, slack
from .events import EventRecord, Found, Watch, locate
from .loop import Consts, LoopCarry, Stepper
from .progress import Progress
from .solution import Solution, map_rows

__all__ = ["Run"]

CHUNK_SECONDS = 0.5  # progress, checkpoints and Ctrl-C happen about this often
CHUNK_BYTES = 32 << 20
UNBOUNDED = 1 << 62


@eqx.filter_jit
def _read(stepper: Stepper, carry: LoopCarry, consts: Consts) -> dict[str, Any]:
    return stepper.read(carry, consts)


class Run:
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
