"""The sizes of intermediate results of a function: the sensitivity of its result to rounding errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex_core
from jax.extend.core import Jaxpr

from ...core.types import Numbers
from ...trace.jaxprs import called

# A solve with at most this many rows that did not converge is also compared with the terms of the constraint.
MAX_ROWS_WITH_TERMS = 32


def term_sizes(fn: Callable[[Any], Any], x: Numbers) -> Any:
    """`sum_v |d fn_i / d v| |v|` over the results v of all floating-point operations of `fn` at x, for each row i.

    An error of eps in every operation changes row i by up to eps times this. Unlike `linalg.scales.row_sizes` it sees
    the constants of a function: for a rod with its free end at the origin, the scale is its length. Loops and branches
    count as one operation.
    """
    closed = jax.make_jaxpr(fn)(x)
    shapes: list[Any] = []
    jax.eval_shape(lambda x: _evaluate(closed.jaxpr, closed.consts, [x], shapes, None)[0], x)

    def perturbed(noise: list[Any]) -> Any:
        return _evaluate(closed.jaxpr, closed.consts, [x], [], iter(noise))[0]

    changes = jax.jacrev(perturbed)([jnp.zeros(shape, dtype) for shape, dtype in shapes])
    rows = [jnp.sum(jnp.abs(c), axis=tuple(range(1, c.ndim))) for c in changes]
    return sum(rows, jnp.zeros(closed.out_avals[0].shape, x.dtype))


def _evaluate(
    jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], shapes: list[Any], noise: Iterator[Any] | None
) -> list[Any]:
    """Evaluate; floating-point results are recorded in `shapes`, or multiplied by one plus the next noise."""
    known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    value = lambda v: v.val if isinstance(v, jex_core.Literal) else known[v]
    for eqn in jaxpr.eqns:
        given = [value(v) for v in eqn.invars]
        inner = called(eqn)
        if inner is not None:
            results = _evaluate(inner.jaxpr, inner.consts, given, shapes, noise)
        else:
            found = eqn.primitive.bind(*given, **eqn.params)
            results = [_perturb(x, shapes, noise) for x in (found if eqn.primitive.multiple_results else [found])]
        known.update(zip(eqn.outvars, results, strict=True))
    return [value(v) for v in jaxpr.outvars]


def _perturb(x: Numbers, shapes: list[Any], noise: Iterator[Any] | None) -> Any:
    if not jnp.issubdtype(jnp.result_type(x), jnp.floating):
        return x
    if noise is None:
        shapes.append((jnp.shape(x), jnp.result_type(x)))
        return x
    return x * (1 + next(noise))
