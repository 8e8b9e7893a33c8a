"""The basis, the quadrature and the matrix X_s."""

import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.legendre import basis, continuation, integrals, surprise_continuation, tables


@pytest.mark.parametrize(("k", "s"), [(1, 1), (2, 2), (6, 2), (9, 3), (12, 4)])
def test_discrete_identities(k, s):
    t = tables(k, s)
    assert np.max(np.abs(t.weighted.T @ t.P - np.eye(s))) < 1e-15
    assert np.max(np.abs(t.weighted.T @ t.I - t.X)) < 1e-15
    assert abs(np.sum(t.b) - 1) < 1e-15
    nodes, weights = np.polynomial.legendre.leggauss(k)
    assert np.allclose(t.c, (nodes + 1) / 2, rtol=0, atol=1e-15) and np.allclose(t.b, weights / 2, rtol=0, atol=1e-15)


def test_x_is_skew_but_for_its_corner():
    X = tables(4, 4).X
    assert X[0, 0] == 0.5 and np.array_equal(X + X.T, np.diag([1.0, 0, 0, 0]))
    assert np.isclose(X[1, 0], 1 / (2 * np.sqrt(3)), rtol=1e-15, atol=0)


def test_integrals_and_slopes_of_the_basis():
    c = np.linspace(0, 1, 7)
    fine = np.linspace(0, 1, 20001)
    for j in range(4):
        values = basis(4, fine)[j]
        cumulative = np.concatenate([[0], np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(fine))])
        assert np.allclose(integrals(4, c)[j], np.interp(c, fine, cumulative), rtol=0, atol=1e-8)
    t, h = tables(5, 4), 1e-6
    slopes = (np.stack(basis(4, t.c + h), 1) - np.stack(basis(4, t.c - h), 1)) / (2 * h)
    assert np.allclose(t.dP, slopes, rtol=0, atol=1e-8)


def test_continuation_is_the_same_polynomial_one_step_later():
    coefficients = np.random.default_rng(0).normal(size=4)
    c = np.linspace(0, 1, 5)
    later = np.stack(basis(4, 1 + c), 1) @ coefficients
    assert np.allclose(np.stack(basis(4, c), 1) @ (continuation(4) @ coefficients), later, rtol=1e-12, atol=0)


def test_the_continuation_of_two_steps_is_exact_for_polynomials_of_two_more_degrees():
    s, t = 3, tables(6, 3)
    velocity = np.polynomial.Polynomial(np.random.default_rng(0).normal(size=s + 2))
    earlier, last, later = (t.weighted.T @ velocity(t.c + shift) for shift in (-1, 0, 1))
    E = continuation(s)
    assert np.allclose(E @ last + surprise_continuation(s) @ (last - E @ earlier), later, rtol=1e-11, atol=0)
    assert not np.allclose(E @ last, later, rtol=1e-2, atol=0)


def test_too_few_nodes_are_refused():
    with pytest.raises(hx.InputError, match="s = 3"):
        hx.HBVM(2, 3)
