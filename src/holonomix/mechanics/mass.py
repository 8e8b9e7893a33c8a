"""The mass: scalar, one number per coordinate, one matrix per particle, a constant matrix, or a function of q.

Each structure is a class; `as_mass` chooses one by shapes. The structure is static, its values are runtime data.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..core.checks import is_traced
from ..core.errors import InputError, ShapeError
from ..core.types import Array, ArrayLike, Function, Numbers, Real, known_array
from ..linalg import Dense, root
from ..trace.indexing import take

if TYPE_CHECKING:
    MassLike: TypeAlias = ArrayLike | Function | "AbstractMass"
else:
    MassLike = object  # checked by `as_mass`


class AbstractMass(eqx.Module):
    """`velocity` is M^-1 p, `momentum` is M v, both in the shape of q."""

    @abc.abstractmethod
    def velocity(self, q: Numbers, p: Numbers) -> Any: ...

    @abc.abstractmethod
    def momentum(self, q: Numbers, v: Numbers) -> Any: ...

    @abc.abstractmethod
    def root(self, q: Numbers, xi: Numbers, temperature: Real = 1.0) -> Any:
        """`L xi` with `L L^T = kT M`: a standard normal `xi` becomes a momentum of the given temperature kT."""

    @abc.abstractmethod
    def right(self, q: Numbers, rows: Numbers) -> Any:
        """`rows M^-1` for a matrix whose rows are flat covectors."""

    @abc.abstractmethod
    def diagonal(self, q: Numbers) -> Any:
        """The diagonal of M in the shape of q, or one number where all are equal."""

    @abc.abstractmethod
    def matrix_at(self, q: Numbers) -> Any:
        """M over the flattened q."""

    @abc.abstractmethod
    def check(self, q: Numbers) -> None:
        """Raise unless the mass is finite, symmetric and positive definite at q."""

    def weights(self, q: Numbers) -> Any:
        """The roots of the diagonal, which give displacements in all coordinates the same units; 1 if all are equal."""
        diagonal = self.diagonal(q)
        return jnp.ones((), q.dtype) if jnp.ndim(diagonal) == 0 else jnp.sqrt(diagonal)


class AbstractParticleMass(AbstractMass):
    """A mass that couples no two particles (entries of the first axis of q)."""

    @abc.abstractmethod
    def right_local(self, slopes: Numbers, index: np.ndarray, shape: tuple[int, ...]) -> Any:
        """Rows `(rows, coordinates, blocks)` times M^-1, where `index[block]` is the particle (-1: none)."""

    @abc.abstractmethod
    def blocks(self, q: Numbers) -> Any:
        """The matrix of each particle, `(particles, coordinates, coordinates)`."""


class DiagonalMass(AbstractParticleMass):
    """A scalar or one value per coordinate; the reciprocal is computed once, because a step uses it dozens of times."""

    value: Any
    inverse: Any

    def __init__(self, value: Numbers):
        # NumPy's quotient has the same bits, and no program is compiled for it
        known = not is_traced(value)
        with np.errstate(divide="ignore"):  # `check` refuses a mass of zero
            self.value, self.inverse = value, known_array(1.0 / np.asarray(value)) if known else 1.0 / value

    def velocity(self, q: Numbers, p: Numbers) -> Any:
        return p * self.inverse

    def momentum(self, q: Numbers, v: Numbers) -> Any:
        return v * self.value

    def root(self, q: Numbers, xi: Numbers, temperature: Real = 1.0) -> Any:
        # a single root of the product, a squared momentum: the same bits in all units
        return _square_root(self.value * temperature) * xi

    def right(self, q: Numbers, rows: Numbers) -> Any:
        if jnp.ndim(self.inverse) == 0:
            return rows * self.inverse
        return rows * jnp.broadcast_to(self.inverse, q.shape).reshape(-1)

    def diagonal(self, q: Numbers) -> Any:
        return self.value

    def matrix_at(self, q: Numbers) -> Any:
        return jnp.diag(jnp.broadcast_to(self.value, q.shape).reshape(-1))

    def check(self, q: Numbers) -> None:
        value = np.asarray(self.value)
        if not np.all(value > 0) or not np.all(np.isfinite(value)):
            worst = float(value.reshape(-1)[np.argmin(np.where(np.isnan(value), -np.inf, value))])
            raise InputError(f"mass must be positive and finite everywhere; its smallest entry is {worst:g}")

    def blocks(self, q: Numbers) -> Any:
        n = q.shape[0]
        d = q.size // n
        return jnp.broadcast_to(self.value, q.shape).reshape(n, d)[:, :, None] * jnp.eye(d, dtype=q.dtype)

    def right_local(self, slopes: Numbers, index: np.ndarray, shape: tuple[int, ...]) -> Any:
        if jnp.ndim(self.value) == 0:
            return slopes / self.value
        inverse = 1.0 / jnp.broadcast_to(self.value, shape).reshape(shape[0], -1)
        return slopes * take(inverse.T, index)[None]


class DenseMass(AbstractMass):
    """A constant symmetric positive definite matrix with its inverse."""

    matrix: Any
    inverse: Any

    def velocity(self, q: Numbers, p: Numbers) -> Any:
        return (self.inverse @ p.reshape(-1)).reshape(p.shape)

    def momentum(self, q: Numbers, v: Numbers) -> Any:
        return (self.matrix @ v.reshape(-1)).reshape(v.shape)

    def root(self, q: Numbers, xi: Numbers, temperature: Real = 1.0) -> Any:
        return _square_root(temperature) * (root(self.matrix) @ xi.reshape(-1)).reshape(xi.shape)

    def right(self, q: Numbers, rows: Numbers) -> Any:
        return rows @ self.inverse

    def diagonal(self, q: Numbers) -> Any:
        return jnp.diagonal(self.matrix).reshape(q.shape)

    def matrix_at(self, q: Numbers) -> Any:
        return self.matrix

    def check(self, q: Numbers) -> None:
        _check_matrix(check_shape(self.matrix, q))


class BlockMass(AbstractParticleMass):
    """One symmetric positive definite matrix per particle: `BlockMass(matrix)` of shape (d, d) or (particles, d, d).

    d is the number of coordinates of a particle, an entry of the first axis of q.
    """

    matrix: Any
    inverse: Any

    def __init__(self, matrix: Numbers, inverse: Numbers | None = None):
        self.matrix = jnp.asarray(matrix, jnp.result_type(float))
        self.inverse = jnp.linalg.inv(self.matrix) if inverse is None else inverse

    def _times(self, matrix: Numbers, x: Numbers) -> Any:
        flat = x.reshape(x.shape[0], -1)
        if matrix.ndim == 2:
            return (flat @ matrix.T).reshape(x.shape)
        return jnp.einsum("nij,nj->ni", matrix, flat).reshape(x.shape)

    def velocity(self, q: Numbers, p: Numbers) -> Any:
        return self._times(self.inverse, p)

    def momentum(self, q: Numbers, v: Numbers) -> Any:
        return self._times(self.matrix, v)

    def root(self, q: Numbers, xi: Numbers, temperature: Real = 1.0) -> Any:
        lower = root(self.matrix) if self.matrix.ndim == 2 else jax.vmap(root)(self.matrix)
        return _square_root(temperature) * self._times(lower, xi)

    def right(self, q: Numbers, rows: Numbers) -> Any:
        return jax.vmap(lambda row: self.velocity(q, row.reshape(q.shape)).reshape(-1))(rows)

    def diagonal(self, q: Numbers) -> Any:
        diagonal = jnp.diagonal(self.matrix, axis1=-2, axis2=-1)
        return jnp.broadcast_to(diagonal, (q.shape[0], diagonal.shape[-1])).reshape(q.shape)

    def right_local(self, slopes: Numbers, index: np.ndarray, shape: tuple[int, ...]) -> Any:
        inverse = self.inverse[..., None] if self.inverse.ndim == 2 else take(jnp.moveaxis(self.inverse, 0, -1), index)
        return jnp.sum(slopes[:, :, None] * inverse, axis=1)

    def blocks(self, q: Numbers) -> Any:
        return jnp.broadcast_to(self.matrix, (q.shape[0], *self.matrix.shape[-2:]))

    def matrix_at(self, q: Numbers) -> Any:
        return jax.scipy.linalg.block_diag(*self.blocks(q))

    def check(self, q: Numbers) -> None:
        d = int(np.prod(np.shape(q)[1:]))
        if self.matrix.shape not in ((d, d), (np.shape(q)[0], d, d)):
            raise ShapeError(
                f"BlockMass has shape {self.matrix.shape}; a particle of q {np.shape(q)} has {d} coordinates"
            )
        if float(jnp.min(jnp.linalg.eigvalsh(self.matrix))) <= 0:
            raise InputError("a mass matrix of BlockMass is not positive definite")


class PositionMass(AbstractMass):
    """`M(q)` from a user's function."""

    fn: Any

    def at(self, q: Numbers) -> AbstractMass:
        """The mass at q as another class if the function returns a diagonal or blocks; itself for a matrix."""
        found = jax.eval_shape(self.fn, q)
        matrix = not isinstance(found, AbstractMass) and getattr(found, "shape", None) in (None, (q.size, q.size))
        return self if matrix else as_mass(self.fn(q), q)

    def matrix_at(self, q: Numbers) -> Any:
        return self.fn(q)

    def velocity(self, q: Numbers, p: Numbers) -> Any:
        return Dense(self.fn(q)).factor(symmetric=True).solve(p.reshape(-1)).reshape(p.shape)

    def momentum(self, q: Numbers, v: Numbers) -> Any:
        return (self.fn(q) @ v.reshape(-1)).reshape(v.shape)

    def root(self, q: Numbers, xi: Numbers, temperature: Real = 1.0) -> Any:
        return _square_root(temperature) * (root(self.fn(q)) @ xi.reshape(-1)).reshape(xi.shape)

    def right(self, q: Numbers, rows: Numbers) -> Any:
        factor = Dense(self.fn(q)).factor(symmetric=True)
        return jax.vmap(factor.solve)(rows)

    def diagonal(self, q: Numbers) -> Any:
        return jnp.diagonal(self.fn(q)).reshape(q.shape)

    def check(self, q: Numbers) -> None:
        _check_matrix(check_shape(self.matrix_at(q), q))


