"""Statements of random programs: control flow, derivatives and random numbers."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from random_programs import Draw, Spec, op

# -- control flow ------------------------------------------------------------------------------------------


def _like(d: Draw, *at: int) -> list[Spec]:
    return [d.specs[k] for k in at]


def _state(d: Draw) -> list[int]:
    """Values for a loop to carry: floats, sometimes with an integer or a truth value."""
    at = [d.pick("float", 0, 2, where=lambda s: np.prod(s.shape) < 20 or d.n > 20), d.pick("float", 0, 1)]
    if d.rng.random() < 0.5:
        at.append(d.pick(d.one_of("int", "bool"), 0, 1))
    return at


def _chosen(d: Draw, name: str, fn: Callable, at: list[int]) -> None:
    """Add a function with several results, and keep some of them."""
    count = len(jax.eval_shape(fn, *(d.specs[k] for k in at)))
    for j in {d.integer(0, count), d.integer(0, count)}:
        d.add(f"{name}[{j}]", lambda *a, j=j: fn(*a)[j], *at)


@op(1.5, deep=True)
def _cond(d: Draw) -> None:
    at = _state(d)
    inputs = _like(d, *at)
    count = d.one_of(2, 2, 3)
    branches = [d.body(inputs, inputs, d.integer(1, 8)) for _ in range(count)]
    if count == 2:
        c = d.pick("bool", 0, 0)
        _chosen(d, "cond", lambda c, *a: jax.lax.cond(c, *branches, *a), [c, *at])
    else:
        i = d.add("i32", lambda i: i.astype(jnp.int32), d.index())
        _chosen(d, "switch", lambda i, *a: jax.lax.switch(i, branches, *a), [i, *at])


@op(1.2, rough=True, deep=True)
def _while(d: Draw) -> None:
    at, i = _state(d), d.index()
    inputs = _like(d, *at)
    body, most, level = d.body([Spec((), np.int64), *inputs], inputs, d.integer(1, 6)), d.integer(1, 5), d.rng.normal()
    by_value = d.rng.random() < 0.5

    def loop(i, *a):
        def go(s):
            small = jnp.sum(s[2]) < level + 2 if by_value else True
            return (s[1] <= jnp.clip(s[0].astype(jnp.int64), 0, most)) & small

        return jax.lax.while_loop(go, lambda s: (s[0], s[1] + 1, *body(s[1], *s[2:])), (i, jnp.int64(0), *a))[2:]

    _chosen(d, "while", loop, [i, *at])


@op(1, deep=True)
def _fori(d: Draw) -> None:
    at = _state(d)
    inputs = _like(d, *at)
    body, count = d.body([Spec((), np.int64), *inputs], inputs, d.integer(1, 6)), d.integer(0, 6)
    _chosen(d, "fori", lambda *a: jax.lax.fori_loop(0, count, lambda k, s: body(k, *s), a), at)


@op(1.2, deep=True)
def _scan(d: Draw) -> None:
    at, xs = _state(d), d.pick("float", 1, 2)
    inputs, row = _like(d, *at), Spec(d.shape(xs)[1:], d.specs[xs].dtype)
    ys = Spec(d.one_of((), (2,), (d.n,)), np.float64)
    if np.prod(d.shape(xs)) > 40 or d.shape(xs)[0] > 12:
        return
    body = d.body([*inputs, row], [*inputs, ys], d.integer(1, 5))
    back = d.rng.random() < 0.3

    def loop(xs, *a):
        def step(carry, x):
            *carry, y = body(*carry, x)
            return tuple(carry), y

        carry, rows = jax.lax.scan(step, a, xs, reverse=back)
        return (*carry, rows)

    _chosen(d, "scan", loop, [xs, *at])


@op(1.2, deep=True)
def _vmap(d: Draw) -> None:
    x, y = d.pick("float", 1, 2), d.pick("float", 0, 1)
    if np.prod(d.shape(x)) > 30:
        return
    axis = d.integer(0, len(d.shape(x)))
    rest = tuple(m for k, m in enumerate(d.shape(x)) if k != axis)
    inputs = [Spec(rest, d.specs[x].dtype), *_like(d, y)]
    out = Spec(d.one_of((), (2,)), np.float64)
    body = d.body(inputs, [out], d.integer(1, 5))
    d.add("vmap", lambda x, y: jax.vmap(body, in_axes=(axis, None))(x, y)[0], x, y)


@op(0.8, outer=True, deep=True)
def _gradient(d: Draw) -> None:
    x = d.pick("float", 1, 2, where=lambda s: s.dtype == np.float64)
    if d.specs[x].dtype != np.float64 or np.prod(d.shape(x)) > 30:
        return
    body = d.body(_like(d, x), [Spec((), np.float64)], d.integer(2, 6), smooth=True)
    d.add("gradient", lambda x: jnp.tanh(jax.grad(lambda z: body(z)[0])(x)), x)


@op(0.7, rough=True)
def _random(d: Draw) -> None:
    i, shape = d.index(), d.one_of((), (3,), (d.n,))
    draw = d.one_of(
        lambda k: jax.random.uniform(k, shape),
        lambda k: jax.random.normal(k, shape),
        lambda k: jax.random.randint(k, shape, 0, 5),
        lambda k: jax.random.bernoulli(k, 0.4, shape),
        lambda k: jax.random.exponential(k, shape),
        lambda k: jax.random.normal(jax.random.split(k, 3)[1], shape),
        lambda k: jax.random.bits(k, shape) % 7,
    )
    make = d.one_of(jax.random.key, jax.random.PRNGKey)
    fold = d.rng.random() < 0.5

    def fn(i):
        key = jax.random.fold_in(make(7), i.astype(jnp.uint32)) if fold else make(i.astype(jnp.int64))
        return draw(key)

    d.add("random", fn, i)
