"""Constraints that depend on time, and the Jacobian of a constraint.

The Jacobian of plain functions is a dense (m, n) matrix over the flattened coordinates (`DenseJacobian`); that of terms
with a known coupling is a `gram.StructuredJacobian`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..core.checks import check_name
from ..core.types import Function, Numbers
from ..linalg.scales import particle_sizes, row_sizes
from ..linalg.small import Dense, small_product
from ..trace.functions import as_callable
from .mass import AbstractMass
from .names import Name


class Rheonomic(eqx.Module):
    """A constraint `g(q, t) = 0` that depends on time: `Rheonomic(lambda q, t: ...)` (or `(q, t, params)`)."""

    fn: Any
    name: Name = eqx.field(static=True)

    def __init__(self, fn: Function, name: str | None = None):
        self.fn, self.name = as_callable(fn), check_name("Rheonomic", name)

    def __call__(self, *args: PyTree) -> Any:
        return self.fn(*args)


class AbstractJacobian(eqx.Module):
    """`G(q)`; how it is stored depends on the constraints. The field `shape` is that of q."""

    @abc.abstractmethod
    def __call__(self, v: Numbers) -> Any:
        """`G v`."""

    @abc.abstractmethod
    def transpose(self, multipliers: Numbers) -> Any:
        """`G^T lambda` in the shape of q."""

    @abc.abstractmethod
    def row_sizes(self, q: Numbers, weights: Numbers | None = None) -> Any:
        """`sum_j |G_ij| |q_j|`: the natural scale of each row of g (`linalg.scales`)."""

    @abc.abstractmethod
    def row_products(self, mass: AbstractMass, q: Numbers, other: Any) -> Any:
        """`G_i M^-1 H_i^T` for each row, with the rows H_i of another Jacobian of the same class."""

    @abc.abstractmethod
    def reach(self, mass: AbstractMass, q: Numbers, multipliers: Numbers) -> Any:
        """`|G M^-1|^T |lambda|`, flat: the size of a constraint force whose parts may cancel, as accelerations."""

    @abc.abstractmethod
    def gram(self, mass: AbstractMass, q: Numbers, other: Any) -> Any:
        """`G M^-1 H^T` with another Jacobian H of the same class, in a form with `.factor(symmetric)`."""

    def on_manifold(self, mass: AbstractMass, q: Numbers) -> Any:
        """`G M^-1 G^T` at a point q of the manifold, where rows of rigid bodies are orthogonal."""
        return self.gram(mass, q, self)

    @abc.abstractmethod
    def todense(self) -> Any:
        """`G` as a matrix over the flattened coordinates."""


class DenseJacobian(AbstractJacobian):
    """`G(q)` as a matrix over the flattened coordinates."""

    matrix: Any
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, v: Numbers) -> Any:
        return small_product(v.reshape(1, -1), self.matrix)[0]

    def transpose(self, multipliers: Numbers) -> Any:
        return small_product(multipliers[None], self.matrix.T)[0].reshape(self.shape)

    def row_sizes(self, q: Numbers, weights: Numbers | None = None) -> Any:
        return row_sizes(self.matrix, particle_sizes(q, weights).reshape(-1))

    def row_products(self, mass: AbstractMass, q: Numbers, other: DenseJacobian) -> Any:
        return jnp.sum(mass.right(q, self.matrix) * other.matrix, axis=1)

    def reach(self, mass: AbstractMass, q: Numbers, multipliers: Numbers) -> Any:
        return jnp.sum(jnp.abs(mass.right(q, self.matrix)) * jnp.abs(multipliers)[:, None], axis=0)

    def gram(self, mass: AbstractMass, q: Numbers, other: DenseJacobian) -> Dense:
        return Dense(small_product(mass.right(q, self.matrix), other.matrix))

    def todense(self) -> Any:
        return self.matrix


def dense_jacobian(g: Callable[[Any], Any], q: Numbers, m: int) -> DenseJacobian:
    """The Jacobian of `g` at q by reverse mode (or forward mode where there are more constraints than coordinates)."""
    transform = jax.jacrev if m <= q.size else jax.jacfwd
    return DenseJacobian(transform(g)(q).reshape(m, q.size), q.shape)
