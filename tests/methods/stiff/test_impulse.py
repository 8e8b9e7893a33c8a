"""Impulse methods on benchmark C, and with a mass that depends on the position."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.study.papers.lubich_weiss import errors
from tests.tools import symplectic_defect

MAKE = {"impulse": hx.Impulse, "projected": hx.ProjectedImpulse, "mollified": hx.MollifiedImpulse}


def test_mollified_kick_is_the_closed_form():
    problem = hx.models.stiff_spring_double_pendulum(1e-2)
    stiff, x = problem.system, problem.q0 + 0.03
    rigid = stiff.constrained()

    @jax.jit
    def closed(x):
        foot, lam = stiff.foot(x)
        v = stiff.slow.gradient(foot).reshape(-1)
        here, there = rigid.linearize(x).todense(), rigid.linearize(foot).todense()
        u = v - there.T @ jnp.linalg.solve(here @ there.T, here @ v)
        hessian = jax.hessian(lambda y: lam @ rigid.constraint(y))(x).reshape(4, 4)
        return (u + hessian @ u).reshape(2, 2), (hessian @ u).reshape(2, 2)

    kick = -jax.jit(lambda y: hx.MollifiedImpulse().kick(stiff, y)[0])(x)
    force, bend = closed(x)
    assert float(jnp.max(jnp.abs(kick - force))) < 1e-14
    assert float(jnp.max(jnp.abs(bend))) > 1e-3  # the term that must not be left out


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_the_first_action_tells_the_methods_apart(make):
    problem = hx.models.stiff_spring_double_pendulum(1e-3)
    sol = hx.simulate(problem, make(substeps=10_000), dt=0.2, t1=4.0)
    actions = jax.jit(jax.vmap(problem.system.actions))(jnp.asarray(sol.q), jnp.asarray(sol.p))
    drift = float(np.max(np.abs(actions[:, 0] - actions[0, 0])))
    assert drift > 0.1 if make is hx.Impulse else drift < 1e-4


@pytest.mark.slow
def test_errors_against_the_effective_system():
    problem = hx.models.stiff_spring_double_pendulum(1e-3)
    found = {name: [errors(problem, m(substeps=20_000), h) for h in (0.4, 0.2)] for name, m in MAKE.items()}
    for name in ("projected", "mollified"):
        (x1, y1, drift1, whole), (x2, y2, drift2, _) = found[name]
        assert 3 < x1 / x2 < 5 and 2.5 < y1 / y2 < 5
        assert max(drift1[0], drift2[0]) < 1e-4
        assert whole > 1  # the normal momentum is not approximated
    assert min(drift[0] for _, _, drift, _ in found["impulse"]) > 0.1
    assert found["impulse"][1][0] > 4 * found["mollified"][1][0]
    assert abs(found["projected"][1][0] - found["mollified"][1][0]) < 1e-3  # O(eps)


@pytest.mark.slow
def test_benchmark_c():
    problem = hx.models.stiff_spring_double_pendulum(1e-4)
    sheet = {"impulse": (5.7e-2, 6.7e-2), "projected": (4.1e-3, 1.1e-3), "mollified": (4.1e-3, 1.1e-3)}
    for name, m in MAKE.items():
        found = [errors(problem, m(substeps=round(h * 1e6)), h) for h in (0.2, 0.1)]
        for (x, _, drift, _), expected in zip(found, sheet[name], strict=True):
            assert abs(x - expected) < 0.05 * expected
            assert drift[0] > 0.1 if name == "impulse" else drift[0] < 1e-5


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("impulse", 0, 1e-12), pytest.param("mollified", 0, 1e-12, marks=pytest.mark.slow), ("projected", 1e-2, 1)],
)
def test_symplectic_or_not(name, low, high):
    problem = hx.models.stiff_spring_double_pendulum(1e-2)
    assert low <= symplectic_defect(problem.system, MAKE[name](substeps=200), problem.q0, problem.p0, 0.1) < high


class Polar(eqx.Module):
    """Polar coordinates of a point of unit mass."""

    def __call__(self, q):
        return jnp.diag(jnp.stack([1.0, q[0] ** 2]))


def spring(epsilon):
    """A stiff spring pendulum in polar coordinates (r, phi): a mass that depends on the position."""
    slow = lambda q: -q[0] * jnp.cos(q[1])
    return hx.StiffSystem(slow, lambda q: 0.5 * (q[0] - 1) ** 2, lambda q: q[:1] - 1, Polar(), epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("make", [hx.Impulse, hx.MollifiedImpulse, hx.ProjectedImpulse])
def test_position_dependent_mass(make):
    # the same motion in polar and in Cartesian coordinates
    eps, h = 0.02, 0.1
    polar = spring(eps)
    length = lambda x: jnp.sqrt(jnp.sum(x**2))
    flat = hx.StiffSystem(lambda x: x[1], lambda x: 0.5 * (length(x) - 1) ** 2, lambda x: length(x)[None] - 1, 1.0, eps)
    to_flat = lambda q: jnp.stack([q[0] * jnp.sin(q[1]), -q[0] * jnp.cos(q[1])])
    q0, p0 = jnp.array([1 + 2 * eps, 0.8]), jnp.array([0.0, 0.3])
    x0 = to_flat(q0)
    y0 = jnp.linalg.solve(jax.jacfwd(to_flat)(q0).T, p0)
    method = make(substeps=200)
    run = lambda s, q, p: hx.simulate(s, method, q, p, dt=h, steps=10)
    curved, straight = run(polar, q0, p0), run(flat, x0, y0)
    assert np.max(np.abs(to_flat(jnp.asarray(curved.final_q)) - straight.final_q)) < 2e-3
    assert np.max(np.abs(run(polar, curved.final_q, -curved.final_p).final_q - q0)) < 1e-11
    assert np.isclose(polar.actions(q0, p0)[0], flat.actions(x0, y0)[0], rtol=1e-2, atol=0)
