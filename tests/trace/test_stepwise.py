"""Programs evaluated by NumPy, operation by operation, against XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from holonomix.trace import compiled, stepwise

X, Y = jnp.asarray(np.linspace(0.3, 1.2, 6).reshape(2, 3)), jnp.asarray([0.4, -0.7, 2.0])


def elementary(x, y):
    signs = jnp.where((x > 0.5) & ~(y < 0), jnp.sign(y), jnp.abs(y) ** 0.3) * jnp.isfinite(x)
    parts = [jnp.sin(x) * jnp.cos(y), jnp.exp(-x) / y, jnp.log(x) + jnp.sqrt(x), jnp.tanh(y) ** 3, x**-2, signs]
    return sum(parts), jnp.maximum(x, y), jnp.arctan2(x, y), jnp.expm1(x) - jnp.log1p(x), jnp.floor(3 * y).astype(int)


def arranged(x, y):
    joined = jnp.concatenate([x, jnp.stack([y, 2 * y])], axis=0)
    moved = jnp.pad(joined[1:3, ::2], ((1, 0), (0, 2)), constant_values=3.0).T
    table = jnp.arange(6.0).reshape(2, 3)[:, None] + x[None]
    return (
        joined,
        moved,
        table,
        jnp.max(x, axis=0),
        jnp.min(y),
        jnp.sum(moved),
        x @ y,
        jnp.cumsum(y),
        x[:, jnp.array([2, 0])],
    )


def controlled(x, y):
    halved = jax.lax.while_loop(lambda z: jnp.sum(z) > 0.1, lambda z: z / 2, x)
    rows, last = jax.lax.scan(lambda c, r: (c + r, c * r), y, x, reverse=True)
    either = [jax.lax.cond(jnp.sum(y) > bound, jnp.sin, jnp.cos, y) for bound in (0.0, 5.0)]
    return halved, rows, last, *either, jax.grad(lambda z: jnp.sum(jax.jit(jnp.cos)(z) ** 2))(x), jax.nn.relu(y)


def test_every_operation_agrees_with_xla():
    for fn in (elementary, arranged, controlled):
        program = jax.make_jaxpr(fn)(X, Y)
        found = stepwise.evaluate(program, [X, Y])
        for ours, theirs in zip(found, jax.tree.leaves(jax.jit(fn)(X, Y)), strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=1e-14)


def terms(count):
    return lambda q: (sum(jnp.cos(q[k % 3] * (1 + k * 1e-3)) for k in range(count)), {"static": count})


def test_a_long_program_that_runs_once_is_not_compiled_and_one_that_runs_often_is():
    compilations = []
    note = lambda name, *args, **rest: compilations.append(name) if "backend_compile" in name else None
    counts, values, call = [], [], compiled.compiled_for_one_run(terms(700))
    call(Y)  # what other programs need
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        for k in range(compiled.STEPWISE):
            q = np.asarray(Y) + 0.1 * k
            value, static = call(q)
            angles = q[np.arange(700) % 3] * (1 + np.arange(700) * 1e-3)
            values.append(float(value) - float(np.sum(np.cos(angles))))
            counts.append(len(compilations))
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert static == {"static": 700} and np.max(np.abs(values)) < 1e-11
    assert counts[:2] == [0, 0] and counts[-1] > 0


def test_loops_and_long_arrays_are_left_to_xla(monkeypatch):
    monkeypatch.setattr(stepwise, "MIN_EQUATIONS", 90)
    assert stepwise.pays_off(jax.make_jaxpr(terms(20))(Y))
    assert not stepwise.pays_off(jax.make_jaxpr(terms(10))(Y))  # short
    often = lambda q: jax.lax.scan(lambda c, _: (c + terms(20)(c)[0], None), q, None, length=1000)[0]
    assert not stepwise.pays_off(jax.make_jaxpr(often)(Y))
    assert not stepwise.pays_off(jax.make_jaxpr(lambda q: sum(jnp.cos(q * k) for k in range(50)))(jnp.ones(100_000)))
