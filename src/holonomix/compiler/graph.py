"""The typed scalar program: numbered nodes, shared subexpressions, nested scopes.

A *node* is an integer; its operation, arguments, type and attribute stand in parallel lists of the `Graph`. Arguments
always have smaller numbers than the node that uses them, so number order is an order of evaluation.

A *scope* is a region that is executed as a whole: the program's root (values that depend on constants alone), the
body of the time loop, the body of a `while`, one branch of a `cond`. A node lives in the outermost scope in which its
arguments exist, which moves loop invariants out of their loops for free. A branch is a barrier: what is written
inside stays inside, else every branch would be computed always.

Nodes with structure:

    param               attribute: index; a value that enters a scope
    table v0 .. vn      a small array in memory;  load table index  reads one element
    fetch index         attribute k: the element at this place of the k-th array of constants, read where it is
    while               attribute `Loop`; arguments are the start values
    cond                attribute `Branches`; its argument is the branch number or a truth value
    proj node           attribute j: the j-th result of a while or cond
    collected while     attribute j: the table that the loop filled with one value an iteration
    key k0 k1           a random key of two words; it disappears when the words are used
    ffactor a, fsolve f b, fshorten a f x    multifrontal elimination; attribute: length of the result, plan, options

A node may stand for a *vector*, one long axis of an array that is not taken apart (see `wide`); `length` is its number
of elements and 0 for a scalar. Operations on vectors are element by element, scalars among their arguments repeated.
Besides, there are

    vconst              attribute: numbers
    take v              attribute: places; v[places], zero where a place is negative
    gsum v              attribute: rows of places; the sum of the takes of the rows
    window v start      attribute: length; v[start], v[start + 1], ..., zero outside of v
    pack s0 .. sn       a vector of scalars;  load v index  reads one element
    join v0 .. vn       vectors one after the other
    rsum rprod rmax rmin rand ror v    the scalar that all elements together make
"""

from __future__ import annotations

import contextlib
import os
import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from ..core.errors import HolonomixError

FLOATS = {"f8", "f4"}
SIGNED = {"i1", "i2", "i4", "i8"}
UNSIGNED = {"u1", "u2", "u4", "u8"}
INTEGERS = SIGNED | UNSIGNED
BOOL = "b1"
FRONTS = {"ffactor", "fsolve", "fshorten"}
IN_MEMORY = {"table", "collected", *FRONTS}  # the result is an array: the kernel's name for it is an address
STRAIGHT_LINE_LIMIT = 12_000
WORK = 1_700  # elements of arrays that lowering may go through for each operation of its limit: seconds, at most
KINDS = (*sorted(FLOATS), *sorted(INTEGERS), BOOL, "key", "none")
NUMBER_OF_KIND = {kind: k for k, kind in enumerate(KINDS)}


class Unavailable(RuntimeError):
    """This machine lacks something that a back end needs."""


class Unsupported(Exception):
    """The step cannot become a scalar program; `operation` names the primitive or the reason."""

    def __init__(self, operation: str, detail: str = ""):
        self.operation, self.detail = operation, detail
        super().__init__(operation, detail)

    @property
    def short(self) -> str:
        """The reason alone."""
        return f"{self.operation} ({self.detail})" if self.detail else self.operation

    def __str__(self) -> str:
        return f"the kernel compiler cannot take this step: {self.short}"


class Defect(RuntimeError):
    """An error in the kernel compiler itself, found before it generated machine code."""

    def __init__(self, what: str):
        self.what = what
        super().__init__(what)

    def __str__(self) -> str:
        return f"a defect of the kernel compiler: {self.what}; backend='array' does without it, please report the step"


def defects_are_fatal() -> bool:
    """Whether a defect ends the run instead of falling back to the array path; tests set HOLONOMIX_DEFECTS=raise."""
    return os.environ.get("HOLONOMIX_DEFECTS") == "raise"


@contextlib.contextmanager
def defects(doing: str) -> Iterator[None]:
    """Turn any unexpected exception, a RecursionError included, into a `Defect`; errors for users pass through."""
    try:
        yield
    except (Unsupported, Unavailable, Defect, HolonomixError):
        raise
    except Exception as error:
        raise Defect(f"{doing}: {type(error).__name__}: {error}") from error


