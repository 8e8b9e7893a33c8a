"""Factor, solve and shorten as JAX primitives: a foreign call on the array path, a function of the kernel elsewhere.

`factor` carries no derivative; `solution` and `shortest` do, by implicit differentiation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from ...core.types import Index, Numbers
from .foreign import register
from .plan import Plan

factor_p = Primitive("multifrontal_factor")
solve_p = Primitive("multifrontal_solve")
shorten_p = Primitive("multifrontal_shorten")


def factor(plan: Plan, entries: Float[Array, " entries"], symmetric: bool, threshold: float = -1.0) -> Any:
    """The factors; rows whose pivot is at most `threshold` times their diagonal entry count as dependent."""
    entries = jax.lax.stop_gradient(entries)
    return factor_p.bind(entries, plan=plan, symmetric=bool(symmetric), threshold=float(threshold))


def solution(plan: Plan, entries: Numbers, factors: Numbers, b: Numbers) -> Any:
    """`x` with `A x = b`."""
    factors = jax.lax.stop_gradient(factors)
    return jax.lax.custom_linear_solve(
        lambda x: product(plan, entries, x),
        b,
        lambda _, b: solve_p.bind(factors, b, plan=plan, transposed=False),
        lambda _, b: solve_p.bind(factors, b, plan=plan, transposed=True),
    )


def product(plan: Plan, entries: Numbers, x: Numbers) -> Any:
    """`A x`."""
    row, column, source = plan.places
    return jnp.zeros(plan.n, x.dtype).at[row].add(entries[source] * x[column])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def shortest(plan: Plan, entries: Numbers, factors: Numbers, x: Numbers) -> Any:
    """`P x`, the part of x outside of the null space of a symmetric matrix `A`: `P = A^+ A`."""
    return shorten_p.bind(entries, factors, x, plan=plan)


@shortest.defjvp
def _(plan: Plan, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    """`dy = P dx + A^+ dA (x - y) + (1 - P) dA A^+ y`, from `A y = A x` and `y = P y`."""
    entries, factors, x = primals
    project = partial(shortest, plan, entries, factors)
    pseudo = lambda b: project(solution(plan, entries, factors, project(b)))
    y = project(x)
    moved = product(plan, tangents[0], pseudo(y))
    return y, project(tangents[2]) + pseudo(product(plan, tangents[0], x - y)) + moved - project(moved)


@factor_p.def_abstract_eval
def _(entries: ShapedArray, *, plan: Plan, symmetric: bool, threshold: float) -> Any:
    return ShapedArray((plan.factor,), entries.dtype)


@solve_p.def_abstract_eval
def _(factors: ShapedArray, b: ShapedArray, *, plan: Plan, transposed: bool) -> Any:
    return ShapedArray(b.shape, b.dtype)


@shorten_p.def_abstract_eval
def _(entries: ShapedArray, factors: ShapedArray, x: ShapedArray, *, plan: Plan) -> Any:
    return ShapedArray(x.shape, x.dtype)


def _foreign(name: str, plan: Plan, made: int, work: int, *arrays: Array) -> Any:
    shapes = tuple(jax.ShapeDtypeStruct((k,), jnp.float64) for k in (made, work))
    return jax.ffi.ffi_call(register(name), shapes)(jnp.asarray(plan.table), *arrays)[0]


def _lowered_factor(entries: Numbers, *, plan: Plan, symmetric: bool, threshold: float) -> Any:
    flags = jnp.asarray(int(symmetric), jnp.int64), jnp.asarray(threshold, jnp.float64)
    return _foreign("factor", plan, plan.factor, plan.work[0], *flags, entries)


def _lowered_solve(factors: Numbers, b: Numbers, *, plan: Plan, transposed: bool) -> Any:
    return _foreign("solve", plan, plan.n, plan.work[1], jnp.asarray(int(transposed), jnp.int64), factors, b)


def _lowered_shorten(entries: Numbers, factors: Numbers, x: Numbers, *, plan: Plan) -> Any:
    return _foreign("shorten", plan, plan.n, plan.work[2], entries, factors, x)


def _batch_by_map(primitive: Primitive, arrays: Sequence[Any], axes: Sequence[Any], **params: Any) -> Any:
    """Batching rule: one element after the other."""
    count = next(x.shape[d] for x, d in zip(arrays, axes, strict=True) if d is not None)
    moved = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(arrays, axes, strict=True)]

    def one(k: Index) -> Any:
        return primitive.bind(*(x if d is None else x[k] for x, d in zip(moved, axes, strict=True)), **params)

    return jax.lax.map(one, jnp.arange(count)), 0


for _primitive, _fn in ((factor_p, _lowered_factor), (solve_p, _lowered_solve), (shorten_p, _lowered_shorten)):
    mlir.register_lowering(_primitive, mlir.lower_fun(_fn, multiple_results=False), platform="cpu")
    _primitive.def_impl(partial(lambda fn, *arrays, **params: jax.jit(partial(fn, **params))(*arrays), _fn))
    batching.primitive_batchers[_primitive] = partial(_batch_by_map, _primitive)


def _shorten_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...], *, plan: Plan) -> Any:
    out = shorten_p.bind(*primals, plan=plan)
    if isinstance(tangents[2], ad.Zero):
        return out, jnp.zeros_like(out)
    return out, shorten_p.bind(*primals[:2], tangents[2], plan=plan)


def _shorten_transpose(given: Any, entries: Numbers, factors: Numbers, x: Any, *, plan: Plan) -> Any:
    return None, None, shorten_p.bind(entries, factors, ad.instantiate_zeros(given), plan=plan)  # a projection


ad.primitive_jvps[shorten_p] = _shorten_jvp
ad.primitive_transposes[shorten_p] = _shorten_transpose
