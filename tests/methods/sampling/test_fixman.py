"""The Fixman potential: rigid butane with it folds as stiff butane does, without it differently."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import holonomix as hx
from holonomix.build.models.alkanes import butane_positions, dihedral
from holonomix.build.models.water import UNITS
from holonomix.mechanics import fixman_potential

from . import measures as m

TEMPERATURE = 900.0
KT = UNITS["kcal/mol"].boltzmann * TEMPERATURE
EDGES = np.linspace(-np.pi, np.pi, 25)


def plane_pair(mass):
    return hx.System(
        lambda q: q[1],
        lambda q: jnp.array([jnp.sum(q[:2] ** 2) - 1, jnp.sum((q[2:4] - q[:2]) ** 2) - 2.0]),
        mass=mass,
    )


def test_penalty_and_frequencies_give_one_potential():
    q = jnp.array([0.6, -0.8, 1.6, -1.8, 0.3, 0.4])
    system = plane_pair(np.array([1.0, 2.0, 1.5, 3.0, 1.0, 2.0]))
    stiff = system.penalized(30.0)

    @jax.jit
    def measured(q):
        potentials = fixman_potential(system, q), fixman_potential(stiff, q), jnp.sum(jnp.log(stiff.frequencies(q)))
        forces = [hx.mechanics.fixman(s, 0.7).gradient(q) for s in (system, stiff)] + [system.gradient(q)]
        return potentials, [stiff.tangent(q, f) for f in forces]

    (by_determinant, by_matrices, by_product), (along, other, without) = measured(q)
    np.testing.assert_allclose([by_determinant, by_matrices], by_product, rtol=1e-13)
    # and one force along the manifold
    np.testing.assert_allclose(along, other, rtol=0, atol=1e-13)
    assert np.max(np.abs(along - without)) > 0.1


def test_gradient_is_half_the_trace():
    """`grad (kT/2) log det B = (kT/2) tr(B^-1 dB)`, and params of the system still count."""
    q = butane_positions(0.8)
    system = hx.models.butane().system
    corrected = hx.mechanics.fixman(system, 2.0)

    def gram(x):
        jac = system.linearize(x)
        return system.gram(x, jac, jac).todense()

    free = corrected.with_params({**system.params, "torsion": 0 * system.params["torsion"]})

    @jax.jit
    def measured(q):
        trace = jnp.einsum("ij,ji...->...", jnp.linalg.inv(gram(q)), jax.jacfwd(gram)(q))
        return trace, [s.gradient(q) for s in (system, corrected, free)]

    trace, (plain, with_fixman, alone) = measured(q)
    np.testing.assert_allclose(with_fixman, plain + trace, rtol=0, atol=1e-12)
    np.testing.assert_allclose(alone, trace, rtol=0, atol=1e-12)


def test_only_fixed_constraints_have_one():
    with pytest.raises(hx.InputError):
        hx.mechanics.fixman(hx.System(lambda q: 0.0), 1.0)
    with pytest.raises(hx.InputError):
        hx.mechanics.fixman(hx.System(lambda q: 0.0, hx.Rheonomic(lambda q, t: jnp.array([q[0] - t]))), 1.0)
    with pytest.raises(hx.InputError):
        hx.mechanics.fixman(plane_pair(1.0), -1.0)


def stiff_density(angle):
    """Bond lengths, angles and dihedral are separate coordinates: stiff springs leave it its own Boltzmann factor."""
    energy = jax.vmap(hx.models.butane().system.potential)(jax.vmap(butane_positions)(jnp.asarray(angle)))
    return np.exp(-np.asarray(energy) / KT)


def rigid_density(angle):
    system = hx.models.butane().system
    log = jax.vmap(lambda a: fixman_potential(system, butane_positions(a)))(jnp.asarray(angle))
    return stiff_density(angle) * np.exp(np.asarray(log))


@functools.cache
def shares(stiff):
    return m.fractions(stiff_density if stiff else rigid_density, EDGES, fine=40)


def dihedrals(system, method, chains, **settings):
    start = jax.vmap(butane_positions)(jnp.linspace(-np.pi, np.pi, chains, endpoint=False))
    q, _, _ = m.sample(system, method, start, **settings)
    return np.asarray(jax.vmap(jax.vmap(dihedral))(jnp.asarray(q)))


def rigid_dihedrals(with_fixman, chains=500):
    problem = hx.models.butane()
    system = hx.mechanics.fixman(problem.system, KT) if with_fixman else problem.system
    method = hx.GLA(hx.RATTLE(hx.SymmetricNewton()), friction=0.2, temperature=KT)
    return dihedrals(system, method, chains, dt=2 * problem.dt, draws=25, thin=500, burn=1500)


def test_what_the_correction_changes_in_butane():
    """The two densities of the dihedral angle differ by exp(W/kT), whose extremes are in the ratio 1.28 to 0.86."""
    angle = np.linspace(-np.pi, np.pi, 91)
    log = jax.jit(jax.vmap(lambda a: fixman_potential(hx.models.butane().system, butane_positions(a))))(angle)
    assert np.exp(np.ptp(log)) == pytest.approx(1.28 / 0.86, abs=0.02)


@pytest.mark.parametrize("with_fixman", [False, True])
def test_two_rods_of_a_plane(with_fixman):
    """Springs leave the angle between two rods to chance; rods prefer a right angle, the more the lighter the joint."""
    rods = hx.System(
        lambda q: 0.0 * q[0],
        lambda q: jnp.array([jnp.sum(q[:2] ** 2) - 1, jnp.sum((q[2:] - q[:2]) ** 2) - 1]),
        mass=np.array([0.5, 0.5, 1.0, 1.0]),
    )
    system = hx.mechanics.fixman(rods, 0.1) if with_fixman else rods
    turn = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    start = np.stack([1 + 0 * turn, 0 * turn, 1 + np.cos(turn), np.sin(turn)], axis=-1)
    q, *_ = m.sample(system, hx.GLA(hx.RATTLE(), 0.5, 0.1), start, dt=0.07, draws=10, thin=100, burn=400)
    cosine = np.sum(q[..., :2] * (q[..., 2:] - q[..., :2]), axis=-1)
    sine = q[..., 0] * q[..., 3] - q[..., 1] * q[..., 2]
    edges = np.linspace(-np.pi, np.pi, 13)
    even = np.full(12, 1 / 12)
    uneven = m.fractions(lambda x: np.sqrt(1.5 - np.cos(x) ** 2), edges)
    p_values = [m.chi_square(np.arctan2(sine, cosine), edges, shares) for shares in (even, uneven)]
    right, wrong = p_values if with_fixman else p_values[::-1]
    assert right > 1e-3 and wrong < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("with_fixman", [False, True])
def test_butane(with_fixman):
    angle = rigid_dihedrals(with_fixman)
    for observable in (np.cos(angle), np.sin(angle)):
        assert hx.invariants.effective_sample_size(observable) > 8_000
    assert m.chi_square(angle, EDGES, shares(with_fixman)) > 1e-3
    assert m.chi_square(angle, EDGES, shares(not with_fixman)) < 1e-8


@pytest.mark.slow
def test_stiff_butane_is_rigid_butane_with_the_correction():
    """The reference is simulated: Verlet resolving springs of the stiffness of real bonds."""
    problem = hx.models.butane(rigid=False)
    method = hx.GLA(hx.StormerVerlet(), friction=0.2, temperature=KT)
    stiff = dihedrals(problem.system, method, 2000, dt=problem.dt / 6, draws=15, thin=7200, burn=21600)
    count = np.histogram(stiff, EDGES)[0]
    for with_fixman in (True, False):
        other = np.histogram(rigid_dihedrals(with_fixman, 2000), EDGES)[0]
        agreement = stats.chi2_contingency(np.stack([count, other])).pvalue
        assert (agreement > 1e-3) if with_fixman else (agreement < 1e-6)
