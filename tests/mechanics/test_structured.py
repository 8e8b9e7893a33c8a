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
from holonomix.linalg.fronts import FrontMatrix
from holonomix.linalg.sparse import SparseMatrix
from holonomix.linalg.tridiagonal import Tridiagonal, lane_products
from holonomix.mechanics.projection import direct_momenta
from holonomix.mechanics.projection.position_problem import island_momenta, position_problem


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
        FrontMatrix,
    ),
    "tree": (lambda: hx.Distance(tree(63)), (63, 2), SparseMatrix),
    "tree-scattered": (lambda: hx.Distance(scattered(tree(31))), (31, 2), SparseMatrix),
    "grid": (lambda: hx.Distance(grid(9)), (81, 4), FrontMatrix),
    "rod": (lambda: hx.Local(rod_rows, rod(9), anchors=np.eye(9)[:1]), (9, 9), Tridiagonal),
    "short-rod": (lambda: hx.Local(rod_rows, rod(8), anchors=np.eye(9)[:1]), (8, 9), FrontMatrix),
    "ring": (lambda: hx.Distance(ring(30)), (30, 2), CyclicTridiagonal),
    "ring-scattered": (lambda: hx.Distance(scattered(ring(30))), (30, 2), Tridiagonal),
    "rod-ring": (lambda: hx.Local(rod_rows, ring(8)), (8, 9), FrontMatrix),
}


QUICK = ("chain", "molecules", "ring")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_same_as_dense(name):
    make, shape, kind = CASES[name]
    q, term = start(shape), make()
    mass = 1.0 + jnp.abs(start(shape, 1))
    system = hx.System(lambda x: 0.0, term, mass=mass)
    # a sum over everything hides the structure, which would be found in the plain function
    plain = hx.System(lambda x: 0.0, lambda x: term(x) + 0.0 * jnp.sum(x), mass=mass)
    v, lam, shift = start(shape, 3), start((plain.constraint_count(q),), 4), 1e-2 * start(shape, 2)

    @eqx.filter_jit
    def everything(system):
        jac = system.linearize(q)
        gram = system.gram(q, system.linearize(q + shift), jac)
        factor = gram.factor()
        shown = (system.constraint(q), jac(v), jac.transpose(lam), jac.row_sizes(v), jac.todense(), gram.todense())
        return shown, gram, factor.solve(lam), jax.vjp(factor.solve, lam)[1](lam)[0], factor.pivot

    shown, gram, x, pulled, pivot = everything(system)
    expected, _, y, dense_pulled, _ = everything(plain)
    for a, b in zip(shown, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
    assert isinstance(gram.matrix, kind), type(gram.matrix)
    rounding = 1e-14 * np.linalg.cond(np.asarray(expected[-1])) * np.abs(y).max()
    np.testing.assert_allclose(x, y, rtol=0, atol=rounding)
    np.testing.assert_allclose(pulled, dense_pulled, rtol=0, atol=rounding)
    assert 1e-6 < pivot <= 1.0


def bent(x):
    return jnp.stack([jnp.sum((x[0] - x[1]) ** 2) - 1.0, (x[0] - x[1]) @ (x[2] - x[1]), jnp.sum((x[2] - x[1]) ** 4)])


ISLANDS = {
    "molecules": (lambda: [hx.Distance(molecules(9))], 27),
    "mixed": (lambda: [hx.Distance(np.concatenate([molecules(6), [[18, 19], [20, 21]]]))], None),
    "two terms": (lambda: [hx.Local(bent, np.arange(27).reshape(9, 3)), hx.Distance(molecules(9)[1::3])], 27),
    "bonds": (lambda: [hx.Distance(np.arange(40).reshape(20, 2))], 40),
}


@pytest.mark.parametrize("name", [n if n == "molecules" else pytest.param(n, marks=pytest.mark.slow) for n in ISLANDS])
def test_islands_are_the_same_rows(name):
    """Molecules taken apart give the values, factors and momenta of the rows in order."""
    make, particles = ISLANDS[name]
    shape = (particles or 22, 3)
    q, trial, p = start(shape), start(shape) + 0.01 * start(shape, 5), start(shape, 6)
    system = hx.System(lambda x: 0.0, make(), mass=1.0 + jnp.abs(start(shape, 1)))
    if particles is None:
        assert system.islands(q) is None  # columns of the list overlap
        return
    assert "independent blocks of" in system.structure(q) or name == "bonds"

    @eqx.filter_jit
    def both():
        lam = 1e-2 * start((system.constraint_count(q),), 7)
        whole, apart = (position_problem(system, q, trial, 0.0, 0.0, a) for a in (False, True))
        rows = jax.linear_transpose(apart.natural, apart.zero)(lam)[0]
        out = [
            (line.natural(line.values(x)), line.natural(line.row_sizes()), line.natural(line.factor(x).solve(x)))
            + (line.natural(line.start_factor().solve(x)), line.start_factor().pivot)
            for line, x in ((whole, lam), (apart, rows))
        ]
        return *out, direct_momenta(system, q, p), island_momenta(system, system.islands(q), q, p)

    whole, apart, momenta, islands = both()
    for a, b in zip(whole, apart, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-11)
    rows = system.linearize(q)
    inverse = 1.0 / system.mass
    np.testing.assert_allclose(rows(inverse * (p - islands[1])), 0.0, rtol=0, atol=1e-10)
    np.testing.assert_allclose(rows.transpose(islands[0]), islands[1], rtol=0, atol=1e-11)
    np.testing.assert_allclose(momenta.p, p - islands[1], rtol=0, atol=1e-12)


def test_products_in_tiles():
    for n in (1024, 1025, 1400):
        x, y = start((2, 3, n)), start((4, 3, n), 1)
        np.testing.assert_allclose(lane_products(x, y), np.einsum("adn,bdn->abn", x, y), rtol=0, atol=1e-14)


def test_trees_are_eliminated_without_fill():
    for pairs in (tree(127), scattered(tree(127))):
        system = hx.System(lambda x: 0.0, hx.Distance(pairs))
        text = system.structure(start((127, 2)))
        assert "without fill" in text, text
    assert "entries of fill" in hx.System(lambda x: 0.0, hx.Distance(grid(9))).structure(start((81, 4)))
