"""Lagrangians of SymPy: their parts, their motion against SymPy's own equations, and bad input."""

from __future__ import annotations

import csv
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.mechanics import Capability
from holonomix.mechanics.mass import ParameterMass

sympy = pytest.importorskip("sympy")
from sympy.physics.mechanics import LagrangesMethod, dynamicsymbols  # noqa: E402

t = dynamicsymbols._t
m, l, g, w = sympy.symbols("m l g w", positive=True)
x, y, z, r, s = dynamicsymbols("x y z r s")
OTHER_TIME = sympy.Function("x")(sympy.Symbol("t", real=True))  # prints as x does
VALUES = {"m": 1.3, "l": 0.7, "g": 9.81, "w": 2.1}


def kinetic(*places):
    return m / 2 * sum(place.diff(t) ** 2 for place in places)


def accelerations(problem, q, v, time):
    """The accelerations of a problem without constraints."""
    system = problem.system
    q, v = jnp.asarray(q), jnp.asarray(v)
    p = system.momentum(q, v)
    return jax.jvp(system.velocity, (q, p), (v, system.force(q, p, jnp.asarray(time))))[1]


LAGRANGIANS = {
    "double pendulum": lambda: (
        kinetic(
            l * sympy.sin(x), l * sympy.cos(x), l * (sympy.sin(x) + sympy.sin(y)), l * (sympy.cos(x) + sympy.cos(y))
        )
        + m * g * l * (2 * sympy.cos(x) + sympy.cos(y)),
        [x, y],
        [0, -0.2 * y.diff(t)],
    ),
    "charge in a magnetic field": lambda: (
        kinetic(x, y, z) + w * (x * y.diff(t) - y * x.diff(t)) - z**2 / 2,
        [x, y, z],
        None,
    ),
    "field that changes with time": lambda: (
        kinetic(x, y) + w * sympy.sin(t) * x**2 * y.diff(t) + x * y * t * x.diff(t) - x**4,
        [x, y],
        None,
    ),
    "rotating frame": lambda: (
        kinetic(x * sympy.cos(w * t) - y * sympy.sin(w * t), x * sympy.sin(w * t) + y * sympy.cos(w * t))
        - x**2
        - x * y,
        [x, y],
        None,
    ),
    "moving support": lambda: (
        kinetic(0.1 * sympy.sin(w * t) + l * sympy.sin(x), 0.3 * sympy.cos(3 * t) - l * sympy.cos(x))
        + m * g * l * sympy.cos(x),
        [x],
        [sympy.sin(t) * x - 0.1 * x.diff(t) ** 3],
    ),
    "polar coordinates": lambda: (kinetic(r * sympy.cos(s), r * sympy.sin(s)) + g / r, [r, s], None),
}


@pytest.mark.parametrize("name", LAGRANGIANS)
def test_accelerations_are_those_of_lagranges_equations(name):
    lagrangian, coordinates, forces = LAGRANGIANS[name]()
    problem = hx.from_sympy(lagrangian, coordinates, forces=forces, parameters=VALUES, q0=[1.0] * len(coordinates))
    speeds, n = [q.diff(t) for q in coordinates], len(coordinates)
    slopes = [lagrangian.diff(v) for v in speeds]
    residual = sympy.Matrix([a.diff(t) - lagrangian.diff(q) for a, q in zip(slopes, coordinates)])
    residual -= sympy.Matrix(forces or [0] * n)
    rates = [v.diff(t) for v in speeds]
    mass, rest = residual.jacobian(rates), residual.subs(dict.fromkeys(rates, 0)).doit()
    plain = dict(zip(speeds, sympy.symbols(f"v:{n}"))) | dict(zip(coordinates, sympy.symbols(f"q:{n}")))
    arguments = [*plain.values(), t, m, l, g, w]
    evaluate = sympy.lambdify(arguments, [mass.subs(plain), rest.subs(plain)])
    draws = np.random.default_rng(0)
    for _ in range(3):
        q, v, time = draws.uniform(0.5, 2.0, n), draws.normal(size=n), draws.uniform()
        matrix, vector = evaluate(*v, *q, time, *(VALUES[k] for k in "mlgw"))
        expected = -np.linalg.solve(matrix, np.ravel(vector))
        np.testing.assert_allclose(accelerations(problem, q, v, time), expected, rtol=1e-12, atol=1e-12)


