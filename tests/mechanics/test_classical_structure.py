"""Taylor, multistep and partitioned Runge-Kutta methods: order measured on a nonlinear problem."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.multistep import adams_coefficients, extrapolate, multistep_order
from holonomix.methods.partitioned import LOBATTO_IIIAB, SYMPLECTIC_EULER

# Henon-Heiles with uneven masses: nonlinear, no symmetry that a method could profit from
SYSTEM = hx.System(lambda q: 0.5 * q @ q + q[0] ** 2 * q[1] - q[1] ** 3 / 3, mass=np.array([1.0, 1.3]))
START = np.array([0.3, 0.2]), np.array([0.2, -0.25])
T = 2.0


@pytest.fixture(scope="module")
def reference():
    return hx.integrate(SYSTEM, hx.Composition(hx.StormerVerlet(), order=8), *START, dt=T / 800, steps=800)


def measured(method, reference, counts):
    errors = []
    for n in counts:
        q, p = hx.integrate(SYSTEM, method, *START, dt=T / n, steps=n)
        errors.append(float(jnp.max(jnp.abs(jnp.concatenate([q - reference[0], p - reference[1]])))))
    return np.log(errors[0] / errors[-1]) / np.log(counts[-1] / counts[0]), errors


QUICK = ("Taylor(4)", "AdamsBashforth(3)")
CASES = [
    (hx.Taylor(1), (100, 200, 400), 1),
    (hx.Taylor(4), (20, 40, 80), 4),
    (hx.Taylor(7), (8, 12, 16), 7),
    (hx.AdamsBashforth(1), (100, 200, 400), 1),
    (hx.AdamsBashforth(3), (80, 160, 320), 3),
    (hx.AdamsBashforth(5), (80, 120, 160), 5),
    (hx.AdamsMoulton(1), (40, 80, 160), 2),
    (hx.AdamsMoulton(3), (40, 60, 80), 4),
    (hx.LinearMultistep((1 / 3, -4 / 3, 1.0), (0.0, 0.0, 2 / 3)), (80, 160, 320), 2),  # BDF2
    (hx.PartitionedRungeKutta(SYMPLECTIC_EULER), (100, 200, 400), 1),
    (hx.PartitionedRungeKutta(LOBATTO_IIIAB[2]), (40, 80, 160), 2),
    (hx.PartitionedRungeKutta(), (16, 24, 32), 4),
    (hx.PartitionedRungeKutta(LOBATTO_IIIAB[4]), (6, 9, 12), 6),
]


def marked(case):
    return pytest.param(*case, id=case[0].name, marks=() if case[0].name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("method, counts, order", [marked(case) for case in CASES])
def test_order(method, counts, order, reference):
    found, errors = measured(method, reference, counts)
    assert method.traits["free"].order == order
    assert abs(found - order) < 0.25, (found, errors)
    assert errors[-1] > 1e-12


def test_instances_of_known_methods():
    euler, verlet = hx.PartitionedRungeKutta(SYMPLECTIC_EULER), hx.PartitionedRungeKutta(LOBATTO_IIIAB[2])
    for method, known in (
        (euler, hx.SymplecticEuler()),
        (verlet, hx.StormerVerlet()),
        (hx.Taylor(1), hx.ExplicitEuler()),
    ):
        a, b = (hx.integrate(SYSTEM, m, *START, dt=0.05, steps=40) for m in (method, known))
        np.testing.assert_allclose(a[0], b[0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(a[1], b[1], rtol=0, atol=1e-14)
    assert LOBATTO_IIIAB[3].symplectic and LOBATTO_IIIAB[3].symmetric and not SYMPLECTIC_EULER.symmetric


def test_adams_coefficients_are_the_textbook_ones():
    np.testing.assert_allclose(adams_coefficients(4, False)[1], np.array([-9, 37, -59, 55, 0]) / 24, rtol=1e-13)
    np.testing.assert_allclose(adams_coefficients(3, True)[1], np.array([1, -5, 19, 9]) / 24, rtol=1e-13)
    for k in range(1, 9):
        assert multistep_order(*adams_coefficients(k, False)) == k
        assert multistep_order(*adams_coefficients(k, True)) == k + 1


def test_unstable_and_inconsistent_coefficients_are_refused():
    with pytest.raises(hx.InputError, match="unstable"):  # the most accurate explicit two-step formula
        hx.LinearMultistep((-5.0, 4.0, 1.0), (2.0, 4.0, 0.0))
    with pytest.raises(hx.InputError, match="not consistent"):
        hx.LinearMultistep((0.0, -1.0, 1.0), (0.5, 1.5, 0.0))
    with pytest.raises(hx.InputError, match="from 1 to 40"):
        hx.Taylor(0)


def test_a_poor_start_would_show():
    """Control: the starting values matter, so a first-order start must be noticed at order five."""
    field = lambda z, t: (z[1], -jnp.sin(z[0]))
    z = (jnp.asarray(1.0), jnp.asarray(0.0))
    fine = extrapolate(field, z, 0.0, 0.1, 12)
    good, poor = (abs(float(extrapolate(field, z, 0.0, 0.1, k)[0] - fine[0])) for k in (6, 2))
    assert good < 1e-10 < 1e-7 < poor


def test_refusals():
    pendulum = hx.System(lambda q: q[1], lambda q: jnp.stack([q @ q - 1.0]))
    with pytest.raises(hx.MethodError):
        hx.PartitionedRungeKutta().check(pendulum)
    with pytest.raises(hx.MethodError):
        hx.Composition(hx.AdamsBashforth(2))
