"""Rounding errors of long runs: what a method declares exact stays at round-off, or grows like a random walk at most.

Every method of the registry that declares `energy_exact` or `constraint_exact` is run for ten million steps, its
variants for two million.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.methods import rounding
from holonomix.methods.base import AbstractMethod

EPS = np.finfo(float).eps
FLOOR = 8 * EPS  # times the size of what is measured: an error below is round-off of a single step
LARGEST_EXPONENT = 0.6
ROWS = 512


class Errors(NamedTuple):
    """The largest errors of the energy and of g up to each row, relative to the sizes of their terms."""

    energy: np.ndarray
    g: np.ndarray


def fast_pendulum() -> hx.Problem:
    """A pendulum in space that turns over: large multipliers, through which rounding errors of g change the energy."""
    return dataclasses.replace(hx.models.spherical_pendulum(velocity=(1.0, 3.2)), dt=0.05)


def problem_for(method: AbstractMethod, kind: str) -> hx.Problem:
    if method.family == "so3":
        return hx.models.magnetized_body()
    if method.family == "classical":  # the energy of explicit methods grows until the run fails
        return dataclasses.replace(hx.models.spherical_pendulum(), dt=0.001)
    return {"free": hx.models.henon_heiles, "constrained": fast_pendulum}[kind]()


def errors(method: AbstractMethod, problem: hx.Problem, steps: int) -> Errors:
    """A dt of 0.05 has bits that repeat, so that rounding errors of products with it are far from random."""
    system = problem.system
    key = jax.random.key(1) if method.stochastic else None
    sol = hx.simulate(
        system, method, problem.q0, problem.p0, dt=problem.dt, steps=steps, save_every=steps // ROWS, key=key
    )
    assert sol.q.shape[0] == steps // (steps // ROWS) + 1
    energy, g = np.asarray(sol.energy_error()), np.zeros(len(sol.q))
    kinetic = jax.vmap(system.kinetic)(sol.q, sol.p)
    size = float(jnp.max(kinetic + jnp.abs(jax.vmap(system.potential)(sol.q))))
    if system.has_constraints:
        g = np.asarray(sol.constraint_error()) / float(jnp.max(jnp.abs(sol.q)) ** 2)
    return Errors(np.maximum.accumulate(np.abs(energy)) / size, np.maximum.accumulate(np.abs(g)))


def exponent(largest: np.ndarray) -> float:
    """The slope of log(error) against log(steps) over two decades; errors below FLOOR count as FLOOR."""
    at = np.unique(np.geomspace(ROWS / 100, ROWS, 9).astype(int))
    return float(np.polyfit(np.log(at), np.log(np.maximum(largest[at], FLOOR)), 1)[0])


def exact_cases():
    for name, entry in hx.methods.registry().items():
        for k, make in enumerate((entry.make, *entry.variants)):
            for kind, traits in make().traits.items():
                if traits.energy_exact or traits.constraint_exact:
                    steps = 2_000_000 if k else 10_000_000
                    yield pytest.param(make, kind, steps, id=f"{name}{f'-{k}' if k else ''}-{kind}")


@pytest.mark.slow
@pytest.mark.parametrize(("make", "kind", "steps"), list(exact_cases()))
def test_what_is_exact_does_not_grow_over_millions_of_steps(make, kind, steps):
    method = make()
    traits, found = method.traits[kind], errors(method, problem_for(method, kind), steps)
    if traits.energy_exact:
        assert exponent(found.energy) <= LARGEST_EXPONENT, found.energy[-1]
    if traits.constraint_exact:
        assert exponent(found.g) <= LARGEST_EXPONENT, found.g[-1]


def test_a_line_integral_method_keeps_energy_and_constraint_at_round_off():
    # without a return the energy moves by -2e-18 and g by -2e-19 in every step
    found = errors(hx.HBVM(6, 2), fast_pendulum(), 100_000)
    assert found.energy[-1] < FLOOR and found.g[-1] < FLOOR


@pytest.mark.parametrize("steps", [100_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_the_control_without_a_return_of_rounding_errors_drifts(monkeypatch, steps):
    monkeypatch.setattr(rounding, "CORRECTED_FRACTION", 0.0)
    found = errors(hx.HBVM(6, 2, max_iterations=99), fast_pendulum(), steps)  # 99: compiled anew
    assert found.energy[-1] > 4 * FLOOR and found.g[-1] > 4 * FLOOR
    if steps == 10_000_000:
        assert exponent(found.energy) > LARGEST_EXPONENT and exponent(found.g) > LARGEST_EXPONENT