def needs(*arguments, **options):
    return hx.from_sympy(*arguments, **options).system.needs


def test_only_the_parts_that_matter_become_part_of_the_system():
    values = {"parameters": VALUES}
    # a mass that is constant, although its expression is not
    pendulum = hx.from_sympy(kinetic(l * sympy.sin(x), l * sympy.cos(x)), [x], **values)
    assert isinstance(pendulum.system.mass, ParameterMass) and not pendulum.system.needs
    np.testing.assert_allclose(pendulum.system.mass_form(pendulum.q0).value, [1.3 * 0.7**2], rtol=1e-15)
    turned = kinetic(x * sympy.cos(2) - y * sympy.sin(2), x * sympy.sin(2) + y * sympy.cos(2))
    assert hx.from_sympy(turned, [x, y], **values).system.mass_form(jnp.zeros(2)).diagonal(0).shape == (2,)
    # a total derivative with respect to time, and a force that has a potential
    assert not needs(kinetic(x) + 3 * x**2 * sympy.cos(x) * x.diff(t) - x**2, [x], **values)
    assert not needs(kinetic(x, y), [x, y], forces={x: -y, y: 2 - x}, **values)
    # what is left
    assert needs(kinetic(x, y), [x, y], forces={x: y, y: -x}, **values) == {Capability.FORCE}
    assert needs(kinetic(x, y) + x * y.diff(t), [x, y], **values) == {Capability.MAGNETIC}
    assert needs(kinetic(x, y) * x**2, [x, y], **values, q0=[1, 1]) == {Capability.MASS}
    assert needs(kinetic(x) - sympy.cos(t) * x, [x], **values) == {Capability.TIME}
    assert needs(kinetic(x, y), [x, y], [x * y - sympy.cos(t)], **values, q0=[1, 1]) == {Capability.MOVING}


def test_an_expression_that_is_constant_for_one_sign_only_is_kept():
    problem = hx.from_sympy(kinetic(x) * (2 + sympy.sqrt(x**2) / x), [x], parameters=VALUES, q0=[1])
    for q, expected in ((1.5, 3.9), (-1.5, 1.3)):
        found = problem.system.mass_form(jnp.array([q])).matrix_at(jnp.array([q]))
        np.testing.assert_allclose(found, [[expected]], rtol=1e-12)
    small = hx.from_sympy(x.diff(t) ** 2 / 2 * (1 + sympy.Float("1e-12") * x**2), [x])
    assert small.system.position_mass


def test_a_problem_with_other_params_keeps_its_names():
    problem = hx.from_sympy(kinetic(x) - g * x**2 / 2, [x], parameters={m: 2.0, "g": 8.0}, q0=[0.3])
    sol = hx.simulate(problem.with_params({"g": 2.0}), hx.RATTLE(), dt=0.01, steps=50)
    assert sol["x"][-1] == pytest.approx(0.3 * np.cos(0.5), rel=1e-4)
    assert problem.system.params["g"] == 8.0
    with pytest.raises(hx.InputError, match="not 'gravity'"):
        problem.with_params({"gravity": 2.0})


def test_parameters_are_leaves_of_params():
    problem = hx.from_sympy(kinetic(x) - g * x**2 / 2, [x], parameters={m: 2.0, "g": 8.0}, q0=[0.3])
    run = lambda system: hx.integrate(system, hx.RATTLE(), problem.q0, problem.p0, dt=0.01, steps=50)[0][0]
    slope = jax.grad(lambda params: run(problem.system.with_params(params)))(problem.system.params)
    exact = lambda m, g: 0.3 * jnp.cos(jnp.sqrt(g / m) * 0.5)
    expected = jax.grad(exact, (0, 1))(2.0, 8.0)
    np.testing.assert_allclose([slope["m"], slope["g"]], expected, rtol=1e-3)
    through = jax.grad(lambda m: run(hx.from_sympy(kinetic(x) - g * x**2 / 2, [x], parameters={"m": m, g: 8.0}).system))
    np.testing.assert_allclose(through(2.0), slope["m"], rtol=1e-12)


