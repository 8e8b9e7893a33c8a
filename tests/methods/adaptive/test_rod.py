"""Benchmark B: the Cosserat rod that hits a wall, N = 10, T = 0.25."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.build.models.rod import backbone, wall_distances
from holonomix.core.status import Status
from holonomix.mechanics.projection import check_start

from .support import advance, begin, densities, there_and_back, without_structure

benchmark = functools.cache(hx.models.cosserat_rod)  # not at import: it compiles
WALL = hx.monitors.WallMonitor(wall_distances, 3.0)
STEPS = {0.02: 73, 0.01: 146}  # until t = 0.25


def worst(problem, method, dt, steps):
    system, state, carry = begin(problem, method, dt)
    state, _, status, error, _ = advance(system, method, state, carry, jnp.asarray(steps))
    assert int(status) == Status.OK
    return float(error), state


class Fixed(eqx.Module):
    """A fixed-step method behind the interface of `advance`, which passes no step size."""

    method: hx.RATTLE
    dt: jnp.ndarray

    def init(self, system, state, dt):
        return self.method.init(system, state, self.dt)

    def read(self, system, state, carry):
        return state

    def step(self, system, state, dt, carry):
        return self.method.step(system, state, self.dt, carry)


@pytest.fixture(scope="module")
def measured():
    adaptive = hx.VRATTLE(WALL, start="forward")
    plain = without_structure(benchmark())
    out = {}
    for h0, steps in STEPS.items():
        error, state = worst(benchmark(), adaptive, h0, steps)
        assert 0.25 <= float(state.t) < 0.25 + 0.02  # this many steps reach the end
        fixed, _ = worst(plain, Fixed(hx.RATTLE(), jnp.asarray(0.25 / steps)), 0.0, steps)
        out[h0] = error, fixed
    return out


@pytest.mark.slow
def test_energy_errors_have_the_known_values(measured):
    assert measured[0.02][0] == pytest.approx(8.58e-4, rel=0.01)
    assert measured[0.02][1] == pytest.approx(3.20e-3, rel=0.01)
    assert measured[0.01][0] == pytest.approx(2.13e-4, rel=0.01)
    assert measured[0.01][1] == pytest.approx(8.04e-4, rel=0.01)


@pytest.mark.slow
def test_variable_steps_win_and_the_error_quarters(measured):
    for adaptive, fixed in measured.values():
        assert 3 < fixed / adaptive < 5
    assert 3.8 < measured[0.02][0] / measured[0.01][0] < 4.2


@pytest.mark.slow
def test_reversal():
    apart, moved = there_and_back(benchmark(), hx.VRATTLE(WALL, start="forward"), 0.02, 73)
    assert apart < 1e-12
    assert moved > 0.2


def _matrices(system, q):
    jac = system.linearize(q)
    return jac.todense(), system.gram(q, jac, jac).todense()


def test_gram_matrix_is_block_tridiagonal_of_full_rank():
    rod = benchmark()
    system = rod.system.prepare(rod.q0)
    q = rod.q0 + 0.05 * jnp.asarray(np.random.default_rng(0).standard_normal(rod.q0.shape))
    rows, ours = eqx.filter_jit(_matrices)(system, q)
    dense = np.asarray(rows)
    assert dense.shape == (60, 90) and np.linalg.matrix_rank(dense) == 60
    full = np.kron(np.eye(10), np.linalg.inv(np.asarray(system.mass.matrix)))
    gram = dense @ full @ dense.T
    blocks = gram.reshape(10, 6, 10, 6).transpose(0, 2, 1, 3)
    for i in range(10):
        for j in range(10):
            assert (np.max(np.abs(blocks[i, j])) > 1e-3) == (abs(i - j) <= 1)  # exactly zero beyond the neighbors
            assert abs(i - j) <= 1 or np.all(blocks[i, j] == 0.0)
    np.testing.assert_allclose(ours, gram, rtol=0, atol=1e-10 * np.max(np.abs(gram)))
    assert "6 x 6 blocks: block tridiagonal" in system.structure(q)


def test_the_start_is_consistent_for_any_number_of_nodes():
    @eqx.filter_jit
    def defects(system, q, p):
        return jnp.max(jnp.abs(system.constraint(q))), jnp.max(jnp.abs(system.hidden_constraint(q, p)))

    for nodes, end in ((1, "clamped"), (1, "free"), (7, "clamped"), (7, "free")):
        rod = hx.models.cosserat_rod(nodes, end=end)
        assert rod.q0.shape == (nodes + (end == "free"), 9)
        position, velocity = defects(rod.system.prepare(rod.q0), rod.q0, rod.p0)
        assert float(position) < 1e-14 and float(velocity) < 1e-13


def test_naive_density_oscillates_and_the_forward_start_does_not():
    def wiggle(start):
        # the start is all that differs: one compiled step serves both
        rho = densities(benchmark(), hx.VRATTLE(WALL, start="forward"), hx.VRATTLE(WALL, start=start), 0.02, 30)
        return np.max(np.abs(np.diff(rho, 3))) / np.max(np.abs(np.diff(rho)))

    assert wiggle("naive") > 1.0
    assert wiggle("forward") < 0.2


def test_kinetic_energy_of_a_node_is_that_of_its_three_points():
    a1, a2, mu = 0.2, 0.3, 1.5
    rod = hx.models.cosserat_rod(1, density=mu, section=(a1, a2), walls=())
    z, d1, d2 = np.random.default_rng(1).standard_normal((3, 3))
    points = np.stack([z + a1 * d1, z + a2 * d2, z - a1 * d1 - a2 * d2])
    v = jnp.asarray(np.concatenate([z, d1, d2]))[None]
    p = rod.system.prepare(rod.q0).mass.momentum(rod.q0, v)
    assert float(rod.system.kinetic(rod.q0, p)) == pytest.approx(mu / 6 * np.sum(points**2))


def test_elastic_energy_of_a_bent_and_a_twisted_rod():
    n, angle = 200, 0.8
    rod = hx.models.cosserat_rod(n, stiffness=(1.0, 2.0, 3.0), walls=(), speed=0.0)
    s = np.arange(1, n + 1) / n
    c, w, o = np.cos(angle * s), np.sin(angle * s), np.zeros(n)
    bent = np.stack([(1 - c) / angle, o, w / angle, c, o, -w, o, o + 1, o], axis=1)  # about y: u2 = angle
    twisted = np.stack([o, o, s, c, w, o, -w, c, o], axis=1)
    assert float(rod.system.potential(jnp.asarray(bent))) == pytest.approx(2.0 * angle**2 / 2, rel=1e-4)
    assert float(rod.system.potential(jnp.asarray(twisted))) == pytest.approx(3.0 * angle**2 / 2, rel=1e-4)
    assert float(jnp.max(jnp.abs(rod.system.constraint(jnp.asarray(bent))))) < 1e-4  # the arc, up to ds^2


@pytest.mark.slow
def test_a_free_rod_keeps_its_momenta():
    rod = hx.models.cosserat_rod(4, end="free", walls=())
    system = rod.system.prepare(rod.q0)
    assert "block tridiagonal" in system.structure(rod.q0)
    plain = without_structure(rod)
    q, p = hx.integrate(plain.system, hx.RATTLE(), rod.q0, rod.p0, dt=0.01, steps=100, adjoint="forward")
    for name, invariant in rod.invariants.items():
        np.testing.assert_allclose(invariant(q, p), invariant(rod.q0, rod.p0), rtol=0, atol=1e-13, err_msg=name)
    assert float(jnp.max(jnp.abs(q - rod.q0))) > 0.1


def test_backbone_and_bad_arguments():
    assert backbone(np.stack([benchmark().q0] * 2)).shape == (2, 11, 3)
    for bad in ({"nodes": 0}, {"end": "both"}, {"walls": ((1.0, 0.0),)}, {"length": -1.0}, {"section": 0.0}):
        with pytest.raises(hx.InputError):
            hx.models.cosserat_rod(**bad)


def operations(jaxpr):
    """Numbers that a program computes, each loop once."""
    total = 0
    for eqn in jaxpr.eqns:
        inside = jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns"))
        called = [operations(getattr(x, "jaxpr", x)) for x in inside if hasattr(x, "eqns")]
        total += sum(called) or sum(int(np.prod(v.aval.shape)) for v in eqn.outvars)
    return total


@pytest.mark.slow
def test_work_per_step_grows_linearly():
    """Operations and sweeps, which no clock has to measure; `benchmarks/rod.py` does."""
    from benchmarks.rod import advance, exponent, turning_rod

    sizes, counts, sweeps = (100, 1000, 10_000), [], []
    for nodes in sizes:
        system, method, *start = turning_rod(nodes)
        step = lambda state, carry, method=method, system=system: method.step(system, state, jnp.nan, carry)[:2]
        counts.append(operations(jax.make_jaxpr(step)(*start).jaxpr))
        if nodes < 10_000:
            sweeps.append(int(advance(system, method, *start, jnp.asarray(20))[2]))
    assert exponent(sizes, counts) <= 1.01
    assert sweeps[0] == sweeps[1]


def test_a_run_accepts_the_start_of_the_model():
    # rows in y have velocities of round-off size only, and scales to match
    rod = hx.models.cosserat_rod()
    check_start(rod.system, rod.q0, rod.p0)
    off = rod.p0.at[3, 0].add(1e-3)  # the control
    with pytest.raises(hx.InconsistentStateError, match="not tangent"):
        check_start(rod.system, rod.q0, off)
