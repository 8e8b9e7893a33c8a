"""The degree of a function of q as a polynomial, read from its equations.

Quadratures choose their number of nodes by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal

from ..core.types import Numbers
from .jaxprs import Equation, Params, called
from .primitives import TABLE

__all__ = ["polynomial_degree"]


def polynomial_degree(fn: Callable[[Any], Any], q: Numbers) -> float:
    """The degree of `fn(q)` in the entries of q, an upper bound; infinite where it is not known to be a polynomial."""
    jaxpr = jax.make_jaxpr(fn)(jax.ShapeDtypeStruct(q.shape, q.dtype)).jaxpr
    return max(_degrees(jaxpr, [1.0] * len(jaxpr.invars)), default=0.0)


def _degrees(jaxpr: Jaxpr, inputs: list[float]) -> list[float]:
    found: dict[Any, float] = dict.fromkeys(jaxpr.constvars, 0.0)
    found.update(zip(jaxpr.invars, inputs, strict=True))
    read = lambda x: 0.0 if isinstance(x, Literal) else found[x]
    for eqn in jaxpr.eqns:
        found.update(zip(eqn.outvars, _results(eqn, [read(x) for x in eqn.invars]), strict=True))
    return [read(x) for x in jaxpr.outvars]


def _results(eqn: Equation, degrees: list[float]) -> list[float]:
    degree, row = max(degrees, default=0.0), TABLE.get(eqn.primitive.name)
    if degree in (0.0, math.inf):
        return [degree] * len(eqn.outvars)
    if (inner := called(eqn)) is not None:
        return _degrees(inner.jaxpr, degrees)
    degree = math.inf if row is None or row.degree is None else row.degree(Params(eqn), degrees)
    return [degree] * len(eqn.outvars)
