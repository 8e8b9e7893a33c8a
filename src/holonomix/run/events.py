"""Events: times at which a function of the state changes sign.

The loop halts before a step in which an event function changes sign. The driver repeats this step, locates the zero in
the dense output of the step, and continues (or ends the run there, or has an impact: `run.impacts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import whole_number
from ..core.errors import InputError, MethodError
from ..core.status import Status
from ..core.types import Numbers, Real
from ..linalg.careful import careful_solves
from ..methods.base import AbstractMethod
from ..trace.compiled import compiled
from ..trace.functions import user_function_errors
from ..trace.sparsity import dependence
from .dense import between, disarm
from .observe import as_observable
from .stepper import AbstractWatch, Consts, LoopCarry, Stepper

MAX_HALVINGS = 60


class Event(eqx.Module):
    """`Event(fn, terminal=False, direction=0, bounce=False)`: where `fn(q, p)` or `fn(q, p, t)` changes sign.

    `direction` +1 selects rising passages, -1 falling ones (in the direction in which the simulation runs). A terminal
    event ends the run with `Status.TERMINATED`. A zero at the start does not count. Two passages within one step are
    missed; for a method with a continuous path (`TaylorAdaptive`), two passages within a quarter of a step.

    With `bounce=True` the zero of `fn`, a function of positions, is a wall: the motion stays at `fn <= 0` for direction
    +1, at `fn >= 0` for direction -1. At an elastic impact the momentum changes along the gradient of fn, as by an
    impulse on the manifold: the rate of fn changes its sign, and a wall at rest keeps the energy. The rest of the step
    starts from the state after the impact, so the method keeps its order. A body that rests against a wall enters it by
    about `dt^2` times its acceleration. The momentum in `sol.events` is that before the impact.
    """

    fn: Any
    terminal: bool = eqx.field(static=True)
    direction: int = eqx.field(static=True)
    bounce: bool = eqx.field(static=True)

    def __init__(self, fn: Callable[..., Any], terminal: bool = False, direction: int = 0, bounce: bool = False):
        for name, value in (("terminal", terminal), ("bounce", bounce)):
            if not isinstance(value, (bool, np.bool_)):
                raise InputError(f"{name} must be True or False, not {value!r}")
        if whole_number("direction", direction, -1) > 1:
            raise InputError(f"direction must be -1, 0 or 1, not {direction!r}")
        if bounce and (terminal or direction == 0):
            raise InputError(
                "a bounce needs direction=1 (the motion stays at fn <= 0) or -1 (at fn >= 0), and cannot be terminal"
            )
        self.fn, self.terminal, self.direction = as_observable(fn, "an event"), bool(terminal), int(direction)
        self.bounce = bool(bounce)

    def passed(self, before: PyTree, after: PyTree) -> Any:
        if self.bounce:  # also from a start on the wall or behind it, unless the motion returns
            inside, outside = self.direction * before, self.direction * after
            return (outside > 0) & (outside > inside)
        rising, falling = (before < 0) & (after >= 0), (before > 0) & (after <= 0)
        return {1: rising, -1: falling, 0: rising | falling}[self.direction]


class EventRecord(NamedTuple):
    """All passages of one event, in order: times, positions, momenta."""

    t: np.ndarray
    q: np.ndarray
    p: np.ndarray

    def __repr__(self) -> str:
        count = len(self.t)
        times = ", ".join(f"{t:.6g}" for t in (self.t if count <= 6 else self.t[:3]))
        if count > 6:
            times += f", ..., {self.t[-1]:.6g}"
        what = f"{count} passage{'s' * (count != 1)}" + (f" at t = {times}" if count else "")
        return f"EventRecord({what}, q and p of shape {self.q.shape[1:]})"


class Watch(AbstractWatch):
    """The reduction that watches events: the values of all event functions; NaN disables the watch for one step."""

    events: tuple[Event, ...]

    @property
    def bounces(self) -> bool:
        return any(event.bounce for event in self.events)

    def init(self, q: Numbers, p: Numbers, t: Real) -> Any:
        return jnp.stack([jnp.asarray(e.fn(q, p, t), q.dtype).reshape(()) for e in self.events])

    def update(self, acc: PyTree, q: Numbers, p: Numbers, t: Real) -> Any:
        return self.init(q, p, t)

    def passed(self, before: PyTree, after: PyTree) -> list[Any]:
        return [e.passed(before[k], after[k]) for k, e in enumerate(self.events)]

    def interrupts(self, before: PyTree, after: PyTree) -> Any:
        passed = self.passed(before, after)
        return jnp.any(jnp.stack(passed))


def as_events(events: Any) -> tuple[Event, ...]:
    """Events from one event or several; plain functions are converted."""
    several = events if isinstance(events, (list, tuple)) else (events,)
    return tuple(e if isinstance(e, Event) else Event(e) for e in several)


def check_events(events: tuple[Event, ...], method: AbstractMethod, q: Numbers, p: Numbers, t: Real) -> None:
    """Check that every event returns one real number and that the method has dense output to locate it in."""
    if events and method.stochastic:
        raise MethodError(
            f"{method.name} draws random numbers in every step: it has no state between two steps at which an event "
            "could be located. Observe the function instead, or reduce an ensemble by hx.reductions.FirstPassage(fn)"
        )
    if (method.adaptive or not method.one_step) and any(event.bounce for event in events):
        reason = "chooses its own steps" if method.adaptive else "needs states of earlier steps"
        raise MethodError(
            f"{method.name} {reason}, and a bounce ends a step early: use a one-step method with a fixed dt, such as "
            "RATTLE, StormerVerlet or Gauss, or a stiff spring in place of the wall"
        )
    for k, event in enumerate(events):
        with user_function_errors(f"function of event {k}", q, "(q, p, t)" if event.fn.takes_time else "(q, p)"):
            shown = jax.eval_shape(event.fn, q, p, jnp.asarray(t, q.dtype))
        if not hasattr(shown, "shape") or shown.shape not in ((), (1,)) or shown.dtype == bool:
            what = f"{shown.dtype.name} of shape {shown.shape}" if hasattr(shown, "shape") else type(shown).__name__
            raise InputError(f"event {k} must return one number, which changes sign where it happens; not {what}")
        if event.bounce:
            wall = jax.make_jaxpr(lambda q, p, t, fn=event.fn: jnp.asarray(fn(q, p, t)))(q, p, jnp.asarray(t, q.dtype))
            if dependence(wall, 1).nnz:
                raise InputError(f"event {k} bounces at a wall, which is a function of q (and t), and not of p")


class Found(NamedTuple):
    """One passage: the number of the event, the state there, and the status of the solves that found it."""

    event: int
    t: float
    q: np.ndarray
    p: np.ndarray
    status: Status = Status.OK


def records_of(found: dict[str, np.ndarray], kinds: int, count: int, shape: tuple[int, ...]) -> list[list[EventRecord]]:
    """The passages of each of `kinds` events in each of `count` trajectories, from `Passages.to_arrays`."""
    empty = EventRecord(np.zeros(0), np.zeros((0, *shape)), np.zeros((0, *shape)))
    records = [[empty for _ in range(kinds)] for _ in range(count)]
    if found:
        places = np.stack([found["trajectory"], found["event"]], axis=1)
        for lane, k in np.unique(places, axis=0):
            here = (places == [lane, k]).all(1)
            t, q, p = (np.asarray(found[name][here], float) for name in ("t", "q", "p"))
            records[lane][k] = EventRecord(t, q.reshape(-1, *shape), p.reshape(-1, *shape))
    return records


def locate(watch: Watch, stepper: Stepper, carry: LoopCarry, consts: Consts) -> list[Found]:
    """The passages, in order of time, within the step before which the loop halted."""
    for each in (stepper, stepper.with_care()):
        ended, passed, *found = (np.asarray(x) for x in _locate(watch, each, carry, consts))
        if not ended and not np.any(found[-1].reshape(passed.shape)[passed]):
            break
    t, q, p, status = (x.reshape(*passed.shape, *x.shape[1:]) for x in found)
    passages = [
        Found(int(k), float(t[j, k]), q[j, k], p[j, k], Status(int(status[j, k]))) for j, k in np.argwhere(passed)
    ]
    return sorted(passages, key=lambda f: f.t * np.sign(float(consts.dt)))


@compiled
def _locate(watch: Watch, stepper: Stepper, carry: LoopCarry, consts: Consts) -> tuple[Any, ...]:
    """The status of the step, whether event k passes in part j of it, and `(t, q, p, status)` of each pair (j, k)."""
    system, method = stepper.parts(consts)[:2]
    carry = eqx.tree_at(lambda c: c.status, carry, jnp.zeros_like(carry.status))
    after = stepper.step(disarm(carry), consts)
    start, h = carry.state.t, after.state.t - carry.state.t
    walls = jnp.array([e.bounce for e in watch.events])
    # with walls from the start of the step alone: the end may be behind one, and backward steps then retrace the impact
    state_at = between(method, system, carry, after, consts.dt, forward=watch.bounces)
    functions = [lambda x, fn=e.fn: jnp.asarray(fn(x.q, x.p, x.t), start.dtype).reshape(()) for e in watch.events]
    ends = carry.reduced["events"], after.reduced["events"]
    values = jnp.stack([ends[0], *stepper.inside("events", carry, after.state.t, consts), ends[1]])
    parts = len(values) - 1

    def find(x: PyTree):
        j, k, passed, first, last = x
        time = lambda theta: (j + theta) / parts * h
        value = lambda theta: jax.lax.switch(k, functions, state_at(time(theta))[0])
        theta = jax.lax.cond(passed, lambda: root(value, first, last), lambda: jnp.ones_like(start))
        theta = jnp.where(passed & walls[k] & (jnp.sign(first) != -jnp.sign(last)), 0.0, theta)  # at the wall already
        here, status = state_at(time(theta))
        return here.t, here.q, here.p, status

    passed = jnp.stack([jnp.stack(watch.passed(*pair)) for pair in zip(values[:-1], values[1:], strict=True)])
    j, k = (x.ravel() for x in jnp.meshgrid(jnp.arange(parts), jnp.arange(len(functions)), indexing="ij"))
    with careful_solves(stepper.careful):
        states = jax.lax.map(find, (j, k, passed.ravel(), values[:-1].ravel(), values[1:].ravel()))
    return after.status, passed, *states


def root(value: Callable[[Any], Any], first: Real, last: Real) -> Any:
    """A zero in [0, 1] of a function with the values `first` and `last` at the ends, by the ITP method.

    ITP interpolates, truncates and projects (Oliveira & Takahashi 2021): about ten evaluations for a smooth function,
    at most one more than bisection. The result is the zero, or the end of the last bracket that lies behind it.
    """
    one = jnp.ones_like(first)
    tiny = jnp.finfo(one.dtype).eps / 2

    def more(loop: tuple[Any, ...]):
        k, low, high, _, _ = loop
        return (k < MAX_HALVINGS) & (high - low > 2 * tiny)

    def narrow(loop: tuple[Any, ...]):
        k, low, high, a, b = loop
        middle, width = 0.5 * (low + high), high - low
        chord = (b * low - a * high) / (b - a)
        chord = jnp.where((chord >= low) & (chord <= high), chord, middle)
        side = jnp.sign(middle - chord)
        truncated = chord + side * jnp.minimum(0.2 * width**2 + tiny, jnp.abs(middle - chord))
        slack = jnp.maximum(tiny * 2.0 ** (MAX_HALVINGS - k) - width / 2, 0.0)
        x = middle - side * jnp.minimum(jnp.abs(middle - truncated), slack)
        y = value(x)
        same = jnp.sign(y) == jnp.sign(first)
        low, a = jnp.where(same, x, low), jnp.where(same, y, a)
        high, b = jnp.where(same, high, x), jnp.where(same, b, y)
        # an exact zero ends the search
        return k + 1, jnp.where(y == 0, high, low), high, a, b

    return jax.lax.while_loop(more, narrow, (jnp.zeros((), jnp.int32), 0 * one, one, first, last))[2]
