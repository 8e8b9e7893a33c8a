"""Every primitive against jax.numpy, at ordinary and special values, alone and in lanes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from evaluate import bits, evaluate, evaluate_batch
from jax import lax

import holonomix as hx

RNG = np.random.default_rng(7)
X = RNG.normal(size=(3, 4)) * 3
Y = RNG.normal(size=(3, 4)) + 0.1
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1e300, -1e300, np.inf, -np.inf, np.nan, 1e-20, 700.0, -700.0,
                    3.0, -2.5, 2.5, 1e5, 4.5e15])  # fmt: skip

# where XLA itself is off by more than a few ulp, NumPy or SciPy is the reference
REFERENCE = {"sinh": np.sinh, "cosh": np.cosh, "exp2": np.exp2, "tanh": np.tanh, "lgamma": scipy.special.gammaln,
             "digamma": scipy.special.digamma, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
             "log1p": np.log1p, "cbrt": np.cbrt, "expm1": np.expm1, "tan": np.tan}  # fmt: skip

# name -> (function, relative tolerance); tolerance 0 means the same numbers
UNARY = {
    "neg": (lambda x: -x, 0), "abs": (jnp.abs, 0), "sqrt": (jnp.sqrt, 0), "floor": (jnp.floor, 0),
    "ceil": (jnp.ceil, 0), "round": (jnp.round, 0), "round_away": (lambda x: lax.round(x), 0), "sign": (jnp.sign, 0),
    "is_finite": (jnp.isfinite, 0), "sin": (jnp.sin, 1e-15), "cos": (jnp.cos, 1e-15), "tan": (jnp.tan, 2e-15),
    "asin": (jnp.arcsin, 2e-15), "acos": (jnp.arccos, 2e-15), "atan": (jnp.arctan, 1e-15),
    "sinh": (jnp.sinh, 2e-15), "cosh": (jnp.cosh, 1e-15), "tanh": (jnp.tanh, 2e-15), "asinh": (jnp.arcsinh, 2e-15),
    "acosh": (jnp.arccosh, 2e-15), "atanh": (jnp.arctanh, 2e-15), "exp": (jnp.exp, 1e-15),
    "exp2": (jnp.exp2, 1e-15), "expm1": (jnp.expm1, 1e-15), "log": (jnp.log, 1e-15), "log1p": (jnp.log1p, 2e-15),
    "cbrt": (jnp.cbrt, 2e-15), "erf": (lax.erf, 2e-15), "erfc": (lax.erfc, 1e-14), "erf_inv": (lax.erf_inv, 3e-15),
    "lgamma": (lax.lgamma, 5e-14), "digamma": (lax.digamma, 5e-14), "rsqrt": (lax.rsqrt, 1e-15),
    "logistic": (jax.nn.sigmoid, 2e-15),
    "square": (jnp.square, 0), "cube": (lambda x: x**3, 1e-15), "inverse": (lambda x: x**-2, 1e-15),
    "half_power": (lambda x: jnp.abs(x) ** 1.5, 1e-15), "power": (lambda x: jnp.abs(x) ** 1.3, 1e-15),
    "to_int": (lambda x: x.astype(jnp.int32), 0), "to_uint": (lambda x: jnp.abs(x).astype(jnp.uint32), 0),
    "to_float32": (lambda x: x.astype(jnp.float32), 0), "to_bool": (lambda x: x.astype(bool), 0),
    "bits": (lambda x: lax.bitcast_convert_type(x, jnp.int64), 0),
    "halves": (lambda x: lax.bitcast_convert_type(x, jnp.uint32), 0),
}  # fmt: skip


def agree(got, want, tolerance):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if tolerance == 0 or got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=5e-308, equal_nan=True)


BACKENDS = ["native", "oracle"]


def together(table):
    """All functions of a table as one program: one compilation serves them all."""
    return lambda *args: {name: fn(*args) for name, fn in table.items()}


@functools.cache
def unary(backend, lanes=None):
    fns = {name: fn for name, (fn, _) in UNARY.items()}
    return evaluate_batch(together(fns), [POINTS], backend=backend, lanes=lanes)


POINTS = np.concatenate([X.ravel(), np.clip(X / 8, -0.999, 0.999).ravel(), np.abs(X).ravel() + 1, SPECIAL])


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("backend", BACKENDS)
def test_unary(name, backend):
    fn, tolerance = UNARY[name]
    with np.errstate(all="ignore"):
        want = np.asarray(REFERENCE.get(name, fn)(POINTS))
    keep = np.ones(len(POINTS), bool)
    if name in ("to_int", "to_uint", "lgamma", "digamma"):  # out of range and at the poles, definitions differ
        keep = (np.abs(POINTS) < 1e9) & (np.abs(POINTS) > 0.1) & (POINTS != np.floor(POINTS))
    agree(unary(backend)[name][keep], want[keep], tolerance)


@pytest.mark.parametrize("name", UNARY)
def test_unary_lane_is_the_scalar(name):
    alone = unary("native", 1)[name]
    for lanes in (2, 4, 8):
        assert bits(unary("native", lanes)[name]) == bits(alone)


DENORMAL = np.array([5e-324, -5e-324, 1e-310, -1e-310, 2.2e-308])


@pytest.mark.parametrize(
    "name", ["sin", "tan", "asin", "atan", "sinh", "tanh", "expm1", "log1p", "exp", "cos", "log", "sqrt"]
)
def test_denormal_arguments(name):
    x = np.abs(DENORMAL) if name in ("log", "sqrt") else DENORMAL
    fn = getattr(np, {"asin": "arcsin", "atan": "arctan"}.get(name, name))
    np.testing.assert_allclose(evaluate(UNARY[name][0], x), fn(x), rtol=3e-16)


BINARY = {
    "add": (jnp.add, 0), "sub": (jnp.subtract, 0), "mul": (jnp.multiply, 0), "div": (jnp.divide, 0),
    "max": (jnp.maximum, 0), "min": (jnp.minimum, 0), "atan2": (jnp.arctan2, 1e-15), "rem": (lax.rem, 0),
    "lt": (lambda a, b: a < b, 0), "le": (lambda a, b: a <= b, 0), "gt": (lambda a, b: a > b, 0),
    "ge": (lambda a, b: a >= b, 0), "eq": (lambda a, b: a == b, 0), "ne": (lambda a, b: a != b, 0),
    "hypot": (jnp.hypot, 1e-15), "nextafter": (jnp.nextafter, 0), "where": (lambda a, b: jnp.where(a > b, a, b), 0),
    "pow": (lambda a, b: jnp.abs(a) ** b, 2e-15), "mod": (jnp.mod, 2e-15),
    "clamp": (lambda a, b: jnp.clip(a, -1, b), 0),
    "logaddexp": (jnp.logaddexp, 2e-15), "copysign": (jnp.copysign, 0),
}  # fmt: skip


FEW = SPECIAL[np.abs(SPECIAL) < 1e4]  # no denormal results of divisions, which XLA flushes
PAIRS = [np.concatenate([a.ravel(), b.ravel(), c.ravel()]) for a, b, c in
         zip(np.meshgrid(SPECIAL, SPECIAL), np.meshgrid(FEW, FEW), (X, Y), strict=True)]  # fmt: skip


@functools.cache
def binary(backend, lanes=None):
    return evaluate_batch(together({name: fn for name, (fn, _) in BINARY.items()}), PAIRS, backend=backend, lanes=lanes)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("backend", BACKENDS)
def test_binary(name, backend):
    fn, tolerance = BINARY[name]
    some = slice(SPECIAL.size**2, None) if name in ("rem", "mod", "div") else slice(None)
    agree(binary(backend)[name][some], fn(*PAIRS)[some], tolerance)
    if backend == "native":
        assert bits(binary("native", 8)[name]) == bits(binary("native", 1)[name])


I = np.array([3, -7, 0, 2**31 - 1, -(2**31), 12, 5, 1], np.int32)
J = np.array([2, 3, 0, 1, -1, -5, 31, 40], np.int32)
INTEGER = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": lax.div, "rem": lax.rem, "max": jnp.maximum,
    "min": jnp.minimum, "and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor,
    "not": lambda a, b: ~a, "shl": lax.shift_left, "shr": lax.shift_right_logical, "sar": lax.shift_right_arithmetic,
    "lt": lambda a, b: a < b, "abs": lambda a, b: jnp.abs(a), "sign": lambda a, b: jnp.sign(a),
    "popcount": lambda a, b: lax.population_count(a), "clz": lambda a, b: lax.clz(a),
    "to_float": lambda a, b: a.astype(float), "widen": lambda a, b: a.astype(jnp.int64),
    "to_unsigned": lambda a, b: a.astype(jnp.uint32), "power": lambda a, b: a**3,
}  # fmt: skip


@functools.cache
def integers(kind, lanes):
    return evaluate_batch(together(INTEGER), [I.astype(kind), J.astype(kind)], lanes=lanes)


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32])
def test_integers(name, kind):
    for lanes in (1, 4):
        agree(integers(kind, lanes)[name], INTEGER[name](I.astype(kind), J.astype(kind)), 0)


A33 = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
INDEX = np.array([2, 0, 1, 2])
ARRAYS = {
    "reshape": lambda x: x.reshape(2, 6), "transpose": lambda x: x.T, "slice": lambda x: x[1:, ::2],
    "rev": lambda x: x[::-1, ::-1], "concat": lambda x: jnp.concatenate([x, x * 2], 1),
    "stack": lambda x: jnp.stack([x, x + 1], -1), "pad": lambda x: jnp.pad(x, ((1, 0), (2, 1))),
    "pad_negative": lambda x: lax.pad(x, 1.5, ((-1, 2, 1), (0, -1, 0))), "sum": jnp.sum,
    "sum0": lambda x: x.sum(0), "prod": lambda x: x.prod(1), "max": jnp.max, "min": lambda x: x.min(0),
    "any": lambda x: (x > 0).any(0), "all": lambda x: (x > -9).all(), "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(0), "cumsum": lambda x: jnp.cumsum(x, 1), "cumprod": lambda x: jnp.cumprod(x, 0),
    "cummax": lambda x: lax.cummax(x, 1, reverse=True), "dot": lambda x: x @ x.T,
    "outer": lambda x: jnp.outer(x[0], x[1]),
    "einsum": lambda x: jnp.einsum("ij,ik->jk", x, x), "norm": jnp.linalg.norm, "mean": jnp.mean, "var": jnp.var,
    "diag": lambda x: jnp.diag(x[0]), "eye": lambda x: x[:, :3] + jnp.eye(3), "gather": lambda x: x[INDEX],
    "gather2": lambda x: x[INDEX, INDEX], "take": lambda x: jnp.take(x, INDEX, axis=1),
    "set": lambda x: x.at[1].set(5.0), "add_at": lambda x: x.at[INDEX].add(x[1]),
    "add_at2": lambda x: x.at[INDEX, INDEX].add(2.0), "mul_at": lambda x: x.at[:, 1].multiply(3.0),
    "max_at": lambda x: x.at[0].max(x[1]), "segment_sum": lambda x: jax.ops.segment_sum(x, jnp.array([0, 1, 0]), 2),
    "cross": lambda x: jnp.cross(x[0, :3], x[1, :3]), "sort": lambda x: jnp.sort(x, 1),
    "argsort": lambda x: jnp.argsort(x[0]),
    "median": lambda x: jnp.median(x[:, 0]), "roll": lambda x: jnp.roll(x, 1, 0), "tile": lambda x: jnp.tile(x, (2, 1)),
    "iota": lambda x: x + jnp.arange(4), "triu": lambda x: jnp.triu(x),
    "linspace": lambda x: jnp.linspace(x[0], x[1], 5),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (x[0, 0].astype(int) % 3, 1), (1, 2)),
    "dynamic_index": lambda x: x[jnp.argmax(x[:, 0])],
    "dynamic_element": lambda x: x[jnp.argmax(x[:, 0]), jnp.argmin(x[0])],
    "dynamic_update": lambda x: lax.dynamic_update_slice(x, x[:1, :2] * 9, (jnp.argmax(x[:, 0]), 1)),
    "dynamic_add": lambda x: x.at[jnp.argmax(x[:, 0])].add(1.0),
    "interp": lambda x: jnp.interp(0.3, jnp.arange(4.0), x[0]),
    "grad": jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2 * x[0])),
    "jacobian": jax.jacrev(lambda x: jnp.tanh(x @ x.T / 40)),
    "hessian": lambda x: jax.hessian(lambda v: jnp.sum(v**3) * v[0])(x[0]),
    "jvp": lambda x: jax.jvp(lambda v: jnp.exp(v) / (1 + v * v), (x,), (x * 2,))[1],
    "vmap": lambda x: jax.vmap(lambda r: r / jnp.linalg.norm(r))(x), "polyval": lambda x: jnp.polyval(x[0], x[1]),
    "remat": lambda x: jax.grad(lambda v: jnp.sum(jax.checkpoint(jnp.sin)(v)))(x),
    "nan_to_num": jnp.nan_to_num, "select": lambda x: jnp.select([x > 1, x < 0], [x, -x], 7.0),
    "switch_elementwise": lambda x: lax.select_n(jnp.clip(x.astype(int), 0, 2), x, 2 * x, 3 * x),
    "float32": lambda x: jnp.sin(x.astype(jnp.float32)) * jnp.float32(1.5),
}  # fmt: skip


@functools.cache
def arrays(backend):
    return evaluate(together(ARRAYS), X, backend=backend)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name):
    agree(arrays("native")[name], ARRAYS[name](jnp.asarray(X)), 3e-7 if name == "float32" else 5e-15)


@pytest.mark.parametrize("name", ["dynamic_slice", "dynamic_index", "dynamic_element", "dynamic_add", "sort", "grad"])
def test_arrays_lane_is_the_scalar(name):
    batch = [RNG.normal(size=(11, 3, 4)) * 3]
    one = evaluate_batch(ARRAYS[name], batch, lanes=1)
    assert bits(evaluate_batch(ARRAYS[name], batch, lanes=8)) == bits(one)
    np.testing.assert_allclose(one, jax.vmap(ARRAYS[name])(batch[0]), rtol=1e-13)


def test_triangular_solve():
    b = X[:, :2]
    for lower in (True, False):
        for trans in (0, 1):
            fn = lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=lower, trans=trans)  # noqa: B023
            agree(evaluate(fn, A33, b), fn(A33, b), 1e-13)


@pytest.mark.parametrize("backend", ["native"])
def test_random_bits_are_the_same(backend):
    def draw(words, n):
        key = jax.random.fold_in(jax.random.wrap_key_data(words), n)
        a, b, c = jax.random.split(key, 3)
        return (jax.random.bits(a, (3,)), jax.random.bits(a, (), jnp.uint64), jax.random.uniform(b, (2,)),
                jax.random.randint(b, (), 0, 1000), jax.random.bernoulli(c, 0.3))  # fmt: skip

    words = np.array([12, 99], np.uint32)
    n = np.int64(5)
    assert bits(evaluate(draw, words, n, backend=backend)) == bits(draw(words, n))
    normal = lambda w: jax.random.normal(jax.random.wrap_key_data(w), (2,))
    words = np.random.default_rng(0).integers(0, 2**32, (500, 2), dtype=np.uint32)
    np.testing.assert_allclose(evaluate_batch(normal, [words], backend=backend), jax.vmap(normal)(words), rtol=4e-15)


def test_typed_keys_travel():
    key = jax.random.key(3)
    fn = lambda k: (jax.random.split(k)[0], jax.random.normal(k))
    got, want = evaluate_key(fn, key), fn(key)
    assert jnp.all(jax.random.key_data(got[0])[0] == jax.random.key_data(want[0]))
    np.testing.assert_allclose(got[1][0], want[1], rtol=1e-15)


def evaluate_key(fn, key):
    from evaluate import program_of

    from holonomix import compiler as kernels

    return kernels.build(program_of(fn, key)).run_one((key,), (), rows=1, every=0)[1]


def test_a_potential_with_a_gamma_function_runs_in_a_kernel():
    """Its force needs `digamma`, which is a rule here; a long axis has it too."""
    for n in (2, 200):
        system = hx.System(lambda q: jnp.sum(lax.lgamma(2.0 + q**2)))
        start = np.linspace(0.1, 0.9, n), np.zeros(n)
        runs = [
            hx.simulate(system, hx.StormerVerlet(), *start, dt=0.05, steps=40, backend=backend)
            for backend in ("auto", "array")
        ]
        assert [run.stats["backend"] for run in runs] == ["native", "array"]
        np.testing.assert_allclose(runs[0].q, runs[1].q, 1e-12, 1e-13)
    taylor = hx.simulate(system, hx.Taylor(order=12), np.array([0.1, 0.9]), np.zeros(2), dt=0.05, steps=40)
    np.testing.assert_allclose(taylor.energy_error(), 0, rtol=0, atol=1e-12)
