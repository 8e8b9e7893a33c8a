"""Projection onto the manifold, the multiplier solvers and their iteration counts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.projection import direct_momenta
from holonomix.study.certificates.runs import follow

CHAIN = hx.models.chain(10)
SOLVERS = {
    "Newton": hx.Newton(),
    "SymmetricNewton": hx.SymmetricNewton(),
    "frozen": hx.SymmetricNewton(frozen=True),
    "GaussSeidel": hx.GaussSeidel(),
    "SOR": hx.SOR(1.7),
}


def ellipse():
    return hx.System(
        lambda q: 0.0 * q[0], lambda q: jnp.array([q[0] ** 2 / 4 + q[1] ** 2 - 1.0]), mass=jnp.array([1.0, 3.0])
    )


def test_project_gives_the_nearest_consistent_state():
    system, q, p = ellipse(), jnp.array([1.5, 1.0]), jnp.array([0.3, -2.0])
    q1, p1 = hx.project(system, q, p)
    assert abs(float(system.constraint(q1)[0])) < 1e-15
    assert abs(float(system.hidden_constraint(q1, p1)[0])) < 1e-15
    # nearest in the mass metric among many points of the ellipse
    angle = np.linspace(0, 2 * np.pi, 100_001)
    points = np.stack([2 * np.cos(angle), np.sin(angle)], 1)
    best = np.min(((points - np.asarray(q)) ** 2) @ np.array([1.0, 3.0]))
    assert float(jnp.sum((q1 - q) ** 2 * jnp.array([1.0, 3.0]))) == pytest.approx(best, rel=1e-8)
    # the momentum moves along G^T alone
    assert abs(float(jnp.cross(p1 - p, jax.grad(lambda x: system.constraint(x)[0])(q1)))) < 1e-14


def test_project_leaves_a_consistent_state_alone():
    q, p = hx.project(CHAIN.system, CHAIN.q0, CHAIN.p0)
    np.testing.assert_allclose(q, CHAIN.q0, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(p, CHAIN.p0)
    free = hx.models.kepler()
    np.testing.assert_array_equal(hx.project(free.system, free.q0, free.p0)[0], free.q0)


def test_project_under_jit_vmap_and_grad():
    system, q, p = ellipse(), jnp.array([1.5, 1.0]), jnp.array([0.3, -2.0])

    def landed(q):
        return hx.project(system, q, p)[0]

    np.testing.assert_allclose(jax.jit(landed)(q), landed(q), rtol=1e-14)
    np.testing.assert_allclose(jax.vmap(landed)(jnp.stack([q, 2 * q]))[1], landed(2 * q), rtol=1e-13)
    step = 1e-6
    numeric = np.stack([(landed(q + step * e) - landed(q - step * e)) / (2 * step) for e in jnp.eye(2)], 1)
    np.testing.assert_allclose(jax.jacrev(landed)(q), numeric, rtol=0, atol=1e-8)
    np.testing.assert_allclose(jax.jacfwd(landed)(q), jax.jacrev(landed)(q), rtol=0, atol=1e-13)


def test_project_that_cannot_succeed_says_what_is_left():
    nowhere = hx.System(lambda q: 0.0 * q[0], lambda q: jnp.array([q @ q + 1.0]))
    with pytest.raises(hx.HolonomixError, match=r"\d"):
        hx.project(nowhere, jnp.array([1.0, 2.0]), jnp.zeros(2))


def check_nearest(system, q, q1):
    """On the manifold, and the way there is normal to it, both to round-off; returns the multipliers of that way."""
    jac = system.linearize(q1)
    assert float(jnp.max(jnp.abs(system.constraint(q1)) / jac.row_sizes(q1))) < 1e-15
    multipliers = system.gram(q1, jac, jac).factor(symmetric=True).solve(jac(q - q1))
    off = float(jnp.max(jnp.abs(q1 - q + jac.transpose(multipliers))))
    assert off < 1e-14 * float(jnp.max(jnp.abs(q)))
    return multipliers


def test_many_coordinates_are_projected_with_the_curvature():
    """Gauss-Newton steps alone leave g = 1.6 after 200 iterations."""
    weights = np.linspace(1.0, 3.0, 70)
    system = hx.System(lambda q: 0.0 * q[0], lambda q: jnp.sum(weights * q**2)[None] - 1.0)
    q = 0.3 * jnp.cos(jnp.arange(70.0))
    q1 = hx.project(system, q, jnp.zeros_like(q))[0]
    check_nearest(system.prepare(q), q, q1)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "moved"), [(30, 0.2), (1000, 1e-3), (100_000, 1e-3)])
def test_long_chains_are_projected_to_round_off(n, moved):
    """Their multipliers add up the corrections of all links, and the curvature is as large as the mass."""
    chain = hx.models.chain(n)
    q = chain.q0 + moved * np.random.default_rng(0).standard_normal((n, 2))
    check_nearest(chain.system.prepare(q), q, hx.project(chain.system, q, jnp.zeros_like(q))[0])


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_find_the_same_point_down_to_round_off(name):
    problem = hx.models.double_pendulum(masses=(1.0, 0.5))
    system, q, solver = problem.system.prepare(problem.q0), problem.q0, SOLVERS[name]
    trial = q + jnp.array([[0.05, 0.01], [-0.02, 0.04]])
    found = solver.positions(system, q, trial, 0.0, 0.0, solver.init(system, q, 0.0))
    exact = hx.Newton().positions(system, q, trial, 0.0, 0.0)
    assert int(found.status) == 0 and int(found.iterations) > 0
    np.testing.assert_allclose(found.q, exact.q, rtol=0, atol=2e-14)
    np.testing.assert_allclose(found.multipliers, exact.multipliers, rtol=0, atol=2e-14)
    assert float(jnp.max(jnp.abs(system.constraint(found.q)))) < 1e-14
    momenta = solver.momenta(system, found.q, trial, 0.0)
    np.testing.assert_allclose(momenta.p, direct_momenta(system, found.q, trial).p, rtol=0, atol=1e-13)
    assert float(jnp.max(jnp.abs(system.hidden_constraint(found.q, momenta.p)))) < 1e-13


@pytest.mark.parametrize("name", ["SOR", pytest.param("Newton", marks=pytest.mark.slow)])
def test_derivatives_of_a_solve_do_not_depend_on_the_solver(name):
    problem = hx.models.double_pendulum()
    system, solver = problem.system.prepare(problem.q0), SOLVERS[name]

    def landed(shift):
        return solver.positions(
            system, problem.q0, problem.q0 + shift * jnp.array([[0.5, 0.1], [-0.2, 0.4]]), 0.0, 0.0
        ).q

    step = 1e-5
    numeric = (landed(0.1 + step) - landed(0.1 - step)) / (2 * step)
    np.testing.assert_allclose(jax.jacfwd(landed)(0.1), numeric, rtol=0, atol=1e-8)
    np.testing.assert_allclose(jax.jacrev(landed)(0.1), jax.jacfwd(landed)(0.1), rtol=0, atol=1e-13)


def chain_iterations(solver) -> tuple[float, object]:
    """Mean sweeps a step on the 10-link chain: dt 0.05, tol 1e-10 on max|g|, 200 steps from rest, zero first guess."""
    method, system = hx.RATTLE(solver=solver), CHAIN.system.prepare(CHAIN.q0)
    done = follow(system, method, CHAIN.q0, CHAIN.p0, 0.0, 0.05, 200)
    assert not done.status.failed and done.steps == 200
    return done.iterations, done.carry.memory


@pytest.mark.parametrize(
    ("solver", "least", "most"),
    [
        (hx.Newton(tol=1e-10), 2.0, 2.0),
        (hx.SymmetricNewton(tol=1e-10), 3.4, 3.7),
        (hx.SOR(1.7, tol=1e-10), 80, 100),
        (hx.GaussSeidel(tol=1e-10), 600, 700),
    ],
    ids=["Newton 2.0", "SNIP 3.5-3.6", "SOR 90", "Gauss-Seidel 650"],
)
def test_iteration_counts_on_the_chain(solver, least, most):
    assert least <= chain_iterations(solver)[0] <= most


@pytest.mark.slow
def test_frozen_factors_on_the_chain():
    # 6.0 sweeps with 6 factorizations, the first one included
    mean, carry = chain_iterations(hx.SymmetricNewton(tol=1e-10, frozen=True))
    assert mean == pytest.approx(6.0, abs=0.4)
    assert 1 + int(carry[2][1]) == 6


@pytest.mark.parametrize("solver", [hx.Newton, hx.SymmetricNewton, hx.GaussSeidel, hx.SOR])
@pytest.mark.parametrize("tol", [1e-17, -1.0])
def test_a_tolerance_that_cannot_be_met_is_refused(solver, tol):
    with pytest.raises(hx.InputError, match="1e-17" if tol > 0 else "-1"):
        solver(tol=tol)


def test_relaxation_factors_that_diverge_are_refused():
    with pytest.raises(hx.InputError, match=r"2\.1"):
        hx.SOR(2.1)


def test_a_projection_holds_few_copies_of_the_constraint():
    """A constraint may be a sum of many terms: XLA compiles every copy of it."""
    system = hx.System(lambda q: q[0], lambda q: jnp.stack([jnp.sin(q[0] * q[1]) - 0.3]))

    def count(jaxpr):
        inner = [getattr(x, "jaxpr", x) for e in jaxpr.eqns for v in e.params.values() for x in jax.tree.leaves(v)]
        return sum(e.primitive.name == "sin" for e in jaxpr.eqns) + sum(count(x) for x in inner if hasattr(x, "eqns"))

    assert 0 < count(jax.make_jaxpr(lambda q: hx.project(system, q, q))(jnp.ones(3)).jaxpr) <= 12
