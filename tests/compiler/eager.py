"""Evaluates a jaxpr operation by operation, with NumPy where its operation is the same and with JAX's own elsewhere.

This is the reference of the random programs. It runs no compiled control flow, and it compiles far less than
`jax.disable_jit`, which makes one XLA program for each operation and shape.
"""

import jax
import numpy as np
from jax.extend import core

from holonomix.trace.jaxprs import CALLS, scan_counts


def _shifted(x, p):
    shape = [1] * len(p["shape"])
    for i, d in enumerate(p["broadcast_dimensions"]):
        shape[d] = x.shape[i]
    return np.broadcast_to(x.reshape(shape), p["shape"])


def _slice(x, p):
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or [1] * x.ndim))]


def _dynamic_slice(p, x, *starts):
    starts = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, x.shape, p["slice_sizes"], strict=True)]
    return x[tuple(slice(s, s + k) for s, k in zip(starts, p["slice_sizes"], strict=True))]


def _dynamic_update_slice(p, x, update, *starts):
    starts = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, x.shape, update.shape, strict=True)]
    out = np.array(x)
    out[tuple(slice(s, s + k) for s, k in zip(starts, update.shape, strict=True))] = update
    return out


def _dot_general(p, a, b):
    (ca, cb), (ba, bb) = p["dimension_numbers"]
    names = iter(range(a.ndim + b.ndim))
    left = [next(names) for _ in range(a.ndim)]
    right: list = [None] * b.ndim
    for i, j in (*zip(ca, cb, strict=True), *zip(ba, bb, strict=True)):
        right[j] = left[i]
    right = [next(names) if n is None else n for n in right]
    out = [left[i] for i in ba] + [n for i, n in enumerate(left) if i not in (*ca, *ba)]
    return np.einsum(a, left, b, right, out + [n for j, n in enumerate(right) if j not in (*cb, *bb)])


def _iota(p):
    shape = [1] * len(p["shape"])
    shape[p["dimension"]] = -1
    return np.broadcast_to(np.arange(p["shape"][p["dimension"]]).astype(p["dtype"]).reshape(shape), p["shape"])


def _cumulative(fn):
    def run(p, x):
        x = np.flip(x, p["axis"]) if p["reverse"] else x
        x = fn(x, axis=p["axis"])
        return np.flip(x, p["axis"]) if p["reverse"] else x

    return run


def _select(p, which, *cases):
    return np.choose(np.asarray(which, int), cases) if len(cases) > 2 else np.where(which, cases[1], cases[0])


def _reduce(fn):
    return lambda p, x: fn(x, axis=tuple(p["axes"]))


SAME_NAME = "abs floor ceil sin cos tanh exp log log1p expm1 sqrt cbrt sinh exp2 square".split()
FUNCTIONS = {name: getattr(np, name) for name in SAME_NAME} | {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "max": np.maximum,
    "min": np.minimum, "asin": np.arcsin, "atan": np.arctan, "atan2": np.arctan2, "asinh": np.arcsinh, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "is_finite": np.isfinite,
    "copy": np.array, "stop_gradient": np.array, "clamp": lambda lo, x, hi: np.minimum(np.maximum(x, lo), hi),
}  # fmt: skip
NUMPY = {name: lambda p, *a, fn=fn: fn(*a) for name, fn in FUNCTIONS.items()} | {
    "integer_pow": lambda p, x: x ** p["y"] if p["y"] >= 0 else 1 / x ** -p["y"],
    "transpose": lambda p, x: np.transpose(x, p["permutation"]),
    "concatenate": lambda p, *xs: np.concatenate(xs, p["dimension"]),
    "rev": lambda p, x: np.flip(x, p["dimensions"]),
    "broadcast_in_dim": lambda p, x: _shifted(x, p),
    "slice": lambda p, x: _slice(x, p),
    "iota": _iota,
    "select_n": _select,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "dot_general": _dot_general,
    "reduce_sum": _reduce(np.sum),
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "reduce_prod": _reduce(np.prod),
    "reduce_and": _reduce(np.all),
    "reduce_or": _reduce(np.any),
    "cumsum": _cumulative(np.cumsum),
    "cumprod": _cumulative(np.cumprod),
    "cummax": _cumulative(np.maximum.accumulate),
    "cummin": _cumulative(np.minimum.accumulate),
}
RESHAPED = {"reshape", "squeeze", "expand_dims"}


