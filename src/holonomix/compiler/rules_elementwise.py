"""Rules for elementwise primitives: arithmetic, functions, comparisons, types, random bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from ..trace.jaxprs import Params
from ..trace.special import digamma
from .graph import BOOL, FLOATS, Unsupported, type_of
from .trace import Array, Tracer, check_generator, rule, wide_rule


def _zero(t: Tracer, a: Array) -> int:
    return t.graph.zero.get(t.graph.kind[int(a.flat[0])], -1) if a.size else -1


@rule("mul")
def _mul(t: Tracer, p: Params, a: Array, b: Array):
    a, b = np.broadcast_arrays(a, b)
    zero = _zero(t, a)
    return [t.each_where((a != zero) & (b != zero), np.array(zero), t.algebra.mul, a, b)]


@rule("add", "add_any")
def _add(t: Tracer, p: Params, a: Array, b: Array):
    a, b = np.broadcast_arrays(a, b)
    zero = _zero(t, a)
    return [t.each_where((a != zero) & (b != zero), np.where(a == zero, b, a), t.algebra.add, a, b)]


@rule("sub")
def _sub(t: Tracer, p: Params, a: Array, b: Array):
    a, b = np.broadcast_arrays(a, b)
    return [t.each_where(b != _zero(t, b), a, t.algebra.sub, a, b)]


@rule("neg")
def _neg(t: Tracer, p: Params, a: Array):
    return [t.each_where(a != _zero(t, a), a, t.algebra.neg, a)]


@rule("div")
def _div(t: Tracer, p: Params, a: Array, b: Array):
    a, b = np.broadcast_arrays(a, b)
    return [t.each(t.algebra.div, a, b)]


def _plain(name: str, method: str, *prefix: str):
    def fn(t: Tracer, p: Params, *arrays: Array):
        call = getattr(t.algebra, method)
        return [t.each(lambda *n: call(*prefix, *n), *arrays)]

    rule(name)(fn)


for _name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp",
              "exp2", "expm1", "log", "log1p", "sqrt", "cbrt", "floor", "ceil", "abs", "erf", "erfc", "erf_inv",
              "lgamma"):  # fmt: skip
    _plain(_name, "unary", _name)
for _name in ("atan2", "nextafter"):
    _plain(_name, "binary", _name)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _plain(_name, "compare", _name)
for _name in ("and", "or", "xor"):
    _plain(_name, "bits", _name)
for _name, _op in (("shift_left", "shl"), ("shift_right_logical", "shr"), ("shift_right_arithmetic", "sar")):
    _plain(_name, "shift", _op)
for _name, _op in (("population_count", "popcount"), ("clz", "clz")):
    _plain(_name, "unary", _op)
for _name in ("max", "min"):
    _plain(_name, "extremum", _name)
for _name, _call in {
    "square": lambda alg, n: alg.mul(n, n),
    "one_minus_square": lambda alg, n: alg.mul(alg.add(alg.unit(n), n), alg.sub(alg.unit(n), n)),
    "log2": lambda alg, n: alg.div(alg.unary("log", n), alg.const(np.log(2), alg.graph.kind[n])),
    "rsqrt": lambda alg, n: alg.div(alg.unit(n), alg.unary("sqrt", n)),
    "logistic": lambda alg, n: alg.div(alg.unit(n), alg.add(alg.unit(n), alg.unary("exp", alg.neg(n)))),
    "clamp": lambda alg, low, n, high: alg.extremum("min", alg.extremum("max", low, n), high),
}.items():
    rule(_name)(lambda t, p, *arrays, call=_call: [t.each(partial(call, t.algebra), *arrays)])
_plain("not", "invert")
_plain("rem", "rem")
_plain("is_finite", "is_finite")
_plain("sign", "sign")


@wide_rule("digamma")
@rule("digamma")
def _digamma(t: Tracer, p: Params, a: Array):
    return t.run(jax.make_jaxpr(digamma)(jax.ShapeDtypeStruct(p.ins[0].shape, p.ins[0].dtype)), [a])


def _register_total_order(name: str, op: str) -> None:
    """Register the rule of a comparison in the total order of floats: -NaN, -inf, ..., -0, 0, ..., inf, NaN."""

    def fn(t: Tracer, p: Params, a: Array, b: Array):
        alg = t.algebra

        def key(n: int) -> int:
            kind = t.graph.kind[n]
            if kind not in FLOATS:
                return n
            bits = alg.bitcast(n, f"i{kind[1]}")
            width = 8 * int(kind[1])
            sign = alg.shift("sar", bits, alg.const(width - 1, f"i{kind[1]}"))
            return alg.bits("xor", bits, alg.bits("and", sign, alg.const(2 ** (width - 1) - 1, f"i{kind[1]}")))

        return [t.each(lambda x, y: alg.compare(op, key(x), key(y)), a, b)]

    rule(name)(fn)


for _name, _op in (("lt_to", "lt"), ("le_to", "le"), ("eq_to", "eq")):
    _register_total_order(_name, _op)


@rule("pow")
def _pow(t: Tracer, p: Params, a: Array, b: Array):
    if b.size and t.graph.kind[int(b.flat[0])] not in FLOATS:
        kind = t.graph.kind[int(a.flat[0])]
        if kind not in FLOATS:
            raise Unsupported("pow", "integer base with an integer exponent")
        values = t.values(b)
        if values is not None:
            return [t.each(lambda x, n: t.algebra.power(x, int(t.graph.value[n])), a, b)]
        b = t.each(lambda n: t.algebra.convert(n, kind), b)
    return [t.each(t.algebra.pow, a, b)]


@rule("integer_pow", honors="y")
def _integer_pow(t: Tracer, p: Params, a: Array):
    return [t.each(lambda n: t.algebra.power(n, p.y), a)]


@rule("polynomial", honors="unroll")
def _polynomial(t: Tracer, p: Params, x: Array, *coefficients: Array):
    """Horner's scheme; the coefficients come from the lowest degree on."""
    alg = t.algebra

    def one(n: int, *items: int) -> int:
        total = items[-1]
        for c in items[-2::-1]:
            total = alg.add(alg.mul(total, n), c)
        return total

    return [t.each(one, x, *coefficients)]


