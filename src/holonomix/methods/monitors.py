"""Step-size monitors: what `U(q, p)` an adaptive method follows, with physical steps of about `h / U`.

A monitor is positive and even in p, or the method would not be reversible. Scaling a monitor by a constant changes
nothing: `h = dt U(q_0, p_0)` scales with it. Equation numbers are those of Barth, Leimkuhler & Reich 1998.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError, MethodError
from ..systems.functions import as_callable
from .equations import reduced_force

__all__ = [
    "AbstractMonitor",
    "ArcLengthMonitor",
    "FastestParticleMonitor",
    "ForceMonitor",
    "FunctionMonitor",
    "LargestForceMonitor",
    "MultiplierMonitor",
    "StepBounds",
    "WallMonitor",
    "as_monitor",
    "check_monitor",
]


def _number(x: Any) -> Any:
    return jnp.asarray(x, jnp.result_type(float))


class AbstractMonitor(eqx.Module):
    """`monitor(system, q, p)` is U. `start` fixes what it remembers of the start, `value` is U with that memory."""

    positional: ClassVar[bool] = False  # U depends on q alone, so that the next density is explicit

    @abc.abstractmethod
    def __call__(self, system: Any, q: Any, p: Any) -> Any: ...

    def start(self, system: Any, q: Any, p: Any, dt: Any) -> Any:
        return ()

    def value(self, system: Any, q: Any, p: Any, memory: Any) -> Any:
        return self(system, q, p)


class FunctionMonitor(AbstractMonitor):
    """A user's function of (q, p), even in p."""

    fn: Any

    def __call__(self, system: Any, q: Any, p: Any) -> Any:
        return jnp.asarray(self.fn(q, p))


class ForceMonitor(AbstractMonitor):
    """`U1 = sqrt(p^T M^-2 p + |grad V|^2)`: the vector field without constraint forces (4.1)."""

    def __call__(self, system: Any, q: Any, p: Any) -> Any:
        v = system.velocity(q, p)
        return jnp.sqrt(jnp.sum(v**2) + jnp.sum(system.gradient(q) ** 2))


class MultiplierMonitor(AbstractMonitor):
    """`U2 = sqrt(|Lambda(q, p)|^2 + floor^2)`: the size of the constraint forces (4.4).

    Without the floor it would vanish where Lambda does. The floor is in units of Lambda, which depend on how `g` is
    scaled; 0.5 suits `g = |r|^2 - L^2` with lengths and forces of order one.
    """

    floor: Any = eqx.field(converter=_number, default=0.5)

    def __call__(self, system: Any, q: Any, p: Any) -> Any:
        return jnp.sqrt(jnp.sum(system.multipliers(q, p) ** 2) + self.floor**2)


class WallMonitor(AbstractMonitor):
    """`U3 = max_i d_i^-power` over the wall distances `d_i` (5.2).

    They come from `distances(q)`, or from `distances(q, params)` where the system has params.
    """

    positional = True

    distances: Any
    power: Any

    def __init__(self, distances: Any, power: Any = 3.0):
        if not callable(distances):
            raise InputError(f"distances must be a function of q, not {type(distances).__name__}")
        self.distances, self.power = as_callable(distances), _number(power)

    def __call__(self, system: Any, q: Any, p: Any) -> Any:
        d = self.distances(q) if system.params is None else self.distances(q, system.params)
        return jnp.min(d) ** (-self.power)


class ArcLengthMonitor(AbstractMonitor):
    """`sqrt(|q'|^2 + |p'|^2)`: the speed along the trajectory in phase space, constraint forces included."""

    def __call__(self, system: Any, q: Any, p: Any) -> Any:
        force = reduced_force(system, q, p, jnp.zeros((), q.dtype))
        return jnp.sqrt(jnp.sum(system.velocity(q, p) ** 2) + jnp.sum(force**2))


class LargestForceMonitor(AbstractMonitor):
    """`max_i |dV/dq_i|`, bounded below by `floor` (section 4)."""

    positional = True

    floor: Any = eqx.field(converter=_number, default=0.0)

    def __call__(self, system: Any, q: Any, p: Any) -> Any:
        return jnp.maximum(jnp.max(jnp.abs(system.gradient(q))), self.floor)


