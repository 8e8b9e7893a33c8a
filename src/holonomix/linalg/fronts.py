"""Sparse matrices that compiled multifrontal elimination solves with, on a CPU (`multifrontal`)."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ..core.types import Numbers
from .multifrontal import Plan, available, factor, plan_of, shortest, solution
from .multifrontal.plan import BLOCK


def fronts_available(dtype: DTypeLike | None = None) -> bool:
    """Whether this process computes on a CPU, in double precision, and can make machine code."""
    double = jnp.result_type(float) == jnp.float64 if dtype is None else dtype == jnp.float64
    return double and jax.default_backend() == "cpu" and available()


class FrontFactor(eqx.Module):
    """Factors of a `FrontMatrix`."""

    entries: Any
    factors: Any
    plan: Plan = eqx.field(static=True)
    redundant: bool = eqx.field(static=True)

    @property
    def pivot(self) -> Any:
        """The smallest pivot relative to its diagonal entry; one where dependent rows are accepted."""
        return jnp.ones((), self.factors.dtype) if self.redundant else self.factors[0]

    @property
    def smallest_inverse(self) -> Any:
        """The smallest inverse of a pivot: positive where a symmetric matrix is positive definite."""
        return jnp.min(self.factors[BLOCK : BLOCK + self.plan.n])

    def solve(self, b: Numbers) -> Any:
        one = lambda b: solution(self.plan, self.entries, self.factors, b.astype(self.factors.dtype)).astype(b.dtype)
        return one(b) if b.ndim == 1 else jax.vmap(one, in_axes=1, out_axes=1)(b)

    def shortest(self, x: Numbers) -> Any:
        """The solution of least norm with the same product."""
        return shortest(self.plan, self.entries, self.factors, x)


class FrontMatrix(eqx.Module):
    """The vector of entries that a plan asks for."""

    entries: Any
    plan: Plan = eqx.field(static=True)

    def factor(self, symmetric: bool = False) -> FrontFactor:
        return FrontFactor(self.entries, factor(self.plan, self.entries, symmetric), self.plan, False)

    def factor_redundant(self, symmetric: bool = False) -> FrontFactor:
        """Factors that skip rows which depend on others."""
        from .redundant import dependent

        factors = factor(self.plan, self.entries, symmetric, dependent(self.entries.dtype))
        return FrontFactor(self.entries, factors, self.plan, True)

    def todense(self) -> Any:
        row, column, source = self.plan.places
        return jnp.zeros((self.plan.n,) * 2, self.entries.dtype).at[row, column].set(self.entries[source])


def dense_fronts(matrix: Numbers) -> FrontMatrix:
    """A full matrix as one front."""
    return FrontMatrix(matrix.reshape(-1), _full_plan(matrix.shape[0]))


@functools.lru_cache(maxsize=64)
def _full_plan(n: int) -> Plan:
    i, j = np.divmod(np.arange(n * n), n)
    return plan_of(i, j, np.arange(n)[:, None])


def pair_keys(i: np.ndarray, j: np.ndarray, n: int) -> np.ndarray:
    """`i n + j` of all edges and loops of a graph, sorted."""
    return np.unique(np.concatenate([i * n + j, np.arange(n) * (n + 1)]))
