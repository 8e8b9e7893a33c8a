"""A method is `traits`, `init`, `step` and `read`; reversing, resizing and having a path are optional protocols."""

from __future__ import annotations

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.methods.base import AbstractMethod

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def documented() -> dict[str, type[AbstractMethod]]:
    """The methods that the page on extending defines; `tests/docs` runs the rest of its code."""
    names: dict[str, type[AbstractMethod]] = {}
    for block in PAGE.read_text().split("```python\n")[1:3]:
        tree = ast.parse(block.split("```")[0])
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)]
        exec(compile(tree, PAGE.name, "exec"), names)
    return names


NAMES = documented()
KEPLER = hx.models.kepler()


def run(method, steps, dt=0.01):
    """The state and carry after some steps."""
    state = hx.State(KEPLER.q0, KEPLER.p0, jnp.zeros(()), 0)
    carry = method.init(KEPLER.system, state, dt)
    for _ in range(steps):
        state, carry, _ = method.step(KEPLER.system, state, dt, carry)
    return state, carry


@pytest.mark.parametrize(("name", "bound"), [("DriftKick", 2e-2), ("Staggered", 4e-4)])
def test_the_methods_of_the_documentation_have_states_between_their_steps(name, bound):
    fine = hx.simulate(KEPLER, NAMES[name](), dt=0.01, steps=20, dense=True)
    q, p = fine.at(0.105)[-2:]
    exact = hx.simulate(KEPLER, hx.RK4(), dt=0.0005, steps=210)
    assert np.max(np.abs(q - exact.q[-1])) < bound and np.max(np.abs(p - exact.p[-1])) < bound


def test_the_way_back_ends_at_the_start_where_a_method_reverses():
    method = NAMES["Staggered"]()
    state, carry = method.reverse(KEPLER.system, *run(method, 30))
    for _ in range(30):
        state, carry, _ = method.step(KEPLER.system, state, 0.01, carry)
    shown = method.read(KEPLER.system, state, carry)
    np.testing.assert_allclose(shown.q, KEPLER.q0, rtol=0, atol=1e-13)
    np.testing.assert_allclose(shown.p, -KEPLER.p0, rtol=0, atol=1e-13)


def test_defaults_call_init_and_step():
    method = NAMES["DriftKick"]()
    state, carry = run(method, 3)
    back, memory = method.reverse(KEPLER.system, state, carry)
    np.testing.assert_array_equal(back.p, -state.p)
    assert (
        memory == method.resize(KEPLER.system, state, 0.5, carry) == method.renew(KEPLER.system, state, 0.5, ()) == ()
    )
    taken, _, _ = method.step(KEPLER.system, state, 0.004, carry)
    q, p, status = method.path(KEPLER.system, state, 0.01, carry)(0.004)
    np.testing.assert_array_equal(q, taken.q)
    np.testing.assert_array_equal(p, taken.p)
    assert int(status) == 0
    with pytest.raises(hx.MethodError, match="no states between its steps"):
        hx.Leapfrog().path(KEPLER.system, state, 0.01, ())


def test_a_carry_of_the_position_is_kept_when_the_momentum_changes():
    state, (low, gradient, memory) = run(hx.RATTLE(), 3)
    assert np.any(np.asarray(low.p))
    turned, kept = hx.RATTLE().reverse(KEPLER.system, state, (low, gradient, memory))
    np.testing.assert_array_equal(turned.p, -state.p)
    np.testing.assert_array_equal(kept[0].p, -low.p)
    assert kept[1] is gradient
    renewed = hx.RATTLE().renew(KEPLER.system, state, 0.01, (low, gradient, memory))
    np.testing.assert_array_equal(renewed[0].q, low.q)
    assert renewed[1] is gradient and not np.any(np.asarray(renewed[0].p))


def test_fields_with_a_meaning():
    assert hx.GLA(friction=0.0).one_way() == "" == hx.RATTLE().one_way()
    assert "friction" in hx.GLA().one_way() and "friction" in hx.ConstrainedHMC().one_way()
    body = hx.models.rigid_body()
    with pytest.raises(hx.MethodError, match="moves a rotation matrix"):
        hx.GLA(hx.CayleyEulerSO3()).check(hx.models.double_pendulum().system)
    hx.GLA(hx.CayleyEulerSO3()).check(body.system)
    sol = hx.simulate(KEPLER, hx.ConstrainedHMC(3), dt=0.01, steps=5, key=jax.random.key(0))
    assert sol.stats["proposed"] == 5 and 0 <= sol.stats["acceptance"] <= 1
    assert hx.RATTLE().statistics(run(hx.RATTLE(), 1)[1]) == {}
