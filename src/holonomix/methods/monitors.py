"""Step-size monitors `U(q, p)`: an adaptive method takes physical steps of about `h / U`.

A monitor is positive and even in p, or the method would not be reversible. Scaling a monitor by a constant changes
nothing: `h = dt U(q_0, p_0)` scales with it. Equation numbers are those of Barth, Leimkuhler & Reich 1998.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import real_array
from ..core.errors import InputError, MethodError
from ..core.types import ArrayLike, Function, Numbers, Real
from ..mechanics.abstract import AbstractSystem
from ..trace.compiled import compiled
from ..trace.functions import as_callable, user_function_errors
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
]


# The number of steps of size dt that stands for the natural time of a start without any scale.
START_STEPS = 100


def _optional(name: str) -> Callable[[Any], Any]:
    """A converter for a number or None, the monitor's own choice."""
    return lambda x: None if x is None else real_array(name, x)


def natural_time(system: AbstractSystem, q: Numbers, p: Numbers, dt: Real | None = None) -> Any:
    """The time in which the forces at a state change its motion, in any units and about any origin.

    `pi` times the longer of `1 / sqrt(a kappa + |V''|)`, as for an oscillator, and `|v| / a`. Here a is the
    acceleration by `-grad V` in the mass metric; kappa and `V''` are the curvatures of the manifold and of the
    potential in the direction in which the forces drive the state, or in which it moves where they do not.
    Without forces it is the time in which the motion covers the radius `1 / kappa`. Where nothing is curved and
    nothing moves there is no such time: it is `START_STEPS` times `dt` then, or zero without a `dt`.
    """
    zero = jnp.zeros((), q.dtype)
    square = lambda f: jnp.sum(f * system.inverse_mass(q, f))
    slope, hold = system.gradient(q), _constraint_force(system, q)
    held = hold(lambda jac: jac(system.inverse_mass(q, slope))) - slope
    push, speed = square(slope), square(p)
    way = jnp.where(square(held) > jnp.finfo(q.dtype).eps * push, held, p)
    along, velocity = square(way), system.inverse_mass(q, way)
    stiff = jnp.abs(jnp.sum(velocity * jax.jvp(system.gradient, (q,), (velocity,))[1]))
    bend = square(hold(lambda _: jax.jvp(lambda x: system.hidden_constraint(x, way), (q,), (velocity,))[1]))
    bend = _quotient(_quotient(bend, along), along)  # kappa^2
    # only squares of times are square roots, so that results scale with the units to the last bit
    oscillating = jnp.sqrt(_quotient(zero + 1, jnp.sqrt(push * bend) + _quotient(stiff, along)))
    forced = np.pi * jnp.maximum(oscillating, jnp.sqrt(_quotient(speed, push)))
    found = jnp.where(push > 0, forced, jnp.sqrt(_quotient(zero + 1, bend * speed)))
    return found if dt is None else jnp.where(found > 0, found, START_STEPS * jnp.abs(dt))


def _constraint_force(system: AbstractSystem, q: Numbers) -> Callable[[Callable[[Any], Any]], Any]:
    """`G^T (G M^-1 G^T)^-1 r` as a function of `G -> r`; zero without constraints."""
    if not system.has_constraints:
        return lambda _: jnp.zeros_like(q)
    jac = system.linearize(q)
    factor = system.gram(q, jac, jac).factor(symmetric=True)
    return lambda rate: jac.transpose(factor.solve(rate(jac)))


