"""Multifrontal elimination, planned on the host: an order of the unknowns and the small dense matrices it leads to.

The unknowns are eliminated in an order of minimum degree. A *front* is a dense matrix over a few unknowns to be
eliminated, its pivots, and the unknowns that are coupled to them at that moment. Its Schur complement is added to the
front of the next of these unknowns. Fronts form a forest and are processed from its leaves. A chain becomes a row of
small fronts, a net of bars a few hundred fronts that grow to the width of the net, a full matrix one front.

The plan depends on the pattern only. `Plan.table` is a list of integers that compiled code reads (`code`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import heapq

import numpy as np
from jaxtyping import Int

BLOCK = 8  # numbers per vector operation; rows of fronts are padded to whole blocks
HEADER, RECORD = 16, 16  # integers in the header of the table, and in the record of each front
BASIS = 1 << 21  # limit of the numbers stored for the null vectors of redundant rows

IntArray = Int[np.ndarray, " _"]


def pad(n: int) -> int:
    return -(-n // BLOCK) * BLOCK


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Tables for the elimination; two plans are equal if their tables are."""

    n: int
    entries: int  # length of the vector of given entries
    stored: int  # how many of them the matrix has
    table: np.ndarray  # int32
    factor: int  # numbers in the factors
    work: tuple[int, int, int]  # numbers of working memory: to factor, to solve, to shorten
    fronts: int
    largest: int
    fill: int  # entries that elimination in this order adds
    operations: int  # of scalar elimination; a multiplication with an addition counts once
    key: str

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.key == other.key

    def __repr__(self) -> str:
        return f"Plan({self.key})"

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, column and place among the given entries of every stored entry."""
        starts, rows, sources = (int(self.table[k]) for k in (4, 5, 6))
        column = np.repeat(np.arange(self.n), np.diff(self.table[starts : starts + self.n + 1]))
        return self.table[rows : rows + self.stored], column, self.table[sources : sources + self.stored]

    @property
    def text(self) -> str:
        how = "without fill" if self.fill == 0 else f"with {self.fill} entries of fill"
        return f"{self.n} rows eliminated in {self.fronts} fronts of at most {self.largest} rows, {how}"


@dataclasses.dataclass
class _Front:
    pivots: list[int]
    rest: list[int]


def plan_of(i: IntArray, j: IntArray, rows: np.ndarray, source: np.ndarray | None = None, size: int = 0) -> Plan:
    """The plan for a matrix over nodes of r rows each, `rows[k]` being those of node k.

    `(i, j)` are the coupled nodes, equal ones included, in both orders and once each. The vector of entries is a
    flattened array `(r, r, pairs)`; or it has `size` numbers, and `source`, of that shape, is the place of each entry.
    """
    if source is None:
        size = rows.shape[1] ** 2 * i.size
        source = np.arange(size)
    n, r = rows.shape
    order, later = _elimination_order(i, j, n)
    sizes = np.array([len(x) for x in later])
    fill = r * r * max(0, 2 * int(sizes.sum()) + n - i.size)
    operations = r**3 * int(np.sum(sizes * (sizes + 1)))
    fronts = _merge_fronts(order, later, r)
    place = np.empty(n, np.int64)
    place[[k for front in fronts for k in front.pivots]] = np.arange(n)
    for front in fronts:
        front.rest.sort(key=place.__getitem__)
    home = np.empty(n, np.int64)
    for s, front in enumerate(fronts):
        home[front.pivots] = s
    plan = _tables(fronts, home, i, j, rows, source.reshape(-1))
    return dataclasses.replace(plan, entries=size, fill=fill, operations=operations)


def _elimination_order(i: IntArray, j: IntArray, n: int) -> tuple[list[int], list[set[int]]]:
    """An order of minimum degree, and for every node the later ones it is coupled to when it is eliminated."""
    graph: list[set[int]] = [set() for _ in range(n)]
    for a, b in zip(i.tolist(), j.tolist(), strict=True):
        if a != b:
            graph[a].add(b)
    if all(len(x) == n - 1 for x in graph):
        return list(range(n)), [set(range(k + 1, n)) for k in range(n)]
    queue = [(len(x), k) for k, x in enumerate(graph)]
    heapq.heapify(queue)
    order: list[int] = []
    done = [False] * n
    while queue:
        degree, k = heapq.heappop(queue)
        if done[k]:
            continue
        if degree != len(graph[k]):
            heapq.heappush(queue, (len(graph[k]), k))
            continue
        done[k] = True
        order.append(k)
        others = graph[k]
        for a in others:
            mine = graph[a]
            before = len(mine)
            mine |= others
            mine.discard(a)
            mine.discard(k)
            if len(mine) < before:
                heapq.heappush(queue, (len(mine), a))
    return order, graph


def _effort(f: int, p: int) -> float:
    """Estimated time in nanoseconds for a front of f rows with p pivots."""
    k = np.arange(p)
    return 40 + 0.1 * f * f + float(np.sum((f - k) * (1.5 + 0.5 * np.ceil((f - k) / BLOCK)))) + 1.5 * (f - p) ** 2


@functools.lru_cache(maxsize=4096)
def _cached_effort(f: int, p: int) -> float:
    return _effort(f, p)


def _merge_fronts(order: list[int], later: list[set[int]], r: int) -> list[_Front]:
    """Fronts in the order of elimination, children first; a front is merged with the next one if that is not slower."""
    place = {k: x for x, k in enumerate(order)}
    follows = [min(later[k], key=place.__getitem__) if later[k] else -1 for k in range(len(order))]
    fronts: dict[int, _Front] = {}  # by the last of their pivots
    owner = list(range(len(order)))

    def find(k: int) -> int:
        while owner[k] != k:
            owner[k] = owner[owner[k]]
            k = owner[k]
        return k

    for k in reversed(order):  # from the roots: a front joins that of the next node
        fronts[k] = _Front([k], sorted(later[k], key=place.__getitem__))
        if follows[k] < 0:
            continue
        head = find(follows[k])
        mine, next_one = fronts[k], fronts[head]
        size, f, p = 1 + len(mine.rest), len(next_one.pivots) + len(next_one.rest), len(next_one.pivots)
        apart = _cached_effort(r * size, r) + _cached_effort(r * f, r * p)
        if size == f + 1 or _cached_effort(r * (f + 1), r * (p + 1)) <= apart:
            next_one.pivots.insert(0, k)
            owner[k] = head
            del fronts[k]
    children: dict[int, list[int]] = {}
    roots = []
    for head, front in fronts.items():
        up = find(front.rest[0]) if front.rest else -1
        (children.setdefault(up, []) if up >= 0 else roots).append(head)
    out: list[_Front] = []
    for root in roots:
        stack, found = [root], []
        while stack:
            head = stack.pop()
            found.append(head)
            stack += children.get(head, [])
        out += [fronts[head] for head in reversed(found)]
    for front in out:
        front.pivots.sort(key=place.__getitem__)
    return out


def _tables(fronts: list[_Front], home: IntArray, i: IntArray, j: IntArray, rows: np.ndarray, source: IntArray) -> Plan:
    """The plan of the elimination as tables: where entries of the matrix go, and the layout of each front."""
    n, r = rows.shape
    count, size = len(fronts), n * r
    lists = [rows[[*front.pivots, *front.rest]].reshape(-1) for front in fronts]
    pivots = [r * len(front.pivots) for front in fronts]
    parent = [int(home[front.rest[0]]) if front.rest else -1 for front in fronts]
    # position of a row in a front, for all pairs that occur
    keys = np.concatenate([s * size + x for s, x in enumerate(lists)])
    sorter = np.argsort(keys, kind="stable")
    spots = np.concatenate([np.arange(x.size) for x in lists])

    def position(front: np.ndarray, row: np.ndarray) -> np.ndarray:
        return spots[sorter[np.searchsorted(keys, front * size + row, sorter=sorter)]]

    front_of = np.empty(size, np.int64)
    front_of[rows.reshape(-1)] = np.repeat(home, r)
    a, c = np.meshgrid(np.arange(r), np.arange(r), indexing="ij")
    row = rows[i][:, a].transpose(1, 2, 0).reshape(-1)  # (r, r, pairs)
    column = rows[j][:, c].transpose(1, 2, 0).reshape(-1)
    where = np.minimum(front_of[row], front_of[column])
    width = np.array([pad(x.size) for x in lists])
    spot = position(where, row) * width[where] + position(where, column)

    record = np.zeros((count, RECORD), np.int64)
    tail: list[np.ndarray] = []
    offset = HEADER + RECORD * count

    def put(x: np.ndarray) -> int:
        nonlocal offset
        tail.append(np.asarray(x, np.int64))
        offset += tail[-1].size
        return offset - tail[-1].size

    by_front = np.argsort(where, kind="stable")
    bounds = np.searchsorted(where[by_front], np.arange(count + 1))
    children: list[list[int]] = [[] for _ in fronts]
    for s, up in enumerate(parent):
        if up >= 0:
            children[up].append(s)
    numbers = pad(1) + pad(size)  # the smallest pivot, the inverses of the pivots, then the rows of U and L
    area = max(x.size for x in lists) * int(width.max()) + BLOCK
    stack, peak, first = area, area, 0
    left = np.zeros(count, np.int64)
    for s, (x, p) in enumerate(zip(lists, pivots, strict=True)):
        f, held, block = x.size, width[s], p * width[s]
        mine = by_front[bounds[s] : bounds[s + 1]]
        below = spot[mine] // held > spot[mine] % held
        mine = np.concatenate([mine[~below], mine[below]])  # a symmetric matrix needs the first part only
        joined = []
        for child in children[s]:
            rest = lists[child][pivots[child] :]
            joined.append((left[child], rest.size, put(position(np.full(rest.size, s), rest))))
        if children[s]:
            stack = int(min(left[child] for child in children[s]))
        left[s] = stack
        stack += (f - p) ** 2
        peak = max(peak, stack)
        here = [f, p, held, put(x), numbers, numbers + block, put(np.stack([spot[mine], source[mine]], 1).reshape(-1))]
        here += [
            mine.size,
            put(np.array(joined, np.int64).reshape(-1)),
            len(joined),
            left[s],
            first,
            int(np.sum(~below)),
        ]
        record[s, : len(here)] = here
        numbers += 2 * block
        first += p
    order = np.concatenate([x[:p] for x, p in zip(lists, pivots, strict=True)])
    diagonal = np.full(size, -1)
    diagonal[row[row == column]] = source[row == column]
    by_column = np.argsort(column, kind="stable")
    widest = pad(int(width.max()))
    basis = min(size, max(16, BASIS // pad(size)))
    head = np.zeros(HEADER, np.int64)
    head[:4] = count, size, put(diagonal[order]), put(order)
    head[4:7] = (
        put(np.searchsorted(column[by_column], np.arange(size + 1))),
        put(row[by_column]),
        put(source[by_column]),
    )
    head[7:9] = pad(size), basis
    head[9] = widest  # where the vectors of `shorten` begin in its working memory
    table = np.concatenate([head, record.reshape(-1), *tail])
    if table.max() >= 2**31:
        raise OverflowError("the matrix is too large for 32-bit tables")
    table = table.astype(np.int32)
    table.setflags(write=False)
    work = (int(peak) + BLOCK, widest, widest + pad(size) * (basis + 3))
    key = hashlib.sha256(table.tobytes()).hexdigest()[:32]
    largest = max(x.size for x in lists)
    return Plan(size, row.size, row.size, table, int(numbers) + BLOCK, work, count, largest, 0, 0, key)
