"""Which measure each method samples: the constrained Gibbs measure, with the area of the mass metric."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics import as_mass
from holonomix.methods.langevin import ornstein_uhlenbeck, tangent_momentum
from holonomix.trace import compiled

from . import measures as m

EDGES = np.linspace(-np.pi, np.pi, 21)
LANGEVIN = {"dt": 0.07, "thin": 36, "burn": 144}
HMC = {"dt": 0.25, "thin": 4, "burn": 20}
SAMPLERS = {
    "GLA": (hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0), LANGEVIN),
    "GLA symmetric": (hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0, symmetric=True), LANGEVIN),
    "GeodesicBAOAB": (hx.GeodesicBAOAB(friction=1.0, temperature=1.0, geodesic_steps=2), LANGEVIN),
    "ConstrainedHMC": (hx.ConstrainedHMC(5, temperature=1.0), HMC),
}


@functools.cache
def on_torus(name):
    method, settings = SAMPLERS[name]
    return m.sample(m.TORUS, method, m.torus_start(2200), draws=50, **settings)


@pytest.mark.parametrize("name", SAMPLERS)
def test_torus(name):
    q, p, _ = on_torus(name)
    angle = m.torus_angle(q)
    for observable in (np.cos(angle), np.sin(angle), np.cos(2 * angle)):
        assert hx.invariants.effective_sample_size(observable) > 1e5
        assert hx.invariants.split_r_hat(observable) < 1.01
    assert m.chi_square(angle, EDGES, np.diff(m.torus_cdf(EDGES))) > 1e-3
    around = np.arctan2(q[..., 1], q[..., 0])
    assert m.chi_square(around, EDGES, np.full(20, 0.05)) > 1e-3
    assert m.kinetic_p_value(m.TORUS, q, p, freedom=2, temperature=1.0) > 1e-3
    # control: the same sample is not uniform in the angle
    assert m.chi_square(angle, EDGES, np.full(20, 0.05)) < 1e-12


def unprojected(system, q, p, dt, key):
    return jnp.exp(-dt) * p + jnp.sqrt(-jnp.expm1(-2 * dt)) * jax.random.normal(key, q.shape)


def test_without_the_projection_of_the_noise_the_torus_test_fails():
    q, p, _ = m.sample(m.TORUS, m.Thermostat(unprojected), m.torus_start(500), draws=20, **LANGEVIN)
    assert m.kinetic_p_value(m.TORUS, q, p, freedom=2, temperature=1.0) < 1e-12
    # it is the momenta that are wrong: RATTLE's position solve absorbs what is normal to the manifold
    good, *_ = m.sample(m.TORUS, SAMPLERS["GLA"][0], m.torus_start(500), draws=20, **LANGEVIN)
    np.testing.assert_allclose(q[:, 0], good[:, 0], rtol=0, atol=1e-6)


SPHERE_EDGES = np.linspace(-1, 1, 21)
SPHERE_SAMPLERS = {
    "GLA": (hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0), {"dt": 0.05, "thin": 60, "burn": 240}),
    "GeodesicBAOAB": (hx.GeodesicBAOAB(1.0, 1.0, geodesic_steps=1), {"dt": 0.05, "thin": 60, "burn": 240}),
    "ConstrainedHMC": (hx.ConstrainedHMC(10, temperature=1.0), {"dt": 0.15, "thin": 4, "burn": 20}),
}


@pytest.mark.parametrize("name", SPHERE_SAMPLERS)
def test_sphere_with_uneven_masses(name):
    method, settings = SPHERE_SAMPLERS[name]
    q, p, _ = m.sample(m.SPHERE, method, m.sphere_start(1100), draws=50, **settings)
    z = q[..., 2]
    assert hx.invariants.effective_sample_size(z) > 4e4
    right = m.fractions(lambda z: m.sphere_density(z, 1.0), SPHERE_EDGES)
    wrong = m.fractions(lambda z: m.sphere_density(z, 1.0, weighted=False), SPHERE_EDGES)
    assert m.chi_square(z, SPHERE_EDGES, right) > 1e-3
    assert m.chi_square(z, SPHERE_EDGES, wrong) < 1e-12
    assert m.kinetic_p_value(m.SPHERE, q, p, freedom=2, temperature=1.0) > 1e-3


def test_the_ornstein_uhlenbeck_step_keeps_the_constrained_gaussian(monkeypatch):
    """`p' = A p + B xi` with `A C A^T + B B^T = C`, `C = kT P M P^T`: to round-off, for any mass matrix."""
    root = np.random.default_rng(0).standard_normal((3, 3))
    mass, temperature = root @ root.T + np.eye(3), 0.7
    system = hx.System(lambda q: 0.0, lambda q: jnp.sum(q**2, keepdims=True) - 1.0, mass=mass).prepare(jnp.ones(3))
    q = jnp.array([0.48, 0.6, 0.64])
    project = jax.jit(jax.jacfwd(lambda p: tangent_momentum(system, q, p).p))(jnp.zeros(3))
    covariance = temperature * project @ mass @ project.T

    def thermalize(p, xi):
        monkeypatch.setattr(jax.random, "normal", lambda key, shape, dtype: xi)
        return ornstein_uhlenbeck(
            system, q, p, 0.0, dt=0.5, friction=1.3, temperature=temperature, key=jax.random.key(0)
        ).p

    a, b = jax.jit(jax.jacfwd(thermalize, argnums=(0, 1)))(jnp.zeros(3), jnp.zeros(3))
    np.testing.assert_allclose(a @ covariance @ a.T + b @ b.T, covariance, rtol=0, atol=1e-14)
    # control: friction gamma M^-1 instead of a rate, exact without constraints, does not survive the projection
    kept = jax.scipy.linalg.expm(-0.65 * jnp.linalg.inv(mass))
    noise = temperature * (mass - kept @ mass @ kept.T)
    paper = project @ (kept @ covariance @ kept.T + noise) @ project.T
    assert np.max(np.abs(paper - covariance)) > 1e-3


def test_free_harmonic_positions_are_exact_for_baoab_at_large_steps():
    spring = hx.System(lambda q: 0.5 * jnp.sum(q**2))
    start = np.zeros((2000, 2))
    for method, exact in ((hx.GeodesicBAOAB(1.0, 0.7), True), (hx.GLA(hx.StormerVerlet(), 1.0, 0.7), False)):
        q, *_ = m.sample(spring, method, start, dt=1.0, draws=30, thin=8, burn=40)
        assert (abs(np.var(q) / 0.7 - 1) < 0.02) == exact


def test_hmc_is_exact_where_langevin_is_not_and_reports_its_rates():
    method = hx.ConstrainedHMC(3, temperature=1.0)
    q, p, ensemble = m.sample(m.TORUS, method, m.torus_start(600), dt=0.5, draws=50, thin=6, burn=24)
    angle = m.torus_angle(q)
    assert m.chi_square(angle, EDGES, np.diff(m.torus_cdf(EDGES))) > 1e-3
    assert m.kinetic_p_value(m.TORUS, q, p, freedom=2, temperature=1.0) > 1e-3
    rate = ensemble.rows["step/acceptance"][:, -1]
    assert 0.4 < rate.mean() < 0.8
    # steps this long lose projections; a Langevin path has no way to reject one
    gla = hx.simulate_ensemble(
        m.TORUS, hx.GLA(), q[:100, -1], 0 * q[:100, -1], dt=0.5, steps=300, key=jax.random.key(1)
    )
    assert not gla.ok.all()


def test_the_reversibility_check_is_needed():
    """Accepting trajectories that do not return biases the sample: the check is what makes long steps right."""

    def p_value(return_tol):
        method = hx.ConstrainedHMC(3, temperature=1.0, return_tol=return_tol)
        q, *_ = m.sample(m.TORUS, method, m.torus_start(4000), dt=0.6, draws=50, thin=8, burn=48)
        return m.chi_square(m.torus_angle(q), EDGES, np.diff(m.torus_cdf(EDGES)))

    assert p_value(np.inf) < 1e-6 and p_value(1e-8) > 1e-3


@pytest.mark.parametrize(
    "make",
    [
        lambda: hx.GLA(hx.SHAKE()),
        lambda: hx.GLA(hx.GLA()),
        lambda: hx.GLA(friction=-1.0),
        lambda: hx.GLA(temperature=-0.1),
        lambda: hx.GeodesicBAOAB(geodesic_steps=0),
        lambda: hx.ConstrainedHMC(0),
        lambda: hx.ConstrainedHMC(method=hx.RK4()),
    ],
)
def test_what_cannot_work_is_refused(make):
    with pytest.raises(hx.HolonomixError):
        make()


def test_moving_manifolds_and_applied_forces_are_refused():
    moving = hx.System(lambda q: 0.0, hx.Rheonomic(lambda q, t: jnp.array([q[0] - t])))
    forced = hx.System(lambda q: 0.0, lambda q: q[:1], force=lambda q, v, t: -v)
    for method in (hx.GLA(), hx.GeodesicBAOAB(), hx.ConstrainedHMC()):
        with pytest.raises(hx.MethodError):
            method.check(moving)
    for method in (hx.GeodesicBAOAB(), hx.ConstrainedHMC()):
        with pytest.raises(hx.MethodError):
            method.check(forced)


def test_temperature_and_friction_do_not_recompile():
    system = hx.System(lambda q: 0.5 * jnp.sum(q**2))
    counts = []
    for temperature in (0.5, 1.0, 2.0):
        method = hx.GLA(hx.RATTLE(), friction=temperature, temperature=temperature)
        hx.integrate(system, method, np.ones(2), np.ones(2), dt=0.1, steps=3, key=jax.random.key(0))
        counts.append(compiled.statistics["compiled"])
    assert counts[0] > 0 and counts == counts[:1] * 3


@pytest.mark.parametrize("size", [1, 3, 20])
def test_root_of_the_mass(size):
    """The noise `L xi` has the covariance M for every form of the mass, unrolled or not."""
    a = np.random.default_rng(size).standard_normal((size, size))
    mass = a @ a.T + np.eye(size)
    q = jnp.zeros(size)
    for form in (as_mass(mass, q), as_mass(lambda q: jnp.asarray(mass), q)):
        lower = jax.jacfwd(lambda xi: form.root(q, xi))(q)  # noqa: B023
        np.testing.assert_allclose(lower @ lower.T, mass, rtol=0, atol=1e-13 * np.max(mass))


def test_a_dense_mass_stays_with_the_kernel_compiler():
    system = hx.System(lambda q: 0.5 * jnp.sum(q**2), mass=np.array([[2.0, 0.5], [0.5, 1.0]]))
    sol = hx.simulate(
        system, hx.GLA(), np.ones(2), np.zeros(2), dt=0.1, steps=50, key=jax.random.key(0), backend="native"
    )
    assert sol.stats["backend"] == "native"


@pytest.mark.parametrize("inner", [hx.HBVM(2, 2), hx.Composition(hx.RATTLE(), order=4)], ids=["HBVM", "Composition"])
def test_any_deterministic_method_may_be_inside(inner):
    q, p, _ = m.sample(m.TORUS, hx.GLA(inner), m.torus_start(100), dt=0.07, draws=10, thin=36, burn=72)
    edges = EDGES[::2]
    assert m.chi_square(m.torus_angle(q), edges, np.diff(m.torus_cdf(edges))) > 1e-3
    assert m.kinetic_p_value(m.TORUS, q, p, freedom=2, temperature=1.0) > 1e-3


@pytest.mark.parametrize(
    "method",
    [hx.GLA(), hx.GeodesicBAOAB(), hx.ConstrainedHMC(), hx.ConstrainedHMC(3, 1.0, 2.0)],
    ids=["GLA", "BAOAB", "HMC", "HMC with friction"],
)
def test_a_heat_bath_does_not_run_backwards(method):
    pendulum = hx.models.planar_pendulum(angle=1.0)
    given = {"dt": -0.25, "steps": 2, "key": jax.random.key(0)}
    many = (jnp.stack([x] * 2) for x in (pendulum.q0, pendulum.p0))
    for run in (
        lambda: hx.simulate(pendulum, method, **given),
        lambda: hx.integrate(pendulum, method, **given),
        lambda: hx.simulate_ensemble(pendulum.system, method, *many, **given),
    ):
        with pytest.raises(hx.InputError, match=r"cannot run backwards, with dt = -0\.25.*Take dt = 0\.25"):
            run()


def test_without_friction_it_does():
    pendulum, method = hx.models.planar_pendulum(angle=1.0), hx.GLA(hx.RATTLE(), friction=0.0)
    there = hx.integrate(pendulum, method, dt=0.1, steps=20, key=jax.random.key(0))
    back = hx.integrate(pendulum, method, *there, dt=-0.1, steps=20, key=jax.random.key(0))
    np.testing.assert_allclose(back, (pendulum.q0, pendulum.p0), rtol=0, atol=1e-13)


def test_derivatives_without_friction_are_those_of_the_method_alone():
    """No noise, and no 0/0 from the square root of its size."""

    def end(method, mass, dt):
        system = hx.System(lambda q: q[1] + q[0] ** 2, mass=lambda q: mass * jnp.array([1.0, 1.0 + q[0] ** 2]))
        q, p = jnp.array([0.3, 0.2]), jnp.array([0.4, -0.1])
        given = {"key": jax.random.key(0)} if method.stochastic else {}
        return hx.integrate(system, method, q, p, dt=dt, steps=5, **given)[0]

    without = jax.jacobian(lambda m, h: end(hx.GLA(hx.RATTLE(), friction=0.0), m, h), (0, 1))(1.3, 0.05)
    alone = jax.jacobian(lambda m, h: end(hx.RATTLE(), m, h), (0, 1))(1.3, 0.05)
    for a, b in zip(without, alone, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
