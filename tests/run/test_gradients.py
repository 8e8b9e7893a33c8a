"""Gradients through whole simulations."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx


def double(length):
    return hx.models.double_pendulum(lengths=(length, jnp.sqrt(2.0)))


def single(length):
    return hx.models.planar_pendulum(angle=1.0, length=length)


def final_height(length, model=double, method=None, steps=1000):
    """The height of the last bob after `steps` RATTLE steps, as a function of the first rod's length."""
    problem = model(length)
    q, _ = hx.integrate(problem, method or hx.RATTLE(), dt=0.01, steps=steps)
    return q.reshape(-1, 2)[-1, 1]


@pytest.mark.parametrize("model", [single, pytest.param(double, marks=pytest.mark.slow)])
def test_reverse_mode_through_a_thousand_steps(model):
    final = functools.partial(final_height, model=model)
    value = jax.jit(final)
    gradient = float(jax.jit(jax.grad(final))(1.0))
    step = 1e-4  # Richardson: the error of the difference falls as step^4
    near, far = ((value(1.0 + h) - value(1.0 - h)) / (2 * h) for h in (step, 2 * step))
    numeric = float((4 * near - far) / 3)
    assert gradient == pytest.approx(numeric, rel=1e-6)
    assert abs(gradient) > 0.1
    forward = float(jax.jit(jax.jacfwd(final))(1.0))
    assert forward == pytest.approx(gradient, rel=1e-10)


@pytest.mark.parametrize("model", [single, pytest.param(double, marks=pytest.mark.slow)])
def test_the_gradient_does_not_depend_on_the_solver(model):
    newton, relaxed = (
        jax.grad(lambda x, s=s: final_height(x, model, hx.RATTLE(solver=s), 40))(1.0)
        for s in (hx.Newton(), hx.SymmetricNewton())
    )
    assert float(newton) == pytest.approx(float(relaxed), rel=1e-9)


def test_gradients_with_respect_to_start_mass_and_step():
    problem = single(1.0)

    @jax.jit
    def final(p0, mass, dt):
        system = hx.System(lambda q: q[1], problem.system.constraint, mass=mass)
        return hx.integrate(system, hx.RATTLE(), problem.q0, p0, dt=dt, steps=50)[0][0]

    where = (problem.p0, jnp.asarray(1.2), jnp.asarray(0.02))
    gradient = jax.grad(final, argnums=(0, 1, 2))(*where)
    for k, slope in zip((1, 2), gradient[1:]):
        h = 1e-5
        moved = [where[:k] + (where[k] + s * h,) + where[k + 1 :] for s in (1, -1)]
        numeric = float((final(*moved[0]) - final(*moved[1])) / (2 * h))
        assert float(slope) == pytest.approx(numeric, rel=1e-6)
    assert np.all(np.isfinite(gradient[0])) and np.any(gradient[0] != 0)
