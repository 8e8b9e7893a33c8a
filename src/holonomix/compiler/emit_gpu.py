"""Code for a GPU thread: quick steps without branches, and careful steps where these do not suffice.

The division and the square root of PTX branch to a subroutine for operands near the ends of the range; between two
branches nothing is computed side by side, and the thread waits for most of its time. Quick steps do the same sums
(Newton's method for the reciprocal and a correction by its residual, Markstein 1990, so the result is the rounded one)
without a branch, and note in `%strange` whether an operand was outside of the range in which they are right. They
also do not keep the state before the step, which takes half of the registers: when a step fails, or an operand was
strange, the trajectory begins again from what came in, with careful steps.
"""

from __future__ import annotations

from collections.abc import Callable

from .graph import BOOL
from .writer import WARP, Writer

MIN_EXPONENT = 623  # exponent of 2^-400: operands between it and 2^400 are treated by the quick forms
RANGE = (2 * 400) << 21
SECTIONS = WARP // 8  # a partial result of a reduction is found in so many sections, where the order does not matter
_ONE, _HALF, _EIGHTHS = "0x3FF0000000000000", "0x3FE0000000000000", "0x3FD8000000000000"


class QuickMath:
    """Division and square root without a branch; correct if `strange()` is false at the end of the step."""

    def __init__(self, writer: Writer):
        self.w = writer
        writer.entry.append("  %strange = alloca i32")
        writer.put("store i32 0, ptr %strange")

    def strange(self) -> str:
        """Whether any operand so far was outside of the range in which the results are correct."""
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
        return self.w.new(f"sub i32 {self.w.new(f'shl i32 {self._high(x)}, 1')}, {MIN_EXPONENT << 21}")

    def _high(self, x: str) -> str:
        return self.w.new(f"trunc i64 {self.w.new(f'lshr i64 {self._word(x)}, 32')} to i32")

    def _check(self, shifted: str) -> None:
        fn = self.w.declare("llvm.umax.i32", "i32 @(i32, i32)")
        worst = self.w.new(f"call i32 {fn}(i32 {self.w.new('load i32, ptr %strange')}, i32 {shifted})")
        self.w.put(f"store i32 {worst}, ptr %strange")


