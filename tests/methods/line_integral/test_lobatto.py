"""Lobatto IIIA-IIIB: order, symplecticity on the cotangent bundle, RATTLE as the case of two stages."""

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.lobatto import lobatto
from tests.tools import symplectic_defect

from .common import exactness, generic, orders, run


def test_tableau_of_three_stages():
    t = lobatto(3)
    assert np.allclose(t.a, [[0, 0, 0], [5 / 24, 1 / 3, -1 / 24], [1 / 6, 2 / 3, 1 / 6]], rtol=0, atol=1e-15)
    assert np.allclose(t.a_hat, [[1 / 6, -1 / 6, 0], [1 / 6, 1 / 3, 0], [1 / 6, 5 / 6, 0]], rtol=0, atol=1e-15)


@pytest.mark.parametrize(("s", "meshes"), [(4, (10, 20, 40)), (5, (10, 14, 20))])
def test_order(s, meshes):
    rates, errors = orders(hx.LobattoIIIAB(s), meshes=meshes)
    assert np.all(np.abs(rates - (2 * s - 2)) < 0.2), (rates, errors)


def test_symplectic_on_the_bundle():
    problem, q, p = generic()
    assert symplectic_defect(problem.system, hx.LobattoIIIAB(4), q, p, 0.1) < 1e-11


def test_control_is_not_symplectic():
    problem, q, p = generic()
    assert symplectic_defect(problem.system, hx.HBVM(6, 2), q, p, 0.1) > 1e-8
    assert symplectic_defect(problem.system, hx.RATTLE(), q, p, 0.1) < 1e-13


def test_two_stages_are_rattle():
    problem, q, p = generic()
    ours, rattle = (run(problem, m, 0.1, 100, q, p) for m in (hx.LobattoIIIAB(2), hx.RATTLE()))
    assert np.max(np.abs(ours.q - rattle.q)) < 1e-13 and np.max(np.abs(ours.p - rattle.p)) < 1e-13


def test_constraints_and_energy():
    problem = hx.models.double_pendulum()
    energy, constraint, hidden = exactness(run(problem, hx.LobattoIIIAB(4), 0.05, 2000))
    assert constraint < 2e-15 and hidden < 2e-15 and 1e-14 < energy < 1e-6


def test_moving_constraint():
    # a bead on a circle of growing radius, without force: r^2 theta' is constant
    system = hx.System(lambda q: 0.0, hx.Rheonomic(lambda q, t: jnp.stack([q @ q - (1 + 0.5 * t) ** 2])))
    sol = hx.simulate(system, hx.LobattoIIIAB(3), [1.0, 0.0], [0.5, 1.0], dt=0.02, steps=100)
    angle = 2 * (1 - 1 / (1 + 0.5 * sol.t[-1]))
    radius = 1 + 0.5 * sol.t[-1]
    assert np.max(np.abs(sol.q[-1] - radius * np.asarray([np.cos(angle), np.sin(angle)]))) < 1e-7


def test_refusals():
    with pytest.raises(hx.InputError, match="two stages"):
        hx.LobattoIIIAB(1)
    with pytest.raises(hx.MethodError, match="applied force"):
        hx.LobattoIIIAB(3).check(hx.System(lambda q: q[0], force=lambda q, v, t: -v))
