"""Constraints and potentials that know which particles they touch.

Particles are the entries of the first axis of q. From the index lists the library finds the structure of the matrix
`G M^-1 G^T` and solves with it in linear time (`systems.coupling`).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError, ShapeError
from ..linalg.indexing import Indices, take
from .functions import as_callable

__all__ = ["AbstractLocal", "Distance", "Local"]


class AbstractLocal(eqx.Module):
    """A constraint made of equal blocks: block e takes the particles `indices[e]` and gives a few rows.

    The index -1 stands for the first fixed point in `anchors` (the origin when none are given), -2 for the second.
    """

    indices: eqx.AbstractVar[Indices]
    anchors: eqx.AbstractVar[Any]

    def values(self, x: Any, *extra: Any) -> Any:
        """The rows of all blocks, `(blocks, rows)`, from the particles `x` of shape `(blocks, particles, ...)`."""
        raise NotImplementedError

    def slopes(self, x: Any, *extra: Any) -> Any:
        """Their derivatives, `(blocks, rows, particles, ...)`."""
        raise NotImplementedError

    def gather(self, q: Any) -> Any:
        """The particles of each block, `(blocks, particles, ...)`."""
        index = self.indices.array
        fixed = -min(0, int(index.min()))
        if fixed:
            anchors = jnp.zeros((1,) + q.shape[1:], q.dtype) if self.anchors is None else self.anchors[::-1]
            # the fixed points come first, the last one foremost: then -1, 0, 1, ... is a plain range
            q = jnp.concatenate([anchors[anchors.shape[0] - fixed :].astype(q.dtype), q])
        return jnp.stack([take(q, index[:, s] + fixed) for s in range(index.shape[1])], axis=1)

    def __call__(self, q: Any, *extra: Any) -> Any:
        return self.values(self.gather(q), *extra).reshape(-1)

    def jacobian(self, q: Any, *extra: Any) -> Any:
        """`(blocks, rows, particles, coordinates)`."""
        slopes = self.slopes(self.gather(q), *extra)
        return slopes.reshape(slopes.shape[:3] + (-1,))

    def rows_per_block(self, q: Any, *extra: Any) -> int:
        return jax.eval_shape(lambda x: self.values(self.gather(x), *extra), q).shape[1]

    def check(self, q: Any) -> None:
        """Raise when an index has no particle or fixed point."""
        index = self.indices.array
        if np.ndim(q) == 0 or index.max(initial=-1) >= np.shape(q)[0]:
            raise InputError(f"{type(self).__name__} refers to particle {int(index.max())}; q has shape {np.shape(q)}")
        if self.anchors is not None and tuple(self.anchors.shape[1:]) != tuple(np.shape(q)[1:]):
            raise ShapeError(
                f"anchors have shape {self.anchors.shape}; each must be shaped like a particle, {np.shape(q)[1:]}"
            )


def _index_list(name: str, indices: Any, anchors: Any) -> Indices:
    array = np.asarray(indices)
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

    `lengths` is one number or one for each pair, or a function of the system's params that gives them. A pair with -1 is
    a distance to a fixed point: the origin, or `anchors[0]`; -2 is `anchors[1]`, and so on.
    """

    indices: Indices = eqx.field(static=True)
    lengths: Any
    anchors: Any

    def __init__(self, pairs: Any, lengths: Any = 1.0, anchors: Any = None):
        self.anchors = None if anchors is None else jnp.atleast_2d(jnp.asarray(anchors, jnp.result_type(float)))
        self.indices = _index_list("Distance", pairs, self.anchors)
        shape = self.indices.array.shape
        if shape[1] != 2:
            raise ShapeError(f"Distance needs pairs of particles, shape (n, 2); it got {shape}")
        if (self.indices.array[:, 0] == self.indices.array[:, 1]).any():
            raise InputError("Distance got a pair of a particle with itself")
        if callable(lengths):
            self.lengths = as_callable(lengths)
            return
        self.lengths = jnp.asarray(lengths, jnp.result_type(float))
        if self.lengths.ndim and self.lengths.shape != (shape[0],):
            raise ShapeError(f"Distance has {shape[0]} pairs but lengths of shape {self.lengths.shape}")
        if not isinstance(self.lengths, jax.core.Tracer) and not bool(jnp.all(self.lengths > 0)):
            raise InputError(f"lengths must be positive; the smallest is {float(jnp.min(self.lengths)):g}")

    def values(self, x: Any, *extra: Any) -> Any:
        lengths = self.lengths(*extra) if callable(self.lengths) else self.lengths
        apart = (x[:, 0] - x[:, 1]).reshape(x.shape[0], -1)
        return (jnp.sum(apart**2, axis=1) - lengths**2)[:, None]

    def slopes(self, x: Any, *extra: Any) -> Any:
        twice = 2.0 * (x[:, 0] - x[:, 1])
        return jnp.stack([twice, -twice], axis=1)[:, None]


class Local(AbstractLocal):
    """A constraint on a few particles, repeated: `Local(fn, indices)` demands `fn(q[indices[e]]) = 0` for every e.

    `fn(x)` takes the particles of one block, shape `(particles, ...)`, and returns its rows (a number or a 1-D array).
    With `data` (arrays whose first axis counts blocks) it is called as `fn(x, data_e)`; where the system has params they
    come last. Negative indices stand for fixed points, as in `Distance`.
    """

    indices: Indices = eqx.field(static=True)
    fn: Any
    data: Any
    anchors: Any

    def __init__(self, fn: Any, indices: Any, data: Any = None, anchors: Any = None):
        if not callable(fn):
            raise InputError(f"Local needs a function of a few particles, not {type(fn).__name__}")
        self.anchors = None if anchors is None else jnp.asarray(anchors, jnp.result_type(float))
        self.indices = _index_list("Local", indices, self.anchors)
        self.fn = as_callable(fn)
        self.data = None if data is None else jax.tree.map(jnp.asarray, data)

    def _rows(self, x: Any, data: Any, extra: Any) -> Any:
        return jnp.atleast_1d(self.fn(x, *(() if self.data is None else (data,)), *extra))

    def values(self, x: Any, *extra: Any) -> Any:
        return jax.vmap(self._rows, in_axes=(0, 0, None))(x, self.data, extra)

    def slopes(self, x: Any, *extra: Any) -> Any:
        rows = jax.eval_shape(lambda y: self.values(y, *extra), x).shape[1]
        transform = jax.jacrev if rows <= x[0].size else jax.jacfwd
        return jax.vmap(transform(self._rows), in_axes=(0, 0, None))(x, self.data, extra)
