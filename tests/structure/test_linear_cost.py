"""No method forms an array that grows with the square of a chain's length."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jex_core

import holonomix as hx
from holonomix.errors import MethodError
from holonomix.methods.registry import registry
from holonomix.projection import direct_momenta
from holonomix.types import State

LINKS = 2_000
# arrays of this many times the length of the chain are still linear: stages, factors and their levels
MOST = 100 * LINKS

# a mass or an embedding of their own: not for particles
OTHERS = ("CayleyEulerSO3", "ZhangSkeelSO3")
METHODS = [name for name in registry() if name not in OTHERS]


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
        system = system.penalized(50.0)
    elif kind != "rigid":
        links = system.constraint_terms if kind == "mass" else ()
        system = hx.System(system.potential_fn, list(links) or None, mass=heavier, params=system.params)
    return system.prepare(q), q


def entries(method, system, q):
    try:
        method.check(system)
    except MethodError as reason:
        pytest.skip(str(reason))
    return largest(traced(method, system, q).jaxpr)


@pytest.mark.parametrize("name", [name for name in METHODS if "constrained" in registry()[name].traits])
def test_no_method_forms_a_matrix_of_a_long_chain(name):
    assert entries(registry()[name].default, *long_chain("rigid")) <= MOST


FOOT_POINTS = [lambda: hx.MollifiedImpulse(), lambda: hx.MollifiedImpulse(mollifier="nearest")]
LAGRANGIANS = registry()["VariationalIntegrator"].variants
OF_MASS = [(kind, registry()[name].make) for kind in ("mass", "free mass") for name in METHODS]
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


@pytest.mark.slow
@pytest.mark.parametrize("speed", [0.0, 1.0])
@pytest.mark.parametrize(("kind", "make"), [*RIGID, ("mass", hx.RATTLE), ("free mass", hx.RATTLE), *OF_STIFF])
def test_steps_without_a_jacobian_equal_those_with_one(kind, make, speed, monkeypatch):
    (system, q), method = long_chain(kind, 20), make()
    rigid = hx.models.chain(20).system.prepare(q)
    raw = speed * jnp.cos(jnp.arange(q.size)).reshape(q.shape)
    p = raw - direct_momenta(system if kind == "mass" else rigid, q, raw, 0.0).correction

    def run(limit):
        monkeypatch.setattr(sys.modules["holonomix.linalg.iterate"], "LARGE", limit)
        state = State(q, p, jnp.zeros(()), jnp.zeros((), jnp.int32))

        def step(carry, _):
            state, carry, report = method.step(system, carry[0], 0.01, carry[1])
            return (state, carry), report

        start = (state, method.init(system, state, 0.01))
        return jax.jit(lambda start: jax.lax.scan(step, start, None, length=6))(start)

    ((free, _), reports), ((dense, _), _) = run(0), run(256)
    assert np.all(reports.status == 0) and np.max(reports.iterations) <= 8
    assert np.max(np.abs(free.q - dense.q)) < 1e-14 * np.max(np.abs(dense.q))
    # of a discrete Lagrangian, p is a difference of positions over the step; stiff springs do as much to round-off of q
    differs = kind == "stiff" or isinstance(method, hx.VariationalIntegrator)
    rounded = 1e-14 * np.max(np.abs(q)) / 0.01 if differs else 0.0
    assert np.max(np.abs(free.p - dense.p)) < max(1e-13 * np.max(np.abs(dense.p)), rounded)
