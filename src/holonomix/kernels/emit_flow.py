"""LLVM IR for blocks, loops, branches and tables."""

from __future__ import annotations

from .emit_axes import AxisEmitter
from .graph import BOOL, Branches, Defect, Loop, Scope
from .writer import scalar_type


class FlowEmitter(AxisEmitter):
    """Adds `block`, which emits the nodes of a scope with all that is inside them."""

    # -- blocks ------------------------------------------------------------------------------------
    def block(self, scope: Scope, part: str = "all") -> None:
        """Emit the nodes of a scope: all, those before its test (`head`) or those after it (`body`)."""
        block = self.program.blocks[scope]
        nodes = block.nodes
        nodes = nodes[: block.head] if part == "head" else nodes[block.head :] if part == "body" else nodes
        if self.schedule is None:
            for n in nodes:
                self.node(n)
            return
        for piece in self.schedule.block(scope, part):
            if piece.length:
                self.fused(piece)
            else:
                for n in piece.nodes:
                    self.node(n)

    def node(self, n: int) -> None:
        g = self.graph
        op = g.op[n]
        if n in self.deferred:
            return
        special = getattr(self, f"_op_{op}", None)
        if special is not None:
            special(n)
            return
        self.names[n] = self.new(self.expression(n))

    # -- nodes that are not one expression ---------------------------------------------------------
    def _op_same(self, n: int) -> None:
        self.names[n] = self.name(self.graph.args[n][0])

    def _op_proj(self, n: int) -> None:
        """Named when its loop or branch was emitted."""

    _op_collected = _op_vconst = _op_proj

    def _op_select(self, n: int) -> None:
        g = self.graph
        p, yes, no = g.args[n]
        ty = self.type(g.kind[n])
        self.names[n] = self.new(
            f"select {self.type(BOOL)} {self.name(p)}, {ty} {self.name(yes)}, {ty} {self.name(no)}"
        )

    def _op_is_finite(self, n: int) -> None:
        (a,) = self.graph.args[n]
        kind = self.graph.kind[a]
        size = self.new(self.intrinsic("fabs", kind, self.name(a)))
        infinity = self.literal(kind, float("inf"))
        self.names[n] = self.new(f"fcmp olt {self.type(kind)} {size}, {infinity}")

    def _op_table(self, n: int) -> None:
        g = self.graph
        kind, args = g.kind[n], g.args[n]
        stored = self.stored(kind)
        if all(g.op[a] == "const" for a in args):
            ty = self.type(stored)
            items = ", ".join(f"{ty} {self.literal(stored, g.attr[a])}" for a in args)
            name = f"@table{n}"
            self.globals[name] = f"{name} = internal constant [{len(args)} x {ty}] [{items}], align 64"
        else:
            name = self.reserve(len(args), kind)
            for k, a in enumerate(args):
                value = self.to_memory(self.name(a), kind)
                self.put(f"store {self.type(stored)} {value}, ptr {self.element(name, kind, str(k))}")
        self.names[n] = name

    def _op_load(self, n: int) -> None:
        g = self.graph
        table, index = g.args[n]
        kind = g.kind[n]
        ty = self.type(self.stored(kind))
        if g.length[table]:
            where = self.address(self.array(table), kind, self._scalar_index(index))
            self.names[n] = self.from_memory(self.new(f"load {ty}, ptr {where}"), kind)
            return
        base = self.name(table)
        if self.lanes == 1 or g.op[index] == "const" or index in self.uniform:
            where = self._scalar_index(index)
            raw = self.new(f"load {ty}, ptr {self.element(base, kind, where)}")
        else:
            scalar = scalar_type(self.stored(kind))
            raw = "poison"
            for lane in range(self.lanes):
                which = self.new(f"extractelement {self.type('i8')} {self.name(index)}, i32 {lane}")
                row = self.element(base, kind, which)
                item = self.new(f"load {scalar}, ptr {self.new(f'getelementptr {scalar}, ptr {row}, i64 {lane}')}")
                raw = self.new(f"insertelement {ty} {raw}, {scalar} {item}, i32 {lane}")
        self.names[n] = self.from_memory(raw, kind)

    def _op_fetch(self, n: int) -> None:
        g = self.graph
        (index,) = g.args[n]
        if self.lanes == 1 or g.op[index] == "const":
            places = [self._scalar_index(index)] * self.lanes
        else:
            ty, name = self.type("i8"), self.name(index)
            places = [self.new(f"extractelement {ty} {name}, i32 {lane}") for lane in range(self.lanes)]
        self.names[n] = self.each_lane(self.tables[g.attr[n]], g.kind[n], places)

    def each_lane(self, starts: list[str], kind: str, places: list[str]) -> str:
        """The element at its own place of its own array for each lane."""
        scalar = scalar_type(self.stored(kind))
        raw = "poison"
        for lane, (start, place) in enumerate(zip(starts, places, strict=True)):
            item = self.new(f"load {scalar}, ptr {self.new(f'getelementptr {scalar}, ptr {start}, i64 {place}')}")
            if self.lanes == 1:
                return self.from_memory(item, kind)
            raw = self.new(f"insertelement {self.type(self.stored(kind))} {raw}, {scalar} {item}, i32 {lane}")
        return self.from_memory(raw, kind)

    def _scalar_index(self, index: int) -> str:
        g = self.graph
        if g.op[index] == "const":
            return str(int(g.attr[index]))
        if self.lanes == 1:
            return self.name(index)
        if index not in self.uniform:
            raise Defect(f"node {index} ({g.op[index]}) is one index for all lanes, and may differ between them")
        return self.new(f"extractelement {self.type('i8')} {self.name(index)}, i32 0")

    # -- control flow ------------------------------------------------------------------------------
    def _op_while(self, n: int) -> None:
        g, loop = self.graph, self.graph.attr[n]
        live = self.program.live
        counted = loop.trips is not None
        moving = [j for j, p in enumerate(loop.params) if p in live and not (counted and j == 0)]
        vectors = [j for j in moving if g.length[loop.params[j]]]
        moving = [j for j in moving if not g.length[loop.params[j]]]
        self.assign([(g.args[n][j], self.slot(loop.params[j])) for j in vectors])
        tables = self._collectors(n, loop)
        head, body, done = self.labels("head", "body", "done")
        before, outer = self.label, self.mask
        starts = [self.name(g.args[n][j]) for j in moving]
        self.put(f"br label %{head}")
        self.start(head)
        holes = []  # phi lines are completed when the end of the body is known
        for j in moving:
            p = loop.params[j]
            self.names[p] = f"%p{self.tag}{p}"
            holes.append(len(self.lines))
            self.lines.append("")
        lanes_mask = self.lanes > 1 and not counted
        if counted:
            counter = f"%c{self.tag}{n}"
            counter_hole = len(self.lines)
            self.lines.append("")
        if lanes_mask:
            running = f"%k{self.tag}{n}"
            mask_hole = len(self.lines)
            self.lines.append("")
        if counted:
            self.names[loop.params[0]] = self.broadcast(counter, "i64")
        self.block(loop.scope, "head")
        if counted:
            go = self.new(f"icmp slt i64 {counter}, {loop.trips}")
        elif lanes_mask:
            active = self.new(f"and {self.type(BOOL)} {running}, {self.name(loop.go)}")
            go = self.any(active)
        else:
            go = self.name(loop.go)
        self.put(f"br i1 {go}, label %{body}, label %{done}")
        self.start(body)
        if lanes_mask:
            self.mask = active
        self.block(loop.scope, "body")
        for value, table, kind in tables:
            where = self._scalar_index(loop.collect[0])
            stored = self.to_memory(self.name(value), kind)
            place = self.address(table, kind, where) if self.lanes == 1 else self.element(table, kind, where)
            self.put(f"store {self.type(self.stored(kind))} {stored}, ptr {place}")
        self.assign([(loop.results[j], self.slot(loop.params[j])) for j in vectors])
        nexts = []
        for j in moving:
            value = self.name(loop.results[j])
            if lanes_mask:
                ty = self.type(g.kind[loop.params[j]])
                old = self.names[loop.params[j]]
                value = self.new(f"select {self.type(BOOL)} {active}, {ty} {value}, {ty} {old}")
            nexts.append(value)
        if counted:
            following = self.new(f"add nuw nsw i64 {counter}, 1")
        last = self.label
        self.put(f"br label %{head}")
        for hole, j, first, later in zip(holes, moving, starts, nexts, strict=True):
            p = loop.params[j]
            self.lines[hole] = (
                f"  %p{self.tag}{p} = phi {self.type(g.kind[p])} [ {first}, %{before} ], [ {later}, %{last} ]"
            )
        if counted:
            self.lines[counter_hole] = f"  {counter} = phi i64 [ 0, %{before} ], [ {following}, %{last} ]"
        if lanes_mask:
            entry = outer if outer is not None else self.splat("true", "i1")
            self.lines[mask_hole] = f"  {running} = phi {self.type(BOOL)} [ {entry}, %{before} ], [ {active}, %{last} ]"
        self.mask = outer
        self.start(done)
        for user in self._projections(n):
            if g.op[user] == "proj":
                place = self.arrays if g.length[user] else self.names
                place[user] = place[loop.params[g.attr[user]]]
            elif g.length[user]:
                self.filled(user)

    def _projections(self, n: int) -> list[int]:
        cached = getattr(self, "_proj", None)
        if cached is None:
            cached = self._proj = {}
            for m in self.program.live:
                if self.graph.op[m] in ("proj", "collected"):
                    cached.setdefault(self.graph.args[m][0], []).append(m)
        return cached.get(n, [])

    def _collectors(self, n: int, loop: Loop) -> list[tuple[int, str, str]]:
        tables = []
        for user in self._projections(n):
            if self.graph.op[user] == "collected":
                assert loop.trips is not None
                kind = self.graph.kind[user]
                long = self.graph.length[user]
                table = self.slot(user) if long else self.reserve(loop.trips, kind)
                if not long:
                    self.names[user] = table
                tables.append((loop.collect[1 + self.graph.attr[user]], table, kind))
        return tables

    def _op_cond(self, n: int) -> None:
        branches: Branches = self.graph.attr[n]
        users = [u for u in self._projections(n) if self.graph.op[u] == "proj"]
        if not users:
            return
        if self.lanes == 1:
            self._branch(n, branches, users)
        else:
            self._blend(n, branches, users)

    def _branch(self, n: int, branches: Branches, users: list[int]) -> None:
        g = self.graph
        (which,) = g.args[n]
        targets = self.labels(*(f"case{k}_" for k in range(len(branches.scopes))))
        (done,) = self.labels("join")
        if g.kind[which] == BOOL:
            self.put(f"br i1 {self.name(which)}, label %{targets[1]}, label %{targets[0]}")
        else:
            ty = scalar_type(g.kind[which])
            low = self.new(self.intrinsic("smax", g.kind[which], self.name(which), "0"))
            cases = " ".join(f"{ty} {k}, label %{t}" for k, t in enumerate(targets[:-1]))
            self.put(f"switch {ty} {low}, label %{targets[-1]} [ {cases} ]")
        vectors = [u for u in users if g.length[u]]
        users = [u for u in users if not g.length[u]]
        incoming: list[list[str]] = [[] for _ in users]
        for scope, results, target in zip(branches.scopes, branches.results, targets, strict=True):
            self.start(target)
            self.block(scope)
            self.assign([(results[g.attr[u]], self.slot(u)) for u in vectors])
            for u, into in zip(users, incoming, strict=True):
                into.append(f"[ {self.name(results[g.attr[u]])}, %{self.label} ]")
            self.put(f"br label %{done}")
        self.start(done)
        for u, into in zip(users, incoming, strict=True):
            self.names[u] = self.new(f"phi {self.type(g.kind[u])} {', '.join(into)}")

    def _blend(self, n: int, branches: Branches, users: list[int]) -> None:
        g = self.graph
        (which,) = g.args[n]
        outer, count = self.mask, len(branches.scopes)
        values = {u: self.literal(g.kind[u], 0) for u in users}
        for k, (scope, results) in enumerate(zip(branches.scopes, branches.results, strict=True)):
            inside = self._is_branch(which, k, count)
            mine = self.masked(inside)
            case, done = self.labels("case", "join")
            before = self.label
            self.put(f"br i1 {self.any(mine)}, label %{case}, label %{done}")
            self.start(case)
            self.mask = mine
            self.block(scope)
            self.mask = outer
            computed = {u: self.name(results[g.attr[u]]) for u in users}
            mixed = {
                u: self.new(f"select {self.type(BOOL)} {mine}, {self.type(g.kind[u])} {computed[u]}, "
                            f"{self.type(g.kind[u])} {values[u]}")
                for u in users
            }  # fmt: skip
            last = self.label
            self.put(f"br label %{done}")
            self.start(done)
            for u in users:
                values[u] = self.new(f"phi {self.type(g.kind[u])} [ {mixed[u]}, %{last} ], [ {values[u]}, %{before} ]")
        self.names.update(values)

    def _is_branch(self, which: int, k: int, count: int) -> str:
        kind, name = self.graph.kind[which], self.name(which)
        if kind == BOOL:
            if k == 1:
                return name
            return self.new(f"xor {self.type(BOOL)} {name}, {self.splat('true', 'i1')}")
        test = "sle" if k == 0 else "sge" if k == count - 1 else "eq"
        return self.new(f"icmp {test} {self.type(kind)} {name}, {self.splat(str(k), scalar_type(kind))}")