def test_names_of_coordinates(tmp_path):
    theta, phi = dynamicsymbols("theta phi")
    lagrangian = m / 2 * (theta.diff(t) ** 2 + 2 * phi.diff(t) ** 2) - theta**2 * phi**2
    problem = hx.from_sympy(lagrangian, [theta, phi], parameters={m: 1}, q0={phi: 0.4, "theta": 0.3})
    sol = hx.simulate(problem, hx.RATTLE(), dt=0.1, steps=5, observe={"sum": lambda q, p: q.sum()})
    np.testing.assert_array_equal(sol["phi"], sol.q[:, 1])
    np.testing.assert_array_equal(sol["p_theta"], sol.p[:, 0])
    np.testing.assert_array_equal(sol["sum"], sol.observables["sum"])
    np.testing.assert_array_equal(sol.to_xarray().p.sel(q_0="phi"), sol.p[:, 1])
    with pytest.raises(hx.InputError, match="no column 'psi'; there are theta, phi, p_theta, p_phi, sum"):
        sol["psi"]
    sol.save(tmp_path / "run.csv")
    rows = list(csv.reader(open(tmp_path / "run.csv")))
    assert {"theta", "phi", "p_theta", "p_phi"} < set(rows[0])
    assert float(rows[-1][rows[0].index("phi")]) == sol.q[-1, 1]
    figure = sol.plot()
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["theta", "phi"]
    with pytest.raises(hx.InputError, match=r"phase\('phi'\) draws phi against its momentum"):
        sol.phase("phi", "p_phi")
    axes = sol.phase("phi").axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("phi", "p_phi")
    many = hx.simulate_ensemble(problem, hx.RATTLE(), sol.q[:3], sol.p[:3], dt=0.1, steps=4, save_every=2)
    np.testing.assert_array_equal(many["phi"], many.q[..., 1])
    assert list(many.to_xarray().q_0.values) == ["theta", "phi"]


def test_plain_symbols_with_speeds_and_named_constraints():
    a, b, va, vb = sympy.symbols("a b va vb")
    problem = hx.from_sympy(
        m / 2 * (va**2 + vb**2) - m * g * b, [a, b], {"rod": sympy.Eq(a**2 + b**2, l**2)}, None, VALUES,
        speeds=[va, vb], q0=[0.71, 0.02], v0={b: 1.0},
    )  # fmt: skip
    assert abs(float(jnp.hypot(*problem.q0)) - 0.7) < 1e-15
    sol = hx.simulate(problem, hx.RATTLE(), dt=0.01, steps=100)
    assert set(sol.constraint_forces()) == {"rod"} and sol.constraint_error().max() < 1e-14
    assert "a" in sol.to_xarray().q_0.values


def test_prescribed_motion_and_moving_constraints():
    support = dynamicsymbols("support")
    lagrangian = kinetic(support + l * sympy.sin(x), l * sympy.cos(x)) + m * g * l * sympy.cos(x)
    given = hx.from_sympy(lagrangian, [x], parameters={**VALUES, support: sympy.sin(w * t)}, q0=[0.4])
    same = hx.from_sympy(lagrangian.subs(support, sympy.sin(w * t)).doit(), [x], parameters=VALUES, q0=[0.4])
    assert given.system.potential_fn == same.system.potential_fn
    held = hx.from_sympy(
        kinetic(x, y) - m * g * y, [x, y], [(x - sympy.sin(w * t)) ** 2 + y**2 - l**2], None, VALUES, q0=[0.1, -0.6]
    )
    sol = hx.simulate(held, hx.RATTLE(), dt=0.01, steps=100)
    assert sol.constraint_error().max() < 1e-14 and sol.hidden_constraint_error().max() < 1e-13


def test_functions_of_sympy():
    functions = [
        sympy.exp(-(x**2)), sympy.log(2 + x**2), sympy.sqrt(1 + x**2), sympy.tanh(x), sympy.atan2(x, 2), sympy.sec(x),
        sympy.Abs(x), sympy.Max(x, sympy.Rational(1, 3)), sympy.Piecewise((x**3, x > 0), (0, True)), sympy.cbrt(3 + x),
        sympy.asin(x / 3), sympy.erf(x), sympy.pi**x, sympy.Mod(x, 2), sympy.sign(x), sympy.E * x, (2 + x) ** -1.5,
        sympy.Heaviside(x), sympy.loggamma(3 + x), sympy.floor(x), x**-2, sympy.Min(x, 1, 2 * x), sympy.sinc(x),
    ]  # fmt: skip
    potential = sum((k + 1) * f for k, f in enumerate(functions))
    problem = hx.from_sympy(kinetic(x) - potential, [x], parameters=VALUES, q0=[0.5])
    for place in (-0.7, 0.4, 1.3):
        expected = float(potential.subs(x, sympy.Float(place, 30)).evalf(20))
        assert float(problem.system.potential(jnp.array([place]))) == pytest.approx(expected, rel=1e-14)


