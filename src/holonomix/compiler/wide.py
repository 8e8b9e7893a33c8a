"""Arrays with one long axis: the mechanism for clusters of molecules and chains of many links.

A long axis is not unrolled. Such an array is a `Wide`: a small array of *vector* nodes, each of which stands for
elements of the axis. Vector nodes are optimized like scalar nodes (shared subexpressions, structural zeros, invariants
moved out of loops). Axes of coordinates, sites and small blocks are unrolled as before, so one vector operation is the
same arithmetic for all links, molecules or pairs at once. A back end runs neighboring vector
operations as one loop over the axis and keeps in memory only what crosses loops.

An axis of k n elements may be dealt to k vectors of length n, element i to vector i % k: the 3 n atoms of n molecules
are three vectors, one for each site, so that atoms and molecules share loops. The best k is found when the array is
assembled.

Primitives that only move elements need no rules of their own: `explode` writes an array as an array of *codes* (vector,
place), the ordinary rule moves the codes, and `assemble` turns them into vectors: an existing one, a `take` from one at
constant places, or a selection from a few of them.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend import core as jex_core
from jax.extend.core import Jaxpr

from .graph import BOOL, FLOATS, Graph, Unsupported, dtype_of

if TYPE_CHECKING:
    from .trace import Tracer

SHIFT = 32  # a code is (node + 1) << SHIFT | place; anything smaller is a scalar node
PLACE = (1 << SHIFT) - 1
MAX_SHORT_AXIS = 5  # axes of at most this many elements are never long
SHARE = 10  # an axis of a series is long if more than 1/SHARE of all elements are in arrays with it
MAX_WAYS = 12  # vectors that one axis is dealt to: the coordinates of a molecule of four atoms
MAX_SOURCES = 6  # vectors that one vector is assembled from by selects
MAX_LONG_SOURCES = 16  # the same for vectors of more than MAX_PACKED elements
MAX_PACKED = 64  # elements of a vector that are assembled one by one


@dataclass
class Wide:
    """Node numbers over all axes; the long one, `axis`, is dealt to `ids.shape[axis]` vectors of length n in turn.

    `constant` holds the numbers, if known. With `whole` the only vector runs over all elements of an array of that
    shape: random numbers are made like this.
    """

    ids: np.ndarray
    axis: int
    n: int
    constant: np.ndarray | None = None
    whole: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole or tuple(m * self.n if d == self.axis else m for d, m in enumerate(self.ids.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self.ids.size * self.n


class Axes:
    """The lengths of long axes, and the numbers of vectors that each may be dealt to."""

    def __init__(self, long: set[int], weight: Mapping[int, int] | None = None, irregular: bool = False):
        self.long, self.weight = long, weight or dict.fromkeys(long, 1)
        self.irregular = irregular  # whether a long vector may be assembled element by element
        self.ways = {n: self._ways(n) for n in long}

    def _ways(self, n: int) -> list[int]:
        """Numbers of vectors for an axis of n elements, the usual one first."""
        parts = [m for m in self.long if n % m == 0 and 2 * self.weight[m] >= self.weight[n]]
        dealt = sorted(n // m for m in parts if n // m <= MAX_WAYS)
        return dealt[::-1]

    def find(self, shape: Sequence[int]) -> int | None:
        """The long axis of a shape, if it has one; an array without elements has none."""
        if 0 in shape:
            return None
        found = [k for k, n in enumerate(shape) if n in self.long]
        if len(found) > 1:
            raise Unsupported("an array with two long axes", f"shape {tuple(shape)}")
        return found[0] if found else None


def long_axes(jaxprs: Iterable[Any], irregular: bool = False) -> Axes:
    """The lengths with the most elements, such that no array has two of them."""
    weight: Counter[int] = Counter()
    together: set[tuple[int, int]] = set()

    def visit(jaxpr: Jaxpr, weight: Counter[int]) -> int:
        """Count the elements of arrays by the lengths of their axes; returns the elements of all arrays."""
        total = 0
        for eqn in jaxpr.eqns:
            for v in (*eqn.invars, *eqn.outvars):
                whole = getattr(v.aval, "shape", ())
                size = math.prod(whole)
                total += size
                shape = [n for n in whole if n > MAX_SHORT_AXIS]
                for k, n in enumerate(shape):
                    weight[n] += size
                    together.update((n, m) for j, m in enumerate(shape) if j != k)
            if eqn.primitive.name == "two_forms":
                # sums over the order have axes of every length up to the order, none of which is worth a loop
                inner: Counter[int] = Counter()
                all_of_it = visit(eqn.params["unrolled"].traced([v.aval for v in eqn.invars]).jaxpr, inner)
                weight.update({n: w for n, w in inner.items() if SHARE * w > all_of_it})
                continue
            for value in eqn.params.values():
                for part in value if isinstance(value, tuple | list) else (value,):
                    if isinstance(part, jex_core.ClosedJaxpr):
                        total += visit(part.jaxpr, weight)
                    elif isinstance(part, jex_core.Jaxpr):
                        total += visit(part, weight)
        return total

    for closed in jaxprs:
        visit(closed.jaxpr, weight)
    long: set[int] = set()
    for n, _ in sorted(weight.items(), key=lambda item: (-item[1], item[0])):
        if not any((n, m) in together for m in (*long, n)):
            long.add(n)
    return Axes(long, weight, irregular)


class Numbers:
    """An array as an attribute of a node; equal if the bytes are equal."""

    __slots__ = ("array", "key")

    def __init__(self, array: np.ndarray):
        self.array = np.ascontiguousarray(array)
        self.key = (array.dtype.str, array.shape, self.array.tobytes())

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and self.key == other.key

    def __repr__(self) -> str:
        return f"Numbers({self.key[:2]}, {hashlib.sha256(self.key[2]).hexdigest()})"


def constant_vector(g: Graph, numbers: np.ndarray, kind: str) -> int:
    """A vector of known numbers; one node where they are all the same."""
    numbers = np.ascontiguousarray(numbers, dtype_of(kind))
    raw = numbers.view(f"u{numbers.itemsize}")
    if (raw == raw[:1]).all():
        return g.constant(numbers[0], kind)
    key = (kind, numbers.tobytes())
    found = g.vectors.get(key)
    if found is None:
        found = g.vectors[key] = g.append("vconst", (), kind, Numbers(numbers), g.root, len(numbers))
    return found


def element(g: Graph, v: int, place: int) -> int:
    """One element, at a constant place."""
    if g.op[v] == "vconst":
        return g.constant(g.attr[v].array[place], g.kind[v])
    return g.node("load", (v, g.constant(place, "i8")), g.kind[v], None, 0)


def take(g: Graph, v: int, places: np.ndarray) -> int:
    """`v[places]`, and zero where a place is negative."""
    n = len(places)
    if g.op[v] == "vconst":
        return constant_vector(g, np.where(places < 0, 0, g.attr[v].array[places]), g.kind[v])
    if n == g.length[v] and (places == np.arange(n)).all():
        return v
    return _through(g, v, places) or g.node("take", (v,), g.kind[v], Numbers(places.astype(np.int32)), n)


def _through(g: Graph, v: int, places: np.ndarray) -> int | None:
    """`take` from the vector that `v` copies elements of, so that `v` need not be stored; None if that is more work.

    `v` may also be such a copy with other elements inserted at known places.
    """
    if g.op[v] == "take":
        (source,), at = g.args[v], g.attr[v].array
        through = np.where(places < 0, -1, at[places])
        if in_step(at, g.length[source]) is None or in_step(through, g.length[source]) is None:
            return None
        return take(g, source, through)
    if g.op[v] != "select" or g.op[g.args[v][0]] != "vconst":
        return None
    mask, inserted, copied = g.args[v]
    if g.length[inserted] or g.op[copied] != "take":
        return None
    rest = _through(g, copied, places)
    if rest is None:
        return None
    mask = take(g, mask, places)
    if g.op[mask] == "vconst":
        return g.node("select", (mask, inserted, rest), g.kind[v], None, len(places))
    return None if g.attr[mask] else rest  # all or none are inserted


# -- codes -----------------------------------------------------------------------------------------


def explode(t: Tracer, a: np.ndarray | Wide, through: bool = False) -> np.ndarray:
    """The array with a code for every element; `through` looks into vectors that were assembled from others."""
    g = t.graph
    if not isinstance(a, Wide):
        flat = np.array(a, np.int64).ravel()
        for j, n in enumerate(flat.tolist()):
            if g.op[n] == "load" and g.length[g.args[n][0]] and g.args[n][1] in g.value:
                flat[j] = (g.args[n][0] + 1 << SHIFT) + int(g.value[g.args[n][1]])
        return flat.reshape(np.shape(a))
    rows = np.moveaxis(a.ids, a.axis, -1)
    out = np.empty((*rows.shape[:-1], a.n, rows.shape[-1]), np.int64)
    places = np.arange(a.n)
    for at in np.ndindex(*rows.shape):
        n = int(rows[at])
        if g.length[n] == 0:
            codes = n
        elif g.op[n] == "take":
            index = g.attr[n].array.astype(np.int64)
            codes = np.where(index < 0, g.zero[g.kind[n]], (g.args[n][0] + 1 << SHIFT) + index)
        elif g.op[n] == "pack":
            codes = explode(t, np.array(g.args[n], np.int64))
        elif through and n in t.pieced:
            codes = t.pieced[n]
        else:
            codes = (n + 1 << SHIFT) + places
        out[(*at[:-1], slice(None), at[-1])] = codes
    if a.whole:
        return out.reshape(a.whole)
    return np.moveaxis(out.reshape(*rows.shape[:-1], -1), -1, a.axis)


def cost(t: Tracer, codes: np.ndarray) -> int:
    """The estimated number of operations to assemble the array that codes describe."""
    axis = t.axes.find(codes.shape)
    return 0 if axis is None else _dealing(t, codes, axis, None)[0]


def assemble(t: Tracer, codes: np.ndarray, kind: str, ways: int | None = None):
    """The array of nodes or the `Wide` that codes describe; `ways` is the number of vectors of the axis."""
    axis = t.axes.find(codes.shape)
    if axis is None:
        return t.each(lambda c: element(t.graph, (c >> SHIFT) - 1, c & PLACE) if c > PLACE else c, codes)
    _, k, vectors = _dealing(t, codes, axis, ways)
    shape = (*codes.shape[:axis], *codes.shape[axis + 1 :], k)
    ids = np.array([_vector(t, v, kind) for v in vectors], np.int64).reshape(shape)
    return Wide(np.moveaxis(ids, -1, axis), axis, codes.shape[axis] // k)


def _dealing(t: Tracer, codes: np.ndarray, axis: int, ways: int | None) -> tuple[int, int, list[np.ndarray]]:
    """The cheapest way to deal the long axis: its cost, the number of vectors, their codes."""
    rows = np.moveaxis(codes, axis, -1)
    size = rows.shape[-1]
    best = None
    for k in t.axes.ways[size] if ways is None else [ways]:
        split = rows.reshape(-1, size // k, k)
        vectors = [split[r, :, j] for r in range(len(split)) for j in range(k)]
        total = sum(_cost(t, v) for v in vectors)
        if best is None or total < best[0]:
            best = (total, k, vectors)
    assert best is not None
    return best


def _sources(codes: np.ndarray) -> np.ndarray:
    """The source of each element: the code of a vector at place 0, or the number of a scalar node."""
    return np.where(codes > PLACE, codes >> SHIFT << SHIFT, codes)


def _cost(t: Tracer, codes: np.ndarray) -> int:
    """The estimated number of operations to assemble a vector."""
    g = t.graph
    first = int(codes[0])
    if (codes == first).all():
        return 0 if first <= PLACE else 1
    sources = np.unique(_sources(codes)).tolist()
    if all((c <= PLACE and c in g.value) or (c > PLACE and g.op[(c >> SHIFT) - 1] == "vconst") for c in sources):
        return 0
    if len(sources) == 1 and len(codes) == g.length[(sources[0] >> SHIFT) - 1]:
        if (codes & PLACE == np.arange(len(codes))).all():
            return 0
    vectors = sum(c > PLACE for c in sources)
    if vectors == 1 and len(sources) <= 2:
        return 1
    parts = segments(t, codes, len(sources))
    if parts is not None:
        return sum(1 + _cost(t, part) for part in parts)
    return 2 * (len(sources) if len(sources) <= MAX_SOURCES else len(codes))


def _vector(t: Tracer, codes: np.ndarray, kind: str) -> int:
    g = t.graph
    first = int(codes[0])
    if (codes == first).all():
        return first if first <= PLACE else element(g, (first >> SHIFT) - 1, first & PLACE)
    from_which = _sources(codes)
    sources = list(dict.fromkeys(from_which.tolist()))
    fixed = [c for c in sources if (c in g.value if c <= PLACE else g.op[(c >> SHIFT) - 1] == "vconst")]
    if len(fixed) == len(sources):
        return constant_vector(g, np.array([g.value[element_of(g, c)] for c in codes.tolist()]), kind)
    zero = g.zero[kind]
    vectors = [c for c in sources if c > PLACE]
    odd = _exception(g, codes, from_which, vectors)
    if odd is not None:  # half of a ring: all places but one are evenly spaced; treat that one as a scalar
        codes = codes.copy()
        codes[odd] = element_of(g, int(codes[odd]))
        return _vector(t, codes, kind)
    if len(vectors) == 1 and all(c == zero for c in sources if c <= PLACE):
        v, places = (vectors[0] >> SHIFT) - 1, np.where(codes > PLACE, codes & PLACE, -1)
        even = _filled(places, codes > PLACE, g.length[v])  # evenly spaced but for zeros, which a select inserts
        if in_step(places, g.length[v]) is not None or in_step(even, g.length[v]) is None:
            return _moved(t, v, places)
    parts = segments(t, codes, len(sources))
    if parts is not None:
        vectors = tuple(_vector(t, part, kind) for part in parts)
        return g.node("join", vectors, kind, (len(parts[0]),) * len(parts), len(codes))
    if t.axes.irregular and (parts := runs(codes)) is not None:
        vectors = tuple(_vector(t, part, kind) for part in parts)
        return g.node("join", vectors, kind, tuple(map(len, parts)), len(codes))
    many = len(sources) > MAX_LONG_SOURCES and len(codes) > MAX_PACKED
    if many and not t.axes.irregular:
        raise Unsupported("a long array pieced together", f"from {len(sources)} others")
    if many or (len(sources) > MAX_SOURCES and len(codes) <= MAX_PACKED):
        return g.node("pack", tuple(element_of(g, c) for c in codes.tolist()), kind, None, len(codes))
    takes = {c: _filled(codes & PLACE, from_which == c, g.length[(c >> SHIFT) - 1]) for c in vectors}
    loose = any(in_step(places, g.length[(c >> SHIFT) - 1]) is None for c, places in takes.items())
    if loose and len(sources) > 2 and len(codes) > MAX_PACKED:
        # cyclic reduction: every second element, taken alone, is evenly spaced
        woven = np.empty_like(codes)
        for j in (0, 1):
            half = _vector(t, codes[j::2], kind)
            woven[j::2] = half if g.length[half] == 0 else (half + 1 << SHIFT) + np.arange(len(codes[j::2]))
        if len(np.unique(_sources(woven))) < len(sources):
            return _vector(t, woven, kind)
    out = None
    for c in sources:
        part = _moved(t, (c >> SHIFT) - 1, takes[c]) if c > PLACE else c
        out = part if out is None else t.algebra.select(constant_vector(g, from_which == c, BOOL), part, out)
    assert out is not None
    t.pieced.setdefault(out, codes)
    return out


def _exception(g: Graph, codes: np.ndarray, from_which: np.ndarray, vectors: list[int]) -> int | None:
    """The place of an element without which the elements of its vector are evenly spaced; None if there is none."""
    for c in vectors:
        here, size = from_which == c, g.length[(c >> SHIFT) - 1]
        if here.sum() <= MAX_SHORT_AXIS or in_step(_filled(codes & PLACE, here, size), size) is not None:
            continue
        for odd in np.flatnonzero(here)[[-1, 0]]:
            most = here & (np.arange(len(codes)) != odd)
            even = _filled(codes & PLACE, most, size)
            if in_step(even, size) is not None and (even == codes & PLACE)[most].all():
                return int(odd)
    return None


def _moved(t: Tracer, v: int, places: np.ndarray) -> int:
    """`take`, but an exact factor is applied afterward: of `p`, `2 p` and `-2 p` only one is stored."""
    g, size = t.graph, t.graph.length[v]
    factor, x = t.algebra.split(v) if g.kind[v] in FLOATS else (1.0, v)
    if abs(factor) == 1.0 or len(places) != size:
        return take(g, v, places)
    return t.algebra.scale(factor, take(g, x, places))


def segments(t: Tracer, codes: np.ndarray, sources: int) -> list[np.ndarray] | None:
    """Codes of many sources, split into shorter vectors that are cheap to assemble; None if that saves little."""
    if sources <= MAX_SOURCES:
        return None
    best, least = None, len(codes) // 4
    for m in t.axes.long:
        if m < len(codes) and len(codes) % m == 0:
            parts = list(codes.reshape(-1, m))
            total = sum(1 + _cost(t, part) for part in parts)
            if total < least:
                best, least = parts, total
    return best


def runs(codes: np.ndarray) -> list[np.ndarray] | None:
    """Split codes into runs that advance through one vector; None if the runs are short."""
    steps = np.where(codes > PLACE, 1, 0)[:-1]
    cuts = np.flatnonzero(np.diff(codes) != steps) + 1
    return np.split(codes, cuts) if 4 * (len(cuts) + 1) <= len(codes) else None


def _filled(places: np.ndarray, here: np.ndarray, size: int) -> np.ndarray:
    """`places`, with the gaps filled: evenly spaced if the places `here` are, else by any place."""
    k, first = np.arange(len(places)), int(np.argmax(here))
    for even in (k, 2 * k, k // 2, k // 4):
        even = even + places[first] - even[first]
        if (places[here] == even[here]).all():
            return np.where((even >= 0) & (even < size), even, -1)
    return np.where(here, places, places[first])


def in_step(places: np.ndarray, size: int) -> tuple[int, int] | None:
    """Four times the step of evenly spaced places, and their start; None if they are not evenly spaced.

    Negative places must lie outside of the vector. A step of zero stands for a rotation: `(k + start) % size`.
    """
    k, there = np.arange(len(places)), places >= 0
    if places.ndim > 1 or not there.any():
        return None
    first = int(np.argmax(there))
    for quarters, even in ((4, k), (8, 2 * k), (2, k // 2), (1, k // 4)):
        start = int(places[first] - even[first])
        if np.where(there, places == even + start, (even + start < 0) | (even + start >= size)).all():
            return quarters, start
    if len(places) == size and (places == (k + places[0]) % size).all():
        return 0, int(places[0])
    return None


def element_of(g: Graph, code: int) -> int:
    return code if code <= PLACE else element(g, (code >> SHIFT) - 1, code & PLACE)


def dealt(t: Tracer, a: Wide, ways: int) -> Wide:
    """The same array with its long axis dealt to `ways` vectors."""
    if not a.whole and a.ids.shape[a.axis] == ways:
        return a
    kind = t.graph.kind[int(a.ids.flat[0])]
    out = assemble(t, explode(t, a), kind, ways)
    out.constant = a.constant
    return out


def settled(t: Tracer, a: Any):
    """A `whole` array dealt to vectors; any other array as it is."""
    if isinstance(a, Wide) and a.whole:
        return assemble(t, explode(t, a), t.graph.kind[int(a.ids.flat[0])])
    return a


def matched(t: Tracer, arrays: Sequence[Any], like: Sequence[np.ndarray | Wide]) -> list:
    """Arrays dealt to as many vectors as those of `like`."""
    return [dealt(t, a, b.ids.shape[b.axis]) if isinstance(b, Wide) else a for a, b in zip(arrays, like, strict=True)]
