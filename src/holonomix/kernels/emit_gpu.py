"""What a thread of a GPU runs: quick steps without branches, and careful ones where those do not suffice.

The division and the square root of PTX branch to a subroutine for operands near the ends of the range; between two
branches nothing is computed side by side, and the thread waits for most of its time. Quick steps do the same sums
(Newton's method for the reciprocal and a correction by its residual, Markstein 1990, so the result is the rounded one)
without a branch, and note in `%strange` whether an operand was outside of the range in which they are right. They
also do not keep the state before the step, which takes half of the registers: when a step fails, or an operand was
strange, the trajectory begins again from what came in, with careful steps.
"""

from __future__ import annotations

from .emit import KernelEmitter

LEAST = 623  # exponent of 2^-400: operands between it and 2^400 are treated by the quick forms
RANGE = (2 * 400) << 21
_ONE, _HALF, _EIGHTHS = "0x3FF0000000000000", "0x3FE0000000000000", "0x3FD8000000000000"


class GpuEmitter(KernelEmitter):
    """Adds quick steps before the careful ones."""

    quick = False
    integer_max = True  # units for 64-bit floats are scarce

    def trajectory(self, every: str) -> None:
        before, self.tag, self.quick = len(self.entry), "q", True
        self.entry.append("  %strange = alloca i32")
        self.put("store i32 0, ptr %strange")
        super().trajectory(every)
        self.tag, self.quick, self.loads = "", False, "load volatile"
        self._again = [line.split()[0] for line in self.entry[before + 1 :]]
        self.start("again")
        super().trajectory(every)

    def reserve(self, count: int, kind: str) -> str:
        if not self.quick and self._again:
            return self._again.pop(0)
        return super().reserve(count, kind)

    def ends(self, nodes: list[int], failed: int | None, copies: list[tuple[int, str]]) -> list[tuple[str, list[str]]]:
        if not self.quick:
            return super().ends(nodes, failed, copies)
        bad = self.new(f"icmp ugt i32 {self.new('load i32, ptr %strange')}, {RANGE}")
        if failed is not None:
            bad = self.new(f"or i1 {bad}, {self.name(failed)}")
        self.put(f"br i1 {bad}, label %again, label %movedq, !prof !0")
        self.start("movedq")
        return [self.way_back(nodes, copies, 2)]

    # -- division and square root ------------------------------------------------------------------
    def _float(self, op: str, kind: str, ty: str, names: list[str]) -> str:
        if self.quick and kind == "f8" and op == "div":
            return self._quotient(*names)
        if self.quick and kind == "f8" and op == "sqrt":
            return self._root(names[0])
        return super()._float(op, kind, ty, names)

    def _quotient(self, a: str, b: str) -> str:
        self._check(self._shifted(b))
        minus = self.new(f"fneg double {b}")
        y = self._approximate("rcp", b, 0x300402 if a == _ONE else None)
        e = self._fma(minus, y, _ONE)
        y = self._fma(y, self._fma(e, e, e), y)
        e = self._fma(minus, y, _ONE)
        if a == _ONE:
            return self.intrinsic("fma", "f8", y, e, y)
        y = self._fma(y, e, y)
        word = self._word(a)
        zero = self.new(f"icmp eq i64 {self.new(f'shl i64 {word}, 1')}, 0")
        self._check(self.new(f"select i1 {zero}, i32 0, i32 {self._shifted(a)}"))
        q = self.new(f"fmul double {a}, {y}")
        better = self._fma(self._fma(minus, q, a), y, q)
        return f"select i1 {zero}, double {q}, double {better}"  # a zero keeps its sign

    def _root(self, a: str) -> str:
        sign = self.new(f"ashr i64 {self._word(a)}, 63")
        self._check(self.new(f"or i32 {self._shifted(a)}, {self.new(f'trunc i64 {sign} to i32')}"))
        y = self._approximate("rsqrt", a, 0xFCB00000)
        square = self.new(f"fneg double {self.new(f'fmul double {y}, {y}')}")
        e = self._fma(a, square, _ONE)
        y = self._fma(self._fma(e, _EIGHTHS, _HALF), self.new(f"fmul double {y}, {e}"), y)
        s = self.new(f"fmul double {a}, {y}")
        left = self._fma(self.new(f"fneg double {s}"), s, a)
        return self.intrinsic("fma", "f8", left, self.new(f"fmul double {y}, {_HALF}"), s)

    def _approximate(self, what: str, x: str, offset: int | None) -> str:
        """To 20 bits, with the lower word that NVIDIA's own divisions have: it decides ties as it should.

        With zeros there, the reciprocal of 2 - 2^-52 would come out as 1/2.
        """
        fn = self.declare(f"llvm.nvvm.{what}.approx.ftz.d", "double @(double)")
        word, low = self._word(self.new(f"call double {fn}(double {x})")), "1"
        if offset is not None:
            low = self.new(f"zext i32 {self.new(f'add i32 {self._high(x)}, {offset}')} to i64")
        return self.new(f"bitcast i64 {self.new(f'or i64 {word}, {low}')} to double")

    def _fma(self, x: str, y: str, c: str) -> str:
        return self.new(self.intrinsic("fma", "f8", x, y, c))

    def _word(self, x: str) -> str:
        return self.new(f"bitcast double {x} to i64")

    def _shifted(self, x: str) -> str:
        """Exponent and leading digits counted from the least that is allowed: at most RANGE where x is not strange."""
        return self.new(f"sub i32 {self.new(f'shl i32 {self._high(x)}, 1')}, {LEAST << 21}")

    def _high(self, x: str) -> str:
        return self.new(f"trunc i64 {self.new(f'lshr i64 {self._word(x)}, 32')} to i32")

    def _check(self, shifted: str) -> None:
        fn = self.declare("llvm.umax.i32", "i32 @(i32, i32)")
        worst = self.new(f"call i32 {fn}(i32 {self.new('load i32, ptr %strange')}, i32 {shifted})")
        self.put(f"store i32 {worst}, ptr %strange")
