"""Elementary functions of float64, the same bits in scalar and lane form.

`call` gives the expression for a function of one or two arguments. Functions that have no polynomial here go to the C
library, one lane at a time: its result depends on the argument alone, which is all that is promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .writer import Writer

C_LIBRARY = {
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2",
    "expm1", "log", "log1p", "erf", "erfc", "lgamma", "cbrt", "pow", "atan2", "nextafter",
}  # fmt: skip


def call(w: Writer, op: str, args: list[str]) -> str:
    """The right-hand side `call ...` for function `op` of double arguments."""
    if op not in C_LIBRARY:
        raise KeyError(f"no code for function {op}")
    ty = w.type("f8")
    fn = w.declare(op, f"double @({', '.join(['double'] * len(args))}) nounwind")
    if w.lanes > 1:
        fn = _by_lane(w, op, fn, len(args))
    return f"call {ty} {fn}({', '.join(f'{ty} {a}' for a in args)})" + (" nobuiltin" if w.lanes == 1 else "")


def _by_lane(w: Writer, op: str, fn: str, count: int) -> str:
    """A helper that applies a scalar function to every lane."""
    name = f"@each_{op}"
    if name not in w.helpers:
        ty, text = w.type("f8"), []
        previous = "poison"
        for k in range(w.lanes):
            text += [f"  %x{j}_{k} = extractelement {ty} %a{j}, i32 {k}" for j in range(count)]
            text.append(f"  %y{k} = call double {fn}({', '.join(f'double %x{j}_{k}' for j in range(count))}) nobuiltin")
            text.append(f"  %r{k} = insertelement {ty} {previous}, double %y{k}, i32 {k}")
            previous = f"%r{k}"
        args = ", ".join(f"{ty} %a{j}" for j in range(count))
        w.helpers[name] = "\n".join(
            [f"define internal {ty} {name}({args}) noinline nounwind {{", *text, f"  ret {ty} {previous}", "}"]
        )
    return name