@rule("round", honors="rounding_method")
def _round(t: Tracer, p: Params, a: Array):
    name = "round_even" if int(p.rounding_method) == 1 else "round_away"
    return [t.each(lambda n: t.algebra.unary(name, n), a)]


@rule("select_n")
def _select_n(t: Tracer, p: Params, which: Array, *cases: Array):
    alg, g = t.algebra, t.graph
    if len(cases) == 1:
        return [cases[0]]
    if which.size and g.kind[int(which.flat[0])] == BOOL:
        which = np.broadcast_to(which, cases[0].shape)
        return [t.each_where(cases[0] != cases[1], cases[0], alg.select, which, cases[1], cases[0])]

    def one(w: int, *items: int) -> int:
        chosen = items[0]
        for k, item in enumerate(items[1:], 1):
            chosen = alg.select(alg.compare("eq", w, alg.const(k, g.kind[w])), item, chosen)
        return chosen

    return [t.each(one, np.broadcast_to(which, cases[0].shape), *cases)]


# -- types -----------------------------------------------------------------------------------------


@rule("convert_element_type", honors="new_dtype")
def _convert(t: Tracer, p: Params, a: Array):
    kind = type_of(p.new_dtype)
    return [t.each(lambda n: t.algebra.convert(n, kind), a)]


@rule("reduce_precision", honors="exponent_bits mantissa_bits")
def _reduce_precision(t: Tracer, p: Params, a: Array):
    if (p.exponent_bits, p.mantissa_bits) == (11, 52) or not a.size:
        return [a]
    if (p.exponent_bits, p.mantissa_bits) == (8, 23):
        kind = t.graph.kind[int(a.flat[0])]
        return [t.each(lambda n: t.algebra.convert(t.algebra.convert(n, "f4"), kind), a)]
    raise Unsupported("reduce_precision")


@rule("bitcast_convert_type", honors="new_dtype")
def _bitcast(t: Tracer, p: Params, a: Array):
    new, old = np.dtype(p.new_dtype), p.ins[0].dtype
    kind = type_of(new)
    if new.itemsize != np.dtype(old).itemsize:
        return [_bitcast_width(t, a, new.itemsize, np.dtype(old).itemsize, kind)]
    return [t.each(lambda n: t.algebra.bitcast(n, kind), a)]


