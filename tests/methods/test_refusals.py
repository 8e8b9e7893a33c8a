"""Methods and schemes refuse what they cannot do, at once and by name."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.schemes import SCHEMES, composition_order, suzuki, triple_jump


def orthogonal(R):
    gram = R.T @ R - jnp.eye(3)
    return jnp.stack([gram[0, 0], gram[1, 1], gram[2, 2], gram[0, 1], gram[0, 2], gram[1, 2]])


# Systems of shape (3, 3) that are no rotation matrices, or no rigid body.
THREE_PARTICLES = {
    "three pendula": hx.System(lambda q: jnp.sum(q[:, 2]), lambda q: jnp.sum(q**2, axis=1) - 1),
    "other rows": hx.System(lambda q: q[2, 2], lambda q: orthogonal(q) - 0.1),
    "a row missing": hx.System(lambda q: q[2, 2], lambda q: orthogonal(q)[:5]),
    "a mass for each entry": hx.System(lambda q: q[2, 2], orthogonal, mass=1.0 + np.arange(9.0).reshape(3, 3)),
}


@pytest.mark.parametrize("name", THREE_PARTICLES)
def test_rotation_methods_refuse_other_systems_of_their_shape(name):
    system = THREE_PARTICLES[name]
    with pytest.raises(hx.MethodError, match=r"CayleyEulerSO3 (moves|needs)"):
        hx.CayleyEulerSO3().check(system)
    if name != "a mass for each entry":  # the penalty method takes any mass
        with pytest.raises(hx.MethodError, match="ZhangSkeelSO3 moves one rotation matrix"):
            hx.ZhangSkeelSO3().check(system.penalized(10.0))


def test_rotation_methods_accept_rigid_bodies():
    system = hx.System(lambda q: q[2, 2], orthogonal, mass=0.5)
    for body in (system, hx.models.magnetized_body().system):
        hx.CayleyEulerSO3().check(body)
        hx.ZhangSkeelSO3().check(body.penalized(10.0))


def test_composing_a_line_integral_method_is_refused_where_it_gains_nothing():
    method = hx.Composition(hx.HBVM(3, 1), order=4)
    assert set(method.traits) == {"free"} and method.traits["free"].order == 4
    with pytest.raises(hx.MethodError, match="unconstrained"):
        method.check(hx.models.planar_pendulum().system)
    with pytest.raises(hx.MethodError, match="gains nothing"):
        hx.Composition(hx.RK4())


def test_order_conditions_of_given_coefficients():
    for scheme in (*SCHEMES, triple_jump(4), triple_jump(6), suzuki(6)):
        assert composition_order(scheme.coefficients) == scheme.order, scheme.name
    assert hx.Composition(hx.RATTLE(), scheme=triple_jump(4).coefficients).order == 4
    with pytest.raises(hx.InputError, match="up to order 2 only, not 4"):
        hx.Composition(hx.RATTLE(), order=4, scheme=[0.4, 0.2, 0.4])
    with pytest.raises(hx.InputError, match="up to order 6 only, not 8"):
        hx.Composition(hx.RATTLE(), order=8, scheme=hx.Composition(order=6).scheme.coefficients)
    for bad in ([np.nan], [], [0.3, 0.3, 0.4]):
        with pytest.raises(hx.InputError):
            hx.Composition(hx.RATTLE(), scheme=bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hx.Composition(order=2**70),
        lambda: hx.Composition(order=100),
        lambda: hx.Composition(scheme="suzuki-40"),
        lambda: hx.Composition(scheme="triple-jump-" + "9" * 400),
        lambda: hx.LobattoIIIAB(s=2000),
        lambda: hx.HBVM(10**9, 2),
        lambda: hx.HBVM(2000, 2000),
        lambda: hx.Gauss(s=10**30),
        lambda: hx.LineIntegral(order=10**30),
    ],
)
def test_sizes_without_use_are_refused_at_once(make):
    with pytest.raises(hx.InputError, match="order|degree|substeps"):
        make()
