"""Blocks of an ensemble on the workers of an executor: processes, a Dask cluster, MPI ranks.

An executor is anything with `submit` of `concurrent.futures.Executor`. A worker receives the arguments of the call
(user functions by cloudpickle) and prepares its own trajectories, so a block has the same bits on every worker. If a
worker dies, its block runs again.
"""

from __future__ import annotations

import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from ..core import errors, forks
from ..core.errors import DifferentBitsWarning, HolonomixError, InputError
from ..core.forks import check_context
from .arguments import Arguments
from .blocks import Block, lanes_of, run_block
from .io import EnsembleStore
from .io.environment import current_environment, environment_changes
from .loop import make_loop

ATTEMPTS = 3  # consecutive losses of workers without a finished block
AT_ONCE = 256  # blocks handed to the executor at a time
LOST = ("KilledWorker", "CommClosedError", "TerminatedWorkerError")  # of Dask and loky
Answer = tuple[Block | None, dict[str, Any], tuple[str, str] | None]


def check_executor(executor: Any) -> None:
    """Raise if `executor` cannot run functions, or if functions cannot be sent to it."""
    if not hasattr(executor, "submit") and not callable(executor):
        raise InputError(
            "executor must have the method `submit` of concurrent.futures.Executor (a process pool, Dask's "
            f"client.get_executor(), mpi4py.futures), or be a function that makes one, not {executor!r}"
        )
    check_context(executor)
    _cloudpickle()


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError as error:
        raise InputError(
            "executor= sends your functions to other processes with cloudpickle, which is not installed: pip install "
            "cloudpickle, here and where the workers are"
        ) from error
    return cloudpickle


def pack_block(arguments: Arguments, number: int, first: int, last: int, size: int, store: Path | None) -> bytes:
    """The input of a worker for one block; it includes trajectory 0, because the first start is checked in full."""
    lanes = lanes_of(len(arguments.q0), first, size)
    part = arguments.take(np.concatenate([[0], lanes]))
    return _cloudpickle().dumps((part, last - first, None if store is None else str(store), number))


def work(payload: bytes) -> Answer:
    """Run one block on a worker. Our errors are returned as text, because not every exception can be pickled."""
    try:
        if forks.forked:
            raise forks.fork_error()
        arguments, count, path, number = pickle.loads(payload)
        loop = make_loop(arguments).part(np.arange(1, len(arguments.q0)))
        store = None if path is None else EnsembleStore(path)
        return run_block(loop, count, store, number), current_environment(), None
    except HolonomixError as error:
        return None, current_environment(), (type(error).__name__, str(error))


def run_blocks(executor: Any, numbers: list[int], payload: Callable[[int], bytes]) -> Iterator[tuple[int, Block]]:
    """Run the blocks, and yield each one when it finishes."""
    pool, own = (executor, False) if hasattr(executor, "submit") else (executor(), True)
    check_context(pool)
    waiting, running, lost, warned = deque(numbers), dict[Future[Answer], int](), 0, False
    try:
        while waiting or running:
            cause: BaseException | None = None
            while waiting and len(running) < AT_ONCE and cause is None:
                number = waiting.popleft()
                try:
                    running[pool.submit(work, payload(number))] = number
                except BrokenExecutor as error:
                    waiting.appendleft(number)
                    cause = error
            done = wait(running, return_when=FIRST_COMPLETED)[0] if running else set()
            for future in done:
                number = running.pop(future)
                try:
                    block, environment, failure = future.result()
                except (Exception, CancelledError) as error:
                    if not _is_loss(error):
                        raise
                    waiting.appendleft(number)
                    cause = error
                    continue
                if failure is not None or block is None:
                    kind, text = failure or ("HolonomixError", "no result")
                    raise getattr(errors, kind, HolonomixError)(f"block {number}: {text}")
                changes = environment_changes(environment)
                if changes and not warned:
                    warned = True
                    text = f"a worker differs from this process: {', '.join(changes)}; the last bits may differ"
                    warnings.warn(text, DifferentBitsWarning, stacklevel=4)
                lost = 0
                yield number, block
            if cause is None:
                continue
            lost += 1
            if lost >= ATTEMPTS:
                raise HolonomixError(
                    f"workers died {lost} times in a row without finishing a block ({type(cause).__name__}: {cause}); "
                    "do they have enough memory? With store=, finished blocks are kept, and the same call goes on"
                ) from cause
            if isinstance(cause, BrokenExecutor):  # a broken pool accepts no more work
                waiting.extendleft(sorted(running.values(), reverse=True))
                running.clear()
                pool, own = _renewed(executor, pool, own, cause)
    finally:
        for future in running:
            future.cancel()
        if own:
            pool.shutdown(wait=True, cancel_futures=True)


def _is_loss(error: BaseException) -> bool:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, BrokenExecutor | CancelledError | ConnectionError | EOFError) or bool(kinds & {*LOST})


def _renewed(executor: Any, pool: Any, own: bool, cause: BaseException) -> tuple[Any, bool]:
    """A pool that replaces a broken one, and whether we have to shut it down."""
    if own:
        pool.shutdown(wait=False)
    if not hasattr(executor, "submit"):
        return executor(), True
    if type(executor) is not ProcessPoolExecutor:
        raise HolonomixError(
            f"the executor broke ({type(cause).__name__}: {cause}): give a function that makes one, executor=lambda: "
            "..., so that a new one can take its place"
        ) from cause
    known: Any = executor
    options = {"mp_context": known._mp_context, "initializer": known._initializer, "initargs": known._initargs}
    return ProcessPoolExecutor(known._max_workers, **options), True
