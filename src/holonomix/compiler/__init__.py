"""The kernel compiler: an ordinary JAX step in, a fast loop over steps out.

    program = kernels.lower(loop, carry, consts)          # a verified scalar program; raises Unsupported
    runner = kernels.build(program, backend="native")     # or "cuda"
    carry, rows = runner.run(carry, consts, axes, rows=R, every=K)

A loop has the functions `step`, `read` and `halted` of (carry, consts). `lower` traces them to jaxprs and evaluates
them on scalars: structural zeros and ones are folded, common subexpressions shared, loops kept as loops, loop
invariants moved out. The back ends run the same program; `rows` and `every` are runtime numbers.
"""

from __future__ import annotations

import importlib
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

RUNNERS = {"native": "NativeRunner", "cuda": "CudaRunner"}  # by module


def build(program: Program, backend: str = "native", **options: Any) -> Any:
    """A runner for the program; machine code is made on first use, for a GPU at once."""
    if backend not in RUNNERS:
        raise ValueError(f"unknown back end {backend!r}: {' or '.join(RUNNERS)}")
    with defects(f"compiling for {backend}"):
        return getattr(importlib.import_module(f".{backend}", __name__), RUNNERS[backend])(program, **options)
