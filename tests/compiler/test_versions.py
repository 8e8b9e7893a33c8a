"""Primitives of other versions of JAX: known ones have rules, unknown ones cost speed and never a failure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evaluate import evaluate
from jax.extend.core import Primitive
from jax.interpreters import mlir

import holonomix as hx
from holonomix.trace import jaxprs
from holonomix.trace.primitives import TABLE

X = np.linspace(-0.8, 0.9, 5)


def invented(name: str, fn):
    """A primitive with the name that it has in another version of JAX, whose meaning is `fn`."""
    primitive = Primitive(name)
    primitive.def_impl(fn)
    primitive.def_abstract_eval(lambda *avals, **params: avals[0])
    mlir.register_lowering(primitive, mlir.lower_fun(fn, multiple_results=False))
    return primitive


@pytest.mark.parametrize(
    ("name", "fn", "args"),
    [
        ("one_minus_square", lambda x: (1 + x) * (1 - x), (X,)),
        ("log2", lambda x: jnp.log(x) / jnp.log(2.0), (1 + X,)),
        ("polynomial", lambda x, a, b, c: a + x * (b + x * c), (X, np.array(0.3), np.array(-2.0), np.array(1.5))),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_newer_primitives(name, fn, args):
    primitive = invented(name, fn)
    np.testing.assert_allclose(evaluate(primitive.bind, *args), fn(*args), 1e-14, 1e-15)


def test_where_data_lies_is_no_reason_to_refuse():
    """JAX 0.11 names a memory in the empty arrays that a scan fills."""
    empty = Primitive("empty2")
    empty.def_abstract_eval(lambda *, dtype, memory_space: jax.core.ShapedArray((), dtype))
    fill = lambda x: jnp.broadcast_to(empty.bind(dtype=np.dtype(float), memory_space="somewhere"), x.shape).at[:].set(x)
    np.testing.assert_array_equal(evaluate(fill, X), X)


def test_constants_of_a_call_are_kept_where_one_class_is_for_closed_and_open_programs(monkeypatch):
    monkeypatch.setattr(jaxprs.jex_core, "Jaxpr", jaxprs.jex_core.ClosedJaxpr)
    body = jax.make_jaxpr(lambda x: x * X)(X)
    (eqn,) = jax.make_jaxpr(jax.jit(lambda x: 2 * x))(X).eqns
    changed = eqn.replace(params={**eqn.params, "jaxpr": body})
    assert len(body.consts) == 1 and jaxprs.called(changed).consts == body.consts


def test_operations_with_a_definition_are_looked_into():
    """`call_hi_primitive` holds an object whose `expand` is the definition."""

    class Definition:
        in_tree = jax.tree.structure((0, 0))

        def expand(self, x, y):
            return jnp.sin(x) * y

    definition = Definition()
    primitive = Primitive("call_hi_primitive")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *avals, _prim: [avals[0]])
    (found,) = evaluate(lambda x, y: primitive.bind(x, y, _prim=definition), X, X + 1)
    np.testing.assert_allclose(found, np.sin(X) * (X + 1), 1e-14)


def test_an_unknown_primitive_costs_speed_only():
    assert "of_the_future" not in TABLE
    primitive = invented("of_the_future", lambda x: jnp.sin(x) * x)
    system = hx.System(lambda q: 0.5 * jnp.sum(q * q))
    run = lambda observe: hx.simulate(system, hx.StormerVerlet(), X, 0 * X, dt=0.1, steps=3, observe=observe)
    found = run(lambda q, p: primitive.bind(q))
    assert found.stats["backend"] == "array" and "of_the_future" in found.stats["backend_reason"]
    np.testing.assert_allclose(found.q, run(None).q, 1e-13)
