"""LLVM IR for the nodes that are one expression: arithmetic, comparisons, conversions, functions."""

from __future__ import annotations

import math

from . import mathlang, mathlib  # noqa: F401  (mathlib registers its functions)
from .emit_gpu import QuickMath
from .graph import BOOL, FLOATS, SIGNED
from .values import Values
from .writer import Writer, scalar_type

_COMPARE_FLOAT = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_PLAIN_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round_even": "roundeven", "round_away": "round",
              "abs": "fabs"}  # fmt: skip


class Expressions:
    """The right-hand sides of nodes."""

    def __init__(self, writer: Writer, values: Values):
        self.w, self.values = writer, values
        self.signs: dict[int, bool] = {}  # nodes whose sign bit is known to be clear, or not
        self.quick: QuickMath | None = None  # while quick steps are written

    def expression(self, n: int) -> str:
        """The LLVM instruction that computes node n; instructions for intermediate results are written before it."""
        g = self.w.graph
        op, kind, args = g.op[n], g.kind[n], g.args[n]
        names = [self.values.name(a) for a in args]
        source = g.kind[args[0]]
        ty = self.w.type(source)
        if op in _COMPARE_FLOAT:
            if source in FLOATS:
                return f"fcmp {_COMPARE_FLOAT[op]} {ty} {names[0]}, {names[1]}"
            sign = "" if op in ("eq", "ne") else "s" if source in SIGNED else "u"
            return f"icmp {sign}{op} {ty} {names[0]}, {names[1]}"
        if op in ("and", "or", "xor"):
            return f"{op} {ty} {names[0]}, {names[1]}"
        if op == "not":
            ones = self.w.literal(kind, True) if kind == BOOL else self.w.splat("-1", scalar_type(kind))
            return f"xor {ty} {names[0]}, {ones}"
        if op == "bitcast":
            return f"bitcast {ty} {names[0]} to {self.w.type(kind)}"
        if (
            op == "max"
            and kind == "f8"
            and (self.w.lanes > 1 or self.w.target.quick)
            and all(self.positive(a) for a in args)
        ):
            whole = [self.w.new(f"bitcast {ty} {a} to {self.w.type('i8')}") for a in names]
            best = self.w.new(self.w.intrinsic("umax" if self.w.target.quick else "smax", "i8", *whole))
            return f"bitcast {self.w.type('i8')} {best} to {ty}"
        if kind in FLOATS and source in FLOATS:
            return self._float(op, kind, ty, names)
        return self._integer(op, kind, source, ty, names)

    def positive(self, n: int) -> bool:
        """Whether the sign bit is certainly clear: then integers compare like the numbers, with NaN largest.

        For a GPU, the integers have no sign, and that of a NaN does not matter.
        """
        g, known = self.w.graph, self.signs
        work = [n]
        while work:  # chains of thousands are no deep recursion
            m = work.pop()
            if m in known:
                continue
            # (a sum, and a product with a positive constant, pass on a NaN as it is)
            through = g.op[m] in ("max", "add") or (g.op[m] == "mul" and any(g.op[a] == "const" for a in g.args[m]))
            through |= self.w.target.quick and g.op[m] in ("mul", "select", "take")
            from_ = g.args[m][1:] if g.op[m] == "select" else g.args[m]
            missing = [a for a in from_ if a not in known] if through else []
            if missing:
                work += [m, *missing]
            elif g.op[m] == "const":
                known[m] = 0 < float(g.attr[m]) < math.inf
            else:
                known[m] = g.op[m] == "abs" or (through and all(known[a] for a in from_))
        return known[n]

    def _float(self, op: str, kind: str, ty: str, names: list[str]) -> str:
        if self.quick is not None and kind == "f8" and op in ("div", "sqrt"):
            return self.quick.quotient(*names) if op == "div" else self.quick.root(names[0])
        if op in _PLAIN_FLOAT:
            return f"{_PLAIN_FLOAT[op]} {ty} {', '.join(names)}"
        if op == "neg":
            return f"fneg {ty} {names[0]}"
        if op in ("fma", "fms", "fnma"):
            return self._fused(op, kind, ty, *names)
        if op in ("max", "min"):
            a, b = names
            wins = self.w.new(f"fcmp {'ogt' if op == 'max' else 'olt'} {ty} {a}, {b}")
            best = self.w.new(f"select {self.w.type(BOOL)} {wins}, {ty} {a}, {ty} {b}")
            nan = self.w.new(f"fcmp uno {ty} {a}, {a}")
            return f"select {self.w.type(BOOL)} {nan}, {ty} {a}, {ty} {best}"
        if op in _INTRINSIC:
            return self.w.intrinsic(_INTRINSIC[op], kind, *names)
        if op == "convert":
            return f"{'fpext' if kind == 'f8' else 'fptrunc'} {ty} {names[0]} to {self.w.type(kind)}"
        if kind == "f4":  # functions are computed in double and rounded
            wide = [self.w.new(f"fpext {ty} {a} to {self.w.type('f8')}") for a in names]
            result = self.w.new(mathlang.call(self.w, op, wide))
            return f"fptrunc {self.w.type('f8')} {result} to {ty}"
        return mathlang.call(self.w, op, names)

    def combined(self, op: str, kind: str, a: str, b: str) -> str:
        """A new register with `a op b`."""
        ty = self.w.type(kind)
        if op in ("and", "or"):
            return self.w.new(f"{op} {ty} {a}, {b}")
        text = self._float(op, kind, ty, [a, b]) if kind in FLOATS else self._integer(op, kind, kind, ty, [a, b])
        return self.w.new(text)

    def _fused(self, op: str, kind: str, ty: str, x: str, y: str, c: str) -> str:
        if not self.w.fma:
            product = self.w.new(f"fmul {ty} {x}, {y}")
            return f"fadd {ty} {product}, {c}" if op == "fma" else (
                f"fsub {ty} {product}, {c}" if op == "fms" else f"fsub {ty} {c}, {product}")  # fmt: skip
        if op == "fms":
            c = self.w.new(f"fneg {ty} {c}")
        elif op == "fnma":
            x = self.w.new(f"fneg {ty} {x}")
        return self.w.intrinsic("fma", kind, x, y, c)

    def _integer(self, op: str, kind: str, source: str, ty: str, names: list[str]) -> str:
        """A right-hand side for integers and booleans, or a conversion to or from them.

        The instructions that it needs are written first.
        """
        signed = source in SIGNED
        if op == "convert":
            return self._convert(kind, source, ty, names[0])
        if op in ("add", "sub", "mul"):
            return f"{op} {ty} {names[0]}, {names[1]}"
        if op == "neg":
            return f"sub {ty} {self.w.splat('0', scalar_type(kind))}, {names[0]}"
        if op in ("div", "rem"):
            return self._divide(op, kind, ty, names, signed)
        if op in ("max", "min"):
            return self.w.intrinsic(("s" if signed else "u") + op, kind, *names)
        if op == "abs":
            negative = self.w.new(f"sub {ty} {self.w.splat('0', scalar_type(kind))}, {names[0]}")
            return self.w.intrinsic("smax", kind, names[0], negative) if signed else f"or {ty} {names[0]}, {names[0]}"
        if op == "popcount":
            return self.w.intrinsic("ctpop", kind, names[0])
        if op == "clz":
            return self._clz(kind, ty, names[0])
        if op in ("shl", "shr", "sar"):
            return self._shift(op, kind, ty, names)
        raise KeyError(f"no code for {op} on {source}")

    def _clz(self, kind: str, ty: str, x: str) -> str:
        suffix = (f"v{self.w.lanes}" if self.w.lanes > 1 else "") + scalar_type(kind)
        fn = self.w.declare(f"llvm.ctlz.{suffix}", f"{ty} @({ty}, i1)")
        return f"call {ty} {fn}({ty} {x}, i1 false)"

    def _divide(self, op: str, kind: str, ty: str, names: list[str], signed: bool) -> str:
        """Integer division as in XLA: x/0 is -1, x%0 is x, and the only overflow wraps."""
        a, b = names
        one, zero = self.w.splat("1", scalar_type(kind)), self.w.splat("0", scalar_type(kind))
        bad = self.w.new(f"icmp eq {ty} {b}, {zero}")
        overflow = bad
        if signed:
            low = self.w.splat(str(-(1 << (8 * int(kind[1]) - 1))), scalar_type(kind))
            lowest = self.w.new(f"icmp eq {ty} {a}, {low}")
            minus = self.w.new(f"icmp eq {ty} {b}, {self.w.splat('-1', scalar_type(kind))}")
            overflow = self.w.new(
                f"or {self.w.type(BOOL)} {bad}, {self.w.new(f'and {self.w.type(BOOL)} {lowest}, {minus}')}"
            )
        safe = self.w.new(f"select {self.w.type(BOOL)} {overflow}, {ty} {one}, {ty} {b}")
        letter = "s" if signed else "u"
        value = self.w.new(f"{letter}{op} {ty} {a}, {safe}")
        special = self.w.splat("-1", scalar_type(kind)) if op == "div" else a
        return f"select {self.w.type(BOOL)} {bad}, {ty} {special}, {ty} {value}"

    def _shift(self, op: str, kind: str, ty: str, names: list[str]) -> str:
        width, scalar = 8 * int(kind[1]), scalar_type(kind)
        wide = self.w.new(f"icmp uge {ty} {names[1]}, {self.w.splat(str(width), scalar)}")
        limit = self.w.splat(str(width - 1), scalar)
        amount = self.w.new(f"select {self.w.type(BOOL)} {wide}, {ty} {limit}, {ty} {names[1]}")
        if op == "sar":
            return f"ashr {ty} {names[0]}, {amount}"
        value = self.w.new(f"{'shl' if op == 'shl' else 'lshr'} {ty} {names[0]}, {amount}")
        return f"select {self.w.type(BOOL)} {wide}, {ty} {self.w.splat('0', scalar)}, {ty} {value}"

    def _convert(self, kind: str, source: str, ty: str, x: str) -> str:
        target = self.w.type(kind)
        if source in FLOATS:
            stem = "fptosi" if kind in SIGNED else "fptoui"
            vec = f"v{self.w.lanes}" if self.w.lanes > 1 else ""
            name = f"llvm.{stem}.sat.{vec}{scalar_type(kind)}.{vec}f{8 * int(source[1])}"
            return f"call {target} {self.w.declare(name, f'{target} @({ty})')}({ty} {x})"
        if kind in FLOATS:
            return f"{'sitofp' if source in SIGNED else 'uitofp'} {ty} {x} to {target}"
        old = 1 if source == BOOL else 8 * int(source[1])
        new = 8 * int(kind[1])
        if new == old:
            return f"bitcast {ty} {x} to {target}"
        word = "trunc" if new < old else "sext" if source in SIGNED else "zext"
        return f"{word} {ty} {x} to {target}"
