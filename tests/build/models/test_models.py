"""Every model: consistent starts, references that solve the equations, invariants that are kept, bad input refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from scipy.integrate import solve_ivp

import holonomix as hx
from holonomix.mechanics.projection import check_start

BASIC = (
    "planar_pendulum spherical_pendulum conical_pendulum modified_pendulum double_pendulum chain tethered_satellites "
    "kepler henon_heiles harmonic_oscillator bead_on_surface"
).split()


@pytest.mark.parametrize("name", BASIC)
def test_the_start_is_consistent_and_the_numbers_are_sensible(name):
    problem = hx.models.registry()[name]()
    system, q, p = problem.system, problem.q0, problem.p0
    assert q.shape == p.shape and 0 < problem.dt < problem.t1 and problem.name
    scale = 1 + float(jnp.max(jnp.abs(q))) ** 2
    assert np.max(np.abs(system.prepare(q).hidden_constraint(q, p)), initial=0.0) < 1e-15 * scale
    if system.has_constraints:
        assert np.max(np.abs(system.constraint(q))) < 1e-15 * scale
    check_start(system, q, p)


def test_the_papers_starts():
    np.testing.assert_array_equal(hx.models.double_pendulum().q0, [[0, -1], [1, -2]])
    np.testing.assert_array_equal(hx.models.chain(3).q0, [[1, -2], [2, -4], [3, -6]])
    satellites = hx.models.tethered_satellites()
    assert float(satellites.p0[2, 0]) == 0.5517822421601886
    assert abs(float(satellites.system.hamiltonian(satellites.q0, satellites.p0))) < 1e-16
    conical = hx.models.conical_pendulum()
    np.testing.assert_allclose(conical.system.multipliers(conical.q0, conical.p0), [2**-0.5], rtol=1e-15)
    assert conical.t1 == pytest.approx(10 * 2**0.75 * np.pi, rel=1e-15)
    modified = hx.models.modified_pendulum()
    np.testing.assert_allclose(modified.q0, conical.q0, rtol=1e-15)
    np.testing.assert_allclose(modified.p0, conical.p0, rtol=1e-15)


def exact(problem, times):
    """Dense output of a tight run of the equations of motion, index-reduced: independent of our methods."""
    system, shape, size = problem.system.prepare(problem.q0), problem.q0.shape, problem.q0.size

    @jax.jit
    def rhs(z):
        q, p = z[:size].reshape(shape), z[size:].reshape(shape)
        force = system.force(q, p)
        if system.has_constraints:
            force = force - system.linearize(q).transpose(system.multipliers(q, p))
        return jnp.concatenate([system.velocity(q, p).reshape(-1), force.reshape(-1)])

    z0 = np.concatenate([np.ravel(problem.q0), np.ravel(problem.p0)])
    z = solve_ivp(lambda t, z: rhs(z), (0, times[-1]), z0, "DOP853", times, rtol=1e-12, atol=1e-13).y.T
    return z[:, :size].reshape(-1, *shape), z[:, size:].reshape(-1, *shape)


REFERENCES = {
    "pendulum": lambda: hx.models.planar_pendulum(),
    "pendulum at rest": lambda: hx.models.planar_pendulum(2.5, 0.0),
    "pendulum falling": lambda: hx.models.planar_pendulum(0.5, -1.3, length=1.3, gravity=2.0, mass=0.7),
    "pendulum rotating": lambda: hx.models.planar_pendulum(-1.0, -2.7, length=1.3, gravity=2.0, mass=0.7),
    "pendulum on the separatrix": lambda: hx.models.planar_pendulum(0.0, -2.0),
    "conical": lambda: hx.models.conical_pendulum(angle=0.9, length=1.4, gravity=0.8, mass=1.7),
    "kepler": lambda: hx.models.kepler(0.6),
    "kepler, slender": lambda: hx.models.kepler(0.95, mu=2.0),
    "harmonic": lambda: hx.models.harmonic_oscillator((1.0, 2.5), (1.0, -0.5), (0.2, 1.0), mass=1.9),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_references_solve_the_equations(name):
    problem = REFERENCES[name]()
    times = np.linspace(0.0, 7.0, 29)
    q, p = problem.reference(times)
    truth_q, truth_p = exact(problem, times)
    assert np.max(np.abs(q - truth_q)) < 1e-9 and np.max(np.abs(p - truth_p)) < 3e-9
    np.testing.assert_allclose(q[0], problem.q0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(p[0], problem.p0, rtol=0, atol=1e-14)


def test_the_pendulum_of_the_paper_in_closed_form():
    t = np.linspace(0, 10, 101)
    sn = special.ellipj(t, 0.25)[0]
    theta = 2 * np.arcsin(sn / 2)
    q, _ = hx.models.planar_pendulum().reference(t)
    np.testing.assert_allclose(q, np.stack([np.sin(theta), -np.cos(theta)], 1), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "name", ["spherical_pendulum", "conical_pendulum", "tethered_satellites", "kepler", "bead_on_surface"]
)
def test_invariants_are_kept_by_the_motion(name):
    problem = hx.models.registry()[name]()
    assert problem.invariants
    q, p = exact(problem, np.linspace(0.0, 5.0, 11))
    for values in hx.invariants.along(problem.invariants, jnp.asarray(q), jnp.asarray(p)).values():
        assert hx.invariants.drift(values) < 1e-9


def test_a_bead_on_a_surface_of_ones_own():
    def saddle(q):
        return q[2] - q[0] * q[1]

    problem = hx.models.bead_on_surface(saddle, q0=(1.0, 2.0, 2.0), p0=(1.0, 0.0, 0.0), gravity=1.0)
    assert abs(float(problem.system.hidden_constraint(problem.q0, problem.p0)[0])) < 1e-15
    ellipsoid = hx.models.bead_on_surface("ellipsoid")
    sol = hx.simulate(ellipsoid, hx.RATTLE(), dt=0.05, steps=100)
    speed = np.linalg.norm(sol.p, axis=1)
    assert np.ptp(speed) < 1e-3  # a geodesic has constant speed


def test_numbers_of_a_model_can_be_differentiated():
    def height(length):
        return hx.models.double_pendulum(lengths=(length, 1.0), angles=(0.3, 0.2)).q0[1, 1]

    assert float(jax.grad(height)(1.2)) == pytest.approx(-np.cos(0.3), rel=1e-14)
    assert float(jax.grad(lambda e: hx.models.kepler(e).q0[0])(0.5)) == -1.0


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (lambda: hx.models.planar_pendulum(length=-2.5), "-2.5"),
        (lambda: hx.models.planar_pendulum(mass=0.0), "0"),
        (lambda: hx.models.spherical_pendulum(velocity=(1.0, 2.0, 3.0)), r"\(3,\)"),
        (lambda: hx.models.conical_pendulum(angle=1.7), "1.7"),
        (lambda: hx.models.modified_pendulum(level=0.3), "0.3"),
        (lambda: hx.models.double_pendulum(masses=(1.0, -1.0)), "-1"),
        (lambda: hx.models.double_pendulum(lengths=(1.0, 1.0, 1.0)), r"\(3,\)"),
        (lambda: hx.models.double_pendulum(gravity=np.nan), "nan"),
        (lambda: hx.models.chain(0), "not 0"),
        (lambda: hx.models.kepler(1.2), "1.2"),
        (lambda: hx.models.tethered_satellites(height=0.5), "0.5"),
        (lambda: hx.models.henon_heiles(energy=0.001), "0.001"),
        (lambda: hx.models.harmonic_oscillator((1.0, -3.0)), "-3"),
        (lambda: hx.models.bead_on_surface("klein bottle"), "klein"),
        (lambda: hx.models.bead_on_surface(lambda q: q[2] - 0.25, q0=(0.0, 0.0, 0.0)), "-0.25"),
        (lambda: hx.models.bead_on_surface(lambda q: q @ q, q0=(0.0, 0.0, 0.0)), "gradient is 0"),
    ],
)
def test_bad_numbers_are_refused_with_the_number(make, number):
    with pytest.raises(hx.InputError, match=number):
        make()
