"""Derivatives of runs that fail: NaN, as their values are; and what does not use a failed row keeps its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

OTHERS = ("direct", hx.Checkpointed(3), hx.Reversible())
ADJOINTS = ("checkpoint", hx.Reversible("native"), *(pytest.param(x, marks=pytest.mark.slow) for x in OTHERS))


def system(gravity, wall):
    """A pendulum whose potential is NaN right of the wall."""
    potential = lambda q, k: k * q[1] + jnp.where(q[0] > wall, jnp.nan, 0.0) * q[0]
    return hx.System(potential, lambda q, k: jnp.array([q @ q - 1.0]), params=gravity)


def reached(gravity, speed, adjoint="checkpoint", dt=0.05, wall=0.5, **options):
    """x at the end. With speed 1 the run meets the wall; without a wall, dt 3 has no root and fails in step 1."""
    q0, p0 = jnp.array([0.0, -1.0]), jnp.array([1.0, 0.0]) * speed
    q, _ = hx.integrate(system(gravity, wall), hx.RATTLE(), q0, p0, dt=dt, steps=20, adjoint=adjoint, **options)
    return q[..., 0]


@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
def test_the_gradient_of_a_failed_run_is_nan(adjoint):
    gradient = jax.jit(jax.grad(reached, argnums=(0, 1, 3)), static_argnums=2)
    assert np.isnan(gradient(1.0, 1.0, adjoint, 0.05)).all()
    assert np.isnan(gradient(1.0, 1.0, adjoint, 3.0, np.inf)).all()  # no step was taken: the state is that of the start
    assert np.isfinite(gradient(1.0, 0.1, adjoint, 0.05)).all()


@pytest.mark.parametrize("adjoint", ["forward", pytest.param("checkpoint", marks=pytest.mark.slow)])
def test_forward_mode(adjoint):
    for dt, wall in ((0.05, 0.5), (3.0, np.inf)):
        value, slope = jax.jvp(lambda k, at=(dt, wall): reached(k, 1.0, adjoint, *at), (1.0,), (1.0,))
        assert np.isnan(value) and np.isnan(slope)
    assert np.isfinite(jax.jvp(lambda k: reached(k, 0.1, adjoint), (1.0,), (1.0,))).all()


def test_each_trajectory_of_a_batch_has_its_own():
    speeds = jnp.array([0.1, 1.0, 0.2])
    one_by_one = jax.jit(jax.vmap(jax.grad(reached, argnums=(0, 1)), in_axes=(None, 0)))(1.0, speeds)
    assert np.array_equal(np.isnan(one_by_one), [[False, True, False]] * 2)
    of = lambda total, speeds: jax.grad(lambda k: total(jax.vmap(lambda p: reached(k, p))(speeds)))(1.0)
    assert np.isnan(of(jnp.sum, speeds))
    assert of(jnp.nansum, speeds) == pytest.approx(float(of(jnp.sum, speeds[::2])), rel=1e-12)


@pytest.mark.parametrize("adjoint", ADJOINTS, ids=str)
def test_rows_before_the_failure_keep_their_gradients(adjoint):
    total = lambda k, rows: jnp.nansum(reached(k, 1.0, adjoint, save_every=1)[:rows])
    count = int(np.sum(np.isfinite(reached(1.0, 1.0, save_every=1))))
    assert 5 < count < 20
    got, want = (float(jax.grad(total)(1.0, rows)) for rows in (None, count))
    h = 1e-4
    assert got == want == pytest.approx(float(total(1 + h, None) - total(1 - h, None)) / (2 * h), rel=1e-6)


def test_second_derivatives_are_nan_too():
    second = jax.jacfwd(jax.grad(reached, argnums=1), argnums=1)
    assert np.isnan(second(1.0, 1.0)) and np.isfinite(second(1.0, 0.1))
