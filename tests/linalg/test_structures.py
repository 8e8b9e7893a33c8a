"""A matrix structure is one file and one line in the list: here the file is this test."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.linalg import Dense, structures
from holonomix.linalg.layout import AbstractLayout, sum_parts
from holonomix.mechanics.coupling import coupling_of


@dataclasses.dataclass(frozen=True, eq=False)
class FullLayout(AbstractLayout):
    """All entries of a matrix over single rows, row by row."""

    def entry(self, i, j):
        return i * self.order.array.size + j

    def assemble(self, pieces):
        (part,) = sum_parts(pieces, self.sizes, self.rows)
        return Dense(part.reshape(self.order.array.size, -1))


def plan_full(graph):
    return FullLayout(1, (graph.n**2,), *graph.row_order(graph.natural), "full") if graph.r == 1 else None


def test_a_structure_is_added_by_its_planner(monkeypatch):
    system = hx.System(lambda q: jnp.sum(q[:, 1]), hx.Distance([(k - 1, k) for k in range(23)], 1.0))
    q = jnp.asarray(np.random.default_rng(0).normal(size=(23, 2)))

    def found():
        coupling_of.cache_clear()
        jac = system.linearize(q)
        gram = system.gram(q, jac, jac)
        return system.structure(q), gram.todense(), gram.factor(symmetric=True).solve(jnp.ones(23))

    try:
        text, matrix, x = found()
        monkeypatch.setattr(structures, "PLANNERS", [plan_full, *structures.PLANNERS])
        new_text, new_matrix, new_x = found()
    finally:
        coupling_of.cache_clear()
    assert "tridiagonal" in text and new_text == "full"
    np.testing.assert_allclose(new_matrix, matrix, rtol=1e-13)
    np.testing.assert_allclose(new_x, x, rtol=1e-9)
