"""Statements of random programs: whole arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from random_programs import ODD, Draw, generic, op

# -- whole arrays ------------------------------------------------------------------------------------------


SUMS = {
    "sum": jnp.sum,
    "mean": jnp.mean,
    "prod": lambda x, axis=None: jnp.prod(jnp.tanh(x) + 0.5, axis),
    "var": jnp.var,
    "max": lambda x, axis=None: jnp.max(generic(x), axis),
    "min": lambda x, axis=None: jnp.min(generic(x), axis),
    "logsumexp": jax.nn.logsumexp,
    "norm": lambda x, axis=None: jnp.sqrt(jnp.sum(x * x, axis) + 0.1),
}
CUMULATIVE = {
    "cumsum": jnp.cumsum,
    "cumprod": lambda x, axis: jnp.cumprod(jnp.cos(x), axis),
    "reverse": lambda x, axis: jax.lax.cumsum(x, axis, reverse=True),
    "softmax": jax.nn.softmax,
    "diff": lambda x, axis: jnp.diff(x, axis=axis),
}


@op(2)
def _reduce(d: Draw) -> None:
    x = d.pick("float", 1)
    name, axis = d.one_of(*SUMS), d.one_of(None, *range(len(d.shape(x))))
    d.add(name, lambda x: SUMS[name](x, axis=axis), x)


@op(1, rough=True)
def _search(d: Draw) -> None:
    x = d.pick("float", 1)
    axis = d.one_of(None, *range(len(d.shape(x))))
    fn = d.one_of(
        lambda x: jnp.argmax(generic(x), axis),
        lambda x: jnp.argmin(generic(x), axis),
        lambda x: jnp.any(x > ODD, axis),
        lambda x: jnp.all(x > ODD - 1, axis),
        lambda x: jnp.sum(x > ODD, axis),
        lambda x: jnp.count_nonzero(x > ODD),
    )
    d.add("search", fn, x)


@op(0.3, rough=True)
def _custom_reduce(d: Draw) -> None:
    x = d.pick("float", 1, 1)
    fn = d.one_of(
        lambda x: jax.lax.reduce(x, 0.0, lambda a, b: jnp.sqrt(a * a + b * b), (0,)),
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2,), (1,), "VALID") if x.shape[0] > 1 else x,
        lambda x: jax.lax.associative_scan(jnp.add, x),
        lambda x: jax.lax.cummax(x),
        lambda x: jax.lax.cummin(x),
        lambda x: jax.lax.cumlogsumexp(x),
        lambda x: jnp.convolve(x, jnp.array([0.5, 0.25]), mode="same"),
    )
    d.add("custom reduce", fn, x)


@op(1)
def _cumulative(d: Draw) -> None:
    x = d.pick("float", 1)
    name, axis = d.one_of(*CUMULATIVE), d.integer(0, len(d.shape(x)))
    if d.shape(x)[axis] > 1:
        d.add(name, lambda x: CUMULATIVE[name](x, axis=axis), x)


@op(0.7)
def _sort(d: Draw) -> None:
    x = d.pick("float", 1, where=lambda s: max(s.shape) < 12)
    if max(d.shape(x)) < 12:
        fn = d.one_of(jnp.sort, lambda x: -jnp.sort(-x, axis=0), lambda x: jnp.median(generic(x)))
        d.add("sort", fn, x)


@op(1, rough=True)
def _rank(d: Draw) -> None:
    x, v = d.pick("float", 1, 1, where=lambda s: s.shape[0] < 12), d.pick("float", 0, 1)
    if d.shape(x)[0] < 12 and np.prod(d.shape(v)) < 12:
        method = d.one_of("scan", "scan_unrolled", "sort", "compare_all")
        fn = d.one_of(
            lambda x, v: jnp.argsort(generic(x)),
            lambda x, v: jax.lax.top_k(generic(x), 1)[0],
            lambda x, v: jnp.searchsorted(jnp.sort(x), v + ODD, method=method),
            lambda x, v: jnp.digitize(v + ODD, jnp.linspace(-1, 1, 5)),
            lambda x, v: jnp.unique(x, size=3),
        )
        d.add("rank", fn, x, v)


@op(1)
def _interp(d: Draw) -> None:
    v = d.pick("float", 0, 1)
    if np.prod(d.shape(v)) < 12:
        # gentle slopes: a loop around a steep table is chaotic, and then every way to evaluate it is another result
        table = 0.6 * np.sin(np.linspace(-1.3, 1.3, d.one_of(3, 9, 80)) + d.rng.uniform(0, 6))
        d.add("interp", lambda v: jnp.interp(v, jnp.linspace(-1.0, 1.0, len(table)), table), v)


@op(2)
def _shape(d: Draw) -> None:
    x = d.pick(d.one_of("float", "float", "int", "bool"), 1)
    n, dims = int(np.prod(d.shape(x))), len(d.shape(x))
    if n > 60:
        return
    fn = d.one_of(
        lambda x: x.ravel(),
        lambda x: x.T,
        lambda x: jnp.concatenate([x, x[:1]]),
        lambda x: jnp.stack([x, x[::-1]], axis=dims // 2),
        lambda x: jnp.tile(x, 2) if n < 20 else x,
        lambda x: jnp.pad(x, [(1, 0)] * dims),
        lambda x: jnp.repeat(x, 2, axis=0),
        lambda x: (
            jax.lax.pad(x, jnp.zeros((), x.dtype), [(-1, 2, 1)] + [(0, 0, 0)] * (dims - 1)) if x.shape[0] > 1 else x
        ),
        lambda x: jnp.broadcast_to(x, (2, *x.shape)),
        lambda x: jnp.moveaxis(x, 0, -1),
        lambda x: jnp.array_split(x, 2)[0],
        lambda x: jnp.pad(x, [(0, 2)] * dims, mode="edge"),
        lambda x: x.reshape(1, -1),
        lambda x: jnp.zeros_like(x) + x[:1],
        lambda x: jnp.diag(x.ravel()[:3]),
        lambda x: jnp.tril(jnp.atleast_2d(x)),
    )
    d.add("shape", fn, x)


@op(0.5)
def _empty(d: Draw) -> None:
    x = d.pick("float", 1)
    fn = d.one_of(
        lambda x: jnp.sum(x[:0]) + x[0],
        lambda x: jnp.concatenate([x[:0], x]),
        lambda x: jnp.prod(x[:0]) * x,
        lambda x: jnp.concatenate([jnp.sort(x[:0], axis=0), x]),
        lambda x: x + jnp.sum(jnp.linalg.norm(jnp.zeros((0, 3)), axis=1)),
        lambda x: x.at[jnp.zeros((0,), int)].add(jnp.zeros((0, *x.shape[1:]))),
    )
    d.add("empty", fn, x)


@op(2)
def _product(d: Draw) -> None:
    x = d.pick("float", 1, 2)
    y = d.pick("float", 1, 2, where=lambda s: s.shape[-1] == d.shape(x)[-1])
    if d.shape(x)[-1] != d.shape(y)[-1] or np.prod(d.shape(x)) * np.prod(d.shape(y)) > 1500:
        return
    a, b = ("ij"[: len(d.shape(x)) - 1] + "k"), ("lm"[: len(d.shape(y)) - 1] + "k")
    fn = d.one_of(
        lambda x, y: jnp.einsum(f"{a},{b}->{a[:-1]}{b[:-1]}", x, y),
        lambda x, y: x @ y.T,
        lambda x, y: jnp.outer(x.ravel()[:3], y.ravel()[:3]),
        lambda x, y: jnp.vdot(x.ravel()[:2], y.ravel()[:2]),
        lambda x, y: jnp.cross(jnp.resize(x, 3), jnp.resize(y, 3)),
        lambda x, y: jnp.kron(x.ravel()[:2], y.ravel()[:3]),
        lambda x, y: jnp.linalg.norm(jnp.concatenate([x.ravel(), y.ravel()]) + 3),
    )
    d.add("product", fn, x, y)
