"""Evaluate a traced program with NumPy, equation by equation.

XLA takes half a millisecond to compile an operation, and more in long chains. A long sum that is computed a few times,
such as the energy in the checks of a start, is evaluated faster without compiling it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex_core
from jax.extend.core import ClosedJaxpr

from .jaxprs import Params, Values, called, scan_counts
from .primitives import TABLE, evaluate_equation, fill_column, on_host

log = logging.getLogger("holonomix")

MIN_EQUATIONS = 3_000  # XLA takes more than a second to compile longer programs
RATIO = 50  # NumPy operations in the time that XLA takes to compile one equation

# Assumptions about a program: iterations of a `while` loop, elements that take as long as an operation, and NumPy
# operations in the time that JAX needs for one without NumPy evaluation.
ITERATIONS, ELEMENTS, FOREIGN = 20, 1_000, 1_000


def pays_off(program: ClosedJaxpr) -> bool:
    """Whether NumPy evaluates a program sooner than XLA compiles it."""
    length, work, foreign = _size(program)
    return length > MIN_EQUATIONS and work + FOREIGN * foreign <= RATIO * length


def _size(program: ClosedJaxpr) -> tuple[int, float, float]:
    """The number of equations including called programs, of NumPy operations (an estimate), and of all others.

    Others are operations without an evaluation by NumPy; they are infinite if one of them contains programs.
    """
    length, work, foreign = 0, 0.0, 0.0
    for eqn in program.jaxpr.eqns:
        name, inner = eqn.primitive.name, called(eqn)
        parts = [inner] if inner is not None else jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_program)
        sizes = [_size(x) for x in parts if _is_program(x)]
        trips = eqn.params["length"] if name == "scan" else ITERATIONS if name == "while" else 1
        row = TABLE.get(name)
        known = inner is not None or (row is not None and row.evaluate is not None)
        elements = sum(int(np.prod(v.aval.shape)) for v in eqn.outvars)
        length += 1 + sum(s[0] for s in sizes)
        work += 1 + elements / ELEMENTS + trips * sum(s[1] for s in sizes)
        # an unknown operation that contains programs is left to XLA
        foreign += sum(s[2] for s in sizes) + (0 if known else np.inf if sizes else 1)
    return length, work, foreign


def evaluated(program: ClosedJaxpr, args: Sequence[Any]) -> list[np.ndarray] | None:
    """The results of a closed jaxpr; None if evaluation fails, so that the caller falls back to XLA."""
    try:
        return evaluate(program, args)
    except Exception as error:
        if os.environ.get("HOLONOMIX_DEFECTS") == "raise":
            raise RuntimeError(f"a program could not be evaluated step by step: {error}") from error
        log.warning("a program is compiled because it could not be evaluated step by step: %s", error)
        return None


def evaluate(program: ClosedJaxpr, args: Sequence[Any]) -> list[np.ndarray]:
    """The results of a closed jaxpr for these arrays."""
    held: dict[Any, Any] = {}
    read = lambda v: np.asarray(v.val) if isinstance(v, jex_core.Literal) else held[v]
    held.update(zip(program.jaxpr.constvars, map(on_host, program.consts), strict=True))
    held.update(zip(program.jaxpr.invars, map(on_host, args), strict=True))
    for eqn in program.jaxpr.eqns:
        ins, inner = [read(v) for v in eqn.invars], called(eqn)
        out = evaluate_equation(Params(eqn), ins) if inner is None else evaluate(inner, ins)
        held.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in program.jaxpr.outvars]


@fill_column("evaluate", "while")
def _while(p: Params, *ins: Values) -> list[Any]:
    a, b = p.cond_nconsts, p.body_nconsts
    test, body, carry = ins[:a], ins[a : a + b], list(ins[a + b :])
    while evaluate(p.cond_jaxpr, [*test, *carry])[0]:
        carry = evaluate(p.body_jaxpr, [*body, *carry])
    return carry


@fill_column("evaluate", "scan")
def _scan(p: Params, *ins: Values) -> list[Any]:
    consts, carried = scan_counts(p.jaxpr, ins, p.outs)
    fixed, carry, rows = ins[:consts], list(ins[consts : consts + carried]), ins[consts + carried :]
    outs = [np.zeros(v.shape, v.dtype) for v in p.outs[carried:]]
    for k in reversed(range(p.length)) if p.reverse else range(p.length):
        new = evaluate(p.jaxpr, [*fixed, *carry, *(x[k] for x in rows)])
        carry = new[:carried]
        for out, x in zip(outs, new[carried:], strict=True):
            out[k] = x
    return [*carry, *outs]


@fill_column("evaluate", "cond")
def _cond(p: Params, which: Values, *ins: Values) -> list[Any]:
    return evaluate(p.branches[min(max(int(which), 0), len(p.branches) - 1)], ins)


def _is_program(x: object) -> bool:
    return isinstance(x, ClosedJaxpr)
