"""LLVM IR for blocks, loops, branches and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from .emit_axes import REDUCTIONS, Axes
from .emit_fronts import Fronts
from .emit_loops import Loops
from .emit_scalar import Expressions
from .graph import BOOL, Branches, Defect, Loop, Scope
from .register_order import reordered
from .uniform import uniform_nodes
from .values import Values
from .writer import Writer, scalar_type


class Flow:
    """Emits blocks: the nodes of a scope, with nested scopes. Making one emits nothing; it only indexes the program."""

    def __init__(self, writer: Writer, values: Values, loops: Loops, axes: Axes, expressions: Expressions):
        self.w, self.values, self.loops, self.axes, self.expressions = writer, values, loops, axes, expressions
        fronts = Fronts(writer, values, loops)
        program = writer.program
        self.tables: dict[int, list[str]] = {}  # arrays of constants that are read in place: where they begin, by lane
        self.orders: dict[tuple[Scope, str], list[int]] = {}  # of blocks, where few registers decide
        self.deferred: set[int] = set()  # nodes that are emitted by hand at the end of the step
        self.uniform = uniform_nodes(program) if writer.lanes > 1 else set()
        self.projections: defaultdict[int, list[int]] = defaultdict(list)  # of each loop or branch
        for n in program.live:
            if program.graph.op[n] in ("proj", "collected"):
                self.projections[program.graph.args[n][0]].append(n)
        # nodes that are not one expression
        self.special: dict[str, Callable[[int], None]] = {
            "same": self._same, "select": self.select, "is_finite": self._is_finite, "table": self._table,
            "load": self._load, "fetch": self._fetch, "while": self._while, "cond": self._cond,
            "pack": loops.pack, "join": loops.join,
            **dict.fromkeys(("proj", "collected", "vconst"), self._named_before),
            "ffactor": fronts.factor, "fsolve": fronts.solve, "fshorten": fronts.shorten,
            **dict.fromkeys(REDUCTIONS, axes.reduction),
        }  # fmt: skip

    # -- blocks ------------------------------------------------------------------------------------
    def block(self, scope: Scope, part: str = "all") -> None:
        """Emit the nodes of a scope: all, those before its test (`head`) or those after it (`body`)."""
        block = self.w.program.blocks[scope]
        nodes = block.nodes
        nodes = nodes[: block.head] if part == "head" else nodes[block.head :] if part == "body" else nodes
        self.loops.unsettled = True  # wherever it is entered from
        if self.values.schedule is None:
            if self.w.target.local:
                if (scope, part) not in self.orders:
                    self.orders[scope, part] = reordered(self.w.program, nodes, self.values.common)
                nodes = self.orders[scope, part]
            for n in nodes:
                self.node(n)
            return
        for piece in self.values.schedule.block(scope, part):
            if piece.length:
                self.axes.fused(piece, self.node)
            else:
                for n in piece.nodes:
                    self.node(n)

    def node(self, n: int) -> None:
        g = self.w.graph
        op = g.op[n]
        if n in self.deferred:
            return
        special = self.special.get(op)
        if special is not None:
            special(n)
            return
        self.values.names[n] = self.w.new(self.expressions.expression(n))

    # -- nodes that are not one expression ---------------------------------------------------------
    def _same(self, n: int) -> None:
        self.values.names[n] = self.values.name(self.w.graph.args[n][0])

    def _named_before(self, n: int) -> None:
        """Nothing to emit: the result got its name with its loop or branch."""

    def select(self, n: int) -> None:
        g = self.w.graph
        p, yes, no = g.args[n]
        ty = self.w.type(g.kind[n])
        test, a, b = (self.values.name(x) for x in (p, yes, no))
        self.values.names[n] = self.w.new(f"select {self.w.type(BOOL)} {test}, {ty} {a}, {ty} {b}")

    def _is_finite(self, n: int) -> None:
        (a,) = self.w.graph.args[n]
        kind = self.w.graph.kind[a]
        size = self.w.new(self.w.intrinsic("fabs", kind, self.values.name(a)))
        infinity = self.w.literal(kind, float("inf"))
        self.values.names[n] = self.w.new(f"fcmp olt {self.w.type(kind)} {size}, {infinity}")

    def _table(self, n: int) -> None:
        g = self.w.graph
        kind, args = g.kind[n], g.args[n]
        stored = self.w.stored(kind)
        if all(g.op[a] == "const" for a in args):
            ty = self.w.type(stored)
            items = ", ".join(f"{ty} {self.w.literal(stored, g.attr[a])}" for a in args)
            name = f"@table{n}"
            self.w.globals[name] = f"{name} = internal constant [{len(args)} x {ty}] [{items}], align 64"
        else:
            name = self.w.reserve(len(args), kind)
            for k, a in enumerate(args):
                value = self.w.to_memory(self.values.name(a), kind)
                self.w.put(f"store {self.w.type(stored)} {value}, ptr {self.w.element(name, kind, str(k))}")
        self.values.names[n] = name

    def _load(self, n: int) -> None:
        g = self.w.graph
        table, index = g.args[n]
        kind = g.kind[n]
        ty = self.w.type(self.w.stored(kind))
        if g.length[table]:
            where = self.values.address(self.values.array(table), kind, self._scalar_index(index))
            self.loops.unsettled = True
            self.values.names[n] = self.w.from_memory(self.w.new(f"load {ty}, ptr {where}"), kind)
            return
        base = self.values.name(table)
        if self.w.lanes == 1 or g.op[index] == "const" or index in self.uniform:
            where = self._scalar_index(index)
            raw = self.w.new(f"load {ty}, ptr {self.w.element(base, kind, where)}")
        else:
            scalar = scalar_type(self.w.stored(kind))
            raw = "poison"
            for lane in range(self.w.lanes):
                which = self.w.new(f"extractelement {self.w.type('i8')} {self.values.name(index)}, i32 {lane}")
                row = self.w.element(base, kind, which)
                item = self.w.new(f"load {scalar}, ptr {self.w.new(f'getelementptr {scalar}, ptr {row}, i64 {lane}')}")
                raw = self.w.new(f"insertelement {ty} {raw}, {scalar} {item}, i32 {lane}")
        self.values.names[n] = self.w.from_memory(raw, kind)

    def _fetch(self, n: int) -> None:
        g = self.w.graph
        (index,) = g.args[n]
        if self.w.lanes == 1 or g.op[index] == "const":
            places = [self._scalar_index(index)] * self.w.lanes
        else:
            ty, name = self.w.type("i8"), self.values.name(index)
            places = [self.w.new(f"extractelement {ty} {name}, i32 {lane}") for lane in range(self.w.lanes)]
        self.values.names[n] = self.each_lane(self.tables[g.attr[n]], g.kind[n], places)

    def each_lane(self, starts: list[str], kind: str, places: list[str]) -> str:
        """For each lane, the element at the lane's own place of the lane's own array."""
        scalar = scalar_type(self.w.stored(kind))
        raw = "poison"
        for lane, (start, place) in enumerate(zip(starts, places, strict=True)):
            item = self.w.new(f"load {scalar}, ptr {self.w.new(f'getelementptr {scalar}, ptr {start}, i64 {place}')}")
            if self.w.lanes == 1:
                return self.w.from_memory(item, kind)
            raw = self.w.new(f"insertelement {self.w.type(self.w.stored(kind))} {raw}, {scalar} {item}, i32 {lane}")
        return self.w.from_memory(raw, kind)

    def _scalar_index(self, index: int) -> str:
        g = self.w.graph
        if g.op[index] == "const":
            return str(int(g.attr[index]))
        if self.w.lanes == 1:
            return self.values.name(index)
        if index not in self.uniform:
            raise Defect(f"node {index} ({g.op[index]}) is one index for all lanes, and may differ between them")
        return self.w.new(f"extractelement {self.w.type('i8')} {self.values.name(index)}, i32 0")

    # -- control flow ------------------------------------------------------------------------------
    def _while(self, n: int) -> None:
        g, loop = self.w.graph, self.w.graph.attr[n]
        live = self.w.program.live
        counted = loop.trips is not None
        moving = [j for j, p in enumerate(loop.params) if p in live and not (counted and j == 0)]
        vectors = [j for j in moving if g.length[loop.params[j]]]
        moving = [j for j in moving if not g.length[loop.params[j]]]
        self.loops.assign([(g.args[n][j], self.values.slot(loop.params[j])) for j in vectors])
        tables = self._collectors(n, loop)
        if tables:
            self.loops.wait()
        head, body, done = self.w.labels("head", "body", "done")
        before, outer = self.w.label, self.w.mask
        starts = [self.values.name(g.args[n][j]) for j in moving]
        self.w.put(f"br label %{head}")
        self.w.start(head)
        holes = []  # phi lines are completed when the end of the body is known
        for j in moving:
            p = loop.params[j]
            self.values.names[p] = f"%p{self.w.tag}{p}"
            holes.append(self.w.hole())
        lanes_mask = self.w.lanes > 1 and not counted
        counter, running, active, following = f"%c{self.w.tag}{n}", f"%k{self.w.tag}{n}", "", ""
        counter_hole = self.w.hole() if counted else -1
        mask_hole = self.w.hole() if lanes_mask else -1
        if counted:
            self.values.names[loop.params[0]] = self.w.broadcast(counter, "i64")
        self.block(loop.scope, "head")
        if counted:
            go = self.w.new(f"icmp slt i64 {counter}, {loop.trips}")
        elif lanes_mask:
            active = self.w.new(f"and {self.w.type(BOOL)} {running}, {self.values.name(loop.go)}")
            go = self.w.any(active)
        else:
            go = self.values.name(loop.go)
        self.w.put(f"br i1 {go}, label %{body}, label %{done}")
        self.w.start(body)
        if lanes_mask:
            self.w.mask = active
        self.block(loop.scope, "body")
        for value, table, kind in tables:
            where = self._scalar_index(loop.collect[0])
            stored = self.w.to_memory(self.values.name(value), kind)
            place = self.values.address(table, kind, where) if self.w.lanes == 1 else self.w.element(table, kind, where)
            self.w.put(f"store {self.w.type(self.w.stored(kind))} {stored}, ptr {place}")
        self.loops.assign([(loop.results[j], self.values.slot(loop.params[j])) for j in vectors])
        nexts = []
        for j in moving:
            value = self.values.name(loop.results[j])
            if lanes_mask:
                ty = self.w.type(g.kind[loop.params[j]])
                old = self.values.names[loop.params[j]]
                value = self.w.new(f"select {self.w.type(BOOL)} {active}, {ty} {value}, {ty} {old}")
            nexts.append(value)
        if counted:
            following = self.w.new(f"add nuw nsw i64 {counter}, 1")
        last = self.w.label
        self.w.put(f"br label %{head}")
        for hole, j, first, later in zip(holes, moving, starts, nexts, strict=True):
            p = loop.params[j]
            self.w.lines[hole] = (
                f"  %p{self.w.tag}{p} = phi {self.w.type(g.kind[p])} [ {first}, %{before} ], [ {later}, %{last} ]"
            )
        if counted:
            self.w.lines[counter_hole] = f"  {counter} = phi i64 [ 0, %{before} ], [ {following}, %{last} ]"
        if lanes_mask:
            entry = outer if outer is not None else self.w.splat("true", "i1")
            self.w.lines[mask_hole] = (
                f"  {running} = phi {self.w.type(BOOL)} [ {entry}, %{before} ], [ {active}, %{last} ]"
            )
        self.w.mask = outer
        self.w.start(done)
        self.loops.unsettled = True
        for user in self.projections[n]:
            if g.op[user] == "proj":
                place = self.values.arrays if g.length[user] else self.values.names
                place[user] = place[loop.params[g.attr[user]]]
            elif g.length[user]:
                self.loops.filled(user)

    def _collectors(self, n: int, loop: Loop) -> list[tuple[int, str, str]]:
        tables = []
        for user in self.projections[n]:
            if self.w.graph.op[user] == "collected":
                assert loop.trips is not None
                kind = self.w.graph.kind[user]
                long = self.w.graph.length[user]
                table = self.values.slot(user) if long else self.w.reserve(loop.trips, kind)
                if not long:
                    self.values.names[user] = table
                tables.append((loop.collect[1 + self.w.graph.attr[user]], table, kind))
        return tables

    def _cond(self, n: int) -> None:
        branches: Branches = self.w.graph.attr[n]
        outputs = [u for u in self.projections[n] if self.w.graph.op[u] == "proj"]
        if not outputs:
            return
        if self.w.lanes == 1:
            self._branch(n, branches, outputs)
        else:
            self._blend(n, branches, outputs)

    def _branch(self, n: int, branches: Branches, outputs: list[int]) -> None:
        g = self.w.graph
        (which,) = g.args[n]
        targets = self.w.labels(*(f"case{k}_" for k in range(len(branches.scopes))))
        (done,) = self.w.labels("join")
        if g.kind[which] == BOOL:
            self.w.put(f"br i1 {self.values.name(which)}, label %{targets[1]}, label %{targets[0]}")
        else:
            ty = scalar_type(g.kind[which])
            low = self.w.new(self.w.intrinsic("smax", g.kind[which], self.values.name(which), "0"))
            cases = " ".join(f"{ty} {k}, label %{t}" for k, t in enumerate(targets[:-1]))
            self.w.put(f"switch {ty} {low}, label %{targets[-1]} [ {cases} ]")
        vectors = [u for u in outputs if g.length[u]]
        outputs = [u for u in outputs if not g.length[u]]
        incoming: list[list[str]] = [[] for _ in outputs]
        for scope, results, target in zip(branches.scopes, branches.results, targets, strict=True):
            self.w.start(target)
            self.block(scope)
            self.loops.assign([(results[g.attr[u]], self.values.slot(u)) for u in vectors])
            for u, into in zip(outputs, incoming, strict=True):
                into.append(f"[ {self.values.name(results[g.attr[u]])}, %{self.w.label} ]")
            self.w.put(f"br label %{done}")
        self.w.start(done)
        self.loops.unsettled = True
        for u, into in zip(outputs, incoming, strict=True):
            self.values.names[u] = self.w.new(f"phi {self.w.type(g.kind[u])} {', '.join(into)}")

    def _blend(self, n: int, branches: Branches, outputs: list[int]) -> None:
        """Emit a conditional for SIMD lanes: run each branch that any lane takes, and keep its results in those lanes.

        `outputs` are the nodes that stand for the results of the conditional `n`; they get the blended values.
        """
        g = self.w.graph
        (which,) = g.args[n]
        outer, count = self.w.mask, len(branches.scopes)
        values = {u: self.w.literal(g.kind[u], 0) for u in outputs}
        for k, (scope, results) in enumerate(zip(branches.scopes, branches.results, strict=True)):
            inside = self._is_branch(which, k, count)
            mine = self.w.masked(inside)
            case, done = self.w.labels("case", "join")
            before = self.w.label
            self.w.put(f"br i1 {self.w.any(mine)}, label %{case}, label %{done}")
            self.w.start(case)
            self.w.mask = mine
            self.block(scope)
            self.w.mask = outer
            computed = {u: self.values.name(results[g.attr[u]]) for u in outputs}
            mixed = {
                u: self.w.new(f"select {self.w.type(BOOL)} {mine}, {self.w.type(g.kind[u])} {computed[u]}, "
                            f"{self.w.type(g.kind[u])} {values[u]}")
                for u in outputs
            }  # fmt: skip
            last = self.w.label
            self.w.put(f"br label %{done}")
            self.w.start(done)
            for u in outputs:
                values[u] = self.w.new(
                    f"phi {self.w.type(g.kind[u])} [ {mixed[u]}, %{last} ], [ {values[u]}, %{before} ]"
                )
        self.values.names.update(values)

    def _is_branch(self, which: int, k: int, count: int) -> str:
        kind, name = self.w.graph.kind[which], self.values.name(which)
        if kind == BOOL:
            if k == 1:
                return name
            return self.w.new(f"xor {self.w.type(BOOL)} {name}, {self.w.splat('true', 'i1')}")
        test = "sle" if k == 0 else "sge" if k == count - 1 else "eq"
        return self.w.new(f"icmp {test} {self.w.type(kind)} {name}, {self.w.splat(str(k), scalar_type(kind))}")
