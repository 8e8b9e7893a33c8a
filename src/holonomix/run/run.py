"""A run in progress: chunks of compiled steps, and between them rows, checkpoints, events and progress.

One trajectory and many go through the same loop. Inside of it, quantities have an axis over trajectories, of length one
where there is only one.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..core import columns
from ..core.status import Status
from ..core.types import Numbers
from ..trace.compiled import compiled
from .backends import Choice
from .checkpoint import Identity, check_same_backend, check_same_run, from_arrays, to_arrays
from .dense import Interpolant
from .events import Found, locate
from .interrupts import Interrupts
from .loop import REPEATED, Consts, LoopCarry, Stepper
from .options import StoreLike, slack
from .plan import Plan, to_host
from .progress import Progress
from .record import Passages, Record, Rows, Table, blanked, check_memory

__all__ = ["Run"]

CHUNK_SECONDS = 0.5  # progress, checkpoints and Ctrl-C happen about this often
CHUNK_BYTES = 32 << 20  # rows of one call; eight times as much for ensembles, which want few, long calls
CHUNK_ROWS = 16384
TOGETHER = 16  # trajectories of an ensemble whose steps are repeated in one call
FIRST_CHUNK = {False: 1000, True: 16}  # steps in the first call, for one trajectory and for many


class Run:
    """A plan with the memory of its run, the rows so far, and the store they go to."""

    def __init__(
        self,
        plan: Plan,
        *,
        store: StoreLike | None = None,
        allow_different_bits: bool = False,
        carry: LoopCarry | None = None,
        in_memory: bool = True,
    ):
        began = time.perf_counter()
        self.plan, (self.carry, first) = plan, plan.start() if carry is None else (carry, plan.read(carry))
        self._shown: tuple[LoopCarry, Rows] | None = None  # of ends alone, the start is not shown
        if plan.saves or not plan.many:
            self._shown = self.carry, to_host(first)
        row_bytes = max(sum(x.nbytes for x in first.values()), 1)
        if in_memory and store is None and plan.wanted is None and not plan.adaptive_end:
            check_memory(plan.row_count, row_bytes, save_every=plan.every if plan.saves else None)
        budget = CHUNK_BYTES * (8 if plan.many else 1)
        self.most_rows = max(1, min(budget // row_bytes, CHUNK_ROWS, -(-plan.steps // plan.every)))
        self.choice: Choice = plan.choose(self.carry, self.most_rows)
        self.compile_time, self.wall_time = time.perf_counter() - began, 0.0
        self.done = 0  # steps that every live trajectory has taken
        self.first = 0  # where this call began
        self.record = Record(plan)
        # whether all trajectories that did not fail have the same number of steps behind them
        self.in_step = plan.many and not plan.watch.events and not plan.method.adaptive
        self.last_n = -1  # the step count of the last row of one trajectory
        self.direction = float(np.sign(np.ravel(plan.consts.dt)[0]))
        self.behind: Rows = {}
        self.passages = Passages(plan.watch.events)
        self.retries = 0  # steps that were repeated because they did not converge
        self.given_up = np.zeros(plan.count, bool)  # trajectories that failed all the same
        self.energy0: float | None = None
        if store is not None:
            self.identity = Identity.of(plan)
            self.attach(store, allow_different_bits)
        elif plan.saves:
            self.keep(self.first_row(), np.ones((plan.count, 1), bool))

    # -- the store ------------------------------------------------------------------------------------------------

    def attach(self, store: StoreLike, allow_different_bits: bool) -> None:
        """Begin a fresh store, or continue what is in it."""
        sink = self.record.open(store)
        saved = sink.restart()
        if saved is None:
            sink.begin({**self.identity.meta, **self.record.description(), "backend": self.choice.name})
            self.keep(self.first_row(), np.ones((1, 1), bool))
            self.checkpoint()
            return
        arrays, found = saved
        check_same_run(arrays, found, self.identity)
        check_same_backend(found.get("backend"), self.choice.name, allow_different_bits)
        self.carry = from_arrays(self.carry, columns.select(arrays, "carry:"))
        self.record.rows, self.done, self.last_n = int(found["rows"]), int(found["n"]), int(found["last_row"])
        self.first, self.retries = self.done, int(found.get("retries", 0))
        self.passages.restore(columns.select(arrays, "events:"))
        if self.plan.wanted is not None:
            self.behind = self.first_row()

    def checkpoint(self) -> None:
        """Send the memory of the run to the store."""
        assert self.record.sink is not None
        arrays = self.identity.arrays | {f"carry:{name}": x for name, x in to_arrays(self.carry).items()}
        arrays |= {f"events:{name}": x for name, x in self.passages.to_arrays().items()}
        meta = self.identity.meta | {
            "backend": self.choice.name,
            "rows": self.record.rows,
            "last_row": self.last_n,
            "n": self.done,
            "status": int(self.status[0]),
            "retries": self.retries,
        }
        self.record.sink.checkpoint(arrays, meta)

    def close(self) -> None:
        """Tell the store how the run ended."""
        if self.record.sink is not None:
            end = {"status": Status(int(self.status[0])).name}
            self.record.sink.close({**end, "n": self.done, "rows": self.record.rows})

    # -- rows -----------------------------------------------------------------------------------------------------

    def lanes(self, x: Numbers) -> np.ndarray:
        """An array with its axis over trajectories."""
        return np.asarray(x) if self.plan.many else np.asarray(x)[None]

    @property
    def n(self) -> np.ndarray:
        return self.lanes(self.carry.state.n)

    @property
    def status(self) -> np.ndarray:
        return self.lanes(self.carry.status)

    def first_row(self) -> Rows:
        """The present state as one row of every trajectory; (trajectory, row, ...)."""
        return {key: (x if self.plan.many else np.asarray(x)[None])[:, None] for key, x in self.shown().items()}

    def shown(self) -> Rows:
        """The present state by column; it is brought from the device once."""
        if self._shown is None or self._shown[0] is not self.carry:
            self._shown = self.carry, self.plan.read(self.carry)
        return self._shown[1]

    @functools.cached_property
    def interpolant(self) -> Interpolant:
        """The states of one trajectory between its steps."""
        return Interpolant(self.plan.stepper, self.plan.consts, self.carry)

    def rows(self) -> Rows:
        """All rows: (row, ...) of one trajectory; of many (trajectory, row, ...), or (trajectory, ...) at the end."""
        return self.record.collected() if self.plan.saves or not self.plan.many else self.shown()

    def keep(self, rows: Rows, valid: np.ndarray) -> None:
        """Keep the rows of a chunk, (trajectory, row, ...), of which `valid` are good."""
        if not self.plan.many:
            if not valid.all():
                rows = {key: x[:, valid[0]] for key, x in rows.items()}
            if not rows["n"].size:
                return
            self.last_n = int(rows["n"][0, -1])
            if self.last_n == int(self.carry.state.n):
                self._shown = self.carry, {key: x[0, -1, ...] for key, x in rows.items()}
            if self.plan.wanted is not None:
                last = float(rows["t"][0, -1])
                rows = self.pick(rows, self.direction * last + slack(last, float(self.plan.consts.dt)))
        elif not valid.all():
            # of trajectories that have ended; what a call left there depends on where chunks end
            last = self.shown()
            rows = {key: blanked(x, ~valid, np.asarray(last[key])) for key, x in rows.items()}
        self.record.add(rows)

    def pick(self, rows: Rows, until: float) -> Rows:
        """The rows at the wanted times, from rows that hold the memory of each step."""
        if self.behind:
            rows = {key: np.concatenate([self.behind[key], x], axis=1) for key, x in rows.items()}
        self.behind = {key: x[:, -1:] for key, x in rows.items()}
        times = np.asarray(self.plan.wanted)[self.record.rows :]
        within = times[self.direction * times <= until]
        picked, status = self.interpolant({key: x[0] for key, x in rows.items()}, within)
        self.fail(0, status)
        return {key: x[None] for key, x in picked.items()}

    def fail(self, lane: int, status: Status) -> None:
        """End a trajectory at a state between two steps that could not be found."""
        if status.failed:
            old = self.carry.status
            new = old.at[lane].set(int(status)) if self.plan.many else jnp.full_like(old, int(status))
            self.carry = eqx.tree_at(lambda c: c.status, self.carry, new)

    # -- the loop -------------------------------------------------------------------------------------------------

    def go(self, bar: Progress | None = None) -> None:
        """Advance to the end."""
        for _ in self.chunks():
            if bar is not None:
                self.show(bar)

    def chunks(self) -> Iterator[None]:
        """Advance to the end; stops after every chunk, and once more when the last rows are there."""
        began = time.perf_counter()
        plan = self.plan
        chunk = max(1, min(plan.every, FIRST_CHUNK[plan.many]))  # steps in the next call
        with Interrupts() as interrupts:
            while not self.finished():
                tick = time.perf_counter()
                taken = self.chunk(chunk)
                elapsed = time.perf_counter() - tick
                yield
                if self.record.sink is not None:
                    self.checkpoint()
                interrupts.check()
                chunk = max(1, int(taken * min(64.0, CHUNK_SECONDS / max(elapsed, 1e-6))))
            self.finish()
        self.wall_time += time.perf_counter() - began
        yield

    def chunk(self, most: int) -> int:
        """Take about `most` steps: whole rows, or part of one when a row is long. Returns the number attempted."""
        plan, n0 = self.plan, self.done
        into, left = n0 % plan.every, plan.steps - n0
        if into or most < plan.every or left < plan.every:
            target = n0 + min(plan.every - into, most, left)
        else:
            target = n0 + plan.every * min(most // plan.every, self.most_rows, left // plan.every)
        table = Table(n0, target, plan.every)
        if self.in_step:
            # those that failed stay where they are; nothing has to be known of each trajectory
            rows = 0 if into else (target - n0) // plan.every
            self.call(table, target, max(rows, 1), plan.every if rows else target - n0)
        else:
            self.advance(table, np.where(self.live(), target, self.n))
        while (self.status != Status.OK).any() and (self.meet_events(table) or self.repeat(table)):
            while (behind := self.live() & (self.n < target)).any():
                self.advance(table, np.where(behind, target, self.n))
        self.done = target if plan.many else int(self.carry.state.n)
        if table.rows and plan.saves:
            assert table.valid is not None
            self.keep(table.values, table.valid)
        if not plan.many and self.passages.ends:
            self.add_end(self.passages.ends[0])
        return target - n0

    def advance(self, table: Table, ends: np.ndarray) -> None:
        """One call: every trajectory goes on to its entry of `ends`, or to the next row where they stand apart."""
        every, n = self.plan.every, self.n
        ahead = ends > n
        whole = ahead & (n % every == 0) & (ends - n >= every)
        if np.array_equal(whole, ahead):
            rows, stride = int(np.max((ends - n)[ahead] // every)), every
        else:
            # to the next row, so that all stand on one; those that stand on one wait
            ends = np.where(whole, n, np.minimum((n // every + 1) * every, ends))
            rows, stride = 1, int(np.max(ends - n))
        self.call(table, ends, rows, stride)

    def call(self, table: Table, ends: np.ndarray | int, rows: int, stride: int) -> None:
        """Every trajectory goes on to its entry of `ends`."""
        plan, before, shape = self.plan, self.n if self.plan.saves else None, np.shape(self.plan.consts.n_end)
        n_end, axes = np.asarray(ends, plan.consts.n_end.dtype), plan.axes
        if axes is None:
            n_end = n_end.reshape(shape)
        elif not n_end.shape and self.choice.name != "array":
            axes = dataclasses.replace(axes, n_end=None)  # kernels take one number for all
        else:  # it is repeated where it is needed: a GPU may be far away
            n_end = jnp.broadcast_to(n_end, shape)
        consts = dataclasses.replace(plan.consts, n_end=n_end)
        if axes is not None:
            self.carry, out = self.choice.runner.run_batch(self.carry, consts, axes, rows=rows, every=stride)
        else:
            self.carry, out = self.choice.runner.run(self.carry, consts, rows=rows, every=stride)
        if before is not None:
            table.place({key: self.lanes(x) for key, x in out.items()}, before)

    def repeat(self, table: Table) -> bool:
        """Take steps that did not converge again, with more care (`linalg.careful`); whether any trajectory goes on."""
        plan, status = self.plan, self.status
        again = np.isin(status, REPEATED) & ~self.given_up
        if again.any():
            again &= self.lanes(self.carry.most_iterations) > 0  # of explicit steps nothing else can be had
        if not again.any():
            return False
        before, stepper, lanes = self.n, plan.stepper.with_care(), np.flatnonzero(again)
        if plan.axes is None:
            self.carry = _one_step(stepper, self.carry, plan.consts)
        else:
            # always the same number together, so that results do not depend on how many there are
            for first in range(0, len(lanes), TOGETHER):
                some = np.resize(lanes[first : first + TOGETHER], TOGETHER)
                part = jax.tree.map(lambda x, some=some: jnp.asarray(x)[some], self.carry)
                part = _one_step_each(stepper, part, plan.part(some).consts, plan.axes)
                self.carry = jax.tree.map(lambda x, y, some=some: jnp.asarray(x).at[some].set(y), self.carry, part)
        lost = again & _failed(self.status)
        self.given_up |= lost
        if lost.any():  # the first failure is the one to report
            first = jnp.asarray(np.where(lost, status, self.status).astype(np.int32))
            self.carry = eqx.tree_at(lambda c: c.status, self.carry, first if plan.many else first[0])
        self.retries += int(np.sum(again))
        if plan.saves:
            table.place(self.first_row(), before)
        return not self.given_up[again].all()

    def meet_events(self, table: Table) -> bool:
        """Trajectories halted before a step that passes an event: find it, then end there or take the step.

        Whether any goes on.
        """
        if not self.plan.watch.events or not (event := self.status == Status.TERMINATED).any():
            return False
        for lane in np.flatnonzero(event):
            if int(lane) not in self.passages.ends:
                self.locate(int(lane))
        go_on = (self.status == Status.TERMINATED) & ~np.isin(np.arange(len(event)), list(self.passages.ends))
        if not go_on.any():
            return False
        mask = jnp.asarray(go_on if self.plan.many else go_on[0])
        self.carry = _disarmed(self.carry, mask)
        self.call(table, np.where(go_on, self.n + 1, self.n), 1, 1)
        return True

    def locate(self, lane: int) -> None:
        plan = self.plan
        carry = jax.tree.map(lambda x: x[lane], self.carry) if plan.many else self.carry
        for found in locate(plan.watch, plan.stepper, carry, plan.lane(lane)):
            if found.status.failed:
                return self.fail(lane, found.status)
            if self.passages.note(lane, found):
                return

    def add_end(self, found: Found) -> None:
        """The last row, where a terminal event ended the run; with `save_at`, the rows up to there."""
        if self.plan.wanted is not None:
            self.record.add(self.pick(self.first_row(), self.direction * found.t))
            return
        row, status = self.interpolant.after(self.carry, found.t)
        self.fail(0, status)
        self.record.add({key: x[None] for key, x in row.items()})

    def live(self) -> np.ndarray:
        """Trajectories that can go on: that did not fail, and whose own time has not passed the end."""
        plan, good = self.plan, self.status == Status.OK
        if plan.adaptive_end:
            way = np.sign(np.broadcast_to(np.asarray(plan.consts.dt), plan.count))
            good &= ~((self.lanes(self.carry.state.t) - plan.t1) * way >= 0)
        return good

    def finished(self) -> bool:
        if self.done >= self.plan.steps:
            return True
        if self.in_step and self.done == self.first:  # all begin well
            return False
        return not ((to_host(self.carry.status) == Status.OK) if self.in_step else self.live()).any()

    def finish(self) -> None:
        """The last rows, and the status of those that did not get to their end."""
        plan = self.plan
        if not plan.many:
            stopped = plan.adaptive_end or Status(int(self.carry.status)).failed
            if stopped and self.done > self.last_n and not self.passages.ends:  # between two rows
                self.keep(self.first_row(), np.ones((1, 1), bool))
            if not self.record.rows:  # no wanted time was reached
                self.record.parts.append(self.pick(self.first_row(), -np.inf))
        elif plan.saves and not plan.adaptive_end and self.record.rows < plan.row_count:
            # every trajectory stopped early: the rows that are missing are blank
            missing = plan.row_count - self.record.rows
            blank = {key: np.repeat(x, missing, axis=1) for key, x in self.first_row().items()}
            self.keep(blank, np.zeros(blank["n"].shape, bool))
        if self.record.sink is not None:
            self.checkpoint()
        if plan.adaptive_end and (short := self.live()).any():
            # after the checkpoint: with more steps the run may go on
            status = np.where(short, Status.UNREACHED, self.status).astype(np.int32)
            self.carry = eqx.tree_at(lambda c: c.status, self.carry, jnp.asarray(status if plan.many else status[0]))

    # -- what is shown --------------------------------------------------------------------------------------------

    def show(self, bar: Progress) -> None:
        plan = self.plan
        if plan.many:
            status, left = self.status, int(np.sum(self.live()))
            bar.update_many(self.done, len(status) - left, int(np.sum(_failed(status))), left)
            return
        energy, constraint = (float(x) for x in plan.compiled(_errors, self.carry))
        self.energy0 = energy if self.energy0 is None else self.energy0
        elapsed = abs(float(self.carry.state.t) - float(plan.consts.t0))
        bar.update(self.done, elapsed, energy - self.energy0, constraint)

    def stats(self) -> dict[str, Any]:
        carry, n = self.carry, self.shown()["n"] if self.plan.many else self.n
        taken = float(np.sum(n)) - self.first * self.plan.count
        rate = taken / self.wall_time if self.wall_time else 0.0
        common = {
            "backend": self.choice.name,
            "backend_reason": self.choice.reason,
            "operations": self.choice.operations,
            "compile_time": self.compile_time,
            "wall_time": self.wall_time,
            "retries": self.retries,
        }
        if self.plan.many:
            return common | {"trajectory_steps_per_second": rate}
        steps = int(n[0])
        found = {
            "steps": steps,
            "iterations": int(carry.iterations),
            "mean_iterations": int(carry.iterations) / max(steps, 1),
            "max_iterations": int(carry.most_iterations),
            "residual": float(carry.residual),
            "steps_per_second": rate,
        }
        return common | found | {k: float(v) for k, v in self.plan.method.statistics(carry.memory).items()}


def _failed(status: np.ndarray) -> np.ndarray:
    return (status != Status.OK) & (status != Status.TERMINATED)


@compiled
def _one_step(stepper: Stepper, carry: LoopCarry, consts: Consts) -> LoopCarry:
    """One step of a trajectory that halted before it."""
    return stepper.step(eqx.tree_at(lambda c: c.status, carry, jnp.zeros_like(carry.status)), consts)


@compiled
def _one_step_each(stepper: Stepper, carry: LoopCarry, consts: Consts, axes: Consts) -> LoopCarry:
    return jax.vmap(lambda carry, consts: _one_step(stepper, carry, consts), in_axes=(0, axes))(carry, consts)


@compiled
def _disarmed(carry: LoopCarry, mask: Numbers) -> LoopCarry:
    """The carry with event values forgotten where `mask` holds: the next step is taken whatever it passes."""
    values = carry.reduced["events"]
    wide = jnp.reshape(mask, mask.shape + (1,) * (jnp.ndim(values) - jnp.ndim(mask)))
    return eqx.tree_at(
        lambda c: (c.status, c.reduced["events"]),
        carry,
        (jnp.where(mask, 0, carry.status), jnp.where(wide, jnp.nan, values)),
    )


def _errors(stepper: Stepper, consts: Consts, carry: LoopCarry) -> tuple[Any, Any]:
    """Energy and largest constraint violation, for the progress bar."""
    system, method = stepper.parts(consts)[:2]
    shown = method.read(system, carry.state, carry.memory)
    violation = jnp.max(jnp.abs(system.constraint(shown.q, shown.t))) if system.has_constraints else jnp.zeros(())
    return system.hamiltonian(shown.q, shown.p, shown.t), violation
