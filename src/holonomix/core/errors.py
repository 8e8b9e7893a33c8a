"""Errors and warnings. Every exception that holonomix raises on purpose derives from `HolonomixError`."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from jax import Array

P = ParamSpec("P")
R = TypeVar("R")


class HolonomixError(Exception):
    """The root of all errors of this package."""


class InputError(HolonomixError, ValueError):
    """An argument has a value that cannot be used; the message names it and gives the number."""


class ShapeError(InputError):
    """Arrays whose shapes do not fit together."""


class NonFiniteError(InputError):
    """NaN or infinity in the start or from a user's function."""


class InconsistentStateError(InputError):
    """A start that violates `g(q) = 0` or `G M^-1 p = 0`."""


class ConstraintRankError(InputError):
    """Constraints that are redundant or singular where they are evaluated."""


class MethodError(HolonomixError, TypeError):
    """A method that cannot treat the system it was given."""


class SimulationError(HolonomixError, RuntimeError):
    """A run that stopped before its end.

    `solution` holds everything computed before the failure, `status` says what happened, `step` and `time` where.
    """

    def __init__(
        self, message: str, *, solution: object = None, status: object = None, step: int = -1, time: float = 0.0
    ):
        super().__init__(message)
        self.solution = solution
        self.status = status
        self.step = step
        self.time = time


class ConvergenceError(SimulationError):
    """An iteration inside a step did not converge."""


class DifferentBitsWarning(UserWarning):
    """A run continues in another environment than it began in: its last bits may differ from an uninterrupted run."""


class FailedTrajectoriesWarning(UserWarning):
    """Some trajectories of an ensemble stopped before their end; their later rows are NaN."""


class ResonanceWarning(UserWarning):
    """Fast frequencies cross or nearly satisfy a resonance of second order: the effective system may not be valid."""


MOST_COUNT = 1 << 53  # up to here every whole number is a float


def whole_number(name: str, value: Any, least: int = 1, most: int = MOST_COUNT) -> int:
    """`value` as an int from `least` to `most`; `InputError` for anything else, 2.0 and True included."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is not None and number > most:
        raise InputError(f"{name} must be at most {most}, not {shown(value)}")
    if number is None or number < least:
        kinds = {0: "a whole number that is not negative", 1: "a positive whole number"}
        raise InputError(
            f"{name} must be {kinds.get(least, f'a whole number of at least {least}')}, not {shown(value)}"
        )
    return number


def number(
    name: str,
    value: Any,
    least: float | int = -math.inf,
    most: float | int = math.inf,
    *,
    above: float | int = -math.inf,
) -> float:
    """`value` as a finite float between `least` and `most`, and larger than `above`; `InputError` for anything else."""
    try:
        found = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not (math.isfinite(found) and least <= found <= most and found > above):
        bounds = [f"at least {least:g}"] * (least > -math.inf) + [f"at most {most:g}"] * (most < math.inf)
        bounds += ["positive" if above == 0 else f"above {above:g}"] * (above > -math.inf)
        told = f", {' and '.join(bounds)}" if bounds else ""
        raise InputError(f"{name} must be a finite number{told}, not {shown(value)}")
    return found


def number_list(name: str, values: object) -> tuple[float, ...]:
    """`values` as a tuple of finite floats."""
    if isinstance(values, (str, bytes, dict, set)) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list of numbers, not {shown(values)}")
    try:
        return tuple(number(f"{name}[{k}]", x) for k, x in enumerate(values))
    except TypeError as error:  # an array without an axis
        raise InputError(f"{name} must be a list of numbers, not {shown(values)}") from error


def one_of(name: str, value: object, choices: Collection[str | None]) -> Any:
    """`value`, which must be one of the names in `choices`."""
    if (value is None or isinstance(value, str)) and value in choices:
        return value
    raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {shown(value)}")


def flag(name: str, value: object) -> bool:
    """`value`, which must be True or False."""
    if isinstance(value, bool):
        return value
    raise InputError(f"{name} must be True or False, not {shown(value)}")


def real_array(name: str, value: Any) -> Array:
    """`value` as a JAX array of real floating point numbers; traced values pass."""
    import jax.numpy as jnp
    import numpy as np

    from .types import known_array

    try:
        array = known_array(np.asarray(value) if isinstance(value, float | int) else value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be an array of numbers: {' '.join(str(error).split())[:200]}") from error
    if jnp.iscomplexobj(array):
        raise InputError(f"{name} must be an array of real numbers; it is complex")
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise InputError(f"{name} must be an array of numbers, not of {array.dtype}")
    return jnp.asarray(array, jnp.result_type(float))


def runtime_number(
    name: str, value: Any, least: float | int = -math.inf, most: float | int = math.inf, **bounds: float | int
) -> Any:
    """`number` as a JAX array, which programs take as an input: another value does not compile anew."""
    from jax.core import Tracer

    return real_array(name, value if isinstance(value, Tracer) else number(name, value, least, most, **bounds))


def refusing(make: Callable[P, R]) -> Callable[P, R]:
    """What goes wrong inside of `make` becomes an `InputError` that names it; a call that does not fit stays Python's.

    For functions that build something out of many numbers, after the checks that know more.
    """

    @functools.wraps(make)
    def built(*args: P.args, **options: P.kwargs) -> R:
        try:
            return make(*args, **options)
        except HolonomixError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError) as error:
            inspect.signature(make).bind(*args, **options)
            if type(error).__module__.startswith("jax"):
                raise  # about tracing: JAX says what to do
            reason = " ".join(str(error).split())[:200]
            what = make.__name__
            raise InputError(
                f"{what} cannot be made of these arguments ({type(error).__name__}: {reason}); see help({what})"
            ) from error

    return built


def shown(value: object) -> str:
    """A value in an error message: short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of about {value.bit_length() * 3 // 10} digits"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
