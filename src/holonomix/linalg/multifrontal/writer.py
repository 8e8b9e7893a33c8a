"""A writer of LLVM text: loops, tables, numbers and blocks of numbers, for one trajectory or for lanes."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

from .plan import BLOCK, HEADER, RECORD

FRONT = ("f", "p", "held", "rows", "upper", "lower", "given", "count", "joined", "children", "left", "first", "half")


class Writer:
    """Text of one function at a time; counters are in stack slots, which LLVM turns into registers."""

    def __init__(self, lanes: int, fma: bool):
        self.lanes, self.fma = lanes, fma
        self.number = "double" if lanes == 1 else f"<{lanes} x double>"
        self.truth = "i1" if lanes == 1 else f"<{lanes} x i1>"
        self.declared: set[str] = set()
        self.fresh = 0

    def define(self, name: str, arguments: str, body: Callable[[], None]) -> str:
        self.lines: list[str] = []
        self.slots: list[str] = []
        body()
        head = f"define internal void @multifrontal_{name}_{self.lanes}({arguments}) noinline nounwind {{"
        return "\n".join([head, "entry:", *self.slots, *self.lines, "  ret void", "}"])

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def op(self, text: str) -> str:
        self.fresh += 1
        self.put(f"%v{self.fresh} = {text}")
        return f"%v{self.fresh}"

    # -- integers ------------------------------------------------------------------------------------------------
    def add(self, a: str, b: str | int) -> str:
        return self.op(f"add nsw i64 {a}, {b}")

    def sub(self, a: str, b: str | int) -> str:
        return self.op(f"sub nsw i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        return self.op(f"mul nsw i64 {a}, {b}")

    def down(self, a: str) -> str:
        """The beginning of the block that an index is in."""
        return self.op(f"and i64 {a}, {-BLOCK}")

    def table(self, index: str) -> str:
        where = self.op(f"getelementptr i32, ptr %table, i64 {index}")
        return self.op(f"sext i32 {self.op(f'load i32, ptr {where}')} to i64")

    def slot(self, ty: str, value: str) -> str:
        self.fresh += 1
        name = f"%s{self.fresh}"
        self.slots.append(f"  {name} = alloca {ty}")
        self.put(f"store {ty} {value}, ptr {name}")
        return name

    def get(self, slot: str, ty: str = "i64") -> str:
        return self.op(f"load {ty}, ptr {slot}")

    def set(self, slot: str, value: str, ty: str = "i64") -> None:
        self.put(f"store {ty} {value}, ptr {slot}")

    @contextlib.contextmanager
    def loop(self, first: str | int, last: str | int, step: int = 1) -> Iterator[str]:
        """`for i in range(first, last, step)`; with a negative step from `last - 1` down to `first`."""
        self.fresh += 1
        tag = self.fresh
        start = self.sub(str(last), 1) if step < 0 else str(first)
        counter = self.slot("i64", start)
        self.put(f"br label %head{tag}")
        self.lines.append(f"head{tag}:")
        i = self.get(counter)
        more = self.op(f"icmp {f'sge i64 {i}, {first}' if step < 0 else f'slt i64 {i}, {last}'}")
        self.put(f"br i1 {more}, label %body{tag}, label %done{tag}")
        self.lines.append(f"body{tag}:")
        yield i
        self.set(counter, self.add(i, step))
        self.put(f"br label %head{tag}")
        self.lines.append(f"done{tag}:")

    @contextlib.contextmanager
    def where(self, condition: str) -> Iterator[None]:
        self.fresh += 1
        tag = self.fresh
        self.put(f"br i1 {condition}, label %then{tag}, label %after{tag}")
        self.lines.append(f"then{tag}:")
        yield
        self.put(f"br label %after{tag}")
        self.lines.append(f"after{tag}:")

    # -- numbers -------------------------------------------------------------------------------------------------
    def splat(self, value: float) -> str:
        bits = f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        return bits if self.lanes == 1 else "<" + ", ".join([f"double {bits}"] * self.lanes) + ">"

    def at(self, base: str, index: str) -> str:
        return self.op(f"getelementptr {self.number}, ptr {base}, i64 {index}")

    def load(self, base: str, index: str) -> str:
        return self.op(f"load {self.number}, ptr {self.at(base, index)}, align 8")

    def store(self, value: str, base: str, index: str) -> None:
        self.put(f"store {self.number} {value}, ptr {self.at(base, index)}, align 8")

    def _call(self, stem: str, ty: str, *args: str) -> str:
        suffix = "f64" if ty == "double" else "v" + ty[1:].split()[0] + "f64"
        self.declared.add(f"declare {ty} @llvm.{stem}.{suffix}({', '.join([ty] * len(args))})")
        return self.op(f"call {ty} @llvm.{stem}.{suffix}({', '.join(f'{ty} {a}' for a in args)})")

    def size(self, x: str) -> str:
        return self._call("fabs", self.number, x)

    def fused(self, ty: str, a: str, b: str, c: str) -> str:
        """`a b + c`, with one rounding if the processor supports it."""
        if self.fma:
            return self._call("fma", ty, a, b, c)
        return self.op(f"fadd {ty} {self.op(f'fmul {ty} {a}, {b}')}, {c}")

    def times(self, ty: str, a: str, b: str) -> str:
        return self.op(f"fmul {ty} {a}, {b}")

    # -- blocks --------------------------------------------------------------------------------------------------
    @property
    def wide(self) -> str:
        return f"<{BLOCK} x double>"

    def blocks(self, fn: Callable[..., str], *blocks: list[str]) -> list[str]:
        """`fn(type, ...)` for each register of some blocks."""
        ty = self.wide if self.lanes == 1 else self.number
        return [fn(ty, *x) for x in zip(*blocks, strict=True)]

    def load_block(self, base: str, index: str) -> list[str]:
        if self.lanes == 1:
            return [self.op(f"load {self.wide}, ptr {self.at(base, index)}, align 8")]
        return [self.load(base, self.add(index, k)) for k in range(BLOCK)]

    def store_block(self, values: list[str], base: str, index: str) -> None:
        if self.lanes == 1:
            self.put(f"store {self.wide} {values[0]}, ptr {self.at(base, index)}, align 8")
        else:
            for k, value in enumerate(values):
                self.store(value, base, self.add(index, k))

    def broadcast(self, x: str) -> list[str]:
        """A block of equal numbers."""
        if self.lanes > 1:
            return [x] * BLOCK
        first = self.op(f"insertelement {self.wide} poison, double {x}, i32 0")
        return [self.op(f"shufflevector {self.wide} {first}, {self.wide} poison, <{BLOCK} x i32> zeroinitializer")]

    def zeros(self) -> list[str]:
        return ["zeroinitializer"] if self.lanes == 1 else [self.splat(0.0)] * BLOCK

    def total(self, block: list[str]) -> str:
        """The sum of a block: neighbors, then their sums."""
        if self.lanes == 1:
            block = [self.op(f"extractelement {self.wide} {block[0]}, i32 {k}") for k in range(BLOCK)]
        while len(block) > 1:
            pairs = zip(block[::2], block[1::2], strict=True)
            block = [self.op(f"fadd {self.number} {a}, {b}") for a, b in pairs]
        return block[0]

    def dot(self, a: str, at: str, b: str, bt: str, first: str | int, last: str) -> str:
        """The sum over `first <= j < last`, whole blocks, of `a[at + j] b[bt + j]`."""
        ty = self.wide if self.lanes == 1 else self.number
        sums = [self.slot(ty, z) for z in self.zeros()]
        with self.loop(first, last, BLOCK) as j:
            x, y = self.load_block(a, self.add(at, j)), self.load_block(b, self.add(bt, j))
            new = self.blocks(self.fused, x, y, [self.get(s, ty) for s in sums])
            for s, value in zip(sums, new, strict=True):
                self.set(s, value, ty)
        return self.total([self.get(s, ty) for s in sums])

    def subtract(self, y: str, yt: str, factor: str, a: str, at: str, first: str | int, last: str) -> None:
        """`y[yt + j] -= factor a[at + j]` for whole blocks of j."""
        minus = self.broadcast(self.op(f"fneg {self.number} {factor}"))
        with self.loop(first, last, BLOCK) as j:
            place = self.add(yt, j)
            x, old = self.load_block(a, self.add(at, j)), self.load_block(y, place)
            self.store_block(self.blocks(self.fused, minus, x, old), y, place)

    def clear(self, base: str, first: str | int, last: str) -> None:
        with self.loop(first, last, BLOCK) as j:
            self.store_block(self.zeros(), base, j)

    def front(self, s: str) -> dict[str, str]:
        """The record of a front."""
        start = self.add(self.mul(s, RECORD), HEADER)
        return {name: self.table(self.add(start, k)) for k, name in enumerate(FRONT)}

    def any(self, mask: str) -> str:
        if self.lanes == 1:
            return mask
        bits = self.op(f"bitcast {self.truth} {mask} to i{self.lanes}")
        return self.op(f"icmp ne i{self.lanes} {bits}, 0")
