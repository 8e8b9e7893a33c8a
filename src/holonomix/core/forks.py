"""Detect forked processes: they lack the threads of XLA, so any computation with XLA would deadlock.

In such a process JAX itself refuses to compute: everything that would wait for a thread raises `fork_error()` instead.
Values that were computed before the fork can still be read.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from .errors import HolonomixError, InputError

had_started = False  # whether XLA had started in the parent, just before a fork
forked = False  # whether this process must not use XLA; read as `forks.forked`, which costs no call
# Private functions of JAX that evaluate an operation and lower a program; skipped if they no longer exist.
EXECUTION = (
    ("jax._src.core", "EvalTrace", "process_primitive"),
    ("jax._src.interpreters.mlir", "lower_jaxpr_to_module"),
)
ADVICE = (
    'start processes by "spawn": multiprocessing.get_context("spawn"), or ProcessPoolExecutor(mp_context=...) with it'
)


def xla_has_started() -> bool:
    """Whether XLA has started a device in this process; does not start one."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(getattr(bridge, "_backends", True))


def fork_error() -> HolonomixError:
    """The error to raise if `forked` is set."""
    return HolonomixError(
        f"this process was forked after JAX had started, so its computations would deadlock: {ADVICE}"
    )


def check_context(executor: Any) -> None:
    """Raise if the workers of an executor are forked."""
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
    """Make every JAX computation in this process raise. Takes no lock, because its owner may not exist after a fork."""
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