def type_of(dtype: DTypeLike) -> str:
    """The two-letter type of a NumPy dtype: f8, i4, u4, b1, ..."""
    dtype = np.dtype(dtype)
    name = "b1" if dtype == np.bool_ else f"{dtype.kind}{dtype.itemsize}"
    if name not in FLOATS | INTEGERS | {BOOL}:
        raise Unsupported(f"type {dtype}")
    return name


def dtype_of(kind: str) -> np.dtype:
    return np.dtype(np.bool_) if kind == BOOL else np.dtype(kind)


class Scope:
    """A region of execution; `seen` finds a node again from its operation and arguments."""

    __slots__ = ("barrier", "depth", "parent", "seen")

    def __init__(self, parent: Scope | None, barrier: bool = False):
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.barrier = barrier
        self.seen: dict = {}


def is_within(inner: Scope | None, outer: Scope) -> bool:
    """Whether `inner` is `outer`, or a scope inside of it."""
    while inner is not None and inner.depth > outer.depth:
        inner = inner.parent
    return inner is outer


@dataclass
class Loop:
    """`while`: params start at the node's arguments; while `go` holds, they become `results`.

    `trips` is the number of iterations where it is known beforehand; then params[0] is the counter 0, 1, ..., and is
    the same in all lanes. `collect` are values written to tables at the counter's place.
    """

    scope: Scope
    params: list[int]
    go: int
    results: list[int]
    trips: int | None = None
    collect: list[int] = field(default_factory=list)

    @property
    def scopes(self) -> list[Scope]:
        return [self.scope]

    @property
    def uses(self) -> list[int]:
        """The nodes that are taken from inside."""
        return [self.go, *self.results, *self.collect]

    def replace(self, get: Callable[[int, int], int]) -> None:
        """Take other nodes: `get(n, n)` in place of `n`."""
        self.go, self.results = get(self.go, self.go), [get(m, m) for m in self.results]
        self.collect = [get(m, m) for m in self.collect]


@dataclass
class Branches:
    """`cond`: one scope and one list of results for each branch."""

    scopes: list[Scope]
    results: list[list[int]]

    @property
    def uses(self) -> list[int]:
        return [m for r in self.results for m in r]

    def replace(self, get: Callable[[int, int], int]) -> None:
        self.results = [[get(m, m) for m in r] for r in self.results]


