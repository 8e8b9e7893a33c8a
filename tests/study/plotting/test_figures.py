"""Figures can be drawn for every kind of system and hold what they should."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx


def solve(problem, method=None, steps=20):
    method = method or hx.RATTLE()
    return hx.simulate(problem, method, dt=problem.dt, steps=steps)


@pytest.mark.parametrize("name", ["double_pendulum", "spherical_pendulum", "kepler", "harmonic_oscillator"])
def test_a_solution_can_be_drawn(name, tmp_path):
    problem = hx.models.registry()[name]()
    figure = solve(problem).plot(problem=problem)
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
    assert len(figure.axes) == (3 if problem.system.has_constraints else 2)
    assert problem.name in figure.get_suptitle()


def test_bonds_join_the_last_configuration():
    problem = hx.models.double_pendulum()
    sol = solve(problem)
    space = hx.plotting.plot_solution(sol, problem=problem).axes[0]
    joined = [line.get_xydata() for line in space.lines if len(line.get_xydata()) == 2 and line.get_linestyle() == "-"]
    np.testing.assert_allclose(joined[0], np.stack([np.zeros(2), sol.q[-1, 0]]), rtol=1e-13)
    np.testing.assert_allclose(joined[1], sol.q[-1], rtol=1e-13)


def test_the_constraint_panel_shows_the_errors_themselves():
    sol = solve(hx.models.double_pendulum(), hx.RK4(), 200)
    shown = sol.plot().axes[2].lines[0].get_ydata()
    np.testing.assert_allclose(shown, np.maximum(sol.constraint_error(), 1e-17), rtol=1e-13)


@pytest.mark.parametrize(("shape", "lines"), [((), 1), ((2, 2, 2), 8)])
def test_a_number_and_an_array_of_many_axes_are_drawn_over_time(shape, lines):
    q = jnp.ones(shape)
    sol = hx.simulate(hx.System(lambda q: jnp.sum(q**2)), hx.StormerVerlet(), q, q, dt=0.1, steps=2, backend="array")
    assert len(sol.plot().axes[0].lines) == lines
