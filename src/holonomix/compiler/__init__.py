"""The kernel compiler: an ordinary JAX step in, a fast loop over steps out.

    loop = kernels.LoopFunctions(step, read, halted)
    program = kernels.lower(loop, carry, consts)          # a verified scalar program; raises Unsupported
    runner = kernels.build(program, backend="native")     # or "cuda"
    carry, rows = runner.run(carry, consts, rows=R, every=K)
    carry, rows = runner.run_batch(carry, consts, consts_axes, rows=R, every=K)

`lower` traces the three functions to jaxprs and evaluates them on scalars: structural zeros and ones are folded,
common subexpressions shared, loops kept as loops, loop invariants moved out. The back ends run the same program;
`rows` and `every` are runtime numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .graph import STRAIGHT_LINE_LIMIT as STRAIGHT_LINE_LIMIT
from .graph import Defect as Defect
from .graph import Unavailable as Unavailable
from .graph import Unsupported as Unsupported
from .graph import defects
from .graph import defects_are_fatal as defects_are_fatal
from .program import Program as Program
from .program import lower as lower
from .program import lower_traced as lower_traced
from .program import trace_loop as trace_loop


@dataclass(frozen=True)
class LoopFunctions:
    """What a kernel runs. Once `halted` is true the carry is frozen; rows are still written from it."""

    step: Callable[[Any, Any], Any]  # (carry, consts) -> carry
    read: Callable[[Any, Any], Any]  # (carry, consts) -> row
    halted: Callable[[Any, Any], Any]  # (carry, consts) -> bool


def build(program: Program, backend: str = "native", lanes: int | None = None, threads: int | None = None):
    """A runner for the program; machine code is made by `prepare` or on first use, for a GPU at once."""
    if backend == "native":
        from .runner import NativeRunner

        return NativeRunner(program, lanes, threads)
    if backend == "cuda":
        from .cuda import CudaRunner

        with defects("compiling for a GPU"):
            return CudaRunner(program)
    raise ValueError(f"unknown back end {backend!r}: native or cuda")
