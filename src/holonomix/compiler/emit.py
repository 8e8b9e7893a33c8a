"""Writes the scheduled program as LLVM IR text, for one trajectory or for lanes of a batch.

One function does everything: it takes a table of 64-bit words (counts, then addresses and strides, see `Layout`) and
runs all rows and steps of all groups of lanes it was given. With `lanes` of 1 the types are scalar and loops and
branches are real ones; otherwise every value is a vector with one element a trajectory, loops run while any lane
wants to, and finished lanes keep their values by a select. Operations carry no fast-math flags, so a lane's bits are
those of the scalar form.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from .emit_axes import Axes
from .emit_flow import Flow
from .emit_gpu import QuickMath
from .emit_loops import Loops
from .emit_scalar import Expressions
from .graph import BOOL
from .passes import frozen
from .program import Leaf, Program
from .register_order import used_outside
from .values import ARENA, Values
from .writer import Target, Writer, scalar_type

KERNEL = "holonomix_kernel"
NATIVE = Target()
TWICE = 1_000  # programs of at most so many operations are written twice for lanes: quick and careful steps
SPARSE = 4  # an array of constants is packed for the lanes if at least one in so many elements is used


@dataclass(frozen=True)
class Layout:
    """Layout of the table of 64-bit words that a kernel receives."""

    consts: int
    carry: int
    rows: int

    FIRST, LAST, BATCH, ROWS, EVERY = range(5)

    @functools.cached_property
    def const_pointers(self) -> int:
        return 5

    @functools.cached_property
    def const_strides(self) -> int:
        return self.const_pointers + self.consts

    @functools.cached_property
    def carry_in(self) -> int:
        return self.const_strides + self.consts

    @functools.cached_property
    def carry_out(self) -> int:
        return self.carry_in + self.carry

    @functools.cached_property
    def row_pointers(self) -> int:
        return self.carry_out + self.carry

    @functools.cached_property
    def size(self) -> int:
        return self.row_pointers + self.rows

    @classmethod
    def of(cls, program: Program) -> Layout:
        return cls(len(program.consts), len(program.carry), len(program.rows))


class KernelEmitter:
    """The loops over groups of lanes, rows and steps, and loads and stores of the interface.

    `module` is the text; `width` is the number of elements of a long axis in one register. At most
    `STACK` bytes of arrays are on the stack, since a thread may have little; for others callers give `scratch` bytes.
    """

    def __init__(self, program: Program, lanes: int, fma: bool, width: int = 1, target: Target = NATIVE):
        self.w = Writer(program, lanes, fma, target)
        self.values = Values(self.w, width)
        self.expressions = Expressions(self.w, self.values)
        self.loops = Loops(self.w, self.values)
        self.axes = Axes(self.w, self.values, self.loops, self.expressions)
        self.flow = Flow(self.w, self.values, self.loops, self.axes, self.expressions)
        self.loads = "load"  # of what enters

    @property
    def scratch(self) -> int:
        """Bytes of memory that each call needs."""
        return self.w.scratch

    @property
    def declared(self) -> dict[str, str]:
        """The declarations of external functions, by name."""
        return self.w.declared

    def _groups(self) -> tuple[str, str, str]:
        """The first group of lanes, the end, and the stride."""
        if self.w.target.threads is None:
            return self.word(Layout.FIRST), self.word(Layout.LAST), "1"
        first, stride = self.w.target.threads(self.w)
        return first, self.batch, stride

    def module(self) -> str:
        self._kernel()
        if self.w.scratch:
            self.w.entry.insert(0, "  %scratch = load ptr, ptr %scratch.word")
            word = Layout.of(self.w.program).size
            self.w.entry.insert(0, f"  %scratch.word = getelementptr inbounds i64, ptr %args, i64 {word}")
        if self.values.space and self.w.target.team:
            self.w.globals["@shared"] = "@shared = external addrspace(3) global [0 x i8], align 16"
            self.w.entry.append(f"  {ARENA} = getelementptr i8, ptr addrspace(3) @shared, i32 0")
        elif self.values.space:
            name = f"{ARENA}.generic" if self.values.local else ARENA
            self.w.entry.append(f"  {name} = alloca [{self.values.space} x i8], align 64")
            if self.values.local:
                self.w.entry.append(f"  {ARENA} = addrspacecast ptr {name} to ptr {self.values.local}")
        own = [f"  {name} = alloca {ty}" for name, ty in self.values.own.items()]
        body = ["entry:", *own, *self.w.entry, "  br label %setup", *self.w.lines]
        parts = [
            *self.w.globals.values(),
            *self.w.declared.values(),
            *self.w.helpers.values(),
            f"define {self.w.target.convention}void @{KERNEL}(ptr noalias readonly %args) nounwind {{",
            *body,
            "}",
            '!0 = !{!"branch_weights", i32 1, i32 100000}',
        ]
        return "\n".join(parts) + "\n"

    def word(self, index: int, ty: str = "i64") -> str:
        return self.w.new(f"load {ty}, ptr {self.w.new(f'getelementptr inbounds i64, ptr %args, i64 {index}')}")

    def _kernel(self) -> None:
        program, layout = self.w.program, Layout.of(self.w.program)
        self.w.start("setup")
        self.batch, self.rows, every = (self.word(k) for k in (Layout.BATCH, Layout.ROWS, Layout.EVERY))
        first, last, stride = self._groups()
        self.w.put("br label %group")
        self.w.start("group")
        group_hole = self.w.hole()
        more = self.w.new(f"icmp slt i64 %g, {last}")
        self.w.put(f"br i1 {more}, label %work, label %exit")
        self.w.start("work")
        tables = {self.w.graph.attr[n] for n in program.live if self.w.graph.op[n] == "fetch"}
        for k, leaf in enumerate(program.consts):
            wanted = [(j, n) for j, n in enumerate(leaf.nodes) if n in program.live]
            if wanted or k in tables:
                between = self.word(layout.const_strides + k)
                self._load(leaf, layout.const_pointers + k, between, wanted, k if k in tables else None)
        self.flow.block(self.w.graph.root)
        if self.w.target.common:
            self.values.share(sorted(n for n in self.values.names if n in used_outside(program)))
        if self.w.target.quick or (self.w.lanes > 1 and program.operations <= TWICE):
            self._quick_trajectory(every)
        else:
            self._trajectory(every)
        self.w.start("next")
        self.w.lines[group_hole] = f"  %g = phi i64 [ {first}, %setup ], [ %g.next, %next ]"
        self.w.put(f"%g.next = add nuw nsw i64 %g, {stride}")
        self.w.put("br label %group")
        self.w.start("exit")
        self.w.put("ret void")

    def _quick_trajectory(self, every: str) -> None:
        """All rows of one group with quick steps; where these fail, again from the start with careful ones."""
        self.w.tag, self.expressions.quick = "q", QuickMath(self.w) if self.w.target.quick else None
        before = len(self.w.entry)
        self._trajectory(every)
        self.w.tag, self.expressions.quick, self.loads = "", None, "load volatile"
        self.w.again = [line.split()[0] for line in self.w.entry[before:]]
        self.w.start("again")
        self._trajectory(every)

    def _trajectory(self, every: str) -> None:
        """All rows of one group: read the carry, run, write the carry, branch to `next`."""
        program, layout, L, tag = self.w.program, Layout.of(self.w.program), self.w.lanes, self.w.tag
        forget, others = self.w.hole(), set(self.values.own)
        for k, leaf in enumerate(program.carry):
            self._load(leaf, layout.carry_in + k, str(leaf.count), list(enumerate(leaf.nodes)))
        carry = [n for leaf in program.carry if not leaf.length for n in leaf.nodes]
        vectors = [n for leaf in program.carry if leaf.length for n in leaf.nodes]
        starts = [self.values.names[n] for n in carry]
        types = [self.w.type(self.w.graph.kind[n]) for n in carry]
        row, step, done = f"row{tag}", f"step{tag}", f"rowdone{tag}"
        r, s = f"%r{tag}", f"%s{tag}"
        before = self.w.label
        self.w.put(f"br label %{row}")

        self.w.start(row)
        self.w.put(f"{r} = phi i64 [ 0, %{before} ], [ {r}.next, %{done} ]")
        for n, ty, x in zip(carry, types, starts, strict=True):
            self.w.put(f"%a{tag}{n} = phi {ty} [ {x}, %{before} ], [ %b{tag}{n}, %{done} ]")
        self.w.put(f"{r}.more = icmp slt i64 {r}, {self.rows}")
        self.w.put(f"br i1 {r}.more, label %{step}, label %finish{tag}")

        self.w.start(step)
        hole = self.w.hole()
        for n in carry:
            self.values.names[n] = f"%b{tag}{n}"
        self.flow.block(program.scope, "head")
        halted = self.values.name(program.halted)
        active = self.w.new(f"xor {self.w.type(BOOL)} {halted}, {self.w.splat('true', 'i1')}")
        unfinished = self.w.new(f"icmp slt i64 {s}, {every}")
        go = self.w.new(f"and i1 {unfinished}, {self.w.any(active)}")
        self.w.put(f"br i1 {go}, label %advance{tag}, label %rowend{tag}")

        self.w.start(f"advance{tag}")
        self.w.mask = active if L > 1 and not tag else None
        failed, kept = frozen(program)
        self.flow.deferred = set(kept)
        self.flow.block(program.scope, "body")
        self.w.mask = None
        nodes = [n for leaf in program.step if not leaf.length for n in leaf.nodes]
        copies = [(n, self.values.slot(c)) for n, c in zip(self._vectors(program.step), vectors, strict=True)]
        self.w.put(f"{s}.next = add nuw nsw i64 {s}, 1")
        ends = self._lane_ends(active, carry, types, nodes, failed) if L > 1 else self._ends(nodes, failed, copies)
        phis = [f"  {s} = phi i64 [ 0, %{row} ], " + ", ".join(f"[ {s}.next, %{label} ]" for label, _ in ends)]
        for k, (n, ty) in enumerate(zip(carry, types, strict=True)):
            later = ", ".join(f"[ {values[k]}, %{label} ]" for label, values in ends)
            phis.append(f"  %b{tag}{n} = phi {ty} [ %a{tag}{n}, %{row} ], {later}")
        self.w.lines[hole] = "\n".join(phis)

        self.w.start(f"rowend{tag}")
        read = [n for leaf in program.read_carry if not leaf.length for n in leaf.nodes]
        for n, m in zip(carry, read, strict=True):
            self.values.names[m] = f"%b{tag}{n}"
        for n, m in zip(vectors, self._vectors(program.read_carry), strict=True):
            self.values.arrays[m] = self.values.arrays[n]
        self.flow.block(program.read_scope)
        for k, leaf in enumerate(program.rows):
            lane_stride = self.w.new(f"mul i64 {self.rows}, {leaf.count}")
            offset = self.w.new(f"mul i64 {r}, {leaf.count}")
            values = [] if leaf.length else [self.values.name(n) for n in leaf.nodes]
            self._store(leaf, leaf.nodes, values, layout.row_pointers + k, lane_stride, offset)
        self.w.put(f"br label %{done}")
        self.w.start(done)
        self.w.put(f"{r}.next = add nuw nsw i64 {r}, 1")
        self.w.put(f"br label %{row}")

        self.w.start(f"finish{tag}")
        for k, leaf in enumerate(program.carry):
            values = [] if leaf.length else [f"%a{tag}{n}" for n in leaf.nodes]
            self._store(leaf, leaf.nodes, values, layout.carry_out + k, str(leaf.count), "0")
        self.w.put("br label %next")
        # so that nothing of another trajectory is kept
        new = [(name, ty) for name, ty in self.values.own.items() if name not in others]
        self.w.lines[forget] = "\n".join(f"  store {ty} zeroinitializer, ptr {name}" for name, ty in new)

    @staticmethod
    def _vectors(leaves: list[Leaf]) -> list[int]:
        return [n for leaf in leaves if leaf.length for n in leaf.nodes]

    def _ends(self, nodes: list[int], failed: int | None, copies: list[tuple[int, str]]) -> list[tuple[str, list[str]]]:
        """Close the step; returns the label and the new values of each branch back to its start."""
        if self.expressions.quick is not None:
            bad = self.expressions.quick.strange()
            if failed is not None:
                bad = self.w.new(f"or i1 {bad}, {self.values.name(failed)}")
            self.w.put(f"br i1 {bad}, label %again, label %moved{self.w.tag}, !prof !0")
            self.w.start(f"moved{self.w.tag}")
            return [self._way_back(nodes, copies, 2)]
        if failed is None:
            return [self._way_back(nodes, copies)]
        frozen, moved = f"frozen{self.w.tag}", f"moved{self.w.tag}"
        self.w.put(f"br i1 {self.values.name(failed)}, label %{frozen}, label %{moved}, !prof !0")
        self.w.start(frozen)
        first = self._way_back(nodes, copies, 1)
        self.w.start(moved)
        return [first, self._way_back(nodes, copies, 2)]

    def _way_back(self, nodes: list[int], copies: list[tuple[int, str]], side: int = 0) -> tuple[str, list[str]]:
        """Branch to the start of the next step, with the selected values on one side (2: no failure)."""

        def chosen(n: int) -> int:
            return self.w.graph.args[n][side] if n in self.flow.deferred else n

        values = [self.values.name(chosen(n)) for n in nodes]
        self.loops.assign([(chosen(n), target) for n, target in copies])
        self.w.put(f"br label %step{self.w.tag}")
        return self.w.label, values

    def _lane_ends(
        self, active: str, carry: Sequence[int], types: Sequence[str], nodes: Sequence[int], failed: int | None
    ) -> list[tuple[str, list[str]]]:
        """The same for lanes: the new values at once where all lanes are well, else a select for each value."""
        good = active
        if failed is not None:
            fine = self.w.new(f"xor {self.w.type(BOOL)} {self.values.name(failed)}, {self.w.splat('true', 'i1')}")
            good = self.w.new(f"and {self.w.type(BOOL)} {active}, {fine}")
        word = self.w.new(f"bitcast <{self.w.lanes} x i1> {good} to i{self.w.lanes}")
        mixed = self.w.new(f"icmp ne i{self.w.lanes} {word}, -1")
        quick, moved = bool(self.w.tag), f"moved{self.w.tag}"
        self.w.put(f"br i1 {mixed}, label %{'again' if quick else 'mixed'}, label %{moved}, !prof !0")
        self.w.start(moved)
        values = [self.values.name(self.w.graph.args[n][2] if n in self.flow.deferred else n) for n in nodes]
        self.w.put(f"br label %step{self.w.tag}")
        ends = [(moved, values)]
        if quick:  # where a lane fails or has halted, all lanes begin again with steps that keep the state before them
            return ends
        self.w.start("mixed")
        values = []
        for n, c, ty in zip(nodes, carry, types, strict=True):
            mask = active
            if n in self.flow.deferred:
                _, yes, no = self.w.graph.args[n]
                if yes == c:
                    n, mask = no, good
                else:
                    self.flow.select(n)
            name = self.values.name(n)
            same = name == f"%b{c}"
            values.append(name if same else self.w.new(f"select {self.w.type(BOOL)} {mask}, {ty} {name}, {ty} %b{c}"))
        self.w.put("br label %step")
        return [*ends, ("mixed", values)]

    # -- memory ------------------------------------------------------------------------------------
    def _load(
        self, leaf: Leaf, pointer: int, stride: str, wanted: list[tuple[int, int]], table: int | None = None
    ) -> None:
        """Name the nodes of a leaf, which is stored at `base[trajectory * stride + k]`.

        `table` is the number of an array of constants that is read at places that depend on data. It stays where it
        is, as does one of which few elements are used; others are packed for the lanes as a whole.
        """
        base, kind = self.word(pointer, "ptr"), self.w.stored(leaf.kind)
        scalar = scalar_type(kind)
        if leaf.length:
            start = self.w.new(f"getelementptr {scalar}, ptr {base}, i64 {self.w.new(f'mul i64 %g, {stride}')}")
            self.loops.gathered_leaf(leaf, [(leaf.starts[k], n) for k, n in wanted], start)
            return
        if self.w.lanes == 1:
            start = self.w.new(f"getelementptr {scalar}, ptr {base}, i64 {self.w.new(f'mul i64 %g, {stride}')}")
            starts = [start]
        elif table is not None or SPARSE * len(wanted) < leaf.count:
            start, starts = "", self._lane_starts(scalar, base, stride)
            for k, n in wanted:
                self.values.names[n] = self.flow.each_lane(starts, leaf.kind, [str(k)] * self.w.lanes)
            wanted = []
        else:
            starts = []
            start = self.w.reserve(leaf.count, leaf.kind)
            fn = self._transfer(scalar, pack=True)
            self.w.put(
                f"call void {fn}(ptr {start}, ptr {base}, i64 {leaf.count}, i64 {stride}, i64 %g, i64 {self.batch})"
            )
        for k, n in wanted:
            raw = self.w.new(f"{self.loads} {self.w.type(kind)}, ptr {self.w.element(start, leaf.kind, str(k))}")
            self.values.names[n] = self.w.from_memory(raw, leaf.kind)
        if table is not None:
            self.flow.tables[table] = starts

    def _lane_starts(self, scalar: str, base: str, stride: str) -> list[str]:
        """Where the array of each lane begins; lanes past the end of the batch repeat the last trajectory."""
        last, first = self.w.new(f"sub i64 {self.batch}, 1"), self.w.new(f"mul i64 %g, {self.w.lanes}")
        starts = []
        for k in range(self.w.lanes):
            lane = self.w.new(f"add i64 {first}, {k}")
            inside = self.w.new(f"icmp slt i64 {lane}, {last}")
            lane = self.w.new(f"select i1 {inside}, i64 {lane}, i64 {last}")
            starts.append(
                self.w.new(f"getelementptr {scalar}, ptr {base}, i64 {self.w.new(f'mul i64 {lane}, {stride}')}")
            )
        return starts

    def _store(
        self, leaf: Leaf, nodes: tuple[int, ...], values: list[str], pointer: int, stride: str, offset: str
    ) -> None:
        """Write values to `base[trajectory * stride + offset + k]`."""
        kind = self.w.stored(leaf.kind)
        scalar = scalar_type(kind)
        if not nodes:
            return
        base = self.w.new(f"getelementptr {scalar}, ptr {self.word(pointer, 'ptr')}, i64 {offset}")
        if self.w.lanes == 1:
            target = self.w.new(f"getelementptr {scalar}, ptr {base}, i64 {self.w.new(f'mul i64 %g, {stride}')}")
        else:
            target = self.w.reserve(leaf.count, leaf.kind)
        if leaf.length:
            self.loops.spread_leaf(leaf, nodes, target)
        for k, value in enumerate(values):
            stored = self.w.to_memory(value, leaf.kind)
            self.w.put(f"store {self.w.type(kind)} {stored}, ptr {self.w.element(target, leaf.kind, str(k))}")
        if self.w.lanes > 1:
            fn = self._transfer(scalar, pack=False)
            self.w.put(
                f"call void {fn}(ptr {target}, ptr {base}, i64 {leaf.count}, i64 {stride}, i64 %g, i64 {self.batch})"
            )

    def _transfer(self, scalar: str, pack: bool) -> str:
        """A helper that interleaves (`pack`) or separates the lanes of an array.

        Lanes past the end of the batch repeat the last trajectory: they read and write the same bits.
        """
        name = f"@{'pack' if pack else 'unpack'}_{scalar}"
        if name in self.w.helpers:
            return name
        L = self.w.lanes
        text = [
            f"define internal void {name}(ptr noalias %buffer, ptr noalias %base, i64 %count, i64 %stride, i64 %g, "
            "i64 %batch) noinline nounwind {",
            "entry:",
            "  %last = sub i64 %batch, 1",
            f"  %lane0 = mul i64 %g, {L}",
        ]
        for k in range(L):
            text += [
                f"  %i{k} = add i64 %lane0, {k}",
                f"  %in{k} = icmp slt i64 %i{k}, %last",
                f"  %j{k} = select i1 %in{k}, i64 %i{k}, i64 %last",
                f"  %o{k} = mul i64 %j{k}, %stride",
                f"  %p{k} = getelementptr {scalar}, ptr %base, i64 %o{k}",
            ]
        text += [
            "  br label %loop",
            "loop:",
            "  %e = phi i64 [ 0, %entry ], [ %e.next, %body ]",
            "  %more = icmp slt i64 %e, %count",
            "  br i1 %more, label %body, label %exit",
            "body:",
            f"  %row = mul i64 %e, {L}",
        ]
        for k in range(L):
            text += [
                f"  %q{k} = getelementptr {scalar}, ptr %p{k}, i64 %e",
                f"  %b{k} = add i64 %row, {k}",
                f"  %c{k} = getelementptr {scalar}, ptr %buffer, i64 %b{k}",
                f"  %v{k} = load {scalar}, ptr {f'%q{k}' if pack else f'%c{k}'}",
                f"  store {scalar} %v{k}, ptr {f'%c{k}' if pack else f'%q{k}'}",
            ]
        text += ["  %e.next = add i64 %e, 1", "  br label %loop", "exit:", "  ret void", "}"]
        self.w.helpers[name] = "\n".join(text)
        return name
