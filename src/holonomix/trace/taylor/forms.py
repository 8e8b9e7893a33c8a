"""One function in two forms: straight-line code for the kernel compiler, loops for XLA.

The kernel compiler folds and schedules every scalar operation, so it needs everything unrolled. XLA's compile time
grows faster than the length of a program, so it needs loops. `in_two_forms` traces to one operation, and each back end
lowers the form that suits it. Both compute the same function up to rounding. Derivatives and batches use the loop
form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import PyTree

from ...core.types import Numbers


class Form:
    """A function of flat arrays, with a text that stays the same from run to run."""

    def __init__(self, fn: Callable[..., Sequence[Any]], text: str):
        self.fn, self.text = fn, text
        self._traced: Any = None

    def traced(self, avals: Sequence[Any]) -> Any:
        """The jaxpr of the function; the arguments are always of one shape."""
        if self._traced is None:
            self._traced = jax.make_jaxpr(self.fn)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals))
        return self._traced

    def __repr__(self) -> str:
        return self.text


two_forms_p = Primitive("two_forms")
two_forms_p.multiple_results = True


def in_two_forms(
    text: str, unrolled: Callable[..., Any], looped: Callable[..., Any], results: Sequence[Any], *arrays: Numbers
) -> Any:
    """`looped(*arrays)`, or `unrolled(*arrays)` inside a kernel; both return arrays like `results`."""
    forms = {"unrolled": Form(unrolled, f"unrolled {text}"), "looped": Form(looped, text)}
    return two_forms_p.bind(*arrays, **forms, avals=tuple((x.shape, x.dtype) for x in results))


@two_forms_p.def_impl
def _run(*arrays: Numbers, looped: Form, **_: object) -> Any:
    return jax.jit(looped.fn)(*arrays)


@two_forms_p.def_abstract_eval
def _shapes(*_: object, avals: Sequence[Any], **__: object) -> Any:
    return [ShapedArray(shape, dtype) for shape, dtype in avals]


mlir.register_lowering(
    two_forms_p, mlir.lower_fun(lambda *arrays, looped, **_: looped.fn(*arrays), multiple_results=True)
)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, looped: Form, **_: object) -> Any:
    filled = [ad.instantiate_zeros(t) for t in tangents]
    return jax.jvp(lambda *x: list(looped.fn(*x)), tuple(primals), tuple(filled))


ad.primitive_jvps[two_forms_p] = _jvp


def _batch(arrays: PyTree, axes: Sequence[Any], *, looped: Form, **_: object) -> Any:
    results = jax.vmap(lambda *x: list(looped.fn(*x)), in_axes=tuple(axes))(*arrays)
    return results, [0] * len(results)


batching.primitive_batchers[two_forms_p] = _batch
