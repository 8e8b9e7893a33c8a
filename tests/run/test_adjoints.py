"""Reverse mode of `integrate`: by walking back, and from checkpoints."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

PROBLEM = hx.models.planar_pendulum()
MOMENTUM = np.array([0.3, 0.0])


def pendulum(length_and_gravity):
    constraint = lambda q, k: jnp.array([q @ q - k[0] ** 2])
    return hx.System(lambda q, k: k[1] * q[1], constraint, params=length_and_gravity)


def final(adjoint, steps, method=None, dt=0.05):
    """A function of length and gravity, the momentum and the step."""

    def height(params, momentum, dt):
        q, p = hx.integrate(
            pendulum(params), method or hx.RATTLE(), jnp.array([0.0, -1.0]), momentum, dt=dt, steps=steps,
            adjoint=adjoint,
        )  # fmt: skip
        return q[0] + 0.1 * p[1]

    return jax.jit(jax.grad(height, argnums=(0, 1, 2))), (jnp.array([1.0, 1.0]), jnp.asarray(MOMENTUM), jnp.asarray(dt))


def assert_same_gradient(*adjoints, steps, method=None):
    (want, *others) = (fn(*args) for fn, args in (final(a, steps, method) for a in ("checkpoint", *adjoints)))
    size = max(float(np.abs(x).max()) for x in want)
    for got in others:
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * size)


def test_the_gradient_of_a_thousand_steps_is_that_of_plain_reverse_mode():
    assert_same_gradient(hx.Reversible("native"), steps=1000)


@pytest.mark.slow
def test_so_is_that_of_other_ways():
    assert_same_gradient(hx.Reversible(), hx.Checkpointed(7), steps=1000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [hx.Composition(hx.RATTLE(), order=4), hx.LineIntegral(order=4), hx.LobattoIIIAB(3), hx.RATTLE(hx.SOR(1.2))],
    ids=lambda m: m.name,
)
def test_other_symmetric_methods_walk_back(method):
    assert_same_gradient(hx.Reversible(), steps=200, method=method)


def temporary(adjoint, steps):
    """Bytes that the compiled gradient needs beside its arguments and results."""
    fn, args = final(adjoint, steps)
    return fn.lower(*args).compile().memory_analysis().temp_size_in_bytes


def test_a_million_steps_need_no_memory_when_they_are_walked_back():
    assert temporary(hx.Reversible(), 1_000_000) < 20_000


@pytest.mark.slow
def test_a_batch_walks_back_in_one_kernel():
    scales = jnp.array([0.5, 1.0])

    def gradient(adjoint):
        fn, args = final(adjoint, 50)
        return jax.vmap(lambda s: fn(args[0], s * args[1], args[2]))(scales)

    for a, b in zip(*(gradient(hx.Reversible(backend)) for backend in ("native", "array")), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_memory_depends_on_the_number_of_steps_otherwise():
    assert temporary(hx.Reversible(), 100) == temporary(hx.Reversible(), 1_000_000)
    assert temporary(hx.Checkpointed(1000), 1_000_000) > 100_000


@pytest.mark.slow
def test_a_million_steps():
    fn, args = final(hx.Reversible(), 1_000_000, dt=0.001)
    assert np.isfinite(np.concatenate(list(map(np.ravel, fn(*args))))).all()


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (hx.SHAKE(), "has memory beyond"),
        (hx.RK4(), "is not symmetric"),
        (hx.VRATTLE(), "chooses its own"),
        (hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0), "draws random numbers"),
    ],
    ids=lambda m: getattr(m, "name", ""),
)
def test_methods_that_cannot_walk_back_are_refused(method, reason):
    key = jax.random.key(0) if method.stochastic else None
    with pytest.raises(hx.MethodError, match=rf"{re.escape(method.name)} {reason}.*Checkpointed"):
        hx.integrate(PROBLEM, method, steps=2, key=key, adjoint=hx.Reversible())


def test_unknown_adjoints_and_counts_are_named():
    with pytest.raises(hx.InputError, match="'backward'"):
        hx.integrate(PROBLEM, hx.RATTLE(), steps=2, adjoint="backward")
    with pytest.raises(hx.InputError, match="0"):
        hx.Checkpointed(0)


@pytest.mark.slow
def test_after_a_failure_walking_back_ends():
    fn, args = final(hx.Reversible(), 30, dt=3.0)
    assert np.isnan(hx.integrate(pendulum(args[0]), hx.RATTLE(), [0.0, -1.0], MOMENTUM, dt=3.0, steps=30)[0]).all()
    jax.block_until_ready(fn(*args))
