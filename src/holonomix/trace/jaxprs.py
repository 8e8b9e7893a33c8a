"""Access to traced programs, for all supported versions of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import numpy as np
from jax.extend import core as jex_core
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

if TYPE_CHECKING:
    Values: TypeAlias = np.ndarray
    Index: TypeAlias = int

    class Equation(Protocol):
        """One operation of a traced program."""

        primitive: Any
        params: dict[str, Any]
        invars: Any
        outvars: Any
else:  # NumPy returns scalars in place of arrays without axes; newer JAX gives axes as NumPy integers
    Values, Index, Equation = np.ndarray | np.generic, int | np.integer, JaxprEqn

# Primitives that only call another function, with the parameter that holds it.
CALLS = dict.fromkeys(("jit", "pjit", "checkpoint", "remat", "remat2"), "jaxpr")
CALLS |= dict.fromkeys(("call", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr")
CALLS |= {"custom_vjp_call_jaxpr": "fun_jaxpr", "custom_vmap_call": "call"}


class Params:
    """The parameters of an equation by attribute, with its input and output types."""

    __slots__ = ("equation", "ins", "name", "outs", "params", "primitive")

    def __init__(self, eqn: Equation, **overrides: Any):
        self.equation, self.primitive, self.name = eqn, eqn.primitive, eqn.primitive.name
        self.params = {**eqn.params, **overrides} if overrides else eqn.params
        self.ins = [v.aval for v in eqn.invars]
        self.outs = [v.aval for v in eqn.outvars]

    def __getattr__(self, name: str):
        try:
            return self.params[name]
        except KeyError:
            raise AttributeError(name) from None

    def override(self, **params: Any) -> Params:
        """The same with other values of some parameters."""
        return Params(self.equation, **params)


def called(eqn: Equation) -> Any:
    """The closed jaxpr that an equation only calls, or that defines its operation; None for any other equation."""
    if eqn.primitive.name == "call_hi_primitive":  # JAX 0.12 and later: an operation that comes with its definition
        definition = eqn.params["_prim"]
        expand = lambda *flat: jax.tree.leaves(definition.expand(*jax.tree.unflatten(definition.in_tree, flat)))
        return jax.make_jaxpr(expand)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars))
    body = eqn.params.get(CALLS.get(eqn.primitive.name, ""))
    # (in this order: later versions of JAX have one class for both)
    return body if body is None or isinstance(body, jex_core.ClosedJaxpr) else jex_core.ClosedJaxpr(body, ())


def scan_counts(body: ClosedJaxpr | Jaxpr, ins: Sequence[Any], outs: Sequence[Any]) -> tuple[int, int]:
    """How many constants and carried values a `scan` has, from its body and the types outside of it.

    Carried values have the same rank inside and outside of the body; rows have one axis more outside. (The names of
    these counts among the parameters differ between versions of JAX.)
    """
    inner = getattr(body, "jaxpr", body)
    alike = lambda inside, outside: sum(len(v.aval.shape) == len(x.shape) for v, x in zip(inside, outside, strict=True))
    carried = alike(inner.outvars, outs)
    return alike(inner.invars, ins) - carried, carried
