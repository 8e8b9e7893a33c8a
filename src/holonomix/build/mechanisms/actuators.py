"""Motors that follow commands, and stops and dry friction of joints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ...core.checks import number, real_array
from ...core.errors import InputError
from ...core.types import ArrayLike, Function, Numbers, Real
from ...trace.signatures import required_arguments
from .forces import bound, returned
from .forms import JointCoordinate

if TYPE_CHECKING:
    from .joints import Joint

Law = Callable[[Any, Any, Any], Any]


class Motor:
    """A named actuator of a file, as `m.motors["hip"]`: a torque `law(command, position, rate)` on a joint.

    It does nothing until `m.command("hip", ...)`.
    """

    def __init__(self, name: str, joint: Joint, law: Law, which: int = 0):
        self.name, self.joint, self.law, self.which = name, joint, law, which
        self.entry: tuple[Any, ...] | None = None  # its entry in the forces of the mechanism

    def torque(self, command: ArrayLike | Function, dt: float | None) -> Callable[..., Any]:
        """`torque(t, position, rate)` for a constant, a function of these, or an array with a step `dt`.

        With a name, or a function of four arguments, the params of the system are its fourth argument.
        """
        why = f"the command of motor {self.name!r}"
        if isinstance(command, str):
            return lambda t, x, rate, params: self.law(params[command], x, rate)
        if callable(command):
            value = lambda params, *state: returned(why, bound(command, params), (), *state)
            if required_arguments(command) == 4:
                return lambda t, x, rate, params: self.law(value(params, t, x, rate), x, rate)
            return lambda t, x, rate: self.law(value(None, t, x, rate), x, rate)
        if np.ndim(command) == 0:
            value = number(why, command)
            return lambda t, x, rate: self.law(value, x, rate)
        if dt is None or not number(f"{why}: dt", dt) > 0:
            raise InputError(f"{why} is an array and needs dt=, the time from one entry to the next")
        values = np.asarray(real_array(why, command), float)
        if values.ndim != 1 or len(values) < 2 or not np.all(np.isfinite(values)):
            raise InputError(f"{why} must be a number, a function of (t, position, rate), or a list of numbers")
        table = jnp.asarray(values)

        def held(t: Real) -> Any:
            place = jnp.clip(t / dt, 0.0, len(values) - 1.0)
            k = jnp.minimum(jnp.floor(place), len(values) - 2.0).astype(int)
            return table[k] + (place - k) * (table[k + 1] - table[k])

        return lambda t, x, rate: self.law(held(t), x, rate)

    def __repr__(self) -> str:
        return f"Motor({self.name!r}, on {self.joint.name!r})"


def geared(gear: float) -> Law:
    """`gear` times the command."""
    return lambda u, x, rate: gear * u


def affine(
    gear: float, shift: float, gain: np.ndarray, bias: np.ndarray, limits: Sequence[tuple[float, ...] | None]
) -> Law:
    """MuJoCo's actuators: `force = (g_0 + g_1 l + g_2 l') u + b_0 + b_1 l + b_2 l'`, `l = gear (x + shift)`.

    `limits` bound the command, the force, and the torque on the joint; None means no bound.
    """
    g, b = ([float(x) for x in y[:3]] for y in (gain, bias))

    def law(u: Real, x: Real, rate: Real) -> Any:
        length, speed = gear * (x + shift), gear * rate
        u = u if limits[0] is None else jnp.clip(u, *limits[0])
        force = (g[0] + g[1] * length + g[2] * speed) * u + b[0] + b[1] * length + b[2] * speed
        torque = gear * (force if limits[1] is None else jnp.clip(force, *limits[1]))
        return torque if limits[2] is None else jnp.clip(torque, *limits[2])

    return law


def polynomial_damping(powers: list[float]) -> Callable[[Any, Any, Any], Any]:
    """`-rate sum_k c_k |rate|^k`, k = 1, 2, ..."""

    def torque(t: Real, x: Real, rate: Real) -> Any:
        total = jnp.zeros_like(rate)
        for c in reversed(powers):
            total = (total + c) * jnp.abs(rate)
        return -total * rate

    return torque


def dry_friction(torque: float, speed: float) -> Callable[[Any, Any, Any], Any]:
    """`-torque tanh(rate / speed)`."""
    return lambda t, x, rate: -torque * jnp.tanh(rate / speed)


class Range(eqx.Module):
    """The range of a joint; angles count from its middle."""

    coordinate: JointCoordinate
    lower: Any
    upper: Any

    def depth(self, q: Numbers) -> Any:
        """How far the joint is outside of its range; negative inside."""
        found = self.coordinate.products(self.coordinate.gather(q))
        middle, half = (self.lower + self.upper) / 2, (self.upper - self.lower) / 2
        if len(found) == 1:
            x = found[0] - middle
        else:
            c, s = jnp.cos(middle), jnp.sin(middle)
            x = jnp.arctan2(found[1] * c - found[0] * s, found[0] * c + found[1] * s)
        return jnp.abs(x) - half

    def __call__(self, q: Numbers, p: Numbers) -> Any:
        """`depth` as a function of an event."""
        return self.depth(q)


class Stop(eqx.Module):
    """Elastic stops: `k/2 depth^2` outside of the range of a joint."""

    range: Range
    stiffness: Any

    def energy(self, q: Numbers) -> Any:
        return 0.5 * self.stiffness * jnp.maximum(self.range.depth(q), 0.0) ** 2
