"""Classical methods: tableaus, the harmonic oscillator in closed form, and the drift that the papers warn of."""

from __future__ import annotations

import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.runge_kutta import CLASSICAL, EULER, MIDPOINT, RungeKutta, Tableau


@pytest.mark.parametrize("tableau", [EULER, MIDPOINT, CLASSICAL], ids=lambda t: t.name)
def test_tableaus_satisfy_their_order_conditions(tableau):
    s = len(tableau.b)
    a = np.array([[*row, *[0.0] * (s - len(row))] for row in tableau.a])
    b, c = np.array(tableau.b), np.array(tableau.c)
    conditions = {
        1: [b.sum() - 1],
        2: [b @ c - 1 / 2],
        3: [b @ c**2 - 1 / 3, b @ a @ c - 1 / 6],
        4: [b @ c**3 - 1 / 4, (b * c) @ a @ c - 1 / 8, b @ a @ c**2 - 1 / 12, b @ a @ a @ c - 1 / 24],
    }
    for order in range(1, tableau.order + 1):
        assert np.max(np.abs(conditions[order])) < 1e-15
    if tableau.order < 4:
        assert np.max(np.abs(conditions[tableau.order + 1])) > 1e-3


def test_the_printed_fourth_stage_is_wrong():
    """Farrell's misprint: with dt/2 in the fourth stage RK4 is of order two."""
    misprint = Tableau("misprint", ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 0.5)), CLASSICAL.b, 4)
    certificate = hx.certify(hx.models.henon_heiles(), RungeKutta(misprint), measure="order")
    assert not certificate.passed and certificate["order of q"].measured < 2.5


def test_one_step_on_the_harmonic_oscillator():
    """Each method's rational approximation of exp(i dt), read off one step from (1, 0)."""
    problem, h = hx.models.harmonic_oscillator(), 0.3
    expected = {
        "ExplicitEuler": (1.0, -h),
        "SymplecticEuler": (1 - h**2, -h),
        "ExplicitMidpoint": (1 - h**2 / 2, -h),
        "RK4": (1 - h**2 / 2 + h**4 / 24, -h + h**3 / 6),
        "StormerVerlet": (1 - h**2 / 2, -h + h**3 / 4),
        "Leapfrog": (1 - h**2 / 2, -h + h**3 / 4),
        "ImplicitMidpoint": ((1 - h**2 / 4) / (1 + h**2 / 4), -h / (1 + h**2 / 4)),
    }
    for name, (q1, p1) in expected.items():
        method = hx.methods.registry()[name].default
        q, p = hx.integrate(problem, method, dt=h, steps=1)
        np.testing.assert_allclose([q[0], p[0]], [q1, p1], rtol=0, atol=1e-15, err_msg=name)


def test_energy_stays_with_verlet_and_drifts_with_rk4():
    problem = hx.models.kepler(0.6)

    def trend(method):
        sol = hx.simulate(problem, method, dt=0.05, steps=8000, save_every=16)
        return hx.invariants.trend(sol.t, sol.energy_error())

    assert not trend(hx.StormerVerlet()).grows
    assert trend(hx.RK4()).grows


def test_index_reduced_methods_leave_the_manifold_and_rattle_does_not():
    problem = hx.models.double_pendulum()

    def worst(method):
        sol = hx.simulate(problem, method, dt=0.05, steps=2000, save_every=10)
        return sol.constraint_error().max()

    assert worst(hx.RK4()) > 1e-4
    assert worst(hx.RATTLE()) < 1e-14


def test_long_steps_from_rest():
    """Velocities start at zero and have no size: Newton's fallback takes that of its first correction."""
    system, q, p = hx.System(lambda q: q[0] ** 4), np.array([3.0]), np.zeros(1)
    for method in (hx.HBVM(4, 2), hx.Gauss(2)):
        sol = hx.simulate(system, method, q, p, dt=1.0, steps=1)
        back = hx.simulate(system, method, sol.final_q, sol.final_p, dt=-1.0, steps=1)
        assert sol.stats["retries"] == 1 and abs(back.final_q[0] - 3.0) < 1e-12
