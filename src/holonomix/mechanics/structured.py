"""Constraints with lists of the particles they touch.

Particles are the entries of the first axis of q. The index lists determine the structure of the matrix `G M^-1 G^T`,
which is then solved in linear time (`mechanics.coupling`).
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import check_name, is_traced, real_array, short_repr
from ..core.errors import InputError, ShapeError
from ..core.types import ArrayLike, Function, Numbers, known_array
from ..trace.functions import as_callable
from ..trace.indexing import Indices, run_of, take
from .names import Name

MAX_PERIOD = 16


class AbstractLocal(eqx.Module):
    """A constraint made of equal blocks: block e maps the particles `indices[e]` to a few rows.

    The index -1 denotes the first fixed point in `anchors` (the origin if there are none), -2 the second. Internally,
    blocks lie along the last axis (lanes). A list that repeats after `period` blocks, such as that of many equal
    molecules, is read as `period` interleaved lists (`parts`), each of which is a plain range.
    """

    indices: eqx.AbstractVar[Indices]
    anchors: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def lane_values(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> Any:
        """The rows of all blocks, `(rows, blocks)`, from a list of the particles, `(..., blocks)` each."""

    @abc.abstractmethod
    def lane_slopes(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> list[Any]:
        """Their derivatives with respect to each particle, `(rows, ..., blocks)`."""

    @abc.abstractmethod
    def lane_data(self, part: slice, extra: tuple[Any, ...]) -> Any:
        """The data of the blocks of a part."""

    @property
    def period(self) -> int:
        """The number of interleaved parts."""
        return _period(self.indices)

    @property
    def parts(self) -> tuple[slice, ...]:
        return tuple(slice(a, None, self.period) for a in range(self.period))

    def _with_anchors(self, q: Numbers) -> tuple[Any, int]:
        """The fixed points and then the particles along the last axis, and the number of fixed points."""
        lanes = jnp.moveaxis(q, 0, -1)
        fixed = -min(0, int(self.indices.array.min()))
        if fixed == 0:
            return lanes, 0
        if self.anchors is None:
            anchors = jnp.zeros(q.shape[1:] + (1,), q.dtype)
        else:
            anchors = jnp.moveaxis(self.anchors, 0, -1)[..., ::-1][..., -fixed:].astype(q.dtype)
        # fixed points come first, in reverse order, so that -1, 0, 1, ... is a plain range
        return jnp.concatenate([anchors, lanes], axis=-1), fixed

    def _particles(self, q: Numbers, part: slice) -> list[Any]:
        self.check(q)
        extended, fixed = self._with_anchors(q)
        index = self.indices.array[part]
        return [take(extended, index[:, s] + fixed) for s in range(index.shape[1])]

    def __call__(self, q: Numbers, *extra: PyTree) -> Any:
        rows = [self.lane_values(self._particles(q, part), self.lane_data(part, extra), extra) for part in self.parts]
        return interleave(rows)

    def jacobians(self, q: Numbers, *extra: PyTree) -> list[tuple[Any, ...]]:
        """For each part and each of its particles `(rows, coordinates, blocks)`."""
        out = []
        for part in self.parts:
            slopes = self.lane_slopes(self._particles(q, part), self.lane_data(part, extra), extra)
            out.append(tuple(x.reshape(x.shape[0], -1, x.shape[-1]) for x in slopes))
        return out

    def gather(self, q: Numbers) -> Any:
        """The particles of each block, `(blocks, particles, ...)`."""
        return jnp.moveaxis(jnp.stack(self._particles(q, slice(None))), -1, 0)

    def values(self, x: Numbers, *extra: PyTree) -> Any:
        """The rows of all blocks, `(blocks, rows)`, from `gather(q)`."""
        lanes = jnp.moveaxis(x, 0, -1)
        return self.lane_values(list(lanes), self.lane_data(slice(None), extra), extra).T

    def check(self, q: Numbers) -> None:
        """Raise if an index refers to no particle or fixed point."""
        index = self.indices.array
        if np.ndim(q) == 0 or index.max(initial=-1) >= np.shape(q)[0]:
            raise InputError(f"{type(self).__name__} refers to particle {int(index.max())}; q has shape {np.shape(q)}")
        shape = np.shape(q)[1:]
        if self.anchors is not None and tuple(self.anchors.shape[1:]) != tuple(shape):
            raise ShapeError(f"anchors have shape {self.anchors.shape}; each must be shaped like a particle, {shape}")


def interleave(rows: list[Any]) -> Any:
    """Rows `(rows, blocks)` of interleaved parts in their natural order: block by block."""
    if len(rows) == 1:
        return rows[0].reshape(-1) if rows[0].shape[0] == 1 else rows[0].T.reshape(-1)
    return jnp.stack(rows).transpose(2, 0, 1).reshape(-1)


def interleave_terms(parts: Iterable[Any], periods: Iterable[int]) -> list[Any]:
    """The rows of each term in their natural order, from those of all parts; a term has `period` parts."""
    rest = iter(parts)
    return [interleave([next(rest) for _ in range(period)]) for period in periods]


@functools.lru_cache(maxsize=256)
def _period(indices: Indices) -> int:
    """The smallest number of interleaved parts in which every column is a run; one if there is none."""
    table = indices.array - min(0, int(indices.array.min()))
    for period in range(1, MAX_PERIOD + 1):
        if table.shape[0] % period == 0 and (period == 1 or table.shape[0] >= 4 * period):
            columns = (table[a::period, s] for a in range(period) for s in range(table.shape[1]))
            if all(run_of(column) is not None for column in columns):
                return period
    return 1


def _index_list(name: str, indices: ArrayLike, anchors: Numbers | None) -> Indices:
    try:
        array = np.asarray(indices)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{name} needs an integer array (blocks, particles), not {short_repr(indices)}") from error
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ShapeError(f"{name} needs an integer array (blocks, particles); it got {array.dtype} {array.shape}")
    known = 1 if anchors is None else anchors.shape[0]
    if array.min() < -known:
        raise InputError(
            f"{name} refers to fixed point {int(array.min())}, but there {'is' if known == 1 else 'are'} {known}"
        )
    return Indices(array)


class Distance(AbstractLocal):
    """`|q_i - q_j|^2 = L^2` for every pair (i, j): `Distance(pairs, lengths)`.

    `lengths` is one number or one for each pair, or a function of the system's params that gives them. A pair with -1
    is a distance to a fixed point: the origin, or `anchors[0]`; -2 is `anchors[1]`, and so on. `name` (one string, or
    one per pair) identifies it in errors and `sol.constraint_forces()`.
    """

    indices: Indices = eqx.field(static=True)
    lengths: Any
    anchors: Any
    name: Name = eqx.field(static=True)

    def __init__(
        self,
        pairs: ArrayLike,
        lengths: ArrayLike | Function = 1.0,
        anchors: ArrayLike | None = None,
        name: object = None,
    ):
        self.anchors = None if anchors is None else jnp.atleast_2d(real_array("anchors", anchors))
        self.indices = _index_list("Distance", pairs, self.anchors)
        shape = self.indices.array.shape
        self.name = check_name("Distance", name, shape[0])
        if shape[1] != 2:
            raise ShapeError(f"Distance needs pairs of particles, shape (n, 2); it got {shape}")
        if (self.indices.array[:, 0] == self.indices.array[:, 1]).any():
            raise InputError("a pair of Distance joins a particle to itself")
        if callable(lengths):
            self.lengths = as_callable(lengths)
            return
        self.lengths = real_array("lengths", lengths)
        if self.lengths.ndim and self.lengths.shape != (shape[0],):
            raise ShapeError(f"Distance has {shape[0]} pairs but lengths of shape {self.lengths.shape}")
        if not is_traced(self.lengths) and not bool(np.all(np.asarray(self.lengths) > 0)):
            raise InputError(f"lengths must be positive; the smallest is {np.min(np.asarray(self.lengths)):g}")

    def lane_data(self, part: slice, extra: tuple[Any, ...]) -> Any:
        lengths: Any = self.lengths
        lengths = lengths(*extra) if callable(lengths) else lengths
        return lengths[part] if jnp.ndim(lengths) else lengths

    def lane_values(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> Any:
        apart = (x[0] - x[1]).reshape(-1, x[0].shape[-1])
        return (jnp.sum(apart**2, axis=0) - data**2)[None]

    def lane_slopes(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> list[Any]:
        twice = 2.0 * (x[0] - x[1])[None]
        return [twice, -twice]


class Local(AbstractLocal):
    """A repeated constraint on a few particles: `Local(fn, indices)` requires `fn(q[indices[e]]) = 0` for every e.

    `fn(x)` takes the particles of one block, shape `(particles, ...)`, and returns its rows (a number or a 1-D array).
    With `data` (arrays whose first axis counts blocks) it is called as `fn(x, data_e)`; where the system has params
    they come last. Negative indices denote fixed points, and `name` names the term or its blocks, as in `Distance`.
    """

    indices: Indices = eqx.field(static=True)
    fn: Any
    data: Any
    anchors: Any
    name: Name = eqx.field(static=True)

    def __init__(
        self,
        fn: Function,
        indices: ArrayLike,
        data: PyTree = None,
        anchors: ArrayLike | None = None,
        name: object = None,
    ):
        if not callable(fn):
            raise InputError(f"Local needs a function of a few particles, not {type(fn).__name__}")
        self.anchors = None if anchors is None else known_array(anchors, jnp.result_type(float))
        self.indices = _index_list("Local", indices, self.anchors)
        self.name = check_name("Local", name, self.indices.array.shape[0])
        self.fn = as_callable(fn)
        self.data = None if data is None else jax.tree.map(known_array, data)

    def lane_data(self, part: slice, extra: tuple[Any, ...]) -> Any:
        return jax.tree.map(lambda x: x[part], self.data)

    def _rows(self, x: Numbers, data: PyTree, extra: PyTree) -> Any:
        return jnp.atleast_1d(self.fn(x, *(() if self.data is None else (data,)), *extra))

    def lane_values(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> Any:
        return jax.vmap(self._rows, in_axes=(-1, 0, None), out_axes=-1)(jnp.stack(x), data, extra)

    def lane_slopes(self, x: list[Any], data: PyTree, extra: tuple[Any, ...]) -> list[Any]:
        lanes = jnp.stack(x)
        rows = jax.eval_shape(lambda y: self.lane_values(y, data, extra), x).shape[0]
        transform = jax.jacrev if rows <= lanes[..., 0].size else jax.jacfwd
        slopes = jax.vmap(transform(self._rows), in_axes=(-1, 0, None), out_axes=-1)(lanes, data, extra)
        return [slopes[:, s] for s in range(len(x))]
