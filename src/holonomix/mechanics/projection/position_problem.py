"""The position problem `g(Q - M^-1 G(q)^T Lambda) = 0` as a function of Lambda, for a system or for its islands.

A problem has `zero` (Lambda = 0), `values(Lambda)`, `row_sizes()`, `factor(Lambda)` of `G(Q) M^-1 G(q)^T`,
`start_factor()` of `G(q) M^-1 G(q)^T`, and `natural(Lambda)`, the multipliers in the order of the constraint. Inside an
iteration Lambda and the values are arrays, or lists with one array per part.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from ...core.types import Numbers, Real
from ..abstract import AbstractSystem
from ..islands import IslandConstraint, IslandFactor, IslandJacobian, flatten_classes


class PositionProblem(eqx.Module):
    """Rows in the order of the constraint, positions in the shape of q."""

    system: AbstractSystem
    q: Any
    trial: Any
    t: Any
    t1: Any
    jac: Any

    @property
    def zero(self) -> Any:
        return jnp.zeros(self.system.constraint_count(self.q), self.q.dtype)

    def row_sizes(self) -> Any:
        return self.system.row_sizes(self.q, self.jac, self.trial)

    def here(self, multipliers: Numbers) -> Any:
        return self.trial - self.system.inverse_mass(self.q, self.jac.transpose(multipliers))

    def values(self, multipliers: Numbers) -> Any:
        return self.system.constraint(self.here(multipliers), self.t1)

    def factor(self, multipliers: Numbers) -> Any:
        return self.system.gram(self.q, self.system.linearize(self.here(multipliers), self.t1), self.jac).factor()

    def start_factor(self) -> Any:
        return self.system.gram_on_manifold(self.q, self.jac).factor(symmetric=True)

    @property
    def rigid(self) -> bool:
        """Whether `start_factor` is much cheaper than `factor`, because it eliminates the rows of rigid bodies."""
        return self.system.has_rigid_rows(self.q)

    def natural(self, multipliers: Numbers) -> Any:
        return multipliers


class IslandPositionProblem(eqx.Module):
    """Many small groups of rows side by side; classes of particles stay separate during the iteration."""

    constraint: IslandConstraint
    trial: list[Any]
    jac: IslandJacobian
    weighted: IslandJacobian

    @property
    def zero(self) -> list[Any]:
        return [jnp.zeros_like(slopes[0][:, 0]) for slopes in self.jac.slopes]

    def row_sizes(self) -> list[Any]:
        return self.jac.row_sizes(flatten_classes(self.trial))

    def here(self, multipliers: list[Any]) -> list[Any]:
        pull = self.weighted.transpose(multipliers)
        return [x - dx.reshape(x.shape) for x, dx in zip(self.trial, pull, strict=True)]

    def values(self, multipliers: list[Any]) -> list[Any]:
        return self.constraint.values(self.here(multipliers))

    def factor(self, multipliers: list[Any]) -> IslandFactor:
        return self.constraint.linearize(self.here(multipliers)).factor(self.weighted)

    rigid = False

    def start_factor(self) -> IslandFactor:
        return self.jac.factor(self.weighted, symmetric=True)

    def natural(self, multipliers: list[Any]) -> Any:
        return self.constraint.natural(multipliers)


def position_problem(
    system: AbstractSystem, q: Numbers, trial: Numbers, t: Real, t1: Real, split: bool
) -> PositionProblem | IslandPositionProblem:
    """The position problem of `trial`; for the islands of the system if it has any and `split` is set."""
    constraint = system.islands(q) if split else None
    if constraint is None:
        return PositionProblem(system, q, trial, t, t1, system.linearize(q, t))
    jac = constraint.linearize(constraint.gather(q))
    return IslandPositionProblem(constraint, constraint.gather(trial), jac, jac.weighted(system.mass_form(q), q.shape))


def island_momenta(
    system: AbstractSystem, constraint: IslandConstraint, q: Numbers, p: Numbers
) -> tuple[Any, Any, Any]:
    """`(mu, G^T mu, pivot)` of the momentum problem."""
    jac = constraint.linearize(constraint.gather(q))
    factor = jac.factor(jac.weighted(system.mass_form(q), q.shape), symmetric=True)
    mu = factor.solve(jac(flatten_classes(constraint.gather(system.velocity(q, p)))))
    return constraint.natural(mu), constraint.scatter(jac.transpose(mu), q.shape), factor.pivot
