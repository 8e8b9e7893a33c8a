"""Functions that close over values which JAX is tracing.

`grad(lambda k: run(System(lambda q: k * q @ q)))` hands the System a function with a tracer inside. Implicit
derivatives and compiled loops see only what is passed to them, so the traced values become leaves of the System.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer
from jaxtyping import PyTree


class Closure(eqx.Module):
    """A function whose traced cells and default arguments are leaves; the rest of it is static."""

    fn: types.FunctionType = eqx.field(static=True)
    cells: dict[int, Any]
    defaults: dict[int, Any]

    def __init__(self, fn: types.FunctionType):
        self.fn = fn
        self.cells = _traced(_contents(fn))
        self.defaults = _traced(fn.__defaults__ or ())

    def __call__(self, *args: PyTree) -> Any:
        cells = tuple(
            types.CellType(self.cells[k]) if k in self.cells else cell
            for k, cell in enumerate(self.fn.__closure__ or ())
        )
        defaults = tuple(self.defaults.get(k, x) for k, x in enumerate(self.fn.__defaults__ or ()))
        fn: Any = self.fn
        same = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, defaults, cells)
        same.__kwdefaults__ = fn.__kwdefaults__
        return same(*args)


def closes_over_tracers(x: object) -> bool:
    """Whether a plain function, or a function that it uses, closes over a traced value."""
    return isinstance(x, types.FunctionType) and bool(_traced(_contents(x)) or _traced(x.__defaults__ or ()))


def _contents(fn: types.FunctionType) -> tuple[Any, ...]:
    found = []
    for cell in fn.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # a name that is not set yet
            found.append(None)
    return tuple(found)


def _traced(values: tuple[Any, ...]) -> dict[int, Any]:
    """Those values that contain a tracer, as PyTrees."""
    found = {}
    for k, value in enumerate(values):
        leaf = _as_leaf(value)
        if _has_tracers(leaf):
            found[k] = leaf
    return found


def _has_tracers(tree: PyTree) -> bool:
    try:
        return any(isinstance(x, Tracer) for x in jax.tree.leaves(tree))
    except (TypeError, ValueError):  # not a PyTree: a dictionary whose keys have no order
        return False


def _as_leaf(value: Any) -> Any:
    if closes_over_tracers(value):
        return Closure(value)
    if isinstance(value, functools.partial) and not isinstance(value, jax.tree_util.Partial):
        return jax.tree_util.Partial(value.func, *value.args, **value.keywords)
    return value


def hoisted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` as a `Closure` if it closes over traced values, else `fn`."""
    leaf = _as_leaf(fn)
    return leaf if _has_tracers(leaf) else fn
