"""Linkage models and the paper whose methods they exercise."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics.projection import check_start
from holonomix.study.papers import farrell2009, farrell2009_composition

MODELS = {
    "slider_crank": {},
    "four_bar": {},
    "watt": {},
    "planar_ring": {},
    "rigid_molecules": {"n": 3},
    "mobile": {"levels": 3},
}


@pytest.mark.parametrize("name", MODELS)
def test_starts_are_consistent(name):
    problem = hx.models.registry()[name](**MODELS[name])
    check_start(problem.system, problem.q0, problem.p0)
    assert float(jnp.max(jnp.abs(problem.p0))) > 0 or name == "mobile"


def test_a_braced_ring_is_redundant():
    ring = hx.models.planar_ring(5, rigid=True)
    with pytest.raises(hx.ConstraintRankError, match="10 constraints have rank 7"):
        check_start(ring.system, ring.q0, ring.p0)


def test_watts_middle_moves_on_a_line():
    watt = hx.models.watt()
    sol = hx.simulate(watt, hx.RATTLE(), dt=0.02, steps=80)
    middle = sol.q[:, 2]
    assert np.abs(middle[:, 1]).max() > 0.25
    assert np.abs(middle[:, 0]).max() < 0.01 * np.abs(middle[:, 1]).max()


def test_mechanisms_that_cannot_close_are_refused():
    with pytest.raises(hx.InputError, match="cannot be closed"):
        hx.models.four_bar(ground=9.0)
    with pytest.raises(hx.InputError, match="longer than the crank"):
        hx.models.slider_crank(crank=2.0, rod=1.0)


def test_bch_formulas():
    for product, misprint, order in (("XY", False, 6), ("XYX", False, 7), ("XYX", True, 5)):
        scales, left = farrell2009_composition.bch_remainders(product, misprint)
        assert abs(np.polyfit(np.log(scales), np.log(left), 1)[0] - order) < 0.15


def test_eulers_bound_holds():
    rows = farrell2009.euler_bound((100, 200))
    assert all(0.05 * bound < error < bound for _, error, bound, _ in rows) and all(worst <= 1 for *_, worst in rows)


@pytest.mark.slow
def test_wedge_products():
    shake, hidden, rattle, ambient = farrell2009.wedge_defects().values()
    assert shake < 3e-15 and rattle < 3e-15
    assert hidden > 1e-4 and ambient > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, low, high", [("SOR, 1.7", 80, 100), ("Newton", 1.9, 2.1), ("symmetric Newton", 3.3, 3.7)]
)
def test_sweeps(name, low, high):
    assert low < farrell2009.sweeps(name) < high
