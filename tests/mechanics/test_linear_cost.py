"""No method forms an array that grows with the square of a chain's length."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jex_core

import holonomix as hx
from holonomix.core.errors import MethodError
from holonomix.core.types import State
from holonomix.mechanics.projection import direct_momenta
from holonomix.methods.registry import registry

LINKS = 2_000
OMEGA = 50.0  # of the springs that stand in for links
# arrays of this many times the length of the chain are still linear: stages, factors and their levels
MOST = 100 * LINKS

# a mass or an embedding of their own: not for particles
OTHERS = ("CayleyEulerSO3", "ZhangSkeelSO3")
METHODS = [name for name in registry() if name not in OTHERS]
# The methods of linear cost, by name: one that refuses such a system, or loses a trait, fails a test.
ON_CHAINS = {
    "rigid": """
        AdamsBashforth AdamsMoulton Composition ConstrainedHMC ExplicitEuler ExplicitMidpoint GLA Gauss GeodesicBAOAB
        HBVM ImplicitMidpoint LineIntegral LinearMultistep LobattoIIIAB PoincareEuler RATTLE RK4 RungeKutta SHAKE
        StormerVerlet SymplecticEuler Taylor TaylorAdaptive VRATTLE VSHAKE
    """.split(),
    "mass": """
        AdamsBashforth AdamsMoulton Composition ConstrainedHMC ExplicitEuler ExplicitMidpoint GLA Gauss HBVM
        ImplicitMidpoint LinearMultistep RATTLE RK4 RungeKutta SHAKE Taylor TaylorAdaptive
    """.split(),
    "free mass": """
        AdamsBashforth AdamsMoulton Composition ConstrainedHMC ExplicitEuler ExplicitMidpoint GLA Gauss HBVM
        ImplicitMidpoint LinearMultistep PartitionedRungeKutta RATTLE RK4 RungeKutta StormerVerlet Taylor TaylorAdaptive
        VariationalIntegrator
    """.split(),
}


def largest(jaxpr):
    """The number of entries of the largest array in a program and everything that it calls."""
    programs = (jex_core.ClosedJaxpr, jex_core.Jaxpr)
    sizes = [int(np.prod(v.aval.shape)) for v in (*jaxpr.constvars, *jaxpr.invars)]
    for eqn in jaxpr.eqns:
        sizes += [int(np.prod(v.aval.shape)) for v in eqn.outvars if hasattr(v.aval, "shape")]
        inside = jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda x: isinstance(x, programs))
        sizes += [largest(getattr(x, "jaxpr", x)) for x in inside if isinstance(x, programs)]
    return max(sizes, default=0)


def traced(method, system, q):
    """The program of a start and a step; nothing is executed."""

    def step(q, p, key):
        state = State(q, p, jnp.zeros(()), jnp.zeros((), jnp.int32))
        return method.step(system, state, 0.01, method.init(system, state, 0.01), key)[0]

    shape = jax.ShapeDtypeStruct(q.shape, q.dtype)
    return jax.make_jaxpr(step)(shape, shape, jax.eval_shape(lambda: jax.random.key(0)))


def heavier(q):
    """A mass that depends on the position, as one number per coordinate."""
    return 2.0 + jnp.cos(q)


@functools.cache
def long_chain(kind, links=LINKS):
    problem = hx.models.chain(links)
    system, q = problem.system, problem.q0
    if kind == "stiff":
        system = system.penalized(OMEGA)
    elif kind != "rigid":
        links = system.constraint_terms if kind == "mass" else ()
        system = hx.System(system.potential_fn, list(links) or None, mass=heavier, params=system.params)
    return system.prepare(q), q


def entries(method, system, q):
    method.check(system)
    return largest(traced(method, system, q).jaxpr)


def accepts(method, system):
    try:
        method.check(system)
    except MethodError:
        return False
    return True


@pytest.mark.parametrize("kind", ON_CHAINS)
def test_the_methods_for_chains_are_known(kind):
    system, _ = long_chain(kind, 20)
    assert sorted(name for name in METHODS if accepts(registry()[name].default, system)) == ON_CHAINS[kind]


@pytest.mark.parametrize("name", ON_CHAINS["rigid"])
def test_no_method_forms_a_matrix_of_a_long_chain(name):
    assert entries(registry()[name].default, *long_chain("rigid")) <= MOST


FOOT_POINTS = [lambda: hx.MollifiedImpulse(), lambda: hx.MollifiedImpulse(mollifier="nearest")]
LAGRANGIANS = registry()["VariationalIntegrator"].variants
OF_MASS = [(kind, registry()[name].make) for kind in ("mass", "free mass") for name in ON_CHAINS[kind]]
OF_STIFF = [("stiff", make) for make in (*FOOT_POINTS, *LAGRANGIANS)]
RIGID = [("rigid", registry()[x].make) for x in ("AdamsMoulton", "StormerVerlet", "ImplicitMidpoint", "PoincareEuler")]
QUICK = [("mass", hx.RATTLE), ("free mass", hx.VariationalIntegrator)]
# Krylov spaces of 21 vectors, with up to three stages of position and momentum
MOST_OF_SPACES = 21 * 12 * LINKS


def check_spaces(kind, make):
    assert entries(make(), *long_chain(kind)) <= MOST_OF_SPACES < LINKS**2 / 4


@pytest.mark.parametrize(("kind", "make"), QUICK)
def test_nor_of_one_whose_mass_depends_on_the_position(kind, make):
    check_spaces(kind, make)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "make"), OF_MASS + OF_STIFF)
def test_nor_any_other_method(kind, make):
    check_spaces(kind, make)


def rounding(rigid, q, dt, steps):
    """Errors of q and p after some steps with stiff springs that round each new q by an ulp of the longest coordinate.

    p is a difference of positions over the step, so that it errs by ulp / dt, and the springs pull on an ulp of q with
    dt omega^2 |G|^2. An error of p moves q in every step that follows.
    """
    ulp = np.finfo(float).eps * np.max(np.abs(q))
    rows = jax.jacfwd(lambda x: rigid.constraint(x.reshape(q.shape), 0.0))(q.reshape(-1))
    growth = 1 + (dt * OMEGA * np.linalg.norm(rows, 2)) ** 2
    return steps * (steps + 1) / 2 * growth * ulp, steps * growth * ulp / dt


@pytest.mark.slow
@pytest.mark.parametrize("speed", [0.0, 1.0])
@pytest.mark.parametrize(("kind", "make"), [*RIGID, ("mass", hx.RATTLE), ("free mass", hx.RATTLE), *OF_STIFF])
def test_steps_without_a_jacobian_equal_those_with_one(kind, make, speed, monkeypatch):
    (system, q), method, dt, steps = long_chain(kind, 20), make(), 0.01, 6
    rigid = hx.models.chain(20).system.prepare(q)
    raw = speed * jnp.cos(jnp.arange(q.size)).reshape(q.shape)
    p = raw - direct_momenta(system if kind == "mass" else rigid, q, raw, 0.0).correction

    def run(limit):
        monkeypatch.setattr(sys.modules["holonomix.linalg.iterate"], "LARGE", limit)
        state = State(q, p, jnp.zeros(()), jnp.zeros((), jnp.int32))

        def step(carry, _):
            state, carry, report = method.step(system, carry[0], dt, carry[1])
            return (state, carry), report

        start = (state, method.init(system, state, dt))
        return jax.jit(lambda start: jax.lax.scan(step, start, None, length=steps))(start)

    ((free, _), reports), ((dense, _), _) = run(0), run(256)
    assert np.all(reports.status == 0) and np.max(reports.iterations) <= 8
    of_q, of_p = 1e-14 * np.max(np.abs(dense.q)), 1e-13 * np.max(np.abs(dense.p))
    if kind == "stiff":
        of_q, of_p = np.maximum((of_q, of_p), rounding(rigid, q, dt, steps))
    assert np.max(np.abs(free.q - dense.q)) < of_q
    assert np.max(np.abs(free.p - dense.p)) < of_p