def _quotient(a: Numbers, b: Numbers) -> Any:
    """`a / b`, or zero for `b = 0`."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1.0), 0.0)


class AbstractMonitor(eqx.Module):
    """`monitor(system, q, p)` is U. `start` makes the memory of a run, `value` is U with that memory."""

    positional: ClassVar[bool] = False  # U depends on q alone, so that the next density is explicit

    @abc.abstractmethod
    def __call__(self, system: AbstractSystem, q: Numbers, p: Numbers) -> Any: ...

    def start(self, system: AbstractSystem, q: Numbers, p: Numbers, dt: Real | None) -> Any:
        return ()

    def value(self, system: AbstractSystem, q: Numbers, p: Numbers, memory: PyTree) -> Any:
        return self(system, q, p)

    def check(self, system: AbstractSystem, q: Numbers, p: Numbers, dt: Real, even: bool = True) -> None:
        """Raise unless U is positive and finite at the start and, if asked, `even` in p there and at random momenta."""
        for part in _parts(self):
            if isinstance(part, MultiplierMonitor) and not system.has_constraints:
                raise MethodError("MultiplierMonitor follows constraint forces; without constraints use ForceMonitor")
            if isinstance(part, StepBounds) and not part.dt_min < abs(dt) < part.dt_max:
                low, high = float(part.dt_min), float(part.dt_max)
                raise InputError(
                    f"dt = {float(dt):g}, the first step, must lie between dt_min = {low:g} and dt_max = {high:g}"
                )
        shape = jax.eval_shape(lambda q, p: self(system, q, p), q, p).shape
        if shape != ():
            raise InputError(f"the monitor must return a number U(q, p); it returned an array of shape {shape}")
        u = float(_evaluate(self, system, q, p, dt))
        if not (np.isfinite(u) and u > 0):
            hint = "give it a weight or floor" if hasattr(self, "weight") or hasattr(self, "floor") else ""
            hint = hint or "try sqrt(U^2 + floor^2)"
            raise InputError(f"the monitor must be positive and finite; at the start U = {u:g} ({hint})")
        if not even:
            return
        # momenta as large as p, or such that q changes by its own size in START_STEPS steps
        drawn = np.random.default_rng(0).standard_normal(np.shape(p))
        way = jnp.full_like(q, jnp.max(jnp.abs(q)) / (START_STEPS * abs(dt)))
        drawn = drawn * np.maximum(np.max(np.abs(p)), np.abs(system.momentum(q, way)))
        for where, momentum in (("the start", p), ("a momentum drawn at random", jnp.asarray(drawn, q.dtype))):
            forward, back = (float(_evaluate(self, system, q, x, dt)) for x in (momentum, -momentum))
            if abs(forward - back) > 1e-9 * max(abs(forward), abs(back)):
                raise InputError(
                    f"the monitor must be even in p, or the method is not reversible: at {where} "
                    f"U(q, p) = {forward:.6g} and U(q, -p) = {back:.6g}"
                )


class AbstractRemembering(AbstractMonitor):
    """A monitor with a scale set by the start; as a function of (q, p) it takes the state for the start."""

    def __call__(self, system: AbstractSystem, q: Numbers, p: Numbers) -> Any:
        return self.value(system, q, p, self.start(system, q, p, None))


class FunctionMonitor(AbstractMonitor):
    """A user's function of (q, p), even in p."""

    fn: Any

    def __call__(self, system: AbstractSystem, q: Numbers, p: Numbers) -> Any:
        with user_function_errors("monitor", q, "(q, p)"):
            return jnp.asarray(self.fn(q, p))


class AbstractSpeedMonitor(AbstractRemembering):
    """The speed of the state: of q, and of p with `weight`, which turns a force into a speed.

    By default a force counts as the acceleration `M^-1 f` times the `natural_time` of the start, in any units.
    """

    weight: Any = eqx.field(converter=_optional("weight"), default=None)

    def start(self, system: AbstractSystem, q: Numbers, p: Numbers, dt: Real | None) -> Any:
        return natural_time(system, q, p, dt) if self.weight is None else ()

    def speed(self, system: AbstractSystem, q: Numbers, p: Numbers, force: Numbers, time: PyTree) -> Any:
        change = time * system.inverse_mass(q, force) if self.weight is None else self.weight * force
        return jnp.sqrt(jnp.sum(system.velocity(q, p) ** 2) + jnp.sum(change**2))


class ForceMonitor(AbstractSpeedMonitor):
    """`U1 = sqrt(p^T M^-2 p + (weight |grad V|)^2)`: the vector field without constraint forces (4.1).

    `weight` turns a force into a speed; 1, the paper's, suits units in which masses and times are of order one. By
    default the second term is the acceleration `M^-1 grad V` times the `natural_time` of the start, in any units.
    """

    def value(self, system: AbstractSystem, q: Numbers, p: Numbers, memory: PyTree) -> Any:
        return self.speed(system, q, p, system.gradient(q), memory)


class MultiplierMonitor(AbstractRemembering):
    """`U2 = sqrt(|Lambda(q, p)|^2 + floor^2)`: the size of the constraint forces (4.4).

    Without the floor it would vanish where Lambda does. The floor is in units of Lambda, which depend on how `g` is
    scaled; the paper's 0.5 suits `g = |r|^2 - L^2` with lengths and forces of order one. By default it is half of what
    the start has: of `|Lambda|`, or of what would hold all of `grad V`, its size over that of G in the mass metric.
    """

    floor: Any = eqx.field(converter=_optional("floor"), default=None)

    def start(self, system: AbstractSystem, q: Numbers, p: Numbers, dt: Real | None) -> Any:
        if self.floor is not None or not system.has_constraints:
            return ()
        own = jnp.sqrt(jnp.sum(system.multipliers(q, p) ** 2))
        slope, rows = system.gradient(q), jax.tree.map(jnp.abs, system.linearize(q))
        size = jnp.max(rows(jnp.abs(system.inverse_mass(q, rows.transpose(jnp.ones_like(system.constraint(q)))))))
        return 0.5 * jnp.maximum(own, jnp.sqrt(_quotient(jnp.sum(slope * system.inverse_mass(q, slope)), size)))

    def value(self, system: AbstractSystem, q: Numbers, p: Numbers, memory: PyTree) -> Any:
        floor = memory if self.floor is None else self.floor
        return jnp.sqrt(jnp.sum(system.multipliers(q, p) ** 2) + floor**2)


