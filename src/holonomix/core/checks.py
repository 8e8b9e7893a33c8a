"""Checks of arguments: numbers, arrays, choices and names. Each raises an `InputError` that names the argument."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import operator
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard, TypeVar

from .errors import HolonomixError, InputError

if TYPE_CHECKING:
    from jax import Array

    from .types import ArrayLike
else:
    Array = ArrayLike = object

P = ParamSpec("P")
R = TypeVar("R")

MAX_COUNT = 1 << 53  # every whole number up to this one is a float


def whole_number(name: str, value: Any, least: int = 1, most: int = MAX_COUNT) -> int:
    """`value` as an int from `least` to `most`; `InputError` for anything else, 2.0 and True included."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is not None and number > most:
        raise InputError(f"{name} must be at most {most}, not {short_repr(value)}")
    if number is None or number < least:
        kinds = {0: "a whole number that is not negative", 1: "a positive whole number"}
        raise InputError(
            f"{name} must be {kinds.get(least, f'a whole number of at least {least}')}, not {short_repr(value)}"
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
        limits = f", {' and '.join(bounds)}" if bounds else ""
        raise InputError(f"{name} must be a finite number{limits}, not {short_repr(value)}")
    return found


def number_list(name: str, values: object) -> tuple[float, ...]:
    """`values` as a tuple of finite floats."""
    if isinstance(values, (str, bytes, dict, set)) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list of numbers, not {short_repr(values)}")
    try:
        return tuple(number(f"{name}[{k}]", x) for k, x in enumerate(values))
    except TypeError as error:  # an array without an axis
        raise InputError(f"{name} must be a list of numbers, not {short_repr(values)}") from error


def one_of(name: str, value: object, choices: Collection[str | None]) -> Any:
    """`value`, which must be one of the names in `choices`."""
    if (value is None or isinstance(value, str)) and value in choices:
        return value
    raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {short_repr(value)}")


def flag(name: str, value: object) -> bool:
    """`value`, which must be True or False."""
    if isinstance(value, bool):
        return value
    raise InputError(f"{name} must be True or False, not {short_repr(value)}")


def is_plain_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is an int or a float, but not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_traced(*values: object) -> bool:
    """Whether a value is known only symbolically, inside `jit`, `grad` or `vmap`; `values` may be trees."""
    from jax import tree
    from jax.core import Tracer

    return any(isinstance(x, Tracer) for x in tree.leaves(values))


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


def finite_array(name: str, value: ArrayLike) -> Array:
    """`value` as an array without NaN or infinity; traced values pass."""
    import numpy as np

    array = real_array(name, value)
    if not is_traced(array) and not np.all(np.isfinite(np.asarray(array))):
        raise InputError(f"{name} must be finite, not {np.asarray(array)}")
    return array


def positive_array(name: str, value: ArrayLike) -> Array:
    """`value` as an array of positive numbers; traced values pass."""
    import numpy as np

    array = real_array(name, value)
    if not is_traced(array) and not np.all(np.asarray(array) > 0):
        raise InputError(f"{name} must be positive, not {np.asarray(array)}")
    return array


def file_path(name: str, value: object) -> Path:
    """A path that a user gave as a text or a `Path`."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{name} must be a path, a text without NUL or a Path, not {short_repr(value)}")
    return Path(text)


def check_name(what: str, name: object, blocks: int | None = None) -> str | tuple[str, ...] | None:
    """`name` as a string, a tuple with one string for each block, or None."""
    if name is None or (isinstance(name, str) and name):
        return name
    if blocks is not None and isinstance(name, Sequence) and not isinstance(name, str):
        texts = tuple(name)
        if len(texts) == blocks and all(isinstance(x, str) and x for x in texts):
            return texts
        raise InputError(f"{what} has {blocks} blocks; name must be one string or {blocks} strings, not {name!r}")
    raise InputError(f"the name of a {what} must be a string, not {name!r}")


def runtime_number(
    name: str, value: Any, least: float | int = -math.inf, most: float | int = math.inf, **bounds: float | int
) -> Any:
    """`number` as a JAX array, an input of compiled programs: another value does not recompile."""
    return real_array(name, value if is_traced(value) else number(name, value, least, most, **bounds))


def report_input_errors(make: Callable[P, R]) -> Callable[P, R]:
    """Decorate `make` so that errors inside it become an `InputError` that names it.

    A wrong signature still raises TypeError. Meant for functions that build something out of many numbers; more
    specific checks come first.
    """

    @functools.wraps(make)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        try:
            return make(*args, **options)
        except HolonomixError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError) as error:
            inspect.signature(make).bind(*args, **options)
            if type(error).__module__.startswith("jax"):
                raise  # about tracing: JAX explains it
            reason = " ".join(str(error).split())[:200]
            what = make.__name__
            raise InputError(
                f"{what} cannot be made of these arguments ({type(error).__name__}: {reason}); see help({what})"
            ) from error

    return checked


def short_repr(value: object) -> str:
    """`repr(value)` for an error message, at most 80 characters."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of about {value.bit_length() * 3 // 10} digits"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def described(value: Any) -> str:
    """`Name(field=value, ...)` of a dataclass, without fields at their defaults, with the numbers in its arrays."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((f, described(getattr(value, f.name))) for f in dataclasses.fields(value) if f.repr)
        return f"{type(value).__name__}({', '.join(f'{f.name}={text}' for f, text in pairs if text != _default(f))})"
    if isinstance(value, (tuple, list)):
        inside = ", ".join(map(described, value)) if len(value) <= 8 else f"{len(value)} entries"
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if isinstance(value, float):
        return f"{value:.6g}"
    if inspect.isroutine(value):
        return getattr(value, "__name__", repr(value))
    array: Any = value
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        return repr(value)
    if is_traced(array) or array.size > 8:
        return f"{array.dtype}{list(array.shape)}"
    return described(array.tolist())


def _default(field: dataclasses.Field[Any]) -> str | None:
    if field.default_factory is not dataclasses.MISSING:
        return described(field.default_factory())
    return None if field.default is dataclasses.MISSING else described(field.default)
