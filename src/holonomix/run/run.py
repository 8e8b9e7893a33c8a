"""A run in progress: chunks of compiled steps, and between them rows, checkpoints, events and progress.

All arrays have an axis over trajectories; its length is one for a single trajectory.
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
from .arguments import StoreLike, place, select, slack
from .checkpoint import Identity, check_no_shorter, check_same_backend, check_same_run, from_arrays, to_arrays
from .dense import Interpolant
from .events import Found, locate
from .impacts import step_through
from .interrupts import Interrupts
from .loop import Loop
from .progress import Progress
from .record import SMALL, Passages, Record, Rows, Table, blank_rows, check_memory
from .stepper import REPEATED, Consts, LoopCarry, Stepper, take_step

__all__ = ["Run", "failed"]

CHUNK_SECONDS = 0.5  # progress, checkpoints and Ctrl-C happen about this often
CHUNK_BYTES = 32 << 20  # rows of one call, of each trajectory; at most eight times as much for all together
CHUNK_ROWS = 16384
REPEATED_TOGETHER = 16  # trajectories of an ensemble whose steps are repeated in one call
FIRST_CHUNK = {False: 1000, True: 16}  # steps in the first call, for one trajectory and for many


class Run:
    """A loop with the memory of its run, the rows so far, and their store."""

    def __init__(
        self,
        loop: Loop,
        *,
        store: StoreLike | None = None,
        allow_different_bits: bool = False,
        carry: LoopCarry | None = None,
        in_memory: bool = True,
    ):
        began = time.perf_counter()
        self.loop, (self.carry, first) = loop, loop.start() if carry is None else (carry, loop.read(carry))
        row_bytes = max(sum(x.nbytes for x in first.values()), 1)
        small = store is not None or loop.row_count * row_bytes <= SMALL
        if in_memory and not small and loop.wanted is None and not loop.adaptive_end:
            check_memory(loop.row_count, row_bytes, save_every=loop.every if loop.saves else None)
        budget = CHUNK_BYTES * min(loop.count, 8)
        self.most_rows = max(1, min(budget // row_bytes, CHUNK_ROWS, -(-loop.steps // loop.every)))
        self.choice = loop.choose(self.carry)
        self.runner = self.choice.runner.prepare(self.most_rows)
        # if only final states are kept, the start is not shown
        self._shown: tuple[LoopCarry, Rows] | None = (self.carry, self.runner.fetch(first)) if loop.saves else None
        self.compile_time, self.wall_time = time.perf_counter() - began, 0.0
        self.done = 0  # steps that every live trajectory has taken
        self.first = 0  # step count at the beginning of this call
        self.started = False  # whether a step was tried
        self.record = Record(loop)
        # whether all trajectories that did not fail have taken the same number of steps
        self.in_step = not loop.watch.events and not loop.method.adaptive
        self.last_n = -1  # the step count of the last row of one trajectory
        self.direction = float(np.sign(np.ravel(loop.consts.dt)[0]))
        self.behind: Rows = {}
        self.passages = Passages(loop.watch.events)
        self.retries = 0  # steps that were repeated because they did not converge
        self.given_up = np.zeros(loop.count, bool)  # trajectories that failed again when repeated
        self.energy0: float | None = None
        if store is not None:
            self.identity = Identity.of(loop)
            self.attach(store, allow_different_bits)
        elif loop.saves:
            self.keep(self.first_row(), np.ones((loop.count, 1), bool))

    # -- the store ------------------------------------------------------------------------------------------------

    def attach(self, store: StoreLike, allow_different_bits: bool) -> None:
        """Begin a fresh store, or resume this run from its last checkpoint; raise if it holds another run."""
        sink = self.record.open(store)
        saved = sink.restart()
        if saved is None:
            sink.begin({**self.identity.meta, **self.record.description(), "backend": self.runner.name})
            self.keep(self.first_row(), np.ones((1, 1), bool))
            self.checkpoint()
            return
        arrays, found = saved
        check_same_run(arrays, found, self.identity)
        check_no_shorter(int(found["n"]), self.loop.steps)
        check_same_backend(found.get("backend"), self.runner.name, allow_different_bits)
        one = from_arrays(self.lane(0), columns.select(arrays, "carry:"))  # a store has one trajectory, without an axis
        self.carry = jax.tree.map(lambda x: np.asarray(x)[None], one)
        self.record.rows, self.done, self.last_n = int(found["rows"]), int(found["n"]), int(found["last_row"])
        self.first, self.retries = self.done, int(found.get("retries", 0))
        self.passages.restore(columns.select(arrays, "events:"))
        if self.loop.wanted is not None:
            self.behind = self.first_row()

    def checkpoint(self) -> None:
        """Write a checkpoint: the memory of the run."""
        assert self.record.sink is not None
        arrays = self.identity.arrays | {f"carry:{name}": x for name, x in to_arrays(self.lane(0)).items()}
        arrays |= {f"events:{name}": x for name, x in self.passages.to_arrays().items()}
        meta = self.identity.meta | {
            "backend": self.runner.name,
            "rows": self.record.rows,
            "last_row": self.last_n,
            "n": self.done,
            "status": int(self.status[0]),
            "retries": self.retries,
        }
        self.record.sink.checkpoint(arrays, meta)

    def close(self) -> None:
        """Tell the store how the run ended."""
        assert self.record.sink is not None
        self.record.sink.close({"status": Status(int(self.status[0])).name, "n": self.done, "rows": self.record.rows})

    # -- rows -----------------------------------------------------------------------------------------------------

    @property
    def n(self) -> np.ndarray:
        return np.asarray(self.carry.state.n)

    @property
    def status(self) -> np.ndarray:
        return np.asarray(self.carry.status)

    def set_status(self, status: np.ndarray) -> None:
        self.carry = eqx.tree_at(lambda c: c.status, self.carry, jnp.asarray(status.astype(np.int32)))

    def lane(self, k: int) -> LoopCarry:
        """The memory of one trajectory."""
        return select(self.carry, 0, k)

    def first_row(self) -> Rows:
        """The current state as one row of every trajectory, (trajectory, row, ...)."""
        return {key: x[:, None] for key, x in self.shown().items()}

    def shown(self) -> Rows:
        """The current state by column, fetched from the device once.

        If only final states are kept, the multipliers of the last step stay on the device until they are used.
        """
        if self._shown is None or self._shown[0] is not self.carry:
            row = self.loop.read(self.carry)
            here = {key: x for key, x in row.items() if self.loop.saves or not key.startswith("step/")}
            self._shown = self.carry, row | self.runner.fetch(here)
        return self._shown[1]

    @functools.cached_property
    def interpolant(self) -> Interpolant:
        """The interpolant between the steps of a single trajectory."""
        return Interpolant(self.loop.stepper, self.loop.consts, self.lane(0))

    def rows(self) -> Rows:
        """All saved rows, (trajectory, row, ...); if none are saved, the final states, (trajectory, ...)."""
        return self.record.collect() if self.loop.saves else self.shown()

    def keep(self, rows: Rows, valid: np.ndarray) -> None:
        """Keep the rows of a chunk, (trajectory, row, ...), of which `valid` are good."""
        if self.loop.alone:
            if not valid.all():
                rows = {key: x[:, valid[0]] for key, x in rows.items()}
            if not rows["n"].size:
                return
            self.last_n = int(rows["n"][0, -1])
            if self.last_n == self.n[0]:
                self._shown = self.carry, {key: x[:, -1] for key, x in rows.items()}
            if self.loop.wanted is not None:
                last = float(rows["t"][0, -1])
                rows = self.pick(rows, self.direction * last + slack(last, float(self.loop.consts.dt)))
        elif not valid.all():
            # rows of ended trajectories: what a call leaves there depends on the ends of chunks
            last = self.shown()
            rows = {key: blank_rows(x, ~valid, np.asarray(last[key])) for key, x in rows.items()}
        self.record.add(rows)

    def pick(self, rows: Rows, until: float) -> Rows:
        """The rows at the requested times, from rows that hold the memory of each step."""
        if self.behind:
            rows = {key: np.concatenate([self.behind[key], x], axis=1) for key, x in rows.items()}
        self.behind = {key: x[:, -1:] for key, x in rows.items()}
        times = np.asarray(self.loop.wanted)[self.record.rows :]
        within = times[self.direction * times <= until]
        picked, status = self.interpolant({key: x[0] for key, x in rows.items()}, within)
        self.fail(0, status)
        return {key: x[None] for key, x in picked.items()}

    def fail(self, lane: int, status: Status) -> None:
        """End a trajectory because a state between two of its steps could not be found."""
        if status.failed:
            self.set_status(np.where(np.arange(self.loop.count) == lane, int(status), self.status))

    # -- the loop -------------------------------------------------------------------------------------------------

    def go(self, bar: Progress | None = None) -> None:
        """Advance to the end."""
        for _ in self.chunks():
            if bar is not None:
                self.show(bar)

    def chunks(self) -> Iterator[None]:
        """Advance to the end, and yield after every chunk of steps and once more after the last rows.

        Between chunks the store gets a checkpoint and signals are handled.
        """
        began = time.perf_counter()
        loop = self.loop
        chunk = max(1, min(loop.every, FIRST_CHUNK[not loop.alone]))  # steps in the next call
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
        """Take about `most` steps: whole rows, or part of one when a row is long. Returns the number attempted.

        Handles events and retries on the way and keeps the finished rows.
        """
        self.started, loop, n0 = True, self.loop, self.done
        into, left = n0 % loop.every, loop.steps - n0
        if into or most < loop.every or left < loop.every:
            target = n0 + min(loop.every - into, most, left)
        else:
            target = n0 + loop.every * min(most // loop.every, self.most_rows, left // loop.every)
        table = Table(n0 // loop.every, target // loop.every - n0 // loop.every, loop.every)
        if self.in_step:
            # failed trajectories do not move, so one number serves all
            rows = 0 if into else (target - n0) // loop.every
            self.call(table, target, max(rows, 1), loop.every if rows else target - n0)
        else:
            self.advance(table, np.where(self.live(), target, self.n))
        while (self.status != Status.OK).any() and (self.meet_events(table) or self.repeat(table)):
            while (behind := self.live() & (self.n < target)).any():
                self.advance(table, np.where(behind, target, self.n))
        self.done = target if self.in_step and (self.status == Status.OK).all() else int(self.n.max())
        if table.rows and loop.saves:
            assert table.valid is not None
            self.keep(table.values, table.valid)
        if loop.alone and self.passages.ends:
            self.add_end(self.passages.ends[0])
        return target - n0

    def advance(self, table: Table, ends: np.ndarray) -> None:
        """One call: advance every trajectory to its entry of `ends`, or to the next row if their step counts differ."""
        every, n = self.loop.every, self.n
        ahead = ends > n
        whole = ahead & (n % every == 0) & (ends - n >= every)
        if np.array_equal(whole, ahead):
            rows, stride = int(np.max((ends - n)[ahead] // every)), every
        else:
            # to the next row, so that all are at a row; those at a row wait
            ends = np.where(whole, n, np.minimum((n // every + 1) * every, ends))
            rows, stride = 1, int(np.max(ends - n))
        self.call(table, ends, rows, stride)

    def call(self, table: Table, ends: np.ndarray | int, rows: int, stride: int) -> None:
        """Advance every trajectory to its entry of `ends` and record the rows."""
        loop, before = self.loop, self.n if self.loop.saves else None
        n_end, axes = np.asarray(ends, loop.consts.n_end.dtype), None
        if loop.axes is None:
            n_end = n_end.reshape(())
        else:  # one number if all have the same step count
            axes = dataclasses.replace(loop.axes, n_end=0 if n_end.ndim else None)
        consts = dataclasses.replace(loop.consts, n_end=n_end)
        self.carry, out = self.runner.run(self.carry, consts, axes, rows=rows, every=stride)
        if before is not None:
            table.place({key: np.asarray(x) for key, x in out.items()}, before)

    def repeat(self, table: Table) -> bool:
        """Repeat unconverged steps with `linalg.careful` and write their rows to `table`.

        A trajectory that fails again keeps its first status. Returns whether any can continue.
        """
        loop, status = self.loop, self.status
        again = np.isin(status, REPEATED) & ~self.given_up
        if again.any():
            again &= np.asarray(self.carry.most_iterations) > 0  # an explicit step would fail again
        if not again.any():
            return False
        before, stepper, lanes = self.n, loop.stepper.with_care(), np.flatnonzero(again)
        if loop.axes is None:
            self.carry = jax.tree.map(lambda x: x[None], take_step(stepper, self.lane(0), loop.consts))
        else:
            # a fixed batch size, so that results do not depend on the number of repeated steps
            for first in range(0, len(lanes), REPEATED_TOGETHER):
                some = np.resize(lanes[first : first + REPEATED_TOGETHER], REPEATED_TOGETHER)
                consts = select(loop.consts, loop.axes, some)
                part = _take_steps(stepper, select(self.carry, 0, some), consts, loop.axes)
                self.carry = place(self.carry, some, part)
        lost = again & failed(self.status)
        self.given_up |= lost
        if lost.any():  # the first failure is the one to report
            self.set_status(np.where(lost, status, self.status))
        self.retries += int(np.sum(again))
        if loop.saves:
            table.place(self.first_row(), before)
        return not self.given_up[again].all()

    def meet_events(self, table: Table) -> bool:
        """Locate the events of trajectories that halted before a step with one; then end there or take the step.

        Returns whether any trajectory continues.
        """
        if not self.loop.watch.events or not (event := self.status == Status.TERMINATED).any():
            return False
        before, moved = self.n, {}
        for lane in map(int, np.flatnonzero(event)):
            if lane not in self.passages.ends and (after := self.locate(lane)) is not None:
                moved[lane] = after
        if moved:
            self.carry = place(self.carry, np.array(list(moved)), jax.tree.map(lambda *x: np.stack(x), *moved.values()))
            if self.loop.saves:
                table.place(self.first_row(), before)
        go_on = (self.status == Status.TERMINATED) & ~np.isin(np.arange(len(event)), list(self.passages.ends))
        if not go_on.any():
            return bool((self.n > before).any())
        self.carry = _disarm(self.carry, jnp.asarray(go_on))
        self.call(table, np.where(go_on, self.n + 1, self.n), 1, 1)
        return True

    def locate(self, lane: int) -> LoopCarry | None:
        """Note the passages of the next step of a trajectory, up to its end; return its carry if there is an impact."""
        loop, carry, consts = self.loop, self.lane(lane), self.loop.lane(lane)
        note = functools.partial(self.note, lane)
        found = note(carry, consts)
        if found is None or found.status.failed or not loop.watch.events[found.event].bounce:
            return None
        after, retries = step_through(loop.watch, loop.stepper, carry, consts, found, note)
        self.retries += retries
        # the rest of a step cannot be repeated as a whole step
        self.given_up[lane] = Status(int(after.status)).failed
        return after

    def note(self, lane: int, carry: LoopCarry, consts: Consts) -> Found | None:
        """Note the passages of the next step of a trajectory; return the one that ends the step early, if any does."""
        loop = self.loop
        for found in locate(loop.watch, loop.stepper, carry, consts):
            if found.status.failed:
                self.fail(lane, found.status)
                return found
            if self.passages.note(lane, found) or loop.watch.events[found.event].bounce:
                return found
        return None

    def add_end(self, found: Found) -> None:
        """Add the last row, at a terminal event; with `save_at`, the requested rows up to it."""
        if self.loop.wanted is not None:
            self.record.add(self.pick(self.first_row(), self.direction * found.t))
            return
        row, status = self.interpolant.after(self.lane(0), found.t)
        self.fail(0, status)
        self.record.add({key: x[None] for key, x in row.items()})

    def live(self) -> np.ndarray:
        """Mask of the trajectories that can continue: not failed, and not past the end time."""
        loop, good = self.loop, self.status == Status.OK
        if loop.adaptive_end:
            way = np.sign(np.broadcast_to(np.asarray(loop.consts.dt), loop.count))
            good &= ~((np.asarray(self.carry.state.t) - loop.t1) * way >= 0)
        return good

    def finished(self) -> bool:
        if self.done >= self.loop.steps:
            return True
        if self.in_step and not self.started and self.record.sink is None:  # initially all are OK
            return False
        return not ((self.runner.fetch(self.carry.status) == Status.OK) if self.in_step else self.live()).any()

    def finish(self) -> None:
        """Add the last rows, and set the status of trajectories that did not reach their end."""
        loop = self.loop
        if loop.alone:
            stopped = loop.adaptive_end or failed(self.status)[0]
            if stopped and self.done > self.last_n and not self.passages.ends:  # between two rows
                self.keep(self.first_row(), np.ones((1, 1), bool))
            if not self.record.rows:  # no requested time was reached
                self.record.parts.append(self.pick(self.first_row(), -np.inf))
        elif loop.saves and not loop.adaptive_end and self.record.rows < loop.row_count:
            # every trajectory stopped early: missing rows are blank
            missing = loop.row_count - self.record.rows
            blank = {key: np.repeat(x, missing, axis=1) for key, x in self.first_row().items()}
            self.keep(blank, np.zeros(blank["n"].shape, bool))
        if self.record.sink is not None:
            self.checkpoint()
        if loop.adaptive_end and (short := self.live()).any():
            # after the checkpoint, because the run may be extended
            self.set_status(np.where(short, Status.UNREACHED, self.status))

    # -- what is shown --------------------------------------------------------------------------------------------

    def show(self, bar: Progress) -> None:
        loop = self.loop
        if not loop.alone:
            status, left = self.status, int(np.sum(self.live()))
            bar.update_many(self.done, len(status) - left, int(np.sum(failed(status))), left)
            return
        energy, constraint = (float(x[0]) for x in loop.compiled(_errors, self.carry))
        self.energy0 = energy if self.energy0 is None else self.energy0
        elapsed = abs(float(self.carry.state.t[0]) - float(loop.consts.t0))
        bar.update(self.done, elapsed, energy - self.energy0, constraint)

    def stats(self) -> dict[str, Any]:
        """What the run cost: back end, times, repeated steps; of one trajectory also its iterations."""
        n = self.shown()["n"]
        taken = float(np.sum(n)) - self.first * self.loop.count
        rate = taken / self.wall_time if self.wall_time else 0.0
        common = {
            "backend": self.runner.name,
            "backend_reason": self.choice.reason,
            "operations": self.runner.operations,
            "compile_time": self.compile_time,
            "wall_time": self.wall_time,
            "retries": self.retries,
        }
        if not self.loop.alone:
            return common | {"trajectory_steps_per_second": rate}
        c, steps = self.carry, int(n[0])
        parts = c.iterations, c.most_iterations, c.residual, c.memory
        iterations, most, residual, memory = jax.tree.map(lambda x: np.asarray(x)[0], parts)
        found = {
            "steps": steps,
            "iterations": int(iterations),
            "mean_iterations": int(iterations) / max(steps, 1),
            "max_iterations": int(most),
            "residual": float(residual),
            "steps_per_second": rate,
        }
        return common | found | {k: float(v) for k, v in self.loop.method.statistics(memory).items()}


def failed(status: np.ndarray) -> np.ndarray:
    """Mask of the statuses that are failures."""
    return (status != Status.OK) & (status != Status.TERMINATED)


@compiled
def _take_steps(stepper: Stepper, carry: LoopCarry, consts: Consts, axes: Consts) -> LoopCarry:
    return jax.vmap(lambda carry, consts: take_step(stepper, carry, consts), in_axes=(0, axes))(carry, consts)


@compiled
def _disarm(carry: LoopCarry, mask: Numbers) -> LoopCarry:
    """The carry with NaN event values where `mask` holds, so that no event interrupts the next step."""
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
