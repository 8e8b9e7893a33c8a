"""Evaluates a jaxpr on arrays of scalar nodes.

An array of the jaxpr is a NumPy array of node numbers, so reshaping, slicing, gathering and concatenating are NumPy
calls that create no node, and structural zeros are found by comparing numbers. `rules_*` modules hold one function
for each primitive; here are the evaluation, the calls and the three kinds of control flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex_core
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from ..trace.jaxprs import CALLS, Equation, Params, called
from ..trace.primitives import TABLE, Primitive, evaluate_equation, fill_column
from .algebra import Algebra
from .graph import Defect, Graph, Unsupported, type_of
from .wide import Axes, Wide, assemble, constant_vector, explode

Array = Any  # a NumPy array of node numbers, or a single one
Typed = jax.core.ShapedArray | jax.ShapeDtypeStruct | jax.Array  # what has a shape and a type
Rule = Callable[..., Sequence[Array]]

MAX_ARRAY_SIZE = 4_000_000
VECTOR = 64  # elements of a long axis that count as one element of work
MAX_LITERAL_SIZE = 200_000  # a larger closed-over array does not become nodes
CONTROL = {"while", "scan", "cond", "custom_linear_solve"}  # their rules take long axes as they are
RANDOM = {"random_bits", "threefry2x32", "iota_2x32_shape"}  # computed in the kernel, however much is known

# Parameters that change no value: where data lies, how exact a result must be at least, promises about indices. (The
# preferred element type of a product is the type of its result.)
WITHOUT_EFFECT = {
    "accuracy",
    "indices_are_sorted",
    "is_stable",
    "memory_space",
    "out_sharding",
    "precision",
    "preferred_element_type",
    "sharding",
    "unique_indices",
    "weak_type",
}


def rule(*names: str, honors: str = "") -> Callable[[Rule], Rule]:
    """Register a function `(tracer, params, *arrays) -> arrays` for primitives.

    `honors` names the parameters it reads. An equation with any other parameter is refused, unless that is known to
    have no effect or is None, False or empty: a new option of JAX must not be ignored.
    """

    fill_column("honors", *names)(frozenset(honors.split()))
    return fill_column("kernel", *names)


def wide_rule(*names: str) -> Callable[[Rule], Rule]:
    """The same where an array with a long axis goes in or comes out; parameters are checked by `rule`."""
    return fill_column("wide", *names)


def kernel_rule(name: str) -> Rule:
    """The rule of a primitive that has one."""
    found = TABLE[name].kernel
    assert found is not None
    return found


def is_key(aval: Typed) -> bool:
    return jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)


def _generator(key: Any) -> Any:
    return key.dtype._impl


def check_generator(impl: Any) -> None:
    """Only generators whose keys are pairs of words are supported; those of `rbg` are longer."""
    if impl.key_shape != (2,):
        raise Unsupported(f"random generator {impl.name}")


class Tracer:
    """Holds the graph, its algebra, and the evaluation of jaxprs over them."""

    def __init__(self, graph: Graph, axes: Axes | None = None):
        self.graph = graph
        self.algebra = Algebra(graph)
        self.axes = axes or Axes(set())  # those that are not taken apart
        self.pieced: dict[int, np.ndarray] = {}  # vectors put together from others, with the codes of their elements

    # -- values ------------------------------------------------------------------------------------
    def literal(self, value: Any) -> Array:
        """Constants of the jaxpr as nodes."""
        if isinstance(value, jax.Array) and is_key(value):
            check_generator(_generator(value))
            words = self.literal(jax.random.key_data(value))
            return self.pack_keys(words)
        if isinstance(value, jax.core.Tracer):
            raise Unsupported("a traced value from outside of the step")
        array = np.asarray(value)
        if array.size > MAX_ARRAY_SIZE:
            raise Unsupported(f"array of {array.size} elements")
        kind = type_of(array.dtype)
        axis = self.axes.find(array.shape)
        if axis is not None:
            ways = self.axes.ways[array.shape[axis]][0]
            rows = np.moveaxis(array, axis, -1)
            rows = rows.reshape(*rows.shape[:-1], -1, ways)
            ids = np.empty((*rows.shape[:-2], ways), np.int64)
            for at in np.ndindex(*ids.shape):
                ids[at] = constant_vector(self.graph, rows[(*at[:-1], slice(None), at[-1])], kind)
            return Wide(np.moveaxis(ids, -1, axis), axis, rows.shape[-2], array)
        if array.size > MAX_LITERAL_SIZE:
            raise Unsupported("too many numbers", f"{array.size} in a closed-over array")
        constant = self.graph.constant
        if array.size > 16:
            unique, inverse = np.unique(array.view(f"u{array.itemsize}"), return_inverse=True)
            nodes = np.array([constant(v, kind) for v in unique.view(array.dtype)], np.int64)
            return nodes[inverse].reshape(array.shape)
        return np.array([constant(v, kind) for v in array.ravel()], np.int64).reshape(array.shape)

    def pack_keys(self, words: Array) -> Array:
        flat = words.reshape(-1, 2)
        return np.array([self.algebra.key(int(a), int(b)) for a, b in flat], np.int64).reshape(words.shape[:-1])

    def unpack_keys(self, keys: Array) -> Array:
        args = self.graph.args
        words = [args[int(k)] for k in keys.ravel()]
        return np.array(words, np.int64).reshape((*keys.shape, 2))

    def new_params(self, aval: Typed) -> Array:
        """An array of fresh parameters of the innermost scope."""
        count = int(np.prod(aval.shape, dtype=np.int64))
        if is_key(aval):
            check_generator(_generator(aval))
            words = np.array([self.graph.param("u4") for _ in range(2 * count)], np.int64)
            return self.pack_keys(words.reshape((*aval.shape, 2)))
        kind = type_of(aval.dtype)
        axis = self.axes.find(aval.shape)
        if axis is not None:
            ways = self.axes.ways[aval.shape[axis]][0]
            n = aval.shape[axis] // ways
            ids = [self.graph.param(kind, n) for _ in range(count // n)]
            shape = tuple(ways if d == axis else m for d, m in enumerate(aval.shape))
            return Wide(np.array(ids, np.int64).reshape(shape), axis, n)
        return np.array(self.graph.params(kind, count), np.int64).reshape(aval.shape)

    def scalars(self, arrays: Sequence[Array]) -> list[int]:
        """All elements in order, keys taken apart."""
        out: list[int] = []
        for a in arrays:
            flat = (a.ids if isinstance(a, Wide) else a).ravel().tolist()
            if flat and self.graph.kind[flat[0]] == "key":
                flat = self.unpack_keys(a).ravel().tolist()
            out += flat
        return out

    def lengths(self, arrays: Sequence[Array]) -> list[int]:
        """The length of each of `scalars`: that of its long axis, or 0."""
        return [
            length
            for a in arrays
            for length in ([a.n] * a.ids.size if isinstance(a, Wide) else [0] * len(self.scalars([a])))
        ]

    def unscalars(self, nodes: Sequence[int], like: Sequence[Array]) -> list[Array]:
        """The inverse of `scalars`, for arrays shaped and typed as `like`."""
        out, at = [], 0
        for a in like:
            if isinstance(a, Wide):
                piece = np.array(nodes[at : at + a.ids.size], np.int64)
                out.append(Wide(piece.reshape(a.ids.shape), a.axis, a.n))
                at += a.ids.size
                continue
            key = a.size > 0 and self.graph.kind[int(a.flat[0])] == "key"
            count = a.size * (2 if key else 1)
            piece = np.array(nodes[at : at + count], np.int64)
            out.append(self.pack_keys(piece.reshape((*a.shape, 2))) if key else piece.reshape(a.shape))
            at += count
        return out

    def each(self, fn: Callable[..., int], *arrays: Array) -> Array:
        """Apply `fn` to the elements, once for each distinct tuple."""
        if all(a.ndim == 0 for a in arrays):
            return np.array(fn(*(int(a) for a in arrays)), np.int64)
        arrays = tuple(np.broadcast_arrays(*arrays))
        memo: dict = {}
        out = []
        for t in zip(*(a.ravel().tolist() for a in arrays), strict=True):
            r = memo.get(t)
            if r is None:
                r = memo[t] = fn(*t)
            out.append(r)
        return np.array(out, np.int64).reshape(arrays[0].shape)

    def each_where(self, mask: np.ndarray | np.bool_, default: Array, fn: Callable[..., int], *arrays: Array) -> Array:
        """`fn` where the mask holds, `default` elsewhere; structural zeros are left out like this."""
        mask = np.asarray(mask)
        out = np.array(np.broadcast_to(default, mask.shape))
        if mask.any():
            out[mask] = self.each(fn, *(np.broadcast_to(a, mask.shape)[mask] for a in arrays))
        return out

    def values(self, nodes: Array) -> Array | None:
        """The numbers, if all nodes are constants."""
        value = self.graph.value
        flat = nodes.ravel().tolist()
        if all(n in value for n in flat):
            return np.array([value[n] for n in flat]).reshape(nodes.shape)
        return None

    def known_numbers(self, a: Array) -> np.ndarray | None:
        """The elements of an array that may have a long axis, if they are known."""
        if isinstance(a, Wide):
            return a.constant
        if not a.size or self.graph.kind[int(a.flat[0])] == "key":
            return None
        return self.values(a)

    # -- evaluation --------------------------------------------------------------------------------
    def run(self, closed: ClosedJaxpr | Jaxpr, args: Sequence[Array]) -> list[Array]:
        jaxpr = closed.jaxpr if isinstance(closed, jex_core.ClosedJaxpr) else closed
        consts = closed.consts if isinstance(closed, jex_core.ClosedJaxpr) else ()
        env: dict = {}

        def read(atom: Var | Literal) -> Array:
            return self.literal(atom.val) if isinstance(atom, jex_core.Literal) else env[atom]

        env.update(zip(jaxpr.constvars, (self.literal(c) for c in consts), strict=True))
        env.update(zip(jaxpr.invars, map(_settled, args), strict=True))
        for eqn in jaxpr.eqns:
            outs = [_settled(x) for x in self.equation(eqn, [read(a) for a in eqn.invars])]
            self.check(eqn, outs)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(a) for a in jaxpr.outvars]

    def equation(self, eqn: Equation, ins: list[Array]) -> Sequence[Array]:
        """The results of one equation, by the kernel rule of its primitive; raises `Unsupported` if it has none."""
        name = eqn.primitive.name
        long = any(isinstance(a, Wide) for a in ins)
        for v in eqn.outvars:
            if v.aval.size > MAX_ARRAY_SIZE:
                raise Unsupported(f"array of {v.aval.size} elements", f"in {name}")
            long = (not is_key(v.aval) and self.axes.find(v.aval.shape) is not None) or long
        if name in CALLS:  # only these are inlined, whatever the parameters of other primitives are named
            return self.run(called(eqn), ins)
        elements = sum(v.aval.size for v in (*eqn.invars, *eqn.outvars))
        self.graph.spend(elements // VECTOR if long else elements)
        if name == "call_hi_primitive":
            return self.run(called(eqn), ins)
        if name == "two_forms":  # see `taylor.forms`
            return self.run(eqn.params["unrolled"].traced([v.aval for v in eqn.invars]), ins)
        row = TABLE.get(name)
        if row is None or row.kernel is None:
            raise Unsupported(name)
        for key, value in eqn.params.items():
            if not (key in row.honors or key in WITHOUT_EFFECT or _neutral(value)):
                raise Unsupported(name, f"with {key}={value!r:.60}")
        if long and name not in CONTROL:
            return self._long_equation(row, row.kernel, Params(eqn), ins)
        return row.kernel(self, Params(eqn), *ins)

    def _long_equation(self, row: Primitive, kernel: Rule, p: Params, ins: list[Array]) -> Sequence[Array]:
        """An equation with a long array among its arguments or results."""
        known = [k for k in map(self.known_numbers, ins) if k is not None]
        if len(known) == len(ins) and p.name not in RANDOM:
            return [self.literal(x) for x in evaluate_equation(p, known, exact=True)]
        if ins and not any(isinstance(a, Wide) for a in ins) and p.name != "random_bits":  # from scalars
            outs = [explode(self, np.asarray(x)) for x in kernel(self, p, *ins)]
            return [assemble(self, x, type_of(v.dtype)) for x, v in zip(outs, p.outs, strict=True)]
        if row.wide is None:
            raise Unsupported(p.name, "on a long axis")
        return row.wide(self, p, *ins)

    def check(self, eqn: Equation, outs: Sequence[Array]) -> None:
        """Compare the results of an equation with the shapes and types that JAX gives them."""
        name = eqn.primitive.name
        if len(outs) != len(eqn.outvars):
            raise Defect(f"{name} has {len(outs)} results instead of {len(eqn.outvars)}")
        for v, out in zip(eqn.outvars, outs, strict=True):
            kind = "key" if is_key(v.aval) else type_of(v.aval.dtype)
            wide = isinstance(out, Wide)
            fault = self.graph.fault(out.ids, kind, out.n) if wide else self.graph.fault(out, kind)
            if tuple(out.shape) != tuple(v.aval.shape):
                fault = f"shape {tuple(out.shape)} instead of {tuple(v.aval.shape)}"
            if fault:
                raise Defect(f"the result of {name} has {fault}")


def refuse_unknown(jaxpr: Jaxpr | ClosedJaxpr) -> None:
    """Raise `Unsupported` for a primitive without a rule before any work is done; branches may never run."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name in CALLS or name in ("while", "scan"):
            for value in eqn.params.values():
                if isinstance(value, jex_core.ClosedJaxpr | jex_core.Jaxpr):
                    refuse_unknown(getattr(value, "jaxpr", value))
        elif name not in ("call_hi_primitive", "two_forms") and (name not in TABLE or TABLE[name].kernel is None):
            raise Unsupported(name)


def _neutral(value: object) -> bool:
    return value is None or value is False or (isinstance(value, tuple) and not value)


def _settled(value: Array) -> Array:
    return value if isinstance(value, Wide) else np.asarray(value)
