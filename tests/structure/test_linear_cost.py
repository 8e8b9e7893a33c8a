"""No method forms an array that grows with the square of a chain's length."""

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


@pytest.fixture(scope="module")
def chain():
    problem = hx.models.chain(LINKS)
    return problem.system.prepare(problem.q0), problem.q0


@pytest.mark.parametrize("name", METHODS)
def test_no_method_forms_a_matrix_of_a_long_chain(name, chain):
    system, q = chain
    method = registry()[name].default
    try:
        method.check(system)
    except MethodError as reason:
        pytest.skip(str(reason))
    assert largest(traced(method, system, q).jaxpr) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("speed", [0.0, 1.0])
@pytest.mark.parametrize("name", ["AdamsMoulton", "StormerVerlet", "ImplicitMidpoint", "PoincareEuler"])
def test_steps_without_a_jacobian_equal_those_with_one(name, speed, monkeypatch):
    problem = hx.models.chain(20)
    system = problem.system.prepare(problem.q0)
    method, q = registry()[name].default, problem.q0
    raw = speed * jnp.cos(jnp.arange(q.size)).reshape(q.shape)
    p = raw - direct_momenta(system, q, raw, 0.0).correction

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
    assert np.max(np.abs(free.p - dense.p)) < 1e-13 * np.max(np.abs(dense.p))
