"""An ensemble in blocks: their bounds, the blocks still to run, and their execution."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from ..core.checks import whole_number
from ..core.status import Status
from .arguments import Arguments, EnsembleStoreLike, ExecutorLike
from .blocks import Block, default_block, join_blocks, lanes_of, open_store, run_block, stored
from .executors import check_executor, pack_block, run_blocks
from .io import EnsembleStore
from .loop import Loop
from .progress import Progress
from .record import SMALL, check_memory
from .run import Run

__all__ = ["Cut"]

GOOD = (Status.OK, Status.TERMINATED)


class Cut:
    """The blocks of an ensemble that has a store, an executor, or a given block size."""

    def __init__(
        self,
        arguments: Arguments,
        loop: Loop,
        store: EnsembleStoreLike | None,
        block: int | None,
        executor: ExecutorLike | None,
        labels: Mapping[str, np.ndarray],
        allow_different_bits: bool,
    ):
        self.arguments, self.loop, self.executor, self.labels = arguments, loop, executor, labels
        self.store: EnsembleStore | None = None
        self.backend = ""
        self.failed = 0
        size = None if block is None else min(whole_number("block", block), loop.count)
        if executor is not None:
            check_executor(executor)
        min_block = 256 if executor is None else 1
        if store is not None or executor is not None:
            one = loop.part(np.zeros(1, int))
            carry, shown = one.start()
            self.backend = loop.choose(carry).runner.name
            if store is None:
                row_bytes = sum(x.nbytes for x in shown.values())
                if not loop.adaptive_end and loop.row_count * row_bytes * loop.count > SMALL:
                    check_memory(loop.row_count, row_bytes * loop.count, save_every=loop.every if loop.saves else None)
                size = size or default_block(loop, loop.row_count * row_bytes, min_block)
        if store is not None:
            self.store = open_store(
                loop,
                store,
                size,
                self.backend,
                coordinates=labels,
                min_block=min_block,
                allow_different_bits=allow_different_bits,
            )
            size = self.store.block
        self.size = size or loop.count
        self.missing = list(range(-(-loop.count // self.size))) if self.store is None else self.store.missing_blocks()
        self.left = sum(b - a for a, b in map(self.bounds, self.missing))
        if self.store is not None:
            self.failed = sum(n for code, n in self.store.progress().items() if code not in (*GOOD, -1))

    def bounds(self, number: int) -> tuple[int, int]:
        """The first trajectory of a block, and the first after it."""
        return number * self.size, min((number + 1) * self.size, self.loop.count)

    def begun(self) -> int:
        """The mean number of steps that trajectories took before this call."""
        return self.loop.steps * (self.loop.count - self.left) // self.loop.count

    def run(self, bar: Progress | None) -> tuple[Block, int]:
        """Run the missing blocks; return all trajectories as one block, and the number of steps taken."""
        blocks: dict[int, Block] = {}
        for number, block in self._by_executor() if self.executor is not None else self._here(bar):
            blocks[number] = block
            self.left -= block.count
            status = block.values["status"]
            self.failed += int(np.count_nonzero((status != Status.OK) & (status != Status.TERMINATED)))
            if bar is not None:
                bar.update_many(self.begun(), self.loop.count - self.left, self.failed, self.left)
        ran = [blocks[number] for number in sorted(blocks)]
        whole = stored(self.loop, self.store) if self.store is not None else join_blocks(ran, self.size)
        stats = {"backend": self.backend, **(ran[0].stats if ran else {})}
        return dataclasses.replace(whole, stats=stats), sum(b.steps for b in ran)

    def _here(self, bar: Progress | None) -> Iterator[tuple[int, Block]]:
        whole = self.size >= self.loop.count

        def show(run: Run) -> None:
            if bar is None:
                return
            if whole:
                return run.show(bar)
            share = self.size * run.done // max(self.loop.count, 1)
            bar.update_many(self.begun() + share, self.loop.count - self.left, self.failed, self.left)

        for number in self.missing:
            first, last = self.bounds(number)
            part = self.loop if whole else self.loop.part(lanes_of(self.loop.count, first, self.size))
            block = run_block(part, last - first, self.store, number, show)
            self.backend = block.stats["backend"]
            yield number, block

    def _by_executor(self) -> Iterator[tuple[int, Block]]:
        options = dataclasses.replace(self.arguments.options, backend=self.backend)  # for equal bits
        arguments = dataclasses.replace(self.arguments, options=options)
        path = None if self.store is None else self.store.path.absolute()

        def payload(number: int) -> bytes:
            return pack_block(arguments, number, *self.bounds(number), self.size, path)

        return run_blocks(self.executor, self.missing, payload)