class TeamReduction:
    """A reduction over n elements by the 32 threads of each group, which all get the result.

    There are eight partial results, each of every eighth element in order; then neighbors are joined, then their
    results. A sum is rounded as this order says, and eight threads have work; the largest, smallest, all and any are
    the same in sections, so all have. Of numbers that are equal, or not numbers, that order still chooses.
    """

    def __init__(self, writer: Writer, op: str, n: int):
        self.w, self.op, self.n = writer, op, n
        self.lane = writer.new(f"and i64 {writer.member}, {WARP - 1}")
        self.sections = 1 if op in ("add", "mul") else SECTIONS

    def partial(self, at: Callable[[str], str], combine: Callable[[str, str], str], ty: str) -> str:
        """The partial result of this thread; `at` gives the element at a place."""
        new = self.w.new
        k = new(f"and i64 {self.lane}, 7")
        most, rest = -(-self.n // 8), self.n % 8
        if self.sections > 1:  # past its end, a section repeats the last element
            each = -(-most // self.sections)
            begin = new(f"mul i64 {new(f'and i64 {self.lane}, {WARP - 8}')}, {each}")
            first = new(f"add i64 {begin}, {k}")
            left = new(f"and i64 {new(f'sub i64 {self.n - 1}, {k}')}, -8")
            end = new(f"add i64 {left}, {k}")
            place = lambda r: new(self.w.intrinsic("smin", "i8", new(f"add i64 {first}, {r}"), end))
            return self._along(at(place("0")), each - 1, lambda x, r: combine(x, at(place(r))), ty)
        total = self._along(at(k), self.n // 8 - 1, lambda x, r: combine(x, at(new(f"add i64 {k}, {r}"))), ty)
        if rest:
            inside = new(f"icmp ult i64 {k}, {rest}")
            last = new(f"select i1 {inside}, i64 {new(f'add i64 {k}, {8 * (most - 1)}')}, i64 {k}")
            total = new(f"select i1 {inside}, {ty} {combine(total, at(last))}, {ty} {total}")
        return total

    def _along(self, total: str, count: int, join: Callable[[str, str], str], ty: str) -> str:
        """`join(total, 8)`, `join(.., 16)` and so on, in so many steps."""
        if count <= 16:
            for r in range(count):
                total = join(total, str(8 * r + 8))
            return total
        (head, done), before = self.w.labels("part", "partdone"), self.w.label
        r, x = f"%r{self.w.fresh}", f"%x{self.w.fresh}"
        self.w.put(f"br label %{head}")
        self.w.start(head)
        hole = self.w.hole()
        more = join(x, r)
        self.w.lines[hole] = (
            f"  {r} = phi i64 [ 8, %{before} ], [ {r}n, %{head} ]\n"
            f"  {x} = phi {ty} [ {total}, %{before} ], [ {more}, %{head} ]"
        )
        self.w.put(f"{r}n = add nuw nsw i64 {r}, 8")
        self.w.put(f"br i1 {self.w.new(f'icmp sle i64 {r}n, {8 * count}')}, label %{head}, label %{done}")
        self.w.start(done)
        return more

    def exchanged(self, total: str, kind: str, combine: Callable[[str, str], str]) -> str:
        """Combine the partial results of the threads, sections first, each in the order of its elements."""
        for bit in (*((8, 16) if self.sections > 1 else ()), 1, 2, 4):
            other = self._other(total, kind, bit)
            if self.op in ("max", "min") and kind == "f8":
                ty = self.w.type(kind)
                second = self.w.new(f"icmp ne i64 {self.w.new(f'and i64 {self.lane}, {bit}')}, 0")
                pair = ((other, total), (total, other))
                total = combine(*(self.w.new(f"select i1 {second}, {ty} {a}, {ty} {b}") for a, b in pair))
            else:
                total = combine(total, other)
        return total

    def largest(self, x: str) -> str:
        """The largest integer among the threads: first its upper half, then the lower."""
        new, fn = self.w.new, self.w.declare("llvm.nvvm.redux.sync.umax", "i32 @(i32, i32)")
        high, low = new(f"trunc i64 {new(f'lshr i64 {x}, 32')} to i32"), new(f"trunc i64 {x} to i32")
        top = new(f"call i32 {fn}(i32 {high}, i32 -1)")
        low = new(f"select i1 {new(f'icmp eq i32 {high}, {top}')}, i32 {low}, i32 0")
        low = new(f"zext i32 {new(f'call i32 {fn}(i32 {low}, i32 -1)')} to i64")
        high = new(f"zext i32 {top} to i64")
        return new(f"or i64 {new(f'shl i64 {high}, 32')}, {low}")

    def _other(self, x: str, kind: str, bit: int) -> str:
        """The value of the thread whose number differs in one bit."""
        new = self.w.new
        fn = self.w.declare("llvm.nvvm.shfl.sync.bfly.i32", "i32 @(i32, i32, i32, i32)")
        send = lambda word: new(f"call i32 {fn}(i32 -1, i32 {word}, i32 {bit}, i32 31)")
        if kind == BOOL:
            return new(f"icmp ne i32 {send(new(f'zext i1 {x} to i32'))}, 0")
        word = new(f"bitcast double {x} to i64") if kind == "f8" else x
        high = send(new(f"trunc i64 {new(f'lshr i64 {word}, 32')} to i32"))
        high = new(f"shl i64 {new(f'zext i32 {high} to i64')}, 32")
        low = new(f"zext i32 {send(new(f'trunc i64 {word} to i32'))} to i64")
        word = new(f"or i64 {high}, {low}")
        return new(f"bitcast i64 {word} to double") if kind == "f8" else word
