"""Observables and reductions that are computed inside the loop."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.errors import InputError
from ..core.types import Numbers, Real
from ..mechanics.abstract import AbstractSystem
from ..trace.functions import as_callable, user_function_errors

RESERVED = ("t", "n", "q", "p", "multipliers", "times", "status")


class _Timed(eqx.Module):  # stores record this name
    """A function of (q, p) or (q, p, t), called with (q, p, t).

    If it depends on the parameters of the run, as observables of mechanisms do, it has a form `on(system, q, p, t)`.
    """

    fn: Any
    takes_time: bool = eqx.field(static=True)
    on: Any = eqx.field(static=True, default=None)

    def __call__(self, q: Numbers, p: Numbers, t: Real, system: AbstractSystem | None = None) -> Any:
        if self.on is not None and system is not None:
            return self.on(system, q, p, t)
        return self.fn(q, p, t) if self.takes_time else self.fn(q, p)


def as_observable(fn: Callable[..., Any], what: str = "an observable") -> _Timed:
    """`fn` as a function of (q, p, t); raises if it takes other arguments than (q, p) or (q, p, t)."""
    if isinstance(fn, _Timed):
        return fn
    if not callable(fn):
        raise InputError(f"{what} must be a function of (q, p) or (q, p, t), not {type(fn).__name__}")
    try:
        required = [
            x
            for x in inspect.signature(fn).parameters.values()
            if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD) and x.default is x.empty
        ]
        count = len(required)
    except (TypeError, ValueError):
        count = 2
    if count not in (2, 3):
        raise InputError(f"{what} takes (q, p) or (q, p, t); {getattr(fn, '__name__', fn)!r} takes {count} arguments")
    return _Timed(as_callable(fn), count == 3, getattr(fn, "on", None) if getattr(fn, "has_params", False) else None)


def as_observables(observe: Any) -> dict[str, _Timed]:
    """A mapping of names to functions, from a mapping, one function, or None."""
    if observe is None:
        return {}
    if not isinstance(observe, Mapping):
        name = getattr(observe, "__name__", "observable")
        observe = {"observable" if name in RESERVED or not name.isidentifier() else name: observe}
    for name in observe:
        if name in RESERVED or str(name).startswith("step_"):
            raise InputError(f"an observable cannot be called {name!r}, which names another column of the results")
    return {str(name): as_observable(fn) for name, fn in observe.items()}


def check_observables(observables: Mapping[str, _Timed], q: Numbers, p: Numbers, t: Real) -> None:
    """Raise unless every observable can be called with this state."""
    for name, fn in observables.items():
        with user_function_errors(f"observable {name!r}", q, "(q, p, t)" if fn.takes_time else "(q, p)"):
            found = jax.eval_shape(fn, q, p, jnp.asarray(t, q.dtype))
        if not isinstance(found, jax.ShapeDtypeStruct | list | tuple):
            raise InputError(
                f"the observable {name!r} must return a number or an array, not {type(found).__name__}: give one "
                "observable for each quantity"
            )


PARTS = ("init", "update", "result")


class AbstractReducer(eqx.Module):
    """A value accumulated in the loop: `init` at the start, `update` after each step, `result` at the end."""

    fn: eqx.AbstractVar[_Timed]

    @property
    def takes_time(self) -> bool:
        return self.fn.takes_time

    @abc.abstractmethod
    def init(self, q: Numbers, p: Numbers, t: Real) -> Any: ...

    @abc.abstractmethod
    def update(self, acc: PyTree, q: Numbers, p: Numbers, t: Real) -> Any: ...

    @abc.abstractmethod
    def result(self, acc: PyTree) -> Any: ...


def check_reducers(reducers: Mapping[str, Any], q: Numbers, p: Numbers, t: Real) -> None:
    """Raise unless every reduction has the three functions and can begin with this state."""
    for name, reducer in reducers.items():
        if not all(hasattr(reducer, part) for part in PARTS):
            raise InputError(
                f"reduce[{name!r}] must be Mean, Minimum, Maximum or FirstPassage of a function, or have init, update "
                "and result"
            )
        with user_function_errors(
            f"reduction {name!r}", q, "(q, p, t)" if getattr(reducer, "takes_time", True) else "(q, p)"
        ):
            jax.eval_shape(reducer.init, q, p, jnp.asarray(t, q.dtype))


class UserReducer(eqx.Module):
    """A user's reduction as three functions, each of which is traced again when a run begins."""

    init: Any
    update: Any
    result: Any
    takes_time: bool = eqx.field(static=True)

    @staticmethod
    def of(reducer: Any) -> UserReducer:
        init, update, result = (as_callable(part) for part in (reducer.init, reducer.update, reducer.result))
        return UserReducer(init, update, result, getattr(reducer, "takes_time", True))


