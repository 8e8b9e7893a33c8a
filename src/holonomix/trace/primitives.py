"""The table of JAX's primitives: one row for each, with everything that the library knows about it.

The columns of this module are NumPy evaluation, dependence and polynomial degree; `stepwise`, `sparsity`, `rowwise` and
`degrees` interpret traced programs by asking them. Layers above fill in the others: `compiler.rules_*` the kernel
rules, `trace.taylor` the recurrences of Taylor coefficients. A new primitive needs a row here, a kernel rule and a
recurrence; `tests/trace/test_primitives.py` lists what is missing where.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from ..core.types import ArrayLike
from . import moves
from .jaxprs import Params, Values

Evaluate = Callable[..., Any]  # (params, *arrays) -> array; a list for several results, None: left to JAX
Degree = Callable[[Params, Sequence[float]], float]  # from the degrees of the arguments


class Dependence(enum.Enum):
    """The inputs on which an entry of a result depends."""

    ELEMENTWISE = "the entries of the arguments at the same place"
    MOVE = "one entry of one argument, or none: `evaluate` rearranges entries"
    REDUCTION = "the entries along `axes`"
    PRODUCT = "a row of one argument and a column of the other"
    ALL = "all entries of all arguments"


@dataclasses.dataclass(eq=False, slots=True)
class Primitive:
    """A row of the table.

    - `exact`: NumPy rounds correctly or not at all, so that its result may become part of a program.
    - `degree`: None where the result is not a polynomial of the arguments.
    - `values`: positions of the arguments that are not indices; None for all.
    - `reads`: the parameters that `evaluate` looks at, where it serves as the kernel rule too.
    - `honors`: the parameters that the kernel rule looks at.
    """

    name: str
    evaluate: Evaluate | None = None
    dependence: Dependence = Dependence.ALL
    degree: Degree | None = None
    exact: bool = False
    values: tuple[int, ...] | None = None
    reads: str = ""
    kernel: Callable[..., Any] | None = None
    honors: frozenset[str] = frozenset()
    wide: Callable[..., Any] | None = None  # the kernel rule for arrays with a long axis
    recurrence: Any = None


TABLE: dict[str, Primitive] = {}


def add_rows(names: str, evaluate: Evaluate | None = None, *columns: Any, **named: Any) -> None:
    """Add a row for each of the names; the columns in the order of `Primitive`."""
    TABLE.update({name: Primitive(name, evaluate, *columns, **named) for name in names.split()})


def fill_column(column: str, *names: str) -> Callable[[Any], Any]:
    """A decorator that enters a rule in a column of the rows with these names."""

    def register(rule: Callable[..., Any]) -> Any:
        for name in names:
            setattr(TABLE[name], column, rule)
        return rule

    return register


def evaluate_equation(p: Params, arrays: Sequence[Any], exact: bool = False) -> list[Any]:
    """The results of an equation on known arrays: by NumPy, or by JAX where NumPy cannot.

    With `exact` NumPy is used only for exact primitives. (JAX compiles a program for each operation and
    shape, which takes a thousand times as long as the operation.)
    """
    row, out = TABLE.get(p.name), None
    if row is not None and row.evaluate is not None and (row.exact or not exact):
        with np.errstate(all="ignore"):
            out = row.evaluate(p, *arrays)
    if out is not None:
        typed = zip(out if isinstance(out, list) else [out], p.outs, strict=True)
        return [np.asarray(x, v.dtype) if isinstance(v.dtype, np.dtype) else x for x, v in typed]
    with jax.ensure_compile_time_eval():
        found = p.primitive.bind(*arrays, **p.params)
    return [on_host(x) for x in (found if p.primitive.multiple_results else [found])]


def on_host(x: ArrayLike) -> Any:
    """`x` as a NumPy array; random keys are not converted."""
    return x if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended) else np.asarray(x)


# -- columns -----------------------------------------------------------------------------------------------------------


def linear(p: Params, degrees: Sequence[float]) -> float:
    """Sums of arguments, or of entries of them, with constant coefficients."""
    return max(degrees)


def _product(p: Params, degrees: Sequence[float]) -> float:
    return sum(degrees)


def _quotient(p: Params, degrees: Sequence[float]) -> float:
    return degrees[0] if degrees[1] == 0.0 else np.inf


def _power(p: Params, degrees: Sequence[float]) -> float:
    return p.y * degrees[0] if p.y >= 0 else np.inf


def _conversion(p: Params, degrees: Sequence[float]) -> float:
    return degrees[0] if jnp.issubdtype(p.new_dtype, jnp.inexact) else np.inf


def _call(fn: Callable[..., Any]) -> Evaluate:
    return lambda p, *x: fn(*x)


def _same(p: Params, *x: Values) -> list[Values]:
    return list(x)


def _if_real(fn: Evaluate) -> Evaluate:
    """For floating-point results only: integers divide and overflow differently in JAX."""
    return lambda p, *x: fn(p, *x) if p.outs[0].dtype.kind == "f" else None


def _convert(p: Params, x: Values) -> Values | None:
    """To anything but from floating-point numbers to integers, which JAX saturates."""
    return x.astype(p.new_dtype) if x.dtype.kind in "iub" or np.dtype(p.new_dtype).kind == "f" else None


def _select(p: Params, which: Values, *cases: Values) -> Values | None:
    return np.where(which, cases[1], cases[0]) if len(cases) == 2 and which.dtype == bool else None


def _dot_general(p: Params, a: Values, b: Values) -> Values:
    left, right, shape = moves.product_factors(p, a, b)
    return np.matmul(left, right.transpose(0, 2, 1)).reshape(shape)


def _accumulate(ufunc: np.ufunc) -> Evaluate:
    def accumulate(p: Params, x: Values) -> Values:
        flip = lambda x: np.flip(x, p.axis) if p.reverse else x
        return flip(ufunc.accumulate(flip(x), p.axis))

    return _if_real(accumulate)


# -- rows --------------------------------------------------------------------------------------------------------------

ELEMENTWISE, MOVE, REDUCTION, PRODUCT, _ALL = Dependence

add_rows("add add_any", _call(np.add), ELEMENTWISE, linear, exact=True)
add_rows("sub", _call(np.subtract), ELEMENTWISE, linear, exact=True)
add_rows("neg", _call(np.negative), ELEMENTWISE, linear, exact=True)
add_rows("mul", _call(np.multiply), ELEMENTWISE, _product, exact=True)
add_rows("div", _if_real(_call(np.divide)), ELEMENTWISE, _quotient, exact=True)
add_rows("square", _call(np.square), ELEMENTWISE, lambda p, d: 2 * d[0])
add_rows("integer_pow", _if_real(lambda p, x: np.power(x, p.y)), ELEMENTWISE, _power)
add_rows("convert_element_type", _convert, ELEMENTWISE, _conversion, exact=True)
add_rows("select_n", _select, ELEMENTWISE, linear, exact=True)
add_rows("real", _call(np.real), ELEMENTWISE, linear)
add_rows("imag", _call(np.imag), ELEMENTWISE)
add_rows("pow", _if_real(_call(np.power)), ELEMENTWISE)
add_rows("rem", _if_real(_call(np.fmod)), ELEMENTWISE)
add_rows("sqrt", _call(np.sqrt), ELEMENTWISE, exact=True)
add_rows("rsqrt", _call(lambda x: 1 / np.sqrt(x)), ELEMENTWISE)
add_rows("cbrt", _call(np.cbrt), ELEMENTWISE)
add_rows("exp", _call(np.exp), ELEMENTWISE)
add_rows("exp2", _call(np.exp2), ELEMENTWISE)
add_rows("expm1", _call(np.expm1), ELEMENTWISE)
add_rows("log", _call(np.log), ELEMENTWISE)
add_rows("log2", _call(np.log2), ELEMENTWISE)
add_rows("log1p", _call(np.log1p), ELEMENTWISE)
add_rows("logistic", _call(lambda x: 1 / (1 + np.exp(-x))), ELEMENTWISE)
add_rows("sin", _call(np.sin), ELEMENTWISE)
add_rows("cos", _call(np.cos), ELEMENTWISE)
add_rows("tan", _call(np.tan), ELEMENTWISE)
add_rows("asin", _call(np.arcsin), ELEMENTWISE)
add_rows("acos", _call(np.arccos), ELEMENTWISE)
add_rows("atan", _call(np.arctan), ELEMENTWISE)
add_rows("atan2", _call(np.arctan2), ELEMENTWISE)
add_rows("sinh", _call(np.sinh), ELEMENTWISE)
add_rows("cosh", _call(np.cosh), ELEMENTWISE)
add_rows("tanh", _call(np.tanh), ELEMENTWISE)
add_rows("asinh", _call(np.arcsinh), ELEMENTWISE)
add_rows("acosh", _call(np.arccosh), ELEMENTWISE)
add_rows("atanh", _call(np.arctanh), ELEMENTWISE)
add_rows("digamma", _call(lambda x: scipy.special.digamma(x)), ELEMENTWISE)
add_rows("erf erfc erf_inv lgamma polygamma igamma igammac igamma_grad_a", None, ELEMENTWISE)
add_rows("bessel_i0e bessel_i1e regularized_incomplete_beta zeta", None, ELEMENTWISE)
add_rows("one_minus_square polynomial", None, ELEMENTWISE)  # of newer versions of JAX
add_rows("abs", _call(np.abs), ELEMENTWISE)
add_rows("sign", _call(np.sign), ELEMENTWISE)
add_rows("max", _call(np.maximum), ELEMENTWISE)
add_rows("min", _call(np.minimum), ELEMENTWISE)
add_rows("clamp", _call(lambda low, x, high: np.minimum(np.maximum(low, x), high)), ELEMENTWISE)
add_rows("floor", _call(np.floor), ELEMENTWISE)
add_rows("ceil", _call(np.ceil), ELEMENTWISE)
add_rows("round", lambda p, x: np.rint(x) if int(p.rounding_method) == 1 else None, ELEMENTWISE)
add_rows("nextafter", _call(np.nextafter), ELEMENTWISE)
add_rows("reduce_precision", None, ELEMENTWISE)
add_rows("lt", _call(np.less), ELEMENTWISE, exact=True)
add_rows("le", _call(np.less_equal), ELEMENTWISE, exact=True)
add_rows("gt", _call(np.greater), ELEMENTWISE, exact=True)
add_rows("ge", _call(np.greater_equal), ELEMENTWISE, exact=True)
add_rows("eq", _call(np.equal), ELEMENTWISE, exact=True)
add_rows("ne", _call(np.not_equal), ELEMENTWISE, exact=True)
add_rows("lt_to le_to eq_to", None, ELEMENTWISE)
add_rows("is_finite", _call(np.isfinite), ELEMENTWISE, exact=True)
add_rows("and", _call(np.bitwise_and), ELEMENTWISE, exact=True)
add_rows("or", _call(np.bitwise_or), ELEMENTWISE, exact=True)
add_rows("xor", _call(np.bitwise_xor), ELEMENTWISE, exact=True)
add_rows("not", _call(np.invert), ELEMENTWISE, exact=True)
add_rows("shift_left shift_right_logical shift_right_arithmetic", None, ELEMENTWISE)
add_rows("population_count clz bitcast_convert_type", None, ELEMENTWISE)
add_rows("threefry2x32", None, ELEMENTWISE)
add_rows("stop_gradient", _same, ELEMENTWISE, linear, exact=True)
add_rows("copy copy_p name optimization_barrier", _same, MOVE, linear, exact=True)
add_rows("sharding_constraint pvary mesh_cast tie", _same, MOVE, linear, exact=True)

add_rows("broadcast_in_dim", moves.broadcast_in_dim, MOVE, linear, True, reads="shape broadcast_dimensions")
add_rows("reshape", moves.reshape, MOVE, linear, True, reads="new_sizes dimensions")
add_rows("squeeze expand_dims", lambda p, x: x.reshape(p.outs[0].shape), MOVE, linear, True, reads="dimensions")
add_rows("transpose", lambda p, x: np.transpose(x, p.permutation), MOVE, linear, True, reads="permutation")
add_rows("rev", lambda p, x: np.flip(x, p.dimensions), MOVE, linear, True, reads="dimensions")
add_rows("tile", lambda p, x: np.tile(x, p.reps), MOVE, linear, True, reads="reps")
add_rows("slice", moves.slice_, MOVE, linear, True, reads="start_indices limit_indices strides")
add_rows("split", lambda p, x: np.split(x, np.cumsum(p.sizes)[:-1], p.axis), MOVE, linear, True, reads="sizes axis")
add_rows("unstack", lambda p, x: list(np.moveaxis(x, p.axis, 0)), MOVE, linear, True, reads="axis")
add_rows("stack", lambda p, *x: np.stack(x, p.axis), MOVE, linear, True, reads="axis")
add_rows("concatenate", lambda p, *x: np.concatenate(x, p.dimension), MOVE, linear, True, reads="dimension")
add_rows("pad", moves.pad, MOVE, linear, True, reads="padding_config")
add_rows("dynamic_slice", moves.dynamic_slice, MOVE, linear, True, (0,))
add_rows("dynamic_update_slice", moves.dynamic_update_slice, MOVE, linear, True, (0, 1))
add_rows("gather", moves.gather, MOVE, linear, True, (0,))
add_rows("scatter", moves.scatter(None), MOVE, None, values=(0, 2))
add_rows("scatter-add scatter_add", moves.scatter(np.add), _ALL, linear, values=(0, 2))
add_rows("scatter-sub scatter_sub", moves.scatter(np.subtract), _ALL, values=(0, 2))
add_rows("scatter-mul scatter_mul", moves.scatter(np.multiply), _ALL, values=(0, 2))
add_rows("scatter-min scatter_min", moves.scatter(np.minimum), _ALL, values=(0, 2))
add_rows("scatter-max scatter_max", moves.scatter(np.maximum), _ALL, values=(0, 2))
add_rows("iota", lambda p, *sizes: None if sizes else moves.iota(p), exact=True)
add_rows("empty empty2 zeros_like", lambda p, *like: np.zeros(p.outs[0].shape, p.outs[0].dtype), exact=True)

add_rows("reduce_sum", _if_real(lambda p, x: np.sum(x, p.axes)), REDUCTION, linear)
add_rows("reduce_prod", _if_real(lambda p, x: np.prod(x, p.axes)), REDUCTION)
add_rows("reduce_max", lambda p, x: np.max(x, p.axes), REDUCTION)
add_rows("reduce_min", lambda p, x: np.min(x, p.axes), REDUCTION)
add_rows("reduce_and", lambda p, x: np.bitwise_and.reduce(x, p.axes), REDUCTION)
add_rows("reduce_or", lambda p, x: np.bitwise_or.reduce(x, p.axes), REDUCTION)
add_rows("reduce_xor", lambda p, x: np.bitwise_xor.reduce(x, p.axes), REDUCTION)
add_rows("argmax", lambda p, x: np.argmax(x, p.axes[0]), REDUCTION)
add_rows("argmin", lambda p, x: np.argmin(x, p.axes[0]), REDUCTION)
add_rows("reduce")
add_rows("cumsum", _accumulate(np.add), _ALL, linear)
add_rows("cumprod", _accumulate(np.multiply))
add_rows("cummax", _accumulate(np.maximum))
add_rows("cummin", _accumulate(np.minimum))
add_rows("cumlogsumexp", _accumulate(np.logaddexp))
add_rows("sort", lambda p, *x: [np.sort(x[0], p.dimension, kind="stable")] if len(x) == 1 else None)
add_rows("top_k")
add_rows("dot_general", _if_real(_dot_general), PRODUCT, _product)
add_rows("cholesky lu triangular_solve custom_linear_solve")

add_rows("while scan cond platform_index")
add_rows("random_bits random_split random_fold_in random_seed random_wrap random_unwrap iota_2x32_shape")
