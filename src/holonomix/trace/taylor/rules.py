r"""The n-th Taylor coefficient of every elementary operation, from lower ones.

With normalized coefficients `a^[n] = a^(n)/n!` and sums over j (Moore 1966; Jorba & Zou 2005, section 2):

    (a b)^[n]  = sum a^[j] b^[n-j]                        (a/b)^[n] = (a^[n] - sum_{j>=1} b^[j] (a/b)^[n-j]) / b^[0]
    a^k:   n a^[0] c^[n] = sum_{j>=1} (j k - (n - j)) a^[j] c^[n-j]
    exp:   n c^[n] = sum_{j>=1} j a^[j] c^[n-j]           sin, cos together; atan, asin, erf, ... by their derivative
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from ...core.types import Numbers
from ..jaxprs import Params, scan_counts
from ..primitives import TABLE, fill_column, linear
from ..special import digamma
from .arithmetic import minus, scaled
from .series import Node, Order, Rewritten, Series, SeriesError, center, recurrence

MAX_LOOP = 256  # iterations of a loop that are unrolled

# -- operations that act on every coefficient alone ------------------------------------------------------------------


def _linear(node: Node, n: Order) -> Any:
    return _apply_linear(node, [x[n] if isinstance(x, Series) else None for x in node.inputs])


def _apply_linear(node: Node, terms: list[Any]) -> Any:
    """The operation on one term of each input, None standing for zero; indices are those of the center."""
    name, values = node.name, TABLE[node.name].values or range(len(node.inputs))
    if all(terms[k] is None for k in values):
        return None
    if name in ("add", "add_any", "sub") and any(t is None for t in terms):
        left, right = terms
        shape = node.output.shape
        result = left if right is None else (-right if name == "sub" else right)
        return jnp.broadcast_to(result, shape) if jnp.shape(result) != shape else result
    centers = [center(x) for x in node.inputs]
    filled = [jnp.zeros(jnp.shape(c), jnp.result_type(c)) if t is None else t for t, c in zip(terms, centers)]
    return node.bind(*(x if k in values else centers[k] for k, x in enumerate(filled)))


for _row in TABLE.values():
    if _row.degree is linear:
        _row.recurrence = _linear
recurrence("convert_element_type", "reduce_precision", "imag", "scatter")(_linear)


@recurrence("select_n")
def _select(node: Node, n: Order) -> Any:
    """`which` follows the center; the cases go coefficient by coefficient."""
    which, *cases = node.inputs
    terms = [x[n] if isinstance(x, Series) else None for x in cases]
    if all(t is None for t in terms):
        return None
    zero = jnp.zeros(node.output.shape, node.output.dtype)
    return node.bind(center(which), *(zero if t is None else t for t in terms))


# -- branches ----------------------------------------------------------------------------------------------------------


@recurrence("abs")
def _abs(node: Node, n: Order) -> Any:
    (a,) = node.inputs
    return scaled(a[n], jnp.sign(a[0]))


@recurrence("max", "min")
def _extreme(node: Node, n: Order) -> Any:
    """`max` and `min`: the coefficient of the argument that the center takes."""
    centers = [center(x) for x in node.inputs]
    terms = [x[n] if isinstance(x, Series) else None for x in node.inputs]
    if all(t is None for t in terms):
        return None
    shape = node.output.shape
    first = jnp.equal(node.output[0], centers[0])
    left, right = (jnp.zeros(shape) if t is None else jnp.broadcast_to(t, shape) for t in terms)
    return jnp.where(first, left, right)


@recurrence("reduce_max", "reduce_min")
def _reduce_extreme(node: Node, n: Order) -> Any:
    """`reduce_max` and `reduce_min`: the coefficients of the entry that is first attained."""
    (a,) = node.inputs
    if a[n] is None:
        return None
    axes = node.params["axes"]
    hit = jnp.equal(a[0], lax.expand_dims(node.output[0], axes))
    share = hit / jnp.sum(hit, axis=axes, keepdims=True)
    return jnp.sum(share * a[n], axis=axes)


@recurrence("rem")
def _remainder(node: Node, n: Order) -> Any:
    """`a - k b` with the whole number k that the center has."""
    a, b = node.inputs
    k = jnp.round((center(a) - node.output[0]) / center(b))
    return minus(a[n] if isinstance(a, Series) else None, scaled(b[n] if isinstance(b, Series) else None, k))


@recurrence("sign", "floor", "ceil", "round")
def _flat(node: Node, n: Order) -> Any:
    """Functions that are constant between jumps."""
    return None


@recurrence("clamp")
def _clamp(node: Node, n: Order) -> Any:
    low, x, high = node.inputs
    if not isinstance(x, Series) or x[n] is None:
        return None
    return jnp.where((x[0] > center(low)) & (x[0] < center(high)), x[n], 0.0)


# -- operations that are functions of simpler ones ---------------------------------------------------------------------


def _rewritten(name: str) -> Callable[[Callable[[Params], Callable[..., list[Any]]]], Any]:
    return lambda make: fill_column("recurrence", name)(Rewritten(make))


@_rewritten("split")
def _split(p: Params) -> Callable[..., list[Any]]:
    ends = np.cumsum([0, *p.sizes])
    return lambda x: [lax.slice_in_dim(x, int(a), int(b), axis=p.axis) for a, b in zip(ends[:-1], ends[1:])]


@_rewritten("unstack")
def _unstack(p: Params) -> Callable[..., list[Any]]:
    return lambda x: [lax.index_in_dim(x, k, p.axis, keepdims=False) for k in range(x.shape[p.axis])]


@_rewritten("stack")
def _stack(p: Params) -> Callable[..., list[Any]]:
    return lambda *x: [lax.concatenate([lax.expand_dims(v, (p.axis,)) for v in x], p.axis)]


@_rewritten("optimization_barrier")
def _barrier(p: Params) -> Callable[..., list[Any]]:
    return lambda *x: list(x)


@_rewritten("digamma")
def _digamma(p: Params) -> Callable[..., list[Any]]:
    return lambda x: [digamma(x)]


@_rewritten("scan")
def _scan(p: Params) -> Callable[..., list[Any]]:
    """A loop of known length, unrolled."""
    num_consts, num_carry = scan_counts(p.jaxpr, p.ins, p.outs)
    if p.length > MAX_LOOP:
        raise SeriesError(f"a loop of {p.length} rounds is too long for Taylor coefficients (at most {MAX_LOOP})")

    def unrolled(*arguments: Numbers) -> list[Any]:
        fixed, carry = arguments[:num_consts], list(arguments[num_consts : num_consts + num_carry])
        xs = arguments[num_consts + num_carry :]
        rows: list[Any] = [None] * p.length
        for k in reversed(range(p.length)) if p.reverse else range(p.length):
            out = jaxpr_as_fun(p.jaxpr)(*fixed, *carry, *(x[k] for x in xs))
            carry, rows[k] = out[:num_carry], out[num_carry:]
        return [*carry, *(jnp.stack(column) for column in zip(*rows, strict=True))]

    return unrolled


@_rewritten("cond")
def _cond(p: Params) -> Callable[..., list[Any]]:
    """All branches, and a selection of the one that is taken."""

    def select(index: Numbers, *operands: Numbers) -> list[Any]:
        which = index if len(p.branches) > 2 else index.astype(bool)
        found = zip(*(jaxpr_as_fun(branch)(*operands) for branch in p.branches), strict=True)
        return [lax.select_n(jnp.broadcast_to(which, cases[0].shape), *cases) for cases in found]

    return select
