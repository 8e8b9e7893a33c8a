"""User functions as parts of a System.

A plain function is static: the same function object never causes a second trace. A callable PyTree (an
`equinox.Module`, a `jax.tree_util.Partial`) keeps its arrays as runtime values. Either may take `params`.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import errors as jax_errors
from jaxtyping import PyTree

from ..core.errors import HolonomixError, InputError
from ..core.types import Numbers
from .closures import hoisted

_TRACED = (
    jax_errors.ConcretizationTypeError,
    jax_errors.TracerArrayConversionError,
    jax_errors.TracerBoolConversionError,
    jax_errors.TracerIntegerConversionError,
)
_LIBRARIES = tuple(str(Path(str(module.__file__)).parent) for module in (jax, eqx))
_PACKAGE = str(Path(__file__).parents[1])


class Fixed(eqx.Module):
    """A plain function as a PyTree without leaves."""

    fn: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, *args: PyTree) -> Any:
        return self.fn(*args)


def as_callable(fn: Any) -> Any:
    """`fn` in a form that can be an argument of `jax.jit`."""
    fn = hoisted(fn)
    try:
        leaves = jax.tree.leaves(fn)
    except ValueError:  # a callable PyTree over a dictionary whose keys have no order
        return Fixed(fn.__call__)
    return Fixed(fn) if len(leaves) == 1 and leaves[0] is fn else fn


@contextlib.contextmanager
def user_function_errors(what: str, q: Numbers | np.ndarray, form: str, params: PyTree = None) -> Iterator[None]:
    """Turn an exception of a user's function into an `InputError` that names the function, the line and a remedy.

    `form` is how the function is called, such as "(q)".
    """
    try:
        yield
    except HolonomixError:
        raise
    except Exception as error:
        if isinstance(error, _TRACED):
            reason = "it asks for the value of an array that JAX is still tracing"
            advice = "write it with jax.numpy: jnp.sin, not math.sin or numpy.sin; jnp.where, not if"
        else:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            advice = f"it is called as {form} with q of shape {jax.numpy.shape(q)}{_of_params(params)}"
            if "required positional argument" in reason and "params" not in form:
                advice += f"; a {what} with parameters needs hx.System(..., params=...)"
            if what == "constraint" and "positional argument" in reason:
                advice += (
                    "; a constraint that moves, g(q, t), is given as hx.Rheonomic(g); constraints on velocities "
                    "(rolling, skates) are not treated, see docs/scope.md"
                )
        raise InputError(f"the {what} fails{_place(error)}: {reason}; {advice}") from error


def _of_params(params: PyTree) -> str:
    """How functions find their parameters in a dictionary."""
    if not isinstance(params, Mapping) or not params:
        return ""
    names = [repr(name) for name in params]
    return f" and params a dictionary, such as params[{names[0]}]; its names are {', '.join(names)}"


def _place(error: BaseException) -> str:
    """The last line outside of the libraries, which is the user's own."""
    theirs = (*_LIBRARIES, _PACKAGE)
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(theirs) and "site-packages" not in f.filename]
    return f" in {own[-1].filename}, line {own[-1].lineno}" if own else ""
