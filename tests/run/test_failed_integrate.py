"""A run of `integrate` that fails says so: in a warning where its status is known, and in `info`."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

LONG_STEP = 50.0  # no iteration converges


def final(problem, dt, **options):
    return hx.integrate(problem, hx.RATTLE(), dt=dt, steps=3, **options)


def test_a_failure_warns_once_and_gives_nan():
    problem = hx.models.double_pendulum(lengths=(1.0, 1.25))
    with pytest.warns(hx.errors.FailedTrajectoriesWarning, match=r"RATTLE.*in step 1 \(NOT_CONVERGED\).*info=True"):
        q, _ = final(problem, LONG_STEP)
    assert np.isnan(q).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        final(problem, LONG_STEP)  # the same compiled function
        final(problem, 0.05)
        assert np.isfinite(final(problem, 0.05)[0]).all()


def test_a_fit_without_jit_hears_of_it():
    problem = hx.models.planar_pendulum()
    loss = lambda dt: jnp.sum(hx.integrate(problem, hx.RATTLE(), dt=dt, steps=4)[0])
    with pytest.warns(hx.errors.FailedTrajectoriesWarning, match="derivatives are NaN"):
        assert np.isnan(jax.grad(loss)(LONG_STEP))


def test_inside_jit_only_info_tells():
    problem = hx.models.double_pendulum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        info = jax.jit(lambda dt: final(problem, dt, info=True)[2])(LONG_STEP)
        several = jax.vmap(lambda dt: final(problem, dt, info=True)[2])(jnp.array([0.01, LONG_STEP]))
    assert info.message.startswith("NOT_CONVERGED: the nonlinear iteration")
    assert "NOT_CONVERGED" in repr(info) and "steps 0" in repr(info)
    assert several.message.startswith("OK: finished; NOT_CONVERGED")
    assert "OK: finished" in repr(final(problem, 0.01, info=True)[2])
