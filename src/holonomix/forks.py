"""A process that was forked after XLA started has none of XLA's threads: what it computes waits for them for ever."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

from .errors import HolonomixError, InputError

_state = {"parent had started": False, "forked": False}
ADVICE = (
    'start processes by "spawn": multiprocessing.get_context("spawn"), or ProcessPoolExecutor(mp_context=...) with it'
)


def xla_has_started() -> bool:
    """Whether this process has a device of XLA; does not start one."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(getattr(bridge, "_backends", True))


def check_fork() -> None:
    """Raise in a process that was forked from one in which XLA had started."""
    if _state["forked"]:
        raise HolonomixError(f"this process was forked after JAX had started, and would wait for ever: {ADVICE}")


def check_context(executor: Any) -> None:
    """Raise for an executor whose workers are forked."""
    context = getattr(executor, "_mp_context", None)
    if context is None or not hasattr(context, "get_start_method"):
        return
    method = context.get_start_method(allow_none=True) or multiprocessing.get_start_method()
    if method == "fork":
        raise InputError(f"the workers of executor are forked, and would wait for ever: {ADVICE}")


def _before() -> None:
    _state["parent had started"] = xla_has_started()


def _in_child() -> None:
    _state["forked"] = _state["forked"] or _state["parent had started"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
