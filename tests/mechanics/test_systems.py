"""Systems: the equations they stand for, the forms of the mass, and that they pass through JAX's transformations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

Q = jnp.array([0.6, -0.8])
P = 1.3 * jnp.array([0.8, 0.6])


def pendulum(mass=1.0, **options):
    return hx.System(lambda q: 2.0 * q[1], lambda q: jnp.array([q @ q - 1.0]), mass=mass, **options)


def test_multiplier_of_a_hanging_pendulum_is_positive():
    # at rest at the bottom: 0 = -g - 2 y lambda, so lambda = g/2 for a unit rod
    system = pendulum()
    np.testing.assert_allclose(system.multipliers(jnp.array([0.0, -1.0]), jnp.zeros(2)), [1.0], rtol=1e-15)


def test_multipliers_keep_the_hidden_constraint_along_the_motion():
    system = pendulum(mass=jnp.array([[2.0, 0.3], [0.3, 1.0]])).prepare(Q)
    p = hx.project(system, Q, P)[1]

    def rate(multipliers):
        force = system.force(Q, p) - system.linearize(Q).transpose(multipliers)
        return jax.jvp(system.hidden_constraint, (Q, p), (system.velocity(Q, p), force))[1]

    assert abs(float(rate(system.multipliers(Q, p))[0])) < 1e-14
    assert abs(float(rate(jnp.zeros(1))[0])) > 0.1


@pytest.mark.parametrize(
    "mass",
    [2.0, jnp.array([2.0, 2.0]), 2.0 * jnp.eye(2), lambda q: 2.0 * jnp.eye(2)],
    ids=["scalar", "diagonal", "matrix", "function"],
)
def test_the_forms_of_one_mass_agree(mass):
    system = pendulum(mass=mass)
    np.testing.assert_allclose(system.velocity(Q, P), P / 2, rtol=1e-15)
    np.testing.assert_allclose(system.momentum(Q, P), 2 * P, rtol=1e-15)
    np.testing.assert_allclose(system.hamiltonian(Q, P), P @ P / 4 + 2 * Q[1], rtol=1e-14)
    np.testing.assert_allclose(system.multipliers(Q, P), pendulum(2.0).multipliers(Q, P), rtol=1e-13)


def test_params_reach_potential_and_constraint():
    def potential(q, params):
        return params["g"] * q[1]

    def rod(q, params):
        return jnp.array([q @ q - params["length"] ** 2])

    system = hx.System(potential, rod, params={"g": 3, "length": 2})
    assert float(system.potential(Q)) == pytest.approx(3 * float(Q[1]))
    other = system.with_params({"g": 1.0, "length": 1.0})
    np.testing.assert_allclose(other.constraint(Q), [0.0], rtol=0, atol=1e-15)
    slope = jax.grad(lambda length: system.with_params({"g": 1.0, "length": length}).constraint(Q)[0])(2.0)
    assert float(slope) == pytest.approx(-4.0, rel=1e-14)


def test_with_params_keeps_what_is_left_out_and_refuses_other_names():
    def potential(q, params):
        return params["weight"]["g"] * params["weight"]["m"] * q[1] + 0.5 * params["k"] * q @ q

    system = hx.System(potential, params={"weight": {"g": 3.0, "m": 2.0}, "k": 1.0})
    other = system.with_params({"weight": {"g": 1.0}})
    assert other.params == {"weight": {"g": 1.0, "m": 2.0}, "k": 1.0}
    assert jax.tree.structure(other) == jax.tree.structure(system)
    value = jax.jit(lambda g: system.with_params({"weight": {"g": g}}).potential(Q))
    assert float(jax.grad(value)(5.0)) == pytest.approx(2 * float(Q[1]), rel=1e-14)
    for wrong, words in (
        ({"gravity": 1.0}, r"params of the system has the names 'k', 'weight'; not 'gravity'"),
        ({"weight": {"G": 1.0}}, r"params\['weight'\] of the system has the names 'g', 'm'; not 'G'"),
        ({"weight": 1.0}, r"params\['weight'\] of the system has the names 'g', 'm'; not"),
        (1.0, "names 'k', 'weight'; not"),
    ):
        with pytest.raises(hx.InputError, match=words):
            system.with_params(wrong)
    stiff = hx.System(potential, lambda q, params: jnp.array([q @ q - 1.0]), params=system.params).penalized(10.0)
    assert stiff.with_params({"k": 4.0}).params["weight"] == system.params["weight"]
    with pytest.raises(hx.InputError, match="not 'gravity'"):
        stiff.with_params({"gravity": 1.0})


def test_a_system_travels_through_jit_vmap_and_grad():
    system = pendulum(mass=jnp.array([1.0, 2.0]))
    direct = system.hamiltonian(Q, P)
    np.testing.assert_allclose(jax.jit(lambda s, q, p: s.hamiltonian(q, p))(system, Q, P), direct, rtol=1e-15)
    rows = jax.vmap(system.multipliers)(jnp.stack([Q, -Q]), jnp.stack([P, -P]))
    np.testing.assert_allclose(rows[0], system.multipliers(Q, P), rtol=1e-14)
    by_mass = jax.grad(lambda s: s.kinetic(Q, P))(system).mass
    np.testing.assert_allclose(getattr(by_mass, "value", by_mass), -0.5 * P**2 / jnp.array([1.0, 4.0]), rtol=1e-14)


def test_constraints_may_be_a_list_and_may_depend_on_time():
    system = hx.System(
        lambda q: 0.0 * q[0],
        [lambda q: jnp.array([q @ q - 1.0]), hx.Rheonomic(lambda q, t: jnp.array([q[2] - 0.1 * t]))],
    )
    q = jnp.array([1.0, 0.0, 0.2])
    np.testing.assert_allclose(system.constraint(q, 2.0), [0.04, 0.0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        system.hidden_constraint(q, jnp.array([0.0, 0.0, 0.1]), 2.0), [0.04, 0.0], rtol=0, atol=1e-15
    )
    assert system.rheonomic and system.has_constraints


def test_shapes_of_q_other_than_a_vector():
    problem = hx.models.chain(4)
    jac = problem.system.linearize(problem.q0).todense()
    assert jac.shape == (4, 8)
    flat = jax.jacfwd(lambda x: problem.system.constraint(x.reshape(4, 2)))(problem.q0.reshape(-1))
    np.testing.assert_allclose(jac, flat, rtol=1e-14)
