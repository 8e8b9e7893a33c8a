"""Functions that are written for JAX, and their derivatives, evaluated by NumPy.

Functions that are evaluated a few times only, such as the rows of a mechanism during assembly, are not compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ...core.types import Numbers
from ...trace.stepwise import evaluate

MAX_BLOCKS = 4096  # that are evaluated at once, so that intermediate results stay small
MAX_FORWARD = 9  # coordinates for which forward mode is as fast; it makes fewer operations that NumPy does not have


def values(fn: Callable[..., Any], x: np.ndarray, **data: np.ndarray) -> np.ndarray:
    """The number `fn(x, data)` of every block, for x `(blocks, points, dim)` and data with an entry for each block.

    Equal functions share a program if their data have equal shapes.
    """
    return _evaluated(fn, False, x, data)[0]


def values_and_slopes(fn: Callable[..., Any], x: np.ndarray, **data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of every block, and its derivatives with respect to the points of the block."""
    value, slopes = _evaluated(fn, True, x, data)
    return value, slopes


def _evaluated(fn: Callable[..., Any], slopes: bool, x: np.ndarray, data: dict[str, np.ndarray]) -> list[np.ndarray]:
    if len(x) > MAX_BLOCKS:
        cut = lambda value, k: value[k : k + MAX_BLOCKS]
        starts = range(0, len(x), MAX_BLOCKS)
        parts = [_evaluated(fn, slopes, cut(x, k), {name: cut(y, k) for name, y in data.items()}) for k in starts]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]
    shapes = tuple((name, np.shape(value)) for name, value in data.items())
    return evaluate(_traced(fn, slopes, x.shape, shapes), [x, *data.values()])


@functools.lru_cache(maxsize=256)
def _traced(
    fn: Callable[..., Any], slopes: bool, shape: tuple[int, ...], shapes: tuple[tuple[str, tuple[int, ...]], ...]
) -> Any:
    names = [name for name, _ in shapes]
    one = lambda x, *given: fn(x, dict(zip(names, given, strict=True)))
    like = [jax.ShapeDtypeStruct(s, np.dtype(float)) for s in (shape, *(s for _, s in shapes))]
    both = jax.value_and_grad(one) if slopes else one
    if slopes and shape[1] * shape[2] <= MAX_FORWARD:
        basis = np.eye(shape[1] * shape[2]).reshape(-1, *shape[1:])

        def both(x: Numbers, *given: Numbers) -> Any:
            along = lambda v: jax.jvp(lambda y: one(y, *given), (x,), (v,))
            value, found = jax.vmap(along, out_axes=(None, 0))(basis)
            return value, found.reshape(shape[1:])

    return jax.make_jaxpr(jax.vmap(both))(*like)
