"""A small language in which elementary functions are written, and the ways to call them.

`Body` collects the LLVM instructions of one function; the operators of `V` append to it. The same text serves scalars
and vectors, so a lane's bits are those of the scalar form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .graph import BOOL, float_bits

if TYPE_CHECKING:
    from .writer import Writer

C_LIBRARY = {
    "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "cbrt", "nextafter",
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log", "log1p", "pow",
    "atan2",
}  # fmt: skip
FUNCTIONS: dict[str, Callable] = {}  # filled by `mathlib`
_MAGIC = 1.5 * 2.0**52  # adding it rounds to an integer and leaves that in the low bits
INLINE = 96  # calls of one function beyond which it stays a function


def call(w: Writer, op: str, args: list[str]) -> str:
    """The right-hand side `call ...` for function `op` of double arguments."""
    if op in FUNCTIONS:
        name = _define(w, op, len(args))
    elif op in C_LIBRARY:
        name = _by_lane(w, op, len(args))
    else:
        raise KeyError(f"no code for function {op}")
    ty = w.type("f8")
    return f"call {ty} {name}({', '.join(f'{ty} {a}' for a in args)})"


def _define(w: Writer, op: str, count: int, style: str | None = None) -> str:
    name = f"@math_{op}{w.suffix}"
    if name not in w.helpers:
        w.helpers[name] = ""  # so that recursion through helpers ends
        body = Body(w)
        ty = w.type("f8")
        result = FUNCTIONS[op](body, *(V(body, f"%a{j}") for j in range(count)))
        args = ", ".join(f"{ty} %a{j}" for j in range(count))
        style = style or ("alwaysinline" if w.op_counts.get(op, 0) <= INLINE else "noinline")
        lines = [f"define internal {ty} {name}({args}) nounwind {style} {{", "entry:", *body.lines]
        w.helpers[name] = "\n".join([*lines, f"  ret {ty} {result.name}", "}"])
    return name


def _by_lane(w: Writer, op: str, count: int) -> str:
    """A helper that applies the C library's function to every lane."""
    name = f"@each_{op}{w.suffix}"
    if name not in w.helpers:
        fn = w.declare(w.library + op, f"double @({', '.join(['double'] * count)}) nounwind")
        ty, text = w.type("f8"), []
        args = ", ".join(f"{ty} %a{j}" for j in range(count))
        if w.lanes == 1:
            text.append(f"  %r = call double {fn}({args}) nobuiltin")
        previous = "poison" if w.lanes > 1 else "%r"
        for k in range(w.lanes if w.lanes > 1 else 0):
            text += [f"  %x{j}_{k} = extractelement {ty} %a{j}, i32 {k}" for j in range(count)]
            text.append(f"  %y{k} = call double {fn}({', '.join(f'double %x{j}_{k}' for j in range(count))}) nobuiltin")
            text.append(f"  %r{k} = insertelement {ty} {previous}, double %y{k}, i32 {k}")
            previous = f"%r{k}"
        lines = [f"define internal {ty} {name}({args}) noinline nounwind {{", *text, f"  ret {ty} {previous}", "}"]
        w.helpers[name] = "\n".join(lines)
    return name


class V:
    """A value of the function being written; operators emit instructions."""

    __slots__ = ("body", "kind", "name")

    def __init__(self, body: Body, name: str, kind: str = "f8"):
        self.body, self.name, self.kind = body, name, kind

    def _with(self, op: str, other: V | float | int) -> V:
        other = self.body.lift(other, self.kind)
        return self.body.new(f"{op} {self.body.type(self.kind)} {self.name}, {other.name}", self.kind)

    def __add__(self, o: V | float | int):
        return self._with("fadd" if self.kind == "f8" else "add", o)

    def __radd__(self, o: V | float | int):
        return self.body.lift(o, self.kind) + self

    def __sub__(self, o: V | float | int):
        return self._with("fsub" if self.kind == "f8" else "sub", o)

    def __rsub__(self, o: V | float | int):
        return self.body.lift(o, self.kind) - self

    def __mul__(self, o: V | float | int):
        return self._with("fmul", o)

    __rmul__ = __mul__

    def __truediv__(self, o: V | float | int):
        return self._with("fdiv", o)

    def __rtruediv__(self, o: V | float | int):
        return self.body.lift(o, self.kind) / self

    def __neg__(self):
        return self.body.new(f"fneg {self.body.type('f8')} {self.name}", "f8")

    def __and__(self, o: V | float | int):
        return self._with("and", o)

    def __or__(self, o: V | float | int):
        return self._with("or", o)

    def __xor__(self, o: V | float | int):
        return self._with("xor", o)

    def __lshift__(self, o: V | float | int):
        return self._with("shl", o)

    def __rshift__(self, o: V | float | int):
        return self._with("ashr", o)

    def compare(self, op: str, other: V | float | int) -> V:
        word = "fcmp" if self.kind == "f8" else "icmp"
        other = self.body.lift(other, self.kind)
        return self.body.new(f"{word} {op} {self.body.type(self.kind)} {self.name}, {other.name}", BOOL)

    def __lt__(self, o: V | float | int):
        return self.compare("olt" if self.kind == "f8" else "slt", o)

    def __gt__(self, o: V | float | int):
        return self.compare("ogt" if self.kind == "f8" else "sgt", o)

    @property
    def bits(self) -> V:
        return self.body.new(f"bitcast {self.body.type('f8')} {self.name} to {self.body.type('i8')}", "i8")

    @property
    def double(self) -> V:
        return self.body.new(f"bitcast {self.body.type('i8')} {self.name} to {self.body.type('f8')}", "f8")


