"""An ensemble in blocks of trajectories: each block runs separately, and its results go to memory or to one store.

All blocks of an ensemble have the same number of trajectories, so that they share compiled code. The last block is
padded with copies, which are dropped.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import columns
from ..core.errors import InputError
from .arguments import EnsembleStoreLike
from .checkpoint import GIVEN, OTHER, Identity, check_same_backend, check_same_run
from .events import Found
from .io import EnsembleStore, StorePlace, is_store
from .io.arrays import packed
from .io.blocks import block_size
from .loop import Loop
from .record import Rows, scene_entry
from .run import Run
from .solution import map_lanes, multipliers_of
from .stepper import LoopCarry

__all__ = [
    "Block",
    "default_block",
    "join_blocks",
    "lanes_of",
    "load_rows",
    "open_store",
    "run_block",
    "shares_time",
    "stored",
]

STATUS, END, REDUCED = "status", "end/", "reduced/"
INPUTS = "given.npz"
MAX_ADAPTIVE_ROWS = 1_000_000  # limit for adaptive methods, whose number of rows is not known in advance
MIN_BLOCK, MAX_BLOCKS = 256, 32  # defaults: trajectories per block, and blocks per ensemble


@dataclasses.dataclass(frozen=True)
class Block:
    """The results of some trajectories.

    `values` have one entry per trajectory: the status, the final state under `end/`, reductions under `reduced/`.
    `found` are passages of events, one entry each. `rows` is None where a store has them.
    """

    values: Rows
    found: Rows
    rows: Rows | None
    stats: dict[str, Any]

    @property
    def count(self) -> int:
        return len(self.values[STATUS])

    @property
    def steps(self) -> int:
        """The number of steps that all trajectories took together."""
        return int(np.sum(self.values[f"{END}steps"]))

    def as_stored(self) -> tuple[Rows, np.ndarray, bytes]:
        """What a store holds besides the rows: values, statuses, and the events as a file."""
        values = {key.removeprefix(REDUCED): x for key, x in self.values.items() if key != STATUS}
        return values, self.values[STATUS], packed(self.found) if self.found else b""


def default_block(loop: Loop, bytes_per_trajectory: int, min_block: int = MIN_BLOCK) -> int:
    """Trajectories per block: at least `min_block`, unless fewer fit in memory."""
    most = max(block_size(loop.count, bytes_per_trajectory), 1)
    size = min(most, max(min_block, -(-loop.count // MAX_BLOCKS)), loop.count)
    return -(-loop.count // -(-loop.count // size))  # blocks of about the same size


def lanes_of(plan_count: int, first: int, size: int) -> np.ndarray:
    """The trajectories of a block, padded to `size`, and to two if the ensemble has several.

    XLA compiles a batch of one differently from all others. Without padding, results of the array path would depend
    more on the size of blocks than they must. (The last bits of large batches differ too.)
    """
    size = max(size, min(plan_count, 2))
    return np.minimum(np.arange(first, first + size), plan_count - 1)


def run_block(
    loop: Loop, count: int, store: EnsembleStore | None, number: int, after_chunk: Callable[[Run], None] | None = None
) -> Block:
    """Run the trajectories of `loop`, of which the first `count` are kept, as block `number` of the ensemble."""
    run = Run(loop, in_memory=store is None)
    if store is not None:
        store.stream_block(number, _streamed(run, count, after_chunk), lambda: ended(run, count, False).as_stored())
        return ended(run, count, False)
    for _ in run.chunks():
        if after_chunk is not None:
            after_chunk(run)
    return ended(run, count)


def _streamed(run: Run, count: int, after_chunk: Callable[[Run], None] | None) -> Iterator[Rows]:
    """Advance a run and yield its rows in the form of the store."""
    loop, begun = run.loop, 0
    for _ in run.chunks():
        if after_chunk is not None:
            after_chunk(run)
        for part in run.record.taken():
            begun += part["t"].shape[1]
            yield as_stored(loop, part, count)
    if not loop.saves:
        yield as_stored(loop, run.first_row(), count)
    elif missing := loop.row_count - begun:
        row = {key: np.repeat(x, missing, axis=1) for key, x in run.first_row().items()}
        yield as_stored(loop, {k: np.full_like(x, np.nan) if x.dtype.kind == "f" else x for k, x in row.items()}, count)


def ended(run: Run, count: int, in_memory: bool = True) -> Block:
    """The results of the first `count` trajectories of a finished run."""
    rows = {key: x[:count] for key, x in run.rows().items()} if in_memory else None
    values = final_values(run.loop, run.carry, run.shown(), run.passages.ends, run.runner.fetch, count)
    found: Rows = {}
    if run.passages.found:
        found = run.passages.to_arrays()
        found = {key: x[found["trajectory"] < count] for key, x in found.items()}
    return Block(values, found, rows, run.stats())


def final_values(
    loop: Loop,
    carry: LoopCarry,
    last: Rows,
    ends: Mapping[int, Found],
    fetch: Callable[[Any], Any] = jax.device_get,
    count: int | None = None,
) -> Rows:
    """What a run keeps per trajectory besides its rows: status, final state, counts of steps, results of reducers.

    `last` is the last row, read from `carry`; `ends` are the events that stopped trajectories, whose states replace the
    last row. Keep the first `count` trajectories (all by default).
    """
    q, p, t = (np.array(last[name]) if ends else last[name] for name in ("q", "p", "t"))
    for lane, found in ends.items():
        q[lane], p[lane], t[lane] = found.q, found.p, found.t
    status, iterations = fetch((carry.status, carry.iterations))
    values = {STATUS: status, f"{END}q": q, f"{END}p": p, f"{END}t": t}
    values |= {f"{END}steps": last["n"], f"{END}iterations": iterations}
    for name, reducer in loop.reducers.items():
        memory = jax.tree.map(jnp.asarray, carry.reduced[name])
        values[f"{REDUCED}{name}"] = np.asarray(jax.vmap(reducer.result)(memory))
    return {key: x[:count] for key, x in values.items()}


def join_blocks(blocks: list[Block], size: int) -> Block:
    """All blocks as one, in their order."""
    if len(blocks) == 1:
        return blocks[0]
    values = {key: np.concatenate([b.values[key] for b in blocks]) for key in blocks[0].values}
    some = [(k, b.found) for k, b in enumerate(blocks) if b.found]
    found = {key: np.concatenate([f[key] for _, f in some]) for key in (some[0][1] if some else ())}
    if some:
        shift = np.concatenate([np.full(len(f["trajectory"]), k * size) for k, f in some])
        found["trajectory"] = found["trajectory"] + shift
    rows = None
    if all(b.rows is not None for b in blocks):
        most = max((b.rows or {})["t"].shape[1] for b in blocks) if (blocks[0].rows or {})["t"].ndim > 1 else 0
        rows = {
            key: np.concatenate([pad_rows((b.rows or {})[key], most) for b in blocks]) for key in blocks[0].rows or {}
        }
    return Block(values, found, rows, blocks[0].stats)


def pad_rows(x: np.ndarray, rows: int) -> np.ndarray:
    """`x` padded with NaN to `rows` rows, because another block of an adaptive method has more."""
    if not rows or x.shape[1] == rows:
        return x
    last = np.repeat(x[:, -1:], rows - x.shape[1], axis=1)
    return np.concatenate([x, np.full_like(last, np.nan) if x.dtype.kind == "f" else last], axis=1)


# ---- the store


def shares_time(loop: Loop) -> bool:
    """Whether all trajectories have the same times."""
    return np.ndim(loop.consts.dt) == 0 and not loop.method.adaptive


def as_stored(loop: Loop, rows: Rows, count: int | None = None) -> Rows:
    """Rows (trajectory, row, ...) in the form of the store: with multipliers, and without shared times."""
    rows = columns.visible(rows)
    if loop.constrained:
        rows["multipliers"] = map_lanes(multipliers_of, loop, rows["q"], rows["p"], rows["t"])
    rows["time"] = rows.pop("t")
    if loop.saves and shares_time(loop):
        del rows["time"]
    return {key: np.ascontiguousarray(x[:count]) for key, x in rows.items()}


def load_rows(loop: Loop, store: EnsembleStore) -> Rows:
    """All rows of a store in the form of an ensemble in memory."""
    every, all_rows = np.arange(store.trajectories), np.arange(store.rows)
    rows = {c.key: store.read(c, every, all_rows) for c in store.columns if c.rows is not None}
    if "time" in rows:
        rows["t"] = rows.pop("time")
        if loop.saves and loop.adaptive_end:
            last = int(np.max(np.flatnonzero(np.isfinite(rows["t"]).any(0)), initial=0)) + 1
            rows = {key: x[:, :last] for key, x in rows.items()}
    else:
        # the times of the store continue after a failure
        rows["t"] = np.where(all_rows * loop.every == rows["n"], store.coordinate("t"), np.nan)
    return rows if loop.saves else {key: x[:, 0] for key, x in rows.items()}


def open_store(
    loop: Loop,
    store: EnsembleStoreLike,
    block: int | None,
    backend: str,
    *,
    coordinates: Mapping[str, np.ndarray] | None = None,
    min_block: int = MIN_BLOCK,
    allow_different_bits: bool = False,
) -> EnsembleStore:
    """Create the store of an ensemble, or open an existing one if it belongs to the same ensemble.

    `block` is the number of trajectories per block (by default chosen, at least `min_block`). Raises if an existing
    store was begun with other inputs, another layout, or a back end whose results have other bits.
    """
    files = store.files if isinstance(store, StorePlace) else {}
    if isinstance(store, EnsembleStore | StorePlace):
        store = store.path
    if not isinstance(store, str | os.PathLike):
        raise InputError(f"store must be the name of a directory, not {store!r}")
    identity = Identity.of(loop)
    if is_store(store):
        found = EnsembleStore(store)
        check_same_run({f"{GIVEN}{name}": x for name, x in found.arrays(INPUTS).items()}, found.meta, identity)
        for what, then, now in (("trajectories", found.trajectories, loop.count), ("rows", found.rows, loop.row_count)):
            if then != now:
                raise InputError(f"the store is laid out for {then} {what}, this ensemble has {now}; {OTHER}")
        check_same_backend(found.meta.get("backend"), backend, allow_different_bits)
        found.tidy()
        return found
    rows = loop.row_count
    if loop.saves and loop.adaptive_end and rows > MAX_ADAPTIVE_ROWS:
        raise InputError(
            f"the rows of an ensemble are laid out beforehand, and an adaptive method may take {loop.steps:,} steps: "
            "give max_steps=, the number of steps that a trajectory may take"
        )
    one = loop.part(np.zeros(1, int))
    carry, shown = one.start()
    shown = jax.device_get(shown)
    row = as_stored(one, {key: x[:, None] for key, x in shown.items()})
    specs = {key: jax.ShapeDtypeStruct((rows, *x.shape[2:]), x.dtype) for key, x in row.items()}
    values = {key: x[0] for key, x in final_values(one, carry, shown, {}).items() if key != STATUS}
    size = sum(rows * x.nbytes for x in row.values()) + sum(x.nbytes for x in values.values())
    t = float(loop.consts.t0) + np.arange(rows) * loop.every * float(loop.consts.dt) if "time" not in row else None
    return EnsembleStore.create(
        store,
        trajectories=loop.count,
        rows=specs,
        reductions={key.removeprefix(REDUCED): x for key, x in values.items()},
        t=t,
        coordinates=coordinates,
        block=block or default_block(loop, size, min_block),
        meta={**identity.meta, "backend": backend, "shape": list(loop.q0.shape[1:]), **scene_entry(loop)},
        files={**files, INPUTS: packed({key.removeprefix(GIVEN): x for key, x in identity.arrays.items()})},
    )


def stored(loop: Loop, store: EnsembleStore) -> Block:
    """The contents of a finished store except for its rows."""
    everything, once = np.arange(store.trajectories), np.zeros(1, int)
    values = {c.key: store.read(c, everything, once)[:, 0] for c in store.columns if c.rows is None}
    blocks = []
    for number in range(store.blocks) if loop.watch.events else ():
        blocks.append(Block({}, store.attached_arrays(number), None, {}))
    return Block(values, join_blocks(blocks, store.block).found if blocks else {}, None, {})
