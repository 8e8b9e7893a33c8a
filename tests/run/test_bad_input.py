"""Everything that can be wrong with an input: an exception of ours, early, with the number in it."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.run.advice import advice
from holonomix.run.arguments import Options, check_step

Q, P = jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])


def weight(q):
    return q[1]


def rod(q):
    return jnp.array([q @ q - 1.0])


def run(potential=weight, constraint=rod, q=Q, p=P, method=None, mass=1.0, **options):
    system = hx.System(potential, constraint, mass=mass)
    return hx.simulate(system, method or hx.RATTLE(), q, p, **({"dt": 0.01, "steps": 5, "backend": "array"} | options))


CASES = {
    # wrong shapes
    "q and p differ": ({"p": jnp.zeros(3)}, hx.ShapeError, r"\(2,\).*\(3,\)"),
    "constraint is a number": ({"constraint": lambda q: q @ q - 1.0}, hx.ShapeError, r"1-D.*\(\)"),
    "constraint is a matrix": ({"constraint": lambda q: jnp.outer(q, q)}, hx.ShapeError, r"\(2, 2\)"),
    "potential is a vector": ({"potential": lambda q: 2 * q}, hx.ShapeError, r"\(2,\)"),
    "mass does not fit": ({"mass": jnp.ones(3)}, hx.ShapeError, r"\(3,\).*\(2,\)"),
    "a constraint without rows": ({"constraint": lambda q: jnp.zeros(0)}, hx.InputError, "0 rows.*None"),
    "too many constraints": ({"constraint": lambda q: jnp.ones(3) * (q @ q - 1)}, hx.InputError, "3 constraints on 2"),
    # NaN and infinity
    "NaN in q": ({"q": jnp.array([jnp.nan, -1.0])}, hx.NonFiniteError, "q has 1"),
    "infinity in p": ({"p": jnp.array([jnp.inf, -jnp.inf])}, hx.NonFiniteError, "p has 2"),
    "NaN from the potential": ({"potential": lambda q: jnp.log(q[1])}, hx.NonFiniteError, "potential.*nan"),
    "NaN from its gradient": (
        {"potential": lambda q: jnp.sqrt(jnp.maximum(q[1], 0.0))},
        hx.NonFiniteError,
        "gradient of the potential",
    ),
    "NaN from the constraint": (
        {"constraint": lambda q: jnp.array([jnp.sqrt(q[1])])},
        hx.NonFiniteError,
        r"rows \[0\]",
    ),
    # inconsistent starts
    "q off the manifold": ({"q": jnp.array([0.6, -0.9])}, hx.InconsistentStateError, r"0\.17.*hx\.project"),
    "p not tangent": ({"p": jnp.array([1.0, 1.0])}, hx.InconsistentStateError, r"-0\.4.*hx\.project"),
    # rank
    "a constraint twice": (
        {"constraint": lambda q: jnp.array([q @ q - 1.0, 2 * q @ q - 2.0])},
        hx.ConstraintRankError,
        r"rank 1.*\[0, 1\]",
    ),
    "a squared constraint": (
        {"constraint": lambda q: jnp.array([(q @ q - 1.0) ** 2])},
        hx.ConstraintRankError,
        "constraint 0",
    ),
    # mass
    "negative mass": ({"mass": -2.5}, hx.InputError, r"-2\.5"),
    "a massless coordinate": ({"mass": jnp.array([1.0, 0.0])}, hx.InputError, "smallest entry is 0"),
    "mass not symmetric": ({"mass": jnp.array([[1.0, 0.5], [0.0, 1.0]])}, hx.InputError, r"0\.5"),
    "mass not definite": ({"mass": jnp.array([[1.0, 2.0], [2.0, 1.0]])}, hx.InputError, "-1"),
    # the run itself
    "dt zero": ({"dt": 0.0}, hx.InputError, "0.0"),
    "dt NaN": ({"dt": float("nan")}, hx.InputError, "nan"),
    "steps and t1": ({"t1": 1.0}, hx.InputError, "steps.*t1"),
    "neither steps nor t1": ({"steps": None}, hx.InputError, "steps.*t1"),
    "steps beyond counting": ({"steps": None, "t1": 1.0, "dt": 1e-20}, hx.InputError, r"1e\+20 steps"),
    "t0 NaN": ({"t0": float("nan")}, hx.InputError, "t0.*nan"),
    "a key that nobody needs, and is none": ({"key": 7}, hx.InputError, "key.*not 7"),
    "steps negative": ({"steps": -3}, hx.InputError, "-3"),
    "a key is missing": ({"method": hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0)}, hx.InputError, "key"),
    "a method for free systems": ({"method": hx.Leapfrog()}, hx.MethodError, "Leapfrog.*unconstrained.*constrained"),
    "a method for constraints": ({"method": hx.SHAKE(), "constraint": None}, hx.MethodError, "SHAKE.*unconstrained"),
    "t1 in the past": ({"steps": None, "t1": -1.0}, hx.InputError, "t1 = -1"),
    "times after the end": ({"save_at": [3.0]}, hx.InputError, "save_at ends at 3.*0.05"),
    "a key that is a number": (
        {"method": hx.GLA(hx.RATTLE(), friction=1.0, temperature=1.0), "key": 7},
        hx.InputError,
        "key.*not 7",
    ),
    "a store that is none": ({"store": 5}, hx.InputError, "store.*5"),
    "q is complex": ({"q": 1j * Q}, hx.InputError, "q must be.*complex"),
    "q is empty": ({"q": jnp.zeros(0), "p": jnp.zeros(0)}, hx.InputError, r"no entries.*\(0,\)"),
    "times that are none": ({"save_at": "abc"}, hx.InputError, "save_at.*'abc'"),
    "an event of two numbers": ({"events": lambda q, p: q}, hx.InputError, r"event 0 .*\(2,\)"),
    "an event that is true or false": (
        {"events": lambda q, p: q[0] > 0},
        hx.InputError,
        "event 0 .*changes sign.*bool",
    ),
    "an event that raises": ({"events": lambda q, p: q[7, 7]}, hx.InputError, r"event 0 fails.*\(q, p\)"),
    "an event that is a number": ({"events": [3]}, hx.InputError, "event must be a function.*int"),
    "an observable with a name taken": ({"observe": {"q": lambda q, p: q[0]}}, hx.InputError, "'q'"),
    "q is a text": ({"q": "abc"}, hx.InputError, "q must be an array.*abc"),
    # functions that cannot be called: named, with the line, and without JAX's own words
    "numpy in the potential": (
        {"potential": lambda q: np.sin(q[1])},
        hx.InputError,
        f"potential.*{__name__.split('.')[-1]}.*jnp",
    ),
    "math in the potential": (
        {"potential": lambda q: math.sin(q[1])},
        hx.InputError,
        r"potential.*line \d+.*jax\.numpy",
    ),
    "if in the potential": ({"potential": lambda q: q[1] if q[1] > 0 else 0.0}, hx.InputError, r"jnp\.where"),
    "an index too many": ({"potential": lambda q: q[1, 1]}, hx.InputError, r"potential.*IndexError.*\(q\).*\(2,\)"),
    "an argument too many": ({"potential": lambda q, t, u: q[1]}, hx.InputError, r"potential.*argument.*called as \(q"),
    "while in the potential": (
        {"potential": lambda q: jax.lax.while_loop(lambda x: x < 3, lambda x: x + 1, q[1])},
        hx.InputError,
        "gradient of the potential fails.*while_loop",
    ),
    "a constraint that raises": ({"constraint": lambda q: 1 / 0}, hx.InputError, r"constraint.*ZeroDivisionError"),
    "a mass that raises": ({"mass": lambda q: q[7, 7]}, hx.InputError, "mass.*IndexError"),
    "an observable that raises": ({"observe": {"a": lambda q, p: q[7, 7]}}, hx.InputError, r"observable 'a'.*\(q, p\)"),
    "a class instead of a method": ({"method": hx.methods.RATTLE}, hx.MethodError, r"RATTLE\(\)"),
}


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_early_with_its_number(name):
    changes, error, number = CASES[name]
    with pytest.raises(error, match=number) as caught:
        run(**changes)
    assert isinstance(caught.value, hx.HolonomixError)


def test_the_control_runs():
    assert run().status is hx.Status.OK


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (lambda: hx.System(None), "free motion"),
        (lambda: hx.System(3.0), "float"),
        (lambda: hx.System(weight, [rod, 2]), "constraint 1.*int"),
        (lambda: hx.System(weight, force=1.0), "force.*float"),
        (lambda: hx.System(weight, mass="heavy"), "mass.*heavy"),
        (lambda: hx.Composition(hx.RATTLE(), order=5), "5"),
        (lambda: hx.Composition(hx.RATTLE(), order=8.0), r"8\.0"),
        (lambda: hx.RungeKutta("Heun"), "Tableau.*'Heun'"),
        (lambda: hx.methods.Tableau("Heun", ((), (1.0,)), (0.5, 0.6), 2), r"1\.1"),
        (lambda: hx.Composition(hx.RATTLE(), scheme=(0.5, 0.6)), r"1\.1"),
        (lambda: hx.Composition(hx.RATTLE(), scheme="yoshida-7"), "yoshida-7"),
        (lambda: hx.System(weight, params={"name": "rod"}), "params.*'rod'"),
        (lambda: hx.RATTLE(solver="newton"), r"Newton\(\).*'newton'"),
        (lambda: hx.SHAKE(solver=hx.Newton), r"Newton\(\).*class"),
        (lambda: hx.Newton(max_iterations=0), "max_iterations.*0"),
        (lambda: hx.SOR(tol="1e-3"), "tol.*'1e-3'"),
        (lambda: hx.HBVM(6.0, 2), r"k.*6\.0"),
        (lambda: hx.HBVM(6, 2, max_iterations=0), "max_iterations.*0"),
        (lambda: hx.LineIntegral(4.0), r"order.*4\.0"),
        (lambda: hx.LineIntegral(4, degree=2.5), r"degree.*2\.5"),
        (lambda: hx.LobattoIIIAB(2.5), r"s.*2\.5"),
        (lambda: hx.models.chain(2.5), r"pendula.*2\.5"),
        (lambda: hx.Splitting((0.5, 0.5), (1.0,)), "2.*1"),
        (lambda: hx.Splitting((0.5, 0.6), (1.0, 0.0)), r"1\.1"),
        (lambda: hx.Splitting(order=4), "up to 2 only, not 4"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_constructions_are_refused(make, number):
    with pytest.raises(hx.InputError, match=number):
        make()


def test_methods_that_cannot_be_composed_are_named():
    for method in (hx.SHAKE(), hx.RK4(), hx.SymplecticEuler()):
        with pytest.raises(hx.MethodError, match=method.name):
            hx.Composition(method, order=4)


def test_newton_that_does_not_converge_says_where_and_what_to_try():
    problem = hx.models.double_pendulum(angles=(2.0, 2.5))
    with pytest.raises(hx.ConvergenceError) as caught:
        hx.simulate(problem, hx.RATTLE(), dt=0.9, steps=500, backend="array")
    error = caught.value
    text = str(error)
    assert f"step {error.step}" in text and f"{error.time:g}" in text and "residual" in text and "iterations" in text
    assert "smaller dt" in text and "0.9" in text
    assert "Newton" not in text  # which is in use
    # nothing computed before is lost
    assert len(error.solution.t) == error.step and np.isfinite(error.solution.q).all()
    assert error.solution.constraint_error().max() < 1e-13


def test_advice_names_an_iteration_that_is_not_in_use():
    problem = hx.models.double_pendulum(angles=(2.0, 2.5))
    for method, hint in (
        (hx.RATTLE(hx.SymmetricNewton()), "solver=Newton()"),
        (hx.LineIntegral(), 'iteration="newton"'),
    ):
        text = advice(hx.Status.NOT_CONVERGED, method, problem.system, problem.q0, 0.0)
        assert hint in text, text


def test_a_method_that_left_the_manifold_is_to_blame_not_the_potential():
    system = hx.System(lambda q: -1.0 / jnp.linalg.norm(q), lambda q: jnp.array([q @ q - 1.0]))
    with pytest.raises(hx.SimulationError) as caught:
        hx.simulate(system, hx.ExplicitEuler(), Q, 40 * P, dt=0.5, steps=400, backend="array")
    assert caught.value.status == hx.Status.NONFINITE
    text = str(caught.value)
    assert "left the manifold" in text and "RATTLE" in text and "potential" not in text, text


def test_the_force_on_a_scalar_coordinate_is_a_number():
    system = hx.System(lambda q: 0.5 * q**2, force=lambda q, v, t: -0.5 * v)
    sol = hx.simulate(system, hx.RK4(), 1.0, 0.0, dt=0.1, steps=10)
    assert sol.q.shape == (11,) and sol.energy()[-1] < 0.5


def test_a_force_of_the_wrong_shape_or_kind_is_refused():
    for force, number in (
        (lambda q, v, t: v[0] * jnp.ones(3), r"\(3,\)"),
        (lambda q, v, t: -0.1 * v[0], r"\(2,\); it returned shape \(\)"),
        (lambda q, v: -v, r"called as \(q, v, t\)"),
    ):
        system = hx.System(weight, rod, force=force)
        with pytest.raises(hx.InputError, match=f"force.*{number}"):
            hx.simulate(system, hx.RATTLE(), Q, P, dt=0.01, steps=5)


def test_nothing_in_place_of_a_system():
    problem = hx.models.planar_pendulum()
    with pytest.raises(hx.InputError, match="NoneType"):
        hx.simulate(None, hx.RATTLE(), problem.q0, problem.p0, dt=0.1, steps=2)


def test_a_projection_of_nan_says_so():
    with pytest.raises(hx.NonFiniteError, match="q has 2"):
        hx.project(hx.System(weight, rod), Q * jnp.nan, P)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("system", "options", "number"),
    [
        (hx.System(weight, lambda q: q @ q - 1.0), {}, r"1-D.*\(\)"),
        (hx.System(lambda q: 2 * q, rod), {}, r"\(2,\)"),
        (hx.System(weight, rod, force=lambda q, v, t: jnp.ones(3)), {}, r"\(3,\)"),
        (hx.System(weight, rod), {"save_every": 2.0}, r"save_every.*2\.0"),
    ],
)
def test_the_pure_form_refuses_what_shapes_alone_can_tell(system, options, number):
    def run(q):
        return hx.integrate(system, hx.RATTLE(), q, P, dt=0.01, steps=4, **options)

    for form in (run, jax.jit(run)):
        with pytest.raises(hx.InputError, match=number):
            form(Q)


def test_a_run_in_chunks_cannot_be_traced_and_says_what_can():
    system = hx.System(weight, rod)
    with pytest.raises(hx.InputError, match=r"simulate .*hx\.integrate"):
        jax.jit(lambda q: hx.simulate(system, hx.RATTLE(), q, P, dt=0.01, steps=5).q)(Q)
    with pytest.raises(hx.InputError, match=r"simulate_ensemble .*hx\.integrate"):
        jax.jit(lambda q: hx.simulate_ensemble(system, hx.RATTLE(), q, P[None], dt=0.01, steps=5).q)(Q[None])


@pytest.mark.usefixtures("untyped")
def test_a_class_in_place_of_a_method_is_named_everywhere():
    problem = hx.models.planar_pendulum()
    for call in (lambda: hx.certify(problem, hx.methods.RATTLE), lambda: hx.explain(problem, hx.methods.RATTLE)):
        with pytest.raises(hx.MethodError, match=r"write RATTLE\(\)"):
            call()


def test_the_trajectory_of_an_ensemble_that_is_off_the_manifold_is_named():
    starts = jnp.stack([Q, Q, 1.1 * Q, Q])
    with pytest.raises(hx.InconsistentStateError, match=r"trajectory 2 .*0\.21"):
        hx.simulate_ensemble(hx.System(weight, rod), hx.RATTLE(), starts, jnp.stack([P] * 4), dt=0.01, steps=2)


def test_an_ensemble_without_its_leading_axis_says_which_axis_counts():
    with pytest.raises(hx.InputError, match=r"trajectory 0.*\(2,\).*potential"):
        hx.simulate_ensemble(hx.System(weight, rod), hx.RATTLE(), Q, P, dt=0.01, steps=2)


def test_a_name_with_a_typing_error_gets_a_suggestion():
    with pytest.raises(AttributeError, match="Ratle.*RATTLE"):
        _ = hx.Ratle


@pytest.mark.parametrize(
    ("check", "number"),
    [
        (lambda: Options(0.1, t1="1").count(hx.RATTLE()), "t1.*'1'"),
        (lambda: Options(0.1).count(hx.RATTLE()), "neither"),
        (lambda: Options(0.1, 5, save_every=2.5).count(hx.RATTLE()), r"save_every.*2\.5"),
        (lambda: Options(0.1, 10.0).count(hx.RATTLE()), r"steps.*10\.0"),
        (lambda: check_step(hx.RATTLE(), np.array([0.1, 0.2]), None), "simulate_ensemble"),
        (lambda: check_step(hx.RATTLE(), "0.1", None), r"dt.*'0\.1'"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused(check, number):
    with pytest.raises(hx.InputError, match=number):
        check()


SYSTEM = hx.System(lambda q: 0.5 * jnp.sum(q**2))


@pytest.mark.parametrize(
    "call",
    [
        lambda: hx.Taylor(project=np.array([1.0, 2.0])),
        lambda: hx.Taylor(solver=np.array([1.0, 2.0])),
        lambda: hx.TaylorAdaptive(solver=np.array([1.0, 2.0])),
        lambda: hx.ConstrainedHMC(return_tol=np.zeros((2, 2))),
        lambda: hx.integrate(SYSTEM, hx.RATTLE(), [1.0], [0.0], dt=0.1, steps=1, info=np.array([])),
        lambda: hx.integrate(SYSTEM, hx.RATTLE(), [1.0], [0.0], dt=0.1, steps=1, adjoint=np.ones(2)),
        lambda: hx.simulate(SYSTEM, hx.RATTLE(), [1.0], [0.0], dt=0.1, steps=1, t0=[[1.0], [2.0, 3.0]]),
        lambda: hx.simulate_ensemble(SYSTEM, hx.RATTLE(), [[1.0]], [[0.0]], dt=[[1.0], [2.0, 3.0]], steps=1),
    ],
)
def test_arrays_where_a_flag_a_name_or_a_number_belongs(untyped, call):
    with pytest.raises(hx.InputError):
        call()
