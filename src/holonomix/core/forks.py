"""Detect forked processes: they lack the threads of XLA, so any computation with XLA would deadlock.

In such a process JAX itself refuses to compute: everything that would wait for a thread raises `fork_error()` instead.
Values that were computed before the fork can still be read.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from .errors import HolonomixError, InputError

had_started = False  # XLA in the parent, just before a fork
forked = False  # is this process one that must not use XLA? Read as `forks.forked`: callers pay for a call only then
# Where JAX evaluates an operation and where it lowers a program, both in Python; private, and skipped if they are gone.
EXECUTION = (
    ("jax._src.core", "EvalTrace", "process_primitive"),
    ("jax._src.interpreters.mlir", "lower_jaxpr_to_module"),
)
ADVICE = (
    'start processes by "spawn": multiprocessing.get_context("spawn"), or ProcessPoolExecutor(mp_context=...) with it'
)


def xla_has_started() -> bool:
    """Whether this process has a device of XLA; does not start one."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(getattr(bridge, "_backends", True))


def fork_error() -> HolonomixError:
    """What to raise where `forked` is set."""
    return HolonomixError(
        f"this process was forked after JAX had started, so its computations would deadlock: {ADVICE}"
    )


def check_context(executor: Any) -> None:
    """Raise for an executor whose workers are forked."""
    import multiprocessing  # here, because every import of the package loads this file

    context = getattr(executor, "_mp_context", None)
    if context is None or not hasattr(context, "get_start_method"):
        return
    method = context.get_start_method(allow_none=True) or multiprocessing.get_start_method()
    if method == "fork":
        raise InputError(f"the workers of executor are forked, so their computations would deadlock: {ADVICE}")


def _before() -> None:
    global had_started
    had_started = xla_has_started()


def _in_child() -> None:
    global forked
    forked = forked or had_started
    if forked:
        _stop_jax()


def _stop_jax() -> None:
    """Let every computation of JAX in this process raise. No lock is taken: its owner may not exist after a fork."""
    for module, *path, name in EXECUTION:
        owner: Any = sys.modules.get(module)
        for part in path:
            owner = getattr(owner, part, None)
        if hasattr(owner, name):
            setattr(owner, name, _refuse)
    if (jax := sys.modules.get("jax")) is not None:
        jax.config.update("jax_disable_jit", True)  # compiled functions would bypass Python


def _refuse(*args: Any, **options: Any) -> NoReturn:
    raise fork_error()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
