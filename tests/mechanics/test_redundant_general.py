"""Redundant rows beside a mass M(q), a vector potential, applied forces and moving constraints."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

ACCEPTING = hx.RATTLE(hx.Newton(redundant="min-norm"))
MASS = {"mass": lambda q, k: k * jnp.diag(1.0 + 0.1 * jnp.sin(q) ** 2)}
FIELD = {"vector_potential": lambda q, k: k * jnp.stack([-q[1], q[0] ** 2])}
FORCE = {"force": lambda q, v, t, k: -0.3 * k * v}
OTHERS = {"M(q)": MASS, "A(q)": FIELD, "force": FORCE, "M(q), force": MASS | FORCE}


def pendulum(rows, stiffness=1.0, moving=False, **others):
    """A pendulum, its constraint once (rows = 1) or twice, the second time in other units."""

    def constraint(q, k):
        return jnp.stack([q @ q - 1.0, 2.0 * (q @ q - 1.0)][:rows])

    if moving:
        constraint = hx.Rheonomic(lambda q, t, k, fixed=constraint: fixed(q / (1 + 0.1 * k * t**2), k))
    return hx.System(lambda q, k: k * q[1] + 0.2 * q[0] ** 2, constraint, params=stiffness, **others)


def start(**options):
    return hx.project(pendulum(1, **options), jnp.array([0.6, -0.8]), jnp.array([0.4, 0.3]))


@pytest.mark.parametrize("moving", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["fixed", "moving"])
@pytest.mark.parametrize("kind", OTHERS)
def test_the_motion_is_that_without_the_row_too_many(kind, moving):
    options = OTHERS[kind] | {"moving": moving}
    q, p = start(**options)
    twice, once = (
        hx.simulate(pendulum(rows, **options), method, q, p, dt=0.05, steps=50)
        for rows, method in ((2, ACCEPTING), (1, hx.RATTLE()))
    )
    np.testing.assert_allclose(twice.q, once.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(twice.p, once.p, rtol=0, atol=1e-13)
    # of least norm: the second row pulls twice as strongly, at the multiplier that the length of (1, 2) gives
    for name, both in {"Lambda": twice.multipliers, **twice.step_multipliers}.items():
        alone = once.multipliers if name == "Lambda" else once.step_multipliers[name]
        np.testing.assert_allclose(both, alone * [[0.2, 0.4]], rtol=0, atol=1e-11)


def gradient(rows, method, transform, kind, moving):
    options = (OTHERS[kind] if kind else {}) | {"moving": moving}
    q, p = start(**options)

    def end(k):
        q1, p1, info = hx.integrate(pendulum(rows, k, **options), method, q, p, dt=0.05, steps=4, info=True)
        return jnp.sum(jnp.sin(q1)) + jnp.sum(p1**2) + (1.0, 5.0)[rows - 1] * info.multipliers[0]

    return float(transform(end)(1.0))


@pytest.mark.parametrize(
    ("kind", "moving", "order"),
    [
        ("force", False, 2),
        pytest.param("force", True, 4, marks=pytest.mark.slow),
        pytest.param(None, True, 4, marks=pytest.mark.slow),
        pytest.param("M(q)", False, 2, marks=pytest.mark.slow),
        pytest.param("A(q)", False, 2, marks=pytest.mark.slow),
    ],
)
def test_so_are_gradients(kind, moving, order):
    made = lambda method: method if order == 2 else hx.Composition(method, order=order)
    once = gradient(1, made(hx.RATTLE()), jax.jacfwd, kind, moving)
    for transform in (jax.grad, jax.jacfwd):
        # multipliers: 5 times that of the first of two rows is what one row would have
        assert gradient(2, made(ACCEPTING), transform, kind, moving) == pytest.approx(once, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("forced", [False, True])
def test_all_distances_of_four_points(forced):
    """Four points with all six distances, five independent: gradients beside those of the five."""
    points = np.array([[1.0, 0.0], [0.0, 1.1], [-0.9, 0.0], [0.1, -1.0]])
    pairs = np.array([(i, j) for i in range(4) for j in range(i)])
    chosen = pairs[:-1]
    lengths = lambda some: np.linalg.norm(points[some[:, 0]] - points[some[:, 1]], axis=1)
    force = (lambda q, v, t, k: -0.3 * k * v) if forced else None

    def end(k, some, method):
        pull = lambda q, k: k * jnp.sum(jnp.cos(q[:, 0]) + 0.3 * q[:, 1] ** 2)
        system = hx.System(pull, hx.Distance(some, lengths(some)), force=force, params=k)
        q, _ = hx.integrate(system, method, points, np.zeros_like(points), dt=0.02, steps=4)
        return q[0, 0] + q[3, 1]

    all_of_them = float(jax.grad(end)(1.0, pairs, ACCEPTING))
    assert all_of_them == pytest.approx(float(jax.jacfwd(end)(1.0, chosen, hx.RATTLE())), rel=1e-10)


@pytest.mark.parametrize("q", [(1.0, 0.0), (0.6, 0.8)])
def test_at_rest_with_a_mass_that_depends_on_the_position(q):
    mass = lambda q, k: jnp.stack([1.0 + 0.1 * q[0] ** 2, 2.0])
    twice, once = (
        hx.simulate(pendulum(rows, mass=mass), method, q, (0.0, 0.0), dt=0.02, steps=20, backend="native")
        for rows, method in ((2, ACCEPTING), (1, hx.RATTLE()))
    )
    np.testing.assert_allclose(twice.q, once.q, rtol=0, atol=1e-15)


@pytest.mark.parametrize("method", [hx.VRATTLE, hx.VSHAKE])
def test_methods_that_cannot_treat_redundant_rows_say_so(method):
    chosen = method(hx.monitors.ArcLengthMonitor(), solver=hx.Newton(redundant="min-norm"))
    with pytest.raises(hx.MethodError, match="constraints that are independent of each other.*RATTLE"):
        hx.simulate(pendulum(2), chosen, (0.6, 0.8), (-0.8, 0.6), dt=0.01, steps=2)
