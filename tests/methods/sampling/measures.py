"""Manifolds with known measures, and tests of samples against them."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import holonomix as hx

TORUS = hx.models.bead_on_surface("torus", (1.0, 0.5)).system
SPHERE_MASS = np.array([2.0, 1.0, 0.5])
SPHERE = hx.System(lambda q: 1.5 * q[2], lambda q: jnp.sum(q**2, keepdims=True) - 1.0, mass=SPHERE_MASS)


def sample(system, method, q0, *, dt, draws, thin, burn, seed=0):
    """Positions and momenta of an ensemble, shape (chains, draws, ...), after `burn` steps; every chain must finish."""
    q0 = jnp.asarray(q0)
    ensemble = hx.simulate_ensemble(
        system, method, q0, jnp.zeros_like(q0), dt=dt, steps=(burn // thin + draws) * thin, save_every=thin,
        key=jax.random.key(seed),
    )  # fmt: skip
    assert ensemble.ok.all(), ensemble
    skip = 1 + burn // thin
    return ensemble.q[:, skip:], ensemble.p[:, skip:], ensemble


def torus_start(chains):
    angle = np.linspace(0, 2 * np.pi, chains, endpoint=False)
    return np.stack([1 + 0.5 * np.cos(angle), 0 * angle, 0.5 * np.sin(angle)], axis=-1)


def torus_angle(q):
    return np.arctan2(q[..., 2], np.hypot(q[..., 0], q[..., 1]) - 1.0)


def torus_cdf(angle):
    """Area of the torus below an angle of the tube: density proportional to 1 + 0.5 cos."""
    return (angle + 0.5 * np.sin(angle)) / (2 * np.pi) + 0.5


def sphere_start(chains):
    z = np.linspace(-0.95, 0.95, chains)
    turn = np.linspace(0, 20 * np.pi, chains)
    flat = np.sqrt(1 - z**2)
    return np.stack([flat * np.cos(turn), flat * np.sin(turn), z], axis=-1)


def sphere_density(z, temperature, weighted=True):
    """Marginal density of z (not normalized): `exp(-V/kT)` and the area of the mass metric, sqrt(n^T M^-1 n)."""
    turn = np.linspace(0, 2 * np.pi, 721)[:-1]
    flat = np.sqrt(1 - z[:, None] ** 2)
    x, y = flat * np.cos(turn), flat * np.sin(turn)
    square = x**2 / SPHERE_MASS[0] + y**2 / SPHERE_MASS[1] + z[:, None] ** 2 / SPHERE_MASS[2]
    area = np.sqrt(square).mean(axis=1) if weighted else 1.0
    return np.exp(-1.5 * z / temperature) * area


def fractions(density, edges, fine=400):
    """The share of each bin under a density that is not normalized."""
    shares = []
    for low, high in zip(edges[:-1], edges[1:]):
        x = low + (high - low) * (np.arange(fine) + 0.5) / fine
        shares.append(density(x).mean() * (high - low))
    return np.array(shares) / np.sum(shares)


def chi_square(values, edges, shares):
    """The p-value of a sample against the shares of its bins."""
    count = np.histogram(values, edges)[0]
    assert count.sum() == np.size(values), "a value lies outside of the bins"
    return stats.chisquare(count, shares * count.sum()).pvalue


def kinetic_p_value(system, q, p, freedom, temperature):
    """Kinetic energies of a Gaussian with `freedom` tangent directions: 2 K/kT is chi-square distributed."""
    kinetic = jax.vmap(jax.vmap(system.kinetic))(jnp.asarray(q), jnp.asarray(p))
    edges = stats.chi2.ppf(np.linspace(0, 1, 21), freedom)
    return chi_square(2 * np.asarray(kinetic) / temperature, edges, np.full(20, 0.05))


class Thermostat(hx.methods.AbstractMethod):
    """RATTLE with a thermostat that is wrong on purpose: `flaw(system, q, p, dt, key)` gives the momentum."""

    flaw: object = eqx.field(static=True)
    method: object = hx.RATTLE()
    reference = "control"
    family = "control"
    stochastic = True

    @property
    def traits(self):
        return self.method.traits

    def init(self, system, state, dt):
        return self.method.init(system, state, dt)

    def step(self, system, state, dt, carry, key=None):
        state, carry, report = self.method.step(system, state, dt, carry)
        p = self.flaw(system, state.q, state.p, dt, key)
        state = hx.State(state.q, p, state.t, state.n)
        return state, self.method.renew(system, state, dt, carry), report
