"""Steps so long that a constraint turns by more than a right angle: found, and said."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

PENDULUM = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([q @ q - 1.0]))
LONG = 0.6  # a quarter of the small oscillation's period is 0.5


def released(angle):
    return np.array([np.sin(angle), -np.cos(angle)]), np.zeros(2)


@pytest.mark.parametrize(
    "method",
    [
        hx.RATTLE(),
        pytest.param(hx.SHAKE(), marks=pytest.mark.slow),
        pytest.param(hx.RATTLE(hx.SymmetricNewton()), marks=pytest.mark.slow),
        pytest.param(hx.Composition(hx.RATTLE(), order=4), marks=pytest.mark.slow),
    ],
    ids=lambda m: m.name,
)
def test_no_step_of_a_pendulum_passes_through_its_pivot(method):
    """Near the upright the step without the rod ends below the pivot, next to the other solution of |q| = 1."""
    rescued = 0
    for angle in np.linspace(-3.1, 3.1, 60):
        sol = hx.simulate(PENDULUM, method, *released(angle), dt=LONG, steps=200, throw=False)
        rescued += sol.stats["retries"] > 0 and sol.stats["steps"] > 0
        if not isinstance(method, hx.Composition):  # whose rows are several steps apart
            assert np.all(np.sum(sol.q[1:] * sol.q[:-1], axis=1) > 0), angle
        # the other solution comes with an energy of its own: twice the weight at the upright
        assert np.abs(sol.energy_error()).max() < 15, angle
    assert rescued > 0  # with care the near solution is found where there is one


def test_an_ensemble_and_integrate_say_so():
    q, p = map(jnp.asarray, released(3.1))
    end, _, info = jax.jit(lambda q: hx.integrate(PENDULUM, hx.RATTLE(), q, p, dt=LONG, steps=1, info=True))(q)
    assert int(info.status) == hx.Status.OTHER_ROOT and np.isnan(end).all()
    ens = hx.simulate_ensemble(PENDULUM, hx.RATTLE(), q[None], p[None], dt=LONG, steps=1)
    assert ens.ok.all() and ens.stats["retries"] == 1  # taken again with care
    assert float(ens.q[0] @ q) > 0.9


def test_the_error_gives_a_step():
    found = None
    problem, rng = hx.models.double_pendulum(gravity=9.81), np.random.default_rng(0)
    for _ in range(60):
        angles = rng.uniform(-np.pi, np.pi, 2)
        q = np.cumsum(np.array([[1.0], [np.sqrt(2.0)]]) * np.stack([np.sin(angles), -np.cos(angles)], 1), axis=0)
        try:
            hx.simulate(problem.system, hx.RATTLE(), q, 0 * q, dt=0.35, steps=100)
        except hx.SimulationError as error:
            if error.status == hx.Status.OTHER_ROOT:
                found = str(error)
                break
    assert found is not None and "by more than 90 degrees" in found and "ake dt below 0." in found
    with pytest.raises(hx.ConvergenceError, match=r"by more than 60 degrees: take dt below 0\.3"):
        hx.simulate(PENDULUM, hx.RATTLE(), *released(2.5), dt=LONG, steps=10)


@pytest.mark.parametrize(
    "options",
    [{"force": lambda q, v, t: -0.01 * v}, {"mass": lambda q: jnp.diag(1.0 + 0.01 * q**2)}],
    ids=["force", "M(q)"],
)
def test_implicit_steps_as_well(options):
    system = hx.System(lambda q: 9.81 * q[1], lambda q: jnp.array([q @ q - 1.0]), **options)
    for angle in (2.6, 2.8, 3.0, 3.1):
        sol = hx.simulate(system, hx.RATTLE(), *released(angle), dt=LONG, steps=20, throw=False)
        assert np.all(np.sum(sol.q[1:] * sol.q[:-1], axis=1) > 0)


@pytest.mark.parametrize("structure", ["dense", "structured", "islands", "mixed"])
def test_the_product_of_each_row_in_every_form(structure):
    """`G_i(q1) M^-1 G_i(q)^T`, against the diagonal of the whole product."""
    rng = np.random.default_rng(1)
    if structure == "islands":
        problem = hx.models.water_cluster(7)
        system, q = problem.system, np.asarray(problem.q0)
    else:
        pairs = [[k - 1, k] for k in range(3 if structure == "dense" else 40)]
        rows = [hx.Distance(pairs, 1.0)] + [lambda q: jnp.stack([q[0] @ q[1] - 2.0])] * (structure == "mixed")
        q = np.cumsum(rng.normal(size=(len(pairs), 2)), axis=0)
        system = hx.System(lambda q: jnp.sum(q), rows, mass=1.0 + np.arange(len(pairs))[:, None])
    system, q = system.prepare(jnp.asarray(q)), jnp.asarray(q)
    q1 = q + 0.3 * rng.normal(size=q.shape)
    left, right = (np.asarray(system.linearize(x).todense()) for x in (q1, q))
    want = np.sum(left * np.asarray(system.mass_form(q).right(q, jnp.asarray(right))), axis=1)
    got = system.linearize(q1).row_products(system.mass_form(q), q, system.linearize(q))
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12 * np.abs(want).max())
    assert (system.islands(q) is not None) == (structure == "islands")
    for split in (True, False):
        assert bool(system.turns(q, q1, 0.0, 0.0, split)) == bool(want.min() < 0)
        assert not system.turns(q, q, 0.0, 0.0, split)
