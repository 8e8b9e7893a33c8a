"""Small solves, the one iteration, implicit derivatives and compensated sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from holonomix.linalg import Dense, add, implicit_root, iterate, newton_root
from holonomix.linalg.cyclic import CyclicTridiagonal
from holonomix.linalg.tridiagonal import RecurrenceFactor, Tridiagonal
from holonomix.trace.compiled import compiled_for_one_run


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 30])
@pytest.mark.parametrize("symmetric", [True, False])
def test_solves_agree_with_numpy(n, symmetric):
    rng = np.random.default_rng(n)
    root = rng.normal(size=(n, n + 3))
    matrix = root @ root.T + (0 if symmetric else 0.1) * rng.normal(size=(n, n))
    b = rng.normal(size=n)

    @jax.jit
    def solved(matrix, b):
        factor = Dense(matrix).factor(symmetric=symmetric)
        return factor.solve(b), factor.pivot

    x, pivot = solved(matrix, b)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-8)
    assert float(pivot) > 0


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_pivot_is_the_smallest_part_left_of_a_diagonal_entry(n):
    rows = np.random.default_rng(n).normal(size=(n, n))
    smallest = lambda rows: float(Dense(jnp.asarray(rows @ rows.T)).factor(symmetric=True).pivot)
    left = np.diagonal(np.linalg.cholesky(rows @ rows.T)) ** 2
    np.testing.assert_allclose(smallest(rows), np.min(left / np.sum(rows**2, axis=1)), rtol=1e-9)
    rows[-1] = rows[:-1].sum(0)
    assert not smallest(rows) > 1e-13
    assert not smallest(0.0 * rows) > 1e-13


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_chain_of_blocks_by_recurrence(symmetric):
    rng = np.random.default_rng(3)
    n, b = 11, 6
    root = rng.normal(size=(n, b, 2 * b))
    diagonal = np.einsum("nij,nkj->ikn", root, root) + 4 * b * np.eye(b)[:, :, None]
    lower = rng.normal(size=(b, b, n)) * (np.arange(n) > 0)
    upper = np.concatenate([lower[..., 1:].transpose(1, 0, 2), np.zeros((b, b, 1))], -1)
    upper = upper if symmetric else 0.5 * upper
    matrix = Tridiagonal(*map(jnp.asarray, (lower, diagonal, upper)))
    factor = jax.jit(lambda m: m.factor(symmetric))(matrix)
    assert isinstance(factor, RecurrenceFactor)
    dense, right = np.asarray(matrix.todense()), rng.normal(size=n * b)
    np.testing.assert_allclose(factor.solve(jnp.asarray(right)), np.linalg.solve(dense, right), rtol=1e-10)
    if symmetric:
        left = np.diagonal(np.linalg.cholesky(dense)) ** 2
        np.testing.assert_allclose(factor.pivot, np.min(left / np.diagonal(dense)), rtol=1e-9)
        np.testing.assert_allclose(factor.signed_pivot, 1 / left.max(), rtol=1e-9)
        indefinite = Tridiagonal(matrix.lower, matrix.diagonal.at[2, 2, 5].add(-200.0), matrix.upper)
        assert indefinite.factor(True).signed_pivot < 0


@pytest.mark.parametrize("n", [7, 8, 24])
def test_rings(n):
    rng = np.random.default_rng(n)
    diagonal, upper = 3.0 + rng.random(n), rng.normal(size=n)
    ring = CyclicTridiagonal(jnp.roll(upper, 1), jnp.asarray(diagonal), jnp.asarray(upper))
    dense, right = np.diag(diagonal), rng.normal(size=n)
    for i in range(n):
        dense[i, (i + 1) % n] = dense[(i + 1) % n, i] = upper[i]

    @jax.jit
    def solved(ring):
        factor = ring.factor(symmetric=True)
        return factor.solve(jnp.asarray(right)), factor.pivot, factor.signed_pivot

    x, pivot, signed = solved(ring)
    np.testing.assert_allclose(x, np.linalg.solve(dense, right), rtol=1e-10)
    assert 0 < float(pivot) <= 1
    assert (signed > 0) == (np.linalg.eigvalsh(dense)[0] > 0)
    general = CyclicTridiagonal(jnp.asarray(rng.normal(size=n)), ring.diagonal, ring.upper)
    expected = np.linalg.solve(np.asarray(general.todense()), right)
    x = jax.jit(lambda ring: ring.factor().solve(jnp.asarray(right)))(general)
    np.testing.assert_allclose(x, expected, rtol=1e-10)
    # every difference of neighbors, once around: the last depends on the others
    assert not solved(CyclicTridiagonal(-jnp.ones(n), 2 * jnp.ones(n), -jnp.ones(n)))[1] > 1e-13
    assert solved(CyclicTridiagonal(jnp.asarray(upper), jnp.asarray(0.1 - diagonal), jnp.roll(upper, -1)))[2] < 0


def newton_sqrt(tol, floor=0.0, most=50):
    def residual(x):
        r = x * x - 2.0
        return r, jnp.abs(r)

    return iterate(lambda x, r: x - r / (2 * x), residual, jnp.asarray(1.0), tol=tol, floor=floor, max_iterations=most)


def test_iteration_stops_at_its_tolerance_and_reports():
    loose, tight = newton_sqrt(1e-2), newton_sqrt(1e-12)
    assert bool(loose.converged) and int(loose.iterations) < int(tight.iterations)
    assert float(tight.residual) <= 1e-12


def test_a_tolerance_below_round_off_ends_by_stagnation():
    assert not bool(newton_sqrt(0.0, floor=0.0, most=20).converged)
    stalled = newton_sqrt(0.0, floor=1e-12, most=20)
    assert bool(stalled.converged) and int(stalled.iterations) < 10


def test_nan_is_not_convergence():
    done = iterate(lambda x, r: x, lambda x: (x, jnp.abs(x)), jnp.asarray(jnp.nan), tol=1e-3, max_iterations=5)
    assert not bool(done.converged)


def test_implicit_derivatives_in_both_modes_and_twice():
    def cube_root(a):
        return newton_root(lambda x, a: x**3 - a, jnp.ones(1), jnp.reshape(a, (1,))).x[0]

    a = 1.7
    for mode in (jax.grad, jax.jacfwd, jax.jacrev):
        assert float(mode(cube_root)(a)) == pytest.approx(a ** (-2 / 3) / 3, rel=1e-12)
    assert float(jax.grad(jax.grad(cube_root))(a)) == pytest.approx(-2 / 9 * a ** (-5 / 3), rel=1e-12)


def test_the_iterations_are_not_differentiated():
    # a solver that returns the right root without depending on its argument still has the right derivative
    def solve(args):
        return jnp.sqrt(jax.lax.stop_gradient(args)), jnp.asarray(0)

    def root(a):
        return implicit_root(solve, lambda x, a: x**2 - a, jnp.reshape(a, (1,)))[0][0]

    assert float(jax.grad(root)(4.0)) == pytest.approx(0.25, rel=1e-14)


def test_compensated_sum_of_a_million_tenths():
    def body(_, carry):
        plain, total, low = carry
        total, low = add(total, low, 0.1)
        return plain + 0.1, total, low

    plain, total, _ = jax.jit(lambda: jax.lax.fori_loop(0, 1_000_000, body, (0.0, 0.0, 0.0)))()
    assert abs(float(total) - 100_000) < 1e-10
    assert abs(float(plain) - 100_000) > 1e-7


def test_newton_starts_where_a_row_has_only_unknowns_that_are_zero():
    """Twenty auxiliary unknowns start at zero and have equations of their own, in units far from one."""
    n = 20

    def residual(x, scale):
        position, auxiliary = x[:n], x[n:]
        return jnp.concatenate(
            [position - 1.0 - 0.1 * auxiliary / scale, 0.1 * (auxiliary - scale * jnp.cos(auxiliary / scale))]
        )

    done = newton_root(residual, jnp.concatenate([jnp.ones(n), jnp.zeros(n)]), jnp.asarray(1e-12))
    assert bool(done.converged)
    assert np.max(np.abs(done.x[n:] / 1e-12 - 0.7390851332151607)) < 1e-14
    assert np.max(np.abs(done.x[:n] - 1.07390851332151607)) < 1e-14


def test_many_unknowns_are_found_without_a_jacobian():
    """An implicit step of a ring of pendulums, with positions and momenta in very different units."""
    n, unit, a = 150, 1e-12, 1.7
    units = np.repeat([1.0, unit], n)

    def residual(x, a):
        q, p = x[:n], x[n:] / unit
        pull = -a * jnp.sin(q) + jnp.roll(q, 1) + jnp.roll(q, -1) - 2 * q
        return jnp.concatenate([q - 1.0 - 0.3 * p, unit * (p - jnp.cos(jnp.arange(n)) - 0.3 * pull)])

    def root(a, blocks=(n, n)):
        return newton_root(residual, jnp.asarray(units) * jnp.cos(jnp.arange(2 * n)), a, blocks=blocks)

    def energy(a):
        done = root(a)
        return jnp.sum(done.x[:n] ** 2), done

    slope, done = jax.jit(jax.grad(energy, has_aux=True))(a)
    matrix, change = jax.jit(jax.jacfwd(residual, (0, 1)))(done.x, a)
    scaled = np.asarray(matrix) * units / units[:, None]
    assert bool(done.converged)
    assert np.max(np.abs(np.linalg.solve(scaled, residual(done.x, a) / units))) < 2e-15
    moved = -np.linalg.solve(scaled, change / units)[:n]
    assert float(slope) == pytest.approx(2 * float(np.sum(done.x[:n] * moved)), rel=1e-12)
    assert f"{2 * n},{2 * n}]" not in str(jax.make_jaxpr(root)(a))
    assert f"{2 * n},{2 * n}]" in str(jax.make_jaxpr(lambda a: root(a, ()))(a))


def test_a_derivative_whose_linear_system_was_not_solved_is_nan():
    """GMRES with restarts makes no progress on a cyclic shift; the root itself, zero, is found without it."""
    n = 500

    def end(a, shift):
        first = jnp.zeros(n).at[0].set(a)
        residual = lambda x, args: args[1] * jnp.roll(x, 1) + (1 - args[1]) * x - args[0]
        return newton_root(residual, jnp.zeros(n), (first, shift), blocks=(n,)).x[0]

    slope = compiled_for_one_run(jax.grad(end))
    assert np.isnan(slope(jnp.asarray(0.0), jnp.asarray(1.0)))
    assert slope(jnp.asarray(0.0), jnp.asarray(0.25)) == pytest.approx(4 / 3, rel=1e-12)  # the control
