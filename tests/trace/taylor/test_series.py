"""Taylor coefficients of elementary functions against exact rational or multi-precision values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import holonomix as hx
from holonomix.trace.taylor import Series, SeriesError, SeriesProgram

ORDER = 20
CENTER = 0.7
ULP = 2.0**-53

FUNCTIONS = {
    "exp": (jnp.exp, mp.exp),
    "exp2": (jnp.exp2, lambda x: mp.mpf(2) ** x),
    "expm1": (jnp.expm1, mp.expm1),
    "log": (jnp.log, mp.log),
    "log1p": (jnp.log1p, lambda x: mp.log(1 + x)),
    "sin": (jnp.sin, mp.sin),
    "cos": (jnp.cos, mp.cos),
    "tan": (jnp.tan, mp.tan),
    "sinh": (jnp.sinh, mp.sinh),
    "cosh": (jnp.cosh, mp.cosh),
    "tanh": (jnp.tanh, mp.tanh),
    "sqrt": (jnp.sqrt, mp.sqrt),
    "rsqrt": (jax.lax.rsqrt, lambda x: 1 / mp.sqrt(x)),
    "cbrt": (jnp.cbrt, mp.cbrt),
    "power 2.5": (lambda x: x**2.5, lambda x: x ** mp.mpf(2.5)),
    "power -1.5": (lambda x: x**-1.5, lambda x: x ** mp.mpf(-1.5)),
    "x^x": (lambda x: x**x, lambda x: x**x),
    "2^x": (lambda x: 2.0**x, lambda x: mp.mpf(2) ** x),
    "x^5": (lambda x: x**5, lambda x: x**5),
    "x^-3": (lambda x: x**-3, lambda x: x**-3),
    "1/x": (lambda x: 1 / x, lambda x: 1 / x),
    "x/(1+x^2)": (lambda x: x / (1 + x * x), lambda x: x / (1 + x * x)),
    "atan": (jnp.arctan, mp.atan),
    "asin": (lambda x: jnp.arcsin(x / 2), lambda x: mp.asin(x / 2)),
    "acos": (lambda x: jnp.arccos(x / 2), lambda x: mp.acos(x / 2)),
    "asinh": (jnp.arcsinh, mp.asinh),
    "acosh": (lambda x: jnp.arccosh(x + 1), lambda x: mp.acosh(x + 1)),
    "atanh": (lambda x: jnp.arctanh(x / 2), lambda x: mp.atanh(x / 2)),
    "erf": (jax.lax.erf, mp.erf),
    "erfc": (jax.lax.erfc, mp.erfc),
    "erf_inv": (lambda x: jax.lax.erf_inv(x / 2), lambda x: mp.erfinv(x / 2)),
    "lgamma": (jax.lax.lgamma, mp.loggamma),
    "digamma": (jax.lax.digamma, mp.digamma),
    "digamma of negative numbers": (lambda x: jax.lax.digamma(-x), lambda x: mp.digamma(-x)),
    "logistic": (jax.nn.sigmoid, lambda x: 1 / (1 + mp.exp(-x))),
    "atan2": (lambda x: jnp.arctan2(x, 1 + x * x), lambda x: mp.atan2(x, 1 + x * x)),
    "exp(sin)": (lambda x: jnp.exp(jnp.sin(x)), lambda x: mp.exp(mp.sin(x))),
    "exp(-x^2)": (lambda x: jnp.exp(-x * x), lambda x: mp.exp(-x * x)),
    "cos(x^2)": (lambda x: jnp.cos(x * x), lambda x: mp.cos(x * x)),
    "sin cos": (lambda x: jnp.sin(x) * jnp.cos(2 * x), lambda x: mp.sin(x) * mp.cos(2 * x)),
    "sinh cosh": (lambda x: jnp.sinh(x) * jnp.cosh(x), lambda x: mp.sinh(x) * mp.cosh(x)),
    "x^3 exp(-x)": (lambda x: x**3 * jnp.exp(-x), lambda x: x**3 * mp.exp(-x)),
    "sqrt(1+x^2)": (lambda x: jnp.sqrt(1 + x * x), lambda x: mp.sqrt(1 + x * x)),
}

# A rounding of the center by half an ulp moves coefficient n by up to n ulps where the function has a pole or a branch
# point at the radius of convergence: the derivative of the function has a stronger singularity there.
AMPLIFIED = ("tan", "tanh", "x^x", "asin", "acos", "asinh", "acosh", "atanh", "erf_inv", "logistic", "atan2", "lgamma")


def coefficients(fn, center, order=ORDER):
    argument = Series(jnp.asarray(center), jnp.ones(()))
    program = SeriesProgram(lambda x: [fn(x)], [argument])
    return np.array([0.0 if c is None else float(c) for n in range(order + 1) for c in program.advance(n)])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_coefficients_are_exact_to_four_ulps(name):
    """In units of the envelope `max_k |c_k| R^k / R^n`: a coefficient that happens to vanish has no ulps of its own."""
    fn, exact = FUNCTIONS[name]
    with mp.workdps(60):
        expected = [mp.mpf(c) for c in mp.taylor(exact, mp.mpf(CENTER), ORDER)]
        found = coefficients(fn, CENTER)
        errors = [abs(mp.mpf(f) - e) for f, e in zip(found, expected, strict=True)]
        # the radius of convergence, from the envelope of the last coefficients
        sizes = [abs(expected[k]) ** (mp.mpf(-1) / k) for k in range(8, ORDER + 1) if expected[k] != 0]
        radius = min(sizes, default=mp.mpf(1))
        size = max(abs(c) * radius**k for k, c in enumerate(expected))
        worst = max(e * radius**n / size for n, e in enumerate(errors)) / ULP
    assert worst <= (ORDER if name in AMPLIFIED else 4)


def test_thirty_functions_are_compared():
    assert len(set(FUNCTIONS) - set(AMPLIFIED)) >= 30


def test_a_wrong_recurrence_is_noticed():
    found = coefficients(lambda x: jnp.exp(x), CENTER)
    found[7] *= 1 + 1e-14
    expected = np.array([float(c) for c in mp.taylor(mp.exp, CENTER, ORDER)])
    assert np.max(np.abs(found - expected) / expected) > 4 * ULP


def test_the_solution_of_an_equation_with_a_closed_form():
    """`x' = x^2` from 1 is `1/(1 - t)`, whose coefficients are all one; `y' = -y` is `exp(-t)`."""
    found = hx.taylor.series(lambda z: {"x": z["x"] ** 2, "y": -z["y"]}, {"x": 1.0, "y": jnp.ones(2)}, 15)
    assert np.array_equal(found["x"], np.ones(16))
    expected = np.cumprod([1.0] + [-1.0 / n for n in range(1, 16)])
    assert np.allclose(found["y"], expected[:, None], rtol=1e-14, atol=0)
    assert abs(float(hx.taylor.evaluate(found["y"], 0.1)[0]) - np.exp(-0.1)) < 1e-16


def test_time_dependent_equations():
    found = hx.taylor.series(lambda z, t: jnp.cos(t), 0.0, 12, t=0.3)
    expected = [float(c) for c in mp.taylor(lambda t: mp.sin(t) - mp.sin(0.3), 0.3, 12)]
    assert np.allclose(found, expected, rtol=1e-13, atol=1e-17)


def test_arrays_indexing_products_and_loops():
    """Against nested forward differentiation, on a function with gathers, sums, products, branches and a loop."""
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))

    def fn(x):
        y = jnp.stack([jnp.sin(x), x * x, jnp.exp(-x), 1.0 / (1.0 + x)])
        z = matrix @ y
        z = z.at[jnp.array([0, 2])].add(y[jnp.array([3, 1])])
        z = jnp.where(z > 0, z, 0.1 * z**2)
        z = jax.lax.fori_loop(0, 3, lambda k, v: v + 0.1 * jnp.roll(v, 1) * v, z)
        return jnp.sum(jnp.maximum(z, y)) + jnp.prod(y) + jnp.max(z) + jnp.abs(z[0]) + jnp.linalg.norm(y)

    agrees_with_forward_mode(fn, 0.4)


def test_parts_and_branches():
    def fn(x):
        y, z = jnp.split(jnp.stack([jnp.sin(x), x * x, jnp.exp(-x), 1.0 / x]), 2)
        chosen = [jax.lax.switch(k, [jnp.sin, jnp.cos, jnp.tanh], y) for k in (0, jnp.int32(x > 0) + 1)]
        either = [jax.lax.cond(x > bound, lambda v: v**3, lambda v: jnp.exp(v), z) for bound in (0.0, 5.0)]
        wrapped = jnp.mod(9 * y, 1 + x) + jnp.fmod(-7.0 * x * x, 0.3) + jnp.mod(2.0, z)
        return sum(jnp.sum(v) for v in [*chosen, *either, wrapped]) + jax.lax.optimization_barrier((x, y))[0]

    agrees_with_forward_mode(fn, 0.4)


def agrees_with_forward_mode(fn, center):
    found = coefficients(fn, center, 3)
    expected, g = [], fn
    for n in range(4):
        expected.append(float(jax.jit(g)(center)) / float(mp.factorial(n)))
        g = _derivative(g)
    assert np.allclose(found, expected, rtol=1e-11, atol=0)


def _derivative(g):
    return lambda x: jax.jvp(g, (x,), (1.0,))[1]


def test_a_number_times_a_vector_keeps_the_axis_of_orders():
    """`z' = -z |z|^2` has `|z|^2 = 1 / (1 + 2 t)`; three orders of three entries must not be mixed up."""
    z = np.asarray([0.6, 0.0, -0.8])
    system = hx.System(lambda q: 0.0 * jnp.sum(q), force=lambda q, v, t: -v * jnp.sum(v**2))
    for order in (3, 6, 9):
        _, p = hx.integrate(system, hx.Taylor(order), np.zeros(3), z, dt=0.01, steps=20)
        np.testing.assert_allclose(p, z / np.sqrt(1.4), rtol=0, atol=5 * 0.01**order)


def test_an_operation_without_coefficients_is_named():
    with pytest.raises(SeriesError, match="while"):
        coefficients(lambda x: jax.lax.while_loop(lambda v: v < 3, lambda v: v * v + 1, x), 0.3)


def test_bad_arguments():
    with pytest.raises(hx.InputError, match="order"):
        hx.taylor.series(lambda z: z, 1.0, 0)
    with pytest.raises(hx.InputError, match="structure"):
        hx.taylor.series(lambda z: (z, z), 1.0, 3)