def test_equal_subexpressions_are_computed_once():
    deep = x
    for _ in range(10):
        deep = sympy.sin(deep) + deep / 7
    problem = hx.from_sympy(kinetic(x) - deep, [x], parameters=VALUES, q0=[0.5])
    assert sympy.count_ops(deep) > 3000 and len(problem.system.potential_fn.code.operations) < 200


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((-m * sympy.sqrt(1 - x.diff(t) ** 2), [x]), {}, r"quadratic in the speeds.*sqrt\(1 - x'\*\*2\)"),
        ((kinetic(x) + x * x.diff(t) ** 3, [x]), {}, r"it contains x\*x'\*\*3, of degree 3"),
        ((kinetic(x) - sympy.sin(x.diff(t)), [x]), {}, r"it contains sin\(x'\)"),
        ((kinetic(x) - sympy.Symbol("k") * x**2, [x]), {}, r"no value for k: give parameters=\{'k': \.\.\.\}"),
        ((kinetic(x, y), [x]), {}, r"contains y\(t\).*add it to coordinates.*parameters=\{y\(t\): "),
        ((kinetic(x), [x, y]), {}, "no kinetic energy of y"),
        ((kinetic(x * (2 + sympy.sin(t))), [x]), {}, "mass M.q. depends on time.*prescribed motion a coordinate"),
        ((kinetic(x) + x.diff(t, 2) * x, [x]), {}, r"contains Derivative\(x\(t\), \(t, 2\)\)"),
        ((kinetic(x, y), [x, y], [x.diff(t) - x * y.diff(t)]), {}, "constraint 0 contains speeds: -x.y' \\+ x'.*scope"),
        ((kinetic(x, y), [x, y], {"rod": sympy.sin(t)}), {}, "constraint 'rod' contains no coordinate"),
        ((kinetic(x, y), [x, y]), {"q0": [1.0]}, r"q0 has shape \(1,\); there are 2 coordinates: x, y"),
        ((kinetic(x, y), [x, y]), {"q0": {z: 1.0}}, "q0 names z.t., which is not a coordinate; there are x, y"),
        ((kinetic(x, y), [x, y]), {"forces": [1]}, "forces has 1 entries; there are 2 coordinates"),
        ((kinetic(x), [x]), {"forces": -x}, "forces must be a dict from coordinate to force, or a list for x, not -x"),
        ((kinetic(x), [x]), {"q0": [g]}, r"q0 must hold numbers, not \[g\]"),
        ((kinetic(x), [x]), {"parameters": {m: 1.0, "m": 2.0}}, "two values for m"),
        ((kinetic(x) - sympy.Integral(sympy.exp(-(g**2)), (g, 0, x)), [x]), {}, r"not evaluated: call \.doit\(\)"),
        ((kinetic(x), [x, x]), {}, "name 'x' of a coordinate stands for two"),
        ((sympy.Symbol("v") ** 2, [sympy.Symbol("x")]), {}, "plain symbols need speeds"),
        ((kinetic(x) - sympy.zeta(x), [x]), {}, r"zeta in zeta\(_?x\) is not available in JAX"),
        ((kinetic(x) - sympy.I * x, [x]), {}, "contains I, which is not a real number"),
        ((kinetic(x), [x]), {"parameters": {m: "heavy"}}, "the parameter m must be a number"),
        ((kinetic(x), [x]), {"parameters": {m: [1, 2]}}, "the parameter m must be one real number"),
        ((kinetic(x), [x]), {"parameters": {m: None}}, "the parameter m must be a number, not None"),
        ((kinetic(x), [OTHER_TIME]), {}, r"x\(t\) of the time Symbol\('t'\).*is Symbol\('t', real=True\)"),
        ((kinetic(x), [x]), {"q0": {OTHER_TIME: 1.0}}, r"q0 contains x\(t\) of the time Symbol\('t', real=True\)"),
        ((kinetic(x), [OTHER_TIME, y]), {}, r"one time.*Symbol\('t'\), Symbol\('t', real=True\)"),
        ((kinetic(x),), {}, "coordinates must be given"),
        (("m*x", [x]), {"parameters": 3}, "parameters must be a dict"),
        ((3.0j, [x]), {}, "no kinetic energy of x|not a real number"),
        ((kinetic(x), [2 * x]), {}, "a coordinate must be a dynamic symbol or a symbol, not 2.x"),
    ],
)
def test_bad_input_is_named(arguments, options, message):
    with pytest.raises(hx.InputError, match=message):
        hx.from_sympy(*arguments, **{"parameters": VALUES, **options})