class BoundMass(eqx.Module):
    """`M(q, params)` as a function of q."""

    fn: Callable[..., Any]
    params: Any

    def __call__(self, q: Numbers) -> Any:
        return self.fn(q, self.params)


class ParameterMass(eqx.Module):
    """A constant mass that is computed from the system's params: a number, an array or a matrix."""

    fn: Callable[..., Any]

    def __call__(self, params: PyTree) -> Any:
        return self.fn(params)


def as_mass(mass: MassLike, q: Numbers) -> AbstractMass:
    """The mass as the class that its shape determines, given the shape of q."""
    if isinstance(mass, AbstractMass):
        return mass
    if callable(mass):
        return PositionMass(mass)
    value = known_array(mass)
    shape, size = jnp.shape(q), int(np.prod(jnp.shape(q)))
    if value.ndim == 0 or value.shape == shape:
        return DiagonalMass(value)
    if value.shape == (size, size):
        return DenseMass(value, _inverse(value))
    if value.ndim == len(shape) and all(a in (1, b) for a, b in zip(value.shape, shape, strict=True)):
        return DiagonalMass(jnp.broadcast_to(value, shape))
    if len(shape) > 1 and value.shape == shape[:1]:  # one for each particle
        return DiagonalMass(jnp.broadcast_to(value.reshape(-1, *(1,) * (len(shape) - 1)), shape))
    raise ShapeError(
        f"mass has shape {value.shape}, but q has shape {shape}: give a scalar, an array of shape {shape}, one number "
        f"for each particle (shape {shape[:1]}), one that broadcasts to q with as many axes, a matrix of shape "
        f"{(size, size)}, or a function q -> matrix"
    )