class WallMonitor(AbstractMonitor):
    """`U3 = max_i d_i^-power` over the wall distances `d_i` (5.2).

    They come from `distances(q)`, or from `distances(q, params)` where the system has params.
    """

    positional = True

    distances: Any
    power: Any

    def __init__(self, distances: Function, power: ArrayLike = 3.0):
        if not callable(distances):
            raise InputError(f"distances must be a function of q, not {type(distances).__name__}")
        self.distances, self.power = as_callable(distances), real_array("power", power)

    def __call__(self, system: AbstractSystem, q: Numbers, p: Numbers) -> Any:
        d = self.distances(q) if system.params is None else self.distances(q, system.params)
        return jnp.min(d) ** (-self.power)


class ArcLengthMonitor(AbstractSpeedMonitor):
    """`sqrt(|q'|^2 + (weight |p'|)^2)`: the speed along the trajectory in phase space, constraint forces included.

    `weight` turns a force into a speed, as in `ForceMonitor`; by default it is the natural time of the start there too.
    """

    def value(self, system: AbstractSystem, q: Numbers, p: Numbers, memory: PyTree) -> Any:
        return self.speed(system, q, p, reduced_force(system, q, p, jnp.zeros((), q.dtype)), memory)


class LargestForceMonitor(AbstractMonitor):
    """`max_i |dV/dq_i|`, bounded below by `floor` (section 4)."""

    positional = True

    floor: Any = eqx.field(converter=partial(real_array, "floor"), default=0.0)

    def __call__(self, system: AbstractSystem, q: Numbers, p: Numbers) -> Any:
        return jnp.maximum(jnp.max(jnp.abs(system.gradient(q))), self.floor)


class FastestParticleMonitor(AbstractRemembering):
    """The largest speed of a particle (a row of q), as `sqrt(v^2 + floor^2)`: equal arc lengths for the fastest one.

    `floor` is a speed. By default it is a tenth of the largest speed at the start, or of the largest acceleration
    `M^-1 grad V` there times the `natural_time`, if that is larger.
    """

    floor: Any = eqx.field(converter=_optional("floor"), default=None)

    def start(self, system: AbstractSystem, q: Numbers, p: Numbers, dt: Real | None) -> Any:
        if self.floor is not None:
            return ()
        gained = natural_time(system, q, p, dt) * system.inverse_mass(q, system.gradient(q))
        fastest = jnp.maximum(_largest_square(system.velocity(q, p)), _largest_square(gained))
        return 0.1 * jnp.where(fastest > 0, jnp.sqrt(jnp.where(fastest > 0, fastest, 1.0)), 0.0)

    def value(self, system: AbstractSystem, q: Numbers, p: Numbers, memory: PyTree) -> Any:
        floor = memory if self.floor is None else self.floor
        return jnp.sqrt(_largest_square(system.velocity(q, p)) + floor**2)


def _largest_square(v: Numbers) -> Any:
    """The largest squared speed of a particle."""
    rows = v.reshape(v.shape[0], -1) if v.ndim > 1 else v.reshape(1, -1)
    return jnp.max(jnp.sum(rows**2, axis=1))


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

    def __init__(self, monitor: AbstractMonitor | Function, dt_min: ArrayLike, dt_max: ArrayLike):
        self.monitor = as_monitor(monitor)
        self.dt_min, self.dt_max = real_array("dt_min", dt_min), real_array("dt_max", dt_max)
        known = not any(isinstance(x, jax.core.Tracer) for x in (dt_min, dt_max))  # pyright: ignore
        if known and not (jnp.all(self.dt_min > 0) and jnp.all(self.dt_min < self.dt_max)):
            raise InputError(f"step bounds must satisfy 0 < dt_min < dt_max; got {dt_min} and {dt_max}")

    @property
    def positional(self) -> bool:  # type: ignore[override]
        return self.monitor.positional

    def __call__(self, system: AbstractSystem, q: Numbers, p: Numbers) -> Any:
        return self.monitor(system, q, p)

    def start(self, system: AbstractSystem, q: Numbers, p: Numbers, dt: Any) -> Any:
        inner = self.monitor.start(system, q, p, dt)
        first = 1 / jnp.abs(dt)
        level = self.monitor.value(system, q, p, inner) * (1 / self.dt_min - first) / (first - 1 / self.dt_max)
        return inner, level

    def value(self, system: AbstractSystem, q: Numbers, p: Numbers, memory: PyTree) -> Any:
        inner, level = memory
        u = self.monitor.value(system, q, p, inner)
        return 1 / self.dt_max + (1 / self.dt_min - 1 / self.dt_max) * u / (u + level)


def as_monitor(monitor: AbstractMonitor | Function) -> AbstractMonitor:
    """A monitor object, from one or from a function of (q, p)."""
    if isinstance(monitor, AbstractMonitor):
        return monitor
    if not callable(monitor):
        raise InputError(f"monitor must be a monitor object or a function of (q, p), not {type(monitor).__name__}")
    return FunctionMonitor(as_callable(monitor))


@compiled
def _evaluate(monitor: AbstractMonitor, system: AbstractSystem, q: Numbers, p: Numbers, dt: Real) -> Any:
    return monitor.value(system, q, p, monitor.start(system, q, p, dt))


def _parts(monitor: AbstractMonitor) -> list[Any]:
    return [monitor, *_parts(monitor.monitor)] if isinstance(monitor, StepBounds) else [monitor]
