"""`explain`: which back end a run would take, how large the step is, and why."""

from __future__ import annotations

import jax

from ..core.types import ArrayLike
from .options import MethodLike, SystemLike
from .plan import plan_shapes


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
    """Say how a run of `method` on `system` would be carried out.

    The text prints well and has the attributes `backend`, `operations` and `reason`.

    `system` may be a `Problem`. For a System of one's own, `q0` gives the shape of the coordinates.
    """
    plan = plan_shapes(system, method, q0, p0, backend=backend)
    choice = plan.choose(jax.eval_shape(plan.stepper.start, plan.consts, plan.q0, plan.p0))
    m = plan.system.constraint_count(plan.q0)
    lines = [
        f"{method.name} on {plan.q0.size} coordinates" + (f" with {m} constraints" if m else ""),
        f"back end: {choice.name} ({choice.reason})",
    ]
    if choice.operations is not None:
        over = f", {choice.loops} loops over axes" if choice.loops else ""
        lines.append(f"operations in one step: {choice.operations}{over} (loops counted once)")
    if m:
        lines.append(f"constraint solver: {plan.system.structure(plan.q0)}")
    text = Explanation("\n".join(lines))
    text.backend, text.operations, text.reason = choice.name, choice.operations, choice.reason
    return text
