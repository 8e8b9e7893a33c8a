"""What a thread of a GPU runs: quick steps without branches, and careful ones where those do not suffice.

The division and the square root of PTX branch to a subroutine for operands near the ends of the range; between two
branches nothing is computed side by side, and the thread waits for most of its time. Quick steps do the same sums
(Newton's method for the reciprocal and a correction by its residual, Markstein 1990, so the result is the rounded one)
without a branch, and note in `%strange` whether an operand was outside of the range in which they are right. They
also do not keep the state before the step, which takes half of the registers: when a step fails, or an operand was
strange, the trajectory begins again from what came in, with careful steps.
"""

from __future__ import annotations

from .writer import WARP, Writer

LEAST = 623  # exponent of 2^-400: operands between it and 2^400 are treated by the quick forms
RANGE = (2 * 400) << 21
_ONE, _HALF, _EIGHTHS = "0x3FF0000000000000", "0x3FE0000000000000", "0x3FD8000000000000"


class QuickMath:
    """Division and square root without a branch, right where `strange()` is false at the end of the step."""

    def __init__(self, writer: Writer):
        self.w = writer
        writer.entry.append("  %strange = alloca i32")
        writer.put("store i32 0, ptr %strange")

    def strange(self) -> str:
        """Whether any operand so far was outside of the range in which the results are right."""
        found = self.w.new(f"icmp ugt i32 {self.w.new('load i32, ptr %strange')}, {RANGE}")
        if not self.w.target.team:
            return found
        if self.w.target.team > WARP:
            any_of = self.w.declare("llvm.nvvm.barrier0.or", "i32 @(i32)")
            word = self.w.new(f"call i32 {any_of}(i32 {self.w.new(f'zext i1 {found} to i32')})")
            return self.w.new(f"icmp ne i32 {word}, 0")
        any_of = self.w.declare("llvm.nvvm.vote.any.sync", "i1 @(i32, i1)")
        return self.w.new(f"call i1 {any_of}(i32 -1, i1 {found})")

    def quotient(self, a: str, b: str) -> str:
        self._check(self._shifted(b))
        minus = self.w.new(f"fneg double {b}")
        y = self._approximate("rcp", b, 0x300402 if a == _ONE else None)
        e = self._fma(minus, y, _ONE)
        y = self._fma(y, self._fma(e, e, e), y)
        e = self._fma(minus, y, _ONE)
        if a == _ONE:
            return self.w.intrinsic("fma", "f8", y, e, y)
        y = self._fma(y, e, y)
        word = self._word(a)
        zero = self.w.new(f"icmp eq i64 {self.w.new(f'shl i64 {word}, 1')}, 0")
        self._check(self.w.new(f"select i1 {zero}, i32 0, i32 {self._shifted(a)}"))
        q = self.w.new(f"fmul double {a}, {y}")
        better = self._fma(self._fma(minus, q, a), y, q)
        return f"select i1 {zero}, double {q}, double {better}"  # a zero keeps its sign

    def root(self, a: str) -> str:
        sign = self.w.new(f"ashr i64 {self._word(a)}, 63")
        self._check(self.w.new(f"or i32 {self._shifted(a)}, {self.w.new(f'trunc i64 {sign} to i32')}"))
        y = self._approximate("rsqrt", a, 0xFCB00000)
        square = self.w.new(f"fneg double {self.w.new(f'fmul double {y}, {y}')}")
        e = self._fma(a, square, _ONE)
        y = self._fma(self._fma(e, _EIGHTHS, _HALF), self.w.new(f"fmul double {y}, {e}"), y)
        s = self.w.new(f"fmul double {a}, {y}")
        left = self._fma(self.w.new(f"fneg double {s}"), s, a)
        return self.w.intrinsic("fma", "f8", left, self.w.new(f"fmul double {y}, {_HALF}"), s)

    def _approximate(self, what: str, x: str, offset: int | None) -> str:
        """To 20 bits, with the lower word that NVIDIA's own divisions have: it decides ties as it should.

        With zeros there, the reciprocal of 2 - 2^-52 would come out as 1/2.
        """
        fn = self.w.declare(f"llvm.nvvm.{what}.approx.ftz.d", "double @(double)")
        word, low = self._word(self.w.new(f"call double {fn}(double {x})")), "1"
        if offset is not None:
            low = self.w.new(f"zext i32 {self.w.new(f'add i32 {self._high(x)}, {offset}')} to i64")
        return self.w.new(f"bitcast i64 {self.w.new(f'or i64 {word}, {low}')} to double")

    def _fma(self, x: str, y: str, c: str) -> str:
        return self.w.new(self.w.intrinsic("fma", "f8", x, y, c))

    def _word(self, x: str) -> str:
        return self.w.new(f"bitcast double {x} to i64")

    def _shifted(self, x: str) -> str:
        """Exponent and leading digits counted from the least that is allowed: at most RANGE where x is not strange."""
        return self.w.new(f"sub i32 {self.w.new(f'shl i32 {self._high(x)}, 1')}, {LEAST << 21}")

    def _high(self, x: str) -> str:
        return self.w.new(f"trunc i64 {self.w.new(f'lshr i64 {self._word(x)}, 32')} to i32")

    def _check(self, shifted: str) -> None:
        fn = self.w.declare("llvm.umax.i32", "i32 @(i32, i32)")
        worst = self.w.new(f"call i32 {fn}(i32 {self.w.new('load i32, ptr %strange')}, i32 {shifted})")
        self.w.put(f"store i32 {worst}, ptr %strange")
