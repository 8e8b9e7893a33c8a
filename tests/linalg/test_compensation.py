"""Round-off must not accumulate: the energy error of long runs shows no linear growth."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx

DT = 0.05


def relative_equilibrium() -> tuple[hx.Problem, jnp.ndarray]:
    """The conical pendulum with the speed for which RATTLE's own orbit is a circle.

    With `lambda = -g/(2 z)` the step leaves z alone, and `|q_1| = |q_0|` gives `v^2 = r^2 lambda (2 - dt^2 lambda)`.
    Each step is then a rotation of the one before, and what changes in the energy is round-off alone.
    """
    problem = hx.models.conical_pendulum()
    multiplier, radius = float(-0.5 / problem.q0[2]), float(problem.q0[0])
    speed = radius * np.sqrt(multiplier * (2 - DT**2 * multiplier))
    return problem, jnp.array([0.0, speed, 0.0])


def energy_errors(steps: int, compensated: bool) -> tuple[np.ndarray, np.ndarray]:
    problem, p0 = relative_equilibrium()
    method = hx.RATTLE(compensated=compensated)
    sol = hx.simulate(
        problem.system, method, problem.q0, p0, dt=DT, steps=steps, save_every=steps // 500, backend="native"
    )
    return sol.t, sol.energy_error()


def check(steps: int) -> None:
    t, kept = energy_errors(steps, True)
    _, lost = energy_errors(steps, False)
    # rounding errors of either sign add up like a random walk; a bias of 1e-20 a step would show as a line
    assert np.max(np.abs(kept)) < 1e-17 * np.sqrt(steps)
    # the control: the same method without compensation wanders off
    assert np.max(np.abs(lost)) > 10 * np.max(np.abs(kept))


def test_no_growth_over_a_million_steps():
    check(1_000_000)


@pytest.mark.slow
def test_no_growth_over_ten_million_steps():
    check(10_000_000)