class Graph:
    """Builds nodes; equal nodes in visible scopes are one node."""

    def __init__(self, limit: int = STRAIGHT_LINE_LIMIT):
        self.op: list[str] = []
        self.args: list[tuple[int, ...]] = []
        self.kind: list[str] = []
        self.attr: list = []
        self.length = array("q")
        self.kind_numbers = bytearray()  # places in `KINDS`, for whole arrays of nodes at once
        self.scope: list[Scope] = []
        self.root = Scope(None)
        self.stack: list[Scope] = [self.root]
        self.limit = limit
        self.made = 0  # operations built so far, dead ones included
        self.work = 0  # elements of arrays gone through so far
        self.vectors: dict[tuple[str, bytes], int] = {}  # known vectors
        self._constants: dict[tuple[str, bytes], int] = {}
        self.value: dict[int, Any] = {}  # constant node -> NumPy scalar
        self.memory: list[tuple[int, int]] = []  # first node and number of nodes of each array of constants
        self.zero = {k: self.constant(0, k) for k in (*FLOATS, *INTEGERS, BOOL)}
        self.one = {k: self.constant(1, k) for k in (*FLOATS, *INTEGERS, BOOL)}

    # -- scopes ------------------------------------------------------------------------------------
    def enter(self, barrier: bool = False) -> Scope:
        scope = Scope(self.stack[-1], barrier)
        self.stack.append(scope)
        return scope

    def leave(self) -> None:
        self.stack.pop()

    def spend(self, elements: int) -> None:
        """Count work in elements, not in seconds, so that a program always stops at the same place."""
        self.work += elements
        if self.work > WORK * self.limit:
            raise Unsupported("too many numbers", f"more than {WORK * self.limit} in the arrays of its equations")

    # -- nodes -------------------------------------------------------------------------------------
    def append(self, op: str, args: tuple[int, ...], kind: str, attr: object, scope: Scope, length: int = 0) -> int:
        """A new node, even if an equal one exists."""
        n = len(self.op)
        self.op.append(op)
        self.args.append(args)
        self.kind.append(kind)
        self.kind_numbers.append(NUMBER_OF_KIND[kind])
        self.attr.append(attr)
        self.scope.append(scope)
        self.length.append(length)
        return n

    def constant(self, value: Any, kind: str) -> int:
        with np.errstate(all="ignore"):
            scalar = np.asarray(value).astype(dtype_of(kind))[()]
        key = (kind, scalar.tobytes())
        found = self._constants.get(key)
        if found is None:
            found = self.append("const", (), kind, scalar, self.root)
            self._constants[key] = found
            self.value[found] = scalar
        return found

    def param(self, kind: str, length: int = 0) -> int:
        """A fresh value of the innermost scope."""
        return self.append("param", (), kind, None, self.stack[-1], length)

    def params(self, kind: str, count: int) -> range:
        """`count` fresh values of the innermost scope, with numbers in a row."""
        first = len(self.op)
        columns: Any = ((self.op, "param"), (self.args, ()), (self.kind, kind), (self.attr, None),
                   (self.scope, self.stack[-1]), (self.length, 0))  # fmt: skip
        for column, value in columns:
            column.extend([value] * count)
        self.kind_numbers.extend(bytes([NUMBER_OF_KIND[kind]]) * count)
        return range(first, first + count)

    def in_memory(self, nodes: np.ndarray) -> tuple[int, np.ndarray] | None:
        """The array of constants that all nodes are elements of, by its number, and their places in it."""
        low, high = int(nodes.min()), int(nodes.max())
        for k, (first, count) in enumerate(self.memory):
            if first <= low and high < first + count:
                return k, nodes - first
        return None

    def node(self, op: str, args: tuple[int, ...], kind: str, attr: object = None, length: int | None = None) -> int:
        """The node `op(args)`, found again or made, as far out as its arguments and the branch barriers allow."""
        stack, scopes = self.stack, self.scope
        depth = 0
        for a in args:
            d = scopes[a].depth
            if d > depth:
                depth = d
        home = depth
        for d in range(len(stack) - 1, depth, -1):
            if stack[d].barrier:
                home = d
                break
        key = (op, args, kind, attr)
        for d in range(depth, home + 1):
            found = stack[d].seen.get(key)
            if found is not None:
                return found
        self.made += 1
        if self.made > 6 * self.limit:
            raise Unsupported(f"too many operations: more than {self.made - 1} while tracing")
        if length is None:
            length = max([self.length[a] for a in args], default=0)
        n = self.append(op, args, kind, attr, stack[home], length)
        stack[home].seen[key] = n
        return n

    def structured(self, op: str, args: tuple[int, ...], attr: object) -> int:
        """A while or cond: never shared, lives where it is written."""
        return self.append(op, args, "none", attr, self.stack[-1])

    def fault(self, nodes: np.ndarray, kind: str, length: int = 0) -> str | None:
        """What is wrong with an array that should hold nodes of one type: scalars, or vectors of a length as well."""
        if not nodes.size:
            return None
        if nodes.dtype.kind != "i" or nodes.min() < 0 or nodes.max() >= len(self.op):
            return "numbers that are no nodes"
        flat = nodes.ravel()
        found = np.frombuffer(self.kind_numbers, np.uint8)[flat]
        wrong = found != NUMBER_OF_KIND[kind]
        if wrong.any():
            return f"type {KINDS[found[np.argmax(wrong)]]} instead of {kind}"
        lengths = np.frombuffer(self.length, np.int64)[flat]
        wrong = (lengths != 0) & (lengths != length)
        return f"a vector of {lengths[np.argmax(wrong)]} instead of {length or 'a scalar'}" if wrong.any() else None


def float_bits(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]
