"""The degree of a function of q as a polynomial, read from its equations.

A quadrature that is exact for that degree needs no more nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex_core

from ..core.types import Numbers
from .jaxprs import called

__all__ = ["polynomial_degree"]

# Results are entries of the arguments, or sums of them with constant coefficients.
LINEAR = frozenset(
    """add add_any broadcast_in_dim concatenate copy copy_p cumsum dynamic_slice dynamic_update_slice expand_dims gather
    neg pad real reduce_sum reshape rev scatter-add select_n slice split squeeze stack sub transpose""".split()
)
PRODUCTS = frozenset(("mul", "dot_general"))


def polynomial_degree(fn: Callable[[Any], Any], q: Numbers) -> float:
    """The degree of `fn(q)` in the entries of q, an upper bound; infinite where it is not known to be a polynomial."""
    jaxpr = jax.make_jaxpr(fn)(jax.ShapeDtypeStruct(q.shape, q.dtype)).jaxpr
    return max(_degrees(jaxpr, [1.0] * len(jaxpr.invars)), default=0.0)


def _degrees(jaxpr: Any, inputs: list[float]) -> list[float]:
    found: dict[Any, float] = dict.fromkeys(jaxpr.constvars, 0.0)
    found.update(zip(jaxpr.invars, inputs, strict=True))
    read = lambda x: 0.0 if isinstance(x, jex_core.Literal) else found[x]
    for eqn in jaxpr.eqns:
        found.update(zip(eqn.outvars, _results(eqn, [read(x) for x in eqn.invars]), strict=True))
    return [read(x) for x in jaxpr.outvars]


def _results(eqn: Any, degrees: list[float]) -> list[float]:
    name, highest = eqn.primitive.name, max(degrees, default=0.0)
    if highest in (0.0, math.inf):
        return [highest] * len(eqn.outvars)
    inner = called(eqn)
    if inner is not None:
        return _degrees(inner.jaxpr, degrees)
    return [_degree(eqn, name, degrees, highest)] * len(eqn.outvars)


def _degree(eqn: Any, name: str, degrees: list[float], highest: float) -> float:
    if name in LINEAR:
        return highest
    if name in PRODUCTS:
        return sum(degrees)
    if name == "div" and degrees[1] == 0.0:
        return highest
    if name == "integer_pow" and eqn.params["y"] >= 0:
        return eqn.params["y"] * highest
    if name == "square":
        return 2 * highest
    if name == "convert_element_type" and jnp.issubdtype(eqn.params["new_dtype"], jnp.inexact):
        return highest
    return math.inf
