"""A traced program evaluated by NumPy, one operation after the other.

XLA takes half a millisecond for every operation that it compiles, and more for long chains of them. A sum of many terms
that is computed a few times, such as the energy in the checks of a start, is there before XLA would have begun.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex_core

from .jaxprs import called, scan_counts

log = logging.getLogger("holonomix")

Rule = Callable[..., Any]

LONG = 3_000  # equations, for which XLA takes more than a second
RATIO = 50  # operations of NumPy in the time that XLA takes to compile one equation

# operations of NumPy that do the same, to within the last bits
_SAME: dict[str, Rule] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "max": np.maximum,
    "min": np.minimum, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "exp": np.exp, "log": np.log, "log1p": np.log1p, "expm1": np.expm1,
    "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "atan2": np.arctan2, "square": np.square, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "is_finite": np.isfinite, "copy": np.asarray, "copy_p": np.asarray,
}  # fmt: skip
# those that look at the types or parameters of their equation
_OWN: dict[str, Callable[[Any, list[Any]], Any]] = {
    "div": lambda e, x: np.divide(*x) if _real(e) else None,
    "pow": lambda e, x: np.power(*x) if _real(e) else None,
    "integer_pow": lambda e, x: np.power(x[0], e.params["y"]) if _real(e) else None,
    "select_n": lambda e, x: np.where(x[0], x[2], x[1]) if len(x) == 3 and x[0].dtype == bool else None,
    "and": lambda e, x: np.logical_and(*x) if x[0].dtype == bool else None,
    "or": lambda e, x: np.logical_or(*x) if x[0].dtype == bool else None,
    "not": lambda e, x: np.logical_not(*x) if x[0].dtype == bool else None,
    "convert_element_type": lambda e, x: x[0].astype(e.params["new_dtype"]),
    "reshape": lambda e, x: x[0].reshape(e.params["new_sizes"]) if e.params["dimensions"] is None else None,
    "squeeze": lambda e, x: x[0].reshape(e.outvars[0].aval.shape),
    "expand_dims": lambda e, x: x[0].reshape(e.outvars[0].aval.shape),
    "transpose": lambda e, x: x[0].transpose(e.params["permutation"]),
    "concatenate": lambda e, x: np.concatenate(x, e.params["dimension"]),
    "slice": lambda e, x: x[0][_slices(e)],
    "broadcast_in_dim": lambda e, x: _broadcast(e, x[0]) if len(x) == 1 else None,
    "pad": lambda e, x: _padded(e, *x),
    "stack": lambda e, x: np.stack(x, e.params["axis"]) if "axis" in e.params else None,
    "iota": lambda e, x: None if x else _broadcast_count(e),
    "dot_general": lambda e, x: _dot(e, *x) if _real(e) else None,
    "reduce_sum": lambda e, x: np.sum(x[0], e.params["axes"]) if _real(e) else None,
    "reduce_max": lambda e, x: np.max(x[0], e.params["axes"]),
    "reduce_min": lambda e, x: np.min(x[0], e.params["axes"]),
}


# What is assumed of a program: iterations of a loop, elements that take as long as an operation, and operations in the
# time that JAX needs for one that NumPy does not know.
ITERATIONS, ELEMENTS, FOREIGN = 20, 1_000, 1_000


def pays_off(program: Any) -> bool:
    """Whether a program is so long that it is evaluated before XLA would have compiled it."""
    length, work, foreign = _size(program)
    return length > LONG and work + FOREIGN * foreign <= RATIO * length


def _size(program: Any) -> tuple[int, float, float]:
    """Equations, with those of everything that is called; operations of NumPy, about; those that it does not know."""
    length, work, foreign = 0, 0.0, 0.0
    for eqn in program.jaxpr.eqns:
        name, inner = eqn.primitive.name, called(eqn)
        parts = [inner] if inner is not None else jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_program)
        sizes = [_size(x) for x in parts if _is_program(x)]
        trips = eqn.params["length"] if name == "scan" else ITERATIONS if name == "while" else 1
        known = inner is not None or name in _SAME or name in _OWN or name in _CONTROL
        elements = sum(int(np.prod(v.aval.shape)) for v in eqn.outvars)
        length += 1 + sum(s[0] for s in sizes)
        work += 1 + elements / ELEMENTS + trips * sum(s[1] for s in sizes)
        # what is made of other programs, in a way that is not known here, is left to XLA
        foreign += sum(s[2] for s in sizes) + (0 if known else np.inf if sizes else 1)
    return length, work, foreign


def evaluated(program: Any, args: Sequence[Any]) -> list[np.ndarray] | None:
    """The results of a closed jaxpr, or None where something goes wrong; XLA can do it all."""
    try:
        return evaluate(program, args)
    except Exception as error:
        if os.environ.get("HOLONOMIX_DEFECTS") == "raise":
            raise RuntimeError(f"a program could not be evaluated step by step: {error}") from error
        log.warning("a program is compiled because it could not be evaluated step by step: %s", error)
        return None


def evaluate(program: Any, args: Sequence[Any]) -> list[np.ndarray]:
    """The results of a closed jaxpr for these arrays."""
    held: dict[Any, Any] = {}
    read = lambda v: np.asarray(v.val) if isinstance(v, jex_core.Literal) else held[v]
    held.update(zip(program.jaxpr.constvars, map(_on_host, program.consts), strict=True))
    held.update(zip(program.jaxpr.invars, map(_on_host, args), strict=True))
    with np.errstate(all="ignore"):
        for eqn in program.jaxpr.eqns:
            out = _evaluated(eqn, [read(v) for v in eqn.invars])
            held.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in program.jaxpr.outvars]


def _evaluated(eqn: Any, ins: list[Any]) -> Sequence[Any]:
    name = eqn.primitive.name
    if (inner := called(eqn)) is not None:
        return evaluate(inner, ins)
    if name in _CONTROL:
        return _CONTROL[name](eqn, ins)
    if name in _SAME:
        return (np.asarray(_SAME[name](*ins)),)
    found = _OWN[name](eqn, ins) if name in _OWN else None
    if found is not None:
        return (np.asarray(found),)
    with jax.ensure_compile_time_eval():
        out = eqn.primitive.bind(*map(jax.numpy.asarray, ins), **eqn.params)
    return [_on_host(x) for x in (out if eqn.primitive.multiple_results else [out])]


def _while(eqn: Any, ins: list[Any]) -> Sequence[Any]:
    a, b = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    test, body, carry = ins[:a], ins[a : a + b], ins[a + b :]
    while evaluate(eqn.params["cond_jaxpr"], [*test, *carry])[0]:
        carry = evaluate(eqn.params["body_jaxpr"], [*body, *carry])
    return carry


def _scan(eqn: Any, ins: list[Any]) -> Sequence[Any]:
    body, count = eqn.params["jaxpr"], eqn.params["length"]
    consts, carried = scan_counts(body, ins, [v.aval for v in eqn.outvars])
    fixed, carry, rows = ins[:consts], ins[consts : consts + carried], ins[consts + carried :]
    outs: list[Any] = [np.zeros(v.aval.shape, v.aval.dtype) for v in eqn.outvars[carried:]]
    for k in reversed(range(count)) if eqn.params["reverse"] else range(count):
        new = evaluate(body, [*fixed, *carry, *(x[k] for x in rows)])
        carry = new[:carried]
        for out, x in zip(outs, new[carried:], strict=True):
            out[k] = x
    return [*carry, *outs]


def _cond(eqn: Any, ins: list[Any]) -> Sequence[Any]:
    branches = eqn.params["branches"]
    return evaluate(branches[min(max(int(ins[0]), 0), len(branches) - 1)], ins[1:])


_CONTROL: dict[str, Callable[[Any, list[Any]], Sequence[Any]]] = {"while": _while, "scan": _scan, "cond": _cond}


def _is_program(x: Any) -> bool:
    return isinstance(x, jex_core.ClosedJaxpr)


def _on_host(x: Any) -> Any:
    """As an array of NumPy; keys of random numbers stay what they are."""
    return x if isinstance(x, jax.Array) and jax.numpy.issubdtype(x.dtype, jax.dtypes.extended) else np.asarray(x)


def _dot(eqn: Any, a: Any, b: Any) -> Any:
    (summed, others), (batch, along) = eqn.params["dimension_numbers"]
    axes = dict(zip((*others, *along), (*summed, *batch), strict=True))
    axes = {k: axes.get(k, a.ndim + k) for k in range(b.ndim)}
    left = [k for k in range(a.ndim) if k not in (*summed, *batch)]
    right = [axes[k] for k in range(b.ndim) if k not in (*others, *along)]
    return np.einsum(a, [*range(a.ndim)], b, [*axes.values()], [*batch, *left, *right])


def _real(eqn: Any) -> bool:
    return np.issubdtype(eqn.outvars[0].aval.dtype, np.floating)


def _slices(eqn: Any) -> tuple[slice, ...]:
    strides = eqn.params["strides"] or (1,) * len(eqn.params["start_indices"])
    return tuple(map(slice, eqn.params["start_indices"], eqn.params["limit_indices"], strides))


def _broadcast(eqn: Any, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(eqn.params["shape"])
    for axis, n in zip(eqn.params["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = n
    return np.broadcast_to(x.reshape(shape), eqn.params["shape"])


def _broadcast_count(eqn: Any) -> np.ndarray:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    count = np.arange(shape[axis], dtype=eqn.params["dtype"])
    return np.broadcast_to(count.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape)


def _padded(eqn: Any, x: np.ndarray, value: np.ndarray) -> np.ndarray | None:
    config = eqn.params["padding_config"]
    if any(low < 0 or high < 0 or inner for low, high, inner in config):
        return None
    out = np.full(eqn.outvars[0].aval.shape, value)
    out[tuple(slice(low, low + n) for (low, _, _), n in zip(config, x.shape, strict=True))] = x
    return out
