"""A store is continued only by the run it belongs to: the same functions, settings, solver, key and numbers."""

from __future__ import annotations

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holonomix as hx
from holonomix.run.arguments import Arguments, Options
from holonomix.run.checkpoint import Identity, check_same_run
from holonomix.run.io import environment
from holonomix.run.loop import make_loop

Q0, P0 = jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])


def circle(q):
    return jnp.array([q @ q - 1.0])


def go(store, steps, potential=lambda q: q[1], constraint=circle, method=None, **options):
    system = hx.System(potential, constraint)
    options = {"dt": 0.01, "save_every": 5, "store": store} | options
    return hx.simulate(system, method or hx.RATTLE(), Q0, P0, steps=steps, **options)


def identity(potential=lambda q: q[1], constraint=circle, method=None, **options):
    options = Options(dt=0.01, steps=5, **options)
    given = Arguments.of(hx.System(potential, constraint), method or hx.RATTLE(), Q0, P0, options)
    return Identity.of(make_loop(given.alone(stored=False)))


def check(before, now):
    """What happens when a run with the identity `now` meets a store of one with the identity `before`."""
    check_same_run(before.arrays, json.loads(json.dumps(before.meta)), now)


CHANGES = [
    ({"potential": lambda q: 1.01 * q[1]}, "system.potential_fn computes something else"),
    ({"constraint": lambda q: jnp.array([2 * (q @ q - 1.0)])}, r"system.constraint_terms\[0\] computes something else"),
    ({"method": hx.RATTLE(hx.SOR(1.2))}, "method.solver is Newton, here it is SOR"),
    ({"method": hx.RATTLE(hx.Newton(max_iterations=7))}, r"method.solver.max_iterations is \d+, here it is 7"),
    ({"observe": {"x": lambda q, p: q[0]}}, "observe.x is missing"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words for _, words in CHANGES])
def test_another_run_is_told_apart(change, words):
    before = identity()
    with pytest.raises(hx.InputError, match=words):
        check(before, identity(**change))
    check(before, identity(potential=lambda x: x[1]))  # the same, written differently


def test_another_run_is_not_continued(tmp_path):
    go(tmp_path / "run", 10)
    with pytest.raises(hx.InputError, match="computes something else"):
        go(tmp_path / "run", 20, potential=lambda q: 1.01 * q[1])
    assert go(tmp_path / "run", 20).stats["steps"] == 20  # and the store is as it was


def test_another_key_is_not_continued(tmp_path):
    method = hx.GLA(hx.RATTLE(), friction=1.0, temperature=0.1)
    go(tmp_path / "run", 10, method=method, key=jax.random.key(1))
    with pytest.raises(hx.InputError, match="another key"):
        go(tmp_path / "run", 20, method=method, key=jax.random.key(2))
    whole = go(tmp_path / "whole", 20, method=method, key=jax.random.key(1))
    again = go(tmp_path / "run", 20, method=method, key=jax.random.key(1))
    np.testing.assert_array_equal(again.q, whole.q)


def test_another_environment_is_a_warning(monkeypatch):
    before = identity()
    there = environment.current_environment()
    features = ",".join(sorted({*there["cpu_features"].split(","), "avx1024"}))
    elsewhere = there | {"cpu_features": features, "jax": "99.0"}
    monkeypatch.setattr(environment, "current_environment", lambda: elsewhere)
    with pytest.warns(hx.errors.DifferentBitsWarning, match=r"jax .* -> 99.0.*\+avx1024"):
        check(before, identity())


def test_a_module_is_identified_by_what_it_computes():
    class Weight(eqx.Module):
        gravity: jax.Array
        power: int = eqx.field(static=True)

        def __call__(self, q):
            return self.gravity * q[1] ** self.power

    before = identity(Weight(jnp.asarray(1.0), 1))
    with pytest.raises(hx.InputError, match="computes something else"):
        check(before, identity(Weight(jnp.asarray(1.0), 2)))
    with pytest.raises(hx.InputError, match=r"another system.*off by 0\.5"):
        check(before, identity(Weight(jnp.asarray(1.5), 1)))