def as_reducers(reduce: object) -> dict[str, Any]:
    """Reductions in a form whose functions can be frozen; other arguments pass through, and `check_reducers` raises."""
    if reduce is None:
        return {}
    if not isinstance(reduce, Mapping):
        raise InputError(
            f"reduce must map names to reductions, such as {{'mean': hx.reductions.Mean(fn)}}, not {reduce!r}"
        )
    if "events" in reduce:
        raise InputError("a reduction cannot be called 'events', which names the values of `events=`")
    theirs = {
        name: type(x).__module__ != __name__ and all(hasattr(x, part) for part in PARTS) for name, x in reduce.items()
    }
    return {name: UserReducer.of(x) if theirs[name] else x for name, x in reduce.items()}


class Mean(AbstractReducer):
    """The mean of `fn(q, p)` over the steps, the start excluded."""

    fn: _Timed = eqx.field(converter=as_observable)

    def init(self, q: Numbers, p: Numbers, t: Real) -> Any:
        return jnp.zeros_like(jnp.asarray(self.fn(q, p, t))), jnp.asarray(0.0)

    def update(self, acc: PyTree, q: Numbers, p: Numbers, t: Real) -> Any:
        return acc[0] + self.fn(q, p, t), acc[1] + 1.0

    def result(self, acc: PyTree) -> Any:
        return acc[0] / jnp.maximum(acc[1], 1.0).reshape(acc[1].shape + (1,) * (acc[0].ndim - acc[1].ndim))


class Minimum(AbstractReducer):
    """The smallest value of `fn(q, p)`, the start included."""

    fn: _Timed = eqx.field(converter=as_observable)

    def init(self, q: Numbers, p: Numbers, t: Real) -> Any:
        return jnp.asarray(self.fn(q, p, t))

    def update(self, acc: PyTree, q: Numbers, p: Numbers, t: Real) -> Any:
        return jnp.minimum(acc, self.fn(q, p, t))

    def result(self, acc: PyTree) -> Any:
        return acc


class Maximum(AbstractReducer):
    """The largest value of `fn(q, p)`, the start included."""

    fn: _Timed = eqx.field(converter=as_observable)

    def init(self, q: Numbers, p: Numbers, t: Real) -> Any:
        return jnp.asarray(self.fn(q, p, t))

    def update(self, acc: PyTree, q: Numbers, p: Numbers, t: Real) -> Any:
        return jnp.maximum(acc, self.fn(q, p, t))

    def result(self, acc: PyTree) -> Any:
        return acc


class FirstPassage(AbstractReducer):
    """The time of the first step over which `fn(q, p)` changes sign; infinity if it never does."""

    fn: _Timed = eqx.field(converter=as_observable)

    def init(self, q: Numbers, p: Numbers, t: Real) -> Any:
        return jnp.asarray(self.fn(q, p, t)), jnp.asarray(jnp.inf, q.dtype)

    def update(self, acc: PyTree, q: Numbers, p: Numbers, t: Real) -> Any:
        before, first = acc
        now = self.fn(q, p, t)
        crossed = jnp.isinf(first) & (before * now < 0)
        return jnp.where(now == 0, before, now), jnp.where(crossed, t, first)

    def result(self, acc: PyTree) -> Any:
        return acc[1]
