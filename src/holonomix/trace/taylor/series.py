"""Truncated power series through a traced function, one order after the other.

The orders are unrolled into straight-line code for the kernel compiler, or run as a loop over the order for XLA, whose
compile time would otherwise grow with the square of the order. The rules are the same: they see series whose
coefficients are separate arrays, or rows of one buffer indexed by the loop counter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jaxtyping import PyTree

from ...core.types import Index, Numbers
from ..jaxprs import Equation, Params, called
from ..primitives import TABLE, fill_column

Rule = Callable[["Node", Any], Any]
if TYPE_CHECKING:
    Order: TypeAlias = int  # inside a loop over the order it is traced
else:
    Order = Index


class Rewritten(NamedTuple):
    """The recurrence of an operation that is a function of simpler ones: `make(params)` returns that function."""

    make: Callable[[Params], Callable[..., list[Any]]]


def recurrence(*names: str) -> Callable[[Rule], Rule]:
    """Register a function `(node, n) -> coefficient n` of primitives."""
    return fill_column("recurrence", *names)


class SeriesError(NotImplementedError):
    """A function contains an operation whose Taylor coefficients are not known."""


class Series:
    """The coefficients found so far of one array; `None` is a coefficient that is zero by structure.

    Inside a loop over the order `buffer` holds all coefficients, those not found yet being zero.
    """

    __slots__ = ("_pile", "_piled", "buffer", "dtype", "monomial", "shape", "terms")

    def __init__(self, *terms: PyTree):
        first = jnp.asarray(terms[0])
        self.terms: list[Any] = [first, *terms[1:]]
        self.shape: tuple[int, ...] = first.shape
        self.dtype = first.dtype
        self.buffer: Any = None
        self.monomial: Any = None  # (base, exponent, factor) where this is `factor base^exponent`; see `rules`
        self._pile: Any = None  # terms 0 to _piled - 1 in one array, the order first
        self._piled = 0

    def __getitem__(self, n: Order) -> Any:
        if self.buffer is not None:
            return (
                self.buffer[0] if isinstance(n, int) and n == 0 else lax.dynamic_index_in_dim(self.buffer, n, 0, False)
            )
        return self.terms[n] if n < len(self.terms) else None

    def put(self, n: Order, term: PyTree) -> None:
        """Set coefficient n: the next one, or the newest one again."""
        if self.buffer is not None:
            if term is not None:
                row = jnp.asarray(term, self.dtype)[None]
                self.buffer = lax.dynamic_update_slice_in_dim(self.buffer, row, n, 0)
            return
        del self.terms[n:]
        self.terms.extend([None] * (n - len(self.terms)))
        self.terms.append(term)
        if self._piled > n:
            self._piled = n
            self._pile = lax.slice_in_dim(self._pile, 0, n, axis=0)

    def window(self, first: int, last: int) -> Any:
        """Coefficients `first` to `last` as one array, or None where one of them is zero by structure.

        None too where the axis of orders would be as long as another axis: the kernel compiler knows axes by length.
        """
        if (
            last < first
            or last + 1 in self.shape
            or last + 1 - first in self.shape
            or any(self[k] is None for k in range(first, last + 1))
        ):
            return None
        if self._piled <= last:
            new = [lax.expand_dims(x, (0,)) for x in self.terms[self._piled : last + 1] if x is not None]
            if len(new) != last + 1 - self._piled:  # a zero below `first`: nothing to keep
                return lax.concatenate([lax.expand_dims(self[k], (0,)) for k in range(first, last + 1)], 0)
            self._pile = lax.concatenate(([self._pile] if self._piled else []) + new, 0)
            self._piled = last + 1
        if first == 0 and last + 1 == self._piled:
            return self._pile
        return lax.slice_in_dim(self._pile, first, last + 1, axis=0)

    # -- as rows of a buffer ----------------------------------------------------------------------------------------

    def into_buffer(self, size: int) -> Any:
        """All coefficients in one array of `size` rows."""
        zero = jnp.zeros(self.shape, self.dtype)
        rows = [zero if x is None else jnp.asarray(x, self.dtype) for x in self.terms[:size]]
        return jnp.stack(rows + [zero] * (size - len(rows)))

    def shifted(self, n: Order, first: int) -> Any:
        """Rows `self[n - j]` for j from `first` to the last order, zero where `n - j` is negative."""
        size = len(self.buffer)
        back = jnp.concatenate([self.buffer[::-1], jnp.zeros_like(self.buffer)])
        return lax.dynamic_slice_in_dim(back, size - 1 - n + first, size - first, 0)


def center(x: PyTree) -> Any:
    """Coefficient 0 of a series; a constant is its own."""
    return x[0] if isinstance(x, Series) else x


class Node:
    """One operation: its inputs (series or constants), its output series, and what its rule remembers."""

    __slots__ = ("equation", "inputs", "memory", "output", "rule")

    def __init__(self, equation: Equation, inputs: list[Any], rule: Callable[[Node, Any], Any]):
        self.equation, self.inputs, self.rule = equation, inputs, rule
        self.memory: dict[str, Any] = {}
        self.output = Series(self.bind(*(center(x) for x in inputs)))

    @property
    def name(self) -> str:
        return self.equation.primitive.name

    @property
    def params(self) -> dict[str, Any]:
        return self.equation.params

    def bind(self, *values: Numbers) -> Any:
        """The operation itself on plain arrays."""
        return self.equation.primitive.bind(*values, **self.equation.params)

    def advance(self, n: Order) -> None:
        self.output.put(n, self.rule(self, n))

    def series(self) -> Iterator[Series]:
        """Every series that this node computes."""
        yield self.output
        for value in self.memory.values():
            if isinstance(value, Series):
                yield value
            elif isinstance(value, list):
                yield from value
            elif hasattr(value, "series"):
                yield from value.series()


class SeriesProgram:
    """A function `f(*arrays) -> arrays` whose Taylor coefficients are computed order by order.

    `inputs` are the series of the arguments; `advance(n)` computes coefficient n of every intermediate value and
    returns those of the results. Coefficients are computed in order, starting with 0; before `advance(n)` the inputs
    must hold coefficient n. `advance(n)` may be called again after coefficient n of an input was changed; unrolled, the
    kernel compiler computes only once what does not depend on the change.
    """

    def __init__(self, f: Callable[..., Sequence[Any]], inputs: Sequence[Series]):
        closed = jax.make_jaxpr(f)(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs))
        self.inputs = list(inputs)
        self.nodes: list[Node] = []
        self.results = self._trace(closed.jaxpr, closed.consts, self.inputs)

    def _trace(self, jaxpr: ClosedJaxpr | Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Var | Literal) -> Any:
            return atom.val if isinstance(atom, Literal) else values[atom]

        for equation in jaxpr.eqns:
            outputs = self._outputs(equation, [read(x) for x in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(x) for x in jaxpr.outvars]

    def _outputs(self, equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        from .products import monomial

        name, several = equation.primitive.name, equation.primitive.multiple_results
        inner = called(equation)
        if inner is not None:
            return self._trace(inner.jaxpr, inner.consts, inputs)
        if not any(isinstance(x, Series) for x in inputs):
            found = equation.primitive.bind(*inputs, **equation.params)
            return found if several else [found]
        rule = TABLE[name].recurrence if name in TABLE else None
        if isinstance(rule, Rewritten):
            shapes = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars]
            body = jax.make_jaxpr(rule.make(Params(equation)))(*shapes)
            return self._trace(body.jaxpr, body.consts, inputs)
        if not several and not jnp.issubdtype(equation.outvars[0].aval.dtype, np.inexact):
            # comparisons and integers follow the center of the expansion
            return [equation.primitive.bind(*(center(x) for x in inputs), **equation.params)]
        if several or rule is None:
            raise SeriesError(
                f"no Taylor coefficients are known for the operation {name!r}; write the function with elementary "
                "functions, products, indexing and jnp.where, or choose a method such as Composition(RATTLE(), order=8)"
            )
        node = Node(equation, inputs, rule)
        node.output.monomial, node.rule = monomial(node)
        self.nodes.append(node)
        return [node.output]

    def advance(self, n: Order) -> list[Any]:
        """Coefficient n of every result; None where it is zero by structure."""
        if not (isinstance(n, int) and n == 0):
            for node in self.nodes:
                node.advance(n)
        return self.coefficients(n)

    def coefficients(self, n: Order) -> list[Any]:
        """Coefficient n of every result, which must have been computed."""
        first = isinstance(n, int) and n == 0
        return [(x[n] if isinstance(x, Series) else (x if first else None)) for x in self.results]

    def series(self) -> Iterator[Series]:
        """Every series that the program computes."""
        for node in self.nodes:
            yield from node.series()


def loop(programs: Sequence[SeriesProgram], advance: Callable[[Any], None], first: int, last: int, size: int) -> None:
    """`advance(n)` for n from `first` to `last - 1` as one compiled loop; series hold up to `size` coefficients."""
    if last <= first:
        return
    found = {id(x): x for program in programs for x in (*program.inputs, *program.series())}
    states = list(found.values())
    buffers = [x.into_buffer(size) for x in states]

    def body(n: Order, buffers: list[Any]) -> list[Any]:
        for x, buffer in zip(states, buffers, strict=True):
            x.buffer = buffer
        advance(n)
        return [x.buffer for x in states]

    for x, buffer in zip(states, lax.fori_loop(first, last, body, buffers), strict=True):
        x.buffer, x.terms = None, [buffer[k] for k in range(size)]
        x._piled = 0
