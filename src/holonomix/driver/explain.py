"""`explain`: which back end a run would take, how large the step is, and why."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..errors import InputError
from ..types import Problem
from .backends import choose
from .checks import check_method
from .loop import make_stepper

__all__ = ["Explanation", "explain"]


class Explanation(str):
    """The text of `explain`, with its figures as attributes: `backend`, `operations`, `reason`."""

    backend: str
    operations: int | None
    reason: str


def explain(system: Any, method: Any, q0: Any = None, p0: Any = None, *, backend: str = "auto") -> Explanation:
    """Say how a run of `method` on `system` would be carried out.

    The text prints well and has the attributes `backend`, `operations` and `reason`.

    `system` may be a `Problem`. For a System of one's own, `q0` gives the shape of the coordinates.
    """
    if isinstance(system, Problem):
        q0, p0, system = system.q0, system.p0, system.system
    shape = jnp.shape(q0) if q0 is not None else getattr(system, "shape", None)
    if shape is None:
        raise InputError("explain needs the shape of q: pass q0 as well, explain(system, method, q0)")
    check_method(method, system)
    q = jnp.ones(shape) if q0 is None else jnp.asarray(q0, jnp.result_type(float))
    p = jnp.zeros_like(q) if p0 is None else jnp.asarray(p0, q.dtype)
    key = jax.random.key(0) if method.stochastic else None
    stepper, consts = make_stepper(system.prepare(q), method, dt=0.01, key=key, dtype=q.dtype)
    carry = jax.eval_shape(stepper.start, consts, q, p)
    choice = choose(backend, stepper, carry, consts)
    m = system.constraint_count(q)
    lines = [
        f"{method.name} on {q.size} coordinates" + (f" with {m} constraints" if m else ""),
        f"back end: {choice.name} ({choice.reason})",
    ]
    if choice.operations is not None:
        over = f", {choice.loops} loops over axes" if choice.loops else ""
        lines.append(f"operations in one step: {choice.operations}{over} (loops counted once)")
    if hasattr(system, "structure") and m:
        lines.append(f"constraint solver: {system.structure(q)}")
    text = Explanation("\n".join(lines))
    text.backend, text.operations, text.reason = choice.name, choice.operations, choice.reason
    return text