EXACT = set(
    """neg max min abs floor ceil round sign clamp copy stop_gradient select_n transpose concatenate rev iota slice pad
    broadcast_in_dim dynamic_slice dynamic_update_slice gather scatter sort reduce_max reduce_min cummax cummin reshape
    squeeze expand_dims split nextafter while scan cond random_bits random_seed random_wrap random_unwrap
    random_fold_in random_split bitcast_convert_type""".split()
)  # primitives without rounding
NOISE = 512  # units in the last place


def evaluate(closed, *args, noise=None):
    """The results of a `ClosedJaxpr`. With a generator `noise`, operations that round are wrong by up to 512 ulp."""
    jaxpr, consts = (closed.jaxpr, closed.consts) if isinstance(closed, core.ClosedJaxpr) else (closed, ())
    env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def read(atom):
        return atom.val if isinstance(atom, core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        with np.errstate(all="ignore"):
            outs = _equation(eqn, [read(a) for a in eqn.invars], noise)
            if noise is not None and eqn.primitive.name not in EXACT and eqn.primitive.name not in CALLS:
                outs = [_wrong(x, v.aval, noise) for x, v in zip(outs, eqn.outvars, strict=True)]
        env.update((v, _typed(x, v.aval)) for v, x in zip(eqn.outvars, outs, strict=True))
    return [read(a) for a in jaxpr.outvars]


def _wrong(x, aval, noise):
    if not jax.numpy.issubdtype(aval.dtype, np.floating):
        return x
    return np.asarray(x) * (1 + NOISE * np.finfo(aval.dtype).eps * noise.uniform(-1, 1, aval.shape))


def _typed(x, aval):
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        return x
    x = np.asarray(x)
    assert x.shape == aval.shape, (x.shape, aval)
    return x.astype(aval.dtype, copy=False)


def _equation(eqn, ins, noise):
    name, p = eqn.primitive.name, eqn.params
    if name in CALLS:
        return evaluate(p[CALLS[name]], *ins, noise=noise)
    if name == "cond":
        index, *rest = ins
        return evaluate(p["branches"][min(max(int(index), 0), len(p["branches"]) - 1)], *rest, noise=noise)
    if name == "while":
        nc, nb = p["cond_nconsts"], p["body_nconsts"]
        carry = ins[nc + nb :]
        while True:
            go = np.asarray(evaluate(p["cond_jaxpr"], *ins[:nc], *carry, noise=noise)[0])
            if not go.any():
                return carry
            new = evaluate(p["body_jaxpr"], *ins[nc : nc + nb], *carry, noise=noise)
            # a loop over a batch has a condition for each: those that ended keep their values
            shaped = [go.reshape(go.shape + (1,) * (np.ndim(x) - go.ndim)) for x in new]
            carry = new if go.ndim == 0 else [np.where(k, x, y) for k, x, y in zip(shaped, new, carry)]
    if name == "scan":
        return _scan(eqn, ins, noise)
    plain = not any(jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.extended) for v in (*eqn.invars, *eqn.outvars))
    if plain and name in RESHAPED and not p.get("dimensions"):
        return [np.asarray(ins[0]).reshape(eqn.outvars[0].aval.shape)]
    if plain and name == "convert_element_type" and not (ins[0].dtype.kind == "f" and p["new_dtype"].kind in "iu"):
        return [np.asarray(ins[0]).astype(p["new_dtype"])]
    if plain and name == "div" and eqn.outvars[0].aval.dtype.kind == "f":
        return [np.divide(*ins)]
    if plain and name in NUMPY and all(n for v in eqn.invars for n in v.aval.shape):
        return [NUMPY[name](p, *map(np.asarray, ins))]
    out = eqn.primitive.bind(*map(_jax, ins), **p)
    return out if eqn.primitive.multiple_results else [out]


def _jax(x):
    return x if isinstance(x, jax.Array) else jax.numpy.asarray(x)


def _scan(eqn, ins, noise):
    p, body = eqn.params, eqn.params["jaxpr"]
    nc, nk = scan_counts(body, *([v.aval for v in side] for side in (eqn.invars, eqn.outvars)))
    carry, rows = ins[nc : nc + nk], [None] * p["length"]
    for k in range(p["length"])[:: -1 if p["reverse"] else 1]:
        out = evaluate(body, *ins[:nc], *carry, *(x[k] for x in ins[nc + nk :]), noise=noise)
        carry, rows[k] = out[:nk], out[nk:]
    if not rows:
        return [*carry, *(np.zeros(v.aval.shape, v.aval.dtype) for v in eqn.outvars[nk:])]
    return [
        *carry,
        *(jax.numpy.stack(y) if not isinstance(y[0], np.ndarray) else np.stack(y) for y in zip(*rows, strict=True)),
    ]
