"""Structured constraints: same values, Jacobians, Gram matrices and trajectories as plain functions, in linear time."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.linalg.blocks import BlockDiagonal
from holonomix.linalg.cyclic import CyclicTridiagonal
from holonomix.linalg.sparse import SparseMatrix
from holonomix.linalg.tridiagonal import Tridiagonal


def chain(n, dim=2):
    return np.stack([np.arange(-1, n - 1), np.arange(n)], 1)


def molecules(n):
    base = np.array([[0, 1], [0, 2], [1, 2]])
    return (base + 3 * np.arange(n)[:, None, None]).reshape(-1, 2)


def tree(n):
    return np.array([[(k - 1) // 2, k] for k in range(1, n)])


def ring(n):
    return np.array([[k, (k + 1) % n] for k in range(n)])


def grid(n):
    node = np.arange(n * n).reshape(n, n)
    across, down = np.stack([node[:, :-1], node[:, 1:]], -1), np.stack([node[:-1], node[1:]], -1)
    return np.concatenate([across.reshape(-1, 2), down.reshape(-1, 2)])


def scattered(pairs, seed=0):
    """The same constraints in a random order, on particles numbered at random."""
    rng = np.random.default_rng(seed)
    renumber = rng.permutation(pairs.max() + 1)
    return np.where(pairs < 0, pairs, renumber[pairs])[rng.permutation(len(pairs))]


def rod_rows(x):
    (a, b) = x
    director = lambda y: jnp.cross(y[3:6], y[6:9])
    local = jnp.stack([b[3:6] @ b[6:9], b[3:6] @ b[3:6] - 1, b[6:9] @ b[6:9] - 1])
    return jnp.concatenate([local, (b[:3] - a[:3]) * 7 - (director(a) + director(b)) / 2])


def rod(n):
    return np.stack([np.arange(-1, n - 1), np.arange(n)], 1)


def start(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


CASES = {
    "chain": (lambda: hx.Distance(chain(40)), (40, 2), Tridiagonal),
    "chain-odd": (lambda: hx.Distance(chain(33)[::-1].copy()), (33, 3), Tridiagonal),
    "chain-scattered": (lambda: hx.Distance(scattered(chain(40))), (40, 2), Tridiagonal),
    "chains": (lambda: hx.Distance(np.concatenate([chain(20)[1:], chain(25)[1:] + 20])), (45, 2), Tridiagonal),
    "molecules": (lambda: hx.Distance(molecules(12)), (36, 3), BlockDiagonal),
    "mixed-molecules": (
        lambda: hx.Distance(np.concatenate([molecules(6), [[18, 19], [20, 21]]])),
        (22, 3),
        BlockDiagonal,
    ),
    "ladder": (
        lambda: hx.Distance(np.concatenate([chain(30)[1:], chain(30)[1:] - 1 + [[0, 2]]])[:-1]),
        (30, 3),
        Tridiagonal,
    ),
    "tree": (lambda: hx.Distance(tree(63)), (63, 2), SparseMatrix),
    "tree-scattered": (lambda: hx.Distance(scattered(tree(31))), (31, 2), SparseMatrix),
    "grid": (lambda: hx.Distance(grid(6)), (36, 4), SparseMatrix),
    "rod": (lambda: hx.Local(rod_rows, rod(9), anchors=np.eye(9)[:1]), (9, 9), Tridiagonal),
    "ring": (lambda: hx.Distance(ring(30)), (30, 2), CyclicTridiagonal),
    "ring-scattered": (lambda: hx.Distance(scattered(ring(30))), (30, 2), Tridiagonal),
    "rod-ring": (lambda: hx.Local(rod_rows, ring(8)), (8, 9), CyclicTridiagonal),
}


QUICK = ("chain", "molecules", "tree-scattered", "ring")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_same_as_dense(name):
    make, shape, kind = CASES[name]
    q, term = start(shape), make()
    mass = 1.0 + jnp.abs(start(shape, 1))
    system = hx.System(lambda x: 0.0, term, mass=mass)
    plain = hx.System(lambda x: 0.0, lambda x: term(x), mass=mass)
    v, lam, shift = start(shape, 3), start((plain.constraint_count(q),), 4), 1e-2 * start(shape, 2)

    @eqx.filter_jit
    def everything(system):
        jac = system.linearize(q)
        gram = system.gram(q, system.linearize(q + shift), jac)
        factor = gram.factor()
        shown = (system.constraint(q), jac(v), jac.transpose(lam), jac.row_norms(), jac.todense(), gram.todense())
        return shown, gram, factor.solve(lam), jax.vjp(factor.solve, lam)[1](lam)[0], factor.pivot

    shown, gram, x, pulled, pivot = everything(system)
    expected, _, y, dense_pulled, _ = everything(plain)
    for a, b in zip(shown, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    assert isinstance(gram.matrix, kind), type(gram.matrix)
    rounding = 1e-14 * np.linalg.cond(np.asarray(expected[-1])) * np.abs(y).max()
    np.testing.assert_allclose(x, y, atol=rounding)
    np.testing.assert_allclose(pulled, dense_pulled, atol=rounding)
    assert 1e-6 < pivot <= 1.0


def test_trees_are_eliminated_without_fill():
    for pairs in (tree(127), scattered(tree(127))):
        system = hx.System(lambda x: 0.0, hx.Distance(pairs))
        text = system.structure(start((127, 2)))
        assert "without fill" in text, text
    assert "entries of fill" in hx.System(lambda x: 0.0, hx.Distance(grid(9))).structure(start((81, 4)))
