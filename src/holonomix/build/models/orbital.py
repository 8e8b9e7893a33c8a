"""Bodies around a center of attraction: the Kepler problem and three tethered satellites."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.errors import InputError
from ...core.scene import Particles, Scene
from ...core.types import ArrayLike, Numbers
from ...mechanics import System
from ...mechanics.invariants import angular_momentum
from ...mechanics.problem import Problem
from .checks import finite, is_traced, positive, vector


def attraction(q: Numbers, params: PyTree) -> Any:
    """`-mu / |q|` of one particle of unit mass."""
    return -params["mu"] / jnp.sqrt(jnp.sum(q**2))


def kepler(eccentricity: ArrayLike = 0.6, mu: ArrayLike = 1.0) -> Problem:
    """The Kepler ellipse with semi-axis one, q = (x, y), from its pericenter; period `2 pi / sqrt(mu)`.

    Angular momentum and the Laplace-Runge-Lenz vector are conserved; `reference` solves Kepler's equation.
    """
    e, mu = finite("eccentricity", eccentricity), positive("mu", mu)
    if not is_traced(e) and not 0 <= float(e) < 1:
        raise InputError(f"eccentricity must be at least 0 and below 1, not {float(e):g}")
    q = jnp.stack([1 - e, jnp.zeros_like(e)])
    p = jnp.stack([jnp.zeros_like(e), jnp.sqrt(mu * (1 + e) / (1 - e))])
    invariants = {"angular momentum": _spin}
    reference, period = None, 2 * np.pi
    if not is_traced(q, p):
        reference, period = _ellipse(float(e), float(mu)), 2 * np.pi / float(np.sqrt(mu))
        invariants["Laplace-Runge-Lenz"] = _eccentricity_vector(float(mu))
    system = System(attraction, params={"mu": mu})
    sun = Scene(2, particles=(Particles((0,)),), anchors=((0.0, 0.0),))
    return Problem(system, q, p, period / 200, 10 * period, reference, "kepler", invariants, scene=sun)


def _spin(q: Numbers, p: Numbers) -> Any:
    return q[0] * p[1] - q[1] * p[0]


def _eccentricity_vector(mu: float) -> Any:
    def lenz(q: Numbers, p: Numbers):
        return _spin(q, p) * jnp.stack([p[1], -p[0]]) / mu - q / jnp.sqrt(jnp.sum(q**2))

    return lenz


def _ellipse(e: float, mu: float) -> Any:
    rate, ratio = np.sqrt(mu), np.sqrt(1 - e**2)

    def reference(t: Numbers):
        mean = rate * np.asarray(t, float)
        anomaly = mean + e * np.sin(mean)
        for _ in range(60):
            # clipped, so that Newton's method cannot jump near the pericenter of a slender ellipse
            step = (anomaly - e * np.sin(anomaly) - mean) / (1 - e * np.cos(anomaly))
            anomaly = anomaly - np.clip(step, -0.5, 0.5)
        s, c = np.sin(anomaly), np.cos(anomaly)
        speed = rate / (1 - e * c)
        return np.stack([c - e, ratio * s], axis=-1), np.stack([-speed * s, speed * ratio * c], axis=-1)

    return reference


def attractions(q: Numbers, params: PyTree) -> Any:
    """`-mu sum m_i / |q_i|`."""
    return -params["mu"] * jnp.sum(params["masses"] / jnp.sqrt(jnp.sum(q**2, axis=1)))


def tethers(q: Numbers, params: PyTree) -> Any:
    """`|q_1 - q_2|^2 - L_1^2`, `|q_2 - q_3|^2 - L_2^2`, `|q_3 - q_1|^2 - L_3^2`."""
    return jnp.sum((q - jnp.roll(q, -1, axis=0)) ** 2, axis=1) - params["lengths"] ** 2


def tethered_satellites(
    height: ArrayLike = 20.0, masses: ArrayLike = 1.0, length: ArrayLike = 1.0, mu: ArrayLike = 1.0
) -> Problem:
    """Three satellites joined by three tight tethers, q of shape (3, 3); the start has energy zero.

    Brugnano, Gurioli, Iavernaro & Weinmueller (5.4): two satellites side by side, the third turns about their tether.
    The total angular momentum is conserved. With the defaults `v0 = 0.5517822421601886`.
    """
    length, mu, height = positive("length", length), positive("mu", mu), positive("height", height)
    masses = positive("masses", masses)
    each = vector("masses", masses, 3)
    zero = jnp.zeros_like(height)
    q = jnp.stack(
        [
            jnp.stack([zero, length / 2, height]),
            jnp.stack([zero, -length / 2, height]),
            jnp.stack([zero, zero, height - jnp.sqrt(3.0) / 2 * length]),
        ]
    )
    if not is_traced(q) and float(q[2, 2]) <= 0:
        raise InputError(f"height must be above sqrt(3)/2 times the tether, not {float(height):g}")
    params = {"mu": mu, "masses": each, "lengths": jnp.full((3,), length)}
    speed = jnp.sqrt(-2 * attractions(q, params) / each[2])
    p = jnp.zeros((3, 3)).at[2, 0].set(each[2] * speed)
    mass = masses if masses.ndim == 0 else jnp.broadcast_to(each[:, None], (3, 3))
    system = System(attractions, tethers, mass=mass, params=params)
    invariants = {"angular momentum": angular_momentum}
    return Problem(system, q, p, 0.1, 100.0, None, "tethered satellites", invariants, ((0, 1), (1, 2), (2, 0)))
