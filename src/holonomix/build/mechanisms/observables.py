"""Positions, rates and reaction forces of joints as observables of a run, an exported step, or an FMU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.types import Array, Numbers, Real
from ...mechanics.abstract import AbstractSystem
from .forms import JointCoordinate, coordinate_of
from .joints import Joint
from .parameters import Varied, numbers_in, vary

if TYPE_CHECKING:
    from .mechanism import Mechanism

Observable = Callable[[Any, Any, Any], Any]


def observables(mechanism: Mechanism, system: AbstractSystem) -> dict[str, Observable]:
    """Observables by name (`elbow.angle`, `elbow.rate`, `elbow.force`), as functions of q, p and t."""
    found: dict[str, Observable] = {}
    names = list(numbers_in(mechanism, system))
    parts = lambda: [coordinate_of(x) for joint in mechanism.joints for x in joint.coordinates]
    masses = None if names else jnp.asarray(mechanism._start()[2])[:, None]
    positions = iter(vary(mechanism, names, parts) if names else parts())
    for joint in mechanism.joints:
        several = len(joint.coordinates) > 1
        for k, (coordinate, position) in enumerate(zip(joint.coordinates, positions, strict=False)):
            end = f"{k}" if several else ""
            found[f"{joint.name}.{coordinate.kind}{end}"] = _position(position, system)
            found[f"{joint.name}.rate{end}"] = _rate(position, system, masses)
        if mechanism.redundancy is not None and not mechanism.redundancy.dropped and joint.rows:
            found[f"{joint.name}.force"] = _force(mechanism, joint, system)
    return found


def _position(position: Varied | JointCoordinate, system: AbstractSystem) -> Observable:
    if not isinstance(position, Varied):
        return lambda q, p, t: position(q)
    return _of(system, lambda system, q, p, t: position.at(system.params)(q))


def _rate(position: Varied | JointCoordinate, system: AbstractSystem, masses: Array | None) -> Observable:
    if masses is not None:
        return lambda q, p, t: jax.jvp(position, (q,), (p / masses,))[1]
    at = lambda system: position.at(system.params) if isinstance(position, Varied) else position
    return _of(system, lambda system, q, p, t: jax.jvp(at(system), (q,), (system.velocity(q, p),))[1])


def _of(system: AbstractSystem, on: Callable[..., Any]) -> Observable:
    """A function of the state; runs with parameters, and exported steps, call `on` with the current ones."""
    found: Any = lambda q, p, t: on(system, q, p, t)
    found.on, found.has_params = on, system.params is not None
    return found


def _force(mechanism: Mechanism, joint: Joint, system: AbstractSystem) -> Observable:
    """The force of the joint on its second body: the contribution of its rows to `-G^T lambda`."""
    rows = np.array([owner is joint for _, owner, _ in mechanism._kept])
    body, sign = (joint.a, 1.0) if joint.b.fixed else (joint.b, -1.0)

    def on(system: AbstractSystem, q: Numbers, p: Numbers, t: Real) -> Any:
        multipliers = jnp.where(rows, system.multipliers(q, p, t), 0.0)
        return sign * system.linearize(q, jnp.asarray(t, q.dtype)).transpose(multipliers)[body.first]

    return _of(system, on)
