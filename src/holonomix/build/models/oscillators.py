"""Oscillators without constraints."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...core.errors import InputError
from ...core.scene import Guide, Particles, Scene
from ...core.types import ArrayLike, Numbers
from ...mechanics import System
from ...mechanics.problem import Problem
from .checks import finite, is_traced, positive, vector


def springs(q: Numbers, params: PyTree) -> Any:
    return 0.5 * jnp.sum(params["mass"] * params["frequencies"] ** 2 * q**2)


def harmonic_oscillator(
    frequencies: ArrayLike = (1.0,), q0: ArrayLike = 1.0, p0: ArrayLike = 0.0, mass: ArrayLike = 1.0
) -> Problem:
    """Independent oscillators, one per frequency: linear, so a test of accuracy, never of an order."""
    frequencies = jnp.atleast_1d(positive("frequencies", frequencies))
    n, mass = frequencies.shape[0], positive("mass", mass)
    q, p = vector("q0", finite("q0", q0), n), vector("p0", finite("p0", p0), n)
    known = not is_traced(frequencies, q, p, mass)
    w = np.asarray(frequencies) if known else np.ones(1)
    params = {"frequencies": frequencies, "mass": mass}
    return Problem(
        System(springs, mass=mass, params=params),
        q,
        p,
        0.05 * 2 * np.pi / float(np.max(w)),
        10 * 2 * np.pi / float(np.min(w)),
        _rotation(w, np.asarray(mass), np.asarray(q), np.asarray(p)) if known else None,
        "harmonic oscillator",
    )


def _rotation(w: np.ndarray, m: np.ndarray, q: np.ndarray, p: np.ndarray) -> Any:
    def reference(t: Numbers):
        c, s = np.cos(np.multiply.outer(t, w)), np.sin(np.multiply.outer(t, w))
        return q * c + p / (m * w) * s, p * c - m * w * q * s

    return reference


def cubic_well(q: Numbers, params: PyTree) -> Any:
    """`(x^2 + y^2)/2 + a (x^2 y - y^3/3)`."""
    x, y = q[0], q[1]
    return 0.5 * (x**2 + y**2) + params["coupling"] * (x**2 * y - y**3 / 3)


def henon_heiles(
    energy: ArrayLike = 1 / 12, y: ArrayLike = 0.1, py: ArrayLike = 0.1, coupling: ArrayLike = 1.0
) -> Problem:
    """The Henon-Heiles system, q = (x, y), from x = 0 with px > 0 set by the energy (bound below 1/6)."""
    energy, y, py = finite("energy", energy), finite("y", y), finite("py", py)
    params = {"coupling": finite("coupling", coupling)}
    q = jnp.stack([jnp.zeros_like(y), y])
    left = 2 * (energy - cubic_well(q, params)) - py**2
    if not is_traced(left) and float(left) < 0:
        raise InputError(
            f"energy = {float(energy):g} is too small for y = {float(y):g} and py = {float(py):g}: "
            f"px^2 would be {float(left):g}"
        )
    p = jnp.stack([jnp.sqrt(left), py])
    scene = None if is_traced(params["coupling"]) else _well_scene(float(params["coupling"]))
    return Problem(System(cubic_well, params=params), q, p, 0.1, 100.0, None, "henon-heiles", scene=scene)


def _well_scene(coupling: float) -> Scene:
    """The triangle on whose sides the potential has the height of its saddles, `1/(6 a^2)`."""
    particle = (Particles((0,)),)
    if coupling == 0:
        return Scene(2, particles=particle)
    corners = np.array([[0, 1], [-np.sqrt(3) / 2, -0.5], [np.sqrt(3) / 2, -0.5], [0, 1]]) / coupling
    line = tuple(float(x) for x in corners.reshape(-1))
    return Scene(2, particles=particle, guides=(Guide((line,), "curve"),))
