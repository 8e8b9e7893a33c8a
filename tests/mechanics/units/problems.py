"""Nonlinear problems of every kind in units of length L, mass M and time T, and runs of them in natural units."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import holonomix as hx
from holonomix.methods.so3 import cayley

NATURAL = (1.0, 1.0, 1.0)
MOLECULAR = (1e-10, 1e-26, 1e-15)
STEP = 2.0**-5


def powers_of_two(seed: int) -> tuple[float, float, float]:
    """Random units; odd powers of two among them."""
    return tuple(float(2.0**k) for k in np.random.default_rng(seed).integers(-45, 45, 3))  # type: ignore


def _energy(units: Any) -> Any:
    return units[1] * units[0] ** 2 / units[2] ** 2


def free_potential(q: Any, units: Any) -> Any:
    x = q / units[0]
    return _energy(units) * (0.5 * jnp.sum(x**2) + 0.3 * x[0] ** 2 * x[1] + 0.2 * x[1] ** 4)


def potential(q: Any, units: Any) -> Any:
    x = q / units[0]
    return _energy(units) * (x[1] + 1.7 * x[3] + 0.2 * x[0] * x[2] ** 2)


def rods(q: Any, units: Any) -> Any:
    length = units[0]
    return jnp.stack([q[0] ** 2 + q[1] ** 2 - length**2, (q[2] - q[0]) ** 2 + (q[3] - q[1]) ** 2 - 2 * length**2])


def polar_potential(q: Any, units: Any) -> Any:
    """A length and two angles: `q = (r, theta, phi)`."""
    r = q[0] / units[0]
    return _energy(units) * (0.5 * (r - 1) ** 2 + r * jnp.sin(q[1]) + 0.3 * jnp.cos(q[2]))


class PolarMass(eqx.Module):
    """The inertia of `polar_potential`'s coordinates; the units are runtime data, so that nothing is folded."""

    units: Any

    def __call__(self, q: Any) -> Any:
        length, mass, _ = self.units
        r = q[0] / length
        inertia = mass * length**2
        return jnp.diag(jnp.stack([mass, inertia * (1 + r**2), inertia * 2.0 * (1 + r)]))


def tilt(q: Any, units: Any) -> Any:
    """Mixed kinds in one row: a length that follows an angle."""
    return jnp.stack([q[0] / units[0] - 1.2 - 0.4 * jnp.sin(q[2] - q[1])])


def rotation_potential(q: Any, units: Any) -> Any:
    return units[1] / units[2] ** 2 * (q[0, 2] + 0.5 * q[1, 1] ** 2)


def orthonormal(q: Any, units: Any) -> Any:
    product = q.T @ q - jnp.eye(3)
    return product[np.triu_indices(3)]


def problem(kind: str, units: tuple[float, float, float]) -> tuple[Any, Any, Any]:
    """System, position and momentum: "free", "constrained", "stiff", "rotation" or "mixed" (angles and lengths)."""
    length, mass, time = units
    params = jnp.asarray(units)
    momentum = mass * length / time
    if kind == "free":
        system = hx.System(free_potential, mass=mass * jnp.asarray([1.3, 0.7]), params=params)
        return system, length * jnp.asarray([0.4, -0.3]), momentum * jnp.asarray([0.2, 0.5])
    if kind == "mixed":
        system = hx.System(polar_potential, tilt, mass=PolarMass(params), params=params)
        q = jnp.asarray([length * (1.2 + 0.4 * np.sin(0.5)), 0.3, 0.8])
        rate = jnp.asarray([0.0, 0.25, 0.25]) / time
        return system, q, system.momentum(q, rate)
    if kind in ("rotation", "stiff rotation"):
        system = hx.System(rotation_potential, orthonormal, mass=0.5 * mass, params=jnp.asarray([1.0, mass, time]))
        spin = jnp.asarray([[0.0, -0.3, 0.2], [0.3, 0.0, -0.5], [-0.2, 0.5, 0.0]])
        turned = cayley(jnp.asarray([0.5, 0.25, -0.5]))
        system = system if kind == "rotation" else system.penalized(jnp.sqrt(mass) / time * 32.0)
        return system, turned, 0.5 * mass / time * turned @ spin
    system = hx.System(potential, rods, mass=mass * jnp.asarray([1.0, 1.0, 1.7, 1.7]), params=params)
    q, first, second = jnp.asarray([0.6, -0.8, 1.6, -1.8]), 0.5 * np.array([0.8, 0.6]), 0.2 * np.array([1.0, 1.0])
    p = jnp.asarray([*first, *(1.7 * (first + second))])
    if kind == "stiff":
        # omega^2 |g|^2/2 is an energy
        system, q = system.penalized(jnp.sqrt(mass) / (length * time) * 32.0), q + jnp.asarray([1e-3, 0, 0, 1e-3])
    return system, length * q, momentum * p


def in_units(method: Any, units: tuple[float, float, float]) -> Any:
    """The same method with its dimensional constants in the given units."""
    length, mass, time = units
    factors = {"friction": 1 / time, "temperature": mass * length**2 / time**2}
    for name, factor in factors.items():
        value = getattr(method, name, None)
        if value is not None:
            method = eqx.tree_at(lambda m, name=name: getattr(m, name), method, value * factor)
    monitor = getattr(method, "monitor", None)
    if getattr(monitor, "weight", None) is not None:
        method = eqx.tree_at(lambda m: m.monitor.weight, method, monitor.weight * time / mass)
    return method


def run(method: Any, kind: str, units: tuple[float, float, float], steps: int = 16, **options: Any) -> dict[str, Any]:
    """A run, with everything it shows in natural units."""
    length, mass, time = units
    system, q, p = problem(kind, units)
    key = jax.random.key(3) if method.stochastic else None
    options = {"save_every": 4, "backend": "native"} | options
    sol = hx.simulate(system, in_units(method, units), q, p, dt=STEP * time, steps=steps, key=key, **options)
    length = np.asarray([length, 1.0, 1.0]) if kind == "mixed" else 1.0 if "rotation" in kind else length
    return {
        "q": np.asarray(sol.q) / length,
        "p": np.asarray(sol.p)
        / (mass * (units[0] if kind == "mixed" else length) / time)
        * (np.asarray([1.0, 1 / units[0], 1 / units[0]]) if kind == "mixed" else 1.0),
        "t": np.asarray(sol.t) / time,
        "iterations": sol.stats["iterations"],
    }