def _square_root(x: Numbers | Real) -> Any:
    """The square root, with derivative zero at zero: without friction there is no noise."""
    none = x == 0
    return jnp.where(none, 0.0, jnp.sqrt(jnp.where(none, 1.0, x)))


def _inverse(matrix: Numbers) -> Any:
    factor = Dense(matrix).factor(symmetric=True)
    return jax.vmap(factor.solve, in_axes=1, out_axes=1)(jnp.eye(matrix.shape[0], dtype=matrix.dtype))


def check_shape(matrix: Numbers, q: Numbers) -> Array:
    """A mass matrix as an array; raises unless its shape fits q."""
    matrix, size = jnp.asarray(matrix), int(np.prod(np.shape(q)))
    if matrix.shape != (size, size):
        raise ShapeError(
            f"the mass matrix has shape {matrix.shape}; q has {size} coordinates, so {(size, size)} is needed"
        )
    return matrix


def _check_matrix(given: Numbers) -> None:
    """Raise unless a mass matrix is finite, symmetric and positive definite."""
    matrix = np.asarray(given)
    if not np.all(np.isfinite(matrix)):
        raise InputError("the mass matrix has entries that are not finite")
    skew = float(np.max(np.abs(matrix - matrix.T)))
    if skew > 1e-10 * float(np.max(np.abs(matrix))):
        raise InputError(f"the mass matrix must be symmetric; it differs from its transpose by {skew:.2g}")
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest <= 0:
        raise InputError(f"the mass matrix must be positive definite; its smallest eigenvalue is {smallest:g}")
