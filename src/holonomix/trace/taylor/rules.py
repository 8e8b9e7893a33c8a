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
from jax import lax

from ...core.types import Index
from .arithmetic import scaled
from .functions import FUNCTION_RULES
from .products import PRODUCT_RULES
from .series import Node, Series, center

Rule = Callable[[Node, Any], Any]


# -- operations that act on every coefficient alone ------------------------------------------------------------------

_LINEAR = {
    "neg", "reshape", "broadcast_in_dim", "transpose", "slice", "squeeze", "expand_dims", "reduce_sum", "cumsum", "rev",
    "convert_element_type", "copy", "copy_p", "reduce_precision", "real", "imag", "concatenate", "pad", "gather",
    "scatter-add", "scatter_add", "scatter", "dynamic_slice", "dynamic_update_slice", "add", "sub", "add_any",
}  # fmt: skip

# positions of the arguments that are numbers; the others (indices) are kept
_VALUES = {
    "gather": (0,),
    "scatter-add": (0, 2),
    "scatter_add": (0, 2),
    "scatter": (0, 2),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
}


def _linear(node: Node, n: Index) -> Any:
    return _apply_linear(node, [x[n] if isinstance(x, Series) else None for x in node.inputs])


def _apply_linear(node: Node, terms: list[Any]) -> Any:
    """The operation on one term of each input, None standing for zero; indices are those of the center."""
    name = node.name
    values = _VALUES.get(name, range(len(node.inputs)))
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


def _select(node: Node, n: Index) -> Any:
    """`which` follows the center; the cases go coefficient by coefficient."""
    which, *cases = node.inputs
    terms = [x[n] if isinstance(x, Series) else None for x in cases]
    if all(t is None for t in terms):
        return None
    zero = jnp.zeros(node.output.shape, node.output.dtype)
    return node.bind(center(which), *(zero if t is None else t for t in terms))


# -- branches ----------------------------------------------------------------------------------------------------------


def _abs(node: Node, n: Index) -> Any:
    (a,) = node.inputs
    return scaled(a[n], jnp.sign(a[0]))


def _extreme(node: Node, n: Index) -> Any:
    """`max` and `min`: the coefficient of the argument that the center takes."""
    centers = [center(x) for x in node.inputs]
    terms = [x[n] if isinstance(x, Series) else None for x in node.inputs]
    if all(t is None for t in terms):
        return None
    shape = node.output.shape
    first = jnp.equal(node.output[0], centers[0])
    left, right = (jnp.zeros(shape) if t is None else jnp.broadcast_to(t, shape) for t in terms)
    return jnp.where(first, left, right)


def _reduce_extreme(node: Node, n: Index) -> Any:
    """`reduce_max` and `reduce_min`: the coefficients of the entry that is first attained."""
    (a,) = node.inputs
    if a[n] is None:
        return None
    axes = node.params["axes"]
    hit = jnp.equal(a[0], lax.expand_dims(node.output[0], axes))
    share = hit / jnp.sum(hit, axis=axes, keepdims=True)
    return jnp.sum(share * a[n], axis=axes)


def _flat(node: Node, n: Index) -> Any:
    """Functions that are constant between jumps."""
    return None


def _clamp(node: Node, n: Index) -> Any:
    low, x, high = node.inputs
    if not isinstance(x, Series) or x[n] is None:
        return None
    return jnp.where((x[0] > center(low)) & (x[0] < center(high)), x[n], 0.0)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_LINEAR, _linear),
    "select_n": _select,
    "abs": _abs,
    "max": _extreme,
    "min": _extreme,
    "reduce_max": _reduce_extreme,
    "reduce_min": _reduce_extreme,
    "clamp": _clamp,
    "sign": _flat,
    "floor": _flat,
    "ceil": _flat,
    "round": _flat,
    **PRODUCT_RULES,
    **FUNCTION_RULES,
}
