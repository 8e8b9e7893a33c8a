"""What can be wrong with the arguments of a run before any number is computed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import InputError, MethodError, whole_number
from ..methods.base import AbstractMethod
from ..projection import check_system

__all__ = ["check_clock", "check_concrete", "check_length", "check_method", "check_run"]


MOST_STEPS = 1 << 53  # up to here `n dt` knows n exactly


def check_method(method: Any, system: Any) -> None:
    """`method` is a method, `system` a system, and the one can treat the other."""
    if not isinstance(method, AbstractMethod):
        hint = f"; write {method.__name__}()" if isinstance(method, type) else ""
        raise MethodError(f"method must be an instance of a method, not {method!r}{hint}")
    check_system(system)
    method.check(system)


def check_concrete(name: str, *values: Any) -> None:
    """A run that leaves compiled code between its chunks cannot be traced."""
    if any(isinstance(x, Tracer) for x in jax.tree.leaves(values)):
        raise InputError(f"{name} cannot run inside jit, vmap or grad; hx.integrate does")


def check_run(method: Any, system: Any, dt: Any, steps: Any, key: Any, *, several: bool = False) -> int:
    """System, method, step, number of steps and key; `several` allows an array of dt."""
    check_method(method, system)
    steps = whole_number("steps", steps, 0)
    if steps > MOST_STEPS:
        raise InputError(f"{steps:.3g} steps are more than can be counted; take a larger dt or an earlier t1")
    if not isinstance(dt, Tracer):
        step = _as_numbers("dt", dt)
        if step.dtype.kind not in "fiu" or not np.all(np.isfinite(step)) or np.any(step == 0):
            raise InputError(f"dt must be a finite number and not zero (negative runs backwards), not {dt!r}")
        if step.ndim and not several:
            raise InputError(f"dt must be one number, not an array of shape {step.shape}; simulate_ensemble takes many")
    if method.stochastic and not _is_key(key):
        instead = "" if key is None else f", not {key!r}"
        raise InputError(f"{method.name} draws random numbers: give a key, for instance key=jax.random.key(0){instead}")
    if key is not None and not _is_key(key):
        raise InputError(f"key must come from jax.random, for instance jax.random.key(0), not {key!r}")
    return steps


def _is_key(key: Any) -> bool:
    """A typed key of `jax.random`, or the raw numbers of one."""
    dtype = getattr(key, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == np.uint32)


def _as_numbers(name: str, value: Any) -> np.ndarray:
    """`value` as a NumPy array of whatever it holds."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number or an array of numbers, not {value!r}") from error


def _is_number(name: str, value: Any) -> bool:
    found = _as_numbers(name, value)
    return found.ndim == 0 and found.dtype.kind in "fiu"


def check_length(steps: Any, t1: Any, t0: Any, dt: float, save_every: Any) -> None:
    """Either `steps` or a `t1` that can be reached, and rows that can be saved."""
    if (steps is None) == (t1 is None):
        given = "both" if steps is not None else "neither"
        raise InputError(f"give either steps or t1, not {given}")
    if steps is not None:
        whole_number("steps", steps, 0)
    whole_number("save_every", save_every)
    for name, value in (("t0", t0), ("t1", t1)):
        if value is not None and not _is_number(name, value):
            raise InputError(f"{name} must be a number, not {value!r}")
    check_clock(t0, dt)
    if t1 is not None and not (np.isfinite(t1) and (t1 - t0) * dt > 0):
        raise InputError(f"t1 = {t1:g} cannot be reached from t0 = {t0:g} with dt = {dt:g}")


def check_clock(t0: Any, dt: Any) -> None:
    """Time moves: `t0` is a finite number, small enough that adding `dt` to it changes it."""
    if not _is_number("t0", t0):
        raise InputError(f"t0 must be a number, not {t0!r}")
    if not np.isfinite(t0):
        raise InputError(f"t0 must be finite, not {t0}")
    if isinstance(dt, Tracer):
        return
    step = float(np.min(np.abs(np.asarray(dt))))
    if float(np.spacing(abs(float(t0)))) >= step:
        raise InputError(
            f"time stands still: at t0 = {t0:g} the next number is {float(np.spacing(abs(float(t0)))):g} away, further "
            f"than dt = {step:g}; count time from a smaller t0"
        )
