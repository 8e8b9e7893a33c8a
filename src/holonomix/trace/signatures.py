"""The arguments with which a user's function is called, determined from those that it requires.

`potential` and `constraint` take `(q)`, or `(q, params)` where the system has params. A potential may also take the
time, `(q, t)` or `(q, t, params)`, and its second argument must be called `t` or `time`: any other name is more likely
a parameter that was not given. Where the system has params, functions that cannot take them are called without.
`force` takes `(q, v, t)` and `mass` takes `(q)`; where the system has params and the function requires one argument
more, params come last. Arguments with defaults do not count.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from ..core.errors import InputError
from .closures import Closure
from .functions import Fixed, as_callable

MAX_WRAPPERS = 100  # wrappers may form a circle
TIME_NAMES = ("t", "time")  # leading and trailing underscores do not count


class TimeDependent(eqx.Module):
    """A potential that depends on time: `TimeDependent(lambda q, t: ...)`, or `(q, t, params)`.

    A plain function that requires these arguments and calls the second one `t` or `time` is recognized without it; a
    callable object with `*args` is not, nor is one that calls the time otherwise.
    """

    fn: Callable[..., Any] = eqx.field(converter=as_callable)

    def __call__(self, *args: PyTree) -> Any:
        return self.fn(*args)


class Parametrized(eqx.Module):
    """A mass or a force whose last argument is the system's params."""

    fn: Callable[..., Any] = eqx.field(converter=as_callable)

    def __call__(self, *args: PyTree) -> Any:
        return self.fn(*args)


class WithoutParams(eqx.Module):
    """A function of a system with params that takes only its first `count` arguments."""

    fn: Callable[..., Any] = eqx.field(converter=as_callable)
    count: int = eqx.field(static=True)

    def __call__(self, *args: PyTree) -> Any:
        return self.fn(*args[: self.count])


def required_arguments(fn: Callable[..., Any]) -> int | None:
    """How many positional arguments `fn` requires; None where it takes any number, or has no signature.

    For a wrapper that takes any number, the function that it wraps counts.
    """
    names = required_names(fn)
    return None if names is None else len(names)


def required_names(fn: Callable[..., Any]) -> list[str] | None:
    """The names of the positional arguments that `fn` requires; None where `required_arguments` is None."""
    inner: Any = fn.fn if isinstance(fn, (Fixed, Closure)) else fn
    for _ in range(MAX_WRAPPERS):
        found = _required(inner)
        inner = getattr(inner, "__wrapped__", None)
        if found is not None or inner is None:
            return found
    return None


def _required(fn: Callable[..., Any]) -> list[str] | None:
    try:
        parameters = inspect.signature(fn, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in positional and p.default is p.empty]


def without_params(fn: Callable[..., Any], count: int) -> Callable[..., Any]:
    """`fn`, marked as `WithoutParams` if it takes exactly `count` arguments and so cannot take params."""
    names = required_names(fn)
    if names is None or len(names) != count:
        return fn
    try:
        inspect.signature(fn.fn if isinstance(fn, (Fixed, Closure)) else fn).bind(*range(count + 1))
    except TypeError:
        return WithoutParams(fn, count)
    except ValueError:  # no signature
        pass
    return fn


def is_time(name: str) -> bool:
    return name.strip("_") in TIME_NAMES


def takes_time(potential: Callable[..., Any], arguments: int) -> bool:
    """Whether a potential requires the time besides its `arguments` (1, or 2 with params).

    Raises an `InputError` if it requires one argument more and the second one is not called `t` or `time`.
    """
    names = required_names(potential)
    if names is None or len(names) != arguments + 1:
        return False
    if is_time(names[1]):
        return True
    given = (
        f"the potential takes ({', '.join(names)}), and the system has {'params' if arguments == 2 else 'no params'}"
    )
    if arguments == 2:
        advice = "with params it is called as (q, params), or as (q, t, params) if its second argument is t or time"
    else:
        advice = (
            f"if {names[1]} is a parameter, give its value: hx.System(..., params={names[1]}); if it is the time, call "
            "it t or time"
        )
    raise InputError(f"{given}: {advice} (hx.mechanics.TimeDependent(fn) takes any name for the time)")


def with_params(fn: Callable[..., Any], count: int, params: PyTree) -> Callable[..., Any]:
    """`fn`, marked as `Parametrized` where it requires more than its `count` arguments and there are params."""
    if params is None or isinstance(fn, Parametrized):
        return fn
    return Parametrized(fn) if required_arguments(fn) == count + 1 else fn
