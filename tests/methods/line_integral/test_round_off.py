"""Rounding errors of line-integral methods must not add up."""

from __future__ import annotations

import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.legendre import tables


@pytest.mark.parametrize("method", [hx.HBVM(6, 2), pytest.param(hx.LineIntegral(4), marks=pytest.mark.slow)])
def test_the_constraint_does_not_drift(method):
    # without a return of what rounding left, g is off by 2e-14 after this many steps, and by 5e-14 after a million
    problem = hx.models.spherical_pendulum()
    sol = hx.simulate(problem, method, dt=0.05, steps=400_000, save_every=4000)
    assert sol.constraint_error().max() < 2e-15


@pytest.mark.parametrize(("k", "s"), [(6, 2), (5, 3), (12, 4), (1, 1)])
def test_rounded_tables_are_symmetric_to_the_last_bit(k, s):
    tab, sign = tables(k, s), (-1.0) ** np.arange(s)
    np.testing.assert_array_equal(1.0 - tab.c, tab.c[::-1])
    np.testing.assert_array_equal(tab.b, tab.b[::-1])
    np.testing.assert_array_equal(tab.P, tab.P[::-1] * sign)
    np.testing.assert_array_equal(tab.I[:, 0], tab.c)
    np.testing.assert_array_equal(tab.I[:, 1:], -tab.I[::-1, 1:] * sign[1:])
