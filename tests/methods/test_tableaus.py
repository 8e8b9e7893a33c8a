"""Tableaus: order conditions of collocation methods, implicit stages, partitioned methods where H is not separable."""

import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.partitioned import LOBATTO_IIIAB
from holonomix.methods.tableaus import CLASSICAL, Tableau, gauss_tableau, radau_tableau


@pytest.mark.parametrize("tableau", [CLASSICAL, gauss_tableau(3), radau_tableau(3)], ids=lambda t: t.name)
def test_quadrature_conditions_hold_up_to_the_order_and_not_beyond(tableau):
    b, c = np.asarray(tableau.b), np.asarray(tableau.c)
    defects = [abs(b @ c ** (k - 1) - 1 / k) for k in range(1, tableau.order + 2)]
    assert max(defects[:-1]) < 1e-13 and defects[-1] > 1e-5


def test_structure_is_read_from_the_coefficients():
    assert gauss_tableau(2).symplectic and gauss_tableau(2).symmetric and not gauss_tableau(2).explicit
    assert not radau_tableau(2).symplectic and not radau_tableau(2).symmetric
    assert CLASSICAL.explicit and not CLASSICAL.symplectic
    with pytest.raises(hx.InputError, match="row i with i entries"):
        Tableau("ragged", ((0.5, 0.5), (1.0,)), (0.5, 0.5), 2)
    with pytest.raises(hx.InputError, match="1 to 8 stages"):
        gauss_tableau(9)


def test_a_partitioned_tableau_is_checked_for_both_parts_and_refused_by_runge_kutta():
    pair = LOBATTO_IIIAB[3]
    assert pair.partitioned and pair.symplectic and pair.symmetric and not pair.explicit
    assert gauss_tableau(1).momenta[0] == gauss_tableau(1).positions[0] == 0.5
    with pytest.raises(hx.InputError, match="b_hat add up to 0.9"):
        Tableau("Euler", ((0.0,),), (1.0,), 1, a_hat=((1.0,),), b_hat=(0.9,))
    with pytest.raises(hx.InputError, match="`a_hat` needs one row"):
        Tableau("Euler", ((0.0,),), (1.0,), 1, a_hat=((1.0,), (0.0,)), b_hat=(1.0,))
    with pytest.raises(hx.InputError, match="RungeKutta needs a Tableau"):
        hx.RungeKutta(pair)


def test_implicit_stages_keep_quadratic_invariants_and_radau_does_not():
    """Gauss methods keep |z|^2 of a harmonic oscillator exactly."""
    system = hx.System(lambda q: 0.5 * (q @ q))
    for tableau, kept in ((gauss_tableau(2), True), (radau_tableau(2), False)):
        sol = hx.simulate(system, hx.RungeKutta(tableau), [1.0, 0.0], [0.0, 0.7], dt=0.5, steps=50)
        assert (np.max(np.abs(sol.energy_error())) < 1e-14) == kept


@pytest.mark.slow
def test_partitioned_methods_treat_a_mass_that_depends_on_the_position():
    problem = hx.models.double_pendulum_angles()
    end = lambda method, n: hx.simulate(problem, method, dt=1 / n, steps=n).p[-1]
    exact, lobatto = end(hx.RK4(), 1000), hx.PartitionedRungeKutta(LOBATTO_IIIAB[3])
    errors = [np.max(np.abs(end(lobatto, n) - exact)) for n in (8, 16)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.2)
