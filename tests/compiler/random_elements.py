"""Statements of random programs: element by element, and at places."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from random_programs import INTEGERS, ODD, Draw, generic, op

# -- element by element ----------------------------------------------------------------------------------

UNARY = {
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tanh": jnp.tanh,
    "exp": lambda x: jnp.exp(jnp.tanh(x)),
    "square": jnp.square,
    "log1p": lambda x: jnp.log1p(x * x),
    "log": lambda x: jnp.log(1.3 + x * x),
    "arctan": jnp.arctan,
    "log2": lambda x: jnp.log2(1.3 + x * x),
    "log10": lambda x: jnp.log10(1.3 + x * x),
    "exp2": lambda x: jnp.exp2(jnp.tanh(x)),
    "sqrt": lambda x: jnp.sqrt(x * x + 0.1),
    "rsqrt": lambda x: jax.lax.rsqrt(x * x + 0.5),
    "cbrt": lambda x: jnp.cbrt(x * x + 0.2),
    "arcsin": lambda x: jnp.arcsin(0.9 * jnp.tanh(x)),
    "expm1": lambda x: jnp.expm1(jnp.tanh(x)),
    "neg": jnp.negative,
    "logistic": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "erf": jax.lax.erf,
    "cube": lambda x: jnp.tanh(x) ** 3,
    "power -2": lambda x: (1.1 + x * x) ** -2,
    "power 1.7": lambda x: (0.3 + x * x) ** 1.7,
    "sinc": jnp.sinc,
    "polyval": lambda x: jnp.polyval(jnp.array([0.1, -0.2, 0.3]), jnp.tanh(x)),
    "one minus square": lambda x: 1 - x**2,
    "sinh": lambda x: jnp.sinh(jnp.tanh(x)),
    "arcsinh": jnp.arcsinh,
    "relu": lambda x: jax.nn.relu(x - ODD),
    "abs": lambda x: jnp.abs(x - ODD),
    "clip": lambda x: jnp.clip(x, -0.51, 0.73),
    "float32": lambda x: jnp.tanh(x).astype(jnp.float32),
}
STEPS = {
    "floor": lambda x: jnp.floor(3 * x + ODD),
    "ceil": lambda x: jnp.ceil(2 * x + ODD),
    "round": lambda x: jnp.round(2 * x + ODD),
    "sign": lambda x: jnp.sign(x + ODD),
    "trunc": lambda x: jnp.trunc(3 * x + ODD),
    "nan_to_num": jnp.nan_to_num,
    "signbit": lambda x: jnp.signbit(x + ODD),
    "is finite": lambda x: jnp.isfinite(1 / (x + ODD)),
}
BINARY = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": lambda x, y: jnp.tanh(x) * y,
    "div": lambda x, y: x / (1.1 + y * y),
    "max": lambda x, y: jnp.maximum(x + ODD, y),
    "min": lambda x, y: jnp.minimum(x + ODD, y),
    "hypot": lambda x, y: jnp.hypot(x, y + 2),
    "atan2": lambda x, y: jnp.arctan2(x, 1.3 + y * y),
    "power": lambda x, y: (0.4 + x * x) ** jnp.tanh(y),
    "fma": lambda x, y: x * y + jnp.tanh(x),
    "where": lambda x, y: jnp.where(x > y + ODD, x, y),
    "logaddexp": jnp.logaddexp,
}


@op(3)
def _unary(d: Draw) -> None:
    name = d.one_of(*UNARY)
    d.add(name, UNARY[name], d.pick())


@op(1, rough=True)
def _steps(d: Draw) -> None:
    name = d.one_of(*STEPS)
    d.add(name, STEPS[name], d.pick())


@op(4)
def _binary(d: Draw) -> None:
    name = d.one_of(*BINARY)
    x = d.pick()
    y = d.pick(where=lambda s: _broadcast(s.shape, d.shape(x)))
    if _broadcast(d.shape(y), d.shape(x)):
        d.add(name, BINARY[name], x, y)


def _broadcast(a, b) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(tuple(a)[::-1], tuple(b)[::-1], strict=False))


@op(1.5, rough=True)
def _integers(d: Draw) -> None:
    x = d.pick("int")
    dtype = d.specs[x].dtype
    c = dtype.type(d.integer(1, 6))
    fn = d.one_of(
        lambda x: x + c,
        lambda x: x - c,
        lambda x: x * c,
        lambda x: x // c,
        lambda x: x % c,
        lambda x: x & c,
        lambda x: x | c,
        lambda x: x ^ c,
        lambda x: ~x,
        lambda x: x << 1,
        lambda x: x >> 1,
        jnp.abs,
        jnp.sign,
        lambda x: jnp.clip(x, 1, 5).astype(dtype),
        lambda x: jnp.maximum(x, c),
        lambda x: jnp.minimum(x, c),
        lambda x: x**2,
        jax.lax.population_count,
        jax.lax.clz,
        lambda x: jnp.gcd(x, c),
        lambda x: -x,
    )
    d.add("integers", fn, x)


@op(1, rough=True)
def _integer_pair(d: Draw) -> None:
    x = d.pick("int")
    y = d.pick("int", where=lambda s: _broadcast(s.shape, d.shape(x)) and s.dtype == d.specs[x].dtype)
    if d.specs[y].dtype == d.specs[x].dtype and _broadcast(d.shape(y), d.shape(x)):
        fn = d.one_of(
            jnp.add,
            jnp.subtract,
            jnp.multiply,
            jnp.maximum,
            jnp.bitwise_xor,
            jnp.bitwise_and,
            lambda x, y: x // jnp.where(y == 0, 1, y).astype(y.dtype),
            jnp.less,
            jnp.equal,
        )
        d.add("integer pair", fn, x, y)


@op(1, rough=True)
def _types(d: Draw) -> None:
    kind = d.one_of("int", "bool", "float")
    x = d.pick(kind)
    dtype = d.one_of(*INTEGERS)
    if kind == "float":
        d.add("to int", lambda x: jnp.floor(4 * jnp.tanh(x) + ODD).astype(dtype), x)
    else:
        d.add("to float", lambda x: jnp.tanh(x.astype(jnp.float64) / 3), x)


@op(1.5)
def _where(d: Draw) -> None:
    x = d.pick()
    c = d.pick("bool", where=lambda s: _broadcast(s.shape, d.shape(x)))
    if _broadcast(d.shape(c), d.shape(x)):
        d.add("where", lambda c, x: jnp.where(c, x, jnp.sin(x)), c, x)


@op(1, rough=True)
def _select(d: Draw) -> None:
    x = d.pick("float", 1)
    d.add("select", lambda x: jnp.select([x > 0.31, x > ODD], [x, x * x], 0.7), x)


@op(1)
def _truth(d: Draw) -> None:
    x = d.pick("bool")
    y = d.pick("bool", where=lambda s: _broadcast(s.shape, d.shape(x)))
    if _broadcast(d.shape(y), d.shape(x)):
        d.add("truth", d.one_of(jnp.logical_and, jnp.logical_or, jnp.logical_xor, lambda x, y: ~x & y), x, y)


# -- places ------------------------------------------------------------------------------------------------


@op(1.5)
def _static_index(d: Draw) -> None:
    x = d.pick(d.one_of("float", "float", "int"), 1)
    n = d.shape(x)[0]
    perm = np.asarray(d.rng.permutation(n))
    some = np.asarray(d.rng.integers(-n, n, d.integer(1, 5)))
    a, b, c = sorted(d.rng.integers(0, n + 1, 3).tolist())
    fn = d.one_of(
        lambda x: x[perm],
        lambda x: x[some],
        lambda x: x[a : max(b, a + 1)],
        lambda x: x[::-1],
        lambda x: x[::2],
        lambda x: x[a % n],
        lambda x: x[-1],
        lambda x: jnp.roll(x, c),
        lambda x: jnp.flip(x),
        lambda x: x[..., None],
        lambda x: jnp.take(x, some, axis=-1, mode="clip"),
        lambda x: x[None],
    )
    d.add("static index", fn, x)


@op(2)
def _runtime_index(d: Draw) -> None:
    x, i = d.pick(d.one_of("float", "float", "int", "bool"), 1), d.index()
    mode, wrap = d.one_of(None, "clip"), d.one_of("clip", "wrap")
    fn = d.one_of(
        lambda x, i: x[i],
        lambda x, i: x.at[i].get(mode=mode),
        lambda x, i: jnp.take(x, i, axis=0, mode=wrap),
        lambda x, i: jax.lax.dynamic_index_in_dim(x, i, 0, False),
        lambda x, i: jax.lax.dynamic_slice_in_dim(x, i, max(1, x.shape[0] // 2)),
        lambda x, i: x.at[i].get(mode="fill", fill_value=1),
    )
    d.add("runtime index", fn, x, i)


@op(1.5)
def _runtime_indices(d: Draw) -> None:
    x, i = d.pick("float", 1), d.pick("int", 1, 2)
    if np.prod(d.shape(i)) > 12:
        return
    fn = d.one_of(
        lambda x, i: x[i],
        lambda x, i: jnp.take(x, i, axis=0, mode="clip"),
        lambda x, i: jnp.take(x, i, axis=0, mode="wrap"),
        lambda x, i: jax.vmap(lambda k: x[k])(i),
    )
    if np.prod(d.shape(x)) * np.prod(d.shape(i)) < 400:
        d.add("runtime indices", fn, x, i)


@op(1, rough=True)
def _along_axis(d: Draw) -> None:
    x = d.pick("float", 1, 2)
    d.add("along axis", lambda x: jnp.take_along_axis(x, jnp.argsort(generic(x), axis=-1), axis=-1), x)


@op(2)
def _update(d: Draw) -> None:
    x, i, v = d.pick("float", 1), d.index(), d.pick("float", 0, 0)
    mode = d.one_of(None, "clip", "drop", "promise_in_bounds")
    mode = None if mode == "promise_in_bounds" else mode
    fn = d.one_of(
        lambda x, i, v: x.at[i].set(v, mode=mode),
        lambda x, i, v: x.at[i].add(v, mode=mode),
        lambda x, i, v: x.at[i].multiply(v, mode=mode),
        lambda x, i, v: x.at[-1].set(v),
        lambda x, i, v: x.at[::2].add(v),
    )
    d.add("update", fn, x, i, v)


@op(1, rough=True)
def _rough_update(d: Draw) -> None:
    x, i, v = d.pick("float", 1), d.index(), d.pick("float", 0, 0)
    fn = d.one_of(
        lambda x, i, v: x.at[i].min(v),
        lambda x, i, v: x.at[i].max(v),
        lambda x, i, v: x.at[i].apply(jnp.sin),
        lambda x, i, v: x.at[i].divide(v * v + 2),
        lambda x, i, v: x.at[i].power(2),
        lambda x, i, v: jax.lax.dynamic_update_index_in_dim(x, x[0] * v, i, 0),
        lambda x, i, v: jax.lax.dynamic_update_slice_in_dim(x, x[: max(1, x.shape[0] // 2)] * v, i, 0),
    )
    d.add("rough update", fn, x, i, v)


@op(1)
def _updates(d: Draw) -> None:
    x, i = d.pick("float", 1, 1), d.pick("int", 1, 1)
    if d.shape(i)[0] * d.shape(x)[0] < 400:
        values = np.asarray(d.rng.standard_normal(d.shape(i)))
        d.add("updates", d.one_of(lambda x, i: x.at[i].add(values), lambda x, i: x.at[i].add(values, mode="clip")),
              x, i)  # fmt: skip


@op(0.7)
def _static_updates(d: Draw) -> None:
    x = d.pick("float", 1, 1)
    n = d.shape(x)[0]
    at = np.asarray(d.rng.permutation(n)[: d.integer(1, n + 1)])
    repeated = np.asarray(d.rng.integers(0, n, d.integer(1, 2 * n)))
    fn = d.one_of(
        lambda x: x.at[at].set(jnp.cos(x[: len(at)])),
        lambda x: x.at[repeated].add(0.3),
        lambda x: jax.ops.segment_sum(jnp.sin(x), jnp.asarray(np.resize(repeated, n)), n),
    )
    d.add("static updates", fn, x)
