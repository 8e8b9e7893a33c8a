"""`lower`: from the three functions of a loop to a scheduled scalar program.

The schedule says, for every scope, which live nodes it computes, in order, and how many of them come before the test
that ends a loop. Back ends read the schedule and the graph, nothing else.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from . import (  # noqa: F401  (they register their rules)
    control,
    rules_arrays,
    rules_elementwise,
    rules_fronts,
    rules_indexing,
    rules_wide,
)
from .graph import STRAIGHT_LINE_LIMIT, Branches, Graph, Loop, Scope, Unsupported, defects, dtype_of, type_of
from .passes import fuse, share_reciprocals
from .trace import Tracer, Typed, is_key, refuse_unknown
from .vector_schedule import SPACE, VectorSchedule
from .verify import verify
from .wide import Axes, Wide, long_axes, matched, settled

if TYPE_CHECKING:
    from .runner import LoopBody

FREE = {"const", "param", "proj", "collected", "key", "table", "vconst"}  # not counted as operations
MAX_INTERFACE = 20_000  # scalars of the carry
MAX_TABLES = 200_000  # scalars of the constants: arrays that are not used element by element stay in memory


@dataclass(frozen=True)
class Leaf:
    """One array of the interface: its shape and type, its nodes in order, and whether it is a typed random key.

    A node may be a vector of `length` elements; they stand at `starts[k]`, `starts[k] + stride`, ...
    """

    shape: tuple[int, ...]
    kind: str
    nodes: tuple[int, ...]
    key: Any = None
    length: int = 0
    starts: tuple[int, ...] = ()
    stride: int = 1

    @functools.cached_property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @functools.cached_property
    def dtype(self) -> np.dtype:
        return dtype_of(self.kind)


@dataclass
class Block:
    """The live nodes of a scope, in order; the first `head` of them are needed for the test of a loop."""

    nodes: list[int] = field(default_factory=list)
    head: int = 0


@dataclass
class Program:
    """A scheduled scalar program, independent of any back end."""

    graph: Graph
    consts: list[Leaf]
    carry: list[Leaf]  # parameters of the time loop
    step: list[Leaf]  # the carry after one step
    halted: int
    read_carry: list[Leaf]  # parameters of the read scope
    rows: list[Leaf]
    scope: Scope
    read_scope: Scope
    blocks: dict[Scope, Block]
    live: set[int]
    carry_tree: Any
    consts_tree: Any
    rows_tree: Any
    operations: int = 0
    effort: int = 0  # scalar operations that take about as long
    hash: str = ""
    wide: bool = False  # has vectors
    loops: int = 0  # over their axes
    space: int = 0  # bytes that their arrays need at most
    note: str = ""  # why it has this form, where another was tried first


@dataclass(frozen=True)
class Traced:
    """The three functions of a loop as jaxprs, with the shapes of their results: `halted`, `step` and `read`."""

    carry: Any
    consts: Any
    functions: tuple[tuple[Any, Any], ...]


def trace_loop(loop: LoopBody, carry: PyTree, consts: PyTree) -> Traced:
    """Trace `loop.halted`, `loop.step` and `loop.read` on examples of their arguments.

    Exceptions of the functions come through: they are the caller's own.
    """
    carry, consts = _abstract(carry), _abstract(consts)
    functions = (jax.make_jaxpr(fn, return_shape=True)(carry, consts) for fn in (loop.halted, loop.step, loop.read))
    traced = Traced(carry, consts, tuple(functions))
    _check_carry(carry, traced.functions[1][1])
    return traced


def lower(
    loop: LoopBody, carry: PyTree, consts: PyTree, *, limit: int = STRAIGHT_LINE_LIMIT, wide: bool | Axes = False
) -> Program:
    """The program of a loop: `trace_loop`, then `lower_traced`."""
    return lower_traced(trace_loop(loop, carry, consts), limit=limit, wide=wide)


def lower_traced(
    traced: Traced, *, limit: int = STRAIGHT_LINE_LIMIT, wide: bool | Axes = False, irregular: bool = False
) -> Program:
    """The verified program of traced functions. Raises `Unsupported`, or `Defect` for an error of the compiler itself.

    With `wide`, long axes are kept as loops (see `wide`); their lengths are given or found from the shapes that occur.
    With `irregular`, long vectors may be assembled element by element.
    """
    with defects("lowering"):
        program = _lowered(traced, limit, wide, irregular)
        verify(program)
        return program


def _lowered(traced: Traced, limit: int, wide: bool | Axes, irregular: bool) -> Program:
    """The program of traced functions; raises `Unsupported` for what kernels cannot do."""
    carry, consts, functions = traced.carry, traced.consts, traced.functions
    for closed, _ in functions:
        refuse_unknown(closed.jaxpr)
    graph = Graph(limit)
    axes = wide if isinstance(wide, Axes) else None
    if wide is True:
        axes = long_axes([closed for closed, _ in functions], irregular)
    if axes is not None and not axes.long:
        raise Unsupported("no long axes")
    tracer = Tracer(graph, axes)
    carry_leaves, carry_tree = jax.tree.flatten(carry)
    consts_leaves, consts_tree = jax.tree.flatten(consts)
    for avals, most in ((carry_leaves, MAX_INTERFACE), (consts_leaves, MAX_TABLES)):
        size = sum(int(np.prod([n for n in a.shape if n not in tracer.axes.long], dtype=np.int64)) for a in avals)
        if size > most:
            raise Unsupported(f"too many numbers: {size} in the state or parameters")

    const_nodes = []
    for a in consts_leaves:
        first = len(graph.op)
        const_nodes.append(tracer.new_params(a))
        plain = not is_key(a) and not isinstance(const_nodes[-1], Wide)
        graph.memory.append((first, const_nodes[-1].size if plain else 0))
    scope = graph.enter()
    carry_nodes = [tracer.new_params(a) for a in carry_leaves]
    (halted,) = tracer.run(functions[0][0], [*carry_nodes, *const_nodes])
    halted = tracer.algebra.convert(int(halted.reshape(())), "b1")
    stepped = matched(tracer, tracer.run(functions[1][0], [*carry_nodes, *const_nodes]), carry_nodes)
    graph.leave()
    read_scope = graph.enter()
    read_nodes = [tracer.new_params(a) for a in carry_leaves]
    rows = [settled(tracer, x) for x in tracer.run(functions[2][0], [*read_nodes, *const_nodes])]
    graph.leave()
    row_leaves, rows_tree = jax.tree.flatten(functions[2][1])

    def leaves(avals: Sequence[Any], arrays: Sequence[Any]) -> list[Leaf]:
        return [_leaf(tracer, a, n) for a, n in zip(avals, arrays, strict=True)]

    program = Program(
        graph=graph, consts=leaves(consts_leaves, const_nodes), carry=leaves(carry_leaves, carry_nodes),
        step=leaves(carry_leaves, stepped), halted=halted, read_carry=leaves(carry_leaves, read_nodes),
        rows=leaves(row_leaves, rows), scope=scope, read_scope=read_scope, blocks={}, live=set(),
        carry_tree=carry_tree, consts_tree=consts_tree, rows_tree=rows_tree, wide=axes is not None,
    )  # fmt: skip
    _schedule(program)
    program.operations = program.effort = _count(program, scope)
    total = program.operations + _count(program, read_scope) + _count(program, graph.root)
    if total > 2 * limit:
        raise Unsupported(f"too many operations: {total}")
    share_reciprocals(program)
    fuse(program)
    total = sum(_count(program, s) for s in (scope, read_scope, graph.root))  # products and sums are joined now
    if total > limit:
        raise Unsupported(f"too many operations: {total}")
    program.hash = _digest(program)
    if program.wide:
        schedule = VectorSchedule(program)
        (program.loops, program.space), program.effort = schedule.size(), schedule.effort()
        if program.space > SPACE:
            raise Unsupported("long axes", f"their arrays need {program.space} bytes")
    return program


def _abstract(tree: PyTree):
    def one(x: Any):
        if isinstance(x, jax.ShapeDtypeStruct):
            return x
        if not hasattr(x, "dtype"):
            x = jax.numpy.asarray(x)
        return jax.ShapeDtypeStruct(x.shape, x.dtype)

    return jax.tree.map(one, tree)


def _check_carry(before: PyTree, after: PyTree) -> None:
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise TypeError(f"step changes the structure of its carry: {jax.tree.structure(after)}")
    paths = jax.tree_util.tree_flatten_with_path(before)[0]
    for (path, a), b in zip(paths, jax.tree.leaves(after), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            where = jax.tree_util.keystr(path) or "the carry"
            raise TypeError(f"step changes {where} from {a.dtype}{a.shape} to {b.dtype}{b.shape}")


def _leaf(tracer: Tracer, aval: Typed, nodes: np.ndarray | Wide) -> Leaf:
    if isinstance(nodes, Wide):
        everywhere = np.arange(nodes.size).reshape(aval.shape)
        first = everywhere[tuple(slice(0, m) for m in nodes.ids.shape)]
        stride = nodes.ids.shape[nodes.axis] * int(np.prod(aval.shape[nodes.axis + 1 :], dtype=np.int64))
        ids, starts = tuple(nodes.ids.ravel().tolist()), tuple(first.ravel().tolist())
        return Leaf(tuple(aval.shape), type_of(aval.dtype), ids, None, nodes.n, starts, stride)
    if is_key(aval):
        words = tracer.unpack_keys(nodes) if nodes.size else np.zeros((*aval.shape, 2), np.int64)
        return Leaf((*aval.shape, 2), "u4", tuple(words.ravel().tolist()), aval.dtype)
    return Leaf(tuple(aval.shape), type_of(aval.dtype), tuple(nodes.ravel().tolist()))


# -- schedule --------------------------------------------------------------------------------------


def _schedule(program: Program) -> None:
    """Find the nodes that results depend on, and sort them into the blocks of their scopes."""
    g = program.graph
    live: set[int] = set()
    owner: dict[int, tuple[int, int]] = {}  # parameter of a loop -> its while and place
    work = [program.halted, *(n for part in (program.step, program.rows) for leaf in part for n in leaf.nodes)]

    def structure(n: int) -> None:
        attr = g.attr[n]
        if isinstance(attr, Loop):
            owner.update((p, (n, j)) for j, p in enumerate(attr.params))
            work.append(attr.go)
            if attr.trips is not None:
                work.append(attr.params[0])
        elif isinstance(attr, Branches):
            work.extend(g.args[n])

    while work:
        n = work.pop()
        if n in live:
            continue
        live.add(n)
        op = g.op[n]
        if op in ("while", "cond"):
            structure(n)
        elif op == "proj":
            (node,) = g.args[n]
            work.append(node)
            attr = g.attr[node]
            if isinstance(attr, Loop):
                work.append(attr.params[g.attr[n]])
                structure(node)
            else:
                work.extend(r[g.attr[n]] for r in attr.results)
        elif op == "collected":
            (node,) = g.args[n]
            structure(node)
            loop = g.attr[node]
            work += [node, loop.collect[0], loop.collect[1 + g.attr[n]]]
        elif op == "param":
            if n in owner:
                node, j = owner[n]
                work += [g.attr[node].results[j], g.args[node][j]]
        else:
            work.extend(g.args[n])
    program.live = live
    blocks: dict[Scope, Block] = {}
    for n in sorted(live):
        blocks.setdefault(g.scope[n], Block())
        if g.op[n] not in ("const", "param", "key"):
            blocks[g.scope[n]].nodes.append(n)
    for s in (g.root, program.scope, program.read_scope):
        blocks.setdefault(s, Block())
    program.blocks = blocks
    _split(program, program.scope, program.halted)
    for n in live:
        attr = g.attr[n]
        for s in attr.scopes if isinstance(attr, Loop | Branches) else ():
            blocks.setdefault(s, Block())
        if isinstance(attr, Loop):
            _split(program, attr.scope, attr.go)


def _split(program: Program, scope: Scope, test: int) -> None:
    """Order the nodes so that those needed for the test come first."""
    g, block = program.graph, program.blocks[scope]
    needed: set[int] = set()
    work = [test]
    while work:
        n = work.pop()
        if n in needed or g.scope[n] is not scope:
            continue
        needed.add(n)
        work.extend(g.args[n])
        if g.op[n] in ("while", "cond"):  # their bodies may use anything of this scope: keep what comes before
            work.extend(m for m in block.nodes if m < n)
    head = [n for n in block.nodes if n in needed]
    block.nodes = head + [n for n in block.nodes if n not in needed]
    block.head = len(head)


def _count(program: Program, scope: Scope) -> int:
    """Operations written in a scope and the scopes inside it."""
    g, total = program.graph, 0
    for n in program.blocks[scope].nodes:
        attr = g.attr[n]
        if isinstance(attr, Loop | Branches):
            total += 1 + sum(_count(program, s) for s in attr.scopes)
        elif g.op[n] not in FREE:
            total += 1
    return total


def _digest(program: Program) -> str:
    """A hash of everything that decides what the program computes."""
    g, number, parts = program.graph, {}, []

    def name(n: int) -> int | str:
        return f"{g.kind[n]}:{g.attr[n].tobytes().hex()}" if g.op[n] == "const" else number.setdefault(n, len(number))

    def visit(scope: Scope) -> None:
        block = program.blocks[scope]
        parts.append(("block", block.head))
        for n in block.nodes:
            attr = g.attr[n]
            parts.append((name(n), g.op[n], g.kind[n], *(name(a) for a in g.args[n])))
            if isinstance(attr, Loop):
                parts.append((attr.trips, *(name(m) for m in (*attr.params, attr.go, *attr.results, *attr.collect))))
                visit(attr.scope)
            elif isinstance(attr, Branches):
                for s, r in zip(attr.scopes, attr.results, strict=True):
                    visit(s)
                    parts.append(tuple(name(m) for m in r))
            elif attr is not None:
                parts.append(str(attr))

    for part in (program.consts, program.carry, program.read_carry):
        parts.append([(leaf.shape, leaf.kind, [name(n) for n in leaf.nodes]) for leaf in part])
    for scope in (g.root, program.scope, program.read_scope):
        visit(scope)
    for part in (program.step, program.rows):
        parts.append([(leaf.shape, leaf.kind, [name(n) for n in leaf.nodes]) for leaf in part])
    parts.append(name(program.halted))
    return hashlib.sha256(repr(parts).encode()).hexdigest()
