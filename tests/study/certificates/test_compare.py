"""Studies of systems with redundant rows and with moving constraints."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

ACCEPTING = hx.RATTLE(hx.Newton(redundant="min-norm"))


def saddle(copies):
    """A bead on a saddle, whose row is given up to three times."""
    rows = lambda q: (q[2] - q[0] * q[1]) * jnp.array([1.0, 3.0, 2.0][:copies])
    system = hx.System(lambda q: 9.81 * q[2] + q[0] ** 2, rows)
    return hx.Problem(system, np.zeros(3), np.array([0.2, 0.1, 0.0]), dt=0.02, t1=1.0)


def test_redundant_rows_are_certified_with_a_method_that_accepts_them():
    found = hx.certify(saddle(3), ACCEPTING, steps=50)
    assert found.passed and found["order of q"].kept and found["symplectic"].kept and found["constraint"].kept
    with pytest.raises(hx.ConstraintRankError, match="have rank 1"):
        hx.certify(saddle(3), hx.RATTLE(), steps=50)


def test_redundant_rows_are_compared_with_methods_that_accept_them():
    found = hx.compare(saddle(3), [ACCEPTING], levels=1).curves[0].levels[0]
    plain = hx.compare(saddle(1), [hx.RATTLE()], levels=1).curves[0].levels[0]
    assert found.error == pytest.approx(plain.error, rel=1e-6)


def test_an_adaptive_method_is_compared_at_the_end_of_the_clock():
    """It stops past t1, and the way back to t1 depends on the time where it stopped."""
    pivot = lambda t: jnp.stack([jnp.zeros_like(t), 0.3 * jnp.sin(5 * t)])
    moving = hx.Rheonomic(lambda q, t: jnp.array([jnp.sum((q - pivot(t)) ** 2) - 1.0]))
    system = hx.System(lambda q: 9.81 * q[1], moving)
    problem = hx.Problem(system, np.array([1.0, 0.0]), np.array([0.0, 1.5]), dt=0.02, t1=1.0)
    level = hx.compare(problem, [hx.TaylorAdaptive()], levels=1).curves[0].levels[0]
    assert level.status == "" and level.error < 1e-8


def test_a_motion_at_rest_does_not_tell_methods_apart():
    resting = hx.Problem(hx.System(lambda q: 0.5 * q @ q), np.zeros(2), np.zeros(2), dt=0.1, t1=1.0)
    found = hx.compare(resting, [hx.ExplicitEuler(), hx.RK4()], levels=1)
    assert found.unmeasurable and "moves" in str(found)
