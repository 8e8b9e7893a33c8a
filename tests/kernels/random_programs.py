"""Random programs: straight-line JAX code over small typed arrays, with nested control flow, drawn from a seed.

A `Program` is a list of statements. Each statement is a plain function of earlier values; shapes and types are known
when it is drawn. What makes two right answers differ is avoided: values stay of order one, and numbers are shifted by
an odd constant before they are compared, rounded or ranked, so that no rounding error decides a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

Spec = jax.ShapeDtypeStruct
ODD = 0.123456789
INTEGERS = (np.int64, np.int32, np.int8, np.uint8, np.uint32)


@dataclass(eq=False)
class Program:
    """Statements over an environment that begins with the arguments; `outs` are the values it returns."""

    inputs: list[Spec]
    statements: list[tuple[str, Callable, tuple[int, ...]]] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)

    def __call__(self, *args):
        env = [jnp.asarray(a) for a in args]
        for _, fn, where in self.statements:
            env.append(fn(*(env[k] for k in where)))
        return tuple(env[k] for k in self.outs)

    def __str__(self) -> str:
        first = len(self.inputs)
        lines = [f"v{k}: {s.dtype}{list(s.shape)}" for k, s in enumerate(self.inputs)]
        lines += [f"v{first + k} = {name}({', '.join(f'v{a}' for a in at)})" for k, (name, _, at) in
                  enumerate(self.statements)]  # fmt: skip
        return "\n".join([*lines, f"return {', '.join(f'v{k}' for k in self.outs)}"])


def kind_of(spec) -> str:
    return {"f": "float", "b": "bool", "i": "int", "u": "int"}[np.dtype(spec.dtype).kind]


class Draw:
    """Draws one program. `smooth` leaves out what has no derivative in reverse mode; `n` is the length of axes."""

    def __init__(self, rng: np.random.Generator, inputs: Sequence[Spec], n: int, depth: int = 0, smooth: bool = False):
        self.rng, self.n, self.depth, self.smooth = rng, n, depth, smooth
        self.program = Program(list(inputs))
        self.specs: list[Spec] = list(inputs)
        if not any(kind_of(s) == "float" and s.shape for s in inputs):
            self.add("const", lambda: jnp.linspace(-0.7, 0.9, n))

    # -- helpers ---------------------------------------------------------------------------------------
    def add(self, name: str, fn: Callable, *at: int) -> int:
        spec = jax.eval_shape(fn, *(self.specs[k] for k in at))
        self.program.statements.append((name, fn, at))
        self.specs.append(spec)
        return len(self.specs) - 1

    def one_of(self, items):
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """low <= result < high"""
        return int(self.rng.integers(low, high))

    def pick(self, kind: str = "float", least: int = 0, most: int = 9, where: Callable[[Spec], bool] = lambda s: True):
        """A value of a kind with `least` to `most` axes, recent ones more often; made where there is none."""
        found = [
            k for k, s in enumerate(self.specs)
            if kind_of(s) == kind and least <= len(s.shape) <= most and 0 not in s.shape and where(s)
        ]  # fmt: skip
        if found:
            return found[-1] if self.rng.random() < 0.4 else self.one_of(found)
        if kind == "float":
            if least <= 1 <= most:
                fresh = self.add("const", lambda: jnp.linspace(-0.6, 0.8, self.n))
            else:
                source = self.pick("float", 1)
                if least == 0:
                    fresh = self.add("sum", lambda x: jnp.tanh(jnp.sum(x)), source)
                else:
                    fresh = self.add("outer", lambda x: jnp.tanh(jnp.outer(x.ravel()[:3], jnp.arange(1.0, 4))), source)
            return fresh if where(self.specs[fresh]) else self.pick("float", 1)
        source = self.pick("float", least, most)
        if kind == "bool":
            return self.add("gt", lambda x: x > ODD, source)
        dtype = self.one_of(INTEGERS)
        return self.add("to int", lambda x: jnp.floor(5 * (jnp.tanh(x) + 1) + ODD).astype(dtype), source)

    def index(self) -> int:
        """A runtime integer without axes, sometimes out of bounds, of any integer type."""
        return self.pick("int", 0, 0)

    def shape(self, k: int) -> tuple[int, ...]:
        return tuple(self.specs[k].shape)

    def body(self, inputs: Sequence[Spec], outputs: Sequence[Spec], size: int, smooth: bool | None = None) -> Program:
        """An inner program with given types of arguments and results; results stay within -1 .. 1."""
        inner = Draw(self.rng, inputs, self.n, self.depth + 1, self.smooth if smooth is None else smooth)
        inner.statements(size)
        inner.program.outs = [inner.fitted(s) for s in outputs]
        return inner.program

    def fitted(self, want: Spec) -> int:
        """A value of this type and shape."""
        kind, shape, dtype = kind_of(want), tuple(want.shape), want.dtype
        same = [k for k, s in enumerate(self.specs) if kind_of(s) == kind and tuple(s.shape) == shape]
        k = same[-1] if same else self.pick(kind)
        if kind == "float":
            if self.shape(k) != shape:
                k = self.add("fit", lambda x: jnp.broadcast_to(jnp.sum(x), shape), k)
            return self.add("tanh", lambda x: jnp.tanh(x).astype(dtype), k)
        if kind == "bool":
            return k if self.shape(k) == shape else self.add("fit", lambda x: jnp.broadcast_to(jnp.any(x), shape), k)
        if self.shape(k) != shape:
            k = self.add("fit", lambda x: jnp.broadcast_to(jnp.sum(x), shape), k)
        return self.add("astype", lambda x: x.astype(dtype), k)

    def statements(self, size: int) -> None:
        names = [name for name in OPS if not (self.smooth and name in ROUGH) and not (self.depth and name in OUTER)]
        weights = np.array(
            [WEIGHTS.get(name, 1.0) * (0.25 if self.depth > 1 and name in DEEP else 1) for name in names]
        )
        for _ in range(size):
            OPS[names[int(self.rng.choice(len(names), p=weights / weights.sum()))]](self)


OPS: dict[str, Callable[[Draw], object]] = {}
WEIGHTS: dict[str, float] = {}
ROUGH: set[str] = set()  # no derivative, or none in reverse mode
OUTER: set[str] = set()  # not inside of others
DEEP: set[str] = set()  # have programs inside


def op(weight: float = 1.0, rough: bool = False, outer: bool = False, deep: bool = False):
    def register(fn):
        name = fn.__name__.strip("_")
        OPS[name], WEIGHTS[name] = fn, weight
        for flag, names in ((rough, ROUGH), (outer, OUTER), (deep, DEEP)):
            if flag:
                names.add(name)
        return fn

    return register


# -- element by element ----------------------------------------------------------------------------------

UNARY = {
    "sin": jnp.sin, "cos": jnp.cos, "tanh": jnp.tanh, "exp": lambda x: jnp.exp(jnp.tanh(x)), "square": jnp.square,
    "log1p": lambda x: jnp.log1p(x * x), "log": lambda x: jnp.log(1.3 + x * x), "arctan": jnp.arctan,
    "log2": lambda x: jnp.log2(1.3 + x * x), "log10": lambda x: jnp.log10(1.3 + x * x), "exp2": lambda x: jnp.exp2(jnp.tanh(x)),
    "sqrt": lambda x: jnp.sqrt(x * x + 0.1), "rsqrt": lambda x: jax.lax.rsqrt(x * x + 0.5), "cbrt": lambda x: jnp.cbrt(x * x + 0.2),
    "arcsin": lambda x: jnp.arcsin(0.9 * jnp.tanh(x)), "expm1": lambda x: jnp.expm1(jnp.tanh(x)), "neg": jnp.negative,
    "logistic": jax.nn.sigmoid, "softplus": jax.nn.softplus, "erf": jax.lax.erf, "cube": lambda x: jnp.tanh(x) ** 3,
    "power -2": lambda x: (1.1 + x * x) ** -2, "power 1.7": lambda x: (0.3 + x * x) ** 1.7, "sinc": jnp.sinc,
    "polyval": lambda x: jnp.polyval(jnp.array([0.1, -0.2, 0.3]), jnp.tanh(x)), "one minus square": lambda x: 1 - x**2,
    "sinh": lambda x: jnp.sinh(jnp.tanh(x)), "arcsinh": jnp.arcsinh, "relu": lambda x: jax.nn.relu(x - ODD),
    "abs": lambda x: jnp.abs(x - ODD), "clip": lambda x: jnp.clip(x, -0.51, 0.73), "float32": lambda x: jnp.tanh(x).astype(jnp.float32),
}  # fmt: skip
STEPS = {
    "floor": lambda x: jnp.floor(3 * x + ODD), "ceil": lambda x: jnp.ceil(2 * x + ODD), "round": lambda x: jnp.round(2 * x + ODD),
    "sign": lambda x: jnp.sign(x + ODD), "trunc": lambda x: jnp.trunc(3 * x + ODD), "nan_to_num": jnp.nan_to_num,
    "signbit": lambda x: jnp.signbit(x + ODD), "is finite": lambda x: jnp.isfinite(1 / (x + ODD)),
}  # fmt: skip
BINARY = {
    "add": jnp.add, "sub": jnp.subtract, "mul": lambda x, y: jnp.tanh(x) * y, "div": lambda x, y: x / (1.1 + y * y),
    "max": lambda x, y: jnp.maximum(x + ODD, y), "min": lambda x, y: jnp.minimum(x + ODD, y), "hypot": lambda x, y: jnp.hypot(x, y + 2),
    "atan2": lambda x, y: jnp.arctan2(x, 1.3 + y * y), "power": lambda x, y: (0.4 + x * x) ** jnp.tanh(y),
    "fma": lambda x, y: x * y + jnp.tanh(x), "where": lambda x, y: jnp.where(x > y + ODD, x, y),
    "logaddexp": jnp.logaddexp,
}  # fmt: skip


@op(3)
def _unary(d: Draw) -> None:
    name = d.one_of(list(UNARY))
    d.add(name, UNARY[name], d.pick())


@op(1, rough=True)
def _steps(d: Draw) -> None:
    name = d.one_of(list(STEPS))
    d.add(name, STEPS[name], d.pick())


@op(4)
def _binary(d: Draw) -> None:
    name = d.one_of(list(BINARY))
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
    fn = d.one_of([
        lambda x: x + c, lambda x: x - c, lambda x: x * c, lambda x: x // c, lambda x: x % c, lambda x: x & c,
        lambda x: x | c, lambda x: x ^ c, lambda x: ~x, lambda x: x << 1, lambda x: x >> 1, jnp.abs, jnp.sign,
        lambda x: jnp.clip(x, 1, 5).astype(dtype), lambda x: jnp.maximum(x, c), lambda x: jnp.minimum(x, c),
        lambda x: x**2, jax.lax.population_count, jax.lax.clz, lambda x: jnp.gcd(x, c), lambda x: -x,
    ])  # fmt: skip
    d.add("integers", fn, x)


@op(1, rough=True)
def _integer_pair(d: Draw) -> None:
    x = d.pick("int")
    y = d.pick("int", where=lambda s: _broadcast(s.shape, d.shape(x)) and s.dtype == d.specs[x].dtype)
    if d.specs[y].dtype == d.specs[x].dtype and _broadcast(d.shape(y), d.shape(x)):
        fn = d.one_of([jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.bitwise_xor, jnp.bitwise_and,
                       lambda x, y: x // jnp.where(y == 0, 1, y).astype(y.dtype), jnp.less, jnp.equal])  # fmt: skip
        d.add("integer pair", fn, x, y)


@op(1, rough=True)
def _types(d: Draw) -> None:
    kind = d.one_of(["int", "bool", "float"])
    x = d.pick(kind)
    dtype = d.one_of(INTEGERS)
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
        d.add("truth", d.one_of([jnp.logical_and, jnp.logical_or, jnp.logical_xor, lambda x, y: ~x & y]), x, y)


# -- places ------------------------------------------------------------------------------------------------


@op(1.5)
def _static_index(d: Draw) -> None:
    x = d.pick(d.one_of(["float", "float", "int"]), 1)
    n = d.shape(x)[0]
    perm = np.asarray(d.rng.permutation(n))
    some = np.asarray(d.rng.integers(-n, n, d.integer(1, 5)))
    a, b, c = sorted(d.rng.integers(0, n + 1, 3).tolist())
    fn = d.one_of([
        lambda x: x[perm], lambda x: x[some], lambda x: x[a : max(b, a + 1)], lambda x: x[::-1], lambda x: x[::2],
        lambda x: x[a % n], lambda x: x[-1], lambda x: jnp.roll(x, c), lambda x: jnp.flip(x), lambda x: x[..., None],
        lambda x: jnp.take(x, some, axis=-1, mode="clip"), lambda x: x[None],
    ])  # fmt: skip
    d.add("static index", fn, x)


@op(2)
def _runtime_index(d: Draw) -> None:
    x, i = d.pick(d.one_of(["float", "float", "int", "bool"]), 1), d.index()
    mode, wrap = d.one_of([None, "clip"]), d.one_of(["clip", "wrap"])
    fn = d.one_of([
        lambda x, i: x[i], lambda x, i: x.at[i].get(mode=mode), lambda x, i: jnp.take(x, i, axis=0, mode=wrap),
        lambda x, i: jax.lax.dynamic_index_in_dim(x, i, 0, False),
        lambda x, i: jax.lax.dynamic_slice_in_dim(x, i, max(1, x.shape[0] // 2)),
        lambda x, i: x.at[i].get(mode="fill", fill_value=1),
    ])  # fmt: skip
    d.add("runtime index", fn, x, i)


@op(1.5)
def _runtime_indices(d: Draw) -> None:
    x, i = d.pick("float", 1), d.pick("int", 1, 2)
    if np.prod(d.shape(i)) > 12:
        return
    fn = d.one_of([
        lambda x, i: x[i], lambda x, i: jnp.take(x, i, axis=0, mode="clip"), lambda x, i: jnp.take(x, i, axis=0, mode="wrap"),
        lambda x, i: jax.vmap(lambda k: x[k])(i),
    ])  # fmt: skip
    if np.prod(d.shape(x)) * np.prod(d.shape(i)) < 400:
        d.add("runtime indices", fn, x, i)


@op(1, rough=True)
def _along_axis(d: Draw) -> None:
    x = d.pick("float", 1, 2)
    d.add("along axis", lambda x: jnp.take_along_axis(x, jnp.argsort(_generic(x), axis=-1), axis=-1), x)


@op(2)
def _update(d: Draw) -> None:
    x, i, v = d.pick("float", 1), d.index(), d.pick("float", 0, 0)
    mode = d.one_of([None, "clip", "drop", "promise_in_bounds"])
    mode = None if mode == "promise_in_bounds" else mode
    fn = d.one_of([
        lambda x, i, v: x.at[i].set(v, mode=mode), lambda x, i, v: x.at[i].add(v, mode=mode),
        lambda x, i, v: x.at[i].multiply(v, mode=mode), lambda x, i, v: x.at[-1].set(v),
        lambda x, i, v: x.at[::2].add(v),
    ])  # fmt: skip
    d.add("update", fn, x, i, v)


@op(1, rough=True)
def _rough_update(d: Draw) -> None:
    x, i, v = d.pick("float", 1), d.index(), d.pick("float", 0, 0)
    fn = d.one_of([
        lambda x, i, v: x.at[i].min(v), lambda x, i, v: x.at[i].max(v), lambda x, i, v: x.at[i].apply(jnp.sin),
        lambda x, i, v: x.at[i].divide(v * v + 2), lambda x, i, v: x.at[i].power(2),
        lambda x, i, v: jax.lax.dynamic_update_index_in_dim(x, x[0] * v, i, 0),
        lambda x, i, v: jax.lax.dynamic_update_slice_in_dim(x, x[: max(1, x.shape[0] // 2)] * v, i, 0),
    ])  # fmt: skip
    d.add("rough update", fn, x, i, v)


@op(1)
def _updates(d: Draw) -> None:
    x, i = d.pick("float", 1, 1), d.pick("int", 1, 1)
    if d.shape(i)[0] * d.shape(x)[0] < 400:
        values = np.asarray(d.rng.standard_normal(d.shape(i)))
        d.add("updates", d.one_of([lambda x, i: x.at[i].add(values), lambda x, i: x.at[i].add(values, mode="clip")]),
              x, i)  # fmt: skip


@op(0.7)
def _static_updates(d: Draw) -> None:
    x = d.pick("float", 1, 1)
    n = d.shape(x)[0]
    at = np.asarray(d.rng.permutation(n)[: d.integer(1, n + 1)])
    repeated = np.asarray(d.rng.integers(0, n, d.integer(1, 2 * n)))
    fn = d.one_of([
        lambda x: x.at[at].set(jnp.cos(x[: len(at)])), lambda x: x.at[repeated].add(0.3),
        lambda x: jax.ops.segment_sum(jnp.sin(x), jnp.asarray(np.resize(repeated, n)), n),
    ])  # fmt: skip
    d.add("static updates", fn, x)


# -- whole arrays ------------------------------------------------------------------------------------------


def _generic(x):
    """Numbers without ties."""
    return x + 0.37 * jnp.sin(1.7 * jnp.arange(x.size).reshape(x.shape) + 0.3)


SUMS = {
    "sum": jnp.sum, "mean": jnp.mean, "prod": lambda x, axis=None: jnp.prod(jnp.tanh(x) + 0.5, axis), "var": jnp.var,
    "max": lambda x, axis=None: jnp.max(_generic(x), axis), "min": lambda x, axis=None: jnp.min(_generic(x), axis),
    "logsumexp": jax.nn.logsumexp, "norm": lambda x, axis=None: jnp.sqrt(jnp.sum(x * x, axis) + 0.1),
}  # fmt: skip
CUMULATIVE = {
    "cumsum": jnp.cumsum, "cumprod": lambda x, axis: jnp.cumprod(jnp.cos(x), axis), "reverse": lambda x, axis: jax.lax.cumsum(x, axis, reverse=True),
    "softmax": jax.nn.softmax, "diff": lambda x, axis: jnp.diff(x, axis=axis),
}  # fmt: skip


@op(2)
def _reduce(d: Draw) -> None:
    x = d.pick("float", 1)
    name, axis = d.one_of(list(SUMS)), d.one_of([None, *range(len(d.shape(x)))])
    d.add(name, lambda x: SUMS[name](x, axis=axis), x)


@op(1, rough=True)
def _search(d: Draw) -> None:
    x = d.pick("float", 1)
    axis = d.one_of([None, *range(len(d.shape(x)))])
    fn = d.one_of([
        lambda x: jnp.argmax(_generic(x), axis), lambda x: jnp.argmin(_generic(x), axis), lambda x: jnp.any(x > ODD, axis),
        lambda x: jnp.all(x > ODD - 1, axis), lambda x: jnp.sum(x > ODD, axis), lambda x: jnp.count_nonzero(x > ODD),
    ])  # fmt: skip
    d.add("search", fn, x)


@op(0.3, rough=True)
def _custom_reduce(d: Draw) -> None:
    x = d.pick("float", 1, 1)
    fn = d.one_of([
        lambda x: jax.lax.reduce(x, 0.0, lambda a, b: jnp.sqrt(a * a + b * b), (0,)),
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2,), (1,), "VALID") if x.shape[0] > 1 else x,
        lambda x: jax.lax.associative_scan(jnp.add, x), lambda x: jax.lax.cummax(x), lambda x: jax.lax.cummin(x),
        lambda x: jax.lax.cumlogsumexp(x), lambda x: jnp.convolve(x, jnp.array([0.5, 0.25]), mode="same"),
    ])  # fmt: skip
    d.add("custom reduce", fn, x)


@op(1)
def _cumulative(d: Draw) -> None:
    x = d.pick("float", 1)
    name, axis = d.one_of(list(CUMULATIVE)), d.integer(0, len(d.shape(x)))
    if d.shape(x)[axis] > 1:
        d.add(name, lambda x: CUMULATIVE[name](x, axis=axis), x)


@op(0.7)
def _sort(d: Draw) -> None:
    x = d.pick("float", 1, where=lambda s: max(s.shape) < 12)
    if max(d.shape(x)) < 12:
        fn = d.one_of([jnp.sort, lambda x: -jnp.sort(-x, axis=0), lambda x: jnp.median(_generic(x))])
        d.add("sort", fn, x)


@op(1, rough=True)
def _rank(d: Draw) -> None:
    x, v = d.pick("float", 1, 1, where=lambda s: s.shape[0] < 12), d.pick("float", 0, 1)
    if d.shape(x)[0] < 12 and np.prod(d.shape(v)) < 12:
        method = d.one_of(["scan", "scan_unrolled", "sort", "compare_all"])
        fn = d.one_of([
            lambda x, v: jnp.argsort(_generic(x)), lambda x, v: jax.lax.top_k(_generic(x), 1)[0],
            lambda x, v: jnp.searchsorted(jnp.sort(x), v + ODD, method=method),
            lambda x, v: jnp.digitize(v + ODD, jnp.linspace(-1, 1, 5)), lambda x, v: jnp.unique(x, size=3),
        ])  # fmt: skip
        d.add("rank", fn, x, v)


@op(1)
def _interp(d: Draw) -> None:
    v = d.pick("float", 0, 1)
    if np.prod(d.shape(v)) < 12:
        table = np.asarray(d.rng.standard_normal(d.one_of([3, 9, 80])))
        d.add("interp", lambda v: jnp.interp(v, jnp.linspace(-1.0, 1.0, len(table)), table), v)


@op(2)
def _shape(d: Draw) -> None:
    x = d.pick(d.one_of(["float", "float", "int", "bool"]), 1)
    n, dims = int(np.prod(d.shape(x))), len(d.shape(x))
    if n > 60:
        return
    fn = d.one_of([
        lambda x: x.ravel(), lambda x: x.T, lambda x: jnp.concatenate([x, x[:1]]), lambda x: jnp.stack([x, x[::-1]], axis=dims // 2),
        lambda x: jnp.tile(x, 2) if n < 20 else x, lambda x: jnp.pad(x, [(1, 0)] * dims), lambda x: jnp.repeat(x, 2, axis=0),
        lambda x: jax.lax.pad(x, jnp.zeros((), x.dtype), [(-1, 2, 1)] + [(0, 0, 0)] * (dims - 1)) if x.shape[0] > 1 else x,
        lambda x: jnp.broadcast_to(x, (2, *x.shape)), lambda x: jnp.moveaxis(x, 0, -1), lambda x: jnp.array_split(x, 2)[0],
        lambda x: jnp.pad(x, [(0, 2)] * dims, mode="edge"), lambda x: x.reshape(1, -1), lambda x: jnp.zeros_like(x) + x[:1],
        lambda x: jnp.diag(x.ravel()[:3]), lambda x: jnp.tril(jnp.atleast_2d(x)),
    ])  # fmt: skip
    d.add("shape", fn, x)


@op(0.5)
def _empty(d: Draw) -> None:
    x = d.pick("float", 1)
    fn = d.one_of([
        lambda x: jnp.sum(x[:0]) + x[0], lambda x: jnp.concatenate([x[:0], x]), lambda x: jnp.prod(x[:0]) * x,
        lambda x: jnp.concatenate([jnp.sort(x[:0], axis=0), x]), lambda x: x + jnp.sum(jnp.linalg.norm(jnp.zeros((0, 3)), axis=1)),
        lambda x: x.at[jnp.zeros((0,), int)].add(jnp.zeros((0, *x.shape[1:]))),
    ])  # fmt: skip
    d.add("empty", fn, x)


@op(2)
def _product(d: Draw) -> None:
    x = d.pick("float", 1, 2)
    y = d.pick("float", 1, 2, where=lambda s: s.shape[-1] == d.shape(x)[-1])
    if d.shape(x)[-1] != d.shape(y)[-1] or np.prod(d.shape(x)) * np.prod(d.shape(y)) > 1500:
        return
    a, b = ("ij"[: len(d.shape(x)) - 1] + "k"), ("lm"[: len(d.shape(y)) - 1] + "k")
    fn = d.one_of([
        lambda x, y: jnp.einsum(f"{a},{b}->{a[:-1]}{b[:-1]}", x, y), lambda x, y: x @ y.T,
        lambda x, y: jnp.outer(x.ravel()[:3], y.ravel()[:3]), lambda x, y: jnp.vdot(x.ravel()[:2], y.ravel()[:2]),
        lambda x, y: jnp.cross(jnp.resize(x, 3), jnp.resize(y, 3)), lambda x, y: jnp.kron(x.ravel()[:2], y.ravel()[:3]),
        lambda x, y: jnp.linalg.norm(jnp.concatenate([x.ravel(), y.ravel()]) + 3),
    ])  # fmt: skip
    d.add("product", fn, x, y)


# -- control flow ------------------------------------------------------------------------------------------


def _like(d: Draw, *at: int) -> list[Spec]:
    return [d.specs[k] for k in at]


def _state(d: Draw) -> list[int]:
    """Values for a loop to carry: floats, sometimes with an integer or a truth value."""
    at = [d.pick("float", 0, 2, where=lambda s: np.prod(s.shape) < 20 or d.n > 20), d.pick("float", 0, 1)]
    if d.rng.random() < 0.5:
        at.append(d.pick(d.one_of(["int", "bool"]), 0, 1))
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
    count = d.one_of([2, 2, 3])
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
    ys = Spec(d.one_of([(), (2,), (d.n,)]), np.float64)
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
    out = Spec(d.one_of([(), (2,)]), np.float64)
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
    i, shape = d.index(), d.one_of([(), (3,), (d.n,)])
    draw = d.one_of([
        lambda k: jax.random.uniform(k, shape), lambda k: jax.random.normal(k, shape), lambda k: jax.random.randint(k, shape, 0, 5),
        lambda k: jax.random.bernoulli(k, 0.4, shape), lambda k: jax.random.exponential(k, shape),
        lambda k: jax.random.normal(jax.random.split(k, 3)[1], shape), lambda k: jax.random.bits(k, shape) % 7,
    ])  # fmt: skip
    make = d.one_of([jax.random.key, jax.random.PRNGKey])
    fold = d.rng.random() < 0.5

    def fn(i):
        key = jax.random.fold_in(make(7), i.astype(jnp.uint32)) if fold else make(i.astype(jnp.int64))
        return draw(key)

    d.add("random", fn, i)


# -- programs ----------------------------------------------------------------------------------------------


def draw(seed: int, n: int = 5, size: int = 10, smooth: bool = False, inputs: Sequence[Spec] | None = None) -> Program:
    """The program of a seed; axes are of about `n` elements."""
    rng = np.random.default_rng(seed)
    given = inputs or [Spec((n,), np.float64), Spec((n, 3) if n > 20 else (2, 3), np.float64), Spec((), np.float64),
                       Spec((), np.int64)]  # fmt: skip
    d = Draw(rng, given, n, smooth=smooth)
    d.statements(size)
    first = len(given)
    d.program.outs = sorted({*range(first, len(d.specs))}) or [0]
    return d.program


def arguments(program: Program, seed: int, count: int) -> list[np.ndarray]:
    """`count` sets of arguments with a leading axis, of order one; integers reach beyond the ends of arrays."""
    rng = np.random.default_rng([seed, 1])
    out = []
    for s in program.inputs:
        shape = (count, *s.shape)
        real = kind_of(s) == "float"
        out.append(rng.uniform(-1.2, 1.2, shape) if real else rng.integers(-2, 9, shape).astype(s.dtype))
    return out