class FastestParticleMonitor(AbstractMonitor):
    """The largest speed of a particle (a row of q), as `sqrt(v^2 + floor^2)`: equal arc lengths for the fastest one."""

    floor: Any = eqx.field(converter=_number, default=0.1)

    def __call__(self, system: Any, q: Any, p: Any) -> Any:
        v = system.velocity(q, p)
        rows = v.reshape(v.shape[0], -1) if v.ndim > 1 else v.reshape(1, -1)
        return jnp.sqrt(jnp.max(jnp.sum(rows**2, axis=1)) + self.floor**2)


class StepBounds(AbstractMonitor):
    r"""Keeps the physical steps of another monitor between `dt_min` and `dt_max` and the method reversible.

        U~ = a + b U/(U + b),    a = h/dt_max,    a + b = h/dt_min

    is smooth, even in p, and lies between a and a + b (Huang & Leimkuhler 1997). In units with h = 1 only the level b
    is left to choose; it is set at the start so that the first step is `dt`. The bounds hold for the mean density of
    two neighboring steps.
    """

    monitor: AbstractMonitor
    dt_min: Any
    dt_max: Any

    def __init__(self, monitor: Any, dt_min: Any, dt_max: Any):
        self.monitor, self.dt_min, self.dt_max = as_monitor(monitor), _number(dt_min), _number(dt_max)
        known = not any(isinstance(x, jax.core.Tracer) for x in (dt_min, dt_max))  # pyright: ignore
        if known and not 0 < dt_min < dt_max:
            raise InputError(f"step bounds must satisfy 0 < dt_min < dt_max; got {dt_min} and {dt_max}")

    @property
    def positional(self) -> bool:  # type: ignore[override]
        return self.monitor.positional

    def __call__(self, system: Any, q: Any, p: Any) -> Any:
        return self.monitor(system, q, p)

    def start(self, system: Any, q: Any, p: Any, dt: Any) -> Any:
        inner = self.monitor.start(system, q, p, dt)
        first = 1 / jnp.abs(dt)
        level = self.monitor.value(system, q, p, inner) * (1 / self.dt_min - first) / (first - 1 / self.dt_max)
        return inner, level

    def value(self, system: Any, q: Any, p: Any, memory: Any) -> Any:
        inner, level = memory
        u = self.monitor.value(system, q, p, inner)
        return 1 / self.dt_max + (1 / self.dt_min - 1 / self.dt_max) * u / (u + level)


def as_monitor(monitor: Any) -> AbstractMonitor:
    """A monitor object, from one or from a function of (q, p)."""
    if isinstance(monitor, AbstractMonitor):
        return monitor
    if not callable(monitor):
        raise InputError(f"monitor must be a monitor object or a function of (q, p), not {type(monitor).__name__}")
    return FunctionMonitor(as_callable(monitor))


def check_monitor(monitor: AbstractMonitor, system: Any, q: Any, p: Any, dt: Any, even: bool = True) -> None:
    """Raise unless U is positive and finite at the start and `even` in p, there and for a momentum drawn at random."""
    for part in _parts(monitor):
        if isinstance(part, MultiplierMonitor) and not system.constrained:
            raise MethodError("MultiplierMonitor follows constraint forces; without constraints use ForceMonitor")
        if isinstance(part, StepBounds) and not part.dt_min < abs(dt) < part.dt_max:
            low, high = float(part.dt_min), float(part.dt_max)
            raise InputError(
                f"dt = {float(dt):g}, the first step, must lie between dt_min = {low:g} and dt_max = {high:g}"
            )
    shape = jax.eval_shape(lambda q, p: monitor(system, q, p), q, p).shape
    if shape != ():
        raise InputError(f"the monitor must return a number U(q, p); it returned an array of shape {shape}")
    u = float(monitor(system, q, p))
    if not (np.isfinite(u) and u > 0):
        raise InputError(f"the monitor must be positive and finite; at the start U = {u:g} (try sqrt(U^2 + floor^2))")
    if not even:
        return
    drawn = jnp.asarray(np.random.default_rng(0).standard_normal(np.shape(p)), q.dtype)
    for where, momentum in (("the start", p), ("a momentum drawn at random", (1.0 + jnp.max(jnp.abs(p))) * drawn)):
        forward, back = float(monitor(system, q, momentum)), float(monitor(system, q, -momentum))
        if abs(forward - back) > 1e-9 * max(abs(forward), abs(back)):
            raise InputError(
                f"the monitor must be even in p, or the method is not reversible: at {where} "
                f"U(q, p) = {forward:.6g} and U(q, -p) = {back:.6g}"
            )


def _parts(monitor: Any) -> list[Any]:
    return [monitor, *_parts(monitor.monitor)] if isinstance(monitor, StepBounds) else [monitor]