class Body:
    """The instructions of one function."""

    def __init__(self, w: Writer):
        self.w, self.lines, self.count, self.label = w, [], 0, "entry"

    def type(self, kind: str) -> str:
        return self.w.type(kind)

    def new(self, text: str, kind: str) -> V:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return V(self, f"%v{self.count}", kind)

    def lift(self, x: V | float | int, kind: str) -> V:
        return x if isinstance(x, V) else V(self, self.w.literal(kind, x), kind)

    def call(self, op: str, *args: V) -> V:
        return self.new(call(self.w, op, [a.name for a in args]), "f8")

    def fma(self, x: V, y: V | float | int, c: V | float | int) -> V:
        """x*y + c, fused where the machine can."""
        x, y, c = self.lift(x, "f8"), self.lift(y, "f8"), self.lift(c, "f8")
        if not self.w.fma:
            return x * y + c
        return self.new(self.w.intrinsic("fma", "f8", x.name, y.name, c.name), "f8")

    def unary(self, stem: str, x: V) -> V:
        return self.new(self.w.intrinsic(stem, "f8", x.name), "f8")

    def abs(self, x: V) -> V:
        return self.unary("fabs", x)

    def copysign(self, x: V, sign: V) -> V:
        return self.new(self.w.intrinsic("copysign", "f8", x.name, sign.name), "f8")

    def select(self, p: V, yes: V | float | int, no: V | float | int) -> V:
        kind = yes.kind if isinstance(yes, V) else no.kind if isinstance(no, V) else "f8"
        yes, no = self.lift(yes, kind), self.lift(no, kind)
        ty = self.type(kind)
        return self.new(f"select {self.type(BOOL)} {p.name}, {ty} {yes.name}, {ty} {no.name}", kind)

    def poly(self, x: V, coefficients: list[float]) -> V:
        """c0 + c1 x + c2 x^2 + ..., pairs first: few dependent steps."""
        terms: list[V | float | int] = list(coefficients)
        while len(terms) > 1:
            terms = [
                self.fma(x, terms[k + 1], terms[k]) if k + 1 < len(terms) else terms[k] for k in range(0, len(terms), 2)
            ]
            x = x * x
        return self.lift(terms[0], "f8")

    def rare(self, mask: V, usual: V, fn: str, *args: V) -> V:
        """`usual`, but `fn(args)` in the lanes of the mask: a branch that is expected not to be taken."""
        self.count += 1
        cold, done, before = f"cold{self.count}", f"done{self.count}", self.label
        test = mask
        if self.w.lanes > 1:
            word = self.new(f"bitcast <{self.w.lanes} x i1> {mask.name} to i{self.w.lanes}", "none")
            test = self.new(f"icmp ne i{self.w.lanes} {word.name}, 0", "none")
        self.lines.append(f"  br i1 {test.name}, label %{cold}, label %{done}, !prof !0")
        self.lines.append(f"{cold}:")
        ty = self.type("f8")
        slow = self.new(f"call {ty} {fn}({', '.join(f'{ty} {a.name}' for a in args)}) cold", "f8")
        mixed = self.select(mask, slow, usual)
        self.lines += [f"  br label %{done}", f"{done}:"]
        self.label = done
        return self.new(f"phi {ty} [ {usual.name}, %{before} ], [ {mixed.name}, %{cold} ]", "f8")

    def library(self, mask: V, usual: V, op: str, *args: V) -> V:
        return self.rare(mask, usual, _by_lane(self.w, op, len(args)), *args)

    def c_library(self, op: str, *args: V) -> V:
        ty = self.type("f8")
        return self.new(
            f"call {ty} {_by_lane(self.w, op, len(args))}({', '.join(f'{ty} {a.name}' for a in args)})", "f8"
        )

    def helper(self, op: str, count: int) -> str:
        """The name of another function of this library, kept out of line."""
        return _define(self.w, op, count, "noinline")

    def nearest(self, x: V) -> tuple[V, V]:
        """The integer nearest to x, |x| < 2^51, as double and as 64-bit integer."""
        shifted = x + _MAGIC
        return shifted - _MAGIC, shifted.bits - float_bits(_MAGIC)

    def integer_to_double(self, k: V) -> V:
        return (k + float_bits(_MAGIC)).double - _MAGIC

    def exponent(self, k: V) -> V:
        """2^k for -1022 <= k <= 1023."""
        return ((k + 1023) << 52).double


def function(fn: Callable) -> Callable:
    """Registers `_name(body, x, ...)` as the function `name`."""
    FUNCTIONS[fn.__name__.lstrip("_")] = fn
    return fn
