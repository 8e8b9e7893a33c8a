"""Events: times at which a function of the state passes through zero.

They are watched in the loop: a step in which one passes zero is not taken, the run halts before it; the driver takes
the step again, finds the zero on the step's polynomial, and goes on (or ends the run there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..systems.functions import user_function_errors
from ..types import State
from .dense import disarmed, interpolate
from .loop import Consts, LoopCarry, Stepper
from .observe import timed

__all__ = ["Event", "EventRecord", "Found", "Watch", "as_events", "check_events", "locate"]

BISECTIONS = 60


class Event(eqx.Module):
    """`Event(fn, terminal=False, direction=0)`: where `fn(q, p)` or `fn(q, p, t)` changes sign.

    `direction` +1 takes only rising passages, -1 only falling ones (as time runs in the simulation). A terminal event
    ends the run there, with `Status.TERMINATED`. A zero at the very start is no passage, and two passages within one
    step are not seen.
    """

    fn: Any
    terminal: bool = eqx.field(static=True)
    direction: int = eqx.field(static=True)

    def __init__(self, fn: Callable[..., Any], terminal: bool = False, direction: int = 0):
        if direction not in (-1, 0, 1):
            raise InputError(f"direction must be -1, 0 or 1, not {direction!r}")
        self.fn, self.terminal, self.direction = timed(fn, "an event"), bool(terminal), int(direction)

    def passed(self, before: Any, after: Any) -> Any:
        rising, falling = (before < 0) & (after >= 0), (before > 0) & (after <= 0)
        return {1: rising, -1: falling, 0: rising | falling}[self.direction]


class EventRecord(NamedTuple):
    """All passages of one event, in order: times, positions, momenta."""

    t: np.ndarray
    q: np.ndarray
    p: np.ndarray


class Watch(eqx.Module):
    """What the loop carries: the values of all events after the last step. NaN lets one step pass unwatched."""

    events: tuple[Event, ...]

    def init(self, q: Any, p: Any, t: Any) -> Any:
        return jnp.stack([jnp.asarray(e.fn(q, p, t), q.dtype).reshape(()) for e in self.events])

    def update(self, acc: Any, q: Any, p: Any, t: Any) -> Any:
        return self.init(q, p, t)

    def passed(self, before: Any, after: Any) -> list[Any]:
        return [e.passed(before[k], after[k]) for k, e in enumerate(self.events)]

    def interrupts(self, before: Any, after: Any) -> Any:
        passed = self.passed(before, after)
        return jnp.any(jnp.stack(passed))


def as_events(events: Any) -> tuple[Event, ...]:
    """One event or several, bare functions included."""
    several = events if isinstance(events, (list, tuple)) else (events,)
    return tuple(e if isinstance(e, Event) else Event(e) for e in several)


def check_events(events: tuple[Event, ...], q: Any, p: Any, t: Any) -> None:
    """Every event gives one real number for this state."""
    for k, event in enumerate(events):
        with user_function_errors(f"function of event {k}", q, "(q, p, t)" if event.fn.takes_time else "(q, p)"):
            shown = jax.eval_shape(event.fn, q, p, jnp.asarray(t, q.dtype))
        if not hasattr(shown, "shape") or shown.shape not in ((), (1,)) or shown.dtype == bool:
            what = f"{shown.dtype.name} of shape {shown.shape}" if hasattr(shown, "shape") else type(shown).__name__
            raise InputError(f"event {k} must return one number, which changes sign where it happens; not {what}")


class Found(NamedTuple):
    """One passage: which event, and the state there."""

    event: int
    t: float
    q: np.ndarray
    p: np.ndarray


def locate(watch: Watch, stepper: Stepper, carry: LoopCarry, consts: Consts) -> list[Found]:
    """The passages of the step that follows the state in which the loop halted, in order of time."""
    passed, t, q, p = (np.asarray(x) for x in _locate(watch, stepper, carry, consts))
    found = [Found(int(k), float(t[k]), q[k], p[k]) for k in np.flatnonzero(passed)]
    return sorted(found, key=lambda f: f.t * np.sign(float(consts.dt)))


@eqx.filter_jit
def _locate(watch: Watch, stepper: Stepper, carry: LoopCarry, consts: Consts) -> tuple[Any, Any, Any, Any]:
    system, method = stepper.parts(consts)[:2]
    carry = eqx.tree_at(lambda c: c.status, carry, jnp.zeros_like(carry.status))
    after = stepper.step(disarmed(carry), consts)

    def at(theta):
        return interpolate(method, system, carry.state, after.state, consts.dt, carry.memory, after.memory, theta)

    def zero(event):
        def value(theta):
            x = at(theta)
            return jnp.asarray(event.fn(x.q, x.p, x.t), theta.dtype).reshape(())

        low, high = jnp.zeros((), carry.state.q.dtype), jnp.ones((), carry.state.q.dtype)
        first = value(low)

        def halve(_, bracket):
            low, high = bracket
            middle = 0.5 * (low + high)
            same = jnp.sign(value(middle)) == jnp.sign(first)
            return jnp.where(same, middle, low), jnp.where(same, high, middle)

        # both ends lie within a rounding of the zero; the upper one is on the far side or on the zero itself
        return jax.lax.fori_loop(0, BISECTIONS, halve, (low, high))[1]

    passed = watch.passed(carry.reduced["events"], after.reduced["events"])
    states: list[State] = [at(zero(event)) for event in watch.events]
    t, q, p = (jnp.stack([getattr(s, name) for s in states]) for name in ("t", "q", "p"))
    return jnp.stack(passed), t, q, p
