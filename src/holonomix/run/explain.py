"""`explain`: which back end a run would take, how large the step is, and why."""

from __future__ import annotations

import jax

from ..core.types import ArrayLike
from .arguments import MethodLike, SystemLike
from .backends import choose
from .loop import shape_loop


class Explanation(str):
    """The text of `explain`, with its figures as attributes: `backend`, `operations`, `reason`."""

    backend: str
    operations: int | None
    reason: str


def explain(
    system: SystemLike,
    method: MethodLike,
    q0: ArrayLike | None = None,
    p0: ArrayLike | None = None,
    *,
    backend: str = "auto",
) -> Explanation:
    """Describe how a run of `method` on `system` would be executed.

    The text prints well and has the attributes `backend`, `operations` and `reason`.

    `system` may be a `Problem`. For a plain System, `q0` gives the shape of the coordinates.
    """
    loop = shape_loop(system, method, q0, p0)
    q, p = loop.q0[0], loop.p0[0]
    carry = jax.eval_shape(loop.stepper.start, loop.consts, q, p)
    runner, reason, _ = choose(backend, loop.stepper, carry, loop.consts)
    m = loop.system.constraint_count(q)
    lines = [
        f"{method.name} on {q.size} coordinates" + (f" with {m} constraints" if m else ""),
        f"back end: {runner.name} ({reason})",
    ]
    if runner.operations is not None:
        over = f", {runner.loops} loops over axes" if runner.loops else ""
        lines.append(f"operations in one step: {runner.operations}{over} (loops counted once)")
    if m:
        lines.append(f"constraint solver: {loop.system.structure(q)}")
    text = Explanation("\n".join(lines))
    text.backend, text.operations, text.reason = runner.name, runner.operations, reason
    return text
