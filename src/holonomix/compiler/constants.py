"""Primitives of known arrays, computed at once: with NumPy where that is exact, else by JAX.

JAX compiles a program for each operation and shape; a step on a long axis has hundreds of them, most in the arithmetic
of its indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .rules_indexing import gathered
from .trace import Params

Values = list[np.ndarray]

_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "sqrt": np.sqrt, "copy": np.array,
}  # fmt: skip


def _broadcast(p: Params, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(p.shape)
    for i, d in enumerate(p.broadcast_dimensions):
        shape[d] = x.shape[i]
    return np.broadcast_to(x.reshape(shape), p.shape)


def _slice(p: Params, x: np.ndarray) -> np.ndarray:
    return x[tuple(map(slice, p.start_indices, p.limit_indices, p.strides or [1] * x.ndim))]


def _gather(p: Params, x: np.ndarray, index: np.ndarray) -> np.ndarray | None:
    fits = p.fill_value is None and str(p.mode).rpartition(".")[2] in ("CLIP", "PROMISE_IN_BOUNDS")
    return gathered(p, x, index, 0) if fits else None


def _convert(p: Params, x: np.ndarray) -> np.ndarray | None:
    """Integers and truth values to anything; rounding of reals is left to JAX."""
    return x.astype(p.new_dtype) if x.dtype.kind in "iub" or p.new_dtype == x.dtype else None


_OTHERS: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda p, *xs: np.concatenate(xs, p.dimension),
    "convert_element_type": _convert,
    "div": lambda p, a, b: np.divide(a, b) if a.dtype.kind == "f" else None,
    "gather": _gather,
    "reshape": lambda p, x: x.reshape(p.outs[0].shape) if p.dimensions is None else None,
    "rev": lambda p, x: np.flip(x, p.dimensions),
    "select_n": lambda p, c, *xs: np.where(c, xs[1], xs[0]) if len(xs) == 2 and c.dtype == bool else None,
    "slice": _slice,
    "squeeze": lambda p, x: x.reshape(p.outs[0].shape),
    "transpose": lambda p, x: np.transpose(x, p.permutation),
}


def computed(p: Params, known: Values) -> Values:
    """The results of a primitive; `p` are the parameters of its equation."""
    out = None
    with np.errstate(all="ignore"):
        if p.name in _ELEMENTWISE:
            out = _ELEMENTWISE[p.name](*known)
        elif p.name in _OTHERS:
            out = _OTHERS[p.name](p, *known)
    if out is not None:
        return [np.asarray(out, p.outs[0].dtype)]
    with jax.ensure_compile_time_eval():
        found = p.primitive.bind(*known, **p.params)
    return [np.asarray(x) for x in (found if p.primitive.multiple_results else [found])]
