"""Positions, rates and reaction forces of joints as observables of a run, an exported step or an FMU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .forms import JointCoordinate, coordinate_of
from .joints import Joint

if TYPE_CHECKING:
    from .mechanism import Mechanism

Observable = Callable[[Any, Any, Any], Any]


def observables(mechanism: Mechanism, system: Any) -> dict[str, Observable]:
    """Observables by name (`elbow.angle`, `elbow.rate`, `elbow.force`), as functions of q, p and t."""
    found: dict[str, Observable] = {}
    masses = jnp.asarray(mechanism._start()[2])[:, None]
    for joint in mechanism.joints:
        several = len(joint.coordinates) > 1
        for k, coordinate in enumerate(joint.coordinates):
            end = f"{k}" if several else ""
            position = coordinate_of(coordinate)
            found[f"{joint.name}.{coordinate.kind}{end}"] = _position(position)
            found[f"{joint.name}.rate{end}"] = _rate(position, masses)
        if mechanism.redundancy is not None and not mechanism.redundancy.dropped and joint.rows:
            found[f"{joint.name}.force"] = _force(mechanism, joint, system)
    return found


def _position(position: JointCoordinate) -> Observable:
    return lambda q, p, t: position(q)


def _rate(position: JointCoordinate, masses: Any) -> Observable:
    return lambda q, p, t: jax.jvp(position, (q,), (p / masses,))[1]


def _force(mechanism: Mechanism, joint: Joint, system: Any) -> Observable:
    """The force of the joint on its second body: the contribution of its rows to `-G^T lambda`."""
    rows = np.array([owner is joint for _, owner, _ in mechanism._kept])
    body, sign = (joint.a, 1.0) if joint.b.fixed else (joint.b, -1.0)

    def on(system: Any, q: Any, p: Any, t: Any) -> Any:
        multipliers = jnp.where(rows, system.multipliers(q, p, t), 0.0)
        return sign * system.linearize(q, jnp.asarray(t, q.dtype)).transpose(multipliers)[body.first]

    force: Any = lambda q, p, t: on(system, q, p, t)
    force.on = on  # exported steps call it with the current parameters
    return force