@pytest.mark.parametrize("place", ["lagrangian", "constraint", "force", "coordinate", "speed", "motion"])
def test_text_is_not_executed(tmp_path, place):
    text = f"__import__('pathlib').Path({str(tmp_path / 'executed')!r}).touch()"
    given = {
        "lagrangian": ((text, [x]), {}),
        "constraint": ((kinetic(x), [x], [text]), {}),
        "force": ((kinetic(x), [x], (), [text]), {}),
        "coordinate": ((kinetic(x), [text]), {}),
        "speed": ((sympy.Symbol("v") ** 2, [sympy.Symbol("x")]), {"speeds": [text]}),
        "motion": ((kinetic(x), [x]), {"parameters": {**VALUES, y: text}}),
    }
    arguments, options = given[place]
    with pytest.raises(hx.InputError, match="must be an expression of SymPy.*text is not evaluated"):
        hx.from_sympy(*arguments, **{"parameters": VALUES, **options})
    assert not list(tmp_path.iterdir())


def test_a_lagranges_method_is_read():
    x_, y_ = sympy.symbols("x y")
    lagrangian = kinetic(x, y) - m * g * y
    method = LagrangesMethod(lagrangian, [x, y], hol_coneqs=[x**2 + y**2 - l**2])
    one, two = (
        hx.from_sympy(*arguments, parameters=VALUES, q0=[0.7, 0.0])
        for arguments in ((method,), (lagrangian, [x, y], [x**2 + y**2 - l**2]))
    )
    assert one.system == two.system or jax.tree.structure(one.system) == jax.tree.structure(two.system)
    with pytest.raises(hx.InputError, match="LagrangesMethod has coordinates of its own"):
        hx.from_sympy(method, [x, y], parameters=VALUES)
    rolling = LagrangesMethod(lagrangian, [x, y], nonhol_coneqs=[x.diff(t) - x * y.diff(t)])
    with pytest.raises(hx.InputError, match="constraint on speeds"):
        hx.from_sympy(rolling, parameters=VALUES)


def test_masses_of_an_ensemble_come_from_params():
    lagrangian = kinetic(x, y) - g * (x**2 + y**2) / 2
    problem = hx.from_sympy(lagrangian, [x, y], parameters={m: 1.0, g: 2.0}, q0=[0.3, 0.1])
    masses = np.array([0.5, 1.0, 2.0])
    system = problem.system.with_params({"m": masses, "g": 2.0})
    axes = {"q0": None, "p0": None, "params": {"m": 0, "g": None}}
    problem = dataclasses.replace(problem, system=system)  # which has the names
    many = hx.simulate_ensemble(problem, hx.RATTLE(), dt=0.01, steps=50, in_axes=axes)
    exact = 0.3 * np.cos(np.sqrt(2.0 / masses) * 0.5)
    np.testing.assert_allclose(many["x"], exact, rtol=1e-4)  # second order


@pytest.mark.slow
def test_an_expression_of_five_thousand_operations_runs_natively():
    draws = np.random.default_rng(0)
    places = dynamicsymbols("q1:5")

    def factor():
        kind = (sympy.sin, sympy.cos)[draws.integers(2)]
        return kind(int(draws.integers(1, 5)) * places[draws.integers(4)] + int(draws.integers(1, 40)))

    potential = sympy.Add(*(int(draws.integers(1, 9)) * factor() * factor() * factor() for _ in range(400)))
    assert sympy.count_ops(potential) > 5000
    problem = hx.from_sympy(sum(q.diff(t) ** 2 for q in places) / 2 - potential, places)
    sol = hx.simulate(problem, hx.RATTLE(), dt=0.001, steps=1)
    assert sol.stats["backend"] == "native" and sol.stats["operations"] < 6000
