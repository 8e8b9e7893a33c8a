"""Gradients through whole simulations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx


def final_height(length, method=None, steps=1000):
    """The height of the second bob after `steps` RATTLE steps, as a function of the first rod's length."""
    problem = hx.models.double_pendulum(lengths=(length, jnp.sqrt(2.0)))
    return hx.integrate(problem.system, method or hx.RATTLE(), problem.q0, problem.p0, dt=0.01, steps=steps)[0][1, 1]


def test_reverse_mode_through_a_thousand_steps():
    value = jax.jit(final_height)
    gradient = float(jax.jit(jax.grad(final_height))(1.0))
    step = 1e-4  # Richardson: the error of the difference falls as step^4
    near, far = ((value(1.0 + h) - value(1.0 - h)) / (2 * h) for h in (step, 2 * step))
    numeric = float((4 * near - far) / 3)
    assert gradient == pytest.approx(numeric, rel=1e-6)
    assert abs(gradient) > 0.1
    forward = float(jax.jit(jax.jacfwd(final_height))(1.0))
    assert forward == pytest.approx(gradient, rel=1e-10)


def test_the_gradient_does_not_depend_on_the_solver():
    newton, relaxed = (
        jax.grad(lambda x, s=s: final_height(x, hx.RATTLE(solver=s), 40))(1.0)
        for s in (hx.Newton(), hx.SymmetricNewton())
    )
    assert float(newton) == pytest.approx(float(relaxed), rel=1e-9)


def test_gradients_with_respect_to_start_mass_and_step():
    problem = hx.models.double_pendulum(angles=(0.4, 1.0))

    def weight(q):
        return q[0, 1] + q[1, 1]

    def final(p0, mass, dt):
        system = hx.System(weight, problem.system.constraint, mass=mass)
        return hx.integrate(system, hx.RATTLE(), problem.q0, p0, dt=dt, steps=50)[0][1, 0]

    where = (problem.p0, jnp.asarray(1.2), jnp.asarray(0.02))
    gradient = jax.grad(final, argnums=(1, 2))(*where)
    for k, slope in zip((1, 2), gradient):
        h = 1e-5
        moved = [where[:k] + (where[k] + s * h,) + where[k + 1 :] for s in (1, -1)]
        numeric = float((final(*moved[0]) - final(*moved[1])) / (2 * h))
        assert float(slope) == pytest.approx(numeric, rel=1e-6)
    assert np.all(np.isfinite(jax.grad(final)(*where)))
