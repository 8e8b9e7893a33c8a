"""Compositions: orders of every list and of the triple jumps, with mass; wrong coefficients lose the order."""

from __future__ import annotations

import equinox as eqx
import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.composition import splitting_defect
from holonomix.methods.schemes import SCHEMES, find_scheme, suzuki, triple_jump
from holonomix.study.certificates.certification import certify

PROBLEM = hx.models.spherical_pendulum(mass=1.7)


def measured(method, problem=PROBLEM):
    certificate = certify(problem, method, measure="order")
    return [certificate[f"order of {v}"].measured for v in ("q", "p")]


@pytest.mark.parametrize(
    "scheme", [s.name for s in SCHEMES] + ["triple-jump-4", "triple-jump-6", "triple-jump-8", "suzuki-6"]
)
def test_observed_orders(scheme):
    method = hx.Composition(hx.RATTLE(), scheme=scheme)
    np.testing.assert_allclose(measured(method), method.scheme.order, rtol=0, atol=0.2)


def test_triple_jumps_take_powers_of_three():
    assert [len(triple_jump(p).coefficients) for p in (2, 4, 6, 8)] == [1, 3, 9, 27]
    assert len(suzuki(6).coefficients) == 25
    assert find_scheme(12).order == 12 and len(find_scheme(12).coefficients) == 3**5


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.name)
def test_lists_are_palindromes_that_add_up_to_one(scheme):
    assert scheme.coefficients == scheme.coefficients[::-1]
    assert sum(scheme.coefficients) == pytest.approx(1.0, abs=1e-14)
    # an order above two needs sum gamma^3 = 0
    assert abs(sum(c**3 for c in scheme.coefficients)) < 1e-13 and scheme.source


def test_a_wrong_coefficient_loses_the_order():
    right = find_scheme("yoshida-6").coefficients
    shift = 1e-3
    wrong = (right[0] + shift, right[1] - shift, *right[2:5], right[5] - shift, right[6] + shift)
    with pytest.raises(hx.InputError):
        hx.Composition(hx.RATTLE(), scheme=(*wrong[:-1], wrong[-1] + 1e-3))  # no palindrome
    with pytest.raises(hx.InputError, match="order 2 only, not 6"):
        hx.Composition(hx.RATTLE(), order=6, scheme=wrong)
    broken = hx.Composition(hx.RATTLE(), scheme=wrong)
    assert broken.order == 2
    claimed = eqx.tree_at(lambda m: m.method, broken, broken.method)
    object.__setattr__(claimed, "scheme", broken.scheme._replace(order=6))
    certificate = certify(PROBLEM, claimed, measure="order")
    assert not certificate.passed and max(measured(claimed)) < 5


def test_splittings_have_the_order_their_conditions_give():
    # Forest & Ruth 1990: order four in four stages
    w1, w0 = 1 / (2 - 2 ** (1 / 3)), -(2 ** (1 / 3)) / (2 - 2 ** (1 / 3))
    c, d = (w1 / 2, (w0 + w1) / 2, (w0 + w1) / 2, w1 / 2), (w1, w0, w1, 0.0)
    ruth = hx.Splitting(c, d, order=4)
    assert ruth.traits["free"].order == 4 and ruth.traits["free"].symmetric
    np.testing.assert_allclose(measured(ruth, hx.models.henon_heiles()), 4, rtol=0, atol=0.2)
    assert hx.Splitting((1.0,), (1.0,)).traits["free"].order == 1
    assert not hx.Splitting((1.0,), (1.0,)).traits["free"].symmetric


def test_splitting_conditions_see_a_wrong_coefficient():
    assert splitting_defect((0.5, 0.5), (1.0, 0.0), 2) < 1e-15
    assert splitting_defect((0.5, 0.5), (1.0, 0.0), 3) > 1e-2
    assert splitting_defect((0.51, 0.49), (1.0, 0.0), 2) == pytest.approx(0.01, rel=1e-6)