def _bitcast_width(t: Tracer, a: Array, new: int, old: int, kind: str) -> Array:
    """Between types of different width: the narrow side has one more axis."""
    alg = t.algebra
    if new < old:
        bits = t.each(lambda n: alg.bitcast(n, f"u{old}"), a)
        parts = []
        for k in range(old // new):
            shift = alg.const(8 * new * k, f"u{old}")
            parts.append(t.each(lambda n, s=shift: alg.convert(alg.shift("shr", n, s), f"u{new}"), bits))
        narrow = np.stack(parts, -1)
        return t.each(lambda n: alg.bitcast(n, kind), narrow)
    bits = t.each(lambda n: alg.convert(alg.bitcast(n, f"u{old}"), f"u{new}"), a)
    total = bits[..., 0]
    for k in range(1, new // old):
        shift = alg.const(8 * old * k, f"u{new}")
        total = t.each(lambda x, n, s=shift: alg.bits("or", x, alg.shift("shl", n, s)), total, bits[..., k])
    return t.each(lambda n: alg.bitcast(n, kind), total)


_SAME = "copy copy_p stop_gradient optimization_barrier sharding_constraint pvary mesh_cast tie name".split()


@wide_rule(*_SAME)
@rule(*_SAME, honors="layout context_mesh unconstrained_dims axes axis_index_groups dst_sharding name")
def _same(t: Tracer, p: Params, *arrays: Array):
    return arrays


# -- random bits -----------------------------------------------------------------------------------


@rule("random_wrap", honors="impl")
def _wrap(t: Tracer, p: Params, words: Array):
    check_generator(p.impl)
    return [t.pack_keys(words)]


@rule("random_unwrap")
def _unwrap(t: Tracer, p: Params, keys: Array):
    return [t.unpack_keys(keys)]


def _through(
    t: Tracer, fn: Callable[..., Any], keys: Array, extra: list[Array], avals: Sequence[Any], wrap: bool
) -> list[Array]:
    """Trace the generator's own definition, one key at a time, and run that."""
    out = []
    closed = jax.make_jaxpr(fn)(jax.ShapeDtypeStruct((2,), np.uint32), *avals)
    for j, k in enumerate(keys.ravel().tolist()):
        words = np.array(t.graph.args[k], np.int64)
        (result,) = t.run(closed, [words, *(e[j] for e in extra)])
        out.append(t.pack_keys(result) if wrap else result)
    return out


def _implementation(p: Params):
    impl = p.ins[0].dtype._impl
    check_generator(impl)
    return impl


@rule("random_bits", honors="bit_width shape")
def _random_bits(t: Tracer, p: Params, keys: Array):
    impl = _implementation(p)
    out = _through(t, lambda k: impl.random_bits(k, p.bit_width, p.shape), keys, [], [], False)
    return [np.stack(out).reshape((*keys.shape, *p.shape))]


@rule("random_split", honors="shape")
def _random_split(t: Tracer, p: Params, keys: Array):
    impl = _implementation(p)
    out = _through(t, lambda k: impl.split(k, p.shape), keys, [], [], True)
    return [np.stack(out).reshape((*keys.shape, *p.shape))]


@rule("random_fold_in")
def _random_fold_in(t: Tracer, p: Params, keys: Array, data: Array):
    impl = _implementation(p)
    keys, data = np.broadcast_arrays(keys, data)
    data = t.each(lambda n: t.algebra.convert(n, "u4"), data)
    aval = jax.ShapeDtypeStruct((), np.uint32)
    out = _through(t, impl.fold_in, keys, [data.ravel()], [aval], True)
    return [np.stack(out).reshape(keys.shape)]


@rule("random_seed", honors="impl")
def _random_seed(t: Tracer, p: Params, seeds: Array):
    check_generator(p.impl)
    closed = jax.make_jaxpr(p.impl.seed)(jax.ShapeDtypeStruct((), p.ins[0].dtype))
    out = [t.pack_keys(t.run(closed, [np.array(n)])[0]) for n in seeds.ravel()]
    return [np.stack(out).reshape(seeds.shape)]


@rule("iota_2x32_shape", honors="shape")
def _iota_2x32(t: Tracer, p: Params):
    count = np.arange(int(np.prod(p.shape)), dtype=np.uint64).reshape(p.shape)
    return [t.literal((count >> np.uint64(32)).astype(np.uint32)), t.literal(count.astype(np.uint32))]


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@rule("threefry2x32")
def _threefry(t: Tracer, p: Params, k0: Array, k1: Array, x0: Array, x1: Array):
    """Twenty rounds of Threefry-2x32 (Salmon et al. 2011)."""
    alg = t.algebra

    def one(a: int, b: int, x: int, y: int) -> tuple[int, int]:
        magic = alg.const(0x1BD11BDA, "u4")
        keys = (a, b, alg.bits("xor", alg.bits("xor", a, b), magic))
        x, y = alg.add(x, keys[0]), alg.add(y, keys[1])
        for i in range(5):
            for r in _ROTATIONS[i % 2]:
                x = alg.add(x, y)
                left = alg.shift("shl", y, alg.const(r, "u4"))
                y = alg.bits("xor", alg.bits("or", left, alg.shift("shr", y, alg.const(32 - r, "u4"))), x)
            x = alg.add(x, keys[(i + 1) % 3])
            y = alg.add(alg.add(y, keys[(i + 2) % 3]), alg.const(i + 1, "u4"))
        return x, y

    arrays = np.broadcast_arrays(k0, k1, x0, x1)
    pairs = [one(*n) for n in zip(*(a.ravel().tolist() for a in arrays), strict=True)]
    out = np.array(pairs, np.int64).reshape((*arrays[0].shape, 2))
    return [out[..., 0], out[..., 1]]
