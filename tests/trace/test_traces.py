"""New numbers must not compile anew, however often the values change; functions are traced when a run is prepared."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.compiler import native
from holonomix.trace import compiled


class Counted:
    """A potential that counts how often JAX traces it."""

    def __init__(self):
        self.traces = 0

    def __call__(self, q, params):
        self.traces += 1
        return params["gravity"] * jnp.sum(q[:, 1])


def rods(q, params):
    before = jnp.concatenate([jnp.zeros_like(q[:1]), q[:-1]])
    return jnp.sum((q - before) ** 2, axis=1) - params["lengths"] ** 2


def make(potential, length=1.0, gravity=1.0, mass=1.0):
    params = {"lengths": jnp.array([length, 1.0]), "gravity": gravity}
    system = hx.System(potential, rods, mass=mass, params=params)
    q = jnp.array([[length, 0.0], [length, -1.0]])
    return system, q, jnp.zeros_like(q)


CHANGES = [{}, {"length": 1.3}, {"gravity": 2.5}, {"mass": 0.7}, {"length": 0.8, "gravity": jnp.asarray(0.1)}]


@pytest.mark.parametrize("how", ["integrate", "simulate"])
def test_dt_mass_params_and_starts_do_not_recompile(how):
    potential = Counted()

    def run(dt=0.01, push=0.0, **changes):
        system, q, p = make(potential, **changes)
        p = p + push * jnp.array([[0.0, 1.0], [0.0, 1.0]])
        if how == "integrate":
            return hx.integrate(system, hx.RATTLE(), q, p, dt=dt, steps=20)[0]
        return hx.simulate(system, hx.RATTLE(), q, p, dt=dt, steps=20, backend="array").final_q

    first = run()
    before = compiled.statistics["compiled"]
    results = [run(**change) for change in CHANGES] + [run(dt=0.02), run(push=0.1)]
    assert compiled.statistics["compiled"] == before > 0
    assert len({float(np.asarray(r)[1, 1]) for r in results}) == len(results)  # the numbers did change
    np.testing.assert_array_equal(first, results[0])


# a method with its parameter in place of a value, on a double pendulum that is rigid or held by springs
METHODS = {
    "ZhangSkeel": (lambda value: hx.ZhangSkeel(beta=value), False),
    "Newmark": (lambda value: hx.Newmark(beta=value), False),
    "GLA": (lambda value: hx.GLA(hx.ZhangSkeel(), friction=value, temperature=value), False),
    "SOR": (lambda value: hx.RATTLE(hx.SOR(omega=1 + value)), True),
    "frequency": (lambda value: hx.StormerVerlet(), False),
    "GeodesicBAOAB": (lambda value: hx.GeodesicBAOAB(friction=value, temperature=value), True),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_scan_over_a_parameter_of_a_method_compiles_once(name):
    problem = hx.models.double_pendulum()
    make, rigid = METHODS[name]

    def run(value):
        method = make(value)
        omega = 80.0 * value if name == "frequency" else 20.0
        system = problem.system if rigid else problem.system.penalized(omega)
        key = jax.random.key(0) if method.stochastic else None
        sol = hx.simulate(system, method, problem.q0, problem.p0, dt=0.01, steps=20, key=key)
        return float(sol.final_q[1, 1]), sol.stats["mean_iterations"]

    run(0.25)
    before = compiled.statistics["compiled"], native.statistics["compiled"] + native.statistics["from_disk"]
    results = [run(value) for value in (0.3, 0.4, 0.5)]
    after = compiled.statistics["compiled"], native.statistics["compiled"] + native.statistics["from_disk"]
    assert after == before
    assert len(set(results)) == len(results)  # the numbers did change


# Parameters whose value decides what the program is.
DECIDES = {("TaylorAdaptive", "tol"): "fixes the order of the series"}
SOLVERS = ("Newton", "SymmetricNewton", "SOR", "GaussSeidel")
MONITORS = ("ForceMonitor", "MultiplierMonitor", "ArcLengthMonitor", "LargestForceMonitor", "FastestParticleMonitor")
LAGRANGIANS = ("NewmarkLagrangian", "ZhangSkeelLagrangian")


def program_key(method):
    """What decides whether a program is compiled: structure and static leaves, not the values of arrays."""
    leaves, structure = jax.tree.flatten(method)
    return structure, [type(x) if isinstance(x, jax.Array) else x for x in leaves]


def test_every_real_parameter_of_every_method_is_a_runtime_value():
    """Each parameter that takes a real number, two values of it: the program must be the same."""
    from holonomix.methods import variational

    makers = {name: entry.make for name, entry in hx.methods.registry().items()}
    makers |= {name: getattr(hx, name) for name in SOLVERS} | {name: getattr(hx.monitors, name) for name in MONITORS}
    makers |= {name: getattr(variational, name) for name in LAGRANGIANS}
    checked, decides = set(), set()
    for name, make in makers.items():
        for parameter, given in inspect.signature(make).parameters.items():
            if isinstance(given.default, (bool, int, str)):
                continue
            first = 0.9 * given.default if isinstance(given.default, float) else 0.3
            try:
                one, other = (make(**{parameter: x}) for x in (first, 0.9 * first))
            except (hx.HolonomixError, TypeError, AttributeError):
                assert not isinstance(given.default, float), (name, parameter)
                continue
            checked.add((name, parameter))
            if program_key(one) != program_key(other):
                decides.add((name, parameter))
    assert decides == set(DECIDES)
    assert {("ZhangSkeel", "beta"), ("ZhangSkeelSO3", "c"), ("ZhangSkeelLagrangian", "weight"), ("Newton", "tol"),
            ("GLA", "friction"), ("ConstrainedHMC", "return_tol")} <= checked  # fmt: skip


def test_another_function_does_recompile():
    """The control: the counter does notice a function that computes something else."""
    system, q, p = make(lambda q, params: params["gravity"] * jnp.sum(q[:, 1]))
    other = make(lambda q, params: 2.0 * params["gravity"] * jnp.sum(q[:, 1]))[0]
    counts = []
    for each in (system, system, other):
        hx.integrate(each, hx.RATTLE(), q, p, dt=0.01, steps=20)
        counts.append(compiled.statistics["compiled"])
    assert counts[0] == counts[1] < counts[2]


def test_models_of_other_numbers_share_one_compilation():
    lengths = []
    for length in (1.0, 1.1, 1.2):
        problem = hx.models.double_pendulum(lengths=(length, 1.0), gravity=length)
        lengths.append(jax.tree.structure(problem.system.prepare(problem.q0)))
    assert lengths[0] == lengths[1] == lengths[2]


def test_a_step_evaluates_a_constraint_a_few_times_while_it_is_traced(monkeypatch):
    """Newton iterations, projections and checks share what was traced of a constraint: 70 evaluations without that."""
    count, plain = [0], hx.Distance.lane_values

    def counted(self, *args):
        count[0] += 1
        return plain(self, *args)

    monkeypatch.setattr(hx.Distance, "lane_values", counted)
    system = hx.System(lambda q: jnp.sum(q[:, 1]), [hx.Distance([(-1, 0), (0, 1)], 1.0)])
    q = np.array([[1.0, 0.0], [1.0, -1.0]])
    hx.simulate(system, hx.RATTLE(), q, 0 * q, dt=0.013, steps=2)
    assert 0 < count[0] <= 12


def test_traced_once():
    """Inside of transformations the body runs once per shape and static value; outside it runs each time."""
    calls = []

    @compiled.traced_once
    def cube(x, factor):
        calls.append(factor)
        return factor * x**3

    @jax.jit
    def both(x):
        return cube(x, 2.0) + jax.grad(lambda y: jnp.sum(cube(y, 2.0)))(x) + jax.vmap(lambda y: cube(y, 3.0))(x)

    x = jnp.arange(3.0)
    np.testing.assert_allclose(both(x), 2 * x**3 + 6 * x**2 + 3 * x**3, rtol=1e-13)
    assert calls == [2.0, 3.0]
    cube(x, 2.0)
    assert calls == [2.0, 3.0, 2.0]


def test_programs_are_compiled_with_options_that_are_known_and_allowed(monkeypatch):
    options = compiled._options.__wrapped__
    for more in ({"xla_cpu_enable_fast_math": False}, {}):  # what this version of XLA knows, and does not know
        monkeypatch.setattr(compiled, "LEAN", more or {"xla_cpu_of_another_version": False})
        assert options(True) == compiled.QUICK | more and options(False) == (more or None)
    # inside of a transformation JAX takes none, also where all arguments are known
    problem = hx.models.planar_pendulum()
    known = lambda x: x * jnp.sum(hx.project(problem.system, 1.1 * problem.q0, problem.p0)[0])
    assert jax.jit(known)(2.0) == pytest.approx(2 * float(jnp.sum(problem.q0)), abs=1e-14)


def test_a_first_run_compiles_few_programs():
    """The checks of the start, the carry, the first row; numbers that are known need no program of JAX."""
    compilations = []
    note = lambda name, *args, **rest: compilations.append(name) if "backend_compile" in name else None
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        problem = hx.models.chain(7, masses=np.arange(1.0, 8.0))
        hx.simulate(problem, hx.RATTLE(), dt=0.01, steps=3)
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert 0 < len(compilations) <= 5
